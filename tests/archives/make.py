"""Make the fixture archive of today's layout: `python -m tests.archives.make`, once, when the number was raised.

A fixture is made by the program that writes its layout, and never again: later programs must read it and upgrade it.
It holds a day of the sample network's air temperature in two commits, the first of them cited, with amendments, rows
beside their cells, a row that cannot be read, and a layer; beside it stands what the program then answered.
"""

import csv
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hypergrid.archive import Archive
from hypergrid.archive.disk.folder import VERSION
from hypergrid.formats.readings import Selection, export_readings
from hypergrid.layers.layer import Layer
from hypergrid.query import open_archive
from ingest.job import ingest

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent.parent / "station_data" / "sample"
QUERY = HERE.parent.parent / "station_data" / "queries" / "q1.json"
NOW_NS = 1_191_283_200_000_000_000
"""2007-10-02, after all that arrived."""


def q1() -> dict[str, Any]:
    """Return Q1, clipped to the day that the fixture holds."""
    asked: dict[str, Any] = json.loads(QUERY.read_text())
    asked["clip"]["time"] = ["2007-10-01T00:00Z", "2007-10-02T00:00Z"]
    return asked


def answers(archive: Path) -> dict[str, Any]:
    """Return what an archive answers: of the newest snapshot, and of the one that is cited."""
    newest = Archive.open(archive)
    found: dict[str, Any] = {}
    for name, snapshot in (("newest", newest.snapshot), ("cited", newest.cited[0])):
        opened = Archive.open(archive, snapshot=snapshot)
        result = open_archive(archive, snapshot=snapshot).query(q1()).compute()
        readings = opened.read("air_temperature", tests=True)
        assert readings.tests is not None
        found[name] = {
            "snapshot": snapshot,
            "q1": result["value"].values.ravel().tolist(),
            "token": result.attrs["hypergrid_token"],
            "readings": len(readings),
            "sums": [int(readings.time_ns.sum()), int(readings.arrival_ns.sum()), int(readings.flag.sum()),
                     int(readings.tests.sum()), float(np.nansum(readings.value)).hex()],
            "superseded": len(opened.read("air_temperature", superseded=True)),
            "rejects": len(opened.rejects()),
            "layers": {key: layer.token for key, layer in opened.layers.items()},
        }  # fmt: skip
    return found


def make(folder: Path) -> Path:
    """Make the archive below a folder."""
    whole, archive = folder / "whole", folder / "archive"
    ingest([SAMPLE], whole, now_ns=NOW_NS, engine="inprocess")
    export_readings(Archive.open(whole), folder / "all.csv", Selection(("air_temperature",), (), None, ()))
    with (folder / "all.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    for name, some in (("first", rows[: len(rows) // 2]), ("second", rows[len(rows) // 2 - 500 :])):
        source = folder / name
        source.mkdir()
        shutil.copy(folder / "all.deployment.toml", source / "deployment.toml")
        value = header.index("value")
        if name == "second":
            for row in some[:300:3]:
                row[value] = f"{float(row[value] or 0) + 0.25:.3f}"
            some = [*some, [*some[0][:value], "unreadable", *some[0][value + 1 :]]]
        with (source / "all.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *some])
        ingest([source], archive, now_ns=NOW_NS, engine="inprocess")
        if name == "first":
            Archive.open(archive).cite()
    lon, lat = np.linspace(7.17, 7.19, 24), np.linspace(45.86, 45.876, 20)
    height = 2400.0 + 100.0 * np.sin(lon * 300)[None, :] * np.cos(lat * 300)[:, None]
    Archive.open(archive).add_layer(Layer("elevation", lon, lat, height, "m"), now_ns=NOW_NS)
    shutil.rmtree(archive / "staging", ignore_errors=True)
    return archive


def main() -> None:
    """Make archive and answers of today's layout."""
    with tempfile.TemporaryDirectory() as scratch:
        archive = make(Path(scratch))
        target = HERE / f"layout_{VERSION}.tar.xz"
        with tarfile.open(target, "w:xz") as packed:
            packed.add(archive, "archive")
        told = answers(archive)
    for answered in told.values():
        answered["q1"] = [value.hex() for value in answered["q1"]]
    (HERE / f"layout_{VERSION}.json").write_text(json.dumps(told, indent=1) + "\n")
    print(f"{target.name}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
