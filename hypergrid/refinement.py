"""Partial answers yielded by `Query.refine`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.lazy_libraries import xr
from hypergrid.execution import Frame, Part, ProgressivePicture, RunProgress, to_dataset
from hypergrid.perspective import QuerySpec


@dataclass(frozen=True, eq=False)
class Refinement:
    """A partial answer after one block; all refinements of a run share their arrays."""

    question: QuerySpec
    picture: ProgressivePicture

    def __repr__(self) -> str:
        return f"Refinement({self.question.summary}: {self.cells:,} of {self.total:,} cells)"

    @property
    def progress(self) -> RunProgress:
        """Run state with the arrays being filled, by place."""
        return self.picture.progress

    @property
    def fraction(self) -> float:
        """Share of the cells that is computed, 0 to 1."""
        return self.picture.fraction

    @property
    def cells(self) -> int:
        """Number of computed cells."""
        return self.picture.count * self.picture.slices

    @property
    def total(self) -> int:
        """Number of all cells."""
        return self.picture.lattice.cells * self.picture.slices

    @property
    def seconds(self) -> float:
        """Time since the run began [s]."""
        return self.progress.seconds

    @property
    def complete(self) -> bool:
        return self.cells == self.total

    @property
    def order(self) -> str:
        """Name of the order of the cells, which is coarse to fine where a walk cannot pay."""
        order = self.progress.plan.order
        return "raster" if order is None else order.name

    @property
    def order_note(self) -> str:
        """Predicted gain of a walk, or the reason for another order than the requested one; else empty."""
        order = self.progress.plan.order
        return "" if order is None else order.note

    @property
    def error(self) -> float:
        """Root mean square error of the estimates of cells not computed yet [the unit of the values].

        Estimated by leaving out computed cells; 0 once all are computed, NaN after a single cell.
        """
        return self.picture.error()

    @property
    def estimate(self) -> NDArray[np.float64]:
        """The first time cell of a map, or a station's time cells with days as rows.

        Cells not computed yet are estimated.

        Shape (rows, columns), with the rows of all levels in sequence; NaN beyond the last time cell.
        """
        return self.picture.frame().estimate

    @property
    def frames(self) -> int:
        """Number of time cells of the surface."""
        return self.progress.frames

    def frame(self, number: int, level: int = 0, part: Part = "value") -> Frame:
        """Return the current state of one time cell of a map, on one level."""
        return self.progress.frame(number, level, part)

    def dataset(self) -> xr.Dataset:
        """Return the result as computed so far; `hypergrid_fraction` is the computed share."""
        plan = self.progress.plan
        result = to_dataset(self.question, plan.surface, self.progress.outcome, token=plan.original.token)
        return result if self.complete else result.assign_attrs(hypergrid_fraction=self.fraction)
