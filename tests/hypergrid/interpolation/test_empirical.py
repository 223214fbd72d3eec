"""The empirical variogram against a loop over pairs, and against gstat's printed numbers for the meuse set."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.variograms.empirical import ROWS_AT_ONCE, Binning, empirical_variogram
from hypergrid.interpolation.variograms.variogram import Anisotropy

Floats = NDArray[np.float64]

MEUSE = Path(__file__).parents[4] / "shared" / "data" / "meuse"


def meuse() -> tuple[Floats, Floats]:
    """Positions [m] and log(zinc) of the meuse set."""
    if not (MEUSE / "meuse.csv").exists():
        pytest.skip("needs the meuse set in ../shared/data/meuse")
    with (MEUSE / "meuse.csv").open() as lines:
        rows = [(float(row["x"]), float(row["y"]), float(row["zinc"])) for row in csv.DictReader(lines)]
    table = np.array(rows)
    return table[:, :2], np.log(table[:, 2])


def pair_by_pair(places: Floats, values: Floats, edges: Floats) -> list[tuple[int, float, float]]:
    """Pairs, mean distance and semivariance of the bins that hold a pair."""
    found = []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        apart, squares = [], []
        for line in values:
            for i in range(len(places)):
                for j in range(i):
                    distance = float(np.hypot(*(places[i] - places[j])))
                    if low < distance <= high and np.isfinite(line[i]) and np.isfinite(line[j]):
                        apart.append(distance)
                        squares.append((line[i] - line[j]) ** 2)
        if apart:
            found.append((len(apart), float(np.mean(apart)), float(np.mean(squares)) / 2))
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.4, 0.8]), st.sampled_from([0.0, 300.0]))
def test_is_what_a_loop_over_pairs_finds(seed: int, missing: float, offset: float) -> None:
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 1000, (7, 2))
    places[1] = places[0]
    # An offset that changes from slice to slice changes no difference within one.
    values = rng.normal(0, 1, (5, 7)) + offset * rng.normal(0, 1, (5, 1))
    values[rng.random((5, 7)) < missing] = np.nan
    values[:, 2:4][0] = 1.0
    wanted = pair_by_pair(places, values, np.linspace(0, 800, 5))
    if not wanted:
        with pytest.raises(InvalidQuery, match="no pair of values"):
            empirical_variogram(places, values, binning=Binning(cutoff_m=800.0, bins=4))
        return
    found = empirical_variogram(places, values, binning=Binning(cutoff_m=800.0, bins=4))
    assert found.pairs.tolist() == [pairs for pairs, _, _ in wanted]
    np.testing.assert_allclose(found.distance_m, [distance for _, distance, _ in wanted], rtol=1e-12)
    np.testing.assert_allclose(found.semivariance, [value for _, _, value in wanted], rtol=1e-9, atol=1e-12)


def test_reproduces_what_gstat_prints_for_meuse() -> None:
    places, values = meuse()
    printed = []
    for line in (MEUSE / "gstat_variogram_reference.txt").read_text().splitlines():
        words = line.split()
        if len(words) == 7 and words[-1] == "var1":
            printed.append([float(word) for word in words[1:4]])
    reference = np.array(printed[:15])
    found = empirical_variogram(places, values)
    assert found.pairs.tolist() == reference[:, 0].astype(int).tolist()
    # To the last digit printed: five decimals of the distance, seven of the semivariance.
    np.testing.assert_allclose(found.distance_m, reference[:, 1], rtol=0, atol=0.51e-5)
    np.testing.assert_allclose(found.semivariance, reference[:, 2], rtol=0, atol=0.51e-7)


def test_blocks_of_stations_make_no_difference() -> None:
    rng = np.random.default_rng(5)
    places, values = rng.uniform(0, 100, (ROWS_AT_ONCE + 40, 2)), rng.normal(0, 1, (2, ROWS_AT_ONCE + 40))
    whole = empirical_variogram(places, values, binning=Binning(bins=5))
    mixed = rng.permutation(len(places))
    other = empirical_variogram(places[mixed], values[:, mixed], binning=Binning(bins=5))
    assert whole.pairs.tolist() == other.pairs.tolist()
    np.testing.assert_allclose(whole.semivariance, other.semivariance, rtol=1e-11)


def test_an_upper_end_belongs_to_its_bin_and_anisotropy_stretches_distances() -> None:
    places = np.array([[0.0, 0.0], [0.0, 10.0], [10.0, 0.0]])
    values = np.array([0.0, 1.0, 3.0])
    found = empirical_variogram(places, values, binning=Binning(cutoff_m=20.0, bins=2))
    assert found.pairs.tolist() == [2, 1]
    assert found.semivariance.tolist() == pytest.approx([(1 + 9) / 4, 4 / 2])
    turned = empirical_variogram(places, values, binning=Binning(30.0, 3, Anisotropy(0.0, 2.0)))
    assert turned.distance_m.tolist() == pytest.approx([10.0, 20.0, np.sqrt(500)])


@pytest.mark.parametrize(
    ("places", "values", "words"),
    [
        (np.zeros((3, 2)), np.arange(3.0), "one place"),
        (np.zeros((1, 2)), np.arange(1.0), "1 stations"),
        (np.zeros((0, 2)), np.zeros((1, 0)), "0 stations"),
        (np.array([[0.0, 0.0], [1.0, np.nan]]), np.arange(2.0), r"\[1\]"),
        (np.array([[0.0, 0.0], [1.0, 1.0]]), np.arange(3.0), "shape"),
        (np.array([[0.0, 0.0], [900.0, 0.0]]), np.arange(2.0), "no pair"),
        (np.array([[0.0, 0.0], [0.1, 0.1], [9.0, 0.0]]), np.array([[1.0, np.nan, 1.0], [np.nan] * 3]), "no pair"),
        (np.array([[0.0, 0.0], [0.1, 0.1]]), np.zeros((0, 2)), "no pair"),
    ],
)
def test_what_holds_no_pairs_is_refused(places: Floats, values: Floats, words: str) -> None:
    with pytest.raises(InvalidQuery, match=words):
        empirical_variogram(places, values)


def test_a_binning_without_distance_or_bin_is_refused() -> None:
    for cutoff, bins in ((0.0, 3), (float("nan"), 3), (float("inf"), 3), (100.0, 0)):
        with pytest.raises(InvalidQuery, match="cutoff above zero"):
            Binning(cutoff, bins)
