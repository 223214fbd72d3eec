"""Real delimited text, against numbers that were read in the files by eye, and against a slow reader."""

from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.times import parse_instant
from ingest.job import ingest

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
DEPLOYMENTS = ROOT / "station_data" / "deployments"


@pytest.mark.skipif(not (DATA / "ulb_wsn").is_dir(), reason="the motes' files ../shared/data/ulb_wsn are not here")
def test_motes_with_decimal_commas(tmp_path: Path, now_ns: int) -> None:
    file = DATA / "ulb_wsn" / "R1.txt"
    report = ingest([file], tmp_path / "a", deployment=DEPLOYMENTS / "ulb.toml", now_ns=now_ns)
    rows = [line.replace(",", ".").split() for line in file.read_text().splitlines()]
    assert (report.rows, report.rejects, report.stations) == (len(rows), {}, len({row[1] for row in rows}))
    assert report.readings == len(rows) * 7 == report.stored + report.duplicates + report.superseded
    archive = Archive.open(tmp_path / "a")
    readings = archive.read("air_temperature")
    stations = np.array([one.station for one in archive.series("air_temperature")])[readings.index]
    # line 1: 1163438041250 20 1 21,21 2,81 51,53 22,08 20 28
    first = (stations == "20") & (readings.time_ns == 1163438041250 * 10**6)
    assert readings.value[first].tolist() == [22.08]
    # line 3: 1163438041625 11 1 21,21 3 48,42 22,42 3 3
    volts = archive.read("battery_voltage")
    assert volts.value[volts.time_ns == 1163438041625 * 10**6].tolist() == [3.0]
    told = {(row[1], int(row[0])): float(row[6]) for row in rows}
    found = dict(
        zip(zip(stations.tolist(), (readings.time_ns // 10**6).tolist(), strict=True), readings.value, strict=True)
    )
    assert found == told


@pytest.mark.skipif(not (DATA / "saqc").is_dir(), reason="the logger's files ../shared/data/saqc are not here")
def test_a_soil_moisture_logger(tmp_path: Path, now_ns: int) -> None:
    files = [DATA / "saqc" / "data.csv", DATA / "saqc" / "SoilMoisture.csv"]
    report = ingest(files, tmp_path / "a", deployment=DEPLOYMENTS / "saqc.toml", now_ns=now_ns)
    lines = [len(file.read_text().splitlines()) - 1 for file in files]
    assert (report.rows, report.rejects, report.stations) == (sum(lines), {}, 2)
    assert report.readings == 3 * lines[0] + lines[1] == report.stored + report.duplicates + report.superseded
    archive = Archive.open(tmp_path / "a")
    # data.csv, line 2: 2016-04-01 00:05:48,3573,32.685,29.3157
    volts = archive.read("battery_voltage")
    assert (volts.time_ns[0], volts.value[0]) == (parse_instant("2016-04-01T00:05:48Z"), 3.573)
    series = archive.series("soil_moisture")
    readings = archive.read("soil_moisture")
    firsts = {
        (one.station, one.replicate): readings.value[readings.index == place][0] for place, one in enumerate(series)
    }
    # SoilMoisture.csv, line 2: 2021-01-01 00:09:07,23.42970085144043
    assert firsts == {("logger", 1): 32.685, ("logger", 2): 29.3157, ("probe", 1): 23.42970085144043}
