"""Dead stations of the sample network: each planted silence beyond a station's bound is told, and nothing else."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS
from hypergrid.core.units import KNOWN_VARIABLES
from queries.standing.liveness import (
    DEAD_FACTOR,
    MIN_GAPS,
    LivenessState,
    learned_interval_ns,
    learned_intervals_ns,
)
from queries.standing.service import StandingQueries
from queries.standing.statistics import StandingUpdate
from station_data.generate import generate
from tests.queries.standing.live import START_NS, STEP_NS, Clock, Live
from tests.support.standing_runner import settle

AIR = {"variable": "air_temperature", "steps": []}
TICK_S = 120
"""How often it is looked who was heard: once a slice."""
MARGIN_S = 10_800
WARMED_S = 86_400
"""Silences that begin within the first day may come before anything was learned."""


@dataclass
class Network:
    """Arrivals of the sample network by station, ascending [s], and the planted silences of whole stations [s]."""

    arrivals: dict[str, NDArray[np.float64]]
    silences: list[tuple[str, float, float]]
    dead: tuple[str, float]


def sample(folder: Path, seed: int, days: int) -> Network:
    generate(folder, seed=seed, days=days, formats=("sensorscope",))
    table = np.loadtxt(folder / "arrivals.csv", delimiter=",", skiprows=1)
    arrivals = {str(int(one)): np.sort(table[table[:, 0] == one, 2]) for one in np.unique(table[:, 0])}
    with (folder / "faults.csv").open() as lines:
        planted = [row for row in csv.DictReader(lines) if row["variable"] == "*" and row["kind"] in ("gap", "dead")]
    silences = [(row["station"], _seconds(row["start"]), _seconds(row["end"])) for row in planted]
    dead = next((row["station"], _seconds(row["start"])) for row in planted if row["kind"] == "dead")
    return Network(arrivals, silences, dead)


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else float(np.datetime64(text.removesuffix("Z"), "s").astype(np.int64))


def heard(network: Network, tick_s: int) -> tuple[list[tuple[str, float, float, float]], dict[str, float]]:
    """Replay the arrivals; return each death as station, when it was told, last heard, bound [s], and the bounds."""
    everything = np.concatenate(list(network.arrivals.values()))
    silence, episodes, told = LivenessState(tick_s * SECOND_NS // 2), [], []
    places = {station: 0 for station in network.arrivals}
    # The station whose clock runs two hours ahead has no readings of the last two hours.
    for now in np.arange(everything.min() // tick_s * tick_s + tick_s, everything.max() - MARGIN_S, tick_s).tolist():
        came = {}
        for station, times in network.arrivals.items():
            stop = int(np.searchsorted(times, now))
            if stop > places[station]:
                came[station] = np.round(times[places[station] : stop] * 1e9).astype(np.int64)
                places[station] = stop
        episodes, changes = silence.hear(came, episodes)
        episodes = [one for one in episodes if one.cleared_ns is None]
        for change in changes:
            if change.happening == "raised":
                bound_s = silence.stations[change.episode.place].bound_ns / 1e9
                told.append((change.episode.place, now, change.episode.onset_ns / 1e9 - bound_s, bound_s))
    return told, {station: one.bound_ns / 1e9 for station, one in silence.stations.items() if one.bound_ns}


def expected(network: Network, bounds: dict[str, float]) -> list[tuple[str, float]]:
    """Return the planted silences that exceed a station's bound: who, and when it was heard last."""
    begins = min(float(times[0]) for times in network.arrivals.values())
    found = []
    for station, start, stop in network.silences:
        times = network.arrivals[station]
        before, after = times[times < start + 1], times[times >= stop]
        silent_s = (after[0] if len(after) else everything_ends(network)) - before[-1]
        if before[-1] - begins > WARMED_S and silent_s > 1.02 * bounds[station]:
            found.append((station, float(before[-1])))
    return found


