"""Variograms to other libraries and back: they must see the same semivariances, asked themselves."""

import math
from functools import reduce
from operator import add
from typing import Any

import gstools
import numpy as np
import pytest
from numpy.typing import NDArray
from pykrige.ok import OrdinaryKriging
from scipy.special import gamma, kv

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.variograms.interop import (
    from_gstat,
    from_gstools,
    from_pykrige,
    scale_factor,
    to_gstat,
    to_gstools,
    to_pykrige,
)
from hypergrid.interpolation.variograms.variogram import Anisotropy, Variogram, variogram

Floats = NDArray[np.float64]

DISTANCES = np.linspace(0.5, 4000.0, 200)
TURNED = Anisotropy(35.0, 2.5)

WITH_SILL = {
    "exponential": variogram("exponential", psill=1.2, range_m=350.0, nugget=0.2),
    "gaussian": variogram("gaussian", psill=1.2, range_m=350.0, nugget=0.2),
    "spherical": variogram("spherical", psill=1.2, range_m=350.0),
    "matern": variogram("matern", psill=1.2, range_m=350.0, nugget=0.2, smoothness=0.8),
    "smooth matern": variogram("matern", psill=1.2, range_m=350.0, nugget=0.2, smoothness=2.5),
    "nugget": variogram("nugget", nugget=0.7),
    "nested": variogram("gaussian", psill=0.5, range_m=300.0, nugget=0.1)
    + variogram("matern", psill=1.0, range_m=2000.0, smoothness=1.5),
    "turned": variogram("spherical", psill=1.2, range_m=900.0, nugget=0.2, anisotropy=TURNED),
    "turned sum": variogram("exponential", psill=1.2, range_m=900.0, nugget=0.2, anisotropy=TURNED)
    + variogram("spherical", psill=1.2, range_m=300.0, anisotropy=TURNED),
}
WITHOUT_SILL = {
    "linear": variogram("linear", psill=1.2, range_m=350.0, nugget=0.2),
    "power": variogram("power", psill=1.2, range_m=350.0, nugget=0.2, exponent=1.3),
    "turned power": variogram("power", psill=1.2, range_m=350.0, nugget=0.2, exponent=0.6, anisotropy=TURNED),
    "linear and spherical": variogram("linear", psill=1.2, range_m=350.0)
    + variogram("spherical", psill=1.2, range_m=300.0, nugget=0.2),
}
ALL = WITH_SILL | WITHOUT_SILL


def network(seed: int = 4) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 1000, (14, 2)), rng.normal(10, 2, 14), rng.uniform(0, 1000, (9, 2))


def assert_same(found: Variogram, wanted: Variogram) -> None:
    """The same semivariance between any two places, however it is written."""
    places, _, points = network()
    for model in (found, wanted):
        assert model.isotropic(places).shape == places.shape
    apart = [np.linalg.norm(m.isotropic(places[:9]) - m.isotropic(points), axis=1) for m in (found, wanted)]
    np.testing.assert_allclose(found.semivariance(apart[0]), wanted.semivariance(apart[1]), rtol=1e-10)
    np.testing.assert_allclose(found.semivariance(DISTANCES), wanted.semivariance(DISTANCES), rtol=1e-10)
    assert found.sill == pytest.approx(wanted.sill)
    assert found.nugget_is == wanted.nugget_is


def krige(model: Variogram) -> tuple[Floats, Floats]:
    """Ordinary kriging of one slice."""
    places, values, points = network()
    field = KrigingField(
        KrigingSystem.of(Stations(places, tuple(map(str, range(len(places))))), model), values[None, :]
    )
    return field.estimate(Targets(points))[0], field.variance(Targets(points))[0]


def asked_pykrige(keywords: dict[str, Any]) -> OrdinaryKriging:
    places, values, _ = network()
    return OrdinaryKriging(*places.T, values, **keywords)


@pytest.mark.parametrize("name", ALL)
def test_pykrige_sees_the_same_semivariance(name: str) -> None:
    kriging = asked_pykrige(to_pykrige(ALL[name]))
    seen = kriging.variogram_function(kriging.variogram_model_parameters, DISTANCES)
    np.testing.assert_allclose(seen, ALL[name].semivariance(DISTANCES), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in ALL if name != "nugget"])
def test_pykrige_kriges_the_same_anisotropic_or_not(name: str) -> None:
    value, variance = krige(ALL[name])
    seen, doubt = asked_pykrige(to_pykrige(ALL[name])).execute("points", *network()[2].T, backend="loop")
    np.testing.assert_allclose(value, np.asarray(seen), rtol=1e-9)
    np.testing.assert_allclose(variance, np.asarray(doubt), rtol=1e-8)


