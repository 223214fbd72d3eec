"""Kriging on the nearest stations, by numpy and by compiled loops, against one small solve a target and a slice."""

import numpy as np
import pytest
from numpy.typing import NDArray
from pykrige.ok import OrdinaryKriging

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation import Variogram, variogram
from hypergrid.interpolation.local import field as local
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.local.neighbourhood import NeighbourSelection
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.weight_cache import WEIGHTS

Floats = NDArray[np.float64]

EXPONENTIAL = variogram("exponential", psill=1.5, range_m=400.0, nugget=0.1)
ORDINARY = Drift()
MODELS = {
    "exponential": EXPONENTIAL,
    "exact": variogram("exponential", psill=1.5, range_m=400.0),
    "spherical": variogram("spherical", psill=1.5, range_m=400.0, nugget=0.1),
    "gaussian": variogram("gaussian", psill=1.5, range_m=300.0, nugget=0.1),
    "matern": variogram("matern", psill=1.5, range_m=400.0, smoothness=1.5, nugget=0.05),
    "linear": variogram("linear", psill=1.5, range_m=400.0, nugget=0.1),
    "power": variogram("power", psill=1.5, range_m=400.0, exponent=1.6, nugget=0.1),
    "noise": variogram("exponential", psill=1.5, range_m=400.0, nugget=0.3, nugget_is="measurement error"),
    "ellipse": variogram(
        "exponential", psill=1.5, range_m=400.0, nugget=0.1, anisotropy={"angle_degree": 30.0, "ratio": 2.5}
    ),
    "sum": EXPONENTIAL + variogram("spherical", psill=0.7, range_m=900.0),
}
DRIFTS = {
    "ordinary": ORDINARY,
    "simple": Drift(mean=3.0),
    "plane": Drift(degree=1),
    "square": Drift(degree=2),
    "external": Drift(covariates=("elevation",)),
    "both": Drift(degree=1, covariates=("elevation",)),
}


@pytest.fixture(params=["numpy", "compiled", "numpy, kept", "compiled, kept"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the ways, whatever the size of the job and the number of slices."""
    WEIGHTS.clear()
    monkeypatch.setattr(local, "WORTH_COMPILED", np.inf if "numpy" in request.param else -1.0)
    monkeypatch.setattr(local, "FEW_SLICES", 10**9 if "kept" in request.param else 0)
    return str(request.param)


def network(
    seed: int = 0, *, stations: int = 30, slices: int = 6, targets: int = 40, parts: int = 1, holes: float = 0.3
) -> tuple[Stations, Floats, Targets]:
    """Return stations, values with random holes (one slice with three stations, one without any), and targets."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 1000, (stations, 2))
    values = rng.normal(10.0, 3.0, (slices, stations))
    values[rng.random(values.shape) < holes] = np.nan
    if slices > 4:
        values[3] = np.nan
        values[4, 3:] = np.nan
    middles = rng.uniform(0, 1000, (targets, 1, 2))
    corners = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]])[:parts] * 11.0 if parts > 1 else np.zeros((1, 2))
    covariates = {"elevation": rng.uniform(200, 2000, targets * parts)}
    names = tuple(f"s{i}" for i in range(stations))
    return (
        Stations(places, names, {"elevation": rng.uniform(200, 2000, stations)}),
        values,
        Targets((middles + corners).reshape(-1, 2), covariates, np.full(parts, 1.0 / parts)),
    )


def one_by_one(field: LocalField, values: Floats, targets: Targets, maximum: int) -> tuple[Floats, Floats]:
    """Return estimates and variances from one least-squares solution for each target and slice."""
    system = field.system
    matrix, sides = system.matrix(), system.sides(targets)
    within = np.broadcast_to(system.within_variance(targets), (targets.count,))
    middles = system.model.isotropic(targets.mean(targets.positions_m))
    mean = system.drift.drift.mean or 0.0
    estimates = np.full((len(values), targets.count), np.nan)
    variances = estimates.copy()
    for number, line in enumerate(values):
        present = np.flatnonzero(np.isfinite(line))
        for target, middle in enumerate(middles):
            distance = np.linalg.norm(system.isotropic_m[present] - middle, axis=1)
            near = present[np.argsort(distance, kind="stable")[:maximum]]
            if len(near) < system.drift.drift.min_stations():
                continue
            rows = np.r_[near, system.stations.count : system.size]
            solved = np.linalg.lstsq(matrix[np.ix_(rows, rows)], sides[target, rows], rcond=None)[0]
            estimates[number, target] = mean + solved[: len(near)] @ (line[near] - mean)
            variances[number, target] = within[target] - solved @ sides[target, rows]
    return estimates, variances


