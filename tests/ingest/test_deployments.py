"""Which deployment speaks for which files."""

from pathlib import Path

import pytest

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidDeployment
from ingest.batch.report import RunListener
from ingest.job import ingest

NOW_NS = 1_200_000_000 * 10**9
DEPLOYMENT = """
[network]
name = "net"
slice_s = 600

[[feed]]
name = "logger"
files = "*.csv"
format = "csv"
interval_s = 600.0
[feed.columns]
temp = {{variable = "air_temperature", unit = "{unit}"}}

[[station]]
id = "{station}"
lon = 7.0
lat = 46.0
"""


def folder(parent: Path, name: str, *, station: str, unit: str, deployed: bool = True) -> Path:
    made = parent / name
    made.mkdir(parents=True)
    (made / f"{station}.csv").write_text(f"station,time,temp\n{station},2007-10-01T00:00Z,50.0\n")
    if deployed:
        (made / "deployment.toml").write_text(DEPLOYMENT.format(station=station, unit=unit))
    return made


def test_one_deployment_never_speaks_for_the_files_of_another(tmp_path: Path) -> None:
    first = folder(tmp_path / "in", "d1", station="A", unit="degC")
    second = folder(tmp_path / "in", "d2", station="B", unit="degF")
    with pytest.raises(InvalidDeployment, match="several deployments.*d1.*d2"):
        ingest([first, second], tmp_path / "ar", now_ns=NOW_NS)
    with pytest.raises(InvalidDeployment, match="lie deeper.*d1.*d2"):
        ingest([tmp_path / "in"], tmp_path / "ar", now_ns=NOW_NS)
    assert not (tmp_path / "ar").exists()
    for each in (first, second):
        ingest([each], tmp_path / "ar", now_ns=NOW_NS)
    readings = Archive.open(tmp_path / "ar").read("air_temperature")
    found = {readings.series[i].station: round(v, 9) for i, v in zip(readings.index, readings.value, strict=True)}
    assert found == {"A": 50.0, "B": 10.0}


def test_files_that_were_read_in_another_way_are_told(tmp_path: Path) -> None:
    files = folder(tmp_path, "in", station="A", unit="degF", deployed=False)
    ingest([files], tmp_path / "ar", now_ns=NOW_NS)
    described = tmp_path / "deployment.toml"
    told: list[str] = []
    archive = Archive.open(tmp_path / "ar")
    text = DEPLOYMENT.format(station="A", unit="degF").replace("slice_s = 600", f"slice_s = {archive.slice_s}")
    described.write_text(text.replace('name = "net"', f'name = "{archive.name}"'))
    report = ingest(
        [files], tmp_path / "ar", deployment=described, now_ns=NOW_NS, listener=RunListener(on_warning=told.append)
    )
    assert report.snapshot is None
    assert any("read with another description" in text and "new archive" in text for text in told)


def test_a_file_that_may_be_cut_off_within_a_number_is_told(tmp_path: Path) -> None:
    files = folder(tmp_path, "in", station="A", unit="degC")
    whole = (files / "A.csv").read_text()
    (files / "A.csv").write_text(whole[:-2])
    told: list[str] = []
    ingest([files], tmp_path / "ar", now_ns=NOW_NS, listener=RunListener(on_warning=told.append))
    assert [text for text in told if "no line end" in text and "A.csv" in text]
    told.clear()
    (files / "A.csv").write_text(whole)
    ingest([files], tmp_path / "ar", now_ns=NOW_NS, listener=RunListener(on_warning=told.append))
    assert not [text for text in told if "no line end" in text]
