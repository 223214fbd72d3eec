"""Networks too large for an inverse: their factor answers what the inverse does, in less time and one matrix."""

import numpy as np
import pytest

from hypergrid.core.errors import Cancelled, SingularSystem
from hypergrid.core.geodesy import RADIUS_M
from hypergrid.core.pacing import pace_work
from hypergrid.interpolation.methods.conditioning import assess_conditioning
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers import field as fields
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.factored import FactoredSystem
from hypergrid.interpolation.solvers.field import KrigingField, inverse_of
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.variograms.variogram import Variogram

COUNT, SLICES = 60, 4
SMOOTH = Variogram("gaussian", 2.0, 9000.0, 0.01)
MODELS = {
    "exponential": Variogram("exponential", 1.2, 20_000.0, 0.05),
    "no nugget": Variogram("spherical", 4e-6, 30_000.0),
    "linear": Variogram("linear", 3.0, 40_000.0, 0.1),
    "power": Variogram("power", 2.0, 30_000.0, exponent=1.5),
    "smooth": SMOOTH,
    "great sill": Variogram("exponential", 5e8, 20_000.0, 1e6, nugget_is="measurement error"),
}
DRIFTS = {
    "constant": Drift(),
    "known": Drift(mean=3.0),
    "plane": Drift(degree=1),
    "curved": Drift(degree=2),
    "height": Drift(covariates=("elevation",)),
}


def network(count: int = COUNT) -> tuple[Stations, np.ndarray]:
    random = np.random.default_rng(11)
    places = random.uniform(0.0, 100_000.0, (count, 2))
    names = tuple(f"s{number}" for number in range(count))
    elevation = random.uniform(0.0, 3000.0, count)
    values = 10.0 + random.normal(0.0, 1.0, (SLICES, count)) + np.sin(places[:, 0] / 2e4)
    return Stations(places, names, {"elevation": elevation}), values


def targets(count: int = 50) -> Targets:
    random = np.random.default_rng(12)
    places = random.uniform(-5_000.0, 105_000.0, (count, 2))
    places[0] = network()[0].positions_m[7]
    return Targets(places, {"elevation": random.uniform(0.0, 3000.0, count)})


