"""Variogram models: what each must be, how they nest, how they are written, and that old ones keep their tokens."""

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidUnit
from hypergrid.core.tokens import token
from hypergrid.interpolation.variograms.models import (
    MODELS,
    SHARE_AT_RANGE,
    matern_correlation,
    matern_factor,
)
from hypergrid.interpolation.variograms.variogram import Anisotropy, Structure, Variogram, parse_variogram, variogram

DISTANCES = np.linspace(0.0, 3000.0, 301)

EXAMPLES: list[dict[str, Any]] = [
    {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05},
    {"model": "gaussian", "psill": 1.2, "range_m": 250.0, "nugget": 0.05},
    {"model": "spherical", "psill": 1.2, "range_m": 250.0, "nugget": 0.05},
    {"model": "matern", "psill": 2.0, "range_m": 400.0, "nugget": 0.1, "smoothness": 1.2},
    {"model": "linear", "psill": 2.0, "range_m": 400.0, "nugget": 0.1},
    {"model": "power", "psill": 2.0, "range_m": 400.0, "nugget": 0.1, "exponent": 1.4},
    {"model": "nugget", "psill": 0.0, "range_m": 1.0, "nugget": 0.3},
    {
        "model": "spherical", "psill": 0.5, "range_m": 200.0, "nugget": 0.1, "nugget_is": "measurement error",
        "anisotropy": {"angle_degree": 30.0, "ratio": 2.0},
        "nested": [{"model": "matern", "psill": 1.0, "range_m": 2000.0, "smoothness": 0.8}],
    },
]  # fmt: skip


@pytest.mark.parametrize("document", EXAMPLES, ids=lambda document: document["model"])
def test_json_comes_back_as_it_went(document: dict[str, Any]) -> None:
    model = parse_variogram(document)
    assert model.to_json() == document
    assert parse_variogram(model.to_json()) == model
    assert hash(model) == hash(parse_variogram(document))
    assert variogram(**document) == model


def test_what_needs_no_later_field_keeps_its_token() -> None:
    # Recorded when a variogram had four fields.
    recorded = {
        "exponential": "6b58142ae297e8962ba270ab8c1451f5",
        "gaussian": "545ca69289a8d24a11d3cf6c849f0338",
        "spherical": "7ea6cdc313504902d6d255ea1a92d729",
    }
    assert {name: token(variogram(name, psill=1.2, range_m=250.0, nugget=0.05)) for name in recorded} == recorded
    tokens = {token(parse_variogram(document)) for document in EXAMPLES}
    assert len(tokens) == len(EXAMPLES)
    plain, noisy = (
        variogram("spherical", psill=1, range_m=9, nugget=1, nugget_is=what)
        for what in ("micro-scale", "measurement error")
    )
    assert token(plain) != token(noisy)


@pytest.mark.parametrize("document", EXAMPLES, ids=lambda document: document["model"])
def test_semivariance_starts_at_the_nugget_and_never_falls(document: dict[str, Any]) -> None:
    model = parse_variogram(document)
    found = model.semivariance(DISTANCES)
    assert found[0] == pytest.approx(model.nugget)
    assert np.all(np.diff(found) >= -1e-12)
    assert found.shape == DISTANCES.shape
    assert model.semivariance(DISTANCES.reshape(7, 43)).shape == (7, 43)
    if model.is_bounded:
        assert model.sill == pytest.approx(model.nugget + sum(term.psill for term in model.structures))
        far = float(model.semivariance(np.array([1e6]))[0])
        assert far == pytest.approx(model.sill)


def test_unbounded_models_say_so_and_gain_their_partial_sill_at_the_range() -> None:
    for name, more in (("linear", {}), ("power", {"exponent": 0.7})):
        model = variogram(name, psill=2.0, range_m="0.4 km", nugget=0.5, **more)
        assert not model.is_bounded
        assert model.sill == math.inf
        assert model.effective_range_m == math.inf
        assert float(model.semivariance(np.array([400.0]))[0]) == pytest.approx(2.5)
    power = variogram("power", psill=2.0, range_m=400.0, exponent=1.0)
    np.testing.assert_allclose(
        power.semivariance(DISTANCES), variogram("linear", psill=2.0, range_m=400.0).semivariance(DISTANCES)
    )
    # Without any partial sill the linear term says nothing of distance: a nugget is all there is.
    assert variogram("linear", psill=0.0, range_m=1.0, nugget=1.0).sill == 1.0


