"""Costs of steps, from trials on this machine, earlier measurements, and formulas of kriging systems.

A table gives the costs of the machine on which it was made. That is enough to compare strategies for a small surface;
for one that takes seconds, the projection itself matters, so large steps are tried out. A perspective that was computed
before is costed by its measurement, kept by token in a table of bounded size. The time of a kriging system grows with
the cube of its stations.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.lru_cache import LruCache
from hypergrid.core.pacing import time_waited_s
from hypergrid.core.readings import Readings
from hypergrid.execution.operators.intervals import IntervalNotes
from hypergrid.execution.operators.pieces import CHUNKS_AT_ONCE, PiecewiseAggregate, find_readers, is_read_in_pieces
from hypergrid.execution.operators.stations import drop_nonfinite
from hypergrid.interpolation.kernels.tiled_cholesky import decompose
from hypergrid.interpolation.local.field import TOGETHER
from hypergrid.interpolation.methods.automatic import AUTO
from hypergrid.interpolation.methods.fitted_variogram import VariogramRequest
from hypergrid.interpolation.solvers.factored import ROWS_PAIRS, SIDES_AT_ONCE
from hypergrid.interpolation.solvers.field import WORTH_TILES, is_factored
from hypergrid.interpolation.variograms.empirical import PAIRS_AT_ONCE
from hypergrid.perspective import Aggregate, Base, Interpolate, Perspective
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.topology import Regular, SeriesAxis

TRIAL_ROWS: Final = 2048
"""Rows of the matrix that a trial factors: less than a tenth of a second."""
TRIAL_S: Final = 0.2
"""Duration of a trial [s]: a few factorisations, whatever else runs on the machine."""
TOUCHED_BYTES: Final = 2**26
"""New memory that a trial writes [bytes]."""
# A trial beside other work does not represent the machine an hour later.
REPEAT_S: Final = 600.0
"""Age at which a trial is repeated [s]."""
# Two trials at once would measure each other; `lru_cache` does not lock.
_TURN: Final = threading.Lock()


def operations_a_second() -> float:
    """Measure the multiplications and additions per second in factoring a large matrix on this machine."""
    # Large networks are factored. A product of matrices is up to twice as fast, and keeps its speed if another process
    # has one of the processors.
    with _TURN:
        return _operations_a_second(_trial_number())


def touching_s_a_byte() -> float:
    """Measure the first use of a byte of new memory on this machine [s]."""
    # The system provides each page of memory when it is first written; on a virtual machine that can take longer than
    # computing what is written there.
    with _TURN:
        return _touching_s_a_byte(_trial_number())


def _trial_number() -> int:
    return int(time.monotonic() // REPEAT_S)


@lru_cache(maxsize=1)
def _operations_a_second(_number: int) -> float:
    room = np.empty((TRIAL_ROWS, TRIAL_ROWS))
    done, passed = -1, 0.0
    while passed < TRIAL_S:
        # A positive definite matrix.
        room.fill(0.5)
        np.fill_diagonal(room, 1.0)
        # Time spent waiting for other work does not count.
        started, waited_s = time.perf_counter(), time_waited_s()
        decompose(room)
        # The first factorisation wakes the threads.
        passed += time.perf_counter() - started - (time_waited_s() - waited_s) if done >= 0 else 0.0
        done += 1
    return TRIAL_ROWS**3 / 3.0 * done / passed


@lru_cache(maxsize=1)
def _touching_s_a_byte(_number: int) -> float:
    started_s = time.perf_counter()
    np.empty(TOUCHED_BYTES // 8).fill(0.0)
    return (time.perf_counter() - started_s) / TOUCHED_BYTES


MEAN: Final = Aggregate("mean", ("time",), 0.0)
MAX_TRIALS: Final = 64
"""Maximum number of bases whose trials are cached."""
_TRIALS: Final[LruCache[str, tuple[float | None]]] = LruCache(MAX_TRIALS)


def reading_ns(surface: Perspective, node: Perspective) -> float | None:
    """Measure the cost of a reading aggregated in pieces [ns]; None without a trial.

    A piece of the archive is read and aggregated twice; the second time is measured.
    """
    base = node.operator
    if not isinstance(base, Base) or not isinstance(base.source, ArchiveSource):
        return None
    for source, operator, _ in find_readers(surface, node):
        if operator is not None and is_read_in_pieces(source, operator):
            trial = _TRIALS.peek(node.token)
            if trial is None:
                trial = (_run_trial(base, base.source, node.stations),)
                _TRIALS.put(node.token, trial, 1)
            return trial[0]
    return None


def _run_trial(base: Base, source: ArchiveSource, axis: SeriesAxis) -> float | None:
    span = next(source.spans(base.window, CHUNKS_AT_ONCE), None)
    if span is None:
        return None
    others = np.ones(axis.count, dtype=bool)
    others[next(source.split_series(source.columns_at_once(1, base.window)))] = False
    part = Base(source, span, base.accept_flags, tuple(sorted({*np.flatnonzero(others).tolist(), *base.unread})))
    cell = Regular("time", span.start_ns, span.stop_ns - span.start_ns, 1, span.stop_ns - span.start_ns)
    read, passed = 0, 0.0

    def use(readings: Readings) -> Readings:
        nonlocal read
        read += len(readings)
        return drop_nonfinite(readings.take_rows(np.isin(readings.flag, base.accept_flags)))

    for _ in range(2):
        read, started_s = 0, time.perf_counter()
        PiecewiseAggregate(
            part, use, MEAN, cell, axis, IntervalNotes(cell, MEAN, axis.count), np.empty(0, np.intp)
        ).compute()
        passed = time.perf_counter() - started_s
    return passed / read * 1e9 if read else None


TABLED_RATE: Final = 2e10
"""Linear algebra operations per second, for systems too small for a trial."""
WORTH_TRYING: Final = 2e10
"""Operations from which a trial on this machine is worthwhile: about a second of them."""
FACTOR_RATE: Final = 1.25
"""Speed of factoring and inverting a large system, relative to that of a trial."""
FEW_PAIRS: Final = 2**22
"""Pairs of stations up to which fitting and solving are neglected, unless they are worth a trial."""
FIT_NS: Final = 40.0
"""Tabulated cost of fitting a variogram, per pair of stations [ns]."""
PAIR_NS: Final = 4.0
"""Tabulated cost of computing and storing the covariance of a pair of stations [ns]."""
NEAR_NS: Final = 100_000.0
"""Tabulated cost of kriging a target from the nearest of many stations [ns]; slices share most of it."""
FIT_ARRAYS: Final = 10
"""Arrays of pairs in memory at once while a variogram is fitted."""
THREADS: Final = 2
"""Number of threads that each hold the covariances of the stations of a chunk."""


def system_bytes(node: Perspective) -> int:
    """Project the memory of an interpolation's systems, and of fitting its variogram [bytes]."""
    operator, stations = node.operator, node.source.topology.space.count
    if not isinstance(operator, Interpolate):
        return 0
    given = operator.arguments
    by_slice = getattr(given.get("variogram"), "by", "all") == "slice"
    near = not operator.uses_all(stations) and not by_slice and given.get("trend") is None
    if operator.row.has_variance and near and stations > 2 * TOGETHER:
        # A chunk has the stations around its targets, and the candidates beyond.
        square = 2 * (3 * TOGETHER) ** 2 * 8 * THREADS
    elif is_factored(stations + 1) and operator.row.has_variance:
        # The matrix; bands of covariances that are summed and moved; right-hand sides.
        square = 8 * (stations + 1) ** 2 * (node.topology.time.count if by_slice else 1)
        square += 8 * (4 * ROWS_PAIRS + (2 * SIDES_AT_ONCE if operator.variance else 0))
    else:
        # With a variogram by slice, each slice keeps the inverse of its own system.
        square = (stations + 1) ** 2 * 8 * (6 + (node.topology.time.count if by_slice else 0))
    return square + (8 * FIT_ARRAYS * PAIRS_AT_ONCE if _is_fitted(operator) and stations**2 > PAIRS_AT_ONCE else 0)


