"""Recipes beside plain kriging on simulated networks and real stations: small versions of the benchmark."""

import numpy as np
import pytest

from tests.bench.recipes_judged import REAL, REAL_CASES, judged, real, simulated
from tests.bench.recipes_simulated import CASES, networks

QUICK = ("wind_speed, mean wind 0 m/s", "rain, 40 % wet", "solar_radiation")


@pytest.mark.parametrize("case", QUICK)
def test_no_recipe_is_worse_on_a_few_simulated_networks(case: str) -> None:
    [row] = simulated(3, cases=[case])
    assert row.values == 3 * 12 * 36
    assert not row.worse, row


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES)
def test_no_recipe_is_worse_on_simulated_networks(case: str) -> None:
    [row] = simulated(cases=[case])
    assert not row.worse, row


@pytest.mark.soak
@pytest.mark.parametrize("case", REAL_CASES)
def test_no_recipe_is_worse_on_real_stations(case: str) -> None:
    if not REAL.exists():
        pytest.skip("the real data set ../shared/data/knmi_10min is not here")
    [row] = real(cases=[case])
    assert not row.worse, row


def test_the_temperature_of_a_flat_country_is_no_worse_by_its_recipe() -> None:
    if not REAL.exists():
        pytest.skip("the real data set ../shared/data/knmi_10min is not here")
    [row] = real(cases=["air_temperature"], stations=4)
    assert not row.worse, row


def test_what_is_simulated_is_what_is_said() -> None:
    rain = np.concatenate([network.truth.ravel() for network in networks("rain, 40 % wet", 40)])
    assert np.mean(rain > 0) == pytest.approx(0.4, abs=0.05)
    calm = np.concatenate([network.truth.ravel() for network in networks("wind_speed, mean wind 0 m/s", 40)])
    assert calm.mean() == pytest.approx(2.0 * np.sqrt(np.pi / 2), rel=0.05)  # Rayleigh


def test_a_biased_and_a_noisy_recipe_are_called_worse() -> None:
    random = np.random.default_rng(3)
    truths = [random.normal(size=200) for _ in range(12)]
    noise = [random.normal(size=200) for _ in range(12)]

    def is_worse(bias: float, factor: float) -> bool:
        draws = [(t, t + n, t + factor * n + bias) for t, n in zip(truths, noise, strict=True)]
        return judged("made", "case", "m", draws).worse

    assert not is_worse(0.0, 1.0)
    assert not is_worse(0.0, 0.9)
    assert is_worse(0.3, 1.0)
    assert is_worse(0.0, 1.2)
