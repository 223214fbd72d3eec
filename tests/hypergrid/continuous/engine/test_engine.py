"""The engine gives what the oracle does on the golden queries, when results are final, and how bad input is named."""

import itertools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from numba.types import Array, BaseTuple

from hypergrid.continuous.algebra import (
    BagOf,
    FilterOf,
    JoinOf,
    Operator,
    ProjectionOf,
    RelationInput,
    StreamInput,
    ToStream,
    WindowOf,
    walk_operators,
)
from hypergrid.continuous.engine import ContinuousEngine, ElementBatch
from hypergrid.continuous.engine.engine import STATELESS_ROUND, cut_rounds
from hypergrid.continuous.engine.kernels import compiled
from hypergrid.continuous.engine.kernels import join as join_kernel
from hypergrid.continuous.engine.kernels.rows import release_rows
from hypergrid.continuous.engine.operators import join as join_operator
from hypergrid.continuous.engine.row_table import RowTable
from hypergrid.continuous.engine.warm import warm
from hypergrid.continuous.expressions import NULL_INTEGER, Constant, Operation, Reference
from hypergrid.continuous.rewrite import rewrite
from hypergrid.core.errors import InvalidQuery, NotFound
from tests.support.continuous_engine import collect, engine_result, make_batch
from tests.support.continuous_feeds import Feed
from tests.support.continuous_golden import NAMES, read_inputs, read_script
from tests.support.continuous_oracle import Change, Oracle, find_end, net_changes, oracle_result
from tests.support.continuous_random import random_case
from tests.support.continuous_trees import aggregate, aggregate_call, call, column, project, stream


@pytest.mark.parametrize("name", NAMES)
def test_golden_queries_give_what_the_oracle_does_as_written_and_rewritten(name: str) -> None:
    script = read_script(name)
    streams, relations = read_inputs(name, script.catalogue)
    tree = script.queries[-1].tree
    until = Oracle(tree, streams, relations, "half-open", None).until
    expected = _rounded(oracle_result(tree, streams, relations))
    for number, plan in enumerate((tree, rewrite(tree, script.catalogue.static).tree)):
        rng = np.random.default_rng(number)
        result = engine_result(plan, streams, relations, rng, until=until, is_shuffled=number == 1)
        assert _rounded(result) == expected


def _rounded(changes: list) -> dict:
    """Return net changes with numbers of nine digits: distances and powers have other last bits in numpy."""
    return net_changes(
        (tau, sign, tuple(float(f"{value:.9g}") if isinstance(value, float) else value for value in row))
        for tau, sign, row in changes
    )


def test_results_come_once_their_instant_is_complete() -> None:
    source = stream("S", "a:i")
    engine = ContinuousEngine(source)
    engine.push("S", make_batch([(1, 1, (1,)), (2, 1, (2,))], source.attributes, engine.texts))
    assert collect(engine) == []
    engine.advance(2)
    assert collect(engine) == [(1, 1, (1,))]
    engine.push("S", make_batch([(2, 1, (3,))], source.attributes, engine.texts, 2))
    assert collect(engine) == []
    engine.advance(3)
    assert collect(engine) == [(2, 1, (2,)), (2, 1, (3,))]


def test_elements_before_the_heartbeat_are_refused_and_not_dropped() -> None:
    source = stream("S", "a:i")
    engine = ContinuousEngine(source)
    engine.advance(3)
    with pytest.raises(InvalidQuery, match="come late"):
        engine.push("S", make_batch([(2, 1, (3,))], source.attributes, engine.texts))
    with pytest.raises(InvalidQuery, match="a heartbeat is at most 9223372036854775807 ns; got 9223372036854775808"):
        engine.advance(2**63)
    with pytest.raises(InvalidQuery, match="do not go back"):
        engine.advance(2)
    # Those after it are taken as if nothing had been.
    engine.push("S", make_batch([(3, 1, (4,))], source.attributes, engine.texts))
    engine.advance(4)
    assert collect(engine) == [(3, 1, (4,))]


