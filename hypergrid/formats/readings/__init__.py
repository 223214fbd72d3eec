"""Readings of an archive as files: CSV, Parquet, NetCDF and SMET; and as tables and coverages that are served."""

from hypergrid.formats.readings.coverages import coverage_collection, coverages, measured, parameters
from hypergrid.formats.readings.export import FORMATS, Exported, export_readings
from hypergrid.formats.readings.netcdf import netcdf
from hypergrid.formats.readings.selection import Chosen, Kind, Piece, Selection
from hypergrid.formats.readings.tables import INTERVALS, Rows, csv, parquet

__all__ = [
    "FORMATS", "INTERVALS", "Chosen", "Exported", "Kind", "Piece", "Selection", "coverage_collection", "coverages",
    "Rows", "csv", "export_readings", "measured", "netcdf", "parameters", "parquet",
]  # fmt: skip
