"""How the join of a group of stations stands after a batch."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from hypergrid.wo_join import WoJoin

STREAMS_AT_ONCE: Final = 128
"""Streams up to which a join is looked at with every batch: of 1,024 it takes 0.15 s, so that is every eighth."""


@dataclass(frozen=True)
class JoinTold:
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
    def of(cls, join: WoJoin) -> "JoinTold":
        """Return what matters of how a join stands."""
        told = join.statistics()
        came = np.array([one.arrived > 0 for one in told.streams])
        awake = np.array([one.activity == "awake" for one in told.streams])
        needed = sum(one.bound for one in told.streams if one.arrived)
        # Of a station that nobody waits for the others are ever further ahead.
        lags = join.lags()[np.ix_(awake, awake)]
        lag = float(lags.max()) if len(lags) > 1 else math.nan
        return cls(
            streams=int(came.sum()),
            silent=int((came & ~awake).sum()),
            held=told.held,
            held_bytes=told.held_bytes,
            allocated_bytes=told.allocated_bytes,
            allowed_bytes=told.allowed_bytes,
            needed=needed if math.isfinite(needed) and came.any() else None,
            scrambling_factor=max((one.scrambling_factor for one in told.streams), default=0),
            lag=lag if math.isfinite(lag) else None,
        )
