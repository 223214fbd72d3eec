"""Input job trees: the work of an input batch or new slice (thesis 4.4, 4.6.2.1)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Literal

from hypergrid.core.errors import HyperGridError

# Cuts of a job tree into the pieces that are scheduled: single jobs, or fragments (thesis 4.6).
#
# Jobs are used by the basic strategy, valued as in Aurora (4.6.1.1). Fragments are used by OptProfit (4.6.2.2):
# connected jobs that run consecutively, found by Horn's rule (W. A. Horn, 1972: merge the densest job that is not a
# root into its parent), which is optimal. Algorithm 4 as printed is kept for comparison; it is not always optimal.

Rule = Literal["jobs", "fragments", "printed"]


@dataclass(frozen=True)
class Fragment:
    """Jobs scheduled as one piece, in this order; costs and profits per unit of input."""

    jobs: tuple[int, ...]
    """Positions in the shape, parents before their children."""
    after: int
    """Number of the piece that must be done before; -1 if none."""
    cost_s: float
    profit: float
    """Profit of completing it in time."""
    value: float
    """Value used in comparisons; in Aurora's valuation it includes the profit of the pieces that wait for it."""
    slack_s: float
    """How much later than the tree's deadline it may complete [s]."""
    below_s: float
    """Work that must still run after it before that [s]: NL-jobs are due early enough for their L-jobs (4.7.1)."""


@dataclass(frozen=True)
class Cut:
    """All pieces of a tree."""

    fragments: tuple[Fragment, ...]
    """Each piece comes after the one that it waits for."""
    first: tuple[int, ...]
    """Numbers of the pieces that wait for none."""
    following: tuple[tuple[int, ...], ...]
    """For each piece, the numbers of those that wait for it."""
    steps: int
    """Number of comparisons, as the cost of scheduling."""


def cut_into_jobs(shape: "Shape") -> Cut:
    """Cut into single jobs, valued at everything they lead to (4.6.1.1), and due accordingly."""
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
    """Cut into fragments by Horn's rule, in schedule order: densities never rise (algorithm 3)."""
    fragments, steps = find_horn_fragments(shape.parents, shape.costs_s, shape.profits)
    return _cut_from_fragments(shape, fragments, steps)


def cut_as_printed(shape: "Shape") -> Cut:
    """Cut into fragments by algorithm 4 as printed; jobs without profit come last, singly."""
    fragments, steps = find_printed_fragments(shape.parents, shape.costs_s, shape.profits)
    return _cut_from_fragments(shape, fragments, steps)


CUTS: Mapping[Rule, Callable[["Shape"], Cut]] = {
    "jobs": cut_into_jobs,
    "fragments": cut_into_fragments,
    "printed": cut_as_printed,
}
"""Cut functions by rule."""


def find_horn_fragments(
    parents: Sequence[int], costs: Sequence[float], profits: Sequence[float]
) -> tuple[list[list[int]], int]:
    """Find the fragments of the schedule with the highest profit at every moment.

    Returns them with the number of comparisons. Repeatedly takes the densest group of jobs: a root becomes the next
    fragment, and its children become roots; any other is merged into its parent and runs directly after it. O(n log n)
    comparisons for n jobs.

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
    # Group of each job: itself while it heads a group, -1 once its group is a fragment, else the job it was merged
    # into.
    head = list(range(size))
    # Ties go to the job nearer to the root, so that no child passes its parent.
    heap = [(-profit[number] / cost[number], number, 1) for number in range(size)]
    heapify(heap)
    fragments: list[list[int]] = []
    steps = 2 * size
    while heap:
        _, number, grown = heappop(heap)
        steps += len(heap).bit_length()
        # Stale heap entry: the group was merged, or has grown since.
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
    """Find the fragments of algorithms 3 to 5 exactly as printed, and count comparisons.

    Among all jobs with a profit it merges the one that is densest *together with its parent*. The parts may have been
    worth more separately, so it sometimes earns less than `find_horn_fragments`.

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
            # Sorted by density: no later job can beat the best merge.
            if profit[number] / cost[number] <= best:
                break
            above = parent[number]
            density = profit[number] / cost[number]
            if above >= 0:
                density = (profit[number] + profit[above]) / (cost[number] + cost[above])
            if density > best:
                best, candidate = density, number
        if candidate < 0:
            # The remaining jobs earn nothing; they are kept so that no job is lost.
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
    """Work that cannot be scheduled: a cycle, or a non-positive weight, validity or cost."""


