"""Layers between the centres of their cells, against scipy and closed forms, and what cannot be a layer."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator

from hypergrid.core.errors import InvalidLayer, InvalidUnit
from hypergrid.layers.layer import Layer

NAN = float("nan")


def small(values: Any, **options: Any) -> Layer:  # noqa: ANN401
    """Cells of 1 m around whole metres from 0."""
    field = np.asarray(values, np.float64)
    rows, columns = field.shape
    options = {"system": "metres", **options}
    return Layer("ground", x=np.arange(columns), y=np.arange(rows), values=field, **options)


@given(seed=st.integers(0, 10**6), rows=st.integers(2, 9), columns=st.integers(2, 9))
def test_between_the_centres_it_is_scipys_bilinear_interpolation(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = 7.0 + np.arange(columns) * 0.25, 45.0 + np.arange(rows) * 0.125
    values = rng.normal(size=(rows, columns))
    places = np.stack([rng.uniform(x[0], x[-1], 50), rng.uniform(y[0], y[-1], 50)], axis=1)
    found = Layer("ground", x=x, y=y, values=values).sample(places)
    np.testing.assert_allclose(found, RegularGridInterpolator((y, x), values)(places[:, ::-1]), rtol=0, atol=1e-12)


def test_a_plane_is_exact_and_a_centre_has_its_own_value() -> None:
    x, y = np.linspace(7.1, 7.2, 61), np.linspace(45.8, 45.9, 41)
    plane = 3.0 + 20.0 * (x[None, :] - 7.1) - 50.0 * (y[:, None] - 45.8)
    layer = Layer("ground", x=x, y=y, values=plane)
    places = np.random.default_rng(1).uniform((7.1, 45.8), (7.2, 45.9), (500, 2))
    expected = 3.0 + 20.0 * (places[:, 0] - 7.1) - 50.0 * (places[:, 1] - 45.8)
    np.testing.assert_allclose(layer.sample(places), expected, rtol=0, atol=1e-12)
    centres = np.stack(np.meshgrid(x, y), axis=-1)
    np.testing.assert_array_equal(layer.sample(centres), plane.ravel())


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((-0.5, 0.0), 1.0),  # the outer edge of the first cell
        ((-0.25, -0.25), 1.0),  # within half a cell outside
        ((1.25, 0.5), 3.0),
        ((1.5, 1.5), 4.0),
        ((-0.501, 0.0), NAN),  # outside
        ((0.0, 1.501), NAN),
        ((NAN, 0.0), NAN),
        ((1e300, 0.0), NAN),
        ((0.0, np.inf), NAN),
    ],
)
def test_half_a_cell_outside_it_is_the_edge_and_beyond_it_is_unknown(
    place: tuple[float, float], expected: float
) -> None:
    np.testing.assert_array_equal(small([[1.0, 2.0], [3.0, 4.0]]).sample([place]), [expected])


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((0.5, 0.0), 1.5),  # between two that are known: the hole above has no weight
        ((1.0, 0.0), 2.0),
        ((1.0, 0.1), NAN),
        ((0.9, 0.9), NAN),
        ((0.0, 0.7), 2.4),  # on the column of centres beside the hole
        ((1.0 + 1e-13, 0.0 - 1e-13), 2.0),  # a rounding beside a centre gives its neighbour no weight
        ((2.0, 1.0), 6.0),
        ((1.5, 0.5), NAN),
    ],
)
def test_a_hole_is_missing_wherever_it_has_a_weight(place: tuple[float, float], expected: float) -> None:
    np.testing.assert_allclose(small([[1.0, 2.0, 3.0], [3.0, NAN, 6.0]]).sample([place]), [expected], rtol=1e-12)


def test_longitudes_count_from_either_side() -> None:
    layer = Layer("ground", x=[359.0, 360.0, 361.0], y=[0.0, 1.0], values=[[1.0, 2.0, 3.0]] * 2)
    np.testing.assert_allclose(layer.sample([(-1.0, 0.0), (0.5, 0.5), (359.5, 1.0), (1.0, 0.0)]), [1.0, 2.5, 1.5, 3.0])
    assert np.isnan(layer.sample([(180.0, 0.0)])).all()


@pytest.mark.parametrize("first", [-180.0, 0.0, 5.0])
def test_around_the_earth_there_is_no_edge(first: float) -> None:
    x = first + np.arange(0.0, 360.0, 10.0)
    layer = Layer("ground", x=x, y=[0.0, 1.0], values=[np.arange(36.0)] * 2)
    seam = first - np.array([10.0, 7.5, 5.0, 2.0, 0.0, -5.0])
    expected = [35.0, 0.75 * 35.0, 17.5, 7.0, 0.0, 0.5]
    for turn in (-360.0, 0.0, 360.0):
        np.testing.assert_allclose(layer.sample(np.stack([seam + turn, np.full(6, 0.5)], axis=1)), expected, atol=1e-9)
    assert np.isnan(layer.sample([(first, 3.0), (NAN, 0.5)])).all()
    part = Layer("ground", x=x[:-1], y=[0.0, 1.0], values=[np.arange(35.0)] * 2)
    assert part.sample([(first - 2.0, 0.0)]) == 0.0
    assert np.isnan(part.sample([(first - 7.5, 0.0)]))


def test_it_says_whether_any_place_is_in_it() -> None:
    layer = Layer("ground", x=[359.0, 360.0, 361.0], y=[0.0, 1.0], values=[[1.0, NAN, 3.0]] * 2)
    inside = {"x": np.array([-2.0, 0.0]), "y": np.array([-9.0, 1.4])}
    assert layer.covers(**inside)
    assert not layer.covers(**{**inside, "x": np.array([-2.0, 2.0])})
    assert not layer.covers(**{**inside, "y": np.array([-9.0, 1.6])})


def test_no_place_has_no_value() -> None:
    assert small([[1.0, 2.0], [3.0, 4.0]]).sample(np.empty((0, 2))).shape == (0,)


def test_cells_may_come_in_any_direction() -> None:
    upright = Layer("ground", x=[1, 2], y=[3, 4, 5], values=[[1, 2], [3, 4], [5, 6]])
    turned = Layer("ground", x=[2, 1], y=[5, 4, 3], values=[[6, 5], [4, 3], [2, 1]], description="turned")
    assert turned.token == upright.token
    np.testing.assert_array_equal(turned.y, [3, 4, 5])
    assert upright.step == (1.0, 1.0)
    assert upright.bounds == (0.5, 2.5, 2.5, 5.5)


def test_the_token_is_the_content() -> None:
    first = small([[1.0, NAN], [3.0, 4.0]], description="a")
    assert first.token == small([[1.0, -NAN], [3.0, 4.0]], description="b").token
    others = [
        small([[1.0, 2.0], [3.0, 4.0]]),
        small([[1.0, NAN], [3.0, 4.0]], unit="m"),
        small([[1.0, NAN], [3.0, 4.0]], system="lonlat"),
        Layer("ground", x=[0, 2], y=[0, 1], values=[[1.0, NAN], [3.0, 4.0]], system="metres"),
    ]
    assert len({layer.token for layer in (first, *others)}) == 5


def test_it_keeps_a_copy_that_nobody_changes() -> None:
    values = np.ones((2, 2))
    layer = small(values)
    values[0, 0] = 5.0
    assert layer.values[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        layer.values[0, 0] = 2.0


def test_elevation_is_kept_in_metres() -> None:
    cells = {"x": [0, 1], "y": [0, 1], "values": [[1000.0, 0.0], [0.0, 10.0]]}
    feet = Layer("elevation", unit="ft", **cells)
    assert (feet.unit, feet.values[0, 0]) == ("m", pytest.approx(304.8))
    assert Layer("elevation", **cells).unit == "m"
    assert Layer("elevation", unit="unknown", **cells).values[0, 0] == 1000.0
    assert Layer("slope", **cells).unit == "unknown"
    assert Layer("albedo", unit="1", **cells).unit == "1"
    with pytest.raises(InvalidUnit, match="measure different things"):
        Layer("elevation", unit="degC", **cells)
    with pytest.raises(InvalidUnit, match="unknown unit 'blorp'"):
        Layer("slope", unit="blorp", **cells)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "needs a name"),
        ({"x": [0.0]}, "two or more x centres"),
        ({"y": []}, "two or more y centres"),
        ({"x": [0.0, 1.0, 3.0]}, "evenly spaced"),
        ({"x": [0.0, NAN, 2.0]}, "evenly spaced"),
        ({"x": [1.0, 1.0, 1.0]}, "ascending"),
        ({"x": [[0.0, 1.0]]}, "two or more x centres"),
        ({"x": [0.0, 1.0]}, r"shape \(rows, columns\) = \(2, 2\); got \(2, 3\)"),
        ({"values": [1.0, 2.0]}, r"got \(2,\)"),
        ({"values": [[1.0, 2.0, np.inf], [1.0, 2.0, 3.0]]}, "infinity"),
        ({"values": np.full((2, 3), NAN)}, "holds no value"),
    ],
)
def test_what_cannot_be_a_layer_is_refused(changes: dict[str, Any], words: str) -> None:
    given = {"name": "ground", "x": [0.0, 1.0, 2.0], "y": [0.0, 1.0], "values": np.ones((2, 3)), **changes}
    with pytest.raises(InvalidLayer, match=words):
        Layer(given.pop("name"), **given)


def test_centres_kept_in_32_bits_are_even_enough() -> None:
    x = np.linspace(7.0, 7.5, 181).astype(np.float32)
    assert Layer("ground", x=x, y=[45.0, 46.0], values=np.ones((2, 181))).values.shape == (2, 181)
