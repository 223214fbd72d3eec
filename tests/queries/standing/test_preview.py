"""A preview says of past readings what live evaluation says of the same ones as they come, and stays within limits."""

from itertools import count
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, TooLarge
from hypergrid.core.times import DAY_NS, SECOND_NS, Window, format_timestamp
from queries.standing import alert_evaluation
from queries.standing.definition import definition_from_json
from queries.standing.preview import MOST_LINES, MOST_ROWS, MeasureLines, _thin_lines, preview_alerts
from queries.standing.service import StandingQueries
from tests.queries.standing.live import START_NS, STATIONS, STEP_NS, Clock, Live
from tests.queries.standing.test_runner import HOT, MAP, MEAN, query
from tests.support.standing_runner import settle

HOUR_NS = 3600 * SECOND_NS
CONDITIONS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "above, with hysteresis": (HOT, []),
    "below, of means": ({"kind": "threshold", "below": 6.0}, [MEAN]),
    "rises within four minutes": ({"kind": "rate", "above": 8.0, "per": "4min", "over": "4min"}, []),
    "falls from one value to the next": ({"kind": "rate", "below": -4.0, "per": "2min", "clear": -1.0}, []),
    "missing": ({"kind": "missing", "after": "4min"}, []),
    "the map's greatest cell": (HOT, [MEAN, MAP]),
}
"""Conditions on rows, and the steps of their queries."""
FIRST = 10
"""The first slice that comes after a query was made."""


