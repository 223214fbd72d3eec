"""States of a stream between its batches: small ones in Spark's own store, large ones in files beside the waiting rows.

Spark sends what its store has through its JVM at each batch, which copies it several times, and keeps more than one
version on its heap. A large state is therefore a file that never changes, and the store has its name and checksum.
"""

import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hypergrid.core.files import replace_atomically, sync_folder
from ingest.streaming.spilled_rows import KEPT_VERSIONS, StateUnusable

INLINE_BYTES: Final = 1 << 20
"""Largest state that Spark's store has itself [bytes]."""
STATES: Final = "states"
"""Folder of the files, in that of the group's rows."""
_MAGIC: Final = b"HGSTATEFILE"


def save(folder: Path, version: int, chunks: Sequence[bytes]) -> bytes:
    """Keep a state; return what Spark's store is to have: the state itself, or a reference to its durable file.

    Parameters
    ----------
    folder
        Folder of the group's rows that wait on disk.
    version
        Number of batches that led to the state.
    chunks
        The state, in chunks that belong behind each other.
    """
    states = folder / STATES
    if sum(map(len, chunks)) <= INLINE_BYTES:
        _sweep(states, version)
        return b"".join(chunks)
    states.mkdir(parents=True, exist_ok=True)
    checksum = 0
    for chunk in chunks:
        checksum = zlib.crc32(chunk, checksum)
    # A process of a run that was just killed may still write the same version.
    name = f"{version:012d}-{checksum:08x}-{os.getpid()}.state"
    with replace_atomically(states / name, durable=True) as path, path.open("wb") as file:
        file.writelines(chunks)
    sync_folder(states)
    _sweep(states, version)
    return _MAGIC + json.dumps({"name": name, "checksum": checksum}).encode()


def is_inline(kept: bytes) -> bool:
    """Tell whether what `save` returned is the state itself."""
    return not kept.startswith(_MAGIC)


def load(folder: Path, kept: bytes) -> bytes:
    """Return the state that `save` kept.

    Raises
    ------
    StateUnusable
        Its file is missing or damaged.
    """
    if is_inline(kept):
        return kept
    about = json.loads(kept.removeprefix(_MAGIC))
    path = folder / STATES / about["name"]
    try:
        state = path.read_bytes()
    except OSError as error:
        raise StateUnusable(f"the state of a stream cannot be read: {error}") from error
    if zlib.crc32(state) != about["checksum"]:
        raise StateUnusable(f"the state of a stream is damaged: {path}")
    return state


def _sweep(states: Path, version: int) -> None:
    """Remove states that no repeated batch can need any more."""
    for path in states.glob("*.state"):
        # A writer that was killed leaves a hidden file.
        if int(path.name.removeprefix(".").partition("-")[0]) <= version - KEPT_VERSIONS:
            path.unlink(missing_ok=True)
