"""Tables as streams and relations: each kind of column is read, and each fault has one clear message."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery

LAST = 2**63 - 2
TEXT = "Select v From S [Rows 1]"


def entered(frame: pd.DataFrame, text: str = "Select v From S") -> list[object]:
    return hg.continuous({"S": frame}).query(text).run()["v"].to_list()


def of_column(values: Any) -> pd.DataFrame:  # noqa: ANN401 - what pandas takes
    return pd.DataFrame({"tau": np.arange(len(values)), "v": values})


@pytest.mark.parametrize(
    ("values", "condition", "kept"),
    [
        (pd.Series([3, 1, 3], dtype="category"), "v > 2", [3, 3]),
        (pd.Series([3, None, 1], dtype=object).astype("category"), "v > 2", [3]),
        (pd.Series([2.5, np.nan, 1.5], dtype="category"), "v > 2", [2.5]),
        (pd.Series([True, False], dtype="category"), "v = True", [True]),
        (
            pd.Series(pd.to_datetime(["2020-01-01", None]), dtype="category"),
            "v > '2019-01-01'",
            [pd.Timestamp(2020, 1, 1)],
        ),
        (pd.Series(["a", None], dtype="category"), "v = 'a'", ["a"]),
        (pd.Series([3, None], dtype=object), "v > 2", [3]),
        (pd.Series([3, pd.NA, 2**63 - 1], dtype=object), "v > 2", [3, 2**63 - 1]),
        (pd.Series([2.5, None, 3], dtype=object), "v > 2", [2.5, 3.0]),
        (pd.Series([True, None], dtype=object), "v = True", [True]),
        (pd.Series([2**63 - 1, 1], dtype=np.uint64), "v > 2", [2**63 - 1]),
        (pd.Series([200, None], dtype="UInt8"), "v > 2", [200]),
        (pd.Series(["2020-01-01", None], dtype="datetime64[s]"), "v > '2019-01-01'", [pd.Timestamp(2020, 1, 1)]),
    ],
)
def test_a_column_has_the_kind_of_its_values(values: "pd.Series[Any]", condition: str, kept: list[object]) -> None:
    assert entered(of_column(values), f"Select v From S Where {condition}") == kept


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            np.array([1, 2**63], np.uint64),
            "'v' of table 'S' needs integers of 64 bits above -2**63; got 92233720368547758",
        ),
        (np.array([1, -(2**63)]), "above -2**63; got -9223372036854775808 in row 2"),
        (pd.array([None, -(2**63)], "Int64"), "got -9223372036854775808 in row 2"),
        (np.array([None, 2**70], object), "got 1180591620717411303424 in row 2"),
        (
            np.array(["NaT", "3020-01-01"], "datetime64[s]"),
            "needs instants from 1678 to 2262; got 3020-01-01 00:00:00 in row 2",
        ),
        (np.array(["0001-01-01"], "datetime64[s]"), "got 0001-01-01 00:00:00 in row 1"),
        (["a", "b\ud800"], "needs texts of Unicode; got 'b\\ud800', half of a pair of surrogates, in row 2"),
        (np.array([1, "a"], object), "got mixed-integer (object): convert it by astype"),
        (np.array([1j]), "got complex (complex128): convert it by astype"),
    ],
)
def test_values_that_cannot_be_held_are_refused(values: object, message: str) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(message)):
        entered(of_column(values))


@pytest.mark.parametrize(
    ("tau", "message"),
    [
        (np.array([2**63], np.uint64), "'tau' of table 'S' needs integers of 64 bits above -2**63 and below 2**63 - 1"),
        (np.array([-(2**63)]), "got -9223372036854775808 in row 1"),
        (np.array([2**63 - 1]), "got 9223372036854775807 in row 1"),
        (np.array(["3020-01-01"], "datetime64[s]"), "column 'tau' of table 'S' needs instants from 1678 to 2262"),
        (pd.array([None], "Int64"), "has missing instants; drop these rows"),
        ([1.5], "needs datetime64, or integers in nanoseconds; got float64"),
    ],
)
def test_instants_that_cannot_be_held_are_refused(tau: Any, message: str) -> None:  # noqa: ANN401 - what pandas takes
    with pytest.raises(InvalidQuery, match=re.escape(message)):
        hg.continuous({"S": pd.DataFrame({"tau": tau, "v": [1]})})


def with_units(units: object) -> pd.DataFrame:
    frame = of_column([1.0])
    frame.attrs["units"] = units
    return frame


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ([1, 2], "table 'S' needs a pandas.DataFrame; got list"),
        (pd.DataFrame([[1, 2, 3]], columns=["tau", "v", "v"]), "table 'S' has two columns 'v'; rename one of them"),
        (pd.DataFrame([[1, 2]], columns=["tau", 7]), "needs texts as names of its columns; got 7: rename it"),
        (pd.DataFrame([[1, 2]], columns=["TAU", "v"]), "table 'S' has a column 'TAU'; rename it to 'tau'"),
        (pd.DataFrame([[1, 2]], columns=["tau", "Sign"]), "table 'S' has a column 'Sign'; rename it to 'sign'"),
        (with_units({"v": 5}), "the unit of column 'v' of table 'S' needs to be a text; got 5"),
        (with_units({"v": "florps"}), "column 'v' of table 'S': unknown unit 'florps'"),
        (with_units("m"), "needs attrs['units'] as a mapping of columns to units; got 'm'"),
    ],
)
def test_odd_tables_are_refused_when_they_are_read(frame: Any, message: str) -> None:  # noqa: ANN401 - also no tables
    with pytest.raises(InvalidQuery, match=re.escape(message)) as raised:
        hg.continuous({"S": frame})
    assert "\n" not in str(raised.value)


def test_a_view_needs_a_name_of_its_own() -> None:
    with pytest.raises(InvalidQuery, match="'S' is the name of a table and of a view"):
        hg.continuous({"S": of_column([1])}, views={"S": "Select * From S"})


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(columns=["tau", "v"]),
        pd.DataFrame({"tau": np.empty(0), "v": np.empty(0)}),
        pd.DataFrame(columns=["tau", "sign", "v"]),
    ],
)
def test_empty_tables_have_no_rows(frame: pd.DataFrame) -> None:
    assert entered(frame, "Select v From S") == []
    count = hg.continuous({"S": frame, "T": of_column([1])}).query("Select v From T [Rows 1]").run()
    assert count["v"].to_list() == [1]


@pytest.mark.parametrize(
    "text", [TEXT, "Select v From S", "Select v From S [Range 1 Hour]", "Select v From S [Range 1 Hour Slide 1 Minute]"]
)
def test_rows_of_the_last_centuries_are_there(text: str) -> None:
    far = pd.DataFrame({"tau": pd.to_datetime(["2020-01-01", "2200-01-01"]), "v": [1, 2]})
    rows = hg.continuous({"S": far}).query(text).run()
    assert rows.loc[rows["sign"] > 0, "v"].to_list() == [1, 2]


def test_rows_of_the_last_instant_are_there() -> None:
    last = pd.DataFrame({"tau": [LAST - 1, LAST], "v": [1, 2]})
    for text in ("Select v From S", "Select v From S [Range 300 Days]"):
        assert hg.continuous({"S": last}).query(text).run()[["tau", "v"]].to_numpy().tolist() == [
            [LAST - 1, 1],
            [LAST, 2],
        ]
    joined = hg.continuous({"S": last}).query("Select a.v From S [Unbounded] a, S [Now] b Where a.v = b.v")
    assert joined.run()[["tau", "sign", "v"]].to_numpy().tolist()[:2] == [[LAST - 1, 1, 1], [LAST, -1, 1]]
    slid = hg.continuous({"S": last}).query("Select v From S [Range 1 Hour Slide 1 Hour]")
    assert slid.run().empty
    assert hg.continuous({"S": last}).query(TEXT).relation(2**63)["v"].to_list() == [2]
