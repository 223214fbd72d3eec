"""What a commit touches, as its metadata tell it: slices and series of each variable, in runs, and how they changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.attributes import Json
from hypergrid.archive.arrays.cells import Slices, consecutive, distinct

KINDS: Final = ("new", "replaced", "flags")
"""How readings change: they are new, replace others, or have another flag."""
MOST_RUNS: Final = 48
"""Runs of slices and of series that a commit tells of each kind; where there were more, those nearest each other are
one."""

Runs = list[tuple[int, int]]
"""Runs of whole numbers, ascending: the first and the last of each."""


@dataclass
class Touched:
    """What a commit changed of one variable, in one way."""

    readings: int = 0
    slices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Numbers of the slices, ascending."""
    series: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Numbers of the series, ascending."""

    def add(self, slices: NDArray[np.int64], series: NDArray[np.int32]) -> None:
        """Count n readings, by their slices and series, shape (n,)."""
        self.add_all(len(slices), distinct(slices), distinct(series))

    def add_all(self, readings: int, slices: NDArray[np.int64], series: NDArray[np.int64] | NDArray[np.int32]) -> None:
        """Count readings that lie in some slices, and some series."""
        self.readings += readings
        self.slices = np.union1d(self.slices, slices)
        self.series = np.union1d(self.series, series)

    def record(self, slices: Slices) -> Json:
        """Return it as a commit's metadata tell it."""
        runs = [[slices.start_ns(first), slices.start_ns(last)] for first, last in _runs(self.slices)]
        return {"readings": self.readings, "runs": runs, "series": [list(run) for run in _runs(self.series)]}


def record_of(touched: Mapping[str, Touched], slices: Slices) -> Json:
    """Return what a commit's metadata say of a variable: the hull of all, and each kind."""
    every = np.concatenate([one.slices for one in touched.values()])
    series = np.unique(np.concatenate([one.series for one in touched.values()]))
    kinds = {kind: touched[kind].record(slices) for kind in KINDS if kind in touched}
    first_ns, last_ns = slices.start_ns(int(every.min())), slices.start_ns(int(every.max()))
    return {"first_ns": first_ns, "last_ns": last_ns, "series": len(series), **kinds}


def _runs(numbers: NDArray[np.int64]) -> Runs:
    runs = [(int(run[0]), int(run[-1])) for run in consecutive(numbers)]
    return _joined(runs) if len(runs) > MOST_RUNS else runs


def _joined(runs: Runs) -> Runs:
    """Return at most `MOST_RUNS` runs: those with the narrowest gaps between them are joined."""
    gaps = np.array([later[0] - earlier[1] for earlier, later in zip(runs[:-1], runs[1:], strict=True)])
    kept = np.sort(np.argsort(-gaps, kind="stable")[: MOST_RUNS - 1])
    edges = [0, *(kept + 1).tolist(), len(runs)]
    return [(runs[first][0], runs[stop - 1][1]) for first, stop in zip(edges[:-1], edges[1:], strict=True)]
