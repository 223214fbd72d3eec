"""Readings as CSV, Parquet, NetCDF and SMET files, and as tables and coverages."""

from hypergrid.formats.readings.coverages import (
    coverage_collection,
    describe_measurement,
    make_coverages,
    make_parameters,
)
from hypergrid.formats.readings.export import FORMATS, ExportReport, export_readings
from hypergrid.formats.readings.netcdf import write_netcdf
from hypergrid.formats.readings.selection import ReadingsPiece, SelectedReadings, Selection, SeriesKind
from hypergrid.formats.readings.tables import INTERVALS, RowWriter, write_csv, write_parquet

__all__ = [
    "FORMATS",
    "INTERVALS",
    "ExportReport",
    "ReadingsPiece",
    "RowWriter",
    "SelectedReadings",
    "Selection",
    "SeriesKind",
    "coverage_collection",
    "describe_measurement",
    "export_readings",
    "make_coverages",
    "make_parameters",
    "write_csv",
    "write_netcdf",
    "write_parquet",
]  # fmt: skip