def test_elements_of_an_instant_are_ordered_by_arrival_series_and_number() -> None:
    window = WindowOf(stream("S", "a:i"), "rows", rows=1)
    orders = {
        "arrival": ElementBatch(np.zeros(3, np.int64), (np.arange(3),), arrival=np.array([1, 9, 1])),
        "series": ElementBatch(
            np.zeros(3, np.int64), (np.arange(3),), arrival=np.array([1, 1, 1]), series=np.array([2, 3, 1])
        ),
        "number": ElementBatch(np.zeros(3, np.int64), (np.arange(3),), number=np.array([7, 8, 3])),
        "position": ElementBatch(np.zeros(3, np.int64), (np.arange(3),)),
    }
    last = {}
    for name, batch in orders.items():
        engine = ContinuousEngine(window)
        engine.push("S", batch)
        engine.advance(1)
        last[name] = [row for *_, row in collect(engine)]
    assert last == {"arrival": [(1,)], "series": [(1,)], "number": [(1,)], "position": [(2,)]}


def test_sums_have_the_bits_of_the_exact_sum_after_any_number_of_slides() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=3000) * 10.0 ** rng.integers(-12, 12, 3000)
    source = stream("S", "v:n")
    tree = aggregate(WindowOf(source, "rows", rows=50), total=aggregate_call("sum", column(source, "v")))
    engine = ContinuousEngine(tree)
    engine.push("S", ElementBatch(np.arange(3000), (values,)))
    engine.advance(3000)
    changes = {tau: row[0] for tau, sign, row in collect(engine) if sign > 0}
    total = 0.0
    for tau in range(3000):
        # A number that is too small to change the sum changes nothing.
        total = changes.get(tau, total)
        assert total == math.fsum(values[max(0, tau - 49) : tau + 1])


def test_bad_input_is_named() -> None:
    source = stream("S", "a:i b:n")
    engine = ContinuousEngine(source)
    with pytest.raises(NotFound, match="unknown input 'T'"):
        engine.push("T", ElementBatch(np.zeros(1, np.int64), ()))
    with pytest.raises(InvalidQuery, match="needs 2 columns"):
        engine.push("S", ElementBatch(np.zeros(1, np.int64), (np.zeros(1),)))
    same = np.zeros(1, np.int64)
    with pytest.raises(InvalidQuery, match="column 1 of input 'S' needs 1 values of float64"):
        engine.push("S", ElementBatch(same, (same, same)))
    columns = (np.zeros(1, np.int64), np.zeros(1))
    with pytest.raises(InvalidQuery, match="cannot remove"):
        engine.push("S", ElementBatch(np.zeros(1, np.int64), columns, sign=np.array([-1], np.int8)))
    with pytest.raises(InvalidQuery, match="needs signs as int8; got int64"):
        engine.push("S", ElementBatch(np.zeros(1, np.int64), columns, sign=np.array([1])))
    with pytest.raises(InvalidQuery, match="without instant"):
        engine.push("S", ElementBatch(np.array([NULL_INTEGER]), (np.zeros(1, np.int64), np.zeros(1))))


def test_compiled_functions_are_a_closed_list_of_at_most_twelve_with_one_specialisation_each() -> None:
    assert len(compiled.FUNCTIONS) == 12
    warm()
    assert {function.dispatcher.__name__: len(function.dispatcher.signatures) for function in compiled.FUNCTIONS} == {
        function.dispatcher.__name__: 1 for function in compiled.FUNCTIONS
    }
    for function in compiled.FUNCTIONS:
        [types] = function.dispatcher.signatures
        arrays = [each for kind in types for each in (kind if isinstance(kind, BaseTuple) else [kind])]
        assert {str(each) for each in arrays if not isinstance(each, Array)} <= {"int64"}
        assert all(each.layout == "C" and each.mutable and each.aligned for each in arrays if isinstance(each, Array))


def test_compiled_functions_refuse_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    warm()
    words, table = np.zeros(4, np.int64), RowTable(1)
    others = words.astype(np.int32), words.tolist(), words.reshape(2, 2), words[::2], words.astype(np.float64)
    for checks_types, refused in ((True, others), (False, others[:2])):
        monkeypatch.setattr(compiled.SpecialisedFunction, "checks_types", checks_types)
        for other in refused:
            with pytest.raises(TypeError):
                release_rows(table._rows, other)
    assert len(release_rows.dispatcher.signatures) == 1  # type: ignore[attr-defined]


