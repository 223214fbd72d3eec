"""Topologies: axes and their products; which cells exist, which cells cover which."""

from hypergrid.topology.axes import PER_UNIT, Instants, Regular, TimeAxis, aligned
from hypergrid.topology.cover import Cover, cover, is_location_consistent
from hypergrid.topology.layer import Layer, make_layer
from hypergrid.topology.metres import DISTANCES, Distance, Metres
from hypergrid.topology.space import Grid, SeriesAxis, grid, quanta
from hypergrid.topology.topology import Space, Topology
from hypergrid.topology.zone_cells import ZoneCells
from hypergrid.topology.zones import Zones, zones

__all__ = [
    "DISTANCES", "PER_UNIT", "Cover", "Distance", "Grid", "Instants", "Layer", "Metres", "Regular", "SeriesAxis",
    "Space", "TimeAxis", "Topology", "ZoneCells", "Zones", "aligned", "cover", "grid", "is_location_consistent",
    "make_layer", "quanta", "zones",
]  # fmt: skip
