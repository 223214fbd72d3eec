"""Files of formats that loggers, networks of radios and libraries write, brought in by `hypergrid ingest`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hypergrid as hg
from tests.end_to_end.in_process import hypergrid

STATIONS = '[[station]]\nid = "{}"\nlon = 7.1\nlat = 46.1\nelevation_m = 1200.0\n'
HEAD = '[network]\nname = "mixed"\nslice_s = 600\n[quality]\nrun = {run}\n{quality}'
HOURS = 48


def bring(folder: Path, description: str) -> hg.OpenArchive:
    """Ingest what is in a folder, by a description if one is given; return the archive."""
    if description:
        (folder / "deployment.toml").write_text(description)
    done = hypergrid("ingest", folder.parent / "archive", folder)
    assert done.returncode == 0, done.stderr
    return hg.open(folder.parent / "archive")


def series(archive: hg.OpenArchive, variable: str, station: str) -> dict[str, float]:
    """Return the values of a station by stamp."""
    stored = archive.store.read(variable)
    chosen = np.isin(stored.index, [k for k, each in enumerate(stored.series) if each.station == station])
    stamps = np.datetime_as_string(stored.time_ns[chosen].view("datetime64[ns]"), unit="s")
    return {stamp[8:]: value for stamp, value in zip(stamps.tolist(), stored.value[chosen].tolist(), strict=True)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def test_tables_of_parquet_with_a_column_for_each_variable_and_with_a_row_for_each(folder: Path) -> None:
    times = np.datetime64("2024-07-01T00:00", "us") + np.arange(6) * np.timedelta64(600, "s")
    fahrenheit = pa.field("air_temperature", pa.float64(), metadata={"units": "degF"})
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("station", pa.string()), fahrenheit])
    wide = [pa.array(times).cast(schema.field("time").type), ["a"] * 6, [50.0, 68.0, 50.0, None, 50.0, 50.0]]
    pq.write_table(pa.table(wide, schema=schema), folder / "wide.parquet")
    narrow = {
        "Datetime": ["2024-07-01T00:00:00Z", "2024-07-01T00:00:00Z", "soon", "2024-07-01T01:00:00Z"],
        "site": ["b"] * 4,
        "parameter": ["air_temperature", "relative_humidity", "relative_humidity", "air_temperature"],
        "value": [20.5, 50.0, 51.0, 68.0],
        "unit": ["degC", "%", "%", "degF"],
    }
    pq.write_table(pa.table(narrow), folder / "narrow.parquet")
    archive = bring(folder, "")
    assert list(series(archive, "air_temperature", "a").values())[:2] == pytest.approx([10.0, 20.0])
    assert list(series(archive, "air_temperature", "b").values()) == pytest.approx([20.5, 20.0])
    assert [(reject.file, "'soon'" in reject.reason) for reject in archive.store.rejects()] == [
        ("narrow.parquet", True)
    ]


def test_messages_of_networks_of_radios(folder: Path) -> None:
    things = {
        "end_device_ids": {"device_id": "hut", "dev_eui": "0004A30B001C0530"},
        "received_at": "2024-07-01T00:00:01.9Z",
        "uplink_message": {
            "f_port": 2,
            "f_cnt": 7,
            "decoded_payload": {"air_temperature": 3.5},
            "rx_metadata": [{"time": "2024-07-01T00:00:00.2Z"}, {"time": "2024-07-01T00:00:00.1Z"}],
            "locations": {"user": {"latitude": 46.1, "longitude": 7.1, "altitude": 1200}},
        },
    }
    chirpstack = {
        "time": "2024-07-01T00:10:00+00:00",
        "deviceInfo": {"deviceName": "pass", "devEui": "0101010101010101"},
        "fCnt": 4,
        "fPort": 1,
        "object": {"air_temperature": 4.5},
        "rxInfo": [{"gwTime": "2024-07-01T00:09:59.5+00:00"}],
    }
    (folder / "radio.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in (things, chirpstack)))
    (folder / "single.json").write_text(json.dumps({**things, "received_at": "2024-07-01T01:00:01Z", "uplink_message": {
        **things["uplink_message"], "rx_metadata": [{"time": "2024-07-01T01:00:00Z"}],  # type: ignore[dict-item]
    }}))  # fmt: skip
    feed = (
        '[[feed]]\nname = "radio"\nfiles = "*.json*"\nformat = "messages"\ninterval_s = 600.0\n'
        '[feed.columns]\nair_temperature = {variable = "air_temperature", unit = "degC"}\n'
    )
    stations = "".join(map(STATIONS.format, ("hut", "pass")))
    archive = bring(folder, HEAD.format(run="false", quality="") + stations + feed)
    assert series(archive, "air_temperature", "hut") == {"01T00:00:00": 3.5, "01T01:00:00": 3.5}
    assert list(series(archive, "air_temperature", "pass").values()) == [4.5]


def write_hourly(folder: Path, values: dict[str, np.ndarray]) -> None:
    """Write a CSV file of hourly values for each station."""
    for station, column in values.items():
        stamps = np.datetime64("2024-07-01T00:00") + np.arange(len(column)) * np.timedelta64(3600, "s")
        lines = [f"{stamp},{value:.3f}" for stamp, value in zip(stamps, column, strict=True)]
        (folder / f"{station}.csv").write_text("\n".join(["time,air_temperature [degC]", *lines, ""]))


def flags(archive: hg.OpenArchive, variable: str, station: str) -> np.ndarray[Any, Any]:
    stored = archive.store.read(variable)
    number = next(k for k, each in enumerate(stored.series) if each.station == station)
    return stored.flag[stored.index == number]


def test_a_signal_that_fades_and_a_station_beside_the_others_are_flagged(folder: Path) -> None:
    hours, names = np.arange(HOURS), [f"s{number}" for number in range(8)]
    day = 10 + 5 * np.sin(2 * np.pi * hours / 24)
    values = {name: day + 0.01 * number for number, name in enumerate(names)}
    values["s1"] = np.where(hours < 24, day, day[24] + 0.001 * (hours % 2))
    values["s2"] = np.where(hours == 30, 60.0, day)
    write_hourly(folder, values)
    stations = "".join(
        STATIONS.format(name).replace("7.1\n", f"{7.1 + 0.01 * number}\n").replace("1200.0", f"{1200.0 + 60 * number}")
        for number, name in enumerate(names)
    )
    quality = (
        "[quality.air_temperature]\n"
        'attenuated_signal = {hours = 12, suspect = 0.5, fail = 0.1, readings = 6, measure = "std"}\n'
        "spatial_consistency = {radius_km = 50, neighbours = 4, threshold = 5, least_spread = 2, per_m = -0.0065, "
        "least_elevation_m = 50, iterations = 3, minutes = 60}\n"
        'flat_line = {hours = 6, tolerance = 0.01, exempt = [{of = "value", least = 45}, {of = "sun", most = -90}]}\n'
    )
    feed = (
        '[[feed]]\nname = "logger"\nfiles = "*.csv"\nformat = "csv"\ninterval_s = 3600.0\n'
        '[feed.columns]\n"air_temperature [degC]" = {variable = "air_temperature", unit = "degC"}\n'
    )
    archive = bring(folder, HEAD.format(run="true", quality=quality) + stations + feed)
    assert (flags(archive, "air_temperature", "s1")[-6:] >= 3).all()
    assert flags(archive, "air_temperature", "s2")[30] >= 3
    assert (flags(archive, "air_temperature", "s5") < 3).all()


def test_lines_that_end_in_a_return_and_a_station_by_its_values(folder: Path) -> None:
    stamps = np.datetime64("2024-07-01T00:00") + np.arange(40) * np.timedelta64(600, "s")
    rows = [f"{stamp},{box},{box + 0.1 * number:.1f}" for number, stamp in enumerate(stamps) for box in (4, 7, 9)]
    (folder / "boxes.csv").write_bytes("\r".join(["time,box,air_temperature", *rows, ""]).encode())
    looked = hypergrid("ingest", folder.parent / "archive", folder, "--dry-run")
    assert looked.returncode == 0, looked.stderr
    assert "'box' is the station, by its values" in " ".join((looked.stdout + looked.stderr).split())


def test_comments_between_rows_are_no_rejects(folder: Path) -> None:
    lines = ["time,air_temperature [degC]", "2024-07-01T00:00,1.0", "# the battery was changed", "2024-07-01T00:10,2.0"]
    (folder / "hut.csv").write_text("\n".join([*lines, ""]))
    feed = (
        '[[feed]]\nname = "logger"\nfiles = "*.csv"\nformat = "csv"\ncomment = "#"\n'
        '[feed.columns]\n"air_temperature [degC]" = {variable = "air_temperature", unit = "degC"}\n'
    )
    archive = bring(folder, HEAD.format(run="false", quality="") + STATIONS.format("hut") + feed)
    assert list(series(archive, "air_temperature", "hut").values()) == [1.0, 2.0]
    assert archive.store.rejects() == []
