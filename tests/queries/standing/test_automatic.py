"""Automatic interpolations of standing queries: chosen when they are made, and again only when asked."""

from collections.abc import Callable, Mapping
from typing import Any

from queries.standing.service import StandingQueries
from queries.standing.statistics import StandingUpdate
from tests.queries.standing.live import STATIONS, Live

GRID = {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": [5, 5]}
MAP: dict[str, Any] = {
    "name": "map",
    "query": {
        "variable": "air_temperature",
        "steps": [
            {"op": "aggregate", "function": "mean", "time": "10min"},
            {"op": "interpolate", "method": "auto", "grid": GRID},
        ],
    },
}

Evaluate = Callable[[], dict[str, StandingUpdate]]


def add_slices(live: Live, slices: range, *, slope: float) -> None:
    values = {station: 5.0 + slope * number for number, station in enumerate(STATIONS)}
    live.add_all([(slice_, values) for slice_ in slices])


def step_of(query: Mapping[str, Any]) -> dict[str, Any]:
    return dict(query["steps"][1])


def test_a_standing_query_keeps_what_was_chosen_until_it_is_replaced(
    live: Live, standing: StandingQueries, evaluate: Evaluate
) -> None:
    add_slices(live, range(10, 15), slope=1.0)
    chosen = step_of(standing.add(MAP).definition.query)
    assert chosen["method"] == "ordinary_kriging"
    assert chosen["grid"] == GRID
    assert "auto chose" in chosen["params"]["because"]
    add_slices(live, range(15, 25), slope=9.0)
    assert evaluate()["map"].error == ""
    assert step_of(standing.store.entry("map").definition.query) == chosen
    assert "snapshot" not in standing.store.entry("map").definition.query
    again = step_of(standing.replace(MAP).definition.query)
    assert again["params"]["variogram"] != chosen["params"]["variogram"]


def test_without_readings_that_differ_it_stays_automatic_and_is_evaluated(
    live: Live, standing: StandingQueries, evaluate: Evaluate
) -> None:
    assert step_of(standing.add(MAP).definition.query)["method"] == "auto"
    add_slices(live, range(10, 15), slope=1.0)
    assert evaluate()["map"].error == ""