def test_threads_may_call_a_function_first_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.SpecialisedFunction, "checks_types", False)
    function = compiled.SpecialisedFunction(numba.njit(nogil=True)(lambda values: values.sum()))
    starting, values = threading.Barrier(8), np.arange(5)

    def call(_: int) -> list[int]:
        starting.wait(60)
        return [function(values) for _ in range(3)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(8))) == [[10] * 3] * 8
    assert len(function.dispatcher.signatures) == 1


def test_an_input_is_read_as_one_kind_of_rows() -> None:
    both = BagOf("union", stream("S", "a:i"), stream("S", "b:i"))
    with pytest.raises(InvalidQuery, match="input 'S' is read as two kinds of rows"):
        ContinuousEngine(both)


@pytest.mark.parametrize("window", [
    WindowOf(stream("S", "a:i v:n"), "range", range_ns=20, slide_ns=5),
    WindowOf(stream("S", "a:i v:n"), "unbounded"),
    WindowOf(stream("S", "a:i v:n"), "rows", rows=2, partition=(0,)),
])  # fmt: skip
def test_arrays_of_tables_compile_nothing(window: WindowOf) -> None:
    warm()
    tree = aggregate(window, "a", mean=aggregate_call("avg", column(window, "v")))
    arrays = [np.arange(50), np.arange(50) % 3, np.arange(50.0)]
    fixed = [array.copy() for array in arrays]
    for array in fixed:
        array.setflags(write=False)
    results = []
    for tau, *columns in (arrays, fixed, [np.repeat(array, 2)[::2] for array in arrays]):
        engine = ContinuousEngine(tree)
        engine.push("S", ElementBatch(tau, tuple(columns)))
        engine.advance(100)
        results.append(collect(engine))
    assert results[0] == results[1] == results[2] != []
    assert all(len(function.dispatcher.signatures) == 1 for function in compiled.FUNCTIONS)


@pytest.mark.parametrize("seed", range(20))
def test_rounds_are_whole_instants_of_about_a_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 40))
    counts = rng.choice([0, 1, 3, 200, 1000], int(rng.integers(1, 5)))
    taus = [np.sort(rng.integers(0, int(rng.choice([1, 50, 10**12])), count)) for count in counts]
    waiting = np.sort(np.concatenate(taus))
    limits = list(cut_rounds(taus, size))
    assert limits == sorted(set(limits))
    ends = [0, *np.searchsorted(waiting, limits).tolist(), len(waiting)]
    short = 0
    for start, stop in itertools.pairwise(ends):
        assert stop > start or not len(waiting)
        most = int(np.unique(waiting[start:stop], return_counts=True)[1].max(initial=0))
        # Beside many of one instant, those between two instants at which a round may end.
        assert stop - start <= size or stop - start - most <= size
        short += stop - start < size // 2
    if len(set(waiting.tolist())) == len(waiting):
        assert short <= 1, "only the last round is short, where each element has its own instant"


@pytest.mark.parametrize("seed", range(12))
def test_waiting_elements_are_taken_in_canonical_order_however_they_come(seed: int) -> None:
    rng = np.random.default_rng(seed)
    attributes = stream("S", "a:i").attributes
    inputs = StreamInput("S", attributes) if seed % 2 else RelationInput("S", attributes)
    has_numbers = bool(rng.random() < 0.5)
    engine = ContinuousEngine(inputs)
    given: list[tuple[int, int, int]] = []
    heartbeat, count, taken = 0, 0, list[tuple[int, int, tuple[int]]]()
    for _ in range(12):
        size = int(rng.integers(0, 9))
        tau = rng.integers(heartbeat, heartbeat + 12, size)
        if rng.random() < 0.5:
            tau = np.sort(tau)
        number = np.arange(count, count + size)
        count += size
        # What a relation loses would have to be there: all enter, with and without signs.
        sign = np.ones(size, np.int8) if rng.random() < 0.5 else None
        numbers = rng.permutation(number) if has_numbers else None
        order = number if numbers is None else numbers
        given += zip(tau.tolist(), order.tolist(), number.tolist(), strict=True)
        engine.push("S", ElementBatch(tau, (number,), sign, number=numbers))
        if rng.random() < 0.3:
            engine = ContinuousEngine.restore(inputs, engine.save())
        heartbeat += int(rng.integers(0, 9))
        engine.advance(heartbeat)
        taken += collect(engine)
    engine.advance(heartbeat + 100)
    taken += collect(engine)
    expected = [(tau, 1, (value,)) for tau, _, value in sorted(given)]
    # Rows of a relation have no order within an instant.
    assert (taken if seed % 2 else sorted(taken)) == (expected if seed % 2 else sorted(expected))


