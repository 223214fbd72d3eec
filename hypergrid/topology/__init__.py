"""Topologies: axes, their products, and which cells cover which."""

from hypergrid.topology.axes import PER_UNIT, Instants, Regular, quanta, usual_spacing_ns
from hypergrid.topology.bins import Bins, make_bins
from hypergrid.topology.civil import Calendar, LocalClock, Unit, check_zone
from hypergrid.topology.cover import Cover, cells_inside, cover, find_normal_cells, is_location_consistent
from hypergrid.topology.levels import Levels, describe_levels, levels, levels_json
from hypergrid.topology.periodic import CYCLES, HOUR_OF_DAY, Cycle, Periodic, periodic
from hypergrid.topology.points import Points, cells_from_json, cells_json, points
from hypergrid.topology.projection import DISTANCES, Distance, Metres
from hypergrid.topology.space import Grid, SeriesAxis, grid, grid_json
from hypergrid.topology.topology import (
    Bands,
    Space,
    TimeAxis,
    TimeCells,
    Topology,
    axes_of,
    blocks_of,
    changes_cells,
    count_fitting_intervals,
    replace_axes,
    shortest_ns,
    sum_per_cell,
)
from hypergrid.topology.zone_cells import ZoneCells
from hypergrid.topology.zones import Zones, zones

__all__ = [
    "CYCLES",
    "DISTANCES",
    "HOUR_OF_DAY",
    "PER_UNIT",
    "Bands",
    "Bins",
    "Calendar",
    "Cover",
    "Cycle",
    "Distance",
    "Grid",
    "Instants",
    "Levels",
    "LocalClock",
    "Metres",
    "Periodic",
    "Points",
    "Regular",
    "SeriesAxis",
    "Space",
    "TimeAxis",
    "TimeCells",
    "Topology",
    "Unit",
    "ZoneCells",
    "Zones",
    "axes_of",
    "blocks_of",
    "cells_from_json",
    "cells_inside",
    "cells_json",
    "changes_cells",
    "check_zone",
    "count_fitting_intervals",
    "cover",
    "describe_levels",
    "find_normal_cells",
    "grid",
    "grid_json",
    "is_location_consistent",
    "levels",
    "levels_json",
    "make_bins",
    "periodic",
    "points",
    "quanta",
    "replace_axes",
    "shortest_ns",
    "sum_per_cell",
    "usual_spacing_ns",
    "zones",
]  # fmt: skip
