"""What was measured while perspectives were computed: seconds a cell, and the share of cells that hold a value.

Kept by token for the queries to come, in a table of bounded size: a perspective that was computed before is costed by
what it took, any other one by tabled unit costs.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MAX_MEASUREMENTS: Final = 1024
"""Perspectives that are remembered; the longest unused is forgotten first."""
SAMPLED_VALUES: Final = 2**20
"""About how many values of a block are looked at to know its density."""


@dataclass(frozen=True)
class Measurement:
    """One perspective."""

    cells: int
    """Cells that were computed."""
    seconds: float
    """In its own function, without its sources [s]."""
    density: float
    """Share of these cells that hold a value, 0 to 1."""


class MeasurementTable:
    """Measurements by token."""

    def __init__(self, kept: int = MAX_MEASUREMENTS) -> None:
        self._max_entries = kept
        self._measurements: OrderedDict[str, Measurement] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._measurements)

    def get(self, token: str) -> Measurement | None:
        """Return what was measured of a perspective; None where nothing was."""
        with self._lock:
            if token in self._measurements:
                self._measurements.move_to_end(token)
            return self._measurements.get(token)

    def put(self, token: str, measured: Measurement) -> None:
        """Remember a measurement in place of an earlier one."""
        with self._lock:
            self._measurements[token] = measured
            self._measurements.move_to_end(token)
            while len(self._measurements) > self._max_entries:
                self._measurements.popitem(last=False)


MEASUREMENTS: Final = MeasurementTable()
"""Of this process."""


class Meter:
    """Adds up cells, values and seconds of the perspectives of one run; time in sources is theirs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._inner_s: list[float] = []
        self._sums: dict[str, tuple[int, int, float]] = {}

    @contextmanager
    def measure(self, token: str) -> Iterator[Callable[[NDArray[np.float64]], None]]:
        """Measure the computation of some cells; their values are given when they are there."""
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
                # Of a large map some rows tell the density; to look at all took a quarter of the time to krige it.
                looked = array[:: max(1, array.size // SAMPLED_VALUES)]
                share = array.size / max(looked.size, 1)
                present += round(int(np.count_nonzero(np.isfinite(looked))) * share)
            self._sums[token] = cells, present, seconds + passed - inner

    def save_sums(self, table: MeasurementTable = MEASUREMENTS) -> None:
        """Put what was measured where the next plan finds it."""
        for token, (cells, present, seconds) in self._sums.items():
            if cells:
                table.put(token, Measurement(cells, seconds, present / cells))
