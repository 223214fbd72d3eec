"""How the join of a group of stations stands after a batch."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from hypergrid.wo_join import WoJoin

STREAMS_AT_ONCE: Final = 128
"""Streams up to which a join is looked at with every batch: of 1,024 it takes 0.15 s, so that is every eighth."""


@dataclass(frozen=True)
class JoinStatus:
    """The join of a group of stations after a batch; its tuples are rows, its keys slices."""

    streams: int
    """Stations that brought anything."""
    silent: int
    """Of these, such that nobody waits for: they were silent for too long, or their clock stands still."""
    held: int
    """Rows that are held."""
    held_bytes: int
    allocated_bytes: int
    """Of all arrays of the state [bytes]."""
    allowed_bytes: int | None
    """What is held may take so much [bytes]; None: there is no limit."""
    needed: float | None
    """Rows that equation 3.8 of the thesis asks to hold, at these scrambling factors, rates and lags; None: not known
    yet."""
    scrambling_factor: int
    """The greatest of a station [rows]."""
    lag: float | None
    """The greatest of a station to another that is waited for [rows]."""

    @classmethod
    def of(cls, join: WoJoin) -> "JoinStatus":
        """Return what matters of how a join stands."""
        statistics = join.statistics()
        has_arrived = np.array([stream.arrived > 0 for stream in statistics.streams])
        awake = np.array([stream.activity == "awake" for stream in statistics.streams])
        needed = sum(stream.bound for stream in statistics.streams if stream.arrived)
        # Of a station that nobody waits for the others are ever further ahead.
        lags = join.lags()[np.ix_(awake, awake)]
        lag = float(lags.max()) if len(lags) > 1 else math.nan
        return cls(
            streams=int(has_arrived.sum()),
            silent=int((has_arrived & ~awake).sum()),
            held=statistics.held,
            held_bytes=statistics.held_bytes,
            allocated_bytes=statistics.allocated_bytes,
            allowed_bytes=statistics.allowed_bytes,
            needed=needed if math.isfinite(needed) and has_arrived.any() else None,
            scrambling_factor=max((stream.scrambling_factor for stream in statistics.streams), default=0),
            lag=lag if math.isfinite(lag) else None,
        )
