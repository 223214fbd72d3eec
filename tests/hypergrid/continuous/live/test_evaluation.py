"""Live results and corrections together are one evaluation of the newest version, whatever arrived late or changed."""

import numpy as np
import pytest

from hypergrid.continuous.algebra import JoinOf, RelationInput, StreamInput, WindowOf
from hypergrid.continuous.expressions import Attribute
from hypergrid.continuous.live.evaluation import LiveEvaluation
from hypergrid.continuous.rewrite import rewrite
from hypergrid.core.times import Window
from tests.support.continuous_live import ListedRecord, ListedVersions, random_versions
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
