"""The oracle of continuous queries, on cases whose rows were computed by hand."""

import math
from typing import Literal

import pytest

from hypergrid.continuous.algebra import (
    BagOf,
    DistinctOf,
    FilterOf,
    JoinOf,
    MembershipOf,
    Operator,
    SampleOf,
    ToStream,
    WindowOf,
)
from hypergrid.continuous.expressions import OPERATIONS, Expression
from tests.support import continuous_oracle
from tests.support.continuous_oracle import START, Edge, Streams, net_changes, oracle_relation, oracle_result
from tests.support.continuous_scalars import NULL_AWARE, STRICT, Row, Value, evaluate
from tests.support.continuous_trees import (
    aggregate,
    aggregate_call,
    call,
    column,
    constant,
    project,
    relation,
    stream,
)

S = stream("S", "a:i b:n")
T = stream("T", "a:i c:n")


def rows_at(tree: Operator, streams: Streams, *taus: int) -> list[list[Value]]:
    """Return the first values of the rows at instants, sorted."""
    bags = [oracle_relation(tree, streams, {}, tau) for tau in taus]
    return [sorted(row[0] for row in bag.elements()) for bag in bags]  # type: ignore[type-var]


# Windows: rows by their a, stamped 0, 10, 10, 25.
STAMPED = {"S": [(0, (1, 0.5)), (10, (2, None)), (10, (3, 1.5)), (25, (4, 2.5))]}


@pytest.mark.parametrize(
    ("window", "edge", "expected"),
    [
        # Half-open, a row of 0 leaves a range of 10 at 10; closed, after it.
        (
            WindowOf(S, "range", range_ns=10),
            "half-open",
            [(0, 1, 1), (10, -1, 1), (10, 1, 2), (10, 1, 3), (20, -1, 2), (20, -1, 3), (25, 1, 4), (35, -1, 4)],
        ),
        (
            WindowOf(S, "range", range_ns=10),
            "closed",
            [(0, 1, 1), (10, 1, 2), (10, 1, 3), (11, -1, 1), (21, -1, 2), (21, -1, 3), (25, 1, 4), (36, -1, 4)],
        ),
        # Seen at multiples of 20: (-10, 0], (10, 20] and (30, 40] hold 1, nothing and nothing.
        (WindowOf(S, "range", range_ns=10, slide_ns=20), "half-open", [(0, 1, 1), (20, -1, 1)]),
        (
            WindowOf(S, "range", range_ns=10, slide_ns=20),
            "closed",
            [(0, 1, 1), (20, -1, 1), (20, 1, 2), (20, 1, 3), (40, -1, 2), (40, -1, 3)],
        ),
        # Of the two of 10, the later is the last; the earlier never shows.
        (WindowOf(S, "rows", rows=1), "half-open", [(0, 1, 1), (10, -1, 1), (10, 1, 3), (25, -1, 3), (25, 1, 4)]),
        (
            WindowOf(S, "rows", rows=2),
            "closed",
            [(0, 1, 1), (10, -1, 1), (10, 1, 2), (10, 1, 3), (25, -1, 2), (25, 1, 4)],
        ),
        (
            WindowOf(S, "now"),
            "closed",
            [(0, 1, 1), (1, -1, 1), (10, 1, 2), (10, 1, 3), (11, -1, 2), (11, -1, 3), (25, 1, 4), (26, -1, 4)],
        ),
        (WindowOf(S, "unbounded"), "half-open", [(0, 1, 1), (10, 1, 2), (10, 1, 3), (25, 1, 4)]),
        # A predicate inside the window precedes its limit; b of 2 is NULL.
        (
            WindowOf(S, "rows", rows=1, where=call("less", column(S, "b"), 2.0)),
            "half-open",
            [(0, 1, 1), (10, -1, 1), (10, 1, 3)],
        ),
    ],
)
def test_windows_hold_what_their_form_says(window: WindowOf, edge: Edge, expected: list[tuple[int, int, int]]) -> None:
    assert [(tau, sign, row[0]) for tau, sign, row in oracle_result(window, STAMPED, {}, edge)] == expected


