"""What a join does with its predicate: filters of inputs, keys of equal values, cells of near points, and the rest.

A condition that two points are less than a constant apart gives both inputs a grid of cubes around the earth's centre,
whose edge is the greatest chord between such points: the other one is in the cube of a point, or in one of the 26 that
touch it. Poles and the date line are positions like others there. The condition is tested on what the cells give.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hypergrid.continuous.algebra import JoinOf
from hypergrid.continuous.expressions import Constant, Expression, Operation, Reference, positions
from hypergrid.core.geodesy import RADIUS_M, chord_m

LEAST_EDGE_M: Final = 8.0
"""Least edge of a cube [m], so that cubes along an axis are counted in `CELL_BITS`."""
CELL_BITS: Final = 21
"""Bits of a cube's number along each of three axes."""
assert 2 * RADIUS_M / LEAST_EDGE_M + 4 < 2**CELL_BITS


def conjuncts(predicate: Expression | None) -> Iterator[Expression]:
    """Yield the predicates that must all be true."""
    if isinstance(predicate, Operation) and predicate.name == "and":
        for part in predicate.arguments:
            yield from conjuncts(part)
    elif predicate is not None:
        yield predicate


def shift(expression: Expression, by: int) -> Expression:
    """Return an expression whose positions are less by a number."""
    if isinstance(expression, Reference):
        return Reference(expression.position - by, expression.attribute)
    if isinstance(expression, Operation):
        return replace(expression, arguments=tuple(shift(part, by) for part in expression.arguments))
    return expression


def to_number(expression: Expression) -> Expression:
    """Return an expression as a number."""
    return expression if expression.kind == "number" else Operation("to_number", (expression,), "number")


@dataclass(frozen=True)
class GridPoint:
    """Point of each row of an input, by whose cube it is found."""

    lon: Expression
    lat: Expression
    edge_m: float
    """Edge of the cubes [m]."""


@dataclass(frozen=True)
class NearLink:
    """Condition that a point of one input is near a point of another."""

    predicate: Expression
    """Condition over the attributes of the join."""
    sides: tuple[tuple[int, int], tuple[int, int]]
    """Input and number of its point, twice."""
    edge_m: float

    def joins(self, number: int, bound: Sequence[int]) -> bool:
        """Return whether an input is near one of those that are bound."""
        first, second = (owner for owner, _ in self.sides)
        return (first == number and second in bound) or (second == number and first in bound)


@dataclass
class InputPlan:
    """What a join does with the elements of an input; positions are those of the input."""

    first: int
    """Position of its first attribute in the join."""
    filters: list[Expression] = field(default_factory=list)
    keys: list[Expression] = field(default_factory=list)
    """Expressions that are equal to some of other inputs; rows in which one is NULL match nothing."""
    classes: list[int] = field(default_factory=list)
    """Class of equal values of each key."""
    points: list[GridPoint] = field(default_factory=list)
    """Points that are near some of other inputs; rows in which one is NULL match nothing. Cells follow the keys."""

    @property
    def width(self) -> int:
        """Keys and cells of a row."""
        return len(self.keys) + len(self.points)


@dataclass(frozen=True)
class ProbingStep:
    """Probing of an index."""

    probed: int
    index: int
    sources: tuple[tuple[int, int], ...]
    """Input and number of the key, for each key of the index."""
    link: NearLink | None = None
    """Condition by which cells around that of the last key are searched, too."""


@dataclass
class JoinPlan:
    """Plan of a join."""

    inputs: list[InputPlan]
    indexes: list[tuple[int, tuple[int, ...]]]
    """Input and numbers of its keys, in order of inputs."""
    steps: list[list[ProbingStep]]
    """Order of probing for each arriving input."""
    rest: list[Expression]
    """Predicates on combinations."""

    @property
    def searched_links(self) -> frozenset[NearLink]:
        """Conditions by which indexes are searched."""
        return frozenset(step.link for steps in self.steps for step in steps if step.link is not None)


def plan_join(operator: JoinOf) -> JoinPlan:
    """Return the plan of a join, in which equalities are closed: of a = b and b = c, a and c have one class."""
    inputs: list[InputPlan] = []
    first = 0
    owner: list[int] = []
    for number, part in enumerate(operator.inputs):
        inputs.append(InputPlan(first))
        first += len(part.attributes)
        owner += [number] * len(part.attributes)
    classes: list[set[tuple[int, Expression]]] = []
    rest: list[Expression] = []
    links: list[NearLink] = []
    for predicate in conjuncts(operator.predicate):
        owners = {owner[position] for position in positions(predicate)}
        pair = _find_equality(predicate, owner)
        if len(owners) == 1:
            only = owners.pop()
            inputs[only].filters.append(shift(predicate, inputs[only].first))
        elif pair is None:
            rest.append(predicate)
            if link := _link_points(predicate, owner, inputs):
                links.append(link)
        else:
            merged = set(pair)
            for known in [known for known in classes if known & merged]:
                merged |= known
                classes.remove(known)
            classes.append(merged)
    for number, members in enumerate(classes):
        _add_keys(inputs, number, members)
    return _order_probing(inputs, links, rest)


