"""Station health: newest reading, learned reporting interval, and whether a station is late or dead.

Judged by the timestamps of values, so that an archive ingested at once is judged like a streamed one, and a station
that keeps sending rows without values counts as silent. The rule is that of the standing query "dead"
(`queries.standing.liveness`), which instead counts arrivals of any readings.
"""

import csv
import io
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Reject
from hypergrid.core.flags import FAIL, MEANINGS, MISSING, SUSPECT, TESTS
from hypergrid.core.readings import Series
from hypergrid.core.times import DAY_NS, Window
from hypergrid.formats.results import escape_formula
from hypergrid.query import OpenArchive
from queries.snapshots.changes import list_numbers, read_changed
from queries.snapshots.latest import NEVER, LatestValues, NewestReadings, newest_of
from queries.standing.liveness import DEAD_FACTOR, MIN_GAPS, learned_intervals_ns

State = Literal["reporting", "late", "dead", "unknown"]

RECENT_NS: Final = 2 * DAY_NS
"""How far before a variable's last reading intervals are learned and flags counted [ns]."""
_MOST_RECENT: Final = 4_000_000
"""Recent readings of a variable that are kept for the next snapshot, 52 MB at most; more are read again."""


@dataclass(frozen=True)
class StationHealth:
    """Health of one station."""

    station: str
    state: State
    """"unknown" if there are too few recent readings."""
    last_ns: int | None
    """Timestamp of its newest value of any variable [ns since 1970 UTC]; None without values."""
    heard_ns: int | None
    """Timestamp of its newest row, with or without a value [ns since 1970 UTC]; None without rows."""
    interval_ns: int | None
    """Learned interval [ns]: a gap is longer once in 100,000 times."""
    readings: int
    """Recent values of all its variables."""
    missing: int
    """Recent readings of all its variables without a value."""
    flagged: int
    """Recent readings flagged suspect or fail."""
    variables: tuple[str, ...]
    """Variables it has ever sent, with or without values."""


class HealthAssessor:
    """Health of all stations at a snapshot and later ones, updated from the changes of commits; not thread-safe.

    Parameters
    ----------
    newest
        Newest readings of the same snapshot or an earlier one; later ones are read.
    """

    def __init__(self, newest: LatestValues | None = None) -> None:
        self._newest = newest
        self._recent: dict[str, _RecentReadings] = {}

    def assess(self, archive: OpenArchive) -> list[StationHealth]:
        """Assess the health of every station of a snapshot, by id.

        A station is late once it has sent no value for longer than its learned interval, and dead after one and a half
        times that, counted from its last value to the newest row of the network.
        """
        activity = _Activity(archive)
        for name in archive.variables:
            if archive.store.extent(name) is None:
                continue
            known = self._newest.read_newest(name) if self._newest and name in self._newest.archive.variables else None
            activity.hear(name, newest_of(archive.store, name, known))
            activity.add(self._read_recent(archive.store, name), list_numbers(archive.store, name))
        return activity.assess_health()

    def _read_recent(self, archive: Archive, variable: str) -> "_RecentReadings":
        known = self._recent.pop(variable, None)
        recent = _RecentReadings.read(archive, variable) if known is None else known.update(archive, variable)
        if len(recent.flag) <= _MOST_RECENT:
            self._recent[variable] = recent
        return recent


