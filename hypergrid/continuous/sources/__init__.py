"""Where elements come from: archives by time or by arrival, and tables of the user."""

from hypergrid.continuous.sources.archive_source import ArchiveStreams, Stretch
from hypergrid.continuous.sources.batch import CodedTexts, SourceBatch, SourceStep
from hypergrid.continuous.sources.demand import list_demands
from hypergrid.continuous.sources.relations import neighbour_changes, station_changes
from hypergrid.continuous.sources.surfaces import surface_changes
from hypergrid.continuous.sources.tables import check_table, match_archive, read_table

__all__ = [
    "ArchiveStreams",
    "CodedTexts",
    "SourceBatch",
    "SourceStep",
    "Stretch",
    "check_table",
    "list_demands",
    "match_archive",
    "neighbour_changes",
    "read_table",
    "station_changes",
    "surface_changes",
]
