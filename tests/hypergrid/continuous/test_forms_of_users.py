"""Forms of the language that users write, by `hg.continuous`: their rows are those that arithmetic by hand gives."""

import pandas as pd
import pytest

import hypergrid as hg

READINGS = pd.DataFrame(
    {
        "tau": [0, 1, 2, 3], "station": ["a", "b", "a", "c"], "value": [1.0, 2.0, 3.0, 4.0],
        "lat": [0.0, 0.0, 1.0, 0.0], "lon": [0.0, 1.0, 0.0, 0.5],
    }
)  # fmt: skip
CHOSEN = pd.DataFrame({"name": ["a"]})
COUNTS = pd.DataFrame({"tau": [0, 2, 2], "station": ["a", "c", "d"], "n": [7, 8, 9], "ok": [True, False, None]})
SOURCE = {"S": READINGS, "C": CHOSEN, "T": COUNTS}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Select power(value, 2) As x From S", [1.0, 4.0, 9.0, 16.0]),
        ("Select greatest(value, 2.5) As x From S", [2.5, 2.5, 3.0, 4.0]),
        ("Select least(value, 2.5) As x From S", [1.0, 2.0, 2.5, 2.5]),
        ("Select Case When value > 2.5 Then 1 Else 0 End As x From S", [0, 0, 1, 1]),
        # 1 to the NULL is NULL.
        ("Select coalesce(power(1, sqrt(2.5 - value)), 5) As x From S", [1.0, 1.0, 5.0, 5.0]),
        ("Select upper(station) As x From S", ["A", "B", "A", "C"]),
        ("Select lower(upper(station)) As x From S", ["a", "b", "a", "c"]),
        ("Select value As x From S Where upper(station) Like 'A%'", [1.0, 3.0]),
        ("Select value As x From S Where regex(upper(station), '^(B|C)')", [2.0, 4.0]),
        ("Select value As x From S Where station In ('a', 'c')", [1.0, 3.0, 4.0]),
        ("Select value As x From S Where station Like 'a%'", [1.0, 3.0]),
        ("Select value As x From S Where station Is Not Null", [1.0, 2.0, 3.0, 4.0]),
        ("Select value As x From S Where station In (Select name From C)", [1.0, 3.0]),
        ("Select value As x From S Where station Not In (Select name From C)", [2.0, 4.0]),
        ("Select value As x From S Sample(100)", [1.0, 2.0, 3.0, 4.0]),
        ("Istream(Select value As x From S [Partition By station Rows 1])", [1.0, 2.0, 3.0, 4.0]),
        ("Select to_number(n) / 2 As x From T", [3.5, 4.0, 4.5]),
        ("Select to_number(ok) As x From T Where ok Is Not Null", [1.0, 0.0]),
        ("Select value As x From S Where regex(station, '^(a|c)+$')", [1.0, 3.0, 4.0]),
        # The half-plane of lon up to 0.5; its edge belongs to it.
        (
            "Select value As x From S Where inside(lon, lat, 'POLYGON((-1 -1,0.5 -1,0.5 2,-1 2,-1 -1))')",
            [1.0, 3.0, 4.0],
        ),
        ("Create Function above(a, b) As greatest(a - b, 0); Select above(value, 2) As x From S", [0.0, 0.0, 1.0, 2.0]),
        ("Create View V As Select value As v From S Where value > 1; Select v As x From V", [2.0, 3.0, 4.0]),
        # Of an instant the left side of a union comes first.
        ("Select value As x From S Union All Select n From T", [1.0, 7.0, 2.0, 3.0, 8.0, 9.0, 4.0]),
        (
            "Istream(Select x From (Select value As x From S Union All Select n From T) u [Rows 1])",
            [7.0, 2.0, 9.0, 4.0],
        ),
        # A pair has the later stamp of its two elements.
        (
            "Istream(Select last(S.value) As x From S [Range 9 Nanoseconds], T [Range 9 Nanoseconds] "
            "Where S.station = T.station Group By S.station)",
            [1.0, 3.0, 4.0],
        ),
        # The sides have no element at one instant.
        (
            "Istream(Select last(x) As x From (Select value As x From S [Range 9 Nanoseconds] Where value In (2, 4) "
            "Union All Select n From T [Range 9 Nanoseconds]) u Group By x > 0)",
            [7.0, 2.0, 9.0, 4.0],
        ),
        # Above the mean of what is there at the instant of the element itself.
        (
            "Istream(Select value As x From S [Now] Where value > (Select avg(value) From S [Unbounded]))",
            [2.0, 3.0, 4.0],
        ),
    ],
)
def test_a_form_gives_the_rows_of_arithmetic_by_hand(text: str, values: list[object]) -> None:
    result = hg.continuous(SOURCE).query(text).run()
    assert result[result["sign"] == 1]["x"].tolist() == values if "sign" in result else result["x"].tolist() == values