@dataclass(frozen=True, eq=False)
class _RecentReadings:
    """Stamps and flags of the newest readings of a variable, in no order."""

    snapshot: str
    window: Window
    series: tuple[Series, ...]
    index: NDArray[np.int32]
    """Series of each reading, shape (readings,); so are the others."""
    time_ns: NDArray[np.int64]
    flag: NDArray[np.uint8]

    @classmethod
    def read(cls, archive: Archive, variable: str) -> "_RecentReadings":
        window = _recent_window(archive, variable)
        readings = archive.read(variable, window=window)
        return cls(archive.snapshot, window, readings.series, readings.index, readings.time_ns, readings.flag)

    def update(self, archive: Archive, variable: str) -> "_RecentReadings":
        """Return the readings of a later snapshot, reading only what commits changed."""
        if archive.snapshot == self.snapshot:
            return self
        window = _recent_window(archive, variable)
        changed = read_changed(archive, self.snapshot, variable, within=window)
        if changed is None or window.start_ns < self.window.start_ns:
            return self.read(archive, variable)
        kept, parts = window.holds(self.time_ns), []
        for run, readings in changed:
            kept &= ~run.holds(self.time_ns)
            recent = window.holds(readings.time_ns)
            parts.append((readings.index[recent], readings.time_ns[recent], readings.flag[recent]))
        parts.append((self.index[kept], self.time_ns[kept], self.flag[kept]))
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _RecentReadings(archive.snapshot, window, archive.series(variable), *columns)


def _recent_window(archive: Archive, variable: str) -> Window:
    extent = archive.extent(variable)
    assert extent is not None
    return Window(extent.stop_ns - RECENT_NS, extent.stop_ns)


class _Activity:
    """Rows, values and flags of all stations of a snapshot, from which their health follows."""

    def __init__(self, archive: OpenArchive) -> None:
        store = archive.store
        sent = [name for name in archive.variables if store.extent(name) is not None]
        senders = {item.station for name in sent for item in store.list_series(name).values()}
        self._stations = sorted({*archive.stations, *senders})
        self._row_of = {station: row for row, station in enumerate(self._stations)}
        count = len(self._stations)
        self._last_ns, self._heard_ns = np.full(count, NEVER), np.full(count, NEVER)
        self._readings, self._missing, self._flagged = (np.zeros(count, np.int64) for _ in range(3))
        self._variables: list[list[str]] = [[] for _ in range(count)]
        self._rows: list[NDArray[np.intp]] = []
        """Station of each recent value, by variable."""
        self._stamps: list[NDArray[np.int64]] = []
        """Timestamp of each recent value [ns since 1970 UTC], by variable."""

    def _rows_of(self, series: Sequence[Series]) -> NDArray[np.intp]:
        """Return the station of each series, -1 if no series of it is listed, shape (series,)."""
        return np.array([self._row_of.get(item.station, -1) for item in series], np.intp)

    def hear(self, variable: str, newest: NewestReadings) -> None:
        """Add the timestamps of the newest row and the newest value of each series."""
        sent = newest.time_ns != NEVER
        rows = self._rows_of(newest.series)[sent]
        np.maximum.at(self._heard_ns, rows, newest.time_ns[sent])
        np.maximum.at(self._last_ns, rows, newest.valued_ns[sent])
        for row in np.unique(rows).tolist():
            self._variables[row].append(variable)

    def add(self, recent: _RecentReadings, listed: NDArray[np.intp]) -> None:
        """Add recent readings; those of series that are not listed do not count."""
        row_of = np.full(len(recent.series), -1, np.intp)
        row_of[listed] = self._rows_of(recent.series)[listed]
        rows, count = row_of[recent.index], len(self._stations)
        valued = (recent.flag != MISSING) & (rows >= 0)
        flagged = valued & ((recent.flag == SUSPECT) | (recent.flag == FAIL))
        self._readings += np.bincount(rows[valued], minlength=count)
        self._missing += np.bincount(rows[(recent.flag == MISSING) & (rows >= 0)], minlength=count)
        self._flagged += np.bincount(rows[flagged], minlength=count)
        self._rows.append(rows[valued])
        self._stamps.append(recent.time_ns[valued])

    def assess_health(self) -> list[StationHealth]:
        """Assess health relative to the newest row of the network, by station."""
        if not self._stations:
            return []
        intervals_ns = self._learn_intervals()
        columns = self._last_ns, self._heard_ns, self._readings, self._missing, self._flagged
        return [
            StationHealth(
                station,
                state,
                last_ns=None if last_ns == NEVER else last_ns,
                heard_ns=None if heard_ns == NEVER else heard_ns,
                interval_ns=None if math.isnan(interval) else int(interval),
                readings=readings,
                missing=missing,
                flagged=flagged,
                variables=tuple(variables),
            )
            for station, state, interval, variables, last_ns, heard_ns, readings, missing, flagged in zip(
                self._stations,
                self._assess_states(intervals_ns),
                intervals_ns.tolist(),
                self._variables,
                *(column.tolist() for column in columns),
                strict=True,
            )
        ]

    def _assess_states(self, intervals_ns: NDArray[np.float64]) -> list[State]:
        """Classify the stations, from learned intervals [ns], NaN if unknown, shape (stations,)."""
        # Relative to the newest row and not to the wall clock, so that a finished archive is judged as of its end.
        now_ns = self._heard_ns.max()
        sent_rows, sent_values = self._heard_ns != NEVER, self._last_ns != NEVER
        silent_ns = np.where(sent_values, now_ns - self._last_ns, 0)
        learned = sent_values & ~np.isnan(intervals_ns)
        # With too few values to learn an interval only a long silence is conclusive.
        ended = sent_values & ~learned & (silent_ns > RECENT_NS)
        # Rows, but never a value.
        empty = ~sent_values & ((self._missing >= MIN_GAPS) | (sent_rows & (now_ns - self._heard_ns > RECENT_NS)))
        states: dict[State, NDArray[np.bool_]] = {
            "dead": (learned & (silent_ns > DEAD_FACTOR * intervals_ns)) | ended | empty,
            "late": learned & (silent_ns > intervals_ns),
            "reporting": learned,
        }
        return cast(list[State], np.select(list(states.values()), list(states), "unknown").tolist())

    def _learn_intervals(self) -> NDArray[np.float64]:
        """Learn the interval of each station [ns], NaN with too few values, shape (stations,)."""
        count = len(self._stations)
        if not self._rows:
            return np.full(count, np.nan)
        rows, stamps = np.concatenate(self._rows), np.concatenate(self._stamps)
        order = np.lexsort((stamps, rows))
        gaps, of_one = np.diff(stamps[order]), np.diff(rows[order]) == 0
        # Variables read at one time are one report.
        counted = of_one & (gaps > 0)
        return learned_intervals_ns(gaps[counted], rows[order][1:][counted], count)