def estimate_solving_s(node: Perspective) -> tuple[float, bool]:
    """Estimate the time of fitting and solving [s], and whether a trial was used.

    Small systems count as 0.
    """
    operator, stations = node.operator, node.source.topology.space.count
    if not isinstance(operator, Interpolate) or not operator.row.has_variance:
        return 0.0, False
    pairs = float(stations) ** 2 / 2
    slices, cells = node.topology.time.count, node.topology.space.count
    seconds = FIT_NS * pairs * 1e-9 if _is_fitted(operator) else 0.0
    if not operator.is_linear(stations):
        return (seconds + NEAR_NS * cells * 1e-9, False) if pairs > FEW_PAIRS else (0.0, False)
    operations = solving_operations(stations, slices=slices, sides=cells if operator.variance else 0)
    if operations < WORTH_TRYING:
        return (0.0, False) if pairs <= FEW_PAIRS else (seconds + operations / TABLED_RATE, False)
    seconds += PAIR_NS * pairs * 1e-9 + touching_s_a_byte() * system_bytes(node)
    return seconds + operations / (FACTOR_RATE * operations_a_second()), True


def solving_operations(stations: int, *, slices: int, sides: int) -> float:
    """Count the multiplications and additions of solving the system of all stations.

    Parameters
    ----------
    stations, slices
        Numbers of the interpolation; with several slices, some station is assumed to be missing from some of them.
    sides
        Number of targets whose variance is wanted.
    """
    square = float(stations) ** 2
    if stations < WORTH_TILES:
        # The inverse, and its check.
        return square * (4.0 * stations + 2.0 * sides)
    if not is_factored(stations + 1):
        # The inverse from the factor.
        return square * (stations + 2.0 * sides)
    # The factor, and its solutions; if stations are missing, the inverse, and products with it.
    return square * (stations + 2.0 * sides if slices > 1 else stations / 3.0 + sides)


