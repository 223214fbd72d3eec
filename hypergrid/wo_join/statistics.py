"""What a join tells of itself: a frozen record that pages, memory manager and tests read alike."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.wo_join.config import ROW_BYTES
from hypergrid.wo_join.lags import await_all, lag_all
from hypergrid.wo_join.observe import disorder_of, multiplicity, rate_of, scrambling
from hypergrid.wo_join.state import State
from hypergrid.wo_join.state_layout import (
    ASLEEP,
    CLOCK,
    COUNT,
    END_RECORD,
    ENTRIES,
    ENTRY_BYTES,
    FIRST_RECORD,
    GREATEST,
    HELD,
    HELD_ALL,
    KNOWN_DISORDER,
    KNOWN_DISPLACED,
    LATE,
    PEAK,
    PEAK_ALL,
    REPEATED,
    SLOT_BYTES,
    STILL,
    TAKEN,
    WARM,
    Known,
)

if TYPE_CHECKING:
    from hypergrid.wo_join.spilling.reorder_buffer import Waiting

Activity = Literal["awake", "asleep", "silent", "still"]
STILL_TUPLES = 100_000
"""Tuples of a stream without a greater key after which its keys are said not to grow."""


@dataclass(frozen=True)
class StreamStatistics:
    """One stream, as monitored now."""

    scrambling_factor: int
    """Over the last one to two epochs [tuples], or as known beforehand."""
    multiplicity: int
    """The most tuples with one key; of those held together, over the last one to two epochs."""
    rate_hz: float
    """Rate of the last 128 tuples until now [Hz], NaN before there are two; without arrivals a tick counts as 1 s."""
    lag: float
    """Greatest lag to another stream [tuples], negative where the stream is behind all others."""
    disorder: int
    """Quantile of how far keys lie below the greatest before them [key units]."""
    arrived: int
    """Tuples so far, without those in quarantine."""
    late: int
    """Of all, late or in quarantine."""
    held: int
    held_peak: int
    held_bytes: int
    waiting: int
    """Tuples that wait in memory before they are joined, with a strategy."""
    spilled: int
    """Tuples that wait on disk."""
    bound: float
    """Tuples that equation 3.8 asks to hold, by these parameters; inf before they are known."""
    activity: Activity
    """"silent": has brought nothing yet; "asleep": silent for longer than `idle_s`; "still": its keys do not grow."""


@dataclass(frozen=True)
class Statistics:
    """A join, now."""

    streams: tuple[StreamStatistics, ...]
    arrived: int
    """Tuples taken so far."""
    held: int
    held_peak: int
    held_bytes: int
    """Bytes of the tuples and keys that are held: this is what `allowed_bytes` limits."""
    bound_bytes: float
    """Bytes of what equation 3.8 asks to hold."""
    allocated_bytes: int
    """Bytes of all arrays of the state."""
    allowed_bytes: int | None
    disk: "Disk"


@dataclass(frozen=True)
class Disk:
    """What a join has on disk."""

    spilled: int = 0
    """Tuples that wait there now."""
    segments: int = 0
    """Segments there now."""
    bytes: int = 0
    """Bytes of these."""
    written: int = 0
    """Segments written so far."""
    io_s: float = 0.0
    """Time spent with the disk so far [s]."""


def lags_of(state: State, known: Known) -> NDArray[np.float64]:
    """Return the lag from each stream (row) to each other (column) [tuples], 0 on the diagonal.

    Where no sorted keys are kept (policies other than "published"), it is the distance of the greatest keys, by the
    mean distance of the stream's keys among the running maxima that are remembered.
    """
    per, seen, n = state.seen.per, state.seen, len(state.seen.per)
    lags = np.zeros((n, n))
    if seen.ranks.shape[1]:
        lag_all(per, seen.rates, seen.ranks, known.rate, known.lag, int(state.whole[CLOCK]), lags)
        return lags
    came, greatest = per[:, COUNT], per[:, GREATEST]
    apart = (greatest[:, None] - greatest[None, :]) / _spacings(state)[:, None]
    lags = np.where((came[:, None] > 0) & (came[None, :] > 0), apart, came[:, None])
    lags = np.where(np.isnan(known.lag), lags, known.lag)
    np.fill_diagonal(lags, 0.0)
    return lags


def bounds_of(state: State, known: Known, factors: ArrayLike, rates: ArrayLike) -> NDArray[np.float64]:
    """Return the tuples of each stream that equations 3.7 and 3.8 ask to hold, shape (n,); inf before they are known.

    The lag is that at tau' of equation 3.7, and what came since then is counted, where sorted keys are kept (policy
    "published"); else both are told by the distance of keys. What lies further back than is remembered is reckoned by
    the rates, as is all where lags are known.

    Parameters
    ----------
    factors, rates
        Scrambling factor [tuples] and rate [Hz] of each stream, shape (n,).
    """
    per, ranks, n = state.seen.per, state.seen.ranks, len(state.seen.per)
    k, r = np.asarray(factors, np.float64), np.asarray(rates, np.float64)
    awake, whole_k = per[:, ASLEEP] == 0, np.ceil(k).astype(np.int64)
    if np.any(awake & (per[:, COUNT] < WARM) & (per[:, KNOWN_DISPLACED] < 0)):
        return np.full(n, np.inf)
    with np.errstate(invalid="ignore"):
        ratios = np.nan_to_num(r[:, None] / r[None, :], nan=1.0)
    reaches = np.empty((n, n))
    if ranks.shape[1]:
        await_all(per, ranks, whole_k, ratios, reaches)
    else:
        passed, forgotten = (
            np.array([_passed(state, stream, int(k)) for stream, k in enumerate(whole_k)]).reshape(n, 2).T
        )
        reaches = (per[:, GREATEST, None] - passed[None, :]) / _spacings(state)[:, None] + forgotten[None, :] * ratios
        reaches = np.where((per[:, COUNT] <= whole_k)[None, :], per[:, COUNT, None], reaches)
    reaches = np.where(np.isnan(known.lag), reaches, k[None, :] * ratios + known.lag)
    reaches[:, ~awake] = -np.inf
    np.fill_diagonal(reaches, -np.inf)
    bounds: NDArray[np.float64] = np.maximum(1.0, np.ceil(k + reaches.max(axis=1) - 1e-9))
    return bounds


def _records(state: State, stream: int) -> NDArray[np.int64]:
    """Return the running maxima of a stream that are remembered: number, key and arrival [ns] of each."""
    first, end = state.seen.per[stream, [FIRST_RECORD, END_RECORD]]
    ring: NDArray[np.int64] = state.seen.records[stream, np.arange(first, end) & (state.seen.records.shape[1] - 1)]
    return ring


def _passed(state: State, stream: int, factor: int) -> tuple[int, int]:
    """Return the greatest key of more than so many tuples ago, and how many tuples before those remembered it lies."""
    ring, before = _records(state, stream), int(state.seen.per[stream, COUNT]) - factor
    if not len(ring) or before < 1:
        return 0, 0
    place = max(0, int(np.searchsorted(ring[:, 0], before, side="right")) - 1)
    return int(ring[place, 1]), max(0, int(ring[0, 0]) - before)


def _spacings(state: State) -> NDArray[np.float64]:
    """Return the mean key units from one tuple of each stream to the next, at least 1e-9, shape (n,)."""
    spacings = np.ones(len(state.seen.per))
    for stream in range(len(spacings)):
        ring = _records(state, stream)
        if len(ring) > 1:
            spacings[stream] = max((ring[-1, 1] - ring[0, 1]) / (ring[-1, 0] - ring[0, 0]), 1e-9)
    return spacings


def statistics_of(
    state: State, known: Known, allowed_bytes: int | None, waiting: "Waiting | None" = None
) -> Statistics:
    """Return a record of a join's state, and of what waits before it."""
    if waiting is not None:
        state = as_arrived(state, waiting.monitors)
    per, whole, n = state.seen.per, state.whole, len(state.seen.per)
    clock = int(whole[CLOCK])
    in_memory, on_disk = (
        ([0] * n, [0] * n)
        if waiting is None
        else ([q.waiting - q.spilled for q in waiting.queues], [q.spilled for q in waiting.queues])
    )
    factors = np.array([scrambling(per, stream) for stream in range(n)])
    rates = np.array([rate_of(per, state.seen.rates, known.rate, stream, clock) for stream in range(n)])
    lags = lags_of(state, known)
    others = ~np.eye(n, dtype=bool)
    bounds = bounds_of(state, known, factors, rates)
    slot_bytes, entry_bytes = int(whole[SLOT_BYTES]), int(whole[ENTRY_BYTES])
    held_bytes = int(whole[HELD_ALL]) * slot_bytes + int(whole[ENTRIES]) * entry_bytes
    streams = tuple(
        StreamStatistics(
            scrambling_factor=int(factors[i]),
            multiplicity=multiplicity(per, i),
            rate_hz=float(rates[i]),
            lag=float(lags[i][others[i]].max()),
            disorder=int(per[i, KNOWN_DISORDER] if per[i, KNOWN_DISORDER] >= 0 else max(0, disorder_of(per, i))),
            arrived=int(per[i, COUNT]),
            late=int(per[i, LATE]),
            held=int(per[i, HELD]),
            held_peak=int(per[i, PEAK]),
            held_bytes=int(per[i, HELD]) * slot_bytes + in_memory[i] * ROW_BYTES,
            waiting=in_memory[i],
            spilled=on_disk[i],
            bound=float(bounds[i]),
            activity=_activity(per[i]),
        )
        for i in range(n)
    )
    return Statistics(
        streams=streams,
        arrived=int(whole[TAKEN]),
        held=int(whole[HELD_ALL]),
        held_peak=int(whole[PEAK_ALL]),
        held_bytes=held_bytes + (0 if waiting is None else waiting.memory_bytes),
        bound_bytes=float(bounds.sum() * slot_bytes + bounds.max() * entry_bytes),
        allocated_bytes=state.allocated_bytes,
        allowed_bytes=allowed_bytes,
        disk=_disk_of(waiting, sum(on_disk)),
    )


def _disk_of(waiting: "Waiting | None", spilled: int) -> Disk:
    segments = None if waiting is None else waiting.segments
    if segments is None:
        return Disk()
    return Disk(spilled, len(segments), segments.disk_bytes, segments.written, segments.io_s)


def as_arrived(state: State, monitors: State) -> State:
    """Return a state with what monitors before the join have seen."""
    per, whole = monitors.seen.per.copy(), state.whole.copy()
    per[:, [HELD, PEAK]] = state.seen.per[:, [HELD, PEAK]]
    per[:, LATE] += state.seen.per[:, LATE]
    per[:, REPEATED] = np.maximum(per[:, REPEATED], state.seen.per[:, REPEATED])
    whole[[CLOCK, TAKEN]] = monitors.whole[[CLOCK, TAKEN]]
    return replace(state, whole=whole, seen=monitors.seen._replace(per=per))


def _activity(row: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Activity:
    if row[ASLEEP]:
        return "asleep"
    if row[COUNT] == 0:
        return "silent"
    return "still" if row[STILL] > STILL_TUPLES else "awake"
