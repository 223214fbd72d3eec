"""Files whose values must not change, be lost or be refused as a whole, whatever is recognised in them."""

import gzip
import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidDeployment
from ingest.deployment.deployment_file import deploy, read_versions
from ingest.deployment.station_table import is_station_table, read_station_table
from ingest.job import ingest

NOW_NS = 1_700_000_000 * 10**9


def write_deployment(folder: Path, columns: str, *, feed: str = "", network: str = "") -> Path:
    path = folder / "deployment.toml"
    path.write_text(
        f'[network]\nname = "n"\n{network}\n[[feed]]\nname = "f"\nfiles = "*.csv"\nformat = "csv"\n{feed}\n'
        f"[feed.columns]\n{columns}\n"
    )
    return path


def ingest_folder(folder: Path, deployment: Path | None = None) -> Archive:
    ingest([folder / "raw"], folder / "archive", deployment=deployment, engine="inprocess", now_ns=NOW_NS)
    return Archive.open(folder / "archive")


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def test_quoted_thousands_are_no_decimals(raw: Path) -> None:
    rows = "".join(f'2007-10-01T0{hour}:00Z,"1,01{hour}"\n' for hour in range(5))
    (raw / "a.csv").write_text("time,p\n" + rows)
    deployment = write_deployment(raw.parent, 'p = {variable = "air_pressure", unit = "hPa"}')
    archive = ingest_folder(raw.parent, deployment)
    assert [reject.column for reject in archive.rejects()] == ["p"] * 5


def test_a_time_of_sunrise_does_not_shift_the_days(raw: Path) -> None:
    (raw / "a.csv").write_text("date,t,sunrise\n" + "".join(f"2007-10-0{day},5,06:1{day}\n" for day in range(1, 6)))
    archive = ingest_folder(raw.parent)
    times = archive.read("t").time_ns.astype("datetime64[ns]").astype("datetime64[m]")
    assert times.tolist()[0].hour == 0


@pytest.mark.parametrize("words", [["NNW"], ["NNW", "N", "E"]])
def test_one_word_of_the_compass_is_a_direction_as_many_are(raw: Path, words: list[str]) -> None:
    (raw / "a.csv").write_text("time,wd\n" + "".join(f"2007-10-01T0{at}:00Z,{word}\n" for at, word in enumerate(words)))
    archive = ingest_folder(
        raw.parent, write_deployment(raw.parent, 'wd = {variable = "wind_direction", unit = "degree"}')
    )
    assert archive.read("wind_direction").value[0] == 337.5
    assert archive.rejects() == []


def test_letters_in_other_columns_are_no_directions(raw: Path) -> None:
    (raw / "a.csv").write_text(
        "time,t,quality\n" + "".join(f"2007-10-01T0{at}:00Z,5,{'ENS'[at % 3]}\n" for at in range(6))
    )
    assert list(ingest_folder(raw.parent).variables) == ["t"]


def test_a_damaged_member_costs_no_other(raw: Path) -> None:
    with zipfile.ZipFile(raw / "all.zip", "w") as packed:
        packed.writestr("a.csv", "time,t\n2007-10-01T00:00Z,5\n")
        packed.writestr("empty.csv.gz", b"")
        packed.writestr("note.tar", b"no tar at all")
    archive = ingest_folder(raw.parent)
    np.testing.assert_array_equal(archive.read("t").value, [5.0])


def test_a_tar_is_unpacked_once(raw: Path) -> None:
    inner = io.BytesIO()
    with gzip.open(inner, "wb") as stream:
        stream.write(gzip.compress(b"\0" * 1024))
    (raw / "d.tar.gz").write_bytes(inner.getvalue())
    (raw / "a.csv").write_text("time,t\n2007-10-01T00:00Z,5\n")
    archive = ingest_folder(raw.parent)
    assert any("d.tar.gz" in reject.file for reject in archive.rejects())


