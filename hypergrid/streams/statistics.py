"""What a join tells of itself: a frozen record that pages, memory manager and tests read alike."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from hypergrid.streams.cost import buffer_bounds
from hypergrid.streams.fields import (
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
    LATE,
    PEAK,
    PEAK_ALL,
    QUANTILE,
    REPEATED,
    REPEATED_BEFORE,
    SLOT_BYTES,
    STILL,
    TAKEN,
    Known,
)
from hypergrid.streams.lags import lag_of
from hypergrid.streams.observe import rate_of, scrambling, upper_of
from hypergrid.streams.parameters import ROW_BYTES
from hypergrid.streams.state import State

if TYPE_CHECKING:
    from hypergrid.streams.waiting import Waiting

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


def lags_of(state: State, known: Known) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the lag from each stream (row) to each other (column) [tuples].

    Where no sorted keys are kept (policies other than "published"), it is the distance of the greatest keys, by the
    mean distance of the stream's keys among the running maxima that are remembered.
    """
    per, n = state.seen.per, len(state.seen.per)
    lags = np.zeros((n, n))
    clock = int(state.whole[CLOCK])
    exact = state.seen.ranks.shape[1] > 0
    spacing = np.array([_spacing(state, stream) for stream in range(n)])
    for stream in range(n):
        for other in range(n):
            told = known.lag[stream, other]
            if stream == other:
                continue
            if exact or not np.isnan(told):
                lags[stream, other] = lag_of(
                    per, state.seen.rates, state.seen.ranks, known.rate, known.lag, stream, other, clock
                )
            elif per[stream, COUNT] and per[other, COUNT]:
                lags[stream, other] = (per[stream, GREATEST] - per[other, GREATEST]) / spacing[stream]
            else:
                lags[stream, other] = per[stream, COUNT]
    return lags


def _spacing(state: State, stream: int) -> float:
    """Return the mean key units from one tuple of a stream to the next, at least 1e-9."""
    first, end = state.seen.per[stream, [FIRST_RECORD, END_RECORD]]
    if end - first < 2:
        return 1.0
    mask = state.seen.records.shape[1] - 1
    start, stop = state.seen.records[stream, first & mask], state.seen.records[stream, (end - 1) & mask]
    return max(float(stop[1] - start[1]) / float(stop[0] - start[0]), 1e-9)


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
    bounds = buffer_bounds(factors, rates, lags)
    slot_bytes, entry_bytes = int(whole[SLOT_BYTES]), int(whole[ENTRY_BYTES])
    held_bytes = int(whole[HELD_ALL]) * slot_bytes + int(whole[ENTRIES]) * entry_bytes
    streams = tuple(
        StreamStatistics(
            scrambling_factor=int(factors[i]),
            multiplicity=int(max(per[i, REPEATED], per[i, REPEATED_BEFORE])),
            rate_hz=float(rates[i]),
            lag=float(lags[i][others[i]].max()),
            disorder=int(per[i, KNOWN_DISORDER] if per[i, KNOWN_DISORDER] >= 0 else upper_of(per[i, QUANTILE])),
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
