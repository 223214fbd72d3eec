"""Zones over a grid: exact cell shares, and the covered share of each zone."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import shapely
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.tokens import token
from hypergrid.topology.areas import Floats, cell_areas, polygon_areas
from hypergrid.topology.axes import PER_UNIT, Regular
from hypergrid.topology.space import Grid, System
from hypergrid.topology.zones import Zones

Cells = NDArray[np.intp]

WHOLE: Final = 1e-9
"""Rounding tolerance when the shares of a zone are compared with the whole."""
_SLIVER: Final = 1e-9
"""Largest cell share treated as rounding between two representations of the same edge."""
_SHORT: Final = 40
"""Vertex count up to which a polygon piece is not cut before the single-cell level."""
_TURN: Final = 360.0


@dataclass(frozen=True, eq=False)
class Overlap:
    """Pairs of zones and grid cells that overlap, ordered by zone and cell."""

    zone: Cells
    """Zone of each pair, shape (pairs,), non-decreasing."""
    cell: Cells
    """Flat cell of the grid, shape (pairs,)."""
    share: Floats
    """Share of the cell inside the zone, above 0 up to 1, shape (pairs,)."""
    area_m2: Floats
    """Area of the cell inside the zone [m2], shape (pairs,)."""


@dataclass(frozen=True, eq=False)
class ZoneCells:
    """Zones as cells of a space over a grid.

    Raises
    ------
    InvalidQuery
        The zones cannot be in the coordinates of the grid.
    """

    zones: Zones
    grid: Grid

    def __post_init__(self) -> None:
        _refuse_other_coordinates(self.zones, self.grid)

    @property
    def count(self) -> int:
        return len(self.zones)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.zones),)

    @property
    def system(self) -> System:
        return self.grid.system

    def token(self) -> str:
        return token(self.zones.token(), self.grid.token())

    @cached_property
    def points(self) -> Floats:
        """A point inside each zone [degree or m], x and y, shape (zones, 2)."""
        return np.asarray(shapely.get_coordinates(shapely.point_on_surface(self.zones.shapes)), np.float64)

    @property
    def x(self) -> Floats:
        """Longitude [degree] or projected x [m] of a point inside each zone, shape (zones,)."""
        return self.points[:, 0]

    @property
    def y(self) -> Floats:
        """Latitude [degree] or projected y [m] of a point inside each zone, shape (zones,)."""
        return self.points[:, 1]

    @cached_property
    def area_m2(self) -> Floats:
        """Zone areas [m2], shape (zones,)."""
        return polygon_areas(self.zones.shapes, self.system)

    @cached_property
    def overlap(self) -> Overlap:
        return overlap(self.zones, self.grid)

    @cached_property
    def share_in_grid(self) -> Floats:
        """Share of each zone's area that lies in the grid, 0 to 1, shape (zones,)."""
        shares = np.bincount(self.overlap.zone, self.overlap.area_m2, self.count) / self.area_m2
        # Rounding must not make a fully covered zone partial.
        return np.where(shares > 1.0 - WHOLE, 1.0, shares)

    @cached_property
    def max_cells(self) -> int:
        """Largest number of overlapping cells of a zone."""
        return int(np.bincount(self.overlap.zone, minlength=1).max())

    @cached_property
    def membership(self) -> NDArray[np.bool_]:
        """Mask of the pairs of `overlap` used by unweighted functions, shape (pairs,).

        A cell belongs to a zone that covers at least half of it. A zone that covers half of no cell gets the one cell
        of which it covers most.
        """
        pairs = self.overlap
        belongs = pairs.share >= 0.5
        alone = np.bincount(pairs.zone, belongs, self.count) == 0
        # Sorted by zone, then share: the last pair of a zone is its largest share.
        order = np.lexsort((-pairs.cell, pairs.share, pairs.zone))
        largest = order[np.append(np.diff(pairs.zone) > 0, np.ones(min(len(order), 1), bool))]
        belongs[largest[alone[pairs.zone[largest]]]] = True
        return belongs


