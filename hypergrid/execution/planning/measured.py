"""Measurements of computed perspectives: seconds per cell, and density of values.

Kept by token for later queries, in a table of bounded size: a perspective that was computed before is costed by its
measurement, any other by tabulated unit costs.
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


class MeasurementTable:
    """Thread-safe LRU table of measurements by token."""

    def __init__(self, kept: int = MAX_MEASUREMENTS) -> None:
        self._max_entries = kept
        self._measurements: OrderedDict[str, Measurement] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._measurements)

    def get(self, token: str) -> Measurement | None:
        """Return the measurement of a perspective, if any, and mark it as recently used."""
        with self._lock:
            if token in self._measurements:
                self._measurements.move_to_end(token)
            return self._measurements.get(token)

    def put(self, token: str, measured: Measurement) -> None:
        """Store a measurement in place of an earlier one; evict the least recently used."""
        with self._lock:
            self._measurements[token] = measured
            self._measurements.move_to_end(token)
            while len(self._measurements) > self._max_entries:
                self._measurements.popitem(last=False)


MEASUREMENTS: Final = MeasurementTable()
"""Measurements of this process."""


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

    def save_sums(self, table: MeasurementTable = MEASUREMENTS) -> None:
        """Store the sums as measurements for later plans."""
        for token, (cells, present, seconds) in self._sums.items():
            if cells:
                table.put(token, Measurement(cells, seconds, present / cells))
