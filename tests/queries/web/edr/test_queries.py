"""What EDR answers is what the archive holds and what Python computes, whichever query and form asks for it."""

import io
import itertools
import json
from pathlib import Path
from typing import Any

import h5netcdf
import httpx
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from covjson_pydantic.coverage import Coverage, CoverageCollection
from fastapi.testclient import TestClient

import hypergrid as hg
from hypergrid.core.publication import Publication
from hypergrid.core.times import DAY_NS, SECOND_NS, format_instant, parse_instant
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from queries.web.edr.asked import read_times
from queries.web.edr.metadata import describe
from queries.web.edr.surfaces import collection_of

Document = dict[str, Any]
AIR = "air_temperature"
START = parse_instant("2007-10-01")
BOX = "7.1769,45.8669,7.1804,45.8698"


def get(edr: httpx.Client, path: str, **params: str) -> httpx.Response:
    answer = edr.get(f"collections/{path}", params={name.replace("_", "-"): text for name, text in params.items()})
    assert answer.status_code == 200, answer.text
    return answer


def coverages(answer: httpx.Response) -> list[Document]:
    """Return the coverages of an answer that the model of CoverageJSON accepts."""
    assert answer.headers["content-type"] == "application/vnd.cov+json"
    document: Document = answer.json()
    if document["type"] == "Coverage":
        Coverage.model_validate_json(answer.content)
        return [document]
    CoverageCollection.model_validate_json(answer.content)
    return list(document["coverages"])


def values(coverage: Document, key: str = AIR) -> np.ndarray:
    held = coverage["ranges"][key]
    return np.array([np.nan if one is None else one for one in held["values"]], float).reshape(held["shape"])


def of_station(archive: hg.OpenArchive, name: str, variable: str = AIR) -> dict[str, float]:
    """Return what the archive holds of a station, reading by reading."""
    readings = archive.store.read(variable)
    return {
        format_instant(int(stamp)): float(value)
        for index, stamp, value in zip(readings.index, readings.time_ns, readings.value, strict=True)
        if readings.series[index].station == name
    }


def told(coverage: Document) -> dict[str, float]:
    texts = [format_instant(parse_instant(text)) for text in coverage["domain"]["axes"]["t"]["values"]]
    return dict(zip(texts, values(coverage).tolist(), strict=True))


# Stations


@pytest.mark.parametrize("name", ["1", "4"])
def test_a_position_at_a_station_is_what_the_archive_holds_of_it(
    edr: httpx.Client, archive: hg.OpenArchive, name: str
) -> None:
    place = archive.stations[name].position
    (found,) = coverages(get(edr, "stations/position", coords=f"POINT({place.lon} {place.lat})"))
    assert found["id"] == name
    assert found["hypergrid:station"] == f"Station {name}"
    assert found["hypergrid:distance_m"] == 0.0
    assert found["domain"]["domainType"] == "PointSeries"
    assert found["domain"]["axes"]["x"]["values"] == [place.lon]
    assert told(found) == of_station(archive, name)
    (same,) = coverages(get(edr, f"stations/locations/{name}"))
    assert told(same) == told(found)


def test_a_position_between_stations_gets_the_nearest_and_its_distance(
    edr: httpx.Client, archive: hg.OpenArchive
) -> None:
    lon, lat = 7.1790, 45.8680
    (found,) = coverages(get(edr, "stations/position", coords=f"POINT({lon} {lat})"))
    metres = {}
    for name, station in archive.stations.items():
        at = station.position
        east = np.radians(at.lon - lon) * np.cos(np.radians(lat)) * 6_371_008.8
        north = np.radians(at.lat - lat) * 6_371_008.8
        metres[name] = float(np.hypot(east, north))
    nearest = min((name for name in metres if np.isfinite(metres[name])), key=lambda name: metres[name])
    assert found["id"] == nearest
    assert found["hypergrid:distance_m"] == pytest.approx(metres[nearest], abs=0.2)


