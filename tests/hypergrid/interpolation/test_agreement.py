"""Every kind of kriging beside PyKrige and GSTools, to 1e-10, on random networks with random masks.

The tolerance is 1e-10 times the condition number of the system beyond 1e4: what any code loses on a smooth model
without a nugget.
"""

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import gstools
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pykrige.ok import OrdinaryKriging
from pykrige.uk import UniversalKriging

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.core.parameters import bind
from hypergrid.interpolation import METHODS, Field, Variogram, variogram
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.variograms.interop import to_gstools, to_pykrige

Floats = NDArray[np.float64]
KINDS = ["ordinary", "universal", "external drift", "both"]
MODELS = st.sampled_from(["exponential", "gaussian", "spherical", "matern"])
ANISOTROPY = st.sampled_from([None, {"angle_degree": 30.0, "ratio": 2.5}])
PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ordinary": ("ordinary_kriging", {}),
    "universal": ("universal_kriging", {"degree": 1}),
    "external drift": ("external_drift_kriging", {"drift": ["elevation"]}),
    "both": ("external_drift_kriging", {"drift": ["elevation"], "degree": 1}),
}


class Case:
    """A random network with random holes: at least eight stations report in every slice."""

    def __init__(self, seed: int, *, stations: int = 18, slices: int = 4) -> None:
        random = np.random.default_rng(seed)
        self.places, self.points = random.uniform(0, 1000, (stations, 2)), random.uniform(0, 1000, (7, 2))
        self.elevation, self.heights = random.uniform(500, 2500, stations), random.uniform(500, 2500, 7)
        self.values = random.normal(10.0, 3.0, (slices, stations))
        holes = random.random(self.values.shape) < 0.3
        holes[:, :8] = False
        self.values[holes] = np.nan
        self.stations = Stations(self.places, tuple(map(str, range(stations))), {"elevation": self.elevation})
        self.targets = Targets(self.points, {"elevation": self.heights})

    def field(self, method: str, **given: Any) -> Field:  # noqa: ANN401 - parameters of the method
        row = METHODS[method]
        return row.prepare(self.stations, self.values, row.parse(bind(method, row.parameters, given, variable_unit="")))


def model_of(name: str, *, nugget: float, anisotropy: object) -> Variogram:
    smoothness = {"smoothness": 1.5} if name == "matern" else {}
    return variogram(name, psill=1.5, range_m=400.0, nugget=nugget, anisotropy=anisotropy, **smoothness)


def tolerance(field: Field) -> float:
    assert isinstance(field, KrigingField)
    return 1e-10 * max(1.0, float(np.linalg.cond(field.system.matrix())) / 1e4)


def by_pykrige(
    kind: str, case: Case, present: NDArray[np.bool_], line: Floats, model: Variogram
) -> tuple[Floats, Floats]:
    # In kilometres, also of elevation: it does not scale its drift, and would lose digits that we keep.
    keywords = {**to_pykrige(replace(model, range_m=model.range_m / 1000)), "pseudo_inv": False}
    x, y = case.places[present].T / 1000
    points = case.points.T / 1000
    if kind == "ordinary":
        kriging = OrdinaryKriging(x, y, line[present], **keywords)
        return kriging.execute("points", *points, backend="loop")
    terms = {
        "universal": ["regional_linear"],
        "external drift": ["specified"],
        "both": ["regional_linear", "specified"],
    }
    more: dict[str, Any] = {"drift_terms": terms[kind]}
    asked: dict[str, Any] = {}
    if kind != "universal":
        more["specified_drift"] = [case.elevation[present] / 1000]
        asked["specified_drift_arrays"] = [case.heights / 1000]
    kriging = UniversalKriging(x, y, line[present], **keywords, **more)
    # Its loop over points mixes up the points of a given drift.
    return kriging.execute("points", *points, backend="vectorized", **asked)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), name=MODELS, nugget=st.sampled_from([0.0, 0.2]), anisotropy=ANISOTROPY)
def test_agrees_with_pykrige(kind: str, seed: int, name: str, nugget: float, anisotropy: object) -> None:
    case, model = Case(seed), model_of(name, nugget=nugget, anisotropy=anisotropy)
    method, more = PARAMETERS[kind]
    field = case.field(method, variogram=model, **more)
    value, variance, within = field.estimate(case.targets), field.variance(case.targets), tolerance(field)
    for number, line in enumerate(case.values):
        seen, doubt = by_pykrige(kind, case, np.isfinite(line), line, model)
        np.testing.assert_allclose(value[number], np.asarray(seen), rtol=within, atol=10 * within)
        np.testing.assert_allclose(variance[number], np.asarray(doubt), rtol=within, atol=10 * within)


