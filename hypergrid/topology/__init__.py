"""Topologies: axes and their products; which cells exist, which cells cover which."""

from hypergrid.topology.axes import PER_UNIT, Instants, Regular, TimeAxis, aligned
from hypergrid.topology.cover import Cover, cover, is_location_consistent
from hypergrid.topology.space import Grid, Metres, SeriesAxis, Space, grid, quanta
from hypergrid.topology.topology import Topology

__all__ = [
    "PER_UNIT", "Cover", "Grid", "Instants", "Metres", "Regular", "SeriesAxis", "Space", "TimeAxis", "Topology",
    "aligned", "cover", "grid", "is_location_consistent", "quanta",
]  # fmt: skip