def test_a_table_of_readings_is_none_of_stations(raw: Path) -> None:
    readings, stations = raw / "a.csv", raw / "stations.csv"
    readings.write_text("station,obs,lat,lon,temp\n" + "".join(f"s1,2007-10-0{day},46,7,5\n" for day in range(1, 6)))
    stations.write_text("station,lat,lon\ns1,46,7\ns2,46.1,7\n")
    assert (is_station_table(readings), is_station_table(stations)) == (False, True)


@pytest.mark.parametrize(
    "table", ["id,lon,lat,Elevation (ft)\na,7,46,8000\n", 'id,lon,lat,elevation\na,7,46,"5,280"\n']
)
def test_elevations_that_may_be_something_else_are_refused(raw: Path, table: str) -> None:
    (raw / "stations.csv").write_text(table)
    with pytest.raises(InvalidDeployment, match="not in metres|thousands or decimals"):
        read_station_table(raw / "stations.csv")


def test_a_stream_keeps_the_stations_of_its_table(raw: Path) -> None:
    (raw.parent / "stations.csv").write_text('id,name,lon,lat,elevation\na,"A ""b""",7.25,46,1500\nc,Ć,7.5,46,\n')
    path = write_deployment(
        raw.parent, 't = {variable = "air_temperature", unit = "degC"}', network='stations = "stations.csv"'
    )
    folder = raw.parent / "versions"
    assert deploy(folder, path, first=1)
    (raw.parent / "stations.csv").unlink()
    [version] = read_versions(folder)
    assert [(station.id, station.name) for station in version.deployment.stations] == [("a", 'A "b"'), ("c", "Ć")]
    assert version.deployment.stations[0].position.elevation_m == 1500.0
    (raw.parent / "stations.csv").write_text("id,lon,lat\na,8,46\n")
    assert deploy(folder, path, first=5)


def test_a_station_that_begins_with_text_keeps_its_later_values(raw: Path) -> None:
    rows = [f"2007-10-01T0{at}:00Z,{at},{'off' if at < 3 else 7.5}\n" for at in range(5)]
    (raw / "t.csv").write_text("time,A,B\n" + "".join(rows))
    deployment = write_deployment(
        raw.parent, 't = {variable = "air_temperature", unit = "degC"}', feed='layout = "column_per_station"'
    )
    archive = ingest_folder(raw.parent, deployment)
    assert set(archive.stations) == {"A", "B"}
    assert len(archive.rejects()) == 3


@pytest.mark.parametrize(
    ("arrival", "feed", "warned"),
    [
        ("2007-10-01T09:00Z", 'arrival_format = "%d.%m.%Y %H:%M"', "3 of 3 rows of feed 'f' have no arrival in column"),
        ("", "", "3 of 3 rows of feed 'f' have no arrival in column 'came' that can be read"),
        ("2006-10-01T09:00Z", "", "3 of 3 rows of feed 'f' arrived before they were measured"),
        ("2099-10-01T09:00Z", "", "arrive in the future, says column 'came' .to 2099-10-01T09:00Z."),
    ],
)
def test_arrivals_that_cannot_be_right_are_in_the_report(raw: Path, arrival: str, feed: str, warned: str) -> None:
    (raw / "a.csv").write_text("time,t,came\n" + "".join(f"2007-10-01T0{at}:00Z,{at},{arrival}\n" for at in range(3)))
    feed = f'arrival_column = "came"\n{feed}'
    deployment = write_deployment(raw.parent, 't = {variable = "air_temperature", unit = "degC"}', feed=feed)
    report = ingest([raw], raw.parent / "archive", deployment=deployment, engine="inprocess", now_ns=NOW_NS)
    (text,) = [text for text in report.warnings if "arriv" in text]
    assert re.search(warned, text)
    (raw / "b.csv").write_text("time,t\n2007-10-01T00:00Z,1\n")
    with pytest.raises(InvalidDeployment, match="feed 'f' has an arrival_column that no file of it has: .*'came'"):
        ingest([raw / "b.csv"], raw.parent / "archive", deployment=deployment, engine="inprocess", now_ns=NOW_NS)