@pytest.mark.parametrize("smoothness", [0.2, 0.31, 0.5, 1.0, 1.5, 1.7, 2.5, 5.0, 20.0])
def test_matern_is_its_integral_and_reaches_its_share_at_the_range(smoothness: float) -> None:
    # K_s(t) = integral of exp(-t cosh u) cosh(s u) du from 0 to infinity (Abramowitz and Stegun 9.6.24).
    for t in (0.05, 0.4, 1.3, 4.0, 9.0):
        bessel, _ = quad(
            lambda u, t=t: math.exp(-t * math.cosh(u)) * math.cosh(smoothness * u), 0, 12, epsabs=0, epsrel=1e-11,
            limit=300,
        )  # fmt: skip
        wanted = 2 ** (1 - smoothness) / math.gamma(smoothness) * t**smoothness * bessel
        assert matern_correlation(np.array([t]), smoothness)[0] == pytest.approx(wanted, rel=1e-8)
    model = variogram("matern", psill=1.0, range_m=700.0, smoothness=smoothness)
    assert float(model.semivariance(np.array([700.0]))[0]) == pytest.approx(SHARE_AT_RANGE, rel=1e-12)
    tiny = model.semivariance(np.array([0.0, 1e-300, 1e-30, 1e-8]))
    assert np.isfinite(tiny).all()
    assert tiny[:3].max() < 1e-5


def test_matern_of_one_half_is_the_exponential_and_nearby_smoothness_nearby_values() -> None:
    half = variogram("matern", psill=1.3, range_m=500.0, smoothness=0.5)
    np.testing.assert_allclose(
        half.semivariance(DISTANCES), variogram("exponential", psill=1.3, range_m=500.0).semivariance(DISTANCES)
    )
    # The closed forms continue what the Bessel function gives on both sides of them.
    for smoothness in (0.5, 1.5, 2.5):
        ratio = DISTANCES / 900.0
        sides = [MODELS["matern"](ratio, smoothness + step) for step in (-1e-7, 1e-7)]
        np.testing.assert_allclose(MODELS["matern"](ratio, smoothness), np.mean(sides, axis=0), atol=1e-9)
    # Where (1 + t) exp(-t) = exp(-3).
    assert (1 + matern_factor(1.5)) * math.exp(-matern_factor(1.5)) == pytest.approx(math.exp(-3), rel=1e-12)


def test_matern_tends_to_the_gaussian() -> None:
    smooth = variogram("matern", psill=1.0, range_m=1000.0, smoothness=20.0)
    limit = 1 - np.exp(-3 * (DISTANCES / 1000.0) ** 2)
    assert np.abs(smooth.semivariance(DISTANCES) - limit).max() < 0.03


def test_sums_add_up_whatever_the_order_and_a_nugget_adds_to_the_nugget() -> None:
    near = variogram("spherical", psill=0.5, range_m=200.0, nugget=0.1)
    far = variogram("matern", psill=1.0, range_m=2000.0, smoothness=1.5, nugget=0.2)
    noise = variogram("nugget", nugget=0.3)
    total = near + far + noise
    wanted = near.semivariance(DISTANCES) + far.semivariance(DISTANCES) + 0.3
    for found in (total, far + noise + near, noise + (near + far)):
        np.testing.assert_allclose(found.semivariance(DISTANCES), wanted, rtol=1e-14)
        assert found.nugget == pytest.approx(0.6)
        assert found.sill == pytest.approx(2.1)
        assert found.effective_range_m == 2000.0
    assert [term.model for term in total.structures] == ["spherical", "matern"]
    assert (noise + noise).to_json() == {"model": "nugget", "psill": 0.0, "range_m": 1.0, "nugget": 0.6}
    with pytest.raises(InvalidQuery, match="same anisotropy"):
        _ = near + variogram("spherical", psill=1, range_m=1, anisotropy=Anisotropy(10.0, 2.0))


@given(st.floats(-720, 720), st.floats(1, 50), st.integers(0, 1000))
def test_isotropic_turns_the_ellipse_of_ranges_into_a_circle(angle: float, ratio: float, seed: int) -> None:
    model = variogram("linear", psill=1, range_m=1, anisotropy=Anisotropy(angle, ratio))
    along = np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))])
    across = np.array([-along[1], along[0]])
    moved = model.isotropic(np.stack([np.zeros(2), along * 100.0, across * 100.0 / ratio]))
    np.testing.assert_allclose(np.linalg.norm(moved[1:] - moved[0], axis=1), 100.0, rtol=1e-10)
    points = np.random.default_rng(seed).normal(0, 1000, (4, 3, 2))
    assert model.isotropic(points).shape == points.shape
    np.testing.assert_allclose(model.isotropic(points)[2, 1], model.isotropic(points[2, 1]), rtol=1e-12, atol=1e-9)


