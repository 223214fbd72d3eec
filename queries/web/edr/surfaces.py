"""A saved surface as a collection: cell selection, and the queries that compute the cells.

Positions are not mapped to the cells of the surface's grid: the surface is interpolated at the points instead, all of a
request in one query. The estimate and its variance are therefore those of kriging at the position, with the stations
and parameters of the surface. If the surface's cells are not those of an interpolation (but means over larger cells), a
position gets the cell that contains it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import HyperGridError, TooLarge
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.times import Window
from hypergrid.core.tokens import token
from hypergrid.execution import make_plan
from hypergrid.execution.planning.dependencies import is_fitted_to_data
from hypergrid.execution.results.dataset import make_attributes
from hypergrid.perspective import Aggregate, Interpolate, Perspective, question_from_json
from hypergrid.perspective.spec.document_time import clip_in_time
from hypergrid.query import OpenArchive, Query
from hypergrid.topology import PER_UNIT, Grid, Instants, Periodic, TimeAxis, blocks_of
from hypergrid.topology.wkt import Region
from queries.web.edr.asked import Ranges

MOST_CELLS: Final = 1_000_000
"""Limit of cells in an answer, over all times and levels."""
_PER_DEGREE: Final = PER_UNIT["uas"]
_PARAMETERS: Final = ("value", "variance", "count")
"""Variables of a result that are parameters of the collection, by their roles."""


@dataclass(frozen=True, eq=False)
class SurfaceCollection:
    """A saved query whose answer is a map in longitude and latitude."""

    id: str
    query: Query
    """At one snapshot, with variance if its method has one."""
    surface: Perspective
    """The computed surface, clipped by the query."""
    refusal: str = ""
    """The engine's reason why it has no variance; empty if it has one."""

    @cached_property
    def token(self) -> str:
        """Content token: equal tokens give equal answers."""
        return token(self.id, self.query.token, self.query.to_json()["snapshot"])

    @property
    def variable(self) -> str:
        return self.query.question.variable

    @cached_property
    def parameters(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """Role of the variable in a result and its attributes, by parameter."""
        attributes = make_attributes(self.surface, "")
        names = [name for name in _PARAMETERS if name != "variance" or self.query.question.variance]
        return {
            self.variable if name == "value" else f"{self.variable}_{name}": (name, attributes[name]) for name in names
        }

    @property
    def grid(self) -> Grid:
        space = self.surface.topology.space
        if not isinstance(space, Grid):
            raise TypeError("a collection's surface is a map")
        return space

    @property
    def time(self) -> TimeAxis:
        return self.surface.topology.time

    @property
    def box(self) -> tuple[float, float, float, float]:
        """West, south, east and north [degree]."""
        return self.grid.box

    def times_of(self, wanted: Ranges | None) -> NDArray[np.intp]:
        """Return the indices of the time cells that overlap times [ns since 1970 UTC]."""
        starts, ends = cell_bounds(self.time)
        if wanted is None:
            return np.arange(len(starts))
        return np.flatnonzero(wanted.meet(starts, ends))

    def levels_of(self, wanted: Ranges | None) -> NDArray[np.intp] | None:
        """Return the indices of the levels that overlap heights [m]; None without levels."""
        if self.grid.z is None:
            return None
        bounds = self.grid.z.bounds
        if wanted is None:
            return np.arange(len(bounds))
        return np.flatnonzero(wanted.meet(bounds[:, 0], bounds[:, 1]))

    def cell_of(self, lon: float, lat: float) -> tuple[int, int] | None:
        """Return the row and column of the cell at a position; None outside the surface."""
        west, south, east, north = self.box
        turned = self._turn_longitude(lon)
        if not (west <= turned <= east and south <= lat <= north):
            return None
        row, column = (
            min((round(at * _PER_DEGREE) - axis.origin) // axis.step, axis.count - 1)
            for at, axis in ((lat, self.grid.y), (turned, self.grid.x))
        )
        return int(max(row, 0)), int(max(column, 0))

    def _turn_longitude(self, lon: float) -> float:
        """Shift a longitude by 360 degrees into the surface's range, if possible."""
        west, _, east, _ = self.box
        return next((lon + turn for turn in (0.0, 360.0, -360.0) if west <= lon + turn <= east), lon)

    def block_of(self, region: Region) -> tuple[slice, slice, NDArray[np.bool_]] | None:
        """Return the rows, columns and mask of the cells that a region selects, or None.

        The cells whose centre lies in the region; if there are none, those that it touches.
        """
        x, y = self.grid.x.centres, self.grid.y.centres
        inside = region.holds(*np.meshgrid(x, y)) if region.touches(*self.box) else np.zeros((len(y), len(x)), np.bool_)
        # A region smaller than a cell would otherwise have no data.
        if not inside.any():
            inside = self._find_touched(region)
        rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
        if not len(rows):
            return None
        block = slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
        return *block, inside[block]

    def _find_touched(self, region: Region) -> NDArray[np.bool_]:
        """Mask the cells touched by a region that contains no cell centre."""
        # Such a region is smaller than a cell, so it touches few.
        mask = np.zeros((self.grid.y.count, self.grid.x.count), np.bool_)
        x, y = self.grid.x.bounds, self.grid.y.bounds
        for west, south, east, north in region.boxes:
            # Longitudes of the region and of the grid may differ by a full turn.
            for turn in (-360.0, 0.0, 360.0):
                columns = np.flatnonzero((x[:, 0] <= east + turn) & (x[:, 1] >= west + turn))
                rows = np.flatnonzero((y[:, 0] <= north) & (y[:, 1] >= south))
                for row in rows.tolist() if len(rows) * len(columns) <= mask.shape[0] + mask.shape[1] else ():
                    for column in columns.tolist():
                        mask[row, column] |= region.touches(x[column, 0], y[row, 0], x[column, 1], y[row, 1])
        return mask

    def check(self, times: int, levels: int, places: int) -> None:
        """Reject answers with too many cells.

        Raises
        ------
        TooLarge
            The message has both numbers.
        """
        if times * levels * places > MOST_CELLS:
            raise TooLarge(
                f"the answer of collection {self.id!r}", "cells", times * levels * places, MOST_CELLS,
                "ask for less time (datetime) or a smaller region",
            )  # fmt: skip

    def document(self, times: NDArray[np.intp], rows: slice, columns: slice) -> dict[str, Any]:
        """Make the query of a block of cells, covering at least the given time cells."""
        document = self.query.to_json()
        clip = dict(document.get("clip", {}))
        for axis, part in ((self.grid.y, rows), (self.grid.x, columns)):
            edges = (axis.origin + index * axis.step for index in (part.start, part.stop))
            # Axis units are micro-arc-seconds, so the edges are exact.
            clip[axis.name] = [f"{edge / 1e6:.6f}arcsec" for edge in edges]
        return self._clip_to_cells({**document, "clip": clip}, times)

    def _clip_to_cells(self, document: dict[str, Any], times: NDArray[np.intp]) -> dict[str, Any]:
        """Clip a query to the given time cells, if that leaves their values unchanged."""
        if len(times) == self.time.count or not self._may_be_shorter:
            return document
        starts = cell_bounds(self.time)[0][times]
        return clip_in_time(document, Window(int(starts.min()), int(starts.max()) + 1))

    def document_at(self, places: Sequence[tuple[float, float]], times: NDArray[np.intp]) -> dict[str, Any]:
        """Make one query for positions in the surface (lon, lat): points, or surrounding cells."""
        if not self._is_interpolated:
            return self.document(times, *self._block_at(places))
        document = _points_document(self.query.to_json(), [(self._turn_longitude(lon), lat) for lon, lat in places])
        clip = {name: bounds for name, bounds in document.get("clip", {}).items() if name not in ("lon", "lat")}
        return self._clip_to_cells({**document, "clip": clip}, times)

    def places_at(self, places: Sequence[tuple[float, float]]) -> int:
        """Count the places that the query of positions computes."""
        if self._is_interpolated:
            return len(places)
        rows, columns = self._block_at(places)
        return (rows.stop - rows.start) * (columns.stop - columns.start)

    def select_points(self, dataset: xr.Dataset, places: Sequence[tuple[float, float]]) -> xr.Dataset:
        """Convert the answer for positions to a single point dimension instead of longitude and latitude."""
        about = {name: dataset[name].attrs for name in ("lon", "lat")}
        if not self._is_interpolated:
            rows, columns = self._block_at(places)
            cells = np.array([self.cell_of(*position) for position in places]) - (rows.start, columns.start)
            taken = {name: xr.DataArray(cells[:, along], dims="point") for along, name in enumerate(("lat", "lon"))}
            dataset = dataset.drop_vars(["lon_bounds", "lat_bounds"]).isel(taken)
            numbers = (
                "point",
                np.arange(len(places)),
                {"long_name": "number of the point", "cf_role": "timeseries_id"},
            )
            dataset = dataset.assign_coords(point=numbers)
        lon, lat = zip(*places, strict=True)
        asked = {"lon": ("point", list(lon), about["lon"]), "lat": ("point", list(lat), about["lat"])}
        return dataset.assign_coords(asked).assign_attrs(featureType="timeSeries")

    @cached_property
    def _is_interpolated(self) -> bool:
        """Whether the cells in space are those of an interpolation, not means over larger ones."""
        aggregates = [item.operator for item in self.surface.list_chain() if isinstance(item.operator, Aggregate)]
        return all(operator.dimensions == ("time",) for operator in aggregates)

    def _block_at(self, places: Sequence[tuple[float, float]]) -> tuple[slice, slice]:
        """Return the rows and columns spanned by the cells of positions."""
        cells = [cell for position in places if (cell := self.cell_of(*position)) is not None]
        rows, columns = (slice(min(numbers), max(numbers) + 1) for numbers in zip(*cells, strict=True))
        return rows, columns

    @cached_property
    def _may_be_shorter(self) -> bool:
        """Whether a clip in time selects cells without changing their values.

        False if the last step spans all time, or is fitted to the data.
        """
        if any(
            isinstance(item.operator, Interpolate) and is_fitted_to_data(item.operator)
            for item in self.surface.list_chain()
        ):
            return False
        first = int(cell_bounds(self.time)[0][0])
        document = clip_in_time(self.query.to_json(), Window(first, first + 1))
        shorter = Query(question_from_json(document), self.query.lookup)
        return shorter.surface().clip.time is not None


def cell_bounds(time: TimeAxis) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the start and end of time cells [ns since 1970 UTC]; instants have zero length."""
    return (time.corners, time.corners) if isinstance(time, Instants) else blocks_of(time)


def select_cells(
    dataset: xr.Dataset, collection: SurfaceCollection, times: NDArray[np.intp], levels: NDArray[np.intp] | None
) -> xr.Dataset:
    """Select time cells and levels from a result, which may have more of both."""
    along = str(dataset["time"].dims[0])
    starts = cell_bounds(collection.time)[0][times]
    held = dataset["time"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    picked = dataset.isel({along: np.flatnonzero(np.isin(held, starts))})
    return picked if levels is None else picked.isel(z=levels)


def collection_of(name: str, document: Mapping[str, Any], archive: OpenArchive) -> SurfaceCollection | None:
    """Make the collection of a saved query; None unless it is a longitude-latitude map.

    Raises
    ------
    HyperGridError
        It cannot be computed for this archive: `NotFound` if it needs a missing variable or layer.
    """
    query = archive.query({**document, "snapshot": archive.snapshot})
    surface = make_plan(query.surface()).surface
    space, time = surface.topology.space, surface.topology.time
    if not isinstance(space, Grid) or space.system != "lonlat" or isinstance(time, Periodic):
        return None
    refusal = ""
    try:
        uncertain = query if query.question.variance else query.with_variance()
        surface = make_plan(uncertain.surface()).surface
    except HyperGridError as error:
        # The remedy after the first semicolon addresses the author of the query, so it is cut off.
        uncertain, refusal = query, str(error).partition(";")[0]
    return SurfaceCollection(name, uncertain, surface, refusal)


def _points_document(document: Mapping[str, Any], places: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Move a query's spatial interpolations, including nested ones, to positions (lon, lat)."""
    lon, lat = (list(column) for column in zip(*places, strict=True))
    steps = []
    for step in document.get("steps", []):
        changed = dict(step)
        if "grid" in step:
            changed["grid"] = {**step["grid"], "points": {"lon": lon, "lat": lat}}
        if "with" in step:
            changed["with"] = [_points_document(other, places) for other in step["with"]]
        steps.append(changed)
    return {**document, "steps": steps}
