"""Cells outside the stations' elevations keep their marks, whatever uses elevation and whatever comes after."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.query import Query

Floats = NDArray[np.float64]

RANDOM = np.random.default_rng(11)
PLACES = RANDOM.uniform(150.0, 750.0, (14, 2))
GRID = hg.grid(x=(0, 900), y=(0, 900), step=75)
MODEL = hg.variogram("exponential", psill=1.5, range_m=400.0, nugget=0.1)


def height(x: Floats, y: Floats) -> Floats:
    return np.asarray(600.0 + 0.8 * x + 0.3 * y)


STATION_M = height(*PLACES.T)
METHODS: dict[str, dict[str, Any]] = {
    "external_drift_kriging": {"variogram": MODEL},
    "external_drift_kriging of a block": {"variogram": MODEL, "support": "block", "quadrature": 2},
    "external_drift_kriging nearby": {"variogram": MODEL, "neighbours": 8},
    "external_drift_kriging by slice": {"variogram": "fit_by_slice"},
    "ordinary_kriging": {"variogram": MODEL, "trend": "lapse_rate"},
}


def query(method: str, **given: Any) -> Query:  # noqa: ANN401 - parameters of methods
    centres = np.linspace(-100.0, 1000.0, 12)
    layer = xr.DataArray(height(*np.meshgrid(centres, centres)), dims=("y", "x"), coords={"x": centres, "y": centres})
    values = 20.0 - 0.0065 * STATION_M + RANDOM.normal(0.0, 0.1, (4, 14))
    coords = {
        "time": np.arange("2007-10-01T00", "2007-10-01T04", dtype="M8[h]").astype("M8[ns]"),
        "station": [f"s{i}" for i in range(14)],
        "x": ("station", PLACES[:, 0]),
        "y": ("station", PLACES[:, 1]),
        "elevation": ("station", STATION_M),
    }
    readings = xr.DataArray(
        values, dims=("time", "station"), coords=coords, name="air_temperature", attrs={"units": "degC"}
    )
    base = hg.base(readings, layers={"elevation": layer})
    return base.interpolate(method.split()[0], grid=GRID, **{**METHODS[method], **given})


def outside(*, half_m: float) -> NDArray[np.bool_]:
    """Return which cells hold a point outside, of those that far from the centre on each side [m]."""
    x, y = np.meshgrid(GRID.x.centres, GRID.y.centres)
    low, high = height(x - half_m, y - half_m), height(x + half_m, y + half_m)
    return (low < STATION_M.min()) | (high > STATION_M.max())


@pytest.mark.parametrize("method", list(METHODS))
def test_marks_go_through_means_over_time_and_coarser_cells(method: str) -> None:
    # Two points of Gauss and Legendre lie 0.289 of a side from the centre.
    fine = outside(half_m=75.0 / np.sqrt(12.0) if "block" in method else 0.0)
    assert 0 < fine.sum() < fine.size
    coarse = fine.reshape(4, 3, 4, 3).any(axis=(1, 3))
    assert coarse.sum() < coarse.size
    surface = query(method)
    wider = {"x": 225, "y": 225}
    for after, expected in (
        (surface, fine),
        (surface.aggregate("mean", time="all"), fine),
        (surface.aggregate("mean", **wider), coarse),
        (surface.aggregate("mean", time="all").aggregate("max", **wider), coarse),
        (surface.aggregate("mean", time="2h", **wider), coarse),
        (surface.aggregate("mean", **wider).clip(x=(225, 900), y=(0, 450)), coarse[:2, 1:]),
    ):
        found = after.compute()
        np.testing.assert_array_equal(found["extrapolated"], expected)
        assert f"{expected.mean():.1%} of the cells lie outside the stations' range" in found.attrs["comment"]


def test_a_drift_without_elevation_has_no_marks() -> None:
    assert "extrapolated" not in query("ordinary_kriging", trend="none").aggregate("mean", x=225, y=225).compute()
