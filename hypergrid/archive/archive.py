"""An archive, seen at one snapshot, and the commits that follow it."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import icechunk
import numpy as np
import zarr
from numpy.typing import NDArray

from hypergrid.archive.arrays.attributes import decode_station
from hypergrid.archive.arrays.cells import Slices
from hypergrid.archive.arrays.change_set import commit_metadata, read_snapshot
from hypergrid.archive.arrays.layer_store import LayerChange, LayerEntry, Layers
from hypergrid.archive.arrays.reader import (
    count_as_of,
    count_cells,
    count_slices,
    find_extent,
    iterate_bands,
    name_damaged_chunks,
    read,
    split_known,
)
from hypergrid.archive.arrays.records import FileEntry, Reject, Snapshot
from hypergrid.archive.arrays.root import Root
from hypergrid.archive.arrays.variable_group import Extent, VariableGroup
from hypergrid.archive.disk.folder import VERSION, Identity, create_folder, read_identity, remove_folder, synchronise
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.retention import (
    DEFAULT_RETENTION,
    MaintenanceReport,
    RetentionPolicy,
    cite,
    cite_for_result,
    cited,
    is_due,
    maintain,
    note_failure,
    release,
)
from hypergrid.archive.disk.snapshot_checksums import SnapshotChecksums, commit_session
from hypergrid.archive.disk.storage import BRANCH, STORE, S3Store, open_storage
from hypergrid.archive.integrity import Defect, check_files, check_store, examine
from hypergrid.archive.state_backup import check_state
from hypergrid.archive.writer import Writer
from hypergrid.core.errors import DamagedArchive, HyperGridError, NotFound
from hypergrid.core.readings import Readings, Series, Station
from hypergrid.core.times import Window, format_instant
from hypergrid.core.units import Variable
from hypergrid.layers.layer import Layer

StoreError = icechunk.IcechunkError
"""What the library of the store raises where it cannot read or write, as on a full disk."""

LOCK = "lock"
"""File of an archive that is held around every commit."""
_SHORTEST_SLICE_S = 0.01

if "ICECHUNK_LOG" not in os.environ:
    # It warns at each start that commits to a file system are unsafe; the lock is what makes them safe.
    icechunk.set_logs_filter("error")


class Archive:
    """An archive at one snapshot, which later commits do not change; `latest` gives the newest.

    Attributes
    ----------
    path
        Its folder.
    name
        Name of the network.
    slice_s
        Length of a slice [s].
    layout
        Version of its layout on disk.
    snapshot
        Id of the snapshot that is read.
    store
        The S3-compatible store that its values lie in; None: they lie in its folder.
    place
        Where that is, for those who open the repository.
    sums
        Checksums of its snapshots; None: they lie in a store, or its layout has none.
    as_of_ns
        Only what had arrived by this instant is read [ns since 1970 UTC]; None: all (`as_of`).
    """

    def __init__(
        self,
        path: Path,
        identity: Identity,
        repository: icechunk.Repository,
        snapshot: str,
        *,
        as_of_ns: int | None = None,
        care: RetentionPolicy = DEFAULT_RETENTION,
        sums: SnapshotChecksums | None = None,
    ) -> None:
        self.path = path
        self.name = identity.name
        self.slice_s = identity.slice_ns / 1e9
        self.layout = identity.version
        self.snapshot = snapshot
        self.store = identity.store
        self.as_of_ns = as_of_ns
        self._care = care
        self._identity = identity
        self.storage = open_storage(path, identity.store)
        self.sums = open_sums(path, identity) if sums is None else sums
        self._slices = Slices(identity.slice_ns)
        self._repository = repository
        self._groups: dict[str, VariableGroup] = {}
        self._extents: dict[str, Extent | None] = {}

    def __repr__(self) -> str:
        """Name the folder, the snapshot, and the instant as of which it is read."""
        as_of = "" if self.as_of_ns is None else f", as_of={format_instant(self.as_of_ns)!r}"
        return f"Archive({str(self.path)!r}, snapshot={self.snapshot!r}{as_of})"

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str,
        slice_s: float,
        variables: Iterable[Variable],
        now_ns: int,
        store: S3Store | None = None,
    ) -> "Archive":
        """Make an archive with these variables and no readings; a process that dies meanwhile leaves nothing.

        Parameters
        ----------
        path
            A folder that does not exist, or is empty.
        name
            Name of the network.
        slice_s
            Length of a slice [s], for ever; best the interval at which the stations sample. At least 0.01.
        variables
            The first variables; commits may add others.
        now_ns
            The present [ns since 1970 UTC].
        store
            Keep the values in this S3-compatible store, under a name of their own; None: in the folder. All else is in
            the folder, which all who commit must share. Credentials are those of the environment.

        Raises
        ------
        ArchiveConflict
            An archive is there.
        NotAnArchive
            Something else is there; it stays as it is.
        StoreUnavailable
            The store does not answer, or refuses.
        ValueError
            The slice is too short.
        """
        if not slice_s >= _SHORTEST_SLICE_S:
            length_rule = f"at least {_SHORTEST_SLICE_S} s"
            message = f"an archive needs slices of {length_rule}; got {slice_s!r}; give the sampling interval"
            raise ValueError(message)
        s3_store = None if store is None else store.with_prefix(uuid4().hex[:12])
        identity = Identity(name, round(slice_s * 1e9), s3_store, id=uuid4().hex)
        folder = Path(path).resolve()
        declared = list(variables)
        open_storage(folder, identity.store).reach()

        def build(building: Path) -> None:
            repository = open_storage(building, identity.store).create()
            session = repository.writable_session(BRANCH)
            root = Root.create(zarr.create_group(session.store))
            writer = Writer(root.group, slices=Slices(identity.slice_ns), batch="")
            writer.variables(declared)
            metadata = commit_metadata(now_ns, {"batch": "", "slices": {}, "counts": {}})
            commit_session(open_sums(building, identity), repository, session, BRANCH, "created", metadata)
            (building / LOCK).touch()

        create_folder(folder, identity, build=build)
        return cls.open(folder)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        snapshot: str | None = None,
        as_of_ns: int | None = None,
        care: RetentionPolicy = DEFAULT_RETENTION,
    ) -> "Archive":
        """Return the archive in a folder, at a snapshot, or at the newest one; perhaps `as_of` an instant.

        Who commits to it maintains it as `care` says.

        Raises
        ------
        NotAnArchive
            The folder is missing, or no archive.
        NotFound
            It has no such snapshot.
        StoreUnavailable
            The store that holds its values does not answer, or refuses.
        """
        folder = Path(path).resolve()
        identity = read_identity(folder)
        storage = open_storage(folder, identity.store)
        try:
            repository = storage.open()
            with storage.translate_errors():
                head = repository.lookup_branch(BRANCH)
        except icechunk.IcechunkError as error:
            remedy = f"'hypergrid check {folder}' names the files"
            message = f"{folder} is a damaged archive: {storage.where} cannot be opened; {remedy}"
            raise DamagedArchive(message) from error
        archive = cls(folder, identity, repository, head, as_of_ns=as_of_ns, care=care)
        if snapshot in (None, head):
            return archive
        infos = archive._iterate_ancestry(repository, head)
        is_there = any(info.id == snapshot and read_snapshot(info) is not None for info in infos)
        if not is_there and snapshot not in archive.cited:
            existing = [info.id for info in archive.snapshots]
            message = f"{NotFound.among('snapshot', snapshot, existing)}; older ones expired unless they were cited"
            raise NotFound(message)
        return archive.at_snapshot(str(snapshot))

    def as_of(self, time_ns: int | None) -> "Archive":
        """Return the archive at the same snapshot as if only what had arrived by an instant were known; None: all.

        Readings, what they replaced, counts and extents are those of an archive that got nothing else. What is not
        stored with its arrival is that of the snapshot: flags that tests gave later, stations, layers, series, files
        and rejects (`hypergrid.archive.arrays.reader`).
        """
        if time_ns == self.as_of_ns:
            return self
        return self._reopen(self.snapshot, time_ns)

    def latest(self) -> "Archive":
        """Return the archive at its newest snapshot: this object where it reads that one already.

        Asking costs the reading of one small file.

        Raises
        ------
        DamagedArchive
            The file that names the newest snapshot is gone, or cannot be read.
        StoreUnavailable
            The store that holds the values does not answer, or refuses.
        """
        try:
            with self.storage.translate_errors():
                head = self._repository.lookup_branch(BRANCH)
        except icechunk.IcechunkError as error:
            lacks = f"{self.storage.where} does not name its newest snapshot"
            message = f"{self.path} is a damaged archive: {lacks}; 'hypergrid check {self.path}' names what is lost"
            raise DamagedArchive(message) from error
        return self if head == self.snapshot else self.at_snapshot(head)

    @cached_property
    def variables(self) -> Mapping[str, Variable]:
        """Variables by name, in the order of their declaration."""
        return MappingProxyType({name: self.variable(name) for name in self._root.variables})

    def variable(self, name: str) -> Variable:
        """Return one variable; of an archive of many this is much faster than to ask for all.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        return self._get_group(name).variable

    @cached_property
    def stations(self) -> Mapping[str, Station]:
        """Stations by id, each with the history of its positions."""
        return MappingProxyType({key: decode_station(content) for key, content in self._root.stations.items()})

    @cached_property
    def layers(self) -> Layers:
        """Layers by name; the values of each are read when it is first asked for, and kept with this object."""
        return Layers(self._root.group, self._translate_errors)

    @cached_property
    def snapshots(self) -> Sequence[Snapshot]:
        """Snapshots, newest first: from the one that is read to the oldest that has not expired, then cited ones."""
        # Opened anew: this object may remember what another process let expire.
        repository = self.storage.open()
        infos = [info for info in self._iterate_ancestry(repository, self.snapshot) if read_snapshot(info) is not None]
        known = {info.id for info in infos}
        cited = [repository.lookup_snapshot(snapshot_id) for snapshot_id in self.cited if snapshot_id not in known]
        older = [info for info in cited if not infos or info.written_at < infos[-1].written_at]
        older.sort(key=lambda info: info.written_at, reverse=True)
        return tuple(snapshot for info in (*infos, *older) if (snapshot := read_snapshot(info)) is not None)

    @property
    def cited(self) -> tuple[str, ...]:
        """Ids of snapshots that exports and results cite; they do not expire."""
        return tuple(self.cited_by)

    @property
    def cited_by(self) -> Mapping[str, str]:
        """Who cites each of these: "hand" (until it is released) or "result" (while among the last so cited)."""
        if self.sums is not None:
            self.sums.verify_references()
        return cited(self._repository)

    @cached_property
    def committed_ns(self) -> int:
        """When the snapshot that is read was committed, by the committer's clock [ns since 1970 UTC].

        Raises
        ------
        NotFound
            It expired.
        """
        try:
            with self.storage.translate_errors():
                snapshot = read_snapshot(self._repository.lookup_snapshot(self.snapshot))
        except icechunk.IcechunkError as error:
            message = f"snapshot {self.snapshot} expired, and does not tell when it was committed; read the newest"
            raise NotFound(message) from error
        if snapshot is None:
            message = f"snapshot {self.snapshot} of {self.path} is none of an archive; read the newest"
            raise NotFound(message)
        return snapshot.time_ns

    def iterate_since(self, snapshot: str) -> Iterator[Snapshot | None]:
        """Yield the snapshots after an older one, newest first, and at last None where that one is not among them."""
        for info in self._iterate_ancestry(self._repository, self.snapshot):
            if info.id == snapshot:
                return
            if (later_snapshot := read_snapshot(info)) is not None:
                yield later_snapshot
        yield None

    def series(self, variable: str) -> tuple[Series, ...]:
        """Return a variable's series; their order is for ever, new ones are appended.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        return self._get_group(variable).series

    def extent(self, variable: str) -> Window | None:
        """Return the window from the first to the last slice that hold readings, None where none does.

        Its ends are multiples of `slice_s` since 1970.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        extent = self._get_extent(variable)
        return Window(self._slices.start_ns(extent[0]), self._slices.start_ns(extent[1] + 1)) if extent else None

    def spans(self, variable: str, maximum: int) -> Iterator[Window]:
        """Yield windows that hold all of a variable's readings, each of at most so many chunks of slices, in order.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        group, extent = self._get_group(variable), self._get_extent(variable)
        if extent is not None:
            for rows in iterate_bands(group, extent[0], extent[1] + 1, maximum):
                yield Window(self._slices.start_ns(rows.start), self._slices.start_ns(rows.stop))

    def read(
        self,
        variable: str,
        *,
        window: Window | None = None,
        series: NDArray[np.intp] | None = None,
        superseded: bool = False,
        tests: bool = False,
    ) -> Readings:
        """Return a variable's readings, ordered by series, then time.

        Parameters
        ----------
        variable
            Name of the variable.
        window
            Only stamps within it; None: all.
        series
            Only these of `series(variable)`, by number, in any order; None: all. The result counts the full tuple.
        superseded
            Return instead the readings that others with their stamp replaced, oldest first where several share a stamp.
        tests
            Read the tests that set the flags as well (`Readings.tests`).

        Raises
        ------
        NotFound
            There is no such variable, or no such series; or the snapshot expired meanwhile.
        NotAnArchive
            The archive is damaged.
        """
        read_some = partial(read, window=window, series=series, tests=tests)
        with self._translate_errors():
            source = self._get_group(variable)
            if self.as_of_ns is None:
                return read_some(source, self._slices, superseded=superseded)
            current, replaced = (read_some(source, self._slices, superseded=before) for before in (False, True))
            return split_known(current, replaced, self.as_of_ns)[superseded]

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors about what is damaged, or not there, into ones that say why, and what to do."""
        try:
            with name_damaged_chunks(self.path, lambda: (self._root, self._slices)):
                yield
        except icechunk.IcechunkError as error:
            is_head = self.latest().snapshot == self.snapshot
            if is_head or self.snapshot in [snapshot.id for snapshot in self.snapshots]:
                lacks = f"{self.storage.where} lacks what snapshot {self.snapshot} holds, or it is cut short"
                message = f"{self.path} is a damaged archive: {lacks}; 'hypergrid check {self.path}' names what is lost"
                raise DamagedArchive(message) from error
            message = f"snapshot {self.snapshot} of {self.path} expired while it was read; read the newest, or cite it"
            raise NotFound(message) from error

    @property
    def quality(self) -> Mapping[str, object]:
        """Return the parameters of the tests that set the flags, as `Writer.quality` was told them; empty: none ran."""
        return MappingProxyType(self._root.quality)

    def readings(self, variable: str) -> int:
        """Return how many readings a variable has, those not counted that others replaced.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        group = self._get_group(variable)
        return group.readings if self.as_of_ns is None else count_as_of(group, self._slices, self.as_of_ns)["readings"]

    def count_at_least(
        self,
        variable: str,
        *,
        window: Window | None = None,
        series: NDArray[np.intp] | None = None,
        flags: tuple[int, ...] = (),
        maximum: float = math.inf,
    ) -> int:
        """Return how many readings there are at least; of their cells only the flags are read for that.

        Parameters
        ----------
        variable, window, series
            As for `read`.
        flags
            Only readings with these; empty: with any.
        maximum
            Above this number none are counted any more.

        Returns
        -------
        The number of cells that hold a reading: there are more readings where a cell has several, or where the window
        ends within a slice. 0 where the archive is read as of an instant.

        Raises
        ------
        NotFound, NotAnArchive
            As `read`.
        """
        if self.as_of_ns is not None:
            return 0
        with self._translate_errors():
            group = self._get_group(variable)
            return count_cells(group, self._slices, window=window, series=series, flags=flags, maximum=maximum)

    def rejects(self) -> list[Reject]:
        """Return what could not be read, in the order of the commits."""
        with self._translate_errors():
            return self._root.rejects()

    def files(self) -> list[FileEntry]:
        """Return the files that were ingested, in the order of the commits."""
        with self._translate_errors():
            return self._root.files()

    @property
    def described_by(self) -> Mapping[str, str]:
        """Names, by SHA-256, of raw copies that hold no readings but tell how to read them, oldest first."""
        return MappingProxyType(self._root.described_by)

    @property
    def streams(self) -> Mapping[str, Mapping[str, object]]:
        """What each stream that wrote into the archive said last of itself, by its id."""
        return MappingProxyType(self._root.streams)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return by variable the number of its "series", "readings", "values", "missing", "superseded" and "slices".

        "readings" are those not superseded: "values" and "missing" (reported without a value). "slices" are those that
        hold a reading; they are counted anew from the flags.
        """
        with self._translate_errors():
            return {name: self._count_group(self._get_group(name)) for name in self._root.variables}

    @contextmanager
    def commit(
        self, *, batch: str, message: str, now_ns: int, prepare: Callable[[Root], bool] = lambda _root: False
    ) -> Iterator[Writer]:
        """Change the archive at its newest snapshot: all that the context writes becomes visible together, or nothing.

        Other committers wait, in this process and in others; so a commit inside a commit never begins. This object goes
        on reading the snapshot that it reads; `latest` sees the new one. Where nothing changed, nothing is committed.

        Parameters
        ----------
        batch
            Id of what is written. Where a commit carried it already, ``writer.already_committed`` is True, and nothing
            is committed.
        message
            For people.
        now_ns
            The present [ns since 1970 UTC].
        prepare
            Is called with the root before anything is read of it; returns whether it changed something.

        Raises
        ------
        OldLayout
            The archive is to be upgraded first.
        """
        self.require_newest()
        with wait_for_lock(self.path / LOCK), self.storage.translate_errors():
            session = self._repository.writable_session(BRANCH)
            if self.sums is not None:
                self.sums.settle()
                self.sums.verify(session.snapshot_id)
            with name_damaged_chunks(self.path, lambda: (self._root, self._slices)):
                root = zarr.open_group(session.store, mode="r+")
                prepared = prepare(Root(root))
                writer = Writer(root, slices=self._slices, batch=batch)
                writer.changed |= prepared
            writer.parent = session.snapshot_id
            with name_damaged_chunks(self.path, lambda: (self._root, self._slices)):
                yield writer
                metadata = writer.finish()
            if metadata is not None:
                snapshot_metadata = commit_metadata(now_ns, metadata)
                writer.snapshot = commit_session(
                    self.sums, self._repository, session, BRANCH, message, snapshot_metadata
                )
                self._maintain_if_due()

    def _maintain_if_due(self) -> None:
        # What was committed is committed: that care fails is told by `check`, and it is tried again later.
        with suppress(OSError):
            if not is_due(self.path, self.storage, self._care):
                return
            try:
                self._maintain(self._care)
            except (icechunk.IcechunkError, OSError, HyperGridError) as error:
                note_failure(self.path, self.storage, error)

    @property
    def root(self) -> Root:
        """The root of the snapshot, for those who know the layout."""
        return self._root

    @property
    def slices(self) -> Slices:
        """The numbering of slices, for those who know the layout."""
        return self._slices

    def require_newest(self) -> None:
        """Raise `OldLayout` where the archive is to be upgraded before anything is committed to it."""
        self._identity.require_newest(self.path)

    def settle(self) -> None:
        """Return once all that was committed, and all else in its folder, is on the disk: no power cut undoes it.

        Raises
        ------
        OSError
            Something cannot be written.
        """
        synchronise(self.path)

    def add_layer(self, layer: Layer, *, now_ns: int) -> LayerChange:
        """Commit a layer; return what became of it. The same content under its name again commits nothing.

        Raises
        ------
        InvalidLayer
            It is in projected metres; an archive needs longitudes and latitudes.
        """
        batch = f"layer {layer.name} {layer.token} after {self.latest().snapshot}"
        with self.commit(batch=batch, message=f"layer {layer.name}", now_ns=now_ns) as writer:
            return writer.layer(layer)

    def remove_layer(self, name: str, *, now_ns: int) -> LayerEntry:
        """Commit the removal of a layer, which older snapshots keep; return what it was.

        Raises
        ------
        NotFound
            The newest snapshot has none of this name.
        """
        batch = f"no layer {name} after {self.latest().snapshot}"
        with self.commit(batch=batch, message=f"layer {name} removed", now_ns=now_ns) as writer:
            return writer.remove_layer(name)

    def maintain(self, care: RetentionPolicy | None = None) -> MaintenanceReport:
        """Let snapshots expire that were replaced long ago, and remove what no snapshot uses; cited snapshots stay.

        Committers do so by themselves, after some commits.

        Raises
        ------
        OldLayout
            The archive is to be upgraded first.
        """
        self.require_newest()
        with wait_for_lock(self.path / LOCK), self.storage.translate_errors():
            try:
                return self._maintain(care or self._care)
            except icechunk.IcechunkError as error:
                if self.store is not None:
                    raise
                remedy = f"'hypergrid check {self.path}' names what is damaged, and --repair mends it"
                message = f"{self.path} cannot be maintained: not all of its snapshots can be read; {remedy}"
                raise DamagedArchive(message) from error

    def _maintain(self, care: RetentionPolicy) -> MaintenanceReport:
        # Icechunk stamps its objects by the clock of the system, whatever time commits are given.
        return maintain(self.path, self.storage, self.sums, BRANCH, now=datetime.now(UTC), care=care)

    def cite(self, *, for_result: bool = False, on_wait: Callable[[], None] = lambda: None) -> None:
        """Let the snapshot that is read stay, with all that it holds, until it is released.

        Parameters
        ----------
        for_result
            Let it stay only while it is among the last `RetentionPolicy.results` snapshots that results cited.
        on_wait
            Called where a commit is at work, which this waits for.

        Raises
        ------
        NotFound
            It expired.
        """
        with wait_for_lock(self.path / LOCK, on_wait=on_wait):
            try:
                with self.storage.translate_errors():
                    if for_result:
                        cite_for_result(self.storage.open(), self.snapshot, maximum=self._care.results)
                    else:
                        cite(self.storage.open(), self.snapshot)
            except icechunk.IcechunkError as error:
                message = f"snapshot {self.snapshot} expired, and can no longer be cited; cite a newer one"
                raise NotFound(message) from error

    def release(self, snapshot: str) -> None:
        """Let a snapshot that was cited expire like any other.

        Raises
        ------
        NotFound
            It was not cited.
        """
        with wait_for_lock(self.path / LOCK), self.storage.translate_errors():
            if not release(self._repository, snapshot):
                unknown = NotFound.among("cited snapshot", snapshot, self.cited)
                raise unknown

    def check(
        self,
        *,
        deep: bool = False,
        grace_s: float = DEFAULT_RETENTION.keep_s,
        progress: Callable[[str, float], None] = lambda _name, _done: None,
        whole_folder: bool = True,
    ) -> Iterator[Defect]:
        """Yield what is wrong with the archive at this snapshot, each with what to do.

        Parameters
        ----------
        deep
            Read every raw copy as well, and compare its content with the hash that it was kept under.
        grace_s
            Objects of no snapshot that are younger than this are left out: maintenance does not remove them yet [s].
        progress
            Called with what is examined, and the fraction of it that is done.
        whole_folder
            Whether to look for objects of no snapshot, too, which needs the lock.
        """
        if self.sums is not None:
            yield from check_files(self.path, progress)
        newest = self.latest().root
        yield from examine(self.path, self._root, self._slices, newest=newest, deep=deep, progress=progress)
        if not whole_folder:
            return
        yield from check_state(self.path)
        progress("store", 0.0)
        with wait_for_lock(self.path / LOCK):
            yield from check_store(self._repository, self.storage.where, grace_s=grace_s)
        progress("store", 1.0)

    def find_whole_root(self, holds: Callable[[Root], bool]) -> tuple[str, Root] | None:
        """Return the newest snapshot, and its root, of which something holds, as that a table can be read."""
        for snapshot in self.snapshots:
            with suppress(HyperGridError, icechunk.IcechunkError):
                root = self.at_snapshot(snapshot.id).root
                if holds(root):
                    return snapshot.id, root
        return None

    def discard(self) -> bool:
        """Remove an archive that nothing was committed to since its creation; return whether it was such a one."""
        with wait_for_lock(self.path / LOCK):
            # The creation is the one commit without a batch; after maintenance it is no longer there.
            snapshots = self.latest().snapshots
            vacant = len(snapshots) == 1 and snapshots[0].metadata["batch"] == ""
            if vacant:
                remove_folder(self.path)
        return vacant

    def at_snapshot(self, snapshot: str) -> "Archive":
        """Return the archive at a snapshot that is known to be there, read as this object reads."""
        return self._reopen(snapshot, self.as_of_ns)

    def _reopen(self, snapshot: str, as_of_ns: int | None) -> "Archive":
        opened = (self.path, self._identity, self._repository, snapshot)
        return Archive(*opened, as_of_ns=as_of_ns, care=self._care, sums=self.sums)

    def _iterate_ancestry(self, repository: icechunk.Repository, snapshot: str) -> Iterator[icechunk.SnapshotInfo]:
        """Yield what is known of snapshots, newest first, as far as they have not expired."""
        following: str | None = snapshot
        try:
            for info in repository.ancestry(snapshot_id=snapshot):
                self._verify_alone(info.id)
                yield info
                following = info.parent_id
        except icechunk.IcechunkError:
            # The snapshot expired, or its parent did, which this process remembers; or it is damaged.
            if following is not None:
                self._verify_alone(following)

    def _verify_alone(self, snapshot: str) -> None:
        if self.sums is not None:
            self.sums.verify_alone(snapshot)

    @cached_property
    def _root(self) -> Root:
        if self.sums is not None:
            self.sums.verify(self.snapshot)
        with self._translate_errors():
            store = self._repository.readonly_session(snapshot_id=self.snapshot).store
            return Root(zarr.open_group(store, mode="r"))

    def _get_group(self, variable: str) -> VariableGroup:
        if variable not in self._groups:
            self._root.require_variable(variable)
            self._groups[variable] = VariableGroup.load(self._root.group, variable)
        return self._groups[variable]

    def _get_extent(self, variable: str) -> Extent | None:
        if variable not in self._extents:
            group = self._get_group(variable)
            extent = group.extent if self.as_of_ns is None else find_extent(group, self._slices, self.as_of_ns)
            self._extents[variable] = extent
        return self._extents[variable]

    def _count_group(self, group: VariableGroup) -> dict[str, int]:
        if self.as_of_ns is None:
            counts = {"readings": group.readings, "missing": group.missing, "superseded": group.superseded}
            counts["slices"] = count_slices(group)
        else:
            counts = count_as_of(group, self._slices, self.as_of_ns)
        return {"series": len(group.series), "values": counts["readings"] - counts["missing"], **counts}


def open_sums(folder: Path, identity: Identity) -> SnapshotChecksums | None:
    """Return the checksums of the snapshots of an archive; None where it has none."""
    is_here = identity.store is None and identity.version >= VERSION
    return SnapshotChecksums(folder, folder / STORE) if is_here else None
