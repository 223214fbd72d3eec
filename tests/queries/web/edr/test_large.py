"""A network of thousands of stations: lists are whole where no page is asked for."""

from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from owslib.ogcapi.edr import EnvironmentalDataRetrieval

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.serving import serving

AIR = "air_temperature"
COUNT = 5_000
START_NS = parse_instant("2007-10-01")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve 5,000 stations, each of which has one reading."""
    path = tmp_path_factory.mktemp("large") / "archive"
    made = Archive.create(path, name="large", slice_s=60, variables=[KNOWN_VARIABLES[AIR]], now_ns=START_NS)
    names = [f"s{number:04}" for number in range(COUNT)]
    index, time_ns = np.arange(COUNT, dtype=np.int32), np.full(COUNT, START_NS + 60 * SECOND_NS)
    series = tuple(Series(AIR, name, 2.0) for name in names)
    readings = Readings(series, index, time_ns, index / 100.0, np.ones(COUNT, np.uint8), time_ns)
    with made.commit(batch="1", message="", now_ns=START_NS + 1) as writer:
        places = (Position(None, 7 + place % 100 / 100, 45 + place // 100 / 100, 500.0) for place in range(COUNT))
        writer.stations([Station(name, name, (place,)) for name, place in zip(names, places, strict=True)])
        writer.readings(readings)
    opened = hg.open(path)
    with serving(create_app(Runner(opened), Catalogue(opened))) as served:
        yield f"{served}/edr"


@pytest.mark.parametrize("kind", ["locations", "items"])
def test_owslib_lists_every_station(address: str, kind: str) -> None:
    client = EnvironmentalDataRetrieval(address)
    found = client.query_data("stations", kind)
    assert len({one["id"] for one in found["features"]}) == COUNT
    assert found["numberMatched"] == found["numberReturned"] == COUNT
    assert not [link for link in found["links"] if link["rel"] == "next"]
    half = client.query_data("stations", kind, bbox=[7.0, 45.0, 8.0, 45.2451])
    assert len(half["features"]) == COUNT // 2


def test_pages_lead_to_every_station(address: str) -> None:
    seen, page, pages = set[str](), f"{address}/collections/stations/locations?limit=1700", 0
    while page:
        answer = httpx.get(page, timeout=60).json()
        assert answer["numberMatched"] == COUNT
        seen |= {one["id"] for one in answer["features"]}
        page, pages = next((link["href"] for link in answer["links"] if link["rel"] == "next"), ""), pages + 1
    assert (len(seen), pages) == (COUNT, 3)
