"""Input job trees: the work that a batch of input, or a new slice, gives to do (thesis 4.4, 4.6.2.1)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Literal

from hypergrid.core.errors import HyperGridError

# How a tree of jobs is cut into the pieces that are scheduled: single jobs, or fragments (thesis 4.6).
#
# Jobs are the basic strategy's way, valued as in Aurora (4.6.1.1). Fragments are OptProfit's (4.6.2.2): connected jobs
# that are run one after the other, found by Horn's rule (W. A. Horn, 1972: merge the densest job that is not a root
# into its parent), which is optimal; the rule of algorithm 4 as printed stands beside it as a contrast, and is not
# always.

Rule = Literal["jobs", "fragments", "printed"]


@dataclass(frozen=True)
class Fragment:
    """Jobs of a tree that are scheduled as one, run in this order; costs and profits are of one unit of input."""

    jobs: tuple[int, ...]
    """Positions in the shape, parents before their children."""
    after: int
    """Number of the piece that must be done before; -1 where there is none."""
    cost_s: float
    profit: float
    """What it earns."""
    value: float
    """What it counts for when it is compared; above its profit where others wait for it (Aurora's way)."""
    slack_s: float
    """How much later than the tree's deadline it may be complete [s]."""
    below_s: float
    """What must still be run after it before that [s]: due dates of NL-jobs let all their L-jobs be in time (4.7.1)."""


@dataclass(frozen=True)
class Cut:
    """All pieces of a tree."""

    fragments: tuple[Fragment, ...]
    """A piece stands after the one that it waits for."""
    first: tuple[int, ...]
    """Numbers of the pieces that wait for none."""
    following: tuple[tuple[int, ...], ...]
    """For each piece the numbers of those that wait for it."""
    steps: int
    """Comparisons that it took, for the cost of scheduling."""


def cut_into_jobs(shape: "Shape") -> Cut:
    """Return each job by itself, valued at all that it leads to (4.6.1.1), due so that all of it can be in time."""
    pieces = [
        Fragment(
            (number,),
            shape.parents[number],
            shape.costs_s[number],
            shape.profits[number],
            shape.downstream_profits[number],
            shape.min_slacks_s[number],
            shape.below_s[number],
        )
        for number in range(len(shape))
    ]
    return _build_cut(pieces, len(shape))


def cut_into_fragments(shape: "Shape") -> Cut:
    """Return the fragments by Horn's rule, in the order of the best schedule: densities never rise (algorithm 3)."""
    fragments, steps = find_horn_fragments(shape.parents, shape.costs_s, shape.profits)
    return _cut_from_fragments(shape, fragments, steps)


def cut_as_printed(shape: "Shape") -> Cut:
    """Return the fragments by algorithm 4 as printed; jobs that lead to no profit come last, one by one."""
    fragments, steps = find_printed_fragments(shape.parents, shape.costs_s, shape.profits)
    return _cut_from_fragments(shape, fragments, steps)


CUTS: Mapping[Rule, Callable[["Shape"], Cut]] = {
    "jobs": cut_into_jobs,
    "fragments": cut_into_fragments,
    "printed": cut_as_printed,
}
"""Every way to cut."""


def find_horn_fragments(
    parents: Sequence[int], costs: Sequence[float], profits: Sequence[float]
) -> tuple[list[list[int]], int]:
    """Return the fragments of the schedule that earns most by every moment, and the comparisons made.

    The densest group of jobs is taken again and again: a root is the next fragment, and its children become roots;
    any other is merged into its parent, after which it runs at once. O(n log n) comparisons for n jobs.

    Parameters
    ----------
    parents
        Position of each job's parent, before its own; -1 for roots; shape (n,).
    costs, profits
        Of each job, costs above 0; shape (n,).

    Examples
    --------
    >>> find_horn_fragments((-1, 0, 0), (1.0, 1.0, 2.0), (0.0, 8.0, 2.0))[0]
    [[0, 1], [2]]
    """
    size = len(parents)
    cost, profit, jobs = list(costs), list(profits), [[number] for number in range(size)]
    # Where a job went: itself while it heads a group, -1 - n once its group is fragment n.
    head = list(range(size))
    # Equal densities: whoever stands nearer to the root goes first, so that no parent is passed by a child.
    heap = [(-profit[number] / cost[number], number, 1) for number in range(size)]
    heapify(heap)
    fragments: list[list[int]] = []
    steps = 2 * size
    while heap:
        _, number, grown = heappop(heap)
        steps += len(heap).bit_length()
        if head[number] != number or grown != len(jobs[number]):
            continue
        above = parents[number]
        while above >= 0 and head[above] not in (above, -1):
            above = head[above]
        if above < 0 or head[above] == -1:
            fragments.append(jobs[number])
            head[number] = -1
            continue
        cost[above] += cost[number]
        profit[above] += profit[number]
        jobs[above] += jobs[number]
        head[number] = above
        heappush(heap, (-profit[above] / cost[above], above, len(jobs[above])))
        steps += len(heap).bit_length()
    return fragments, steps


def find_printed_fragments(
    parents: Sequence[int], costs: Sequence[float], profits: Sequence[float]
) -> tuple[list[list[int]], int]:
    """Return the fragments of algorithms 3 to 5 as printed, line by line, and the comparisons made.

    Of all jobs with a profit it merges the one that is densest *together with its parent*; what such a merge keeps
    apart may have been worth more, so that it sometimes earns less than `find_horn_fragments`.

    Parameters
    ----------
    parents, costs, profits
        As for `find_horn_fragments`.
    """
    parent, cost, profit = list(parents), list(costs), list(profits)
    jobs = [[number] for number in range(len(parents))]
    left, steps = set(range(len(parents))), 0
    fragments: list[list[int]] = []
    while True:
        best, candidate = 0.0, -1
        for number in sorted((n for n in left if profit[n] > 0), key=lambda n: (-profit[n] / cost[n], n)):
            steps += 1
            if profit[number] / cost[number] <= best:
                break
            above = parent[number]
            density = profit[number] / cost[number]
            if above >= 0:
                density = (profit[number] + profit[above]) / (cost[number] + cost[above])
            if density > best:
                best, candidate = density, number
        if candidate < 0:
            # What is left earns nothing; it is kept, so that no job is lost.
            return fragments + [jobs[number] for number in sorted(left)], steps
        above = parent[candidate]
        if above < 0:
            fragments.append(jobs[candidate])
        else:
            cost[above] += cost[candidate]
            profit[above] += profit[candidate]
            jobs[above] += jobs[candidate]
        left.remove(candidate)
        for number in left:
            if parent[number] == candidate:
                parent[number] = above


def _cut_from_fragments(shape: "Shape", fragments: list[list[int]], steps: int) -> Cut:
    piece_of = {job: number for number, jobs in enumerate(fragments) for job in jobs}
    pieces = []
    for jobs in fragments:
        above = shape.parents[jobs[0]]
        profit = sum(shape.profits[job] for job in jobs)
        earning = [shape.slacks_s[job] for job in jobs if shape.profits[job]]
        cost = sum(shape.costs_s[job] for job in jobs)
        pieces.append(
            Fragment(
                tuple(jobs), -1 if above < 0 else piece_of[above], cost, profit, profit, min(earning, default=0.0), 0.0
            )
        )
    return _build_cut(pieces, steps)


def _build_cut(pieces: list[Fragment], steps: int) -> Cut:
    following: list[list[int]] = [[] for _ in pieces]
    for number, piece in enumerate(pieces):
        if piece.after >= 0:
            following[piece.after].append(number)
    first = tuple(number for number, piece in enumerate(pieces) if piece.after < 0)
    return Cut(tuple(pieces), first, tuple(map(tuple, following)), steps)


class InvalidWork(HyperGridError, ValueError):
    """Work that cannot be scheduled: a cycle, a weight, a validity or a cost that is not positive; what is named."""


@dataclass(frozen=True)
class Shape:
    """The jobs that one unit of input (a tuple, a slice) gives to do, and which waits for which: a forest.

    Each position stands for one job, parents before their children.

    Examples
    --------
    >>> shape = Shape(("clean", "mean", "map"), (-1, 0, 0), (2.0, 1.0, 4.0), (0.0, 10.0, 2.0))
    >>> shape.leaves, shape.downstream_profits, shape.below_s
    ((1, 2), (12.0, 10.0, 2.0), (5.0, 0.0, 0.0))
    """

    names: tuple[str, ...]
    """What the jobs run: tokens of steps, or names of operators."""
    parents: tuple[int, ...]
    """Position of the job that must be done before; -1 for a root, which reads the input."""
    costs_s: tuple[float, ...]
    """What each takes a unit of input [s], above 0 (equation of 4.4.1: unit cost times input cardinality)."""
    profits: tuple[float, ...]
    """What each earns itself when it is complete in time: of an L-job its queries' weights, of an NL-job 0."""
    slacks_s: tuple[float, ...] = ()
    """How much later than its tree's deadline a job may be complete [s]; none where absent."""

    def __post_init__(self) -> None:
        size = len(self.names)
        if not self.slacks_s:
            object.__setattr__(self, "slacks_s", (0.0,) * size)
        lengths = {len(self.parents), len(self.costs_s), len(self.profits), len(self.slacks_s)}
        if lengths != {size}:
            message = f"a tree of jobs needs one parent, cost, profit and slack a job; got {size} names and {lengths}"
            raise InvalidWork(message)
        for number, (name, parent) in enumerate(zip(self.names, self.parents, strict=True)):
            if not -1 <= parent < number:
                message = f"job {name!r} at position {number} needs a parent before it, or -1; got {parent}"
                raise InvalidWork(message)
            if not 0 < self.costs_s[number] < math.inf:
                message = f"job {name!r} needs a cost above 0 s; got {self.costs_s[number]}"
                raise InvalidWork(message)
            if not 0 <= self.profits[number] < math.inf:
                message = f"job {name!r} needs a profit of 0 or more; got {self.profits[number]}"
                raise InvalidWork(message)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the jobs that wait for each."""
        listed: list[list[int]] = [[] for _ in self.names]
        for number, parent in enumerate(self.parents):
            if parent >= 0:
                listed[parent].append(number)
        return tuple(map(tuple, listed))

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """Positions of the L-jobs, for which no other waits."""
        return tuple(number for number, children in enumerate(self.children) if not children)

    @cached_property
    def downstream_profits(self) -> tuple[float, ...]:
        """What each and all that wait for it earn together: Aurora's value of a job (4.6.1.1)."""
        return tuple(self._join_descendants(self.profits, lambda above, below: above + below))

    @cached_property
    def below_s(self) -> tuple[float, ...]:
        """What all that wait for each take together [s a unit], itself not counted."""
        whole = self._join_descendants(self.costs_s, lambda above, below: above + below)
        return tuple(total - own for total, own in zip(whole, self.costs_s, strict=True))

    @cached_property
    def min_slacks_s(self) -> tuple[float, ...]:
        """Least slack of each and of all that earn something and wait for it [s]."""
        own = [slack if profit else math.inf for slack, profit in zip(self.slacks_s, self.profits, strict=True)]
        slacks = self._join_descendants(own, min)
        return tuple(slack if slack < math.inf else 0.0 for slack in slacks)

    @cached_property
    def _cuts(self) -> dict[Rule, Cut]:
        return {}

    def cut(self, rule: Rule) -> Cut:
        """Return the pieces that are scheduled one by one, found at the first call."""
        known_cut = self._cuts.get(rule)
        if known_cut is None:
            known_cut = self._cuts[rule] = CUTS[rule](self)
        return known_cut

    def _join_descendants(
        self, own: "list[float] | tuple[float, ...]", join: Callable[[float, float], float]
    ) -> list[float]:
        """Join the value of each with those of all that wait for it."""
        values = list(own)
        for number in range(len(self) - 1, 0, -1):
            parent = self.parents[number]
            if parent >= 0:
                values[parent] = join(values[parent], values[number])
        return values


@dataclass(frozen=True, eq=False)
class JobTree:
    """An input job tree: the jobs of one batch, all with the batch's deadline. Two trees are never equal."""

    shape: Shape
    arrived_s: float
    """When its input was there [s]."""
    deadline_s: float
    """By when its jobs must be complete to be in time [s], slack not counted."""
    size: float = 1.0
    """Units of input; costs and profits are so many times those of the shape."""
    ends_s: float = math.inf
    """After this nothing of it earns anything [s]; infinite where results are merely late."""
