"""What a snapshot asks of a standing query where nothing came, where a clock runs ahead, and in whatever order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import DAY_NS, format_instant
from queries.standing.definition import definition_from_json
from queries.standing.incremental_tasks import newest_ns
from queries.standing.repository import EvaluationProgress, EvaluationResult
from queries.standing.service import StandingQueries
from queries.standing.statistics import StandingUpdate
from tests.queries.standing.live import START_NS, STATIONS, STEP_NS, Live
from tests.queries.standing.test_runner import HOT, MEAN, query
from tests.support.standing_runner import settle

Evaluate = Callable[[], dict[str, StandingUpdate]]
DAY = DAY_NS // STEP_NS
"""Slices of a day."""
EACH_MINUTE = {"op": "interpolate", "method": "linear", "time": "2min", "params": {"max_gap": "6min"}}
SLIDING = {**MEAN, "time": {"length": "10min", "step": "4min"}}
MISSING = {"kind": "missing", "after": "10min"}


def told(standing: StandingQueries, name: str) -> list[tuple[str, str, str]]:
    return [(one["happening"], one["place"], one["since"][11:16]) for one in standing.alerts(name=name)]


def test_a_selected_station_that_falls_silent_is_missed_by_what_others_bring(
    standing: StandingQueries, live: Live, evaluate: Evaluate
) -> None:
    standing.add(query("one", condition=MISSING, select={"station": "1"}))
    standing.add(query("mean", MEAN, condition=MISSING, select={"station": "1"}))
    for slice_ in range(10, 22):
        live.add(slice_, dict.fromkeys("1234" if slice_ < 12 else "234", 5.0))
        evaluate()
    # Last heard in the slice that ends at 00:24: more than ten minutes are over with the one that ends at 00:36.
    assert told(standing, "one") == [("raised", "1", "00:34")]
    # The mean from 00:32 to 00:36 is the first that ends more than ten minutes after.
    assert told(standing, "mean") == [("raised", "1", "00:32")]
    live.everywhere(22, 5.0)
    live.everywhere(23, 5.0)
    evaluate()
    assert [happening for happening, *_ in told(standing, "one")] == ["raised", "cleared"]
    assert [happening for happening, *_ in told(standing, "mean")] == ["raised", "cleared"]


def test_a_gap_that_begins_with_the_query_is_told(standing: StandingQueries, live: Live, evaluate: Evaluate) -> None:
    standing.add(query("gone", {**MEAN, "time": "6min"}, condition={"kind": "missing", "after": "6min"}))
    live.everywhere(18, 5.0)
    evaluate()
    live.everywhere(21, 5.0)
    evaluate()
    assert told(standing, "gone") == [
        *[("raised", station, "00:30") for station in "1234"],
        *[("cleared", station, "00:30") for station in "1234"],
    ]


@pytest.mark.parametrize("ahead", [DAY + 300, 200 * DAY])
def test_a_stamp_far_ahead_silences_nobody(
    standing: StandingQueries, live: Live, evaluate: Evaluate, ahead: int
) -> None:
    standing.add(query("hot", condition=HOT))
    standing.add(query("gone", condition=MISSING))
    standing.add(query("window", MEAN, window="12min"))
    evaluate()
    live.add(10 + ahead, {"4": 40.0})
    evaluate()
    for slice_ in range(10, 20):
        live.add(slice_, dict.fromkeys("123", 40.0))
        assert evaluate()["window"].cells >= 4
    assert told(standing, "hot") == [("raised", station, "00:20") for station in "123"]
    assert told(standing, "gone") == [("raised", "4", "00:30")]
    # It is judged when the others come near.
    if ahead < 2 * DAY:
        live.add(300, dict.fromkeys("12", 5.0))
        evaluate()
        assert "4" not in {place for _, place, _ in told(standing, "hot")}
        live.add(312, dict.fromkeys("12", 5.0))
        evaluate()
        assert told(standing, "hot")[-1][:2] == ("raised", "4")


def reached(live: Live) -> int:
    return (newest_ns(live.archive, "air_temperature") - START_NS) // STEP_NS


def test_the_newest_slice_is_that_of_the_station_that_is_newest_but_one(live: Live) -> None:
    assert reached(live) == 10
    live.add(10, {"1": 5.0})
    assert reached(live) == 10
    live.add(12, {"2": 5.0})
    assert reached(live) == 11
    live.add(900 * DAY, {"2": 5.0})
    assert reached(live) == 11
    live.add(400 * DAY, {"2": 5.0})
    live.add(14, {"3": 5.0})
    assert reached(live) == 15
    live.add(900 * DAY - 7, {"1": 5.0})
    assert reached(live) == 900 * DAY - 6


def test_a_station_that_is_alone_is_followed_after_a_day(live: Live) -> None:
    live.add_all([(slice_, {"1": 5.0}) for slice_ in range(100, DAY, 100)])
    assert reached(live) == 10
    live.add_all([(slice_, {"1": 5.0}) for slice_ in range(DAY, 3 * DAY, 100)])
    live.add(5 * DAY, {"1": 5.0})
    # As far as it is heard each day.
    assert reached(live) == range(DAY, 3 * DAY, 100)[-1] + 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"condition": {"kind": "missing", "after": "180000day"}}, "looks back 180000day; at most 366day"),
        ({"condition": {"kind": "silent", "after": "367day"}}, "looks back 367day; at most 366day"),
        ({"condition": {"kind": "rate", "above": 1, "over": "180000day"}}, "looks back 180000day; at most 366day"),
        (
            {"condition": {"kind": "rate", "above": 1, "over": "3min"}},
            "no multiple of the surface's step of 2min.*4min",
        ),
        ({"condition": {"kind": "rate", "above": 1, "over": "1ns"}}, "no multiple of the surface's step of 2min"),
    ],
)
def test_what_could_never_be_judged_is_refused(standing: StandingQueries, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidQuery, match=f"standing query 'bad'.*{words}"):
        standing.add(query("bad", **more))
    assert standing.listing() == []


def test_what_a_catalogue_holds_that_could_never_be_judged_fails_alone(
    standing: StandingQueries, live: Live, evaluate: Evaluate
) -> None:
    standing.add(query("good", condition=HOT))
    for name, condition in (
        ("long", {"kind": "missing", "after": "180000day"}),
        ("odd", {"kind": "rate", "above": 1, "over": "3min"}),
    ):
        definition = definition_from_json(query(name, condition=condition))
        standing.store.add(definition, EvaluationProgress(live.archive.snapshot, START_NS), now_ns=START_NS)
    live.add(10, {"1": 30.0})
    evaluate()
    assert standing.runner.state("good").error == ""
    assert told(standing, "good") == [("raised", "1", "00:20")]
    assert set(standing.statistics().failing) == {"long", "odd"}
    assert "at most 366day" in standing.runner.state("long").error
    assert "no multiple" in standing.runner.state("odd").error


SURFACES: dict[str, tuple[dict[str, Any], ...]] = {
    "readings": (),
    "instants": (EACH_MINUTE,),
    "sliding": (SLIDING,),
    "merged": (
        MEAN,
        {"op": "merge", "function": "difference", "with": [{"variable": "surface_temperature", "steps": [MEAN]}]},
    ),
}
CONDITIONS = (
    HOT,
    {"kind": "missing", "after": "5min"},
    {"kind": "missing", "after": "8min"},
    {"kind": "rate", "below": -200, "per": "1h", "clear": -100},
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("surface", SURFACES)
def test_what_is_found_bit_by_bit_is_what_one_look_finds(
    standing: StandingQueries, live: Live, surface: str, seed: int
) -> None:
    """Stations fall silent and come back, slices come late, in lots, and of one variable before the other."""
    rng = np.random.default_rng([seed, len(surface)])
    for number, condition in enumerate(CONDITIONS):
        standing.add(query(f"all{number}", *SURFACES[surface], condition=condition))
        if surface != "merged":
            standing.add(query(f"one{number}", *SURFACES[surface], condition=condition, select={"station": "2"}))
    newest, silent = 10, set[str]()
    for _ in range(12):
        lot: dict[int, dict[str, float]] = {}
        for _ in range(int(rng.integers(1, 4))):
            newest += int(rng.integers(0, 4))
            at = newest if rng.random() < 0.65 else int(np.clip(newest - rng.integers(0, 20), 10, newest))
            silent ^= {str(rng.choice(list("234")))} if rng.random() < 0.2 else set()
            values = {one: float(rng.normal(14, 8)) for one in STATIONS if one not in silent and rng.random() < 0.8}
            lot.setdefault(at, {}).update(values or {"1": 5.0})
        live.add_all(sorted(lot.items()))
        if rng.random() < 0.7:
            live.add_all(sorted(lot.items()), variables=("surface_temperature",))
        if rng.random() < 0.6:
            settle(standing.runner)
    live.everywhere(newest + 1, 5.0)
    live.everywhere(newest + 1, 6.0, variable="surface_temperature")
    settle(standing.runner)
    found = {entry.name: episodes(entry) for entry in standing.store.entries()}
    assert any(found.values())
    for entry in standing.store.entries():
        anew = standing.add({**entry.definition.to_json(), "name": f"{entry.name}-again"})
        # As if everything had come at once.
        standing.store.keep(
            [EvaluationResult(anew.name, EvaluationProgress("not known any more", entry.progress.since_ns))]
        )
    settle(standing.runner)
    again = {entry.name.removesuffix("-again"): episodes(entry) for entry in standing.store.entries()[len(found) :]}
    assert again == found


def episodes(entry: Any) -> list[tuple[str, str, str | None]]:  # noqa: ANN401
    return sorted(
        (one.place, format_instant(one.onset_ns), one.cleared_ns and format_instant(one.cleared_ns))
        for one in entry.progress.episodes
    )


def test_each_point_of_a_surface_has_alerts_of_its_own(
    standing: StandingQueries, live: Live, evaluate: Evaluate
) -> None:
    """Of a map the extreme cell is judged; points are places, told apart also where two are equal."""
    at = {"step": "1arcsec", "points": {"lon": [7.1772, 7.1805, 7.1805], "lat": [45.8672, 45.8701, 45.8701]}}
    step = {"op": "interpolate", "method": "inverse_distance", "grid": at}
    standing.add(query("huts", MEAN, step, condition=HOT))
    for slice_ in range(10, 16):
        live.add(slice_, dict.fromkeys(STATIONS, 30.0 if slice_ > 12 else 5.0))
        evaluate()
    places = [place for happening, place, _ in told(standing, "huts") if happening == "raised"]
    assert places == ["point 0 (7.177200, 45.867200)", *(f"point {number} (7.180500, 45.870100)" for number in (1, 2))]
