"""Monitors tell what the definitions say of what has arrived, and forget."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.machine_code import compile_into, find_cache_folder
from hypergrid.wo_join import DependentMonitor, KnownParameters, Monitors, WoJoin, compiled, hash_table, kernel, lags
from hypergrid.wo_join.observe import bucket_of, upper_of
from hypergrid.wo_join.state_layout import BUCKETS, EPOCH
from hypergrid.wo_join.warm import is_warm, warm
from tests.hypergrid.wo_join.workloads import disorder, lag_over_time, scrambling_factor, workload
from tests.support import stream_oracles


@pytest.mark.parametrize("seed", range(30))
def test_monitors_equal_the_definitions_after_every_push(seed: int) -> None:
    load = workload(seed)
    monitors = Monitors(load.streams)
    for stop in range(0, len(load.key), 13):
        chosen = slice(stop, stop + 13)
        monitors.observe(load.stream[chosen], load.key[chosen], load.arrival[chosen])
        came = load.stream[: stop + 13], load.key[: stop + 13]
        keys = [came[1][came[0] == i].tolist() for i in range(load.streams)]
        assert monitors.physical_index.tolist() == [len(own) for own in keys]
        assert monitors.scrambling_factor.tolist() == [scrambling_factor(own) for own in keys]
        assert monitors.multiplicity.tolist() == [max((own.count(key) for key in own), default=0) for own in keys]
        exact = np.array([disorder(own) for own in keys])
        assert np.all(monitors.disorder >= exact)
        assert np.all(monitors.disorder <= exact + exact // 32)
        for i, own in enumerate(keys):
            for key in own[-3:]:
                assert monitors.virtual_index(i, key) == (sum(k < key for k in own) + 1, sum(k <= key for k in own))


@pytest.mark.parametrize("seed", range(30, 40))
def test_lags_of_leading_streams_are_those_of_full_knowledge_where_in_order(seed: int) -> None:
    load = workload(seed, streams=3)
    in_order = [np.sort(load.keys_of(i)) for i in range(3)]
    key = load.key.copy()
    for i, own in enumerate(in_order):
        key[load.stream == i] = own
    load = type(load)(3, load.stream, key, load.payload, load.arrival)
    wanted = {(i, j): lag_over_time(load, i, j) for i in range(3) for j in range(3) if i != j}
    monitors = Monitors(3)
    leading = 0
    for place in range(len(load.key)):
        one = slice(place, place + 1)
        monitors.observe(load.stream[one], load.key[one], load.arrival[one])
        found, ends = (
            monitors.lag(),
            [own[load.stream[: place + 1] == i] for i, own in enumerate([load.key[: place + 1]] * 3)],
        )
        for (i, j), exact in wanted.items():
            # The next tuple of stream i may repeat its last key, which nobody can know: then the true lag is one less.
            if len(ends[i]) and len(ends[j]) and ends[i][-1] > ends[j][-1]:
                leading += 1
                assert found[i, j] == exact[place]
            elif len(ends[i]) and len(ends[j]):
                assert found[i, j] <= 0
    assert leading > 50


@pytest.mark.parametrize("seed", range(40, 52))
def test_the_bound_takes_the_lag_of_full_knowledge_at_tau(seed: int) -> None:
    load = workload(seed, streams=3)
    keys = [load.keys_of(i) for i in range(3)]
    factors = [scrambling_factor(own) for own in keys]
    join = WoJoin(3, policy="published", known=KnownParameters(scrambling_factor=tuple(factors)))
    came, history, compared = np.zeros(3, np.int64), [], 0
    for place in range(len(load.key)):
        one = slice(place, place + 1)
        join.push(load.stream[one], load.key[one], load.payload[one], load.arrival[one])
        came[load.stream[place]] += 1
        history.append(came.copy())
        greatest = [max(keys[i][: came[i]], default=0) for i in range(3)]
        for i, told in enumerate(join.statistics().streams):
            # What streams lack that are behind, nobody knows.
            if greatest[i] < max(greatest):
                continue
            reaches = []
            for j in {0, 1, 2} - {i}:
                before = int(came[j]) - factors[j]
                reach = int(came[i])
                if before > 0:
                    # tau' is when the tuple came that is so many places before the last of S_j (equation 3.7).
                    then = next(past for past in history if past[j] == before)
                    reach += stream_oracles.lag(keys[i], keys[j], int(then[i]), before) - int(then[i])
                    compared += 1
                reaches.append(reach)
            # Tuples of S_i yet to come may belong below, of which nobody knows.
            most = factors[i] + max(reaches)
            assert max(1, most) <= told.bound <= max(1, most + factors[i])
    assert compared > 100


def test_rates_rise_and_fall() -> None:
    monitors = Monitors(2)
    assert np.isnan(monitors.rate_hz()).all()
    slow, fast = np.arange(300) * 10**9, 300 * 10**9 + np.arange(1000) * 10**7
    monitors.observe(np.zeros(300), np.arange(300), slow)
    assert monitors.rate_hz()[0] == pytest.approx(1.0)
    monitors.observe(np.zeros(1000), np.arange(300, 1300), fast)
    assert monitors.rate_hz()[0] == pytest.approx(100.0)
    # Silence counts.
    assert monitors.rate_hz(fast[-1] + 10**12)[0] == pytest.approx(0.127, abs=1e-3)
    assert np.isnan(monitors.rate_hz()[1])


def test_factors_fall_after_two_epochs() -> None:
    rng = np.random.default_rng(1)
    wild = np.argsort(np.arange(2000) + rng.uniform(0, 400, 2000))
    calm = np.arange(2000, 2000 + 2 * EPOCH)
    monitors = Monitors(1)
    monitors.observe(np.zeros(2000), wild, np.arange(2000))
    assert monitors.scrambling_factor[0] == scrambling_factor(wild.tolist()) > 300
    monitors.observe(np.zeros(len(calm)), calm, np.arange(len(calm)))
    assert monitors.scrambling_factor.tolist() == [0]
    assert monitors.disorder.tolist() == [0]
    assert monitors.multiplicity.tolist() == [1]


def test_great_scrambling_is_followed_with_more_memory() -> None:
    rng = np.random.default_rng(2)
    keys = np.argsort(np.arange(40_000) + rng.uniform(0, 6000, 40_000))
    monitors = Monitors(1)
    monitors.observe(np.zeros(len(keys)), keys, np.arange(len(keys)))
    greatest = np.maximum.accumulate(keys)
    exact = np.arange(len(keys)) - np.searchsorted(greatest, keys)
    assert monitors.scrambling_factor[0] == max(
        exact[-EPOCH:].max(), exact[-(len(keys) % EPOCH or EPOCH) - EPOCH :].max()
    )


def test_a_far_lead_is_followed_with_more_memory() -> None:
    monitors = Monitors(2)
    monitors.observe([1], [0], [0])
    monitors.observe(np.zeros(50_000), np.arange(50_000), np.arange(50_000))
    assert monitors.lag()[0, 1] == 49_999
    assert monitors.lag()[1, 0] < 0


@pytest.mark.parametrize("seed", range(10))
def test_the_dependent_factor_is_that_of_the_sorted_stream(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 3000
    second = np.argsort(np.arange(n) + rng.uniform(0, rng.choice([1, 30, 90]), n))
    order = np.argsort(np.arange(n) + rng.uniform(0, rng.choice([1, 50, 200]), n))
    monitor = DependentMonitor(slack=int(rng.choice([256, 1024])))
    for part in np.array_split(order, 7):
        monitor.observe(part, second[part])
    assert monitor.scrambling_factor == scrambling_factor(second.tolist())
    # Theorem 3.4.2, on what was made.
    assert (
        scrambling_factor(second[order].tolist()) <= 2 * scrambling_factor(order.tolist()) + monitor.scrambling_factor
    )


def test_buckets_of_disorder_are_narrow() -> None:
    rng = np.random.default_rng(0)
    for number in [0, 1, 63, 64, 65, 127, 128, 2**61, *(2 ** rng.uniform(0, 61, 500)).astype(np.int64).tolist()]:
        bucket = bucket_of(number)
        assert 0 <= bucket < BUCKETS
        assert number <= upper_of(bucket) <= number + number // 32
        assert bucket == 0 or upper_of(bucket - 1) < number


def test_a_join_tells_the_same() -> None:
    load = workload(7, streams=3, keys=200)
    monitors, join = Monitors(3), WoJoin(3, policy="published")
    monitors.observe(load.stream, load.key, load.arrival)
    join.push(load.stream, load.key, load.payload, load.arrival)
    told = join.statistics().streams
    assert [one.scrambling_factor for one in told] == monitors.scrambling_factor.tolist()
    assert [one.multiplicity for one in told] == monitors.multiplicity.tolist()
    assert [one.lag for one in told] == np.where(np.eye(3), -np.inf, monitors.lag()).max(axis=1).tolist()
    assert [one.rate_hz for one in told] == pytest.approx(monitors.rate_hz(int(load.arrival[-1])).tolist())


def test_what_cannot_be_observed_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="streams 0 to 1; got 0 to 2"):
        Monitors(2).observe([0, 2], [1, 1], [0, 0])
    with pytest.raises(InvalidQuery, match="one length"):
        Monitors(2).observe([0], [1, 1], [0])
    with pytest.raises(InvalidQuery, match="key of whole numbers; got 1.5"):
        Monitors(2).observe([0], [1.5], [0])
    with pytest.raises(InvalidQuery, match="at least one stream"):
        Monitors(0)
    with pytest.raises(InvalidQuery, match="slack of 0 tuples or more; got -1"):
        DependentMonitor(slack=-1)
    with pytest.raises(InvalidQuery, match="two columns of one length"):
        DependentMonitor().observe([0], [1, 1])


def test_code_of_these_sources_is_looked_for_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not is_warm()

    def answer() -> int:
        return 42

    assert compile_into(find_cache_folder(compiled.SOURCES), set())(answer)() == 42
    assert is_warm()


def test_warming_compiles_all_that_is_called() -> None:
    warm()
    functions = (
        kernel.run,
        kernel.pass_time,
        kernel.close,
        lags.observe_tuples,
        lags.sort_along,
        lags.fill_lags,
        lags.count_all_awaited,
        hash_table.gather_slots,
    )
    before = [len(function.signatures) for function in functions]  # type: ignore[attr-defined]
    for policy in ("progress", "published"):
        for form in ("inner", "assembling"):
            join = WoJoin(3, policy=policy, form=form, idle_s=5.0)  # type: ignore[arg-type]
            # Columns as they come: of other kinds, and not to be written to.
            keys = np.arange(9, dtype=np.int32).repeat(3)
            keys.flags.writeable = False
            join.push(np.tile([0, 1, 2], 9), keys, np.zeros(27, np.float32))
            join = WoJoin.resume(join.snapshot())
            join.advance(10**15)
            join.finish()
            assert join.lags().shape == (3, 3)
    monitors = Monitors(3)
    monitors.observe([0, 1], [5, 5], [0, 0])
    monitors.lag()
    assert [len(function.signatures) for function in functions] == before  # type: ignore[attr-defined]


def test_machine_code_is_kept_by_all_the_files_that_it_is_made_from() -> None:
    folder = Path(compiled.__file__).parent
    importing = re.compile(r"^from hypergrid\.wo_join\.compiled import .*\bjit", re.MULTILINE)
    using = [path for path in folder.rglob("*.py") if importing.search(path.read_text(encoding="utf-8"))]
    assert len(using) >= 5
    for path in using:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
        own = [folder.parent.parent / (n.replace(".", "/") + ".py") for n in names if n.startswith("hypergrid.")]
        assert {path, *own} <= set(compiled.SOURCES)


def test_elements_do_not_load_the_compiler() -> None:
    program = "import sys, hypergrid.core.readings; assert 'numba' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
