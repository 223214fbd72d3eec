"""How much of the truth 95 % intervals hold under a fitted variogram: what the note of few slices says."""

import numpy as np
import pytest

from hypergrid.interpolation.methods.fitted_variogram import NARROW, VariogramRequest, resolve_variogram
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.uncertainty.simulate import Simulator
from hypergrid.interpolation.variograms.variogram import Variogram

TARGETS = 40


def coverage(stations: int, slices: int, replicates: int) -> float:
    """Return the share of the truth within 1.96 standard deviations, over networks and variograms at random."""
    held = []
    for number in range(replicates):
        random = np.random.default_rng([stations, slices, number])
        places = random.uniform(0.0, 1000.0, (stations + TARGETS, 2))
        truth = Variogram("exponential", 1.0, random.choice([300.0, 600.0, 1000.0]), random.choice([0.0, 0.1, 0.3]))
        field = Simulator(places, truth).draw(slices, random)
        network = Stations(places[:stations], tuple(map(str, range(stations))))
        fitted = resolve_variogram(VariogramRequest(), network, field[:, :stations])
        if fitted.is_assumed:
            continue
        kriged = KrigingField(KrigingSystem.of(network, fitted.variogram), field[:, :stations])
        targets = Targets(places[stations:])
        off = np.abs(kriged.estimate(targets) - field[:, stations:])
        held.append(np.mean(off <= 1.96 * np.sqrt(kriged.variance(targets))))
    return float(np.mean(held))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stations", "slices", "share"), [(10, 1, 0.88), (20, 1, 0.91), (50, 1, 0.93), (20, 3, 0.94), (50, 30, 0.95)]
)
def test_the_note_states_what_is_measured(stations: int, slices: int, share: float) -> None:
    assert coverage(stations, slices, 60) == pytest.approx(share, abs=0.025)


def test_a_fit_to_few_slices_says_that_its_variances_are_too_small() -> None:
    random = np.random.default_rng(1)
    places = random.uniform(0.0, 1000.0, (20, 2))
    network = Stations(places, tuple(map(str, range(20))))
    values = Simulator(places, Variogram("exponential", 1.0, 600.0)).draw(5, random)
    assert NARROW in resolve_variogram(VariogramRequest(), network, values[:1]).notes
    assert NARROW in resolve_variogram(VariogramRequest(by="slice"), network, values).notes
    assert NARROW not in resolve_variogram(VariogramRequest(), network, values).notes
