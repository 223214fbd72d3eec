"""Live queries over a tap: all that was given is one evaluation over an archive of the same readings."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.continuous.live import LiveQuery, LiveStore, TapBatch, TapQuery, add_tap_query, open_store
from hypergrid.continuous.live import tap_query as module
from hypergrid.continuous.live.store import LiveOptions, LiveQueriesUnavailable
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.readings import Position, Readings, Series, Station, concatenate, share_series
from hypergrid.core.times import SECOND_NS
from hypergrid.core.units import KNOWN_VARIABLES
from hypergrid.query import open_archive
from tests.hypergrid.continuous.live.test_live_query import make_unreadable
from tests.support.continuous_live_archives import QUERIES, VARIABLES, backtest, commit, create, draw_commits, given
from tests.support.networks import SLICE_S, START_NS

DAY_NS = 86_400 * SECOND_NS


def make_batches(commits: list[list[Readings]]) -> Iterator[TapBatch]:
    """Yield the readings of commits as batches of records, a record for each reading."""
    number = 0
    for parts in commits:
        first, readings = number, {}
        for name, part in zip(VARIABLES, parts, strict=True):
            readings[name] = (part, np.arange(number + 1, number + 1 + len(part)))
            number += len(part)
        # A tick beside them.
        number += 1
        clock_ns = max((int(part.arrival_ns.max()) for part in parts if len(part)), default=0)
        yield TapBatch(first, number, clock_ns, readings)


def restart(folder: Path, store: LiveStore, name: str, taken: list[TapBatch]) -> TapQuery:
    """Return the evaluation of another process, with what it needs of batches before."""
    query = TapQuery(open_archive(folder), store, name)
    missing = query.missing_records()
    if missing is not None:
        query.restore([cut(batch, *missing) for batch in taken])
    return query


def cut(batch: TapBatch, after: int, upto: int) -> TapBatch:
    readings = {}
    for name, (part, records) in batch.readings.items():
        inside = (records > after) & (records <= upto)
        readings[name] = (part.take_rows(inside), records[inside])
    return batch._replace(readings=readings)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_results_and_corrections_are_one_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    monkeypatch.setattr(module, "KEPT_NS", DAY_NS)
    commits = draw_commits(seed, 12)
    for folder in ("tap", "archive"):
        create(tmp_path / folder)
    text = QUERIES[name] if seed == 1 else f"{QUERIES[name].removesuffix(' EMIT NOW')} EMIT NOW"
    # The stamps of the test are ahead of the arrivals, which only count commits.
    archive = open_archive(tmp_path / "tap")
    store = add_tap_query(archive, "q", text, LiveOptions(START_NS, 86_400.0))
    taken: list[TapBatch] = []
    query = restart(tmp_path / "tap", store, "q", taken)
    rng = np.random.default_rng(seed)
    for number, batch in enumerate(make_batches(commits)):
        if rng.random() < 0.3:
            query = restart(tmp_path / "tap", store, "q", taken)
        assert query.step(batch).ignored == 0
        taken.append(batch)
        commit(tmp_path / "archive", number, commits[number])
        heartbeat = query.entry.heartbeat_ns
        assert heartbeat is not None
        if number % 4 == 3 and heartbeat > START_NS:
            expected = backtest(open_archive(tmp_path / "archive"), text, START_NS, heartbeat)
            assert given(tmp_path / "tap", "q") == expected
    assert query.entry.late > 0


@pytest.mark.parametrize("name", ["mean", "join", "total", "stuck"])
def test_readings_that_come_too_late_are_counted_and_the_others_are_exact(tmp_path: Path, name: str) -> None:
    commits = draw_commits(3, 12)
    for folder in ("tap", "archive"):
        create(tmp_path / folder)
    store = add_tap_query(open_archive(tmp_path / "tap"), "q", QUERIES[name], LiveOptions(START_NS, 86_400.0))
    query = restart(tmp_path / "tap", store, "q", [])
    ignored = number = 0
    for parts in commits:
        kept: list[list[int]] = [[] for _ in VARIABLES]
        for variable, part in enumerate(parts):
            for row in range(len(part)):
                one = part.take_rows(np.array([row]))
                batch = TapBatch(
                    number, number + 1, int(one.arrival_ns[0]), {VARIABLES[variable]: (one, np.array([number + 1]))}
                )
                number += 1
                if query.step(batch).ignored:
                    ignored += 1
                else:
                    kept[variable].append(row)
        commit(
            tmp_path / "archive", number,
            [part.take_rows(np.array(rows, np.intp)) for part, rows in zip(parts, kept, strict=True)],
        )  # fmt: skip
    heartbeat = query.entry.heartbeat_ns
    assert ignored > 0
    assert heartbeat is not None
    expected = backtest(open_archive(tmp_path / "archive"), QUERIES[name], START_NS, heartbeat)
    assert given(tmp_path / "tap", "q") == expected


def join(batches: list[TapBatch]) -> TapBatch:
    """Return batches that follow each other as one."""
    readings = {}
    for name in dict.fromkeys(name for batch in batches for name in batch.readings):
        parts, records = zip(*(batch.readings[name] for batch in batches if name in batch.readings), strict=True)
        readings[name] = (concatenate(share_series(*parts)), np.concatenate(records))
    return TapBatch(batches[0].after, batches[-1].upto, max(batch.clock_ns for batch in batches), readings)


@pytest.mark.parametrize("name", ["mean", "join", "total", "stuck"])
@pytest.mark.parametrize("ending", ["", " EMIT NOW"])
@pytest.mark.parametrize("seed", [3, 4])
def test_a_restart_changes_nothing(tmp_path: Path, name: str, ending: str, seed: int) -> None:
    create(tmp_path / "tap")
    rng = np.random.default_rng(seed)
    text = QUERIES[name].removesuffix(" EMIT NOW") + ending
    queries, stores = {}, {}
    for label in ("whole", "restarted"):
        stores[label] = add_tap_query(open_archive(tmp_path / "tap"), label, text, LiveOptions(START_NS, 60.0))
        queries[label] = restart(tmp_path / "tap", stores[label], label, [])
    taken: list[TapBatch] = []
    ignored = 0
    for batch in make_short_batches(draw_commits(seed, 12), rng):
        if taken and rng.random() < 0.2:
            query = TapQuery(open_archive(tmp_path / "tap"), stores["restarted"], "restarted")
            missing = query.missing_records()
            assert missing is not None
            # As the tap reads them: cut anywhere.
            parts = [part for each in taken if len((part := cut(each, *missing)).readings) and each.upto > missing[0]]
            at = int(rng.integers(len(parts) + 1))
            query.restore([join(half) for half in (parts[:at], parts[at:]) if half])
            queries["restarted"] = query
        steps = {label: query.step(batch) for label, query in queries.items()}
        taken.append(batch)
        ignored += steps["whole"].ignored
        assert steps["whole"] == steps["restarted"]
        assert queries["whole"].entry.heartbeat_ns == queries["restarted"].entry.heartbeat_ns
    assert ignored > 0
    rows = {
        label: [(each.tau_ns, each.sign, each.row, each.corrects is None) for each in store.list_elements(label)]
        for label, store in stores.items()
    }
    assert rows["whole"] == rows["restarted"]
    assert any(not is_new for *_, is_new in rows["whole"])


@pytest.mark.parametrize(("name", "silent_s"), [("mean", 0), ("join", 0), ("number", 400)])
@pytest.mark.parametrize("seed", [5, 6])
def test_a_state_of_another_program_is_made_anew_from_the_tap(
    tmp_path: Path, name: str, silent_s: int, seed: int
) -> None:
    create(tmp_path / "tap")
    queries, stores = {}, {}
    text = {**QUERIES, "number": "Select count(*) as k From air_temperature [Range 20 Minutes]"}[name]
    # A query that is there before any reading shows a row of none with the first.
    options = LiveOptions(START_NS - DAY_NS if silent_s else START_NS, 60.0)
    for label in ("whole", "upgraded"):
        stores[label] = add_tap_query(open_archive(tmp_path / "tap"), label, text, options)
        queries[label] = restart(tmp_path / "tap", stores[label], label, [])
    taken: list[TapBatch] = []
    floors = []
    for batch in make_short_batches(draw_commits(seed, 12), np.random.default_rng(seed)):
        for variable, (part, records) in batch.readings.items():
            late = part.time_ns >= START_NS + silent_s * SECOND_NS
            batch.readings[variable] = (part.take_rows(late), records[late])  # type: ignore[index]
        if len(taken) % 7 == 2:
            make_unreadable(stores["upgraded"], "upgraded")
            queries["upgraded"] = restart(tmp_path / "tap", stores["upgraded"], "upgraded", taken)
            floors.append(queries["upgraded"]._versions.floor_ns)
        steps = {label: query.step(batch) for label, query in queries.items()}
        taken.append(batch)
        assert steps["whole"] == steps["upgraded"]
    assert floors[-1] > START_NS, "all readings were still in memory"
    rows = [[(each.tau_ns, each.sign, each.row) for each in stores[label].list_elements(label)] for label in stores]
    assert rows[0] == rows[1] != []


def test_a_state_that_cannot_be_made_anew_stops_the_query_and_says_so(tmp_path: Path) -> None:
    create(tmp_path / "tap")
    store = add_tap_query(open_archive(tmp_path / "tap"), "q", QUERIES["stuck"], LiveOptions(START_NS, 60.0))
    query = restart(tmp_path / "tap", store, "q", [])
    *taken, last = make_batches(draw_commits(5, 12))
    for batch in taken:
        query.step(batch)
    assert query._versions.floor_ns > START_NS
    make_unreadable(store, "q")
    query = restart(tmp_path / "tap", store, "q", taken)
    with pytest.raises(InvalidQuery, match="written by another program.*not in the tap any more; remove the query"):
        query.step(last)


def make_short_batches(commits: list[list[Readings]], rng: np.random.Generator) -> Iterator[TapBatch]:
    """Yield the readings of commits in batches of one to some records, a record for each reading; some come twice."""
    number, arrival_ns = 0, START_NS
    for parts in commits:
        rows = [(name, part, row) for name, part in zip(VARIABLES, parts, strict=True) for row in range(len(part))]
        while rows:
            group, rows = rows[: (count := int(rng.integers(1, 6)))], rows[count:]
            group += [each for each in group if rng.random() < 0.2]
            batches = []
            for name, part, row in group:
                number += 1
                arrival_ns = max(arrival_ns + 1, int(part.time_ns[row]))
                one = replace(part.take_rows(np.array([row])), arrival_ns=np.array([arrival_ns]))
                batches.append(TapBatch(number - 1, number, arrival_ns, {name: (one, np.array([number]))}))
            yield join(batches)


def test_a_batch_that_does_not_follow_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    create(tmp_path / "tap")
    store = add_tap_query(open_archive(tmp_path / "tap"), "q", QUERIES["total"], LiveOptions(START_NS, 86_400.0))
    query = restart(tmp_path / "tap", store, "q", [])
    first, second, third = list(make_batches(draw_commits(1, 24)))[:3]
    query.step(first)
    entry = query.entry
    with pytest.raises(InvalidQuery, match="does not follow"):
        query.step(third)
    assert query.entry == entry
    query.step(second)
    with pytest.raises(InvalidQuery, match="does not follow"):
        query.step(second)


def test_a_clock_that_is_ahead_moves_no_other_station(tmp_path: Path) -> None:
    create(tmp_path / "tap")
    store = add_tap_query(open_archive(tmp_path / "tap"), "q", QUERIES["first"], LiveOptions(START_NS, 60.0))
    query = restart(tmp_path / "tap", store, "q", [])
    part = draw_commits(1, 1)[0][0]
    one = part.take_rows(np.arange(2))
    stamps = np.array([START_NS + 10 * SECOND_NS, START_NS + DAY_NS])
    arrived = np.full(2, START_NS + 11 * SECOND_NS)
    jumped = Readings(one.series, one.index, stamps, np.full(2, 9.0), one.flag, arrived)
    step = query.step(TapBatch(0, 2, int(arrived[0]), {VARIABLES[0]: (jumped, np.array([1, 2]))}))
    assert (step.elements, step.ignored) == (1, 1)
    assert query.entry.heartbeat_ns == START_NS + 10 * SECOND_NS + 1


def test_a_query_over_the_archive_is_none_over_the_tap(tmp_path: Path) -> None:
    create(tmp_path / "tap")
    archive, store = open_archive(tmp_path / "tap"), open_store(tmp_path / "tap")
    store.add("a", QUERIES["mean"], LiveOptions(START_NS))
    store.add("t", QUERIES["mean"], LiveOptions(START_NS, source="tap"))
    with pytest.raises(InvalidQuery, match="follows the archive; 'hypergrid serve' evaluates it"):
        TapQuery(archive, store, "a")
    with pytest.raises(InvalidQuery, match="follows the tap; 'hypergrid cql watch' evaluates it"):
        LiveQuery(archive, store, "t").step()
    with pytest.raises(InvalidQuery, match="idle_s above 0"):
        add_tap_query(open_archive(tmp_path / "tap"), "q", QUERIES["mean"], LiveOptions(0, 0.0))
    assert [entry.name for entry in store.list_entries()] == ["a", "t"]


def make_batch(number: int, series: Series, second: float, value: float) -> TapBatch:
    """Return a batch of one reading, which arrives a second after its stamp."""
    stamp = np.array([START_NS + round(second * SECOND_NS)])
    arrival = stamp + SECOND_NS
    readings = Readings((series,), np.zeros(1, np.int32), stamp, np.array([value]), np.ones(1, np.uint8), arrival)
    return TapBatch(number, number + 1, int(arrival[0]), {series.variable: (readings, np.array([number + 1]))})


def test_rain_of_an_hour_is_known_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "tap"
    archive = Archive.create(
        folder, name="rain", slice_s=SLICE_S, variables=[KNOWN_VARIABLES["rain_meter"]], now_ns=START_NS
    )
    with archive.commit(batch="0", message="station", now_ns=START_NS) as writer:
        writer.stations([Station("s0", "S0", (Position(None, 7.177, 45.867, 2300.0),))])
    series = Series("rain_meter", "s0", 2.0, 1, interval_s=3600.0)
    batches = [make_batch(number, series, 3600.0 * (number + 1), 0.5 * number**2) for number in range(8)]
    text = "Select Istream(station, mm, time) From rain"
    rain = {}
    for name, restarts in (("whole", ()), ("restarted", (3, 5, 6))):
        store = add_tap_query(open_archive(folder), name, text, LiveOptions(START_NS, 7200.0))
        query = restart(folder, store, name, [])
        for number, batch in enumerate(batches):
            if number in restarts:
                query = restart(folder, store, name, batches[:number])
            query.step(batch)
        rain[name] = [element.row[1] for element in store.list_elements(name)]
    # What the counter grew by; of the first reading it is not known, and the last is awaited.
    assert rain["whole"] == [None, *(number + 0.5 for number in range(len(rain["whole"]) - 1))]
    assert len(rain["whole"]) > 6
    assert rain["restarted"] == rain["whole"]


def test_a_step_that_fails_once_leaves_the_heartbeat_as_near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "tap")
    store = add_tap_query(open_archive(tmp_path / "tap"), "q", QUERIES["total"], LiveOptions(START_NS, 3600.0))
    query = restart(tmp_path / "tap", store, "q", [])
    series = Series(VARIABLES[1], "s0", 2.0, 1, interval_s=10.0)
    batches = [make_batch(number, series, 10.0 * (number + 1), 9.0) for number in range(40)]
    for batch in batches[:30]:
        query.step(batch)
    assert query.entry.heartbeat_ns == START_NS + 300 * SECOND_NS

    def refuse(*_: object, **__: object) -> None:
        raise LiveQueriesUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(LiveStore, "keep", refuse)
        with pytest.raises(LiveQueriesUnavailable):
            query.step(batches[30])
    missing = query.missing_records()
    assert missing is not None
    query.restore([cut(batch, *missing) for batch in batches[:30]])
    for batch in batches[30:]:
        query.step(batch)
    assert query.entry.heartbeat_ns == START_NS + 400 * SECOND_NS


@pytest.mark.parametrize(("behind_s", "awaited_s"), [(45.0, 45.0), (95.0, 0.0)])
def test_what_is_later_than_silence_is_not_waited_for(tmp_path: Path, behind_s: float, awaited_s: float) -> None:
    create(tmp_path / "tap")
    store = add_tap_query(open_archive(tmp_path / "tap"), "q", QUERIES["total"], LiveOptions(START_NS, 60.0))
    query = restart(tmp_path / "tap", store, "q", [])
    series = Series(VARIABLES[1], "s0", 2.0, 1, interval_s=10.0)
    seconds = [*np.arange(10.0, 210.0, 10.0), 200.0 - behind_s, 210.0, 400.0]
    for number, second in enumerate(seconds):
        query.step(make_batch(number, series, second, 9.0))
    assert query.entry.heartbeat_ns == START_NS + round((400.0 - awaited_s) * SECOND_NS)


def test_windows_that_need_more_memory_are_refused_over_the_tap(tmp_path: Path) -> None:
    create(tmp_path / "tap")
    for number, parts in enumerate(draw_commits(1, 2)):
        commit(tmp_path / "tap", number, parts)
    archive = open_archive(tmp_path / "tap")
    with pytest.raises(InvalidQuery, match=r"and may take 10; .*; or allow [\d,]+ bytes") as refusal:
        add_tap_query(archive, "q", QUERIES["mean"], LiveOptions(START_NS), allowed_bytes=10)
    assert open_store(tmp_path / "tap").list_entries() == []
    needed = int(str(refusal.value).split("or allow ")[1].split(" ")[0].replace(",", ""))
    with pytest.raises(InvalidQuery, match="most is held by"):
        add_tap_query(archive, "q", QUERIES["mean"], LiveOptions(START_NS), allowed_bytes=needed - 1)
    add_tap_query(archive, "q", QUERIES["mean"], LiveOptions(START_NS), allowed_bytes=needed).close()
    assert [entry.name for entry in open_store(tmp_path / "tap").list_entries()] == ["q"]


def test_time_goes_on_across_1970(tmp_path: Path) -> None:
    create(tmp_path / "tap")
    start_ns = -100 * SECOND_NS
    store = add_tap_query(open_archive(tmp_path / "tap"), "q", QUERIES["total"], LiveOptions(start_ns, 60.0))
    query = restart(tmp_path / "tap", store, "q", [])
    series = Series(VARIABLES[1], "s0", 2.0, 1, interval_s=10.0)
    for number, second in enumerate(range(-90, 20, 10)):
        query.step(make_batch(number, series, second - START_NS / SECOND_NS, 9.0))
        assert query.entry.heartbeat_ns == second * SECOND_NS
