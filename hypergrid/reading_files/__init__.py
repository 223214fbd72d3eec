"""Readings of an archive as files: CSV, Parquet, NetCDF and SMET."""

from hypergrid.reading_files.export import FORMATS, Exported, export_readings
from hypergrid.reading_files.selection import Selection

__all__ = ["FORMATS", "Exported", "Selection", "export_readings"]
