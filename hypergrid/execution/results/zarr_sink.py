"""Zarr sink: write a surface block by block, without holding it in memory.

The store has the same content as a result in memory: values, counts, variances, coordinates and attributes. Until the
last block is written, its attribute `hypergrid_incomplete` says so; after a killed run it has to be computed again.
"""

import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.execution.diagnostics.missing_values import Tally, coverage_of
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.planning.plan import Plan
from hypergrid.execution.results.block_shapes import WRITERS, ChunkLayout
from hypergrid.execution.results.dataset import list_dims, make_attributes, make_coords, provenance
from hypergrid.execution.running.run import Outcome, Places
from hypergrid.perspective import QuerySpec

INCOMPLETE: Final = "hypergrid_incomplete"
"""Attribute of a store whose run has not ended."""

_ARRAY_TYPES: Final[dict[str, tuple[str, float]]] = {
    "value": ("float64", np.nan), "count": ("int32", 0), "count_possible": ("int32", 0),
    "variance": ("float64", np.nan), "variance_low": ("float64", np.nan), "extrapolated": ("int8", 0),
}  # fmt: skip
"""By variable: the type in the store, and the value of cells not written."""


def check_store(path: Path) -> None:
    """Reject a path that must not become a store, without touching what is there.

    Raises
    ------
    NotFound
        Its parent folder does not exist.
    InvalidQuery
        The path exists and is not a result of HyperGrid.
    """
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} of the result {path.name} does not exist; make it first")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    attributes = _attributes(path)
    if not {"hypergrid_query", INCOMPLETE} & set(attributes):
        raise InvalidQuery(
            f"the result {path} would replace something that is no Zarr store of HyperGrid; choose another name"
        )


def _attributes(path: Path) -> dict[str, Any]:
    if not (path / "zarr.json").is_file():
        return {}
    try:
        return dict(zarr.open_group(path, mode="r").attrs)
    except (OSError, ValueError, KeyError, TypeError):
        return {}


@dataclass(eq=False)
class ZarrOutcome(Outcome):
    """Outcome in a store; only marks of places and totals are in memory."""

    group: zarr.Group = field(kw_only=True)
    question: QuerySpec = field(kw_only=True)
    plan: Plan = field(kw_only=True)
    chunks: ChunkLayout = field(kw_only=True)
    total_tally: Tally = field(default_factory=Tally)
    """Counts of the written cells, and of those without a value."""

    @property
    def missing(self) -> int:
        """Number of written cells without a value."""
        return self.total_tally.missing

    @property
    def is_empty(self) -> bool:
        """Whether everything is written and every value is missing."""
        return self.missing == self.plan.cells

    def tally(self, _min_coverage: float) -> Tally:
        """Return the counts of missing values by reason, among those written."""
        return self.total_tally

    def get_view(self, _places: Places) -> None:
        """Return None: nothing of the surface is in memory."""

    def put(self, places: Places, block: Cells) -> None:
        self.put_times(places, np.arange(len(self.value)), block)

    def put_times(self, places: Places, times: NDArray[np.intp], block: Cells) -> None:
        """Write a block of consecutive time cells."""
        place_range, when = _to_range(places), slice(int(times[0]), int(times[-1]) + 1)
        self.total_tally.add(block.value, block.count, block.possible, coverage_of(self.plan.surface))
        self._write("value", place_range, when, block.value)
        self._write("count", place_range, when, block.count)
        if np.any(block.possible > 0):
            self._write("count_possible", place_range, when, block.possible)
        if block.variance is not None:
            self._write("variance", place_range, when, block.variance)
        if block.variance_low is not None:
            self._write("variance_low", place_range, when, block.variance_low)

    def finish(self, more: Mapping[str, str]) -> None:
        """Write totals and `more` attributes, and remove the mark of an incomplete store."""
        surface = self.plan.surface
        if self.extrapolated is not None:
            self._array("extrapolated")[...] = self.extrapolated.reshape(surface.topology.space.shape).astype(np.int8)
        # The correlation of the variance is known last.
        for name, attributes in make_attributes(surface, self.correlation).items():
            if name in self.group:
                self.group[name].update_attributes(_to_plain(attributes))
        run_attributes = provenance(self.question, surface, self, token=self.plan.original.token)
        kept = {name: value for name, value in self.group.attrs.items() if name != INCOMPLETE}
        self.group.attrs.put({**kept, **run_attributes, **more})
        with ignore_zarr_warnings():
            zarr.consolidate_metadata(self.group.store)

    def _write(self, name: str, place_range: tuple[int, int], when: slice, values: NDArray[Any]) -> None:
        (first, stop), array = place_range, self._array(name)
        # Convert the type first: a column of counts would otherwise be copied as a whole block.
        whole = np.broadcast_to(
            values.astype(_ARRAY_TYPES[name][0], copy=False), (when.stop - when.start, stop - first)
        )
        space = self.plan.surface.topology.space
        # The plan projects memory for this many writers.
        with zarr.config.set({"async.concurrency": WRITERS}):
            if len(space.shape) == 1:
                array[when, first:stop] = whole
                return
            for rectangle, part in _split_rectangles(first, stop, space.shape):
                shape = (len(whole), *(along.stop - along.start for along in rectangle))
                array[when, *rectangle] = whole[:, part].reshape(shape)

    def _array(self, name: str) -> zarr.Array[Any]:
        if name in self.group:
            return self.group[name]  # type: ignore[return-value]
        surface = self.plan.surface
        of_space = name == "extrapolated"
        dtype, fill = _ARRAY_TYPES[name]
        return self.group.create_array(
            name,
            shape=surface.topology.shape[of_space:],
            chunks=self.chunks.shape[of_space:],
            dtype=dtype,
            fill_value=fill,
            dimension_names=list_dims(surface)[of_space:],
            attributes=_to_plain(make_attributes(surface, self.correlation)[name]),
            # Detecting whether a chunk is empty costs two copies of it.
            config={"write_empty_chunks": True},
        )


