"""How each station is: when it read last, how long it is silent as a rule, and whether it is late or dead.

Judged by the time stamps of readings, so that an archive that was ingested at once is judged as one that streamed in;
the rule is that of the standing query "dead" (`queries.standing.silence`), which counts by arrivals.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from hypergrid.flags import FAIL, SUSPECT
from hypergrid.query import OpenArchive
from hypergrid.times import DAY_NS, Window
from queries.at_snapshot import AtSnapshot
from queries.latest import NEVER, LatestValues
from queries.standing.silence import FACTOR, FEWEST, learned_interval_ns

State = Literal["reporting", "late", "dead", "unknown"]

RECENT_NS: Final = 2 * DAY_NS
"""How far before a variable's last reading its intervals are learned, and its flags counted [ns]."""


@dataclass(frozen=True)
class StationHealth:
    """How one station is."""

    station: str
    state: State
    """Unknown: it has too few recent readings to tell."""
    last_ns: int | None
    """Stamp of its newest reading of any variable [ns since 1970 UTC]; None: it has none."""
    interval_ns: int | None
    """The learned interval: it is silent longer once in 100,000 times [ns]."""
    readings: int
    """Recent readings of all its variables."""
    flagged: int
    """Of these, the ones flagged suspect or fail."""
    variables: tuple[str, ...]
    """Variables that it ever read."""


class Health:
    """Tells how the stations of an archive are, computed once a snapshot; may be asked from any thread.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    """

    def __init__(self, archive: OpenArchive) -> None:
        self._answers = AtSnapshot(archive, lambda opened, _asked: station_health(opened))

    def now(self) -> list[StationHealth]:
        """Return every station, by id, at the newest snapshot."""
        return self._answers.of()


def station_health(archive: OpenArchive) -> list[StationHealth]:
    """Return how every station of a snapshot is, by id.

    A station is late once it is silent for longer than its learned interval, dead after one and a half times of it,
    counted from its last reading to the newest of the network.
    """
    stamps: dict[str, list[np.ndarray]] = {name: [] for name in archive.stations}
    last: dict[str, int] = {}
    flagged, readings = dict.fromkeys(stamps, 0), dict.fromkeys(stamps, 0)
    variables: dict[str, list[str]] = {name: [] for name in archive.stations}
    newest = LatestValues(archive)
    for name in archive.variables:
        extent = archive.store.extent(name)
        if extent is None:
            continue
        known = newest.of(name)
        for place in np.flatnonzero(known.time_ns != NEVER).tolist():
            station = known.series[place].station
            last[station] = max(last.get(station, NEVER), int(known.time_ns[place]))
            if name not in variables.setdefault(station, []):
                variables[station].append(name)
        recent = archive.store.read(name, window=Window(extent.stop_ns - RECENT_NS, extent.stop_ns))
        edges = np.searchsorted(recent.index, np.arange(len(recent.series) + 1))
        bad = np.isin(recent.flag, (SUSPECT, FAIL))
        for place, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            station = recent.series[place].station
            stamps.setdefault(station, []).append(recent.time_ns[start:stop])
            readings[station] = readings.get(station, 0) + stop - start
            flagged[station] = flagged.get(station, 0) + int(np.count_nonzero(bad[start:stop]))
    now_ns = max(last.values(), default=0)
    return [
        _judged(
            station,
            stamps[station],
            last.get(station),
            now_ns,
            readings[station],
            flagged[station],
            tuple(variables.get(station, ())),
        )
        for station in sorted(stamps)
    ]


def _judged(
    station: str,
    stamps: list[np.ndarray],
    last_ns: int | None,
    now_ns: int,
    readings: int,
    flagged: int,
    variables: tuple[str, ...],
) -> StationHealth:
    times = np.unique(np.concatenate(stamps)) if stamps else np.empty(0, np.int64)
    gaps = np.diff(times)
    interval_ns = learned_interval_ns(gaps.astype(np.float64)) if len(gaps) >= FEWEST else None
    state: State = "unknown"
    if last_ns is not None and interval_ns is not None:
        silent = (now_ns - last_ns) / interval_ns
        state = "dead" if silent > FACTOR else "late" if silent > 1 else "reporting"
    elif last_ns is not None and now_ns - last_ns > RECENT_NS:
        state = "dead"
    return StationHealth(station, state, last_ns, interval_ns, readings, flagged, variables)
