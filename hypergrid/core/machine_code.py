"""On-disk cache of numba machine code, keyed by the content of all its source files.

Importing numba takes half a second: import this module only where it is needed, inside a function.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

# Set before numba reads it, so that parallel loops of other code in this process do not use OpenMP.
os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")

import numba

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def find_cache_folder(sources: Sequence[Path]) -> str:
    """Return the cache folder for exactly these sources; empty if numba is to choose.

    Parameters
    ----------
    sources
        All source files of the code; the folder is below `NUMBA_CACHE_DIR`, or beside the first source.
    """
    # numba's own key covers only the function's file, and would reuse code compiled with older versions of its callees.
    root = os.environ.get("NUMBA_CACHE_DIR", "") or str(sources[0].parent / "__pycache__")
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in sources), digest_size=8).hexdigest()
    folder = Path(root) / f"compiled-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        # The installation is not writable for this user; numba falls back to a folder that is.
        return ""
    return str(folder)


def compile_into(
    folder: str, fastmath: set[str], *, counted: bool = True, within: bool = False, wrapped: bool = True
) -> Callable[[Compiled], Compiled]:
    """Return a decorator that compiles a function, caches the code, and releases the GIL.

    Compilation happens on the first call.

    Parameters
    ----------
    folder
        From `find_cache_folder`.
    fastmath
        Fast-math flags of LLVM.
    counted
        Whether array references are counted. Without counting, the function cannot create arrays, and passing arrays
        between such functions is free.
    within
        Whether to inline the function into its callers.
    wrapped
        Whether Python can call the function, not only compiled code. The wrapper for it takes longer to compile than a
        small function itself.
    """

    def decorate(function: Compiled) -> Compiled:
        # Attributes of numba's config are created at run time, without types.
        config: Any = numba.config
        before, config.CACHE_DIR = config.CACHE_DIR, folder
        try:
            # The folder is read here, once; other users of numba in this process keep theirs.
            options: dict[str, Any] = {
                "cache": True,
                "nogil": True,
                "fastmath": fastmath,
                "error_model": "numpy",
                "no_cpython_wrapper": not wrapped,
            }
            if not counted:
                options["_nrt"] = False
            if within:
                options["forceinline"] = True
            return cast(Compiled, numba.njit(**options)(function))
        finally:
            config.CACHE_DIR = before

    return decorate
