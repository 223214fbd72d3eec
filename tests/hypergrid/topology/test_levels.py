"""Levels and bands of elevation: what is read, what is refused, and who is in which band."""

import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import HyperGridError
from hypergrid.core.readings import Series
from hypergrid.topology import Bands, SeriesAxis, describe_levels, levels, levels_json

SPECS = [
    # What is said, what it lies over [m], and the edges that it has [m].
    ({"start": 400, "stop": 2400, "step": 500}, None, [400, 900, 1400, 1900, 2400]),
    # A stop between two edges is held by the last cell, as along lon and lat.
    ({"start": 400, "stop": 1000, "step": "500m"}, None, [400, 900, 1400]),
    ({"start": "-0.1km", "step": 0.5, "count": 2}, None, [-100, -99.5, -99]),
    ({"edges": [-0.001, 0, "1.5km"]}, None, [-0.001, 0, 1500]),
    ({"step": 500}, (410.0, 1400.001), [0, 500, 1000, 1500]),
    (500, (-1.0, 500.0), [-500, 0, 500]),
    ("0.25km", (1000.0, 1000.001), [1000, 1250]),
    ("all", (410.0, 1400.001), [410, 1400.001]),
    ({"edges": [0, 800]}, (410.0, 1400.001), [0, 800]),
]


@pytest.mark.parametrize(("spec", "over", "expected"), SPECS)
def test_levels_have_their_edges(spec: object, over: tuple[float, float] | None, expected: list[float]) -> None:
    made = levels(spec, None if over is None else (round(over[0] * 1000), round(over[1] * 1000)))
    assert [*made.bounds[:, 0], made.bounds[-1, 1]] == expected
    np.testing.assert_array_equal(made.bounds[1:, 0], made.bounds[:-1, 1])
    np.testing.assert_allclose(made.centres, made.bounds.mean(axis=1), rtol=1e-15)
    # What is written into a query is read back as the same cells.
    again = levels(json.loads(json.dumps(levels_json(made))))
    assert again == made
    assert hash(again) == hash(made)
    assert f"{made.count} level" in describe_levels(made)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (500, "needs the heights of levels"),
        ("all", "needs the heights of levels"),
        ({}, "needs a step"),
        ({"step": 500}, "needs a start, and a stop or a count"),
        ({"start": 0, "step": 500}, "needs a start, and a stop or a count"),
        ({"start": 0, "stop": 500, "count": 1, "step": 500}, "a stop or a count"),
        ({"start": 0, "step": 0, "count": 1}, "step of at least 1 mm"),
        ({"start": 0, "step": 0.0001, "count": 1}, "step of at least 1 mm"),
        ({"start": 0, "step": -500, "stop": 1000}, "step of at least 1 mm"),
        ([], "at least one"),
        ([1000, 500], "500 after 1000"),
        ([0, 0.001], "2 mm apart"),
        (["high"], "needs metres"),
        ({"start": 0, "step": "1arcsec", "stop": 1000}, "needs metres"),
        ({"start": 900, "stop": 900, "step": 1}, "stop after its start"),
        ({"start": 0, "step": 500, "count": 0}, "whole number above zero"),
        ({"start": 0, "step": 500, "count": 2.0}, "whole number above zero"),
        ({"start": 0, "step": 500, "cout": 2}, "'count'"),
        ({"edges": [0, 500], "step": 500}, "edges, or a step, not both"),
        ({"edges": [500]}, "two or more heights"),
        ({"edges": "0,500"}, "two or more heights"),
        ({"edges": [0, 800, 500]}, "500 after 800"),
        ({"edges": [0, 0]}, "0 after 0"),
        ({"edges": [0, float("nan")]}, "needs metres"),
        ({"edges": [0, 1e300]}, "needs metres"),
        ({"start": 0, "step": 1e15, "count": 9}, "beyond what can be counted"),
    ],
)
def test_levels_that_are_none_are_refused(spec: object, words: str) -> None:
    with pytest.raises(HyperGridError, match=words):
        hg.grid(x=0, y=0, step=100, shape=(2, 2), z=spec)


