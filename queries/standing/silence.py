"""Dead stations: how long each station is silent as a rule, learned from when its own readings arrived.

The gaps between the times that a station is heard tell how long it is silent as a rule: one that is sent each two
minutes a little over that, one that uploads each six hours six hours. Readings that are lost or sent again make some
gaps longer, so the learned interval is a bound that one gap in 100,000 exceeds: above `u`, one and a half usual gaps,
a share p of the gaps exceeds u by s on the mean, and a longer one is the rarer by exp(-(gap - u) / s) (the
peaks-over-threshold rule). It is no less than three usual gaps: two readings that are lost are nothing. A station is
dead once it has not been heard for one and a half times the learned interval, so that it is told within twice of it.
That is counted by the newest arrival of the whole network: when nobody is heard, it is the network that is silent, not
each station.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from queries.standing.episodes import Change, Episode

RARE: Final = 1e-5
"""Share of the gaps that may be longer than the learned interval."""
FEWEST: Final = 12
"""Gaps from which an interval is learned; with fewer a station is never called dead."""
MOST: Final = 400
"""Latest gaps that are remembered."""
LOT: Final = 20
"""Gaps after which an interval is learned anew."""
LEAST: Final = 3.0
"""Usual gaps that a learned interval has at least."""
FACTOR: Final = 1.5
"""Times of the learned interval after which a station is dead."""
AGAIN: Final = 3
"""Long gaps, among those remembered, above which they tell how the station works, however long they are."""


@dataclass(eq=False)
class Learned:
    """What is known of when one station is heard."""

    last_ns: int
    """When it was heard last [ns since 1970 UTC]."""
    gaps_ns: deque[int] = field(default_factory=lambda: deque(maxlen=MOST))
    """Latest gaps between the times that it was heard, oldest first [ns]."""
    heard: int = 0
    """Gaps that were ever heard."""
    interval_ns: int | None = None
    """The learned interval [ns]; None: too little was heard."""

    @property
    def bound_ns(self) -> int | None:
        """After how long without being heard it is dead [ns]; None: not known."""
        return None if self.interval_ns is None else round(FACTOR * self.interval_ns)

    def hear(self, gap_ns: int) -> None:
        """Learn that it was heard again after a gap [ns]; the interval is learned anew after each lot of gaps."""
        self.gaps_ns.append(gap_ns)
        self.heard += 1
        if self.heard >= FEWEST and (self.heard % LOT == 0 or self.heard < 4 * FEWEST):
            self.interval_ns = learned_interval_ns(np.array(self.gaps_ns, np.float64))


def learned_interval_ns(gaps_ns: NDArray[np.float64]) -> int:
    """Return the interval that gaps teach [ns], shape (gaps,): one gap in `1 / RARE` is longer (module's docstring)."""
    usual = float(np.median(gaps_ns))
    edge = 1.5 * usual
    longer = gaps_ns[gaps_ns > edge]
    if not len(longer):
        return round(LEAST * usual)
    # A death among the gaps must not teach that deaths are usual; one that comes again and again is how it works.
    excess = np.minimum(longer, 4 * float(np.median(longer)) if len(longer) > AGAIN else 2 * edge) - edge
    share, mean = len(longer) / len(gaps_ns), float(excess.mean())
    return round(max(LEAST * usual, edge + mean * max(float(np.log(share / RARE)), 0.0)))


@dataclass(eq=False)
class Silence:
    """What was heard of every station; `hear` takes what came, and says which died and which came back."""

    resolution_ns: int
    """Arrivals that follow one another more closely are heard at once, as an upload is [ns]."""
    newest_ns: int = 0
    """The newest arrival of the network [ns since 1970 UTC]."""
    stations: dict[str, Learned] = field(default_factory=dict)

    def hear(
        self, arrivals: Mapping[str, NDArray[np.int64]], episodes: Sequence[Episode]
    ) -> tuple[list[Episode], list[Change]]:
        """Take arrivals of readings, and return the episodes as they stand with what is to be told.

        Parameters
        ----------
        arrivals
            When readings of each station arrived [ns since 1970 UTC], in any order; those heard before count once.
        episodes
            The deaths that were told.
        """
        self.newest_ns = max([self.newest_ns, *(int(times.max()) for times in arrivals.values() if len(times))])
        open_ = {one.place: one for one in episodes if one.cleared_ns is None}
        kept = [one for one in episodes if one.cleared_ns is not None]
        changes: list[Change] = []
        for station in dict.fromkeys([*self.stations, *arrivals]):
            deaths = self._hear(station, np.sort(arrivals.get(station, np.empty(0, np.int64))))
            before = open_.pop(station, None)
            for onset_ns, back_ns in deaths:
                if before is not None:
                    now = Episode(station, before.onset_ns, back_ns, before.number)
                    changes += [Change("cleared", now)] if back_ns is not None else []
                else:
                    now = Episode(station, onset_ns, back_ns)
                    changes += [Change("raised", now)]
                    changes += [Change("cleared", now)] if back_ns is not None else []
                kept.append(now)
                before = None
            if before is not None:
                # It was called dead by a bound that is no more.
                now = Episode(station, before.onset_ns, self.newest_ns, before.number)
                kept.append(now)
                changes.append(Change("cleared", now))
        return kept + list(open_.values()), changes

    def _hear(self, station: str, arrivals: NDArray[np.int64]) -> list[tuple[int, int | None]]:
        """Learn from a station's arrivals, ascending; return its deaths: when it was dead, and when heard again."""
        known = self.stations.get(station)
        if known is None:
            if not len(arrivals):
                return []
            known = Learned(int(arrivals[0]))
        deaths: list[tuple[int, int | None]] = []
        edges = np.concatenate([[known.last_ns], arrivals[arrivals > known.last_ns]])
        gaps = np.diff(edges)
        for place in np.flatnonzero(gaps >= self.resolution_ns).tolist():
            gap_ns, bound_ns = int(gaps[place]), known.bound_ns
            if bound_ns is not None and gap_ns > bound_ns:
                deaths.append((int(edges[place]) + bound_ns, int(edges[place + 1])))
            known.hear(gap_ns)
        known.last_ns = int(edges[-1])
        self.stations[station] = known
        bound_ns = known.bound_ns
        if bound_ns is not None and self.newest_ns - known.last_ns > bound_ns:
            deaths.append((known.last_ns + bound_ns, None))
        return deaths

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        stations = {
            name: [one.last_ns, one.heard, one.interval_ns, list(one.gaps_ns)] for name, one in self.stations.items()
        }
        return {"newest_ns": self.newest_ns, "stations": stations}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, resolution_ns: int) -> "Silence":
        """Return what `to_json` wrote; nothing was heard where it is empty."""
        stations = {
            name: Learned(last, deque(gaps, MOST), heard, interval)
            for name, (last, heard, interval, gaps) in document.get("stations", {}).items()
        }
        return cls(resolution_ns, document.get("newest_ns", 0), stations)