@pytest.mark.parametrize(
    "name", [name for name in ALL if name not in ("matern", "smooth matern") and not ALL[name].nested]
)
def test_comes_back_from_pykrige(name: str) -> None:
    assert_same(from_pykrige(to_pykrige(ALL[name])), ALL[name])


def test_pykrige_lists_the_full_sill_first_and_may_name_it() -> None:
    wanted = variogram("spherical", psill=1.0, range_m=300.0, nugget=0.25)
    for parameters in (
        [1.25, 300.0, 0.25],
        {"sill": 1.25, "range": 300.0, "nugget": 0.25},
        {"psill": 1.0, "range": 300.0, "nugget": 0.25},
    ):
        keywords = {"variogram_model": "spherical", "variogram_parameters": parameters}
        assert from_pykrige(keywords) == wanted
        kriging = asked_pykrige(keywords)
        seen = kriging.variogram_function(kriging.variogram_model_parameters, DISTANCES)
        np.testing.assert_allclose(seen, wanted.semivariance(DISTANCES))


def test_pykrige_may_give_the_ratio_from_the_shortest_range() -> None:
    given = {
        "variogram_model": "exponential", "variogram_parameters": [1.2, 300.0, 0.2],
        "anisotropy_angle": 20.0, "anisotropy_scaling": 0.4,
    }  # fmt: skip
    model = from_pykrige(given)
    assert model.range_m == pytest.approx(750.0)
    assert model.anisotropy == Anisotropy(110.0, 2.5)
    value, _ = krige(model)
    seen, _ = asked_pykrige(given).execute("points", *network()[2].T, backend="loop")
    np.testing.assert_allclose(value, np.asarray(seen), rtol=1e-9)


def test_measurement_error_has_a_sign_in_pykrige_and_in_gstat() -> None:
    noisy = variogram("spherical", psill=1.0, range_m=300.0, nugget=0.25, nugget_is="measurement error")
    assert to_pykrige(noisy)["exact_values"] is False
    assert from_pykrige(to_pykrige(noisy)) == noisy
    assert [row["model"] for row in to_gstat(noisy)] == ["Err", "Sph"]
    assert from_gstat(to_gstat(noisy)) == noisy
    built = built_by_gstools(noisy)
    assert from_gstools(built, nugget_is="measurement error") == noisy


def built_by_gstools(model: Variogram) -> gstools.CovModel:
    return reduce(add, [getattr(gstools, name)(**keywords) for name, keywords in to_gstools(model)])


@pytest.mark.parametrize("name", WITH_SILL)
def test_gstools_sees_the_same_semivariance_and_gives_it_back(name: str) -> None:
    wanted = WITH_SILL[name]
    built = built_by_gstools(wanted)
    np.testing.assert_allclose(built.variogram(DISTANCES), wanted.semivariance(DISTANCES), rtol=1e-9)
    assert_same(from_gstools(built), wanted)


@pytest.mark.parametrize("name", ["exponential", "turned", "turned sum", "nested", "matern"])
def test_gstools_kriges_the_same_anisotropic_or_not(name: str) -> None:
    places, values, points = network()
    kriging = gstools.krige.Ordinary(built_by_gstools(WITH_SILL[name]), places.T, values, exact=True)
    seen, _ = kriging(points.T)
    np.testing.assert_allclose(krige(WITH_SILL[name])[0], seen, rtol=1e-9)


def test_gstools_rescaling_and_ratio_above_one_are_read() -> None:
    built = gstools.Gaussian(dim=2, var=1.3, len_scale=80.0, rescale=2.0, anis=3.0, angles=0.3, nugget=0.1)
    model = from_gstools(built)
    assert model.range_m == pytest.approx(40.0 * 7 / 4 * 3)
    places, values, points = network()
    seen, _ = gstools.krige.Ordinary(built, places.T, values, exact=True)(points.T)
    np.testing.assert_allclose(krige(model)[0], seen, rtol=1e-9)


def test_a_model_that_the_other_library_lacks_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="'linear' does not convert between GSTools and here; those that do: exp"):
        to_gstools(variogram("linear", psill=1.2, range_m=350.0))
    with pytest.raises(InvalidQuery, match="'Cubic' does not convert between GSTools and here"):
        from_gstools(gstools.Cubic(dim=2, var=1.0, len_scale=10.0))


