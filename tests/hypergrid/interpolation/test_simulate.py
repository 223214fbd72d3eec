"""Simulated fields: their covariances, and what they become when stations are given."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.interpolation import Variogram, variogram
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.uncertainty import simulate
from hypergrid.interpolation.uncertainty.block_variance import regions_of, slice_variance
from hypergrid.interpolation.uncertainty.mean_variance import INDEPENDENT, Correlation
from hypergrid.interpolation.uncertainty.simulate import Simulator, simulate_given

Floats = NDArray[np.float64]
PLACES = np.array([[0.0, 0.0], [300.0, 0.0], [0.0, 400.0], [0.0, 400.0], [900.0, 900.0]])


@pytest.mark.parametrize(
    "model",
    [
        variogram("exponential", psill=2.0, range_m=800.0, nugget=0.5),
        variogram("spherical", psill=2.0, range_m=800.0, nugget=0.5, nugget_is="measurement error"),
        variogram("gaussian", psill=2.0, range_m=2000.0),
        variogram("power", psill=2.0, range_m=800.0, exponent=1.4),
    ],
    ids=lambda model: str(model.model),
)
def test_differences_vary_as_the_variogram_says(model: Variogram) -> None:
    fields = Simulator(PLACES, model).draw(40_000, np.random.default_rng(1))
    noise = model.nugget if model.nugget_is == "measurement error" else 0.0
    half = 0.5 * ((fields[:, :, None] - fields[:, None, :]) ** 2).mean(axis=0)
    distance = np.linalg.norm(PLACES[:, None] - PLACES, axis=-1)
    wanted = np.where(distance > 0, model.semivariance(distance) - noise, 0.0)
    np.testing.assert_allclose(half, wanted, rtol=0.04, atol=1e-12)
    np.testing.assert_array_equal(fields[:, 2], fields[:, 3])


def test_fields_through_time_have_the_correlation_asked_for() -> None:
    times_s = np.array([0.0, 600.0, 1800.0])
    model = variogram("exponential", psill=1.0, range_m=800.0)
    rng = np.random.default_rng(2)
    fields = Simulator(PLACES, model).draw_through(times_s, 20_000, rng, correlation=Correlation(1200.0))
    found = np.corrcoef(fields[:, :, 0].T)
    np.testing.assert_allclose(found, np.exp(-np.abs(times_s[:, None] - times_s) / 1200.0), atol=0.02)
    np.testing.assert_allclose(fields.std(axis=0), 1.0, atol=0.02)


def given_stations(
    model: Variogram, *, count: int = 1, seed: int = 3, targets: Targets | None = None
) -> tuple[Floats, KrigingField]:
    rng = np.random.default_rng(1)
    stations = Stations(rng.uniform(0, 1000, (6, 2)), tuple("abcdef"))
    values = rng.normal(10.0, 1.0, (2, 6))
    values[1, 4] = np.nan
    wanted = targets or Targets(np.concatenate([stations.positions_m, rng.uniform(0, 1000, (4, 2))]))
    field = KrigingField(KrigingSystem.of(stations, model), values, noise_free=True)
    times_s, generator = np.array([0.0, 600.0]), np.random.default_rng(seed)
    return simulate_given(field, wanted, times_s, count=count, generator=generator, correlation=INDEPENDENT), field


def test_realisations_pass_through_the_readings_where_there_is_no_noise() -> None:
    made, field = given_stations(variogram("exponential", psill=1.0, range_m=700.0, nugget=0.2), count=3)
    for slice_, line in enumerate(np.where(field.present, field.complete, np.nan)):
        here = np.flatnonzero(np.isfinite(line))
        np.testing.assert_allclose(made[:, slice_][:, here], np.tile(line[here], (3, 1)), atol=1e-9)
    assert made[:, 1, 4].std() > 0
    assert (made[:, :, 6:].std(axis=0) > 0).all()


@pytest.mark.parametrize(
    "model",
    [
        variogram("exponential", psill=1.0, range_m=700.0),
        variogram("spherical", psill=1.0, range_m=700.0, nugget=0.3, nugget_is="measurement error"),
        variogram("linear", psill=1.0, range_m=700.0),
    ],
    ids=lambda model: str(model.model),
)
def test_realisations_scatter_around_the_estimate_as_its_variance_says(model: Variogram) -> None:
    targets = Targets(np.random.default_rng(9).uniform(0, 1000, (5, 2)))
    made, field = given_stations(model, count=4000, targets=targets)
    variance = field.variance(targets)
    assert (np.abs(made.mean(axis=0) - field.estimate(targets)) < 4 * np.sqrt(variance / 4000)).all()
    np.testing.assert_allclose(made.var(axis=0), variance, rtol=0.1)
    regions = regions_of(field, targets, sparse.csr_array(np.full((1, 5), 0.2)))
    np.testing.assert_allclose(made.mean(axis=2).var(axis=0), slice_variance(field, regions)[:, 0], rtol=0.1)


def test_one_seed_gives_one_answer() -> None:
    model = variogram("exponential", psill=1.0, range_m=700.0)
    np.testing.assert_array_equal(given_stations(model, count=2)[0], given_stations(model, count=2)[0])
    assert not np.array_equal(given_stations(model)[0], given_stations(model, seed=4)[0])


def test_wrong_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = variogram("exponential", psill=1.0, range_m=700.0)
    with pytest.raises(InvalidQuery, match="count of one or more; got 0"):
        given_stations(model, count=0)
    monkeypatch.setattr(simulate, "MAX_PLACES", 3)
    with pytest.raises(TooLarge, match="projects 4 places"):
        Simulator(PLACES, model)
