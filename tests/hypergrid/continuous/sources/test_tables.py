"""Tables of the user: kinds of columns, and one clear message for each fault."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hypergrid.continuous.expressions import Attribute
from hypergrid.continuous.sources import check_table, match_archive, read_table
from hypergrid.core.errors import HyperGridError


def write(folder: Path, text: str) -> Path:
    file = folder / "t.csv"
    file.write_text(text)
    return file


def test_columns_have_the_types_of_their_values(tmp_path: Path) -> None:
    frame = read_table(
        "t",
        write(
            tmp_path, "tau,a,b,c,d\n2007-10-01T00:00:30Z,1,2.5,NA,2007-10-01\n2007-10-01,2,,x,2007-10-02T01:00+01:00\n"
        ),
    )
    assert frame["tau"].astype("int64").diff().iloc[1] == -30 * 10**9
    assert (frame["a"].dtype.kind, frame["b"].dtype.kind, frame["c"].to_list()) == ("i", "f", ["NA", "x"])
    assert frame["d"].iloc[1] == pd.Timestamp("2007-10-02")


def test_a_parquet_file_is_a_table(tmp_path: Path) -> None:
    table = pd.DataFrame({"station": ["a", None], "value": [1.5, np.nan]})
    table.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table("t", tmp_path / "t.parquet"), table)


def test_ids_beside_an_archive_are_texts_and_columns_have_its_units() -> None:
    frame = match_archive("stations", pd.DataFrame({"station": [1, 2], "elevation_m": [1.0, 2.0], "own": [3, 4]}))
    assert frame["station"].to_list() == ["1", "2"]
    assert frame.attrs["units"] == {"elevation_m": "m"}


DECLARED = (Attribute("station", "text"), Attribute("limit", "number", "mm"), Attribute("count", "integer"))


def test_declared_columns_are_taken_in_their_order_and_types() -> None:
    frame = pd.DataFrame({"count": [1.0, np.nan], "more": [0, 0], "limit": ["2.5", None], "station": [7.0, np.nan]})
    checked = check_table("t", frame, DECLARED)
    assert checked.columns.to_list() == ["station", "limit", "count"]
    assert checked["station"].to_list() == ["7", None]
    assert checked["limit"].iloc[0] == 2.5
    assert checked["count"].isna().to_list() == [False, True]
    assert checked.attrs["units"] == {"limit": "mm"}


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("limit", ["1", "high"], "table 't' needs a number in the column 'limit'; got 'high' in row 2"),
        ("count", [1.0, 1.5], "table 't' needs an integer in the column 'count'; got 1.5 in row 2"),
        ("limit", [True, False], "table 't' needs a number in the column 'limit'; got True in row 1"),
    ],
)
def test_a_wrong_type_is_one_message(column: str, values: list[object], message: str) -> None:
    frame = pd.DataFrame({"station": ["a", "b"], "limit": [1.0, 2.0], "count": [1, 2]})
    frame[column] = pd.Series(values, dtype=None if column == "count" else object)
    with pytest.raises(HyperGridError) as caught:
        check_table("t", frame, DECLARED)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,a.1\n1,2\n", None),
        ("tau,a\nyesterday,1\n", "table 't' needs a time in the column 'tau'; got 'yesterday' in row 1"),
        ("tau,a\n1.5,1\n", "table 't' needs a time in the column 'tau'; got 1.5 in row 1"),
    ],
)
def test_instants_must_be_instants(tmp_path: Path, text: str, message: str | None) -> None:
    file = write(tmp_path, text)
    if message is None:
        assert len(read_table("t", file)) == 1
        return
    with pytest.raises(HyperGridError) as caught:
        read_table("t", file)
    assert str(caught.value) == message


def test_a_file_that_is_absent_or_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(HyperGridError, match="table 't': the file .*absent.csv does not exist"):
        read_table("t", tmp_path / "absent.csv")
    (tmp_path / "t.parquet").write_text("no")
    with pytest.raises(HyperGridError, match="cannot be read as .parquet"):
        read_table("t", tmp_path / "t.parquet")
    with pytest.raises(HyperGridError, match="needs the column 'limit'; got station"):
        check_table("t", pd.DataFrame({"station": ["a"]}), DECLARED)
