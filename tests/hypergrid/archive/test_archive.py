"""The contract of an archive: readings, snapshots, stations, tables."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from hypergrid.archive import Archive, Conservation, FileEntry, Reject, Writer
from hypergrid.core.errors import ArchiveConflict, InvalidTime, NotFound
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import Window, parse_instant
from hypergrid.core.units import Variable
from tests.support.archive_counts import count_content

AIR = "air_temperature"
Build = Callable[..., Readings]
Rows = Callable[[Readings], list[tuple[object, ...]]]


def put(archive: Archive, batch: str, *given: Readings) -> tuple[Archive, list[Conservation]]:
    with archive.commit(batch=batch, message=f"batch {batch}", now_ns=11) as writer:
        results = [writer.readings(one) for one in given]
    return archive.latest(), results


def at(text: str) -> int:
    return parse_instant(f"2007-10-01T{text}")


def test_a_new_archive_knows_what_it_was_made_for(archive: Archive) -> None:
    again = Archive.open(archive.path)
    assert (again.name, again.slice_s, again.snapshot) == ("pass", 120.0, archive.snapshot)
    assert {name: one.unit for name, one in again.variables.items()} == {AIR: "degC", "watermark": "kPa"}
    assert dict(again.stations) == {}
    assert again.extent(AIR) is None
    assert len(again.read(AIR)) == 0
    assert [(one.time_ns, one.message) for one in again.snapshots] == [(7, "created")]
    assert count_content(again)[AIR] == dict.fromkeys(
        ("series", "readings", "values", "missing", "superseded", "slices"), 0
    )


def test_readings_come_back_exactly_and_in_order(archive: Archive, readings: Build, rows: Rows) -> None:
    given = readings(
        [
            ("b", at("00:02:00.123456789"), 1.1, 2, at("00:09:00")),
            ("a", at("00:05:59.999999999"), -0.0, 1, at("00:01:00")),  # arrived before its stamp: clocks differ
            ("a", at("00:00:00"), None),
            ("b", at("00:01:00"), 1e300, 4, 0),
        ]
    )
    newest, results = put(archive, "1", given)
    assert results == [Conservation(readings=4, stored=4)]
    assert newest.series(AIR) == given.series
    assert rows(newest.read(AIR)) == sorted(rows(given), key=lambda row: ("ba".index(str(row[0])), row[1]))
    assert newest.extent(AIR) == Window(at("00:00:00"), at("00:06:00"))
    expected = {"series": 2, "readings": 4, "values": 3, "missing": 1, "superseded": 0, "slices": 3}
    assert count_content(newest)[AIR] == expected


def test_a_cell_keeps_its_first_reading_and_the_side_table_the_others(
    archive: Archive, readings: Build, rows: Rows
) -> None:
    #   00:02:00        00:04:00
    #   |  a  b      c  |
    newest, first = put(archive, "1", readings([("s", at("00:03:59"), 3), ("s", at("00:02:10"), 1)]))
    newest, second = put(archive, "2", readings([("s", at("00:02:20"), 2), ("s", at("00:02:10"), 1)]))
    assert first == [Conservation(readings=2, stored=1, side=1)]
    assert second == [Conservation(readings=2, side=1, duplicates=1)]
    assert [row[2] for row in rows(newest.read(AIR))] == [1, 2, 3]


def test_a_replaced_reading_is_retained(archive: Archive, readings: Build, rows: Rows) -> None:
    put(archive, "1", readings([("s", at("00:00"), 1, 2, 1), ("s", at("00:01"), 5, 2, 1)]))
    amended, results = put(
        archive,
        "2",
        readings(
            [
                ("s", at("00:00"), 2, 2, 2),  # replaces a reading in its cell,
                ("s", at("00:00"), None, 9, 3),  # and is replaced within the call
                ("s", at("00:01"), 5, 3, 2),  # another flag replaces too, here in the side table
            ]
        ),
    )
    assert results == [Conservation(readings=3, superseded=3)]
    assert [(row[2], row[3], row[4]) for row in rows(amended.read(AIR))] == [(None, 9, 3), (5, 3, 2)]
    old = [(row[1], row[2], row[4]) for row in rows(amended.read(AIR, superseded=True))]
    assert old == [(at("00:00"), 1, 1), (at("00:00"), 2, 2), (at("00:01"), 5, 1)]
    counts = count_content(amended)[AIR]
    assert (counts["readings"], counts["missing"], counts["superseded"]) == (2, 1, 3)


def test_nan_equals_nan(archive: Archive, readings: Build) -> None:
    _, results = put(archive, "1", readings([("s", at("00:00"), None)]), readings([("s", at("00:00"), None)]))
    assert results[1] == Conservation(readings=1, duplicates=1)


def test_window_and_series_choose(archive: Archive, readings: Build, rows: Rows) -> None:
    stamps = [f"00:{minute:02}" for minute in range(0, 20, 1)]  # two readings a cell
    newest, _ = put(archive, "1", readings([(s, at(stamp), i) for s in "abc" for i, stamp in enumerate(stamps)]))
    found = newest.read(AIR, window=Window(at("00:03"), at("00:07")), series=np.array([2, 0]))
    assert [(row[0], row[2]) for row in rows(found)] == [(s, v) for s in "ac" for v in (3, 4, 5, 6)]
    assert found.series == newest.series(AIR)
    assert len(newest.read(AIR, window=Window(at("12:00"), at("13:00")))) == 0
    assert len(newest.read(AIR, window=Window.parse("1700-01-01", "2261-12-31"))) == 60
    assert len(newest.read(AIR, series=np.array([], np.intp))) == 0
    with pytest.raises(NotFound, match="series index 3"):
        newest.read(AIR, series=np.array([3]))


def test_older_data_can_come_later(archive: Archive, readings: Build, rows: Rows) -> None:
    newest, _ = put(archive, "1", readings([("s", at("00:00"), 2)]))
    newest, _ = put(newest, "2", readings([("s", "1900-01-01", 1), ("t", "2261-12-31T23:59:59.999999999", 3)]))
    assert [row[2] for row in rows(newest.read(AIR))] == [1, 2, 3]
    assert newest.extent(AIR) == Window(parse_instant("1900-01-01"), parse_instant("2261-12-31") + 86_400_000_000_000)


@pytest.mark.parametrize("stamp", ["1899-12-31T23:59:59.999999999", parse_instant("2261-12-31") + 86_400_000_000_000])
def test_an_instant_that_cannot_be_stored_is_refused(archive: Archive, readings: Build, stamp: object) -> None:
    with pytest.raises(InvalidTime, match="1900 to 2261"):
        put(archive, "1", readings([("s", at("00:00"), 1), ("s", stamp, 1)]))
    assert archive.latest() is archive


def test_slices_that_do_not_divide_a_day_have_corners_at_their_multiples(
    archive: Archive, readings: Build, rows: Rows
) -> None:
    odd = Archive.create(
        archive.path.parent / "odd", name="odd", slice_s=7.5, variables=archive.variables.values(), now_ns=0
    )
    newest, _ = put(odd, "1", readings([("s", "1900-01-01", 1), ("s", at("00:00:01"), 2)]))
    assert [row[1] for row in rows(newest.read(AIR))] == [parse_instant("1900-01-01"), at("00:00:01")]
    extent = newest.extent(AIR)
    assert extent is not None
    assert (extent.start_ns % 7_500_000_000, extent.stop_ns % 7_500_000_000) == (0, 0)
    assert extent.stop_ns - 7_500_000_000 <= at("00:00:01") < extent.stop_ns


def test_many_series_over_many_chunks(archive: Archive) -> None:
    series = tuple(Series(AIR, str(number)) for number in range(70))
    stamps = at("00:00") + np.arange(0, 5000, 7) * 120_000_000_000
    index = np.tile(np.arange(70, dtype=np.int32), len(stamps))
    time_ns = np.repeat(stamps, 70)
    order = np.random.default_rng(5).permutation(len(index))
    given = Readings(series, index, time_ns, index + time_ns / 1e18, np.full(len(index), 2, np.uint8), time_ns)
    newest, _ = put(archive, "1", given.take_rows(order[:20000]))
    newest, results = put(newest, "2", given.take_rows(order[15000:]))
    assert results[0].duplicates == 5000
    found, expected = newest.read(AIR), given.sort_rows()
    for name in ("index", "time_ns", "value", "flag", "arrival_ns"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert count_content(newest)[AIR]["slices"] == len(stamps)


def test_series_are_appended_and_keep_their_numbers(archive: Archive, readings: Build) -> None:
    newest, _ = put(archive, "1", readings([("b", at("00:00"), 1)], stations=["a"]))
    newest, _ = put(newest, "2", readings([("c", at("00:00"), 1), ("b", at("00:02"), 2)]))
    assert [one.station for one in newest.series(AIR)] == ["a", "b", "c"]


def test_series_survive_exactly(archive: Archive) -> None:
    series = (Series(AIR, "é/1", -0.1, 2, "mean", 600.1, "end", "feed:T"), Series(AIR, "x", None, source="feed:U"))
    integers = np.array([0, 1], np.int64)
    given = Readings(series, integers.astype(np.int32), integers, np.ones(2), np.full(2, 2, np.uint8), integers)
    newest, _ = put(archive, "1", given)
    assert newest.series(AIR) == series


@pytest.mark.parametrize(
    ("values", "flags"),
    [([1.0], [0]), ([math.nan], [2]), ([1.0], [9])],  # the flag of an empty cell; NaN and MISSING apart
)
def test_flags_must_agree_with_values(archive: Archive, values: list[float], flags: list[int]) -> None:
    one = np.array([0], np.int64)
    wrong = Readings((Series(AIR, "s"),), one.astype(np.int32), one, np.array(values), np.array(flags, np.uint8), one)
    with pytest.raises(ValueError, match="readings"):
        put(archive, "1", wrong)


def test_readings_of_two_variables_are_refused(archive: Archive) -> None:
    with pytest.raises(ValueError, match="one variable"):
        put(archive, "1", Readings.empty((Series(AIR, "s"), Series("watermark", "s"))))


def test_an_unknown_variable_is_named_with_those_that_exist(archive: Archive, readings: Build) -> None:
    for ask in (archive.read, archive.series, archive.extent):
        with pytest.raises(NotFound, match="air_temprature.*did you mean 'air_temperature'"):
            ask("air_temprature")
    with pytest.raises(NotFound, match="snow"):
        put(archive, "1", readings([("s", at("00:00"), 1)], variable="snow"))


def test_variables_are_added_but_keep_their_unit(archive: Archive, readings: Build) -> None:
    odd_names = ["T air (°C)", "a/b", "..", "__x", "variables"]
    with archive.commit(batch="1", message="more", now_ns=1) as writer:
        writer.variables(Variable(name, "unknown") for name in odd_names)
        for name in odd_names:
            writer.readings(readings([("s", at("00:00"), 1)], variable=name))
    newest = archive.latest()
    assert list(newest.variables) == [AIR, "watermark", *odd_names]
    assert [len(newest.read(name)) for name in odd_names] == [1] * 5
    with (
        pytest.raises(ArchiveConflict, match="'degC'.*'degF'"),
        archive.commit(batch="2", message="", now_ns=1) as writer,
    ):
        writer.variables([Variable(AIR, "degF")])
    assert newest.latest() is newest


def test_a_station_has_a_history(archive: Archive) -> None:
    first, moved = Position(None, 7.1, 45.1, math.nan), Position(parse_instant("2007-10-05"), 7.2, 45.2, 2444.3)
    earlier = Position(parse_instant("2007-01-05"), 7.15, 45.1, 1.0)

    def declare(batch: str, *stations: Station) -> Writer:
        with archive.commit(batch=batch, message="stations", now_ns=1) as writer:
            writer.stations(stations)
        return writer

    declare("1", Station("1", "Col", (first,)))
    declare("2", Station("1", "", (moved,)), Station("2", "Lac", (first,)))
    declare("3", Station("1", "", (earlier,)))
    history = archive.latest().stations["1"]
    assert history.name == "Col"
    assert [one.from_ns for one in history.positions] == [None, earlier.from_ns, moved.from_ns]
    assert history.position == moved
    assert math.isnan(history.positions[0].elevation_m)
    assert declare("4", Station("1", "Col", (first, moved))).snapshot is None
    corrected = Position(moved.from_ns, 7.3, 45.2, 2444.3)
    declare("5", Station("1", "", (corrected,)))
    assert archive.latest().stations["1"].position == corrected


def test_a_withdrawn_station_is_listed_again_once_it_is_declared(archive: Archive, readings: Build) -> None:
    given = readings([("1", "2007-10-01T00:00", 1.0), ("2", "2007-10-01T00:00", 1.0)])
    stations = [Station(name, name, (Position(None, 7.1, 45.1, 2.0),)) for name in "12"]
    with archive.commit(batch="1", message="", now_ns=1) as writer:
        writer.stations(stations)
        writer.readings(given)
    missing = readings([("1", "2007-10-01T00:00", None), ("2", "2007-10-01T00:00", None)])
    with archive.commit(batch="2", message="", now_ns=2) as writer:
        writer.readings(missing)
        writer.withdraw({AIR: given.series}, (), since_ns=2, kept=())
    assert set(archive.latest().stations) == set()
    with archive.commit(batch="3", message="", now_ns=3) as writer:
        writer.stations(stations[:1])
    assert set(archive.latest().stations) == {"1"}
    with archive.commit(batch="4", message="", now_ns=4) as writer:
        writer.withdraw({}, (), since_ns=4, kept={"2"})
    assert set(archive.latest().stations) == {"1", "2"}
    assert not archive.latest().list_series(AIR)


def test_what_is_known_of_a_station_is_never_forgotten(archive: Archive) -> None:
    nan = math.nan
    moved_ns = parse_instant("2007-10-05")
    declared = [
        Station("1", "Col", (Position(None, 7.1, 45.1, nan), Position(moved_ns, 7.2, nan, 9.0))),
        Station("1", "1", (Position(None, nan, nan, nan),)),  # a deployment without coordinates or names
        Station(
            "1", "", (Position(None, 7.15, nan, 2400.0), Position(moved_ns, nan, 45.2, nan))
        ),  # each adds what it has
    ]
    for batch, station in enumerate(declared):
        with archive.commit(batch=str(batch), message="", now_ns=1) as writer:
            writer.stations([station])
    kept = Station("1", "Col", (Position(None, 7.15, 45.1, 2400.0), Position(moved_ns, 7.2, 45.2, 9.0)))
    assert archive.latest().stations["1"] == kept


def test_tables_of_rejects_and_files_grow(archive: Archive) -> None:
    rejects = [Reject("a.txt", 3, "", "x" * 500, "short row"), Reject("ü.txt", 0, "time", "\udcff\n", "no text")]
    file = FileEntry("a.txt", "0f" * 32, 2**40, 5, 4, 1, 99, "f" * 32)
    for batch in ("1", "2"):
        with archive.commit(batch=batch, message="", now_ns=1) as writer:
            writer.rejects(rejects)
            writer.files([file])
    newest = archive.latest()
    assert newest.rejects() == rejects * 2
    assert newest.files() == [file] * 2
    assert len(newest.rejects()[0].text) == 200
    assert newest.snapshots[0].metadata["counts"]["rejects"] == 2


def test_a_reader_stays_at_its_snapshot(archive: Archive, readings: Build) -> None:
    one, _ = put(archive, "1", readings([("s", at("00:00"), 1)]))
    two, _ = put(archive, "2", readings([("s", at("00:00"), 2), ("t", at("00:00"), 3)]))
    assert [len(each.read(AIR)) for each in (archive, one, two)] == [0, 1, 2]
    assert two.latest() is two
    assert one.latest().snapshot == two.snapshot
    old = Archive.open(archive.path, snapshot=one.snapshot)
    assert old.read(AIR).value.tolist() == [1.0]
    assert [each.id for each in old.snapshots] == [one.snapshot, archive.snapshot]
    for unknown in ("NOPE", "1CECHNKREP0F1RSTCMT0"):  # the second exists below, before the archive had its tables
        with pytest.raises(NotFound, match="unknown snapshot"):
            Archive.open(archive.path, snapshot=unknown)


def test_a_snapshot_tells_what_it_touched(archive: Archive, readings: Build) -> None:
    put(archive, "1", readings([("s", at("00:00"), 1)]))
    newest, _ = put(archive, "2", readings([("s", at("00:00"), 1), ("t", at("00:05"), 1), ("t", at("01:01"), 1)]))
    snapshot = newest.snapshots[0]
    assert (snapshot.id, snapshot.time_ns, snapshot.message) == (newest.snapshot, 11, "batch 2")
    assert snapshot.metadata["batch"] == "2"
    runs = [[at("00:04"), at("00:04")], [at("01:00"), at("01:00")]]
    new = {"readings": 2, "runs": runs, "series": [[1, 1]]}
    hull = {"first_ns": at("00:04"), "last_ns": at("01:00"), "series": 1, "new": new}
    assert snapshot.metadata["slices"] == {AIR: hull}
    assert snapshot.metadata["counts"]["duplicates"] == 1


def test_a_batch_is_committed_once(archive: Archive, readings: Build) -> None:
    newest, _ = put(archive, "1", readings([("s", at("00:00"), 1)]))
    with newest.commit(batch="1", message="again", now_ns=2) as writer:
        assert writer.already_committed
        writer.readings(readings([("s", at("00:00"), 5)]))
    assert writer.snapshot is None
    assert newest.latest() is newest


def test_no_change_is_no_commit(archive: Archive, readings: Build) -> None:
    newest, _ = put(archive, "1", readings([("s", at("00:00"), 1)]))
    with newest.commit(batch="2", message="", now_ns=2) as writer:
        writer.readings(readings([("s", at("00:00"), 1)]))
        writer.variables(newest.variables.values())
        writer.rejects([])
    assert (writer.snapshot, newest.latest()) == (None, newest)


def test_an_error_in_the_context_leaves_nothing(archive: Archive, readings: Build) -> None:
    def interrupted() -> None:
        with archive.commit(batch="1", message="", now_ns=2) as writer:
            writer.readings(readings([("s", at("00:00"), 1)]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert archive.latest() is archive
    newest, _ = put(archive, "1", readings([("s", at("00:00"), 1)]))
    assert len(newest.read(AIR)) == 1


def test_calls_of_one_commit_see_one_another(archive: Archive, readings: Build) -> None:
    minutes = [f"00:0{minute}" for minute in range(8)]
    parts = [readings([("s", at(stamp), 1)]) for stamp in (*minutes, *minutes)]
    newest, results = put(archive, "1", *parts)
    assert sum(results, Conservation()) == Conservation(readings=16, stored=4, side=4, duplicates=8)
    assert len(newest.read(AIR)) == 8