def overlap(zones: Zones, grid: Grid) -> Overlap:
    """Return the cells of a grid that overlap each zone, with exact shares.

    A quadtree per zone: a square block of cells is halved repeatedly. Blocks inside the zone are emitted whole, blocks
    outside are dropped, and the others recurse with their piece of the polygon. In longitude, zones are also searched
    one turn to either side.
    """
    parts = [
        _find_shifted_overlap(zones, grid, turn)
        for turn in ((0.0,) if grid.system == "metres" else (0.0, -_TURN, _TURN))
    ]
    zone, cell = (np.concatenate([part[i] for part in parts]).astype(np.intp) for i in range(2))
    piece_m2 = np.concatenate([part[2] for part in parts])
    order = np.lexsort((cell, zone))
    zone, cell, piece_m2 = zone[order], cell[order], piece_m2[order]
    whole_m2 = cell_areas(grid.y, grid.x)[cell // grid.x.count]
    # NaN marks cells entirely inside a zone. Beyond a pole cells have no area, hence no share. Rounding may make a
    # piece larger than its cell.
    area_m2 = np.where(np.isnan(piece_m2), whole_m2, np.minimum(piece_m2, whole_m2))
    is_kept = area_m2 > _SLIVER * whole_m2
    return Overlap(
        zone[is_kept], cell[is_kept], (area_m2 / np.where(is_kept, whole_m2, 1.0))[is_kept], area_m2[is_kept]
    )


def _find_shifted_overlap(zones: Zones, grid: Grid, turn: float) -> tuple[Cells, Cells, Floats]:
    shapes = shapely.transform(zones.shapes, lambda points: points + [turn, 0.0]) if turn else zones.shapes
    west, south, east, north = shapely.bounds(shapes).T
    first_column, stop_column = _range(grid.x, west, east)
    first_row, stop_row = _range(grid.y, south, north)
    zone = np.flatnonzero((first_column < stop_column) & (first_row < stop_row))
    if not len(zone):
        return zone, zone, np.empty(0)
    # Prepared once for the repeated containment tests.
    shapely.prepare(shapes)
    row, column, pieces = first_row[zone], first_column[zone], shapes[zone]
    widest = int(np.maximum(stop_row - first_row, stop_column - first_column)[zone].max())
    size = 1 << (widest - 1).bit_length()
    inside: list[tuple[Cells, Cells]] = []
    # Each block carries its own piece of the polygon, so intersections never see a longer boundary than the parent's.
    # All blocks of all zones are cut in one shapely call per level.
    while len(zone):
        boxes = _boxes(grid, row, column, size)
        full = np.asarray(shapely.contains_properly(shapes[zone], boxes))
        inside.append(_cells_of(grid, zone[full], row[full], column[full], size))
        zone, row, column = zone[~full], row[~full], column[~full]
        pieces, boxes = pieces[~full], boxes[~full]
        # Short boundaries are only cut at the last level: an intersection test costs less than the cuts.
        cut = (shapely.get_num_coordinates(pieces) > _SHORT) if size > 1 else np.ones(len(zone), dtype=bool)
        pieces[cut] = shapely.intersection(pieces[cut], boxes[cut])
        kept = cut.copy()
        # An intersection that is only a line or a point has no area.
        kept[cut] = shapely.area(pieces[cut]) > 0
        kept[~cut] = shapely.intersects(pieces[~cut], boxes[~cut])
        zone, row, column, pieces = zone[kept], row[kept], column[kept], pieces[kept]
        if size == 1:
            break
        size //= 2
        zone, row, column, pieces = (np.repeat(array, 4) for array in (zone, row, column, pieces))
        quarter = np.arange(len(zone)) % 4
        row, column = row + size * (quarter // 2), column + size * (quarter % 2)
        kept = (row < grid.y.count) & (column < grid.x.count)
        zone, row, column, pieces = zone[kept], row[kept], column[kept], pieces[kept]
    full_zone, full_cell = (np.concatenate([block_cells[i] for block_cells in inside]) for i in range(2))
    return (
        np.concatenate([full_zone, zone]),
        np.concatenate([full_cell, row * grid.x.count + column]),
        np.concatenate([np.full(len(full_zone), np.nan), polygon_areas(pieces, grid.system)]),
    )


def _range(axis: Regular, low: Floats, high: Floats) -> tuple[Cells, Cells]:
    """Return the range of cells that end above `low` and start below `high`."""
    edges = axis.bounds
    first = np.searchsorted(edges[:, 1], low, side="right")
    return first.astype(np.intp), np.searchsorted(edges[:, 0], high, side="left").astype(np.intp)


def _boxes(grid: Grid, row: Cells, column: Cells, size: int) -> NDArray[np.object_]:
    """Return blocks of cells as boxes, clipped to the grid."""
    last_row, last_column = np.minimum(row + size, grid.y.count) - 1, np.minimum(column + size, grid.x.count) - 1
    x, y = grid.x.bounds, grid.y.bounds
    return np.asarray(shapely.box(x[column, 0], y[row, 0], x[last_column, 1], y[last_row, 1]), dtype=object)


def _cells_of(grid: Grid, zone: Cells, row: Cells, column: Cells, size: int) -> tuple[Cells, Cells]:
    """Return all cells of blocks, with the zone of each."""
    rows = row[:, None, None] + np.arange(size)[None, :, None]
    columns = column[:, None, None] + np.arange(size)[None, None, :]
    exists = (rows < grid.y.count) & (columns < grid.x.count)
    flat = rows * grid.x.count + columns
    return np.broadcast_to(zone[:, None, None], flat.shape)[exists], flat[exists]


def _refuse_other_coordinates(zones: Zones, grid: Grid) -> None:
    west, south, east, north = shapely.total_bounds(zones.shapes)
    span = f"{west:.6g} to {east:.6g}, {south:.6g} to {north:.6g}"
    degrees = bool(-360 <= west and east <= 360 and -90 <= south and north <= 90)
    if grid.system == "lonlat":
        if degrees and zones.is_lonlat is not False:
            return
        what = f"are in {zones.crs!r}" if zones.is_lonlat is False else f"lie within {span}"
        raise InvalidQuery(
            f"the grid has lon and lat in degrees, but the zones {what}; transform them first: "
            "ogr2ogr -t_srs EPSG:4326 zones.geojson …, or GeoDataFrame.to_crs('EPSG:4326')"
        )
    unit = PER_UNIT["mm"]
    is_disjoint = (
        east * unit <= grid.x.origin or west * unit >= grid.x.stop
        or north * unit <= grid.y.origin or south * unit >= grid.y.stop
    )  # fmt: skip
    # Small numbers may also be metres; only if they miss the grid are they taken for degrees.
    if zones.is_lonlat or (degrees and is_disjoint):
        problem = f"are in {zones.crs!r}" if zones.is_lonlat else f"lie within {span}, which looks like degrees"
        raise InvalidQuery(
            f"the grid has x and y in metres, but the zones {problem}; transform them to the grid's projection first, "
            "for example with ogr2ogr -t_srs or GeoDataFrame.to_crs"
        )
