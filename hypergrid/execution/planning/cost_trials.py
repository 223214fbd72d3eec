"""Cost trials: measure large steps on this machine where tabulated costs are not enough.

A table gives the costs of the machine on which it was made. That is enough to compare strategies for a small surface;
for one that takes seconds, the projection itself matters.
"""

import threading
import time
from collections import OrderedDict
from functools import lru_cache
from typing import Final

import numpy as np

from hypergrid.core.pacing import time_waited_s
from hypergrid.core.readings import Readings
from hypergrid.execution.operators.intervals import IntervalNotes
from hypergrid.execution.operators.pieces import CHUNKS_AT_ONCE, PiecewiseAggregate, find_readers, is_read_in_pieces
from hypergrid.execution.operators.stations import drop_nonfinite
from hypergrid.interpolation.kernels.tiled_cholesky import decompose
from hypergrid.perspective import Aggregate, Base, Perspective
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
_trials: OrderedDict[str, float | None] = OrderedDict()


def reading_ns(surface: Perspective, node: Perspective) -> float | None:
    """Measure the cost of a reading aggregated in pieces [ns]; None without a trial.

    A piece of the archive is read and aggregated twice; the second time is measured.
    """
    base = node.operator
    if not isinstance(base, Base) or not isinstance(base.source, ArchiveSource):
        return None
    for source, operator, _ in find_readers(surface, node):
        if operator is not None and is_read_in_pieces(source, operator):
            if node.token not in _trials:
                _trials[node.token] = _run_trial(base, node)
                while len(_trials) > MAX_TRIALS:
                    _trials.popitem(last=False)
            return _trials[node.token]
    return None


def _run_trial(base: Base, node: Perspective) -> float | None:
    source, axis = base.source, node.topology.space
    if not isinstance(source, ArchiveSource) or not isinstance(axis, SeriesAxis):
        raise TypeError("a trial reads an archive")
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