def start_store(path: Path, question: QuerySpec, plan: Plan, chunks: ChunkLayout) -> ZarrOutcome:
    """Create a store marked as incomplete, replacing an old result, and return its outcome.

    Raises
    ------
    NotFound, InvalidQuery
        The path cannot be used; see `check_store`.
    """
    check_store(path)
    if path.exists():
        shutil.rmtree(path)
    note = "the run that writes this has not ended: cells may be missing; compute it anew"
    frame = xr.Dataset(coords=make_coords(plan.surface), attrs={INCOMPLETE: note})
    with ignore_zarr_warnings():
        frame.to_zarr(path, mode="w", consolidated=False)
    topology = plan.surface.topology
    return ZarrOutcome(
        # No columns: every place is in the store, and which are computed is not tracked either.
        np.empty((topology.time.count, 0)),
        computed=np.broadcast_to(np.False_, topology.space.count),
        group=zarr.open_group(path, mode="r+"),
        question=question,
        plan=plan,
        chunks=chunks,
    )


@contextmanager
def ignore_zarr_warnings() -> Iterator[None]:
    """Suppress warnings about features without a Zarr 3 specification: text and consolidated metadata."""
    # Zarr reads what it writes, and xarray opens a store with consolidated metadata directly, at once.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Zarr (V3|format 3) specification.*")
        yield


def _to_range(places: Places) -> tuple[int, int]:
    if isinstance(places, slice):
        return places.start, places.stop
    raise TypeError("a store takes blocks in the order of its rows")


def _split_rectangles(first: int, stop: int, shape: tuple[int, ...]) -> Iterator[tuple[tuple[slice, ...], slice]]:
    """Yield grid rectangles of a range of flat cells, at most three per level.

    Each comes with its part of the range.

    Parameters
    ----------
    first, stop
        The range of flat cells.
    shape
        Shape of the grid: levels, if any, rows and columns; or levels and points.
    """
    *levels, height, width = shape
    at = first
    while at < stop:
        row, column = divmod(at, width)
        level, row = divmod(row, height)
        whole = min((stop - at) // width, height - row) if column == 0 else 0
        # Whole rows together, else the rest of this row.
        end = at + whole * width if whole else min(stop, at - column + width)
        columns = slice(0, width) if whole else slice(column, column + end - at)
        of_level = (slice(level, level + 1),) if levels else ()
        yield (*of_level, slice(row, row + max(whole, 1)), columns), slice(at - first, end - first)
        at = end


def _to_plain(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in attributes.items()}
