"""What is told of episodes: once each, also of very many, and to those who were told before a mute."""

from collections.abc import Callable

import numpy as np

from hypergrid.core.times import SECOND_NS
from queries.standing.alert_evaluation import MOST_EPISODES, select_remembered
from queries.standing.conditions import Episode, find_episodes, find_standing_places, reconcile
from queries.standing.service import StandingQueries
from queries.standing.statistics import StandingUpdate
from tests.queries.standing.live import STEP_NS, Clock, Live
from tests.queries.standing.test_runner import HOT, query

Evaluate = Callable[[], dict[str, StandingUpdate]]


def test_however_many_episodes_stand_each_is_raised_once() -> None:
    places = [f"s{number}" for number in range(MOST_EPISODES + 100)]
    standing: tuple[Episode, ...] = ()
    told = []
    for slice_ in range(4):
        starts = np.array([slice_ * STEP_NS])
        before = find_standing_places(standing, places, int(starts[0]))
        state = np.full((1, len(places)), slice_ < 3)
        episodes, changes = reconcile(standing, find_episodes(starts, state, before, places), int(starts[0]))
        standing = select_remembered(episodes, int(starts[0]))
        told.append([change.happening for change in changes])
    assert told == [["raised"] * len(places), [], [], ["cleared"] * len(places)]
    # What is over is forgotten at last, the oldest first.
    assert len(standing) == MOST_EPISODES


def test_what_was_told_before_a_mute_and_ended_within_is_told_at_its_end(
    standing: StandingQueries, live: Live, clock: Clock, evaluate: Evaluate
) -> None:
    standing.add(query("hot", condition=HOT))
    live.everywhere(10, 30.0)
    evaluate()
    standing.mute("hot", clock.ns + 3600 * SECOND_NS)
    # 1 is over, and goes on again; 2 is over; 3 never was; 4 stands.
    for values in ({"1": 5.0, "2": 5.0, "4": 30.0}, {"1": 30.0, "2": 5.0, "4": 30.0}):
        live.add(11, values)
        evaluate()
    live.add(10, {"3": 5.0})
    live.add(12, {"1": 30.0, "4": 30.0})
    evaluate()
    muted = [(one["happening"], one["place"]) for one in standing.alerts(after=4)]
    assert all(one["muted"] for one in standing.alerts(after=4))
    assert {("cleared", "1"), ("raised", "1"), ("cleared", "2"), ("withdrawn", "3")} <= set(muted)
    clock.ns += 7200 * SECOND_NS
    last = standing.alerts()[-1]["number"]
    live.add(13, {"1": 30.0, "4": 30.0})
    evaluate()
    live.add(14, {"1": 30.0, "4": 30.0})
    evaluate()
    told = standing.alerts(after=last)
    assert {(one["happening"], one["place"], one["muted"]) for one in told} == {
        ("cleared", "2", False), ("withdrawn", "3", False),
    }  # fmt: skip
    assert len(told) == 2
    (cleared,) = [one for one in told if one["place"] == "2"]
    assert cleared["readings"][0]["value"] == 5.0
    assert cleared["until"] == "2007-10-01T00:22:00Z"
