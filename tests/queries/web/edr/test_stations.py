"""Stations that end, begin later, or stand far away: listed for, and asked at, the times and places that they have."""

from collections.abc import Iterator
from typing import Literal

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app

AIR, RAIN = "air_temperature", "rain_meter"
START_NS = parse_instant("2007-10-01")
HOUR_S = 3600
PLACES = {"1": ("Combe", 7.18, 45.87), "2": ("", 7.19, 45.87), "13": ("Dead", 7.17, 45.86)}


def write(archive: Archive, number: int, variable: str, rows: list[tuple[str, float, int]], interval_s: float) -> None:
    """Commit readings: station, hours after the start, flag; of the interval that their stamp ends, 0: of instants."""
    names = list(dict.fromkeys(name for name, *_ in rows))
    stamp: Literal["instant", "end"] = "end" if interval_s else "instant"
    series = tuple(Series(variable, name, interval_s=interval_s or 60.0, stamp=stamp) for name in names)
    index = np.array([names.index(name) for name, *_ in rows], np.int32)
    time_ns = np.array([START_NS + round(hours * HOUR_S) * SECOND_NS for _, hours, _ in rows], np.int64)
    flag = np.array([flag for *_, flag in rows], np.uint8)
    with archive.commit(batch=str(number), message="", now_ns=START_NS + number) as writer:
        writer.stations(
            [Station(key, name, (Position(None, lon, lat, 2400.0),)) for key, (name, lon, lat) in PLACES.items()]
        )
        writer.readings(Readings(series, index, time_ns, np.full(len(rows), 1.5), flag, time_ns))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    path = tmp_path_factory.mktemp("ending") / "archive"
    variables = [KNOWN_VARIABLES[name] for name in (AIR, RAIN)]
    made = Archive.create(path, name="made", slice_s=60, variables=variables, now_ns=START_NS)
    write(made, 0, AIR, [("1", hours / 2, 1) for hours in range(96)], 600.0)
    # What station 13 brings on the second day cannot be used, so that it is not served.
    write(made, 1, AIR, [("13", hours, 1 if hours <= 6 else 4) for hours in range(30)], 600.0)
    write(made, 2, RAIN, [("13", hours, 1) for hours in (20, 21)] + [("2", 40, 1)], 0.0)
    return made


@pytest.fixture(scope="module")
def edr(archive: Archive) -> Iterator[httpx.Client]:
    opened = hg.open(archive.path)
    app = create_app(Runner(opened), Catalogue(opened))
    with TestClient(app, base_url="http://127.0.0.1/edr/", raise_server_exceptions=True) as client:
        yield client


def listed(edr: httpx.Client, query: str) -> set[str]:
    return {one["id"] for one in edr.get(f"collections/stations/locations?{query}").json()["features"]}


LISTED = [
    # datetime, variable, who has data
    ("2007-10-01", AIR, {"1", "13"}),
    ("2007-10-01T05:55:00Z", AIR, {"1", "13"}),  # within the interval of the reading at 06:00
    ("2007-10-01T06:55:00Z", AIR, {"1"}),
    ("2007-10-02", AIR, {"1"}),
    ("2007-10-01T21:00:00Z", RAIN, {"13"}),  # readings of instants: the last of them
    ("2007-10-01T21:00:01Z/..", RAIN, {"2"}),
    ("2007-10-02", f"{AIR},{RAIN}", {"1", "2"}),
    ("2007-10-01T00:00:00Z,2007-10-02T16:00:00Z", RAIN, {"2"}),
    ("../2007-09", AIR, {"1", "13"}),  # of the interval that ends at midnight
    ("../2007-09-30T20:00:00Z", AIR, set()),
    ("../..", AIR, {"1", "13"}),
]


@pytest.mark.parametrize(("times", "names", "expected"), LISTED)
def test_who_is_listed_for_a_time_has_data_then(edr: httpx.Client, times: str, names: str, expected: set[str]) -> None:
    query = f"datetime={times}&parameter-name={names}"
    assert listed(edr, query) == expected
    for name in PLACES:
        status = edr.get(f"collections/stations/locations/{name}?{query}").status_code
        assert status == (200 if name in expected else 204)


def test_each_station_tells_its_own_time(edr: httpx.Client) -> None:
    told = {name: edr.get(f"collections/stations/items/{name}").json()["properties"]["datetime"] for name in PLACES}
    assert told == {
        "1": "2007-09-30T23:50:00Z/2007-10-02T23:30:00Z",
        "13": "2007-09-30T23:50:00Z/2007-10-01T21:00:00Z",
        "2": "2007-10-02T16:00:00Z/2007-10-02T16:00:00Z",
    }


def test_a_station_has_one_name_everywhere(edr: httpx.Client) -> None:
    for name, label in (("1", "Combe"), ("2", "2")):
        (_, lon, lat) = PLACES[name]
        at = edr.get(f"collections/stations/position?coords=POINT({lon} {lat})&f=GeoJSON").json()["features"]
        of = edr.get(f"collections/stations/locations/{name}?f=GeoJSON").json()["features"]
        item = edr.get(f"collections/stations/items/{name}").json()
        assert [one["properties"]["label"] for one in (*at, *of, item)] == [label] * 3
        assert {one["id"] for one in (*at, *of, item)} == {name}


def test_what_is_further_than_the_nearest_may_be_is_no_data(edr: httpx.Client) -> None:
    degree_km = 2 * np.pi * 6371.0088 / 360
    for km, status in ((49.9, 200), (50.1, 204), (4000, 204)):
        address = f"collections/stations/position?coords=POINT(7.18 {45.87 + km / degree_km})&parameter-name={AIR}"
        answer = edr.get(address)
        assert answer.status_code == status
        if status == 200:
            assert answer.json()["hypergrid:distance_m"] == pytest.approx(km * 1000, abs=0.2)
    both = f"MULTIPOINT((0 0),({PLACES['1'][1]} {PLACES['1'][2]}))"
    assert edr.get(f"collections/stations/position?coords={both}").json()["hypergrid:station"] == "Combe"


def test_what_is_ingested_meanwhile_is_told(edr: httpx.Client, archive: Archive) -> None:
    before = edr.get("collections/stations/instances").json()["instances"][0]["id"]
    write(archive, 9, RAIN, [("2", 60, 1)], 0.0)
    assert listed(edr, f"datetime=2007-10-03&parameter-name={RAIN}") == {"2"}
    then = edr.get(f"collections/stations/instances/{before}/locations?datetime=2007-10-03").json()
    assert then["features"] == []
