"""`ground`: relief and contours below a map, from the archive's elevation layer."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.encoded_arrays import decode
from hypergrid.layers.ground import make_ground
from hypergrid.layers.layer import Layer
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.serving import SharedServer

EDGES: dict[str, Any] = {"west": 7.1, "east": 7.3, "south": 45.8, "north": 45.95, "width": 64}


def test_without_a_layer_there_is_nothing_and_no_error(client: httpx.Client) -> None:
    answer = client.get("/api/v1/ground", params=EDGES)
    assert answer.status_code == 200
    assert answer.json() == {
        "layer": None, "unit": None, "shape": None, "shade": None, "interval": None, "contours": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"west": 7.3}, 400), ({"south": 46.0}, 400), ({"north": "nan"}, 422), ({"width": 5000}, 422),
        ({"east": ""}, 422), ({"west": 7.3 - 1e-9}, 400), ({"depth": 3}, 400),
    ],
)  # fmt: skip
def test_extents_that_are_none_are_refused(client: httpx.Client, changes: dict[str, Any], status: int) -> None:
    answer = client.get("/api/v1/ground", params=EDGES | changes)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_ground_is_that_of_the_layer_and_is_made_once(
    archive: hg.OpenArchive,
    make_runner: Callable[..., Runner],
    shared: SharedServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    made: list[tuple[float, ...]] = []

    def count(layer: Layer, extent: Any, *, columns: int) -> Any:  # noqa: ANN401
        made.append(extent)
        return make_ground(layer, extent, columns=columns)

    monkeypatch.setattr("queries.web.routes.ground.make_ground", count)
    lon, lat = np.linspace(7.0, 7.4, 81), np.linspace(45.7, 46.0, 61)
    layer = Layer("elevation", lon, lat, 1500.0 + 4000.0 * (np.add.outer(lat - 45.7, lon - 7.0)), "m")
    path = Path(shutil.copytree(archive.path, tmp_path / "archive"))
    Archive.open(path).add_layer(layer, now_ns=10**18)
    mountains = hg.open(path)
    app = create_app(make_runner(mountains), Catalogue(mountains))
    with shared.serving(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        first = client.get("/api/v1/ground", params=EDGES)
        body = first.json()
        assert (body["layer"], body["unit"]) == ("elevation", "m")
        west, east, south, north = (EDGES[side] for side in ("west", "east", "south", "north"))
        expected = make_ground(layer, (west, south, east, north), columns=64)
        np.testing.assert_array_equal(decode(body["shade"], "u1", body["shape"]), expected.shade)
        assert body["interval"] == expected.interval_m
        assert {line["level"] for line in body["contours"]} == {contour.level_m for contour in expected.contours}
        for line in body["contours"]:
            heights = 1500.0 + 4000.0 * (np.array(line["y"]) - 45.7 + np.array(line["x"]) - 7.0)
            np.testing.assert_allclose(heights, line["level"], atol=body["interval"] / 4)
        assert client.get("/api/v1/ground", params=EDGES).json() == body
        again = client.get("/api/v1/ground", params=EDGES, headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304
        assert len(made) == 1
        Archive.open(path).add_layer(Layer("elevation", lon, lat, layer.values - 1000.0, "m"), now_ns=2 * 10**18)
        lower = client.get("/api/v1/ground", params=EDGES).json()
        assert len(made) == 2
        assert min(line["level"] for line in lower["contours"]) < min(line["level"] for line in body["contours"])
