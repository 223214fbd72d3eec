"""Results that are kept for a time only: what stays is right, readers learn what does not, states are the past."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.continuous.archive_query import open_inputs
from hypergrid.continuous.live import (
    LiveEntry,
    LiveOptions,
    LiveQuery,
    NoLongerKept,
    TapBatch,
    TapQuery,
    add_query,
    add_tap_query,
    open_store,
)
from hypergrid.continuous.live import store as live_store
from hypergrid.continuous.live.evaluation import START, LiveElement, LiveStep
from hypergrid.continuous.live.rows import Row
from hypergrid.continuous.live.store import LiveQueriesDamaged, LiveStore
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import DAY_NS, SECOND_NS, Window
from hypergrid.query import open_archive
from tests.support.continuous_live_archives import NAMES, QUERIES, backtest, commit, create
from tests.support.networks import START_NS

HOUR_NS = 3600 * SECOND_NS
KEEP_S = 2 * 86_400.0


def make_commit(rng: np.random.Generator, number: int, hours: list[int]) -> list[Readings]:
    """Return readings of both variables at some hours of all stations, which arrive with a commit."""
    series = tuple(Series("air_temperature", name, 2.0, 1, interval_s=3600.0) for name in NAMES)
    stations, stamps = np.repeat(np.arange(len(NAMES)), len(hours)), np.tile(START_NS + np.array(hours) * HOUR_NS, 3)
    values = np.round(rng.normal(5.0, 2.0, len(stamps)))
    arrivals = np.full(len(stamps), stamps.max() + SECOND_NS * (number + 1))
    flags = np.ones(len(stamps), np.uint8)
    return [Readings(series, stations.astype(np.int32), stamps.astype(np.int64), values, flags, arrivals)]


def net_of(elements: Counter[tuple[int, Row]] | dict[tuple[int, Row], int], kept_ns: int, *, is_stream: bool) -> object:
    """Return what holds just before an instant, and what changes from it on."""
    held, changes = Counter[Row](), Counter[tuple[int, Row]]()
    for (tau, row), count in elements.items():
        if tau >= kept_ns:
            changes[tau, row] += count
        elif not is_stream:
            held[row] += count
    return {key: n for key, n in held.items() if n}, {key: n for key, n in changes.items() if n}


@pytest.mark.parametrize("name", ["mean", "stuck", "silent", "total", "near"])
def test_what_is_kept_is_the_end_of_a_back_test(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a"
    create(folder)
    text = QUERIES[name].replace("20 Minutes", "20 Hours").replace("wind_speed", "air_temperature")
    options = LiveOptions(START_NS, disorder_s=0.0)
    store = add_query(open_inputs(open_archive(folder)), name, text, options, keep_s=KEEP_S)
    rng = np.random.default_rng(3)
    query = LiveQuery(open_archive(folder), store, name)
    for number in range(32):
        # Six hours each, and one of the day before again, with other values.
        late = [6 * number - 20] if number % 3 == 2 and number > 3 else []
        commit(folder, number + 1, make_commit(rng, number, [*range(6 * number, 6 * number + 6), *late]))
        if rng.random() < 0.3:
            query = LiveQuery(open_archive(folder), open_store(folder), name)
        query.step()
        entry = query.entry
        kept_ns, heartbeat = entry.retention.kept_ns, entry.heartbeat_ns or 0
        kept = store.count_given(name, Window(START, 2**62))
        is_stream = query._tree.is_stream  # noqa: SLF001
        expected = backtest(open_archive(folder), text, START_NS, heartbeat)
        wanted = START_NS if kept_ns == START else kept_ns
        assert net_of(kept, wanted, is_stream=is_stream) == net_of(expected, wanted, is_stream=is_stream), number
        # At least as long as was asked for, and not a quarter longer.
        assert kept_ns == START or KEEP_S <= (heartbeat - kept_ns) / SECOND_NS <= 1.25 * KEEP_S + 6 * 3600
    assert query.entry.retention.kept_ns > START_NS + 4 * DAY_NS
    assert len(store.list_elements(name)) < store.list_elements(name)[-1].number
    # Too late: nothing that is kept changes, and it is counted.
    before = store.list_elements(name)
    commit(folder, 40, make_commit(rng, 33, [10]))
    query.step()
    assert query.entry.retention.too_late == 1
    assert [each for each in store.list_elements(name) if each.corrects] == [each for each in before if each.corrects]


@pytest.mark.parametrize("name", ["mean", "total", "silent"])
def test_results_over_a_tap_are_kept_for_a_time(tmp_path: Path, name: str) -> None:
    for folder in ("tap", "archive"):
        create(tmp_path / folder)
    text = QUERIES[name].replace("20 Minutes", "20 Hours").replace("wind_speed", "air_temperature")
    opened = open_archive(tmp_path / "tap")
    store = add_tap_query(opened, name, text, LiveOptions(START_NS, 60.0, 0.0), keep_s=86_400.0)
    rng, taken, query = np.random.default_rng(4), list[TapBatch](), TapQuery(opened, store, name)
    for number in range(28):
        [part] = parts = make_commit(rng, number, list(range(6 * number, 6 * number + 6)))
        commit(tmp_path / "archive", number + 1, parts)
        after = 18 * number
        records = np.arange(after + 1, after + 1 + len(part))
        taken.append(TapBatch(after, after + 18, int(part.arrival_ns.max()), {"air_temperature": (part, records)}))
        if rng.random() < 0.3 and number:
            # Another process, with what it needs of batches before.
            query = TapQuery(opened, store, name)
            missing, upto = query.missing_records() or (0, 0)
            query.restore([each for each in taken[:-1] if missing < each.upto <= upto])
        assert query.step(taken[-1]).ignored == 0
        entry = query.entry
        kept_ns = max(entry.retention.kept_ns, START_NS)
        expected = backtest(open_archive(tmp_path / "archive"), text, START_NS, entry.heartbeat_ns or 0)
        kept, is_stream = store.count_given(name, Window(START, 2**62)), name == "silent"
        assert net_of(kept, kept_ns, is_stream=is_stream) == net_of(expected, kept_ns, is_stream=is_stream), number
    assert query.entry.retention.kept_ns > START_NS + 4 * DAY_NS
    assert query.entry.retention.dropped > 0


def step_of(elements: list[tuple[int, int, str]], heartbeat: int, **rest: object) -> LiveStep:
    rows = tuple(LiveElement(tau, sign, (row,)) for tau, sign, row in elements)
    return LiveStep(rows, {heartbeat: b""}, (), 0, **rest)  # type: ignore[arg-type]


def give(store: LiveStore, name: str, elements: list[tuple[int, int, str]], kept_ns: int = START, **rest: bool) -> None:
    """Keep a step with some elements: instant, sign and row."""
    entry = store.find(name)
    kept_ns = max(kept_ns, entry.retention.kept_ns)
    store.keep(entry, "s", step_of(elements, (entry.heartbeat_ns or 0) + 1, kept_ns=kept_ns, **rest))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LiveStore]:
    made = LiveStore(tmp_path / "live.sqlite")
    for name in ("a", "b"):
        made.add(name, "text", LiveOptions(0), keep_s=86_400.0)
    yield made
    made.close()


def rows_of(store: LiveStore, after: int = 0, name: str = "a") -> list[tuple[int, int, object]]:
    return [(each.tau_ns, each.sign, each.row[0]) for each in store.list_elements(name, after)]


def test_rows_that_hold_stay_under_numbers_that_no_reader_knows(store: LiveStore) -> None:
    give(store, "b", [(5, 1, "other")])
    give(store, "a", [(10, 1, "x"), (10, 1, "y"), (12, 1, "x"), (20, -1, "y"), (25, -1, "x"), (30, 1, "z")])
    known = [each.number for each in store.list_elements("a")]
    # What a step gives is not dropped by that step, so that a reader of all before it misses nothing.
    give(store, "a", [(29, 1, "late"), (40, -1, "z")], 30)
    kept = store.list_elements("a")
    # Of x one of two is left; its number is new, as a reader of the first elements would take it for another row.
    wanted = [(12, 1, "x"), (30, 1, "z"), (29, 1, "late"), (40, -1, "z")]
    assert rows_of(store) == wanted
    assert kept[0].number < 0
    assert kept[1].number == known[-1]
    assert store.count_rows("a") == {("x",): 1, ("late",): 1}
    assert store.list_elements("a", limit=3, newest=True) == kept[1:]
    assert store.list_elements("a", kept[0].number, 9, newest=True) == kept[1:]
    # A reader that has all that was dropped goes on; others are told, also in the midst of what was there before.
    assert rows_of(store, known[-2]) == rows_of(store, kept[0].number) == wanted[1:]
    for after in (known[0], known[3], -(10**6)):
        with pytest.raises(NoLongerKept, match=r"'a' after number .* are kept: .* begin again after number 0"):
            store.list_elements("a", after)
    # What is late, of an instant before, is kept until what was given before it is dropped.
    give(store, "a", [(50, 1, "v")], 35)
    assert rows_of(store) == [(12, 1, "x"), (30, 1, "z"), (29, 1, "late"), (40, -1, "z"), (50, 1, "v")]
    give(store, "a", [(70, -1, "x")], 45)
    assert rows_of(store) == [(12, 1, "x"), (29, 1, "late"), (50, 1, "v"), (70, -1, "x")]
    with pytest.raises(NoLongerKept):
        store.list_elements("a", kept[0].number)
    assert store.count_rows("a") == {("v",): 1, ("late",): 1}
    assert rows_of(store, name="b") == [(5, 1, "other")]
    assert store.list_damaged() == []


def test_of_a_stream_nothing_is_held(store: LiveStore) -> None:
    give(store, "a", [(10, 1, "x"), (20, 1, "y")], is_stream=True)
    give(store, "a", [(30, 1, "z")], 20, is_stream=True)
    assert rows_of(store) == [(20, 1, "y"), (30, 1, "z")]
    give(store, "a", [], 99, is_stream=True)
    assert store.list_elements("a") == []
    with pytest.raises(NoLongerKept):
        store.list_elements("a", 1)
    give(store, "a", [(99, 1, "new")], is_stream=True)
    assert [each.number for each in store.list_elements("a")] == [4]
    assert store.list_elements("a", 3) == store.list_elements("a")


def test_a_reader_that_has_all_is_not_refused_for_what_others_gave(store: LiveStore) -> None:
    give(store, "a", [(10, 1, "x")])
    for tau in range(10, 60, 10):
        give(store, "b", [(tau, 1, f"row {tau}")])
    give(store, "a", [(50, 1, "y")])
    give(store, "a", [], 20)
    assert rows_of(store, 1) == [(50, 1, "y")]
    # A reader of what held has all as long as nothing else is dropped, however often it is looked for.
    give(store, "b", [], 100)
    (held,) = [each.number for each in store.list_elements("a") if each.number < 0]
    for kept_ns in (30, 40, 50):
        give(store, "a", [], kept_ns)
        assert rows_of(store, held) == [(50, 1, "y")]
    assert store.find("a").retention.kept_ns == 50
    assert store.count_rows("a") == {("x",): 1, ("y",): 1}
    assert len(rows_of(store, name="b")) == 5


def test_numbers_below_0_are_used_once(store: LiveStore) -> None:
    give(store, "a", [(10, 1, "x"), (11, 1, "y")])
    give(store, "a", [], 20)
    give(store, "b", [(10, 1, "other")])
    give(store, "b", [], 20)
    known = {each.number for name in "ab" for each in store.list_elements(name)}
    store.remove("a")
    store.add("a", "text", LiveOptions(0))
    assert store.find("a").retention.keep_s is None
    assert store.list_elements("a", 5) == []
    store.change_keep("a", 86_400.0)
    give(store, "a", [(10, 1, "x")])
    give(store, "a", [], 20)
    again = store.list_elements("a")
    assert again[0].number < min(known)
    assert rows_of(store) == [(10, 1, "x")]
    for number in known:
        with pytest.raises(NoLongerKept):
            store.list_elements("a", number)


def test_much_is_dropped_in_portions(store: LiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_store, "PORTION", 4)
    rng = np.random.default_rng(5)
    elements, held = list[tuple[int, int, str]](), Counter[str]()
    for tau in range(60):
        row = str(rng.integers(0, 5))
        sign = -1 if held[row] and rng.random() < 0.5 else 1
        held[row] += sign
        elements.append((tau, sign, row))
    # Corrections: a row that leaves before it enters by number.
    elements += [(3, -1, "9"), (2, 1, "9"), (61, 1, "end")]
    give(store, "a", elements)
    lengths = []
    for _ in range(20):
        give(store, "a", [], 60)
        assert {row: n for (row,), n in store.count_rows("a").items()} == +held + Counter({"end": 1})
        lengths.append(len(store.list_elements("a")))
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) > 5
    assert lengths[-1] == sum(held.values()) + 1


def test_what_is_damaged_is_not_dropped(store: LiveStore) -> None:
    give(store, "a", [(10, 1, "x"), (20, -1, "x"), (30, 1, "y")])
    with store._transaction():  # noqa: SLF001
        store._db.execute("UPDATE elements SET checksum = 'none' WHERE number = 2")  # noqa: SLF001
    give(store, "a", [], 99)
    assert store.list_damaged() == ["row 2 of elements"]
    assert rows_of(store) == [(10, 1, "x"), (30, 1, "y")]
    with store._transaction():  # noqa: SLF001
        store._db.execute("UPDATE retentions SET checksum = 'none' WHERE name = 'b'")  # noqa: SLF001
    with pytest.raises(LiveQueriesDamaged, match="that live query 'b' keeps is damaged; remove the query"):
        store.find("b")
    store.remove("b")
    assert [entry.name for entry in store.list_entries()] == ["a"]


def test_a_step_that_ends_while_rows_are_dropped_changes_nothing(
    store: LiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(store, "a", [(10, 1, "x"), (20, -1, "x"), (30, 1, "y")])
    before, drop = (store.list_elements("a"), store.find("a")), store._drop_before  # noqa: SLF001

    def end(entry: LiveEntry, step: LiveStep) -> None:
        drop(entry, step)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store, "_drop_before", end)
        with pytest.raises(KeyboardInterrupt):
            give(store, "a", [(40, 1, "z")], 35)
    assert (store.list_elements("a"), store.find("a")) == before
    give(store, "a", [(40, 1, "z")], 35)
    assert [(each.number, each.row[0]) for each in store.list_elements("a")] == [(-1, "y"), (4, "z")]


def test_a_follower_that_has_all_goes_on_over_a_step_that_is_longer_than_rows_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    rng = np.random.default_rng(3)
    query = hg.continuous(folder).live(QUERIES["mean"], name="mean", start=START_NS, keep_s=86_400.0)
    ends = iter([False, False, False, True])
    commits = iter([range(24), range(24, 240), range(240, 480)])

    def is_over() -> bool:
        if hours := next(commits, None):
            commit(folder, hours.start + 1, make_commit(rng, hours.start, list(hours)))
        return next(ends)

    numbers = [each.number for each in query.follow(is_over=is_over, poll_s=0.0)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert query.entry.retention.dropped > 0


def test_a_station_that_moved_before_what_is_kept_moves_what_follows(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    rng = np.random.default_rng(3)
    text = (
        "Select n.station, n.value, s.elevation_m From air_temperature [Now] n, stations s Where n.station = s.station"
    )
    query = hg.continuous(folder).live(text, name="near", start=START_NS, keep_s=KEEP_S, disorder_s=0.0)
    for number in range(24):
        commit(folder, number + 1, make_commit(rng, number, list(range(6 * number, 6 * number + 6))))
        query.step()
    move_ns = START_NS + DAY_NS
    assert query.entry.retention.kept_ns > move_ns
    with Archive.open(folder).commit(batch="moved", message="moved", now_ns=START_NS) as writer:
        places = Position(None, 7.177, 45.867, 2300.0), Position(move_ns, 7.2, 45.9, 9999.0)
        writer.stations([Station("s0", "S0", places)])
    query.step()
    commit(folder, 99, make_commit(rng, 24, list(range(144, 150))))
    query.step()
    kept_ns, rows = query.entry.retention.kept_ns, query.rows()
    rows = rows[rows["tau"] >= pd.Timestamp(kept_ns, tz="UTC")]
    net = (
        rows[rows["station"] == "s0"]
        .groupby("elevation_m")["sign"]
        .apply(lambda sign: (sign > 0).sum() - (sign < 0).sum())
    )
    assert net[9999.0] == 0
    expected = backtest(open_archive(folder), text, START_NS, query.entry.heartbeat_ns or 0)
    kept = open_store(folder).count_given("near", Window(START, 2**62))
    assert net_of(kept, kept_ns, is_stream=False)[1] == net_of(expected, kept_ns, is_stream=False)[1]  # type: ignore[index]


def test_how_long_results_are_kept_can_be_changed(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    rng = np.random.default_rng(3)
    commit(folder, 1, make_commit(rng, 0, list(range(10 * 24))))
    archive = hg.continuous(folder)
    with pytest.raises(InvalidQuery, match=r"kept for a day to 500 years, or always; got 3,600 s"):
        archive.live(QUERIES["mean"], name="mean", keep_s=3600.0)
    assert archive.live_queries() == []
    query = archive.live(QUERIES["mean"], name="mean", start=START_NS)
    query.step()
    whole = len(query.rows())
    query.change_keep(KEEP_S)
    commit(folder, 2, make_commit(rng, 1, list(range(10 * 24, 13 * 24))))
    query.step()
    # The states from which on results are kept are made from now on.
    assert query.entry.retention.keep_s == KEEP_S
    assert 0 < len(query.rows()) < whole
    kept_ns = query.entry.retention.kept_ns
    query.change_keep(None)
    commit(folder, 3, make_commit(rng, 2, list(range(13 * 24, 19 * 24))))
    query.step()
    assert query.entry.retention.kept_ns == kept_ns
    with pytest.raises(InvalidQuery, match="a day to 500 years"):
        query.change_keep(float("nan"))
    with pytest.raises(NotFound):
        open_store(folder).change_keep("none", None)


def test_a_file_of_an_earlier_program_keeps_all(tmp_path: Path) -> None:
    store = LiveStore(tmp_path / "live.sqlite")
    store.add("a", "text", LiveOptions(0))
    give(store, "a", [(10, 1, "x")])
    store.close()
    with closing(sqlite3.connect(tmp_path / "live.sqlite")) as db:
        db.execute("DROP TABLE retentions")
        db.execute("DROP INDEX elements_by_number")
    again = LiveStore(tmp_path / "live.sqlite")
    assert again.find("a").retention.kept_ns == START
    again.change_keep("a", 86_400.0)
    assert again.find("a").retention.keep_s == 86_400.0
    assert len(again.list_elements("a")) == 1