def test_several_points_get_a_station_each(edr: httpx.Client) -> None:
    answer = get(edr, "stations/position", coords="MULTIPOINT((7.1772 45.8672),(7.1805 45.8701),(7.17721 45.8672))")
    assert [one["id"] for one in coverages(answer)] == ["1", "5"]


TIMES = [
    ("2007-10-01T01:00:00Z", lambda at: at == 3600),
    ("2007-10-01T01:00:00+00:00", lambda at: at == 3600),
    ("2007-10-01T01:00:00Z/2007-10-01T02:00:00Z", lambda at: 3600 <= at <= 7200),
    ("../2007-10-01T00:30:00Z", lambda at: at <= 1800),
    ("2007-10-01T11:00:00Z/..", lambda at: at >= 39600),
    ("2007-10-01T01:00:00Z,2007-10-01T02:00:00Z,2007-10-01T03:00:00Z/2007-10-01T03:10:00Z",
     lambda at: at in (3600, 7200) or 10800 <= at <= 11400),
    ("2007-10-01", lambda at: 0 <= at < 86400),
    ("2007-10", lambda _at: True),
    ("2007/2007-10-01T00:30:00Z", lambda at: at <= 1800),
    ("../..", lambda _at: True),
    ("R4/2007-10-01T01:00:00Z/PT1H", lambda at: at in (3600, 7200, 10800, 14400)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "keep"), TIMES)
def test_times_are_chosen(edr: httpx.Client, archive: hg.OpenArchive, text: str, keep: Any) -> None:  # noqa: ANN401
    (found,) = coverages(get(edr, "stations/locations/2", datetime=text))
    everything = of_station(archive, "2")
    wanted = {at: value for at, value in everything.items() if keep((parse_instant(at) - START) / SECOND_NS)}
    assert wanted
    assert told(found) == wanted


def test_a_day_a_month_and_a_year_are_all_of_it() -> None:
    for text, first, after in (
        ("2007-10-01", "2007-10-01", "2007-10-02"),
        ("2008-02", "2008-02-01", "2008-03-01"),
        ("2007", "2007-01-01", "2008-01-01"),
        ("2007-10-01/2007-10-02", "2007-10-01", "2007-10-03"),
    ):
        assert read_times(text).parts == ((parse_instant(first), parse_instant(after) - 1),)
    midnight = parse_instant("2007-10-01")
    assert read_times("2007-10-01T00:00:00Z").parts == ((midnight, midnight),)
    assert read_times("2007-09-30T24:00:00Z").parts == ((midnight, midnight),)
    assert read_times("R2/2007-10-01/P1D").parts[1] == (midnight + DAY_NS, midnight + DAY_NS)


def test_a_day_of_a_surface_is_all_of_its_cells(edr: httpx.Client) -> None:
    where = {"coords": "POINT(7.178 45.8675)"}
    (whole,) = coverages(get(edr, "hourly/position", **where))
    for text in ("2007-10-01", "2007", "../.."):
        (found,) = coverages(get(edr, "hourly/position", **where, datetime=text))
        assert told(found) == told(whole)
    (one,) = coverages(get(edr, "hourly/position", **where, datetime="2007-10-01T00:00:00Z"))
    assert list(told(one)) == list(told(whole))[:1]
    assert edr.get("collections/hourly/position", params=where | {"datetime": "2007-10-02"}).status_code == 204


def test_areas_and_cubes_hold_the_stations_inside(edr: httpx.Client) -> None:
    triangle = "POLYGON((7.177 45.867,7.1789 45.867,7.177 45.871,7.177 45.867))"
    assert {one["id"] for one in coverages(get(edr, "stations/area", coords=triangle))} == {"1", "4"}
    west = "7.177,45.867,7.179,45.871"
    assert {one["id"] for one in coverages(get(edr, "stations/cube", bbox=west))} == {"1", "3", "4"}
    near_one = "((7.177 45.867,7.1775 45.867,7.1775 45.868,7.177 45.867))"
    two = f"MULTIPOLYGON({near_one},((7.18 45.87,7.181 45.87,7.18 45.871,7.18 45.87)))"
    assert {one["id"] for one in coverages(get(edr, "stations/area", coords=two))} == {"1", "5"}
    around = "170,45,7.1775,46"
    assert {one["id"] for one in coverages(get(edr, "stations/cube", bbox=around))} == {"1", "4"}


