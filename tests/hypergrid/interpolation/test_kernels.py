"""Compiled covariances against numpy's, and that they are out of the way where jobs are small."""

import ast
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from hypergrid.core.blas import count_cores
from hypergrid.core.geodesy import places_m
from hypergrid.interpolation import variogram, warm
from hypergrid.interpolation.kernels import covariance, covariance_loops
from hypergrid.interpolation.kernels.covariance import Covariance
from hypergrid.interpolation.kernels.covariance_loops import arcsine, exponential
from hypergrid.interpolation.kernels.threads import SOURCES, jit_kernel, share
from hypergrid.interpolation.local import field as local
from hypergrid.interpolation.local import numba_backend
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.local.neighbourhood import NeighbourSelection
from hypergrid.interpolation.points import Stations, Targets, separations
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.system import KrigingSystem

SHAPES = {
    "exponential": variogram("exponential", psill=1.2, range_m=2500, nugget=0.05),
    "gaussian": variogram("gaussian", psill=1.2, range_m=2500, nugget=0.05),
    "spherical": variogram("spherical", psill=1.2, range_m=2500),
    "linear": variogram("linear", psill=1.2, range_m=2500, nugget=0.05),
    "matern 1/2": variogram("matern", psill=1.2, range_m=2500, smoothness=0.5),
    "matern 3/2": variogram("matern", psill=1.2, range_m=2500, smoothness=1.5, nugget=0.05),
    "matern 5/2": variogram("matern", psill=1.2, range_m=2500, smoothness=2.5, nugget=0.05),
    "nugget": variogram("nugget", nugget=0.3),
    "power": variogram("power", psill=1.2, range_m=2500, exponent=1.3),
}
SHAPES["sum"] = SHAPES["exponential"] + SHAPES["gaussian"] + SHAPES["spherical"]


@pytest.fixture(params=["plane", "sphere"])
def places(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    """Points and stations; some points at a station, and on the sphere some at its antipode."""
    rng = np.random.default_rng(0)
    if request.param == "plane":
        stations, points = rng.uniform(0, 1e4, (37, 2)), rng.uniform(0, 1e4, (501, 2))
    else:
        stations = places_m(rng.uniform(-180, 180, 37), rng.uniform(-90, 90, 37)) / 1000
        points = places_m(rng.uniform(-180, 180, 501), rng.uniform(-90, 90, 501)) / 1000
        # The sphere has one size: ranges of a few kilometres would leave nothing to compare.
        stations, points = stations * 1000, points * 1000
        points[37:74] = -stations
    points[:37] = stations
    return points, stations


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("near", [None, 1e-10])
@pytest.mark.parametrize("origin", [0.0, 1.7])
def test_compiled_covariances_are_those_of_the_variogram(
    monkeypatch: pytest.MonkeyPatch,
    places: tuple[np.ndarray, np.ndarray],
    shape: str,
    near: float | None,
    origin: float,
) -> None:
    points, stations = places
    model = SHAPES[shape]
    if points.shape[1] == 3:
        model = variogram(**{**model.to_json(), "range_m": 5e6, "nested": ()})
    distance = separations(points, stations)
    expected = origin - model.semivariance(distance)
    if near is not None:
        assert (distance <= near).any()
        expected[distance <= near] = origin
    dual = np.random.default_rng(1).normal(size=(len(stations), 3))
    for worth in (0, 10**9):
        monkeypatch.setattr(covariance, "WORTH_COMPILED", worth)
        whole = np.full((len(points), len(stations) + 2), 7.0)
        covariances = Covariance(model, origin, near)
        found = covariances.evaluate(points, stations, out=whole[:, : len(stations)])
        size = np.abs(expected).max() or 1.0
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-15 * size)
        assert (whole[:, len(stations) :] == 7.0).all()
        product = covariances.multiply(points, stations, dual)
        np.testing.assert_allclose(product, (expected @ dual).T, atol=1e-13 * size)


def test_the_exponential_has_fifteen_digits() -> None:
    @jit_kernel()
    def write_exponentials(x: np.ndarray, out: np.ndarray) -> None:
        for i in range(x.size):
            out[i] = exponential(x[i])

    x = -np.concatenate([np.linspace(0, 2, 20_001), np.linspace(2, 707, 20_001), [0.0, 1e-300, 1e-17, 1e308, math.inf]])
    powers = np.empty_like(x)
    write_exponentials(x, powers)
    np.testing.assert_allclose(powers[:-2], np.exp(x[:-2]), rtol=1e-15)
    assert powers[-5] == 1.0
    assert ((powers[-2:] >= 0) & (powers[-2:] < 1e-300)).all()


