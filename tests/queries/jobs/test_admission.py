"""Who may ask for what, and what is remembered of a job when its process is gone."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

import hypergrid as hg
from hypergrid.core.errors import NotFound, TooLarge
from hypergrid.execution.planning.explain import projected_s
from queries.jobs.admission import Asker, Limits, TooManyQueries, act_as
from queries.jobs.job_history import LOST, UNEXPECTED, Journal, JournalDamaged, Past
from queries.jobs.records import QueueFull
from queries.jobs.runner import Runner

Document = dict[str, Any]


class Gate(Protocol):
    """What the fixture of this name does."""

    failure: Exception | None

    def let(self, blocks: int) -> None: ...
    def open(self) -> None: ...


def hours(document: Document, count: int) -> Document:
    """A query of another length, so that it shares no run."""
    return {**document, "clip": {"time": ["2007-10-01T00:00Z", f"2007-10-01T{count:02}:00Z"]}}


@pytest.mark.parametrize("what", ["cells", "bytes", "seconds"])
def test_a_plan_above_a_limit_is_refused_with_both_numbers_and_at_it_is_not(
    archive: hg.OpenArchive, map_query: Document, what: str
) -> None:
    plan = archive.query(map_query).plan(refining=True)
    needed = {"cells": plan.cells, "bytes": plan.projected_bytes, "seconds": projected_s(plan)}[what]
    assert needed > 0
    replace(Limits(), **{what: needed}).check(plan)
    with pytest.raises(TooLarge, match="shorter time") as caught:
        replace(Limits(), **{what: needed * 0.9}).check(plan)
    assert (caught.value.projected, caught.value.allowed) == (needed, needed * 0.9)


def test_the_projected_time_is_that_of_explain(archive: hg.OpenArchive, map_query: Document) -> None:
    query = archive.query(map_query)
    text = query.explain(measured=True).splitlines()[-1]
    assert f"{projected_s(query.plan()):.2g} s by" in text


def test_limits_hold_for_whoever_asks_and_nobody_else(
    make_runner: Callable[..., Runner], archive: hg.OpenArchive, map_query: Document
) -> None:
    runner = make_runner(archive)
    with act_as(Asker("small", Limits(cells=10))), pytest.raises(TooLarge):
        runner.submit(map_query)
    assert runner.jobs() == []
    assert runner.submit(map_query).owner == ""
    with act_as(Asker("large", Limits(cells=1000))):
        assert runner.submit(map_query).owner == "large"


def test_one_asker_has_so_many_queries_and_others_have_theirs(
    make_runner: Callable[..., Runner], gate: Gate, map_query: Document, wait_until: Callable[..., None]
) -> None:
    runner = make_runner(gate)
    with act_as(Asker("a", Limits(queries=2))):
        first = runner.submit(hours(map_query, 3))
        runner.submit(hours(map_query, 4))
        with pytest.raises(TooManyQueries, match="2 of your queries"):
            runner.submit(hours(map_query, 5))
    with act_as(Asker("b", Limits(queries=2))):
        runner.submit(hours(map_query, 5))
    runner.cancel(first.id)
    with act_as(Asker("a", Limits(queries=2))):
        runner.submit(hours(map_query, 6))
    gate.open()
    wait_until(lambda: all(job.has_ended for job in runner.jobs()))


def test_a_full_queue_says_when_to_come_back_and_takes_who_shares(
    make_runner: Callable[..., Runner], gate: Gate, map_query: Document, wait_until: Callable[..., None]
) -> None:
    runner = make_runner(gate, capacity=1)
    runner.submit(hours(map_query, 3))
    wait_until(lambda: runner.statistics().running == 1)
    runner.submit(hours(map_query, 4))
    with pytest.raises(QueueFull) as caught:
        runner.submit(hours(map_query, 5))
    assert 1 <= caught.value.retry_s <= 60
    assert runner.submit(hours(map_query, 4)).state == "queued"
    assert runner.statistics().queued == 1


def test_after_the_process_every_job_has_ended_somehow(
    make_runner: Callable[..., Runner], gate: Gate, map_query: Document, wait_until: Callable[..., None], tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "jobs.sqlite", now_ns=1)
    runner = make_runner(gate, journal=journal)
    jobs = [runner.submit(hours(map_query, count)).id for count in (3, 4, 5, 6)]
    runner.cancel(jobs[1])
    done = jobs[0]
    for _ in range(200):
        # One after the other: what the first job needs no more would let the next one through.
        gate.let(1)
        wait_until(lambda: gate.is_used() or runner.job(done).has_ended)
        if runner.job(done).has_ended:
            break
    # It is written after it has ended.
    wait_until(lambda: any(one.id == done and one.state == "done" for one in journal.list_records()))
    # As another process sees the file that this one, killed, leaves behind: one runs, one waits.
    other = Journal(tmp_path / "jobs.sqlite", now_ns=2)
    assert other.lost == 2
    states = {one.id: (one.state, one.error) for one in other.list_records()}
    assert states == {
        jobs[0]: ("done", ""), jobs[1]: ("cancelled", "it was stopped"), jobs[2]: ("failed", LOST),
        jobs[3]: ("failed", LOST),
    }  # fmt: skip
    later = make_runner(gate, journal=other)
    assert [one.id for one in later.list_past_jobs()] == jobs[::-1]
    with pytest.raises(Past, match=LOST) as caught:
        later.job(jobs[2])
    assert caught.value.record.document["clip"]["time"][1] == "2007-10-01T05:00Z"
    with pytest.raises(Past):
        later.result(done)
    with pytest.raises(NotFound):
        later.job("none")
    gate.open()


def test_what_was_unexpected_is_not_kept_in_words(
    make_runner: Callable[..., Runner], gate: Gate, map_query: Document, wait_until: Callable[..., None], tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "jobs.sqlite", now_ns=1)
    runner = make_runner(gate, journal=journal)
    gate.failure = ZeroDivisionError("secret")
    gate.open()
    job = runner.submit(map_query)
    wait_until(lambda: runner.job(job.id).has_ended)
    wait_until(lambda: journal.list_records()[0].state == "failed")
    assert journal.list_records()[0].error == UNEXPECTED


def test_a_journal_forgets_the_oldest(
    make_runner: Callable[..., Runner], gate: Gate, map_query: Document, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "jobs.sqlite", now_ns=1, remembered=2)
    runner = make_runner(gate, journal=journal)
    jobs = [runner.submit(hours(map_query, count)).id for count in (3, 4, 5)]
    assert [one.id for one in journal.list_records()] == jobs[:0:-1]


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at", None])
def test_a_file_that_is_no_journal_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "jobs.sqlite"
    if content is None:
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 7")
        db.close()
    else:
        path.write_bytes(content * 20)
    with pytest.raises(JournalDamaged, match=r"jobs\.sqlite"):
        Journal(path, now_ns=1)


def test_a_full_disk_stops_no_query(
    make_runner: Callable[..., Runner], gate: Gate, map_query: Document, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "jobs.sqlite", now_ns=1)
    runner = make_runner(gate, journal=journal)
    journal.close()
    assert runner.submit(map_query).state == "queued"


def test_large_documents_are_forgotten_before_they_fill_the_memory(
    make_runner: Callable[..., Runner], gate: Gate, map_query: Document, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None],
) -> None:  # fmt: skip
    monkeypatch.setattr("queries.jobs.runner.DOCUMENT_BYTES", 100_000)
    journal = Journal(tmp_path / "jobs.sqlite", now_ns=1)
    runner = make_runner(gate, journal=journal)
    gate.open()
    jobs = []
    for number in range(5):
        ring = [
            [7.0, 45.0],
            [8.0, 45.0],
            [8.0, 46.0],
            *([7.0, 46.0 - number * 1e-4 - k * 1e-8] for k in range(1500)),
            [7.0, 45.0],
        ]
        zones = {"type": "FeatureCollection", "features": [
            {"type": "Feature", "properties": {"name": "a"}, "geometry": {"type": "Polygon", "coordinates": [ring]}},
        ]}  # fmt: skip
        steps = [*map_query["steps"], {"op": "aggregate", "function": "mean", "zones": zones}]
        jobs.append(runner.submit({**map_query, "steps": steps}).id)
        wait_until(lambda: runner.job(jobs[-1]).has_ended)
    assert 1 < len(runner.jobs()) < 5
    assert runner.job(jobs[-1]).state == "done"
    assert {one.document["variable"] for one in journal.list_records()} == {"air_temperature"}
    assert (tmp_path / "jobs.sqlite").stat().st_size < 60_000