def test_stations_in_every_form(edr: httpx.Client, archive: hg.OpenArchive) -> None:
    expected = of_station(archive, "3")
    table = pd.read_csv(io.StringIO(get(edr, "stations/locations/3", f="CSV").text), float_precision="round_trip")
    assert {
        format_instant(parse_instant(at)): value for at, value in zip(table["start"], table["value"], strict=True)
    } == expected
    with h5netcdf.File(io.BytesIO(get(edr, "stations/locations/3", f="netcdf").content), "r") as file:
        stamps = [format_instant(int(one) * 1000) for one in file["time"][:]]
        assert dict(zip(stamps, file[AIR][:].tolist(), strict=True)) == expected
    (feature,) = get(edr, "stations/locations/3", f="GeoJSON").json()["features"]
    properties = feature["properties"]
    assert {"datetime", "label", "parameter-name", "edrqueryendpoint"} <= properties.keys()
    stamps = [format_instant(parse_instant(text)) for text in properties["times"]]
    assert dict(zip(stamps, properties["values"][AIR], strict=True)) == expected


def check_parameters(answer: Document, edr: httpx.Client, collection: str, keys: set[str]) -> None:
    """Check that features say of each parameter what the collection does, and of which unit their values are."""
    known = edr.get(f"collections/{collection}").json()["parameter_names"]
    assert {one["id"] for one in answer["parameters"]} == keys
    for one in answer["parameters"]:
        assert one == known[one["id"]]
        assert one["unit"]["symbol"]["value"]
    for feature in answer["features"]:
        units = feature["properties"].get("units", {})
        assert units == {key: known[key]["unit"]["symbol"]["value"] for key in feature["properties"].get("values", {})}


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("hourly/cube?bbox=7,45,8,46", {AIR, f"{AIR}_variance", f"{AIR}_count"}),
        (f"hourly/area?coords=POLYGON((7.1 45.8,7.4 45.8,7.1 46.1,7.1 45.8))&parameter-name={AIR}", {AIR}),
        ("levels/position?coords=POINT(7.178 45.8675)", {AIR, f"{AIR}_variance", f"{AIR}_count"}),
        ("hourly/position?coords=POINT(7.178 45.8675)&parameter-name=" + f"{AIR}_variance", {f"{AIR}_variance"}),
        ("stations/cube?bbox=7,45,8,46", {AIR}),
        ("stations/items", {AIR}),
        ("stations/locations", {AIR}),
    ],
)  # fmt: skip
def test_features_tell_units_method_and_height(edr: httpx.Client, path: str, keys: set[str]) -> None:
    answer = edr.get(f"collections/{path}{'&' if '?' in path else '?'}f=GeoJSON").json()
    check_parameters(answer, edr, path.partition("/")[0], keys)
    if path.startswith("stations"):
        (one,) = answer["parameters"]
        assert one["measurementType"] == {"method": "point", "duration": "PT0S"}
        assert one["hypergrid:height_m"] == 2.0


def test_coverages_of_stations_tell_method_and_height(edr: httpx.Client) -> None:
    for answer in (
        get(edr, "stations/locations/1"),
        get(edr, "stations/cube", bbox=BOX),
        edr.get("http://127.0.0.1/api/v1/series?f=covjson&station=1"),
    ):
        one = answer.json()["parameters"][AIR]
        assert one["measurementType"] == {"method": "point", "duration": "PT0S"}
        assert one["hypergrid:height_m"] == 2.0
        assert one["unit"]["symbol"]["value"] == "Cel"


