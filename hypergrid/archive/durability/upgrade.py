"""An archive of an older layout becomes one of today's: its newest snapshot is written anew, beside what it is.

From layout 2 to 3 every chunk gets a checksum, and every snapshot checksums of the files that lead to its chunks. The
arrays are copied on a branch, a commit for each variable, table and layer, so that whoever comes after a kill goes on
where it ended; nobody commits meanwhile, and readers read on. When all of the copy was read back and found whole, main
moves to it, and last of all the marker says the new layout. Older snapshots stay as they are; the checksums of all
chunks that they may need are written down (`SnapshotChecksums.adopt`).

Without checksums a flipped bit can give another value that breaks no rule, and the copy would make it sound: so the
values are compared with raw copies before main moves, by a function that whoever knows these passes in.

Each layout is a step of its own: one from 3 to 4 would follow here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import icechunk
import numpy as np
import zarr
from zarr.core.metadata import ArrayV3Metadata

from hypergrid.archive.archive import LOCK, Archive, open_sums
from hypergrid.archive.arrays.attributes import Json
from hypergrid.archive.arrays.cells import RUN_CHUNKS, split_consecutive
from hypergrid.archive.arrays.layer_store import GROUP as LAYERS
from hypergrid.archive.arrays.table import CODECS
from hypergrid.archive.arrays.variable_group import GROUP as VARIABLES
from hypergrid.archive.disk.concurrent_io import DamagedChunks, list_stored_chunks, name_damaged_chunks
from hypergrid.archive.disk.folder import VERSION, Identity, read_identity, write_identity
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.retention import MARKER as MAINTAINED
from hypergrid.archive.disk.retention import UPGRADING
from hypergrid.archive.disk.snapshot_checksums import commit_session
from hypergrid.archive.disk.storage import BRANCH, open_storage
from hypergrid.archive.integrity import ORPHANS, RESTORE, Defect, Progress
from hypergrid.core.errors import ArchiveConflict, DamagedArchive

WORKING: Final = f"{UPGRADING}{VERSION}"
"""Branch on which the copy is made."""
COPIED: Final = "upgraded"
"""Key of the metadata of its commits: the group that was copied."""
_LAYOUT: Final = "layout"
"""Attribute of the root that says the layout of the copy, once all of it is there."""


_NAMED: Final = 5
"""Defects that an error names."""

Compare = Callable[[Archive, Progress], Iterable[Defect]]
"""Compares the values of an archive with raw copies; returns the defects that keep it from being upgraded."""


WRITERS: Final = {"stream/lock": "a stream", "staging/lock": "an ingest", "reprocess/lock": "a reprocessing"}
"""Locks of an archive that those who write hold between their commits, too."""


@dataclass(frozen=True)
class LayoutUpgrade:
    """What an upgrade did."""

    archive: str
    layout_before: int
    layout: int
    snapshot: str
    """The newest snapshot, which is of the new layout."""
    copied: int
    """Groups that this run copied; what one that was killed had copied is not counted."""
    resumed: bool
    """Whether it went on with what one that was killed had begun."""
    compared: bool = False
    """Whether this run compared the values with raw copies; where nothing did, `check --deep` still can."""

    @property
    def changed(self) -> bool:
        """Whether there was anything to do."""
        return self.layout_before != self.layout


def upgrade(
    path: Path,
    *,
    now_ns: int,
    compare: Compare | None = None,
    progress: Progress = lambda _what, _done: None,
    on_wait: Callable[[], None] = lambda: None,
) -> LayoutUpgrade:
    """Give an archive today's layout; a run that is killed is gone on with by the next.

    Parameters
    ----------
    compare
        Compares values with raw copies before the copy becomes the archive (`ingest.repair.verified_upgrade`). Without
        it a value that a flipped bit changed, and that breaks no rule, gets a checksum as it is.

    Raises
    ------
    NotAnArchive
        There is none, or one of a layout that this program does not read.
    ArchiveConflict
        A stream or an ingest is at work: of an older program, it would go on writing the older layout.
    DamagedArchive
        It cannot be read as a whole, or has other values than raw copies; nothing was changed.
    """
    folder = Path(path).resolve()
    read_identity(folder)
    with wait_for_lock(folder / LOCK, on_wait=on_wait):
        before = read_identity(folder)
        repository = open_storage(folder, before.store).open()
        if before.version != VERSION:
            with _keep_writers_out(folder):
                return _UpgradeRun(folder, before, repository, now_ns, compare, progress).run()
        if is_left := WORKING in repository.list_branches():
            repository.delete_branch(WORKING)
        return LayoutUpgrade(str(folder), VERSION, VERSION, repository.lookup_branch(BRANCH), 0, resumed=is_left)


@contextmanager
def _keep_writers_out(folder: Path) -> Iterator[None]:
    with ExitStack() as stack:
        for name, writer in WRITERS.items():
            if (folder / name).exists():
                stack.enter_context(wait_for_lock(folder / name, on_wait=partial(_refuse, folder, writer)))
        yield


def _refuse(folder: Path, label: str) -> None:
    message = (
        f"{label} is at work on {folder}; end it, then upgrade: an older program would go on with the older layout"
    )
    raise ArchiveConflict(message)


@dataclass
class _UpgradeRun:
    folder: Path
    before: Identity
    repository: icechunk.Repository
    now_ns: int
    compare: Compare | None
    progress: Progress
    is_compared: bool = False

    def run(self) -> LayoutUpgrade:
        after = replace(self.before, version=VERSION, id=self.before.id or uuid4().hex)
        head = self.repository.lookup_branch(BRANCH)
        copied, resumed = 0, self._is_copy(head)
        if not resumed:
            resumed = self._start_branch(head)
            copied = self._copy(head)
            self._examine(after)
        is_left = WORKING in self.repository.list_branches()
        newest = self.repository.lookup_branch(WORKING) if is_left else head
        if (sums := open_sums(self.folder, after)) is not None:
            self.progress("checksums", 0.0)
            sums.adopt(self.repository, newest=newest, of_layout=self.before.version)
            self.progress("checksums", 1.0)
        if newest != head:
            self.repository.reset_branch(BRANCH, newest, from_snapshot_id=head)
        # What the last maintenance said carries no checksum; the next one says it anew.
        (self.folder / MAINTAINED).unlink(missing_ok=True)
        write_identity(self.folder, after)
        if sums is not None:
            sums.keep_spares()
        if is_left:
            self.repository.delete_branch(WORKING)
        return LayoutUpgrade(
            str(self.folder), self.before.version, VERSION, newest, copied, resumed, compared=self.is_compared
        )

    def _is_copy(self, snapshot: str) -> bool:
        """Return whether a snapshot is of the new layout: a run was killed after main had moved."""
        root = zarr.open_group(self.repository.readonly_session(snapshot_id=snapshot).store, mode="r")
        return root.attrs.get(_LAYOUT) == VERSION

    def _start_branch(self, head: str) -> bool:
        """Make the branch, anew where main has moved since; return whether it was there."""
        if WORKING in self.repository.list_branches():
            if self._find_base() == head:
                return True
            self.repository.delete_branch(WORKING)
        self.repository.create_branch(WORKING, head)
        return False

    def _find_base(self) -> str:
        return next(info.id for info in self.repository.ancestry(branch=WORKING) if COPIED not in info.metadata)

    def _copy(self, head: str) -> int:
        """Copy the groups that are not copied yet; return how many."""
        source = zarr.open_group(self.repository.readonly_session(snapshot_id=head).store, mode="r")
        done = {info.metadata.get(COPIED) for info in self.repository.ancestry(branch=WORKING)}
        names = list(_iterate_groups(source))
        left = [name for name in names if name not in done]
        for name in left:
            self.progress("copy", (len(names) - len(left)) / (len(names) + 1))
            session = self.repository.writable_session(WORKING)
            target = zarr.open_group(session.store, mode="r+")
            for array in _iterate_arrays(source, name):
                try:
                    _copy_array(array, target)
                except (DamagedChunks, icechunk.IcechunkError) as error:
                    what = f"{array.path} cannot be read"
                    raise self._damage_error(what, RESTORE) from error
            self._commit(session, name)
        if "" not in done:
            session = self.repository.writable_session(WORKING)
            zarr.open_group(session.store, mode="r+").attrs[_LAYOUT] = VERSION
            self._commit(session, "")
        self.progress("copy", 1.0)
        return len(left)

    def _commit(self, session: icechunk.Session, name: str) -> None:
        content: Json = {"time_ns": int(self.now_ns), "batch": "", "slices": {}, "counts": {}, COPIED: name}
        message = f"layout {VERSION}" + (f", {name}" if name else "")
        commit_session(None, self.repository, session, WORKING, message, content)

    def _examine(self, after: Identity) -> None:
        """Refuse a copy of which anything cannot be read, breaks a rule, or has other values than raw copies."""
        new = self.repository.lookup_branch(WORKING)
        unverified = replace(after, version=self.before.version)
        copy = Archive(self.folder, unverified, self.repository, new)
        check = copy.check(deep=True, progress=self.progress, whole_folder=False)
        self._refuse([item for item in check if item.kind not in ORPHANS])
        if self.compare is not None:
            self._refuse(list(self.compare(copy, self.progress)))
            self.is_compared = True

    def _refuse(self, defects: Sequence[Defect]) -> None:
        if not defects:
            return
        what = "; ".join(f"{defect.where}: {defect.what}" for defect in defects[:_NAMED])
        what += f"; and {len(defects) - _NAMED} more" if len(defects) > _NAMED else ""
        raise self._damage_error(what, "; ".join(dict.fromkeys(defect.remedy for defect in defects)))

    def _damage_error(self, what: str, remedy: str) -> DamagedArchive:
        return DamagedArchive(f"{self.folder} stays at layout {self.before.version}: {what}; what to do: {remedy}")


def _iterate_groups(root: zarr.Group) -> Iterator[str]:
    """Yield the paths of the groups that are copied, each in a commit."""
    for name, _ in sorted(root.groups()):
        if name in (VARIABLES, LAYERS):
            group = root[name]
            assert isinstance(group, zarr.Group)
            yield from (f"{name}/{below}" for below, _ in sorted(group.groups()))
        else:
            yield name


def _iterate_arrays(root: zarr.Group, path: str) -> Iterator[zarr.Array[Any]]:
    """Yield the arrays below a path."""
    group = root[path]
    assert isinstance(group, zarr.Group)
    for _, node in group.members(max_depth=None):
        if isinstance(node, zarr.Array):
            yield node


def _copy_array(source: zarr.Array[Any], root: zarr.Group) -> None:
    """Write an array anew where it was, with today's codecs; chunks that were never written stay so."""
    metadata = source.metadata
    assert isinstance(metadata, ArrayV3Metadata)
    copy = root.create_array(
        source.path, shape=source.shape, chunks=source.chunks, dtype=source.dtype, fill_value=source.fill_value,
        compressors=CODECS, dimension_names=metadata.dimension_names, attributes=source.attrs.asdict(),
        overwrite=True,
    )  # fmt: skip
    for block in _iterate_written(source):
        with name_damaged_chunks([source], *block):
            copy[block] = source[block]


def _iterate_written(array: zarr.Array[Any]) -> Iterator[tuple[slice, ...]]:
    """Yield blocks of whole chunks that hold all that was written, those one after the other together."""
    firsts: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for coordinate in list_stored_chunks(array):
        firsts[coordinate[1:]].append(coordinate[0])
    for others, along in sorted(firsts.items()):
        for run in split_consecutive(np.array(along, np.int64)):
            for part in np.split(run, range(RUN_CHUNKS, len(run), RUN_CHUNKS)):
                edges = [(int(part[0]), int(part[-1]) + 1), *((neighbour, neighbour + 1) for neighbour in others)]
                yield tuple(
                    slice(start * size, min(stop * size, whole))
                    for (start, stop), size, whole in zip(edges, array.chunks, array.shape, strict=True)
                )
