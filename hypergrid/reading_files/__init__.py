"""Readings of an archive as files: CSV, Parquet, NetCDF and SMET; and as tables and coverages that are served."""

from hypergrid.reading_files.coverages import coverage_collection, coverages, measured, parameters
from hypergrid.reading_files.export import FORMATS, Exported, export_readings
from hypergrid.reading_files.netcdf import netcdf
from hypergrid.reading_files.selection import Chosen, Kind, Piece, Selection
from hypergrid.reading_files.tables import INTERVALS, Rows, csv, parquet

__all__ = [
    "FORMATS", "INTERVALS", "Chosen", "Exported", "Kind", "Piece", "Selection", "coverage_collection", "coverages",
    "Rows", "csv", "export_readings", "measured", "netcdf", "parameters", "parquet",
]  # fmt: skip
