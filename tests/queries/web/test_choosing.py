"""`latest`, `stations` and `series` are asked by station, box and CF standard name; filters narrow one another."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app

AIR, CANOPY, RAIN = "air_temperature", "canopy_temperature", "rain"
RAIN_NAME = "lwe_thickness_of_precipitation_amount"
START_NS = parse_instant("2007-10-01")
COUNT = 2_000
VARIABLES = [KNOWN_VARIABLES[AIR], Variable(CANOPY, "degC", AIR, "In the canopy"), Variable(RAIN, "mm", RAIN_NAME)]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """2,000 stations on a lattice, two at the date line, one without a position; each has three variables but those."""
    path = tmp_path_factory.mktemp("many") / "archive"
    made = Archive.create(path, name="many", slice_s=60, variables=VARIABLES, now_ns=START_NS)
    names = [f"s{number:04}" for number in range(COUNT)]
    stations = [
        Station(name, name, (Position(None, 7 + place % 50 / 100, 45 + place // 50 / 100, 500.0),))
        for place, name in enumerate(names)
    ]
    stations += [
        Station("east", "East", (Position(None, 179.5, 0.0, 1.0),)),
        Station("west, far", "West", (Position(None, -179.5, 0.0, 1.0),)),
        Station("lost", "Lost", (Position(None, np.nan, np.nan, np.nan),)),
    ]
    with made.commit(batch="1", message="", now_ns=START_NS + 1) as writer:
        writer.stations(stations)
        for variable in VARIABLES:
            having = names if variable.name != AIR else [one.id for one in stations]
            series = tuple(Series(variable.name, name, 2.0) for name in having)
            index = np.arange(len(series), dtype=np.int32)
            time_ns = np.full(len(index), START_NS + 60 * SECOND_NS)
            writer.readings(Readings(series, index, time_ns, index / 100.0, np.ones(len(index), np.uint8), time_ns))
    opened = hg.open(path)
    with TestClient(create_app(Runner(opened), Catalogue(opened)), base_url="http://127.0.0.1") as client:
        yield client


# Of the lattice: columns 0 to 2 of rows 0 and 1.
BOX = "7,45,7.02,45.01"
IN_BOX = {"s0000", "s0001", "s0002", "s0050", "s0051", "s0052"}
CHOICES: list[tuple[dict[str, Any], set[str], set[str]]] = [
    # parameters, stations, variables
    ({"station": "s0007"}, {"s0007"}, {AIR, CANOPY, RAIN}),
    ({"station": "s0007,s0009"}, {"s0007", "s0009"}, {AIR, CANOPY, RAIN}),
    ({"station": ["s0007", "s0009"]}, {"s0007", "s0009"}, {AIR, CANOPY, RAIN}),
    ({"station": "west, far"}, {"west, far"}, {AIR}),
    ({"bbox": BOX}, IN_BOX, {AIR, CANOPY, RAIN}),
    ({"bbox": "179,-1,-179,1"}, {"east", "west, far"}, {AIR}),
    ({"bbox": BOX, "station": "s0001,s0007"}, {"s0001"}, {AIR, CANOPY, RAIN}),
    ({"bbox": BOX, "standard_name": AIR}, IN_BOX, {AIR, CANOPY}),
    ({"bbox": BOX, "standard_name": f"{AIR},{RAIN_NAME}"}, IN_BOX, {AIR, CANOPY, RAIN}),
    ({"station": "s0007,east", "standard_name": RAIN_NAME}, {"s0007"}, {RAIN}),
]


@pytest.mark.parametrize(("params", "stations", "variables"), CHOICES)
def test_each_answers_with_what_is_chosen(
    web: httpx.Client, params: dict[str, Any], stations: set[str], variables: set[str]
) -> None:
    latest = web.get("/api/v1/latest", params=params).json()["features"]
    wanted = {(one["properties"]["station"], one["properties"]["variable"]) for one in latest}
    assert wanted == {(station, variable) for station in stations for variable in variables}
    rows = list(csv.DictReader(io.StringIO(web.get("/api/v1/series", params=params).text)))
    assert {(row["station"], row["variable"]) for row in rows} == wanted
    assert len(rows) == len(latest) == len(wanted)
    assert {one["id"] for one in web.get("/api/v1/stations", params=params).json()["features"]} == stations
    table = web.get("/api/v1/latest", params=params | {"f": "csv"}).text
    assert len(table.splitlines()) == 1 + len(wanted)


@pytest.mark.parametrize("path", ["latest", "stations", "series"])
@pytest.mark.parametrize(
    ("params", "status", "words"),
    [
        ({"station": "s9999"}, 404, "s9999"),
        ({"standard_name": "air_temprature"}, 404, "air_temperature"),
        ({"bbox": "1,2,3"}, 400, "west,south,east,north"),
        ({"bbox": "a,b,c,d"}, 400, "west,south,east,north"),
        ({"bbox": "nan,1,2,3"}, 400, "longitudes"),
        ({"bbox": "7,46,8,45"}, 400, "south below north"),
        ({"bbox": ""}, 400, "west,south,east,north"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    web: httpx.Client, path: str, params: dict[str, str], status: int, words: str
) -> None:
    answer = web.get(f"/api/v1/{path}", params=params)
    assert answer.status_code == status
    assert words in answer.json()["detail"]


def test_a_variable_is_named_in_one_way(web: httpx.Client) -> None:
    for path in ("latest", "series"):
        answer = web.get(f"/api/v1/{path}", params={"variable": AIR, "standard_name": AIR})
        assert answer.status_code == 400
        assert "standard_name" in answer.json()["detail"]


def test_a_box_without_stations_is_empty(web: httpx.Client) -> None:
    nowhere = {"bbox": "1,1,2,2"}
    assert web.get("/api/v1/latest", params=nowhere).json()["features"] == []
    assert web.get("/api/v1/stations", params=nowhere).json()["features"] == []
    refused = web.get("/api/v1/series", params=nowhere)
    assert refused.status_code == 404
    assert "1,1,2,2" in refused.json()["detail"]


def test_all_is_all(web: httpx.Client) -> None:
    assert len(web.get("/api/v1/stations").json()["features"]) == COUNT + 3
    assert len(web.get("/api/v1/latest").json()["features"]) == 3 * COUNT + 3


def test_other_boxes_have_other_tags(web: httpx.Client) -> None:
    for path in ("latest", "series"):
        first = web.get(f"/api/v1/{path}", params={"bbox": BOX})
        tag = {"If-None-Match": first.headers["etag"]}
        assert web.get(f"/api/v1/{path}", params={"bbox": BOX}, headers=tag).status_code == 304
        for other in ({"bbox": "7,45,7.03,45.01"}, {"bbox": BOX, "station": "s0001"}, {}):
            assert web.get(f"/api/v1/{path}", params=other, headers=tag).status_code == 200
