"""Standing queries live beside users' questions, as in the server, under one strategy after the other.

The load is fixed before any strategy runs: the queries, the questions and the time between two slices, which is what a
slice costs, measured with all at rest, over `OVERLOAD`. Time is that of a `ProcessorClock`, so that other processes on
the machine make nothing late. Each round runs all strategies one after the other.
"""

import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import hypergrid as hg
from hypergrid.core.blas import count_cores
from queries.jobs.admission import Asker, act_as
from queries.jobs.block_queue import BlockQueue
from queries.jobs.records import RunnerLimits
from queries.jobs.runner import Runner
from queries.standing import runner as runner_module
from queries.standing.service import StandingQueries
from queries.standing.statistics import StandingUpdate
from tests.bench.kriging_figures import Tell
from tests.bench.standing_live import WARM_SLICES, settle_slices, weighted
from tests.bench.standing_network import KINDS, Network, documents, template
from tests.support.scheduling.strategies import make_strategy
from tests.support.standing_runner import settle

OVERLOAD = 1.5
"""What all standing queries cost a slice, in units of the time that is planned between two.

Slices are committed within the process, which stretches that time where commits take long beside it.
"""
SIDE = 120
"""Cells along the edge of a standing query's map."""
VALID_SLICES = 2
"""How many slices long a result is fresh; later ones are late."""
QUESTIONS_A_SLICE = 1.0
"""Small questions that come between two slices, on average."""
SMALL_SIDE, LARGE_SIDE = 30, 300
"""Cells along the edge of a small question's map, and of the large ones, of which one always runs."""
IDLE = 0.05
"""Speed of time while the process is idle: without it, time that only work drives would stand still."""
POLL_S = 0.002
"""How often a thread looks at the time at most [s]."""
STOP_S = 0.1
"""How often a thread that waits for an answer looks whether the run is over [s]."""
POLLS_A_SLICE = 10
"""How often the runner looks for a slice while one comes; a server, whose slices take minutes, does so more often."""
WARM_UP_SLICES = 2
"""Slices of a first run that is not counted."""
BEST = 0.05
"""By how much of the weighted updates a strategy wins."""


class ProcessorClock:
    """Time that this process had all processors for [s]: its processor time over their number.

    While the process is idle, time passes at `IDLE` of its usual speed.
    """

    def __init__(self) -> None:
        self._processors = count_cores()
        self._lock = threading.Lock()
        self._now_s = 0.0
        self._seen = (time.process_time(), time.monotonic())

    def __call__(self) -> float:
        with self._lock:
            seen = (time.process_time(), time.monotonic())
            worked_s, passed_s = (now - before for now, before in zip(seen, self._seen, strict=True))
            self._seen = seen
            self._now_s += max(worked_s / self._processors, IDLE * passed_s)
            return self._now_s

    def wait_until(self, due_s: float, ended: threading.Event) -> bool:
        """Wait; return whether `ended` was set meanwhile."""
        # This time never runs ahead of the wall's, so a thread need not look sooner than it is due at best.
        while (left_s := due_s - self()) > 0:
            if ended.wait(max(left_s, POLL_S)):
                return True
        return ended.is_set()


STRATEGIES = ("opt-profit", "basic", "round-robin", "opt-profit+pd")
"""Strategies that are compared; the first is the server's."""


