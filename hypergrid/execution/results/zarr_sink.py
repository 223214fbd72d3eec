"""Zarr sink: write a surface block by block, in chunks, without holding it in memory.

The store has the same content as a result in memory: values, counts, variances, coordinates and attributes. Until the
last block is written, its attribute `hypergrid_incomplete` says so; after a killed run it has to be computed again.
"""

from __future__ import annotations

import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import ABOUT_CELLS, VALUE, name_role
from hypergrid.execution.diagnostics import Tally, coverage_of
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.planning.plan import Plan, free_bytes, make_plan
from hypergrid.execution.results.dataset import (
    list_arrays,
    list_dims,
    make_attributes,
    make_coords,
    name_quantity,
    provenance,
)
from hypergrid.execution.running.run import Outcome, Places
from hypergrid.perspective import Perspective, QuerySpec, Surface
from hypergrid.topology import Grid, Points, ZoneCells

# Few files, and little to read for one map or one series.
CHUNK_BYTES: Final = 4 * 2**20
"""Maximum size of a chunk in a store [bytes]."""
WRITERS: Final = 4
"""Number of chunks that are written at the same time."""
WRITER_BYTES: Final = 2 * 2**20
"""Memory for compressing a chunk, beside the chunk, including the thread [bytes]."""
# The scheduling of the threads changes this by some 5 % of a large run's peak.
KEPT_CHUNKS: Final = 2
"""Chunks that the memory allocator keeps for each thread that has compressed one, as measured."""
# Larger blocks would hide the progress.
BLOCK_BYTES: Final = 256 * 2**20
"""Maximum size of the values of a block, whatever is allowed [bytes]."""
# Below this a store consists of little but file names.
SMALLEST_CHUNK: Final = 64 * 2**10
"""Minimum size of a chunk, if the surface is as large [bytes]."""


@dataclass(frozen=True)
class ChunkLayout:
    """How a surface is cut into blocks to compute and chunks to store."""

    block_cells: int
    """Cells of the space in one block: whole rows of a grid, or part of one row, or zones."""
    shape: tuple[int, ...]
    """Shape of a chunk: time cells, then rows and columns (of one level), or zones, or series."""

    @property
    def bytes(self) -> int:
        return 8 * math.prod(self.shape)