@pytest.mark.parametrize("kind", ["simple", *KINDS])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), name=MODELS, nugget=st.sampled_from([0.0, 0.2]), anisotropy=ANISOTROPY)
def test_agrees_with_gstools(kind: str, seed: int, name: str, nugget: float, anisotropy: object) -> None:
    case, model = Case(seed), model_of(name, nugget=nugget, anisotropy=anisotropy)
    method, more = PARAMETERS.get(kind, ("simple_kriging", {"mean": 9.0}))
    field = case.field(method, variogram=model, **more)
    value, variance, within = field.estimate(case.targets), field.variance(case.targets), tolerance(field)
    # In kilometres, also of elevation, as for PyKrige: it does not scale its drift either.
    shorter = replace(model, range_m=model.range_m / 1000)
    built = reduce(add, [getattr(gstools, name)(**keywords) for name, keywords in to_gstools(shorter)])
    for number, line in enumerate(case.values):
        present = np.isfinite(line)
        at = (case.places[present].T / 1000, line[present])
        exact: dict[str, Any] = {"exact": True, "pseudo_inv": False}
        asked = {}
        if kind == "simple":
            kriging = gstools.krige.Simple(built, *at, mean=9.0, **exact)
        elif kind == "ordinary":
            kriging = gstools.krige.Ordinary(built, *at, **exact)
        elif kind == "universal":
            kriging = gstools.krige.Universal(built, *at, "linear", **exact)
        else:
            both = {"drift_functions": "linear"} if kind == "both" else {}
            kriging = gstools.krige.Krige(built, *at, ext_drift=case.elevation[present] / 1000, **both, **exact)
            asked["ext_drift"] = case.heights / 1000
        seen, doubt = kriging(case.points.T / 1000, **asked)
        np.testing.assert_allclose(value[number], seen, rtol=within, atol=10 * within)
        np.testing.assert_allclose(variance[number], np.maximum(doubt, 0), rtol=within, atol=10 * within)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["simple", *KINDS]), name=MODELS)
def test_is_exact_at_stations_without_a_nugget(seed: int, kind: str, name: str) -> None:
    case, model = Case(seed), model_of(name, nugget=0.0, anisotropy=None)
    method, more = PARAMETERS.get(kind, ("simple_kriging", {"mean": 9.0}))
    field = case.field(method, variogram=model, **more)
    here = Targets(case.places, {"elevation": case.elevation})
    reporting, within = np.isfinite(case.values), tolerance(field)
    np.testing.assert_allclose(
        field.estimate(here)[reporting], case.values[reporting], rtol=100 * within, atol=100 * within
    )
    assert np.abs(field.variance(here)[reporting]).max() < 100 * within


@pytest.mark.parametrize("kind", KINDS)
def test_weights_sum_to_one_and_carry_the_drift(kind: str) -> None:
    case, model = Case(3), model_of("exponential", nugget=0.1, anisotropy=None)
    method, more = PARAMETERS[kind]
    # Kriging each station's indicator gives its weights.
    case.values = np.eye(len(case.places))
    weights = case.field(method, variogram=model, **more).estimate(case.targets)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, atol=1e-11)
    if kind in ("universal", "both"):
        np.testing.assert_allclose(weights.T @ case.places, case.points, atol=1e-8)
    if kind in ("external drift", "both"):
        np.testing.assert_allclose(weights.T @ case.elevation, case.heights, atol=1e-8)


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("neighbours", [None, 14])
def test_a_polynomial_is_reproduced(degree: int, neighbours: int | None) -> None:
    case = Case(4)

    def surface(places: Floats) -> Floats:
        x, y = places.T / 1000.0
        return 3.0 + 2.0 * x - y + (degree - 1) * (0.7 * x * x - 0.4 * x * y + y * y)

    case.values = np.where(np.isfinite(case.values), surface(case.places), np.nan)
    given_: dict[str, Any] = {"variogram": model_of("spherical", nugget=0.1, anisotropy=None), "degree": degree}
    field = case.field("universal_kriging", **given_, **({"neighbours": neighbours} if neighbours else {}))
    np.testing.assert_allclose(field.estimate(case.targets), np.tile(surface(case.points), (4, 1)), atol=1e-9)


def cells(centres: Floats, size_m: float, quadrature: int) -> Targets:
    nodes, shares = np.polynomial.legendre.leggauss(quadrature)
    offsets = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2) * size_m / 2
    return Targets((centres[:, None] + offsets).reshape(-1, 2), {}, np.outer(shares, shares).ravel() / 4)