def compare(network: Network, told: list[tuple[str, float, float, float]], bounds: dict[str, float]) -> None:
    """Each planted silence beyond its bound was told, the dead station's among them, and nothing else."""
    for station, last in expected(network, bounds):
        assert any(one == station and abs(at - last) < 7200 for one, _, at, _ in told), (station, last, told)
    # Nowhere else: each is a planted silence of this station.
    for station, now, last, _ in told:
        assert any(one == station and start - 7 * 3600 < last < stop for one, start, stop in network.silences), (
            station,
            now,
        )
    station, died_s = network.dead
    assert any(one == station and last <= died_s + 7200 for one, _, last, _ in told)
    assert len(told) >= 3


def prove(folder: Path, seed: int, *, days: int) -> None:
    tick_s, network = TICK_S, sample(folder, seed, days)
    told, bounds = heard(network, tick_s)
    compare(network, told, bounds)
    for _, now, last, bound_s in told:
        # In time: at the first looks after the bound, and within twice the learned interval.
        assert 0 <= now - (last + bound_s) <= 2 * tick_s
        assert now - last <= 2 * bound_s / DEAD_FACTOR


def everything_ends(network: Network) -> float:
    return max(float(times[-1]) for times in network.arrivals.values()) - MARGIN_S


def prove_in_archive(folder: Path, seed: int, *, days: int, hours: int) -> None:
    """The same by a standing query, over an archive to which the readings come in lots of some hours of arrivals."""
    network = sample(folder / "sample", seed, days)
    table = np.loadtxt(folder / "sample" / "arrivals.csv", delimiter=",", skiprows=1)
    table = table[np.argsort(table[:, 2], kind="stable")]
    names = sorted(network.arrivals, key=int)
    variable = KNOWN_VARIABLES["air_temperature"]
    archive = Archive.create(folder / "archive", name="replay", slice_s=TICK_S, variables=[variable], now_ns=START_NS)
    series = tuple(Series(variable.name, name, 2.0, interval_s=TICK_S, source="replay") for name in names)
    clock, bounds = Clock(), dict[str, float]()
    with StandingQueries(hg.open(folder / "archive"), clock=clock.time_ns) as standing:
        standing.add({"name": "dead", "query": AIR, "condition": {"kind": "dead"}})
        for start in np.arange(table[0, 2], everything_ends(network), hours * 3600).tolist():
            stop = min(start + hours * 3600, everything_ends(network))
            came = table[(table[:, 2] >= start) & (table[:, 2] < stop)]
            index = np.array([names.index(str(int(one))) for one in came[:, 0]], np.int32)
            stamps, arrivals = (np.round(came[:, column] * 1e9).astype(np.int64) for column in (1, 2))
            clock.ns = round(stop * SECOND_NS)
            with archive.commit(batch=str(start), message="more", now_ns=clock.ns) as writer:
                # Of what was sent twice the first counts.
                _, first = np.unique(np.stack([index, stamps]), axis=1, return_index=True)
                value, flags = np.full(len(first), 5.0), np.full(len(first), NOT_EVALUATED, np.uint8)
                writer.readings(Readings(series, index[first], stamps[first], value, flags, arrivals[first]))
            archive = archive.latest()
            settle(standing.runner)
        memory = standing.store.entry("dead").progress.memory
        bounds = {
            name: DEAD_FACTOR * interval / 1e9 for name, (_, _, interval, _) in memory["stations"].items() if interval
        }
        told = []
        for alert in standing.alerts(limit=10_000):
            if alert["happening"] != "raised":
                continue
            now_s, onset_s, last_s = (_seconds(alert[key]) for key in ("at", "since", "last_heard"))
            # With the lot that goes beyond the bound, which is within twice the learned interval.
            assert 0 <= now_s - onset_s <= hours * 3600
            told.append((alert["place"], now_s, onset_s - alert["bound_s"], alert["bound_s"]))
            assert alert["late"] or abs(last_s + alert["bound_s"] - onset_s) < 1
            assert alert["bound_s"] < 2 * alert["learned_interval_s"]
    compare(network, told, bounds)


