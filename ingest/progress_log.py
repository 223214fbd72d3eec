"""What a stream tells of itself every few seconds, where a server of the archive finds it."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hypergrid.store import stream_log
from hypergrid.streams import WoJoin
from hypergrid.times import SECOND_NS

if TYPE_CHECKING:
    from ingest.stream import Status

EVERY_S: Final = 5.0
"""How often it is told [s]."""
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


class ProgressLog:
    """Writes how a stream stands, now and then.

    Parameters
    ----------
    folder
        The archive's.
    now_ns
        Gives the present [ns since 1970 UTC].
    """

    def __init__(self, folder: Path, now_ns: Callable[[], int]) -> None:
        self._folder, self._now_ns = folder, now_ns
        self._told_ns: int | None = None
        self._last: Mapping[str, Any] = {}

    def take(self, status: "Status") -> None:
        """Note how the stream stands, if that was not done a moment ago."""
        now_ns = self._now_ns()
        self._last = _record(status)
        # A clock that was set back must not keep it silent.
        if self._told_ns is None or not 0 <= now_ns - self._told_ns < EVERY_S * SECOND_NS:
            self._write(now_ns, {})

    def end(self) -> None:
        """Note that the stream ended."""
        if self._told_ns is not None:
            self._write(self._now_ns(), {"ended": True})

    def _write(self, now_ns: int, more: Mapping[str, Any]) -> None:
        self._told_ns = now_ns
        # A full disk is told by whoever commits; what is lost here is one point of a line.
        with suppress(OSError):
            stream_log.append(self._folder, {"at_ns": now_ns, **self._last, **more})


def _record(status: "Status") -> dict[str, Any]:
    ledger = status.ledger
    return {
        "readings_per_s": status.readings_per_s,
        "behind": status.behind,
        "batches": status.batches,
        "came": ledger.came,
        "held": ledger.held,
        "late": ledger.late,
        "slices": ledger.slices,
        "last_slice_ns": status.last_slice_ns,
        "joins": {group: asdict(told) for group, told in status.joins.items()},
    }
