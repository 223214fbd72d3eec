"""What a network states about its data, in each description of the API."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.publication import Publication
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.units import KNOWN_VARIABLES
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.serving import SharedServer

LICENSE = "https://creativecommons.org/licenses/by/4.0/"
STATED = Publication(
    "Institute of Snow", LICENSE, creator_email="data@example.org", publisher_url="https://example.org"
)


@pytest.fixture
def stated(tmp_path: Path) -> hg.OpenArchive:
    made = Archive.create(
        tmp_path / "a", name="valley", slice_s=600, variables=[KNOWN_VARIABLES["air_temperature"]], now_ns=0
    )
    series = (Series("air_temperature", "a"),)
    readings = Readings(
        series, np.zeros(1, np.int32), np.zeros(1, np.int64), np.ones(1), np.full(1, NOT_EVALUATED, np.uint8),
        np.zeros(1, np.int64),
    )  # fmt: skip
    with made.commit(batch="said", message="said", now_ns=1) as writer:
        writer.publication(STATED)
        writer.stations([Station("a", "A", (Position(None, 7.0, 46.0, 500.0),))])
        writer.readings(readings)
    return hg.open(tmp_path / "a")


@pytest.fixture
def client(stated: hg.OpenArchive, make_runner: Callable[..., Runner], shared: SharedServer) -> Iterator[httpx.Client]:
    with shared.serving(create_app(make_runner(stated), Catalogue(stated))) as address:
        with httpx.Client(base_url=address) as made:
            yield made


def test_statements_stand_where_each_standard_has_them(client: httpx.Client, stated: hg.OpenArchive) -> None:
    assert client.get("/api/v1/publication").json() == {"network": "valley", **STATED.attributes()}
    for path in ("/openapi.json", "/edr/api"):
        info = client.get(path).json()["info"]
        assert info["license"] == {"name": LICENSE, "url": LICENSE}
        assert info["contact"] == {"name": "Institute of Snow", "email": "data@example.org"}
    landing = client.get("/edr").json()
    assert landing["provider"] == {"name": "Institute of Snow", "url": "https://example.org"}
    assert landing["contact"] == {"email": "data@example.org"}
    collection = client.get("/edr/collections/stations").json()
    assert collection["attribution"] == f"Institute of Snow; {LICENSE}"
    for document in (landing, collection):
        assert [link["href"] for link in document["links"] if link["rel"] == "license"] == [LICENSE]
    with stated.store.commit(batch="anew", message="anew", now_ns=2) as writer:
        writer.publication(Publication())
    assert client.get("/api/v1/publication").json() == {"network": "valley"}
    assert "license" not in client.get("/openapi.json").json()["info"]
    landing = client.get("/edr").json()
    assert not {"provider", "contact"} & landing.keys()
    assert "license" not in {link["rel"] for link in landing["links"]}
