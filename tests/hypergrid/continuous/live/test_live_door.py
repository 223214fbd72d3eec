"""Live queries as Python users hold them: rows that are resumed, what holds now, tables that are kept."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.continuous.live import LiveOptions, LiveQuery, StepTaken, add_tap_query, open_store
from hypergrid.continuous.live.store import LiveQueriesDamaged
from hypergrid.continuous.live.tables import pack_table, unpack_table
from hypergrid.continuous.names import RESERVED
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.query import open_archive
from tests.support.continuous_live_archives import QUERIES, backtest, commit, create, draw_commits, given
from tests.support.networks import START_NS

LIMITS = pd.DataFrame({"station": ["s0", "s1"], "most": [3.0, 5.0], "is_near": [True, None]})
WARM = "Select a.station, a.value From air_temperature [Range 20 Minutes] a, limits l Where a.station = l.station and "
WARM += "a.value > l.most and l.is_near is null"


def test_rows_are_resumed_and_what_holds_now_is_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    commits = draw_commits(3, 4)
    commit(folder, 0, commits[0])
    assert hg.continuous(folder).live_queries() == []
    mean = hg.continuous(folder).live(QUERIES["mean"], name="mean", start=START_NS)
    near = hg.continuous(folder).live(QUERIES["near"], name="near", start=START_NS)
    first = mean.rows()
    assert first.empty
    assert list(first.columns) == ["number", "tau", "sign", "station", "mean", "k", "corrects", "snapshot"]
    seen: list[int] = []
    for number in range(1, 4):
        commit(folder, number, commits[number])
        mean.step()
        near.step()
        after = seen[-1] if seen else 0
        rows = mean.rows(after)
        assert rows.equals(mean.rows(after, limit=len(rows)))
        seen += rows["number"].tolist()
    whole = mean.rows()
    assert seen == whole["number"].tolist()
    assert whole["corrects"].notna().any()
    assert str(whole["tau"].dtype) == "datetime64[ns, UTC]"
    (entry, _) = hg.continuous(folder).live_queries()
    assert (entry.name, entry.snapshot) == ("mean", open_archive(folder).snapshot)
    # What holds is what a back-test says at the last instant before the heartbeat.
    assert entry.heartbeat_ns is not None
    expected = hg.continuous(folder).query(QUERIES["mean"]).relation(entry.heartbeat_ns - 1, start=START_NS)  # type: ignore[call-arg]
    held = hg.continuous(folder).live_query("mean").relation()
    assert len(held)
    assert list(map(str, held.dtypes)) == list(map(str, expected.dtypes))
    assert Counter(held.itertuples(index=False)) == Counter(expected.itertuples(index=False))
    with pytest.raises(InvalidQuery, match="'near' gives a stream"):
        near.relation()
    followed = near.follow(after=int(near.rows()["number"].iloc[-2]), is_over=iter([False, True]).__next__, poll_s=0)
    assert [element.number for element in followed] == [near.rows()["number"].iloc[-1]]
    mean.remove()
    with pytest.raises(NotFound, match="live query"):
        hg.continuous(folder).live_query("mean")


def test_programs_that_take_turns_give_each_step_once(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    commits = draw_commits(4, 6)
    programs = [hg.continuous(folder).live(QUERIES["total"], name="total", start=START_NS)]
    programs.append(LiveQuery(open_archive(folder), open_store(folder), "total"))
    for number, parts in enumerate(commits):
        commit(folder, number, parts)
        programs[number % 2].step()
    entry = programs[0].entry
    assert given(folder, "total") == backtest(open_archive(folder), QUERIES["total"], START_NS, entry.heartbeat_ns or 0)
    programs[1].remove()
    with pytest.raises(NotFound):
        programs[0].step()
    assert issubclass(StepTaken, InvalidQuery)


def test_tables_are_kept_with_the_query(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    archive = hg.continuous(folder, tables={"limits": LIMITS, "unread": LIMITS})
    archive.live(WARM, name="warm", start=START_NS)
    (entry,) = archive.live_queries()
    assert list(entry.options.tables) == ["limits"]
    for number, parts in enumerate(draw_commits(5, 3)):
        commit(folder, number, parts)
    # Another program, which is not given the table.
    query = hg.continuous(folder).live_query("warm")
    query.step()
    heartbeat = query.entry.heartbeat_ns or 0
    rows = query.rows()
    assert set(rows["station"]) == {"s1"}
    expected = hg.continuous(folder, tables={"limits": LIMITS}).query(WARM).run(START_NS, heartbeat)
    keys = ["tau", "sign", "station", "value"]
    assert Counter(rows[keys].itertuples(index=False)) == Counter(expected[keys].itertuples(index=False))
    store = open_store(folder)
    with store._transaction():  # noqa: SLF001
        store._db.execute("UPDATE tables SET content = ?", (pack_table(LIMITS.head(1)),))  # noqa: SLF001
    with pytest.raises(LiveQueriesDamaged, match="table 'limits' of live query 'warm' is not the one that was added"):
        hg.continuous(folder).live_query("warm")


def test_a_table_is_kept_with_its_types_and_units() -> None:
    frame = pd.DataFrame(
        {
            "text": ["a", None], "number": [1.5, None], "integer": pd.array([1, None], "Int64"),
            "time": pd.to_datetime(["2007-10-01", None]).as_unit("ns"), "flag": [True, False],
        }
    )  # fmt: skip
    frame.attrs["units"] = {"number": "degC"}
    kept = unpack_table(pack_table(frame))
    pd.testing.assert_frame_equal(kept, frame)
    assert kept.attrs == frame.attrs


def test_what_cannot_be_live_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    views = hg.continuous(folder, views={"V": "Select station From readings"})
    with pytest.raises(InvalidQuery, match="needs its views in its text"):
        views.live("Select * From V [Now]", name="v")
    for name in ("", " a", "a\n", "a" * 64, "Ärger €", "Mean", "-a", "a/b"):
        with pytest.raises(InvalidQuery, match="needs 1 to 63 lower-case letters"):
            hg.continuous(folder).live(QUERIES["mean"], name=name)
    for name in RESERVED:
        with pytest.raises(InvalidQuery, match="which pages have"):
            hg.continuous(folder).live(QUERIES["mean"], name=name)
        with pytest.raises(InvalidQuery, match="which pages have"):
            add_tap_query(hg.open(folder), name, QUERIES["mean"], LiveOptions(START_NS))
    assert hg.continuous(folder).live_queries() == []