def test_plans_without_rows_take_longer_rounds() -> None:
    source = stream("S", "a:i")
    values = np.arange(200_000)
    kept = FilterOf(source, Operation("greater", (column(source, "a"), Constant(9, "integer")), "boolean"))
    rounds = {}
    for name, tree in {"filter": kept, "window": WindowOf(kept, "range", range_ns=5)}.items():
        engine = ContinuousEngine(tree)
        engine.push("S", ElementBatch(values, (values,)))
        engine.advance(200_000)
        batches = engine.results()
        rounds[name] = len(batches)
        entered = np.concatenate([batch.columns[0][batch.sign > 0] for batch in batches])
        assert np.array_equal(entered, values[10:]), name
    assert rounds["filter"] == -(-200_000 // STATELESS_ROUND)
    assert rounds["window"] > rounds["filter"]


def test_operators_that_say_so_hold_no_rows() -> None:
    for seed in range(60):
        case = random_case(seed)
        engine = ContinuousEngine(case.tree)
        leaves = [part for part in walk_operators(case.tree) if isinstance(part, StreamInput | RelationInput)]
        feed = Feed(engine, {part.name: part.attributes for part in leaves}, is_ordered=False)
        for name in engine.inputs:
            rows = case.relations[name] if name in case.relations else [(t, 1, row) for t, row in case.streams[name]]
            feed.push(name, list(enumerate(rows)))
        feed.advance(find_end(case.tree, case.streams, case.relations) + 1)
        for step in engine._plan.steps:  # noqa: SLF001 - what an operator holds shows in its state only
            if not step.operator.HOLDS_ROWS:
                assert not list(list_arrays(step.operator.save())), (seed, type(step.operator).__name__)


def list_arrays(state: object) -> Iterator[np.ndarray]:
    """Yield the arrays of a state that are not empty."""
    if isinstance(state, np.ndarray):
        yield from [state] if state.size else []
    elif isinstance(state, dict | list):
        for part in state.values() if isinstance(state, dict) else state:
            yield from list_arrays(part)


WINDOWS = {
    "range": {"form": "range", "range_ns": 60},
    "slide": {"form": "range", "range_ns": 60, "slide_ns": 20},
    "rows": {"form": "rows", "rows": 20},
}


def make_join(window: dict, condition: str) -> JoinOf:
    """Return three windows joined by their first attributes, and by a condition that no index knows."""
    windows = tuple(WindowOf(stream(name, "a:i b:i"), **window) for name in "RST")
    every = JoinOf(windows)
    first, second, third = (column(every, "a", number) for number in range(3))
    rest = call(condition, column(every, "b"), column(every, "b", 2))
    return JoinOf(windows, call("and", call("and", call("equal", first, second), call("equal", second, third)), rest))


def evaluate_in_cuts(tree: Operator, feeds: Mapping[str, ElementBatch], cuts: Sequence[int]) -> list[Change]:
    """Return the changes of a tree up to each instant; its state is saved and restored at the first and each ninth."""
    engine = ContinuousEngine(tree)
    for name, feed in feeds.items():
        engine.push(name, feed)
    for number, cut in enumerate(cuts):
        engine.advance(cut)
        if number % 9 == 0:
            engine = ContinuousEngine.restore(tree, engine.save())
    return collect(engine)


@pytest.mark.parametrize("room", [3, join_operator.ROOM])
@pytest.mark.parametrize("condition", ["unequal", "less"])
@pytest.mark.parametrize("window", WINDOWS)
def test_what_leaves_a_join_is_listed_only_where_it_is_read(
    window: str, condition: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    feeds = {
        name: ElementBatch(np.sort(rng.integers(0, 300, 100)), tuple(rng.integers(0, 9, (2, 100)))) for name in "RST"
    }
    monkeypatch.setattr(join_operator, "ROOM", room)
    listed: list[int] = []
    loop = join_kernel.join_elements

    def count_rows(*arguments: object) -> tuple[int, int]:
        ended = loop(*arguments)
        listed.append(ended[1])
        return ended

    monkeypatch.setattr(join_kernel, "join_elements", count_rows)

    def run(tree: Operator, cuts: list[int]) -> tuple[list[Change], int]:
        listed.clear()
        return evaluate_in_cuts(tree, feeds, cuts), sum(listed)

    join = make_join(WINDOWS[window], condition)
    shown = project(FilterOf(join, call("greater", column(join, "b", 1), 2)), "a", "b")
    changes, all_rows = run(shown, [400])
    entering = sorted((tau, row) for tau, sign, row in changes if sign > 0)
    for cuts in ([400], [*sorted(rng.integers(0, 300, 20).tolist()), 400], [*range(200), 400]):
        elements, rows = run(ToStream(shown, "istream"), cuts)
        assert sorted((tau, row) for tau, _, row in elements) == entering
        assert rows < (0.9 if window == "range" else 1.0) * all_rows
    # What else reads the same join reads all of its changes.
    elements, rows = run(BagOf("union", ToStream(shown, "istream"), ToStream(shown, "dstream")), [400])
    assert rows == all_rows
    assert sorted((tau, row) for tau, _, row in elements) == sorted((tau, row) for tau, _, row in changes)


def make_chain(window: dict) -> JoinOf:
    """Return three windows: the first two joined by one attribute, the last two by another, an integer and a number."""
    streams = (stream("R", "a:i g:n"), stream("S", "a:i b:i"), stream("T", "b:n h:i"))
    windows = tuple(WindowOf(each, **window) for each in streams)
    every = JoinOf(windows)
    first = call("equal", Reference(0, every.attributes[0]), Reference(2, every.attributes[2]))
    second = call("equal", Reference(3, every.attributes[3]), Reference(4, every.attributes[4]))
    return JoinOf(windows, call("and", first, second))


# Of R.a, R.g, S.a, S.b, T.b and T.h: what shows both keys, one, none, and one of another input only.
SHOWN = [(0, 3), (2, 4), (1, 4), (1, 5), (0, 5), (2,), (1,)]


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("step", [1, 3, 30])
def test_the_order_of_what_enters_a_join_depends_on_no_cut(
    step: int, shown: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to thirty elements of an instant, beside the same join of which all changes are read."""
    rng = np.random.default_rng(len(shown) + step)
    tau = np.sort(rng.integers(0, 240 // step, 240)) * step
    numbers = rng.choice([0.0, -0.0, 1.0], 240)
    keys = rng.integers(0, 3 + step // 2, (4, 240))
    feeds = {
        "R": ElementBatch(tau, (keys[0], numbers)),
        "S": ElementBatch(tau, (keys[1], keys[2])),
        "T": ElementBatch(tau, (keys[3].astype(np.float64), rng.integers(0, 2, 240))),
    }

    def run(tree: Operator, cuts: list[int], room: int) -> list[Change]:
        monkeypatch.setattr(join_operator, "ROOM", room)
        return evaluate_in_cuts(tree, feeds, cuts)

    for window in ({"form": "rows", "rows": 5 + step}, {"form": "range", "range_ns": 2 * step + 3}):
        join = make_chain(window)
        columns = tuple(Reference(position, join.attributes[position]) for position in shown)
        projected = ProjectionOf(join, columns, tuple(f"c{position}" for position in shown))
        every = sorted((tau, row) for tau, sign, row in run(projected, [400], 65536) if sign > 0)
        alone = ToStream(projected, "istream")
        elements = run(alone, [400], 65536)
        assert len(elements) > 100
        assert sorted((tau, row) for tau, _, row in elements) == every
        latest = run(WindowOf(alone, "rows", rows=1), [400], 65536)
        for cuts, room in (([400], 7), ([*range(0, 240, 7), 400], 65536), ([*range(0, 240, 11), 400], 7)):
            # Also to the signs of zeros, which are equal.
            assert repr(run(alone, cuts, room)) == repr(elements)
            assert repr(run(WindowOf(alone, "rows", rows=1), cuts, room)) == repr(latest)
