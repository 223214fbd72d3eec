"""Errors of regional means, against the covariances of every cell with every other."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from hypergrid.interpolation import variogram
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.uncertainty import block_variance
from hypergrid.interpolation.uncertainty.block_variance import (
    combinations_of,
    mean_semivariance,
    mean_variance,
    regions_of,
    slice_variance,
)
from hypergrid.interpolation.uncertainty.mean_variance import ALIKE, INDEPENDENT, Correlation
from hypergrid.interpolation.variograms.variogram import Anisotropy, Variogram

Floats = NDArray[np.float64]


def network(seed: int, *, stations: int = 8, slices: int = 5) -> tuple[Stations, Floats]:
    rng = np.random.default_rng(seed)
    values = rng.normal(10, 2, (slices, stations))
    values[rng.random(values.shape) < 0.25] = np.nan
    values[:, 0] = 1.0
    return Stations(rng.uniform(0, 1000, (stations, 2)), tuple(map(str, range(stations)))), values


def cells(rows: int, columns: int, size_m: float = 100.0) -> Targets:
    y, x = np.meshgrid(np.arange(rows) * size_m + 50, np.arange(columns) * size_m + 50, indexing="ij")
    return Targets(np.stack([x.ravel(), y.ravel()], axis=1))


def mean_of(*members: list[int], cells: int) -> sparse.csr_array:
    dense = np.zeros((len(members), cells))
    for number, inside in enumerate(members):
        dense[number, inside] = 1 / len(inside)
    return sparse.csr_array(dense)


def brute_force(stations: Stations, line: Floats, targets: Targets, share: Floats, field: KrigingField) -> float:
    """`w' K w - 2 w' k + a' C a` with each cell's covariances, noise of the cells' own values where it is asked for."""
    model: Variogram = field.system.model
    here = stations.positions_m[np.isfinite(line)]
    noise = model.nugget if model.nugget_is == "measurement error" else 0.0

    def cov(a: Floats, b: Floats) -> Floats:
        distance = cdist(a, b)
        structured = model.sill - model.semivariance(distance)
        return structured + (model.nugget * (distance == 0) if not noise else 0.0)

    one = np.ones((len(here), 1))
    matrix = np.block([[cov(here, here) + noise * np.eye(len(here)), one], [one.T, np.zeros((1, 1))]])
    sides = cov(here, targets.positions_m) @ share
    weights = np.linalg.solve(matrix, np.append(sides, 1.0))[:-1]
    own = share @ cov(targets.positions_m, targets.positions_m) @ share
    observable = noise * float(share @ share) if not field.noise_free else 0.0
    return float(weights @ matrix[:-1, :-1] @ weights - 2 * weights @ sides + own + observable)


@pytest.mark.parametrize("noise_free", [False, True])
@pytest.mark.parametrize("meaning", ["micro-scale", "measurement error"])
@pytest.mark.parametrize("nugget", [0.0, 0.4])
def test_a_regional_mean_is_what_all_covariances_say(nugget: float, meaning: str, *, noise_free: bool) -> None:
    stations, values = network(1)
    model = variogram("exponential", psill=2.0, range_m=700.0, nugget=nugget, nugget_is=meaning)
    field = KrigingField(KrigingSystem.of(stations, model), values, noise_free=noise_free)
    targets = cells(4, 5)
    weights = mean_of(list(range(20)), [3, 4, 8, 9], [7], cells=20)
    found = slice_variance(field, regions_of(field, targets, weights))
    for number, line in enumerate(values):
        for region in range(3):
            share = weights.toarray()[region]
            wanted = brute_force(stations, line, targets, share, field)
            assert found[number, region] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("drift", [Drift(), Drift(degree=1), Drift(mean=10.0)])
@pytest.mark.parametrize("meaning", ["micro-scale", "measurement error"])
def test_a_region_of_one_cell_is_that_cell(drift: Drift, meaning: str) -> None:
    stations, values = network(2)
    values[2, 3:] = np.nan
    model = variogram("spherical", psill=2.0, range_m=700.0, nugget=0.3, nugget_is=meaning)
    for noise_free in (False, True):
        field = KrigingField(KrigingSystem.of(stations, model, drift), values, noise_free=noise_free)
        targets = cells(3, 3)
        regions = regions_of(field, targets, sparse.csr_array(np.eye(9)))
        np.testing.assert_allclose(slice_variance(field, regions), field.variance(targets), rtol=1e-9, atol=1e-12)


def test_regions_of_blocks_are_the_block_of_all_their_parts() -> None:
    stations, values = network(3)
    model = variogram("exponential", psill=2.0, range_m=700.0, nugget=0.3)
    field = KrigingField(KrigingSystem.of(stations, model), values)
    four = np.array([[25.0, 25.0], [25.0, 75.0], [75.0, 25.0], [75.0, 75.0]])
    corners = np.array([[0.0, 0.0], [0.0, 100.0], [100.0, 0.0], [100.0, 100.0]])
    parts = (corners[:, None] + four).reshape(-1, 2)
    whole = Targets(parts, {}, np.full(16, 1 / 16))
    quarters = Targets(parts, {}, np.full(4, 1 / 4))
    found = slice_variance(field, regions_of(field, quarters, sparse.csr_array(np.full((1, 4), 0.25))))
    np.testing.assert_allclose(found, field.variance(whole), rtol=1e-9)


@pytest.mark.parametrize("meaning", ["micro-scale", "measurement error"])
def test_means_over_one_slice_are_that_slice_and_over_all_lie_in_their_bracket(meaning: str) -> None:
    stations, values = network(4, slices=12)
    values[5] = np.nan
    model = variogram("exponential", psill=2.0, range_m=700.0, nugget=0.3, nugget_is=meaning)
    field = KrigingField(KrigingSystem.of(stations, model), values)
    regions = regions_of(field, cells(3, 3), mean_of(list(range(9)), [0, 1], cells=9))
    times_s = np.arange(12) * 600.0
    each = np.eye(12)
    each[5] = 0
    times = {"times_s": times_s, "correlation": Correlation(600.0)}
    alone = mean_variance(combinations_of(field, sparse.csr_array(each), **times), regions)
    np.testing.assert_allclose(alone, slice_variance(field, regions), rtol=1e-9)
    assert np.isnan(alone[5]).all()
    mean = sparse.csr_array(np.where(np.arange(12) == 5, 0.0, 1 / 11)[None])

    def over_all(correlation: Correlation) -> Floats:
        found = combinations_of(field, mean, times_s=times_s, correlation=correlation)
        return mean_variance(found, regions)

    low, middle, high = over_all(INDEPENDENT), over_all(Correlation(3600.0)), over_all(ALIKE)
    assert (low < middle).all()
    assert (middle < high).all()
    np.testing.assert_allclose(low[0], np.nansum(slice_variance(field, regions), axis=0) / 11**2, rtol=1e-9)


def test_large_regions_are_summed_in_blocks_and_larger_ones_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    jitter = np.random.default_rng(1).uniform(-1, 1, (1200, 2))
    targets = Targets(cells(30, 40).positions_m + jitter)
    model = variogram("exponential", psill=2.0, range_m=1500.0, nugget=0.3)
    weights = mean_of(list(range(1200)), cells=1200)
    at_once, sampled = mean_semivariance(targets, weights, model=model, nugget_at_0=False)
    distance = cdist(targets.positions_m, targets.positions_m)
    gamma = model.semivariance(distance)
    np.fill_diagonal(gamma, 0.0)
    assert (at_once[0], sampled) == (pytest.approx(gamma.mean(), rel=1e-12), 0)
    monkeypatch.setattr(block_variance, "PAIRS_AT_ONCE", 50_000)
    in_blocks, _ = mean_semivariance(targets, weights, model=model, nugget_at_0=False)
    assert in_blocks == pytest.approx(at_once, rel=1e-12)
    monkeypatch.setattr(block_variance, "MAX_CELLS", 170)
    some, sampled = mean_semivariance(targets, weights, model=model, nugget_at_0=False)
    assert sampled == 1200
    assert some == pytest.approx(at_once, rel=0.01)


@pytest.mark.parametrize("shape", [(30, 40), (1, 1200), (1200, 1), (33, 37)])
def test_cells_of_a_grid_in_metres_are_summed_by_separation(shape: tuple[int, int]) -> None:
    targets = cells(*shape)
    turned = Targets(targets.positions_m @ np.array([[0.8, -0.6], [0.6, 0.8]]))
    anisotropy = Anisotropy(30.0, 2.0)
    model = variogram("spherical", psill=2.0, range_m=1500.0, nugget=0.3, anisotropy=anisotropy)
    share = np.random.default_rng(1).uniform(0.5, 1.0, (1, targets.count))
    for places in (targets, turned):
        found, _ = mean_semivariance(places, sparse.csr_array(share), model=model, nugget_at_0=True)
        isotropic = model.isotropic(places.positions_m)
        wanted = share[0] @ model.semivariance(cdist(isotropic, isotropic)) @ share[0]
        assert found[0] == pytest.approx(wanted, rel=1e-10)


def test_a_grid_with_holes_is_no_lattice_and_is_summed_all_the_same() -> None:
    targets = cells(40, 40)
    kept = np.sort(np.random.default_rng(1).permutation(1600)[:1200])
    model = variogram("exponential", psill=2.0, range_m=1500.0)
    holes = Targets(targets.positions_m[kept])
    found, _ = mean_semivariance(holes, mean_of(list(range(1200)), cells=1200), model=model, nugget_at_0=False)
    wanted = model.semivariance(cdist(holes.positions_m, holes.positions_m)).mean()
    assert found[0] == pytest.approx(wanted, rel=1e-12)
