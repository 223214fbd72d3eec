"""What a network states about its data stands once in its description, and in every file."""

from pathlib import Path

import h5netcdf
import pytest

import hypergrid as hg
from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.publication import Publication
from hypergrid.formats.readings.export import export_readings
from ingest.deployment.deployment_file import from_mapping, load
from ingest.job import ingest
from ingest.reprocess.remap import kept_descriptions, remap

DAY_NS = 86_400 * 10**9
STATED = {
    "institution": "Institute of Snow and Water",
    "license": "https://creativecommons.org/licenses/by/4.0/",
    "creator_name": "Field group",
    "creator_email": "data@example.org",
    "publisher_name": "Observatory of the Valley",
    "publisher_url": "https://example.org",
}
DESCRIBED = """
[network]
name = "valley"
{publication}
[[feed]]
name = "table"
files = "*.csv"
format = "csv"
[feed.columns]
t = {{variable = "air_temperature", unit = "degC"}}
[[station]]
id = "a"
lon = 7.1772
lat = 45.8672
[[station]]
id = "b"
lon = 7.1803
lat = 45.8671
[[station]]
id = "nowhere"
"""
"""A station of no position is not one that a map uses."""


def describe(folder: Path, stated: dict[str, str]) -> None:
    lines = ["[publication]", *(f'{name} = "{text}"' for name, text in stated.items())] if stated else []
    (folder / "deployment.toml").write_text(DESCRIBED.format(publication="\n".join(lines)), "utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    rows = [
        f"{station},2007-10-01T{hour:02}:00:00,{hour + at}"
        for hour in range(3)
        for at, station in enumerate(("a", "b", "nowhere"))
    ]
    (made / "one.csv").write_text("station,time,t\n" + "\n".join(rows) + "\n", "utf-8")
    describe(made, STATED)
    return made


def test_statements_stand_in_files_of_readings_and_of_maps(folder: Path, tmp_path: Path) -> None:
    ingest([folder], tmp_path / "archive", engine="inprocess", now_ns=DAY_NS)
    archive = hg.open(tmp_path / "archive")
    assert archive.store.publication == Publication(**STATED)
    export_readings(archive.store, tmp_path / "readings.nc")
    beside = next(
        path for path in export_readings(archive.store, tmp_path / "rows.csv").files if path.suffix == ".toml"
    )
    assert load(beside).publication == Publication(**STATED)
    query = archive["air_temperature"].aggregate("mean", time="1h")
    grid = hg.grid(lon=7.177, lat=45.867, step="1arcsec", shape=(3, 3))
    surface = query.interpolate("inverse_distance", grid=grid).compute()
    surface.to_netcdf(tmp_path / "map.nc", engine="h5netcdf")
    for name in ("readings.nc", "map.nc"):
        with h5netcdf.File(tmp_path / name) as file:
            assert {key: file.attrs[key] for key in STATED} == STATED
            assert "HyperGrid" in file.attrs["history"]
    assert surface.attrs["hypergrid_stations"] == "a, b"
    assert "hypergrid_stations" not in query.compute().attrs


def test_another_statement_needs_no_new_reading(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    ingest([folder], path, engine="inprocess", now_ns=DAY_NS)
    first = hg.open(path)
    describe(folder, {})
    ingest([folder], path, engine="inprocess", now_ns=2 * DAY_NS)
    assert hg.open(path).snapshot == first.snapshot, "a description without statements changes none"
    describe(folder, {"institution": "Another"})
    report = ingest([folder], path, engine="inprocess", now_ns=3 * DAY_NS)
    assert hg.open(path).store.publication == Publication(institution="Another")
    assert report.snapshot == hg.open(path).snapshot
    # Two archives of one name: neither loses what it states.
    then, now = (item["air_temperature"].aggregate("mean", time="1h") for item in (first, hg.open(path)))
    assert now.merge("difference", then).compute().attrs["institution"] in (
        f"{STATED['institution']}; Another",
        f"Another; {STATED['institution']}",
    )
    assert hg.open(path, snapshot=first.snapshot).store.publication == Publication(**STATED)
    ingest([folder], path, engine="inprocess", now_ns=4 * DAY_NS)
    assert len(hg.open(path).snapshots) == len(first.snapshots) + 1
    describe(folder, STATED)
    remap(path, deployment=folder / "deployment.toml", now_ns=5 * DAY_NS)
    assert hg.open(path).store.publication == Publication(**STATED)


def test_reading_files_again_takes_no_statement_back(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    ingest([folder], path, engine="inprocess", now_ns=DAY_NS)
    for day, licence in ((2, "Restricted: ask first"), (4, STATED["license"])):
        describe(folder, {"license": licence})
        ingest([folder], path, engine="inprocess", now_ns=day * DAY_NS)
        remap(path, now_ns=(day + 1) * DAY_NS)
        assert hg.open(path).store.publication == Publication(license=licence)
    assert [each.publication for each in kept_descriptions(hg.open(path).store).values()] == [
        Publication(**STATED), Publication(license="Restricted: ask first"), Publication(license=STATED["license"])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"creator_email": "somebody"}, r"publication.*creator_email needs a mail address.*'somebody'"),
        ({"publisher_url": "example.org"}, r"publication.*publisher_url needs an address.*'example.org'"),
        ({"institution": 5}, r"publication\.institution needs text; got 5"),
        ({"institution": " "}, r"publication\.institution needs text"),
        ({"license": "a\nb"}, r"publication.*license needs one line"),
        ({"license": "x" * 501}, r"publication.*license needs one line of at most 500"),
        ({"licence": "CC0"}, r"publication\.licence is an unknown key; did you mean 'license'"),
    ],
)
def test_unusable_statements_are_refused(stated: dict[str, object], message: str) -> None:
    content = {"network": {"name": "valley"}, "feed": [{"name": "t", "files": "*.csv", "format": "csv"}]}
    with pytest.raises(InvalidDeployment, match=rf"(?s)deployment\.toml: {message}"):
        from_mapping({**content, "publication": stated})