def _find_equality(predicate: Expression, owner: Sequence[int]) -> set[tuple[int, Expression]] | None:
    """Return both sides of an equality between two inputs, each with its input."""
    if not isinstance(predicate, Operation) or predicate.name != "equal":
        return None
    sides: set[tuple[int, Expression]] = set()
    kinds = {part.kind for part in predicate.arguments}
    for part in predicate.arguments:
        owners = {owner[position] for position in positions(part)}
        if len(owners) != 1 or isinstance(part, Constant):
            return None
        sides.add((owners.pop(), to_number(part) if "number" in kinds else part))
    return sides if len({side[0] for side in sides}) == 2 else None


def _add_keys(inputs: Sequence[InputPlan], number: int, members: set[tuple[int, Expression]]) -> None:
    """Add a class of equal values to the keys of its inputs."""
    # A class may hold numbers and integers: a = b with integers, b = c with a number.
    is_number = any(part.kind == "number" for _, part in members)
    for owner, part in sorted(members, key=repr):
        plan = inputs[owner]
        key = shift(to_number(part) if is_number else part, plan.first)
        if number in plan.classes:
            earlier = plan.keys[plan.classes.index(number)]
            if key != earlier:
                plan.filters.append(Operation("equal", (earlier, key), "boolean"))
        else:
            plan.keys.append(key)
            plan.classes.append(number)


def _link_points(predicate: Expression, owner: Sequence[int], inputs: Sequence[InputPlan]) -> NearLink | None:
    """Return the link that a condition makes between two inputs, whose points are added to them; None if it is none."""
    limit = limit_of_distance(predicate)
    if limit is None:
        return None
    distance, limit_m = limit
    pairs = [distance.arguments[:2], distance.arguments[2:]]
    owners = [{owner[position] for part in pair for position in positions(part)} for pair in pairs]
    if any(len(each) != 1 for each in owners):
        return None
    # Far more than rounding moves a point, in meters and as a share of a cube.
    edge_m = max(chord_m(limit_m) * (1 + 1e-9) + 1e-3, LEAST_EDGE_M)
    sides: list[tuple[int, int]] = []
    for each, (lon, lat) in zip(owners, pairs, strict=True):
        number = each.pop()
        plan = inputs[number]
        point = GridPoint(shift(lon, plan.first), shift(lat, plan.first), edge_m)
        if point not in plan.points:
            plan.points.append(point)
        sides.append((number, plan.points.index(point)))
    return NearLink(predicate, (sides[0], sides[1]), edge_m)


def limit_of_distance(predicate: Expression) -> tuple[Operation, float] | None:
    """Return the distance that a condition limits by a constant, and the limit [m]; None of other conditions."""
    if not isinstance(predicate, Operation) or predicate.name not in ("less", "less_equal", "greater", "greater_equal"):
        return None
    lesser, limit = predicate.arguments if predicate.name.startswith("less") else predicate.arguments[::-1]
    if not isinstance(lesser, Operation) or lesser.name != "distance_m" or not isinstance(limit, Constant):
        return None
    if not isinstance(limit.value, int | float) or math.isnan(limit.value):
        return None
    return lesser, float(limit.value)


def _order_probing(inputs: list[InputPlan], links: Sequence[NearLink], rest: list[Expression]) -> JoinPlan:
    """Choose for each arriving input the order of the others.

    Those with most equal values to what is bound come first, then those that are near it.
    """
    plans: list[list[ProbingStep]] = []
    wanted: list[tuple[int, tuple[int, ...]]] = []
    for arriving in range(len(inputs)):
        bound, steps = [arriving], []
        while len(bound) < len(inputs):
            step, index = _choose_step(inputs, links, bound)
            steps.append(step)
            wanted.append(index)
            bound.append(step.probed)
        plans.append(steps)
    indexes = sorted(set(wanted))
    numbers = iter([indexes.index(index) for index in wanted])
    plans = [[replace(step, index=next(numbers)) for step in steps] for steps in plans]
    return JoinPlan(inputs, indexes, plans, rest)


def _choose_step(
    inputs: Sequence[InputPlan], links: Sequence[NearLink], bound: Sequence[int]
) -> tuple[ProbingStep, tuple[int, tuple[int, ...]]]:
    """Return the step that follows, its index not numbered yet, and its index."""
    of_bound = {number for other in bound for number in inputs[other].classes}
    near = {
        number: [link for link in links if link.joins(number, bound)]
        for number in range(len(inputs))
        if number not in bound
    }
    probed = max(near, key=lambda number: (len(of_bound & set(inputs[number].classes)), bool(near[number]), -number))
    keys = [key for key, number in enumerate(inputs[probed].classes) if number in of_bound]
    sources = [_find_source(inputs, bound, inputs[probed].classes[key]) for key in keys]
    link = min(near[probed], key=lambda each: each.edge_m, default=None)
    if link is not None:
        own, other = link.sides if link.sides[0][0] == probed else link.sides[::-1]
        keys.append(len(inputs[probed].keys) + own[1])
        sources.append((other[0], len(inputs[other[0]].keys) + other[1]))
    return ProbingStep(probed, 0, tuple(sources), link), (probed, tuple(keys))


def _find_source(inputs: Sequence[InputPlan], bound: Sequence[int], number: int) -> tuple[int, int]:
    """Return a bound input and its key that hold the value of a class."""
    return next((other, inputs[other].classes.index(number)) for other in bound if number in inputs[other].classes)
