"""An answer while it is computed: what `Query.refine` yields."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.execution import Frame, Part, ProgressivePicture, RunProgress, to_dataset
from hypergrid.perspective import QuerySpec


@dataclass(frozen=True, eq=False)
class Refinement:
    """An answer as it stands after one block of a run; all refinements of a run share their arrays."""

    question: QuerySpec
    picture: ProgressivePicture

    def __repr__(self) -> str:
        """Return the query and how far it is computed."""
        return f"Refinement({self.question.summary}: {self.cells:,} of {self.total:,} cells)"

    @property
    def progress(self) -> RunProgress:
        """The arrays that are being filled, by place."""
        return self.picture.progress

    @property
    def fraction(self) -> float:
        """Share of the cells that is computed, 0 to 1."""
        return self.picture.fraction

    @property
    def cells(self) -> int:
        """Cells that are computed."""
        return self.picture.count * self.picture.slices

    @property
    def total(self) -> int:
        """Cells in all."""
        return self.picture.lattice.cells * self.picture.slices

    @property
    def seconds(self) -> float:
        """Since the run began [s]."""
        return self.progress.seconds

    @property
    def complete(self) -> bool:
        """Whether everything is computed."""
        return self.cells == self.total

    @property
    def error(self) -> float:
        """Root mean square error of the estimates of what is not computed [the unit of the values].

        It is known from computed cells that are left out; 0 where all is computed, NaN where one cell is.
        """
        return self.picture.error()

    @property
    def estimate(self) -> NDArray[np.float64]:
        """The first time cell of a map, or a station's time cells, days as rows, the rest estimated.

        Shape (rows, columns), those of one level after the other; NaN beyond the last time cell.
        """
        return self.picture.frame().estimate

    @property
    def frames(self) -> int:
        """Time cells of the surface."""
        return self.progress.frames

    def frame(self, number: int, level: int = 0, part: Part = "value") -> Frame:
        """Return one time cell of a map, on one level where there are several, as it stands now."""
        return self.progress.frame(number, level, part)

    def dataset(self) -> xr.Dataset:
        """Return the result, computed as far as it is; `hypergrid_fraction` says how far."""
        plan = self.progress.plan
        result = to_dataset(self.question, plan.surface, self.progress.outcome, token=plan.original.token)
        return result if self.complete else result.assign_attrs(hypergrid_fraction=self.fraction)
