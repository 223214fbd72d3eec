"""The cache of systems: bounded, shared between threads, and never a reason for another answer."""

import threading

import numpy as np
import pytest

from hypergrid.interpolation import METHODS, WEIGHTS, Stations, Targets, variogram
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.weight_cache import WeightCache, key_of


def test_what_is_kept_is_made_once() -> None:
    cache, made = WeightCache(), []

    def make() -> np.ndarray:
        made.append(1)
        return np.arange(3.0)

    first, second = cache.get(b"a", make), cache.get(b"a", make)
    assert first is second
    assert len(made) == 1
    seen = cache.statistics()
    assert (seen.hits, seen.misses, seen.entries, seen.held_bytes, seen.evictions) == (1, 1, 1, 24, 0)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 9.0


def test_the_least_recently_used_goes_and_the_bound_holds() -> None:
    cache = WeightCache(allowed_bytes=4 * 80)
    for name in (b"a", b"b", b"c", b"d"):
        cache.get(name, lambda: np.zeros(10))
    cache.get(b"a", lambda: np.ones(10))
    cache.get(b"e", lambda: np.zeros(10))
    assert cache.peek(b"b") is None
    assert cache.peek(b"a") is not None
    assert cache.statistics().held_bytes <= 320
    assert cache.statistics().evictions == 1


def test_one_large_array_does_not_drop_the_others() -> None:
    cache = WeightCache(allowed_bytes=400)
    cache.get(b"small", lambda: np.zeros(10))
    assert len(cache.get(b"large", lambda: np.zeros(1000))) == 1000
    assert cache.peek(b"large") is None
    assert cache.peek(b"small") is not None
    cache.clear()
    assert cache.statistics().held_bytes == cache.statistics().entries == 0


def test_the_parts_of_one_large_job_do_not_drop_the_others() -> None:
    cache = WeightCache(allowed_bytes=400)
    cache.get(b"small", lambda: np.zeros(10))
    for part in range(20):
        assert len(cache.get(bytes([part]), lambda: np.zeros(5), job_bytes=800)) == 5
    assert cache.peek(b"small") is not None
    assert cache.statistics().entries == 1
    assert cache.takes(100)
    assert not cache.takes(101)


def test_threads_get_the_same_and_the_books_are_right() -> None:
    cache = WeightCache(allowed_bytes=50 * 80)

    def work(seed: int) -> None:
        for number in np.random.default_rng(seed).integers(0, 80, 400):
            found = cache.get(bytes([number]), lambda number=number: np.full(10, float(number)))
            assert (found == number).all()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = cache.statistics()
    assert seen.hits + seen.misses == 2400
    assert seen.held_bytes == 80 * seen.entries <= 4000


def test_keys_tell_arrays_apart_by_shape_and_content() -> None:
    a = np.arange(6.0)
    assert key_of(a, "x") == key_of(a.copy(), "x")
    assert len({key_of(a), key_of(a.reshape(2, 3)), key_of(a + 1), key_of(a, "x"), key_of("x", a)}) == 5


def test_a_second_query_over_a_network_starts_with_its_system() -> None:
    random = np.random.default_rng(0)
    stations = Stations(random.uniform(0, 1000, (12, 2)), tuple(map(str, range(12))))
    targets, given = (
        Targets(random.uniform(0, 1000, (5, 2))),
        {"variogram": variogram("exponential", psill=1, range_m=300)},
    )
    prepare = METHODS["ordinary_kriging"].prepare
    prepare(stations, random.normal(size=(3, 12)), given).estimate(targets)
    before = WEIGHTS.statistics()
    values = random.normal(size=(4, 12))
    warm = prepare(stations, values, given).estimate(targets)
    assert WEIGHTS.statistics().hits == before.hits + 2
    assert WEIGHTS.statistics().misses == before.misses
    WEIGHTS.clear()
    np.testing.assert_array_equal(prepare(stations, values, given).estimate(targets), warm)
    other = {"variogram": variogram("exponential", psill=1, range_m=301)}
    assert np.abs(prepare(stations, values, other).estimate(targets) - warm).max() > 0


def test_other_covariates_at_the_same_places_are_another_system_and_other_sides() -> None:
    rng = np.random.default_rng(3)
    positions_m, places_m = rng.uniform(0, 1000, (9, 2)), rng.uniform(0, 1000, (6, 2))
    at_stations, at_targets = rng.uniform(0, 500, (2, 9)), rng.uniform(0, 500, (2, 6))
    model = variogram("exponential", psill=1.0, range_m=400.0)

    def ask(station: int, target: int) -> tuple[np.ndarray, np.ndarray]:
        stations = Stations(positions_m, tuple("abcdefghi"), {"elevation": at_stations[station]})
        field = KrigingField(KrigingSystem.of(stations, model, Drift(covariates=("elevation",))), np.ones((1, 9)))
        return field.inverse, field.sides(Targets(places_m, {"elevation": at_targets[target]}))

    cases = [(0, 0), (1, 0), (0, 1)]
    WEIGHTS.clear()
    together = [ask(*case) for case in cases]
    for (inverse, sides), case in zip(together, cases, strict=True):
        WEIGHTS.clear()
        alone = ask(*case)
        np.testing.assert_array_equal(inverse, alone[0])
        np.testing.assert_array_equal(sides, alone[1])
    assert np.abs(together[0][0] - together[1][0]).max() > 0
    assert np.abs(together[0][1] - together[2][1]).max() > 0
