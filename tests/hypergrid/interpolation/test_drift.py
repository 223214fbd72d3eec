"""Drift functions that stations do not tell apart but by rounding: refused, never scaled to something."""

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import SingularSystem
from hypergrid.interpolation import variogram
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem

Floats = NDArray[np.float64]

RANDOM = np.random.default_rng(7)
PLACES = RANDOM.uniform(0, 900, (15, 2))
VALUES = RANDOM.normal(10.0, 2.0, (2, 15))
MODEL = variogram("exponential", psill=1.5, range_m=400.0, nugget=0.1)


def field(drift: Drift, *, places: Floats = PLACES, **covariates: Floats) -> KrigingField:
    stations = Stations(places, tuple(f"s{i}" for i in range(15)), covariates)
    return KrigingField(KrigingSystem.of(stations, MODEL, drift, label="external_drift_kriging"), VALUES)


@pytest.mark.parametrize("neighbours", [None, 8])
@pytest.mark.parametrize("height", [5.0, 5.3, 1e-7, 4321.1, 0.0])
def test_a_flat_layer_is_refused(height: float, neighbours: int | None) -> None:
    centres = np.linspace(-50.0, 950.0, 37)
    layer = xr.DataArray(np.full((37, 37), height), dims=("y", "x"), coords={"x": centres, "y": centres})
    coords = {
        "x": ("station", PLACES[:, 0]),
        "y": ("station", PLACES[:, 1]),
        "time": np.array(["2007-10-01T00", "2007-10-01T01"], "M8[ns]"),
    }
    readings = xr.DataArray(VALUES, dims=("time", "station"), coords=coords, name="air_temperature")
    given = {"variogram": MODEL, "drift": ["elevation"], "neighbours": neighbours}
    query = hg.base(readings, layers={"elevation": layer}).interpolate(
        "external_drift_kriging", grid=hg.grid(x=(0, 900), y=(0, 900), step=300), **given
    )
    with pytest.raises(SingularSystem, match="differ independently in elevation.*one elevation"):
        query.compute()


def test_rounding_of_a_constant_is_exactly_nothing() -> None:
    rounded = 5.3 * (1.0 + RANDOM.uniform(-1e-15, 1e-15, 15))
    assert np.ptp(rounded) > 0
    stations = Stations(PLACES, tuple("abcdefghijklmno"), {"elevation": rounded})
    columns = Drift(covariates=("elevation",)).place_on(stations).columns(stations)
    np.testing.assert_array_equal(columns, [[1.0, 0.0]] * 15)


@pytest.mark.parametrize(("level", "kept"), [(300.0, np.float64), (5000.0, np.float64), (5000.0, np.float32)])
def test_covariates_that_are_linear_in_each_other_are_refused(level: float, kept: type) -> None:
    one = (level + RANDOM.uniform(0.0, 2.0, 15)).astype(kept)
    other = (one / kept(3.0) + kept(7.0)).astype(kept)
    given = {"one": one.astype(np.float64), "other": other.astype(np.float64)}
    with pytest.raises(SingularSystem, match="differ independently in one, other"):
        field(Drift(covariates=("one", "other")), **given)
    slope = (level + PLACES @ [0.002, -0.001]).astype(kept).astype(np.float64)
    with pytest.raises(SingularSystem, match="differ independently in x and y, slope"):
        field(Drift(degree=1, covariates=("slope",)), slope=slope)


def test_a_line_of_stations_is_one_though_its_places_are_rounded() -> None:
    line = np.stack([1e-9 * RANDOM.uniform(-1, 1, 15), PLACES[:, 1]], axis=1)
    with pytest.raises(SingularSystem, match="differ independently in x and y"):
        field(Drift(degree=1), places=line)


def test_a_covariate_that_varies_little_is_still_one() -> None:
    small = 1000.0 + 0.1 * RANDOM.normal(size=15)
    large = (small - 1000.0) * 1e4
    points = Targets(PLACES[:4] + 50.0, {"elevation": small[:4] + 0.05})
    alike = Targets(PLACES[:4] + 50.0, {"elevation": large[:4] + 500.0})
    drift = Drift(covariates=("elevation",))
    np.testing.assert_allclose(
        field(drift, elevation=small).estimate(points), field(drift, elevation=large).estimate(alike), rtol=1e-8
    )
