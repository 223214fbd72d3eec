"""Random query graphs, grown from their queries down to the inputs (thesis 4.9.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queries.scheduling.job_tree import Shape

STREAMS = 4
"""Inputs of a graph."""
KINDS = ("select", "project", "join", "aggregate")
RELATIVE_COSTS = {"select": 0.7, "project": 0.7, "join": 2.0, "aggregate": 1.3}
"""What a tuple costs an operator of each kind, in units that a load gives a length."""
MULTIPLICITIES = {"select": (0.4, 1.0), "project": (1.0, 1.0), "join": (0.6, 1.4), "aggregate": (1.0, 1.0)}
"""Least and greatest number of tuples that an operator makes of one."""


@dataclass(frozen=True)
class Operator:
    """One operator of a query graph."""

    parent: int
    """The operator that it reads; -1 where it reads an input."""
    stream: int
    """The input at the root of what it reads."""
    other_stream: int
    """The input that a join reads beside it; -1 for none."""
    cost: float
    """Of one tuple, in units of the graph."""
    multiplicity: float
    """Tuples that it makes of one."""
    weight: float
    """Of the query that it answers; 0 where it answers none."""


@dataclass(frozen=True)
class QueryGraph:
    """A query graph: each operator stands after the one that it reads."""

    operators: tuple[Operator, ...]

    @property
    def weights(self) -> list[float]:
        """Weights of its queries."""
        return [operator.weight for operator in self.operators if operator.weight]

    def reached(self, stream: int) -> dict[int, float]:
        """Return the operators that a tuple of an input reaches, with the tuples that reach each (4.4.1)."""
        found: dict[int, float] = {}
        for number, operator in enumerate(self.operators):
            if operator.parent in found:
                found[number] = found[operator.parent] * self.operators[operator.parent].multiplicity
            elif operator.other_stream == stream or (operator.parent < 0 and operator.stream == stream):
                found[number] = 1.0
        return found

    def slacks_s(self, stream: int, validities_s: Sequence[float]) -> tuple[float, ...]:
        """Return how much sooner each output of a tuple expires than the tuple, zero or less [s] (equation 4.1).

        An output expires with the first of the inputs that contribute to it. Those that a join adds are as new as the
        tuple itself: the newest that there can be.

        Parameters
        ----------
        stream
            The tuple's input.
        validities_s
            How long a tuple of each input is valid [s].
        """
        reached = [self.reached(other) for other in range(STREAMS)]
        return tuple(
            min(validities_s[other] for other in range(STREAMS) if number in reached[other]) - validities_s[stream]
            for number in reached[stream]
        )

    def shapes(self, counts: Sequence[int], *, work_s: float) -> list[Shape]:
        """Return the input job tree of one tuple of each input.

        A query earns its weight for all of its tuples together (equation 4.3), so one of them its weight by their
        number.

        Parameters
        ----------
        counts
            Tuples of each input that will come.
        work_s
            What all of them shall cost together [s].
        """
        reached = [self.reached(stream) for stream in range(STREAMS)]
        whole = sum(
            count * cardinality * self.operators[number].cost
            for count, found in zip(counts, reached, strict=True)
            for number, cardinality in found.items()
        )
        outputs = [
            sum(count * found.get(number, 0.0) for count, found in zip(counts, reached, strict=True))
            for number in range(len(self.operators))
        ]
        shapes = []
        for found in reached:
            place = {number: position for position, number in enumerate(found)}
            operators = [(self.operators[number], number, cardinality) for number, cardinality in found.items()]
            shapes.append(
                Shape(
                    tuple(f"operator {number}" for number in found),
                    tuple(place.get(operator.parent, -1) for operator, _, _ in operators),
                    tuple(operator.cost * cardinality * work_s / whole for operator, _, cardinality in operators),
                    tuple(
                        operator.weight * cardinality / outputs[number] if operator.weight else 0.0
                        for operator, number, cardinality in operators
                    ),
                )
            )
        return shapes


def random_graph(
    rng: np.random.Generator,
    *,
    queries: int | None = None,
    operators: int | None = None,
    weights: NDArray[np.float64] | None = None,
) -> QueryGraph:
    """Return a random query graph.

    Parameters
    ----------
    rng
        Where chance comes from.
    queries
        How many; 20 to 28 where absent.
    operators
        How many, leaves included; 32 to 48 where absent.
    weights
        Of the queries, shape (queries,); whole numbers from 1 to 10 where absent.
    """
    queries = int(rng.integers(20, 29)) if queries is None else queries
    operators = int(rng.integers(32, 49)) if operators is None else operators
    weights = rng.integers(1, 11, queries).astype(np.float64) if weights is None else weights
    parents = _grown(rng, queries, operators)
    kinds = [KINDS[int(kind)] for kind in rng.integers(0, len(KINDS), operators)]
    streams: list[int] = []
    roots = 0
    for parent in parents:
        # The first roots take one input each, so that none is without queries.
        streams.append(streams[parent] if parent >= 0 else roots if roots < STREAMS else int(rng.integers(0, STREAMS)))
        roots += parent < 0
    below = [[number] for number in range(operators)]
    for number in range(operators - 1, -1, -1):
        if parents[number] >= 0:
            below[parents[number]] += below[number]
    reached_by = [{streams[number]} for number in range(operators)]
    made = []
    answers = {number: float(weight) for number, weight in zip(_leaves(parents), weights, strict=True)}
    for number, kind in enumerate(kinds):
        other = -1
        if kind == "join":
            # A second input reaches each operator once, or its jobs would be no tree.
            free = [
                stream for stream in range(STREAMS) if all(stream not in reached_by[within] for within in below[number])
            ]
            if free:
                other = free[int(rng.integers(0, len(free)))]
                for within in below[number]:
                    reached_by[within].add(other)
        low, high = MULTIPLICITIES[kind]
        cost = RELATIVE_COSTS[kind] * float(rng.uniform(0.5, 1.5))
        made.append(
            Operator(
                parents[number],
                streams[number],
                other,
                cost,
                float(rng.uniform(low, high)),
                answers.get(number, 0.0),
            )
        )
    return QueryGraph(tuple(made))


def _grown(rng: np.random.Generator, queries: int, operators: int) -> list[int]:
    """Return the parent of each operator, -1 for roots, each after its parent: grown upwards from the leaves."""
    parent_of: dict[int, int] = {}
    inner, made = operators - queries, queries
    # As many edges as operators that are no roots, over the operators that are parents.
    mean = (operators - STREAMS) / inner
    level = list(range(queries))
    while made < operators:
        rng.shuffle(level)
        above: list[int] = []
        while level and made < operators:
            children = level[: max(1, round(float(rng.normal(mean, mean / 3))))]
            if len(level) - len(children) + len(above) + 1 < STREAMS:
                children = level[:1]
            level = level[len(children) :]
            parent_of.update(dict.fromkeys(children, made))
            above.append(made)
            made += 1
        level = above + level
    # Parents were made after their children; turned round they stand before them.
    return [operators - 1 - parent_of[number] if number in parent_of else -1 for number in range(operators - 1, -1, -1)]


def _leaves(parents: Sequence[int]) -> list[int]:
    inner = set(parents)
    return [number for number in range(len(parents)) if number not in inner]
