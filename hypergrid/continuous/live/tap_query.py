"""A live query over readings as they arrive, before the archive has them.

The position is the number of a record of the tap, kept with state and results in one transaction; what a state needs of
earlier records is read again after a start. Elements that come below the heartbeat are corrected like those of an
archive, from recent readings in memory; those older than these are counted, as only the archive can correct them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from hypergrid.continuous.archive_catalogue import OBS, RAIN, READINGS, list_rain_variables
from hypergrid.continuous.archive_query import ArchiveQuery, open_inputs
from hypergrid.continuous.engine import ElementBatch, Texts
from hypergrid.continuous.engine.state import pack_state, unpack_state
from hypergrid.continuous.horizon import find_horizon
from hypergrid.continuous.limits import ALLOWED_BYTES, require_share
from hypergrid.continuous.live.archive_versions import ArchiveVersions
from hypergrid.continuous.live.disorder import TapClock
from hypergrid.continuous.live.evaluation import LiveEvaluation, LiveStep
from hypergrid.continuous.live.store import LiveEntry, LiveOptions, LiveStore, check_keep, open_store
from hypergrid.continuous.live.tables import open_kept_inputs, pack_tables
from hypergrid.continuous.live.tap_memory import LateLimits, TapArchive, TapBatch, TapMemory
from hypergrid.continuous.names import check_live_name
from hypergrid.continuous.sources import list_demands
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.query import OpenArchive

KEPT_NS: Final = 600 * SECOND_NS
"""How far below the heartbeat elements are corrected, at least [ns]."""

_VERSION: Final = 3
"""Changes with the form of what a query keeps of its tap."""


class TapPosition(NamedTuple):
    """Position in a tap."""

    since: int
    """Record from which on readings are needed again."""
    upto: int
    """Last record whose readings were taken."""

    def __str__(self) -> str:
        return f"records {self.since}-{self.upto}"

    @classmethod
    def read(cls, text: str) -> "TapPosition":
        """Return the position of a text.

        Raises
        ------
        InvalidQuery
            It is none of a tap.
        """
        first, _, last = text.removeprefix("records ").partition("-")
        if not (first.isdigit() and last.isdigit()):
            raise InvalidQuery(f"a live query at a tap has a position such as 'records 1-20'; got {text!r}")
        return cls(int(first), int(last))


class TapStep(NamedTuple):
    """Outcome of a step."""

    elements: int
    """Elements given, corrections included."""
    ignored: int
    """Readings that arrived too late for the tap, or whose clock is ahead: only the archive has them."""


class _Forgotten(Exception):  # noqa: N818 - never leaves this module
    """Readings are needed that are not in memory any more."""


class _TapVersions(ArchiveVersions):
    """Elements of a tap in memory; only those of its newest version can be read."""

    def __init__(self, query: ArchiveQuery, options: LiveOptions, recent: TapArchive) -> None:
        super().__init__(query, options.start_ns, idle_s=options.idle_s, disorder_s=options.disorder_s)
        self._recent = recent
        self.changed: list[Window] = []
        """Windows of instants in which elements changed since the last step."""
        self.floor_ns = options.start_ns
        self.reach_ns = self._reach_ns(recent)
        """How long after its stamp a reading can change elements [ns]."""

    def _open(self, version: str) -> OpenArchive:
        del version
        return self._recent

    def read(self, version: str, window: Window, texts: Texts) -> Iterator[tuple[Mapping[str, ElementBatch], int]]:
        """Yield the elements of a window in canonical order; they must be in memory."""
        if window.start_ns < self.floor_ns:
            raise _Forgotten
        yield from super().read(version, window, texts)

    def list_changed(self, old: str, new: str, window: Window, past_ns: int) -> Sequence[Window]:
        """Return windows of elements that arrived, or replaced others, since the last step."""
        del old, new, past_ns
        # Rain is what a counter grew by since the reading before.
        reach = self.reach_ns if RAIN in self._streams else 0
        wide = (Window(each.start_ns, each.stop_ns + reach) for each in self.changed)
        return [part for each in wide if (part := each.intersect(window)) is not None]


class TapQuery:
    """Evaluation of a live query over a tap; one program at a time goes on with it.

    Parameters
    ----------
    archive
        The archive that the readings will come to; it names variables, series and stations.
    store
        Its live queries.
    name
        Name of the query.
    """

    def __init__(self, archive: OpenArchive, store: LiveStore, name: str) -> None:
        self._store, self._name = store, name
        entry = store.find(name)
        self._options = entry.options
        if entry.options.source != "tap":
            raise InvalidQuery(f"live query {name!r} follows the archive; 'hypergrid serve' evaluates it")
        inputs = open_kept_inputs(archive, store, entry)
        query = ArchiveQuery(inputs, *inputs.choose(entry.text))
        self._at_once = query.bound.emit == "now"
        self._memory = TapMemory(archive.store, _list_variables(archive, query))
        self._versions = _TapVersions(query, entry.options, TapArchive(archive, self._memory))
        tree = self._versions.tree
        self._idle_ns = round(entry.options.idle_s * SECOND_NS)
        self._horizon_ns = find_horizon(tree, query.catalogue.static)
        self._record = store.record(name)
        self._evaluation = LiveEvaluation(
            tree, self._versions, self._record, entry.options.start_ns, query.catalogue.static
        )
        self._restored = entry.snapshot is None
        self._begin()

    @property
    def entry(self) -> LiveEntry:
        """The query, and how far it is evaluated; its snapshot is a position."""
        return self._store.find(self._name)

    @property
    def position(self) -> int:
        """Number of the last record whose readings were taken."""
        snapshot = self.entry.snapshot
        return self._options.after_record if snapshot is None else TapPosition.read(snapshot).upto

    def missing_records(self) -> tuple[int, int] | None:
        """Return the records (after, upto) that `restore` needs before the next step; None: none."""
        snapshot = self.entry.snapshot
        if self._restored or snapshot is None:
            self._restored = True
            return None
        position = TapPosition.read(snapshot)
        return min(position.since - 1, position.upto), position.upto

    def restore(self, batches: Sequence[TapBatch]) -> None:
        """Take readings again that were taken before, up to the position; then all is as if there had been no end.

        Raises
        ------
        InvalidQuery
            What was kept with the position is missing or damaged.
        """
        self._begin()
        kept = self._store.find_tap(self._name)
        if kept is None:
            raise InvalidQuery(
                f"live query {self._name!r} lacks what it has to know of its tap; remove and add it again"
            )
        try:
            state = unpack_state(kept, _VERSION)
        except InvalidQuery as error:
            raise InvalidQuery(
                f"what live query {self._name!r} kept of its tap cannot be read ({error}); remove and add it again"
            ) from error
        self._evaluation.firsts = state.get("firsts")
        self._clock.load(state["clock"])
        self._late_rows, self._versions.floor_ns = state["late"], state["floor_ns"]
        limits = LateLimits(self._versions.floor_ns - self._versions.reach_ns, self._late_rows)
        for batch in batches:
            # Readings that were left to the archive are so again; their disorder was observed.
            self._memory.add(self._drop_ahead(batch)[0], self._options.start_ns, limits)
        self._restored = True

    def step(self, batch: TapBatch) -> TapStep:
        """Go on by a batch, and keep what it gives in one transaction.

        Raises
        ------
        InvalidQuery
            Another program evaluates the query, or the batch does not follow the one before.
        """
        entry = self.entry
        if not self._restored or self.position != batch.after:
            raise InvalidQuery(
                f"live query {self._name!r} stands at record {self.position}; a batch after record {batch.after} does "
                "not follow"
            )
        start_ns = self._options.start_ns
        before = start_ns if entry.heartbeat_ns is None else max(entry.heartbeat_ns, start_ns)
        late_from = self._find_correctable(before)
        try:
            ignored = self._take(batch, late_from)
            complete = self._clock.find_heartbeat(batch.clock_ns, at_once=self._at_once)
            heartbeat = before if complete is None else max(complete, before)
            changed = len(self._versions.changed)
            step = self._advance(entry, batch, heartbeat)
            ignored += changed - len(self._versions.changed)
            self._set_floor(heartbeat)
            self._memory.drop_before(self._versions.floor_ns - self._versions.reach_ns)
            since = min(self._memory.first_record(batch.upto + 1), batch.upto + 1)
            self._note_late(batch, late_from, since)
            self._store.keep(entry, str(TapPosition(since, batch.upto)), step, tap=self._pack())
        except BaseException:
            # What was not kept was not given; memory holds readings that the position does not.
            self._evaluation.forget()
            self._begin()
            self._restored = False
            raise
        self._versions.changed.clear()
        return TapStep(len(step.elements), ignored)

    def _begin(self) -> None:
        """Have taken nothing."""
        self._clock = TapClock(self._options)
        self._memory.clear()
        self._versions.changed.clear()
        self._versions.floor_ns = self._options.start_ns
        self._late, self._late_rows = 0, LateLimits(0).rows

    def _advance(self, entry: LiveEntry, batch: TapBatch, heartbeat: int) -> LiveStep:
        version = f"record {batch.upto}"
        self._evaluation.keep_ns = entry.retention.keep_ns
        try:
            return self._evaluation.advance(entry.snapshot, version, heartbeat)
        except _Forgotten:
            # A correction that would have to begin before what is in memory: left to the archive.
            self._evaluation.forget()
            self._versions.changed.clear()
            return self._evaluation.advance(entry.snapshot, version, heartbeat)

    def _take(self, batch: TapBatch, from_ns: int) -> int:
        """Take the readings of a batch; return how many are left to the archive."""
        kept, ahead = self._drop_ahead(batch)
        windows, self._late = self._memory.add(kept, self._options.start_ns, LateLimits(from_ns))
        self._versions.changed += windows
        self._clock.observe(kept, self._memory.kept_variables)
        return ahead + self._late

    def _note_late(self, batch: TapBatch, late_from: int, since: int) -> None:
        """Note below which instants readings of a batch were left to the archive, as long as they may be read again."""
        floor_ns = self._versions.floor_ns - self._versions.reach_ns
        rows = self._late_rows
        rows = rows[(rows[:, 1] >= since) & (rows[:, 2] > floor_ns)]
        if self._late and late_from > floor_ns:
            rows = np.concatenate([rows, np.array([[batch.after + 1, batch.upto, late_from]])])
        self._late_rows = rows

    def _pack(self) -> bytes:
        """Return what the next start has to know, beside the readings that it reads again."""
        return pack_state(
            {
                "clock": self._clock.save(at_once=self._at_once),
                "late": self._late_rows,
                "floor_ns": self._versions.floor_ns,
                "firsts": self._evaluation.list_firsts(),
            },
            _VERSION,
        )

    def _drop_ahead(self, batch: TapBatch) -> tuple[TapBatch, int]:
        """Return a batch without the readings whose clock is ahead, and how many these are."""
        readings, ignored = {}, 0
        for name, (given, records) in batch.readings.items():
            # A clock that is wrong: the time of all others would go on with it.
            is_ahead = given.time_ns > given.arrival_ns + self._idle_ns
            if is_ahead.any():
                ignored += int(is_ahead.sum())
                given, records = given.take_rows(~is_ahead), records[~is_ahead]
            readings[name] = (given, records)
        return batch._replace(readings=readings), ignored

    def _find_correctable(self, heartbeat: int) -> int:
        """Return the instant from which on late elements can be corrected [ns]."""
        floor = self._versions.floor_ns
        if floor <= self._options.start_ns:
            return self._options.start_ns
        if self._horizon_ns is not None:
            return min(floor + self._horizon_ns + 1, heartbeat)
        # Without a horizon corrections begin at a state that was kept.
        return min((state for state in self._record.list_states() if state >= floor), default=heartbeat)

    def _set_floor(self, heartbeat: int) -> None:
        """Move the instant from which on elements are in memory, as a heartbeat lets it."""
        horizon = self._horizon_ns
        if horizon is not None:
            floor = heartbeat - KEPT_NS - horizon - 1
        else:
            states = [state for state in self._record.list_states() if state <= heartbeat - KEPT_NS]
            floor = max(states, default=self._options.start_ns)
        self._versions.floor_ns = max(self._versions.floor_ns, floor)


def _list_variables(archive: OpenArchive, query: ArchiveQuery) -> list[str]:
    """Return the variables that a query reads."""
    names: dict[str, None] = {}
    for name, demand in list_demands(query.rewritten.tree).items():
        if name in (OBS, READINGS):
            wanted = None if name == OBS else demand.restrictions.get("variable")
            names |= dict.fromkeys(each for each in archive.variables if wanted is None or each in wanted)
        elif name == RAIN and name not in archive.variables:
            names |= dict.fromkeys(list_rain_variables(archive))
        elif name in archive.variables:
            names[name] = None
    return list(names)


def add_tap_query(
    archive: OpenArchive,
    name: str,
    text: str,
    options: LiveOptions,
    *,
    tables: Mapping[str, Any] | None = None,
    allowed_bytes: int = ALLOWED_BYTES,
    keep_s: float | None = None,
) -> LiveStore:
    """Add a live query over the tap of an archive, and return the archive's live queries.

    Parameters
    ----------
    tables
        Frames, or paths of CSV and Parquet files, without instants; those that the text names are kept with the query
        as they are now.
    options
        Where it begins, after which silence a station is not waited for, and how long readings are waited for at
        least, beside the disorder that is measured.
    allowed_bytes
        Memory that the windows may take at the archive's rates [bytes].
    keep_s
        How long results are kept, at least [s]; None: always.

    Raises
    ------
    InvalidQuery
        The text or the name is not valid, the name is taken, the query cannot be live, or its windows need more memory.
    """
    check_live_name(name)
    options = replace(options, source="tap")
    options.check()
    check_keep(keep_s)
    inputs = open_inputs(archive, tables)
    query = ArchiveQuery(inputs, *inputs.choose(text))
    query.refuse_surfaces(
        "a query over the tap cannot read it: add a live query of the archive, which follows its commits"
    )
    require_share(query.rewritten.tree, query.catalogue.rates, allowed_bytes, groups=query.catalogue.groups)
    memory = TapMemory(archive.store, _list_variables(archive, query))
    _TapVersions(query, options, TapArchive(archive, memory))
    store = open_store(archive.path)
    store.add(name, text, options, pack_tables(query), keep_s=keep_s)
    return store
