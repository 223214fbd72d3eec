"""Zones with time cells of every kind, in one step and in two, against sums by hand."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery

Floats = NDArray[np.float64]
MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
SIDE, ROWS, COLUMNS, SLICES = 100.0, 9, 12, 192
START = np.datetime64("2007-10-01", "ns")
RECTANGLES = {
    "inside": (130.0, 260.0, 770.0, 640.0),
    "overlapping": (420.0, 310.0, 1130.0, 870.0),
    "partly outside": (-140.0, 210.0, 390.0, 780.0),
    "outside": (3000.0, 3000.0, 3500.0, 3500.0),
    "within a cell": (310.0, 410.0, 370.0, 480.0),
}  # fmt: skip
"""West, south, east and north [m]."""
SPECS: dict[str, Any] = {
    "regular": "4h",
    "hour of day": "hour_of_day",
    "edges": {"edges": ["2007-10-01T00:00", "2007-10-01T07:00", "2007-10-02T08:00"]},
    "civil days": {"step": "1day", "zone": "Europe/Zurich"},
}


def kriged() -> hg.Query:
    """Slices with holes where too few stations are near."""
    rng = np.random.default_rng(5)
    values = np.where(rng.random((SLICES, 7)) < 0.3, np.nan, rng.normal(5, 3, (SLICES, 7)))
    coords: dict[str, Any] = {"time": START + np.arange(SLICES) * np.timedelta64(10, "m")}
    coords |= {name: ("station", rng.uniform(0, 1000, 7)) for name in ("x", "y")}
    base = hg.base(xr.DataArray(values, coords, ("time", "station"), "air_temperature"))
    grid = hg.grid(x=0, y=0, step=SIDE, shape=(ROWS, COLUMNS))
    return base.interpolate("ordinary_kriging", grid=grid, variogram=MODEL, neighbours=3, radius_m=350.0)


def zones() -> dict[str, Any]:
    return {
        name: {"type": "Polygon", "coordinates": [[[w, s], [e, s], [e, n], [w, n], [w, s]]]}
        for name, (w, s, e, n) in RECTANGLES.items()
    }


def members(spec: str, times: xr.Dataset) -> list[NDArray[np.intp]]:
    """Return the slices of each time cell of a result."""
    at = START + np.arange(SLICES) * np.timedelta64(10, "m")
    if spec == "hour of day":
        hours = (at - at.astype("datetime64[D]")).astype("timedelta64[h]").astype(int)
        return [np.flatnonzero(hours == hour) for hour in times["hour_of_day"].to_numpy()]
    return [np.flatnonzero((at >= a) & (at < b)) for a, b in times["time_bounds"].to_numpy()]


def share_of_cells(rectangle: tuple[float, float, float, float]) -> Floats:
    """Return the share of each cell that lies in a rectangle, shape (cells,)."""
    west, south, east, north = rectangle
    x, y = np.arange(COLUMNS) * SIDE, np.arange(ROWS) * SIDE
    width = np.clip(np.minimum(x + SIDE, east) - np.maximum(x, west), 0, None) / SIDE
    height = np.clip(np.minimum(y + SIDE, north) - np.maximum(y, south), 0, None) / SIDE
    return np.outer(height, width).ravel()


def possible_slices(spec: str, times: xr.Dataset) -> list[int]:
    """Return how many slices fit into each time cell of a result, also before and after those that there are."""
    if spec == "hour of day":
        # Hours from 0 to 7 come twice in 32 hours.
        return [6 * (2 if hour < 8 else 1) for hour in times["hour_of_day"].to_numpy().tolist()]
    return [int((b - a) / np.timedelta64(10, "m")) for a, b in times["time_bounds"].to_numpy()]


def by_hand(
    function: str, values: Floats, share: Floats, whole: float, minimum: float, possible: int
) -> tuple[float, int]:
    """Return an aggregate of slices, shape (slices, cells), over a zone of `whole` cells' area, and its count."""
    held = share.sum() / whole
    if function not in {"mean", "sum"}:
        belongs = share >= 0.5
        if not belongs.any() and share.any():
            belongs[np.argmax(share)] = True
        values, share = values[:, belongs], np.ones(int(belongs.sum()))
    known = np.isfinite(values)
    weights = np.where(known, share, 0.0)
    count = int(known[:, share > 0].sum())
    covered = held * weights.sum() / (share.sum() * possible) if share.any() else 0.0
    if not count or covered < minimum * (1 - 1e-9):
        return np.nan, count
    if function == "mean":
        return float((weights * np.nan_to_num(values)).sum() / weights.sum()), count
    if function == "sum":
        return float((weights * np.nan_to_num(values)).sum()), count
    ways = {"max": np.max, "median": np.median, "standard_deviation": lambda v: np.std(v, ddof=1)}
    return float(ways[function](values[known])), count


