"""Rules of rewriting: golden cases before and after, and moves that are not allowed because they change the result."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hypergrid.continuous.algebra import (
    BagOf,
    DistinctOf,
    FilterOf,
    JoinOf,
    MembershipOf,
    Operator,
    ProjectionOf,
    SampleOf,
    ToStream,
    WindowOf,
    walk_operators,
)
from hypergrid.continuous.rewrite import RULES, rewrite
from tests.support.continuous_oracle import net_changes, oracle_result
from tests.support.continuous_trees import (
    aggregate,
    aggregate_call,
    call,
    column,
    constant,
    project,
    relation,
    stream,
    tree_text,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "continuous_rewrite.txt"
MINUTE_NS = 60 * 10**9
S = stream("S", "a:i b:n c:s")
T = stream("T", "a:i d:n")
R = relation("R", "a:i e:n f:s")
RULE = {rule.__name__: rule for rule in RULES}
STATIC = frozenset({"R"})


def in_range(below: Operator, minutes: int = 10, **more: int) -> WindowOf:
    return WindowOf(below, "range", range_ns=minutes * MINUTE_NS, **more)


def joined(*inputs: Operator, on: str = "a") -> JoinOf:
    """Return a join in which one attribute of each input is equal to that of the one before."""
    join = JoinOf(inputs)
    equal = [call("equal", column(join, on, number), column(join, on, number + 1)) for number in range(len(inputs) - 1)]
    return JoinOf(inputs, call("and", *equal) if len(equal) > 1 else equal[0])


def keep(below: Operator, name: str, comparison: str, value: float | int | str) -> FilterOf:
    return FilterOf(below, call(comparison, column(below, name), value))


def cases() -> Iterator[tuple[str, str, Operator]]:
    """Name of the rule, what the case shows, and the tree."""
    everything = WindowOf(S, "unbounded")
    sums = call("greater", column(S, "a"), call("multiply", 2, 5))
    low = call("not", call("or", call("less", column(S, "b"), 1.0), call("is_null", column(S, "b"))))
    yield "fold_constants", "functions of constants, and negations", FilterOf(S, call("and", sums, low))
    yield "fold_constants", "a condition that is always true", FilterOf(everything, call("less", 1, 2))
    null = call("equal", column(S, "b"), call("add", constant(None, "number"), 1.0))
    yield "fold_constants", "functions of NULL", FilterOf(S, null)
    yield "fold_constants", "a quotient by 0 is NULL", project_as(S, call("divide", 1.0, 0.0))
    yield "fold_constants", "columns stay", keep(S, "a", "greater", 10)

    yield (
        "merge",
        "filters and a join",
        keep(keep(joined(everything, WindowOf(T, "now")), "b", "greater", 1.0), "a", "less", 5),
    )
    nested = joined(joined(in_range(S), in_range(T)), R)
    yield "merge", "joins in joins", nested
    commerce = project(joined(in_range(S), R), "a", "c")
    yield "merge", "a subquery that picks columns of a join", joined(in_range(T), commerce)
    yield "merge", "projections", project(project(S, "b", "a"), "a")
    twice = ProjectionOf(S, (call("sqrt", column(S, "b")),), ("root",))
    square = call("multiply", column(twice, "root"), column(twice, "root"))
    yield "merge", "a value that is used twice is computed once", project_as(twice, square)
    yield "merge", "distinct groups", DistinctOf(aggregate(everything, "a", n=aggregate_call("count")))
    pair = joined(everything, WindowOf(T, "now"))
    bags = BagOf("union", keep(pair, "b", "greater", 1.0), pair)
    yield "merge", "a join that is read twice is computed once", bags
    yield "merge", "a limit stands between", keep(WindowOf(keep(S, "b", "less", 1.0), "rows", rows=3), "a", "less", 5)

    yield "now_for_unbounded", "insertions of a filter", ToStream(keep(everything, "a", "greater", 10), "istream")
    where = WindowOf(S, "unbounded", where=call("less", column(S, "b"), 1.0))
    yield "now_for_unbounded", "the predicate of the window", ToStream(project(where, "a"), "istream")
    yield "now_for_unbounded", "each instant of now", ToStream(keep(WindowOf(S, "now"), "a", "less", 3), "rstream")
    both = BagOf("union", project(everything, "a"), project(WindowOf(T, "unbounded"), "a"))
    yield "now_for_unbounded", "a union", ToStream(both, "istream")
    yield "now_for_unbounded", "insertions into now", ToStream(WindowOf(S, "now"), "istream")
    yield "now_for_unbounded", "distinct rows", ToStream(DistinctOf(project(everything, "a")), "istream")

    yield "stream_join", "a relation that never changes", ToStream(project(joined(everything, R), "a", "f"), "istream")
    yield (
        "stream_join",
        "each instant of now",
        ToStream(joined(keep(R, "e", "greater", 0.5), WindowOf(S, "now")), "rstream"),
    )
    changing = relation("R2", "a:i e:n")
    yield "stream_join", "a relation that changes", ToStream(joined(everything, changing), "istream")
    yield "stream_join", "two windows", ToStream(joined(everything, WindowOf(T, "unbounded")), "istream")

    three = joined(in_range(S), in_range(T), R)
    limited = call("and", three.predicate, call("greater", column(three, "a"), 10))
    yield "close_equalities", "equalities and a limit", JoinOf(three.inputs, limited)
    yield "close_equalities", "a condition in an input", joined(keep(in_range(S), "a", "unequal", 3), in_range(T))
    unequal = JoinOf((in_range(S), in_range(T)))
    band = call("less", column(unequal, "a"), column(unequal, "a", 1))
    yield (
        "close_equalities",
        "no equality",
        JoinOf(unequal.inputs, call("and", band, call("less", column(unequal, "a"), 9))),
    )

    pair = joined(WindowOf(S, "rows", rows=1000), in_range(T, 2))
    b3 = call("and", pair.predicate, call("greater", column(pair, "a"), 10), call("less", column(pair, "d"), 20.0))
    yield "push_filter", "of B3: below the range, not below the rows", JoinOf(pair.inputs, b3)
    yield "push_filter", "a slide", keep(in_range(S, 10, slide_ns=MINUTE_NS), "a", "less", 5)
    partition = WindowOf(S, "rows", rows=4, partition=(0, 2))
    read = call("and", call("less", column(S, "a"), 5), call("greater", column(S, "b"), 1.0))
    yield "push_filter", "a partition goes or stays as a whole", FilterOf(partition, read)
    groups = aggregate(in_range(S), "a", total=aggregate_call("sum", column(S, "b")))
    having = call("and", call("less", column(groups, "a"), 5), call("greater", column(groups, "total"), 1.0))
    yield "push_filter", "keys of groups, not their sums", FilterOf(groups, having)
    bags = BagOf("except", project(in_range(S), "a"), DistinctOf(project(in_range(T), "a")))
    yield "push_filter", "both sides of a difference", keep(bags, "a", "less", 5)
    values = (column(S, "a"),)
    member = MembershipOf(in_range(S), values, project(in_range(T), "a"), is_negated=True)
    yield "push_filter", "a membership", keep(member, "b", "less", 5.0)
    left = ToStream(project(in_range(S), "a"), "dstream")
    yield "push_filter", "a stream of changes, renamed", keep(project(left, "a"), "a", "less", 5)
    computed = project_as(in_range(S), call("add", column(S, "b"), 1.0))
    yield "push_filter", "a computed column", keep(computed, "value", "less", 5.0)
    yield "push_filter", "groups that are read twice are computed once", read_twice()
    yield "push_filter", "a window of rows", keep(WindowOf(S, "rows", rows=3), "a", "less", 5)
    yield "push_filter", "a sample", keep(SampleOf(S, 0.1, 7), "a", "less", 5)

    yield "narrow", "a window", project(in_range(S), "a")
    yield "narrow", "a join and a filter below its window", project(joined(in_range(keep(S, "b", "less", 1.0)), R), "f")
    yield "narrow", "keys, and calls that something uses", project(groups_of_two(), "top")
    yield "narrow", "rows are counted without their columns", aggregate(in_range(S), n=aggregate_call("count"))
    yield (
        "narrow",
        "a stream of insertions into what only grows",
        project(ToStream(WindowOf(S, "unbounded"), "istream"), "a"),
    )
    yield "narrow", "of groups that are read twice, what one of them uses", project(read_twice(), "top", "n")
    yield "narrow", "a stream of insertions that may leave", project(ToStream(in_range(S), "istream"), "a")
    yield "narrow", "distinct rows", project(DistinctOf(in_range(S)), "a")
    yield "narrow", "a difference", project(BagOf("except", in_range(S), WindowOf(S, "now")), "a")
    yield "narrow", "a sample", project(in_range(SampleOf(T, 0.1, 7)), "a", "d")


def project_as(below: Operator, expression: object) -> ProjectionOf:
    return ProjectionOf(below, (expression,), ("value",))


def read_twice() -> Operator:
    """Return a join of groups with themselves, one side filtered and with fewer columns."""
    low = keep(groups_of_two(), "a", "less", 3)
    both = JoinOf((project(low, "a", "top"), project(groups_of_two(), "a", "n")))
    return JoinOf(both.inputs, call("less", column(both, "a"), column(both, "a", 1)))


def groups_of_two() -> Operator:
    calls = {"top": aggregate_call("max", column(S, "b")), "n": aggregate_call("count", column(S, "c"))}
    return aggregate(in_range(S), "a", **calls)


def rendered() -> str:
    parts = []
    for name, shows, tree in cases():
        rewritten = rewrite(tree, STATIC, (RULE[name],))
        lines = [f"{name}: {shows}", *("  " + line for line in tree_text(tree).splitlines())]
        if rewritten.tree == tree:
            lines.append("  = does not fire")
        else:
            lines += [f"  = {sentence}" for sentence in rewritten.rules]
            lines += ["  " + line for line in tree_text(rewritten.tree).splitlines()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def test_golden_cases() -> None:
    assert rendered() == GOLDEN.read_text()


def test_each_rule_has_cases_in_which_it_fires_and_in_which_it_does_not() -> None:
    fires: dict[str, set[bool]] = {}
    for name, _, tree in cases():
        fires.setdefault(name, set()).add(bool(rewrite(tree, STATIC, (RULE[name],)).rules))
    assert fires == {name: {True, False} for name in RULE}


# Elements of S(a, b, c) for the moves below.
ELEMENTS = {
    "S": [
        (1, (5, 0.5, "x")),
        (2, (1, 2.5, "x")),
        (3, (1, 0.5, "y")),
        (3, (5, 2.5, "x")),
        (4, (1, 0.5, "x")),
        (6, (1, 2.5, "z")),
    ]
}
LOW_A = call("less", column(S, "a"), 3)
ROWS = WindowOf(S, "rows", rows=2)
PARTITION = WindowOf(S, "rows", rows=1, partition=(2,))


def in_partition(below: Operator) -> WindowOf:
    return WindowOf(below, "rows", rows=1, partition=(2,))


def in_instants(below: Operator, **more: object) -> WindowOf:
    return WindowOf(below, "range", range_ns=2, **more)


FORBIDDEN = {
    "a filter below a window of rows": (FilterOf(ROWS, LOW_A), WindowOf(FilterOf(S, LOW_A), "rows", rows=2)),
    "a filter into the predicate of a window": (FilterOf(ROWS, LOW_A), WindowOf(S, "rows", rows=2, where=LOW_A)),
    "a filter below partitions by another column": (FilterOf(PARTITION, LOW_A), in_partition(FilterOf(S, LOW_A))),
    "distinct elements into a window of rows": (
        DistinctOf(project(ROWS, "a")),
        WindowOf(ToStream(DistinctOf(project(WindowOf(S, "unbounded"), "a")), "istream"), "rows", rows=2),
    ),
    "a sum's condition below its groups": (
        keep(aggregate(ROWS, "a", n=aggregate_call("count")), "n", "greater", 1),
        aggregate(keep(ROWS, "b", "greater", 1.0), "a", n=aggregate_call("count")),
    ),
    "insertions into now as the stream": (ToStream(project(WindowOf(S, "now"), "a"), "istream"), project(S, "a")),
    "fewer columns below a stream of insertions": (
        project(ToStream(ROWS, "istream"), "a"),
        ToStream(project(ROWS, "a"), "istream"),
    ),
    "fewer columns below distinct rows": (project(DistinctOf(ROWS), "a"), DistinctOf(project(ROWS, "a"))),
    "fewer columns below a difference": (
        project(BagOf("except", WindowOf(S, "unbounded"), in_instants(S)), "a"),
        BagOf("except", project(WindowOf(S, "unbounded"), "a"), project(in_instants(keep(S, "b", "less", 1.0)), "a")),
    ),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_move_changes_the_result_and_no_rule_makes_it(name: str) -> None:
    tree, moved = FORBIDDEN[name]
    expected = net_changes(oracle_result(tree, ELEMENTS, {}))
    assert net_changes(oracle_result(moved, ELEMENTS, {})) != expected
    for rules in (RULES, *((rule,) for rule in RULES)):
        rewritten = rewrite(tree, STATIC, rules).tree
        assert rewritten != moved
        assert net_changes(oracle_result(rewritten, ELEMENTS, {})) == expected


def test_a_sample_is_of_whole_elements_whatever_is_used_and_tested_above() -> None:
    sample = SampleOf(S, 0.4, 5)
    for tree in (FilterOf(sample, LOW_A), project(in_range(sample), "a"), DistinctOf(project(in_range(sample), "a"))):
        rewritten = rewrite(tree).tree
        assert [part for part in walk_operators(rewritten) if isinstance(part, SampleOf)] == [sample]


def test_an_updated_relation_is_not_joined_element_by_element() -> None:
    tree = ToStream(project(joined(WindowOf(S, "unbounded"), R), "a", "f"), "istream")
    relations = {"R": [(0, 1, (5, 0.0, "old")), (6, -1, (5, 0.0, "old")), (6, 1, (5, 0.0, "new"))]}
    expected = oracle_result(tree, ELEMENTS, relations)
    # The update joins the elements of before.
    assert [tau for tau, *_ in expected] == [1, 3, 6, 6]  # two of before
    assert any(isinstance(part, ToStream) for part in walk_operators(rewrite(tree).tree))
    assert net_changes(oracle_result(rewrite(tree).tree, ELEMENTS, relations)) == net_changes(expected)
    assert not any(isinstance(part, ToStream) for part in walk_operators(rewrite(tree, STATIC).tree))


def test_equal_subtrees_are_visited_once() -> None:
    """Without that, a view of views that are each read twice would take 2**40 visits."""
    tree: Operator = project(keep(joined(in_range(S), in_range(T)), "b", "less", 2.0), "a")
    for _ in range(40):
        tree = BagOf("union", tree, tree)
    rewritten = rewrite(tree).tree
    depth = 0
    while isinstance(rewritten, BagOf):
        assert rewritten.left is rewritten.right
        rewritten, depth = rewritten.left, depth + 1
    assert depth == 40
    assert tree_text(rewritten).splitlines()[-1].strip() == "stream T(a integer, d number)"
