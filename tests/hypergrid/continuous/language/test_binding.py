"""Names, types, units and defaults of queries, and the trees that follow."""

from dataclasses import replace

import pytest

from hypergrid.continuous.algebra import (
    AggregateOf,
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
from hypergrid.continuous.expressions import Attribute
from hypergrid.continuous.language import parse_query, parse_script
from hypergrid.continuous.records import BoundQuery, StreamCatalogue
from hypergrid.core.times import SECOND_NS
from tests.support.continuous_oracle import oracle_result
from tests.support.continuous_trees import tree_text

CATALOGUE = StreamCatalogue(
    streams={
        "S": (Attribute("A", "integer"), Attribute("B", "integer"), Attribute("C", "integer")),
        "S1": (Attribute("A", "integer"), Attribute("B", "number")),
        "S2": (Attribute("A", "integer"), Attribute("B", "integer")),
        "wind": (
            Attribute("station", "text"),
            Attribute("speed", "number", "km/h"),
            Attribute("gust", "number", "m s-1"),
            Attribute("temp", "number", "degC"),
            Attribute("height", "number", "m"),
            Attribute("count_of", "integer"),
            Attribute("t", "time"),
            Attribute("sent", "time"),
            Attribute("ok", "boolean"),
        ),
    },
    relations={"R": (Attribute("A", "integer"), Attribute("kind", "text"))},
)


def bind(text: str, catalogue: StreamCatalogue = CATALOGUE) -> BoundQuery:
    return parse_query(text, catalogue)


def part(tree: Operator, kind: type) -> Operator:
    return next(each for each in walk_operators(tree) if isinstance(each, kind))


def condition(text: str) -> str:
    """Return a condition over `wind` as it is bound."""
    tree = bind(f"Select * From wind Where {text}").tree
    return tree_text(tree).splitlines()[1].strip().removeprefix("filter ")


@pytest.mark.parametrize(
    ("text", "form"),
    [
        # The forms of A7 and R3.
        ("Select * From S", "istream"),
        ("Select * From S, R Where S.A = R.A", "istream"),
        ("Select distinct A From S", "istream"),
        ("Select A From S Union All Select A From S2", "istream"),
        ("Select * From S Where S In (Select * From S [Rows 5])", "istream"),
        ("Select * From S [Rows 5]", None),
        ("Select * From S [Unbounded]", None),
        ("Select count(*) From S", None),
        ("Select A From S Where A Not In (Select A From S2)", None),
        ("Select A From S Where Not (A In (Select A From S2))", None),
        ("Select A From S Except Select A From S2", None),
        ("Select * From R", None),
        ("Select T.A From (Select A From S) T", "istream"),
        ("Select T.A From (Select A From S [Rows 5]) T, S2 Where T.A = S2.A", None),
        ("Select T.A From (Select count(*) As A From S) T, S2 Where T.A = S2.A", None),
        ("Select Istream(*) From S [Rows 5]", "istream"),
        ("Dstream(Select * From S [Rows 5])", "dstream"),
        ("Select Rstream(*) From S [Now]", "rstream"),
    ],
)
def test_queries_are_streams_by_the_rule(text: str, form: str | None) -> None:
    """R3: no aggregate, no Except or Not In, and no stream in From with a window."""
    tree = bind(text).tree
    assert (tree.form if isinstance(tree, ToStream) else None) == form


def test_each_default_is_a_sentence() -> None:
    assert bind("Select * From S").defaults == (
        "S has no window: [Unbounded], all its rows up to t.",
        "The query is a stream, Istream(…): it has no aggregate, no Except or Not In, and no stream in its From has a "
        "window (R3).",
        "The query does not say Emit: Final.",
    )
    assert bind("Select Istream(*) From S [Unbounded] Emit Now").defaults == ()
    assert bind("Select * From S [Rows 2] X Emit Final").defaults == ("The query is a relation: X has a window (R3).",)


def test_emission_and_explanation_are_read() -> None:
    queries = [bind(f"{before} Select * From S Emit {emit}") for before, emit in (
        ("", "Now"), ("explain", "final"), ("EXPLAIN ANALYZE", "FINAL"))]  # fmt: skip
    assert [(query.emit, query.explanation) for query in queries] == [
        ("now", "none"), ("final", "plan"), ("final", "measured")]  # fmt: skip
    assert queries[0].text == "Select * From S Emit Now"


def test_rstream_is_given_at_the_instants_of_now_or_at_a_common_slide() -> None:
    """R6."""
    assert bind("Select Rstream(n.A) From S [Now] n, S2 [Rows 9] b Where n.A = b.A").tree == ToStream(
        bind("Select n.A From S [Now] n, S2 [Rows 9] b Where n.A = b.A").tree, "rstream"
    )
    slides = bind(
        "Rstream(Select a.A From S [Range 1 Hour Slide 6 Minutes] a, S2 [Range 1 Hour Slide 4 Minutes] b "
        "Where a.A = b.A)"
    ).tree
    assert isinstance(slides, ToStream)
    assert slides.slide_ns == 120 * SECOND_NS


def test_surprises_are_told_as_warnings() -> None:
    """R2 and R9."""
    assert "(R2)" in bind("Select Istream(A) From S [Rows 1]").warnings[0]
    assert bind("Select Istream(A) From S [Range 1 Hour]").warnings == ()
    assert "(R9)" in bind("Select A From S [Now] Union Select A From S2").warnings[0]
    assert bind("Select A From S Union All Select A From S2").warnings == ()


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("[Rows 10]", WindowOf(None, "rows", rows=10)),
        ("[Rows 10,000 Preceding]", WindowOf(None, "rows", rows=10_000)),
        ("[Rows Unbounded]", WindowOf(None, "unbounded")),
        ("[Range Unbounded Preceding]", WindowOf(None, "unbounded")),
        ("[UNBOUNDED]", WindowOf(None, "unbounded")),
        ("[now]", WindowOf(None, "now")),
        ("[Range 1 Day Preceding]", WindowOf(None, "range", range_ns=86_400 * SECOND_NS)),
        ("[Range 1.5 Hours]", WindowOf(None, "range", range_ns=5400 * SECOND_NS)),
        ("[Range 250 milliseconds]", WindowOf(None, "range", range_ns=SECOND_NS // 4)),
        ("[Range 2 weeks Slide 1 second]", WindowOf(None, "range", range_ns=1_209_600 * SECOND_NS, slide_ns=SECOND_NS)),
        ("[Partition By S.B, A Rows 3]", WindowOf(None, "rows", rows=3, partition=(1, 0))),
    ],
)
def test_windows_are_read(window: str, expected: WindowOf) -> None:
    bound = part(bind(f"Select * From S {window}").tree, WindowOf)
    assert bound == replace(expected, input=bound.input)


@pytest.mark.parametrize(
    "source",
    [
        "S [Rows 5] As X Sample(10)",
        "S X [Rows 5] Sample(10)",
        "S Sample(10) [Rows 5] X",
        "S Sample(10) X [Rows 5]",
        "(S [Rows 5]) Sample(10) As X",
        "((S Sample(10)) [Rows 5]) X",
    ],
)
def test_window_sample_and_name_stand_in_any_order(source: str) -> None:
    """R7: a sample is taken before the window, wherever it is written."""
    tree = bind(f"Select X.A From {source}").tree
    window = part(tree, WindowOf)
    assert isinstance(window.input, SampleOf)
    assert (window.input.share, window.rows) == (0.1, 5)


def test_a_sample_is_the_same_for_the_same_words() -> None:
    seeds = {part(bind(text).tree, SampleOf).seed for text in (
        "Select * From S Sample(10)", "explain select  *\nfrom s sample (10) emit now")}  # fmt: skip
    assert len(seeds) == 1
    assert part(bind("Select A From S Sample(10)").tree, SampleOf).seed not in seeds


def test_a_condition_in_a_window_stays_in_it() -> None:
    tree = bind("Select * From S [Rows 5 Where A > 3] Where B > 4").tree
    assert tree_text(tree).splitlines()[:2] == ["filter B > 4", "  window rows 5 where A > 3"]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        # Quoted values are converted to the attribute's unit.
        ("speed > '6 m/s'", "speed > 21.6"),
        ("'6 m/s' < speed", "21.6 < speed"),
        ("speed Between '1 m/s' And 36", "speed >= 3.6 and speed <= 36.0"),
        ("speed In ('10 m/s', 7)", "in(speed, 36.0, 7.0)"),
        ("temp > '50 degF'", "temp > 10.0"),
        # The difference of temperatures is one.
        ("temp - temp > '1 K'", "temp - temp > 1.0"),
        # Of two attributes the second takes the unit of the first.
        ("speed > gust", "speed > round_digits(gust * 3.6, 0.0)"),
        ("speed - gust > 3", "speed - round_digits(gust * 3.6, 0.0) > 3.0"),
        # A factor may have a unit of its own, so a product has none.
        ("temp + 0.0065 * height > '12 degC'", "temp + 0.0065 * height > 12.0"),
        # Whole numbers count.
        ("2 * speed > '10 m/s'", "2.0 * speed > 36.0"),
        # Kinds are made alike.
        ("count_of > 2.5", "to_number(count_of) > 2.5"),
        ("count_of / 2 > 1", "to_number(count_of) / 2.0 > 1.0"),
        ("count_of % 2 = 1", "count_of % 2 = 1"),
        ("speed > 3", "speed > 3.0"),
        ("-speed < -3", "negate(speed) < -3.0"),
        # Times, durations and seconds.
        ("t > '1970-01-02'", f"t > {86_400 * SECOND_NS}"),
        ("t + '10 minutes' > sent", f"t + {600 * SECOND_NS} > sent"),
        ("t - sent > '2 h'", "to_number(t - sent) * 1e-09 > 7200.0"),
        # Logic.
        ("ok And Not ok Or ok = true", "ok and not ok or ok = True"),
        ("station Like 'a%' And station Not Like '_b'", "station like 'a%' and not station like '_b'"),
        ("regex(station, 'a+b') Or station Rlike 'c'", "regex(station, 'a+b') or regex(station, 'c')"),
        ("speed Is Null Or speed Is Not Null", "is_null(speed) or not is_null(speed)"),
        ("station Not In ('a', null)", "not in(station, 'a', NULL)"),
        ("count_of In (1, count_of)", "count_of = 1 or count_of = count_of"),
        ("Case count_of When 1 Then speed Else '1 m/s' End > 2", "case(count_of = 1, speed, 3.6) > 2.0"),
        ("coalesce(speed, gust) > 1", "coalesce(speed, round_digits(gust * 3.6, 0.0)) > 1.0"),
        ("abs(temp - temp) > 0.5 And round(speed) > '1 m/s'", "abs(temp - temp) > 0.5 and round(speed) > 3.6"),
        (
            "round(speed, 1) > '1 m/s' And round(count_of, -2) = 0",
            "round(speed, 1) > 3.6 and round(to_number(count_of), -2) = 0.0",
        ),
        ("distance_m(temp, speed, gust, height) < '5 km'", "distance_m(temp, speed, gust, height) < 5000.0"),
    ],
)
def test_values_get_kinds_and_units(text: str, bound: str) -> None:
    assert condition(text) == bound


