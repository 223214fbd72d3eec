"""Kept results: the same as computed anew, never another's, never changed by who got them, never beyond the bound."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.execution.running.result_cache import RESULT_CACHE, DatasetCache
from hypergrid.query import Query

MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    RESULT_CACHE.clear()
    yield
    RESULT_CACHE.clear()


def network(shift: float = 0.0) -> Query:
    rng = np.random.default_rng(3)
    times = np.datetime64("2007-10-01", "ns") + np.arange(12) * np.timedelta64(10, "m")
    coords = {"time": times, **{name: ("station", rng.uniform(0, 1000, 5)) for name in ("x", "y")}}
    values = rng.normal(5, 3, (12, 5)) + shift
    return hg.base(xr.DataArray(values, dims=("time", "station"), coords=coords, name="air_temperature"))


def maps(shift: float = 0.0) -> Query:
    grid = hg.grid(x=0, y=0, step=100, shape=(8, 9))
    return network(shift).interpolate("ordinary_kriging", grid=grid, variogram=MODEL)


def test_the_same_question_is_answered_from_what_is_kept() -> None:
    before = RESULT_CACHE.statistics()
    first, told = maps().compute(reuse=True), list[float]()
    second = maps().compute(reuse=True, progress=told.append)
    after = RESULT_CACHE.statistics()
    assert (after.misses - before.misses, after.hits - before.hits, after.entries) == (1, 1, 1)
    assert np.shares_memory(first["value"].to_numpy(), second["value"].to_numpy())
    assert told == [1.0]
    xr.testing.assert_identical(second, maps().compute())


def test_without_reuse_nothing_is_kept_or_taken() -> None:
    maps().compute(reuse=True)
    before = RESULT_CACHE.statistics()
    fresh = maps().compute()
    assert RESULT_CACHE.statistics() == before
    fresh["value"][:] = 0.0


@pytest.mark.parametrize(
    "other",
    [
        lambda: maps(1.0),
        lambda: maps().with_variance(),
        lambda: maps().aggregate("mean", time="1h").with_variance(correlation_time="0s"),
        lambda: maps().aggregate("mean", time="1h").with_variance(correlation_time="6h"),
        lambda: maps().clip(x=(0, 300)),
        lambda: network().aggregate("mean", time="1h"),
    ],
)
def test_other_questions_and_other_data_are_computed(other: object) -> None:
    maps().compute(reuse=True)
    maps().aggregate("mean", time="1h").with_variance(correlation_time="3h").compute(reuse=True)
    query = other()  # type: ignore[operator]
    hits = RESULT_CACHE.statistics().hits
    found = query.compute(reuse=True)
    assert RESULT_CACHE.statistics().hits == hits
    xr.testing.assert_identical(found, query.compute())


def test_who_changes_a_result_changes_only_their_own() -> None:
    expected = maps().compute()
    for _ in range(2):
        mine = maps().compute(reuse=True)
        with pytest.raises(ValueError, match="read-only|is a view"):
            mine["value"][0, 0, 0] = 99.0
        with pytest.raises(ValueError, match="read-only|is a view"):
            mine["x_bounds"][0, 0] = 99.0
        mine.attrs["title"] = "mine"
        mine["value"].attrs["units"] = "K"
        mine["extra"] = 1
        mine["value"] = mine["value"] + 1.0
        del mine["count"]
    xr.testing.assert_identical(maps().compute(reuse=True), expected)


def made(size: int) -> xr.Dataset:
    return xr.Dataset({"value": ("place", np.zeros(size))})


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), max_size=40))
def test_the_bound_holds_and_the_least_recently_used_goes_first(asked: list[tuple[int, int]]) -> None:
    kept, oracle = DatasetCache(allowed_bytes=8 * 60), list[tuple[str, int]]()
    for number, size in asked:
        key = f"{number} {size}"
        found = kept.get(key)
        assert (found is not None) == (key in [name for name, _ in oracle])
        if found is None:
            kept.keep(key, made(size))
        else:
            oracle.remove((key, size))
        oracle.append((key, size))
        while sum(held for _, held in oracle) > 60:
            oracle.pop(0)
        statistics = kept.statistics()
        assert statistics.held_bytes == 8 * sum(held for _, held in oracle) <= statistics.allowed_bytes
        assert statistics.entries == len(oracle)


def test_what_is_larger_than_all_may_be_is_not_kept_and_drops_nothing() -> None:
    kept = DatasetCache(allowed_bytes=800)
    kept.keep("small", made(10))
    large = kept.keep("large", made(101))
    large["value"][0] = 1.0
    assert kept.get("large") is None
    assert kept.get("small") is not None


def test_the_bound_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERGRID_KEPT_BYTES", "1000")
    assert RESULT_CACHE.statistics().allowed_bytes == 1000
    maps().compute(reuse=True)
    assert RESULT_CACHE.statistics().entries == 0


def test_counts_that_are_one_column_take_one_column() -> None:
    result = maps().compute(reuse=True)
    arrays = sum(result[name].nbytes for name in ("value", "count", "count_possible"))
    assert result["value"].nbytes < RESULT_CACHE.statistics().held_bytes < arrays


def test_threads_share_what_is_kept() -> None:
    kept, wrong = DatasetCache(allowed_bytes=8 * 50), list[str]()

    def work(own: int) -> None:
        for turn in range(200):
            size = (own * 7 + turn) % 13 + 1
            found = kept.get(str(size)) or kept.keep(str(size), made(size))
            if found.sizes["place"] != size:
                wrong.append(f"{found.sizes} instead of {size}")

    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert kept.statistics().held_bytes <= 8 * 50