def test_locations_and_items_are_features_in_pages(edr: httpx.Client) -> None:
    for kind in ("locations", "items"):
        seen, address, pages = [], f"collections/stations/{kind}?limit=2", 0
        while address:
            page = edr.get(address).json()
            pages += 1
            assert page["numberMatched"] == 5
            assert page["numberReturned"] == len(page["features"])
            for feature in page["features"]:
                assert {"datetime", "label", "parameter-name", "edrqueryendpoint"} <= feature["properties"].keys()
                assert edr.get(feature["properties"]["edrqueryendpoint"]).status_code == 200
            seen += [feature["id"] for feature in page["features"]]
            address = next((link["href"] for link in page["links"] if link["rel"] == "next"), "")
        assert (seen, pages) == (["1", "2", "3", "4", "5"], 3)
    clamped = edr.get("collections/stations/items", params={"limit": "999999999"})
    assert len(clamped.json()["features"]) == 5
    assert {f["id"] for f in get(edr, "stations/items", bbox="7.177,45.867,7.179,45.871").json()["features"]} == {
        "1",
        "3",
        "4",
    }
    assert get(edr, "stations/items", datetime="2010-01-01T00:00:00Z/..").json()["features"] == []
    assert get(edr, "stations/items/2").json()["geometry"] == {"type": "Point", "coordinates": [7.1803, 45.8671]}


# Surfaces


@pytest.mark.parametrize("name", ["hourly", "whole", "levels", "distance", "fitted", "coarse", "difference", "part"])
def test_a_cube_of_everything_is_the_surface(
    edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document], name: str
) -> None:
    (found,) = coverages(get(edr, f"{name}/cube", bbox="7,45,8,46"))
    query = archive.query(surfaces[name])
    expected = query.compute()
    key = AIR
    np.testing.assert_allclose(values(found, key).reshape(expected["value"].shape), expected["value"], rtol=1e-12)
    assert found["domain"]["axes"]["x"]["values"] == expected["lon"].to_numpy().tolist()
    assert [parse_instant(text) for text in found["domain"]["axes"]["t"]["values"]] == expected[
        "time"
    ].to_numpy().astype(np.int64).tolist()
    if name in ("hourly", "whole", "levels", "part"):
        variance = query.with_variance().compute()["variance"].to_numpy()
        np.testing.assert_allclose(values(found, f"{key}_variance").reshape(variance.shape), variance, rtol=1e-12)
        assert found["parameterGroups"][0]["members"] == [AIR, f"{AIR}_variance"]
    else:
        assert (f"{key}_variance" in found["ranges"]) == (name in ("fitted", "coarse"))


@pytest.mark.parametrize("name", ["hourly", "fitted", "part"])
def test_a_part_of_the_cube_is_that_part_of_the_surface(
    edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document], name: str
) -> None:
    expected = archive.query(surfaces[name]).compute()
    west, south, east, north = 7.1776, 45.8675, 7.1786, 45.8682
    answer = get(
        edr,
        f"{name}/cube",
        bbox=f"{west},{south},{east},{north}",
        datetime="2007-10-01T01:30:00Z/2007-10-01T02:10:00Z",
        parameter_name=AIR,
    )
    (found,) = coverages(answer)
    lon, lat = expected["lon"].to_numpy(), expected["lat"].to_numpy()
    inside = expected["value"].isel(
        time=[1, 2],
        lat=np.flatnonzero((lat >= south) & (lat <= north)),
        lon=np.flatnonzero((lon >= west) & (lon <= east)),
    )
    assert inside.size
    assert list(found["ranges"]) == [AIR]
    np.testing.assert_allclose(values(found), inside, rtol=1e-12)


def test_a_position_at_a_cell_is_the_cell(
    edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document]
) -> None:
    expected = archive.query(surfaces["hourly"]).with_variance().compute()
    for row, column in itertools.product((0, 4, 9), (0, 7, 11)):
        lon, lat = float(expected["lon"][column]), float(expected["lat"][row])
        (found,) = coverages(get(edr, "hourly/position", coords=f"POINT({lon!r} {lat!r})"))
        assert found["domain"]["domainType"] == "PointSeries"
        cell = expected.isel(lat=row, lon=column)
        np.testing.assert_allclose(values(found), cell["value"], rtol=1e-9)
        np.testing.assert_allclose(values(found, f"{AIR}_variance"), cell["variance"], rtol=1e-6)


