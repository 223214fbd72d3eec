"""Why values of a result are missing, and which are infinite: counted block by block, said in words."""

from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.perspective import Aggregate, Convert, Interpolate, Perspective
from hypergrid.topology import Instants, SeriesAxis

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SpaceCover:
    """Which source cells each target cell of a block covers, as ranges over a list of pairs."""

    needed: NDArray[np.intp]
    """Flat source cells that the block needs, each once, shape (needed,)."""
    members: NDArray[np.intp]
    """Positions in `needed`, target by target, shape (pairs,)."""
    first: NDArray[np.int64]
    """First pair of each target cell, shape (targets,)."""
    stop: NDArray[np.int64]
    """After its last pair, shape (targets,)."""
    full: NDArray[np.int64]
    """Source cells under a whole target cell, shape (targets,), or (1,) where they are the same for all."""
    weights: Floats | None = None
    """What each pair weighs in the aggregate, shape (pairs,); None where all weigh alike."""
    of_sum: bool = False
    """Whether weights are shares in a sum; else they matter relative to each other, as in a mean."""
    parts: Floats | None = None
    """Share of its target's area that each pair stands for, shape (pairs,); None where coverage counts cells."""

    def matrix(self, data: Floats | None) -> "scipy.sparse.csr_array":
        """Return numbers of the pairs, 1 for None, as a matrix of shape (targets, needed)."""
        data = np.ones(len(self.members)) if data is None else data
        pointers = np.append(self.first, self.stop[-1:])
        return scipy.sparse.csr_array((data, self.members, pointers), (len(self.first), len(self.needed)))

    def sum_weighted(self, folded: Floats, count: NDArray[np.int64]) -> Floats:
        """Return weighted sums over the pairs of each target.

        Where weights matter relative to each other, those of what is present are scaled to add up to its count: what
        makes a mean of a sum and a count, then makes a weighted one.

        Parameters
        ----------
        folded
            Sums, 0 where there is nothing, shape (needed, n).
        count
            How many values each is of, shape (needed, n), or (1, n) where it is the same for all.
        """
        matrix = self.matrix(self.weights)
        sums = matrix @ folded
        if self.of_sum:
            return np.asarray(sums)
        mass, number = _sum_totals(matrix, count), _sum_totals(self.matrix(None), count)
        return np.asarray(sums * (number / np.where(mass > 0, mass, 1.0)))

    def sum_counts(self, count: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of counts, shape (targets, n), of counts as `weighted` takes them."""
        return np.rint(_sum_totals(self.matrix(None), count)).astype(np.int64)

    def coverage(self, count: NDArray[np.int64], slices: NDArray[np.int64]) -> Floats:
        """Return the share of each target, by area and over time, that has values, shape (targets, n).

        Parameters
        ----------
        count
            Slices of each source cell that have a value, shape (needed, n) or (1, n).
        slices
            How many a target cell could have, shape (1, n) or (1, 1).
        """
        return _sum_totals(self.matrix(self.parts), count) / np.maximum(slices, 1)


def _sum_totals(matrix: "scipy.sparse.csr_array", count: NDArray[np.int64]) -> Floats:
    if len(count) == 1:
        return np.asarray(matrix.sum(axis=1))[:, None] * count
    return np.asarray(matrix @ count.astype(np.float64))


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