@pytest.mark.parametrize("mean", [None, 9.0])
@pytest.mark.parametrize("neighbours", [None, 6])
def test_a_block_is_the_mean_of_points_and_a_small_one_a_point(mean: float | None, neighbours: int | None) -> None:
    case, model = Case(5), model_of("exponential", nugget=0.0, anisotropy=None)
    method, more = ("ordinary_kriging", {}) if mean is None else ("simple_kriging", {"mean": mean})
    field = case.field(method, variogram=model, **more, **({"neighbours": neighbours} if neighbours else {}))
    tiny = cells(case.points, 1e-4, 4)
    np.testing.assert_allclose(field.estimate(tiny), field.estimate(Targets(case.points)), atol=1e-5)
    np.testing.assert_allclose(field.variance(tiny), field.variance(Targets(case.points)), atol=1e-5)
    if neighbours is None:
        wide = cells(case.points, 100.0, 6)
        points = field.estimate(Targets(wide.positions_m)).reshape(len(case.values), len(case.points), 36)
        np.testing.assert_allclose(field.estimate(wide), points @ wide.weights, atol=1e-10)


def test_the_variance_of_a_block_is_that_of_the_mean_of_its_points() -> None:
    case, model = Case(6), model_of("spherical", nugget=0.0, anisotropy=None)
    field = KrigingField(KrigingSystem.of(case.stations, model, Drift(mean=0.0)), case.values[:1])
    block = cells(case.points[:1], 200.0, 5)
    present = np.isfinite(case.values[0])
    # Slow: the covariance of all quadrature points given the stations, by the textbook.
    places = np.concatenate([block.positions_m, case.places[present]])
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    covariance = model.sill - model.semivariance(distance)
    among, across, data = covariance[:25, :25], covariance[:25, 25:], covariance[25:, 25:]
    left = among - across @ np.linalg.solve(data, across.T)
    assert field.variance(block)[0, 0] == pytest.approx(block.weights @ left @ block.weights, rel=1e-9)


def test_the_variance_of_the_noise_free_value_leaves_the_noise_out() -> None:
    case = Case(7)
    model = variogram("exponential", psill=1.5, range_m=400.0, nugget=0.3, nugget_is="measurement error")
    observable = case.field("ordinary_kriging", variogram=model).variance(case.targets)
    noise_free = case.field("ordinary_kriging", variogram=model, variance_of="noise-free").variance(case.targets)
    np.testing.assert_allclose(observable - noise_free, 0.3, atol=1e-12)


def test_a_slice_that_does_not_determine_the_drift_is_missing_and_counts_none() -> None:
    case = Case(8)
    case.values[0, 2:] = np.nan
    line = case.places[:6].copy()
    line[:, 1] = 5.0 + 2.0 * line[:, 0]
    case.stations.positions_m[:6] = line
    case.values[1] = np.nan
    case.values[1, :6] = np.arange(6.0)
    field = case.field("universal_kriging", variogram=model_of("exponential", nugget=0.1, anisotropy=None))
    assert field.counts[:2].tolist() == [0, 0]
    assert np.isnan(field.estimate(case.targets)[:2]).all()
    assert np.isnan(field.variance(case.targets)[:2]).all()
    assert np.isfinite(field.estimate(case.targets)[2:]).all()


@pytest.mark.parametrize(
    ("method", "given_", "error", "words"),
    [
        ("universal_kriging", {"degree": 3}, InvalidQuery, "'degree' of 1 or 2; got 3"),
        ("external_drift_kriging", {"degree": 7}, InvalidQuery, "0, 1 or 2; got 7"),
        ("external_drift_kriging", {"drift": ["elevation", "elevation"]}, InvalidQuery, "each covariate once"),
        ("external_drift_kriging", {"drift": []}, InvalidQuery, "needs a list of names"),
        ("ordinary_kriging", {"quadrature": 99}, InvalidQuery, "at most 16 points a side; got 99"),
        ("ordinary_kriging", {"support": "block", "quadrature": 1}, InvalidQuery, "at least 2 points a side .*; got 1"),
        ("ordinary_kriging", {"radius_m": -1}, InvalidQuery, "'radius_m' above zero; got -1"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    method: str, given_: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Case(1).field(method, variogram=model_of("exponential", nugget=0.1, anisotropy=None), **given_)


def test_a_network_that_does_not_determine_the_drift_is_refused_with_what_to_do() -> None:
    model = model_of("exponential", nugget=0.1, anisotropy=None)
    case = Case(9)
    case.elevation[:] = 1500.0
    with pytest.raises(SingularSystem, match="differ independently in elevation"):
        case.field("external_drift_kriging", variogram=model)
    few = Case(9, stations=9)
    with pytest.raises(InvalidQuery, match="at least 6 stations"):
        METHODS["universal_kriging"].prepare(
            few.stations.take_stations(np.arange(4)), few.values[:, :4], {"variogram": model, "degree": 2}
        )
    with pytest.raises(InvalidQuery, match="needs a variogram with a sill; linear has none"):
        case.field("simple_kriging", mean=1.0, variogram=variogram("linear", psill=1, range_m=100))
