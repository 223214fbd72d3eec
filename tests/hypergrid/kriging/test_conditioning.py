"""How many digits a system leaves."""

import numpy as np
import pytest

from hypergrid.kriging import Stations, Variogram, variogram
from hypergrid.kriging.conditioning import condition_number, conditioning_note
from hypergrid.kriging.drift import Drift
from hypergrid.kriging.field import KrigingField


def field(model: Variogram, *, drift: Drift | None = None, count: int = 15) -> KrigingField:
    rng = np.random.default_rng(4)
    stations = Stations(rng.uniform(0, 1000, (count, 2)), tuple(map(str, range(count))))
    return KrigingField(stations, rng.normal(10, 1, (2, count)), model=model, drift=drift)


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
    stations = made.system.stations.take(order)
    other = KrigingField(stations, made.complete[:, order], model=model)
    back = np.ix_(np.argsort(order), np.argsort(order))
    off = np.abs(other.inverse[:15, :15][back] - made.inverse[:15, :15]).max() / np.abs(made.inverse).max()
    assert 10.0 ** (lost - 20) < off < 10.0 ** (lost - 15)


def test_what_is_no_kriging_on_all_stations_has_no_note() -> None:
    assert conditioning_note("nearest", object()) == ()
