"""Under a limit nothing is lost: each strategy gives all results, keeps the limit, or says that it cannot."""

import datetime
import gc
import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.wo_join import BufferFull, KnownParameters, WoJoin
from hypergrid.wo_join.config import SPILLING, JoinConfig, Policy, Strategy
from hypergrid.wo_join.spilling.reorder_buffer import ReorderBuffer
from hypergrid.wo_join.spilling.runs import TupleColumns
from hypergrid.wo_join.spilling.segments import Segments
from tests.bench.resident import peak_above, reset_peak
from tests.hypergrid.wo_join.spill_process import columns, known_of, small
from tests.hypergrid.wo_join.workloads import (
    Workload,
    known,
    late_of,
    least_window,
    multiplicities,
    pushed,
    together,
    workload,
)
from tests.support import stream_oracles
from tests.support.stream_loads import small_load
from tests.support.streams.loads import disorder_dominated

STRATEGIES: tuple[Strategy, ...] = ("msf", "dbf", "hybrid")
POLICIES: tuple[Policy, ...] = ("progress", "published")
LARGEST = 16_384
"""The greatest limit of small loads [bytes], within which most fit without a strategy."""


ROOT = Path(__file__).parents[3]
PROCESS = (sys.executable, "-m", "tests.hypergrid.wo_join.spill_process")