def _is_fitted(operator: Interpolate) -> bool:
    return operator.method == AUTO or isinstance(operator.arguments.get("variogram"), VariogramRequest)


MAX_MEASUREMENTS: Final = 1024
"""Maximum number of perspectives in the table; the least recently used is evicted first."""
SAMPLED_VALUES: Final = 2**20
"""Approximate number of values of a block that are sampled for its density."""


@dataclass(frozen=True)
class Measurement:
    """Measured cost and density of one perspective."""

    cells: int
    """Number of computed cells."""
    seconds: float
    """Time in its own function, without its sources [s]."""
    density: float
    """Share of these cells that have a value, 0 to 1."""


MEASUREMENTS: Final[LruCache[str, Measurement]] = LruCache(MAX_MEASUREMENTS)
"""Measurements of this process by token, each of size 1."""


class Meter:
    """Sums up cells, values and seconds by perspective, excluding time in sources."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._inner_s: list[float] = []
        self._sums: dict[str, tuple[int, int, float]] = {}

    @contextmanager
    def measure(self, token: str) -> Iterator[Callable[[NDArray[np.float64]], None]]:
        """Measure the computation of some cells; the yielded function takes their values."""
        started_s = self._clock()
        values: list[NDArray[np.float64]] = []
        self._inner_s.append(0.0)
        try:
            yield values.append
        finally:
            passed, inner = self._clock() - started_s, self._inner_s.pop()
            if self._inner_s:
                self._inner_s[-1] += passed
            cells, present, seconds = self._sums.get(token, (0, 0, 0.0))
            for array in values:
                cells += array.size
                # Some rows of a large map show its density; checking all took a quarter of the time to krige it.
                looked = array[:: max(1, array.size // SAMPLED_VALUES)]
                share = array.size / max(looked.size, 1)
                present += round(int(np.count_nonzero(np.isfinite(looked))) * share)
            self._sums[token] = cells, present, seconds + passed - inner

    def save_sums(self, table: LruCache[str, Measurement] = MEASUREMENTS) -> None:
        for token, (cells, present, seconds) in self._sums.items():
            if cells:
                table.put(token, Measurement(cells, seconds, present / cells), 1)
