"""The join gives what a slow join of all that came gives, by every policy, however arrivals are cut."""

import datetime
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hypergrid.wo_join import KnownParameters, WoJoin
from hypergrid.wo_join.config import Form
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
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.generator import Load, Source
from tests.support.streams.optimum import optimum


def settings(load: Workload) -> dict[str, dict[str, Any]]:
    span = int(load.arrival[-1] - load.arrival[0]) // 1000 + 1000
    return {
        "progress": {"policy": "progress", "known": known(load)},
        "whole": {"policy": "progress", "known": replace(known(load), multiplicity=multiplicities(load))},
        "published": {"policy": "published", "known": known(load)},
        "monitored lag": {
            "policy": "published",
            "known": KnownParameters(scrambling_factor=known(load).scrambling_factor),
        },
        "window": {"policy": "window", "window": least_window(load)},
        "time": {"policy": "window", "window": datetime.timedelta(microseconds=span)},
    }


@pytest.mark.parametrize("seed", range(60))
def test_with_known_parameters_each_result_comes_once(seed: int) -> None:
    load = workload(seed)
    wanted = load.joined()
    for name, arguments in settings(load).items():
        found = pushed(WoJoin(load.streams, **arguments), load, cuts=1 + seed % 5)
        rows, payloads, key, at = together(found)
        assert sorted(map(tuple, rows.tolist())) == wanted, name
        assert not late_of(found), name
        # Each column is that of the tuple, and a result comes with its last member.
        for stream in range(load.streams):
            places = np.flatnonzero(load.stream == stream)[rows[:, stream]]
            assert np.array_equal(load.payload[places], payloads[:, stream])
            assert np.array_equal(load.key[places], key)
            assert np.all(places <= at)
        assert np.all(np.diff(at) >= 0)


@pytest.mark.parametrize("seed", range(60, 90))
def test_a_result_is_there_with_its_last_tuple(seed: int) -> None:
    load = workload(seed)
    _, _, _, at = together(pushed(WoJoin(load.streams, known=known(load)), load, cuts=3))
    places = [np.flatnonzero(load.stream == i) for i in range(load.streams)]
    last = sorted(max(places[i][row] for i, row in enumerate(combination)) for combination in load.joined())
    assert at.tolist() == last


@pytest.mark.parametrize("form", ["inner", "assembling"])
@pytest.mark.parametrize("policy", ["progress", "published", "window", "time"])
def test_cutting_into_pushes_changes_nothing(policy: str, form: Form) -> None:
    for seed in range(90, 96):
        # Monitored, so that there is something to get wrong.
        load = workload(seed, keys=300)
        arguments = {**settings(load)[policy], "known": None, "idle_s": 6.0}
        if "window" in arguments:
            arguments["window"] = 9 if policy == "window" else datetime.timedelta(seconds=7)
        found = [pushed(WoJoin(load.streams, form=form, **arguments), load, cuts) for cuts in (1, 2, 40)]
        for other in found[1:]:
            for one, another in zip(together(found[0]), together(other), strict=True):
                assert np.array_equal(one, another, equal_nan=True)
            assert late_of(found[0]) == late_of(other)


@pytest.mark.parametrize("policy", ["progress", "published", "window", "time"])
@pytest.mark.parametrize("seed", range(100, 120))
def test_assembling_equals_grouping_by_key(seed: int, policy: str) -> None:
    load = workload(seed)
    arguments = settings(load)[policy]
    if policy == "window":
        arguments["window"] = max(known(load).scrambling_factor or ())
    elif policy == "time":
        arguments["window"] = datetime.timedelta(seconds=13)
    found = pushed(WoJoin(load.streams, form="assembling", **arguments), load, cuts=4)
    rows, payloads, key, _ = together(found)
    assert not late_of(found)
    assert np.all(np.diff(key) >= 0)
    groups = load.by_key()
    assert sorted(set(key.tolist())) == sorted(groups)
    for one, members in groups.items():
        own = rows[key == one]
        assert len(own) == max(map(len, members))
        for stream, wanted in enumerate(members):
            assert own[:, stream].tolist() == wanted + [-1] * (len(own) - len(wanted))
    assert np.array_equal(np.isnan(payloads), rows < 0)


