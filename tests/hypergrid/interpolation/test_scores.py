"""Scores by hand, and on errors whose distribution is known."""

import math

import numpy as np
import pytest

from hypergrid.interpolation.validation.cross_validate import Score, by_elevation, by_station, score

VALUES = np.array([[1.0, 2.0, np.nan], [3.0, 4.0, 5.0]])
ESTIMATE = np.array([[2.0, 2.0, 9.0], [2.0, np.nan, 8.0]])


def test_a_score_by_hand() -> None:
    found = score(VALUES, ESTIMATE, np.array([[1.0, 4.0, 1.0], [0.25, 1.0, 1.0]]))
    # Errors 1, 0, -1 and 3; standardised 1, 0, -2 and 3.
    assert (found.count, found.missed) == (4, 1)
    assert found.rmse == pytest.approx(math.sqrt(11 / 4))
    assert found.bias == pytest.approx(0.75)
    assert found.mae == pytest.approx(1.25)
    assert found.standardised_mean == pytest.approx(0.5)
    assert found.standardised_variance == pytest.approx(14 / 4 - 0.25)
    assert found.coverage_95 == pytest.approx(0.5)


def test_without_a_variance_nothing_is_said_of_it() -> None:
    document = score(VALUES, ESTIMATE, None).to_json()
    assert document["coverage_95"] is None
    assert document["standardised_variance"] is None
    assert document["count"] == 4


def test_without_a_pair_nothing_is_known() -> None:
    found = score(np.full((2, 2), 1.0), np.full((2, 2), np.nan), None)
    assert (found.count, found.missed) == (0, 4)
    assert math.isnan(found.rmse)


def test_honest_errors_are_called_honest() -> None:
    rng = np.random.default_rng(1)
    variance = rng.uniform(0.5, 4.0, (2000, 10))
    found = score(np.zeros((2000, 10)), rng.normal(0.0, np.sqrt(variance)), variance)
    assert found.standardised_mean == pytest.approx(0.0, abs=0.03)
    assert found.standardised_variance == pytest.approx(1.0, abs=0.03)
    assert found.coverage_95 == pytest.approx(0.95, abs=0.006)


def test_each_station_has_a_row() -> None:
    table = by_station(VALUES, ESTIMATE, None, ("a", "b", "c"))
    assert table.index.tolist() == ["a", "b", "c"]
    assert table["count"].tolist() == [2, 1, 1]
    assert table["missed"].tolist() == [0, 1, 0]
    assert table["bias"].tolist() == [0.0, 0.0, 3.0]


def test_bands_hold_every_station_once_and_say_where_elevation_is_unknown() -> None:
    rng = np.random.default_rng(2)
    elevation = np.append(rng.uniform(0, 3000, 20), [np.nan, np.nan])
    values = rng.normal(size=(5, 22))
    table = by_elevation(values, values + 1.0, None, elevation)
    assert table["stations"].tolist() == [5, 5, 5, 5, 2]
    assert table["count"].sum() == 110
    assert table["high_m"].tolist()[:3] == table["low_m"].tolist()[1:4]
    assert math.isnan(table["low_m"].iloc[-1])
    np.testing.assert_allclose(table["bias"], 1.0)


def test_edges_of_bands_may_be_given() -> None:
    elevation, values = np.array([100.0, 500.0, 500.0, 1000.0, 2500.0]), np.ones((1, 5))
    table = by_elevation(values, values, None, elevation, edges_m=np.array([0.0, 500.0, 1000.0]))
    # Lower edges belong to their band, and so does the last upper edge; 2,500 m is in none.
    assert table["stations"].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("elevation", "stations"), [([700.0] * 3, [3]), ([np.nan] * 3, [3]), ([1.0, 2.0, 2.0], [1, 2])]
)
def test_few_elevations_make_few_bands(elevation: list[float], stations: list[int]) -> None:
    table = by_elevation(np.ones((1, 3)), np.ones((1, 3)), None, np.array(elevation))
    assert table["stations"].sum() == 3
    assert table.loc[table["stations"] > 0, "stations"].tolist() == stations
    assert list(table.columns) == ["low_m", "high_m", "stations", *Score.__annotations__]
