"""Continuous queries of tables, as users ask them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.continuous.engine.operators import to_stream
from hypergrid.core.errors import InvalidQuery
from tests.support.continuous_live_archives import commit, create, draw_commits

SECOND = 1_000_000_000


def readings() -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "tau": pd.to_datetime([0, 5, 9], unit="s"),
            "station": ["a", None, "a"],
            "value": [1.0, 2.0, np.nan],
            "count": pd.array([1, None, 3], dtype="Int64"),
            "wet": [True, False, True],
            "seen": pd.to_datetime([1, 2, None], unit="s"),
        }
    )
    frame.attrs["units"] = {"value": "m/s"}
    return frame


def test_all_kinds_of_columns_come_back_as_they_went_in() -> None:
    given = readings()
    result = hg.continuous({"S": given}).query("Select * From S").run()
    assert result["sign"].tolist() == [1, 1, 1]
    assert result.attrs["units"] == {"value": "m/s"}
    pd.testing.assert_frame_equal(
        result.drop(columns="sign"), given, check_dtype=False, check_index_type=False, check_like=False
    )
    assert result["tau"].dtype.kind == "M"
    assert result["count"].dtype == "Int64"


def test_sources_and_queries_say_in_a_line_what_they_are(tmp_path: Path) -> None:
    tables = hg.continuous(
        {"S": readings(), "limits": pd.DataFrame({"station": ["a"]})}, views={"v": "Select * From S"}
    )
    assert repr(tables) == "ContinuousTables(streams S; relations limits; views v)"
    query = tables.query("Select station, max(value) as top\nFrom S [Rows 2]\n  Group By station")
    assert repr(query) == (
        "ContinuousQuery(relation of station, top: Select station, max(value) as top From S [Rows 2] Group By station)"
    )
    create(tmp_path / "a")
    [parts] = draw_commits(1, 1)
    commit(tmp_path / "a", 0, parts)
    archive = hg.continuous(tmp_path / "a", tables={"limits": pd.DataFrame({"station": ["a"]})})
    assert "relations stations, neighbours; beside it limits)" in repr(archive)
    text = "Select station From air_temperature Where value > 3"
    assert repr(archive.query(text)) == f"ArchiveQuery(stream of station: {text})"
    assert repr(archive.query(f"{text} Emit Now")) == f"AtOnceQuery(stream of station: {text} Emit Now)"
    live = archive.live(text, name="warm")
    assert repr(live) == f"LiveQuery(warm: stream of station: {text})"


def test_a_relation_changes_as_its_window_does() -> None:
    query = hg.continuous({"S": readings()}).query(
        "Select station, value From S [Range 6 Seconds] Where value > '1 km/h'"
    )
    result = query.run()
    assert [
        (tau.second, sign, value)
        for tau, sign, value in zip(result["tau"], result["sign"], result["value"], strict=True)
    ] == [
        (0, 1, 1.0),
        (5, 1, 2.0),
        (6, -1, 1.0),
        (11, -1, 2.0),
    ]
    assert query.relation("1970-01-01T00:00:05")["value"].tolist() == [1.0, 2.0]
    assert query.relation(pd.Timestamp(6, unit="s"))["value"].tolist() == [2.0]
    assert query.relation(11 * SECOND).empty
    assert query.run(until=5 * SECOND)["value"].tolist() == [1.0, 2.0]


def test_the_greatest_of_texts_instants_and_integers_is_null_where_one_of_them_is() -> None:
    query = (
        "Select greatest(station, 'aa') As g, least(count, 2) As l, greatest(seen, '1970-01-01T00:00:02') As s From S"
    )
    result = hg.continuous({"S": readings()}).query(query).run()
    assert result["g"].tolist()[::2] == ["aa", "aa"]
    assert result["l"].tolist()[::2] == [1, 2]
    assert result[["g", "l"]].isna()[1:2].to_numpy().all()
    assert result["s"].tolist()[:2] == [pd.Timestamp(2, unit="s")] * 2
    assert pd.isna(result["s"][2])


def test_a_row_that_replaces_an_equal_one_does_not_enter_where_few_leave() -> None:
    # In the first of the rounds of the engine; some leave at the instant of an equal row.
    count, held, equal = 20_000, 15_000, 400
    value = np.arange(float(count))
    value[held : held + equal] = value[:equal]
    frame = pd.DataFrame({"tau": np.arange(count) * SECOND, "value": value})
    entered = hg.continuous({"S": frame}).query(f"Select Istream(value) From S [Range {held} Seconds]").run()
    assert entered["value"].tolist() == [*value[:held], *value[held + equal :]]


def test_integers_are_nanoseconds_and_rows_of_one_instant_keep_their_order() -> None:
    frame = pd.DataFrame({"tau": [7, 3, 7], "v": [1, 2, 3]})
    last = hg.continuous({"S": frame}).query("Select v From S [Rows 1]")
    assert last.run().to_numpy().tolist() == [[3, 1, 2], [7, -1, 2], [7, 1, 3]]


def test_tables_without_instants_are_relations_and_signs_change_them() -> None:
    stations = pd.DataFrame({"station": ["a", "b"], "name": ["A", "B"]})
    limits = pd.DataFrame({"tau": [0, 6 * SECOND, 6 * SECOND], "sign": [1, -1, 1], "limit_value": [0.5, 0.5, 9.0]})
    source = hg.continuous({"S": readings(), "T": stations, "L": limits})
    named = source.query("Select Istream(t.name, s.value) From S s, T t Where s.station = t.station").run()
    assert named["name"].tolist() == ["A", "A"]
    above = source.query("Select s.value From S [Unbounded] s, L Where s.value > L.limit_value").run()
    assert sorted(above[["tau", "sign", "value"]].astype({"tau": int}).to_numpy().tolist()) == [
        [0, 1, 1.0],
        [5 * SECOND, 1, 2.0],
        [6 * SECOND, -1, 1.0],
        [6 * SECOND, -1, 2.0],
    ]


def test_equal_rows_of_a_relation_are_shown_as_often_as_they_are_there() -> None:
    frame = pd.DataFrame({"tau": [1, 2, 3], "v": [5.0, 5.0, np.nan]})
    query = hg.continuous({"S": frame}).query("Select v From S [Rows 3]")
    assert query.relation(2)["v"].tolist() == [5.0, 5.0]
    assert query.relation(3)["v"].isna().sum() == 1
    assert len(query.relation(3)) == 3


def test_an_explanation_names_defaults_and_windows() -> None:
    text = hg.continuous({"S": readings()}).query("Select count(*) From S [Range 1 Hour]").explain()
    assert "(t - 1 h, t]" in text


def test_a_view_is_named_like_a_stream() -> None:
    source = hg.continuous({"S": readings()}, views={"fast": "Select value From S Where value > 1.5"})
    assert source.query("Select * From fast").run()["value"].tolist() == [2.0]


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ({"S": pd.DataFrame({"tau": [1.5], "v": [1]})}, "datetime64, or integers"),
        ({"S": pd.DataFrame({"tau": pd.to_datetime([None, 1]), "v": [1, 2]})}, "missing instants"),
        ({"S": pd.DataFrame({"tau": [1], "v": [object()]})}, "column 'v' of table 'S'"),
        ({"S": pd.DataFrame({"tau": [1], "sign": [2], "v": [1]})}, r"signs of \+1 or -1"),
        (5, "tables by name"),
    ],
)
def test_bad_tables_are_named(frames: object, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        hg.continuous(frames).query("Select * From S").run()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "Select min(x) From R",
        "Select count(*) From R",
        "Select x From R",
        "Select Distinct x From R",
        "Select s.value From S [Now] s, R Where s.value = R.x",
        "Select x From R Except Select x From R Where x > 1",
    ],
)
@pytest.mark.parametrize(
    ("tau", "sign", "x"),
    [
        ([1, 2], [-1, 1], [1.0, 1.0]),
        ([1, 2, 2], [1, -1, -1], [1.0, 1.0, 1.0]),
        ([1, 3], [1, -1], [1.0, 2.0]),
        ([2, 1], [1, -1], [np.nan, np.nan]),
    ],
)
def test_a_removed_row_must_be_there(text: str, tau: list[int], sign: list[int], x: list[float]) -> None:
    frame = pd.DataFrame({"tau": tau, "sign": sign, "x": x, "unread": "a"})
    query = hg.continuous({"S": readings(), "R": frame}).query(text)
    with pytest.raises(InvalidQuery, match="relation 'R' removes at [1-3] ns a row that it does not hold"):
        query.run()


def test_a_row_that_differs_in_a_column_that_nothing_reads_is_not_there() -> None:
    frame = pd.DataFrame({"tau": [1, 2], "sign": [1, -1], "x": [1, 1], "name": ["a", "b"]})
    with pytest.raises(InvalidQuery, match="removes at 2 ns"):
        hg.continuous({"R": frame}).query("Select x From R").run()


def test_equal_rows_are_removed_as_often_as_they_were_added() -> None:
    frame = pd.DataFrame(
        {"tau": [5, 1, 2, 3, 4], "sign": [-1, 1, 1, -1, 1], "x": [np.nan, np.nan, np.nan, np.nan, 7.0]}
    )
    counts = hg.continuous({"R": frame}).query("Select count(*) From R").run()
    assert counts.loc[counts["sign"] > 0, "count"].to_list() == [1, 2, 1, 2, 1]


def test_columns_named_as_those_of_results_are_renamed() -> None:
    frame = pd.DataFrame({"tau": [1, 2], "v": [-5, 7]})
    query = hg.continuous({"S": frame}).query("Select -v As sign, v As tau, v As tau_2 From S [Rows 1]")
    assert query.run().columns.to_list() == ["tau", "sign", "sign_2", "tau_3", "tau_2"]
    assert query.relation(1).to_numpy().tolist() == [[5, -5, -5]]
    assert "Column 'sign' is given as 'sign_2'" in query.explain()
    stream = hg.continuous({"S": frame}).query("Select v As tau From S")
    assert stream.run()["tau_2"].to_list() == [-5, 7]
    views = {"signs": "Select -v As sign From S"}
    viewed = hg.continuous({"S": frame}, views=views).query("Select s.sign As s From signs s")
    assert viewed.run()["s"].to_list() == [5, -7]


def test_half_of_a_pair_of_surrogates_is_refused_in_a_query() -> None:
    with pytest.raises(InvalidQuery, match=r"surrogates is no text of Unicode; got '\\ud800' after 25 characters"):
        hg.continuous({"S": readings()}).query("Select * From S Where a='\ud800'")


def test_a_stream_has_no_rows_at_an_instant() -> None:
    with pytest.raises(InvalidQuery, match="gives a stream"):
        hg.continuous({"S": readings()}).query("Select * From S").relation(1)


@pytest.mark.parametrize(
    ("first", "second", "form"),
    [
        ("degC", "degF", lambda value: value * 1.8 + 32),
        ("degC", "K", lambda value: value + 273.15),
        ("m/s", "km/h", lambda value: value * 3.6),
        ("m", "km", lambda value: value / 1000),
    ],
)
def test_values_that_are_equal_as_written_are_equal_in_other_units(first: str, second: str, form) -> None:  # noqa: ANN001
    x = np.append(np.round(np.random.default_rng(5).uniform(-60, 60, 500), 3), [0.0, 10, 20, 21.3, 0.01, -40])
    # Six decimals hold the converted value of three exactly, and clear the noise of the formula.
    frame = pd.DataFrame({"tau": pd.to_datetime(range(len(x)), unit="s"), "x": x, "y": np.round(form(x), 6)})
    frame.attrs["units"] = {"x": first, "y": second}
    held = hg.continuous({"S": frame})
    for condition in ("x = y", "y = x", "x <= y And x >= y"):
        assert len(held.query(f"Select x From S Where {condition}").run()) == len(x), condition
    assert held.query("Select x From S Where x < y").run().empty


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([np.inf, np.inf], np.inf),
        ([-np.inf, -np.inf], -np.inf),
        ([-1.7e308, 1.7e308], 0.0),
        ([1.0, np.inf], np.inf),
        ([-np.inf, np.inf], np.nan),
        ([0.1, 0.3], 0.2),
    ],
)
def test_medians_of_extremes_do_not_overflow(values: list[float], median: float) -> None:
    frame = pd.DataFrame({"tau": pd.to_datetime([0, 0], unit="s"), "x": values})
    result = hg.continuous({"S": frame}).query("Select median(x) As m From S").run()
    np.testing.assert_equal(result["m"].to_numpy()[-1:], [median])


def test_like_reads_signs_of_any_text_in_a_row_as_one() -> None:
    frame = pd.DataFrame({"tau": pd.to_datetime([0, 1, 2], unit="s"), "s": ["ab", "a%b", "b"]})
    held = hg.continuous({"S": frame})
    assert held.query("Select s From S Where s Like 'a%%%b'").run()["s"].tolist() == ["ab", "a%b"]
    assert held.query(f"Select s From S Where s Like '{'%' * 256}'").run()["s"].tolist() == ["ab", "a%b", "b"]


def test_integers_beyond_64_bits_are_null_and_come_back() -> None:
    large = 2**62
    x = pd.array([large, large, large, 5, -large, -large, -large - 1], dtype="Int64")
    frame = pd.DataFrame({"tau": pd.to_datetime(range(7), unit="s"), "x": x})
    held = hg.continuous({"S": frame})
    shown = held.query("Select sum(x) As total From S [Rows 2]").run()
    totals = [None if pd.isna(value) else int(value) for value in shown[shown["sign"] > 0]["total"]]
    # -2**63 stands for NULL, so that it is beyond, too; a row that stays equal does not show.
    assert totals == [large, None, large + 5, 5 - large, None]
    for text in ("x * 4", "x + x", "x * 2 - 1", "x * -3", "0 - x - x - x"):
        result = held.query(f"Select {text} As y From S").run()["y"]
        expected = []
        for value in map(int, x):
            doubled = {"x * 4": value * 4, "x + x": 2 * value, "x * -3": -3 * value, "0 - x - x - x": -3 * value}
            y = doubled.get(text, 2 * value - 1)
            inner = 2 * value if text == "x * 2 - 1" else y
            expected.append(None if max(abs(inner), abs(y)) >= 2**63 else int(y))
        assert [None if pd.isna(value) else int(value) for value in result] == expected, text


def test_a_clock_that_jumps_is_refused_where_rows_would_repeat_without_end() -> None:
    count, jump = 1000, 40 * 365 * 86_400
    frame = pd.DataFrame({"tau": [*range(count), jump], "x": 1.0})
    frame["tau"] *= 10**9
    source = hg.continuous({"S": frame})
    text = "Rstream(Select count(*) as k From S [Range 10 Seconds Slide 1 Second])"
    with pytest.raises(InvalidQuery, match=r"to 2009-12-22.*: 1,261,438,991 rows, above the 10,000,000 allowed"):
        source.query(text.replace("1 Second", "1000 Milliseconds")).run()
    # Up to the jump nothing is lost, and what repeats for a while is given.
    whole = source.query(text).run(until=np.int64(5 * 10**6 * 10**9))
    assert len(whole) == 5 * 10**6 + 1
    # Where the relation empties, there is nothing to repeat.
    assert len(source.query("Rstream(Select x From S [Range 10 Seconds Slide 1 Second])").run()) == 10 * (count + 1)


def test_rows_may_repeat_for_as_long_as_readings_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_stream, "MOST_REPEATED", 50)
    frame = pd.DataFrame({"tau": np.arange(300) * 10**9, "x": 1.0})
    # A count that stays the same for much longer.
    text = "Rstream(Select count(*) as k From S [Range 10 Seconds Slide 1 Second])"
    counts = hg.continuous({"S": frame}).query(text).run()
    assert counts["k"].tolist()[9:290] == [10] * 281
    frame.loc[200:, "tau"] += 5000 * 10**9
    hours = text.replace("10 Seconds", "2 Hours")
    assert len(hg.continuous({"S": frame[:200]}).query(hours).run(until=np.int64(240 * 10**9))) == 241
    with pytest.raises(InvalidQuery, match=r"at each instant from 1970-01-01T00:03:19Z to 1970-01-01T01:26:40Z"):
        hg.continuous({"S": frame}).query(hours).run()


def test_a_small_slide_over_long_gaps_looks_at_instants_with_rows_only() -> None:
    stamps = pd.to_datetime([0, 60 * 86_400], unit="s")
    held = hg.continuous({"S": pd.DataFrame({"tau": stamps, "x": [1.0, 2.0]})})
    result = held.query("Select Rstream(x) From S [Range 2 Minutes Slide 1 Millisecond]").run()
    assert result["x"].value_counts().to_dict() == {1.0: 120_000, 2.0: 120_000}
    assert result["tau"].iloc[-1] == stamps[1] + pd.Timedelta("119.999 s")
    assert (result["tau"].diff().iloc[1:120_000] == pd.Timedelta("1 ms")).all()


@pytest.mark.parametrize("step_s", [1, 40])
def test_a_window_shorter_than_its_slide_leaves_out_what_lies_between(step_s: int) -> None:
    times = np.arange(0, 3 * 3600 + 1, step_s)
    frame = pd.DataFrame({"tau": pd.to_datetime(times, unit="s"), "x": times})
    text = "Select count(*) As n, min(x) As low From S [Range 10 Minutes Slide 1 Hour]"
    result = hg.continuous({"S": frame}).query(text).run()
    entered = result[result["sign"] > 0]
    # The window is empty an hour after the last element.
    ends = [0, 3600, 7200, 10800, 14400]
    assert entered["tau"].to_list() == list(pd.to_datetime(ends, unit="s"))
    assert entered["n"].iloc[-1] == 0
    for end, row in zip(ends[:-1], entered.iloc[:-1].itertuples(), strict=True):
        within = times[(times > end - 600) & (times <= end)]
        assert (row.n, row.low) == (len(within), within[0])


@pytest.mark.parametrize("jump", ["2099-01-01T00:00", "1971-01-01T00:00"])
def test_a_clock_that_jumps_changes_nothing_at_the_other_instants(jump: str) -> None:
    stamps = ["2007-10-01T00:00", "2007-10-01T00:10", "2007-10-01T00:20"]
    text = "Select x, count(*) As n From S [Range 15 Minutes Slide 5 Minutes] Group By x"

    def ask(times: list[str]) -> pd.DataFrame:
        frame = pd.DataFrame({"tau": pd.to_datetime(times, utc=True), "x": range(len(times))})
        return hg.continuous({"S": frame}).query(text).run()

    plain, jumped = ask(stamps), ask([*stamps, jump])
    apart = jumped["x"] == len(stamps)
    pd.testing.assert_frame_equal(jumped[~apart].reset_index(drop=True), plain)
    assert jumped[apart]["tau"].dt.strftime("%Y-%m-%dT%H:%M").to_list() == [jump, jump.replace("00:00", "00:15")]


def test_a_source_that_ends_lets_the_others_go_on() -> None:
    times = pd.to_datetime(range(0, 7200, 600), unit="s")
    held = hg.continuous(
        {"S": pd.DataFrame({"tau": times, "x": range(12)}), "T": pd.DataFrame({"tau": times[:2], "y": [7, 8]})}
    )
    joined = held.query("Select Rstream(x, y) From S [Now], T [Range 1 Hour]").run()
    assert sorted(joined[["x", "y"]].to_numpy().tolist()) == [
        [0, 7], *([x, y] for x in range(1, 6) for y in (7, 8)), [6, 8],
    ]  # fmt: skip
    ended = held.query("Dstream(Select count(*) As n From T [Range 1 Hour])").run()
    assert ended["n"].to_list() == [0, 1, 2, 1]
