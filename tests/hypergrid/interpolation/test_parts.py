"""Regions and blocks of time: what is left out at once."""

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.points import Samples
from hypergrid.interpolation.validation.cross_validate import bisect, spatial_folds, time_folds


def samples(stations: int = 10, slices: int = 8) -> Samples:
    rng = np.random.default_rng(1)
    return Samples.of(rng.normal(size=(slices, stations)), rng.uniform(0, 1000, (stations, 2)))


def test_regions_are_compact_and_about_as_large() -> None:
    x, y = np.meshgrid(np.arange(4.0), np.arange(4.0))
    labels = bisect(np.stack([x.ravel(), y.ravel()], axis=1), 4)
    assert np.bincount(labels).tolist() == [4, 4, 4, 4]
    # Quarters of the square.
    assert len({(int(a // 2), int(b // 2), int(c)) for a, b, c in zip(x.ravel(), y.ravel(), labels, strict=True)}) == 4


@pytest.mark.parametrize("stations", [2, 3, 5, 11])
def test_small_networks_have_regions_of_at_least_one(stations: int) -> None:
    labels = spatial_folds(samples(stations))
    assert np.bincount(labels).min() >= 1
    assert len(np.unique(labels)) == min(4, stations)


def test_blocks_are_consecutive_slices() -> None:
    assert time_folds(samples(slices=8)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert time_folds(samples(slices=3)).tolist() == [0, 1, 2]


def test_a_single_block_of_time_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="leaving out a block of time needs another"):
        time_folds(samples(slices=1))


def test_samples_whose_shapes_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidQuery, match="samples need values"):
        Samples.of(np.zeros((3, 4)), np.zeros((5, 2)))
    with pytest.raises(InvalidQuery, match="samples need values"):
        Samples.of(np.zeros((3, 4)), np.zeros((4, 2)), names=("a",))
