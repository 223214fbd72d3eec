"""A join that was kept as bytes and resumed goes on equal to the last bit."""

import datetime
import itertools
from typing import Any

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery
from hypergrid.wo_join import KnownParameters, WoJoin
from hypergrid.wo_join.config import Form
from hypergrid.wo_join.state import MAGIC
from tests.hypergrid.wo_join.workloads import known, late_of, pushed, together, workload

WAYS: list[dict[str, Any]] = [
    {"policy": "progress"},
    {"policy": "progress", "idle_s": 5.0},
    {"policy": "progress", "form": "assembling", "idle_s": 5.0},
    {"policy": "progress", "form": "assembling", "idle_s": 5.0, "in_order": False},
    {"policy": "published"},
    {"policy": "published", "form": "assembling"},
    {"policy": "window", "window": 30},
    {"policy": "window", "window": datetime.timedelta(seconds=9)},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
@pytest.mark.parametrize("seed", range(4))
def test_resumed_equals_never_stopped(way: dict[str, Any], seed: int) -> None:
    load = workload(seed, keys=1200)
    if seed == 3 and way["policy"] != "window":
        way = {**way, "known": known(workload(seed, keys=60))}
    whole = pushed(WoJoin(load.streams, **way), load, 1)
    join = WoJoin(load.streams, **way)
    found = []
    for start, stop in itertools.pairwise(np.linspace(0, len(load.key), 8).astype(int)):
        found.append(join.push(*(c[start:stop] for c in (load.stream, load.key, load.payload, load.arrival))))
        kept = join.snapshot()
        before = join.statistics()
        join = WoJoin.resume(kept)
        assert join.snapshot() == kept
        after = join.statistics()
        assert repr(after.streams) == repr(before.streams)
        assert (after.held, after.held_peak, after.held_bytes) == (before.held, before.held_peak, before.held_bytes)
    found.append(join.finish())
    for one, other in zip(together(whole), together(found), strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    assert late_of(whole) == late_of(found)
    with pytest.raises(InvalidQuery, match="finished"):
        WoJoin.resume(join.snapshot()).push([0], [0], [0.0], [0])


def test_a_snapshot_is_compact() -> None:
    stream, key = np.tile(np.arange(23), 3000), np.repeat(np.arange(3000) * 60 * 10**9, 23)
    order = np.argsort(np.repeat(np.arange(3000), 23) + np.random.default_rng(0).uniform(0, 30, len(key)))
    join = WoJoin(23)
    join.push(stream[order], key[order], np.zeros(len(key)))
    assert len(join.snapshot()) < 300_000 < join.statistics().allocated_bytes / 3


def test_other_bytes_are_refused() -> None:
    join = WoJoin(2)
    join.push([0, 1], [1, 1], [1.0, 2.0])
    kept = join.snapshot()
    with pytest.raises(InvalidQuery, match="begin with b'hello'"):
        WoJoin.resume(b"hello")
    newer = kept[: len(MAGIC)] + b"\x09\x00" + kept[len(MAGIC) + 2 :]
    with pytest.raises(InvalidQuery, match="version 2; got version 9"):
        WoJoin.resume(newer)
    for damaged in (kept[:-1], kept[:-9] + b"x" + kept[-8:]):
        with pytest.raises(InvalidQuery, match="check sum"):
            WoJoin.resume(damaged)


@pytest.mark.parametrize("form", ["inner", "assembling"])
def test_a_join_that_is_widened_goes_on_as_if_it_had_been_wide(form: Form) -> None:
    random = np.random.default_rng(11)
    key = np.repeat(np.arange(400), 5) + random.integers(-3, 4, 2000)
    # The later streams begin after the first twenty tuples, when nothing was closed yet.
    stream = np.tile(np.arange(5), 400)
    stream[:20] %= 2
    payload = np.arange(2000.0)
    wide, narrow = (WoJoin(count, form=form, policy="progress", idle_s=1e6) for count in (5, 2))
    expected = [wide.push(stream[:20], key[:20], payload[:20]), wide.push(stream[20:], key[20:], payload[20:])]
    found = [narrow.push(stream[:20], key[:20], payload[:20])]
    narrow.widen(5)
    narrow = WoJoin.resume(narrow.snapshot())
    found.append(narrow.push(stream[20:], key[20:], payload[20:]))
    expected.append(wide.finish())
    found.append(narrow.finish())
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert np.array_equal(one.rows, other.rows)
        assert np.array_equal(one.payloads, other.payloads, equal_nan=True)
        assert one.late.row.tolist() == other.late.row.tolist()


def test_nobody_waits_for_a_stream_that_was_added_until_it_speaks() -> None:
    join = WoJoin(2, form="assembling", policy="progress", idle_s=1e6)
    join.widen(4)
    key = np.repeat(np.arange(100), 2)
    matches = join.push(np.tile([0, 1], 100), key, key.astype(float))
    assert len(matches) > 60
    assert matches.rows.shape[1] == 4
    assert (matches.rows[:, 2:] == -1).all()
    after = join.push([2, *np.tile([0, 1], 100)], [100, *(key + 100)], np.zeros(201))
    assert len(after) <= 2, "the new stream has shown too little to be left behind"


def test_a_join_with_known_parameters_keeps_its_streams() -> None:
    join = WoJoin(2, known=KnownParameters(disorder=(1, 1)))
    join.widen(2)
    with pytest.raises(InvalidQuery, match="keeps its streams"):
        join.widen(3)
