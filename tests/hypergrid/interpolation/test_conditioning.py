"""How many digits a system leaves."""

from typing import Any

import numpy as np
import pytest

from hypergrid.interpolation import Stations, Targets, Variogram, variogram
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.local.neighbourhood import NeighbourSelection
from hypergrid.interpolation.methods.conditioning import (
    assess_conditioning,
    condition_number,
    conditioning_note,
    models_of,
)
from hypergrid.interpolation.methods.detrended import DetrendedField, DetrendedKriging
from hypergrid.interpolation.methods.fitted_variogram import SliceFields
from hypergrid.interpolation.methods.kriging_methods import EmptyField
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.solvers.trend import FittedTrend, Trend


def field(model: Variogram, *, drift: Drift | None = None, count: int = 15) -> KrigingField:
    rng = np.random.default_rng(4)
    stations = Stations(rng.uniform(0, 1000, (count, 2)), tuple(map(str, range(count))))
    return KrigingField(KrigingSystem.of(stations, model, drift), rng.normal(10, 1, (2, count)))


@pytest.mark.parametrize("drift", [Drift(), Drift(mean=3.0), Drift(degree=1)])
@pytest.mark.parametrize("range_m", [200.0, 900.0, 2000.0])
def test_it_bounds_the_condition_number_and_is_near_it(drift: Drift, range_m: float) -> None:
    made = field(variogram("gaussian", psill=1.0, range_m=range_m), drift=drift)
    true = float(np.linalg.cond(made.system.matrix(), p=1))
    assert true * 0.5 < condition_number(made) < true * 30


@pytest.mark.parametrize("sill", [1e-8, 1e8])
def test_the_unit_of_the_values_does_not_matter(sill: float) -> None:
    one, other = (field(variogram("exponential", psill=s, range_m=300.0, nugget=0.1 * s)) for s in (1.0, sill))
    assert condition_number(other) == pytest.approx(condition_number(one), rel=1e-6)
    assert conditioning_note("ordinary_kriging", other) == ()


def test_as_many_digits_are_lost_as_it_says() -> None:
    model = variogram("gaussian", psill=1.0, range_m=4000.0)
    made = field(model)
    (note,) = conditioning_note("ordinary_kriging", made)
    lost = int(note.split("loses about ")[1].split()[0])
    # Another order of the stations is another order of rounding, and nothing else.
    order = np.random.default_rng(2).permutation(15)
    stations = made.system.stations.take_stations(order)
    other = KrigingField(KrigingSystem.of(stations, model), made.complete[:, order])
    back = np.ix_(np.argsort(order), np.argsort(order))
    off = np.abs(other.inverse[:15, :15][back] - made.inverse[:15, :15]).max() / np.abs(made.inverse).max()
    assert 10.0 ** (lost - 20) < off < 10.0 ** (lost - 15)


def test_what_is_no_kriging_on_all_stations_has_no_note() -> None:
    assert conditioning_note("nearest", EmptyField(1)) == ()


def local(model: Variogram, *, count: int = 30, **selection: Any) -> LocalField:  # noqa: ANN401
    rng = np.random.default_rng(1)
    stations = Stations(rng.uniform(0, 10_000, (count, 2)), tuple(map(str, range(count))))
    return LocalField(
        KrigingSystem.of(stations, model),
        rng.normal(0, 1, (2, count)),
        NeighbourSelection(**{"neighbours": count, **selection}),
    )


@pytest.mark.parametrize("range_m", [300.0, 400.0, 600.0, 1000.0])
def test_a_smooth_model_that_enlarges_noise_is_noted_and_about_how_far(range_m: float) -> None:
    rng = np.random.default_rng(3)
    stations = Stations(rng.uniform(0, 600, (24, 2)), tuple(map(str, range(24))))
    made = KrigingField(
        KrigingSystem.of(stations, variogram("gaussian", psill=1.2, range_m=range_m)), rng.normal(0, 1, (20, 24))
    )
    found = assess_conditioning(made)
    assert found is not None
    largest = float(np.abs(made.estimate(Targets(rng.uniform(0, 600, (500, 2))))).max())
    assert largest < 3.0 / np.sqrt(found.own)
    notes = conditioning_note("ordinary_kriging", made)
    assert bool(notes) == (range_m > 300.0)
    assert bool(notes) == (largest > 30.0)
    if notes:
        assert f"condition number {condition_number(made):.0e}" in notes[0]
        assert f"about {1.0 / np.sqrt(found.own):,.0f} times as large" in notes[0]


def test_a_nugget_or_a_rough_model_is_none() -> None:
    assert conditioning_note("x", field(variogram("gaussian", psill=1.0, range_m=900.0, nugget=0.1), count=60)) == ()
    assert conditioning_note("x", field(variogram("exponential", psill=1.0, range_m=9000.0), count=200)) == ()


@pytest.mark.parametrize("selection", [{"neighbours": 20}, {"octants": 3}, {"radius_m": 4000.0}])
def test_sets_of_neighbours_are_looked_at(selection: dict[str, Any]) -> None:
    made = local(variogram("gaussian", psill=1.0, range_m=8000.0), **selection)
    (note,) = conditioning_note("ordinary_kriging", made)
    assert "(a set of neighbours, condition number " in note
    for model in (
        variogram("gaussian", psill=1.0, range_m=8000.0, nugget=0.1),
        variogram("exponential", psill=1.0, range_m=8000.0),
        variogram("gaussian", psill=1.0, range_m=1000.0),
    ):
        assert conditioning_note("ordinary_kriging", local(model, **selection)) == ()


def test_neighbours_that_are_all_stations_are_as_one_system() -> None:
    model = variogram("gaussian", psill=1.0, range_m=8000.0)
    made = local(model, count=12)
    whole = KrigingField(KrigingSystem.of(made.system.stations, model), np.zeros((1, 12)))
    one, other = assess_conditioning(made), assess_conditioning(whole)
    assert one is not None
    assert other is not None
    assert one.own == pytest.approx(other.own, rel=0.7)
    assert other.number / 10 < one.number < other.number * 10


def test_a_station_out_of_reach_of_all_others_is_a_set_by_itself() -> None:
    found = assess_conditioning(local(variogram("gaussian", psill=1.0, range_m=8000.0), radius_m=0.01))
    assert found is not None
    assert (found.number, found.own) == (1.0, 1.0)


def test_a_trend_and_slices_are_looked_into() -> None:
    smooth = field(variogram("gaussian", psill=1.0, range_m=2000.0))
    rough = field(variogram("exponential", psill=1.0, range_m=2000.0))
    trend = FittedTrend(Trend("fixed", -6.5), np.zeros(15), np.zeros((2, 15)))
    assert conditioning_note("x", DetrendedKriging(smooth, trend)) == conditioning_note("x", smooth) != ()
    (note,) = conditioning_note("x", DetrendedField(SliceFields([rough, smooth, rough], ()), trend))
    assert "in 1 of 3 slices, at worst (condition number" in note
    assert models_of(SliceFields([rough, smooth, rough], ())) == (rough.system.model, smooth.system.model)
