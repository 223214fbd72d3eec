"""Dead stations: how long each station is silent as a rule, learned from when its own readings arrived.

The gaps between the times that a station is heard tell how long it is silent as a rule: one that is sent each two
minutes a little over that, one that uploads each six hours six hours. Readings that are lost or sent again make some
gaps longer, so the learned interval is a bound that one gap in 100,000 exceeds: above `u`, one and a half usual gaps,
a share p of the gaps exceeds u by s on the mean, and a longer one is the rarer by exp(-(gap - u) / s) (the
peaks-over-threshold rule). It is no less than three usual gaps: two readings that are lost are nothing. A station is
dead once it has not been heard for one and a half times the learned interval, so that it is told within twice of it.

That is counted by what is heard of the whole network: when nobody is heard, it is the network that is silent, not each
station. A stretch without anybody that is longer than the same rule has learned of all stations together is an outage:
it counts in no station's silence. A station whose arrivals lie further ahead of all others than that is believed once
a second one is heard there: before, it may be a clock.
"""

from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import DAY_NS
from queries.standing.episodes import Episode, EpisodeChange

RARE_SHARE: Final = 1e-5
"""Share of the gaps that may be longer than the learned interval."""
MIN_GAPS: Final = 12
"""Gaps from which an interval is learned; with fewer a station is never called dead."""
MAX_GAPS: Final = 400
"""Latest gaps that are remembered."""
RELEARN_GAPS: Final = 20
"""Gaps after which an interval is learned anew."""
MIN_USUAL_GAPS: Final = 3.0
"""Usual gaps that a learned interval has at least."""
DEAD_FACTOR: Final = 1.5
"""Times of the learned interval after which a station is dead."""
REPEATED_GAPS: Final = 3
"""Long gaps, among those remembered, above which they tell how the station works, however long they are."""
OUTAGE_NS: Final = DAY_NS
"""How long a network is silent before it is an outage, while too little was heard to learn that [ns]."""


@dataclass(eq=False)
class ReportingInterval:
    """What is known of when one station is heard."""

    last_ns: int
    """When it was heard last [ns since 1970 UTC]."""
    gaps_ns: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_GAPS))
    """Latest gaps between the times that it was heard, oldest first [ns]."""
    gap_count: int = 0
    """Gaps that were ever heard."""
    interval_ns: int | None = None
    """The learned interval [ns]; None: too little was heard."""

    @property
    def bound_ns(self) -> int | None:
        """After how long without being heard it is dead [ns]; None: not known."""
        return None if self.interval_ns is None else round(DEAD_FACTOR * self.interval_ns)

    def hear(self, gap_ns: int) -> None:
        """Learn that it was heard again after a gap [ns]; the interval is learned anew after each lot of gaps."""
        self.gaps_ns.append(gap_ns)
        self.gap_count += 1
        if self.gap_count >= MIN_GAPS and (self.gap_count % RELEARN_GAPS == 0 or self.gap_count < 4 * MIN_GAPS):
            self.interval_ns = learned_interval_ns(np.array(self.gaps_ns, np.float64))


def learned_interval_ns(gaps_ns: NDArray[np.float64]) -> int:
    """Return the interval that gaps teach [ns], shape (gaps,): one gap in `1 / RARE` is longer (module's docstring)."""
    usual = float(np.median(gaps_ns))
    edge = 1.5 * usual
    longer = gaps_ns[gaps_ns > edge]
    if not len(longer):
        return round(MIN_USUAL_GAPS * usual)
    # A death among the gaps must not teach that deaths are usual; one that comes again and again is how it works.
    excess = np.minimum(longer, 4 * float(np.median(longer)) if len(longer) > REPEATED_GAPS else 2 * edge) - edge
    share, mean = len(longer) / len(gaps_ns), float(excess.mean())
    return round(max(MIN_USUAL_GAPS * usual, edge + mean * max(float(np.log(share / RARE_SHARE)), 0.0)))


