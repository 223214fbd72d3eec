"""Checksums and spares of the files that lead to a snapshot's chunks, and commits that write them.

Icechunk's snapshots and manifests have no checksums. Each commit therefore writes theirs to a separate file before the
branch moves to the snapshot, and they are verified once when a snapshot is opened. Files in an S3-compatible store are
not verified, as the store does that itself; chunks are, in any storage.

A snapshot and its manifests are small compared to the chunks that they name, and one flipped bit in them hides every
reading. Each commit therefore also copies the new ones, and `hypergrid check --repair` restores damaged files from
these spares. Chunks have no spares: raw copies hold their content, and table rows are written twice (`root.SPARE`).
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import icechunk
import pyarrow as pa

from hypergrid.archive.disk.checksums import (
    FOLDER,
    FileChecksum,
    checksum,
    compute_sum,
    damage_error,
    is_whole_chunk,
    read_checked,
    read_sums,
    write_checked,
    write_sums,
)
from hypergrid.archive.disk.folder import VERSION, Identity
from hypergrid.archive.disk.storage import BRANCH, STAGED, STORE, Storage, open_storage
from hypergrid.core.errors import DamagedArchive
from hypergrid.core.files import replace_atomically

PENDING: Final = "maintaining"
"""Marker file in the checksum folder while snapshots expire: Icechunk rewrites the oldest remaining one with another
parent, which changes its checksum. It maps each snapshot to the offset of the parent in its content and the
checksum of the rest. Older programs left it empty.
"""
REFERENCE: Final = "ref.json"
"""File of a branch or tag."""
HEAD: Final = f"refs/branch.{BRANCH}"
"""Repository folder of the file that names the newest snapshot."""
_SNAPSHOT: Final = "snapshots/"
_MANIFEST: Final = "manifests/"
_LOG: Final = "transactions/"
"""Folders of the repository. The transaction log of a commit is never read, so it may be missing."""
_BARE: Final = "chunks-of-layout-"
"""Name prefix of the file with the checksums of chunks that carry none; the layout number follows."""
_REMEMBERED: Final = 100_000
"""Maximum number of verified files that an object remembers."""
_LETTERS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ID_BITS: Final = 96
_HEAD_BYTES: Final = 39
"""Icechunk's file format: letters and bits of an object id, and length of the header before the compressed content
[byte].
"""


def _parse_id(name: str) -> bytes:
    """Decode an Icechunk object id: 96 bits in Crockford's base 32."""
    number = 0
    for letter in name:
        number = number * 32 + _LETTERS.index(letter)
    return (number >> (5 * len(name) - _ID_BITS)).to_bytes(_ID_BITS // 8, "big")


def _read_object(data: bytes) -> bytes:
    """Decompress a snapshot or manifest; a manifest contains the id bytes of each chunk."""
    with pa.CompressedInputStream(pa.BufferReader(data[_HEAD_BYTES:]), "zstd") as packed:
        content: bytes = packed.read()
    return content


def _without_parent(content: bytes, offset: int) -> bytes:
    return content[:offset] + content[offset + _ID_BITS // 8 :]


def replace_in_object(data: bytes, before: bytes, after: bytes) -> bytes:
    """Replace bytes that occur exactly once in the content of a snapshot or manifest."""
    content = _read_object(data)
    assert content.count(before) == 1
    assert len(after) == len(before)
    packed: bytes = pa.Codec("zstd").compress(content.replace(before, after), asbytes=True)
    return data[:_HEAD_BYTES] + packed


class SnapshotChecksums:
    """Checksums of the snapshots of an archive whose repository is in its folder.

    Each such object verifies a file once and lives as long as an opened repository: Icechunk caches what it read as
    well.
    """

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder / FOLDER
        self.store = store
        self.spares = SpareFiles(folder, store)
        self._verified: set[FileChecksum] = set()

    def write(
        self, repository: icechunk.Repository, snapshot: str, known: Iterable[FileChecksum] = ()
    ) -> list[FileChecksum]:
        """Write the checksums of a snapshot; `known` ones, of immutable files, are reused."""
        by_name = {file_sum.name: file_sum for file_sum in known}
        names = _list_names(repository, snapshot)
        sums = [by_name.get(name) or compute_sum(self.store, name) for name in names]
        write_sums(self.folder / snapshot, sums)
        return sums

    def list_objects(self, kind: str) -> list[Path]:
        """List the files of a kind ("chunks", "snapshots"), without partial writes of the driver."""
        return sorted(path for path in (self.store / kind).glob("*") if STAGED not in path.name)

    def leads_to(self, manifests: Iterable[str], chunk: str) -> bool:
        """Return whether one of the manifests names a chunk; True if one is unreadable."""
        if not chunk or not set(chunk) <= set(_LETTERS):
            return False
        wanted = _parse_id(chunk)
        try:
            return any(wanted in _read_object((self.store / name).read_bytes()) for name in manifests)
        except (OSError, pa.ArrowException):
            return True

    def is_of_newest(self, chunk: str) -> bool:
        """Return whether the newest snapshot uses a chunk; True if unknown."""
        newest = self.find_named(self.store / HEAD / REFERENCE)
        return newest is None or self.is_of_snapshot(newest, chunk)

    def is_of_snapshot(self, snapshot: str, chunk: str) -> bool:
        """Return whether a snapshot uses a chunk; True if unknown."""
        try:
            names = [file_sum.name for file_sum in read_sums(self.folder / snapshot)]
        except DamagedArchive:
            return True
        return self.leads_to([name for name in names if name.startswith(_MANIFEST)], chunk)

    def adopt(self, repository: icechunk.Repository, *, newest: str, of_layout: int) -> None:
        """Write the checksums of all snapshots, and of all chunks that carry none.

        Such chunks are of an older layout, and are verified once when a snapshot that may need them is opened. All
        chunks of the newest snapshot carry their own.
        """
        self.folder.mkdir(exist_ok=True)
        chunks = [path for path in self.list_objects("chunks") if not is_whole_chunk(path.read_bytes())]
        bare = [compute_sum(self.store, f"chunks/{path.name}") for path in chunks]
        write_sums(self.folder / f"{_BARE}{of_layout}", bare)
        together = compute_sum(self.store, f"../{FOLDER}/{_BARE}{of_layout}")
        for path in self.list_objects("snapshots"):
            sums = [compute_sum(self.store, name) for name in _list_names(repository, path.name)]
            write_sums(self.folder / path.name, sums if path.name == newest else [*sums, together])

    def verify(self, snapshot: str, *, alone: bool = False) -> None:
        """Verify the files that lead to a snapshot's chunks; with `alone` only its own file.

        Raises
        ------
        DamagedArchive
            One does not match; the message names it.
        """
        wrong = self._find_wrong(snapshot, alone=alone)
        if wrong and self.is_pending:
            # An expiry is in progress or was killed: the next commit writes the checksums of its results.
            wrong = [file_sum for file_sum in wrong if not self._is_expiring(file_sum)]
        elif wrong:
            # Retry, because an expiry may have ended meanwhile.
            wrong = self._find_wrong(snapshot, alone=alone)
        if wrong:
            raise damage_error(self.store / wrong[0].name, "is another than it was")

    def _find_wrong(self, snapshot: str, *, alone: bool) -> list[FileChecksum]:
        if not (self.store / _SNAPSHOT / snapshot).exists():
            # It expired or is lost: Icechunk reports that.
            return []
        own = read_sums(self.folder / snapshot, maximum=1 if alone else None)
        sums = [file_sum for file_sum in own if not self.is_log(file_sum)]
        sums += [bare for file_sum in sums if _BARE in file_sum.name for bare in read_sums(self.store / file_sum.name)]
        new = [file_sum for file_sum in sums if file_sum not in self._verified]
        wrong = [file_sum for file_sum in new if not file_sum.fits(self.store)]
        if len(self._verified) > _REMEMBERED:
            self._verified.clear()
        self._verified.update(file_sum for file_sum in new if file_sum not in wrong)
        return wrong

    @property
    def is_pending(self) -> bool:
        """Whether an expiry is in progress or was killed."""
        return (self.folder / PENDING).exists()

    def find_damaged(self) -> Iterator[Path]:
        """Yield the files that do not match, including checksum files; each once."""
        seen: set[FileChecksum] = set()
        for path in self.list_snapshot_files():
            wrong: list[Path] = []
            try:
                sums = [file_sum for file_sum in read_sums(path) if file_sum not in seen]
            except DamagedArchive:
                sums, wrong = [], [path]
            seen.update(sums)
            wrong += [
                self.store / file_sum.name
                for file_sum in sums
                if not (file_sum.fits(self.store) or self._is_expiring(file_sum))
            ]
            snapshot = self.store / _SNAPSHOT / path.name
            if wrong and (not path.exists() or (self.is_pending and not snapshot.exists())):
                # It expired meanwhile, or the maintenance that expired it was killed.
                continue
            # An expiry may have ended meanwhile, and have written the new checksum.
            if snapshot in wrong and read_sums(path)[0].fits(self.store):
                wrong.remove(snapshot)
            yield from wrong
        for snapshot in self.list_objects("snapshots"):
            if not (self.folder / snapshot.name).exists() and snapshot.exists():
                yield self.folder / snapshot.name

    def find_damaged_spares(self) -> Iterator[Path]:
        """Yield spares of the newest snapshot's files that are missing or do not match."""
        if not self.spares.folder.is_dir():
            # Written by an older program, without spares.
            return
        with suppress(DamagedArchive):
            yield from self.spares.find_damaged(self._read_newest_sums() or [])

    def keep_spares(self, *, compare: bool = False) -> None:
        """Update the spares to the newest snapshot, if known; with `compare` verify each."""
        with suppress(DamagedArchive):
            sums = self._read_newest_sums()
            if sums is not None:
                self.spares.add(sums, compare=compare)
                self.spares.prune(sums)

    def restore_spares(self) -> Iterator[str]:
        """Replace damaged or missing files by their spares; yields the names of the files."""
        yield from self.spares.restore(entry for entry in self.iterate_known() if not self._is_expiring(entry))

    def _read_newest_sums(self) -> list[FileChecksum] | None:
        newest = self.find_named(self.store / HEAD / REFERENCE)
        return None if newest is None else read_sums(self.folder / newest)

    def find_damaged_references(self) -> Iterator[Path]:
        """Yield the files of branches and tags that do not name an existing snapshot."""
        for path in sorted((self.store / "refs").glob(f"*/{REFERENCE}")):
            # Icechunk marks deleted tags with this file.
            if path.with_name(f"{REFERENCE}.deleted").exists():
                continue
            snapshot = self.find_named(path)
            # The bytes must be exactly what Icechunk writes.
            if snapshot is None or path.read_bytes() != format_reference(snapshot):
                yield path

    def find_named(self, reference: Path) -> str | None:
        """Return the snapshot named by a branch or tag file; None unless it names an existing one."""
        try:
            snapshot = str(json.loads(reference.read_text("ascii"))["snapshot"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return snapshot if (self.store / _SNAPSHOT / snapshot).is_file() else None

    def verify_references(self) -> None:
        """Verify that every branch and tag names an existing snapshot.

        Raises
        ------
        DamagedArchive
            One does not; the message names its file.
        """
        for path in self.find_damaged_references():
            raise damage_error(path, "does not name a snapshot that is there")

    @staticmethod
    def is_log(file_sum: FileChecksum) -> bool:
        return file_sum.name.startswith(_LOG)

    def iterate_known(self) -> Iterator[FileChecksum]:
        """Yield the checksums of all snapshots, skipping unreadable checksum files."""
        for path in self.list_snapshot_files():
            with suppress(DamagedArchive):
                yield from read_sums(path)

    def find_bare_lists(self) -> list[Path]:
        """Return the files with the checksums of chunks that carry none."""
        return sorted(self.folder.glob(f"{_BARE}*"))

    def is_whole(self, chunk: Path) -> bool:
        return self.holds(f"chunks/{chunk.name}", chunk.read_bytes())

    def holds(self, name: str, data: bytes) -> bool:
        """Return whether these bytes are the intact content of an immutable repository file."""
        known = self._bare_sums.get(name) if name.startswith("chunks/") else self._referenced_sums.get(name)
        if known is None:
            return name.startswith("chunks/") and is_whole_chunk(data)
        return (known.crc, known.size) == (checksum(data), len(data))

    @cached_property
    def _referenced_sums(self) -> dict[str, FileChecksum]:
        """Checksums of the files that lead to the chunks of all snapshots, by name."""
        return {file_sum.name: file_sum for path in self.list_snapshot_files() for file_sum in read_sums(path)}

    @cached_property
    def _bare_sums(self) -> dict[str, FileChecksum]:
        """Checksums of chunks that carry none, by name."""
        return {file_sum.name: file_sum for path in self.find_bare_lists() for file_sum in read_sums(path)}

    @contextmanager
    def track_expiry(self, repository: icechunk.Repository) -> Iterator[None]:
        """Let snapshots expire inside the context, then write the checksums of the others.

        Call under the lock.

        Raises
        ------
        DamagedArchive
            A snapshot does not match; then nothing expires.
        """
        self.settle()
        # Icechunk skips tags that it cannot read; the snapshots that they name would expire.
        self.verify_references()
        for path in self.list_snapshot_files():
            self.verify(path.name, alone=True)
        self.mark_pending(repository)
        yield
        self.settle()

    def mark_pending(self, repository: icechunk.Repository) -> None:
        """Record until `settle` that snapshots get new parents, with their other content's checksum."""
        expected = {}
        for path in self.list_snapshot_files():
            snapshot = self.store / _SNAPSHOT / path.name
            parent = repository.lookup_snapshot(path.name).parent_id if snapshot.exists() else None
            if parent is not None:
                content = _read_object(snapshot.read_bytes())
                offset = content.find(_parse_id(parent))
                expected[path.name] = [offset, checksum(_without_parent(content, offset))]
        write_checked(self.folder / PENDING, expected)

    def _is_expiring(self, file_sum: FileChecksum) -> bool:
        """Return whether a file is a snapshot rewritten by an expiry that has not ended."""
        if not (self.is_pending and file_sum.name.startswith(_SNAPSHOT)):
            return False
        snapshot = file_sum.name.removeprefix(_SNAPSHOT)
        try:
            content = _read_object((self.store / file_sum.name).read_bytes())
            offset, expected = read_checked(self.folder / PENDING).get(snapshot, (0, ""))
        except (OSError, pa.ArrowException):
            return False
        except DamagedArchive:
            # An older program, or a backup, recorded nothing; then it must still lead to the same manifests.
            names = [entry.name for entry in read_sums(self.folder / snapshot) if entry.name.startswith(_MANIFEST)]
            return all(_parse_id(name.removeprefix(_MANIFEST)) in content for name in names)
        parents = {_parse_id(path.name) for path in self.list_objects("snapshots")}
        has_parent = content[offset : offset + _ID_BITS // 8] in parents
        return has_parent and checksum(_without_parent(content, offset)) == expected

    def settle(self) -> None:
        """Update the checksums of snapshots that an expiry rewrote, even a killed one.

        Call under the lock.
        """
        if not self.is_pending:
            return
        for path in self.list_snapshot_files():
            if not (self.store / _SNAPSHOT / path.name).exists():
                path.unlink()
                continue
            try:
                first, *others = read_sums(path)
            except DamagedArchive:
                # Reported when the snapshot is opened.
                continue
            if not first.fits(self.store) and self._is_expiring(first):
                write_sums(path, [compute_sum(self.store, first.name), *others])
        for path in self.find_bare_lists():
            self._forget_removed(path)
        self.keep_spares()
        (self.folder / PENDING).unlink()

    def _forget_removed(self, bare: Path) -> None:
        """Drop chunks that no longer exist from the list of chunks that carry no checksum."""
        before = read_sums(bare)
        left = [file_sum for file_sum in before if (self.store / file_sum.name).exists()]
        if len(left) == len(before):
            return
        old = compute_sum(self.store, f"../{FOLDER}/{bare.name}")
        write_sums(bare, left)
        new = compute_sum(self.store, old.name)
        for path in self.list_snapshot_files():
            sums = read_sums(path)
            if old in sums:
                write_sums(path, [new if file_sum == old else file_sum for file_sum in sums])

    def list_snapshot_files(self) -> list[Path]:
        # Only these are named by an Icechunk id, in upper case.
        return sorted(path for path in self.folder.iterdir() if path.name.isalnum() and path.name.isupper())


def commit_session(
    sums: SnapshotChecksums | None,
    repository: icechunk.Repository,
    session: icechunk.Session,
    branch: str,
    message: str,
    metadata: dict[str, object],
) -> str:
    """Commit a session to a branch; return the snapshot.

    If the archive has checksums, they are written before the branch moves, and on main the spares as well.
    """
    if sums is None:
        return session.commit(message, metadata=metadata)
    parent = session.snapshot_id
    # The branch moves last, so that it never shows a snapshot without checksums.
    snapshot = session.flush(message, metadata=metadata)
    sums.folder.mkdir(exist_ok=True)
    if not (sums.folder / parent).exists():
        # Icechunk's own first snapshot.
        sums.write(repository, parent)
    try:
        known = read_sums(sums.folder / parent)
    except DamagedArchive:
        # Then all checksums are computed from the files.
        known = []
    written = sums.write(repository, snapshot, known)
    if branch == BRANCH:
        sums.spares.add(written)
    repository.reset_branch(branch, snapshot, from_snapshot_id=parent)
    if branch == BRANCH:
        sums.spares.prune(written)
    return snapshot


def open_sums(folder: Path, identity: Identity) -> SnapshotChecksums | None:
    """Return the snapshot checksums of an archive; None if it has none."""
    is_here = identity.store is None and identity.version >= VERSION
    return SnapshotChecksums(folder, folder / STORE) if is_here else None


@dataclass(frozen=True, eq=False)
class OpenedRepository:
    """Repository of an archive, opened once for all of its snapshots."""

    path: Path
    """Folder of the archive."""
    identity: Identity
    repository: icechunk.Repository

    @cached_property
    def storage(self) -> Storage:
        return open_storage(self.path, self.identity.store)

    @cached_property
    def sums(self) -> SnapshotChecksums | None:
        """Checksums of its snapshots, shared by all of them; None if the archive has none."""
        return open_sums(self.path, self.identity)


def iterate_ancestry(
    sums: SnapshotChecksums | None, repository: icechunk.Repository, snapshot: str
) -> Iterator[icechunk.SnapshotInfo]:
    """Yield snapshot infos, newest first, until the oldest that has not expired, each once it is verified.

    Raises
    ------
    DamagedArchive
        One of them is damaged.
    """
    following: str | None = snapshot
    try:
        for info in repository.ancestry(snapshot_id=snapshot):
            if sums is not None:
                sums.verify(info.id, alone=True)
            yield info
            following = info.parent_id
    except icechunk.IcechunkError:
        # Either the snapshot is damaged, or it (or its parent) expired and this process still remembers it.
        if sums is not None and following is not None:
            sums.verify(following, alone=True)


def format_reference(snapshot: str) -> bytes:
    """Return the content of a branch or tag file, as Icechunk writes it."""
    return json.dumps({"snapshot": snapshot}, separators=(",", ":")).encode()


def _list_names(repository: icechunk.Repository, snapshot: str) -> list[str]:
    """List the files that lead to the chunks of a snapshot, its own first."""
    content = json.loads(repository.inspect_snapshot(snapshot))
    manifests = sorted(f"manifests/{manifest['id']}" for manifest in content["manifests"])
    logs = [f"{_LOG}{snapshot}"] if content.get("parent_id") else []
    return [f"{_SNAPSHOT}{snapshot}", *manifests, *logs]


SPARES: Final = "spares"
"""Folder of an archive with the copies, under their names in the store."""
_KINDS: Final = ("snapshots", "manifests")


class SpareFiles:
    """The spares of an archive whose repository is in its folder."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder / SPARES
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
