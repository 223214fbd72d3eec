"""Statistics of a join: a frozen record for pages, memory manager and tests."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.wo_join.config import ROW_BYTES
from hypergrid.wo_join.lags import count_all_awaited, fill_lags
from hypergrid.wo_join.observe import disorder_of, multiplicity, rate_of, scrambling
from hypergrid.wo_join.state import unroll_ring
from hypergrid.wo_join.state_layout import (
    ASLEEP,
    CLOCK,
    COUNT,
    ENTRIES,
    ENTRY_BYTES,
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
    JoinState,
    KnownArrays,
)

if TYPE_CHECKING:
    from hypergrid.wo_join.spilling.reorder_buffer import ReorderBuffer

Activity = Literal["awake", "asleep", "silent", "still"]
STILL_TUPLES = 100_000
"""Number of tuples without a greater key after which a stream's keys count as not growing."""


@dataclass(frozen=True)
class StreamStatistics:
    """Monitored parameters and counts of one stream."""

    scrambling_factor: int
    """Over the last one to two epochs [tuples], or the known one."""
    multiplicity: int
    """Most tuples with one key, of those held together, over the last one to two epochs."""
    rate_hz: float
    """Rate of the last 128 tuples until now [Hz], NaN before there are two; without arrivals a tick counts as 1 s."""
    lag: float
    """Greatest lag to another stream [tuples], negative if the stream is behind all others."""
    disorder: int
    """Quantile of how far keys lie below the greatest key before them [key units]."""
    arrived: int
    """Tuples so far, without quarantined ones."""
    late: int
    """Tuples that were late or quarantined."""
    held: int
    held_peak: int
    held_bytes: int
    waiting: int
    """Tuples that wait in memory before they are joined, with a strategy."""
    spilled: int
    """Tuples spilled to disk."""
    bound: float
    """Tuples that equation 3.8 holds for these parameters; inf while they are unknown."""
    activity: Activity
    """"silent": has brought nothing yet; "asleep": silent for longer than `idle_s`; "still": its keys do not grow."""


@dataclass(frozen=True)
class JoinStatistics:
    """Statistics of a whole join."""

    streams: tuple[StreamStatistics, ...]
    arrived: int
    """Tuples taken so far."""
    held: int
    held_peak: int
    held_bytes: int
    """Bytes of held tuples and keys, which `allowed_bytes` limits."""
    bound_bytes: float
    """Bytes that equation 3.8 holds."""
    allocated_bytes: int
    """Bytes of all state arrays."""
    allowed_bytes: int | None
    disk: "DiskStatistics"


@dataclass(frozen=True)
class DiskStatistics:
    """Disk usage of a join."""

    spilled: int = 0
    """Tuples on disk now."""
    segments: int = 0
    """Segments on disk now."""
    bytes: int = 0
    """Bytes of these segments."""
    written: int = 0
    """Number of segments written so far."""
    io_s: float = 0.0
    """Total disk time [s]."""


def find_lags(state: JoinState, known: KnownArrays) -> NDArray[np.float64]:
    """Return the lag from each stream (row) to each other (column) [tuples], 0 on the diagonal.

    Without sorted keys (policies other than "published") the lag is the distance of the greatest keys divided by the
    mean distance of the stream's keys between the retained running maxima.
    """
    stream_state, monitors, n = state.monitors.per, state.monitors, len(state.monitors.per)
    lags = np.zeros((n, n))
    if monitors.ranks.shape[1]:
        fill_lags(monitors, known, int(state.join_state[CLOCK]), lags)
        return lags
    counts, greatest = stream_state[:, COUNT], stream_state[:, GREATEST]
    key_lags = (greatest[:, None] - greatest[None, :]) / _find_spacings(state)[:, None]
    lags = np.where((counts[:, None] > 0) & (counts[None, :] > 0), key_lags, counts[:, None])
    lags = np.where(np.isnan(known.lag), lags, known.lag)
    np.fill_diagonal(lags, 0.0)
    return lags


def find_bounds(state: JoinState, known: KnownArrays, factors: ArrayLike, rates: ArrayLike) -> NDArray[np.float64]:
    """Return the tuples that equations 3.7 and 3.8 hold per stream, shape (n,); inf while unknown.

    With sorted keys (policy "published"), the lag is that at tau' of equation 3.7, and tuples since then are counted;
    otherwise both are estimated from distances of keys. Tuples that are no longer retained are estimated from the
    rates, and so is everything if lags are known.

    Parameters
    ----------
    factors, rates
        Scrambling factor [tuples] and rate [Hz] of each stream, shape (n,).
    """
    stream_state, n = state.monitors.per, len(state.monitors.per)
    k, r = np.asarray(factors, np.float64), np.asarray(rates, np.float64)
    awake, whole_k = stream_state[:, ASLEEP] == 0, np.ceil(k).astype(np.int64)
    if np.any(awake & (stream_state[:, COUNT] < WARM) & (stream_state[:, KNOWN_DISPLACED] < 0)):
        return np.full(n, np.inf)
    with np.errstate(invalid="ignore"):
        ratios = np.nan_to_num(r[:, None] / r[None, :], nan=1.0)
    reaches = np.empty((n, n))
    if state.monitors.ranks.shape[1]:
        count_all_awaited(state.monitors, whole_k, ratios, reaches)
    else:
        passed, forgotten = (
            np.array([_find_passed(state, stream, int(k)) for stream, k in enumerate(whole_k)]).reshape(n, 2).T
        )
        reaches = (stream_state[:, GREATEST, None] - passed[None, :]) / _find_spacings(state)[:, None] + forgotten[
            None, :
        ] * ratios
        reaches = np.where((stream_state[:, COUNT] <= whole_k)[None, :], stream_state[:, COUNT, None], reaches)
    reaches = np.where(np.isnan(known.lag), reaches, k[None, :] * ratios + known.lag)
    reaches[:, ~awake] = -np.inf
    np.fill_diagonal(reaches, -np.inf)
    # The 1e-9 keeps rounding errors from adding a tuple.
    bounds: NDArray[np.float64] = np.maximum(1.0, np.ceil(k + reaches.max(axis=1) - 1e-9))
    return bounds


