"""Standing-query runner: one thread that detects new slices, computes what they affect, and raises alerts.

Each snapshot becomes a round: what all standing queries need of it, with equal steps computed once. The strategy
chooses the order of the steps. Between two blocks the runner checks for a newer snapshot; if there is one, the
remaining work is postponed to the next round together with all further changes, so nothing is lost or queued twice.

Every query is evaluated eventually: besides the strategy's choice, the query that has waited longest is computed to
completion in a share `FAIRNESS_SHARE` of the time, whatever is committed meanwhile. The wait is therefore at most the
time to inspect all standing queries and compute each once, separately, divided by `FAIRNESS_SHARE`
(`StandingStatistics.longest_wait_s`). This counts the thread's own running time; on a busy processor it takes
correspondingly longer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from hypergrid.archive import Change
from hypergrid.core.errors import NotFound
from hypergrid.core.lazy_libraries import xr
from hypergrid.perspective.build.data_sources import PlanMemo
from hypergrid.query import OpenArchive
from queries.continuous.kept import KeptQueries
from queries.scheduling.job_tree import JobTree
from queries.scheduling.step_graph import StepGraph, Tokens
from queries.scheduling.strategy import SchedulingStrategy, Work
from queries.standing.alert_evaluation import evaluate_condition, evaluate_liveness
from queries.standing.conditions import InResult, Listening, Silent
from queries.standing.definition import FOLLOWED
from queries.standing.incremental_tasks import RowCache
from queries.standing.planning import FIRST_PAUSE_S, Planner, StandingState, refuse_large
from queries.standing.repository import Alert, EvaluationResult, StandingStore
from queries.standing.row_alerts import evaluate_rows, is_unreported
from queries.standing.shared_steps import (
    RESULTS,
    EvaluationStep,
    PinnedEvaluation,
    SnapshotEvaluation,
    keep_dataset,
    make_datasets,
    pin_interrupted,
    pin_query,
    take_latest,
)
from queries.standing.statistics import (
    EWMA_WEIGHT,
    FAIRNESS_SHARE,
    Listeners,
    RunnerMetrics,
    StandingStatistics,
    StandingUpdate,
)

_LOG: Final = logging.getLogger(__name__)

MOST_CREDIT_S: Final = 0.5
"""Upper limit of the saved fairness credit [s]."""
PLANNING_SHARE: Final = 0.5
"""Share of the time between two slices for which queries are planned and computed before the next batch."""
LONGEST_PERIOD_S: Final = 60.0
"""Upper limit of the assumed time between two slices [s]."""
MOST_CARRIED: Final = 4
"""Pinned evaluations, interrupted by a newer slice, that are continued, at most."""
POLL_S: Final = 0.2
"""Interval at which the branch head is polled [s]."""
KEEP_S: Final = 2.0
"""Interval at which progress without alerts is stored [s]; after a kill, later changes are evaluated again."""


class StandingRunner:
    """Keep the standing queries of one archive up to date.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    store
        The catalogue.
    strategy
        Chooses the next step.
    clock
        Wall clock for alert timestamps and mutes [ns since 1970 UTC]; may step back.
    monotonic
        Monotonic clock for waits and measurements [s].
    kept
        Kept continuous queries, evaluated in turns with the standing ones; None: none.
    """

    def __init__(
        self,
        archive: OpenArchive,
        store: StandingStore,
        *,
        strategy: SchedulingStrategy,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        kept: KeptQueries | None = None,
    ) -> None:
        self._archive, self._store, self._kept_queries = archive, store, kept
        self._pieces_due_s = 0.0
        self._judged_pieces: dict[str, int] = {}
        self.folder = store.path.parent / RESULTS
        self._clock, self._monotonic = clock, monotonic
        self._strategy = strategy
        self._graph = StepGraph()
        self._tokens = Tokens()
        self._lock = threading.RLock()
        self._states: dict[str, StandingState] = {}
        self._version: tuple[int, int] | None = None
        self._kept: dict[str, RowCache] = {}
        self._round: SnapshotEvaluation | None = None
        self._trees: list[JobTree] = []
        self._planner: Planner | None = None
        self._known = PlanMemo()
        self._unplanned: deque[str] = deque()
        self._round_start_s, self._period_s = monotonic(), LONGEST_PERIOD_S
        self._running: dict[int, tuple[EvaluationStep, Iterator[float]]] = {}
        self._work: Work | None = None
        self._fair: PinnedEvaluation | None = None
        self._carried: list[PinnedEvaluation] = []
        self._credit_s = 0.0
        self._seen_snapshot: str | None = None
        self._trouble = ""
        self._behind: set[str] = set()
        self._dirty: dict[str, EvaluationResult] = {}
        self._kept_at_s = self._polled_at_s = monotonic()
        self._listeners = Listeners()
        self._metrics = RunnerMetrics()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.beat_s = monotonic()
        """When the runner last looked for work, by the monotonic clock [s]."""

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="standing", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop after the current block, and store the progress."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._keep_progress()

    def listen(self, listener: Callable[[StandingUpdate], None]) -> Callable[[], None]:
        """Call `listener` after each evaluation, on the runner's thread; return its unsubscribe function."""
        return self._listeners.add(listener)

    def latest(self, name: str) -> xr.Dataset:
        """Return the newest computed time cell of a surface, in the format of `Query.compute`.

        Raises
        ------
        NotFound
            No active standing query has this name.
        NotReady
            Nothing was computed since the start.
        """
        with self._lock:
            return self.state(name).newest_dataset()

    def state(self, name: str) -> StandingState:
        """Return the state of an active standing query, which every evaluation changes, without taking the lock.

        Raises
        ------
        NotFound
            No active standing query has this name.
        """
        if name not in self._states:
            raise NotFound.among(kind="standing query", given=name, existing=self._states)
        return self._states[name]

    def statistics(self) -> StandingStatistics:
        with self._lock:
            now_s = self._monotonic()
            stale = [state for state in self._states.values() if state.stale_since_s is not None]
            sharing = self._graph.sharing()
            failing = (name for name, state in self._states.items() if state.failures)
            return StandingStatistics(
                queries=len(self._states),
                trouble=self._trouble,
                queue=len(stale),
                oldest_s=max(
                    (now_s - state.stale_since_s for state in stale if state.stale_since_s is not None), default=0.0
                ),
                longest_wait_s=self._metrics.longest_wait_s(sharing.seconds_apart, len(self._states)),
                failing=tuple(dict.fromkeys((*failing, *(self._kept_queries.failing() if self._kept_queries else ())))),
                token_score=self._tokens.score,
                sharing=sharing,
                strategy=self._strategy.statistics(now_s),
                **self._metrics.snapshot(self._round),
            )

    def find_late(self, limit_s: float) -> str:
        """Return which query waits longest to be evaluated, or fails, and why; empty if none does for that long.

        One that has not been up to date since the start does not count unless it fails: its first result takes long.
        """
        with self._lock:
            now_s, late = self._monotonic(), list[tuple[float, str, str]]()
            for name, state in self._states.items():
                followed, kept = state.entry.definition.query.get(FOLLOWED), self._kept_queries
                since_s, error = state.stale_since_s, state.error
                if followed is not None and kept is not None and not state.failures:
                    since_s, error = kept.failing_since_s(str(followed)), kept.error(str(followed))
                if since_s is not None and (error or state.was_fresh):
                    late.append((now_s - since_s, name, error))
        waited_s, name, error = max(late, default=(0.0, "", ""))
        if waited_s <= limit_s:
            return ""
        return f"standing query {name!r} has not been evaluated for {waited_s:.0f} s: {error or 'others go first'}"

    def work(self) -> bool:
        """Do one piece of work: poll, or compute a block; return whether there was any."""
        now_s, was_fair = self._monotonic(), False
        try:
            with self._metrics.timing("busy_s"):
                if self._round is None or now_s - self._polled_at_s >= POLL_S:
                    self._polled_at_s = now_s
                    self._poll(now_s)
                if now_s - self._kept_at_s >= KEEP_S:
                    self._keep_progress()
                if self._piece(now_s):
                    return True
                was_fair = self._fair_block(now_s)
                return was_fair or self._block(now_s)
        finally:
            self._account(self._monotonic() - now_s, was_fair=was_fair)

    def _account(self, seconds: float, *, was_fair: bool) -> None:
        """Add to the fairness credit, or charge a fair block; idle time is free."""
        self._metrics.add_block(seconds)
        if not was_fair:
            self._credit_s = min(self._credit_s + FAIRNESS_SHARE * seconds, MOST_CREDIT_S)
        elif not self._is_idle:
            self._credit_s -= seconds

    def _loop(self) -> None:
        while not self._stop.is_set():
            self.beat_s = self._monotonic()
            try:
                is_busy, self._trouble = self.work(), ""
            except Exception as error:  # noqa: BLE001 - retry after a full disk or a store timeout
                trouble = str(error) or type(error).__name__
                # Log once per cause, not at every retry.
                if trouble != self._trouble:
                    _LOG.error("standing queries cannot be kept up to date: %s", trouble)
                # Forgetting the snapshot repeats the failed poll in full.
                is_busy, self._trouble, self._seen_snapshot = False, trouble, None
            if not is_busy:
                self._stop.wait(FIRST_PAUSE_S if self._trouble else POLL_S)

    def _poll(self, now_s: float) -> None:
        """Process changes of the catalogue and the archive, and retries that are due."""
        self._read_catalogue()
        newest = self._archive.latest()
        # A round in progress is not restarted for queries that were left out of it.
        again = self._is_idle and (
            bool(self._behind) or any(state.failures and state.retry_s <= now_s for state in self._states.values())
        )
        if newest.snapshot != self._seen_snapshot or again:
            with self._lock, self._metrics.timing("planning_s"):
                self._archive = newest
                self._begin_round(now_s)
                self._seen_snapshot = newest.snapshot
        if self._kept_queries is not None:
            self._kept_queries.poll(newest, now_s)
        # A silent network commits no snapshots, so this condition is checked at every poll.
        for state in list(self._states.values()):
            if isinstance(state.entry.definition.condition, Silent):
                self._listen(state, ())
            elif isinstance(state.entry.definition.condition, InResult):
                self._judge_rows(state, now_s)

    def _read_catalogue(self) -> None:
        version = self._store.version
        if version == self._version:
            return
        entries = {entry.name: entry for entry in self._store.entries() if not entry.paused}
        with self._lock:
            for name in set(self._states) - set(entries):
                self._forget(name)
            for name, entry in entries.items():
                known = self._states.get(name)
                if known is not None and known.entry.created_ns == entry.created_ns:
                    # Progress that is not stored yet is newer than the catalogue's.
                    known.entry = replace(entry, progress=known.entry.progress)
                else:
                    if known is not None:
                        self._forget(name)
                    self._states[name] = StandingState(entry)
                    self._tokens.set_weight(name, entry.definition.weight)
                    # A new query: evaluate the current snapshot once more.
                    self._seen_snapshot = None
            self._version = version
            used = {state.surface for state in self._states.values()}
            # Rows of surfaces without queries would never be evicted.
            self._kept = {surface: kept for surface, kept in self._kept.items() if surface in used}

    def _forget(self, name: str) -> None:
        # Store its progress first, as it may only be paused.
        if name in self._dirty:
            self._keep_progress()
        del self._states[name]
        self._judged_pieces.pop(name, None)
        self._tokens.forget(name)
        self._graph.remove(name)
        if self._round is not None:
            self._round.remove_query(name)
        self._end_turns(name)

    def _end_turns(self, name: str) -> None:
        """Drop the pinned evaluations of a query that is complete or removed."""
        self._carried = [turn for turn in self._carried if turn.name != name]
        if self._fair is not None and self._fair.name == name:
            self._fair = None

    def _begin_round(self, now_s: float) -> None:
        """Start a round: find the queries that the snapshot affects and plan a batch."""
        if self._round is not None:
            self._end_round(self._round)
            profits = {name: self._tokens.profit(name) for name in self._round.tasks}
            turn = pin_interrupted(self._round, self._running, profits, self._graph)
            if turn is not None:
                self._carried = sorted([*self._carried, turn], key=lambda evaluation: -evaluation.density)[
                    :MOST_CARRIED
                ]
        self._period_s += EWMA_WEIGHT * (min(now_s - self._round_start_s, LONGEST_PERIOD_S) - self._period_s)
        self._round_start_s = now_s
        self._metrics.counts["rounds"] += 1
        is_update, behind = self._archive.snapshot != self._seen_snapshot, self._behind
        self._round, self._planner = (
            SnapshotEvaluation(self._archive.snapshot),
            Planner(self._archive, self._states, self._kept, self._known),
        )
        self._running, self._work, self._behind = {}, None, set()
        concerned = []
        carried = {turn.name for turn in self._carried}
        for name, state in list(self._states.items()):
            if state.is_left_alone(now_s) or name in carried or not self._concerns(state, now_s):
                continue
            if state.stale_since_s is None:
                state.stale_since_s = now_s
            else:
                state.postponed += 1
                self._metrics.counts["postponed"] += 1
            concerned.append(name)
        # A retry is no update of the base.
        self._tokens.offer(name for name in concerned if is_update or name in behind)
        # Queries unlikely to be reached before the next slice are not planned yet.
        self._unplanned = deque(sorted(concerned, key=self._rank))
        self._plan(now_s)

    def _concerns(self, state: StandingState, now_s: float) -> bool:
        """Return whether a query may need computing; conditions on arrivals are evaluated at once."""
        entry, planner = state.entry, self._planner
        if isinstance(entry.definition.condition, InResult):
            # It follows results of its own, in `_judge_rows`.
            return False
        try:
            if planner is None or not planner.concerns(state):
                self._mark_unchanged(state)
                return False
            if not isinstance(entry.definition.condition, Listening):
                return True
            self._listen(state, planner.changes(entry.progress.snapshot))
        except Exception as error:  # noqa: BLE001 - one query that fails must not stop the others
            self._record_failure(entry.name, error, now_s)
        return False

    def _listen(self, state: StandingState, changes: Sequence[Change] | None) -> None:
        """Evaluate a condition on arrivals against committed changes."""
        result = evaluate_liveness(state.entry, self._archive, changes, now_ns=self._clock())
        if result is not None:
            self._record_result(state, result, cells=0, stale_since_s=self._monotonic())

    def _piece(self, now_s: float) -> bool:
        """Evaluate a piece of a kept continuous query, if one is due; half of the time is left to others that wait."""
        kept = self._kept_queries
        if kept is None or (now_s < self._pieces_due_s and not self._is_idle):
            return False
        piece = kept.work(self._monotonic)
        if piece is None:
            return False
        end_s = self._monotonic()
        self._pieces_due_s = end_s + (end_s - now_s)
        for state in list(self._states.values()):
            if state.entry.definition.query.get(FOLLOWED) == piece.name:
                self._judge_rows(state, end_s)
        self._listeners.notify(
            StandingUpdate(piece.name, piece.snapshot, piece.elements, end_s - now_s, (), piece.error)
        )
        return True

    def _judge_rows(self, state: StandingState, now_s: float) -> None:
        """Judge what a kept continuous query gave since the last time."""
        entry, kept, now_ns = state.entry, self._kept_queries, self._clock()
        if kept is None or not isinstance(entry.definition.condition, InResult) or state.is_left_alone(now_s):
            return
        pieces = kept.steps(str(entry.definition.query[FOLLOWED]))
        is_new = self._judged_pieces.get(entry.name) != pieces or state.failures
        if not is_new and not is_unreported(entry, now_ns):
            return
        try:
            result = evaluate_rows(entry, kept, now_ns=now_ns)
            if result is None:
                state.record_success(entry.progress)
            else:
                self._record_result(state, result, cells=0, stale_since_s=now_s)
            self._judged_pieces[entry.name] = pieces
        except Exception as error:  # noqa: BLE001 - as above
            self._record_failure(entry.name, error, now_s)

    def _rank(self, name: str) -> float:
        """Rank a query by cost per token, lowest first; queries that never ran rank first."""
        return self._states[name].cost_s / self._tokens.profit(name)

    def _plan(self, now_s: float) -> None:
        """Plan and schedule a batch of queries, leaving time to compute it."""
        planner, this = self._planner, self._round
        if planner is None or this is None:
            return
        offered: list[str] = []
        until_s = PLANNING_SHARE * self._period_s
        # At least one query per batch, however expensive it is.
        while self._unplanned and (until_s > 0 or not offered):
            name = self._unplanned.popleft()
            state = self._states.get(name)
            if state is None or state.is_left_alone(now_s):
                continue
            begun_s = self._monotonic()
            if self._plan_query(state, this, planner, now_s):
                offered.append(name)
            look_s = self._monotonic() - begun_s
            self._metrics.learn("look_s", look_s)
            until_s -= state.cost_s + look_s
        self._schedule(offered, now_s)

    def _plan_query(self, state: StandingState, this: SnapshotEvaluation, planner: Planner, now_s: float) -> bool:
        """Plan a query into a round; return whether there is anything to compute."""
        name = state.entry.name
        try:
            task = planner.task(state)
            if task is not None:
                refuse_large(name, (part for _, part in task.parts))
        except Exception as error:  # noqa: BLE001 - as above
            self._record_failure(name, error, now_s)
            return False
        if task is None:
            state.stale_since_s = None
            self._tokens.withdraw(name)
            self._mark_unchanged(state)
            return False
        this.add(name, task)
        return True

    def _mark_unchanged(self, state: StandingState) -> None:
        """Record that nothing a query reads has changed up to the current snapshot."""
        state.was_fresh = True
        entry, progress = state.entry, state.entry.progress
        if progress.snapshot != self._archive.snapshot and self._archive.store.extent(
            str(entry.definition.query["variable"])
        ):
            state.entry = replace(entry, progress=replace(progress, snapshot=self._archive.snapshot))
            self._dirty[entry.name] = EvaluationResult(entry.name, state.entry.progress, created_ns=entry.created_ns)

    def _end_round(self, before: SnapshotEvaluation) -> None:
        self._metrics.add_round(before, overloaded=bool(before.tasks or self._unplanned))
        for tree in self._trees:
            self._strategy.withdraw(tree)
        self._trees.clear()

    def _schedule(self, names: Sequence[str], now_s: float) -> None:
        this = self._round
        if not names or this is None:
            return
        with self._lock, self._metrics.timing("scheduling_s"):
            for name in names:
                steps = this.steps_of(name)
                state = self._states[name]
                if steps != state.steps:
                    definition = state.entry.definition
                    validity_s = definition.validity_ns / 1e9
                    self._graph.add(name, steps, weight=definition.weight, validity_s=validity_s)
                    state.steps = steps
            # Tokens rather than weights, as they grow while a query waits (thesis 5.11).
            profits = {name: self._tokens.profit(name) for name in names}
            stale_s = {name: self._states[name].stale_since_s for name in names}
            since_s = {name: seconds for name, seconds in stale_s.items() if seconds is not None}
            tree = self._graph.tree(profits, now_s=now_s, since_s=since_s)
            self._strategy.push(tree, now_s)
            self._trees.append(tree)

    def _block(self, now_s: float) -> bool:
        """Compute a block of the work that the strategy chooses; return whether there was any."""
        # Locked, as other threads read the strategy's statistics.
        with self._lock, self._metrics.timing("scheduling_s"):
            if self._work is not None and now_s >= self._strategy.alarm_s():
                self._work = self._strategy.challenge(self._work, now_s) or self._work
            if self._work is None:
                self._work = self._strategy.next(now_s)
        work, this = self._work, self._round
        if this is None:
            return False
        best = max(self._carried, key=lambda turn: turn.density, default=None)
        if best is not None and (work is None or best.density >= work.density):
            if not self._advance_turn(best):
                self._carried = [turn for turn in self._carried if turn is not best]
            return True
        if work is None:
            if not self._unplanned:
                return False
            with self._metrics.timing("planning_s"):
                self._plan(now_s)
            return True
        for position in work.fragment.jobs:
            sort = work.tree.shape.names[position]
            waiting = this.waiting_steps(sort)
            if waiting:
                self._advance(waiting[0], sort, work, this)
                return True
        with self._lock, self._metrics.timing("scheduling_s"):
            self._strategy.done(work, self._monotonic())
            self._work = None
        return True

    def _advance(self, step: EvaluationStep, sort: str, work: Work, this: SnapshotEvaluation) -> None:
        """Compute a block of a step; after the last one, complete the waiting queries."""
        blocks = self._running.setdefault(id(step), (step, this.compute(step)))[1]
        try:
            seconds = next(blocks)
        except Exception as error:  # noqa: BLE001 - fails the queries that need the step; the others go on
            self._running.pop(id(step), None)
            for name in sorted(step.users):
                this.remove_query(name)
                self._record_failure(name, error, self._monotonic())
            return
        # The remaining cost must stay positive, as it divides the density.
        work.cost_s = max(work.cost_s - seconds, 1e-9)
        if not step.is_done:
            return
        self._running.pop(id(step), None)
        self._graph.record_run(sort, step.seconds)
        for name in this.complete(step):
            self._complete(name, this)

    def _fair_block(self, now_s: float) -> bool:
        """Compute a block for the query that has waited longest, if its share is due."""
        if self._fair is None:
            oldest = self._find_oldest(now_s)
            if oldest is None or self._credit_s <= 0:
                return False
            own, this, planner = SnapshotEvaluation(self._archive.snapshot), self._round, self._planner
            if this is None or planner is None or not self._plan_query(self._states[oldest], own, planner, now_s):
                return False
            # The strategy may complete it first, at this snapshot or a newer one; the turn then ends.
            self._fair = pin_query(oldest, own)
            self._metrics.counts["fair_turns"] += 1
        elif self._credit_s <= 0 and not self._is_idle:
            return False
        turn = self._fair
        if not self._advance_turn(turn) and self._fair is turn:
            self._fair = None
        return True

    def _advance_turn(self, turn: PinnedEvaluation) -> bool:
        """Compute a block of a pinned evaluation; return whether it continues."""
        try:
            if turn.step():
                return True
        except Exception as error:  # noqa: BLE001 - as above
            self._record_failure(turn.name, error, self._monotonic())
            return False
        for step in turn.evaluation.needed_steps(turn.name):
            self._graph.record_run(step.kind_key, step.seconds)
        self._complete(turn.name, turn.evaluation)
        state = self._states.get(turn.name)
        if state is not None and turn.evaluation.snapshot != self._archive.snapshot:
            # The next round has the changes committed meanwhile.
            state.stale_since_s = self._monotonic() if state.stale_since_s is None else state.stale_since_s
            self._behind.add(turn.name)
        return False

    def _find_oldest(self, now_s: float) -> str | None:
        """Find the query that has waited longest, among those overtaken by a slice."""
        waiting = [
            (state.stale_since_s, name)
            for name, state in self._states.items()
            if state.stale_since_s is not None
            and state.stale_since_s < self._round_start_s
            and not state.is_left_alone(now_s)
            and all(turn.name != name for turn in self._carried)
        ]
        return min(waiting)[1] if waiting else None

    @property
    def _is_idle(self) -> bool:
        waits = self._round is not None and bool(self._round.tasks)
        return self._work is None and not self._carried and not self._unplanned and not waits

    def _complete(self, name: str, this: SnapshotEvaluation) -> None:
        """Evaluate the condition of a computed query, store the result, and notify."""
        state = self._states.get(name)
        task = this.tasks.get(name)
        if state is None or task is None:
            return
        begun_s = self._monotonic()
        try:
            parts = this.values(task)
            kept = self._kept.setdefault(state.surface, RowCache())
            # Queries on one surface share its rows; storing them again changes nothing.
            task.store_rows(kept, [part.value for part in parts])
            result = evaluate_condition(state.entry, task, kept, snapshot=this.snapshot, now_ns=self._clock())
            if any(target.channel == "archive" for target in state.entry.definition.to):
                for dataset in make_datasets(task, this, parts):
                    keep_dataset(self.folder / name, dataset)
        except Exception as error:  # noqa: BLE001 - as above
            this.remove_query(name)
            self._record_failure(name, error, self._monotonic())
            return
        with self._lock:
            state.latest = take_latest(task, this, parts)
        this.remove_query(name)
        self._end_turns(name)
        state.cost_s = sum(self._graph.cost(step.token).seconds for step in state.steps)
        self._tokens.credit(name)
        self._record_result(state, result, cells=task.cells, stale_since_s=state.stale_since_s or self._monotonic())
        self._metrics.learn("judge_s", self._monotonic() - begun_s)

    def _record_result(
        self, state: StandingState, result: EvaluationResult, *, cells: int, stale_since_s: float
    ) -> None:
        """Record a result: stored at once if it has alerts, else with the next batch."""
        alerts: list[Alert] = []
        # The name may have been given to another query meanwhile.
        result, progress = replace(result, created_ns=state.entry.created_ns), result.progress
        # Alerts are durable before listeners hear of them; plain progress can be repeated after a kill.
        if result.alerts:
            ((progress, alerts),) = self._store.keep([result])
            self._dirty.pop(result.name, None)
        else:
            self._dirty[result.name] = result
        now_s = self._monotonic()
        with self._lock:
            state.record_success(progress)
            behind_s = max(now_s - stale_since_s, 0.0)
            self._metrics.count_evaluation(state.entry.definition, behind_s)
        self._listeners.notify(StandingUpdate(result.name, progress.snapshot, cells, behind_s, tuple(alerts)))

    def _record_failure(self, name: str, error: Exception, now_s: float) -> None:
        """Back off a failed query; its retry includes all changes since."""
        with self._lock:
            state = self._states.get(name)
            if state is not None:
                state.record_failure(error, now_s)
        if state is not None:
            self._listeners.notify(StandingUpdate(name, state.entry.progress.snapshot, 0, 0.0, error=state.error))

    def _keep_progress(self) -> None:
        """Store the progress of evaluations without alerts."""
        self._kept_at_s = self._monotonic()
        with self._lock:
            # Swapped under the lock; the catalogue write itself must not block readers.
            dirty, self._dirty = self._dirty, {}
        if dirty:
            self._store.keep(list(dirty.values()))
