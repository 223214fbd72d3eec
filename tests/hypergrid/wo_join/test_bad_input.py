"""What a join refuses, and what it does with clocks that jump."""

import datetime
from typing import Any

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.wo_join import BufferFull, KeysDoNotGrow, KnownParameters, WoJoin
from hypergrid.wo_join.config import Form, Policy

Columns = tuple[list[Any], ...]
YEAR_NS = 365 * 86400 * 10**9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"streams": 1}, "2 to 1024 streams; got 1"),
        ({"streams": 2.5}, "streams= as a whole number; got 2.5"),
        ({"allowed_bytes": "1 GB"}, "allowed_bytes= as a whole number; got '1 GB'"),
        ({"policy": "window", "window": 2.5}, "window= as a whole number of tuples, or a datetime.timedelta; got 2.5"),
        ({"rare": 2.5}, "rare= as a whole number"),
        ({"known": {"disorder": (1, 2)}}, "known= as Known"),
        ({"known": KnownParameters(multiplicity=(1, 0))}, "multiplicities of 1 or more"),
        ({"policy": "fifo"}, "progress; got 'fifo'"),
        ({"form": "outer"}, "assembling; got 'outer'"),
        ({"in_order": False}, "in_order=False with form 'assembling'"),
        (
            {"form": "assembling", "in_order": False, "strategy": "dbf"},
            "no strategy; got .*'dbf'",
        ),
        ({"policy": "window"}, "window= with policy 'window'"),
        ({"window": 3}, "window= with policy 'window'"),
        ({"policy": "window", "window": 0}, "at least one tuple"),
        ({"policy": "window", "window": datetime.timedelta(0)}, "at least one tuple"),
        ({"idle_s": 0.0}, "idle_s above 0"),
        ({"jump": 0}, "at least one key unit"),
        ({"known": KnownParameters(scrambling_factor=(1,))}, "of 2 streams; got 1"),
        ({"known": KnownParameters(disorder=(1, -1))}, "0 or more"),
        ({"strategy": "disk"}, "msf, dbf, hybrid, or None; got 'disk'"),
        ({"strategy": "dbf", "policy": "window", "window": 3}, "choose a smaller window"),
        ({"strategy": "msf", "spill_folder": "x"}, "spill_folder= with strategy dbf or hybrid only"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidQuery, match=words):
        WoJoin(**{"streams": 2, **arguments})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([0, 2], [1, 1], [0.0, 0.0]), "streams 0 to 1; got 2"),
        (([-1, 0], [1, 1], [0.0, 0.0]), "streams 0 to 1; got -1"),
        (([0, 1], [1], [0.0, 0.0]), "columns of one length"),
        (([0], [2**62], [0.0]), r"key from -\d+ \(-2\^61\) to \d+ \(2\^62 - 2\); got 4611686018427387904"),
        (([0], [-(2**62)], [0.0]), r"key from -\d+ \(-2\^61\)"),
        (([0], np.array([2**63], np.uint64), [0.0]), r"key of whole numbers within 2\^62"),
        (([2**32], [1], [0.0]), "streams 0 to 1; got 4294967296"),
        (([0.5], [1], [0.0]), "stream of whole numbers; got 0.5"),
        (([0], [1.25], [0.0]), "key of whole numbers; got 1.25"),
        (([0], [np.nan], [0.0]), "key of whole numbers; got nan"),
        (([0], [1e300], [0.0]), r"key of whole numbers; got 1e\+300"),
        (([0], ["one"], [0.0]), "key of whole numbers; got values of type <U3"),
        (([0], [1], ["warm"]), "payload of numbers; got values of type <U4"),
        (([0], [np.datetime64("NaT", "ns")], [0.0]), r"key from .*; got -9223372036854775808"),
        ((0, 1, 0.0), "columns of one length"),
        (([0], [1], [0.0], [5]), "with every push, or with none"),
    ],
)
def test_a_push_that_is_refused_changes_nothing(columns: Columns, words: str) -> None:
    join = WoJoin(2)
    join.push([0], [1], [1.0])
    before = join.snapshot()
    with pytest.raises(InvalidQuery, match=words):
        join.push(*columns)
    assert join.snapshot() == before
    assert join.push([1], [1], [2.0]).rows.tolist() == [[0, 0]]


def test_whole_numbers_of_any_type_and_instants_are_keys() -> None:
    instant = np.datetime64("2030-01-01T00:00:01", "s")
    join = WoJoin(2)
    join.push(np.array([0], np.int8), np.array([instant]), np.array([1], np.int8))
    matches = join.push(np.array([1.0]), [int(instant.astype(np.int64)) * 10**9], [2])
    assert matches.payloads.tolist() == [[1.0, 2.0]]
    assert matches.key.tolist() == [1_893_456_001 * 10**9]
    with pytest.raises(InvalidQuery, match="the year 2116"):
        WoJoin(2).push([0], [1], [1.0], [2**62])


def test_uncertain_keys_need_to_be_few_and_upwards() -> None:
    for high in (0, 10**6):
        with pytest.raises(InvalidQuery, match=r"key_high needs to be from key to key \+ 4095"):
            WoJoin(2).push([0], [1], [1.0], key_high=[high])


def test_nothing_comes_after_the_end() -> None:
    join = WoJoin(2)
    join.finish()
    with pytest.raises(InvalidQuery, match="finished"):
        join.push([0], [1], [1.0])


