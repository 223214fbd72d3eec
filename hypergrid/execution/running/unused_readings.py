"""How many readings were read and not used, by reason: each once, however many sources of a merge read it."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.execution.operators.stations import hash_series


class UnusedReadings:
    """Gathered over the windows that a run reads."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """By reason."""
        self._passed_counts: dict[str, int] = {}
        """By reason, those that cannot come again."""
        self._known_keys: dict[str, NDArray[np.uint64]] = {}
        """By reason, series and stamp of each reading, shape (readings, 2)."""

    def add(self, reason: str, readings: Readings, *, known_once: bool = False) -> None:
        """Take readings that are not used for a reason; none of them twice.

        Parameters
        ----------
        reason, readings
            Why, and which.
        known_once
            Whether none of them can come again, so that they are counted and forgotten.
        """
        if not len(readings):
            return
        if known_once:
            self._passed_counts[reason] = self._passed_counts.get(reason, 0) + len(readings)
            self.counts[reason] = self.counts.get(reason, 0) + len(readings)
            return
        keys = hash_series(readings.series)[readings.index]
        reading_keys = np.stack([keys, readings.time_ns.view(np.uint64)], axis=1)
        if reason in self._known_keys:
            reading_keys = np.unique(np.concatenate([self._known_keys[reason], reading_keys]), axis=0)
        self._known_keys[reason] = reading_keys
        self.counts[reason] = len(reading_keys) + self._passed_counts.get(reason, 0)