def check(model: Variogram, drift: Drift, *, parts: int, neighbours: int, seed: int) -> None:
    stations, values, targets = network(seed, parts=parts)
    # A network so small that all of it is asked for is another test's.
    field = LocalField(KrigingSystem.of(stations, model, drift), values, NeighbourSelection(neighbours))
    estimates, variances = one_by_one(field, values, targets, neighbours)
    found, variance = field.estimate(targets), field.variance(targets)
    # Three stations determine three coefficients only as well as they happen to lie.
    np.testing.assert_allclose(found, estimates, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(variance, np.maximum(variances, 0.0), rtol=1e-7, atol=1e-9)
    assert (field.counts_at(targets) > 0).tolist() == np.isfinite(estimates).tolist()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("parts", [1, 4])
def test_agrees_with_one_solution_a_target_and_slice_for_each_model(model: str, parts: int) -> None:
    check(MODELS[model], ORDINARY, parts=parts, neighbours=9, seed=1)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("drift", list(DRIFTS))
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("neighbours", [7, 8, 12])
def test_agrees_with_one_solution_a_target_and_slice_for_each_drift(drift: str, parts: int, neighbours: int) -> None:
    check(EXPONENTIAL, DRIFTS[drift], parts=parts, neighbours=neighbours, seed=2)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("neighbours", [2, 5, 16, 17, 24, 29])
def test_agrees_with_pykrige(neighbours: int) -> None:
    stations, values, targets = network(3)
    found = LocalField(KrigingSystem.of(stations, EXPONENTIAL), values, NeighbourSelection(neighbours))
    estimates, variances = found.estimate(targets), found.variance(targets)
    for number, line in enumerate(values):
        here = np.isfinite(line)
        if not here.any():
            continue
        peer = OrdinaryKriging(
            *stations.positions_m[here].T,
            line[here],
            variogram_model="exponential",
            variogram_parameters={"psill": 1.5, "range": 400.0, "nugget": 0.1},
            pseudo_inv=False,
        )
        most = min(neighbours, int(here.sum()))
        value, variance = peer.execute("points", *targets.positions_m.T, backend="C", n_closest_points=most)
        np.testing.assert_allclose(estimates[number], value, atol=1e-10)
        np.testing.assert_allclose(variances[number], variance, atol=1e-10)


@pytest.mark.usefixtures("way")
def test_all_neighbours_are_kriging_on_all_stations() -> None:
    stations, values, targets = network(4)
    for drift in (ORDINARY, Drift(mean=9.0), Drift(degree=1)):
        near = LocalField(KrigingSystem.of(stations, EXPONENTIAL, drift), values, NeighbourSelection(99))
        whole = KrigingField(KrigingSystem.of(stations, EXPONENTIAL, drift), values)
        np.testing.assert_allclose(near.estimate(targets), whole.estimate(targets), atol=1e-10)
        np.testing.assert_allclose(near.variance(targets), whole.variance(targets), atol=1e-10)
        np.testing.assert_array_equal(near.counts, whole.counts)


@pytest.mark.usefixtures("way")
def test_many_masks_chunks_and_sets_do_not_change_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    stations, values, targets = network(5, stations=60, slices=150, targets=300, holes=0.4)
    field = LocalField(KrigingSystem.of(stations, EXPONENTIAL), values, NeighbourSelection(6))
    whole = field.estimate(targets)
    estimates, _ = one_by_one(field, values, targets, 6)
    np.testing.assert_allclose(whole, estimates, atol=1e-10)
    WEIGHTS.clear()
    monkeypatch.setattr(local, "POINTS_AT_ONCE", 37)
    # So small that the table of sets is emptied many times.
    monkeypatch.setattr(local, "FACTOR_BYTES", 1)
    # Too few, so that targets come back for more.
    monkeypatch.setattr(local, "MORE_CANDIDATES", 0)
    np.testing.assert_allclose(field.estimate(targets), whole, rtol=0, atol=1e-13)


def test_an_estimate_does_not_depend_on_what_else_is_asked_to_the_last_digit(way: str) -> None:
    stations, values, targets = network(6, stations=50, slices=20, targets=90)
    for drift in (ORDINARY, Drift(degree=1)):
        field = LocalField(KrigingSystem.of(stations, MODELS["linear"], drift), values, NeighbourSelection(8))
        whole = field.estimate(targets)
        parts = [field.estimate(targets.take_targets(slice(a, b))) for a, b in ((0, 1), (1, 40), (40, 40), (40, 90))]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole, err_msg=way)


