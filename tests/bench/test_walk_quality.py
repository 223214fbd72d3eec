"""The walk's pictures on the sample network, with fewer seeds than the benchmark takes."""

import json

import numpy as np

from tests.bench.walk_quality import judge, measure_walks, pair

SEEDS = 20


def test_radiation_after_a_walk_of_15_percent_resembles_the_whole() -> None:
    found = judge(pair()["solar_radiation"], SEEDS)
    assert found["walk"]["median"] > 0.9
    assert found["walk"]["median"] > found["raster"]["median"]
    assert found["walk"]["median"] > found["uniform"]["median"]


def test_rain_that_falls_in_few_cells_is_found_more_often_than_at_random() -> None:
    found = judge(pair()["rain_rate"], SEEDS)
    assert found["walk"]["mean"] > found["uniform"]["mean"]
    assert found["walk"]["mean"] > found["raster"]["mean"]


def test_the_report_has_all_orders() -> None:
    measured = measure_walks(seeds=2, days=8)
    orders = {"walk", "algorithm_9", "uniform", "raster", "coarse_to_fine", "coarse_to_fine_shifted"}
    assert {frozenset(found) for found in measured["correlation"].values()} == {frozenset(orders)}
    medians = [one["median"] for found in measured["correlation"].values() for one in found.values()]
    assert np.isfinite(medians).all()
    json.dumps(measured)