def fresh(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROCESS, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def limited(join: WoJoin, load: Workload, cuts: int) -> list[Any]:
    """Push in pieces of equal length; the limit is kept after each."""
    found = []
    for start in range(0, len(load.key), max(1, len(load.key) // cuts)):
        found.append(join.push(*columns(load, start, start + max(1, len(load.key) // cuts))))
        told = join.statistics()
        assert told.allowed_bytes is None or told.held_bytes <= told.allowed_bytes
    found.append(join.finish())
    return found


def ways(load: Workload) -> list[dict[str, Any]]:
    """Each policy, with parameters known that lose nothing, with each strategy that there is for it."""
    parameters, last = known(load), int(load.arrival[-1] - load.arrival[0])
    policies: list[dict[str, Any]] = [
        {"policy": "progress", "known": parameters},
        {"policy": "progress", "known": replace(parameters, multiplicity=multiplicities(load))},
        {"policy": "published", "known": parameters},
    ]
    windows: list[dict[str, Any]] = [
        {"policy": "window", "window": least_window(load)},
        {"policy": "window", "window": datetime.timedelta(microseconds=last // 1000 + 1)},
        {"policy": "published", "known": KnownParameters(scrambling_factor=parameters.scrambling_factor)},
    ]
    plain = [{**one, "strategy": None} for one in policies + windows]
    return plain + [{**one, "strategy": strategy} for one in policies for strategy in STRATEGIES]


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.soak if seed >= 24 else ()) for seed in range(500)]
)
def test_each_result_comes_once_under_every_limit_that_admits_it(seed: int, tmp_path: Path) -> None:
    arrivals = small_load(seed)
    load = Workload(arrivals.streams, arrivals.stream, arrivals.key, arrivals.payload, arrivals.arrival_ns)
    oracle = stream_oracles.join(list(zip(load.stream.tolist(), load.key.tolist(), strict=True)), load.streams)
    wanted = sorted(result.rows for result in oracle)
    admitted = dict.fromkeys((None, *STRATEGIES), 0)
    for arguments in ways(load):
        # Limits from ample to impossible.
        for allowed in (None, *(int(LARGEST * 0.6**step) for step in range(10))):
            strategy = arguments["strategy"]
            folder = tmp_path if strategy in SPILLING else None
            try:
                join = WoJoin(load.streams, allowed_bytes=allowed, spill_folder=folder, **arguments)
                found = limited(join, load, cuts=1 + seed % 7)
            except TooLarge as error:
                refused = (error.projected, error.allowed, allowed)
                break
            assert sorted(map(tuple, together(found)[0].tolist())) == wanted, (arguments, allowed)
            assert not late_of(found)
            admitted[strategy] += allowed is not None
        projected, told, asked = refused
        assert projected > told == asked
    assert min(admitted.values()) > 0
    # Joins that were refused have left nothing either.
    del join
    gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(200, 210))
def test_assembling_equals_grouping_by_key(seed: int, strategy: Strategy) -> None:
    load = workload(seed)
    for policy in POLICIES:
        join = WoJoin(load.streams, form="assembling", policy=policy, strategy=strategy, known=known(load))
        found = pushed(join, load, cuts=4)
        rows, _, key, _ = together(found)
        assert not late_of(found)
        assert np.all(np.diff(key) >= 0)
        for one, members in load.by_key().items():
            own = rows[key == one]
            for stream, wanted in enumerate(members):
                assert own[:, stream].tolist() == wanted + [-1] * (len(own) - len(wanted))


def test_results_wait_for_the_sort_and_not_for_the_disk() -> None:
    for seed in range(220, 230):
        load = workload(seed)
        at = {}
        for strategy in (None, *STRATEGIES):
            found = pushed(WoJoin(load.streams, known=known(load), strategy=strategy), load, cuts=3)
            rows, payloads, key, places = together(found)
            at[strategy] = dict(zip(map(tuple, rows.tolist()), places.tolist(), strict=True))
            for stream in range(load.streams):
                own = np.flatnonzero(load.stream == stream)[rows[:, stream]]
                assert np.array_equal(load.payload[own], payloads[:, stream])
            if strategy in ("msf", "hybrid"):
                # What sorted streams give is sorted: here each key has its results together.
                assert np.all(np.diff(key) >= 0)
        assert at["dbf"] == at[None]
        assert all(at["msf"][rows] >= place and at["hybrid"][rows] >= place for rows, place in at[None].items())


def leading(keys: int = 20_000, lag: int = 12_000) -> Workload:
    """Two ordered streams, and a third that lags behind by so many keys."""
    moment = np.concatenate([np.arange(keys), np.arange(keys) + 0.3, np.arange(keys) + lag + 0.6])
    order = np.argsort(moment, kind="stable")
    stream = np.repeat(np.arange(3, dtype=np.int32), keys)[order]
    key = np.tile(np.arange(keys), 3)[order]
    return Workload(3, stream, key, key * 0.5, (np.sort(moment) * 1e7).astype(np.int64))


@pytest.mark.parametrize("strategy", ["dbf", "hybrid"])
def test_leading_streams_are_on_disk_until_they_are_needed(strategy: Strategy, tmp_path: Path) -> None:
    load = leading()
    unlimited = WoJoin(3, known=known_of(load))
    pushed(unlimited, load, cuts=20)
    needed = unlimited.statistics().held_peak * 32
    join = WoJoin(3, known=known_of(load), strategy=strategy, allowed_bytes=needed // 20, spill_folder=tmp_path)
    found, spilled = [], []
    for start in range(0, len(load.key), 2000):
        found.append(join.push(*columns(load, start, start + 2000)))
        told = join.statistics()
        assert told.held_bytes <= needed // 20
        spilled.append([one.spilled for one in told.streams])
        assert told.disk.spilled == sum(spilled[-1])
        assert told.disk.bytes >= 24 * told.disk.spilled
        assert told.streams[0].lag <= 12_001
    found.append(join.finish())
    assert max(one for one, _, _ in spilled) > 10_000
    assert all(last == 0 for _, _, last in spilled)
    assert join.statistics().disk.written > 10
    assert join.statistics().disk.io_s > 0
    rows, _, key, _ = together(found)
    assert np.array_equal(np.sort(key), np.arange(20_000))
    assert np.array_equal(rows, np.repeat(key[:, None], 3, axis=1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_a_lag_is_worth_three_times_the_disk(seconds: float, tmp_path: Path) -> None:
    # The lag is 120 s; segments take so long that three times is above it, or no time at all.
    ticks = iter(np.arange(10_000) * seconds)
    segments = Segments(tmp_path, lambda: float(next(ticks)))
    segments.read(segments.write(TupleColumns(np.arange(5), np.arange(5), np.zeros(5))))
    waiting = ReorderBuffer(JoinConfig(3, known=KnownParameters(disorder=(0, 0, 0)), strategy="dbf"), segments)
    join = WoJoin(3, known=KnownParameters(disorder=(0, 0, 0)), strategy="dbf", spill_folder=tmp_path)
    join._reorder_buffer = waiting
    waiting._rows = 500
    load = leading()
    found = limited(join, load, cuts=40)
    assert (segments.written > 1) == (seconds == 0)
    assert len(together(found)[2]) == 20_000


def test_sorting_goes_down_to_what_the_scrambling_factor_allows() -> None:
    load = disorder_dominated(2 * 2**20)
    factor = load.sources[0].scrambling_factor
    factors = KnownParameters(scrambling_factor=(factor,) * 3)
    sorts = 3 * factor * 24
    arrivals = load.arrivals()
    # Beside what sorting takes, a fifth for what the join holds, as arrivals are Poisson.
    join = WoJoin(3, policy="published", known=factors, strategy="msf", allowed_bytes=int(1.2 * sorts))
    plain = WoJoin(3, policy="published", known=factors)
    found = plain_found = 0
    for start in range(0, len(arrivals), 4096):
        piece = arrivals.take(slice(start, start + 4096))
        found += len(join.push(piece.stream, piece.key, piece.payload, piece.arrival_ns))
        plain_found += len(plain.push(piece.stream, piece.key, piece.payload, piece.arrival_ns))
        assert join.statistics().held_bytes <= 1.2 * sorts
    found, plain_found = found + len(join.finish()), plain_found + len(plain.finish())
    assert found == plain_found == load.keys
    # Without sorting it takes more than the limit.
    assert plain.statistics().held_peak * 32 > 1.2 * sorts
    with pytest.raises(TooLarge, match="tuples first projects"):
        WoJoin(3, policy="published", known=factors, strategy="msf", allowed_bytes=sorts)


def test_limits_that_cannot_be_met_are_refused_with_both_numbers() -> None:
    for strategy in STRATEGIES:
        with pytest.raises(TooLarge, match=r"one tuple each projects 140 bytes, above the 139 allowed"):
            WoJoin(3, strategy=strategy, allowed_bytes=139)
    factors = KnownParameters(scrambling_factor=(500, 400, 300))
    with pytest.raises(TooLarge, match=r"sorts \(500, 400, 300\) tuples first projects 28,940 bytes"):
        WoJoin(3, policy="published", known=factors, strategy="msf", allowed_bytes=28_000)
    WoJoin(3, policy="published", known=factors, strategy="msf", allowed_bytes=29_000)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidQuery, match=r"a folder to write to; .*gone: No such file or directory"):
        WoJoin(3, strategy="dbf", spill_folder=tmp_path / "gone")


def test_a_join_that_is_full_has_lost_nothing() -> None:
    load = small(3)
    for strategy in STRATEGIES:
        join = WoJoin(3, known=known_of(load), strategy=strategy, allowed_bytes=600)
        rows, needed, start = [], [], 0
        while start < len(load.key) // 2:
            try:
                rows.append(join.push(*columns(load, start, start + 100)).rows)
                start += 100
            except BufferFull as error:
                needed.append(error.projected)
                rows.append(error.matches.rows)
                start += error.taken
        assert needed, strategy
        assert min(needed) > 600
        # With room, all comes that was due.
        join.allow(10**9)
        rows += [join.push(*columns(load, start, None)).rows, join.finish().rows]
        assert sorted(map(tuple, np.concatenate(rows).tolist())) == load.joined()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_restart_from_a_snapshot_gives_what_would_have_come(strategy: Strategy, tmp_path: Path) -> None:
    load = leading(6000, 3000)
    arguments: dict[str, Any] = {"known": known_of(load), "strategy": strategy}
    if strategy != "msf":
        arguments |= {"allowed_bytes": 9000, "spill_folder": tmp_path}
    join = WoJoin(3, **arguments)
    join.push(*columns(load, 0, 7000))
    snapshot = join.snapshot()
    rest = [join.push(*columns(load, 7000, None)), join.finish()]
    if strategy != "msf":
        # The end of the join was the end of its segments.
        assert not list(tmp_path.iterdir())
        with pytest.raises(InvalidQuery, match=r"with the segments that its snapshot names; .* is gone"):
            WoJoin.resume(snapshot)
    else:
        again = WoJoin.resume(snapshot)
        found = [again.push(*columns(load, 7000, None)), again.finish()]
        for one, other in zip(together(rest), together(found), strict=True):
            assert np.array_equal(one, other)


def test_segments_of_a_snapshot_stay_until_the_next(tmp_path: Path) -> None:
    load = leading(6000, 3000)
    join = WoJoin(3, known=known_of(load), strategy="dbf", allowed_bytes=9000, spill_folder=tmp_path)
    first = join.push(*columns(load, 0, 7000)).rows
    snapshot = join.snapshot()
    assert len(snapshot) < 40_000
    wanted = join.push(*columns(load, 7000, 17_000)).rows
    # The same from the snapshot, twice, while the first join lives; none disturbs another.
    for _ in range(2):
        again = WoJoin.resume(snapshot)
        assert np.array_equal(again.push(*columns(load, 7000, 17_000)).rows, wanted)
        again.finish()
    files = set(tmp_path.rglob("*.arrow"))
    join.snapshot()
    assert set(tmp_path.rglob("*.arrow")) < files
    ends = [join.push(*columns(load, 17_000, None)).rows, join.finish().rows]
    assert sorted(map(tuple, np.concatenate([first, wanted, *ends]).tolist())) == load.joined()
    assert not list(tmp_path.iterdir())


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    load = small(7)
    middle, until = len(load.key) // 3, len(load.key) // 2
    assert fresh("dies", str(tmp_path), str(middle), str(until)).returncode == -signal.SIGKILL
    join = WoJoin.resume((tmp_path / "snapshot").read_bytes())
    assert sum(one.spilled for one in join.statistics().streams) > 0
    rows = [np.load(tmp_path / "found.npy"), join.push(*columns(load, middle, None)).rows, join.finish().rows]
    assert sorted(map(tuple, np.concatenate(rows).tolist())) == load.joined()
    assert not list(tmp_path.glob("hypergrid-join-*"))


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    done = fresh("has_a_full_disk", str(tmp_path))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "a join of 3 streams needs to write what it may not hold to disk" in told["message"]
    assert "File too large; make room there, then push what was not taken" in told["message"]
    assert told["taken"] > 0
    assert told["waiting"] > 0
    assert told["left"] == []
    assert told["complete"]


def test_clocks_that_jump_let_nothing_go() -> None:
    load = leading(2000, 1000)
    join = WoJoin(3, known=known_of(load), strategy="dbf", jump=10_000)
    join.push(*columns(load, 0, 1500))
    matches = join.push([2], [10**15], [1.0], [int(load.arrival[1499])])
    assert (matches.late.key.tolist(), matches.late.reason.tolist()) == ([10**15], [matches.late.QUARANTINED])
    assert sum(one.held for one in join.statistics().streams) == 0
    assert len(join.push(*columns(load, 1500, None))) == 2000


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_silent_streams_hold_nothing_once_they_sleep(strategy: Strategy) -> None:
    stream, key = np.tile([0, 1], 400), np.repeat(np.arange(400), 2)
    join = WoJoin(3, form="assembling", strategy=strategy, idle_s=30.0, known=KnownParameters(disorder=(0, 0, 0)))
    matches = [
        join.push(stream[i : i + 8], key[i : i + 8], np.zeros(8), key[i : i + 8] * 10**9) for i in range(0, 800, 8)
    ]
    keys = np.concatenate([one.key for one in matches])
    assert keys.tolist() == list(range(len(keys)))
    assert len(keys) >= 398
    assert join.statistics().streams[2].activity == "asleep"
    late = join.push([2, 2], [100, 399], [7.0, 8.0], [400 * 10**9] * 2).late
    assert late.key.tolist() == [100]
    assert join.finish().rows[-1].tolist() == [399, 399, 1]


def measured(strategy: str, needed_mb: int, share: float) -> None:
    """Start a process that joins, and measure it from outside."""
    command = [*PROCESS, "grows", strategy, str(needed_mb), str(share)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdout.readline()
        before = reset_peak(running.pid)
        running.stdin.write("\n")
        running.stdin.flush()
        line = running.stdout.readline()
        assert line, "the process ended before it was through"
        grown = peak_above(before, running.pid)
        running.communicate("\n")
    assert running.returncode == 0
    told = json.loads(line)
    if grown is None:
        pytest.skip("this system does not say what a process held at most")
    keys = told["keys"]
    assert (told["count"], told["total"]) == (keys, keys * (keys - 1) // 2)
    assert told["held"] <= told["allowed"]
    # Most of what the join needs was on disk.
    assert told["on_disk"] > 0.9 * needed_mb * 2**20
    print(f"{strategy}: grown by {grown / 2**20:.0f} MiB under {told['allowed'] / 2**20:.0f} MiB")
    assert grown <= 1.05 * told["allowed"] + 50 * 2**20, (grown, told)


@pytest.mark.parametrize("strategy", ["dbf", "hybrid"])
def test_a_process_grows_no_further_than_the_limit(strategy: str) -> None:
    measured(strategy, 100, 0.1)


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["dbf", "hybrid"])
def test_a_process_grows_no_further_than_the_limit_on_two_gigabytes(strategy: str) -> None:
    assert shutil.disk_usage("/tmp").free > 4 * 2**30
    measured(strategy, 2048, 0.1)
