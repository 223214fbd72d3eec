"""Dead-station detection from each station's learned reporting interval.

The interval is learned from the gaps between a station's arrivals: a little over two minutes for a station that sends
every two minutes, six hours for one that uploads every six hours. Lost or repeated readings make some gaps longer, so
the learned interval is a bound that one gap in 100,000 exceeds (the peaks-over-threshold rule): above `u`, one and a
half usual gaps, a share p of the gaps exceeds u by s on average, and the share of longer gaps decays as exp(-(gap - u)
/ s). The interval is at least three usual gaps, so that two lost readings do not matter. A station is dead once it has
been silent for one and a half times the learned interval, so a death is detected within twice the interval.

Silence is measured against the arrivals of the whole network: if no station reports, the network is silent, not each
station. A gap of the whole network beyond the bound learned for it by the same rule is an outage, and does not count as
silence of any station. If a station's arrivals lie further ahead of all others than that bound, its clock may be wrong:
they are accepted once a second station reports there.
"""

from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import DAY_NS
from queries.standing.conditions import Episode, EpisodeChange

RARE_SHARE: Final = 1e-5
"""Share of gaps that may exceed the learned interval."""
MIN_GAPS: Final = 12
"""Gaps needed to learn an interval; with fewer a station is never reported dead."""
MAX_GAPS: Final = 400
"""Number of latest gaps kept."""
RELEARN_GAPS: Final = 20
"""Gaps between two updates of the interval."""
MIN_USUAL_GAPS: Final = 3.0
"""Minimum of a learned interval, in usual gaps."""
DEAD_FACTOR: Final = 1.5
"""Multiple of the learned interval after which a station is dead."""
_LONGER: Final = 1.5
"""Multiple of the usual gap above which gaps count as longer."""
REPEATED_GAPS: Final = 3
"""Long gaps, among those kept, above which they count as regular, however long they are."""
OUTAGE_NS: Final = DAY_NS
"""Network silence that counts as an outage until its interval is learned [ns]."""


@dataclass(eq=False)
class ReportingInterval:
    """Learned reporting interval of one station."""

    last_ns: int
    """Last arrival [ns since 1970 UTC]."""
    gaps_ns: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_GAPS))
    """Latest gaps between arrivals, oldest first [ns]."""
    gap_count: int = 0
    """Number of gaps observed in total."""
    interval_ns: int | None = None
    """Learned interval [ns]; None: too few gaps."""

    @property
    def bound_ns(self) -> int | None:
        """Silence after which the station is dead [ns]; None: unknown."""
        return None if self.interval_ns is None else round(DEAD_FACTOR * self.interval_ns)

    def hear(self, gap_ns: int) -> None:
        """Add a gap between arrivals [ns]; update the interval every `RELEARN_GAPS` gaps, initially always."""
        self.gaps_ns.append(gap_ns)
        self.gap_count += 1
        if self.gap_count >= MIN_GAPS and (self.gap_count % RELEARN_GAPS == 0 or self.gap_count < 4 * MIN_GAPS):
            self.interval_ns = learned_interval_ns(np.array(self.gaps_ns, np.float64))


def learned_interval_ns(gaps_ns: NDArray[np.float64]) -> int:
    """Learn an interval [ns] from gaps [ns], shape (gaps,), that a share `RARE_SHARE` exceeds.

    Peaks over threshold, as in the module's docstring.
    """
    usual = float(np.median(gaps_ns))
    edge = _LONGER * usual
    longer = gaps_ns[gaps_ns > edge]
    if not len(longer):
        return round(MIN_USUAL_GAPS * usual)
    # A single death must not stretch the interval, so its excess is capped; long gaps that recur are regular behaviour.
    excess = np.minimum(longer, 4 * float(np.median(longer)) if len(longer) > REPEATED_GAPS else 2 * edge) - edge
    share, mean = len(longer) / len(gaps_ns), float(excess.mean())
    return round(max(MIN_USUAL_GAPS * usual, edge + mean * max(float(np.log(share / RARE_SHARE)), 0.0)))


