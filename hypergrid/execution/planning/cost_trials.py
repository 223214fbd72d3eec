"""What large steps cost on this machine: each is tried out in small, where a table is not enough.

A table says what a cell costs on the machine that it was made on. That is enough to compare the ways to compute a small
surface; for one that takes seconds, the projection itself matters.
"""

import time
from collections import OrderedDict
from functools import lru_cache
from typing import Final

import numpy as np

from hypergrid.core.pacing import time_waited_s
from hypergrid.core.readings import Readings
from hypergrid.execution.operators.intervals import IntervalNotes
from hypergrid.execution.operators.pieces import CHUNKS_AT_ONCE, Pieces, in_pieces, readers
from hypergrid.execution.operators.stations import finite
from hypergrid.interpolation.kernels.tiled_cholesky import decompose
from hypergrid.perspective import Aggregate, Base, Perspective
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.topology import Regular, SeriesAxis

TRIED_ROWS: Final = 2048
"""Rows of the matrix that is factored for a trial: less than a tenth of a second."""
TRIED_S: Final = 0.2
"""Time of a trial [s]: a few factors, whatever else runs on the machine."""
TOUCHED: Final = 2**26
"""Bytes of new memory that are written for a trial."""
REPEATED_S: Final = 600.0
"""Age at which a trial is repeated [s]: one beside other work is no measure of the machine an hour later."""


def operations_a_second() -> float:
    """Return how many multiplications and additions a second a large matrix is factored with on this machine.

    A factor is what large networks take, and not a product of matrices: that is up to twice as fast, and keeps its
    speed where another process has one of the processors.
    """
    return _operations_a_second(_trial_number())


def touching_s_a_byte() -> float:
    """Return what the first use of a byte of new memory takes on this machine [s].

    The system provides each page of memory when it is first written; on a virtual machine that can take longer than
    computing what is written there.
    """
    return _touching_s_a_byte(_trial_number())


def _trial_number() -> int:
    return int(time.monotonic() // REPEATED_S)


@lru_cache(maxsize=1)
def _operations_a_second(_number: int) -> float:
    room = np.empty((TRIED_ROWS, TRIED_ROWS))
    done, passed = -1, 0.0
    while passed < TRIED_S:
        room.fill(0.5)
        np.fill_diagonal(room, 1.0)
        # Beside other work it waits for its turn.
        begun, waited_s = time.perf_counter(), time_waited_s()
        decompose(room)
        # The first one wakes the threads.
        passed += time.perf_counter() - begun - (time_waited_s() - waited_s) if done >= 0 else 0.0
        done += 1
    return TRIED_ROWS**3 / 3.0 * done / passed


@lru_cache(maxsize=1)
def _touching_s_a_byte(_number: int) -> float:
    begun = time.perf_counter()
    np.empty(TOUCHED // 8).fill(0.0)
    return (time.perf_counter() - begun) / TOUCHED


MEAN: Final = Aggregate("mean", ("time",), 0.0)
KEPT: Final = 64
"""Bases whose trial is remembered."""
_tried: OrderedDict[str, float | None] = OrderedDict()


def reading_ns(surface: Perspective, here: Perspective) -> float | None:
    """Return what a reading of a base that is read in pieces costs, aggregated [ns]; None where it is not tried out.

    A piece of the archive is read and aggregated twice, the second time by the clock.
    """
    base = here.operator
    if not isinstance(base, Base) or not isinstance(base.source, ArchiveSource):
        return None
    for source, operator, _ in readers(surface, here):
        if operator is not None and in_pieces(source, operator):
            if here.token not in _tried:
                _tried[here.token] = _trial(base, here)
                while len(_tried) > KEPT:
                    _tried.popitem(last=False)
            return _tried[here.token]
    return None


def _trial(base: Base, here: Perspective) -> float | None:
    source, axis = base.source, here.topology.space
    if not isinstance(source, ArchiveSource) or not isinstance(axis, SeriesAxis):
        message = "a trial reads an archive"
        raise TypeError(message)
    span = next(source.spans(base.window, CHUNKS_AT_ONCE), None)
    if span is None:
        return None
    others = np.ones(axis.count, dtype=bool)
    others[next(source.side_by_side(source.columns_at_once(1, base.window)))] = False
    part = Base(source, span, base.accept_flags, tuple(sorted({*np.flatnonzero(others).tolist(), *base.unread})))
    cell = Regular("time", span.start_ns, span.stop_ns - span.start_ns, 1, span.stop_ns - span.start_ns)
    read, passed = 0, 0.0

    def use(found: Readings) -> Readings:
        nonlocal read
        read += len(found)
        return finite(found.take(np.isin(found.flag, base.accept_flags)))

    for _ in range(2):
        read, begun = 0, time.perf_counter()
        Pieces(part, use, MEAN, cell, axis, IntervalNotes(cell, MEAN, axis.count), np.empty(0, np.intp)).cells()
        passed = time.perf_counter() - begun
    return passed / read * 1e9 if read else None