def gstat_semivariance(rows: list[dict[str, Any]], apart: Floats) -> Floats:
    """The semivariance of rows by gstat's definitions, written out: gstat itself needs R, and is not run here."""
    result = np.zeros(len(apart))
    for row in rows:
        north = math.radians(row["ang1"])
        major = np.array([math.sin(north), math.cos(north)])
        minor = np.array([math.cos(north), -math.sin(north)])
        h = np.hypot(apart @ major, apart @ minor / row["anis1"])
        a, k = row["range"], row["kappa"]
        shapes = {
            "Nug": lambda h=h: np.where(h > 0, 1.0, 0.0),
            "Exp": lambda h=h, a=a: 1 - np.exp(-h / a),
            "Gau": lambda h=h, a=a: 1 - np.exp(-((h / a) ** 2)),
            "Sph": lambda h=h, a=a: np.where(h < a, 1.5 * h / a - 0.5 * (h / a) ** 3, 1.0),
            "Mat": lambda h=h, a=a, k=k: 1 - 2 ** (1 - k) / gamma(k) * (h / a) ** k * kv(k, h / a),
            "Lin": lambda h=h: h,
            "Pow": lambda h=h, a=a: h**a,
        }
        result += row["psill"] * shapes[str(row["model"])]()
    return result


@pytest.mark.parametrize("name", ALL)
def test_gstat_rows_mean_the_same_and_come_back(name: str) -> None:
    wanted = ALL[name]
    rows = to_gstat(wanted)
    apart = np.random.default_rng(2).uniform(-900, 900, (50, 2))
    ours = wanted.semivariance(np.linalg.norm(wanted.isotropic(apart), axis=1))
    np.testing.assert_allclose(gstat_semivariance(rows, apart), ours, rtol=1e-10)
    assert_same(from_gstat(rows), wanted)


def test_gstat_short_rows_and_steins_form_are_read() -> None:
    # As gstat prints its fit to the meuse set.
    model = from_gstat(
        [{"model": "Nug", "psill": 0.05066243, "range": 0}, {"model": "Sph", "psill": 0.5906078, "range": 897.0209}]
    )
    assert model == variogram("spherical", psill=0.5906078, range_m=897.0209, nugget=0.05066243)
    stein = from_gstat([{"model": "Ste", "psill": 1, "range": 100.0, "kappa": 0.5}])
    t = 2 * math.sqrt(0.5) * DISTANCES / 100.0
    np.testing.assert_allclose(stein.semivariance(DISTANCES), 1 - np.exp(-t), rtol=1e-10)
    assert from_gstat([{"model": "Nug", "psill": 1}]).model == "nugget"


def test_factors_are_where_the_models_reach_their_range() -> None:
    assert [scale_factor(name) for name in ("exponential", "gaussian", "spherical")] == [3.0, 1.75, 1.0]
    assert scale_factor("matern", 0.5) == 3.0
    with pytest.raises(InvalidQuery, match="linear"):
        scale_factor("linear")
    with pytest.raises(InvalidQuery, match="matern"):
        scale_factor("matern")


def test_what_has_no_counterpart_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="hole-effect"):
        from_pykrige({"variogram_model": "hole-effect", "variogram_parameters": [1, 1, 0]})
    with pytest.raises(InvalidQuery, match="custom"):
        from_pykrige(to_pykrige(ALL["matern"]))
    with pytest.raises(InvalidQuery, match="needs the parameters"):
        from_pykrige({"variogram_model": "linear", "variogram_parameters": None})
    for model in WITHOUT_SILL.values():
        with pytest.raises(InvalidQuery, match="GSTools"):
            to_gstools(model)
    with pytest.raises(InvalidQuery, match="Stable"):
        from_gstools(gstools.Stable(dim=2))
    with pytest.raises(InvalidQuery, match="other dimensions"):
        from_gstools(gstools.Gaussian(dim=3))
    with pytest.raises(InvalidQuery, match="Lin with range 5"):
        from_gstat([{"model": "Lin", "psill": 1, "range": 5}])
    with pytest.raises(InvalidQuery, match="one anisotropy"):
        from_gstat([{"model": "Sph", "psill": 1, "range": 5, "anis1": 0.5}, {"model": "Exp", "psill": 1, "range": 5}])
    with pytest.raises(InvalidQuery, match="one kind"):
        from_gstat([{"model": "Nug", "psill": 1}, {"model": "Err", "psill": 1}])