@dataclass(eq=False)
class LivenessState:
    """What was heard of every station; `hear` takes what came, and says which died and which came back."""

    resolution_ns: int
    """Arrivals that follow one another more closely are heard at once, as an upload is [ns]."""
    network: ReportingInterval = field(default_factory=lambda: ReportingInterval(0))
    """What is known of when anybody is heard."""
    stations: dict[str, ReportingInterval] = field(default_factory=dict)
    outages: list[tuple[int, int]] = field(default_factory=list)
    """When the network was silent: heard last, and heard again [ns since 1970 UTC]; the latest, oldest first."""
    ahead: dict[str, list[int]] = field(default_factory=dict)
    """Arrivals of a station that lie far ahead of all others, and are not believed yet [ns since 1970 UTC]."""

    @property
    def newest_ns(self) -> int:
        """The newest arrival of the network [ns since 1970 UTC]."""
        return self.network.last_ns

    def learn(self, arrivals: Mapping[str, NDArray[np.int64]], wanted: Set[str] = frozenset()) -> None:
        """Take arrivals of long ago, of which nothing is told: as `hear`, of each station the latest that are needed.

        Who is dead already `hear` tells.
        """
        for station, times in self._accept_arrivals(arrivals).items():
            reports = times[np.append(True, np.diff(times) >= self.resolution_ns)][-(MAX_GAPS + 1) :]
            self._hear(station, np.append(reports, times[-1:]), wanted)

    def hear(
        self,
        arrivals: Mapping[str, NDArray[np.int64]],
        episodes: Sequence[Episode],
        wanted: Set[str] = frozenset(),
    ) -> tuple[list[Episode], list[EpisodeChange]]:
        """Take arrivals of readings, and return the episodes as they stand with what is to be told.

        Parameters
        ----------
        arrivals
            When readings of each station arrived [ns since 1970 UTC], in any order; those heard before count once.
        episodes
            The deaths that were told.
        wanted
            Stations whose deaths are told; all where it is empty. What is heard of the others tells of the network.
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
                # It was called dead by a bound that is no more.
                now = Episode(station, before.onset_ns, self.newest_ns, before.number)
                kept.append(now)
                changes.append(EpisodeChange("cleared", now))
        return kept + list(open_.values()), changes

    def _accept_arrivals(self, arrivals: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
        """Return the arrivals that are believed, ascending, none empty; the network hears them."""
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
            # From here on one station is alone.
            alone = int(np.append(np.flatnonzero(station_index != station_index[-1]), -1).max()) + 1
            gaps = np.diff(times, prepend=self.newest_ns or times[0])
            jumps = alone + np.flatnonzero(gaps[alone:] > (self.network.bound_ns or OUTAGE_NS))
            if len(jumps) and len({*self.stations, *names}) > 1:
                name, beyond = names[station_index[-1]], times[jumps[0] :]
                all_arrivals[name] = all_arrivals[name][all_arrivals[name] < beyond[0]]
                times = times[: jumps[0]]
                # Where others go on as before, what waited was no outage.
                kept = np.setdiff1d(beyond, waited[name]) if alone else beyond
                self.ahead = {name: kept[-MAX_GAPS:].tolist()} if len(kept) else {}
            self._hear_network(times)
        return {name: station_times for name, station_times in all_arrivals.items() if len(station_times)}

    def _hear_network(self, times: NDArray[np.int64]) -> None:
        """Learn from new arrivals of all stations together, ascending, and find outages."""
        edges = np.append(self.newest_ns, times) if self.newest_ns else times
        if not len(edges):
            return
        # Many stations are heard so closely that only ticks tell them apart.
        ticks, first = np.unique(edges // self.resolution_ns, return_index=True)
        network = self.network
        for index, gap_ns in enumerate((np.diff(ticks) * self.resolution_ns).tolist(), start=1):
            if gap_ns > (network.bound_ns or OUTAGE_NS):
                self.outages.append((int(edges[first[index] - 1]), int(edges[first[index]])))
            network.hear(gap_ns)
        self.outages = self.outages[-MAX_GAPS:]
        network.last_ns = int(edges[-1])

    def _hear(self, station: str, arrivals: NDArray[np.int64], wanted: Set[str]) -> list[tuple[int, int | None]]:
        """Learn from a station's arrivals, ascending; return its deaths: when it was dead, and when heard again."""
        known = self.stations.get(station)
        if known is None:
            if not len(arrivals):
                return []
            known = self.stations[station] = ReportingInterval(int(arrivals[0]))
        edges = np.concatenate([[known.last_ns], arrivals[arrivals > known.last_ns]])
        known.last_ns = int(edges[-1])
        if wanted and station not in wanted:
            return []
        deaths: list[tuple[int, int | None]] = []
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
        """Return for how long a station is silent that was heard last at an instant, outages left out [ns]."""
        since = takewhile(lambda outage: outage[1] > last_ns, reversed(self.outages))
        return now_ns - last_ns - sum(max(min(now_ns, end) - max(last_ns, start), 0) for start, end in since)

    def _silent_for(self, last_ns: int, length_ns: int) -> int:
        """Return when a station is silent for so long that was heard last at an instant [ns since 1970 UTC]."""
        at_ns = last_ns + length_ns
        for start, end in self.outages:
            if end > last_ns and start < at_ns:
                at_ns += end - max(start, last_ns)
        return at_ns

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "network": _interval_to_json(self.network),
            "stations": {name: _interval_to_json(interval) for name, interval in self.stations.items()},
            "outages": [list(outage) for outage in self.outages],
            "ahead": dict(self.ahead),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, resolution_ns: int) -> "LivenessState":
        """Return what `to_json` wrote; nothing was heard where it is empty."""
        # Earlier programs kept of the network its newest arrival only.
        network = document.get("network", [document.get("newest_ns", 0), 0, None, []])
        stations = {name: _interval_from_json(row) for name, row in document.get("stations", {}).items()}
        outages = [(start, end) for start, end in document.get("outages", ())]
        return cls(resolution_ns, _interval_from_json(network), stations, outages, dict(document.get("ahead", {})))


def _interval_to_json(interval: ReportingInterval) -> list[Any]:
    return [interval.last_ns, interval.gap_count, interval.interval_ns, list(interval.gaps_ns)]


def _interval_from_json(row: Sequence[Any]) -> ReportingInterval:
    last_ns, gap_count, interval_ns, gaps_ns = row
    return ReportingInterval(last_ns, deque(gaps_ns, MAX_GAPS), gap_count, interval_ns)