def learned_intervals_ns(gaps_ns: NDArray[np.int64], groups: NDArray[np.intp], count: int) -> NDArray[np.float64]:
    """Learn the intervals [ns] of several groups of gaps, as `learned_interval_ns` does for one.

    Parameters
    ----------
    gaps_ns, groups
        Gaps [ns] and the group of each, both shape (gaps,).
    count
        Number of groups.

    Returns
    -------
    array of float
        Intervals [ns], NaN for groups of fewer than `MIN_GAPS` gaps, shape (count,).
    """
    order = np.lexsort((gaps_ns, groups))
    by_size, sizes = gaps_ns[order].astype(np.float64), np.bincount(groups, minlength=count)
    stops = np.cumsum(sizes)
    enough = np.flatnonzero(sizes >= MIN_GAPS)
    first, last = (stops - sizes)[enough], stops[enough] - 1
    usual = (by_size[(first + last) // 2] + by_size[(first + last + 1) // 2]) / 2
    intervals = np.full(count, np.nan)
    # Most stations have no gap beyond the usual ones, and 2,000 single calls take 0.2 s.
    intervals[enough] = np.round(MIN_USUAL_GAPS * usual)
    longer = by_size[last] > _LONGER * usual
    for group, start, stop in zip(enough[longer], first[longer], last[longer] + 1, strict=True):
        intervals[group] = learned_interval_ns(by_size[start:stop])
    return intervals


@dataclass(eq=False)
class LivenessState:
    """Reporting state of every station; `hear` processes arrivals and returns deaths and recoveries."""

    resolution_ns: int
    """Arrivals closer together than this count as one, such as those of an upload [ns]."""
    network: ReportingInterval = field(default_factory=lambda: ReportingInterval(0))
    """Reporting interval of the network as a whole."""
    stations: dict[str, ReportingInterval] = field(default_factory=dict)
    outages: list[tuple[int, int]] = field(default_factory=list)
    """Network outages, latest ones only, oldest first: last arrival before and first after [ns since 1970 UTC]."""
    ahead: dict[str, list[int]] = field(default_factory=dict)
    """Arrivals of a station far ahead of all others, not accepted yet [ns since 1970 UTC]."""

    @property
    def newest_ns(self) -> int:
        """Newest arrival of the network [ns since 1970 UTC]."""
        return self.network.last_ns

    def learn(self, arrivals: Mapping[str, NDArray[np.int64]], wanted: Set[str] = frozenset()) -> None:
        """Learn from past arrivals without reporting deaths; only the latest of each station are used.

        Stations that are dead by now are reported by the next `hear`.
        """
        for station, times in self._accept_arrivals(arrivals).items():
            # Arrivals of one upload count once, and more gaps than are kept would be wasted.
            reports = times[np.append(True, np.diff(times) >= self.resolution_ns)][-(MAX_GAPS + 1) :]
            self._hear(station, np.append(reports, times[-1:]), wanted)

    def hear(
        self,
        arrivals: Mapping[str, NDArray[np.int64]],
        episodes: Sequence[Episode],
        wanted: Set[str] = frozenset(),
    ) -> tuple[list[Episode], list[EpisodeChange]]:
        """Process arrivals; return the current episodes and the changes to report.

        Parameters
        ----------
        arrivals
            Arrival times of each station [ns since 1970 UTC], in any order; those already processed are ignored.
        episodes
            Deaths reported so far.
        wanted
            Stations whose deaths are reported; empty: all. Arrivals of the others still count for the network.
        """
        believed = self._accept_arrivals(arrivals)
        open_ = {episode.place: episode for episode in episodes if episode.cleared_ns is None}
        kept = [episode for episode in episodes if episode.cleared_ns is not None]
        changes: list[EpisodeChange] = []
        for station in dict.fromkeys([*self.stations, *believed]):
            deaths = self._hear(station, believed.get(station, np.empty(0, np.int64)), wanted)
            before = open_.pop(station, None)
            for onset_ns, back_ns in deaths:
                if before is not None:
                    now = Episode(station, before.onset_ns, back_ns, before.number)
                    changes += [EpisodeChange("cleared", now)] if back_ns is not None else []
                else:
                    now = Episode(station, onset_ns, back_ns)
                    changes += [EpisodeChange("raised", now)]
                    changes += [EpisodeChange("cleared", now)] if back_ns is not None else []
                kept.append(now)
                before = None
            if before is not None:
                # The bound by which it was dead has changed.
                now = Episode(station, before.onset_ns, self.newest_ns, before.number)
                kept.append(now)
                changes.append(EpisodeChange("cleared", now))
        return kept + list(open_.values()), changes

    def _accept_arrivals(self, arrivals: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
        """Update the network and return the accepted arrivals by station, ascending, none empty."""
        names = sorted({*arrivals, *self.ahead})
        none = np.empty(0, np.int64)
        waited = {name: np.array(self.ahead.get(name, none), np.int64) for name in names}
        all_arrivals = {name: np.sort(np.append(arrivals.get(name, none), waited[name])) for name in names}
        times = np.concatenate([none, *all_arrivals.values()])
        station_index = np.repeat(
            np.arange(len(names)), [len(station_times) for station_times in all_arrivals.values()]
        )
        order = np.argsort(times, kind="stable")
        order = order[times[order] > self.newest_ns]
        times, station_index = times[order], station_index[order]
        self.ahead = {}
        if len(times):
            # From here on only one station reports.
            alone = int(np.append(np.flatnonzero(station_index != station_index[-1]), -1).max()) + 1
            gaps = np.diff(times, prepend=self.newest_ns or times[0])
            jumps = alone + np.flatnonzero(gaps[alone:] > (self.network.bound_ns or OUTAGE_NS))
            if len(jumps) and len({*self.stations, *names}) > 1:
                name, beyond = names[station_index[-1]], times[jumps[0] :]
                all_arrivals[name] = all_arrivals[name][all_arrivals[name] < beyond[0]]
                times = times[: jumps[0]]
                # If others continue as before, the held-back arrivals were no outage.
                kept = np.setdiff1d(beyond, waited[name]) if alone else beyond
                self.ahead = {name: kept[-MAX_GAPS:].tolist()} if len(kept) else {}
            self._hear_network(times)
        return {name: station_times for name, station_times in all_arrivals.items() if len(station_times)}

    def _hear_network(self, times: NDArray[np.int64]) -> None:
        """Learn from new arrivals of all stations together, ascending, and detect outages."""
        edges = np.append(self.newest_ns, times) if self.newest_ns else times
        if not len(edges):
            return
        # Arrivals of many stations are closer together than the resolution, so gaps are counted in ticks of it.
        ticks, first = np.unique(edges // self.resolution_ns, return_index=True)
        network = self.network
        for index, gap_ns in enumerate((np.diff(ticks) * self.resolution_ns).tolist(), start=1):
            if gap_ns > (network.bound_ns or OUTAGE_NS):
                self.outages.append((int(edges[first[index] - 1]), int(edges[first[index]])))
            network.hear(gap_ns)
        self.outages = self.outages[-MAX_GAPS:]
        network.last_ns = int(edges[-1])

    def _hear(self, station: str, arrivals: NDArray[np.int64], wanted: Set[str]) -> list[tuple[int, int | None]]:
        """Learn from a station's arrivals, ascending, and return its deaths.

        Each death is (time of death, next arrival or None) [ns since 1970 UTC].
        """
        known = self.stations.get(station)
        if known is None:
            if not len(arrivals):
                return []
            known = self.stations[station] = ReportingInterval(int(arrivals[0]))
        edges = np.concatenate([[known.last_ns], arrivals[arrivals > known.last_ns]])
        known.last_ns = int(edges[-1])
        # Its last arrival is recorded, but no intervals are learned for unwanted stations.
        if wanted and station not in wanted:
            return []
        deaths: list[tuple[int, int | None]] = []
        # Closer arrivals belong to one upload and teach nothing about silence.
        for index in np.flatnonzero(np.diff(edges) >= self.resolution_ns).tolist():
            last_ns, back_ns = int(edges[index]), int(edges[index + 1])
            gap_ns, bound_ns = self._silent_ns(last_ns, back_ns), known.bound_ns
            if bound_ns is not None and gap_ns > bound_ns:
                deaths.append((self._silent_for(last_ns, bound_ns), back_ns))
            known.hear(gap_ns)
        bound_ns = known.bound_ns
        if bound_ns is not None and self._silent_ns(known.last_ns, self.newest_ns) > bound_ns:
            deaths.append((self._silent_for(known.last_ns, bound_ns), None))
        return deaths

    def _silent_ns(self, last_ns: int, now_ns: int) -> int:
        """Silence of a station since its last arrival, excluding outages [ns]."""
        since = takewhile(lambda outage: outage[1] > last_ns, reversed(self.outages))
        return now_ns - last_ns - sum(max(min(now_ns, end) - max(last_ns, start), 0) for start, end in since)

    def _silent_for(self, last_ns: int, length_ns: int) -> int:
        """Compute when a station has been silent for `length_ns`, excluding outages [ns since 1970 UTC]."""
        at_ns = last_ns + length_ns
        for start, end in self.outages:
            if end > last_ns and start < at_ns:
                at_ns += end - max(start, last_ns)
        return at_ns

    def to_json(self) -> dict[str, Any]:
        return {
            "network": _interval_to_json(self.network),
            "stations": {name: _interval_to_json(interval) for name, interval in self.stations.items()},
            "outages": [list(outage) for outage in self.outages],
            "ahead": dict(self.ahead),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, resolution_ns: int) -> "LivenessState":
        """Restore the state written by `to_json`; an empty document is a state without arrivals."""
        # Earlier versions stored only the newest arrival of the network.
        network = document.get("network", [document.get("newest_ns", 0), 0, None, []])
        stations = {name: _interval_from_json(row) for name, row in document.get("stations", {}).items()}
        outages = [(start, end) for start, end in document.get("outages", ())]
        return cls(resolution_ns, _interval_from_json(network), stations, outages, dict(document.get("ahead", {})))


def _interval_to_json(interval: ReportingInterval) -> list[Any]:
    return [interval.last_ns, interval.gap_count, interval.interval_ns, list(interval.gaps_ns)]


def _interval_from_json(row: Sequence[Any]) -> ReportingInterval:
    last_ns, gap_count, interval_ns, gaps_ns = row
    return ReportingInterval(last_ns, deque(gaps_ns, MAX_GAPS), gap_count, interval_ns)
