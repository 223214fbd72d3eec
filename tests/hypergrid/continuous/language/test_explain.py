"""Explanations: intervals, what is computed once, and memory from rates, with numbers worked out by hand."""

import pytest
import sqlglot.parser

from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.operators.window import UnboundedWindow
from hypergrid.continuous.engine.plan import EnginePlanner
from hypergrid.continuous.engine.texts import Texts
from hypergrid.continuous.expressions import Attribute
from hypergrid.continuous.language import explain_query, parse_query, project_windows
from hypergrid.continuous.language.explain import list_uses
from hypergrid.continuous.records import BoundQuery, StreamCatalogue
from hypergrid.continuous.rewrite import rewrite
from tests.support.continuous_random import random_case

INTEGERS = tuple(Attribute(name, "integer") for name in "ABCDE")
PACKETS = tuple(Attribute(name, "integer") for name in ("station", "variable", "series"))
CATALOGUE = StreamCatalogue(streams={"S": INTEGERS, "T": INTEGERS, "packets": PACKETS}, relations={"R": INTEGERS})
RATES = {"S": 10.0}
GROUPS = {"S": {"E": 7.0}, "packets": {"station": 5.0, "variable": 3.0, "series": 12.0}}


def bind(text: str) -> BoundQuery:
    return parse_query(text, CATALOGUE)


def section(text: str, title: str) -> list[str]:
    """Return the lines of a section of an explanation."""
    lines = text.splitlines()
    first = lines.index(title) + 1
    stop = next((n for n in range(first, len(lines)) if not lines[n].startswith("  ")), len(lines))
    return [line[2:] for line in lines[first:stop]]


PLACED = StreamCatalogue(
    streams={"L": (Attribute("lon", "number", "degree"), Attribute("lat", "number", "degree"))},
    relations={"P": tuple(Attribute(name, "number") for name in ("lon", "lat", "reach_m"))},
)


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        ("< 5000", "< 5000.0: grid index of L and P, in cubes of 5,000 m"),
        ("< '5 km'", "< 5000.0: grid index of L and P, in cubes of 5,000 m"),
        # The chord is what counts, and cubes are not smaller than 8 m.
        ("<= '1000 km'", "<= 1000000.0: grid index of L and P, in cubes of 998,974 m"),
        ("<= 1", "<= 1.0: grid index of L and P, in cubes of 8 m"),
        ("< P.reach_m", "tested on each pair of L and P: a grid needs a constant upper limit"),
        ("> 5000", "tested on each pair of L and P: a grid needs a constant upper limit"),
    ],
)
def test_distances_are_explained_with_their_index(limit: str, line: str) -> None:
    text = f"Select Istream(L.lon) From L [Range 1 Minute], P Where distance_m(L.lon, L.lat, P.lon, P.lat) {limit}"
    [explained] = section(explain_query(parse_query(text, PLACED)), "distances")
    assert explained.startswith("distance_m(lon#0, lat#1, lon#2, lat#3) ")
    assert explained.endswith(line)


def test_a_wider_limit_is_tested_on_what_a_narrower_one_leaves() -> None:
    distance = "distance_m(L.lon, L.lat, P.lon, P.lat)"
    text = f"Select Istream(L.lon) From L [Range 1 Minute], P Where {distance} < 90 and {distance} < 80"
    lines = section(explain_query(parse_query(text, PLACED)), "distances")
    assert [line.split(": ")[1] for line in lines] == [
        "tested on what the grid of a narrower limit leaves",
        "grid index of L and P, in cubes of 80 m",
    ]


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        # A minute of 10 rows a second.
        ("Select A From S [Range 1 Minute]", 1, 600),
        ("Select A From S [Range 1 Minute] Where B > 1 And C > 1", 3, 600),
        ("Select * From S [Range 1 Minute]", 5, 600),
        ("Select A From S [Range 1 Minute] Sample(25)", 1, 150),
        # Until the next multiple, rows of a slide more are held.
        ("Select A From S [Range 1 Minute Slide 6 Seconds]", 1, 660),
        ("Select max(B) From S [Range 1 Minute] Group By C", 2, 600),
        ("Select count(*) From S [Range 1 Minute]", 0, 600),
        ("Select distinct A From S [Range 1 Minute]", 1, 600),
        ("Select S.A From S [Range 1 Minute], R Where S.B = R.B", 2, 600),
        ("Select A From S [Range 1 Minute] Where (B, C) In (Select A, B From R)", 3, 600),
        ("Select A From R Where B In (Select C From S [Range 1 Minute])", 1, 600),
        ("Select A From S [Rows 500 Where B > 1]", 1, 500),
        # The number of groups is not known.
        ("Select A From S [Partition By D Rows 2]", 1, None),
        ("Select A From S [Partition By E Rows 2]", 1, 14),
        ("Select A From S [Partition By E, E Rows 2] Sample(50)", 1, 14),
        # A series has one station and one variable.
        ("Select station From packets [Partition By station, variable Rows 2]", 1, 24),
        ("Select station From packets [Partition By series, station Rows 2]", 1, 24),
        ("Select station From packets [Partition By variable Rows 2]", 1, 6),
        ("Select A From S [Now]", 1, 0),
        # Nothing reads its rows again, or something does.
        ("Select A From S [Unbounded]", 1, 0),
        ("Select avg(A), count(*) From S [Unbounded] Group By B", 2, 0),
        ("Select max(A), min(C) From S [Unbounded] Group By B", 3, 0),
        ("Select median(A) From S [Unbounded] Group By B", 2, None),
        ("Select Distinct A From S [Unbounded]", 1, None),
        ("Select A From R Where A In (Select A From S [Unbounded])", 1, None),
        ("Select S.A From S [Unbounded], R Where S.B = R.B", 2, None),
        ("Select A From T [Range 1 Minute]", 1, None),
    ],
)
def test_memory_is_rows_times_columns_in_use_and_what_lets_a_row_leave(
    text: str, columns: int, rows: int | None
) -> None:
    (projection,) = project_windows(bind(text).tree, RATES, groups=GROUPS)
    assert (len(projection.columns), projection.rows) == (columns, rows)
    # Windows of groups link their rows; others keep a stamp and a place of each.
    extra = 1 if "Partition" in text else 2
    assert projection.projected_bytes == (None if rows is None else rows * 8 * (columns + extra))
    is_explained = rows is None or "Partition" in text or "Unbounded" in text
    assert (projection.reason != "") == is_explained