@pytest.mark.parametrize("name", ["hourly", "whole", "part", "fitted"])
def test_a_position_between_centres_is_interpolated_there(
    edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document], name: str
) -> None:
    """The oracle is a grid of one small cell around the position."""
    lon, lat = 7.178_123_4, 45.867_987_6
    (found,) = coverages(get(edr, f"{name}/position", coords=f"POINT({lon} {lat})"))
    side = 2e-7
    alone = {"lon": [lon - side / 2, lon + side / 2], "lat": [lat - side / 2, lat + side / 2], "step": side}
    document = json.loads(json.dumps(surfaces[name]))
    document["clip"] = {"time": document["clip"]["time"]}
    for step in document["steps"]:
        if "grid" in step:
            step["grid"] = alone
    expected = archive.query(document).with_variance().compute()
    np.testing.assert_allclose(values(found), expected["value"][:, 0, 0], rtol=1e-5)
    np.testing.assert_allclose(values(found, f"{AIR}_variance"), expected["variance"][:, 0, 0], rtol=1e-4)
    surface = archive.query(surfaces[name]).compute()["value"]
    cell = surface.sel(lon=lon, lat=lat, method="nearest").to_numpy()
    assert (np.abs(values(found) - cell) > 1e-4).all()


def test_the_reference_map_of_the_mean_has_its_variance_at_any_position(
    archive: hg.OpenArchive, tmp_path: Path
) -> None:
    reference = Path(__file__).parents[4] / "station_data" / "queries" / "mean_map.json"
    # Of the time that the small archive has: a mean over gaps has no variance.
    time = {"time": ["2007-10-01T00:00Z", "2007-10-01T06:00Z"]}
    document = {**json.loads(reference.read_text("utf-8")), "clip": time}
    # Five stations are too few to fit a variogram, and without one no variance is known.
    given = {"variogram": {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05}}
    document["steps"] = [
        {**step, "params": given} if step["op"] == "interpolate" else step for step in document["steps"]
    ]
    (tmp_path / "mean_map.json").write_text(json.dumps(document), "utf-8")
    app = create_app(Runner(archive), Catalogue(archive, saved=tmp_path))
    with TestClient(app, base_url="http://127.0.0.1/edr/") as client:
        for lon, lat in ((7.1781, 45.8683), (7.178_123_4, 45.867_987_6)):
            (found,) = coverages(get(client, "mean_map/position", coords=f"POINT({lon} {lat})"))
            side = 2e-7
            alone = {"lon": [lon - side / 2, lon + side / 2], "lat": [lat - side / 2, lat + side / 2], "step": side}
            steps = [{**step, "grid": alone} if "grid" in step else step for step in document["steps"]]
            expected = archive.query({**document, "steps": steps}).with_variance().compute()
            for key, name in ((AIR, "value"), (f"{AIR}_variance", "variance")):
                np.testing.assert_allclose(values(found, key), expected[name][:, 0, 0], rtol=1e-4)
            assert (values(found, f"{AIR}_variance") > 0).all()


def test_of_a_mean_from_neighbours_no_variance_is_known(archive: hg.OpenArchive, surfaces: dict[str, Document]) -> None:
    document = json.loads(json.dumps(surfaces["whole"]))
    document["steps"][1]["params"]["neighbours"] = 3
    found = collection_of("near", document, archive)
    assert found is not None
    assert list(found.parameters) == [AIR, f"{AIR}_count"]
    assert found.refusal == "the variance of a mean is known for ordinary_kriging from all stations only"
    assert found.refusal in describe("http://127.0.0.1/edr", found, Publication())["description"]


