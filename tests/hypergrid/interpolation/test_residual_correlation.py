"""How long errors last, estimated from fields whose answer is known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation import variogram
from hypergrid.interpolation.points import Stations
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.uncertainty.mean_variance import Correlation
from hypergrid.interpolation.uncertainty.residual_correlation import (
    CorrelationFit,
    estimate_correlation,
    standardise_residuals,
)
from hypergrid.interpolation.uncertainty.simulate import Simulator
from hypergrid.interpolation.validation.cross_validate import leave_out

Floats = NDArray[np.float64]
MODEL = variogram("exponential", psill=1.0, range_m=2000.0)


def network(stations: int = 20) -> Stations:
    places = np.random.default_rng(3).uniform(0, 3000, (stations, 2))
    return Stations(places, tuple(f"s{i}" for i in range(stations)))


def readings(
    stations: Stations, *, e_folding_s: float, slices: int, noise: float = 0.0, seed: int = 1
) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    times_s = np.arange(slices) * 600.0
    simulator = Simulator(stations.positions_m, MODEL)
    values = simulator.draw_through(times_s, 1, rng, correlation=Correlation(e_folding_s))[0]
    values += np.sqrt(noise) * rng.standard_normal(values.shape)
    values[rng.random(values.shape) < 0.1] = np.nan
    return values, times_s


def fitted(values: Floats, times_s: Floats, stations: Stations, noise: float = 0.0) -> CorrelationFit:
    model = variogram("exponential", psill=1.0, range_m=2000.0, nugget=noise, nugget_is="measurement error")
    field = KrigingField(KrigingSystem.of(stations, model), values)
    core = field.inverse[: stations.count, : stations.count]
    return estimate_correlation(standardise_residuals(core, field.present, field.complete), times_s)


def test_residuals_are_those_of_leaving_out_over_their_standard_deviation() -> None:
    stations = network(8)
    values, _ = readings(stations, e_folding_s=0.0, slices=6)
    values[2, 1:] = np.nan
    field = KrigingField(KrigingSystem.of(stations, MODEL), values)
    got = standardise_residuals(field.inverse[:8, :8], field.present, field.complete)
    given = {"variogram": MODEL, "neighbours": None}
    estimate, variance = leave_out("ordinary_kriging", given, stations, values, np.arange(8))
    assert variance is not None
    np.testing.assert_allclose(got, (values - estimate) / np.sqrt(variance), rtol=1e-8, atol=1e-9)
    assert np.isnan(got[2]).all()


@pytest.mark.parametrize("hours", [1.0, 6.0])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_finds_the_e_folding_time_through_noise(hours: float, noise: float) -> None:
    stations = network()
    values, times_s = readings(stations, e_folding_s=hours * 3600, slices=1500, noise=noise)
    found = fitted(values, times_s, stations, noise)
    assert found.correlation.e_folding_s == pytest.approx(hours * 3600, rel=0.2)
    assert found.poor is None
    if noise:
        assert 0.3 < found.share < 0.95
    else:
        assert found.share > 0.95


def test_finds_independent_slices_independent() -> None:
    stations = network()
    values, times_s = readings(stations, e_folding_s=0.0, slices=300)
    found = fitted(values, times_s, stations)
    assert found.correlation.e_folding_s < 300
    assert "0 s" in found.describe() or found.correlation.e_folding_s > 0


def test_a_short_record_is_called_poor() -> None:
    stations = network()
    values, times_s = readings(stations, e_folding_s=6 * 3600, slices=72)
    found = fitted(values, times_s, stations)
    assert found.poor is not None
    assert "e-folding times long" in found.poor
    assert found.poor in found.describe()


def test_uneven_times_make_no_difference() -> None:
    stations = network()
    values, times_s = readings(stations, e_folding_s=3600.0, slices=2000)
    kept = np.sort(np.random.default_rng(2).permutation(2000)[:1400])
    found = fitted(values[kept], times_s[kept], stations)
    assert found.correlation.e_folding_s == pytest.approx(3600.0, rel=0.2)


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(InvalidQuery, match="at least 30 pairs"):
        estimate_correlation(np.ones((5, 3)), np.arange(5) * 600.0)
    with pytest.raises(InvalidQuery, match="got 0"):
        estimate_correlation(np.ones((1, 3)), np.zeros(1))