MOST_KEPT: Final = 16
"""Answers cached per snapshot; the newest are kept."""

Answer = TypeVar("Answer")


class SnapshotCache(Generic[Answer]):
    """Answers at the newest snapshot, each computed once; thread-safe.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    work
        Computes an answer from the archive at that snapshot and the request.
    """

    def __init__(self, archive: OpenArchive, work: Callable[[OpenArchive, int | None], Answer]) -> None:
        self._archive, self._compute = archive, work
        self._lock = threading.Lock()
        self._held: dict[int | None, tuple[str, Answer]] = {}

    def get_answer(self, asked: int | None = None) -> Answer:
        """Return the answer, computing it on a miss."""
        # Held during the computation, so that concurrent requests share it.
        with self._lock:
            self._archive = self._archive.latest()
            snapshot, answer = self._held.get(asked, ("", None))
            if answer is None or snapshot != self._archive.snapshot:
                answer = self._compute(self._archive, asked)
                # Answers of earlier snapshots are evicted.
                others = [item for item in self._held.items() if item[1][0] == self._archive.snapshot]
                self._held = dict([*others[-MOST_KEPT + 1 :], (asked, (self._archive.snapshot, answer))])
            return answer


MOST_DAYS: Final = 36_600
_CHUNKS: Final = 256
"""Chunks of slices read at once."""
EXAMPLES: Final = 5
"""Rejects shown of each kind."""