def test_the_arcsine_has_fifteen_digits() -> None:
    @jit_kernel()
    def write_arcsines(squares: np.ndarray, out: np.ndarray) -> None:
        for i in range(squares.size):
            out[i] = arcsine(squares[i])

    squares = np.linspace(0, 1, 2001)
    angles = np.empty_like(squares)
    write_arcsines(squares, angles)
    exact = [math.asin(math.sqrt(square)) for square in squares]
    np.testing.assert_allclose(angles, exact, rtol=1e-15, atol=1e-300)


def test_two_threads_may_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covariance, "WORTH_COMPILED", 0)
    rng = np.random.default_rng(2)
    points, stations = rng.uniform(0, 1e4, (3000, 2)), rng.uniform(0, 1e4, (60, 2))
    covariances = Covariance(SHAPES["exponential"])
    expected = covariances.evaluate(points, stations)
    wrong: list[int] = []

    def ask() -> None:
        for turn in range(20):
            if not np.array_equal(covariances.evaluate(points, stations), expected):
                wrong.append(turn)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_shared_work_is_done_once_each_and_its_error_comes_through() -> None:
    done: list[int] = []
    share(done.append, range(20))
    assert sorted(done) == list(range(20))

    def fail(piece: int) -> None:
        if piece == 3:
            message = "the third"
            raise ValueError(message)

    for _ in range(2):
        with pytest.raises(ValueError, match="the third"):
            share(fail, range(8))
    # Work that shares its own work does it in its own thread, and nobody waits for anybody.
    nested: list[int] = []
    share(lambda piece: share(lambda part: nested.append(10 * piece + part), range(3)), range(3))
    assert sorted(nested) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_the_number_of_threads_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert count_cores() == 1
    monkeypatch.setenv("NUMBA_NUM_THREADS", "")
    assert count_cores() >= 1


def test_a_small_job_loads_no_compiler() -> None:
    program = """
import sys, numpy as np
from hypergrid.interpolation import variogram
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.local.neighbourhood import NeighbourSelection
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.system import KrigingSystem
rng = np.random.default_rng(0)
stations = Stations(rng.uniform(0, 1000, (23, 2)), tuple(map(str, range(23))))
values = rng.normal(size=(40, 23))
system = KrigingSystem.of(stations, variogram("exponential", psill=1.0, range_m=300))
field = LocalField(system, values, NeighbourSelection(10))
assert np.isfinite(field.estimate(Targets(rng.uniform(0, 1000, (529, 2))))).all()
assert "numba" not in sys.modules, "numba was imported"
from hypergrid.interpolation.kernels import threads
import os
assert os.environ["NUMBA_THREADING_LAYER"] == "workqueue"
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr


def test_machine_code_is_kept_by_all_the_files_that_it_is_made_from() -> None:
    folder = Path(covariance.__file__).parents[1]
    using = [path for path in folder.rglob("*.py") if "import jit_kernel" in path.read_text(encoding="utf-8")]
    assert len(using) >= 3
    for path in using:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
        own = [
            folder.parent.parent / (name.replace(".", "/") + ".py") for name in names if name.startswith("hypergrid.")
        ]
        assert {path, *own} <= set(SOURCES)


def test_warming_compiles_all_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    warm.warm()
    monkeypatch.setattr(local, "WORTH_COMPILED", -1.0)
    monkeypatch.setattr(covariance, "WORTH_COMPILED", 0)
    functions = (numba_backend.run, covariance_loops.write_covariances, covariance_loops.write_products)
    before = [len(function.signatures) for function in functions]
    rng = np.random.default_rng(3)
    for dimensions in (2, 3):
        stations = Stations(rng.normal(size=(30, dimensions)), tuple(map(str, range(30))), {"e": rng.normal(size=30)})
        targets = Targets(rng.normal(size=(80, dimensions)), {"e": rng.normal(size=80)}, np.full(4, 0.25))
        for model in (SHAPES["exponential"], SHAPES["linear"]):
            for drift, limits in ((Drift(), {}), (Drift(covariates=("e",)), {"radius_m": 2.0, "octants": 1})):
                field = LocalField(
                    KrigingSystem.of(stations, model, drift), rng.normal(size=(9, 30)), NeighbourSelection(5, **limits)
                )
                field.estimate(targets)
                field.variance(targets.take_targets(slice(1, 9)))
                field.counts_at(targets)
            places = targets.positions_m, stations.positions_m
            assert Covariance(model).evaluate(*places).shape == (80, 30)
            Covariance(model).evaluate(*places, out=np.empty((80, 33))[:, :30])
            Covariance(model).multiply(*places, rng.normal(size=(30, 2)))
    assert [len(function.signatures) for function in functions] == before
