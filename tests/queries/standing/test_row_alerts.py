"""Alerts of kept continuous queries: an episode for each key of a result, corrections included, over restarts."""

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.core.times import format_timestamp, parse_instant
from queries.standing import row_alerts
from queries.standing.continuous_alerts import ContinuousAlerts
from queries.standing.definition import Conflict
from queries.standing.service import StandingQueries
from tests.queries.standing.live import START_NS, STATIONS, STEP_NS, Live
from tests.support.standing_runner import settle

WARM = (
    "Select station, avg(value) as mean From air_temperature [Range 2 Minutes] Group By station Having avg(value) > 20"
)
"""A relation: the stations whose newest reading, as long as the next is awaited, is warm."""
HOT = "Select station, value From air_temperature Where value > 20"
"""A stream."""

Alerts = list[tuple[str, str, int]]


def slice_of(instant: str) -> int:
    return (parse_instant(instant) - START_NS) // STEP_NS


def list_alerts(standing: StandingQueries, name: str = "warm") -> Alerts:
    """List happening, place and slice of the onset of all alerts."""
    return [(alert["happening"], alert["place"], slice_of(alert["since"])) for alert in standing.alerts(name=name)]


def keep(standing: StandingQueries, text: str = WARM, **alert: Any) -> None:  # noqa: ANN401
    ContinuousAlerts(standing).add({"name": "warm", "text": text, "alert": {"to": ["events"], **alert}})
    settle(standing.runner)


def at(slice_: int, value: float, *stations: str) -> tuple[int, dict[str, float]]:
    """Return a slice in which some stations have a value, and the others 5 degrees."""
    return slice_, {station: value if station in stations else 5.0 for station in STATIONS}


def test_an_alert_begins_when_a_row_enters_and_ends_when_it_leaves(live: Live, standing: StandingQueries) -> None:
    keep(standing)
    assert list_alerts(standing) == []
    live.add(*at(10, 25.0, "1"))
    live.add(*at(11, 26.0, "1", "2"))
    live.add(*at(12, 5.0))
    settle(standing.runner)
    # Another mean of the same station is the same episode. Results of the newest instant wait for a later one.
    assert list_alerts(standing) == [("raised", "1", 10), ("raised", "2", 11)]
    (first, _) = standing.alerts(name="warm")
    assert first["row"] == {"station": "1", "mean": 25.0}
    assert "mean 25 °C" in first["text"]
    assert first["continuous"] == "warm"
    live.add(*at(13, 5.0))
    settle(standing.runner)
    assert list_alerts(standing)[2:] == [("cleared", "1", 10), ("cleared", "2", 11)]
    assert standing.show("warm")["standing"] == []


def test_of_the_past_only_what_lasts_is_reported(live: Live, standing: StandingQueries) -> None:
    live.add_all([at(10, 25.0, "1", "2"), at(11, 25.0, "2"), at(12, 25.0, "2"), at(13, 25.0, "2")])
    keep(standing)
    assert list_alerts(standing) == [("raised", "2", 10)]
    # A late reading that shows another episode of the past is no news either.
    live.add(9, {"3": 30.0})
    settle(standing.runner)
    assert list_alerts(standing) == [("raised", "2", 10)]


def test_a_correction_that_removes_an_alerted_row_is_told_as_withdrawn(live: Live, standing: StandingQueries) -> None:
    keep(standing)
    live.add(*at(10, 25.0, "1", "2"))
    live.add(*at(11, 25.0, "2"))
    live.add(*at(12, 25.0, "2"))
    settle(standing.runner)
    assert list_alerts(standing) == [("raised", "1", 10), ("raised", "2", 10), ("cleared", "1", 10)]
    live.add(10, {"1": 5.0})
    settle(standing.runner)
    *_, last = standing.alerts(name="warm")
    assert (last["happening"], last["place"], last["late"]) == ("withdrawn", "1", True)
    # The other way round: an amendment shows an episode that was missed, and tells of it as late.
    live.add(10, {"3": 25.0})
    settle(standing.runner)
    *_, raised, cleared = standing.alerts(name="warm")
    assert [(each["happening"], each["place"], each["late"]) for each in (raised, cleared)] == [
        ("raised", "3", True),
        ("cleared", "3", True),
    ]


def test_elements_of_a_stream_are_one_episode_until_their_key_is_quiet(live: Live, standing: StandingQueries) -> None:
    keep(standing, HOT, quiet="6min")
    # Four minutes apart is within the quiet time, eight are not.
    for slice_ in (10, 12, 16):
        live.add(*at(slice_, 25.0, "1"))
        live.add(*at(slice_ + 1, 5.0))
        settle(standing.runner)
    assert list_alerts(standing) == [("raised", "1", 10), ("raised", "1", 16)]
    live.add(16, {"1": 5.0})
    settle(standing.runner)
    assert list_alerts(standing)[2:] == [("withdrawn", "1", 16)]