@pytest.mark.parametrize("minimum", [0.0, 0.55])
@pytest.mark.parametrize("function", ["mean", "sum", "max", "median", "standard_deviation"])
@pytest.mark.parametrize("spec", SPECS)
def test_one_step_is_of_all_values_of_the_zone(spec: str, function: str, minimum: float) -> None:
    slices = kriged()
    cells = slices.compute()["value"].to_numpy().reshape(SLICES, -1)
    assert 0.05 < np.isnan(cells).mean() < 0.9
    found = slices.aggregate(function, time=SPECS[spec], zones=zones(), min_coverage=minimum).compute()
    axis = found["value"].dims[0]
    assert found["value"].dims == (axis, "zone")
    groups = list(zip(members(spec, found), possible_slices(spec, found), strict=True))
    if minimum == 0:
        assert found["value"].notnull().any(axis).to_numpy().tolist() == [True, True, True, False, True]
    for number, (west, south, east, north) in enumerate(RECTANGLES.values()):
        share, whole = share_of_cells((west, south, east, north)), (east - west) * (north - south) / SIDE**2
        expected = [by_hand(function, cells[group], share, whole, minimum, possible) for group, possible in groups]
        np.testing.assert_array_equal(found["count"].to_numpy()[:, number], [count for _, count in expected])
        value = found["value"].to_numpy()[:, number]
        np.testing.assert_allclose(value, [each for each, _ in expected], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("first", ["zones", "time"])
def test_two_steps_are_an_aggregate_of_aggregates(spec: str, first: str) -> None:
    slices, over = kriged(), {"zones": {"zones": zones()}, "time": {"time": SPECS[spec]}}
    second = "time" if first == "zones" else "zones"
    steps = slices.aggregate("mean", **over[first], min_coverage=0).aggregate("mean", **over[second], min_coverage=0)
    found = steps.compute()
    cells, groups = slices.compute()["value"].to_numpy().reshape(SLICES, -1), members(spec, found)
    for number, rectangle in enumerate(RECTANGLES.values()):
        share = share_of_cells(rectangle)
        for row, group in enumerate(groups):
            expected = np.nan
            if share.any():
                if first == "zones":
                    weights = np.isfinite(cells[group]) * share
                    mass = weights.sum(axis=1)
                    sums = (weights * np.nan_to_num(cells[group])).sum(axis=1)
                    expected = (sums[mass > 0] / mass[mass > 0]).mean()
                else:
                    known = np.isfinite(cells[group])
                    sums, heard = np.nan_to_num(cells[group]).sum(axis=0), known.sum(axis=0)
                    some = (heard > 0) & (share > 0)
                    if some.any():
                        expected = np.average(sums[some] / heard[some], weights=share[some])
            np.testing.assert_allclose(found["value"].to_numpy()[row, number], expected, rtol=1e-9)


@pytest.mark.parametrize("function", ["first", "last", "sample"])
def test_a_value_of_a_zone_can_be_chosen_in_time(function: str) -> None:
    means = kriged().aggregate("mean", zones=zones(), min_coverage=0)
    found = means.aggregate(function, time="4h", min_coverage=0).compute()["value"].to_numpy()
    every = means.compute()["value"].to_numpy().reshape(len(found), -1, len(RECTANGLES))
    for cell, zone in np.ndindex(found.shape):
        held = every[cell, :, zone][np.isfinite(every[cell, :, zone])]
        wanted = {"first": held[:1], "last": held[-1:], "sample": held}[function]
        assert found[cell, zone] in wanted or (np.isnan(found[cell, zone]) and not len(held))
    assert np.isfinite(found).any()


def test_a_user_function_gets_the_cells_that_belong_and_coverage_is_by_area() -> None:
    def spread(values: Floats) -> Floats:
        return np.nanmax(values, axis=0) - np.nanmin(values, axis=0)

    hg.aggregate_function("zone_spread", vectorised=True)(spread)
    try:
        slices = kriged()
        found = slices.aggregate("zone_spread", time="hour_of_day", zones=zones(), min_coverage=0.55).compute()
        largest = slices.aggregate("max", time="hour_of_day", zones=zones(), min_coverage=0.55).compute()
        least = slices.aggregate("min", time="hour_of_day", zones=zones(), min_coverage=0.55).compute()
        np.testing.assert_allclose(found["value"], largest["value"] - least["value"], rtol=1e-12)
        assert found["value"].notnull().any()
        assert found["value"].isnull().any()
    finally:
        hg.forget_function("zone_spread")


def test_what_is_done_over_zones_is_said_in_the_words_of_cf() -> None:
    words = {
        name: kriged().aggregate("mean", time=spec, zones=zones()).compute()["value"].attrs["cell_methods"]
        for name, spec in SPECS.items()
    }
    assert words["regular"].endswith("time: area: mean where zone (comment: cells of 4h)")
    assert "area: mean where zone within days" in words["hour of day"]


@pytest.mark.parametrize("spec", SPECS)
def test_merges_of_zones_need_the_same_zones(spec: str) -> None:
    high = kriged().aggregate("max", time=SPECS[spec], zones=zones(), min_coverage=0)
    low = kriged().aggregate("min", time=SPECS[spec], zones=zones(), min_coverage=0)
    expected = high.compute()["value"] - low.compute()["value"]
    np.testing.assert_allclose(high.merge("difference", low).compute()["value"], expected)
    fewer = {name: zone for name, zone in zones().items() if name != "outside"}
    other = kriged().aggregate("min", time=SPECS[spec], zones=fewer, min_coverage=0)
    with pytest.raises(InvalidQuery, match=r"5 zones \(inside, overlapping, .*4 zones"):
        high.merge("difference", other).compute()


@pytest.mark.parametrize("function", ["first", "last", "sample"])
def test_functions_that_choose_in_time_choose_among_the_values_of_a_zone(function: str) -> None:
    slices_of = kriged().aggregate("mean", zones=zones(), min_coverage=0)
    result = slices_of.aggregate(function, time="4h").compute()
    found, values = result["value"], slices_of.compute()["value"]
    for cell, slices in enumerate(members("regular", result)):
        for zone in range(len(RECTANGLES)):
            known = values.values[slices, zone]
            known = known[np.isfinite(known)]
            value = found.values[cell, zone]
            if not len(known):
                assert np.isnan(value)
            elif function == "sample":
                assert value in known
            else:
                assert value == known[0 if function == "first" else -1]
    # What a sample is does not depend on which other zones are asked for.
    alone = kriged().aggregate("mean", zones={"inside": zones()["inside"]}, min_coverage=0)
    alone = alone.aggregate(function, time="4h").compute()
    np.testing.assert_array_equal(alone["value"][:, 0], found.sel(zone="inside"))