@pytest.mark.usefixtures("way")
def test_slices_of_one_mask_are_solved_together_and_stay_apart() -> None:
    stations, _, targets = network(7)
    values = np.random.default_rng(0).normal(size=(70, stations.count))
    values[:, 4] = np.nan
    values[31, 8] = np.nan
    field = LocalField(KrigingSystem.of(stations, EXPONENTIAL), values, NeighbourSelection(5))
    np.testing.assert_allclose(field.estimate(targets), one_by_one(field, values, targets, 5)[0], atol=1e-10)
    variance = field.variance(targets)
    assert (variance[:31] == variance[0]).all()
    assert (variance[31] >= variance[0] - 1e-12).all()


@pytest.mark.usefixtures("way")
def test_stations_that_do_not_determine_the_drift_give_missing_cells() -> None:
    # Ten stations on a line in the west, and ten apart in the east.
    rng = np.random.default_rng(8)
    line = np.stack([np.linspace(0, 100, 10), np.linspace(0, 200, 10)], axis=1)
    places = np.concatenate([line, rng.uniform([5000, 0], [5200, 200], (10, 2))])
    stations = Stations(places, tuple(map(str, range(20))))
    values = rng.normal(size=(3, 20))
    targets = Targets(np.array([[50.0, 90.0], [5100.0, 90.0]]))
    field = LocalField(KrigingSystem.of(stations, EXPONENTIAL, Drift(degree=1)), values, NeighbourSelection(6))
    for result in (field.estimate(targets), field.variance(targets)):
        assert np.isnan(result[:, 0]).all()
        assert np.isfinite(result[:, 1]).all()
    assert field.counts_at(targets).tolist() == [[0, 6]] * 3


@pytest.mark.usefixtures("way")
def test_a_plane_is_reproduced_and_its_network_may_lie_anywhere() -> None:
    stations, _, targets = network(9)
    away = np.array([2.6e6, 1.2e6])
    moved = Stations(stations.positions_m + away, stations.names)
    values = (3.0 + moved.positions_m @ [0.02, -0.01])[None]
    field = LocalField(KrigingSystem.of(moved, EXPONENTIAL, Drift(degree=1)), values, NeighbourSelection(6))
    found = field.estimate(Targets(targets.positions_m + away))
    np.testing.assert_allclose(found[0], 3.0 + (targets.positions_m + away) @ [0.02, -0.01], rtol=1e-9)


@pytest.mark.usefixtures("way")
def test_the_variance_of_the_noise_free_value_is_less_by_the_noise() -> None:
    stations, values, targets = network(10)
    seen = LocalField(KrigingSystem.of(stations, MODELS["noise"]), values, NeighbourSelection(6))
    free = LocalField(KrigingSystem.of(stations, MODELS["noise"]), values, NeighbourSelection(6), noise_free=True)
    np.testing.assert_allclose(free.variance(targets), seen.variance(targets) - 0.3, atol=1e-12)


@pytest.mark.usefixtures("way")
def test_a_singular_set_is_refused_and_says_what_to_do() -> None:
    stations, values, targets = network(11, stations=60)
    smooth = variogram("gaussian", psill=1.0, range_m=50_000.0)
    field = LocalField(KrigingSystem.of(stations, smooth), values, NeighbourSelection(20))
    with pytest.raises(SingularSystem, match="raise the nugget"):
        field.estimate(targets)


def test_fewer_neighbours_than_the_drift_needs_are_refused() -> None:
    stations, values, _ = network(12)
    with pytest.raises(InvalidQuery, match="at least 6 stations for each estimate; got neighbours=5"):
        LocalField(KrigingSystem.of(stations, EXPONENTIAL, Drift(degree=2)), values, NeighbourSelection(5))


@pytest.mark.usefixtures("way")
def test_no_slices_no_targets_and_no_readings() -> None:
    stations, values, targets = network(13)
    system, selection = KrigingSystem.of(stations, EXPONENTIAL), NeighbourSelection(5)
    assert LocalField(system, values[:0], selection).estimate(targets).shape == (0, targets.count)
    assert LocalField(system, values, selection).estimate(targets.take_targets(slice(0, 0))).shape == (6, 0)
    empty = LocalField(system, np.full_like(values, np.nan), selection)
    assert np.isnan(empty.estimate(targets)).all()
    assert not empty.counts.any()
    assert not empty.counts_at(targets).any()