def test_columns_have_distinct_names_kinds_and_units() -> None:
    tree = bind(
        "Select a.station, b.station, a.speed - b.gust As difference, a.temp - b.temp, max(3) From wind [Rows 9] a, "
        "wind [Rows 9] b Where a.station = b.station Group By a.station, b.station, a.speed - b.gust, a.temp - b.temp"
    ).tree
    assert [(each.name, each.kind, each.unit) for each in tree.attributes] == [
        ("station", "text", None),
        ("station_2", "text", None),
        ("difference", "number", "km/h"),
        ("value", "number", "delta_degC"),
        ("max", "integer", None),
    ]
    assert [each.name for each in bind("Select *, A, A As A_2 From S").tree.attributes] == [
        "A", "B", "C", "A_3", "A_2"]  # fmt: skip
    star = bind("Select S1.*, R.kind From S1, R Where S1.A = R.A").tree
    assert [each.name for each in star.attributes] == ["A", "B", "kind"]


def test_names_in_another_case_are_found_and_equal_columns_are_not_ambiguous() -> None:
    assert bind("SELECT a FROM s WHERE S.b > 1").tree.attributes[0].name == "a"
    assert bind("Select A From S, S2 Where S.A = S2.A").tree.attributes[0].name == "A"


def test_aggregates_stand_inside_expressions() -> None:
    tree = bind(
        "Select station, abs(avg(speed) - max(speed)) / count(*) As x From wind [Rows 9] Group By station "
        "Having count(*) > 2 And count(distinct temp) > 1 And quantile(speed, 0.9) < 5"
    ).tree
    assert tree_text(tree).splitlines()[:3] == [
        "project station, abs(avg - max) / to_number(count) as x",
        "  filter count > 2 and count_2 > 1 and quantile < 5.0",
        "    aggregate count(*) as count, count_distinct(temp) as count_2, quantile(speed, 0.9) as quantile, "
        "avg(speed) as avg, max(speed) as max by station",
    ]
    calls = part(tree, AggregateOf).calls
    assert [(call.function, call.kind, call.unit) for call in calls[2:4]] == [
        ("quantile", "number", "km/h"), ("avg", "number", "km/h")]  # fmt: skip


