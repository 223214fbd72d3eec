"""Sums and extremes of panes have the bits of those of rows, whatever numbers and windows there are.

They hold what is projected.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hypergrid.continuous.algebra import AggregateOf, WindowOf
from hypergrid.continuous.engine import ChangeBatch, ContinuousEngine, ElementBatch, plan
from hypergrid.continuous.engine.batch import Elements, Integers
from hypergrid.continuous.engine.kernels.groups import GroupElements, GroupOutput, GroupState
from hypergrid.continuous.engine.kernels.ordered import NODES_USED
from hypergrid.continuous.engine.kernels.panes import (
    ADDED,
    FIRST_PART,
    FOLLOWING,
    FREE_PART,
    GROUP,
    LAST_PART,
    LAST_STAMP,
    LEFT,
    PANES,
    PARTS,
    PARTS_USED,
    STRAYS_USED,
    PaneState,
)
from hypergrid.continuous.engine.operators import aggregate as aggregate_module
from hypergrid.continuous.engine.operators import panes as panes_module
from hypergrid.continuous.engine.operators import window as window_module
from hypergrid.continuous.engine.operators.panes import PaneGrouping
from hypergrid.continuous.engine.state import pack_state, unpack_state
from hypergrid.continuous.expressions import GREATEST_INTEGER, NULL_CODE, NULL_INTEGER
from hypergrid.continuous.language import explain, parse_query, project_windows
from hypergrid.continuous.records import StreamCatalogue
from tests.support.continuous_trees import aggregate, aggregate_call, attributes, call, column, stream

SOURCE = stream("S", "group:i value:n whole:i")


def make_tree(rng: np.random.Generator, *, is_plain: bool = False) -> AggregateOf:
    value, whole = column(SOURCE, "value"), column(SOURCE, "whole")
    calls = {
        "rows": aggregate_call("count"),
        "values": aggregate_call("count", value),
        "total": aggregate_call("sum", value),
        "mean": aggregate_call("avg", value),
        "deviation": aggregate_call("stddev", value),
        "wholes": aggregate_call("sum", whole),
        "whole_mean": aggregate_call("avg", whole),
        "least": aggregate_call("min", value),
        "greatest": aggregate_call("max", value),
        "least_whole": aggregate_call("min", whole),
        "first": aggregate_call("first", value),
        "last": aggregate_call("last", value),
        "last_whole": aggregate_call("last", whole),
    }
    chosen = rng.permutation(list(calls))[: int(rng.integers(0, len(calls) + 1))]
    if is_plain:
        chosen = rng.permutation(["total", "mean"])[:1]
    window = WindowOf(
        SOURCE,
        "range",
        range_ns=int(rng.integers(1, 40)),
        slide_ns=int(rng.integers(1, 30)),
        where=call("unequal", whole, 3) if rng.random() < 0.3 else None,
    )
    return aggregate(
        window, "group" if is_plain or rng.random() < 0.8 else "", **{name: calls[name] for name in chosen}
    )


def draw(rng: np.random.Generator, count: int) -> ElementBatch:
    """Return elements with numbers of like size, of any size, or none, in runs, with gaps and equal instants."""
    steps = rng.choice([0, 0, 1, 2, 15], count) * int(rng.choice([0, 1, 3]) or 1)
    tau = np.cumsum(steps) - int(rng.integers(0, 200))
    value = np.round(rng.normal(10, 5, count), int(rng.integers(0, 4)))
    wild = rng.random(count) < rng.choice([0.0, 0.1, 0.9])
    value[wild] = rng.normal(size=wild.sum()) * 10.0 ** rng.integers(-320, 150, wild.sum())
    rare = rng.random(count) < rng.choice([0.0, 0.2])
    value[rare] = rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1.7e308, -1.7e308], rare.sum())
    whole = rng.integers(-5, 5, count) * int(rng.choice([1, 2**60]))
    whole[rng.random(count) < 0.1] = NULL_INTEGER
    return ElementBatch(tau, (rng.integers(0, int(rng.choice([1, 4, 90])), count), value, whole))


def run(
    tree: AggregateOf, feed: ElementBatch, cuts: list[int], *, is_closed: bool, is_restored: bool
) -> tuple[list[ChangeBatch], ContinuousEngine]:
    engine = ContinuousEngine(tree, is_closed=is_closed)
    results: list[ChangeBatch] = []
    for first, stop in zip([0, *cuts], [*cuts, len(feed.tau)], strict=True):
        part = slice(first, stop)
        engine.push("S", ElementBatch(feed.tau[part], tuple(each[part] for each in feed.columns)))
        if stop < len(feed.tau):
            engine.advance(max(int(feed.tau[stop]), engine.heartbeat))
        if is_restored:
            engine = ContinuousEngine.restore(tree, engine.save(), is_closed=is_closed)
        results += engine.results()
    engine.advance(int(feed.tau[-1]) + 100)
    return results + engine.results(), engine


def list_changes(results: list[ChangeBatch]) -> list[tuple[object, ...]]:
    """Return changes with the bits of their values, those of an instant and sign in any order."""
    return sorted(
        (int(tau), int(sign), *row)
        for batch in results
        for tau, sign, *row in zip(
            batch.tau, batch.sign, *(part.view(np.int64).tolist() for part in batch.columns), strict=True
        )
    )


def keep_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "list_paned_windows", lambda tree: {})


@pytest.mark.parametrize("block", range(10))
def test_sums_of_panes_have_the_bits_of_sums_of_rows(block: int) -> None:
    shown = 0
    for seed in range(30 * block, 30 * block + 30):
        rng = np.random.default_rng(seed)
        tree = make_tree(rng, is_plain=seed % 3 == 0)
        feed = draw(rng, int(rng.choice([1, 30, 700])))
        cuts = np.sort(rng.integers(0, len(feed.tau) + 1, int(rng.integers(0, 9)))).tolist()
        is_closed = bool(rng.random() < 0.3)
        results, engine = run(tree, feed, cuts, is_closed=is_closed, is_restored=bool(seed % 2))
        assert isinstance(engine._plan.steps[-1].operator, PaneGrouping)
        with pytest.MonkeyPatch.context() as patched:
            keep_rows(patched)
            expected, other = run(tree, feed, [], is_closed=is_closed, is_restored=False)
            assert not isinstance(other._plan.steps[-1].operator, PaneGrouping)
        assert list_changes(results) == list_changes(expected), seed
        shown += len(list_changes(expected))
        # Nothing is left once all rows are.
        operator = engine._plan.steps[-1].operator
        assert isinstance(operator, PaneGrouping)
        assert not operator._panes.groups[:, 0].any()
    assert shown > 1000


def test_stretches_of_a_batch_that_show_pass_one_by_one_as_they_do_together(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    monkeypatch.setattr(window_module, "LEAST_FOR_RUNS", 1)
    monkeypatch.setattr(panes_module, "LEAST_FOR_PARTS", 0)
    process, pass_part = PaneGrouping.process, PaneGrouping._pass

    def note_batch(grouping: PaneGrouping, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        passed.append(0)
        return process(grouping, inputs, heartbeat)

    def note_part(grouping: PaneGrouping, elements: Elements, until: int) -> Elements:
        passed[-1] += 1
        return pass_part(grouping, elements, until)

    monkeypatch.setattr(PaneGrouping, "process", note_batch)
    monkeypatch.setattr(PaneGrouping, "_pass", note_part)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        tree = make_tree(rng, is_plain=seed % 3 == 0)
        assert isinstance(tree.input, WindowOf)
        tree = replace(tree, input=replace(tree.input, slide_ns=int(rng.integers(40, 900))))
        feed = draw(rng, 700)
        cuts = np.sort(rng.integers(0, 701, int(rng.integers(0, 4)))).tolist()
        results, _ = run(tree, feed, cuts, is_closed=bool(seed % 2), is_restored=bool(seed % 5))
        with pytest.MonkeyPatch.context() as patched:
            # Rows are chosen by division.
            patched.setattr(window_module, "LEAST_FOR_RUNS", len(feed.tau) + 1)
            keep_rows(patched)
            expected, _ = run(tree, feed, [], is_closed=bool(seed % 2), is_restored=False)
        assert list_changes(results) == list_changes(expected) != [], seed
    assert sum(parts > 1 for parts in passed) > 40


def test_means_of_panes_are_rounded_once() -> None:
    rng = np.random.default_rng(5)
    value = rng.normal(size=4000) * 10.0 ** rng.integers(-20, 20, 4000)
    tau = np.arange(4000)
    tree = aggregate(
        WindowOf(SOURCE, "range", range_ns=300, slide_ns=7), total=aggregate_call("sum", column(SOURCE, "value"))
    )
    results, _ = run(tree, ElementBatch(tau, (tau, value, tau)), [500, 1777], is_closed=False, is_restored=True)
    changes = [
        (int(at), total)
        for batch in results
        for at, sign, total in zip(batch.tau, batch.sign, *batch.columns, strict=True)
        if sign > 0
    ]
    totals, last = dict(changes), None
    for end in range(0, 3999, 7):
        # A number that is too small to change the sum changes nothing.
        last = totals.get(end, last)
        assert last == math.fsum(value[max(end - 299, 0) : end + 1])


def list_wide_slides() -> Iterator[tuple[int, int, int]]:
    """Yield a length, a slide and an instant near the ends of the integers."""
    for span, slide in ((10, 5), (5, 10), (2**61, 2**60), (7, 2**62), (GREATEST_INTEGER, 3)):
        for tau in (NULL_INTEGER + 1, NULL_INTEGER + 12, -1, 0, 1, GREATEST_INTEGER - 12, GREATEST_INTEGER - 1):
            yield span, slide, tau


@pytest.mark.parametrize(("span", "slide", "tau"), list(list_wide_slides()))
def test_instants_near_the_ends_of_the_integers_show_as_rows_do(
    span: int, slide: int, tau: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = aggregate(WindowOf(SOURCE, "range", range_ns=span, slide_ns=slide), "group", rows=aggregate_call("count"))

    def count() -> list[tuple[object, ...]]:
        engine = ContinuousEngine(tree)
        engine.push("S", ElementBatch(np.array([tau]), (np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.int64))))
        for heartbeat in range(tau, min(tau + 40, GREATEST_INTEGER)):
            engine.advance(heartbeat)
        engine.advance(GREATEST_INTEGER)
        return list_changes(engine.results())

    panes = count()
    keep_rows(monkeypatch)
    assert panes == count()


@pytest.mark.parametrize("slide", [3, 10, 25])
@pytest.mark.parametrize("seed", range(4))
def test_extremes_of_texts_go_by_their_order_as_more_of_them_come(
    seed: int, slide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    source = stream("S", "group:i name:s")
    tree = aggregate(
        WindowOf(source, "range", range_ns=20, slide_ns=slide),
        "group",
        least=aggregate_call("min", column(source, "name")),
        greatest=aggregate_call("max", column(source, "name")),
        values=aggregate_call("count", column(source, "name")),
    )
    tau, group = np.sort(rng.integers(0, 300, 400)), rng.integers(0, 3, 400)
    names = [f"{number:03d}" for number in rng.permutation(400)]
    is_null = rng.random(400) < 0.3

    def compute() -> list[tuple[object, ...]]:
        engine = ContinuousEngine(tree)
        results: list[ChangeBatch] = []
        for part in np.array_split(np.arange(400), 8):
            codes = engine.texts.encode([names[number] for number in part])
            codes[is_null[part]] = NULL_CODE
            engine.push("S", ElementBatch(tau[part], (group[part], codes)))
            engine.advance(int(tau[part[-1]]))
            results += engine.results()
            engine = ContinuousEngine.restore(tree, engine.save())
        engine.advance(400)
        return list_changes(results + engine.results())

    panes = compute()
    assert len(panes) > 60
    keep_rows(monkeypatch)
    assert panes == compute()


@pytest.mark.parametrize("seed", range(60))
def test_any_nan_is_null_and_no_zero_has_a_sign(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = make_tree(rng, is_plain=seed % 3 == 0)
    if seed % 2:
        # The rows of the window itself, which enter and leave.
        tree = replace(tree, input=replace(tree.input, slide_ns=0))
    feed = draw(rng, 300)
    tau, (group, value, whole) = feed.tau, feed.columns
    bits = np.array([-1, 0x7FF0000000000001, 0x7FF8000000000000, 1 - 2**52])
    assert np.isnan(bits.view(np.float64)).all()
    is_odd = rng.random(300) < 0.3
    value[is_odd] = rng.choice(bits, is_odd.sum()).view(np.float64)
    value[rng.random(300) < 0.1] = -0.0
    clean = np.where(np.isnan(value), np.nan, value)
    clean[clean == 0.0] = 0.0
    given, expected = (
        run(tree, ElementBatch(tau, (group, each, whole)), [150], is_closed=False, is_restored=False)[0]
        for each in (value, clean)
    )
    assert list_changes(given) == list_changes(expected)


@pytest.mark.parametrize("seed", range(160))
def test_all_that_is_written_has_room(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    tree = make_tree(rng, is_plain=seed % 3 == 0)
    feed = draw(rng, 700)
    if seed % 4 == 1:
        # Rows that would leave beyond the greatest instant.
        feed = feed._replace(tau=feed.tau - feed.tau[-1] + (GREATEST_INTEGER - 1))
    engine = ContinuousEngine(tree, is_closed=bool(seed % 2))
    (operator,) = (step.operator for step in engine._plan.steps if isinstance(step.operator, PaneGrouping))
    make_room, change = PaneGrouping._make_room_for_parts, aggregate_module.change_groups
    most = np.zeros(2, np.int64)

    def note_room(self: PaneGrouping, tau: Integers) -> int:
        count = make_room(self, tau)
        state = self._panes.state
        assert len(self._panes.parts) - state[PARTS_USED] >= count
        most[:] = state[PANES], state[ADDED] + count
        if len(tau):
            most[0] += self._count_panes(int(tau[0]), int(tau[-1]))
        return count

    def note_rows(groups: GroupState, given: GroupElements, panes: PaneState, out: GroupOutput) -> int:
        """Do it with more room, behind which is nothing that must not be written."""
        rows, words = len(out.sign), len(given.touched)
        more = out._replace(
            sign=np.empty(rows + 9999, np.int8),
            columns=np.empty((len(out.columns), rows + 9999), np.int64),
        )
        touched = np.full(words + 9999, NULL_INTEGER)
        written = change(groups, given._replace(touched=touched), panes, more)
        assert written <= rows
        assert (panes.state[[PANES, ADDED]] <= most).all()
        assert np.count_nonzero(touched != NULL_INTEGER) <= words
        out.sign[:written], out.columns[:, :written] = more.sign[:written], more.columns[:, :written]
        dead = int(touched[-1])
        given.touched[words - 1 - dead :] = touched[len(touched) - 1 - dead :]
        return int(written)

    monkeypatch.setattr(PaneGrouping, "_make_room_for_parts", note_room)
    monkeypatch.setattr(aggregate_module, "change_groups", note_rows)
    for first, stop in pairwise([0, *np.sort(rng.integers(0, 700, 8)).tolist(), 700]):
        engine.push("S", ElementBatch(feed.tau[first:stop], tuple(each[first:stop] for each in feed.columns)))
        engine.advance(max(int(feed.tau[stop]), engine.heartbeat) if stop < 700 else GREATEST_INTEGER)
        check_parts(operator)
        assert operator._groups.pool[NODES_USED] <= len(operator._groups.nodes)


@pytest.mark.parametrize("slide", [10**6, 100])
def test_values_of_parts_that_wait_have_room_in_their_chains(slide: int) -> None:
    window = WindowOf(SOURCE, "range", range_ns=10**6, slide_ns=slide)
    value = column(SOURCE, "value")
    tree = aggregate(window, "group", last=aggregate_call("last", value), greatest=aggregate_call("max", value))
    engine = ContinuousEngine(tree)
    operator = engine._plan.steps[-1].operator
    assert isinstance(operator, PaneGrouping)
    for number in range(1, 300):
        # A group each round, so that many parts wait where rounds are small.
        at = np.array([number])
        engine.push("S", ElementBatch(at, (at, at.astype(float), at)))
        engine.advance(number + 1)
        assert operator._groups.pool[NODES_USED] <= len(operator._groups.nodes)
    engine.advance(2 * 10**6)
    assert 300 < operator._groups.pool[NODES_USED] <= len(operator._groups.nodes)
    assert sum(int((batch.sign > 0).sum()) for batch in engine.results()) == 299


def count_panes(slide: int, span: int, first: int, last: int) -> int:
    """Count the panes of all stamps from one to another, as the loop opens them."""
    panes, end = 0, None
    for stamp in range(first, last + 1):
        if end is None or stamp > end:
            panes += 1
            enter = min(-(-stamp // slide) * slide, GREATEST_INTEGER)
            end = enter
            if stamp <= GREATEST_INTEGER - span:
                end = min(enter, min(-(-(stamp + span) // slide) * slide, GREATEST_INTEGER) - span)
    return panes


@pytest.mark.parametrize("seed", range(20))
def test_panes_are_counted_up_to_the_greatest_instant(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(50):
        slide = int(rng.choice([rng.integers(1, 30), rng.integers(1, 2**62)]))
        span = int(rng.choice([rng.integers(1, 90), slide, rng.integers(1, 2**62)]))
        window = WindowOf(SOURCE, "range", range_ns=span, slide_ns=slide)
        tree = aggregate(window, "group", rows=aggregate_call("count"))
        operator = ContinuousEngine(tree)._plan.steps[-1].operator
        assert isinstance(operator, PaneGrouping)
        near = rng.choice([0, GREATEST_INTEGER - span, NULL_INTEGER + 100, GREATEST_INTEGER - 100])
        first = max(int(near) - int(rng.integers(0, 60)), NULL_INTEGER + 1)
        last = min(first + int(rng.integers(0, 100)), GREATEST_INTEGER - 1)
        opened = count_panes(slide, span, first, last)
        counted = operator._count_panes(first, last)
        # Rows that never leave have fewer.
        assert opened <= counted
        assert counted <= opened or last > GREATEST_INTEGER - span


def make_earlier(held: list[Integers], words_of_group: int) -> list[Integers]:
    """Return saved panes as programs before part 0 wrote them: groups had their newest part and the number of its pane.

    The state had twelve words, of which the eighth was the number of panes ever opened; 0 was an instant before the
    first, and the earliest programs had no limit with a group.
    """
    parts, panes, strays, groups, current, layout, words = held
    parts, panes, opened = parts.copy(), panes.copy(), 77 if len(panes) else 0
    for links in (parts[:, FOLLOWING], panes[:, FIRST_PART : LAST_PART + 1]):
        links[links > 0] -= 1
    words = np.insert(words, 7, opened)
    words[0] -= 1
    words[1] -= words[1] > 0
    if not opened:
        words[9] = 0
    newest = [groups[:, 0], current - 1, np.where(current > 0, opened, max(opened - 1, 0)), groups[:, 1]]
    return [parts[1:], panes, strays, np.stack(newest[:words_of_group], axis=1), layout, words]


@pytest.mark.parametrize("words_of_group", [3, 4])
def test_states_of_earlier_programs_go_on(words_of_group: int) -> None:
    met = Counter[str]()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        tree, feed = make_tree(rng, is_plain=seed % 3 == 0), draw(rng, 300)
        cut = 0 if seed % 8 == 0 else int(rng.integers(100, 200))
        results, _ = run(tree, feed, [cut], is_closed=False, is_restored=False)
        engine = ContinuousEngine(tree)
        if cut:
            engine.push("S", ElementBatch(feed.tau[:cut], tuple(each[:cut] for each in feed.columns)))
            engine.advance(int(feed.tau[cut]))
        state = unpack_state(engine.save())
        (step,) = (step for step in state["steps"] if "_panes" in step)
        _, panes, _, _, current, _, words = step["_panes"]
        step["_panes"] = make_earlier(step["_panes"], words_of_group)
        restored = ContinuousEngine.restore(tree, pack_state(state))
        (operator,) = (each.operator for each in restored._plan.steps if isinstance(each.operator, PaneGrouping))
        check_parts(operator)
        is_filled = len(panes) > 0 and bool(feed.tau[cut] <= panes[-1, LAST_STAMP])
        met.update(free=int(words[FREE_PART] > 0), begun=int(not len(panes)), filled=is_filled and bool(current.any()))
        restored.push("S", ElementBatch(feed.tau[cut:], tuple(each[cut:] for each in feed.columns)))
        restored.advance(int(feed.tau[-1]) + 100)
        check_parts(operator)
        assert list_changes(restored.results()) == list_changes(results), seed
    # Parts that are free, no pane yet, and elements that follow in the last pane.
    assert min(met["free"], met["begun"], met["filled"]) >= 6, met


def check_parts(operator: PaneGrouping) -> None:
    """Part 0 is empty, each other one is in a pane or free, and those of the last pane are the current ones."""
    panes = operator._panes
    state, seen = panes.state, {0}
    counts, current = np.zeros_like(panes.current), np.zeros_like(panes.current)
    assert not panes.parts[0].any()
    for pane in range(state[LEFT], state[PANES]):
        last, following = 0, panes.panes[pane, FIRST_PART]
        while following > 0:
            part = following - 1
            assert part not in seen
            seen.add(part)
            group = panes.parts[part, GROUP]
            counts[group] += 1
            if pane == state[PANES] - 1:
                current[group] = part
            last, following = following, panes.parts[part, FOLLOWING]
        assert last == panes.panes[pane, LAST_PART]
    np.testing.assert_array_equal(panes.current, current)
    np.testing.assert_array_equal(panes.groups[:, PARTS], counts)
    following = state[FREE_PART]
    while following > 0:
        assert following - 1 not in seen
        seen.add(following - 1)
        following = panes.parts[following - 1, FOLLOWING]
    assert len(seen) == state[PARTS_USED]


@pytest.mark.parametrize("size", [20, 2000])
@pytest.mark.parametrize("seed", range(40))
def test_windows_hold_the_parts_that_are_projected_at_most(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    tree = make_tree(rng, is_plain=seed % 4 == 0)
    groups, count = int(rng.choice([1, 5, 40])), 2000
    tau = np.sort(rng.integers(0, int(rng.choice([100, 1000, 20_000])), count))
    # Readings as instruments give them: their squares are no numbers of 53 bits.
    values = np.round(rng.normal(20, 10, count), 2)
    feed = ElementBatch(tau, (rng.integers(0, groups, count), values, rng.integers(0, 9, count)))
    engine = ContinuousEngine(tree)
    operator = engine._plan.steps[-1].operator
    assert isinstance(operator, PaneGrouping)
    panes = 0
    for first in range(0, count, size):
        part = slice(first, first + size)
        engine.push("S", ElementBatch(feed.tau[part], tuple(each[part] for each in feed.columns)))
        engine.advance(max(int(feed.tau[part][-1]), engine.heartbeat))
        panes = max(panes, int(operator._panes.state[PANES] - operator._panes.state[LEFT]))
    (projection,) = project_windows(tree, {"S": 1e12}, groups={"S": {"group": float(groups)}})
    assert projection.part_words == operator._panes.parts.shape[1]
    assert explain.PANE_WORDS == operator._panes.panes.shape[1]
    assert projection.rows is not None
    used = int(operator._panes.state[PARTS_USED]) - 1
    # The pane that is filled follows those that the projection has.
    assert 0 < used <= projection.rows + groups
    assert panes <= projection.panes + 1
    # The bound is not far off where there are many elements.
    assert tau[-1] > 110 or projection.rows <= 4 * used
    # But for the first value of a group, each number fits the sum of its part.
    assert operator._panes.state[STRAYS_USED] <= groups * operator._numbers


def test_rows_that_are_kept_in_any_case_are_not_kept_by_pane_beside() -> None:
    text = "S [Range 1 Minute Slide 10 Seconds]"
    catalogue = StreamCatalogue(streams={"S": attributes("station:i value:n")})
    both = parse_query(
        f"Select a.mean, b.middle From (Select station, avg(value) as mean From {text} Group By station) a, "
        f"(Select station, median(value) as middle From {text} Group By station) b Where a.station = b.station",
        catalogue,
    )
    mean = parse_query(f"Select station, avg(value) as mean From {text} Group By station", catalogue)
    for query, has_panes in ((both, False), (mean, True)):
        steps = ContinuousEngine(query.tree)._plan.steps
        assert any(isinstance(step.operator, PaneGrouping) for step in steps) == has_panes
        (projection,) = project_windows(query.tree, {"S": 1.0}, groups={"S": {"station": 2.0}})
        assert (projection.rows, projection.part_words > 0) == ((14.0, True) if has_panes else (70.0, False))
