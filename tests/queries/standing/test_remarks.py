"""Alerts are acknowledged, opened again and commented on: durably, by whom and when, once for all processes."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from hypergrid.core.errors import InvalidQuery, NotFound
from queries.standing.repository import MAX_REMARKS, StandingStore
from queries.standing.service import LONGEST_COMMENT, StandingQueries
from queries.standing.statistics import StandingUpdate
from tests.queries.standing.live import Clock, Live
from tests.queries.standing.test_runner import HOT, query

Evaluate = Callable[[], dict[str, StandingUpdate]]


@pytest.fixture
def hot(standing: StandingQueries, live: Live, evaluate: Evaluate) -> StandingQueries:
    """Return standing queries of which one has raised alerts 1 and 2, at stations 1 and 2."""
    standing.add(query("hot", condition=HOT, to=["events", "email:warden@example.org"]))
    live.everywhere(10, 5.0)
    live.add(10, {"1": 30.0, "2": 30.0})
    evaluate()
    return standing


def describe(remark: dict[str, str]) -> str:
    return f"{remark['happening']} {remark['author']} {remark['comment']}"


def state(standing: StandingQueries) -> dict[str, tuple[bool, list[str]]]:
    """Return by place whether an open alert is acknowledged, and the remarks on it."""
    return {
        one["place"]: (one["acknowledged"], [describe(remark) for remark in one["remarks"]])
        for one in standing.show("hot")["standing"]
    }


def test_who_does_what_and_when_is_kept_and_listed(hot: StandingQueries, live: Live, clock: Clock) -> None:
    assert state(hot) == {"1": (False, []), "2": (False, [])}
    waiting = hot.store.list_waiting()
    clock.ns += 60 * 10**9
    made = hot.remark(1, "acknowledged", author="ana", comment="  The heater\nruns. ")
    assert (made["number"], made["about"], made["happening"], made["at"]) == (
        3,
        1,
        "acknowledged",
        "2007-10-01T00:01:00Z",
    )
    assert (made["query"], made["place"], made["text"]) == (
        "hot",
        "1",
        "hot acknowledged at 1 by ana: The heater\nruns.",
    )
    hot.remark(1, "commented", author="bo", comment="Seen <b>")
    assert state(hot)["1"] == (True, ["acknowledged ana The heater\nruns.", "commented bo Seen <b>"])
    hot.remark(1, "reopened", author="bo")
    assert state(hot)["1"] == (False, [*state(hot)["1"][1][:2], "reopened bo "])
    assert hot.listing()[0]["standing"] == hot.show("hot")["standing"]
    assert [one["happening"] for one in hot.alerts()] == ["raised", "raised", "acknowledged", "commented", "reopened"]
    assert [one["number"] for one in hot.alerts(limit=2, newest=True)] == [4, 5]
    assert [one["number"] for one in hot.alerts(after=3, limit=2)] == [4, 5]
    assert hot.store.list_waiting() == waiting, "remarks go to no recipient"


def test_an_alert_that_is_raised_again_is_open_again(hot: StandingQueries, live: Live, evaluate: Evaluate) -> None:
    hot.remark(2, "acknowledged", author="ana")
    live.add(11, {"1": 30.0, "2": 30.0})
    evaluate()
    assert state(hot)["2"][0], "it goes on"
    live.add(12, {"2": 5.0})
    evaluate()
    assert "2" not in state(hot)
    live.add(13, {"2": 30.0})
    evaluate()
    assert state(hot)["2"] == (False, [])


def test_other_processes_see_remarks_and_a_copy_has_them(hot: StandingQueries, live: Live) -> None:
    path = hot.store.path
    with closing(StandingStore(path)) as other:
        assert other.remarks() == {}
        hot.remark(1, "acknowledged", author="ana")
        assert [one.happening for one in other.remarks()[1]] == ["acknowledged"]
    hot.stop()
    copy = path.with_name("copy.sqlite")
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as db:
        (body,) = db.execute("SELECT body FROM alerts WHERE number = 3").fetchone()
        db.execute("UPDATE alerts SET body = ? WHERE number = 3", (body.replace("ana", "eva"),))
        db.commit()
    with closing(StandingStore(copy)) as damaged:
        assert damaged.remarks() == {}, "what was changed behind the catalogue's back is not shown"
    with closing(StandingStore(path)) as kept:
        assert [one.body["author"] for one in kept.remarks()[1]] == ["ana"]


def test_what_does_not_fit_is_refused(hot: StandingQueries) -> None:
    with pytest.raises(NotFound, match="no alert has the number 9"):
        hot.remark(9, "acknowledged", author="ana")
    with pytest.raises(InvalidQuery, match="needs a text"):
        hot.remark(1, "commented", author="ana", comment=" \n ")
    with pytest.raises(InvalidQuery, match="at most 1,000 letters; got 1,001"):
        hot.remark(1, "commented", author="ana", comment="x" * (LONGEST_COMMENT + 1))
    with pytest.raises(InvalidQuery, match="control characters"):
        hot.remark(1, "commented", author="ana", comment="a\x1b[2J")
    number = hot.remark(1, "acknowledged", author="ana", comment="é" * LONGEST_COMMENT)["number"]
    with pytest.raises(InvalidQuery, match="is itself a remark, on alert 1"):
        hot.remark(number, "commented", author="ana", comment="x")
    for _ in range(MAX_REMARKS - 1):
        hot.remark(1, "commented", author="ana", comment="x")
    with pytest.raises(InvalidQuery, match="has 100 remarks already"):
        hot.remark(1, "commented", author="ana", comment="x")
    hot.remark(2, "commented", author="ana", comment="x")


def test_remarks_outlive_the_query(hot: StandingQueries) -> None:
    hot.remove("hot")
    hot.remark(1, "commented", author="ana", comment="It was the sensor.")
    assert hot.alerts()[-1]["comment"] == "It was the sensor."
