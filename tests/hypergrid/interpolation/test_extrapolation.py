"""Cells beyond what the stations tell of a drift are counted in a note."""

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg

RANDOM = np.random.default_rng(6)


def comment(x: np.ndarray, y: np.ndarray, start: float, step: float, **given: object) -> str:
    coords = {"time": [np.datetime64("2007-10-01", "ns")], "x": ("station", x), "y": ("station", y)}
    values = 10.0 + RANDOM.normal(size=(1, len(x)))
    readings = xr.DataArray(values, dims=("time", "station"), coords=coords, attrs={"units": "mm"})
    model = hg.variogram("exponential", psill=1.0, range_m=300.0)
    cells = hg.grid(x=start, y=start, step=step, shape=(10, 10))
    query = hg.base(readings).interpolate("universal_kriging", grid=cells, variogram=model, **given)
    return str(query.compute().attrs.get("comment", ""))


X, Y = RANDOM.uniform(0.0, 1000.0, (2, 25))


@pytest.mark.parametrize("given", [{}, {"neighbours": 12}, {"degree": 2}])
def test_cells_far_beyond_the_network_are_counted(given: dict[str, object]) -> None:
    assert "universal_kriging: 100 of 100 cells lie beyond the stations" in comment(X, Y, 1200.0, 50.0, **given)
    assert "lie beyond the stations" not in comment(X, Y, 300.0, 40.0, **given)


def test_cells_off_a_line_of_stations_are_counted() -> None:
    note = comment(X, X + RANDOM.normal(scale=1.0, size=25), 0.0, 100.0)
    count = int(note.split("universal_kriging: ")[1].split(" of")[0])
    assert count >= 90  # but for the cells on the line
    assert "times as far as any station" in note


def test_a_constant_mean_is_not_extrapolated() -> None:
    coords = {"time": [np.datetime64("2007-10-01", "ns")], "x": ("station", X), "y": ("station", Y)}
    readings = xr.DataArray(RANDOM.normal(size=(1, 25)), dims=("time", "station"), coords=coords, attrs={"units": "mm"})
    model = hg.variogram("exponential", psill=1.0, range_m=300.0)
    cells = hg.grid(x=1200, y=1200, step=50, shape=(4, 4))
    found = hg.base(readings).interpolate("ordinary_kriging", grid=cells, variogram=model).compute()
    assert "lie beyond" not in found.attrs.get("comment", "")
