"""Spares of the files that lead to the newest snapshot's chunks, without which all that it holds would be out of reach.

A snapshot and its manifests are small beside the chunks that they name, and a flipped bit in one of them hides every
reading. So each commit copies those that are new, and `hypergrid check --repair` takes a spare for a file that is
damaged. Chunks have none: what they held is in raw copies, and rows of tables are written twice (`Root.spare`).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hypergrid.archive.disk.checksums import FileChecksum, checksum

FOLDER: Final = "spares"
"""Folder of an archive with the copies, under the names that the files have in the store."""
_KINDS: Final = ("snapshots", "manifests")


class SpareFiles:
    """The spares of an archive whose repository lies in its folder."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder / FOLDER
        self._store = store

    def add(self, sums: Iterable[FileChecksum], *, compare: bool = False) -> None:
        """Copy files that have no spare yet, if they are whole; what may change under its name is compared each time.

        Parameters
        ----------
        sums
            Checksums of the files that lead to a snapshot's chunks.
        compare
            Read the spares that are there, and replace those that are others than they were.
        """
        there = set(self._list_names())
        for file_sum in self._select(sums):
            changes = compare or file_sum.name.startswith(_KINDS[0])
            if file_sum.name not in there or (changes and not file_sum.fits(self.folder)):
                self._copy(file_sum, self._store, self.folder)

    def prune(self, sums: Iterable[FileChecksum]) -> None:
        """Remove the spares of other files."""
        for name in set(self._list_names()) - {file_sum.name for file_sum in sums}:
            (self.folder / name).unlink(missing_ok=True)
        for half_written in self.folder.glob("*/.*"):
            half_written.unlink(missing_ok=True)

    def find_damaged(self, sums: Iterable[FileChecksum]) -> Iterator[Path]:
        """Yield the spares that are gone, or others than the files of which they are copies."""
        for file_sum in self._select(sums):
            # Who commits meanwhile removes them; then the files themselves are no longer the newest.
            if not file_sum.fits(self.folder) and file_sum.fits(self._store):
                yield self.folder / file_sum.name

    def restore(self, sums: Iterable[FileChecksum]) -> Iterator[str]:
        """Put spares in the place of files that are damaged or gone; yield the names of these."""
        there = set(self._list_names())
        for file_sum in self._select(sums):
            is_damaged = file_sum.name in there and not file_sum.fits(self._store)
            if is_damaged and self._copy(file_sum, self.folder, self._store):
                yield file_sum.name

    def find_snapshot(self) -> str | None:
        """Return the snapshot that these are spares for; None: there is none, or a commit died between two."""
        names = [path.name for path in (self.folder / _KINDS[0]).glob("[!.]*")]
        return names[0] if len(names) == 1 else None

    def _list_names(self) -> list[str]:
        return [f"{kind}/{path.name}" for kind in _KINDS for path in (self.folder / kind).glob("[!.]*")]

    @staticmethod
    def _select(sums: Iterable[FileChecksum]) -> Iterator[FileChecksum]:
        return (file_sum for file_sum in sums if file_sum.name.startswith(_KINDS))

    @staticmethod
    def _copy(file_sum: FileChecksum, source: Path, target: Path) -> bool:
        """Copy a file where it is whole, so that the copy is there whole or not at all; return whether it was."""
        try:
            data = (source / file_sum.name).read_bytes()
        except OSError:
            return False
        if (checksum(data), len(data)) != (file_sum.crc, file_sum.size):
            return False
        path = target / file_sum.name
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}")
        scratch.write_bytes(data)
        scratch.replace(path)
        return True
