"""The requests of QGIS's EDR plugin, word for word: each answer holds the stations and the values of the archive.

The plugin sends `crs` and `f` with whatever it asks for, the names of a collection's lists as they are spelt there, a
range of heights from the last to the first of its list, and well-known text as QGIS writes it. It does not page.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest
import xarray as xr
from fastapi.testclient import TestClient

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, format_instant, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.queries.conftest import START_NS, STEP_S
from tests.queries.conftest import STATIONS as STATIONS_AT
from tests.queries.web.edr.test_queries import coverages, of_station, told, values

Document = dict[str, Any]
AIR, HUMIDITY, WIND = "air_temperature", "relative_humidity", "wind_speed"
COMMON = {"crs": "CRS84", "f": "CoverageJSON"}
HOUR = "2007-10-01T01:00:00Z/2007-10-01T02:00:00Z"
DAYS_BEFORE = "2007-09-01T00:00:00Z/2007-09-02T00:00:00Z"
POINT = "Point (7.17720000000000002 45.86719999999999686)"
POLYGON = "Polygon ((7.177 45.867, 7.1789 45.867, 7.1789 45.8705, 7.177 45.8705, 7.177 45.867))"
BOX = "7.177,45.867,7.179,45.871"


def instance(archive: hg.OpenArchive, path: str) -> str:
    return path.format(instance=f"instances/{archive.snapshot}")


def ask(edr: httpx.Client, path: str, words: dict[str, str]) -> httpx.Response:
    """Send what the plugin sends: a GET whose query Qt has written."""
    return edr.get(f"collections/{path}?{urlencode(words)}")


STATIONS = [
    # path, words besides the common ones, the stations that are meant
    ("stations/position", {"coords": POINT}, ["1"]),
    ("stations/{instance}/position", {"coords": POINT, "parameter-name": AIR}, ["1"]),
    ("stations/area", {"coords": POLYGON, "parameter-name": AIR}, ["1", "3", "4"]),
    ("stations/{instance}/area", {"coords": POLYGON}, ["1", "3", "4"]),
    ("stations/cube", {"bbox": BOX}, ["1", "3", "4"]),
    ("stations/{instance}/cube", {"bbox": BOX, "parameter-name": AIR}, ["1", "3", "4"]),
    ("stations/locations/2", {}, ["2"]),
    ("stations/{instance}/locations/2", {"parameter-name": AIR}, ["2"]),
    ("stations/items/3", {}, ["3"]),
    ("stations/{instance}/items/3", {"parameter-name": AIR}, ["3"]),
]


@pytest.mark.parametrize("times", [None, HOUR])
@pytest.mark.parametrize(("path", "words", "names"), STATIONS)
def test_stations_are_those_of_the_archive(
    edr: httpx.Client, archive: hg.OpenArchive, path: str, words: dict[str, str], names: list[str], times: str | None
) -> None:
    given = COMMON | words | ({} if times is None else {"datetime": times})
    found = coverages(ask(edr, instance(archive, path), given))
    first, last = (0, 2**63) if times is None else map(parse_instant, times.split("/"))
    assert [one["id"] for one in found] == names
    for one in found:
        held = of_station(archive, one["id"])
        assert told(one) == {at: value for at, value in held.items() if first <= parse_instant(at) <= last} != {}


@pytest.mark.parametrize(("path", "words", "names"), STATIONS)
def test_as_features_they_are_the_same(
    edr: httpx.Client, archive: hg.OpenArchive, path: str, words: dict[str, str], names: list[str]
) -> None:
    given = COMMON | words | {"f": "GeoJSON", "datetime": HOUR}
    answer = ask(edr, instance(archive, path), given).json()
    assert [one["id"] for one in answer["features"]] == names
    for one in answer["features"]:
        held, (first, last) = of_station(archive, one["id"]), map(parse_instant, HOUR.split("/"))
        properties = one["properties"]
        found = dict(zip(map(parse_instant, properties["times"]), properties["values"][AIR], strict=True))
        every = {parse_instant(at): value for at, value in held.items()}
        assert found == {at: value for at, value in every.items() if first <= at <= last} != {}


def of_table(content: bytes) -> dict[str, dict[str, float]]:
    """Return the values of a CSV of stations, by station and time."""
    found: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(content.decode())):
        found.setdefault(row["station"], {})[format_instant(parse_instant(row["start"]))] = float(row["value"])
    return found


def of_file(content: bytes) -> dict[str, dict[str, float]]:
    """Return the values of a NetCDF file of stations, by station and time."""
    found: dict[str, dict[str, float]] = {}
    with xr.open_dataset(io.BytesIO(content), engine="h5netcdf") as dataset:
        stamps = dataset["time"].to_numpy().astype("datetime64[ns]").astype(np.int64)
        names = dataset["station"].to_numpy()[dataset["station_index"].to_numpy()]
        for name, stamp, value in zip(names, stamps, dataset[AIR].to_numpy(), strict=True):
            found.setdefault(str(name), {})[format_instant(int(stamp))] = float(value)
    return found


@pytest.mark.parametrize(("form", "read"), [("CSV", of_table), ("NetCDF", of_file)])
@pytest.mark.parametrize(("path", "words", "names"), STATIONS)
def test_as_files_they_are_the_same(
    edr: httpx.Client,
    archive: hg.OpenArchive,
    path: str,
    words: dict[str, str],
    names: list[str],
    form: str,
    read: Callable[[bytes], dict[str, dict[str, float]]],
) -> None:
    first, last = map(parse_instant, HOUR.split("/"))
    answer = ask(edr, instance(archive, path), COMMON | words | {"f": form, "datetime": HOUR})
    assert read(answer.content) == {
        name: {at: value for at, value in of_station(archive, name).items() if first <= parse_instant(at) <= last}
        for name in names
    }


@pytest.mark.parametrize(("path", "words", "names"), STATIONS)
def test_only_what_the_archive_has_not_is_no_content(
    edr: httpx.Client, archive: hg.OpenArchive, path: str, words: dict[str, str], names: list[str]
) -> None:
    for form in ("CoverageJSON", "GeoJSON", "NetCDF", "CSV"):
        answer = ask(edr, instance(archive, path), COMMON | words | {"f": form, "datetime": DAYS_BEFORE})
        assert (answer.status_code, answer.content) == (204, b""), names


@pytest.mark.parametrize("form", ["CoverageJSON", "GeoJSON", "NetCDF", "CSV"])
@pytest.mark.parametrize("kind", ["items", "locations"])
def test_each_form_of_the_list_is_given_of_an_item(edr: httpx.Client, kind: str, form: str) -> None:
    query = edr.get("collections/stations").json()["data_queries"][kind]["link"]["variables"]
    assert form in query["output_formats"]
    answer = ask(edr, f"stations/{kind}/1", {"crs": query["crs_details"][0]["crs"], "f": form})
    assert answer.status_code == 200, answer.text
    media = {
        "CoverageJSON": "application/vnd.cov+json",
        "GeoJSON": "application/geo+json",
        "NetCDF": "application/x-netcdf",
        "CSV": "text/csv; charset=utf-8",
    }
    assert answer.headers["content-type"] == media[form]


def around(document: Document, lon: float, lat: float) -> Document:
    """Return a query on a grid of one small cell around a position."""
    made, side = json.loads(json.dumps(document)), 2e-7
    for step in made["steps"]:
        if "grid" in step:
            z = {"z": step["grid"]["z"]} if "z" in step["grid"] else {}
            lons, lats = ([at - side / 2, at + side / 2] for at in (lon, lat))
            step["grid"] = {"lon": lons, "lat": lats, "step": side, **z}
    return dict(made)


def within(surface: xr.DataArray) -> xr.DataArray:
    """Return the cells of a surface whose centres lie in the polygon."""
    return surface.sel(lon=slice(7.177, 7.1789), lat=slice(45.867, 45.8705))


LEVELS = [
    # z as it is sent, the levels that it means [m]
    ("2450/2350", [2350.0, 2450.0]),
    ("2350/2350", [2350.0]),
    ("2450,2350", [2350.0, 2450.0]),
    ("2450", [2450.0]),
    ("..", None),
    ("2450/2350/2250", None),
]


@pytest.mark.parametrize("path", ["levels/{}", "levels/{{instance}}/{}"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [("cube", {"bbox": "7,45,8,46"}), ("position", {"coords": POINT}), ("area", {"coords": POLYGON})],
)
@pytest.mark.parametrize(("z", "levels_m"), LEVELS)
def test_levels_are_those_of_the_surface(
    edr: httpx.Client,
    archive: hg.OpenArchive,
    surfaces: dict[str, Document],
    path: str,
    kind: str,
    words: dict[str, str],
    z: str,
    levels_m: list[float] | None,
) -> None:
    given = COMMON | words | {"z": z, "datetime": HOUR, "parameter-name": AIR}
    answer = ask(edr, instance(archive, path.format(kind)), given)
    if levels_m is None:
        assert answer.status_code == 400
        assert "z needs heights above sea level" in answer.json()["detail"]
        return
    found = coverages(answer)
    heights = [height for one in found for height in one["domain"]["axes"]["z"]["values"]]
    assert heights == levels_m
    document = around(surfaces["levels"], 7.1772, 45.8672) if kind == "position" else surfaces["levels"]
    expected = archive.query(document).compute()["value"].isel(time=[1, 2]).sel(z=levels_m)
    if kind != "position":
        (cube,) = found
        held = expected if kind == "cube" else within(expected)
        np.testing.assert_allclose(values(cube), held.transpose("time", "z", "lat", "lon"), rtol=1e-9)
        return
    for one, height in zip(found, levels_m, strict=True):
        np.testing.assert_allclose(values(one), expected.sel(z=height)[:, 0, 0], rtol=1e-5)


def test_a_time_that_ends_before_it_starts_stays_refused(edr: httpx.Client) -> None:
    answer = ask(edr, "stations/items/1", COMMON | {"datetime": "/".join(HOUR.split("/")[::-1])})
    assert answer.status_code == 400
    assert "does not end before it starts" in answer.json()["detail"]


SURFACES = [
    # path, words besides the common ones
    ("hourly/{}position", {"coords": POINT}),
    ("hourly/{}area", {"coords": POLYGON}),
    ("hourly/{}cube", {"bbox": "7.1769,45.8669,7.1789,45.8698"}),
]


def held_of(archive: hg.OpenArchive, document: Document, kind: str, what: str = "value") -> xr.DataArray:
    """Return what Python computes of a surface where a kind of request asks for it."""
    if kind == "position":
        return archive.query(around(document, 7.1772, 45.8672)).with_variance().compute()[what]
    surface = archive.query(document).with_variance().compute()[what]
    if kind == "cube":
        return surface.sel(lon=slice(7.1769, 7.1789), lat=slice(45.8669, 45.8698))
    return within(surface)


@pytest.mark.parametrize("times", [None, HOUR])
@pytest.mark.parametrize("prefix", ["", "{instance}/"])
@pytest.mark.parametrize(("path", "words"), SURFACES)
def test_surfaces_are_what_is_computed_of_the_archive(
    edr: httpx.Client,
    archive: hg.OpenArchive,
    surfaces: dict[str, Document],
    path: str,
    prefix: str,
    words: dict[str, str],
    times: str | None,
) -> None:
    asked = instance(archive, path.format(prefix))
    given = COMMON | words | {"parameter-name": AIR} | ({} if times is None else {"datetime": times})
    expected = held_of(archive, surfaces["hourly"], asked.rpartition("/")[2])
    expected = expected if times is None else expected.isel(time=[1, 2])
    (found,) = coverages(ask(edr, asked, given))
    np.testing.assert_allclose(values(found).ravel(), expected.to_numpy().ravel(), rtol=1e-5)
    stamps = [np.datetime64(text.removesuffix("Z"), "ns") for text in found["domain"]["axes"]["t"]["values"]]
    assert stamps == list(expected["time"].to_numpy().astype("datetime64[ns]"))


@pytest.mark.parametrize("prefix", ["", "{instance}/"])
@pytest.mark.parametrize(("path", "words"), SURFACES)
def test_surfaces_as_features_are_the_same_and_tell_their_units(
    edr: httpx.Client,
    archive: hg.OpenArchive,
    surfaces: dict[str, Document],
    path: str,
    prefix: str,
    words: dict[str, str],
) -> None:
    asked = instance(archive, path.format(prefix))
    answer = ask(edr, asked, COMMON | words | {"f": "GeoJSON", "datetime": HOUR, "parameter-name": AIR}).json()
    expected = held_of(archive, surfaces["hourly"], asked.rpartition("/")[2]).isel(time=[1, 2]).to_numpy()
    found = np.array([one["properties"]["values"][AIR] for one in answer["features"]])
    np.testing.assert_allclose(found.T.ravel(), expected.reshape(2, -1).ravel(), rtol=1e-5)
    (parameter,) = answer["parameters"]
    assert parameter["unit"]["symbol"]["value"] == "Cel"
    assert {one["properties"]["units"][AIR] for one in answer["features"]} == {"Cel"}


@pytest.mark.parametrize(("path", "words"), SURFACES)
def test_surfaces_as_files_are_the_same(
    edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document], path: str, words: dict[str, str]
) -> None:
    asked = path.format("")
    given = COMMON | words | {"datetime": HOUR, "parameter-name": AIR}
    expected = held_of(archive, surfaces["hourly"], asked.rpartition("/")[2]).isel(time=[1, 2])
    stamps = expected["time"].to_numpy().astype("datetime64[ns]")
    with xr.open_dataset(io.BytesIO(ask(edr, asked, given | {"f": "NetCDF"}).content), engine="h5netcdf") as dataset:
        np.testing.assert_allclose(dataset[AIR].to_numpy().ravel(), expected.to_numpy().ravel(), rtol=1e-5)
        assert list(dataset["time"].to_numpy()) == list(stamps)
        assert set(dataset.data_vars) - {"crs"} == {AIR}
    rows = list(csv.DictReader(io.StringIO(ask(edr, asked, given | {"f": "CSV"}).text)))
    np.testing.assert_allclose([float(row["value"]) for row in rows], expected.to_numpy().ravel(), rtol=1e-5)
    cells = expected.size // len(stamps)
    assert [np.datetime64(row["time"].removesuffix("Z"), "ns") for row in rows] == list(np.repeat(stamps, cells))
    assert not {"variance", "count"} & rows[0].keys()


@pytest.mark.parametrize(("path", "words"), SURFACES)
def test_two_parameters_of_a_surface_are_both_given_and_no_third(
    edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document], path: str, words: dict[str, str]
) -> None:
    asked = path.format("")
    given = COMMON | words | {"datetime": HOUR, "parameter-name": f"{AIR},{AIR}_variance"}
    (found,) = coverages(ask(edr, asked, given))
    table = list(csv.DictReader(io.StringIO(ask(edr, asked, given | {"f": "CSV"}).text)))
    assert list(found["ranges"]) == [AIR, f"{AIR}_variance"]
    assert "count" not in table[0]
    for what, key in (("value", AIR), ("variance", f"{AIR}_variance")):
        expected = held_of(archive, surfaces["hourly"], asked.rpartition("/")[2], what).isel(time=[1, 2]).to_numpy()
        np.testing.assert_allclose(values(found, key).ravel(), expected.ravel(), rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose([float(row[what]) for row in table], expected.ravel(), rtol=1e-5, atol=1e-9)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, hg.OpenArchive]]:
    """A client of an archive with three variables of two stations, and that archive."""
    variables = [KNOWN_VARIABLES[name] for name in (AIR, HUMIDITY, WIND)]
    path = tmp_path_factory.mktemp("three") / "archive"
    made = Archive.create(path, name="three", slice_s=STEP_S, variables=variables, now_ns=START_NS)
    places = {name: STATIONS_AT[name] for name in ("1", "2")}
    time_ns = START_NS + np.arange(90) * STEP_S * SECOND_NS
    with made.commit(batch="first", message="first readings", now_ns=START_NS) as writer:
        writer.stations([Station(name, name, (Position(None, *at, 2400.0),)) for name, at in places.items()])
        for number, one in enumerate(variables):
            series = tuple(Series(one.name, name, 2.0, interval_s=STEP_S, source="feed/t") for name in places)
            index = np.repeat(np.arange(len(series), dtype=np.int32), len(time_ns))
            value = 5.0 + 10 * number + index + np.arange(len(index)) / 1000
            flags, stamps = np.full(len(index), NOT_EVALUATED, np.uint8), np.tile(time_ns, len(series))
            writer.readings(Readings(series, index, stamps, value, flags, stamps))
    opened = hg.open(path)
    app = create_app(Runner(opened), Catalogue(opened))
    with TestClient(app, base_url="http://127.0.0.1/edr/") as client:
        yield client, opened


@pytest.mark.parametrize(
    ("path", "words", "names"),
    [("area", {"coords": POLYGON}, ["1"]), ("locations/2", {}, ["2"]), ("items/2", {}, ["2"])],
)
def test_two_parameters_of_stations_are_both_given_and_no_third(
    three: tuple[httpx.Client, hg.OpenArchive], path: str, words: dict[str, str], names: list[str]
) -> None:
    client, held = three
    given = COMMON | words | {"datetime": HOUR, "parameter-name": f"{AIR},{HUMIDITY}"}
    first, last = map(parse_instant, HOUR.split("/"))
    expected = {
        (name, key): [value for at, value in of_station(held, name, key).items() if first <= parse_instant(at) <= last]
        for name in names
        for key in (AIR, HUMIDITY)
    }
    assert all(expected.values())
    found = coverages(ask(client, f"stations/{path}", given))
    assert {(one["id"], key): values(one, key).tolist() for one in found for key in one["ranges"]} == expected
    features = ask(client, f"stations/{path}", given | {"f": "GeoJSON"}).json()["features"]
    assert {(one["id"], key): row for one in features for key, row in one["properties"]["values"].items()} == expected
    table: dict[tuple[str, str], list[float]] = {}
    for row in csv.DictReader(io.StringIO(ask(client, f"stations/{path}", given | {"f": "CSV"}).text)):
        table.setdefault((row["station"], row["variable"]), []).append(float(row["value"]))
    assert table == expected


@pytest.mark.parametrize("prefix", ["", "{instance}/"])
@pytest.mark.parametrize(("path", "words"), SURFACES)
def test_only_times_and_places_without_a_surface_are_no_content(
    edr: httpx.Client, archive: hg.OpenArchive, path: str, prefix: str, words: dict[str, str]
) -> None:
    asked = instance(archive, path.format(prefix))
    elsewhere = {
        "position": {"coords": "Point (1.5 2.5)"},
        "area": {"coords": "Polygon ((1 2, 2 2, 2 3, 1 2))"},
        "cube": {"bbox": "1,2,2,3"},
    }
    for form in ("CoverageJSON", "GeoJSON", "NetCDF", "CSV"):
        for given in (words | {"datetime": DAYS_BEFORE}, elsewhere[asked.rpartition("/")[2]]):
            answer = ask(edr, asked, COMMON | given | {"f": form})
            assert (answer.status_code, answer.content) == (204, b""), given
