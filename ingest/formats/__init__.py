"""Parsers of station files: one format per file, looked up by name in `FORMATS`.

To add a format, write a module with a `layout` and a `parse` function (see `ingest.formats.base.Format`), add it to
the table at the module's end, and import it here.
"""

from ingest.formats import climaps, csv, messages, netcdf, parquet, sensorscope, sensorthings, smet, toa5
from ingest.formats.base import (
    FORMATS,
    BadRow,
    DocumentFormat,
    Format,
    Layout,
    Parsed,
    ReadOptions,
    Unreadable,
    recognise,
)

__all__ = [
    "FORMATS",
    "BadRow",
    "DocumentFormat",
    "Format",
    "Layout",
    "Parsed",
    "ReadOptions",
    "Unreadable",
    "climaps",
    "csv",
    "messages",
    "netcdf",
    "parquet",
    "recognise",
    "sensorscope",
    "sensorthings",
    "smet",
    "toa5",
]
