"""Ingests the files as their deployment file describes them; tests set flags."""

import shutil
from pathlib import Path

import hypergrid as hg
from hypergrid.layers.raster_reader import read_raster
from ingest.job import ingest

NOW_NS = 1_200_000_000 * 10**9


def answer(data: Path) -> hg.OpenArchive:
    shutil.rmtree(data / "archive", ignore_errors=True)
    ingest([data / "csv"], data / "archive", deployment=data / "deployment.toml", engine="inprocess", now_ns=NOW_NS)
    archive = hg.open(data / "archive")
    archive.store.add_layer(read_raster(data / "dem.tif", name="elevation"), now_ns=NOW_NS)
    return archive