class Questions:
    """Users' questions: small ones at random times by one owner, and a large one after the other by another."""

    def __init__(self, runner: Runner, clock: ProcessorClock, *, period_s: float, seed: int) -> None:
        self._runner, self._clock = runner, clock
        self._gap_s = period_s / QUESTIONS_A_SLICE
        self._random = np.random.default_rng(seed)
        self._ended = threading.Event()
        self.small_s: list[float] = []
        """From asking to the answer, of each small question that was answered [s]."""
        self.asked = self.large_cells = 0
        self._threads = [threading.Thread(target=self._ask_small), threading.Thread(target=self._ask_large)]

    def warm_up(self) -> None:
        """Ask one of each, before time counts."""
        self._answer_small(0)
        self._answer("large", {**template(1, side=LARGE_SIDE), "clip": NEWEST}, threading.Event())
        self.small_s.clear()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask_small(self) -> None:
        answers: list[threading.Thread] = []
        due_s = self._clock()
        while True:
            due_s += self._random.exponential(self._gap_s)
            if self._clock.wait_until(due_s, self._ended):
                break
            self.asked += 1
            answers.append(threading.Thread(target=self._answer_small, args=(self.asked,)))
            answers[-1].start()
        for thread in answers:
            thread.join()

    def _answer_small(self, number: int) -> None:
        begun_s = self._clock()
        # None is the same as another, which would share its run.
        self._answer("small", {**template(5 * number + 1, side=SMALL_SIDE), "clip": NEWEST}, threading.Event())
        self.small_s.append(self._clock() - begun_s)

    def _ask_large(self) -> None:
        number = 0
        while not self._ended.is_set():
            number += 1
            document = {**template(5 * number + 1, side=LARGE_SIDE), "clip": NEWEST}
            self.large_cells += self._answer("large", document, self._ended)

    def _answer(self, owner: str, document: dict[str, Any], ended: threading.Event) -> int:
        """Ask and wait; return the cells that were computed."""
        with act_as(Asker(owner)):
            job = self._runner.submit(document, passing=True)
        answered = threading.Event()

        def look() -> None:
            if self._runner.job(job.id).has_ended:
                answered.set()

        # Not by polling: threads that wake up every few milliseconds take the interpreter's lock from those that work.
        leave = self._runner.listen(job.id, look)
        look()
        while not answered.wait(STOP_S) and not ended.is_set():
            look()
        leave()
        cells = self._runner.job(job.id).progress.cells
        self._runner.forget(job.id)
        return cells


NEWEST = {"time": ["2007-10-01T00:00Z", "2007-10-01T00:10Z"]}
"""What a small question is about."""


def measure(
    _pairs: int,
    notify: Tell,
    *,
    queries: int = 24,
    slices: int = 12,
    rounds: int = 4,
    strategies: tuple[str, ...] = STRATEGIES,
) -> dict[str, Any]:
    """Return one row a strategy: updates, alerts, archives and questions, means over the rounds."""
    with tempfile.TemporaryDirectory() as folder:
        notify("live, cost of a slice", 0.0)
        period_s = _cost(Path(folder) / "cost", queries) / OVERLOAD
        # Not counted: it compiles, and reads modules and files for the first time.
        _run(Path(folder) / "first", strategies[0], queries, WARM_UP_SLICES, period_s, seed=0)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in strategies}
        for number in range(rounds):
            # The order changes from round to round.
            for name in np.roll(strategies, number).tolist():
                notify(f"live, {name}", sum(map(len, runs.values())) / (rounds * len(strategies)))
                run = _run(Path(folder) / f"{name}{number}", name, queries, slices, period_s, seed=number)
                runs[name].append(run)
        notify("live", 1.0)
    first = strategies[0]
    rows = []
    for name, found in runs.items():
        pairs = [
            run["weighted updates a slice"] / other["weighted updates a slice"]
            for run, other in zip(found, runs[first], strict=True)
        ]
        means = {figure: float(np.mean([run[figure] for run in found])) for figure in found[0]}
        rows.append(
            {
                "strategy": name, **means, f"updates over {first}": float(np.mean(pairs)),
                "least ratio": min(pairs), "greatest ratio": max(pairs), "rounds": found,
            }
        )  # fmt: skip
    return {"rows": rows, "period_s": period_s, "queries": queries, "slices": slices, "rounds": rounds}


