"""Station health: newest reading, learned reporting interval, and whether a station is late or dead.

Judged by the timestamps of values, so that an archive ingested at once is judged like a streamed one, and a station
that keeps sending rows without values counts as silent. The rule is that of the standing query "dead"
(`queries.standing.liveness`), which instead counts arrivals of any readings.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from hypergrid.core.flags import FAIL, MISSING, SUSPECT
from hypergrid.core.times import DAY_NS, Window
from hypergrid.query import OpenArchive
from queries.snapshots.latest import NEVER, LatestValues, newest_of
from queries.snapshots.snapshot_cache import SnapshotCache
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


class StationHealthCache:
    """Station health of an archive, computed once per snapshot; thread-safe.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    newest
        The cached newest readings of the archive, to avoid reading them again.
    """

    def __init__(self, archive: OpenArchive, newest: LatestValues | None = None) -> None:
        self._answers = SnapshotCache(archive, lambda opened, _asked: station_health(opened, newest))

    def get_newest(self) -> list[StationHealth]:
        """Return every station, by id, at the newest snapshot."""
        return self._answers.get_answer()


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
    """Activity of one station."""

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
