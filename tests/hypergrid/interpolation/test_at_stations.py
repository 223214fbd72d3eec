"""A station at the centre of a cell given in degrees: in one place with it, whatever projection rounds."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import SingularSystem

Floats = NDArray[np.float64]

GRID = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23))
CELLS = np.random.default_rng(4).choice(GRID.count, 20, replace=False)
# As a file gives them in decimals: the nearest number in 64 bits, or one beside it.
POINTS = np.nextafter(GRID.centres(CELLS), [[0.0, 90.0]] * 10 + [[90.0, 0.0]] * 10)
VALUES = np.random.default_rng(5).normal(10.0, 2.0, (1, 20))
MODEL = hg.variogram("exponential", psill=1.5, range_m=300.0, nugget=0.4)


def network(points: Floats) -> xr.DataArray:
    coords = {
        "time": np.array(["2007-10-01"], "M8[ns]"),
        "station": [f"s{i}" for i in range(20)],
        "lon": ("station", points[:, 0]),
        "lat": ("station", points[:, 1]),
    }
    return xr.DataArray(
        VALUES, dims=("time", "station"), coords=coords, name="air_temperature", attrs={"units": "degC"}
    )


@pytest.mark.parametrize("distance", ["plane", "great_circle"])
@pytest.mark.parametrize("neighbours", [None, 6])
def test_a_station_in_a_cells_centre_is_reproduced(distance: str, neighbours: int | None) -> None:
    given: dict[str, Any] = {"variogram": MODEL, "distance": distance, "neighbours": neighbours}
    query = hg.base(network(POINTS)).interpolate("ordinary_kriging", grid=GRID, **given)
    found = query.compute()["value"].to_numpy().reshape(1, -1)
    np.testing.assert_allclose(found[:, CELLS], VALUES, rtol=1e-9)


@pytest.mark.parametrize("distance", ["plane", "great_circle"])
def test_stations_that_differ_by_the_rounding_of_degrees_are_in_one_place(distance: str) -> None:
    points = GRID.centres(CELLS)
    points[7] = points[2] * (1.0 + 4e-16)
    given: dict[str, Any] = {"distance": distance, "variogram": hg.variogram("exponential", psill=1.5, range_m=300.0)}
    with pytest.raises(SingularSystem, match="s2 and s7"):
        hg.base(network(points)).interpolate("ordinary_kriging", grid=GRID, **given).compute()
    merged = hg.base(network(points)).interpolate("ordinary_kriging", grid=GRID, coincident="merge", **given).compute()
    assert "s2 and s7" in merged.attrs["comment"]


@pytest.mark.parametrize("distance", ["plane", "great_circle"])
def test_a_simulation_has_its_value_too(distance: str) -> None:
    given: dict[str, Any] = {"variogram": MODEL, "distance": distance}
    query = hg.base(network(POINTS)).interpolate("ordinary_kriging", grid=GRID, **given)
    drawn = hg.simulate(query, count=3, seed=1).to_numpy().reshape(3, GRID.count)
    np.testing.assert_allclose(drawn[:, CELLS], np.broadcast_to(VALUES, (3, 20)), rtol=1e-6)
