"""Which share of the outputs comes in time (QoS, equation 4.3), with one processor and the cost of scheduling counted.

The clock is moved from event to event; the strategies are those that live workers use.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from queries.scheduling.job_tree import JobTree, Shape
from queries.scheduling.strategy import SchedulingStrategy, Work
from tests.support.scheduling.batching import Batching


@dataclass(frozen=True)
class Overheads:
    """What scheduling costs: what the handlers of the strategies take that live workers call.

    Measured by `tests.support.scheduling.handlers` on two shared processors, and rounded;
    `hypergrid bench scheduling --case batching` measures them anew, and takes none, a tenth and ten times of them.
    """

    interrupt_s: float = 5e-6
    """Of a handler that runs [s]."""
    step_s: float = 2e-7
    """Of a comparison in it [s]."""
    switch_s: float = 1e-6
    """Of a piece that begins or goes on after another [s]."""


@dataclass(frozen=True)
class Input:
    """One input stream."""

    shape: Shape
    """The job tree of one of its tuples; its slacks say how much sooner than the tuple an output expires."""
    arrivals_s: NDArray[np.float64]
    """When its tuples are there, ordered [s], shape (n,)."""
    validity_s: float
    """How long each is valid from when it was made [s]."""
    delay_s: float = 0.0
    """How long each was on its way [s]."""


@dataclass(frozen=True, eq=False)
class TupleBatch(JobTree):
    """The jobs of several tuples of one input."""

    expiries_s: Sequence[float] = field(default=())
    """Until when each tuple is valid, ordered [s]."""


@dataclass(frozen=True)
class Quality:
    """What one simulation found."""

    score: float
    """Share of the weighted outputs that were in time, 0 to 1 (equation 4.3)."""
    batches: int
    mean_batch: float
    """Tuples of a batch."""
    busy_s: float
    """Time spent on jobs [s]."""
    overhead_s: float
    """Time spent on scheduling [s]."""
    wasted_s: float
    """Time spent on outputs that came too late [s]."""


def simulate(
    inputs: Sequence[Input],
    strategy: SchedulingStrategy,
    batching: Batching,
    *,
    overheads: Overheads | None = None,
    late_runs: bool = False,
) -> Quality:
    """Return the quality of a strategy on given arrivals.

    Tuples of a batch go through a piece one after the other, so that it can be preempted between two.

    Parameters
    ----------
    inputs
        The streams.
    strategy
        With nothing waiting; it is used up.
    batching
        What makes batches.
    overheads
        What scheduling costs; the default where absent.
    late_runs
        Whether tuples are processed that have expired, since all results are wanted (4.3.2), as by the thesis's
        strategies that know no deadlines. Else they are passed over at no cost.
    """
    return _Run(inputs, strategy, batching, overheads or Overheads(), late_runs).run()


class _Feed:
    """One input on its way into batches."""

    def __init__(self, source: Input, batching: Batching) -> None:
        self.shape = source.shape
        self.arrivals = source.arrivals_s.tolist()
        self.expiries = (source.arrivals_s - source.delay_s + source.validity_s).tolist()
        self.validity_s = source.validity_s
        self._batching = batching
        span = self.arrivals[-1] - self.arrivals[0] if self.arrivals else 0.0
        self._gap_s = span / max(len(self.arrivals) - 1, 1)
        self.first = self.stop = 0
        self.release_s = math.inf

    def open(self, laxity_s: float) -> None:
        """Find out when the next batch ends, by the laxity that is known now."""
        arrivals, first = self.arrivals, self.first
        if first >= len(arrivals):
            self.release_s = math.inf
            return
        laxity_s = min(laxity_s, self.validity_s)
        start_s = last_s = arrivals[first]
        stop = first + 1
        closes = self._batching.closes_s
        while True:
            closes_s = closes(start_s, last_s, stop - first, laxity_s=laxity_s, gap_s=self._gap_s)
            if stop == len(arrivals) or arrivals[stop] > closes_s:
                break
            last_s = arrivals[stop]
            stop += 1
        # A batch that waits for tuples which never come ends with the stream.
        self.release_s = max(last_s, closes_s if closes_s < math.inf else last_s)
        self.stop = stop

    def take(self, stop: int, *, late_runs: bool) -> TupleBatch:
        """Return the tuples before this one as a batch."""
        expiries = self.expiries[self.first : stop]
        arrived_s = self.arrivals[self.first]
        self.first = stop
        return TupleBatch(
            self.shape,
            arrived_s,
            expiries[0],
            float(len(expiries)),
            ends_s=math.inf if late_runs else expiries[-1] + _latest_s(self.shape),
            expiries_s=expiries,
        )


class _Run:
    def __init__(
        self,
        inputs: Sequence[Input],
        strategy: SchedulingStrategy,
        batching: Batching,
        overheads: Overheads,
        late_runs: bool,  # noqa: FBT001 - made in one place
    ) -> None:
        self._late_runs = late_runs
        self._strategy = strategy
        self._overheads = overheads
        self._eager = batching.eager
        self._feeds = [_Feed(source, batching) for source in inputs]
        self._possible = sum(sum(source.shape.profits) * len(source.arrivals_s) for source in inputs)
        self._tuples = sum(len(source.arrivals_s) for source in inputs)
        self._begun: dict[Work, int] = {}
        """Tuples that pieces which were handed back have passed."""
        self._profits: dict[tuple[int, tuple[int, ...]], tuple[dict[float, float], float, Shape]] = {}
        self._now_s = 0.0
        self._charged = (0, 0)
        self._batches = 0
        self._earned = self._busy_s = self._overhead_s = self._wasted_s = 0.0

    def run(self) -> Quality:
        strategy = self._strategy
        for feed in self._feeds:
            feed.open(math.inf)
        running: Work | None = None
        while True:
            came = self._release()
            if running is None:
                running = strategy.next(self._now_s)
                self._charge()
                if running is None:
                    if not self._wait():
                        break
                    continue
                self._spend(self._overheads.switch_s)
            elif came or strategy.alarm_s() <= self._now_s:
                better = strategy.challenge(running, self._now_s)
                self._charge()
                if better is not None:
                    running = better
                    self._spend(self._overheads.switch_s)
            stop_s = min(strategy.alarm_s(), *(feed.release_s for feed in self._feeds))
            if self._advance(running, stop_s):
                strategy.done(running, self._now_s)
                self._charge()
                running = None
        return Quality(
            score=self._earned / self._possible,
            batches=self._batches,
            mean_batch=self._tuples / max(self._batches, 1),
            busy_s=self._busy_s,
            overhead_s=self._overhead_s,
            wasted_s=self._wasted_s,
        )

    def _release(self) -> bool:
        """Push the batches that have ended."""
        came = False
        for feed in self._feeds:
            while feed.release_s <= self._now_s:
                self._push(feed, feed.stop)
                came = True
        return came

    def _push(self, feed: _Feed, stop: int) -> None:
        self._strategy.push(feed.take(stop, late_runs=self._late_runs), self._now_s)
        self._charge()
        self._batches += 1
        feed.open(self._strategy.laxity_s(self._now_s))

    def _wait(self) -> bool:
        """Let the next batch come, or where one may be released early, what is there of it; tell whether any comes."""
        open_ = [feed for feed in self._feeds if feed.release_s < math.inf]
        if self._eager:
            early = [feed for feed in open_ if feed.arrivals[feed.first] <= self._now_s]
            for feed in early:
                self._push(feed, bisect_right(feed.arrivals, self._now_s, feed.first))
            if early:
                return True
            next_s = min((feed.arrivals[feed.first] for feed in open_), default=math.inf)
        else:
            next_s = min((feed.release_s for feed in open_), default=math.inf)
        self._now_s = max(self._now_s, next_s)
        return next_s < math.inf

    def _advance(self, work: Work, stop_s: float) -> bool:
        """Let a piece go on until it is complete, or something happens: at least one tuple."""
        batch = work.tree
        assert isinstance(batch, TupleBatch)
        expiries, unit_s = batch.expiries_s, work.fragment.cost_s
        # A tuple that is late for the outputs of a piece may still be needed by those that wait for it.
        profits, last_s = self._find_profits(work)
        first_s = min(profits)
        size = len(expiries)
        now_s = self._now_s
        place = self._begun.pop(work, 0)
        if not self._late_runs:
            place = bisect_left(expiries, now_s - last_s, place)
        while place < size:
            left = size - place
            if now_s + unit_s * left <= expiries[place] + first_s:
                # All are in time, since the first would be even as the last.
                count = left
                if now_s + unit_s * left > stop_s:
                    count = min(left, max(1, math.ceil((stop_s - now_s) / unit_s)))
                self._earned += count * sum(profits.values())
            else:
                count, timely, useful = _passed(
                    (expiries, place, last_s), now_s, unit_s, stop_s, list(profits), late_runs=self._late_runs
                )
                self._earned += sum(number * profit for number, profit in zip(timely, profits.values(), strict=True))
                self._wasted_s += (count - useful) * unit_s
            self._busy_s += count * unit_s
            now_s += count * unit_s
            place += count
            if not self._late_runs:
                place = bisect_left(expiries, now_s - last_s, place)
            if now_s >= stop_s:
                break
        self._now_s = now_s
        if place >= size:
            return True
        self._begun[work] = place
        share = (size - place) * unit_s / work.cost_s if work.cost_s > 0 else 0.0
        work.value *= share
        work.cost_s = (size - place) * unit_s
        return False

    def _find_profits(self, work: Work) -> tuple[dict[float, float], float]:
        """Return what the outputs of a piece earn for each tuple, by how much sooner than it they expire [s].

        Beside it how much sooner than the tuple the last output of its tree expires [s].
        """
        key = (id(work.tree.shape), work.fragment.jobs)
        if key not in self._profits:
            shape, latest_s = work.tree.shape, _latest_s(work.tree.shape)
            found: dict[float, float] = {}
            for job in work.fragment.jobs:
                if shape.profits[job]:
                    slack_s = shape.slacks_s[job]
                    found[slack_s] = found.get(slack_s, 0.0) + shape.profits[job]
            # The shape is held, as another could get its identity.
            self._profits[key] = (found or {latest_s: 0.0}, latest_s, shape)
        return self._profits[key][:2]

    def _spend(self, seconds: float) -> None:
        self._now_s += seconds
        self._overhead_s += seconds

    def _charge(self) -> None:
        """Let scheduling take its time."""
        interrupts, steps = self._strategy.interrupts, self._strategy.steps
        before = self._charged
        self._charged = (interrupts, steps)
        self._spend(
            (interrupts - before[0]) * self._overheads.interrupt_s + (steps - before[1]) * self._overheads.step_s
        )


def _latest_s(shape: Shape) -> float:
    """Return how much sooner than its tuple the last output expires, zero or less [s]."""
    return max(slack for slack, profit in zip(shape.slacks_s, shape.profits, strict=True) if profit)


def _passed(
    batch: tuple[Sequence[float], int, float],
    now_s: float,
    unit_s: float,
    stop_s: float,
    slacks_s: Sequence[float],
    *,
    late_runs: bool,
) -> tuple[int, list[int], int]:
    """Count the tuples that run until something happens or one is to be passed over.

    Returns their number, how many of them are in time for the outputs of each slack, and for any.

    Parameters
    ----------
    batch
        Expiries of its tuples, the first that is to run, and how much sooner the last output of the tree expires.
    now_s, unit_s, stop_s
        Time, that of one tuple, and when something happens [s].
    slacks_s
        How much sooner the outputs of the piece expire [s].
    late_runs
        As of `simulate`.
    """
    expiries, place, latest_s = batch
    count, useful, timely = 0, 0, [0] * len(slacks_s)
    for expiry_s in expiries[place:]:
        if count and (now_s >= stop_s or (expiry_s + latest_s < now_s and not late_runs)):
            break
        now_s += unit_s
        count += 1
        in_time = [now_s <= expiry_s + slack_s for slack_s in slacks_s]
        useful += any(in_time)
        timely = [number + one for number, one in zip(timely, in_time, strict=True)]
    return count, timely, useful
