"""Missing and infinite values of a result, counted block by block and described in words."""

from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts lazily: most queries need none of them
from numpy.typing import NDArray

from hypergrid.perspective import Aggregate, Convert, Interpolate, Perspective
from hypergrid.topology import Instants, SeriesAxis

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SpaceCover:
    """Source cells of each target cell in a block, as ranges of pairs."""

    needed: NDArray[np.intp]
    """Flat indices of the source cells that the block needs, without duplicates, shape (needed,)."""
    members: NDArray[np.intp]
    """Indices into `needed`, target by target, shape (pairs,)."""
    first: NDArray[np.int64]
    """Index of the first pair of each target cell, shape (targets,)."""
    stop: NDArray[np.int64]
    """Index after the last pair of each target cell, shape (targets,)."""
    full: NDArray[np.int64]
    """Source cells under a whole target cell, shape (targets,), or (1,) if equal for all."""
    weights: Floats | None = None
    """Weight of each pair in the aggregate, shape (pairs,); None if all are equal."""
    of_sum: bool = False
    """Whether weights are shares in a sum; otherwise only their ratios matter, as in a mean."""
    parts: Floats | None = None
    """Share of its target's area that each pair covers, shape (pairs,); None if coverage counts cells."""

    def matrix(self, data: Floats | None) -> "scipy.sparse.csr_array":
        """Arrange data of the pairs, 1 for None, as a matrix of shape (targets, needed)."""
        data = np.ones(len(self.members)) if data is None else data
        pointers = np.append(self.first, self.stop[-1:])
        return scipy.sparse.csr_array((data, self.members, pointers), (len(self.first), len(self.needed)))

    def sum_weighted(self, folded: Floats, count: NDArray[np.int64]) -> Floats:
        """Compute weighted sums over the pairs of each target.

        If only the ratios of weights matter, the weights of present values are scaled to add up to their count, so a
        sum and a count yield a weighted mean just as they yield a mean.

        Parameters
        ----------
        folded
            Sums, 0 for missing values, shape (needed, n).
        count
            Number of values in each sum, shape (needed, n), or (1, n) if equal for all.
        """
        matrix = self.matrix(self.weights)
        sums = matrix @ folded
        if self.of_sum:
            return np.asarray(sums)
        mass, number = _sum_totals(matrix, count), _sum_totals(self.matrix(None), count)
        return np.asarray(sums * (number / np.where(mass > 0, mass, 1.0)))

    def sum_counts(self, count: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum counts over the pairs of each target, shape (targets, n); `count` as in `sum_weighted`."""
        # The matrix product turns the counts into floats.
        return np.rint(_sum_totals(self.matrix(None), count)).astype(np.int64)

    def coverage(self, count: NDArray[np.int64], slices: NDArray[np.int64]) -> Floats:
        """Compute the covered share of each target, by area and over time, shape (targets, n).

        Parameters
        ----------
        count
            Number of slices in which each source cell has a value, shape (needed, n) or (1, n).
        slices
            Number of slices that a target cell could have, shape (1, n) or (1, 1).
        """
        return _sum_totals(self.matrix(self.parts), count) / np.maximum(slices, 1)


def _sum_totals(matrix: "scipy.sparse.csr_array", count: NDArray[np.int64]) -> Floats:
    if len(count) == 1:
        return np.asarray(matrix.sum(axis=1))[:, None] * count
    return np.asarray(matrix @ count.astype(np.float64))


Counts = NDArray[np.int64]


@dataclass
class Tally:
    """Counts of the values of a surface, accumulated block by block."""

    values: int = 0
    missing: int = 0
    empty: int = 0
    """Missing values without any input."""
    uncovered: int = 0
    """Missing values with less input than `min_coverage` requires."""
    infinite: int = 0

    def add(self, value: Floats, count: Counts | None, possible: Counts | None, min_coverage: float) -> None:
        """Count the values of a block; counts broadcast to its shape, unknown `possible` is 0."""
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
        """Describe missing and infinite values, one sentence per note."""
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
    """Return the minimum coverage for the counts of a surface; 0 without an aggregate."""
    aggregate = _aggregate_of(surface)
    return 0.0 if aggregate is None else aggregate.min_coverage


def _aggregate_of(surface: Perspective) -> Aggregate | None:
    """Find the aggregate whose counts a surface shows; converts above it keep them."""
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
    # Values of an array at its instants count as readings.
    of_array = isinstance(source.topology.time, Instants) and isinstance(source.topology.space, SeriesAxis)
    of_cells = not (source.holds_readings or of_array)
    return "source cell that has a value" if of_cells else "reading"


def replace_infinite(values: Floats) -> tuple[Floats, str]:
    """Replace infinite values of an array by NaN; the note is empty without any."""
    infinite = np.isinf(values)
    number = int(np.count_nonzero(infinite))
    if not number:
        return values, ""
    return np.where(infinite, np.nan, values), f"{number:,} infinite values of the array are taken as missing"
