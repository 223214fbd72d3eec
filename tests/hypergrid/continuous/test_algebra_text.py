"""Trees and expressions as text."""

import pytest

from hypergrid.continuous.algebra import JoinOf, MembershipOf, SampleOf, ToStream, WindowOf
from hypergrid.continuous.algebra_text import duration_text, expression_text
from hypergrid.continuous.expressions import Expression
from tests.support.continuous_trees import aggregate, aggregate_call, call, column, constant, stream, tree_text

S = stream("S", "a:i b:n c:s")
A, B, C = (column(S, name) for name in "abc")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (call("subtract", A, call("subtract", A, 1)), "a - (a - 1)"),
        (call("subtract", call("subtract", A, 1), 2), "a - 1 - 2"),
        (call("multiply", call("add", A, 1), 2), "(a + 1) * 2"),
        (call("and", call("or", call("less", A, 1), call("is_null", C)), call("not", call("equal", C, "x"))),
         "(a < 1 or is_null(c)) and not c = 'x'"),
        (call("not", call("and", call("less", A, 1), call("less", B, 2.0))), "not (a < 1 and b < 2.0)"),
        (call("coalesce", B, constant(None, "number")), "coalesce(b, NULL)"),
        (call("like", C, "a%"), "c like 'a%'"),
    ],
)  # fmt: skip
def test_expressions_have_the_parentheses_that_they_need(expression: Expression, expected: str) -> None:
    assert expression_text(expression, S.attributes) == expected


@pytest.mark.parametrize(
    ("duration_ns", "expected"),
    [(86_400 * 10**9, "1 d"), (90 * 60 * 10**9, "90 min"), (61 * 10**9, "61 s"), (5 * 10**8, "500000000 ns")],
)
def test_durations_are_in_their_largest_whole_unit(duration_ns: int, expected: str) -> None:
    assert duration_text(duration_ns) == expected


def test_a_tree_has_a_line_for_each_operator_and_positions_where_names_repeat() -> None:
    window = WindowOf(SampleOf(S, 0.1, 3), "rows", rows=2, partition=(0, 2), where=call("less", B, 1.0))
    groups = aggregate(window, "a", top=aggregate_call("quantile", B, 0.9), n=aggregate_call("count"))
    join = JoinOf((groups, WindowOf(S, "now")))
    join = JoinOf(join.inputs, call("equal", column(join, "a"), column(join, "a", 1)))
    tree = MembershipOf(
        join, (column(join, "c"),), WindowOf(S, "range", range_ns=10**9, slide_ns=10**9), is_negated=True
    )
    assert tree_text(ToStream(tree, "rstream", slide_ns=60 * 10**9)) == "\n".join(
        [
            "rstream slide 1 min",
            "  (c) not in",
            "    join on a#0 = a#3",
            "      aggregate quantile(b, 0.9) as top, count(*) as n by a",
            "        window by a, c rows 2 where b < 1.0",
            "          sample 0.1 (seed 3)",
            "            stream S(a integer, b number, c text)",
            "      window now",
            "        stream S(a integer, b number, c text)",
            "    window range 1 s slide 1 s",
            "      stream S(a integer, b number, c text)",
        ]
    )