@pytest.mark.parametrize("policy", ["progress", "published"])
@pytest.mark.parametrize("stuck", ["constant", "cyclic"])
def test_keys_that_never_grow_are_told(policy: Policy, stuck: str) -> None:
    n = 101_000
    keys = np.zeros(n, np.int64) if stuck == "constant" else np.arange(n) % 24
    join = WoJoin(2, policy=policy)
    join.push([1], [30], [0.0])
    with pytest.raises(KeysDoNotGrow, match=r"stream 0 has brought 100,000 .* or use policy 'window'"):
        join.push(np.zeros(n, np.int32), keys, np.zeros(n))
    assert join.statistics().streams[0].activity == "still"
    assert len(join.finish()) == 0
    windowed = WoJoin(2, policy="window", window=10)
    windowed.push(np.zeros(n, np.int32), keys, np.zeros(n))
    assert windowed.statistics().held == 10


def steady(streams: int, count: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    return np.tile(np.arange(streams), count), np.repeat(np.arange(count) * step, streams)


@pytest.mark.parametrize("form", ["inner", "assembling"])
@pytest.mark.parametrize("policy", ["progress", "published"])
@pytest.mark.parametrize("years", [20, -20])
def test_a_clock_that_jumps_by_years_poisons_nothing(policy: Policy, form: Form, years: int) -> None:
    stream, key = steady(3, 2000, 60 * 10**9)
    wrong = [600, 1500, 1503, 4500]
    bad = key.copy()
    bad[wrong] += years * YEAR_NS
    join = WoJoin(3, policy=policy, form=form)
    matches = join.push(stream, bad, np.zeros(6000))
    assert matches.late.reason.tolist() == [matches.late.QUARANTINED] * 4
    assert (matches.late.row * 3 + matches.late.stream).tolist() == wrong
    # The others come as if these had not been sent.
    clean = np.delete(np.arange(6000), wrong)
    other = WoJoin(3, policy=policy, form=form).push(stream[clean], key[clean], np.zeros(len(clean)))
    assert np.array_equal(matches.key, other.key)
    assert len(matches) > 1900
    assert join.statistics().held < 300
    # And where the caller knows how far a clock may jump, from the second tuple on.
    told = WoJoin(2, jump=86400 * 10**9).push([0, 1, 0, 1, 0], [0, 0, YEAR_NS, 1, 1], np.zeros(5))
    assert told.late.key.tolist() == [YEAR_NS]
    assert told.key.tolist() == [0, 1]


def test_a_network_that_was_silent_for_years_is_believed() -> None:
    stream, key = steady(3, 500, 60 * 10**9)
    join = WoJoin(3)
    join.push(stream, key, np.zeros(1500))
    matches = join.push(stream, key + 20 * YEAR_NS, np.zeros(1500))
    assert len(matches.late) == 1
    assert len(matches) == 499


def test_a_stream_whose_first_clock_was_wrong_is_believed_later() -> None:
    stream, key = steady(3, 500, 60 * 10**9)
    bad = key.copy()
    bad[0] += YEAR_NS
    join = WoJoin(3, jump=86400 * 10**9)
    matches = join.push(stream, bad, np.zeros(1500))
    # Eight in a row convince: the first seven are told, and all after them count.
    assert matches.late.row.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert matches.key.tolist() == (np.arange(8, 500) * 60 * 10**9).tolist()
    assert join.statistics().held < 300


@pytest.mark.parametrize("years", [-37, 12])
def test_a_clock_that_is_wrong_for_good_is_a_stream_that_sleeps(years: int) -> None:
    stream, key = steady(3, 3000, 60 * 10**9)
    bad = key.copy()
    bad[(stream == 2) & (key > 1000 * 60 * 10**9)] += years * YEAR_NS
    for form in ("inner", "assembling"):
        join = WoJoin(3, form=form, idle_s=600.0)  # type: ignore[arg-type]
        matches = join.push(stream, bad, np.zeros(9000), key)
        assert len(matches.late) == 1999
        assert np.all(matches.late.stream == 2)
        assert len(matches) == (1001 if form == "inner" else 3000)
        assert join.statistics().held < 20
        assert [one.activity for one in join.statistics().streams] == ["awake", "awake", "asleep"]


def test_limits() -> None:
    with pytest.raises(TooLarge, match=r"one tuple each projects 104 .* 100 allowed"):
        WoJoin(2, allowed_bytes=100)
    known = KnownParameters(scrambling_factor=(500, 500), rate_hz=(1.0, 1.0), lag=((0, 3), (3, 0)))
    with pytest.raises(TooLarge, match="104,312 bytes, above the 50,000 allowed"):
        WoJoin(2, policy="published", known=known, allowed_bytes=50_000)
    WoJoin(2, policy="published", known=known, allowed_bytes=150_000)
    join = WoJoin(2, allowed_bytes=7200)
    with pytest.raises(TooLarge, match=r"one tuple each projects 104 .* 100 allowed"):
        join.allow(100)
    assert join.statistics().allowed_bytes == 7200
    with pytest.raises(BufferFull, match="7,272 bytes to be held, above the 7,200 allowed") as raised:
        join.push([1] + [0] * 150, [0] + list(range(150)), np.zeros(151))
    assert raised.value.taken == 101
    assert raised.value.matches.rows.tolist() == [[0, 0]]
    assert join.statistics().held_bytes <= 7200
