"""Station health: newest reading, learned reporting interval, and whether a station is late or dead.

Judged by the timestamps of values, so that an archive ingested at once is judged like a streamed one, and a station
that keeps sending rows without values counts as silent. The rule is that of the standing query "dead"
(`queries.standing.liveness`), which instead counts arrivals of any readings.
"""

import csv
import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Reject
from hypergrid.core.flags import FAIL, MEANINGS, MISSING, SUSPECT, TESTS
from hypergrid.core.times import DAY_NS, Window
from hypergrid.formats.results import escape_formula
from hypergrid.query import OpenArchive
from queries.snapshots.latest import NEVER, LatestValues, newest_of
from queries.standing.liveness import DEAD_FACTOR, MIN_GAPS, learned_interval_ns

State = Literal["reporting", "late", "dead", "unknown"]

RECENT_NS: Final = 2 * DAY_NS
"""How far before a variable's last reading intervals are learned and flags counted [ns]."""


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


def station_health(archive: OpenArchive, newest: LatestValues | None = None) -> list[StationHealth]:
    """Assess the health of every station of a snapshot, by id.

    A station is late once it has sent no value for longer than its learned interval, and dead after one and a half
    times that, counted from its last value to the newest row of the network.

    Parameters
    ----------
    newest
        Newest readings of this snapshot or an earlier one; later ones are read.
    """
    activities = {name: _StationActivity() for name in archive.stations}
    for name in archive.variables:
        extent = archive.store.extent(name)
        if extent is None:
            continue
        known = newest.read_newest(name) if newest is not None and name in newest.archive.variables else None
        last = newest_of(archive.store, name, known)
        for series, heard_ns, valued_ns in zip(
            last.series, last.time_ns.tolist(), last.valued_ns.tolist(), strict=True
        ):
            if heard_ns != NEVER:
                activities.setdefault(series.station, _StationActivity()).hear(name, heard_ns, valued_ns)
        recent = archive.store.read(name, window=Window(extent.stop_ns - RECENT_NS, extent.stop_ns))
        edges = np.searchsorted(recent.index, np.arange(len(recent.series) + 1)).tolist()
        for series, start, stop in zip(recent.series, edges[:-1], edges[1:], strict=True):
            activities.setdefault(series.station, _StationActivity()).add(
                recent.time_ns[start:stop], recent.flag[start:stop]
            )
    # The network's newest row, not the wall clock, so that a finished archive is judged as of its end.
    now_ns = max((activity.heard_ns for activity in activities.values()), default=NEVER)
    return [activity.assess_health(station, now_ns) for station, activity in sorted(activities.items())]


@dataclass(eq=False)
class _StationActivity:
    last_ns: int = NEVER
    heard_ns: int = NEVER
    stamps: list[np.ndarray] = field(default_factory=list)
    """Timestamps of recent values [ns since 1970 UTC]."""
    readings: int = 0
    missing: int = 0
    flagged: int = 0
    variables: list[str] = field(default_factory=list)

    def hear(self, variable: str, heard_ns: int, valued_ns: int) -> None:
        """Add the timestamps of the newest row and the newest value of a series."""
        self.heard_ns, self.last_ns = max(self.heard_ns, heard_ns), max(self.last_ns, valued_ns)
        if variable not in self.variables:
            self.variables.append(variable)

    def add(self, time_ns: np.ndarray, flag: np.ndarray) -> None:
        valued = flag != MISSING
        self.stamps.append(time_ns[valued])
        self.readings += int(np.count_nonzero(valued))
        self.missing += int(np.count_nonzero(~valued))
        self.flagged += int(np.count_nonzero(np.isin(flag, (SUSPECT, FAIL))))

    def assess_health(self, station: str, now_ns: int) -> StationHealth:
        """Assess health relative to the newest row of the network [ns]."""
        times = np.unique(np.concatenate(self.stamps)) if self.stamps else np.empty(0, np.int64)
        gaps = np.diff(times)
        interval_ns = learned_interval_ns(gaps.astype(np.float64)) if len(gaps) >= MIN_GAPS else None
        state: State = "unknown"
        if self.last_ns != NEVER and interval_ns is not None:
            silent = (now_ns - self.last_ns) / interval_ns
            state = "dead" if silent > DEAD_FACTOR else "late" if silent > 1 else "reporting"
        # Too few values to learn an interval: only a long silence is conclusive.
        elif self.last_ns != NEVER:
            state = "dead" if now_ns - self.last_ns > RECENT_NS else "unknown"
        elif self.missing >= MIN_GAPS or (self.heard_ns != NEVER and now_ns - self.heard_ns > RECENT_NS):
            # It sends or sent rows, but never a value.
            state = "dead"
        last_ns, heard_ns = (None if stamp == NEVER else stamp for stamp in (self.last_ns, self.heard_ns))
        counts = self.readings, self.missing, self.flagged
        return StationHealth(station, state, last_ns, heard_ns, interval_ns, *counts, tuple(self.variables))


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
        flags, tests = _count_flags(archive, name, wanted, stations)
        for row, station in enumerate(stations):
            readings = int(flags[row].sum())
            if readings:
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