def test_the_sample_networks_deaths_and_nothing_else(tmp_path: Path) -> None:
    prove(tmp_path / "sample", 2007, days=17)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2007, *range(1, 8)])
def test_deaths_of_other_seeds(tmp_path: Path, seed: int) -> None:
    prove(tmp_path / "sample", seed, days=28)


def test_a_standing_query_tells_the_sample_networks_deaths(tmp_path: Path) -> None:
    prove_in_archive(tmp_path, 2007, days=17, hours=6)


@pytest.mark.soak
@pytest.mark.parametrize(("seed", "hours"), [*((seed, 5) for seed in range(1, 8)), (1, 1)])
def test_a_standing_query_tells_deaths_of_other_seeds(tmp_path: Path, seed: int, hours: int) -> None:
    prove_in_archive(tmp_path, seed, days=28, hours=hours)


def test_an_interval_is_at_least_three_usual_gaps_and_grows_with_what_is_lost() -> None:
    steady = np.full(100, 120e9)
    assert learned_interval_ns(steady) == 360e9
    rng = np.random.default_rng(1)
    lost = 120e9 * rng.geometric(0.9, 400)
    # One gap in a hundred thousand is longer than five usual ones.
    assert 5 * 120e9 < learned_interval_ns(lost) < 8 * 120e9
    died = np.append(steady, 100 * 120e9)
    assert learned_interval_ns(died) < 20 * 120e9


def test_intervals_of_many_stations_are_those_of_each() -> None:
    random = np.random.default_rng(11)
    groups = [random.exponential(2.0, size).round(2) * 120e9 for size in (0, 1, MIN_GAPS - 1, MIN_GAPS, 13, 400, 401)]
    groups += [np.full(50, 600e9), np.append(np.full(50, 600e9), 6e15), np.repeat([120e9, 180e9, 181e9], [20, 5, 1])]
    gaps = np.concatenate(groups).astype(np.int64)
    numbers = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    mixed = random.permutation(len(gaps))
    learned = learned_intervals_ns(gaps[mixed], numbers[mixed], len(groups) + 1)
    for interval_ns, group in zip(learned, [*groups, np.empty(0)], strict=True):
        if len(group) < MIN_GAPS:
            assert np.isnan(interval_ns)
        else:
            assert interval_ns == learned_interval_ns(group.astype(np.int64).astype(np.float64))


def test_a_dead_station_is_told_with_its_interval_and_a_sensor_that_fails_is_not(
    standing: StandingQueries, live: Live, evaluate: Callable[[], dict[str, StandingUpdate]]
) -> None:
    standing.add({"name": "dead", "query": AIR, "condition": {"kind": "dead"}})
    for slice_ in range(10, 40):
        live.add(slice_, dict.fromkeys("123", 5.0) | {"4": np.nan})
        if slice_ % 7 == 0:
            evaluate()
    evaluate()
    assert standing.alerts() == []
    for slice_ in range(40, 50):
        live.add(slice_, dict.fromkeys("134", 5.0))
        evaluate()
    (told,) = standing.alerts()
    assert (told["place"], told["happening"], told["learned_interval_s"]) == ("2", "raised", 360.0)
    assert told["bound_s"] == DEAD_FACTOR * 360.0
    assert told["last_heard"] == "2007-10-01T01:18:00Z"
    # Four slices and a half, and the look at the fifth.
    assert told["since"] == "2007-10-01T01:27:00Z"
    live.add(50, {"2": 5.0})
    evaluate()
    assert [one["happening"] for one in standing.alerts()] == ["raised", "cleared"]