@pytest.mark.parametrize("seed", range(100, 130))
def test_slices_out_of_order_are_the_same_slices_and_come_no_later(seed: int) -> None:
    load = workload(seed)
    arguments = settings(load)["whole"]
    orders = {
        in_order: together(pushed(WoJoin(load.streams, form="assembling", in_order=in_order, **arguments), load, cuts))
        for in_order, cuts in ((True, 1), (False, 1 + seed % 5))
    }
    groups, last = load.by_key(), {key: at for at, key in enumerate(load.key.tolist())}
    came = {}
    for in_order, (rows, payloads, key, at) in orders.items():
        by_key = np.argsort(key, kind="stable")
        came[in_order] = (rows[by_key], payloads[by_key], key[by_key])
        instant = dict(zip(key.tolist(), at.tolist(), strict=True))
        # A slice comes all at once, with its last tuple at the soonest.
        assert all(instant[one] >= last[one] for one in groups)
        came[f"at {in_order}"] = instant
    for one, other in zip(came[True], came[False], strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    assert all(came["at False"][key] <= came["at True"][key] for key in groups)
    most = multiplicities(load)
    full = [key for key, members in groups.items() if [*map(len, members)] == list(most)]
    assert [came["at False"][key] for key in full] == [last[key] for key in full]


def test_whole_slices_are_closed_with_their_last_tuple() -> None:
    rng = np.random.default_rng(1)
    keys = np.repeat(np.arange(3000), 23)
    order = np.argsort(keys + np.tile(rng.uniform(0, 1, 23), 3000) + rng.uniform(0, 20, len(keys)), kind="stable")
    stream, key = np.tile(np.arange(23), 3000)[order], keys[order]
    # Stream 22 dies, and is waited for no longer; another was never there.
    there = (stream < 22) | (key < 300)
    stream, key = stream[there], key[there]
    instants = np.arange(len(key)) * 10**8
    held = {}
    for in_order in (True, False):
        join, course = WoJoin(24, form="assembling", idle_s=300.0, in_order=in_order), []
        found = []
        for start in range(0, len(key), 97):
            part = slice(start, start + 97)
            found.append(join.push(stream[part], key[part], key[part].astype(float), instants[part]))
            course.append(join.statistics().held)
            if start == 97 * 200:
                join = WoJoin.resume(join.snapshot())
        found.append(join.finish())
        rows, _, closed, at = together(found)
        assert len(set(closed.tolist())) == len(closed) == 3000
        assert int((rows >= 0).sum()) + len(late_of(found)) == len(key)
        assert len(late_of(found)) <= 0.005 * len(key)
        held[in_order] = np.mean(course[300:])
        if not in_order:
            last = np.zeros(3000, np.int64)
            last[key] = np.arange(len(key))
            assert np.mean(at[closed > 1500] == last[closed[closed > 1500]]) >= 0.99
            assert np.any(np.diff(closed) < 0)
    best = np.array([np.sum((instants <= now) & (instants[last[key]] > now)) for now in instants[97 * 300 :: 970]])
    # As little as by whoever knows what comes.
    assert held[False] == pytest.approx(best.mean(), rel=0.05)
    assert held[False] < 0.7 * held[True]


def test_what_comes_for_a_slice_that_was_closed_as_whole_is_told() -> None:
    stream, key = np.tile([0, 1], 200), np.repeat(np.arange(200) ^ 1, 2)
    join = WoJoin(2, form="assembling", in_order=False)
    assert len(join.push(stream, key, np.zeros(400))) == 200
    assert join.statistics().held == 0
    join = WoJoin.resume(join.snapshot())
    matches = join.push([0], [198], [7.0])
    assert len(matches) == 0
    assert (matches.late.stream.tolist(), matches.late.row.tolist(), matches.late.payload.tolist()) == (
        [0],
        [200],
        [7.0],
    )
    # From now on keys of stream 0 may come twice, and so are waited for.
    assert join.statistics().streams[0].multiplicity == 2
    assert len(join.push([0, 1], [201, 201], np.zeros(2))) == 0
    assert len(join.push([0], [201], np.zeros(1))) == 2


def test_a_slice_closes_when_no_stream_can_contribute() -> None:
    # Known to be in order: a slice closes with the first later key of the last stream.
    join = WoJoin(2, form="assembling", known=known(workload(1, streams=2)), policy="published")
    assert len(join.push([0], [1], [0.5])) == 0
    in_order = known(Workload(2, np.array([0, 1]), np.array([1, 1]), np.zeros(2), np.zeros(2, np.int64)))
    for policy in ("published", "progress"):
        join = WoJoin(2, form="assembling", known=in_order, policy=policy)
        sizes = [
            len(join.push([stream], [key], [0.0])) for stream, key in ((0, 1), (1, 1), (0, 2), (1, 2), (1, 3), (0, 3))
        ]
        # By its scrambling factor of 0 a stream has no second tuple of a key; by its disorder of 0 it may.
        assert sizes == ([0, 1, 0, 1, 0, 1] if policy == "published" else [0, 0, 0, 1, 0, 1])


def test_late_tuples_are_told_and_take_no_part() -> None:
    join = WoJoin(
        2, form="assembling", known=known(Workload(2, np.array([0, 1]), np.array([1, 1]), *[np.zeros(2)] * 2))
    )
    keys = [1, 1, 5, 5, 2, 6, 6]
    matches = join.push([0, 1, 0, 1, 1, 0, 1], keys, np.arange(7.0))
    assert matches.key.tolist() == [1, 5]
    assert (matches.late.stream.tolist(), matches.late.row.tolist(), matches.late.key.tolist()) == ([1], [2], [2])
    assert matches.late.payload.tolist() == [4.0]
    assert matches.late.reason.tolist() == [matches.late.CLOSED]
    assert join.statistics().streams[1].late == 1


def test_monitored_parameters_lose_little_and_tell_what() -> None:
    rng = np.random.default_rng(5)
    keys = np.repeat(np.arange(20_000), 3)
    order = np.argsort(keys + rng.uniform(0, 100, len(keys)), kind="stable")
    streams = np.tile(np.arange(3), 20_000)[order].astype(np.int32)
    for policy in ("progress", "published"):
        join = WoJoin(3, policy=policy)
        matches = join.push(streams, keys[order], np.zeros(len(keys)))
        assert len(matches) > 0.995 * 20_000
        missing = set(range(20_000)) - set(matches.key.tolist())
        assert missing <= set(matches.late.key.tolist())
        # Not by keeping everything.
        assert join.statistics().held_peak < 1500


def test_keys_that_all_have_brought_are_dropped_at_once() -> None:
    rng = np.random.default_rng(1)
    keys = np.repeat(np.arange(3000), 23)
    order = np.argsort(keys + np.tile(rng.uniform(0, 1, 23), 3000) + rng.uniform(0, 20, len(keys)), kind="stable")
    stream, key = np.tile(np.arange(23), 3000)[order], keys[order]
    arrivals = Arrivals(23, stream.astype(np.int32), key, np.zeros(len(key)), np.arange(len(key)))
    held = {}
    for policy in ("progress", "published"):
        join, found, course = WoJoin(23, policy=policy), 0, []
        for start in range(0, len(key), 97):
            part = slice(start, start + 97)
            found += len(join.push(stream[part], key[part], arrivals.payload[part]))
            course.append(join.statistics().held)
        assert found >= 0.995 * 3000
        held[policy] = np.mean(course)
    best = optimum(arrivals)
    # Less than whoever drops the oldest first can do, and no less than anybody can.
    assert best.mean_in_any_order.sum() < held["progress"] < best.mean.sum() < held["published"]


def test_what_comes_for_a_key_that_was_dropped_is_told() -> None:
    # Keys come two by two in the wrong order, so that no stream has passed its last two.
    stream, key = np.tile([0, 1], 200), np.repeat(np.arange(200) ^ 1, 2)
    join = WoJoin(2)
    assert len(join.push(stream, key, np.zeros(400))) == 200
    told = join.statistics()
    assert told.held == 0
    assert told.held_bytes == 2 * 40
    join = WoJoin.resume(join.snapshot())
    matches = join.push([0], [198], [7.0])
    assert len(matches) == 0
    late = matches.late
    assert (late.stream.tolist(), late.row.tolist(), late.payload.tolist()) == ([0], [200], [7.0])
    # From now on keys of stream 0 may come twice, and so wait for it.
    assert join.statistics().streams[0].multiplicity == 2
    assert len(join.push([0, 1, 0, 0], [201, 201, 201, 200], np.arange(4.0))) == 2


def test_known_disorder_without_multiplicity_drops_nothing_early() -> None:
    stream, key = np.tile([0, 1], 100), np.repeat(np.arange(100), 2)
    join = WoJoin(2, known=KnownParameters(disorder=(50, 50)))
    assert len(join.push([*stream, 0, 1], [*key, 70, 70], np.zeros(202))) == 103
    join = WoJoin(2, known=KnownParameters(disorder=(50, 50), multiplicity=(2, 1)))
    matches = join.push([*stream, 0, 1], [*key, 70, 70], np.zeros(202))
    assert len(matches) == 101
    assert (matches.late.stream.tolist(), matches.late.key.tolist()) == ([1], [70])


def test_slices_of_streams_in_order_close_with_their_last_tuple() -> None:
    stream, key = np.tile([0, 1, 2], 100), np.repeat(np.arange(100), 3)
    join = WoJoin(3, form="assembling")
    join.push(stream[:150], key[:150], np.zeros(150))
    for start in range(150, 300, 3):
        assert [len(join.push([i], [key[start]], [0.0])) for i in range(3)] == [0, 0, 1]
    assert join.statistics().held == 0


def test_uncertain_readings_hold_every_slice_they_may_fall_into() -> None:
    exact = known(Workload(2, np.array([0, 1]), np.array([1, 1]), *[np.zeros(2)] * 2))
    join = WoJoin(2, form="assembling", known=exact)
    found = [join.push([0, 1, 1], [3, 3, 4], [1.0, 2.0, 3.0], key_high=[5, 3, 4])]
    # The reading may still be of 4 or 5, but its stream is known to have come to 3 only.
    assert join.statistics().streams[0].arrived == 1
    found += [join.push([0, 1], [6, 6], [4.0, 5.0], key_high=[6, 6]), join.finish()]
    rows, _, key, _ = together(found)
    assert key.tolist() == [3, 4, 5, 6]
    assert rows.tolist() == [[0, 0], [0, 1], [0, -1], [1, 2]]


def test_silent_streams_hold_nothing_once_they_sleep() -> None:
    n, keys = 3, np.arange(400)
    stream, key = np.tile([0, 1], 400), np.repeat(keys, 2)
    arrival = key * 10**9
    waiting = WoJoin(n, form="assembling")
    assert len(waiting.push(stream, key, np.zeros(800), arrival)) == 0
    told = waiting.statistics()
    assert told.streams[2].activity == "silent"
    assert told.held == 800
    join = WoJoin(n, form="assembling", idle_s=30.0)
    matches = join.push(stream, key, np.zeros(800), arrival)
    assert matches.key.tolist() == list(range(400))
    assert np.all(matches.rows[:, 2] == -1)
    assert join.statistics().streams[2].activity == "asleep"
    # It wakes: what it brings of closed slices is late, what is open it takes part in.
    matches = join.push([2, 2], [100, 400], [7.0, 8.0], [400 * 10**9] * 2)
    assert matches.late.key.tolist() == [100]
    assert join.statistics().streams[2].activity == "awake"
    assert join.finish().rows.tolist() == [[-1, -1, 1]]


def test_time_alone_closes_slices_when_all_are_silent() -> None:
    join = WoJoin(2, form="assembling", idle_s=10.0)
    join.push([0, 1, 0], [1, 1, 2], [1.0, 2.0, 3.0], [0, 1, 2])
    assert len(join.advance(5 * 10**9)) == 0
    matches = join.advance(20 * 10**9)
    assert matches.rows.tolist() == [[0, 0], [1, -1]]
    assert join.statistics().held == 0


def test_published_holds_what_equation_3_8_asks_for() -> None:
    # Stream 1 lags by 50 tuples: stream 0 is held for it, of stream 1 no more than the least.
    n = 2000
    stream = np.r_[np.zeros(50), np.tile([0, 1], n)]
    key = np.r_[np.arange(50), np.stack([np.arange(50, n + 50), np.arange(n)], axis=1).ravel()]
    join = WoJoin(2, policy="published")
    assert len(join.push(stream, key, np.zeros(len(key)))) == n
    told = join.statistics().streams
    assert [one.lag for one in told] == [50, -50]
    assert [one.bound for one in told] == [50, 1]
    assert [one.held for one in told] == [50, 1]
    # It wakes up to what is held when the streams come level.
    join.push(np.ones(50), np.arange(n, n + 50), np.zeros(50))
    assert [one.held for one in join.statistics().streams] == [1, 1]


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_that_begins_is_not_believed_to_be_in_order(seed: int) -> None:
    # In its first tuples a stream of scrambling factor 200 looks like one of 30.
    load = Load((Source(200),) * 3, keys=2000, seed=seed).arrivals()
    matches = WoJoin(3).push(load.stream, load.key, load.payload, load.arrival_ns)
    begun = matches.key < 400
    assert np.count_nonzero(begun) >= 398
    assert len(matches) >= 0.998 * 2000