def test_a_muted_alert_that_lasts_is_reported_after_the_mute(
    live: Live,
    standing: StandingQueries,
    clock: Any,  # noqa: ANN401
) -> None:
    keep(standing)
    standing.mute("warm", clock.ns + 1000)
    live.add(*at(10, 25.0, "1"))
    live.add(*at(11, 25.0, "1"))
    live.add(*at(12, 25.0, "1"))
    settle(standing.runner)
    assert [alert["muted"] for alert in standing.alerts(name="warm")] == [True]
    clock.ns += 2000
    settle(standing.runner)
    assert [alert["muted"] for alert in standing.alerts(name="warm")] == [True, False]


def test_a_restart_at_any_step_loses_and_repeats_nothing(
    live: Live, make_standing: Callable[..., StandingQueries], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_standing()
    keep(first)
    live.add(*at(10, 25.0, "1"))
    live.add(*at(11, 5.0))
    live.add(*at(12, 5.0))
    # Killed between the two transactions: the elements are kept, and the alerts are not.
    with monkeypatch.context() as patched:
        patched.setattr(first.store, "keep", lambda _results: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            settle(first.runner)
    assert first.kept.list_elements("warm", 0, 10)
    assert list_alerts(first) == []
    second = make_standing()
    settle(second.runner)
    assert list_alerts(second) == [("raised", "1", 10), ("cleared", "1", 10)]
    third = make_standing()
    settle(third.runner)
    live.add(*at(13, 25.0, "4"))
    live.add(*at(14, 25.0, "4"))
    settle(third.runner)
    assert list_alerts(third) == [("raised", "1", 10), ("cleared", "1", 10), ("raised", "4", 13)]


@pytest.mark.parametrize("seed", range(6))
def test_alerts_of_random_commits_are_the_episodes_of_one_back_test(
    seed: int, live: Live, make_standing: Callable[..., StandingQueries]
) -> None:
    """The oracle goes through the final rows instant by instant; late readings and restarts come at random."""
    chosen = random.Random(seed)
    standing = make_standing()
    keep(standing)
    for slice_ in range(10, 40):
        warm = [station for station in STATIONS if chosen.random() < 0.4]
        late = [station for station in STATIONS if chosen.random() < 0.2]
        live.add(slice_, {key: value for key, value in at(slice_, 25.0, *warm)[1].items() if key not in late})
        if chosen.random() < 0.4:
            back = chosen.randint(10, slice_)
            live.add(back, {chosen.choice(list(STATIONS)): chosen.choice([5.0, 25.0])})
        if chosen.random() < 0.6:
            settle(standing.runner)
        if chosen.random() < 0.1:
            standing.stop()
            standing = make_standing()
    live.add(*at(41, 5.0))
    live.add(*at(42, 5.0))
    settle(standing.runner)
    alerts = standing.alerts(name="warm", limit=1000)
    assert len({alert["number"] for alert in alerts}) == len(alerts)
    # The last that was said of each station is that it is over.
    assert "raised" not in {alert["place"]: alert["happening"] for alert in alerts}.values()
    heartbeat = standing.kept.entry("warm").heartbeat_ns
    changes = hg.continuous(live.folder).query(WARM).run()
    held: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for tau, sign, station, _ in changes.itertuples(index=False):
        held[station].append((tau.value, sign))
    expected = {}
    for station, elements in held.items():
        net: dict[int, int] = defaultdict(int)
        for tau, sign in elements:
            net[tau] += sign
        count, since = 0, None
        for tau in sorted(tau for tau in net if tau < heartbeat):
            count += net[tau]
            if count > 0 and since is None:
                since = tau
            elif count == 0 and since is not None:
                expected[station, format_timestamp(since)] = format_timestamp(tau)
                since = None
    known = {key: until for key, until in standing_episodes(standing).items() if until is not None}
    assert known == expected


def standing_episodes(standing: StandingQueries) -> dict[tuple[str, str], str | None]:
    """Return the episodes that are remembered: place and onset, and the end."""
    episodes = standing.store.entry("warm").progress.episodes
    return {
        (each.place, format_timestamp(each.onset_ns)): None
        if each.cleared_ns is None
        else format_timestamp(each.cleared_ns)
        for each in episodes
    }


DAY = 720
"""Slices of a day."""


@pytest.mark.parametrize("text", [WARM, HOT])
def test_alerts_that_were_not_judged_for_longer_than_rows_are_kept_go_on_from_those_that_are(
    text: str, live: Live, make_standing: Callable[..., StandingQueries]
) -> None:
    first = make_standing()
    document = {"name": "warm", "text": text, "keep": "1day", "alert": {"to": ["events"], "quiet": "10min"}}
    ContinuousAlerts(first).add(document)
    settle(first.runner)
    live.add_all([at(slice_, 25.0, "1") for slice_ in range(10, 13)])
    settle(first.runner)
    assert list_alerts(first) == [("raised", "1", 10)]
    first.stop()
    # Station 1 cools, 2 stays warm from the first day on, 3 is warm for some hours of a day whose rows are dropped.
    days = [at(slice_, 25.0, *("2",) * (slice_ > 100), *("3",) * (200 < slice_ < 300)) for slice_ in range(13, 4 * DAY)]
    for begin in range(0, len(days), DAY):
        live.add_all(days[begin : begin + DAY])
        hg.continuous(live.folder).live_query("warm").step()
    retention = hg.continuous(live.folder).live_query("warm").entry.retention
    kept = (retention.kept_ns - START_NS) // STEP_NS
    assert 2 * DAY < kept < 3 * DAY
    second = make_standing()
    settle(second.runner)
    live.add(*at(4 * DAY, 25.0, "2", "4"))
    live.add(*at(4 * DAY + 1, 25.0, "2", "4"))
    settle(second.runner)
    # What holds is known from its row, an episode of a stream from what is kept of it.
    since = 101 if text == WARM else kept + 1
    said = {(happening, place): slice_ for happening, place, slice_ in list_alerts(second)}
    assert said["raised", "2"] == pytest.approx(since, abs=1)
    assert said["raised", "4"] == 4 * DAY
    assert ("cleared", "1") in said or text == HOT
    assert "3" not in {place for _, place in said}
    assert len(said) == len(list_alerts(second))


def test_an_episode_of_a_stream_that_goes_on_keeps_its_onset_when_its_first_rows_are_dropped(
    live: Live, standing: StandingQueries
) -> None:
    document = {"name": "warm", "text": HOT, "keep": "1day", "alert": {"to": ["events"], "quiet": "10min"}}
    ContinuousAlerts(standing).add(document)
    for begin in range(10, 4 * DAY, DAY // 2):
        live.add_all([at(slice_, 25.0, "1") for slice_ in range(begin, begin + DAY // 2)])
        settle(standing.runner)
    assert standing.kept.entry("warm").retention.kept_ns > START_NS + DAY * STEP_NS
    assert list_alerts(standing) == [("raised", "1", 10)]


def test_one_failing_query_does_not_stop_others(
    live: Live, standing: StandingQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = ContinuousAlerts(standing)
    keep(standing)
    queries.add({"name": "broken", "text": HOT})
    settle(standing.runner)
    original = standing.kept._step

    def step(name: str, *rest: Any) -> int:  # noqa: ANN401
        if name == "broken":
            raise InvalidQuery("no such column any more")
        return original(name, *rest)

    monkeypatch.setattr(standing.kept, "_step", step)
    live.add(*at(10, 25.0, "1"))
    live.add(*at(11, 25.0, "1"))
    settle(standing.runner)
    assert list_alerts(standing) == [("raised", "1", 10)]
    assert queries.show("broken")["error"] == "no such column any more"
    assert queries.show("warm")["error"] == ""
    assert standing.statistics().failing == ("broken",)


def test_too_many_keys_are_refused_with_both_numbers(
    live: Live, standing: StandingQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_alerts, "MOST_OPEN", 2)
    keep(standing)
    live.add(*at(10, 25.0, "1", "2", "3"))
    live.add(*at(11, 25.0, "1", "2", "3"))
    settle(standing.runner)
    error = standing.runner.state("warm").error
    assert "3" in error
    assert "2" in error
    assert list_alerts(standing) == []
    assert issubclass(TooLarge, Exception)


def test_removed_queries_take_their_alert_with_them_and_names_can_be_used_again(
    live: Live, standing: StandingQueries
) -> None:
    queries = ContinuousAlerts(standing)
    keep(standing)
    with pytest.raises(Conflict, match="kept already"):
        queries.add({"name": "warm", "text": HOT})
    queries.remove("warm")
    assert standing.listing() == []
    with pytest.raises(NotFound, match="kept continuous query"):
        queries.show("warm")
    live.add(*at(10, 25.0, "1"))
    live.add(*at(11, 25.0, "1"))
    keep(standing, HOT)
    assert queries.show("warm")["result"] == "stream"
    assert [element.row for element in standing.kept.list_elements("warm", 0, 10)] == [("1", 25.0)]


def test_a_long_stretch_is_evaluated_in_pieces(live: Live, standing: StandingQueries) -> None:
    live.add_all([at(slice_, 25.0, "1") for slice_ in range(10, 2000)])
    queries = ContinuousAlerts(standing)
    queries.add({"name": "warm", "text": HOT})
    standing.runner.work()
    assert not queries.show("warm")["complete"]
    settle(standing.runner)
    assert queries.show("warm")["complete"]
    assert standing.kept.steps("warm") > 2
    numbers = [element.number for element in standing.kept.iterate_elements("warm", 0)]
    assert len(numbers) == len(set(numbers)) == 1989