def test_without_anisotropy_positions_stay_as_they_are() -> None:
    points = np.arange(6.0).reshape(3, 2)
    assert variogram("linear", psill=1, range_m=1).isotropic(points) is points


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"model": "matern", "psill": 1, "range_m": 1}, "needs its smoothness"),
        ({"model": "matern", "psill": 1, "range_m": 1, "smoothness": 0}, "needs its smoothness"),
        ({"model": "matern", "psill": 1, "range_m": 1, "smoothness": 50}, "from 0.2 to 20"),
        ({"model": "power", "psill": 1, "range_m": 1, "exponent": 2}, "from 0.01 to 1.99"),
        ({"model": "power", "psill": 1, "range_m": 1}, "needs its exponent"),
        ({"model": "spherical", "psill": 1, "range_m": 1, "smoothness": 1}, "takes no smoothness"),
        ({"model": "spherical", "psill": 1, "range_m": 1, "exponent": 1}, "takes no exponent"),
        ({"model": "nugget", "psill": 1, "nugget": 1}, "as nugget, not as psill"),
        ({"model": "nugget"}, "one above zero"),
        ({"model": "spherical", "psill": 1, "range_m": 1, "nugget": -0.1}, "zero or more"),
        ({"model": "spherical", "psill": 1, "range_m": 1, "nugget_is": "noise"}, "measurement error"),
        ({"model": "spherical", "psill": 1, "range_m": 1, "nugget_is": ["noise"]}, "measurement error"),
        ({"model": "spherical", "psill": 1, "range_m": 1, "nested": 3}, "at most 10 terms; got 3"),
        ({"model": "spherical", "psill": 1, "range_m": 1, "nested": [{}] * 11}, "got 11 terms"),
        ({"model": "spherical", "psill": 1.7e308, "range_m": 1, "nugget": 1.7e308}, "zero or more"),
        ({"model": "spherical", "psill": 1, "range_m": 1, "nested": [{"model": "linear"}]}, "nested term"),
        ({"model": "spherical", "psill": 1, "range_m": 1, "nested": [3]}, "nested term"),
        (
            {"model": "spherical", "psill": 1, "range_m": 1,
             "nested": [{"model": "linear", "psill": 1, "range_m": 1, "nugget": 1}]}, "nested term",
        ),
        ({"model": "spherical", "psill": 1, "range_m": 1, "anisotropy": {"ratio": 2}}, "angle_degree and ratio"),
        (
            {"model": "spherical", "psill": 1, "range_m": 1, "anisotropy": {"angle_degree": 0, "ratio": 0.5}},
            "ratio of one or more",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_variogram_is_refused_with_the_reason(document: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidQuery, match=words):
        parse_variogram(document)


def test_what_is_left_out_is_named() -> None:
    with pytest.raises(InvalidQuery, match=r"psill, range_m"):
        variogram("exponential", nugget=1.0)
    with pytest.raises(InvalidQuery):
        Structure("exponential", float("nan"), 1.0)
    with pytest.raises(InvalidQuery):
        Anisotropy(float("inf"), 2.0)
    with pytest.raises(InvalidQuery):
        Variogram("exponential", 1.0, 1.0, float("nan"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(list(MODELS)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "ratio"]), inner),
    max_leaves=6,
)


@given(st.sampled_from(EXAMPLES), st.sampled_from([f.name for f in fields(Variogram)]), JSON)
def test_any_value_anywhere_makes_a_variogram_or_a_refusal(document: dict[str, Any], key: str, value: object) -> None:
    try:
        model = parse_variogram({**document, key: value})
    except HyperGridError:
        return
    assert parse_variogram(model.to_json()) == model
    assert token(model)


def test_a_sill_with_a_unit_of_its_own_is_refused_in_words() -> None:
    for key in ("psill", "nugget"):
        for text in ("1.2 K2", "1.2 degC2", "much"):
            words = (
                rf"^{key} of a variogram \(in the square of the variable's unit\) needs a plain number; got '{text}'$"
            )
            with pytest.raises(InvalidUnit, match=words):
                parse_variogram({**EXAMPLES[0], key: text})
    assert parse_variogram({**EXAMPLES[0], "psill": "1.2"}) == parse_variogram(EXAMPLES[0])