def test_an_outage_of_the_whole_network_is_nobodys_death() -> None:
    silence = LivenessState(60 * SECOND_NS)
    arrivals = START_NS + np.arange(40) * STEP_NS
    episodes, changes = silence.hear(dict.fromkeys("abc", arrivals), [])
    assert silence.hear({}, episodes)[1] == changes == []
    # A night without a network: all come back, one after the other, each in a commit of its own.
    for station, slice_ in zip("abc", (400, 401, 402), strict=True):
        episodes, changes = silence.hear({station: START_NS + np.array([slice_]) * STEP_NS}, episodes)
        assert changes == []
    assert silence.outages == [(START_NS + 39 * STEP_NS, START_NS + 400 * STEP_NS)]
    interval_ns = silence.stations["a"].interval_ns
    # What was heard before changes nothing.
    again = LivenessState.from_json(silence.to_json(), resolution_ns=60 * SECOND_NS)
    assert again.hear(dict.fromkeys("abc", arrivals), episodes)[1] == []
    assert again.to_json() == silence.to_json()
    # One that stays away after the outage is dead by what it was silent before and after it.
    more = START_NS + np.arange(403, 420) * STEP_NS
    _, changes = silence.hear(dict.fromkeys("bc", more), episodes)
    assert [(one.happening, one.episode.place) for one in changes] == [("raised", "a")]
    assert changes[0].episode.onset_ns == START_NS + 400 * STEP_NS + round(DEAD_FACTOR * interval_ns)
    # One that died just before the outage, too, though nobody was heard meanwhile.
    _, changes = again.hear({"a": more, "b": more, "c": more[:1]}, episodes)
    assert [(one.happening, one.episode.place) for one in changes] == [("raised", "c")]


def test_a_station_that_dies_with_the_network_is_told_after_it_comes_back() -> None:
    silence = LivenessState(60 * SECOND_NS)
    silence.learn(dict.fromkeys("abc", START_NS + np.arange(40) * STEP_NS))
    bound = round(DEAD_FACTOR * silence.stations["c"].interval_ns / STEP_NS)
    back = START_NS + np.arange(400, 420) * STEP_NS
    _, changes = silence.hear(dict.fromkeys("ab", back), [])
    assert [(one.happening, one.episode.place) for one in changes] == [("raised", "c")]
    assert abs((changes[0].episode.onset_ns - START_NS) / STEP_NS - 400 - bound) <= 1


def test_of_two_stations_the_death_of_one_is_told_by_the_other() -> None:
    silence = LivenessState(60 * SECOND_NS)
    every = START_NS + np.arange(80) * STEP_NS
    silence.learn(dict.fromkeys("ab", every[:40]))
    _, changes = silence.hear({"a": every[40:]}, [])
    assert [(one.happening, one.episode.place) for one in changes] == [("raised", "b")]
    # All that is left of the network falls silent and comes back: it is believed when b is heard, too.
    far = every[-1] + 400 * STEP_NS + np.arange(3) * STEP_NS
    episodes, changes = silence.hear({"a": far}, [one.episode for one in changes])
    assert (changes, silence.newest_ns) == ([], every[-1])
    _, changes = silence.hear({"b": far[2:]}, episodes)
    assert [(one.happening, one.episode.place) for one in changes] == [("cleared", "b")]
    assert silence.newest_ns == far[-1]


@pytest.mark.parametrize("with_others", [False, True])
def test_an_arrival_far_ahead_moves_nobody(*, with_others: bool) -> None:
    silence = LivenessState(60 * SECOND_NS)
    every = START_NS + np.arange(200) * STEP_NS
    silence.learn(dict.fromkeys("abc", every[:40]))
    far = {"a": np.append(every[40], START_NS + 365 * 86_400 * SECOND_NS)}
    episodes, changes = silence.hear(far | (dict.fromkeys("bc", every[40:41]) if with_others else {}), [])
    assert changes == []
    for slice_ in range(41, 60):
        episodes, changes = silence.hear(dict.fromkeys("abc", every[slice_ : slice_ + 1]), episodes)
        assert changes == []
    assert silence.newest_ns == every[59]
    assert silence.ahead == {}
    # It is heard as before, itself: and so is its death.
    episodes, changes = silence.hear(dict.fromkeys("bc", every[60:80]), episodes)
    assert [(one.happening, one.episode.place) for one in changes] == [("raised", "a")]


