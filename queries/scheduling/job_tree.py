"""Input job trees: the work that a batch of input, or a new slice, gives to do (thesis 4.4, 4.6.2.1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from hypergrid.core.errors import HyperGridError
from queries.scheduling.fragmentation import CUTS, Cut, Rule


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