def happened(alerts: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return what was told, in any order; when it ended is not known yet when it is raised."""
    return sorted((one["happening"], one["place"], one["since"]) for one in alerts)


@pytest.mark.parametrize("name", CONDITIONS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(
        st.fixed_dictionaries(
            {station: st.sampled_from([5.0, 12.0, 17.0, 19.0, 25.0, np.nan]) for station in STATIONS}
        ),
        min_size=4, max_size=14,
    )
)  # fmt: skip
def test_it_says_what_is_told_as_readings_come(
    name: str, values: list[dict[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    condition, steps = CONDITIONS[name]
    live = Live(tmp_path_factory.mktemp("live") / "archive")
    live.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(FIRST)])
    document = query("hot", *steps, condition=condition)
    with StandingQueries(hg.open(live.folder), clock=Clock().time_ns) as standing:
        standing.add(document)
        for slice_, row in zip(count(FIRST), values):
            live.add(slice_, row)
            settle(standing.runner)
        window = Window(START_NS + FIRST * STEP_NS, START_NS + (FIRST + len(values)) * STEP_NS)
        previewed = standing.preview(document, window).to_json()
        followed = standing.store.entry("hot").progress.episodes
        alerts = standing.alerts()
    # Means are judged with each slice that reaches their cell: alerts may be withdrawn, but the episodes are the same.
    assert {(one["place"], one["since"], one["until"]) for one in previewed["alerts"]} == {
        (one.place, format_timestamp(one.onset_ns), one.cleared_ns and format_timestamp(one.cleared_ns))
        for one in followed
    }
    if not steps:
        assert happened(previewed["alerts"]) == happened(alerts)
    assert previewed["raised"] == sum(one["happening"] == "raised" for one in previewed["alerts"])


def test_its_alerts_say_what_live_ones_say(standing: StandingQueries, live: Live) -> None:
    for slice_, value in enumerate([19.0, 21.0, 20.5, 19.0, 18.0, 21.0], start=FIRST):
        live.everywhere(slice_, 5.0)
        live.add(slice_, {"2": value})
    made = standing.preview(
        {"title": "Too hot!", "query": {"variable": "air_temperature", "steps": []}, "condition": HOT}
    )
    told = made.to_json()
    assert (told["start"], told["stop"]) == ("2007-09-24T00:32:00Z", "2007-10-01T00:32:00Z"), "the newest week"
    assert (told["rule"], told["unit"], told["level"], told["clear"]) == (
        "value above 20 °C, cleared at 18 °C", "degC", 20.0, 18.0,
    )  # fmt: skip
    assert [(one["happening"], one["since"], one["until"]) for one in told["alerts"]] == [
        ("raised", "2007-10-01T00:22:00Z", "2007-10-01T00:28:00Z"),
        ("cleared", "2007-10-01T00:22:00Z", "2007-10-01T00:28:00Z"),
        ("raised", "2007-10-01T00:30:00Z", None),
    ]
    first = told["alerts"][0]
    assert first["readings"] == [{"time": "2007-10-01T00:22:00Z", "value": 21.0, "unit": "degC", "measure": 21.0}]
    assert first["text"].startswith("too-hot raised at 2, 2007-10-01T00:22Z")
    assert (told["places"], told["series"]["places"][0]) == (4, "2"), "those with alerts first"
    assert made.lines is not None
    assert made.lines.measure[-6:, 0].tolist() == [19.0, 21.0, 20.5, 19.0, 18.0, 21.0]
    assert told["recent"]["low"] == told["recent"]["middle"] == 5.0
    assert told["recent"]["high"] > 18.0
    assert standing.alerts() == []
    assert standing.listing() == []


def test_without_a_condition_it_gives_recent_values_and_of_what_came_later_nothing(
    standing: StandingQueries, live: Live
) -> None:
    live.everywhere(10, 50.0)
    until = Window(START_NS, START_NS + 10 * STEP_NS)
    told = standing.preview(query("air"), until).to_json()
    assert (told["rule"], told["raised"], told["alerts"]) == ("", 0, [])
    assert (told["recent"]["high"], len(told["series"]["times"])) == (5.0, 10)
    later = standing.preview(query("air")).to_json()
    assert later["recent"]["high"] > 40.0


def test_a_station_that_died_is_previewed_by_what_preceded_the_window(standing: StandingQueries, live: Live) -> None:
    for slice_ in range(10, 60):
        live.add(slice_, {name: 5.0 for name in STATIONS if name != "2" or not 30 <= slice_ < 50})
    window = Window(START_NS + 20 * STEP_NS, START_NS + 60 * STEP_NS)
    told = standing.preview(query("dead", condition={"kind": "dead"}), window).to_json()
    assert [(one["happening"], one["place"], one["since"]) for one in told["alerts"]] == [
        ("raised", "2", "2007-10-01T01:07:00Z"), ("cleared", "2", "2007-10-01T01:07:00Z"),
    ]  # fmt: skip
    assert told["alerts"][0]["until"] == format_timestamp(START_NS + 50 * STEP_NS)
    assert (told["series"], told["places"]) == (None, 0)
    one = {"variable": "air_temperature", "steps": [], "select": {"station": "1"}}
    assert standing.preview({"name": "one", "query": one, "condition": {"kind": "dead"}}, window).alerts == ()


def test_a_silent_network_is_previewed_by_its_gaps(standing: StandingQueries, live: Live) -> None:
    live.everywhere(40, 5.0)
    live.everywhere(41, 5.0)
    told = standing.preview(query("quiet", condition={"kind": "silent", "after": "30min"})).to_json()
    assert [(one["happening"], one["since"], one["until"]) for one in told["alerts"]] == [
        ("raised", "2007-10-01T00:48:00Z", None), ("cleared", "2007-10-01T00:48:00Z", "2007-10-01T01:20:00Z"),
    ]  # fmt: skip
    assert standing.preview(query("quiet", condition={"kind": "silent", "after": "2h"})).alerts == ()


def test_a_silence_that_lasts_is_previewed_to_the_end_of_the_window(standing: StandingQueries) -> None:
    document = query("quiet", condition={"kind": "silent", "after": "30min"})
    told = standing.preview(document, Window(START_NS, START_NS + HOUR_NS)).to_json()
    assert [(one["happening"], one["since"], one["until"]) for one in told["alerts"]] == [
        ("raised", "2007-10-01T00:48:00Z", None)
    ]
    assert standing.preview(document, Window(START_NS, START_NS + HOUR_NS // 2)).alerts == ()


REFUSED: list[tuple[dict[str, Any], Window | None, type[HyperGridError], str]] = [
    (query("x", variable="rain"), None, HyperGridError, "rain"),
    (query("x", condition={"kind": "threshold", "above": "3 m"}), None, HyperGridError, "m"),
    (query("x"), Window(START_NS - 40 * DAY_NS, START_NS), InvalidTime, "at most 31day; got 40day"),
    (query("x"), Window(START_NS - 40 * DAY_NS, START_NS - 30 * DAY_NS), InvalidQuery, "no time cells between"),
    (query("x", {"op": "aggregate", "function": "mean", "time": "hour_of_day"}), None, InvalidQuery, "follow one"),
]


@pytest.mark.parametrize(("document", "window", "error", "words"), REFUSED)
def test_what_cannot_be_previewed_says_why(
    standing: StandingQueries, document: dict[str, Any], window: Window | None, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        standing.preview(document, window)


def test_a_preview_ends_when_its_time_is_over(live: Live) -> None:
    seconds = count(0.0, 6.0)
    definition = definition_from_json(query("map", MEAN, MAP, condition=HOT))
    with pytest.raises(TooLarge, match="seconds of computing, above the 10 allowed"):
        preview_alerts(definition, hg.open(live.folder), clock=lambda: next(seconds))


def test_a_preview_of_arrivals_is_limited_as_well(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = hg.open(live.folder)
    for condition in ({"kind": "dead"}, {"kind": "silent", "after": "30min"}):
        seconds = count(0.0, 11.0)
        definition = definition_from_json(query("arrivals", condition=condition))
        with pytest.raises(TooLarge, match="seconds of computing, above the 10 allowed; preview a shorter time"):
            preview_alerts(definition, archive, clock=lambda seconds=seconds: next(seconds))
    monkeypatch.setattr(alert_evaluation, "MOST_ARRIVALS", 5)
    with pytest.raises(TooLarge, match="readings at least, above the 5 allowed; preview a shorter time"):
        preview_alerts(definition_from_json(query("dead", condition={"kind": "dead"})), archive)


def test_many_rows_and_places_keep_their_extremes(standing: StandingQueries, live: Live) -> None:
    lines = MeasureLines(np.arange(10_000), ("a",), np.full((10_000, 1), np.nan))
    lines.measure[7777] = 9.0
    for rises, extreme in ((True, np.nanmax), (False, np.nanmin)):
        thin = _thin_lines(lines, rises=rises)
        assert (len(thin.starts_ns), extreme(thin.measure)) == (MOST_ROWS, 9.0)
    at = {
        "lon": [7.177 + number / 8000 for number in range(20)],
        "lat": [45.867 + number / 8000 for number in range(20)],
    }
    points = {"points": at, "step": "1arcsec"}
    told = standing.preview(query("points", MEAN, {**MAP, "grid": points})).to_json()
    assert (told["places"], len(told["series"]["places"])) == (20, MOST_LINES)


def test_titles_make_names_that_are_free(standing: StandingQueries) -> None:
    def make(title: str) -> str:
        return standing.add({"title": title, "query": {"variable": "air_temperature", "steps": []}}).name

    assert make("Frost in the Vallée!") == "frost-in-the-vallee"
    assert make("frost in the vallee") == "frost-in-the-vallee-2"
    assert (make("霜"), make("霜注意")) == ("query", "query-2")
    assert make("Alerts") == "alerts-2", "that is a page's name"
    assert len(make("a" * 200)) < 63
    assert standing.show("query")["title"] == "霜"
    with pytest.raises(InvalidQuery, match="needs the key 'name', or a 'title'"):
        standing.add({"query": {"variable": "air_temperature"}})
