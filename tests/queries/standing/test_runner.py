"""What a slice touches is evaluated, and nothing else; alerts follow; what fails harms nobody else."""

import itertools
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import NotFound
from hypergrid.core.readings import Position, Station
from hypergrid.core.result_names import by_role, drop_file_variables, index_series
from hypergrid.core.times import SECOND_NS
from queries.jobs.records import NotReady
from queries.standing.repository import EvaluationResult
from queries.standing.service import StandingQueries
from queries.standing.statistics import StandingUpdate
from tests.queries.standing.live import START_NS, STATIONS, Clock, Live
from tests.support.standing_runner import is_fresh, settle

Evaluate = Callable[[], dict[str, StandingUpdate]]
MEAN = {"op": "aggregate", "function": "mean", "time": "4min", "params": {"min_coverage": 0}}
MAP = {
    "op": "interpolate",
    "method": "ordinary_kriging",
    "grid": {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": [5, 6]},
    "params": {"variogram": {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05}},
}
NAMES = ["air_temperature", "air_temperature_count"]
HOT = {"kind": "threshold", "above": 20, "clear": 18}


def query(name: str, *steps: dict[str, Any], variable: str = "air_temperature", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    select = more.pop("select", None)
    document = {"variable": variable, "steps": list(steps), **({"select": select} if select else {})}
    return {"name": name, "query": document, **more}


def test_a_slice_touches_exactly_the_queries_that_read_it(
    standing: StandingQueries,
    live: Live,
    evaluate: Evaluate,
) -> None:
    standing.add(query("air", MEAN))
    standing.add(query("humid", MEAN, variable="surface_temperature"))
    standing.add(query("one", MEAN, select={"station": "1"}))
    standing.add(query("map", MEAN, MAP))
    both = [
        MEAN,
        {"op": "merge", "function": "difference", "with": [{"variable": "surface_temperature", "steps": [MEAN]}]},
    ]
    standing.add(query("both", *both))
    assert evaluate() == {}
    live.everywhere(10, 6.0)
    assert {name: one.cells for name, one in evaluate().items()} == {"air": 4, "one": 1, "map": 30}
    # The difference has a time cell where both have one.
    live.everywhere(10, 60.0, variable="surface_temperature")
    assert set(evaluate()) == {"humid", "both"}
    live.add(11, {"2": 6.0, "3": 6.0})
    # The mean of four minutes is touched again, at all stations; of station 1 nothing came.
    assert {name: one.cells for name, one in evaluate().items()} == {"air": 4, "map": 30, "both": 4}
    live.add(3, {"1": 7.0, "4": 8.0})
    live.everywhere(12, 6.0)
    # An amendment, and a new slice: two time cells that do not follow one another.
    assert {name: one.cells for name, one in evaluate().items()} == {"air": 8, "one": 2, "map": 60, "both": 4}
    assert evaluate() == {}


def test_a_moving_window_ends_with_the_newest_slice(
    standing: StandingQueries,
    live: Live,
    evaluate: Evaluate,
) -> None:
    standing.add(query("hour", MEAN, window="12min", to=["archive"]))
    standing.add(query("all", {"op": "aggregate", "function": "max", "time": "all"}, window="12min", to=["archive"]))
    assert {name: one.cells for name, one in evaluate().items()} == {"hour": 12, "all": 4}
    live.everywhere(10, 9.0)
    assert evaluate()["hour"].cells == 4
    live.add(2, {"1": 99.0})
    # Before the window.
    assert evaluate() == {}
    for slice_ in range(11, 20):
        live.everywhere(slice_, 1.0)
    evaluate()
    with xr.open_dataset(standing.runner.folder / "all" / "2007-10-01.nc") as kept:
        assert kept["air_temperature"].to_numpy()[-1].tolist() == [1.0] * 4
    with xr.open_dataset(standing.runner.folder / "hour" / "2007-10-01.nc") as kept:
        expected = hg.open(live.folder).query({"variable": "air_temperature", "steps": [MEAN]}).compute()
        # Of what a window has left behind the last that it saw stays.
        within = kept["air_temperature"].isel(time=slice(-3, None))
        np.testing.assert_array_equal(within, expected["air_temperature"].sel(time=within["time"]))
        assert kept.sizes["time"] == 7


def test_an_alert_is_raised_once_cleared_by_hysteresis_and_says_what_it_saw(
    standing: StandingQueries,
    live: Live,
    evaluate: Evaluate,
) -> None:
    standing.add(query("hot", condition=HOT))
    for slice_, value in enumerate([19.0, 21.0, 20.5, 19.0, 21.0, 18.0, 21.0], start=10):
        live.everywhere(slice_, 5.0)
        live.add(slice_, {"2": value})
        evaluate()
    told = standing.alerts()
    assert [(one["happening"], one["place"], one["since"], one["late"]) for one in told] == [
        ("raised", "2", "2007-10-01T00:22:00Z", False),
        ("cleared", "2", "2007-10-01T00:22:00Z", False),
        ("raised", "2", "2007-10-01T00:32:00Z", False),
    ]
    first = told[0]
    assert first["readings"] == [{"time": "2007-10-01T00:22:00Z", "value": 21.0, "unit": "degC", "measure": 21.0}]
    assert first["rule"] == "value above 20 °C, cleared at 18 °C"
    assert first["snapshot"] in [one.id for one in live.archive.snapshots]
    assert first["id"] == "live-1"
    assert "hot raised at 2, 2007-10-01T00:22Z" in first["text"]


def test_amendments_raise_late_and_withdraw(
    standing: StandingQueries,
    live: Live,
    evaluate: Evaluate,
) -> None:
    standing.add(query("hot", condition=HOT))
    for slice_ in range(10, 20):
        live.everywhere(slice_, 5.0)
    live.add(15, {"1": 30.0})
    evaluate()
    live.add(12, {"3": 25.0})
    evaluate()
    live.add(15, {"1": 4.0})
    evaluate()
    told = [(one["happening"], one["place"], one["late"]) for one in standing.alerts()]
    assert told == [
        ("raised", "1", False), ("cleared", "1", False), ("raised", "3", True), ("cleared", "3", True),
        ("withdrawn", "1", True),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_episodes_are_those_of_the_surface_whatever_the_order(
    standing: StandingQueries,
    live: Live,
    evaluate: Evaluate,
    seed: int,
) -> None:
    """However slices come, and wherever the runner is killed, the episodes are those of one look at the end."""
    rng = np.random.default_rng(seed)
    standing.add(query("hot", condition=HOT))
    standing.add(query("hotter", MEAN, condition={"kind": "threshold", "above": 12, "clear": 9}))
    standing.add(query("quick", condition={"kind": "rate", "below": -200, "per": "1h", "clear": -100}))
    standing.add(query("gone", condition={"kind": "missing", "after": "4min"}))
    order = np.clip(np.arange(10, 40) + rng.integers(-6, 7, 30), 10, 45).tolist()
    for number, slice_ in enumerate(order):
        live.add(slice_, {station: float(rng.normal(14, 8)) for station in "1234" if rng.random() < 0.7} or {"1": 1.0})
        if number % 3 == 2:
            settle(standing.runner)
        if number % 10 == 9:
            # As after a kill: what was not written down is lost.
            standing.runner._dirty.clear()
            standing.runner._kept.clear()
            standing.runner._states.clear()
            standing.runner._version = standing.runner._seen_snapshot = None
    settle(standing.runner)
    for entry in standing.store.entries():
        again = {**entry.definition.to_json(), "name": f"{entry.name}-again"}
        anew = standing.add(again)
        standing.store.keep([_from_the_start(anew, entry)])
        settle(standing.runner)
        found, expected = (
            [(one.place, one.onset_ns, one.cleared_ns) for one in standing.store.entry(name).progress.episodes]
            for name in (entry.name, anew.name)
        )
        assert sorted(found, key=str) == sorted(expected, key=str), entry.name
        standing.remove(anew.name)


def _from_the_start(anew: Any, entry: Any) -> Any:  # noqa: ANN401
    from queries.standing.repository import EvaluationProgress, EvaluationResult  # noqa: PLC0415

    return EvaluationResult(anew.name, EvaluationProgress("not known any more", entry.progress.since_ns))


def test_a_query_that_always_fails_is_left_alone_ever_longer_and_harms_nobody(
    standing: StandingQueries,
    live: Live,
    evaluate: Evaluate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(standing.runner, "_monotonic", lambda: clock[0])
    standing.add(query("good", MEAN, MAP))
    far = {**MAP, "grid": {**MAP["grid"], "lon": "7:10:38"}}
    standing.add(query("bad", MEAN, far))
    evaluate()
    from queries.standing import shared_steps  # noqa: PLC0415

    holding = shared_steps.hold_blocks

    def failing(evaluator: Any, here: Any, block: int) -> Any:  # noqa: ANN401
        if "7.17722" in str(here.topology.space.x.centres[0]) or here.topology.space.x.origin == 25838000000:
            message = "no such luck"
            raise ArithmeticError(message)
        return holding(evaluator, here, block)

    monkeypatch.setattr(shared_steps, "hold_blocks", failing)
    pauses = []
    for slice_ in range(10, 16):
        live.everywhere(slice_, 6.0)
        updates = evaluate()
        assert updates["good"].error == ""
        state = standing.runner.state("bad")
        assert "no such luck" in state.error
        pauses.append(state.retry_s - clock[0])
        clock[0] = state.retry_s
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert standing.statistics().failing == ("bad",)
    monkeypatch.setattr(shared_steps, "hold_blocks", holding)
    live.everywhere(16, 6.0)
    assert evaluate()["bad"].cells == 30 * 4
    assert standing.statistics().failing == ()


def test_results_that_come_after_their_validity_are_counted(
    standing: StandingQueries,
    live: Live,
    evaluate: Evaluate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A second passes with each look at the clock.
    seconds = itertools.count(1000.0)
    monkeypatch.setattr(standing.runner, "_monotonic", lambda: next(seconds))
    standing.add(query("hasty", MEAN, validity="1s"))
    standing.add(query("patient", MEAN, validity="1day"))
    evaluate()
    for slice_ in (10, 11):
        live.everywhere(slice_, 6.0)
        assert set(evaluate()) == {"hasty", "patient"}
    figures = standing.statistics()
    assert figures.expired == {"hasty": 2}
    assert (figures.freshness["user"].evaluations, figures.freshness["user"].expired) == (4, 2)


def test_a_mute_keeps_alerts_and_tells_at_its_end_of_what_still_stands(
    standing: StandingQueries,
    live: Live,
    evaluate: Evaluate,
    clock: Clock,
) -> None:
    standing.add(query("hot", condition=HOT))
    standing.mute("hot", clock.ns + 3600 * SECOND_NS)
    live.add(10, {"1": 30.0, "2": 30.0})
    live.add(11, {"1": 30.0, "2": 5.0})
    evaluate()
    assert [(one["happening"], one["place"], one["muted"]) for one in standing.alerts()] == [
        ("raised", "1", True), ("raised", "2", True), ("cleared", "2", True),
    ]  # fmt: skip
    # A clock that steps back changes nothing: it is muted still.
    clock.ns -= 1800 * SECOND_NS
    live.add(12, {"1": 30.0})
    evaluate()
    clock.ns += 7200 * SECOND_NS
    live.add(13, {"1": 30.0})
    evaluate()
    last = standing.alerts(after=3)
    assert [(one["happening"], one["place"], one["muted"], one["since"]) for one in last] == [
        ("raised", "1", False, "2007-10-01T00:20:00Z")
    ]


def test_paused_queries_see_on_resuming_what_came_meanwhile(
    standing: StandingQueries,
    live: Live,
    evaluate: Evaluate,
) -> None:
    standing.add(query("hot", condition=HOT))
    standing.pause("hot")
    live.add(10, {"1": 30.0})
    assert evaluate() == {}
    standing.resume("hot")
    assert evaluate()["hot"].alerts[0].happening == "raised"
    assert not standing.show("hot")["paused"]


def test_equal_steps_run_once(standing: StandingQueries, live: Live, evaluate: Evaluate) -> None:  # noqa: ANN401
    for number in range(5):
        standing.add(query(f"map{number}", MEAN, MAP, condition={**HOT, "above": 20 + number}))
    standing.add(query("mean", MEAN, MAP, {"op": "aggregate", "function": "mean", "lon": "all", "lat": "all"}))
    evaluate()
    live.everywhere(10, 30.0)
    assert len(evaluate()) == 6
    told = standing.statistics()
    assert (told.steps_asked, told.steps_run) == (2 * 5 + 3, 3)
    assert told.saved_s > 0
    assert told.sharing.steps_apart == 13
    # What a step took is learned of all its blocks, not of the last.
    this = standing.runner._round
    assert this is not None
    assert told.sharing.seconds > 0.5 * this.run_s / 2
    assert [one["query"] for one in standing.alerts()] == [f"map{number}" for number in range(5)]
    assert set(standing.alerts()[0]["readings"][0]) == {"time", "value", "unit", "measure", "lat", "lon"}


def test_a_full_disk_is_told_and_nothing_is_lost_by_it(
    standing: StandingQueries, live: Live, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    standing.add(query("hot", MEAN, condition=HOT, **{"class": "alert"}))
    keep, full = standing.store.keep, threading.Event()

    def keeping(found: Sequence[EvaluationResult]) -> object:
        if full.is_set():
            message = "database or disk is full"
            raise sqlite3.OperationalError(message)
        return keep(found)

    monkeypatch.setattr(standing.store, "keep", keeping)
    full.set()
    standing.runner.start()
    live.everywhere(10, 40.0)
    live.everywhere(11, 40.0)
    wait_until(lambda: "disk is full" in standing.statistics().trouble)
    full.clear()
    wait_until(lambda: not standing.statistics().trouble and is_fresh(standing.runner))
    assert {alert["happening"] for alert in standing.alerts()} == {"raised"}
    standing.runner.stop()


def test_the_newest_result_can_be_looked_at(standing: StandingQueries, live: Live, evaluate: Evaluate) -> None:
    standing.add(query("map", MEAN, MAP, condition=HOT))
    evaluate()
    with pytest.raises(NotReady, match="a new slice brings it"):
        standing.runner.latest("map")
    live.everywhere(10, 6.0)
    live.add(11, {"1": 7.0, "2": 8.0, "3": 7.0, "4": 6.0})
    evaluate()
    found = standing.runner.latest("map")
    asked = {**query("map", MEAN, MAP)["query"], "clip": {"time": ["2007-10-01T00:20Z", "2007-10-01T00:24Z"]}}
    expected = hg.open(live.folder).query(asked).compute()
    xr.testing.assert_allclose(found[NAMES], expected[NAMES])
    with pytest.raises(NotFound, match="did you mean 'map'"):
        standing.runner.latest("mad")


def test_results_in_the_archive_outlive_stations_that_come(
    standing: StandingQueries, live: Live, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing.add(query("kept", MEAN, window="12min", to=["archive"]))
    for slice_ in range(10, 40):
        live.everywhere(slice_, float(slice_))
        evaluate()
    path = standing.runner.folder / "kept" / "2007-10-01.nc"
    with xr.open_dataset(path) as opened:
        before = opened.load()
    # As earlier versions named them.
    index_series(by_role(drop_file_variables(before))).to_netcdf(path)
    monkeypatch.setitem(STATIONS, "0", (7.179, 45.868))
    with Archive.open(live.folder).commit(batch="new", message="new", now_ns=START_NS) as writer:
        writer.stations([Station("0", "Station 0", (Position(None, 7.179, 45.868, 2400.0),))])
    live.archive = Archive.open(live.folder)
    live.everywhere(40, 40.0)
    evaluate()
    with xr.open_dataset(path) as opened:
        after = opened.load()
    assert after.sizes["time"] == before.sizes["time"] + 1
    assert sorted(after["station"].values.tolist()) == ["0", "1", "2", "3", "4"]
    known = [after["station"].values.tolist().index(name) for name in before["station"].values.tolist()]
    old = after.isel(station=known, time=slice(0, before.sizes["time"]))
    xr.testing.assert_equal(old[NAMES], before[NAMES])
    new = after.isel(station=after["station"].values.tolist().index("0"))
    assert np.isnan(new["air_temperature"].values[:-1]).all()
    assert new["air_temperature"].values[-1] == 40.0
    assert new["air_temperature_count"].values[:-1].tolist() == [0] * before.sizes["time"]
    assert float(new["lon"]) == 7.179