@pytest.mark.parametrize(
    ("heights", "bounds"),
    [
        # Even steps touch, also in odd millimetres up to one of them; uneven ones leave gaps.
        ([1000, 1500, 2000], [[750, 1250], [1250, 1750], [1750, 2250]]),
        (["1km", 1000.003], [[999.999, 1000.001], [1000.002, 1000.004]]),
        ([0, 100, 1000], [[-50, 50], [50, 150], [550, 1450]]),
        ([1500], [[1499.5, 1500.5]]),
    ],
)
def test_heights_are_the_middles_of_their_levels(heights: list[object], bounds: list[list[float]]) -> None:
    made = levels(heights)
    assert made.bounds.tolist() == bounds
    assert levels(json.loads(json.dumps(levels_json(made)))) == made
    with pytest.raises(HyperGridError, match="need edges"):
        levels(heights, (0, 5_000_000))


@pytest.mark.parametrize("heights", [[100, 150, 200], [100, 110, 400]])
def test_estimates_are_at_the_heights_that_are_given(heights: list[int]) -> None:
    coords = {
        "time": np.array(["2007-10-01"], dtype="datetime64[ns]"),
        "x": ("station", [0.0, 400.0, 0.0]),
        "y": ("station", [0.0, 0.0, 400.0]),
        "elevation": ("station", [100.0, 200.0, 300.0]),
    }
    falling = xr.DataArray([[9.0, 8.0, 7.0]], dims=("time", "station"), coords=coords, attrs={"units": "degC"})
    query = hg.base(falling).aggregate("mean", time="10min")
    made = query.interpolate(
        "inverse_distance", grid=hg.grid(x=0, y=0, step=200, shape=(2, 2), z=heights), trend={"lapse_rate": -10.0}
    ).compute()
    assert made["z"].values.tolist() == heights
    # By hand: 10 degC at sea level, 1 K less each 100 m.
    expected = 10.0 - np.array(heights, dtype=float) / 100
    np.testing.assert_allclose(made["value"].values[0], np.broadcast_to(expected[:, None, None], (len(heights), 2, 2)))


def test_levels_are_a_third_axis_counted_last() -> None:
    made = hg.grid(lon="7:00:00", lat="46:00:00", step="1arcsec", shape=(2, 3), z={"edges": [0, 100, 1000]})
    flat = hg.grid(lon="7:00:00", lat="46:00:00", step="1arcsec", shape=(2, 3))
    assert made.shape == (2, 2, 3)
    assert made.count == 12
    assert made.token() != flat.token()
    cells = np.arange(12)
    np.testing.assert_array_equal(made.centres(cells), flat.centres(cells % 6))
    np.testing.assert_array_equal(made.heights_m(cells), [50.0] * 6 + [550.0] * 6)
    assert flat.heights_m(cells[:6]) is None


def stations(heights_m: list[float]) -> SeriesAxis:
    series = tuple(Series("air_temperature", f"s{i}", None, 1, "sample", 0.0, "instant") for i in range(len(heights_m)))
    places = np.arange(float(len(heights_m)))
    return SeriesAxis(series, places, places, np.array(heights_m), "metres")


@given(
    st.lists(st.integers(-50, 250).map(lambda cm: cm / 100) | st.just(float("nan")), min_size=1, max_size=12),
    st.lists(st.integers(-40, 240), min_size=2, max_size=6, unique=True),
)
def test_a_band_holds_its_lower_edge_and_not_its_upper_one(heights_m: list[float], edges_cm: list[int]) -> None:
    edges = [cm / 100 for cm in sorted(edges_cm)]
    bands = Bands(levels({"edges": edges}), stations(heights_m), np.array(heights_m))
    expected = [
        [i for i, height in enumerate(heights_m) if low <= height < high]
        for low, high in zip(edges[:-1], edges[1:], strict=True)
    ]
    found = np.split(bands.order, bands.edges[1:-1])
    assert [members.tolist() for members in found] == expected
    assert bands.max_cells == max(map(len, expected))
