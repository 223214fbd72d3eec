"""The catalogue of standing queries: whose alerts are whose, and a file that is held, gone or another."""

import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import hypergrid as hg
from hypergrid.core.errors import ArchiveConflict, InvalidQuery, NotFound
from queries.standing.repository import CatalogueUnavailable, StandingStore
from queries.standing.service import StandingQueries
from tests.queries.standing.live import STATIONS, VARIABLES, Live
from tests.support.standing_runner import is_fresh, settle

AIR = {"variable": "air_temperature", "steps": []}
HOT = {"kind": "threshold", "above": 20, "clear": 18}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_what_was_found_for_a_query_is_not_told_for_another_of_its_name(
    standing: StandingQueries,
    live: Live,
    is_replaced: bool,  # noqa: FBT001 - a parametrized case
) -> None:
    def frost(below: float, to: str) -> dict[str, object]:
        condition = {"kind": "threshold", "below": below}
        return {"name": "frost", "query": AIR, "condition": condition, "to": [f"email:{to}@x.org"]}

    standing.add(frost(10, "old"))
    settle(standing.runner)
    live.everywhere(10, 3.0)
    # The runner has begun with the old one, when another takes its name: no poll lies between.
    runner = standing.runner
    runner._poll(runner._monotonic())
    if is_replaced:
        standing.replace(frost(-50, "new"))
    else:
        standing.remove("frost")
        standing.add(frost(-50, "new"))
    for _ in range(6):
        runner._polled_at_s = runner._monotonic()
        runner.work()
    settle(runner)
    assert standing.alerts() == []
    assert standing.store.list_waiting() == []
    assert standing.show("frost")["standing"] == []
    live.everywhere(11, -60.0)
    settle(runner)
    assert [(one["rule"], one["place"]) for one in standing.alerts()] == [
        ("value below -50 °C", place) for place in STATIONS
    ]
    assert {str(to) for _, to in standing.store.list_waiting()} == {"email:new@x.org"}


def test_a_query_that_is_replaced_stays_paused_and_muted(standing: StandingQueries) -> None:
    standing.add({"name": "hot", "query": AIR, "condition": HOT})
    standing.add({"name": "other", "query": AIR, "condition": HOT})
    before = standing.store.entry("hot")
    standing.pause("hot")
    muted_ns = before.created_ns + 10**15
    standing.mute("hot", muted_ns)
    made = standing.replace({"name": "hot", "query": AIR, "condition": {**HOT, "above": 30, "clear": 29}, "weight": 7})
    assert made == standing.store.entry("hot")
    assert (made.paused, made.muted_until_ns, made.definition.weight) == (True, muted_ns, 7)
    assert made.created_ns > before.created_ns
    assert [one["name"] for one in standing.listing()] == ["hot", "other"], "it keeps its place"
    with pytest.raises(NotFound, match="cold"):
        standing.replace({"name": "cold", "query": AIR})
    with pytest.raises(InvalidQuery):
        standing.replace({"name": "hot", "query": AIR, "condition": {"kind": "threshold"}})
    assert standing.store.entry("hot") == made, "what does not fit changes nothing"


def test_nobody_else_can_read_where_alerts_go(tmp_path: Path) -> None:
    made = StandingStore(tmp_path / "standing" / "standing.sqlite")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in made.path.parent.iterdir()}
    made.close()
    assert modes == dict.fromkeys(("standing.sqlite", "standing.sqlite-shm", "standing.sqlite-wal"), 0o600)


def test_a_catalogue_that_another_holds_is_not_called_damaged(
    standing: StandingQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = standing.store.path
    standing.add({"name": "hot", "query": AIR, "condition": HOT})
    standing.stop()
    monkeypatch.setattr(StandingStore, "kind", replace(StandingStore.kind, busy_s=0.2))
    holding = sqlite3.connect(path, isolation_level=None)
    holding.execute("BEGIN EXCLUSIVE")
    with pytest.raises(CatalogueUnavailable, match=r"sqlite has been held by another program for 0\.2 s.*try again"):
        StandingStore(path)
    holding.execute("ROLLBACK")
    # Likewise one that is held after it was opened.
    opened = StandingStore(path)
    holding.execute("BEGIN IMMEDIATE")
    with pytest.raises(CatalogueUnavailable, match="held by another program"):
        opened.pause("hot", paused=True)
    assert [one.paused for one in opened.entries()] == [False]
    holding.execute("ROLLBACK")
    holding.close()
    opened.pause("hot", paused=True)
    assert [one.paused for one in opened.entries()] == [True]
    opened.close()


def test_a_catalogue_that_may_not_be_written_says_so(tmp_path: Path) -> None:
    made = StandingStore(tmp_path / "standing.sqlite")
    made._db.execute("PRAGMA query_only = 1")
    with pytest.raises(CatalogueUnavailable, match="cannot be used now: .*its disk and its permissions"):
        made.recover()
    made._db.execute("PRAGMA query_only = 0")
    assert made.recover() == 0
    made.close()


def test_an_archive_that_was_made_anew_is_noticed(
    make_standing: Callable[..., StandingQueries],
    live: Live,
    wait_until: Callable[..., None],
) -> None:
    running = make_standing()
    running.add({"name": "hot", "query": AIR, "condition": HOT})
    running.start()
    wait_until(lambda: is_fresh(running.runner), seconds=30)
    shutil.rmtree(live.folder)
    anew = Live(live.folder, anew=True)
    anew.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(10)], variables=VARIABLES)
    words = "was removed or replaced while it was open"
    wait_until(lambda: words in running.statistics().trouble, seconds=30)
    anew.everywhere(10, 30.0)
    for change in (
        lambda: running.add({"name": "other", "query": AIR, "condition": HOT}),
        lambda: running.remove("hot"),
        lambda: running.test("hot"),
    ):
        with pytest.raises(CatalogueUnavailable, match=f"{words}.*start this program again"):
            change()
    with make_standing() as fresh:
        assert fresh.listing() == []
        fresh.add({"name": "hot", "query": AIR, "condition": HOT})
        anew.everywhere(11, 30.0)
        settle(fresh.runner)
        assert len(fresh.alerts()) == 4
    # It has written nothing into the new archive, and ends in peace.
    assert words in running.statistics().trouble
    assert running.alerts() == []
    running.stop()
    assert hg.open(live.folder).name == "live"


def test_one_process_at_a_time_keeps_an_archives_standing_queries(
    make_standing: Callable[..., StandingQueries],
    live: Live,
    wait_until: Callable[..., None],
) -> None:
    first, second = make_standing(), make_standing()
    first.add({"name": "hot", "query": AIR, "condition": HOT, "to": ["email:a@b.org"]})
    gate = threading.Event()
    first.notification_workers._send = {"email": lambda *_: gate.wait(30)}
    first.start()
    first.test("hot")
    wait_until(lambda: first.store.count_messages() == {"sending": 1}, seconds=30)
    words = rf"kept up to date by process {os.getpid()} on .*, since 2007-10-01T00:00Z; .*end that process first"
    with pytest.raises(ArchiveConflict, match=words):
        second.start()
    # The letter that the first has on its way is not taken from it.
    assert second.store.count_messages() == {"sending": 1}
    live.everywhere(10, 30.0)
    wait_until(lambda: is_fresh(first.runner) and len(first.alerts()) >= 5, seconds=30)
    assert len(second.alerts()) == 5
    # Meanwhile others may change what stands.
    second.pause("hot")
    gate.set()
    first.stop()
    second.start()
    second.resume("hot")
    live.everywhere(11, 5.0)
    wait_until(lambda: len(second.alerts()) == 9, seconds=30)
