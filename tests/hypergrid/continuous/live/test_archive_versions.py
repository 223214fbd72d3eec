"""Heartbeats by the disorder of arrivals, and what changes if a station moves."""

from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.continuous.live.archive_versions import measure_disorder
from hypergrid.continuous.live.evaluation import START
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.query import open_archive
from tests.support.continuous_live_archives import QUERIES, backtest, commit, create, draw_commits, given
from tests.support.networks import START_NS


@pytest.mark.parametrize("seed", range(20))
def test_disorder_is_how_far_a_reading_came_behind_a_later_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    series, tau = rng.integers(3, 6, count), rng.integers(0, 40, count)
    arrival = tau + rng.integers(0, 15, count)
    latest, disorder = measure_disorder(series, tau, arrival)
    for position, number in enumerate(np.unique(series)):
        # Of each reading its first version.
        first: dict[int, int] = {}
        for at, own in zip(tau[series == number].tolist(), arrival[series == number].tolist(), strict=True):
            first[at] = min(own, first.get(at, own))
        pairs = [later - at for at, own in first.items() for later, before in first.items() if before < own]
        assert disorder[position] == max([0, *pairs])
        assert latest[position] == max(first)


def write_readings(folder: Path, number: int, delays: dict[int, int]) -> None:
    """Write ten minutes of readings, one a minute, of which some arrive late by a number of seconds."""
    seconds = np.arange(600 * number, 600 * number + 600, 60)
    stamps = START_NS + seconds * SECOND_NS
    late = np.array([delays.get(int(second), 1) for second in seconds]) * SECOND_NS
    series = (Series("air_temperature", "s0", 2.0, 1, interval_s=60.0),)
    count = len(stamps)
    commit(folder, number, [
        Readings(
            series, np.zeros(count, np.int32), stamps, np.full(count, 5.0), np.ones(count, np.uint8), stamps + late
        )
    ])  # fmt: skip


def test_heartbeats_wait_as_long_as_readings_were_late(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    write_readings(folder, 0, {})
    learnt = hg.continuous(folder).live(QUERIES["first"].replace("> 6 EMIT NOW", "> 4"), name="learnt", start=START_NS)
    learnt.step()
    assert learnt.entry.heartbeat_ns == START_NS + 540 * SECOND_NS
    assert learnt.entry.disorder_s == 0.0
    # The reading of 780 s arrives at 1015 s, after that of 960 s.
    write_readings(folder, 1, {780: 235})
    learnt.step()
    assert learnt.entry.disorder_s == 180.0
    assert learnt.entry.heartbeat_ns == START_NS + (1140 - 180) * SECOND_NS


def make_minutes(station: str, minutes: np.ndarray, ahead_s: float) -> Readings:
    """Return readings of some minutes, whose arrival is a second after them, and stamps are ahead."""
    series, count = (Series("air_temperature", station, 2.0, 1, interval_s=60.0),), len(minutes)
    instants = START_NS + minutes * 60 * SECOND_NS
    stamps = instants + round(ahead_s * SECOND_NS)
    return Readings(
        series, np.zeros(count, np.int32), stamps, np.full(count, 5.0), np.ones(count, np.uint8), instants + SECOND_NS
    )


@pytest.mark.parametrize("ahead_s", [4 * 3600.0, 10 * 86_400.0, 40 * 365 * 86_400.0])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_clock_that_is_ahead_has_no_say_in_the_heartbeat(tmp_path: Path, ahead_s: float, *, at_once: bool) -> None:
    folder = tmp_path / "a"
    create(folder)
    commit(folder, 0, [make_minutes("s0", np.arange(60), 0.0), make_minutes("s1", np.arange(55), 0.0)])
    text = QUERIES["mean"] + (" EMIT NOW" if at_once else "")
    query = hg.continuous(folder).live(text, name="q", start=START_NS)
    query.step()
    heartbeat = START_NS + 59 * 60 * SECOND_NS + 1 if at_once else START_NS + 54 * 60 * SECOND_NS
    assert query.entry.heartbeat_ns == heartbeat
    commit(folder, 1, [make_minutes("s2", np.arange(50, 60), ahead_s)])
    query.step()
    assert query.entry.heartbeat_ns == heartbeat
    commit(folder, 2, [make_minutes("s0", np.arange(60, 65), 0.0), make_minutes("s1", np.arange(55, 65), 0.0)])
    query.step()
    assert query.entry.heartbeat_ns == START_NS + 64 * 60 * SECOND_NS + int(at_once)
    assert set(query.relation()["station"]) == {"s0", "s1"}
    assert given(folder, "q") == backtest(open_archive(folder), text, START_NS, query.entry.heartbeat_ns or 0)


def test_only_clocks_that_are_ahead_give_no_heartbeat(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    commit(folder, 0, [make_minutes("s0", np.arange(60), 10 * 86_400.0)])
    query = hg.continuous(folder).live(QUERIES["mean"], name="q", start=START_NS)
    with pytest.raises(InvalidQuery, match="reports now is ahead of its arrival, by 240.0 h at most, in air_t"):
        query.step()
    assert query.entry.heartbeat_ns is None


def test_clocks_that_all_run_ahead_are_a_fault_and_not_silence(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    commit(folder, 0, [make_minutes("s0", np.arange(60), 0.0)])
    query = hg.continuous(folder).live(QUERIES["mean"], name="q", start=START_NS)
    query.step()
    heartbeat = query.entry.heartbeat_ns
    later = np.arange(60, 200)
    commit(folder, 1, [make_minutes("s0", later, 7200.0)])
    with pytest.raises(InvalidQuery, match="correct the clocks, or the time zone of the deployment"):
        query.step()
    assert query.entry.heartbeat_ns == heartbeat
    commit(folder, 2, [make_minutes("s1", later, 0.0)])
    query.step()
    assert query.entry.heartbeat_ns == START_NS + 199 * 60 * SECOND_NS


def test_a_station_that_moves_changes_what_follows(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    near = hg.continuous(folder).live(QUERIES["near"], name="near", start=START_NS, disorder_s=0.0)
    for number, parts in enumerate(draw_commits(11, 2)):
        commit(folder, number, parts)
    near.step()
    old, heartbeat = near.entry.snapshot, near.entry.heartbeat_ns or 0
    move = START_NS + 5400 * SECOND_NS
    with Archive.open(folder).commit(batch="move", message="move", now_ns=START_NS + 10**15) as writer:
        places = (Position(None, 7.178, 45.867, 2325.0), Position(move, 7.3, 45.9, 2500.0))
        writer.stations([Station("s1", "S1", places)])
    new = open_archive(folder).snapshot
    whole = Window(START_NS, heartbeat)
    versions = near._versions  # noqa: SLF001
    assert list(versions.list_changed(old or "", new, whole, START) or ()) == [Window(move, move + 1)]
    assert versions.list_changed(old or "", new, Window(START_NS, move), START) == ()
    assert versions.list_changed(old or "", new, whole, move + 1) is None
    known = int(near.rows()["number"].max())
    assert near.step()
    corrections = near.rows(known)
    assert corrections["tau"].astype("int64").min() >= move
    assert set(corrections["station"]) == {"s1"}
    assert given(folder, "near") == backtest(
        open_archive(folder), QUERIES["near"], START_NS, near.entry.heartbeat_ns or 0
    )
