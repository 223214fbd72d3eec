"""An archive at one snapshot, and the commits to it."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final
from uuid import uuid4

import icechunk
import numpy as np
import zarr
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import Slices
from hypergrid.archive.arrays.layer_store import LayerChange, LayerEntry, Layers
from hypergrid.archive.arrays.reader import (
    count_as_of,
    count_cells,
    find_extent,
    iterate_bands,
    name_damaged_chunks,
    read,
    split_known,
)
from hypergrid.archive.arrays.records import FileEntry, Reject, Snapshot, decode_station, read_snapshot
from hypergrid.archive.arrays.root import Root
from hypergrid.archive.arrays.variable_group import Extent, VariableGroup
from hypergrid.archive.arrays.withdrawn import Withdrawn
from hypergrid.archive.disk.concurrent_io import open_root
from hypergrid.archive.disk.folder import Identity, create_folder, read_identity, remove_folder, synchronise
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
from hypergrid.archive.disk.snapshot_checksums import OpenedRepository, commit_session, iterate_ancestry, open_sums
from hypergrid.archive.disk.storage import BRANCH, S3Store, open_storage
from hypergrid.archive.integrity import Defect, check_files, check_store, examine
from hypergrid.archive.state_backup import check_state
from hypergrid.archive.writer import POOL_BYTES, Writer
from hypergrid.core.clock_errors import ClockErrors
from hypergrid.core.errors import DamagedArchive, HyperGridError, NotFound
from hypergrid.core.publication import Publication
from hypergrid.core.readings import Readings, Series, Station
from hypergrid.core.times import Window, format_instant
from hypergrid.core.units import Variable
from hypergrid.layers.layer import Layer

StoreError = icechunk.IcechunkError
"""Raised by the store library on a failed read or write, such as a full disk."""

LOCK = "lock"
"""Lock file of an archive, held during every commit."""
_SHORTEST_SLICE_S = 0.01
_SERIALS: Final = count()

if "ICECHUNK_LOG" not in os.environ:
    # Icechunk warns at import that commits to a file system are unsafe; the archive's lock makes them safe.
    icechunk.set_logs_filter("error")


class Archive:
    """An archive at one snapshot, unaffected by later commits; `latest` opens the newest.

    Attributes
    ----------
    path
        Folder of the archive.
    name
        Name of the network.
    slice_s
        Length of a slice [s].
    layout
        Version of the layout on disk.
    snapshot
        Id of the snapshot.
    store
        S3-compatible store that holds the values; None if the folder does.
    storage
        Location of the repository, for code that opens it directly.
    sums
        Checksums of the snapshots; None if the values are in a store or the layout has none.
    slices
        Numbering of the slices, for code that knows the layout.
    as_of_ns
        Read only what had arrived by this instant [ns since 1970 UTC]; None reads everything (`as_of`).
    serial
        Number of this object, unique in its process, for caches of what it read.
    """

    def __init__(
        self,
        opened: OpenedRepository,
        snapshot: str,
        *,
        as_of_ns: int | None = None,
        care: RetentionPolicy = DEFAULT_RETENTION,
    ) -> None:
        self._opened, self._repository, self._care = opened, opened.repository, care
        self.path, self.storage, self.sums = opened.path, opened.storage, opened.sums
        self.name, self.slice_s = opened.identity.name, opened.identity.slice_ns / 1e9
        self.layout, self.store = opened.identity.version, opened.identity.store
        self.snapshot, self.as_of_ns = snapshot, as_of_ns
        self.slices = Slices(opened.identity.slice_ns)
        self._groups: dict[str, VariableGroup] = {}
        self._extents: dict[str, Extent | None] = {}
        self.serial = next(_SERIALS)

    def __repr__(self) -> str:
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
        """Create an archive with these variables and no readings.

        Atomic: a process that dies during the creation leaves no archive behind.

        Parameters
        ----------
        path
            A folder that does not exist or is empty.
        name
            Name of the network.
        slice_s
            Length of a slice [s], at least 0.01; cannot be changed later. Use the sampling interval of the stations.
        variables
            The initial variables; commits may add others.
        now_ns
            The current time [ns since 1970 UTC].
        store
            Keep the values in this S3-compatible store, under a prefix of their own; None: in the folder. Everything
            else is in the folder, which all committers must share. Credentials come from the environment.

        Raises
        ------
        ArchiveConflict
            The folder is already an archive.
        NotAnArchive
            The path holds something else, which is left untouched.
        StoreUnavailable
            The store does not respond or refuses access.
        ValueError
            The slice is too short.
        """
        if not slice_s >= _SHORTEST_SLICE_S:
            raise ValueError(
                f"an archive needs slices of at least {_SHORTEST_SLICE_S} s; got {slice_s!r}; "
                "give the sampling interval"
            )
        # A random prefix, so that archives in one bucket never share objects.
        s3_store = None if store is None else store.with_prefix(uuid4().hex[:12])
        identity = Identity(name, round(slice_s * 1e9), s3_store, id=uuid4().hex)
        folder = Path(path).resolve()
        declared = list(variables)
        # Fails within about 30 s if the store is unreachable; Icechunk alone would retry ten times.
        open_storage(folder, identity.store).reach()

        def build(building: Path) -> None:
            repository = open_storage(building, identity.store).create()
            session = repository.writable_session(BRANCH)
            root = Root.create(zarr.create_group(session.store))
            Writer(root.group, slices=Slices(identity.slice_ns), batch="").variables(declared)
            metadata: dict[str, object] = {"time_ns": int(now_ns), "batch": "", "slices": {}, "counts": {}}
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
        """Open the archive in a folder at a given snapshot, or at the newest.

        `as_of_ns` restricts it to what had arrived by then (`as_of`). Commits through the returned object are
        maintained according to `care`.

        Raises
        ------
        NotAnArchive
            The folder does not exist or is not an archive.
        NotFound
            The archive has no such snapshot.
        DamagedArchive
            The repository cannot be opened.
        StoreUnavailable
            The store that holds the values does not respond or refuses access.
        """
        folder = Path(path).resolve()
        identity = read_identity(folder)
        storage = open_storage(folder, identity.store)
        try:
            repository = storage.open()
            with storage.translate_errors():
                head = repository.lookup_branch(BRANCH)
        except icechunk.IcechunkError as error:
            raise DamagedArchive(
                f"{folder} is a damaged archive: {storage.where} cannot be opened; "
                f"'hypergrid check {folder}' names the files"
            ) from error
        archive = cls(OpenedRepository(folder, identity, repository), head, as_of_ns=as_of_ns, care=care)
        if snapshot in (None, head):
            return archive
        infos = iterate_ancestry(archive.sums, repository, head)
        # The history also contains Icechunk's own first snapshot, which is not one of an archive.
        is_there = any(info.id == snapshot and read_snapshot(info) is not None for info in infos)
        if not is_there and snapshot not in archive.cited:
            unknown = NotFound.among("snapshot", snapshot, (info.id for info in archive.snapshots))
            raise NotFound(f"{unknown}; older ones expired unless they were cited")
        return archive.at_snapshot(str(snapshot))

    def as_of(self, time_ns: int | None) -> "Archive":
        """Return the same snapshot as known at an instant; None lifts the restriction.

        Readings, superseded readings, counts and extents are those of an archive that received nothing else. Data
        stored without an arrival are those of the snapshot: flags that tests set later, stations, layers, series, files
        and rejects (`hypergrid.archive.arrays.reader`).
        """
        return self if time_ns == self.as_of_ns else self._reopen(self.snapshot, time_ns)

    def latest(self) -> "Archive":
        """Return the archive at its newest snapshot, or this object if it is already there.

        Costs one read of a small file.

        Raises
        ------
        DamagedArchive
            The file that names the newest snapshot is missing or unreadable.
        StoreUnavailable
            The store that holds the values does not respond or refuses access.
        """
        try:
            with self.storage.translate_errors():
                head = self._repository.lookup_branch(BRANCH)
        except icechunk.IcechunkError as error:
            raise DamagedArchive(
                f"{self.path} is a damaged archive: {self.storage.where} does not name its newest snapshot; "
                f"'hypergrid check {self.path}' names what is lost"
            ) from error
        return self if head == self.snapshot else self.at_snapshot(head)

    @cached_property
    def variables(self) -> Mapping[str, Variable]:
        """Variables by name, in order of declaration."""
        return MappingProxyType({name: self.variable(name) for name in self.root.variables})

    def variable(self, name: str) -> Variable:
        """Return one variable; in an archive of many variables much faster than `variables`.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        return self._get_group(name).variable

    @cached_property
    def stations(self) -> Mapping[str, Station]:
        """Stations by id, each with its position history."""
        hidden = self.withdrawn.hidden_stations(self.as_of_ns)
        decoded = {key: decode_station(content) for key, content in self.root.stations.items() if key not in hidden}
        return MappingProxyType(decoded)

    @cached_property
    def layers(self) -> Layers:
        """Layers by name; each is read on first access and cached in this object."""
        return Layers(self.root.group, self._translate_errors)

    @cached_property
    def snapshots(self) -> Sequence[Snapshot]:
        """Snapshots, newest first: from this one to the oldest unexpired, then older cited ones."""
        # Reopen: this repository object may still remember snapshots that another process expired.
        repository = self.storage.open()
        infos = [
            info for info in iterate_ancestry(self.sums, repository, self.snapshot) if read_snapshot(info) is not None
        ]
        known = {info.id for info in infos}
        cited = [repository.lookup_snapshot(snapshot_id) for snapshot_id in self.cited if snapshot_id not in known]
        before = (info for info in cited if not infos or info.written_at < infos[-1].written_at)
        older = sorted(before, key=lambda info: info.written_at, reverse=True)
        return tuple(snapshot for info in (*infos, *older) if (snapshot := read_snapshot(info)) is not None)

    @property
    def cited(self) -> tuple[str, ...]:
        """Ids of cited snapshots, which do not expire."""
        return tuple(self.cited_by)

    @property
    def cited_by(self) -> Mapping[str, str]:
        """Kind of citation by snapshot, "hand" or "result".

        Snapshots cited by hand are kept until released, those cited by results while among the last of these.
        """
        if self.sums is not None:
            self.sums.verify_references()
        return cited(self._repository)

    @cached_property
    def committed_ns(self) -> int:
        """Commit time of this snapshot, by the committer's clock [ns since 1970 UTC].

        Raises
        ------
        NotFound
            The snapshot expired, or is not one of an archive.
        """
        try:
            with self.storage.translate_errors():
                snapshot = read_snapshot(self._repository.lookup_snapshot(self.snapshot))
        except icechunk.IcechunkError as error:
            raise NotFound(
                f"snapshot {self.snapshot} expired, and does not tell when it was committed; read the newest"
            ) from error
        if snapshot is None:
            raise NotFound(f"snapshot {self.snapshot} of {self.path} is none of an archive; read the newest")
        return snapshot.time_ns

    def iterate_since(self, snapshot: str) -> Iterator[Snapshot | None]:
        """Yield the snapshots after an older one, newest first; then None if not found."""
        for info in iterate_ancestry(self.sums, self._repository, self.snapshot):
            if info.id == snapshot:
                return
            if (later_snapshot := read_snapshot(info)) is not None:
                yield later_snapshot
        yield None

    def series(self, variable: str) -> tuple[Series, ...]:
        """Return the series of a variable; the order never changes, new series are appended.

        They include withdrawn ones, which `list_series` leaves out.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        return self._get_group(variable).series

    def list_series(self, variable: str) -> Mapping[int, Series]:
        """Return the series of a variable that no remapping withdrew, by index into `series(variable)`.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        hidden = set(self.withdrawn.hidden_series(variable, self.as_of_ns))
        return {number: item for number, item in enumerate(self.series(variable)) if number not in hidden}

    def extent(self, variable: str) -> Window | None:
        """Return the window from the first to the last slice with readings; None if empty.

        Its bounds are multiples of `slice_s` since 1970.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        extent = self._get_extent(variable)
        return Window(self.slices.start_ns(extent[0]), self.slices.start_ns(extent[1] + 1)) if extent else None

    def spans(self, variable: str, maximum: int) -> Iterator[Window]:
        """Yield, in order, windows that cover all readings of a variable.

        Each spans at most `maximum` chunks of slices.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        group, extent = self._get_group(variable), self._get_extent(variable)
        if extent is not None:
            for rows in iterate_bands(group, extent[0], extent[1] + 1, maximum):
                yield Window(self.slices.start_ns(rows.start), self.slices.start_ns(rows.stop))

    def read(
        self,
        variable: str,
        *,
        window: Window | None = None,
        series: NDArray[np.intp] | None = None,
        superseded: bool = False,
        tests: bool = False,
    ) -> Readings:
        """Return the readings of a variable, ordered by series, then time.

        Parameters
        ----------
        variable
            Name of the variable.
        window
            Only stamps inside this window; None: all.
        series
            Indices into `series(variable)`, in any order; None: all. The result still indexes the full tuple.
        superseded
            Return the superseded readings instead, oldest first among those with the same stamp.
        tests
            Also read the tests that set the flags (`Readings.tests`).

        Raises
        ------
        NotFound
            There is no such variable or series, or the snapshot expired during the read.
        NotAnArchive
            The archive is damaged.
        """
        read_some = partial(read, window=window, series=series, tests=tests)
        with self._translate_errors():
            source = self._get_group(variable)
            if self.as_of_ns is None:
                return read_some(source, self.slices, superseded=superseded)
            current, replaced = (read_some(source, self.slices, superseded=before) for before in (False, True))
            return split_known(current, replaced, self.as_of_ns)[superseded]

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate store errors into `DamagedArchive` or `NotFound`, with a cause and a remedy."""
        try:
            with name_damaged_chunks(self.path, lambda: (self.root, self.slices)):
                yield
        except icechunk.IcechunkError as error:
            # Missing data of a snapshot that still exists are damage; otherwise it expired during the read.
            is_head = self.latest().snapshot == self.snapshot
            if is_head or self.snapshot in [snapshot.id for snapshot in self.snapshots]:
                raise DamagedArchive(
                    f"{self.path} is a damaged archive: {self.storage.where} lacks what snapshot {self.snapshot} "
                    f"holds, or it is cut short; 'hypergrid check {self.path}' names what is lost"
                ) from error
            raise NotFound(
                f"snapshot {self.snapshot} of {self.path} expired while it was read; read the newest, or cite it"
            ) from error

    @property
    def quality(self) -> Mapping[str, object]:
        """Parameters of the tests that set the flags (`Writer.quality`); empty if none ran."""
        return MappingProxyType(self.root.quality)

    @property
    def clock_errors(self) -> ClockErrors:
        """Clock errors by station (`Writer.clock_errors`); clocks of other stations are taken to be right."""
        return self.root.clock_errors

    @property
    def publication(self) -> Publication:
        """Statements about the data (`Writer.publication`)."""
        return Publication.of(self.root.publication)

    def readings(self, variable: str) -> int:
        """Return the number of readings of a variable, without superseded ones.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        group = self._get_group(variable)
        return group.readings if self.as_of_ns is None else count_as_of(group, self.slices, self.as_of_ns)

    def count_at_least(
        self,
        variable: str,
        *,
        window: Window | None = None,
        series: NDArray[np.intp] | None = None,
        flags: tuple[int, ...] = (),
        maximum: float = math.inf,
    ) -> int:
        """Return a lower bound of the number of readings from the cells' flags alone.

        Parameters
        ----------
        variable, window, series
            As for `read`.
        flags
            Count only readings with these flags; empty: all.
        maximum
            Stop counting above this number.

        Returns
        -------
        The number of cells that hold a reading; 0 if the archive is read as of an instant. There are more readings if a
        cell has several or if the window ends within a slice.

        Raises
        ------
        NotFound, NotAnArchive
            As for `read`.
        """
        if self.as_of_ns is not None:
            return 0
        with self._translate_errors():
            group = self._get_group(variable)
            return count_cells(group, self.slices, window=window, series=series, flags=flags, maximum=maximum)

    def rejects(self) -> list[Reject]:
        """Return the rejects in commit order, without those of files that were remapped and read since."""
        with self._translate_errors():
            hidden = self.withdrawn.hidden_rejects(self.as_of_ns)
            return [reject for row, reject in enumerate(self.root.rejects()) if row not in hidden]

    def files(self) -> list[FileEntry]:
        """Return the ingested files in commit order."""
        with self._translate_errors():
            return self.root.files()

    @property
    def described_by(self) -> Mapping[str, str]:
        """Names, by SHA-256, of raw copies that describe how to read others, oldest first."""
        return MappingProxyType(self.root.described_by)

    @property
    def streams(self) -> Mapping[str, Mapping[str, object]]:
        """Latest recorded state of each stream that wrote into the archive, by its id."""
        return MappingProxyType(self.root.streams)

    @contextmanager
    def commit(
        self,
        *,
        batch: str,
        message: str,
        now_ns: int,
        prepare: Callable[[Root], bool] = lambda _root: False,
        pool_bytes: int = POOL_BYTES,
    ) -> Iterator[Writer]:
        """Open a transaction on the newest snapshot; its writes become visible together or never.

        Other committers wait, in this process and in others. A nested commit therefore deadlocks. This object keeps
        reading its own snapshot; `latest` returns the new one. If nothing changed, nothing is committed.

        Parameters
        ----------
        batch
            Id of the batch. If an earlier commit carried it, ``writer.already_committed`` is True and nothing is
            committed.
        message
            Commit message, for the user.
        now_ns
            The current time [ns since 1970 UTC].
        prepare
            Called with the root before anything is read from it; returns whether it changed anything.
        pool_bytes
            Memory for chunks of cells that are read and written several times in the commit [bytes].

        Raises
        ------
        OldLayout
            The archive must be upgraded first.
        """
        self.require_newest()
        with wait_for_lock(self.path / LOCK), self.storage.translate_errors():
            # The lock spans read, merge, write and publish: on a file system, concurrent commits silently lose data.
            session = self._repository.writable_session(BRANCH)
            if self.sums is not None:
                # An expiry that was killed left checksums to be updated.
                self.sums.settle()
                self.sums.verify(session.snapshot_id)
            with name_damaged_chunks(self.path, lambda: (self.root, self.slices)):
                root = open_root(session)
                prepared = prepare(Root(root))
                writer = Writer(root, slices=self.slices, batch=batch, pool_bytes=pool_bytes)
                writer.changed |= prepared
            writer.parent = session.snapshot_id
            with name_damaged_chunks(self.path, lambda: (self.root, self.slices)):
                yield writer
                metadata = writer.finish()
            if metadata is not None:
                writer.snapshot = commit_session(
                    self.sums, self._repository, session, BRANCH, message, {"time_ns": int(now_ns), **metadata}
                )
                self._maintain_if_due()

    def _maintain_if_due(self) -> None:
        # The commit stands even if maintenance fails; `check` reports the failure, and it is retried after more
        # commits.
        with suppress(OSError):
            if is_due(self.path, self.storage, self._care):
                try:
                    self._maintain(self._care)
                except (icechunk.IcechunkError, OSError, HyperGridError) as error:
                    note_failure(self.path, self.storage, error)

    def require_newest(self) -> None:
        """Raise `OldLayout` if the archive must be upgraded before it can be committed to."""
        self._opened.identity.require_newest(self.path)

    def settle(self) -> None:
        """Flush all commits and the rest of the folder to disk, against power cuts.

        Raises
        ------
        OSError
            Something cannot be written.
        """
        synchronise(self.path)

    def add_layer(self, layer: Layer, *, now_ns: int) -> LayerChange:
        """Commit a layer; if its name already holds the same content, nothing is committed.

        Raises
        ------
        InvalidLayer
            The layer is in projected metres; an archive needs longitudes and latitudes.
        """
        # With the snapshot in its id, the batch is new even if the same layer was added and removed before.
        batch = f"layer {layer.name} {layer.token} after {self.latest().snapshot}"
        with self.commit(batch=batch, message=f"layer {layer.name}", now_ns=now_ns) as writer:
            return writer.layer(layer)

    def remove_layer(self, name: str, *, now_ns: int) -> LayerEntry:
        """Commit the removal of a layer and return its entry; older snapshots keep it.

        Raises
        ------
        NotFound
            The newest snapshot has no layer of this name.
        """
        batch = f"no layer {name} after {self.latest().snapshot}"
        with self.commit(batch=batch, message=f"layer {name} removed", now_ns=now_ns) as writer:
            return writer.remove_layer(name)

    def maintain(self, care: RetentionPolicy | None = None) -> MaintenanceReport:
        """Expire old snapshots and collect garbage; cited snapshots are kept.

        Committers do this automatically every few commits (`RetentionPolicy.every`).

        Raises
        ------
        OldLayout
            The archive must be upgraded first.
        DamagedArchive
            Some snapshots cannot be read.
        """
        self.require_newest()
        with wait_for_lock(self.path / LOCK), self.storage.translate_errors():
            try:
                return self._maintain(care or self._care)
            except icechunk.IcechunkError as error:
                # The outer context translates errors of a store.
                if self.store is not None:
                    raise
                raise DamagedArchive(
                    f"{self.path} cannot be maintained: not all of its snapshots can be read; "
                    f"'hypergrid check {self.path}' names what is damaged, and --repair mends it"
                ) from error

    def _maintain(self, care: RetentionPolicy) -> MaintenanceReport:
        # The system clock, because Icechunk stamps its objects by it, whatever time the commits are given.
        return maintain(self.path, self.storage, self.sums, BRANCH, now=datetime.now(UTC), care=care)

    def cite(self, *, for_result: bool = False, on_wait: Callable[[], None] = lambda: None) -> None:
        """Keep this snapshot, with everything it holds, until it is released.

        Parameters
        ----------
        for_result
            Keep it only while it is among the last `RetentionPolicy.results` snapshots cited by results.
        on_wait
            Called if this has to wait for a commit.

        Raises
        ------
        NotFound
            The snapshot expired.
        """
        with wait_for_lock(self.path / LOCK, on_wait=on_wait):
            try:
                with self.storage.translate_errors():
                    if for_result:
                        cite_for_result(self.storage.open(), self.snapshot, maximum=self._care.results)
                    else:
                        cite(self.storage.open(), self.snapshot)
            except icechunk.IcechunkError as error:
                raise NotFound(f"snapshot {self.snapshot} expired, and can no longer be cited; cite another") from error

    def release(self, snapshot: str) -> None:
        """Let a cited snapshot expire like any other.

        Raises
        ------
        NotFound
            It is not cited.
        """
        with wait_for_lock(self.path / LOCK), self.storage.translate_errors():
            if not release(self._repository, snapshot):
                raise NotFound.among("cited snapshot", snapshot, self.cited)

    def check(
        self,
        *,
        deep: bool = False,
        grace_s: float = DEFAULT_RETENTION.keep_s,
        progress: Callable[[str, float], None] = lambda _name, _done: None,
        whole_folder: bool = True,
    ) -> Iterator[Defect]:
        """Yield the defects of the archive at this snapshot, each with a remedy.

        Parameters
        ----------
        deep
            Also read every raw copy and compare its content with its hash.
        grace_s
            Ignore orphaned objects younger than this [s]; maintenance does not remove them yet.
        progress
            Called with the part being examined and the fraction done.
        whole_folder
            Also look for orphaned objects, which needs the lock, and check the state beside the data.
        """
        if self.sums is not None:
            yield from check_files(self.path, progress)
        newest = self.latest().root
        yield from examine(self.path, self.root, self.slices, newest=newest, deep=deep, progress=progress)
        if not whole_folder:
            return
        yield from check_state(self.path)
        progress("store", 0.0)
        with wait_for_lock(self.path / LOCK):
            yield from check_store(self._repository, self.storage.where, grace_s=grace_s)
        progress("store", 1.0)

    def discard(self) -> bool:
        """Remove an archive without any commit since its creation; return whether it was removed."""
        with wait_for_lock(self.path / LOCK):
            # Only the creation commit has an empty batch id; after a maintenance it is gone.
            snapshots = self.latest().snapshots
            vacant = len(snapshots) == 1 and snapshots[0].metadata["batch"] == ""
            if vacant:
                remove_folder(self.path)
        return vacant

    def at_snapshot(self, snapshot: str) -> "Archive":
        """Return the archive at a snapshot known to exist, as of the same instant."""
        return self._reopen(snapshot, self.as_of_ns)

    def _reopen(self, snapshot: str, as_of_ns: int | None) -> "Archive":
        return Archive(self._opened, snapshot, as_of_ns=as_of_ns, care=self._care)

    @cached_property
    def root(self) -> Root:
        """Root group of the snapshot, for code that knows the layout."""
        if self.sums is not None:
            self.sums.verify(self.snapshot)
        with self._translate_errors():
            return Root.open(self._repository, self.snapshot)

    @cached_property
    def withdrawn(self) -> Withdrawn:
        """What remappings withdrew."""
        return self.root.withdrawn

    def _get_group(self, variable: str) -> VariableGroup:
        if variable not in self._groups:
            self.root.require_variable(variable)
            self._groups[variable] = VariableGroup.load(self.root.group, variable)
        return self._groups[variable]

    def _get_extent(self, variable: str) -> Extent | None:
        if variable not in self._extents:
            self._extents[variable] = find_extent(self._get_group(variable), self.slices, self.as_of_ns)
        return self._extents[variable]
