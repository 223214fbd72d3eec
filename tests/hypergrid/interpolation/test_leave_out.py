"""Leaving out in closed form equals leaving out; and its variance is the one that the errors have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hypergrid.core.errors import SingularSystem
from hypergrid.interpolation import METHODS, Stations, variogram
from hypergrid.interpolation.validation.cross_validate import (
    has_closed_form,
    leave_out,
    leave_out_in_closed_form,
)

Floats = NDArray[np.float64]
ORDINARY = "ordinary_kriging"


def network(seed: int, *, stations: int = 9, slices: int = 6) -> tuple[Floats, Floats, tuple[str, ...]]:
    rng = np.random.default_rng(seed)
    values = rng.normal(10.0, 3.0, (slices, stations))
    # The first slices have one station and none: nothing is left to estimate from.
    holes = rng.random(values.shape) < 0.3
    holes[0] = True
    holes[1, 1:] = True
    holes[1, 0] = False
    return rng.uniform(0, 1000, (stations, 2)), np.where(holes, np.nan, values), tuple(map(str, range(stations)))


@given(st.integers(0, 1000), st.sampled_from(["exponential", "spherical"]), st.sampled_from([0.0, 0.3]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_in_closed_form_equals_leaving_out(seed: int, model_name: str, nugget: float, by_region: bool) -> None:  # noqa: FBT001
    places, values, names = network(seed)
    row = METHODS[ORDINARY]
    model = variogram(model_name, psill=1.5, range_m=400.0, nugget=nugget)
    parameters = row.parse({**{item.name: item.default for item in row.parameters}, "variogram": model})
    parts = np.arange(9) % 4 if by_region else np.arange(9)
    assert has_closed_form(ORDINARY, parameters, 9)
    slow = leave_out(ORDINARY, parameters, Stations(places, names), values, parts)
    fast = leave_out_in_closed_form(ORDINARY, parameters, Stations(places, names), values, parts)
    for one, other in zip(slow, fast, strict=True):
        assert one is not None
        assert other is not None
        np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-8)
        assert np.isnan(one[:2]).all()
        assert not np.isfinite(one[np.isnan(values)]).any()


@pytest.mark.parametrize("anisotropy", [None, {"angle_degree": 30.0, "ratio": 3.0}])
@pytest.mark.parametrize("nugget_is", ["micro-scale", "measurement error"])
def test_in_closed_form_equals_leaving_out_whatever_the_variogram(anisotropy: object, nugget_is: str) -> None:
    places, values, names = network(11)
    row = METHODS[ORDINARY]
    model = variogram("spherical", psill=1.5, range_m=700.0, nugget=0.4, anisotropy=anisotropy, nugget_is=nugget_is)
    parameters = row.parse({**{item.name: item.default for item in row.parameters}, "variogram": model})
    slow = leave_out(ORDINARY, parameters, Stations(places, names), values, np.arange(9))
    fast = leave_out_in_closed_form(ORDINARY, parameters, Stations(places, names), values, np.arange(9))
    np.testing.assert_allclose(fast[0], slow[0], rtol=1e-8)
    assert slow[1] is not None
    assert fast[1] is not None
    np.testing.assert_allclose(fast[1], slow[1], rtol=1e-8)


def test_the_closed_form_is_for_ordinary_kriging_on_all_stations_alone() -> None:
    model = variogram("exponential", psill=1.0, range_m=100.0)
    assert has_closed_form(ORDINARY, {"variogram": model, "neighbours": None}, 9)
    assert has_closed_form(ORDINARY, {"variogram": model, "neighbours": 9}, 9)
    assert not has_closed_form(ORDINARY, {"variogram": model, "neighbours": 8}, 9)
    assert not has_closed_form(ORDINARY, {"variogram": model, "neighbours": None, "covariate": "elevation"}, 9)
    assert not has_closed_form("nearest", {"radius_m": None}, 9)
    places, values, names = network(1)
    with pytest.raises(ValueError, match="nearest with these parameters has no closed form"):
        leave_out_in_closed_form("nearest", {}, Stations(places, names), values, np.arange(9))


def test_stations_in_one_place_without_a_nugget_are_refused_by_name() -> None:
    places, values, names = network(2)
    places[3] = places[5]
    parameters = {"variogram": variogram("exponential", psill=1.0, range_m=100.0), "neighbours": None}
    with pytest.raises(SingularSystem, match="3 and 5"):
        leave_out_in_closed_form(ORDINARY, parameters, Stations(places, names), values, np.arange(9))


def test_nearest_left_out_by_hand() -> None:
    places = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    values = np.array([[1.0, 2.0, 4.0], [1.0, np.nan, 4.0]])
    given_ = METHODS["nearest"].parse({"radius_m": None})
    estimate, variance = leave_out("nearest", given_, Stations(places, ("a", "b", "c")), values, np.arange(3))
    np.testing.assert_array_equal(estimate, [[2.0, 1.0, 2.0], [4.0, np.nan, 1.0]])
    assert variance is None