def test_a_filter_above_a_window_of_rows_follows_its_limit() -> None:
    tree = FilterOf(WindowOf(S, "rows", rows=1), call("less", column(S, "b"), 2.0))
    assert rows_at(tree, STAMPED, 0, 10, 25) == [[1], [3], []]


def test_a_partition_keeps_the_last_of_each_group_and_null_is_one() -> None:
    elements = {"S": [(1, (1, 0.0)), (2, (None, 1.0)), (3, (1, 2.0)), (4, (None, 3.0)), (5, (2, 4.0))]}
    window = WindowOf(S, "rows", rows=1, partition=(0,))
    bag = oracle_relation(window, elements, {}, 5)
    assert bag == {(1, 2.0): 1, (None, 3.0): 1, (2, 4.0): 1}


def test_a_slide_before_1970_is_rounded_down() -> None:
    window = WindowOf(S, "range", range_ns=10, slide_ns=10)
    assert [change[:2] for change in oracle_result(window, {"S": [(-13, (1, 0.0))]}, {})] == [(-10, 1), (0, -1)]


def test_a_windowed_join_is_a_relation() -> None:
    """B3: Select * From S [Rows 2], T [Range 10] Where S.a = T.a and S.b > 1."""
    join = JoinOf((WindowOf(S, "rows", rows=2), WindowOf(T, "range", range_ns=10)))
    condition = call(
        "and", call("equal", column(join, "a"), column(join, "a", 1)), call("greater", column(join, "b"), 1.0)
    )
    elements = {
        "S": [(0, (1, 2.0)), (4, (2, 5.0)), (6, (1, 0.5)), (20, (2, 3.0))],
        "T": [(1, (1, 0.1)), (5, (2, 0.2)), (5, (2, 0.3)), (15, (2, 0.4))],
    }
    assert oracle_result(JoinOf(join.inputs, condition), elements, {}) == [
        (1, 1, (1, 2.0, 1, 0.1)),
        (5, 1, (2, 5.0, 2, 0.2)),
        (5, 1, (2, 5.0, 2, 0.3)),
        # Two newer rows of S push out (1, 2.0); that of 6 has too small a b.
        (6, -1, (1, 2.0, 1, 0.1)),
        (15, -1, (2, 5.0, 2, 0.2)),
        (15, -1, (2, 5.0, 2, 0.3)),
        (15, 1, (2, 5.0, 2, 0.4)),
        # S holds (1, 0.5) and (2, 3.0) from 20 on.
        (20, -1, (2, 5.0, 2, 0.4)),
        (20, 1, (2, 3.0, 2, 0.4)),
        (25, -1, (2, 3.0, 2, 0.4)),
    ]