def test_several_positions_at_once(edr: httpx.Client) -> None:
    places = [(7.1780, 45.8675), (7.1795, 45.8690), (9.0, 45.8690)]
    coords = ",".join(f"({lon} {lat})" for lon, lat in places)
    found = coverages(get(edr, "hourly/position", coords=f"MULTIPOINT({coords})"))
    alone = [coverages(get(edr, "hourly/position", coords=f"POINT({lon} {lat})"))[0] for lon, lat in places[:2]]
    assert [one["domain"]["axes"]["x"]["values"] for one in found] == [[lon] for lon, _ in places[:2]]
    for one, expected in zip(found, alone, strict=True):
        np.testing.assert_array_equal(values(one), values(expected))
    dataset = xr.open_dataset(
        io.BytesIO(get(edr, "hourly/position", coords=f"MULTIPOINT({coords})", f="NetCDF").content), engine="h5netcdf"
    )
    np.testing.assert_array_equal(dataset[AIR].transpose("point", ...), [values(one) for one in found])
    np.testing.assert_array_equal(dataset["lon"], [lon for lon, _ in places[:2]])
    table = pd.read_csv(io.StringIO(get(edr, "hourly/position", coords=f"MULTIPOINT({coords})", f="CSV").text))
    assert len(table) == 2 * 4
    features = get(edr, "hourly/position", coords=f"MULTIPOINT({coords})", f="GeoJSON").json()["features"]
    assert [feature["geometry"]["coordinates"] for feature in features] == [[lon, lat] for lon, lat in places[:2]]


def test_a_position_of_larger_cells_is_the_cell_around_it(
    edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document]
) -> None:
    (found,) = coverages(get(edr, "coarse/position", coords="POINT(7.178 45.8675)"))
    np.testing.assert_allclose(values(found), archive.query(surfaces["coarse"]).compute()["value"][:, 0, 0], rtol=1e-12)


def test_levels_are_chosen_by_z(edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document]) -> None:
    expected = archive.query(surfaces["levels"]).compute()["value"]
    for text, levels in (
        ("2350", [0]),
        ("2350/2450", [0, 1]),
        ("../2350", [0]),
        ("R2/2350/100", [0, 1]),
        ("2450,2460", [1]),
    ):
        (found,) = coverages(get(edr, "levels/cube", bbox="7,45,8,46", z=text))
        assert found["domain"]["axes"]["z"]["values"] == [[2350.0, 2450.0][level] for level in levels]
        np.testing.assert_allclose(values(found).reshape(expected[:, levels].shape), expected[:, levels], rtol=1e-12)
    six = coverages(get(edr, "levels/cube", bbox="7,45,2410,8,46,2490"))
    assert six[0]["domain"]["axes"]["z"]["values"] == [2450.0]
    at = coverages(get(edr, "levels/position", coords="POINT Z (7.178 45.8675 2350)"))
    assert [one["domain"]["axes"]["z"]["values"] for one in at] == [[2350.0]]
    one_height = "MULTIPOINT Z ((7.178 45.8675 2350),(7.179 45.8675 2350))"
    pair = coverages(get(edr, "levels/position", coords=one_height))
    assert [one["domain"]["axes"]["z"]["values"] for one in pair] == [[2350.0], [2350.0]]
    two_heights = one_height.replace("2350", "2450", 1)
    refused = edr.get("collections/levels/position", params={"coords": two_heights})
    assert (refused.status_code, "got 2 heights" in refused.json()["detail"]) == (400, True)
    assert coverages(get(edr, "levels/position", coords=two_heights, z="2450"))
    # A surface without levels is the same at every height.
    assert len(coverages(get(edr, "hourly/position", coords=two_heights))) == 2
    both = coverages(get(edr, "levels/position", coords="POINT(7.178 45.8675)"))
    assert [one["domain"]["axes"]["z"]["values"] for one in both] == [[2350.0], [2450.0]]


