"""Spares of the files that lead to the newest snapshot's chunks.

A snapshot and its manifests are small compared to the chunks that they name, and one flipped bit in them hides every
reading. Each commit therefore copies the new ones, and `hypergrid check --repair` restores damaged files from their
spares. Chunks have no spares: raw copies hold their content, and table rows are written twice (`root.SPARE`).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hypergrid.archive.disk.checksums import FileChecksum, checksum
from hypergrid.core.files import replace_atomically

FOLDER: Final = "spares"
"""Folder of an archive with the copies, under their names in the store."""
_KINDS: Final = ("snapshots", "manifests")


class SpareFiles:
    """The spares of an archive whose repository is in its folder."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder / FOLDER
        self._store = store

    def add(self, sums: Iterable[FileChecksum], *, compare: bool = False) -> None:
        """Copy intact files that have no spare yet.

        Files that can change under their name (snapshots) are always compared.

        Parameters
        ----------
        sums
            Checksums of the files that lead to a snapshot's chunks.
        compare
            Verify existing spares, and replace those that do not match.
        """
        there = set(self._list_names())
        for file_sum in self._select(sums):
            # An expiry rewrites snapshots under their names.
            changes = compare or file_sum.name.startswith(_KINDS[0])
            if file_sum.name not in there or (changes and not file_sum.fits(self.folder)):
                self._copy(file_sum, self._store, self.folder)

    def prune(self, sums: Iterable[FileChecksum]) -> None:
        """Remove the spares of all other files."""
        for name in set(self._list_names()) - {file_sum.name for file_sum in sums}:
            (self.folder / name).unlink(missing_ok=True)
        # Left by a commit that died.
        for half_written in self.folder.glob("*/.*"):
            half_written.unlink(missing_ok=True)

    def find_damaged(self, sums: Iterable[FileChecksum]) -> Iterator[Path]:
        """Yield spares that are missing or do not match an intact original."""
        for file_sum in self._select(sums):
            # A concurrent commit removes spares; then the originals are no longer the newest snapshot's.
            if not file_sum.fits(self.folder) and file_sum.fits(self._store):
                yield self.folder / file_sum.name

    def restore(self, sums: Iterable[FileChecksum]) -> Iterator[str]:
        """Replace damaged or missing files by their spares; yields the names of the files."""
        there = set(self._list_names())
        for file_sum in self._select(sums):
            is_damaged = file_sum.name in there and not file_sum.fits(self._store)
            if is_damaged and self._copy(file_sum, self.folder, self._store):
                yield file_sum.name

    def find_snapshot(self) -> str | None:
        """Return the snapshot of these spares; None if missing or ambiguous."""
        # There are two if a commit died between adding its spares and pruning the older ones.
        names = [path.name for path in (self.folder / _KINDS[0]).glob("[!.]*")]
        return names[0] if len(names) == 1 else None

    def _list_names(self) -> list[str]:
        return [f"{kind}/{path.name}" for kind in _KINDS for path in (self.folder / kind).glob("[!.]*")]

    @staticmethod
    def _select(sums: Iterable[FileChecksum]) -> Iterator[FileChecksum]:
        return (file_sum for file_sum in sums if file_sum.name.startswith(_KINDS))

    @staticmethod
    def _copy(file_sum: FileChecksum, source: Path, target: Path) -> bool:
        """Copy a file atomically if it is intact; return whether it was."""
        try:
            data = (source / file_sum.name).read_bytes()
        except OSError:
            return False
        if (checksum(data), len(data)) != (file_sum.crc, file_sum.size):
            return False
        path = target / file_sum.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_atomically(path) as scratch:
            scratch.write_bytes(data)
        return True