@dataclass(frozen=True)
class StationQuality:
    """Flags of one station and variable."""

    station: str
    variable: str
    readings: int
    flags: dict[str, int]
    """Number of readings by the CF meaning of their flag (`hypergrid.core.flags.MEANINGS`), without zeros."""
    tests: dict[str, int]
    """Number of readings whose flag a test set, by test (`hypergrid.core.flags.TESTS`); several may have set one."""


@dataclass
class RejectKind:
    """Rejects whose reasons share a prefix."""

    kind: str
    count: int = 0
    files: set[str] = field(default_factory=set)
    examples: list[Reject] = field(default_factory=list)
    """The first ones, at most `EXAMPLES`."""


def assess_quality(archive: Archive, days: int | None = None) -> list[StationQuality]:
    """Count the flags of every station and variable with readings, by variable, then station.

    Parameters
    ----------
    archive
        The archive at a snapshot.
    days
        Number of days before each variable's newest reading; None: all readings.
    """
    qualities = []
    for name in archive.variables:
        extent = archive.extent(name)
        if extent is None:
            continue
        wanted = extent if days is None else Window(extent.stop_ns - days * DAY_NS, extent.stop_ns)
        stations = sorted({series.station for series in archive.series(name)})
        listed = {series.station for series in archive.list_series(name).values()}
        flags, tests = _count_flags(archive, name, wanted, stations)
        for row, station in enumerate(stations):
            readings = int(flags[row].sum())
            if readings and station in listed:
                by_flag = {word: int(flags[row, value]) for value, word in MEANINGS.items() if flags[row, value]}
                by_test = {test: int(tests[row, bit]) for bit, test in enumerate(TESTS) if tests[row, bit]}
                qualities.append(StationQuality(station, name, readings, by_flag, by_test))
    return qualities


def _count_flags(
    archive: Archive, variable: str, wanted: Window, stations: list[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count readings by station and flag, and by station and test."""
    flags, tests = (np.zeros((len(stations), width), np.int64) for width in (max(MEANINGS) + 1, len(TESTS)))
    # In chunks of slices, which bounds the memory.
    for span in archive.spans(variable, _CHUNKS):
        window = span.intersect(wanted)
        if window is None:
            continue
        read = archive.read(variable, window=window, tests=True)
        station_index = np.searchsorted(stations, [series.station for series in read.series])[read.index]
        flags += np.bincount(station_index * flags.shape[1] + read.flag, minlength=flags.size).reshape(flags.shape)
        bits = read.tests_or_none_set()
        set_by = np.flatnonzero(bits)
        for bit in range(len(TESTS)):
            rows = set_by[(bits[set_by] >> np.uint16(bit)) & np.uint16(1) > 0]
            tests[:, bit] += np.bincount(station_index[rows], minlength=len(stations))
    return flags, tests


def reject_kinds(rejects: list[Reject]) -> list[RejectKind]:
    """Group rejects by the prefix of their reasons, up to a colon, most frequent first."""
    kinds: dict[str, RejectKind] = {}
    for reject in rejects:
        kind = reject.reason.partition(":")[0]
        reject_kind = kinds.setdefault(kind, RejectKind(kind))
        reject_kind.count += 1
        reject_kind.files.add(reject.file)
        if len(reject_kind.examples) < EXAMPLES:
            reject_kind.examples.append(reject)
    return sorted(kinds.values(), key=lambda entry: -entry.count)


def rejects_csv(rejects: list[Reject]) -> bytes:
    """Format rejects as CSV, one row each, in the order of the commits."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("file", "line", "column", "reason", "text"))
    writer.writerows(
        [
            # Spreadsheets would execute text that begins like a formula.
            escape_formula(reject.file),
            reject.line,
            escape_formula(reject.column),
            escape_formula(reject.reason),
            escape_formula(reject.text),
        ]
        for reject in rejects
    )
    return text.getvalue().encode()