def both(
    monkeypatch: pytest.MonkeyPatch, values: np.ndarray, model: Variogram, drift: Drift
) -> tuple[KrigingField, KrigingField]:
    stations, _ = network()
    inverted = KrigingField(KrigingSystem.of(stations, model, drift), values)
    monkeypatch.setattr(fields, "is_factored", lambda _size: True)
    factored = KrigingField(KrigingSystem.of(stations, model, drift), values)
    assert inverted.factored is None
    assert factored.factored is not None
    return inverted, factored


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("model", MODELS)
def test_a_factor_answers_as_the_inverse_does(model: str, drift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variogram, mean = MODELS[model], DRIFTS[drift]
    if mean.mean is not None and not variogram.is_bounded:
        return
    _, values = network()
    inverted, factored = both(monkeypatch, values, variogram, mean)
    where, sill = targets(), variogram.semivariance(np.array([100_000.0]))[0]
    assert np.allclose(factored.estimate(where), inverted.estimate(where), rtol=0, atol=1e-8)
    assert np.allclose(factored.variance(where), inverted.variance(where), rtol=0, atol=1e-8 * sill)
    # Neither asked for the inverse.
    assert factored.factored is not None
    assert factored.factored._inverse is None
    scale = np.abs(inverted.inverse).max()
    assert np.allclose(factored.inverse, inverted.inverse, rtol=0, atol=1e-8 * scale)
    # Once inverted it answers the same.
    assert np.allclose(factored.dual(values), inverted.dual(values), rtol=0, atol=1e-8 * scale)
    assert np.allclose(factored.variance(where), inverted.variance(where), rtol=0, atol=1e-8 * sill)


@pytest.mark.parametrize("drift", DRIFTS)
def test_holes_that_differ_from_slice_to_slice(drift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, values = network()
    random = np.random.default_rng(3)
    values[random.random(values.shape) < 0.1] = np.nan
    values[2] = np.nan
    inverted, factored = both(monkeypatch, values, MODELS["exponential"], DRIFTS[drift])
    where = targets()
    assert np.allclose(factored.estimate(where), inverted.estimate(where), rtol=0, atol=1e-9, equal_nan=True)
    assert np.allclose(factored.variance(where), inverted.variance(where), rtol=0, atol=1e-9, equal_nan=True)
    assert np.isnan(factored.estimate(where)[2]).all()


def test_a_slice_in_which_nothing_reports_is_missing_without_an_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    _, values = network()
    values[1] = np.nan
    inverted, factored = both(monkeypatch, values, MODELS["exponential"], Drift())
    where = targets()
    assert np.allclose(factored.estimate(where), inverted.estimate(where), rtol=0, atol=1e-9, equal_nan=True)
    assert np.allclose(factored.variance(where), inverted.variance(where), rtol=0, atol=1e-9, equal_nan=True)
    assert factored.factored is not None
    assert factored.factored._inverse is None


def test_the_condition_is_that_of_the_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    _, values = network()
    inverted, factored = both(monkeypatch, values, SMOOTH, Drift())
    by_inverse, by_factor = assess_conditioning(inverted), assess_conditioning(factored)
    assert by_inverse is not None
    assert by_factor is not None
    # The one takes units of the semivariance across the network, the other one the sill.
    assert by_factor.number == pytest.approx(by_inverse.number, rel=0.5)
    assert by_factor.own == pytest.approx(by_inverse.own, rel=0.5)


@pytest.mark.parametrize(
    "model",
    [Variogram("gaussian", 1.0, 5e6), Variogram("gaussian", 1.0, 1e6, 1e-14)],
    ids=["not positive definite", "to working precision alone"],
)
def test_a_system_without_a_unique_solution_is_refused(model: Variogram, monkeypatch: pytest.MonkeyPatch) -> None:
    stations, values = network()
    monkeypatch.setattr(fields, "is_factored", lambda _size: True)
    with pytest.raises(SingularSystem, match=r"60 stations differ.*neighbours="):
        KrigingField(KrigingSystem.of(stations, model), values)


def test_only_networks_whose_inverse_cannot_be_kept_are_factored() -> None:
    assert not fields.is_factored(2800)
    assert fields.is_factored(2900)


@pytest.mark.parametrize("drift", DRIFTS)
def test_an_inverse_that_is_kept_is_made_by_the_factor(drift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "WORTH_TILES", COUNT)
    system = KrigingSystem.of(network()[0], MODELS["exponential"], DRIFTS[drift])
    monkeypatch.setattr(KrigingSystem, "invert", None)
    by_factor = inverse_of(system)
    monkeypatch.undo()
    assert np.allclose(by_factor, system.invert(), rtol=0, atol=1e-10)


def test_a_system_without_a_factor_is_inverted_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Gaussian model is none over half the sphere; its bordered system may be solved nevertheless."""
    monkeypatch.setattr(fields, "WORTH_TILES", 0)
    places = np.random.default_rng(11).normal(size=(30, 3))
    places *= RADIUS_M / np.linalg.norm(places, axis=1)[:, None]
    stations = Stations(places, tuple(f"s{number}" for number in range(30)))
    system = KrigingSystem.of(stations, Variogram("gaussian", 1.0, 2e7), Drift())
    with pytest.raises(SingularSystem):
        FactoredSystem(system)
    assert np.array_equal(inverse_of(system), system.invert())


def test_many_missing_stations_are_solved_by_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    _, values = network()
    values[np.random.default_rng(3).random(values.shape) < 0.4] = np.nan
    inverted, factored = both(monkeypatch, values, MODELS["exponential"], Drift())
    expected = inverted.complete
    monkeypatch.setattr(fields, "WORTH_TILES", 2)
    assert np.allclose(factored.complete, expected, rtol=0, atol=1e-10)
    # What has no factor is solved all the same.
    block = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert np.allclose(fields.solved_by_tiles(block, np.array([4.0, 5.0])), [2.0, 1.0])


class Ending:
    """A pace that ends the work at one of its questions."""

    waited_s = 0.0

    def __init__(self, at: int) -> None:
        self.left = at

    def give_way(self) -> None:
        self.left -= 1
        if not self.left:
            message = "nobody wants it any more"
            raise Cancelled(message)


@pytest.mark.parametrize("at", [1, 3, 5])
def test_an_inversion_that_was_stopped_leaves_no_wrong_answers(at: int) -> None:
    """The factor is gone, and the inverse is not there: whoever asks next has both made anew."""
    stations, values = network(600)
    system = KrigingSystem.of(stations, MODELS["exponential"], DRIFTS["plane"])
    whole, torn = FactoredSystem(system), FactoredSystem(system)
    with pytest.raises(Cancelled), pace_work(Ending(at)):
        _ = torn.inverse
    assert torn._inverse is None
    assert np.allclose(torn.dual(values), whole.dual(values), rtol=0, atol=1e-12)
    assert np.allclose(torn.inverse, whole.inverse, rtol=0, atol=1e-12)


def test_work_that_waits_for_a_system_gives_way() -> None:
    """With one worker the thread that has the system may wait for the turn of the one that waits for the system."""
    stations, values = network()
    system = FactoredSystem(KrigingSystem.of(stations, MODELS["exponential"], Drift()))
    with system._held(), pytest.raises(Cancelled), pace_work(Ending(2)):
        system.dual(values)
    assert np.isfinite(system.dual(values)).all()
