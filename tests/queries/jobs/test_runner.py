"""The runner: order, sharing, stopping between blocks, keeping and dropping results."""

import itertools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.interpolation.kernels.threads import share
from queries.jobs import runner as runner_module
from queries.jobs.admission import Asker, Limits, act_as
from queries.jobs.block_queue import PROJECTED_S
from queries.jobs.records import NotReady, QueueFull, ResultGone
from queries.jobs.runner import LARGE_NICE, Runner, answer

Make = Callable[..., Runner]
Document = dict[str, Any]
Wait = Callable[..., None]


class Gate(Protocol):
    """What the fixture of this name does."""

    runs: int
    failure: Exception | None

    def let(self, blocks: int) -> None: ...
    def open(self) -> None: ...


def other(query: Document, rows: int) -> Document:
    """The same question on a grid with other rows: another token."""
    steps = [dict(step) for step in query["steps"]]
    steps[2]["grid"] = {**steps[2]["grid"], "shape": [rows, 12]}
    return {**query, "steps": steps}


def test_a_result_equals_that_of_compute(
    make_runner: Make, archive: hg.OpenArchive, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(archive)
    job = runner.submit(map_query)
    wait_until(lambda: runner.job(job.id).state == "done")
    dataset = runner.result(job.id)
    np.testing.assert_array_equal(dataset["value"], archive.query(map_query).compute()["value"])
    done = runner.job(job.id)
    assert done.progress.fraction == 1.0
    assert done.progress.cells == done.outline.cells == 4 * 10 * 12
    assert done.kept
    assert done.value_range == (float(dataset["value"].min()), float(dataset["value"].max()))
    assert done.created_ns <= done.started_ns <= done.ended_ns


def test_a_query_of_series_runs_too(
    make_runner: Make, archive: hg.OpenArchive, series_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(archive)
    job = runner.submit(series_query)
    wait_until(lambda: runner.job(job.id).state == "done")
    assert job.outline.layout.kind == "series"
    assert runner.result(job.id)["value"].dims == ("time", "station")
    with pytest.raises(InvalidQuery, match="ask for its series"):
        runner.picture(job.id, 0)


def test_first_come_first_served(make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait) -> None:
    runner = make_runner(gate)
    jobs = [runner.submit(other(map_query, rows)) for rows in (4, 5, 6)]
    wait_until(lambda: runner.job(jobs[0].id).state == "running")
    assert [runner.job(job.id).state for job in jobs] == ["running", "queued", "queued"]
    gate.open()
    wait_until(lambda: all(runner.job(job.id).has_ended for job in jobs))
    ends = [runner.job(job.id).ended_ns for job in jobs]
    assert ends == sorted(ends)


def test_two_workers_run_two_queries_at_a_time(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate, workers=2)
    for rows in (4, 5, 6):
        runner.submit(other(map_query, rows))
    wait_until(lambda: runner.statistics().running == 2)
    assert runner.statistics().queued == 1


def test_identical_queries_share_one_run(make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait) -> None:
    runner = make_runner(gate)
    first, second = runner.submit(map_query), runner.submit(map_query)
    assert first.id != second.id
    assert first.token == second.token
    gate.open()
    wait_until(lambda: runner.job(first.id).has_ended and runner.job(second.id).has_ended)
    assert gate.runs == 1
    assert runner.result(first.id) is runner.result(second.id)
    assert runner.statistics().shared == 1
    assert runner.statistics().done == 2
    # A finished run is not shared: the same question asked again is computed anew.
    third = runner.submit(map_query)
    wait_until(lambda: runner.job(third.id).state == "done")
    assert gate.runs == 2


def test_stopping_one_of_two_leaves_the_shared_run_alone(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate)
    first, second = runner.submit(map_query), runner.submit(map_query)
    gate.let(2)
    wait_until(lambda: runner.job(first.id).progress.fraction > 0)
    assert runner.cancel(first.id).state == "cancelled"
    gate.open()
    wait_until(lambda: runner.job(second.id).state == "done")
    assert runner.job(first.id).state == "cancelled"
    assert runner.job(first.id).progress.fraction < 1
    with pytest.raises(NotReady, match="was stopped"):
        runner.result(first.id)


def test_a_run_stops_between_two_blocks(make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait) -> None:
    runner = make_runner(gate)
    job = runner.submit(map_query)
    gate.let(3)
    wait_until(lambda: runner.job(job.id).progress.cells > 0)
    runner.cancel(job.id)
    gate.let(1)
    wait_until(lambda: runner.statistics().running == 0)
    assert runner.job(job.id).state == "cancelled"
    assert runner.job(job.id).progress.fraction < 0.5
    with pytest.raises(NotReady, match="was stopped"):
        runner.picture(job.id, 0)
    # The worker is free for the next one, also for the same question.
    again = runner.submit(map_query)
    gate.open()
    wait_until(lambda: runner.job(again.id).state == "done")


def test_a_waiting_query_is_stopped_without_running(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate)
    first = runner.submit(map_query)
    wait_until(lambda: runner.job(first.id).state == "running")
    second = runner.submit(other(map_query, 5))
    assert runner.cancel(second.id).state == "cancelled"
    gate.open()
    wait_until(lambda: runner.job(first.id).state == "done")
    assert gate.runs == 1
    wait_until(lambda: runner.statistics().queued == 0)


def test_cancelling_twice_or_after_the_end_changes_nothing(
    make_runner: Make, archive: hg.OpenArchive, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(archive)
    job = runner.submit(map_query)
    wait_until(lambda: runner.job(job.id).state == "done")
    assert runner.cancel(job.id).state == "done"
    assert runner.statistics().cancelled == 0


def test_pictures_sharpen_and_carry_an_estimate(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate)
    job = runner.submit(map_query)
    with pytest.raises(NotReady, match=r"queued|running"):
        runner.picture(job.id, 0)
    gate.let(3)
    wait_until(lambda: runner.job(job.id).progress.cells > 0)
    early = runner.picture(job.id, 1)
    assert early.values.shape == (10, 12)
    assert 0 < early.computed.sum() < early.computed.size
    assert np.isnan(early.values[~early.computed]).all()
    assert np.isfinite(early.estimate).all()
    gate.open()
    wait_until(lambda: runner.job(job.id).state == "done")
    late = runner.picture(job.id, 1)
    assert late.computed.all()
    assert late.fraction == 1.0
    np.testing.assert_array_equal(late.values, runner.result(job.id)["value"][1])
    np.testing.assert_array_equal(early.values[early.computed], late.values[early.computed])
    with pytest.raises(NotFound, match="0 to 3; got 4"):
        runner.picture(job.id, 4)


def test_a_failure_is_told_and_the_worker_goes_on(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate)
    gate.failure = ZeroDivisionError("planted")
    job = runner.submit(map_query)
    gate.open()
    wait_until(lambda: runner.job(job.id).state == "failed")
    assert isinstance(runner.job(job.id).error, ZeroDivisionError)
    with pytest.raises(NotReady, match="failed"):
        runner.result(job.id)
    gate.failure = None
    again = runner.submit(map_query)
    wait_until(lambda: runner.job(again.id).state == "done")
    assert (runner.statistics().failed, runner.statistics().done) == (1, 1)


def test_the_queue_is_bounded(make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait) -> None:
    runner = make_runner(gate, capacity=1)
    first = runner.submit(map_query)
    wait_until(lambda: runner.job(first.id).state == "running")
    runner.submit(other(map_query, 5))
    with pytest.raises(QueueFull, match="1 queries wait, and 1 may"):
        runner.submit(other(map_query, 6))
    # Joining a run takes no place in the queue.
    assert runner.submit(map_query).state == "running"


def test_a_query_above_the_memory_allowed_is_refused_before_it_waits(
    make_runner: Make, archive: hg.OpenArchive, map_query: Document
) -> None:
    runner = make_runner(archive, allowed_bytes=1000)
    with pytest.raises(TooLarge) as refusal:
        runner.submit(map_query)
    assert refusal.value.allowed == 1000
    assert refusal.value.projected > 1000
    assert runner.jobs() == []


def test_the_oldest_result_leaves_and_that_is_said(
    make_runner: Make, archive: hg.OpenArchive, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(archive, results=2)
    jobs = []
    for rows in (4, 5, 6):
        jobs.append(runner.submit(other(map_query, rows)))
        wait_until(lambda: runner.job(jobs[-1].id).state == "done")
    with pytest.raises(ResultGone, match="make room"):
        runner.result(jobs[0].id)
    assert [runner.job(job.id).kept for job in jobs] == [False, True, True]
    assert runner.statistics().evicted == 1
    assert runner.statistics().results == 2


def test_results_leave_by_size_too(
    make_runner: Make, archive: hg.OpenArchive, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(archive, result_bytes=1)
    first = runner.submit(other(map_query, 4))
    wait_until(lambda: runner.job(first.id).state == "done")
    assert runner.result(first.id) is not None
    second = runner.submit(other(map_query, 5))
    wait_until(lambda: runner.job(second.id).state == "done")
    assert runner.job(second.id).kept
    assert not runner.job(first.id).kept


def test_ended_jobs_are_forgotten_in_the_end(
    make_runner: Make, archive: hg.OpenArchive, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(archive, remembered=1)
    first = runner.submit(other(map_query, 4))
    wait_until(lambda: runner.job(first.id).state == "done")
    second = runner.submit(other(map_query, 5))
    with pytest.raises(NotFound, match=first.id):
        runner.job(first.id)
    assert [job.id for job in runner.jobs()] == [second.id]


def test_what_is_wrong_is_refused_at_once(make_runner: Make, archive: hg.OpenArchive, map_query: Document) -> None:
    runner = make_runner(archive)
    with pytest.raises(NotFound, match="air_temperature"):
        runner.submit({**map_query, "variable": "air_temprature"})
    with pytest.raises(NotFound):
        runner.job("nobody")


def test_events_give_the_present_state_and_resume(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate)
    job = runner.submit(map_query)
    called: list[int] = []
    leave = runner.listen(job.id, lambda: called.append(1))
    assert [event.name for event in runner.events(job.id)][0] == "plan"
    gate.let(2)
    wait_until(lambda: runner.job(job.id).progress.fraction > 0.05)
    assert called
    late = runner.events(job.id)
    assert [event.name for event in late] == ["plan", "progress"]
    assert runner.events(job.id, after=late[-1].id) == []
    leave()
    gate.open()
    wait_until(lambda: runner.job(job.id).state == "done")
    rest = runner.events(job.id, after=late[-1].id)
    assert [event.name for event in rest] == ["progress", "done"]
    assert [event.id for event in rest] == sorted({event.id for event in rest})
    assert rest[0].id > late[-1].id


def test_stopping_cancels_everything_and_refuses_more(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate)
    jobs = [runner.submit(other(map_query, rows)) for rows in (4, 5)]
    wait_until(lambda: runner.job(jobs[0].id).state == "running")
    gate.open()
    threads = list(runner._threads.values())
    runner.stop()
    assert {runner.job(job.id).state for job in jobs} <= {"cancelled", "done"}
    assert runner.job(jobs[1].id).state == "cancelled"
    assert len(threads) == 2
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(QueueFull, match="stopping"):
        runner.submit(map_query)


def test_passing_queries_leave_what_is_kept_alone(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate, results=1)
    gate.open()
    kept = runner.submit(map_query)
    wait_until(lambda: runner.job(kept.id).has_ended)
    for rows in (4, 5, 6):
        job = runner.submit(other(map_query, rows), passing=True)
        wait_until(lambda job=job: runner.job(job.id).has_ended)
        assert runner.result(job.id)["value"].shape == (4, rows, 12)
        runner.forget(job.id)
        with pytest.raises(NotFound):
            runner.job(job.id)
    assert runner.result(kept.id)["value"].shape == (4, 10, 12)
    assert [job.id for job in runner.jobs()] == [kept.id]


def test_a_passing_query_that_others_join_is_kept_for_them(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate)
    passing = runner.submit(map_query, passing=True)
    joined = runner.submit(map_query)
    gate.open()
    wait_until(lambda: runner.job(joined.id).has_ended)
    runner.forget(passing.id)
    assert gate.runs == 1
    assert runner.result(joined.id)["value"].shape == (4, 10, 12)
    assert runner.statistics().results == 1


def test_forgetting_a_running_query_stops_it(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(gate)
    job = runner.submit(map_query, passing=True)
    gate.let(1)
    wait_until(lambda: runner.job(job.id).progress.fraction > 0)
    runner.forget(job.id)
    assert runner.jobs() == []
    gate.open()
    wait_until(lambda: runner.statistics().running == 0)
    assert runner.statistics().done == 0


def test_large_queries_of_one_owner_leave_room_for_small_ones_and_for_those_of_others(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queries.jobs.runner.PROJECTED_S", -1.0)
    runner = make_runner(gate, workers=1, allowed_bytes=1 << 30)
    for rows in range(4, 12):
        runner.submit(other(map_query, rows))
    with act_as(Asker("somebody else")):
        theirs = runner.submit(other(map_query, 20))
    assert len(runner._threads) == 5
    assert runner.statistics().queued + runner.statistics().running == 9
    gate.open()
    wait_until(lambda: runner.job(theirs.id).state == "done")
    wait_until(lambda: runner.statistics().done == 9)


def test_what_does_not_fit_in_memory_waits_and_small_queries_do_not_wait_for_it(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    needed = gate.query(map_query).plan(refining=True).projected_bytes
    large = other(map_query, 100_000)
    runner = make_runner(gate, workers=8, allowed_bytes=gate.query(large).plan(refining=True).projected_bytes * 5 // 4)
    assert needed * 16 < runner._limits.allowed_bytes
    jobs = [runner.submit(document) for document in (large, other(large, 99_000), map_query)]
    wait_until(lambda: runner.statistics().running == 2)
    assert [runner.job(job.id).state for job in jobs] == ["running", "queued", "running"]
    gate.open()
    wait_until(lambda: all(runner.job(job.id).state == "done" for job in jobs))


def test_a_limit_of_time_holds_for_whoever_has_none_of_their_own(
    make_runner: Make, archive: hg.OpenArchive, map_query: Document, wait_until: Wait
) -> None:
    runner = make_runner(archive, allowed_s=1e-9)
    with pytest.raises(TooLarge, match="projects 0 s, above the 0 allowed"):
        runner.submit(map_query)
    with pytest.raises(TooLarge):
        runner.query_at_stations(map_query)
    with act_as(Asker("somebody", Limits(seconds=100.0))):
        job = runner.submit(map_query)
    wait_until(lambda: runner.job(job.id).state == "done")


def test_what_is_computed_within_a_request_takes_a_turn(
    make_runner: Make, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    runner, order = make_runner(gate, workers=1), list[str]()
    job = runner.submit(map_query)
    wait_until(lambda: runner.job(job.id).state == "running")

    def within() -> None:
        with runner.turn():
            order.append(runner.job(job.id).state)

    thread = threading.Thread(target=within)
    thread.start()
    wait_until(lambda: bool(runner._blocks._waiting) or bool(order))
    gate.open()
    thread.join(60)
    assert len(order) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a priority is of a whole process")
def test_large_queries_and_their_threads_compute_at_a_lower_priority_and_no_others(
    make_runner: Make, archive: hg.OpenArchive, map_query: Document, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    niced, before = list[int](), priority()

    def answer_noting_priority(*args: Any, **options: Any) -> xr.Dataset:  # noqa: ANN401 - as of the function
        niced.append(priority())
        share(lambda _: niced.append(priority()), range(4))
        return answer(*args, **options)

    # Every other query counts as large. Memory is for one at a time: each is begun where the one before it ends.
    projections = itertools.cycle((10 * PROJECTED_S, 0.1))
    monkeypatch.setattr(runner_module, "answer", answer_noting_priority)
    monkeypatch.setattr(runner_module, "projected_s", lambda _: next(projections))
    runner = make_runner(archive, allowed_bytes=max(archive.query(map_query).plan().projected_bytes, 1) * 3 // 2)
    jobs = [runner.submit(other(map_query, rows)) for rows in (4, 5, 6, 7)]
    wait_until(lambda: all(runner.job(job.id).state == "done" for job in jobs))
    # None is lower than 19.
    assert niced == [min(before + nicer, 19) for nicer in (LARGE_NICE, 0) * 2 for _ in range(5)]
    assert priority() == before