def test_groups_are_of_expressions() -> None:
    tree = bind("Select A % 2, count(*) From S [Rows 9] Group By A % 2 Having A % 2 > 0").tree
    assert tree_text(tree).splitlines()[:2] == ["filter value > 0", "  aggregate count(*) as count by A % 2 as value"]


def test_memberships_take_rows_and_all_columns_of_a_source() -> None:
    tree = bind("Select A From S [Now] Where (A, B) Not In (Select A, B From S1 [Rows 3]) And C > 1").tree
    member = part(tree, MembershipOf)
    assert isinstance(member, MembershipOf)
    assert (len(member.values), member.is_negated) == (2, True)
    # B is a number on one side, so the other side's is made one.
    assert [value.kind for value in member.values] == ["integer", "number"]
    assert isinstance(member.input, FilterOf)
    whole = part(bind("Select * From S Where S In (Select * From S [Rows 3])").tree, MembershipOf)
    assert [value.position for value in whole.values] == [0, 1, 2]


def test_a_query_of_one_row_is_a_value() -> None:
    tree = bind("Select A From S [Rows 9] Where B = (Select max(B) From S [Rows 9])").tree
    join = part(tree, JoinOf)
    assert isinstance(join, JoinOf)
    assert join.predicate is not None
    assert [each.name for each in tree.attributes] == ["A"]
    star = bind("Select * From S [Rows 9] Where B = (Select max(B) From S [Rows 9])").tree
    assert [each.name for each in star.attributes] == ["A", "B", "C"]


