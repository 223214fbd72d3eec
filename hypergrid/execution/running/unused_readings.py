"""Unused readings by reason, each counted once however many sources of a merge read it."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.execution.operators.stations import hash_series


class UnusedReadings:
    """Counts of unused readings, collected over the windows that a run reads."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Number of readings, by reason."""
        self._passed_counts: dict[str, int] = {}
        """Number of readings that cannot recur, by reason."""
        self._known_keys: dict[str, NDArray[np.uint64]] = {}
        """Hash of the series, and stamp, of each reading, shape (readings, 2), by reason."""

    def add(self, reason: str, readings: Readings, *, known_once: bool = False) -> None:
        """Count readings that are not used for a reason, none of them twice.

        Parameters
        ----------
        reason, readings
            The reason, and the readings.
        known_once
            Whether none of them can recur, so that they are counted and forgotten.
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
            # Several sources of a merge may read the same readings.
            reading_keys = np.unique(np.concatenate([self._known_keys[reason], reading_keys]), axis=0)
        self._known_keys[reason] = reading_keys
        self.counts[reason] = len(reading_keys) + self._passed_counts.get(reason, 0)
