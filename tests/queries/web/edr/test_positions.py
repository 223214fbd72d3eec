"""Several positions in a surface are one query: each value is that of its position alone, and limits are of the sum."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
import xarray as xr
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.result_names import by_role, value_of
from hypergrid.topology import Grid, grid
from hypergrid.topology.space import grid_json
from queries.jobs.admission import Limits
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from queries.web.auth.access import Access, CallerLimits, Rules
from queries.web.auth.keys import KeyStore

Document = dict[str, Any]
AIR: Final = "air_temperature"
CELLS: Final = {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": [10, 12]}
MODEL: Final = {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05}
WEST, SOUTH, EAST, NORTH = 7 + 637 / 3600, 45 + 3121 / 3600, 7 + 649 / 3600, 45 + 3131 / 3600
KINDS: Final[dict[str, list[Document]]] = {
    "block": [{"method": "ordinary_kriging", "params": {"variogram": MODEL, "support": "block"}}],
    "neighbours": [{"method": "ordinary_kriging", "params": {"variogram": MODEL, "neighbours": 3}}],
    "radius": [{"method": "inverse_distance", "params": {"neighbours": 3, "radius_m": 200.0}}],
    "universal": [{"method": "universal_kriging", "params": {"variogram": MODEL}}],
}
"""Saved surfaces beside those of the folder, by their interpolation."""


@pytest.fixture(scope="session")
def documents(surfaces: dict[str, Document]) -> dict[str, Document]:
    hourly = surfaces["hourly"]
    found = {
        name: {**hourly, "steps": [hourly["steps"][0], *({"op": "interpolate", "grid": CELLS} | one for one in steps)]}
        for name, steps in KINDS.items()
    }
    quarters = [{"op": "aggregate", "function": "mean", "lon": "3arcsec", "lat": "5arcsec"}]
    normal = {**hourly["steps"][1], "params": {"variogram": {**MODEL, "range_m": 400.0}}}
    merged = {
        "op": "merge",
        "function": "difference",
        "with": [{"variable": AIR, "steps": [hourly["steps"][0], normal]}],
    }
    found["quarters"] = {**hourly, "steps": [*hourly["steps"], *quarters]}
    found["merged"] = {**hourly, "steps": [*hourly["steps"], merged]}
    return {**surfaces, **found}


@pytest.fixture(scope="session")
def folder(documents: dict[str, Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("positions")
    for name, document in documents.items():
        (made / f"{name}.json").write_text(json.dumps(document), "utf-8")
    return made


class CountingRunner(Runner):
    """Counts what is submitted."""

    submitted = 0

    def submit(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - of the runner
        self.submitted += 1
        return super().submit(*args, **more)


@pytest.fixture(scope="session")
def counted(archive: hg.OpenArchive, folder: Path) -> Iterator[tuple[httpx.Client, CountingRunner]]:
    runner = CountingRunner(archive)
    with TestClient(create_app(runner, Catalogue(archive, saved=folder)), base_url="http://127.0.0.1/edr/") as client:
        yield client, runner


def ask(client: httpx.Client, name: str, places: list[tuple[float, float]], **more: str) -> httpx.Response:
    text = ",".join(f"({lon!r} {lat!r})" for lon, lat in places)
    return client.get(f"collections/{name}/position", params={"coords": f"MULTIPOINT({text})", **more})


def ranges(answer: httpx.Response) -> list[dict[str, list[float | None]]]:
    """Return the values of each coverage of an answer, by parameter."""
    assert answer.status_code == 200, answer.text
    document = answer.json()
    held = document.get("coverages", [document])
    return [{key: one["values"] for key, one in coverage["ranges"].items()} for coverage in held]


def alone(document: Document, cells: Grid, lon: float, lat: float) -> tuple[Document, Document]:
    """Return the query of the grid moved so that a position is a cell's centre, and the clip of this cell."""
    axes, clip = [], {}
    for axis, at in ((cells.y, lat), (cells.x, lon)):
        number = int(np.clip((round(at * 3.6e9) - axis.origin) // axis.step, 0, axis.count - 1))
        moved = replace(axis, origin=round(at * 3.6e9) - axis.length // 2 - number * axis.step)
        axes.append(moved)
        corner = moved.origin + number * axis.step
        clip[axis.name] = [f"{edge / 1e6:.6f}arcsec" for edge in (corner, corner + 1)]

    def with_grid(query: Document) -> Document:
        steps = []
        for step in query["steps"]:
            changed = dict(step)
            if "grid" in step:
                z = {"z": step["grid"]["z"]} if "z" in step["grid"] else {}
                changed["grid"] = {**grid_json(Grid(*axes)), **z}
            if "with" in step:
                changed["with"] = [with_grid(other) for other in step["with"]]
            steps.append(changed)
        return {**query, "steps": steps}

    return with_grid(document), {"time": document["clip"]["time"], **clip}


NAMES: Final = ("hourly", "levels", "whole", "distance", "fitted", "difference", "part", "merged", *KINDS)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=4, deadline=None)
def test_each_position_is_the_cell_of_which_it_is_the_centre(
    counted: tuple[httpx.Client, CountingRunner],
    archive: hg.OpenArchive,
    documents: dict[str, Document],
    name: str,
    data: st.DataObject,
) -> None:
    client, runner = counted
    west, south, east, north = (WEST, SOUTH, EAST, NORTH)
    if name == "part":
        west, south, east, north = (7 + 639 / 3600, 45 + 3123 / 3600, 7 + 645 / 3600, 45 + 3129 / 3600)
    share = st.floats(0.001, 0.999)
    drawn = data.draw(st.lists(st.tuples(share, share), min_size=1, max_size=5))
    places = [(west + x * (east - west), south + y * (north - south)) for x, y in drawn]
    places += places[:1]
    before = runner.submitted
    # One more lies outside.
    found = ranges(ask(client, name, [*places, (9.0, 45.87)]))
    assert runner.submitted == before + 1
    document, expected = documents[name], []
    for lon, lat in places:
        query, clip = alone(document, grid(**CELLS), lon, lat)
        asked = archive.query({**query, "clip": clip})
        dataset = by_role((asked.with_variance() if f"{AIR}_variance" in found[0] else asked).compute())
        # Parameters are called by the variable that is asked for, also where a merge makes another of it.
        roles = {key: "value" if key == AIR else key.removeprefix(f"{AIR}_") for key in found[0]}
        values = {key: dataset[roles[key]].to_numpy()[..., 0, 0].reshape(dataset.sizes["time"], -1) for key in roles}
        levels = next(iter(values.values())).shape[1]
        expected += [{key: one[:, level] for key, one in values.items()} for level in range(levels)]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for key, listed in other.items():
            np.testing.assert_allclose(np.array(one[key], float), listed, rtol=1e-11, atol=1e-12)
    singly = [one for place in places for one in ranges(ask(client, name, [place]))]
    for one, other in zip(found, singly, strict=True):
        for key, listed in other.items():
            np.testing.assert_allclose(np.array(one[key], float), np.array(listed, float), rtol=1e-14)


@pytest.mark.parametrize("name", [*NAMES, "coarse", "quarters"])
@pytest.mark.parametrize("form", ["CoverageJSON", "GeoJSON", "CSV", "NetCDF"])
def test_every_form_holds_all_positions_and_nothing_else(
    counted: tuple[httpx.Client, CountingRunner], name: str, form: str
) -> None:
    client, _ = counted
    places = [(7.1785, 45.8680), (7.1791, 45.8684), (7.1785, 45.8680)]
    expected = ranges(ask(client, name, places))
    answer = ask(client, name, places, f=form)
    assert answer.status_code == 200, answer.text
    if form == "NetCDF":
        with xr.open_dataset(io.BytesIO(answer.content), engine="h5netcdf") as dataset:
            np.testing.assert_array_equal(dataset["lon"], [lon for lon, _ in places])
            held = value_of(dataset).transpose("point", ..., "time").to_numpy().reshape(-1, dataset.sizes["time"])
            assert dataset.attrs["featureType"] == "timeSeries"
        np.testing.assert_allclose(held, [np.array(one[AIR], float) for one in expected])
    if form == "GeoJSON":
        features = answer.json()["features"]
        assert [one["properties"]["values"] for one in features] == expected
        assert [tuple(one["geometry"]["coordinates"][:2]) for one in features] == [
            place for place in places for _ in range(len(features) // 3)
        ]
    if form == "CSV":
        rows = answer.text.splitlines()
        assert len(rows) == 1 + sum(len(one[AIR]) for one in expected)


def test_positions_in_larger_cells_are_one_query(
    counted: tuple[httpx.Client, CountingRunner], archive: hg.OpenArchive, documents: dict[str, Document]
) -> None:
    client, runner = counted
    surface = archive.query(documents["quarters"]).compute()["value"]
    lon, lat = surface["lon"].to_numpy(), surface["lat"].to_numpy()
    places = [(float(x) + 1e-5, float(y) - 1e-5) for x, y in ((lon[0], lat[0]), (lon[3], lat[1]), (lon[0], lat[0]))]
    before = runner.submitted
    found = ranges(ask(client, "quarters", places))
    assert runner.submitted == before + 1
    for one, (row, column) in zip(found, ((0, 0), (1, 3), (0, 0)), strict=True):
        np.testing.assert_allclose(np.array(one[AIR], float), surface[:, row, column], rtol=1e-12)


def test_without_a_position_in_the_surface_there_is_no_data(counted: tuple[httpx.Client, CountingRunner]) -> None:
    client, runner = counted
    before = runner.submitted
    assert ask(client, "hourly", [(9.0, 45.87), (7.178, 46.0)]).status_code == 204
    assert runner.submitted == before


@pytest.mark.parametrize("name", ["hourly", "quarters"])
def test_the_limits_of_those_without_a_key_are_of_all_positions_together(
    archive: hg.OpenArchive, folder: Path, tmp_path: Path, name: str
) -> None:
    """Each position alone has four cells; 24 of them have more than 40."""
    store = KeyStore(tmp_path / "keys.sqlite")
    store.create("somebody", "read", now_ns=1)
    # One cell of the surface "quarters" in each of a third and a half of its columns and rows.
    places = [(WEST + (column + 0.5) * (EAST - WEST) / 4, SOUTH + (row + 0.5) * (NORTH - SOUTH) / 3)
              for row in range(3) for column in range(4)]  # fmt: skip
    rules = Rules(anonymous=CallerLimits(1000.0, 10, Limits(cells=20)), anonymous_read=True)
    app = create_app(Runner(archive), Catalogue(archive, saved=folder), access=Access(store, lambda: 2, rules))
    with TestClient(app, base_url="http://127.0.0.1/edr/") as client:
        for place in places:
            assert ask(client, name, [place]).status_code == 200
        refused = ask(client, name, places)
    assert refused.status_code == 413
    assert refused.json()["projected"] > refused.json()["allowed"] == 20
    store.close()