def test_joins_may_be_of_any_condition_and_of_few_rows() -> None:
    assert part(bind("Select S.A From S Join S2 On S.B < S2.B").tree, JoinOf).predicate is not None
    assert part(bind("Select S.A From S, (Select count(*) As k From S2 [Rows 5]) c").tree, JoinOf).predicate is None
    assert part(bind("Select S.A From S [Now], R").tree, JoinOf).predicate is None


def test_sets_follow_sql() -> None:
    """R9, and Intersect binds before Union."""
    tree = bind("Select A From S [Now] Union Select A From S2 Intersect All Select A From S2").tree
    assert [line.strip() for line in tree_text(tree).splitlines()[:5]] == [
        "distinct", "union all", "project A", "window now", "stream S(A integer, B integer, C integer)"]  # fmt: skip
    assert "intersect all" in tree_text(tree)
    mixed = bind(
        "Select A, speed From wind [Now] Join S [Now] On A = count_of Union All Select A, B From S1 [Now]"
    ).tree
    assert [(each.kind, each.unit) for each in mixed.attributes] == [("integer", None), ("number", "km/h")]
    streams = bind("Istream(Select A From S) Union All Istream(Select A From S2)").tree
    assert streams.is_stream
    assert isinstance(part(bind("Select A From R Except Select A From R").tree.left, DistinctOf), DistinctOf)


