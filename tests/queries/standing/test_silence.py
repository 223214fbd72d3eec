"""Dead stations of the sample network: each planted silence beyond a station's bound is told, and nothing else."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.times import SECOND_NS
from queries.standing.episodes import Episode
from queries.standing.service import StandingQueries
from queries.standing.silence import FACTOR, Silence, learned_interval_ns
from queries.standing.statistics import Update
from station_data.generate import generate
from tests.queries.standing.live import START_NS, STEP_NS, Clock, Live

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
    silence, episodes, told = Silence(tick_s * SECOND_NS // 2), [], []
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


def prove(folder: Path, seed: int, *, days: int) -> None:
    tick_s, network = TICK_S, sample(folder, seed, days)
    told, bounds = heard(network, tick_s)
    begins = min(float(times[0]) for times in network.arrivals.values())
    expected = []
    for station, start, stop in network.silences:
        times = network.arrivals[station]
        before, after = times[times < start + 1], times[times >= stop]
        silent_s = (after[0] if len(after) else everything_ends(network)) - before[-1]
        if before[-1] - begins > WARMED_S and silent_s > 1.02 * bounds[station]:
            expected.append((station, float(before[-1])))
    found = [(station, last) for station, _, last, _ in told]
    for station, last in expected:
        assert any(one == station and abs(at - last) < 7200 for one, at in found), (station, last, told)
    # Nowhere else: each is a planted silence of this station.
    for station, now, last, bound_s in told:
        assert any(one == station and start - 7 * 3600 < last < stop for one, start, stop in network.silences), (
            station,
            now,
        )
        # In time: at the first looks after the bound, and within twice the learned interval.
        assert 0 <= now - (last + bound_s) <= 2 * tick_s
        assert now - last <= 2 * bound_s / FACTOR
    station, died_s = network.dead
    assert any(one == station and last <= died_s + 7200 for one, _, last, _ in told)
    assert len(told) >= 3


def everything_ends(network: Network) -> float:
    return max(float(times[-1]) for times in network.arrivals.values()) - MARGIN_S


def test_the_sample_networks_deaths_and_nothing_else(tmp_path: Path) -> None:
    prove(tmp_path / "sample", 2007, days=17)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2007, *range(1, 8)])
def test_deaths_of_other_seeds(tmp_path: Path, seed: int) -> None:
    prove(tmp_path / "sample", seed, days=28)


def test_an_interval_is_at_least_three_usual_gaps_and_grows_with_what_is_lost() -> None:
    steady = np.full(100, 120e9)
    assert learned_interval_ns(steady) == 360e9
    rng = np.random.default_rng(1)
    lost = 120e9 * rng.geometric(0.9, 400)
    # One gap in a hundred thousand is longer than five usual ones.
    assert 5 * 120e9 < learned_interval_ns(lost) < 8 * 120e9
    died = np.append(steady, 100 * 120e9)
    assert learned_interval_ns(died) < 20 * 120e9


def test_a_dead_station_is_told_with_its_interval_and_a_sensor_that_fails_is_not(
    standing: StandingQueries, live: Live, evaluate: Callable[[], dict[str, Update]]
) -> None:
    air = {"variable": "air_temperature", "steps": []}
    standing.add({"name": "dead", "query": air, "condition": {"kind": "dead"}})
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
    assert told["bound_s"] == FACTOR * 360.0
    assert told["last_heard"] == "2007-10-01T01:18Z"
    # Four slices and a half, and the look at the fifth.
    assert told["since"] == "2007-10-01T01:27Z"
    live.add(50, {"2": 5.0})
    evaluate()
    assert [one["happening"] for one in standing.alerts()] == ["raised", "cleared"]


def test_when_nobody_is_heard_no_station_is_dead() -> None:
    silence = Silence(60 * SECOND_NS)
    arrivals = START_NS + np.arange(40) * STEP_NS
    episodes: list[Episode] = []
    episodes, changes = silence.hear(dict.fromkeys("ab", arrivals), episodes)
    assert changes == []
    episodes, changes = silence.hear({}, episodes)
    assert changes == []
    # A night without a network: both come back, and both were silent.
    late = START_NS + np.arange(400, 410) * STEP_NS
    episodes, changes = silence.hear(dict.fromkeys("ab", late), episodes)
    assert [change.happening for change in changes] == ["raised", "cleared"] * 2
    # What was heard before changes nothing.
    again = Silence.from_json(silence.to_json(), resolution_ns=60 * SECOND_NS)
    assert again.hear(dict.fromkeys("ab", arrivals), episodes)[1] == []
    assert again.to_json() == silence.to_json()


MINUTE_NS = 60 * SECOND_NS
SILENT = {"name": "silent", "query": {"variable": "air_temperature"}, "condition": {"kind": "silent", "after": "30min"}}


def told(standing: StandingQueries) -> list[tuple[str, str]]:
    return [(alert["happening"], alert["since"]) for alert in standing.alerts()]


def test_a_network_that_nothing_comes_from_is_told_by_the_clock(
    standing: StandingQueries, live: Live, clock: Clock, evaluate: Callable[[], dict[str, Update]]
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
    assert told(standing) == [("raised", "2007-10-01T00:50Z")]
    ((alert,)) = standing.alerts()
    assert alert["place"] == "network"
    assert alert["last_heard"] == "2007-10-01T00:20Z"
    live.add(11, {"1": 5.0})
    evaluate()
    assert [happening for happening, _ in told(standing)] == ["raised", "cleared"]


def test_silence_outlives_the_process_and_a_clock_that_steps_back(
    make_standing: Callable[..., StandingQueries], live: Live, clock: Clock
) -> None:
    first = make_standing()
    first.add(SILENT)
    first.runner.settle()
    clock.ns -= 60 * MINUTE_NS
    first.runner.settle()
    assert told(first) == []
    first.stop()
    clock.ns += 31 * MINUTE_NS
    second = make_standing()
    second.mute("silent", clock.ns + MINUTE_NS)
    second.runner.settle()
    assert [one["muted"] for one in second.alerts()] == [True]
    clock.ns += 2 * MINUTE_NS
    second.runner.settle()
    second.runner.settle()
    assert [one["muted"] for one in second.alerts()] == [True, False]
