"""Why values of a result are missing, and which are infinite: counted block by block, said in words."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.perspective import Aggregate, Convert, Interpolate, Perspective
from hypergrid.topology import Instants, SeriesAxis

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass
class Tally:
    """Values of a surface, counted as its blocks come."""

    values: int = 0
    missing: int = 0
    empty: int = 0
    """Missing ones for which nothing was there."""
    uncovered: int = 0
    """Missing ones for which less was there than `min_coverage` asks for."""
    infinite: int = 0

    def add(self, value: Floats, count: Counts | None, possible: Counts | None, min_coverage: float) -> None:
        """Count the values of a block; counts broadcast to their shape, and what is possible is 0 where not known."""
        self.values += value.size
        finite = np.isfinite(value)
        if finite.all():
            return
        missing = np.isnan(value)
        self.infinite += int(value.size - np.count_nonzero(finite) - np.count_nonzero(missing))
        self.missing += int(np.count_nonzero(missing))
        if count is None:
            return
        empty = missing & (count == 0)
        self.empty += int(np.count_nonzero(empty))
        if min_coverage and possible is not None:
            self.uncovered += int(np.count_nonzero(missing & ~empty & (count < min_coverage * possible * (1 - 1e-12))))

    def notes(self, surface: Perspective) -> list[str]:
        """Return what a reader should know, a sentence each."""
        results = []
        if self.missing:
            what, aggregate = _describe_counts(surface), _aggregate_of(surface)
            rest = self.missing - self.empty - self.uncovered
            share = 0.0 if aggregate is None else aggregate.min_coverage
            reasons = {
                f"without any {what}": self.empty,
                f"with fewer than min_coverage = {share:g} of those that are possible": self.uncovered,
                "left without a value by the steps of the query, although something was there": rest,
            }
            breakdown = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items() if number)
            results.append(f"{self.missing:,} of {self.values:,} values are missing: {breakdown}")
        if self.infinite:
            results.append(
                f"{self.infinite:,} of {self.values:,} values are infinite: something was divided by 0, or is beyond "
                "what a number can hold"
            )
        return results


def coverage_of(surface: Perspective) -> float:
    """Return the coverage that the counts of a surface are judged by, 0 where they are not."""
    aggregate = _aggregate_of(surface)
    return 0.0 if aggregate is None else aggregate.min_coverage


def _aggregate_of(surface: Perspective) -> Aggregate | None:
    """Return the aggregate whose counts a surface shows, below converts, which keep them."""
    while isinstance(surface.operator, Convert):
        surface = surface.source
    return surface.operator if isinstance(surface.operator, Aggregate) else None


def _describe_counts(surface: Perspective) -> str:
    while isinstance(surface.operator, Convert):
        surface = surface.source
    if isinstance(surface.operator, Interpolate):
        return "station that reports within reach"
    if not isinstance(surface.operator, Aggregate):
        return "reading"
    source = surface.source
    # Values of an array at its instants are readings, too.
    of_array = isinstance(source.topology.time, Instants) and isinstance(source.topology.space, SeriesAxis)
    of_cells = not (source.holds_readings or of_array)
    return "source cell that has a value" if of_cells else "reading"


def replace_infinite(values: Floats) -> tuple[Floats, str]:
    """Return the values of an array with those missing that are infinite, and a note that says so; empty if none."""
    infinite = np.isinf(values)
    number = int(np.count_nonzero(infinite))
    if not number:
        return values, ""
    return np.where(infinite, np.nan, values), f"{number:,} infinite values of the array are taken as missing"
