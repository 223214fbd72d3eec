"""Upgrade of an archive to the current layout, by rewriting its newest snapshot.

From layout 2 to 3 every chunk gets a checksum, and every snapshot gets checksums of the files that lead to its chunks.
The arrays are copied in one commit per variable, table and layer, so that a killed run can be resumed. Commits wait
meanwhile; reads continue. Once the copy has been read back and verified, main moves to it, and last of all the marker
changes to the new layout. Older snapshots are left as they are; the checksums of all chunks that they may need are
recorded (`SnapshotChecksums.adopt`).

Without checksums, a flipped bit can produce another value that breaks no rule, and the copy would give it a valid
checksum. The values are therefore compared with raw copies before main moves, by a function that the caller supplies.

Each layout is a separate step: one from 3 to 4 would follow here.
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

from hypergrid.archive.archive import LOCK, Archive
from hypergrid.archive.arrays.cells import RUN_CHUNKS, split_consecutive
from hypergrid.archive.arrays.layer_store import GROUP as LAYERS
from hypergrid.archive.arrays.records import Json
from hypergrid.archive.arrays.root import Root
from hypergrid.archive.arrays.table import CODECS
from hypergrid.archive.arrays.variable_group import GROUP as VARIABLES
from hypergrid.archive.disk.concurrent_io import (
    DamagedChunks,
    list_stored_chunks,
    name_damaged_chunks,
    open_group,
    open_root,
)
from hypergrid.archive.disk.folder import VERSION, Identity, read_identity, write_identity
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.retention import MARKER as MAINTAINED
from hypergrid.archive.disk.retention import UPGRADING
from hypergrid.archive.disk.snapshot_checksums import OpenedRepository, commit_session, open_sums
from hypergrid.archive.disk.storage import BRANCH, open_storage
from hypergrid.archive.integrity import ORPHANS, RESTORE, Defect, Progress
from hypergrid.core.errors import ArchiveConflict, DamagedArchive

WORKING: Final = f"{UPGRADING}{VERSION}"
"""Branch of the copy."""
COPIED: Final = "upgraded"
"""Metadata key of its commits: the group that was copied."""
_LAYOUT: Final = "layout"
"""Root attribute with the layout of the copy, set once it is complete."""


_NAMED: Final = 5
"""Maximum number of defects that an error names."""

Compare = Callable[[Archive, Progress], Iterable[Defect]]
"""Compares the values of an archive with raw copies; returns the defects that prevent the upgrade."""


WRITERS: Final = {"stream/lock": "a stream", "staging/lock": "an ingest", "reprocess/lock": "a reprocessing"}
"""Locks of an archive that writers also hold between their commits."""


@dataclass(frozen=True)
class LayoutUpgrade:
    """Result of an upgrade."""

    archive: str
    layout_before: int
    layout: int
    snapshot: str
    """The newest snapshot, which has the new layout."""
    copied: int
    """Number of groups copied by this run, without those of a killed run."""
    resumed: bool
    """Whether it resumed a killed run."""
    compared: bool = False
    """Whether this run compared the values with raw copies; otherwise `check --deep` still can."""

    @property
    def changed(self) -> bool:
        return self.layout_before != self.layout


def upgrade(
    path: Path,
    *,
    now_ns: int,
    compare: Compare | None = None,
    progress: Progress = lambda _what, _done: None,
    on_wait: Callable[[], None] = lambda: None,
) -> LayoutUpgrade:
    """Upgrade an archive to the current layout; a killed run is resumed by the next.

    Parameters
    ----------
    compare
        Compares values with raw copies before the copy becomes the archive (`ingest.repair.restore_values`). Without
        it, a value changed by a flipped bit that breaks no rule gets a valid checksum.

    Raises
    ------
    NotAnArchive
        There is no archive, or its layout is not readable by this program.
    ArchiveConflict
        A stream or an ingest is active; one of an older program would continue to write the older layout.
    DamagedArchive
        The archive is not fully readable, or its values differ from raw copies; nothing was changed.
    """
    folder = Path(path).resolve()
    read_identity(folder)
    with wait_for_lock(folder / LOCK, on_wait=on_wait):
        before = read_identity(folder)
        repository = open_storage(folder, before.store).open()
        if before.version != VERSION:
            with _keep_writers_out(folder):
                return _UpgradeRun(folder, before, repository, now_ns, compare, progress).run()
        # A run was killed between changing the marker and deleting its branch.
        if is_left := WORKING in repository.list_branches():
            repository.delete_branch(WORKING)
        return LayoutUpgrade(str(folder), VERSION, VERSION, repository.lookup_branch(BRANCH), 0, resumed=is_left)


@contextmanager
def _keep_writers_out(folder: Path) -> Iterator[None]:
    with ExitStack() as stack:
        for name, writer in WRITERS.items():
            if (folder / name).exists():
                # `_refuse` raises instead of waiting.
                stack.enter_context(wait_for_lock(folder / name, on_wait=partial(_refuse, folder, writer)))
        yield


def _refuse(folder: Path, label: str) -> None:
    raise ArchiveConflict(
        f"{label} is at work on {folder}; end it, then upgrade: an older program would go on with the older layout"
    )


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
        # Main has the new layout already if a run was killed after main had moved.
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
        # The last maintenance report carries no checksum; the next run rewrites it.
        (self.folder / MAINTAINED).unlink(missing_ok=True)
        # From here on the archive has the new layout; a run killed before is resumed.
        write_identity(self.folder, after)
        if sums is not None:
            sums.keep_spares()
        if is_left:
            self.repository.delete_branch(WORKING)
        return LayoutUpgrade(
            str(self.folder), self.before.version, VERSION, newest, copied, resumed, compared=self.is_compared
        )

    def _is_copy(self, snapshot: str) -> bool:
        """Return whether a snapshot has the new layout."""
        return Root.open(self.repository, snapshot).group.attrs.get(_LAYOUT) == VERSION

    def _start_branch(self, head: str) -> bool:
        """Create the branch, again if main has moved since; return whether a current one existed."""
        if WORKING in self.repository.list_branches():
            ancestry = self.repository.ancestry(branch=WORKING)
            # Otherwise main has moved, and the copy lacks its commits.
            if next(info.id for info in ancestry if COPIED not in info.metadata) == head:
                return True
            self.repository.delete_branch(WORKING)
        self.repository.create_branch(WORKING, head)
        return False

    def _copy(self, head: str) -> int:
        """Copy the groups that are not copied yet; return their number."""
        source = Root.open(self.repository, head).group
        done = {info.metadata.get(COPIED) for info in self.repository.ancestry(branch=WORKING)}
        names = list(_iterate_groups(source))
        left = [name for name in names if name not in done]
        for name in left:
            self.progress("copy", (len(names) - len(left)) / (len(names) + 1))
            session = self.repository.writable_session(WORKING)
            target = open_root(session)
            for array in _iterate_arrays(source, name):
                try:
                    _copy_array(array, target)
                except (DamagedChunks, icechunk.IcechunkError) as error:
                    raise self._damage_error(f"{array.path} cannot be read", RESTORE) from error
            self._commit(session, name)
        if "" not in done:
            session = self.repository.writable_session(WORKING)
            open_root(session).attrs[_LAYOUT] = VERSION
            self._commit(session, "")
        self.progress("copy", 1.0)
        return len(left)

    def _commit(self, session: icechunk.Session, name: str) -> None:
        content: Json = {"time_ns": int(self.now_ns), "batch": "", "slices": {}, "counts": {}, COPIED: name}
        message = f"layout {VERSION}" + (f", {name}" if name else "")
        # Without checksums: `adopt` writes all of them later.
        commit_session(None, self.repository, session, WORKING, message, content)

    def _examine(self, after: Identity) -> None:
        """Reject a copy that is unreadable, breaks a rule, or differs from raw copies."""
        new = self.repository.lookup_branch(WORKING)
        # The copy has no snapshot checksums yet, so it is opened with the older layout.
        unverified = replace(after, version=self.before.version)
        copy = Archive(OpenedRepository(self.folder, unverified, self.repository), new)
        defects = copy.check(deep=True, progress=self.progress, whole_folder=False)
        self._refuse([defect for defect in defects if defect.kind not in ORPHANS])
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
    """Yield the paths of the groups to copy, one commit each."""
    for name, group in sorted(root.groups()):
        if name in (VARIABLES, LAYERS):
            yield from (f"{name}/{below}" for below, _ in sorted(group.groups()))
        else:
            yield name


def _iterate_arrays(root: zarr.Group, path: str) -> Iterator[zarr.Array[Any]]:
    for _, node in open_group(root, path).members(max_depth=None):
        if isinstance(node, zarr.Array):
            yield node


def _copy_array(source: zarr.Array[Any], root: zarr.Group) -> None:
    """Rewrite an array in place with the current codecs; unwritten chunks stay unwritten."""
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
    """Yield blocks of whole chunks that cover all written ones, joining consecutive chunks."""
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