def test_with_views_and_functions_are_put_in() -> None:
    script = parse_script(
        "Create Function half(x) As x / 2; Create Function quarter(x) As half(half(x));\n"
        "Create View V As Select A, quarter(B) As q From S;\n"
        "With W As (Select A, q From V [Rows 2]) Select A From W Where q > 1 -- the end\n;",
        CATALOGUE,
    )
    (query,) = script.queries
    assert script.catalogue.views == {"V": "Select A, quarter(B) As q From S"}
    assert "to_number(B) / 2.0 / 2.0 as q" in tree_text(query.tree)
    assert query.defaults[0] == "View V: S has no window: [Unbounded], all its rows up to t."
    # A view's fault is found where the view is defined, and its text is read again where it is used.
    assert bind("Select A From V [Rows 1]", script.catalogue).tree.attributes == (Attribute("A", "integer"),)


def test_schemas_are_registered() -> None:
    catalogue = parse_script(
        "Register Stream Q (a int, b float 'km/h', c varchar(10), d timestamp, e bool) Rate 10 Per Minute;\n"
        "Register Relation R (a integer) Static",
        StreamCatalogue(),
    ).catalogue
    assert [(each.kind, each.unit) for each in catalogue.streams["Q"]] == [
        ("integer", None), ("number", "km/h"), ("text", None), ("time", None), ("boolean", None)]  # fmt: skip
    assert (catalogue.rates["Q"], catalogue.static) == (pytest.approx(1 / 6), {"R"})


def test_only_readings_that_pass_are_taken_unless_the_query_names_the_flag() -> None:
    """R8."""
    attributes = (Attribute("value", "number"), Attribute("flag", "integer"))
    catalogue = StreamCatalogue(streams={"x": attributes, "y": attributes}, flagged=frozenset({"x"}))
    query = bind("Select value From x", catalogue)
    assert "filter in(flag, 1, 2)" in tree_text(query.tree)
    assert "(R8)" in query.defaults[0]
    for text in ("Select value From y", "Select value, flag From x", "Select value From x [Now Where x.flag = 3]"):
        assert "in(flag, 1, 2)" not in tree_text(bind(text, catalogue).tree)


def test_what_is_silent_by_ruling_is_silent() -> None:
    """R2 through text and oracle: a repeated value does not show, but does with [Now]."""
    streams = {"S": [(1, (5, 0, 0)), (2, (5, 0, 0)), (3, (6, 0, 0))]}
    rows = {
        text: [(tau, row[0]) for tau, _, row in oracle_result(bind(text).tree, streams, {})]
        for text in ("Select Istream(A) From S [Rows 1]", "Select Rstream(A) From S [Now]")
    }
    assert list(rows.values()) == [[(1, 5), (3, 6)], [(1, 5), (2, 5), (3, 6)]]


def test_the_stream_itself_has_no_projection() -> None:
    assert not [each for each in walk_operators(bind("Select * From S").tree) if isinstance(each, ProjectionOf)]