def test_distances_are_those_of_a_sphere() -> None:
    far = hg.continuous(SOURCE).query("Select distance_m(lat, lon, 0.0, 0.0) As x From S").run()["x"].tolist()
    # A degree of a great circle.
    assert far == pytest.approx([0.0, 111_195.0, 111_195.0, 55_597.5], rel=2e-3)


def test_all_columns_of_one_source_are_those_of_its_table() -> None:
    result = hg.continuous(SOURCE).query("Select T.* From S [Now], T [Now] Where S.station = T.station").run()
    assert result[result["sign"] == 1][["station", "n"]].to_numpy().tolist() == [["a", 7]]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Select last(x) As x From (Select avg(value) As x From S [Range 1 Second] Group By station) m", "Last"),
        ("Select x From (Istream(Select max(value) As x From S [Rows 2])) m [Rows 3]", "A window of 3 rows"),
        ("Select first(value) As x From S [Range 1 Second]", ""),
        ("Select last(S.value) As x From S [Range 1 Second], C Where S.station = C.name", ""),
        ("Select last(value) As x From S [Range 1 Second] Where station In (Select name From C)", ""),
        ("Select last(value) As x From S [Range 1 Second] Where station In (Select station From T [Rows 1])", "Last"),
    ],
)
def test_an_order_that_is_not_defined_is_said(text: str, form: str) -> None:
    lines = hg.continuous(SOURCE).query(text).explain().splitlines()
    said = [line.strip() for line in lines if "needs the order of rows" in line]
    assert [line.partition(" needs the order")[0] for line in said] == ([form] if form else [])


@pytest.mark.parametrize("size", [1, 40])
def test_points_that_are_near_are_joined(size: int) -> None:
    """Copies of points lie degrees apart, so each element meets what is near it and no copy."""
    points = pd.DataFrame({"name": ["at", "near", "far"], "lon": [0.0, 0.3, 3.0], "lat": [0.0, 0.0, 0.0]})
    many = pd.concat([points.assign(lon=points["lon"] + 4 * number) for number in range(size)], ignore_index=True)
    text = (
        "Istream(Select s.value As value, p.name As name From S [Now] s, P p "
        "Where distance_m(s.lon, s.lat, p.lon, p.lat) < '50 km')"
    )
    query = hg.continuous({"S": READINGS, "P": many}).query(text)
    result = query.run()
    assert sorted(zip(result["value"], result["name"], strict=True)) == [
        (1.0, "at"), (1.0, "near"), (4.0, "near"),
    ]  # fmt: skip
    assert ": grid index of " in query.explain()


@pytest.mark.parametrize("text", ["Select value + station From S", "Select value From S Where", "Select value From T"])
def test_a_query_that_is_wrong_is_underlined(text: str) -> None:
    with pytest.raises(hg.core.errors.InvalidQuery, match=r"\^"):
        hg.continuous(SOURCE).query(text)
