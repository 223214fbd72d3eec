"""Atomic replacement of files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_atomically(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a scratch path beside a file, which replaces the file at the end, or is removed after an error.

    Readers see the old file or the new one, never a part, also after the writer was killed; a killed writer leaves its
    hidden scratch file, which the next one overwrites. Writers of one path must exclude each other.

    Parameters
    ----------
    path
        The file; its folder exists.
    durable
        Whether the content is on the disk before it gets its name, so that it survives a power cut.
    """
    # Hidden, and with the same suffix: some writers choose the format by it.
    scratch = path.with_name(f".{path.name}")
    try:
        yield scratch
        if durable:
            with scratch.open("rb") as file:
                os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
