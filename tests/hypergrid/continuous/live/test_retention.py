"""Results that are kept for a time only: what stays is right, readers learn what does not, states are the past."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive.disk.state_database import StateDatabase
from hypergrid.continuous.archive_query import open_inputs
from hypergrid.continuous.live import LiveOptions, LiveQuery, NoLongerKept, add_query, open_store
from hypergrid.continuous.live.evaluation import START, LiveElement, LiveStep
from hypergrid.continuous.live.rows import Row
from hypergrid.continuous.live.store import LiveStore
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Readings, Series
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


def step_of(elements: list[tuple[int, int, str]], heartbeat: int, **rest: object) -> LiveStep:
    rows = tuple(LiveElement(tau, sign, (row,)) for tau, sign, row in elements)
    return LiveStep(rows, {heartbeat: b""}, (), 0, **rest)  # type: ignore[arg-type]


def fill(store: LiveStore, name: str, steps: list[tuple[list[tuple[int, int, str]], int]], **rest: object) -> None:
    for elements, kept_ns in steps:
        heartbeat = max([tau for tau, _, _ in elements], default=0) + 1 + (store.find(name).heartbeat_ns or 0)
        store.keep(store.find(name), "s", step_of(elements, heartbeat, kept_ns=kept_ns, **rest))


def test_rows_that_hold_stay_under_numbers_that_nobody_knows(tmp_path: Path) -> None:
    store = LiveStore(tmp_path / "live.sqlite")
    for name in ("a", "b"):
        store.add(name, "text", LiveOptions(0), keep_s=86_400.0)
    fill(store, "b", [([(5, 1, "other")], START)])
    first = [(10, 1, "x"), (10, 1, "y"), (12, 1, "x"), (20, -1, "y"), (25, -1, "x"), (30, 1, "z")]
    fill(store, "a", [(first, START)])
    known = [each.number for each in store.list_elements("a")]
    fill(store, "a", [([(40, -1, "z")], 30)])
    kept = store.list_elements("a")
    # Of x one of two is left; its number is new, as who knows the first elements would take it for another row.
    assert [(each.tau_ns, each.sign, each.row) for each in kept] == [(12, 1, ("x",)), (30, 1, ("z",)), (40, -1, ("z",))]
    assert kept[0].number < 0
    assert kept[1].number == known[-1]
    assert store.count_rows("a") == {("x",): 1}
    assert store.find_number("a", 1) == kept[1].number
    # A reader that has all that was dropped goes on; others are told, also in the midst of what was there before.
    assert store.list_elements("a", known[-2]) == kept[1:]
    assert store.list_elements("a", kept[0].number) == kept[1:]
    for after in (known[0], known[3], -(10**6)):
        with pytest.raises(NoLongerKept, match=r"'a' after number .* were dropped; begin again after number 0"):
            store.list_elements("a", after)
    # What comes late, of an instant before, is kept until what was given before it is dropped.
    fill(store, "a", [([(50, 1, "v"), (35, 1, "late"), (60, 1, "w")], START), ([(70, -1, "x")], 45)])
    again = store.list_elements("a")
    assert [(each.tau_ns, each.row[0]) for each in again] == [(12, "x"), (50, "v"), (35, "late"), (60, "w"), (70, "x")]
    with pytest.raises(NoLongerKept):
        store.list_elements("a", kept[0].number)
    assert store.count_rows("a") == {("v",): 1, ("late",): 1, ("w",): 1}
    assert [each.row for each in store.list_elements("b")] == [("other",)]
    assert store.list_damaged() == []
    store.remove("a")
    store.add("a", "text", LiveOptions(0))
    assert store.find("a").retention.keep_s is None
    assert store.list_elements("a", 5) == []


def test_of_a_stream_nothing_is_held(tmp_path: Path) -> None:
    store = LiveStore(tmp_path / "live.sqlite")
    store.add("a", "text", LiveOptions(0), keep_s=86_400.0)
    fill(store, "a", [([(10, 1, "x"), (20, 1, "y")], START), ([(30, 1, "z")], 20)], is_stream=True)
    assert [each.row[0] for each in store.list_elements("a")] == ["y", "z"]
    fill(store, "a", [([], 99)], is_stream=True)
    assert store.list_elements("a") == []
    with pytest.raises(NoLongerKept):
        store.list_elements("a", 1)
    fill(store, "a", [([(99, 1, "new")], START)], is_stream=True)
    assert [each.number for each in store.list_elements("a")] == [4]
    assert store.list_elements("a", 3) == store.list_elements("a")


def test_a_step_that_ends_while_rows_are_dropped_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LiveStore(tmp_path / "live.sqlite")
    store.add("a", "text", LiveOptions(0), keep_s=86_400.0)
    fill(store, "a", [([(10, 1, "x"), (20, -1, "x"), (30, 1, "y")], START)])
    before, drop = (store.list_elements("a"), store.find("a")), store._drop_before  # noqa: SLF001

    def end(*arguments: object, **rest: object) -> None:
        drop(*arguments, **rest)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store, "_drop_before", end)
        with pytest.raises(KeyboardInterrupt):
            fill(store, "a", [([(40, 1, "z")], 35)])
    assert (store.list_elements("a"), store.find("a")) == before
    fill(store, "a", [([(40, 1, "z")], 35)])
    assert [(each.number, each.row[0]) for each in store.list_elements("a")] == [(-1, "y"), (4, "z")]


def test_how_long_results_are_kept_can_be_changed(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    rng = np.random.default_rng(3)
    commit(folder, 1, make_commit(rng, 0, list(range(10 * 24))))
    archive = hg.continuous(folder)
    with pytest.raises(InvalidQuery, match=r"kept for a day or longer, or always; got 3,600 s"):
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
    with pytest.raises(InvalidQuery, match="a day or longer"):
        query.change_keep(float("nan"))
    with pytest.raises(NotFound):
        open_store(folder).change_keep("none", None)


def test_a_file_of_an_earlier_program_keeps_all(tmp_path: Path) -> None:
    store = LiveStore(tmp_path / "live.sqlite")
    store.add("a", "text", LiveOptions(0))
    fill(store, "a", [([(10, 1, "x")], START)])
    with StateDatabase._transaction(store):  # noqa: SLF001
        store._db.execute("DROP TRIGGER retentions_added")  # noqa: SLF001
        store._db.execute("DROP TABLE main.retentions")  # noqa: SLF001
    store.close()
    again = LiveStore(tmp_path / "live.sqlite")
    assert again.find("a").retention.kept_ns == START
    again.change_keep("a", 86_400.0)
    assert again.find("a").retention.keep_s == 86_400.0
    assert len(again.list_elements("a")) == 1
