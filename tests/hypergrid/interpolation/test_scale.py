"""The unit of the values decides nothing: weights stay, estimates go with the scale, variances with its square."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import SingularSystem
from hypergrid.core.parameters import bind
from hypergrid.interpolation import METHODS
from hypergrid.interpolation.local import field as local
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.variograms.fit import fit_variogram

RANDOM = np.random.default_rng(4)
PLACES_M = RANDOM.uniform(0.0, 1000.0, (30, 2))
HEIGHTS_M = RANDOM.uniform(200.0, 900.0, 30)
VALUES = RANDOM.normal(size=(3, 30))
VALUES[1, 3] = VALUES[2, 5:8] = np.nan
TARGETS = Targets(RANDOM.uniform(0.0, 1000.0, (40, 2)), {"elevation": RANDOM.uniform(200.0, 900.0, 40)})
STATIONS = Stations(PLACES_M, tuple(f"s{number}" for number in range(30)), {"elevation": HEIGHTS_M})

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ordinary": ("ordinary_kriging", {}),
    "ordinary, nearest": ("ordinary_kriging", {"neighbours": 8}),
    "ordinary, linear model": ("ordinary_kriging", {"model": "linear"}),
    "ordinary, around a profile": ("ordinary_kriging", {"trend": "profile"}),
    "simple": ("simple_kriging", {"mean": 0.0}),
    "simple, nearest": ("simple_kriging", {"mean": 0.0, "neighbours": 8}),
    "universal": ("universal_kriging", {}),
    "universal, nearest": ("universal_kriging", {"neighbours": 12}),
    "external drift": ("external_drift_kriging", {}),
    "radial basis": ("radial_basis", {}),
    "inverse distance": ("inverse_distance", {}),
}


def kriged(name: str, scale: float) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """Return estimates and, where there are any, variances, both brought back to a scale of one."""
    method, params = CASES[name]
    row, params = METHODS[method], dict(params)
    model = params.pop("model", "exponential")
    if row.has_variance:
        params["variogram"] = {"model": model, "psill": scale**2, "range_m": 400.0, "nugget": 0.1 * scale**2}
    field = row.prepare(STATIONS, VALUES * scale, row.parse(bind(method, row.parameters, params, variable_unit="m")))
    found = [field.estimate(TARGETS) / scale]
    if row.has_variance and "trend" not in params:
        found.append(field.variance(TARGETS) / scale**2)
    return found


@pytest.mark.parametrize("name", CASES)
@given(exponent=st.floats(-30.0, 30.0))
@settings(max_examples=10, deadline=None)
def test_estimates_go_with_the_scale_and_variances_with_its_square(name: str, exponent: float) -> None:
    for here, expected in zip(kriged(name, 10.0**exponent), kriged(name, 1.0), strict=True):
        np.testing.assert_allclose(here, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 2e-5, 1e5, 1e30])
def test_compiled_loops_go_with_the_scale(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "WORTH_COMPILED", 0.0)
    for here, expected in zip(kriged("ordinary, nearest", scale), kriged("ordinary, nearest", 1.0), strict=True):
        np.testing.assert_allclose(here, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("exponent", [-30, -10, 5, 10, 30])
def test_fits_go_with_the_scale(exponent: int) -> None:
    one, other = (fit_variogram(PLACES_M, VALUES * scale).variogram for scale in (1.0, 10.0**exponent))
    ratio = 10.0 ** (2 * exponent)
    assert other.range_m == pytest.approx(one.range_m, rel=1e-4)
    assert other.nugget / ratio == pytest.approx(one.nugget, rel=1e-4, abs=1e-6)
    assert other.psill / ratio == pytest.approx(one.psill, rel=1e-4, abs=1e-6)


def query(scale: float, variance: float = 1.0) -> hg.Query:
    """Return ordinary kriging of readings in units of `scale`."""
    coords = {
        "time": np.datetime64("2007-10-01", "ns") + np.arange(3) * np.timedelta64(1, "h"),
        "x": ("station", PLACES_M[:, 0]), "y": ("station", PLACES_M[:, 1]),
    }  # fmt: skip
    readings = xr.DataArray(VALUES * scale, dims=("time", "station"), coords=coords, attrs={"units": "kg m-2 s-1"})
    model = hg.variogram("exponential", psill=variance * scale**2, range_m=400.0, nugget=0.1 * scale**2)
    cells = hg.grid(x=0, y=0, step=100, shape=(6, 6))
    return hg.base(readings).interpolate("ordinary_kriging", grid=cells, variogram=model)


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_whole_queries_go_with_the_scale(scale: float) -> None:
    """Means over time and space with their variance, cross-validation and simulation."""
    for steps in (("mean", {"time": "all"}), ("mean", {"time": "all", "x": "all", "y": "all"})):
        found, one = (
            query(each).aggregate(steps[0], **steps[1]).with_variance(correlation_time="6h").compute()
            for each in (scale, 1.0)
        )
        np.testing.assert_allclose(found["value"] / scale, one["value"], rtol=1e-7)
        np.testing.assert_allclose(found["variance"] / scale**2, one["variance"], rtol=1e-7)
    scores = [
        hg.cross_validate(
            query(each), "ordinary_kriging", parameters={"variogram": query(each).question.steps[-1].params[-1][1]}
        ).score
        for each in (scale, 1.0)
    ]
    assert scores[0].rmse / scale == pytest.approx(scores[1].rmse)
    assert scores[0].coverage_95 == scores[1].coverage_95
    hour = {"time": ("2007-10-01T00:00", "2007-10-01T01:00")}
    drawn = [hg.simulate(query(each).clip(**hour), count=2, seed=1) / each for each in (scale, 1.0)]
    np.testing.assert_allclose(drawn[0], drawn[1], rtol=1e-6, atol=1e-9)


def test_what_leaves_the_range_of_numbers_is_named() -> None:
    with pytest.raises(SingularSystem, match=r"scale gives 1\.[01]\d*e-120; convert the values to a unit"):
        query(1e-60).compute()