def test_accident_segments_of_linear_road() -> None:
    """B10: segments of cars that reported four times from one position, and once within 30 s."""
    cars = stream("CarStr", "cid:i xpos:i sid:s")
    last = project(WindowOf(cars, "rows", rows=1, partition=(0,)), "cid", "sid")
    active = DistinctOf(project(WindowOf(cars, "range", range_ns=30), "cid"))
    current = JoinOf((last, active))
    current = JoinOf(current.inputs, call("equal", column(current, "cid"), column(current, "cid", 1)))
    four = WindowOf(cars, "rows", rows=4, partition=(0,))
    calls = {"positions": aggregate_call("count_distinct", column(four, "xpos")), "k": aggregate_call("count")}
    groups = aggregate(four, "cid", **calls)
    stopped = FilterOf(
        groups, call("and", call("equal", column(groups, "positions"), 1), call("equal", column(groups, "k"), 4))
    )
    both = JoinOf((project(current, "cid", "sid"), project(stopped, "cid")))
    both = JoinOf(both.inputs, call("equal", column(both, "cid"), column(both, "cid", 1)))
    tree = DistinctOf(project(both, "sid"))
    reports = [
        *((tau, (1, 70, "x")) for tau in (0, 10, 20, 30)),
        # Car 2 stops beside it, and its fourth report is of 42; car 3 moves.
        *((tau, (2, 71, "x")) for tau in (12, 22, 32, 42)),
        *((tau, (3, tau, "y")) for tau in (13, 23, 33, 43)),
        # Car 1 drives on at 50 and stands in segment y from 60 on.
        *((tau, (1, 90, "y")) for tau in (50, 60, 70, 80)),
    ]
    elements = {"CarStr": sorted(reports, key=lambda report: report[0])}
    assert oracle_result(tree, elements, {}) == [
        (30, 1, ("x",)),
        # Car 1 is gone from 50 on, but car 2 was last heard of at 42: x ends at 72.
        (72, -1, ("x",)),
        (80, 1, ("y",)),
        (110, -1, ("y",)),
    ]


@pytest.mark.parametrize(
    ("others", "is_in", "is_not_in"),
    [
        ([], [], [1, 2, None]),
        ([(1,)], [1], [2]),
        ([(1,), (None,)], [1], []),
        ([(None,)], [], []),
    ],
)
def test_membership_with_null(others: list[Row], is_in: list[Value], is_not_in: list[Value]) -> None:
    of, other = relation("R", "a:i"), relation("O", "a:i")
    relations = {"R": [(START, 1, (value,)) for value in (1, 2, None)], "O": [(3, 1, row) for row in others]}
    for is_negated, expected in ((False, is_in), (True, is_not_in)):
        tree = MembershipOf(of, (column(of, "a"),), other, is_negated)
        assert [row[0] for row in oracle_relation(tree, {}, relations, 3)] == expected
    # Before 3 nothing is in O.
    assert list(oracle_relation(MembershipOf(of, (column(of, "a"),), other, is_negated=True), {}, relations, 2)) == [
        (1,),
        (2,),
        (None,),
    ]


def test_membership_of_rows_compares_them_part_by_part() -> None:
    of, other = relation("R", "a:i b:i"), relation("O", "a:i b:i")
    values = (column(of, "a"), column(of, "b"))
    rows = [(1, None), (2, 3), (9, 9), (None, None)]
    relations = {"R": [(START, 1, row) for row in rows], "O": [(START, 1, (2, 3)), (START, 1, (1, 4))]}
    assert list(oracle_relation(MembershipOf(of, values, other, is_negated=False), {}, relations, 0)) == [(2, 3)]
    # (1, NULL) may equal (1, 4); (NULL, NULL) may equal each; (9, 9) differs from both.
    assert list(oracle_relation(MembershipOf(of, values, other, is_negated=True), {}, relations, 0)) == [(9, 9)]


def test_what_enters_and_leaves_at_one_instant_never_shows() -> None:
    """R2: Istream(a From S [Rows 1]) is silent when a repeats, Dstream too."""
    elements = {"S": [(1, (5, 0.0)), (2, (5, 1.0)), (3, (6, 2.0)), (3, (7, 0.0)), (4, (7, 3.0))]}
    last = project(WindowOf(S, "rows", rows=1), "a")
    assert oracle_result(ToStream(last, "istream"), elements, {}) == [(1, 1, (5,)), (3, 1, (7,))]
    assert oracle_result(ToStream(last, "dstream"), elements, {}) == [(3, 1, (5,))]
    assert oracle_result(last, elements, {}) == [(1, 1, (5,)), (3, -1, (5,)), (3, 1, (7,))]
    # Bags, not sets: a second equal row enters, too.
    everything = ToStream(project(WindowOf(S, "unbounded"), "a"), "istream")
    assert [row[0] for *_, row in oracle_result(everything, elements, {})] == [5, 5, 6, 7, 7]