def test_an_area_is_masked(edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document]) -> None:
    expected = archive.query(surfaces["hourly"]).compute()
    triangle = [(7.1770, 45.8670), (7.1800, 45.8670), (7.1770, 45.8696)]
    text = ",".join(f"{lon} {lat}" for lon, lat in [*triangle, triangle[0]])
    (found,) = coverages(get(edr, "hourly/area", coords=f"POLYGON(({text}))"))
    axes = found["domain"]["axes"]
    lookup = {
        (lon, lat): (i, j)
        for i, lat in enumerate(expected["lat"].to_numpy())
        for j, lon in enumerate(expected["lon"].to_numpy())
    }
    seen = 0
    for (i, lat), (j, lon) in itertools.product(enumerate(axes["y"]["values"]), enumerate(axes["x"]["values"])):
        # Below the long side, above the two others.
        inside = lon >= 7.1770 and lat >= 45.8670 and (lon - 7.1770) / 0.0030 + (lat - 45.8670) / 0.0026 <= 1
        row, column = lookup[lon, lat]
        cell = values(found)[:, i, j]
        np.testing.assert_allclose(
            cell, expected["value"][:, row, column] if inside else np.full(4, np.nan), rtol=1e-12
        )
        seen += inside
    assert seen > 20


def test_an_area_smaller_than_a_cell_is_that_cell(
    edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document]
) -> None:
    expected = archive.query(surfaces["hourly"]).compute()
    lon, lat = float(expected["lon_bounds"][3, 0]) + 2e-5, float(expected["lat_bounds"][5, 0]) + 2e-5
    corner = f"{lon} {lat}"
    (found,) = coverages(
        get(edr, "hourly/area", coords=f"POLYGON(({corner},{lon + 1e-5} {lat},{lon} {lat + 1e-5},{corner}))")
    )
    np.testing.assert_allclose(values(found).ravel(), expected["value"][:, 5, 3], rtol=1e-12)


def test_surfaces_in_every_form(edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Document]) -> None:
    expected = archive.query(surfaces["hourly"]).compute()["value"].to_numpy()
    netcdf = xr.open_dataset(io.BytesIO(get(edr, "hourly/cube", bbox=BOX, f="NetCDF").content), engine="h5netcdf")
    table = pd.read_csv(io.StringIO(get(edr, "hourly/cube", bbox=BOX, f="CSV").text), float_precision="round_trip")
    features = get(edr, "hourly/cube", bbox=BOX, f="GeoJSON").json()["features"]
    np.testing.assert_allclose(netcdf[AIR], expected)
    np.testing.assert_allclose(table["value"], expected.ravel())
    np.testing.assert_allclose([one["properties"]["values"][AIR] for one in features], expected.reshape(4, -1).T)


def test_an_instance_is_a_snapshot(edr: httpx.Client, archive: hg.OpenArchive) -> None:
    listed = get(edr, "hourly/instances").json()["instances"]
    assert [one["id"] for one in listed][0] == archive.snapshot
    root = f"hourly/instances/{archive.snapshot}"
    assert get(edr, root).json()["id"] == archive.snapshot
    (now,) = coverages(get(edr, "hourly/position", coords="POINT(7.178 45.8675)"))
    (then,) = coverages(get(edr, f"{root}/position", coords="POINT(7.178 45.8675)"))
    np.testing.assert_array_equal(values(now), values(then))
    assert get(edr, f"stations/instances/{archive.snapshot}/locations").json()["numberMatched"] == 5


@pytest.mark.parametrize(
    "path",
    [
        "stations/position?coords=POINT(7.18 45.87)&datetime=2010-01-01T00:00:00Z",
        "stations/area?coords=POLYGON((0 0,1 0,1 1,0 0))",
        "stations/cube?bbox=0,0,1,1",
        "stations/locations/1?datetime=../2000-01-01T00:00:00Z",
        "hourly/position?coords=POINT(9 45.87)",
        "hourly/position?coords=POINT(7.178 45.8675)&datetime=2010-01-01T00:00:00Z",
        "hourly/area?coords=POLYGON((0 0,1 0,1 1,0 0))",
        "hourly/cube?bbox=0,0,1,1",
        "levels/cube?bbox=7,45,8,46&z=9000",
    ],
)
def test_no_data_is_204(edr: httpx.Client, path: str) -> None:
    answer = edr.get(f"collections/{path}")
    assert (answer.status_code, answer.content) == (204, b"")
