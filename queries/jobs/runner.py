"""Query runner: a bounded queue; each query computes in blocks on its own thread."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import sys
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Final

from hypergrid.analysis.lineage import Lineage, make_lineage
from hypergrid.core.errors import Cancelled, InvalidQuery
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.times import SECOND_NS
from hypergrid.core.tokens import token
from hypergrid.execution import Part, Plan, Watching, explain, free_bytes, make_plan, split_notes
from hypergrid.execution.planning.explain import projected_s
from hypergrid.execution.results.dataset import make_title, value_names
from hypergrid.execution.results.second_opinion import MAX_S, SecondOpinion, ask_second_opinion, check_cells
from hypergrid.plots.labels import describe_bases
from hypergrid.query import OpenArchive, Query
from hypergrid.refinement import Refinement
from queries.jobs.admission import Asker, Limits, TooManyQueries, current_asker
from queries.jobs.block_queue import PROJECTED_S, BlockQueue
from queries.jobs.job_history import JobRecord, Journal, JournalDamaged, Past
from queries.jobs.records import (
    Event,
    Job,
    JobProgress,
    Listener,
    NotReady,
    Order,
    Outline,
    QueryRun,
    QueueFull,
    ResultGone,
    RunnerLimits,
    RunnerStatistics,
    SurfaceLabels,
    SurfacePicture,
    check_frame,
    layout_of,
    make_finished_picture,
    unknown_job,
    value_range,
)

_LOG: Final = logging.getLogger(__name__)
_PASSING_BYTES: Final = 256 << 20
"""Size limit of results that are about to be fetched [bytes]."""
# Polygons can make documents large.
DOCUMENT_BYTES: Final = 64 << 20
"""Size limit of the documents of remembered jobs, as text [bytes]."""
# A query holds nothing that must be saved, so its last block may be abandoned.
_STOP_S: Final = 3.0
"""How long `stop` waits for queries to finish their block [s]."""
LARGE_NICE: Final = 10
"""Niceness increment of large queries: beside others they get a tenth of a processor's time."""
# The rest is reserved for small queries, which must not wait for large ones to end.
_LARGE_SHARE: Final = 0.75
"""Share of the memory budget for large queries."""
_SMALL_BYTES_SHARE: Final = 1 / 16
"""Share of the memory budget up to which a query is small."""
_LARGE_OF_ONE: Final = 4
"""Large queries of one owner started at a time; small ones start at once."""