def make_streamed_plan(surface: Surface, allowed_bytes: int | None) -> tuple[Plan, ChunkLayout]:
    """Plan a surface in blocks that fit the memory budget, with its chunks.

    Parameters
    ----------
    surface
        The surface to compute.
    allowed_bytes
        Memory budget of the run [bytes]; by default half of the free memory.

    Raises
    ------
    TooLarge
        Steps computed once for all blocks, and the smallest block, need more.
    """
    allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
    final = make_plan(surface, streamed_cells=1).surface

    def planned(cells: int) -> tuple[Plan, ChunkLayout]:
        chunks = _make_chunks(final, cells, allowed)
        plan = make_plan(surface, streamed_cells=chunks.block_cells)
        # A chunk is copied once before compression, and exists in compressed form as well.
        threads = min(2 * WRITERS, (os.cpu_count() or 1) + 4)
        writing = WRITERS * (2 * chunks.bytes + WRITER_BYTES) + threads * KEPT_CHUNKS * chunks.bytes
        return replace(plan, projected_bytes=plan.projected_bytes + writing), chunks

    def fits(cells: int) -> bool:
        return planned(cells)[0].projected_bytes <= allowed

    max_cells = max(1, BLOCK_BYTES // (8 * final.topology.time.count))
    plan, chunks = planned(_find_greatest(fits, min(max_cells, final.topology.space.count)))
    if plan.projected_bytes > allowed:
        remedy = "ask for a shorter time or fewer stations, or allow more"
        label = "the query, written block by block,"
        raise TooLarge(label, "bytes of memory", plan.projected_bytes, allowed, remedy)
    return plan, chunks


def _find_greatest(fits: Callable[[int], bool], maximum: int) -> int:
    """Return the greatest fitting number up to `maximum`, else 1; `fits` must be monotonic."""
    low, high = 1, maximum
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _make_chunks(final: Perspective, cells: int, allowed: int) -> ChunkLayout:
    """Return blocks of at most `cells` cells of the space, and their chunks."""
    max_bytes = max(SMALLEST_CHUNK, min(CHUNK_BYTES, allowed // (16 * WRITERS)))
    times, space = final.topology.time.count, final.topology.space
    if isinstance(space, ZoneCells | Points) and len(space.shape) == 1:
        columns = max(1, min(cells, space.count, max_bytes // 8))
        # Blocks begin where chunks do.
        return ChunkLayout(
            min(cells, space.count) // columns * columns, (_chunk_times(max_bytes, columns, times), columns)
        )
    if not isinstance(space, Grid | Points):
        # Perspectives at stations are computed as a whole.
        columns = max(1, min(space.count, max_bytes // 8))
        return ChunkLayout(space.count, (_chunk_times(max_bytes, columns, times), columns))
    *levels, height, width = space.shape
    level_shape = (1,) * len(levels)
    if cells < width:
        columns = _find_divisor(width, cells)
        return ChunkLayout(columns, (_chunk_times(max_bytes, columns, times), *level_shape, 1, columns))
    rows = min(max(1, max_bytes // (8 * width)), cells // width, height)
    if levels:
        # Each level begins with a new chunk.
        rows = _find_divisor(height, rows)
    # Blocks begin where chunks do.
    block = min(cells // width, space.count // width) // rows * rows
    return ChunkLayout(block * width, (_chunk_times(max_bytes, rows * width, times), *level_shape, rows, width))


def _chunk_times(maximum: int, places: int, times: int) -> int:
    return max(1, min(times, maximum // (8 * places)))


def _find_divisor(width: int, maximum: int) -> int:
    """Return the greatest divisor up to `maximum`, or `maximum` if far greater."""
    # If parts do not divide the whole, some blocks write parts of chunks: correct, but slower.
    greatest = next(part for part in range(maximum, 0, -1) if width % part == 0)
    return greatest if 4 * greatest >= maximum else maximum


INCOMPLETE: Final = "hypergrid_incomplete"
"""Attribute of a store whose run has not ended."""

_ARRAY_TYPES: Final[dict[str, tuple[str, float]]] = {
    "value": ("float64", np.nan), "count": ("int32", 0), "count_possible": ("int32", 0),
    "variance": ("float64", np.nan), "variance_low": ("float64", np.nan), "extrapolated": ("int8", 0),
}  # fmt: skip
"""By role: the type in the store, and the value of cells not written."""


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
    quantity: str = field(kw_only=True)
    """Name of the values in the store."""
    question: QuerySpec = field(kw_only=True)
    plan: Plan = field(kw_only=True)
    chunks: ChunkLayout = field(kw_only=True)
    total_tally: Tally = field(default_factory=Tally)
    """Counts of the written cells, and of those without a value."""

    @property
    def missing(self) -> int:
        return self.total_tally.missing

    @property
    def is_empty(self) -> bool:
        return self.missing == self.plan.cells

    def tally(self, _min_coverage: float) -> Tally:
        return self.total_tally

    def get_view(self, _places: Places) -> None:
        """Return None: nothing of the surface is in memory."""

    def put(self, places: Places, block: Cells) -> None:
        self.put_times(places, np.arange(len(self.value)), block)

    def put_times(self, places: Places, times: NDArray[np.intp], block: Cells) -> None:
        """Write a block of consecutive time cells."""
        if not isinstance(places, slice):
            raise TypeError("a store takes blocks in the order of its rows")
        self.total_tally.add(block.value, block.count, block.possible, coverage_of(self.plan.surface))
        for role, values in list_arrays(block).items():
            self._write(role, places, slice(int(times[0]), int(times[-1]) + 1), values)

    def finish(self, more: Mapping[str, str]) -> None:
        """Write totals and `more` attributes, and remove the mark of an incomplete store."""
        surface = self.plan.surface
        if self.extrapolated is not None:
            self._array("extrapolated")[...] = self.extrapolated.reshape(surface.topology.space.shape).astype(np.int8)
        # The correlation of the variance is known last.
        attributes, names = make_attributes(surface, self.correlation), self._names
        about = [names[role] for role in ABOUT_CELLS if role in names and names[role] in self.group]
        attributes[VALUE] |= {"ancillary_variables": " ".join(about)} if about else {}
        for role, name in names.items():
            if name in self.group:
                self.group[name].update_attributes(_to_plain(attributes[role]))
        run_attributes = provenance(self.question, surface, self, token=self.plan.original.token)
        kept = {name: value for name, value in self.group.attrs.items() if name != INCOMPLETE}
        self.group.attrs.put({**kept, **run_attributes})
        self.add_attributes(more)

    def add_attributes(self, more: Mapping[str, str]) -> None:
        """Write further attributes of the whole result."""
        self.group.attrs.update(more)
        with ignore_zarr_warnings():
            zarr.consolidate_metadata(self.group.store)

    @property
    def _names(self) -> dict[str, str]:
        return {role: name_role(self.quantity, role) for role in _ARRAY_TYPES}

    def _write(self, role: str, places: slice, when: slice, values: NDArray[Any]) -> None:
        first, stop, array = places.start, places.stop, self._array(role)
        # Convert the type first: a column of counts would otherwise be copied as a whole block.
        whole = np.broadcast_to(
            values.astype(_ARRAY_TYPES[role][0], copy=False), (when.stop - when.start, stop - first)
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

    def _array(self, role: str) -> zarr.Array[Any]:
        name = name_role(self.quantity, role)
        if name in self.group:
            return self.group[name]  # type: ignore[return-value]
        surface = self.plan.surface
        of_space = role == "extrapolated"
        dtype, fill = _ARRAY_TYPES[role]
        return self.group.create_array(
            name,
            shape=surface.topology.shape[of_space:],
            chunks=self.chunks.shape[of_space:],
            dtype=dtype,
            fill_value=fill,
            dimension_names=list_dims(surface)[of_space:],
            attributes=_to_plain(make_attributes(surface, self.correlation)[role]),
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
    coords = make_coords(plan.surface)
    frame = xr.Dataset(coords=coords, attrs={INCOMPLETE: note})
    with ignore_zarr_warnings():
        frame.to_zarr(path, mode="w", consolidated=False)
    topology = plan.surface.topology
    return ZarrOutcome(
        # No columns: every place is in the store, and which are computed is not tracked either.
        np.empty((topology.time.count, 0)),
        computed=np.broadcast_to(np.False_, topology.space.count),
        group=zarr.open_group(path, mode="r+"),
        quantity=name_quantity(plan.surface, coords),
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