def _find_passed(state: JoinState, stream: int, factor: int) -> tuple[int, int]:
    """Return the greatest key of more than `factor` tuples ago.

    Also returns how many tuples it lies before the retained records.
    """
    ring, before = unroll_ring(state.monitors, stream), int(state.monitors.per[stream, COUNT]) - factor
    if not len(ring) or before < 1:
        return 0, 0
    record_index = max(0, int(np.searchsorted(ring[:, 0], before, side="right")) - 1)
    return int(ring[record_index, 1]), max(0, int(ring[0, 0]) - before)


def _find_spacings(state: JoinState) -> NDArray[np.float64]:
    """Return each stream's mean key distance between tuples [key units], at least 1e-9, shape (n,)."""
    spacings = np.ones(len(state.monitors.per))
    for stream in range(len(spacings)):
        ring = unroll_ring(state.monitors, stream)
        if len(ring) > 1:
            spacings[stream] = max((ring[-1, 1] - ring[0, 1]) / (ring[-1, 0] - ring[0, 0]), 1e-9)
    return spacings


def make_statistics(
    state: JoinState, known: KnownArrays, allowed_bytes: int | None, waiting: "ReorderBuffer | None" = None
) -> JoinStatistics:
    """Collect the statistics of a join and of its reorder buffer."""
    state = add_arrivals(state, waiting)
    stream_state, join_state, n = state.monitors.per, state.join_state, len(state.monitors.per)
    clock = int(join_state[CLOCK])
    in_memory, on_disk = (
        ([0] * n, [0] * n)
        if waiting is None
        else ([q.waiting - q.spilled for q in waiting.queues], [q.spilled for q in waiting.queues])
    )
    factors = np.array([scrambling(stream_state, stream) for stream in range(n)])
    rates = np.array([rate_of(state.monitors, known, stream, clock) for stream in range(n)])
    lags = find_lags(state, known)
    others = ~np.eye(n, dtype=bool)
    bounds = find_bounds(state, known, factors, rates)
    slot_bytes, entry_bytes = int(join_state[SLOT_BYTES]), int(join_state[ENTRY_BYTES])
    held_bytes = int(join_state[HELD_ALL]) * slot_bytes + int(join_state[ENTRIES]) * entry_bytes
    streams = tuple(
        StreamStatistics(
            scrambling_factor=int(factors[i]),
            multiplicity=multiplicity(stream_state, i),
            rate_hz=float(rates[i]),
            lag=float(lags[i][others[i]].max()),
            disorder=int(
                stream_state[i, KNOWN_DISORDER]
                if stream_state[i, KNOWN_DISORDER] >= 0
                else max(0, disorder_of(stream_state, i))
            ),
            arrived=int(stream_state[i, COUNT]),
            late=int(stream_state[i, LATE]),
            held=int(stream_state[i, HELD]),
            held_peak=int(stream_state[i, PEAK]),
            held_bytes=int(stream_state[i, HELD]) * slot_bytes + in_memory[i] * ROW_BYTES,
            waiting=in_memory[i],
            spilled=on_disk[i],
            bound=float(bounds[i]),
            activity=_find_activity(stream_state[i]),
        )
        for i in range(n)
    )
    return JoinStatistics(
        streams=streams,
        arrived=int(join_state[TAKEN]),
        held=int(join_state[HELD_ALL]),
        held_peak=int(join_state[PEAK_ALL]),
        held_bytes=held_bytes + (0 if waiting is None else waiting.memory_bytes),
        bound_bytes=float(bounds.sum() * slot_bytes + bounds.max() * entry_bytes),
        allocated_bytes=state.allocated_bytes,
        allowed_bytes=allowed_bytes,
        disk=_make_disk_statistics(waiting, sum(on_disk)),
    )


def _make_disk_statistics(waiting: "ReorderBuffer | None", spilled: int) -> DiskStatistics:
    segments = None if waiting is None else waiting.segments
    if segments is None:
        return DiskStatistics()
    return DiskStatistics(spilled, len(segments), segments.disk_bytes, segments.written, segments.io_s)


def add_arrivals(state: JoinState, waiting: "ReorderBuffer | None") -> JoinState:
    """Combine a join's state with the monitors of the reorder buffer before it, if there is one."""
    if waiting is None:
        return state
    monitors = waiting.arrival_state.monitors
    stream_state, join_state = monitors.per.copy(), state.join_state.copy()
    stream_state[:, [HELD, PEAK]] = state.monitors.per[:, [HELD, PEAK]]
    stream_state[:, LATE] += state.monitors.per[:, LATE]
    stream_state[:, REPEATED] = np.maximum(stream_state[:, REPEATED], state.monitors.per[:, REPEATED])
    join_state[[CLOCK, TAKEN]] = waiting.arrival_state.join_state[[CLOCK, TAKEN]]
    return state._replace(join_state=join_state, monitors=monitors._replace(per=stream_state))


def _find_activity(row: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Activity:
    if row[ASLEEP]:
        return "asleep"
    if row[COUNT] == 0:
        return "silent"
    return "still" if row[STILL] > STILL_TUPLES else "awake"