class Runner:
    """Answer queries of one archive, several at a time, in fair turns (`BlockQueue`).

    Queries with the same token and snapshot that are queued or running at the same time share one run. A run stops
    early when the last job that waits for it is cancelled. Thread-safe.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns; each query reads its newest snapshot unless it names one.
    limits
        How much it computes and keeps.
    journal
        Journal of job outcomes; None: no journal.
    clock
        Returns the time [ns since 1970 UTC].
    """

    def __init__(
        self,
        archive: OpenArchive,
        limits: RunnerLimits | None = None,
        *,
        journal: Journal | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._archive, self._journal, self._clock = archive, journal, clock
        self._limits = limits = limits or RunnerLimits()
        self._lock = threading.Lock()
        self._blocks = BlockQueue(limits.workers)
        self._result_cache = ResultCache(limit=limits.results, limit_bytes=limits.result_bytes)
        self._passing = ResultCache(limit=limits.capacity, limit_bytes=_PASSING_BYTES)
        self._waiting: list[QueryRun] = []
        self._threads: dict[QueryRun, threading.Thread] = {}
        self._active: dict[tuple[str, str], QueryRun] = {}
        self._runs: OrderedDict[str, QueryRun] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._counts = {"shared": 0, "done": 0, "failed": 0, "cancelled": 0}
        self._running = 0
        self._run_s = 1.0
        self.is_stopped = False
        """Whether it accepts no more queries."""

    def explain(self, document: Mapping[str, Any]) -> Outline:
        """Outline a query without running it.

        Raises
        ------
        HyperGridError
            The query cannot be answered.
        """
        query = self._archive.latest().query(document)
        return _outline(query.question.variable, query.plan(refining=True))

    def plan(self, document: Mapping[str, Any]) -> Plan:
        """Plan a query without running it.

        Raises
        ------
        HyperGridError
            The query cannot be answered.
        """
        return self._archive.latest().query(document).plan(refining=True)

    def query_at_stations(self, document: Mapping[str, Any]) -> Query:
        """Return a query up to its stations, for the caller to compute directly.

        Raises
        ------
        HyperGridError
            The query cannot be answered, or exceeds a limit (`TooLarge`).
        """
        query = self._archive.latest().query(document).at_stations()
        self._check_plan(query.plan(), current_asker())
        return query

    def submit(
        self,
        document: Mapping[str, Any],
        *,
        order: Order = "coarse_to_fine",
        passing: bool = False,
        second_opinion: int | None = None,
    ) -> Job:
        """Submit a query without waiting for it.

        Parameters
        ----------
        document
            The query in its JSON form.
        order
            Order of the cells; a job that joins a run takes the run's order.
        passing
            Whether the caller fetches the result as soon as it is ready and then forgets the job (`forget`); it takes
            no place in the result cache.
        second_opinion
            Number of cells that PyKrige recomputes at the end (`Query.compute`); jobs that ask for another number, or
            for none, share no run with it.

        Raises
        ------
        HyperGridError
            The query cannot be answered (`NotFound`, `InvalidQuery`, …), projects more memory, cells or time than
            allowed (`TooLarge`), or the queue is full, for the caller (`TooManyQueries`) or in total (`QueueFull`).
        """
        query = self._archive.latest().query(document)
        understood = query.to_json()
        # Built once for the token and the plan: building takes a third of the time of a small query.
        surface = query.surface()
        own = surface.token if second_opinion is None else token(surface.token, check_cells(second_opinion))
        key = (own, understood["snapshot"])
        caller = current_asker()
        with self._lock:
            self._check_open(caller)
            # A query that joins an active run needs no place in the queue.
            if key not in self._active:
                self._check_room()
        # Outside the lock, as planning takes milliseconds.
        plan = make_plan(surface, watched=Watching(order))
        self._check_plan(plan, caller)
        outline, size = _outline(query.question.variable, plan), len(json.dumps(understood))
        with self._lock:
            self._check_open(caller)
            run = self._active.get(key)
            if run is None:
                run = self._enqueue(key, query, outline, order, caller.owner, second_opinion)
            else:
                self._counts["shared"] += 1
            job = Job(
                id=uuid.uuid4().hex,
                token=key[0],
                snapshot=key[1],
                document=understood,
                state="queued",
                created_ns=self._clock(),
                started_ns=None,
                ended_ns=None,
                outline=outline,
                progress=JobProgress(),
                owner=caller.owner,
                passing=passing,
            )
            run.followers[job.id] = job
            # One job that keeps the result is enough to put it into the shared cache.
            run.passing = run.passing and passing
            self._runs[job.id] = run
            self._sizes[job.id] = size
            self._forget()
            self._note(job)
            return run.view(job, kept=False)

    def jobs(self) -> list[Job]:
        """List the remembered jobs, newest first."""
        with self._lock:
            return [self._view(job_id) for job_id in reversed(self._runs)]

    def list_past_jobs(self) -> list[JobRecord]:
        """List the jobs of earlier processes in the journal, newest first."""
        if self._journal is None:
            return []
        with self._lock:
            try:
                return [record for record in self._journal.list_records() if record.id not in self._runs]
            except JournalDamaged as error:
                _LOG.error("jobs of earlier processes are not listed: %s", error)
                return []

    def job(self, job_id: str) -> Job:
        """Return the current state of a job.

        Raises
        ------
        NotFound, Past
            The job is unknown; it is one of an earlier process.
        """
        with self._lock:
            return self._view(job_id)

    def events(self, job_id: str, *, after: int = 0) -> list[Event]:
        """List the events of a job after number `after`, oldest first."""
        with self._lock:
            job = self._view(job_id)
            return self._runs[job_id].events(job, after)

    def listen(self, job_id: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` at each change of a job, from any thread; return its unsubscribe function."""
        with self._lock:
            self._view(job_id)
            self._listeners.setdefault(job_id, []).append(listener)

        def leave() -> None:
            with self._lock:
                listeners = self._listeners.get(job_id, [])
                if listener in listeners:
                    listeners.remove(listener)
                if not listeners:
                    self._listeners.pop(job_id, None)

        return leave

    def cancel(self, job_id: str) -> Job:
        """Cancel a job; its run stops after the current block, unless others wait for it."""
        with self._lock:
            job = self._view(job_id)
            run = self._runs[job_id]
            if job.has_ended:
                return job
            run.followers[job_id] = replace(job, state="cancelled", ended_ns=self._clock())
            self._counts["cancelled"] += 1
            if all(follower.has_ended for follower in run.followers.values()):
                run.stop.set()
                # From here on an identical query starts a new run, even while the last block is being computed.
                if self._active.get(run.key) is run:
                    del self._active[run.key]
                if run in self._waiting:
                    self._waiting.remove(run)
                    run.end("cancelled", self._clock())
                # Its turn may be waiting: wake it so that it notices the cancellation.
                self._blocks.wake()
            job = self._view(job_id)
            self._note(job)
            # Listeners are called outside the lock, as they may call back.
            called = list(self._listeners.get(job_id, []))
        for listener in called:
            listener()
        return job

    def result(self, job_id: str, *, is_partial: bool = False) -> xr.Dataset:
        """Return the finished surface; if partial, a running one as computed so far, with `hypergrid_fraction`.

        Raises
        ------
        NotFound, NotReady, ResultGone
            The job is unknown; it is not done; its result was evicted.
        """
        with self._lock:
            job = self._view(job_id)
            run = self._runs[job_id]
            refinement = run.refinement if is_partial and not job.has_ended else None
            if refinement is None:
                if job.state != "done":
                    raise NotReady(_not_ready_message(job))
                dataset = self._find_result(run)
                if dataset is None:
                    raise ResultGone(
                        f"the result of query {job_id} was dropped to make room for later ones; post the query again"
                    )
                return dataset
        return refinement.dataset()

    def second_opinion(self, job_id: str, *, cells: int) -> SecondOpinion:
        """Let PyKrige recompute random cells of a finished surface, in turns with the queries.

        Raises
        ------
        HyperGridError
            As `result`; or the snapshot has expired, or `cells` is not such a number.
        """
        dataset, document = self.result(job_id), self.job(job_id).document
        query, seconds = self._archive.latest().query(document), current_asker().limits.seconds
        allowed_s = MAX_S if seconds is None else min(MAX_S, seconds)
        with self.turn():
            return ask_second_opinion(query.resolve().surface(), dataset, cells=cells, allowed_s=allowed_s)

    def lineage(self, job_id: str, cell: Mapping[str, object], *, max_readings: int) -> Lineage:
        """Find what a cell of a finished surface was made of, in turns with the queries.

        Raises
        ------
        HyperGridError
            As `result`; or there is no such cell, or it is made of more readings than may be read.
        """
        dataset, newest = self.result(job_id), self._archive.latest()
        query = newest.query(self.job(job_id).document)
        with self.turn():
            return make_lineage("the result", dataset, cell, query.resolve(), newest, max_readings=max_readings)

    def forget(self, job_id: str) -> None:
        """Cancel and forget a job, with its result unless another job shares it."""
        self.cancel(job_id)
        with self._lock:
            if (run := self._runs.pop(job_id, None)) is not None:
                self._let_go(run, job_id)

    def picture(self, job_id: str, time_index: int, level: int = 0, part: Part = "value") -> SurfacePicture:
        """Return one time cell of the surface in its current state, finished or not.

        Raises
        ------
        NotFound, NotReady, ResultGone, InvalidQuery
            As `result`, but one computed block is enough; the surface has no such time cell or level, or its variance
            was not asked for.
        """
        with self._lock:
            job = self._view(job_id)
            run = self._runs[job_id]
            refinement = run.refinement if not job.has_ended else None
        layout = run.outline.layout
        check_frame(layout, time_index, level)
        if job.state == "done":
            return make_finished_picture(layout, self.result(job_id), time_index, level, part)
        if refinement is None:
            raise NotReady(_not_ready_message(job))
        frame, fraction = refinement.frame(time_index, level, part), refinement.fraction
        return SurfacePicture(
            layout, time_index, level, frame.values, frame.computed, frame.estimate, fraction, frame.error
        )

    def statistics(self) -> RunnerStatistics:
        with self._lock:
            return RunnerStatistics(
                workers=self._limits.workers,
                queued=self._count_queued(),
                capacity=self._limits.capacity,
                running=self._running,
                longest_block_s=self._blocks.longest_block_s,
                jobs=len(self._runs),
                results=len(self._result_cache),
                result_bytes=self._result_cache.held_bytes,
                result_bytes_limit=self._limits.result_bytes,
                evicted=self._result_cache.evicted,
                **self._counts,
            )

    def stop(self) -> None:
        """Cancel all queued and running jobs, and wait briefly for their threads; results stay readable."""
        with self._lock:
            self.is_stopped = True
            open_jobs = [job_id for job_id in self._runs if not self._view(job_id).has_ended]
            threads = list(self._threads.values())
        for job_id in open_jobs:
            self.cancel(job_id)
        until_s = time.monotonic() + _STOP_S
        for thread in threads:
            thread.join(max(until_s - time.monotonic(), 0.0))

    @contextmanager
    def turn(
        self,
        *,
        owner: str | None = None,
        stop: threading.Event | None = None,
        on_begin: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """Wait for a turn among the queries; the work inside gives way to others.

        Parameters
        ----------
        owner
            Owner of the work; None: the current caller.
        stop
            Set, and followed by `wake`, when the work is not wanted any more (`Cancelled`).
        on_begin
            Called once, when the first turn begins.
        """
        with self._blocks.turn(current_asker().owner if owner is None else owner, stop=stop, on_begin=on_begin):
            yield

    def wake(self) -> None:
        """Make work that waits for a turn notice that it was stopped."""
        self._blocks.wake()

    def _check_plan(self, plan: Plan, label: Asker) -> None:
        plan.check(self._limits.allowed_bytes)
        label.limits.check(plan)
        if label.limits.seconds is None:
            Limits(seconds=self._limits.allowed_s).check(plan)

    def _check_open(self, label: Asker) -> None:
        max_queries = label.limits.queries
        if max_queries is None:
            return
        jobs = (job for run in self._active.values() for job in run.followers.values())
        if sum(job.owner == label.owner and not job.has_ended for job in jobs) >= max_queries:
            raise TooManyQueries(
                f"{max_queries} of your queries wait or run, and no more may; wait for one to end, or stop one"
            )

    def _check_room(self) -> None:
        if self.is_stopped:
            raise QueueFull("the server is stopping; ask again once it is back")
        if (queued := self._count_queued()) >= self._limits.capacity:
            # By then about a quarter of the queue should be done.
            wait_s = self._run_s * queued / self._limits.workers / 4
            raise QueueFull(
                f"{queued} queries wait, and {self._limits.capacity} may; ask again later, or stop one",
                min(max(wait_s, 1.0), 60.0),
            )

    def _count_queued(self) -> int:
        return len(self._waiting) + len(self._threads) - self._running

    def _enqueue(
        self, key: tuple[str, str], query: Query, outline: Outline, order: Order, owner: str, second_opinion: int | None
    ) -> QueryRun:
        self._check_room()
        run = QueryRun(uuid.uuid4().hex, key, query, outline, order, owner, second_opinion)
        self._waiting.append(run)
        self._active[key] = run
        self._begin()
        return run

    def _begin(self) -> None:
        """Start queued queries by arrival, while they fit in memory beside those started."""
        if not self._waiting:
            return
        allowed = free_bytes() // 2 if self._limits.allowed_bytes is None else self._limits.allowed_bytes
        held = sum(run.outline.projected_bytes for run in self._threads)
        large = Counter(run.owner for run in self._threads if _is_large(run, allowed))
        is_full = False
        for run in list(self._waiting):
            is_large = _is_large(run, allowed)
            share = _LARGE_SHARE if is_large else 1.0
            # A query that exceeds the budget alone still runs, by itself.
            fits = not self._threads or held + run.outline.projected_bytes <= share * allowed
            if is_large and (is_full or large[run.owner] >= _LARGE_OF_ONE):
                continue
            if not fits:
                # Later queries do not overtake this one, except small ones.
                is_full = True
                continue
            self._waiting.remove(run)
            held += run.outline.projected_bytes
            large[run.owner] += is_large
            # Daemons, so that a thread deep in a block does not keep a terminating process alive.
            thread = threading.Thread(target=self._work, args=(run,), name=f"query-{run.id[:8]}", daemon=True)
            self._threads[run] = thread
            thread.start()

    def _work(self, run: QueryRun) -> None:
        """Compute a query in its turns, and clean up whatever its outcome."""
        projected = run.outline.projected_s
        try:
            with self._blocks.turn(run.owner, projected_s=projected, stop=run.stop, on_begin=lambda: self._run(run)):
                (self._drive_lowered if projected > PROJECTED_S else self._drive)(run)
        except Cancelled:
            with self._lock:
                run.end("cancelled", self._clock())
        finally:
            with self._lock:
                del self._threads[run]
                if run.started_ns is not None:
                    self._running -= 1
                    took_s = (self._clock() - run.started_ns) / SECOND_NS
                    # An exponentially weighted mean: recent runs count most.
                    self._run_s += 0.2 * (took_s - self._run_s)
                if self._active.get(run.key) is run:
                    del self._active[run.key]
                for job in run.followers.values():
                    # Jobs that left earlier were recorded then.
                    if not job.has_ended:
                        self._note(run.view(job, kept=False))
                self._begin()
            self._notify_listeners(run)

    def _run(self, run: QueryRun) -> None:
        """Record that the first turn of a query begins."""
        with self._lock:
            self._running += 1
            run.state, run.started_ns = "running", self._clock()
            run.advance(JobProgress(total=run.outline.cells))
        self._notify_listeners(run)

    def _drive(self, run: QueryRun) -> None:
        """Compute a run and record its outcome, without raising."""
        try:
            if run.query is None:
                raise RuntimeError("a run that has ended is not computed again")
            dataset = answer(
                run.query,
                run.stop,
                order=run.order,
                allowed_bytes=self._limits.allowed_bytes,
                on_refinement=lambda refinement: self._advance(run, refinement),
            )
            if run.second_opinion is not None:
                dataset = _add_opinion(run.query, dataset, run.second_opinion)
            spread = value_range(dataset)
        except Cancelled:
            with self._lock:
                run.end("cancelled", self._clock())
        except Exception as error:  # noqa: BLE001 - recorded in the jobs; the worker goes on
            with self._lock:
                run.end("failed", self._clock(), error)
                self._counts["failed"] += _open(run)
        else:
            with self._lock:
                run.value_range, run.notes = spread, tuple(split_notes(dataset.attrs.get("comment", "")))
                # A method that was to be chosen has been.
                run.outline = run.outline.retitle(dataset.attrs["title"])
                (self._passing if run.passing else self._result_cache).put(run.id, dataset)
                run.end("done", self._clock())
                self._counts["done"] += _open(run)

    def _drive_lowered(self, run: QueryRun) -> None:
        """Compute on a separate thread of lower priority."""

        # This thread starts the next query, which would inherit a lowered priority.
        def drive() -> None:
            _lower_priority()
            self._drive(run)

        # The copied context has the pace of this thread.
        thread = threading.Thread(target=copy_context().run, args=(drive,), name=f"large-{run.id[:8]}", daemon=True)
        thread.start()
        thread.join()

    def _advance(self, run: QueryRun, refinement: Refinement) -> None:
        with self._lock:
            run.refinement = refinement
            run.advance(JobProgress(refinement.fraction, refinement.cells, refinement.total, refinement.seconds))
        self._notify_listeners(run)

    def _notify_listeners(self, run: QueryRun) -> None:
        with self._lock:
            called = [listener for job_id in run.followers for listener in self._listeners.get(job_id, [])]
        for listener in called:
            listener()

    def _note(self, job: Job) -> None:
        if self._journal is not None and not job.passing:
            try:
                (self._journal.record_end if job.has_ended else self._journal.record_job)(job)
            except sqlite3.Error as error:
                # For example a full disk; the job itself continues.
                _LOG.error("query %s could not be noted: %s", job.id, error)

    def _view(self, job_id: str) -> Job:
        run = self._runs.get(job_id)
        if run is None:
            noted = self._find_record(job_id)
            raise unknown_job(job_id) if noted is None else Past(noted)
        return run.view(run.followers[job_id], kept=self._find_result(run) is not None)

    def _find_record(self, job_id: str) -> JobRecord | None:
        """Look up a job in the journal; None if unknown or the journal is damaged."""
        try:
            return None if self._journal is None else self._journal.find(job_id)
        except JournalDamaged as error:
            _LOG.error("query %s is not looked up: %s", job_id, error)
            return None

    def _find_result(self, run: QueryRun) -> xr.Dataset | None:
        dataset = self._result_cache.get(run.id)
        return self._passing.get(run.id) if dataset is None else dataset

    def _forget(self) -> None:
        """Forget the oldest ended jobs above the limits, with results that no remembered job uses."""
        for job_id in list(self._runs):
            if len(self._runs) <= self._limits.remembered and sum(self._sizes.values()) <= DOCUMENT_BYTES:
                return
            if self._view(job_id).has_ended:
                self._let_go(self._runs.pop(job_id), job_id)

    def _let_go(self, run: QueryRun, job_id: str) -> None:
        del run.followers[job_id]
        self._sizes.pop(job_id, None)
        if not run.followers:
            self._result_cache.drop(run.id)
            self._passing.drop(run.id)


def _add_opinion(query: Query, dataset: xr.Dataset, cells: int) -> xr.Dataset:
    """Add a second opinion to a result, which an opinion that fails must not cost."""
    try:
        return ask_second_opinion(query.resolve().surface(), dataset, cells=cells).note_in(dataset)
    except Exception as error:
        _LOG.exception("the second opinion of a query failed")
        comment = f"no second opinion ({type(error).__name__})"
        return dataset.assign_attrs(comment="; ".join(filter(None, [dataset.attrs.get("comment", ""), comment])))


def _outline(variable: str, plan: Plan) -> Outline:
    surface = plan.surface
    labels = SurfaceLabels(value_names(surface)["long_name"], make_title(surface), describe_bases(surface))
    layout = layout_of(surface.topology, variable=variable, units=surface.unit, labels=labels)
    return Outline(layout, plan.cells, plan.projected_bytes, projected_s(plan), explain(plan))


def _lower_priority() -> None:
    """Lower the priority of this thread and of those it starts."""
    # A stream beside the server must keep up with its stations while large queries compute. Locks such as Python's are
    # held longer when such a thread loses its processor: beside ten large queries and a stream, 99 of 100 small
    # requests still took at most 0.06 s.
    if sys.platform == "linux":
        # Only on Linux does a priority apply to a single thread.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + LARGE_NICE)


def _is_large(run: QueryRun, allowed_bytes: int) -> bool:
    outline = run.outline
    return outline.projected_bytes > _SMALL_BYTES_SHARE * allowed_bytes or outline.projected_s > PROJECTED_S


def _open(run: QueryRun) -> int:
    """Count the jobs of a run that were not cancelled before its end."""
    return sum(not job.has_ended for job in run.followers.values())


def _not_ready_message(job: Job) -> str:
    remedy = {
        "queued": "it waits for others; follow its events",
        "running": "it is being computed; follow its events",
        "failed": f"it failed: {job.error}",
        "cancelled": "it was stopped; post it again",
    }
    return f"query {job.id} is {job.state} and has nothing to show; {remedy.get(job.state, 'ask again')}"


class ResultCache:
    """First-in, first-out result cache, bounded in number and size; not thread-safe.

    Parameters
    ----------
    limit
        Maximum number of results.
    limit_bytes
        Maximum size of all of them [bytes]. A larger result is kept until the next one, as its reader is waiting.
    """

    def __init__(self, *, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[str, xr.Dataset] = OrderedDict()
        self.evicted = 0
        """Results evicted since the start."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def held_bytes(self) -> int:
        return sum(dataset.nbytes for dataset in self._kept.values())

    def put(self, key: str, dataset: xr.Dataset) -> None:
        """Insert a result, and evict the oldest beyond the limits."""
        self._kept[key] = dataset
        # The newest result is kept even if it alone exceeds the limit: its reader is waiting.
        while len(self) > 1 and (len(self) > self._limit or self.held_bytes > self._limit_bytes):
            self._kept.popitem(last=False)
            self.evicted += 1

    def get(self, key: str) -> xr.Dataset | None:
        return self._kept.get(key)

    def drop(self, key: str) -> None:
        self._kept.pop(key, None)


def answer(
    query: Query,
    stop: threading.Event,
    *,
    order: Order = "coarse_to_fine",
    allowed_bytes: int | None,
    on_refinement: Callable[[Refinement], None],
) -> xr.Dataset:
    """Compute the surface of a query.

    Parameters
    ----------
    query
        What `archive.query` returns.
    stop
        Checked after each block; once set, no further block is computed.
    order
        Order of the cells.
    allowed_bytes
        Memory budget of the run [bytes]; None: half of the free memory.
    on_refinement
        Called with each refinement, after its block.

    Raises
    ------
    Cancelled
        `stop` was set.
    HyperGridError
        Any error of the engine.
    """
    latest = None
    for latest in query.refine(order=order, allowed_bytes=allowed_bytes):
        if stop.is_set():
            break
        on_refinement(latest)
    if stop.is_set():
        raise Cancelled("the query was stopped between two blocks")
    if latest is None:
        raise InvalidQuery("the surface of the query has no cells; widen its clip or its grid")
    return latest.dataset()
