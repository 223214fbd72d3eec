"""Queries over archives: against those over tables of the same readings, with tables beside them, and bad input."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.continuous.archive_catalogue import NEIGHBOUR_ATTRIBUTES
from hypergrid.continuous.sources import CodedTexts, neighbour_changes
from hypergrid.core.errors import HyperGridError
from hypergrid.core.readings import Position, Station
from tests.end_to_end.in_process import hypergrid
from tests.support.continuous_archives import elements_of, random_sources

QUERIES = (
    "Select station, count(*) as n, avg(value) as mean From air_temperature [Range 20 Minutes] Group By station",
    "Select Istream(a.station, a.value, w.value as speed) From air_temperature [Range 5 Minutes] a, "
    "wind_speed [Range 5 Minutes] w Where a.station = w.station and a.slice = w.slice and w.value > 4",
    "Select series From readings [Partition By series Rows 3] Group By series Having max(value) - min(value) < 2",
    "Dstream(Select distinct station From readings [Range 2 Minutes])",
)


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("order", ["time", "arrival"])
def test_an_archive_answers_as_tables_of_its_readings(tmp_path: Path, text: str, order: str) -> None:
    archive, table = random_sources(tmp_path / "a", 4, hours=2)
    elements = elements_of(table)
    elements = elements[elements["flag"].isin([1, 2])]
    if order == "arrival":
        elements = elements.sort_values(["arrival", "tau", "series"], kind="stable").assign(tau=elements["arrival"])
    columns = ["tau", "station", "series", "value", "slice"]
    frames = {name: group[columns] for name, group in elements.groupby("variable")}
    frames["readings"] = elements[columns]
    for frame in frames.values():
        frame.attrs = {}
    end = int(elements["tau"].max()) + 3600 * 10**9
    given = hg.continuous(archive).query(text).run(end=np.datetime64(end, "ns"), order=order)
    wanted = hg.continuous(frames).query(text).run(until=end - 1)
    given["tau"] = given["tau"].astype("int64")
    assert len(wanted) > 3
    pd.testing.assert_frame_equal(given.reset_index(drop=True), wanted.reset_index(drop=True), check_dtype=False)


def test_parts_of_a_result_are_the_whole(tmp_path: Path) -> None:
    archive, _ = random_sources(tmp_path / "a", 4, hours=2)
    query = hg.continuous(archive).query(QUERIES[0])
    parts = list(query.iterate())
    pd.testing.assert_frame_equal(pd.concat([part for part, _ in parts], ignore_index=True), query.run())
    assert parts[-1][1] == 1.0


def test_a_station_that_moves_changes_the_relation_of_stations(tmp_path: Path) -> None:
    archive, _ = random_sources(tmp_path / "a", 1, hours=3)
    text = """Select s.lon, count(*) as n From stations s, air_temperature a Where a.station = s.station
    and s.station = 's0' Group By s.lon"""
    changes = hg.continuous(archive).query(text).run()
    move = pd.Timestamp("2007-10-01T01:00Z")
    assert set(changes.loc[changes["tau"] < move, "lon"]) == {7.177}
    assert set(changes.loc[changes["tau"] > move, "lon"]) == {7.185}
    assert changes.loc[changes["tau"] == move, ["sign", "lon"]].to_numpy().tolist() == [[-1, 7.177], [1, 7.185]]
    position = hg.continuous(archive).query("Select station, lon From stations Where station = 's0'")
    assert position.relation("2007-10-01T00:30")["lon"].to_list() == [7.177]
    assert position.relation("2007-10-01T02:00")["lon"].to_list() == [7.185]
    assert position.run("2007-10-01T02:00")["lon"].to_list() == [7.185]


def test_neighbours_are_the_nearest_with_the_fall_towards_them() -> None:
    rng = np.random.default_rng(3)
    places = {f"s{i}": Position(None, 7 + rng.random() / 50, 46 + rng.random() / 50, 2000.0 + i) for i in range(12)}
    batch = neighbour_changes({key: Station(key, key, (at,)) for key, at in places.items()})
    names = [attribute.name for attribute in NEIGHBOUR_ATTRIBUTES]
    rows = pd.DataFrame(
        {
            name: np.array(column.words, object)[column.codes] if isinstance(column, CodedTexts) else column
            for name, column in zip(names, batch.columns, strict=True)
        }
    )
    assert rows.groupby("station").size().to_list() == [8] * 12
    for station, group in rows.groupby("station"):
        here = places[str(station)]
        flat = {
            key: np.hypot((at.lon - here.lon) * np.cos(np.radians(46)), at.lat - here.lat) * 111_195
            for key, at in places.items()
            if key != station
        }
        assert set(group["neighbour"]) == set(sorted(flat, key=lambda key: flat[key])[:8])
        for _, row in group.iterrows():
            assert row["distance_m"] == pytest.approx(flat[row["neighbour"]], rel=2e-3)
            assert row["dz_m"] == here.elevation_m - places[row["neighbour"]].elevation_m


def test_a_table_stands_for_a_relation_of_the_archive(tmp_path: Path) -> None:
    archive, _ = random_sources(tmp_path / "a", 0, hours=1)
    table = pd.DataFrame({"station": ["s0", "s1"], "gateway": ["g", "g"]})
    text = """Select s.gateway, count(*) as n From air_temperature a, stations s
    Where a.station = s.station Group By s.gateway"""
    query = hg.continuous(archive, tables={"stations": table}).query(text)
    readings = archive["air_temperature"].to_pandas()
    last = query.run().iloc[-1]
    assert (last["gateway"], last["n"]) == ("g", readings["station"].isin(["s0", "s1"]).sum())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Select station, flag From air_temperature Union All Select station, flag From wind_speed",
            "by key: air_temperature by station and series, wind_speed by station and series",
        ),
        (
            "Select flag From air_temperature [Now] Except All Select flag From wind_speed [Now]",
            "not by key: except compares rows of different keys",
        ),
        (
            "Select flag, count(*) as n From air_temperature [Range 1 Hour] Group By flag",
            "not by key: groups by flag hold rows of all keys together",
        ),
        (
            "Select flag + 1 as f, count(*) as n From air_temperature [Range 1 Hour] Group By flag + 1",
            "not by key: groups by an expression hold rows of all keys together",
        ),
    ],
)
def test_an_explanation_says_by_what_a_query_can_be_split(tmp_path: Path, text: str, sentence: str) -> None:
    archive, _ = random_sources(tmp_path / "a", 0, hours=1)
    assert sentence in hg.continuous(archive).query(text).explain()


def test_a_table_is_read_in_the_types_that_the_query_registers(tmp_path: Path) -> None:
    archive, _ = random_sources(tmp_path / "a", 0, hours=1)
    frame = pd.DataFrame(
        {"id": [7.0, np.nan], "n": ["1", "2"], "at": ["2007-10-01T00:00Z", None], "ok": ["true", "False"]}
    )
    text = "Register Relation t (id text, n integer, at time, ok boolean); Select id, n, at, ok From t"
    rows = hg.continuous(archive, tables={"t": frame}).query(text).relation("2007-10-01T00:30Z")
    assert rows["id"].to_list() == ["7", None]
    assert rows["n"].to_list() == [1, 2]
    assert rows["ok"].to_list() == [True, False]
    assert rows["at"].isna().to_list() == [False, True]
    bad = frame.assign(ok=["true", "perhaps"])
    with pytest.raises(HyperGridError, match="needs a boolean in the column 'ok'; got 'perhaps' in row 2"):
        hg.continuous(archive, tables={"t": bad}).query(text)


@pytest.mark.parametrize(
    ("text", "tables", "message"),
    [
        ("Select value From air_temperature", {"air_temperature": pd.DataFrame({"a": [1]})}, "needs another name"),
        ("Register Relation t (a number); Select a From t", {}, "'t' is registered, and has no rows: give a table"),
        (
            "Register Relation t (a number); Select a From t",
            {"t": pd.DataFrame({"a": ["x"]})},
            "table 't' needs a number in the column 'a'; got 'x' in row 1",
        ),
        (
            "Register Stream t (a number); Select a From t",
            {"t": pd.DataFrame({"a": [1.0]})},
            "registered as a stream, and needs the column 'tau'",
        ),
        ("Select value From air_temperatur", {}, "did you mean 'air_temperature'"),
        ("Select a From t", {"t": 5}, "needs a pandas.DataFrame, or the path of a CSV or Parquet file; got 5"),
    ],
)
def test_bad_input_is_one_message(tmp_path: Path, text: str, tables: dict[str, object], message: str) -> None:
    archive, _ = random_sources(tmp_path / "a", 0, hours=1)
    with pytest.raises(HyperGridError, match=message):
        hg.continuous(archive, tables=tables).query(text).run()  # type: ignore[arg-type]


def test_commands_write_the_same_rows(tmp_path: Path) -> None:
    archive, _ = random_sources(tmp_path / "a", 0, hours=1)
    file, out = tmp_path / "q.cql", tmp_path / "out.csv"
    file.write_text(QUERIES[0])
    wanted = hg.continuous(archive).query(QUERIES[0]).run("2007-10-01T00:10Z", "2007-10-01T00:50Z")
    stretch = ("--from", "2007-10-01T00:10Z", "--to", "2007-10-01T00:50Z")
    done = hypergrid("cql", "backtest", archive.path, file, *stretch, "-o", out)
    assert f"{out}: {len(wanted):,} changes of the relation in order of time" in done.stderr.replace("\n", " ")
    # Back-tests give the rows of an instant in order of their values, as tasks do.
    by_value = wanted.sort_values(["tau", "sign", "station", "n", "mean"], ignore_index=True)
    _require_rows(out, by_value)
    hypergrid("cql", "backtest", archive.path, file, "--to", "2007-10-01T00:50Z", "-o", tmp_path / "out.parquet")
    assert len(pd.read_parquet(tmp_path / "out.parquet")) >= len(wanted)
    out.write_text(hypergrid("cql", "run", archive.path, file, *stretch).stdout)
    _require_rows(out, wanted)


def _require_rows(out: Path, wanted: pd.DataFrame) -> None:
    written = pd.read_csv(out)
    assert pd.to_datetime(written.pop("tau"), format="ISO8601").to_list() == wanted["tau"].to_list()
    pd.testing.assert_frame_equal(written, wanted.drop(columns="tau"), check_dtype=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "2007-10-02", "--to", "2007-10-01", "-o", "o.csv"), "needs an end after its start"),
        (("--order", "size", "-o", "o.csv"), "is read in the order time or arrival; got 'size'"),
        (("-o", "o.xlsx"), "ends in .csv or .parquet"),
        (("--table", "t", "-o", "o.csv"), "--table needs NAME=FILE; got 't'"),
        (("--table", "t=absent.csv", "-o", "o.csv"), "absent.csv does not exist"),
    ],
)
def test_commands_refuse_bad_input(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    archive, _ = random_sources(tmp_path / "a", 0, hours=1)
    file = tmp_path / "q.cql"
    file.write_text(QUERIES[0])
    done = hypergrid("cql", "backtest", archive.path, file, *words[:-1], tmp_path / words[-1])
    assert done.returncode in (1, 2)
    assert not (tmp_path / words[-1]).exists()
    assert message in " ".join(done.stderr.split())
