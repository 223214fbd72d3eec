"""Topologies: axes and their products; which cells exist, which cells cover which."""

from hypergrid.topology.axes import PER_UNIT, Instants, Regular, aligned
from hypergrid.topology.bands import Bands
from hypergrid.topology.bins import Bins, bins_over
from hypergrid.topology.civil import Calendar, Clock, Unit, check_zone
from hypergrid.topology.coordinates import quanta
from hypergrid.topology.cover import Cover, cells_inside, cover, is_location_consistent
from hypergrid.topology.levels import Levels, levels, levels_json, levels_words
from hypergrid.topology.periodic import CYCLES, HOUR_OF_DAY, Cycle, Periodic, periodic
from hypergrid.topology.points import Points, cells_from_json, cells_json, points
from hypergrid.topology.projection import DISTANCES, Distance, Metres
from hypergrid.topology.recurring import recurring
from hypergrid.topology.space import Grid, SeriesAxis, grid, grid_json
from hypergrid.topology.spacing import usual_spacing_ns
from hypergrid.topology.time_axes import TimeAxis, TimeCells, blocks_of, fitting, per_cell, shortest_ns
from hypergrid.topology.topology import Space, Topology, along, axes_of, changes_cells
from hypergrid.topology.zone_cells import ZoneCells
from hypergrid.topology.zones import Zones, zones

__all__ = [
    "CYCLES", "DISTANCES", "HOUR_OF_DAY", "PER_UNIT", "Bands", "Bins", "Calendar", "Clock", "Cover", "Cycle",
    "Distance", "Grid", "Instants", "Levels", "Metres", "Periodic", "Points", "Regular", "SeriesAxis", "Space",
    "TimeAxis", "TimeCells", "Topology", "Unit", "ZoneCells", "Zones", "aligned", "along", "axes_of", "bins_over",
    "blocks_of", "cells_from_json", "cells_inside", "cells_json", "changes_cells", "check_zone", "cover", "fitting",
    "grid", "grid_json", "is_location_consistent", "levels", "levels_json", "levels_words", "per_cell",
    "periodic", "points", "quanta", "recurring", "shortest_ns", "usual_spacing_ns", "zones",
]  # fmt: skip