@dataclass(frozen=True)
class Shape:
    """Forest of the jobs caused by one unit of input (a tuple, a slice).

    Each position is one job, parents before their children.

    Examples
    --------
    >>> shape = Shape(("clean", "mean", "map"), (-1, 0, 0), (2.0, 1.0, 4.0), (0.0, 10.0, 2.0))
    >>> shape.leaves, shape.downstream_profits, shape.below_s
    ((1, 2), (12.0, 10.0, 2.0), (5.0, 0.0, 0.0))
    """

    names: tuple[str, ...]
    """Tokens of steps, or names of operators."""
    parents: tuple[int, ...]
    """Position of the job that must be done before; -1 for a root, which reads the input."""
    costs_s: tuple[float, ...]
    """Cost per unit of input [s], above 0 (equation of 4.4.1: unit cost times input cardinality)."""
    profits: tuple[float, ...]
    """Profit of completing each in time: the weights of its queries for an L-job, 0 for an NL-job."""
    slacks_s: tuple[float, ...] = ()
    """How much later than its tree's deadline a job may complete [s]; default 0."""

    def __post_init__(self) -> None:
        size = len(self.names)
        if not self.slacks_s:
            # The dataclass is frozen.
            object.__setattr__(self, "slacks_s", (0.0,) * size)
        lengths = {len(self.parents), len(self.costs_s), len(self.profits), len(self.slacks_s)}
        if lengths != {size}:
            raise InvalidWork(
                f"a tree of jobs needs one parent, cost, profit and slack a job; got {size} names and {lengths}"
            )
        for number, (name, parent) in enumerate(zip(self.names, self.parents, strict=True)):
            if not -1 <= parent < number:
                raise InvalidWork(f"job {name!r} at position {number} needs a parent before it, or -1; got {parent}")
            if not 0 < self.costs_s[number] < math.inf:
                raise InvalidWork(f"job {name!r} needs a cost above 0 s; got {self.costs_s[number]}")
            if not 0 <= self.profits[number] < math.inf:
                raise InvalidWork(f"job {name!r} needs a profit of 0 or more; got {self.profits[number]}")

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
        """Positions of the L-jobs, which are leaves."""
        return tuple(number for number, children in enumerate(self.children) if not children)

    @cached_property
    def downstream_profits(self) -> tuple[float, ...]:
        """Profit of each job and its descendants: Aurora's value of a job (4.6.1.1)."""
        return tuple(self._join_descendants(self.profits, lambda above, below: above + below))

    @cached_property
    def below_s(self) -> tuple[float, ...]:
        """Cost of each job's descendants, without its own [s per unit]."""
        whole = self._join_descendants(self.costs_s, lambda above, below: above + below)
        return tuple(total - own for total, own in zip(whole, self.costs_s, strict=True))

    @cached_property
    def min_slacks_s(self) -> tuple[float, ...]:
        """Least slack of each job and its descendants, among those with a profit [s]."""
        own = [slack if profit else math.inf for slack, profit in zip(self.slacks_s, self.profits, strict=True)]
        slacks = self._join_descendants(own, min)
        return tuple(slack if slack < math.inf else 0.0 for slack in slacks)

    @cached_property
    def _cuts(self) -> dict[Rule, Cut]:
        return {}

    def cut(self, rule: Rule) -> Cut:
        """Cut into pieces; computed at the first call, then cached."""
        known_cut = self._cuts.get(rule)
        if known_cut is None:
            known_cut = self._cuts[rule] = CUTS[rule](self)
        return known_cut

    def _join_descendants(
        self, own: "list[float] | tuple[float, ...]", join: Callable[[float, float], float]
    ) -> list[float]:
        """Combine the value of each job with those of its descendants."""
        values = list(own)
        # Children come after their parents, so one backward pass is enough.
        for number in range(len(self) - 1, 0, -1):
            parent = self.parents[number]
            if parent >= 0:
                values[parent] = join(values[parent], values[number])
        return values


@dataclass(frozen=True, eq=False)
class JobTree:
    """Input job tree: the jobs and deadline of one batch; compared by identity."""

    shape: Shape
    arrived_s: float
    """When its input arrived [s]."""
    deadline_s: float
    """Deadline of its jobs [s], without slack."""
    size: float = 1.0
    """Units of input; multiplies the costs and profits of the shape."""
    ends_s: float = math.inf
    """After this, none of its jobs earns anything [s]; infinite if late results are still worth something."""