def _standing(
    folder: Path,
    queries: int,
    *,
    period_s: float = 60.0,
    **options: Any,  # noqa: ANN401
) -> tuple[Network, StandingQueries, list[dict[str, Any]]]:
    """Make an archive, and standing queries that have seen all of it and know their costs."""
    network = Network(folder / "archive")
    network.create(WARM_SLICES)
    standing = StandingQueries(hg.open(folder / "archive"), clock=time.time_ns, folder=folder / "run", **options)
    listed = documents(queries, templates=queries, side=SIDE)
    for document in listed:
        standing.add({**document, "validity": f"{round(1e3 * VALID_SLICES * period_s)}ms"})
    settle(standing.runner)
    network.add()
    settle(standing.runner)
    return network, standing, listed


def _cost(folder: Path, queries: int) -> float:
    """Return what a slice costs all standing queries, with nothing else to do [s]."""
    network, standing, _ = _standing(folder, queries)
    costs_s = settle_slices(network, standing, time.process_time)
    standing.stop()
    return float(np.median(costs_s))


def _run(folder: Path, name: str, queries: int, slices: int, period_s: float, *, seed: int) -> dict[str, float]:
    """Return what one strategy makes of the load."""
    with mock.patch.object(runner_module, "POLL_S", period_s / POLLS_A_SLICE):
        return _measure_run(folder, name, queries, slices, period_s, seed=seed)


def _measure_run(folder: Path, name: str, queries: int, slices: int, period_s: float, *, seed: int) -> dict[str, float]:
    workers, clock = count_cores(), ProcessorClock()
    network, standing, listed = _standing(folder, queries, period_s=period_s, strategy=make_strategy(name))
    standing.runner._monotonic = clock
    standing.runner._round_start_s = standing.runner._kept_at_s = standing.runner._polled_at_s = clock()
    standing.runner._period_s = period_s
    runner = Runner(hg.open(folder / "archive"), RunnerLimits(workers=workers))
    runner._blocks = BlockQueue(workers, clock=clock)
    questions = Questions(runner, clock, period_s=period_s, seed=seed)
    # Compiled, and planned once.
    questions.warm_up()
    updates: list[StandingUpdate] = []
    leave = standing.runner.listen(updates.append)
    before = standing.statistics()
    standing.start()
    questions.start()
    begun_s = clock()
    for number in range(slices):
        clock.wait_until(begun_s + number * period_s, threading.Event())
        network.add()
    clock.wait_until(begun_s + slices * period_s, threading.Event())
    took_s = clock() - begun_s
    leave()
    ended = standing.statistics()
    questions.stop()
    standing.runner.stop()
    runner.stop()
    standing.stop()
    kinds = {document["name"]: document["class"] for document in listed}
    delays: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for update in updates:
        delays[kinds[update.name]].append(update.behind_s)
    scheduling_s, busy_s = ended.scheduling_s - before.scheduling_s, ended.busy_s - before.busy_s
    chosen = ended.strategy.chosen - before.strategy.chosen
    return {
        "weighted updates a slice": weighted(Counter(update.name for update in updates), listed, slices),
        "alert p99 [slices]": _quantile(delays["alert"], 0.99) / period_s,
        "oldest archive work [slices]": max([ended.oldest_s, *delays["archive"]]) / period_s,
        "question p50 [s]": _quantile(questions.small_s, 0.5), "question p99 [s]": _quantile(questions.small_s, 0.99),
        "large question [cells a s]": questions.large_cells / took_s,
        "time between slices, over that planned": took_s / (slices * period_s),
        "late results": float(sum(ended.expired.values()) - sum(before.expired.values())),
        "token score": ended.token_score, "scheduling": scheduling_s / busy_s if busy_s else 0.0,
        "scheduling a piece [us]": 1e6 * scheduling_s / max(chosen, 1),
    }  # fmt: skip


def _quantile(values: list[float], share: float) -> float:
    return float(np.quantile(values, share)) if values else float("nan")


def pick_winners(rows: list[dict[str, Any]]) -> list[str]:
    """Return the strategies that win by `BEST` over the first one in every round."""
    return [row["strategy"] for row in rows[1:] if row["least ratio"] >= 1 + BEST]