def test_a_window_of_now_holds_its_instant_only() -> None:
    elements = {"S": [(1, (5, 0.0)), (2, (5, 0.0)), (9, (5, 0.0))]}
    now = WindowOf(S, "now")
    # The equal rows of 1 and 2 are one row that stays from 1 to 2.
    assert [tau for tau, *_ in oracle_result(ToStream(now, "istream"), elements, {})] == [1, 9]
    assert [tau for tau, *_ in oracle_result(ToStream(now, "rstream"), elements, {})] == [1, 2, 9]
    assert [change[:2] for change in oracle_result(now, elements, {})] == [(1, 1), (3, -1), (9, 1), (10, -1)]


def test_a_stream_of_a_relation_is_given_at_the_multiples_of_its_slide() -> None:
    """R6."""
    elements = {"S": [(3, (1, 0.0)), (12, (2, 0.0))]}
    tree = ToStream(WindowOf(S, "range", range_ns=15), "rstream", slide_ns=5)
    expected = [(5, 1), (10, 1), (15, 1), (15, 2), (20, 2), (25, 2)]
    assert [(tau, row[0]) for tau, _, row in oracle_result(tree, elements, {})] == expected
    until = ToStream(WindowOf(S, "unbounded"), "rstream", slide_ns=5)
    assert [tau for tau, *_ in oracle_result(until, elements, {}, until=14)] == [5, 10]


def test_a_window_over_a_stream_of_changes() -> None:
    """Query 5 of stations: those that left a range window within the last 10."""
    seen = DistinctOf(project(WindowOf(S, "range", range_ns=10), "a"))
    tree = WindowOf(ToStream(seen, "dstream"), "range", range_ns=10)
    elements = {"S": [(0, (1, 0.0)), (5, (2, 0.0)), (8, (1, 0.0))]}
    assert oracle_result(tree, elements, {}) == [
        (15, 1, (2,)), (18, 1, (1,)), (25, -1, (2,)), (28, -1, (1,)),
    ]  # fmt: skip