def test_a_query_tells_who_is_dead_already_and_nothing_of_long_ago(
    standing: StandingQueries, live: Live, evaluate: Callable[[], dict[str, StandingUpdate]]
) -> None:
    # 3 was silent for an hour and came back; 2 is dead; 4 was heard too seldom.
    slices = [
        (slice_, dict.fromkeys("1" + "2" * (slice_ < 100) + "3" * (not 30 <= slice_ < 60) + "4" * (slice_ > 148), 5.0))
        for slice_ in range(10, 150)
    ]
    live.add_all(slices)
    standing.add({"name": "dead", "query": AIR, "condition": {"kind": "dead"}})
    one = {**AIR, "select": {"station": "3"}}
    standing.add({"name": "one", "query": one, "condition": {"kind": "dead"}})
    evaluate()
    assert [(alert["query"], alert["happening"], alert["place"], alert["late"]) for alert in standing.alerts()] == [
        ("dead", "raised", "2", False)
    ]
    assert standing.alerts()[0]["last_heard"] == "2007-10-01T03:18:00Z"
    live.add(150, dict.fromkeys("123", 5.0))
    evaluate()
    assert [(alert["happening"], alert["place"]) for alert in standing.alerts()[1:]] == [("cleared", "2")]
    live.add_all([(slice_, dict.fromkeys("12", 5.0)) for slice_ in range(151, 190)])
    evaluate()
    assert {(alert["query"], alert["happening"], alert["place"]) for alert in standing.alerts()[2:]} == {
        ("dead", "raised", "3"), ("one", "raised", "3")
    }  # fmt: skip


MINUTE_NS = 60 * SECOND_NS
SILENT = {"name": "silent", "query": {"variable": "air_temperature"}, "condition": {"kind": "silent", "after": "30min"}}


def told(standing: StandingQueries) -> list[tuple[str, str]]:
    return [(alert["happening"], alert["since"]) for alert in standing.alerts()]


def test_a_network_that_nothing_comes_from_is_told_by_the_clock(
    standing: StandingQueries, live: Live, clock: Clock, evaluate: Callable[[], dict[str, StandingUpdate]]
) -> None:
    standing.add(SILENT)
    evaluate()
    clock.ns += 20 * MINUTE_NS
    live.add(10, {"1": 5.0})
    evaluate()
    clock.ns += 30 * MINUTE_NS
    evaluate()
    assert told(standing) == []
    clock.ns += MINUTE_NS
    # Of another variable readings come: of this one there is silence.
    live.everywhere(10, 6.0, variable="surface_temperature")
    evaluate()
    evaluate()
    assert told(standing) == [("raised", "2007-10-01T00:50:00Z")]
    ((alert,)) = standing.alerts()
    assert alert["place"] == "network"
    assert alert["last_heard"] == "2007-10-01T00:20:00Z"
    live.add(11, {"1": 5.0})
    evaluate()
    assert [happening for happening, _ in told(standing)] == ["raised", "cleared"]


def test_silence_outlives_the_process_and_a_clock_that_steps_back(
    make_standing: Callable[..., StandingQueries], live: Live, clock: Clock
) -> None:
    first = make_standing()
    first.add(SILENT)
    settle(first.runner)
    clock.ns -= 60 * MINUTE_NS
    settle(first.runner)
    assert told(first) == []
    first.stop()
    clock.ns += 31 * MINUTE_NS
    second = make_standing()
    second.mute("silent", clock.ns + MINUTE_NS)
    settle(second.runner)
    assert [one["muted"] for one in second.alerts()] == [True]
    clock.ns += 2 * MINUTE_NS
    settle(second.runner)
    settle(second.runner)
    assert [one["muted"] for one in second.alerts()] == [True, False]