def test_windows_hold_no_more_rows_than_their_stream_has() -> None:
    counts = {"S": 50.0}
    texts = {
        "Select A From S [Range 1 Minute]": 50,
        "Select A From S [Partition By E Rows 2]": 14,
        "Select A From S [Partition By D Rows 2]": None,
        "Select Distinct A From S [Unbounded]": None,
        "Select S.A From S [Unbounded], R Where S.B = R.B": 50,
        "Select S.A From S [Unbounded] Sample(50), R Where S.B = R.B": 25,
        "Select A From S [Unbounded]": 0,
    }
    for text, rows in texts.items():
        (projection,) = project_windows(bind(text).tree, RATES, counts, GROUPS)
        assert projection.rows == rows, text


@pytest.mark.parametrize("block", range(8))
def test_unbounded_windows_are_kept_by_the_engine_where_the_projection_has_them_kept(block: int) -> None:
    number = 0
    for seed in range(25 * block, 25 * block + 25):
        for tree in (random_case(seed).tree, rewrite(random_case(seed).tree, frozenset()).tree):
            steps = EnginePlanner(ExpressionEvaluator(Texts()), is_closed=False).plan(tree).steps
            kept = [isinstance(s.operator, UnboundedWindow) and s.operator.store is not None for s in steps]
            uses = [use for window, use in list_uses(tree).items() if window.form == "unbounded"]
            assert sum(kept) == uses.count("referred"), seed
            number += sum(kept)
    assert number > 0


def test_equal_windows_are_held_once() -> None:
    query = bind("Select a.A From S [Range 1 Minute] a, S [Range 1 Minute] b, S [Range 2 Minutes] c "
                 "Where a.A = b.B And b.A = c.A")  # fmt: skip
    assert [each.rows for each in project_windows(query.tree, RATES)] == [600, 1200]
    text = explain_query(query, rates=RATES)
    assert section(text, "computed once") == ["window range 1 min over S: used 2 times"]
    assert "    #1: as above, window range 1 min …" in section(text, "tree")
    # 600 rows of A and B, 1,200 of A, each with a stamp and a place.
    assert (
        section(text, "memory")[-1]
        == "total of the windows that are limited: 48,000 bytes, without indexes of joins and groups"
    )


def test_each_window_has_its_interval() -> None:
    text = explain_query(bind(
        "Select a.A From S [Range 10 Minutes] a, S [Range 1 Hour Slide 5 Minutes] b, S [Rows 1,000] c, S [Now] d, "
        "S [Partition By A, B Rows 1] e, S f, S [Rows 2 Where C > 1] g "
        "Where a.A = b.A And b.A = c.A And c.A = d.A And d.A = e.A And e.A = f.A And f.A = g.A"
    ))  # fmt: skip
    assert [line.split("]: ")[1] for line in section(text, "windows")] == [
        "(t - 10 min, t]",
        "(f - 1 h, f], where f is t rounded down to a multiple of 5 min",
        "the last 1,000 rows up to t",
        "{t}, the rows of the instant",
        "the last 1 row up to t of each A, B",
        "all rows up to t",
        "the last 2 rows up to t, of the rows for which its Where is true",
    ]


def test_the_parser_is_the_one_of_python() -> None:
    """The compiled variant of the parser would not call the rules that ours replaces."""
    assert str(sqlglot.parser.__file__).endswith(".py")
