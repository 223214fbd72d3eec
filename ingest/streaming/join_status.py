"""Status of a group's join after a batch."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from hypergrid.wo_join import WoJoin

STREAMS_AT_ONCE: Final = 128
"""Streams up to which the status is determined after every batch; 1,024 streams take 0.15 s, so every eighth then."""


@dataclass(frozen=True)
class JoinStatus:
    """Join of a group of stations after a batch; its tuples are rows, its keys slices."""

    streams: int
    """Stations that have brought anything."""
    silent: int
    """Stations among them that are not waited for: silent for too long, or with a stalled clock."""
    held: int
    """Rows held."""
    held_bytes: int
    allocated_bytes: int
    """Size of all arrays of the state [bytes]."""
    allowed_bytes: int | None
    """Memory limit of held rows [bytes]; None: unlimited."""
    needed: float | None
    """Rows that equation 3.8 of the thesis holds at these scrambling factors, rates and lags; None: not known yet."""
    scrambling_factor: int
    """Greatest scrambling factor of a station [rows]."""
    lag: float | None
    """Greatest lag of a station to another that is waited for [rows]."""

    @classmethod
    def of(cls, join: WoJoin) -> "JoinStatus":
        """Summarise the statistics of a join."""
        statistics = join.statistics()
        has_arrived = np.array([stream.arrived > 0 for stream in statistics.streams])
        awake = np.array([stream.activity == "awake" for stream in statistics.streams])
        needed = sum(stream.bound for stream in statistics.streams if stream.arrived)
        # The lag to a station that is not waited for grows forever.
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