def test_a_sample_keeps_its_share_and_equal_elements_together() -> None:
    """R7; the finaliser's first number is that published with splitmix64."""
    assert continuous_oracle._mix(0) == 0xE220A8397B1DCDAF
    elements = {"S": [(tau // 2, (tau // 2 % 7, None)) for tau in range(20_000)]}
    kept = [row for _, _, row in oracle_result(SampleOf(S, 0.1, 3), elements, {})]
    by_instant = net_changes(oracle_result(SampleOf(S, 0.1, 3), elements, {}))
    assert {sum(bag.values()) for bag in by_instant.values()} == {2}
    assert abs(len(kept) / 2 - 1_000) < 3 * math.sqrt(10_000 * 0.1 * 0.9)
    other = net_changes(oracle_result(SampleOf(S, 0.1, 4), elements, {}))
    assert len(by_instant.keys() & other.keys()) < 150
    assert len(oracle_result(SampleOf(S, 1.0, 3), elements, {})) == 20_000


def test_aggregates_of_nothing_and_of_null() -> None:
    names = ["count", "sum", "avg", "min", "max", "stddev", "first", "last", "median", "quantile", "count_distinct"]
    window = WindowOf(S, "range", range_ns=10)
    calls = {name: aggregate_call(name, column(window, "b"), 0.25) for name in names}
    tree = aggregate(window, **calls, rows=aggregate_call("count"))
    elements = {"S": [(1, (1, 4.0)), (2, (1, None)), (3, (1, 1.0)), (3, (1, 2.0)), (4, (1, 2.0))]}
    expected = (4, 9.0, 2.25, 1.0, 4.0, math.sqrt(4.75 / 3), 4.0, 2.0, 2.0, 1.75, 3, 5)
    assert oracle_relation(tree, elements, {}, 4) == {expected: 1}
    nothing = (0, None, None, None, None, None, None, None, None, None, 0, 0)
    assert oracle_relation(tree, elements, {}, 0) == {nothing: 1}
    assert oracle_relation(tree, elements, {}, 14) == {nothing: 1}
    # A group by keys ends with its rows, and of the changes the first holds the whole relation.
    by_key = aggregate(window, "a", n=aggregate_call("count"))
    assert oracle_relation(by_key, elements, {}, 14) == {}
    count = aggregate(window, n=aggregate_call("count"))
    assert oracle_result(count, {"S": [(1, (1, 4.0))]}, {}) == [(1, 1, (1,)), (11, -1, (1,)), (11, 1, (0,))]
    assert oracle_result(ToStream(count, "dstream"), {"S": [(1, (1, 4.0))]}, {}) == [(1, 1, (0,)), (11, 1, (1,))]


def test_a_sum_is_exact() -> None:
    window = WindowOf(S, "unbounded")
    tree = aggregate(window, total=aggregate_call("sum", column(window, "b")))
    elements = {"S": [(tau, (1, value)) for tau, value in enumerate([1e16, 1.0, -1e16, 0.1, 0.2])]}
    assert oracle_relation(tree, elements, {}, 9) == {(math.fsum([1.0, 0.1, 0.2]),): 1}


def test_groups_of_null_and_the_first_of_a_join() -> None:
    join = JoinOf((WindowOf(S, "unbounded"), WindowOf(T, "unbounded")))
    calls = {
        "was": aggregate_call("first", column(join, "c")),
        "is": aggregate_call("last", column(join, "c")),
    }
    tree = aggregate(join, "b", **calls)
    elements = {"S": [(1, (1, None)), (5, (2, None))], "T": [(3, (1, 30.0)), (5, (1, 50.0)), (5, (1, None))]}
    # By the greatest stamp, then by parts from the left: (1,3), (1,5), (1,5'), (5,3), (5,5), (5,5') less the NULL.
    assert oracle_relation(tree, elements, {}, 5) == {(None, 30.0, 50.0): 1}
    assert oracle_relation(tree, elements, {}, 3) == {(None, 30.0, 30.0): 1}


@pytest.mark.parametrize(
    ("form", "expected"), [("union", [1, 1, 1, 1, 2, 3, None, None]), ("except", [1, 1, 2]), ("intersect", [1, None])]
)
def test_bags_count_their_rows(form: Literal["union", "except", "intersect"], expected: list[Value]) -> None:
    left, right = relation("L", "a:i"), relation("R", "a:i")
    of_left, of_right = [1, 1, 1, 2, None], [1, 3, None]
    relations = {"L": [(START, 1, (value,)) for value in of_left], "R": [(START, 1, (value,)) for value in of_right]}
    bag = oracle_relation(BagOf(form, left, right), {}, relations, 0)
    assert sorted((row[0] for row in bag.elements()), key=lambda value: (value is None, value)) == expected


def test_a_relation_that_changes_joins_what_there_is() -> None:
    limits = relation("R", "a:i limit:n")
    join = JoinOf((WindowOf(S, "unbounded"), limits))
    tree = JoinOf(join.inputs, call("equal", column(join, "a"), column(join, "a", 1)))
    relations = {"R": [(0, 1, (1, 5.0)), (4, -1, (1, 5.0)), (4, 1, (1, 6.0)), (7, -1, (1, 6.0))]}
    elements = {"S": [(2, (1, 0.0)), (9, (1, 0.0))]}
    assert oracle_result(tree, elements, relations) == [
        (2, 1, (1, 0.0, 1, 5.0)),
        (4, -1, (1, 0.0, 1, 5.0)),
        (4, 1, (1, 0.0, 1, 6.0)),
        (7, -1, (1, 0.0, 1, 6.0)),
    ]
    # A relation that never changes joins a stream into a stream.
    static = {"R": [(START, 1, (1, 5.0)), (START, 1, (2, 5.0))]}
    tree = JoinOf((S, limits), call("equal", column(join, "a"), column(join, "a", 1)))
    assert oracle_result(tree, elements, static) == [(2, 1, (1, 0.0, 1, 5.0)), (9, 1, (1, 0.0, 1, 5.0))]


def test_a_union_of_streams_has_the_left_first_at_an_instant() -> None:
    tree = BagOf("union", project(S, "a"), project(T, "a"))
    elements = {"S": [(1, (1, 0.0)), (2, (2, 0.0))], "T": [(1, (10, 0.0)), (2, (20, 0.0))]}
    assert [row[0] for *_, row in oracle_result(tree, elements, {})] == [1, 10, 2, 20]
    assert rows_at(WindowOf(tree, "rows", rows=1), elements, 1, 2) == [[10], [20]]


U, Y, N = constant(None, "boolean"), constant(value=True), constant(value=False)
NULL = constant(None, "number")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (call("and", U, N), False),
        (call("and", U, Y), None),
        (call("and", Y, Y, Y), True),
        (call("or", U, N), None),
        (call("or", U, Y), True),
        (call("not", U), None),
        (call("equal", NULL, NULL), None),
        (call("is_null", NULL), True),
        (call("in", 1, 2, 1), True),
        (call("in", 1, 2, NULL), None),
        (call("in", NULL, 2), None),
        (call("in", 1, 2), False),
        (call("less", "Z", "a"), True),
        (call("like", "http://cs.x/a", "http://cs._/%"), True),
        (call("like", "a.c", "abc"), False),
        (call("like", "a\nc", "a%"), True),
        (call("regex", "abc", "b."), True),
        (call("case", U, 1.0, Y, 2.0, 3.0), 2.0),
        (call("case", U, 1.0, N, 2.0, NULL), None),
        (call("coalesce", NULL, 4.0), 4.0),
        (call("divide", 7, 2), 3.5),
        (call("divide", 7, 0), None),
        (call("modulo", -7, 3), -1),
        (call("modulo", 7.5, -2.0), 1.5),
        (call("modulo", 7, 0), None),
        (call("round", 2.5), 2.0),
        (call("round", -0.5), -0.0),
        (call("round", 0.25, 1), 0.2),
        (call("round", 0.45, 1), 0.4),
        (call("round", -1251.0, -1), -1250.0),
        (call("round", 1e300, 22), 1e300),
        (call("round", NULL, 1), None),
        (call("floor", -0.5), -1.0),
        (call("ceil", 0.2), 1.0),
        (call("sqrt", -1.0), None),
        (call("ln", 0.0), None),
        (call("exp", 1000.0), math.inf),
        (call("power", 0.0, -1.0), None),
        (call("power", -8.0, 1 / 3), None),
        (call("power", 2, 10), 1024.0),
        (call("subtract", call("exp", 1000.0), call("exp", 1000.0)), None),
        (call("least", 3, 1, 2), 1),
        (call("greatest", 3.0, NULL), None),
        (call("to_number", Y), 1.0),
        (call("upper", "aß"), "ASS"),
        (call("distance_m", 0.0, 0.0, 0.0, 90.0), pytest.approx(6_371_008.8 * math.pi / 2)),
        (call("inside", 1.0, 1.0, "POLYGON ((0 0, 3 0, 3 3, 0 3, 0 0))"), True),
        (call("inside", 4.0, 1.0, "POLYGON ((0 0, 3 0, 3 3, 0 3, 0 0))"), False),
    ],
)
def test_functions_of_values(expression: Expression, expected: object) -> None:
    value = evaluate(expression, ())
    assert value == expected
    assert type(value) is type(getattr(expected, "expected", expected))


def test_each_function_of_the_algebra_is_defined() -> None:
    assert sorted([*NULL_AWARE, *STRICT]) == sorted(OPERATIONS)
