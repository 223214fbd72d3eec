"""Live results and corrections together are one evaluation of the newest version, whatever arrived late or changed."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hypergrid.continuous.algebra import JoinOf, Operator, RelationInput, StreamInput, WindowOf
from hypergrid.continuous.expressions import Attribute
from hypergrid.continuous.live import store as live_store
from hypergrid.continuous.live.evaluation import LiveEvaluation
from hypergrid.continuous.live.store import LiveOptions, LiveStore
from hypergrid.continuous.rewrite import rewrite
from hypergrid.core.times import Window
from tests.support.continuous_live import Inputs, ListedRecord, ListedVersions, StoredRun, random_versions
from tests.support.continuous_oracle import START, Change, find_end
from tests.support.continuous_random import Case, random_case

CASES = 10


def check(seed: int) -> None:
    case = random_case(seed, elements=30)
    rng = np.random.default_rng(seed)
    tree = rewrite(case.tree, case.static).tree if seed % 2 else case.tree
    count = int(rng.integers(2, 8))
    source = ListedVersions(tree, random_versions(case, rng, count))
    stamps = [tau for rows in source.versions[-1].values() for tau, _, _ in rows if tau > START]
    if not stamps:
        return
    first, last = min(stamps), max(stamps)
    end = max(find_end(tree, case.streams, case.relations), last) + 1
    record = ListedRecord()
    evaluation = LiveEvaluation(tree, source, record, first - 1, case.static)
    beats = [first - 5 + (last - first + 10) * number // count for number in range(1, count)]
    beats = [*(min(beat, end) for beat in beats), end]
    for number, beat in enumerate(beats):
        old = str(number - 1) if number else None
        step = evaluation.advance(old, str(number), min(beat + int(rng.integers(-3, 4)) if beat < end else end, end))
        if rng.random() < 0.3:
            # A kill before the step is kept: it is done again from what is kept.
            evaluation = LiveEvaluation(tree, source, record, first - 1, case.static)
            step = evaluation.advance(old, str(number), max(beats[number], *record.states, START))
        record.keep(step)
        if rng.random() < 0.2:
            # Damage, or a program that reads no states of this one.
            record.states |= {at: state[:-1] for at, state in record.states.items() if rng.random() < 0.7}
        if rng.random() < 0.3:
            evaluation = LiveEvaluation(tree, source, record, first - 1, case.static)
        assert_equal(case, tree, source, record, number, first - 1, seed)
    assert max(record.states) == end


def assert_equal(
    case: Case, tree: object, source: ListedVersions, record: ListedRecord, number: int, start: int, seed: int
) -> None:
    """Check that all that was given is one evaluation of a version up to the heartbeat."""
    once = ListedRecord()
    heartbeat = max(record.states)
    once.keep(LiveEvaluation(source.tree, source, once, start, case.static).advance(None, str(number), heartbeat))
    window = Window(START, 2**62)
    expected, given = (
        {key: count for key, count in kept.count_given(window).items() if count} for kept in (once, record)
    )
    assert given == expected, f"seed {seed}, version {number}\n{case.describe()}"


@pytest.mark.parametrize("block", range(20))
def test_live_results_and_corrections_are_one_evaluation(block: int) -> None:
    for seed in range(CASES * block, CASES * (block + 1)):
        check(seed)


@pytest.mark.parametrize("first", [5, 15])
def test_rows_of_the_start_that_change_correct_all_results(first: int) -> None:
    number = (Attribute("a", "integer"),)
    tree = JoinOf((WindowOf(StreamInput("S", number), "now"), RelationInput("R", number)))
    stream: list[Change] = [(tau, 1, (tau,)) for tau in range(10, 60, 10)]
    source = ListedVersions(tree, [{"S": stream, "R": [(START, 1, (row,))]} for row in (1, 1, 2)])
    record, once = ListedRecord(), ListedRecord()
    # A first step that ends before the stretch begins, or after.
    for version, beat in enumerate((first, 35, 55)):
        old = str(version - 1) if version else None
        record.keep(LiveEvaluation(tree, source, record, 5).advance(old, str(version), beat))
    once.keep(LiveEvaluation(tree, source, once, 5).advance(None, "2", 55))
    window = Window(START, 2**62)
    given, expected = (
        {key: count for key, count in kept.count_given(window).items() if count} for kept in (record, once)
    )
    assert given == expected
    assert len(expected) == 10


def check_kept(seed: int, record: ListedRecord | StoredRun) -> bool:
    """Check results that are kept for a time; tells whether some were dropped."""
    case = random_case(seed, elements=40)
    rng = np.random.default_rng(seed)
    tree = rewrite(case.tree, case.static).tree if seed % 2 else case.tree
    count = int(rng.integers(5, 12))
    source = ListedVersions(tree, random_versions(case, rng, count))
    stamps = [tau for rows in source.versions[-1].values() for tau, _, _ in rows if tau > START]
    if not stamps:
        return False
    first, last = min(stamps), max(stamps)
    end = max(find_end(tree, case.streams, case.relations), last) + 1
    start, keep = first - 1, int(rng.integers(1, max(2, (end - first) // 2)))

    def make() -> LiveEvaluation:
        return LiveEvaluation(tree, source, record, start, case.static, keep_ns=keep)

    evaluation, past, damaged = make(), dict(source.versions[0]), set[int]()
    # Some steps are longer than results are kept.
    beats = [*sorted(rng.integers(first, end, count - 1).tolist()), end]
    for number, beat in enumerate(beats):
        source.reads.clear()
        step = evaluation.advance(str(number - 1) if number else None, str(number), beat)
        is_whole = number == 0 or any(each.start_ns <= start for each in source.reads)
        if record.kept_ns > START and not damaged & record.states.keys():
            before = source.list_changed(str(number - 1), str(number), Window(start, beat), record.kept_ns)
            assert is_whole == (before is None), f"{seed}: the past was evaluated again"
        newest = source.versions[number]
        # What the results that are kept come from: the past as it was when its end became that, and all since.
        inputs = newest if is_whole else join_in_time(past, newest, record.kept_ns)
        record.keep(step)
        past = inputs
        if isinstance(record, ListedRecord):
            chosen = {at for at in record.states if rng.random() < 0.5} if rng.random() < 0.2 else set()
            record.states |= {at: record.states[at][:-1] for at in chosen}
            damaged = (damaged - step.states.keys()) | chosen
        if rng.random() < 0.4:
            evaluation = make()
        once = ListedRecord()
        listed = ListedVersions(tree, [inputs])
        once.keep(LiveEvaluation(tree, listed, once, start, case.static).advance(None, "0", max(record.states)))
        assert sum_up(once, record.kept_ns, tree) == sum_up(record, record.kept_ns, tree), f"{seed}\n{case.describe()}"
        assert record.kept_ns <= max(record.states) - keep or record.kept_ns == START
        assert min(record.states) >= record.kept_ns
    return record.kept_ns > START


def join_in_time(past: Inputs, newest: Inputs, kept: int) -> Inputs:
    """Return inputs that are those of the past before an instant, but for the rows of the start."""
    return {
        name: [c for c in past[name] if START < c[0] < kept] + [c for c in rows if not START < c[0] < kept]
        for name, rows in newest.items()
    }


def sum_up(record: ListedRecord | StoredRun, kept: int, tree: Operator) -> dict[object, int]:
    """Return the rows that hold once results begin to be kept, and what changes after; of a stream what is kept."""
    counts = Counter[object]()
    for (tau, row), count in record.count_given(Window(START, 2**62)).items():
        if tau > kept or (tau == kept and tree.is_stream):
            counts[tau, row] += count
        elif not tree.is_stream:
            counts[row] += count
    return {key: count for key, count in counts.items() if count}


@pytest.mark.parametrize("block", range(20))
def test_results_that_are_kept_are_one_evaluation_of_a_past_and_what_came_since(block: int) -> None:
    dropped = [check_kept(seed, ListedRecord()) for seed in range(CASES * block, CASES * (block + 1))]
    assert sum(dropped) >= CASES // 2


def test_results_that_a_file_keeps_are_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_store, "PORTION", 20)
    dropped = 0
    for seed in range(300, 320):
        store = LiveStore(tmp_path / f"{seed}.sqlite")
        store.add("q", "text", LiveOptions(0), keep_s=86_400.0)
        dropped += check_kept(seed, StoredRun(store))
        dropped += store.find("q").retention.dropped > 0
        assert store.list_damaged() == []
        store.close()
    assert dropped > 20
