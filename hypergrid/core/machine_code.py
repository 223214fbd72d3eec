"""Machine code of compiled functions, kept on disk by the content of all files that it was made from.

numba itself looks at a function's own file only, and would run what an older version of its callees did.

numba takes half a second to import. Only what is worth it imports this module, inside a function.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

# Should anyone's parallel loops run in this process, then not on OpenMP; set before numba reads it.
os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")

import numba

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def find_cache_folder(sources: Sequence[Path]) -> str:
    """Return the folder of the machine code of just these sources; empty where numba shall choose.

    Parameters
    ----------
    sources
        All files that the code is made from; the folder is below `NUMBA_CACHE_DIR`, or beside the first.
    """
    root = os.environ.get("NUMBA_CACHE_DIR", "") or str(sources[0].parent / "__pycache__")
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in sources), digest_size=8).hexdigest()
    folder = Path(root) / f"compiled-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        # Installed where this user may not write: numba has a folder for that.
        return ""
    return str(folder)


def compile_into(
    folder: str, fastmath: set[str], *, counted: bool = True, within: bool = False
) -> Callable[[Compiled], Compiled]:
    """Return what compiles a function at its first call, keeps the code in a folder, and runs it without Python's lock.

    Parameters
    ----------
    folder
        From `find_cache_folder`.
    fastmath
        What may be rounded otherwise.
    counted
        Whether references to arrays are counted. Without, no array can be made in it, and a call of one such function
        by another costs nothing for each array that is handed over.
    within
        Whether it becomes part of each function that calls it.
    """

    def decorate(function: Compiled) -> Compiled:
        # Named at run time only, and without types.
        config: Any = numba.config
        before, config.CACHE_DIR = config.CACHE_DIR, folder
        try:
            # The folder is chosen here, once; other users of numba in this process keep theirs.
            options: dict[str, Any] = {"cache": True, "nogil": True, "fastmath": fastmath, "error_model": "numpy"}
            if not counted:
                options["_nrt"] = False
            if within:
                options["forceinline"] = True
            return cast(Compiled, numba.njit(**options)(function))
        finally:
            config.CACHE_DIR = before

    return decorate
