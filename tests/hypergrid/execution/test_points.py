"""Points hold what single cells of their grid hold, moved so that each point is the centre of one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery
from hypergrid.formats.results import FORMATS, to_bytes
from hypergrid.topology import Grid

MODEL: Final = {"model": "exponential", "psill": 1.2, "range_m": 2500.0, "nugget": 0.05}
EXTENT: Final = {
    "lonlat": (0.05, "20arcsec", ("lon", "lat"), (7.1, 45.8)),
    "metres": (5000.0, 500, ("x", "y"), (0.0, 0.0)),
}
"""Side of a network, side of a cell, coordinates and south-western corner."""

ZONE: Final = {
    "type": "Polygon", "coordinates": [[[7.11, 45.81], [7.12, 45.81], [7.12, 45.82], [7.11, 45.81]]],
}  # fmt: skip

Step = tuple[str, dict[str, Any]]

INTERPOLATIONS: Final[dict[str, Step]] = {
    "inverse distance": ("inverse_distance", {}),
    "a few of inverse distance": ("inverse_distance", {"neighbours": 3, "radius_m": 2000.0}),
    "nearest": ("nearest", {}),
    "triangles": ("linear", {}),
    "radial": ("radial_basis", {}),
    "all stations": ("ordinary_kriging", {"variogram": MODEL}),
    "neighbours": ("ordinary_kriging", {"variogram": MODEL, "neighbours": 4}),
    "octants in a radius": ("ordinary_kriging", {
        "variogram": MODEL, "neighbours": 6, "octants": 2, "radius_m": 3000.0,
    }),
    "fitted": ("ordinary_kriging", {"variogram": "fit"}),
    "simple": ("simple_kriging", {"variogram": MODEL, "mean": 3.0}),
    "universal": ("universal_kriging", {"variogram": MODEL, "degree": 1}),
    "block": ("ordinary_kriging", {"variogram": MODEL, "support": "block"}),
    "block of neighbours": ("ordinary_kriging", {"variogram": MODEL, "support": "block", "neighbours": 5}),
    "lapse rate": ("ordinary_kriging", {"variogram": MODEL, "trend": {"lapse_rate": -6.5}}),
    "profile": ("ordinary_kriging", {"variogram": MODEL, "trend": "profile"}),
    "drift": ("external_drift_kriging", {"variogram": MODEL}),
    "block around a lapse rate": ("ordinary_kriging", {
        "variogram": MODEL, "trend": {"lapse_rate": -6.5}, "support": "block",
    }),
}  # fmt: skip
ON_LEVELS: Final = ("lapse rate", "profile", "drift", "block around a lapse rate")


def network(seed: int, system: str, stations: int) -> hg.Query:
    """Return a network with holes, and the ground under it."""
    rng = np.random.default_rng(seed)
    side, _, names, corner = EXTENT[system]
    times = pd.date_range("2020-01-01", periods=5, freq="1h")
    values = 10.0 + rng.normal(size=(5, stations))
    values[rng.random(values.shape) < 0.15] = np.nan
    at = rng.random((2, stations)) * side
    # A corner of the ground is not known.
    x, y = (first + np.linspace(-0.1, 1.1, 9) * side for first in corner)
    ground = xr.DataArray(
        500.0 + 900.0 * rng.random((9, 9)), dims=names[::-1], coords=dict(zip(names, (x, y), strict=True))
    )
    ground[:2, :2] = np.nan
    coords = {"time": times, "station": [f"s{number}" for number in range(stations)]}
    coords |= {name: ("station", first + one) for name, first, one in zip(names, corner, at, strict=True)}
    coords["elevation"] = ("station", 400.0 + 1000.0 * rng.random(stations))
    array = xr.DataArray(
        values, dims=("time", "station"), coords=coords, name="air_temperature", attrs={"units": "degC"}
    )
    return hg.base(array, layers={"elevation": ground}).aggregate("mean", time="1h")


def grid_of(system: str, z: object = None) -> Grid:
    side, step, names, corner = EXTENT[system]
    ends = {name: (first, first + side) for name, first in zip(names, corner, strict=True)}
    return hg.grid(**ends, step=step, z=z)


def moved(cells: Grid, x: float, y: float) -> tuple[Grid, dict[str, tuple[str, str]]]:
    """Return the grid moved by less than a cell, so that a position is a centre, and the clip of that cell."""
    axes, clip = [], {}
    for axis, at in ((cells.y, y), (cells.x, x)):
        per_unit = 3_600_000_000 if axis.quantum == "uas" else 1000
        number = min((round(at * per_unit) - axis.origin) // axis.step, axis.count - 1)
        origin = round(at * per_unit) - axis.length // 2 - number * axis.step
        axes.append(replace(axis, origin=origin))
        corner = origin + number * axis.step
        clip[axis.name] = tuple(
            f"{edge / 1e6:.6f}arcsec" if axis.quantum == "uas" else f"{edge / 1e3}m" for edge in (corner, corner + 1)
        )
    return Grid(*axes, cells.z), clip


def agree(found: xr.Dataset, alone: list[xr.Dataset]) -> None:
    assert found["value"].dims[-1] == "point"
    for name in ("value", "variance", "count", "count_possible", "extrapolated"):
        assert (name in found) == (name in alone[0])
        if name in found:
            expected = np.stack([one[name].to_numpy()[..., 0, 0] for one in alone], axis=-1)
            np.testing.assert_allclose(found[name], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("system", ["lonlat", "metres"])
@pytest.mark.parametrize("name", list(INTERPOLATIONS))
@given(seed=st.integers(0, 999), stations=st.sampled_from([3, 12, 30]), data=st.data())
@settings(max_examples=3, deadline=None)
def test_points_are_single_cells_of_the_grid(
    name: str, system: str, seed: int, stations: int, data: st.DataObject
) -> None:
    method, params = INTERPOLATIONS[name]
    levels = data.draw(st.booleans()) if name in ON_LEVELS else False
    cells = grid_of(system, [600.0, 900.0] if levels else None)
    side, _, names, corner = EXTENT[system]
    share = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])
    places = data.draw(st.lists(st.tuples(share, share), min_size=1, max_size=7))
    places += places[: data.draw(st.integers(0, 2))]
    x, y = (
        [first + one * side for one in column] for first, column in zip(corner, zip(*places, strict=True), strict=True)
    )
    points = hg.points(**dict(zip(names, (x, y), strict=True)), grid=cells)
    base = network(seed, system, stations)
    surface = data.draw(st.sampled_from(["plain", "mean", "sample", "with itself", "part of the time"]))

    def asked(on: Grid | hg.Points) -> hg.Query:
        query = base.interpolate(method, grid=on, **params)
        if surface == "mean":
            query = query.aggregate("mean", time="all", min_coverage=0.4)
        elif surface == "sample":
            query = query.aggregate("sample", time="2h")
        elif surface == "with itself":
            query = query.merge("difference", base.convert("scale", factor=2.0).interpolate("nearest", grid=on))
        return query

    def computed(query: hg.Query, clip: dict[str, Any]) -> xr.Dataset:
        if surface == "part of the time":
            clip = {**clip, "time": ("2020-01-01T01:00Z", "2020-01-01T03:00Z")}
        query = query.clip(**clip) if clip else query
        try:
            return query.with_variance().compute()
        except HyperGridError:
            return query.compute()

    try:
        alone = []
        for one, other in zip(x, y, strict=True):
            on, clip = moved(cells, one, other)
            alone.append(computed(asked(on), clip))
    except HyperGridError as error:
        # Too few stations for the method, a layer, or a fit: points are refused for the same reason.
        with pytest.raises(type(error)):
            computed(asked(points), {})
        return
    agree(computed(asked(points), {}), alone)


@pytest.mark.parametrize("params", [{}, {"neighbours": 8}], ids=["all stations", "neighbours"])
def test_many_points_over_a_large_network(params: dict[str, Any]) -> None:
    """Points in any order give what they give in order, and at stations, without a nugget, the readings."""
    rng = np.random.default_rng(5)
    base = network(5, "metres", 200)
    readings = base.clip(time=("2020-01-01T00:00Z", "2020-01-01T01:00Z")).compute()
    known = np.isfinite(readings["value"].to_numpy()[0])
    exact = {"variogram": {**MODEL, "nugget": 0.0}, **params}
    x, y = (readings[name].to_numpy()[known] for name in ("x", "y"))
    held = base.interpolate("ordinary_kriging", grid=hg.points(x=x, y=y, step=10), **exact).compute()["value"]
    np.testing.assert_allclose(held[0], readings["value"].to_numpy()[0, known], atol=1e-4)
    order = rng.permutation(len(x))
    mixed = hg.points(x=x[order], y=y[order], step=10)
    again = base.interpolate("ordinary_kriging", grid=mixed, **exact).compute()["value"]
    np.testing.assert_allclose(again, held[:, order], rtol=1e-11)


def test_the_grid_tells_which_stations_are_too_far_away() -> None:
    rng = np.random.default_rng(3)
    coords = {
        "time": pd.date_range("2020-01-01", periods=2, freq="1h"), "station": [*(f"s{i}" for i in range(11)), "far"],
        "x": ("station", np.append(rng.random(11) * 5000.0, 5e6)),
        "y": ("station", np.append(rng.random(11) * 5000.0, 0.0)),
    }  # fmt: skip
    array = xr.DataArray(rng.random((2, 12)), dims=("time", "station"), coords=coords, name="air_temperature")
    base, cells = hg.base(array).aggregate("mean", time="1h"), grid_of("metres")
    x, y = [100.0, 4000.0], [200.0, 3000.0]
    found = base.interpolate("inverse_distance", grid=hg.points(x=x, y=y, grid=cells)).compute()
    assert "not used (ignore_beyond_m): far" in found.attrs["comment"]
    alone = []
    for one, other in zip(x, y, strict=True):
        on, clip = moved(cells, one, other)
        alone.append(base.interpolate("inverse_distance", grid=on).clip(**clip).compute())
    agree(found, alone)


@pytest.fixture(scope="module")
def hourly() -> hg.Query:
    return network(7, "lonlat", 12)


@pytest.fixture(scope="module")
def here() -> hg.Points:
    return hg.points(lon=[7.11, 7.12, 7.12], lat=[45.81, 45.83, 45.83], step="20arcsec")


@pytest.mark.parametrize("z", [None, [600, 900]])
def test_every_form_holds_points(hourly: hg.Query, here: hg.Points, z: object, tmp_path: Path) -> None:
    at = hg.points(lon=here.x, lat=here.y, step="20arcsec", z=z)
    query = hourly.interpolate("ordinary_kriging", grid=at, variogram=MODEL, trend={"lapse_rate": -6.5}).with_variance()
    found = query.compute()
    levels = {} if z is None else {"z": 2}
    assert found["value"].sizes == {"time": 5, **levels, "point": 3}
    assert found.attrs.get("featureType") == (None if levels else "timeSeries")
    np.testing.assert_array_equal(found["lon"], [7.11, 7.12, 7.12])
    for name in FORMATS:
        if name in ("geotiff", "png"):
            continue
        assert to_bytes(found, name)
    table = pd.read_csv(pd.io.common.BytesIO(to_bytes(found, "csv")), float_precision="round_trip")
    np.testing.assert_array_equal(table["value"], found["value"].to_numpy().ravel())
    assert set(table["lon"]) == {7.11, 7.12}
    document = json.loads(to_bytes(found, "covjson"))
    assert [one["domain"]["axes"]["x"]["values"] for one in document["coverages"]] == [[7.11], [7.12], [7.12]]
    assert all(one["domain"]["axes"].keys() == {"x", "y", "t", *levels} for one in document["coverages"])
    np.testing.assert_array_equal(
        document["coverages"][1]["ranges"]["air_temperature"]["values"], found["value"][..., 1].to_numpy().ravel()
    )
    query.to_zarr(tmp_path / "points.zarr")
    xr.testing.assert_allclose(xr.open_zarr(tmp_path / "points.zarr")["air_temperature"], found["air_temperature"])
    xr.testing.assert_equal(xr.load_dataset(tmp_path / "points.zarr")["lon"], found["lon"])
    figure = hg.plot(found)
    assert figure is not None


def test_a_query_of_points_is_told_and_made_again_by_its_json(hourly: hg.Query, here: hg.Points) -> None:
    query = hourly.interpolate("ordinary_kriging", grid=here, variogram=MODEL)
    text = query.explain()
    assert "3 points" in text
    assert "Surface: 15 cells" in text
    document = json.loads(json.dumps(query.to_json()))
    assert document["steps"][1]["grid"] == {
        "step": "20arcsec", "points": {"lon": [7.11, 7.12, 7.12], "lat": [45.81, 45.83, 45.83]},
    }  # fmt: skip
    again = hourly.interpolate("ordinary_kriging", grid=document["steps"][1]["grid"], variogram=MODEL)
    assert again.token == query.token
    others = hg.points(lon=[7.11, 7.12, 7.12], lat=[45.81, 45.83, 45.84], step="20arcsec")
    assert hourly.interpolate("ordinary_kriging", grid=others, variogram=MODEL).token != query.token


def test_levels_of_points_are_clipped(hourly: hg.Query, here: hg.Points) -> None:
    at = hg.points(lon=here.x, lat=here.y, step="20arcsec", z={"start": 500, "stop": 1100, "step": 200})
    query = hourly.interpolate("ordinary_kriging", grid=at, variogram=MODEL, trend={"lapse_rate": -6.5})
    part, whole = query.clip(z=(700, 1000)).compute(), query.compute()
    xr.testing.assert_allclose(part["value"], whole["value"][:, 1:])


@pytest.mark.parametrize(
    ("refuse", "message"),
    [
        (lambda query: query.aggregate("mean", lon="all"), "at points; interpolate onto a grid before it"),
        (lambda query: query.aggregate("mean", z="all"), "at points; interpolate onto a grid before it"),
        (lambda query: query.aggregate("mean", zones=ZONE), "at points; interpolate onto a grid"),
        (lambda query: query.clip(lon=(7.11, 7.115)), "at points; leave points out"),
        (lambda query: query.interpolate("nearest", grid=hg.grid(lon=(7, 8), lat=(45, 46), step=0.1)), "at points"),
        (lambda query: query.interpolate("linear", time="10min"), "at points"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_with_points_is_refused(
    hourly: hg.Query, here: hg.Points, refuse: Callable[[hg.Query], hg.Query], message: str
) -> None:
    query = hourly.interpolate("nearest", grid=here)
    with pytest.raises(InvalidQuery, match=message):
        refuse(query).explain()


def test_points_are_merged_with_the_same_points_alone(hourly: hg.Query, here: hg.Points) -> None:
    query = hourly.interpolate("nearest", grid=here)
    twice = query.merge("difference", hourly.convert("scale", factor=2.0).interpolate("nearest", grid=here))
    np.testing.assert_allclose(twice.compute()["value"], -query.compute()["value"])
    others = hourly.interpolate("nearest", grid=hg.points(lon=[7.11], lat=[45.81], step="20arcsec"))
    with pytest.raises(InvalidQuery, match=r"3 points from 7\.11, 45\.81, .* 1 point from"):
        query.merge("difference", others).explain()


def test_points_are_no_map(hourly: hg.Query, here: hg.Points) -> None:
    query = hourly.interpolate("nearest", grid=here)
    with pytest.raises(InvalidQuery, match="interpolate onto a grid"):
        to_bytes(query.compute(), "geotiff")
    *_, last = query.refine()
    with pytest.raises(InvalidQuery, match="gives points, not a map; interpolate onto a grid"):
        last.frame(0)
    metres = hg.points(x=[1.0], y=[2.0], step=10)
    with pytest.raises(InvalidQuery, match="its stations have lon and lat"):
        hourly.interpolate("nearest", grid=metres).explain()
