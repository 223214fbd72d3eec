"""Input job trees: the work of an input batch or new slice (thesis 4.4, 4.6.2.1)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

from hypergrid.core.errors import HyperGridError


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


def cut_into_fragments(shape: "Shape") -> Cut:
    """Cut into fragments, in schedule order: densities never rise (algorithm 3).

    Fragments are connected jobs that run consecutively (4.6.2.2), found by Horn's rule (W. A. Horn, 1972: merge the
    densest job that is not a root into its parent), which is optimal.
    """
    fragments, steps = find_horn_fragments(shape.parents, shape.costs_s, shape.profits)
    return cut_from_fragments(shape, fragments, steps)


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


def cut_from_fragments(shape: "Shape", fragments: list[list[int]], steps: int) -> Cut:
    """Describe fragments, given as lists of jobs in schedule order."""
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
    return build_cut(pieces, steps)


def build_cut(pieces: list[Fragment], steps: int) -> Cut:
    """List which pieces are first, and which follow each."""
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
    >>> [fragment.jobs for fragment in shape.cut(cut_into_fragments).fragments]
    [(0, 1), (2,)]
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

    @cached_property
    def _cuts(self) -> "dict[CutRule, Cut]":
        return {}

    def cut(self, rule: "CutRule") -> Cut:
        """Cut into pieces; computed at the first call, then cached."""
        known_cut = self._cuts.get(rule)
        if known_cut is None:
            known_cut = self._cuts[rule] = rule(self)
        return known_cut


CutRule = Callable[[Shape], Cut]
"""Cuts a job tree into the pieces that are scheduled (thesis 4.6)."""


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
