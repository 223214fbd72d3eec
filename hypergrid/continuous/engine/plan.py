"""Plan of a tree: one operator for each distinct subtree, with what the operators above need of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from hypergrid.continuous.algebra import (
    AggregateOf,
    BagOf,
    DistinctOf,
    FilterOf,
    JoinOf,
    MembershipOf,
    Operator,
    ProjectionOf,
    RelationInput,
    SampleOf,
    StreamInput,
    ToStream,
    WindowOf,
    inputs_of,
    list_leaves,
)
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels.groups import ENDING, ORDERING, QUEUEING
from hypergrid.continuous.engine.operators.aggregate import Grouping
from hypergrid.continuous.engine.operators.bags import Bags
from hypergrid.continuous.engine.operators.base import Needs, StepOperator
from hypergrid.continuous.engine.operators.join import Join
from hypergrid.continuous.engine.operators.keep import Keep
from hypergrid.continuous.engine.operators.membership import Membership, joins_of
from hypergrid.continuous.engine.operators.panes import PaneGrouping
from hypergrid.continuous.engine.operators.source import InputSource
from hypergrid.continuous.engine.operators.stateless import Filter, Projection, Sample, Union
from hypergrid.continuous.engine.operators.to_stream import ChangeStream, RelationStream
from hypergrid.continuous.engine.operators.window import make_window
from hypergrid.continuous.expressions import Reference, positions
from hypergrid.continuous.properties import comes_in_order, find_aged_window, list_paned_windows
from hypergrid.core.errors import InvalidQuery

NO_NEEDS: Final = Needs(frozenset(), leaving=False, merged=False)


class EngineStep(NamedTuple):
    """Operator with the steps whose elements it takes."""

    operator: StepOperator
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class EnginePlan:
    """Operators, each after its inputs; the last is the root."""

    steps: tuple[EngineStep, ...]
    sources: dict[str, InputSource]

    @property
    def holds_rows(self) -> bool:
        """Whether any operator does."""
        return any(step.operator.HOLDS_ROWS for step in self.steps)


def below(operator: Operator) -> tuple[Operator, ...]:
    """Return the trees whose operators an operator takes elements of."""
    if isinstance(operator, MembershipOf):
        return operator.input, *joins_of(operator)
    if isinstance(operator, ToStream) and operator.form == "rstream":
        return operator.input, *(list_leaves if operator.slide_ns else list_now_windows)(operator.input)
    return inputs_of(operator)


def list_now_windows(operator: Operator) -> tuple[Operator, ...]:
    """Return the windows of one instant below an operator, at whose instants alone its relation holds rows."""
    if isinstance(operator, WindowOf):
        return (operator,) if operator.form == "now" else ()
    return tuple(dict.fromkeys(window for part in inputs_of(operator) for window in list_now_windows(part)))


def _all_of(operator: Operator) -> frozenset[int]:
    return frozenset(range(len(operator.attributes)))


def keeps_slots(operator: Operator) -> bool:
    """Return whether an operator can refer to its rows by slot."""
    return isinstance(operator, WindowOf | FilterOf | ProjectionOf | MembershipOf)


def gives_order(operator: Operator) -> bool:
    """Return whether the elements of an operator can carry the order of their rows."""
    if isinstance(operator, RelationInput | AggregateOf | DistinctOf):
        return False
    return not (isinstance(operator, BagOf) and operator.form != "union")


def choose_ends(operator: Operator) -> int:
    """Return the accumulator of first and last values of a relation.

    Windows of rows may reach back as far as a stream does: a tap could not evaluate again what earlier programs kept of
    them, which was in order of age.
    """
    window = find_aged_window(operator)
    forms = {"range": QUEUEING, "now": QUEUEING, "unbounded": ENDING}
    return ORDERING if window is None else forms.get(window.form, ORDERING)


def list_needs(operator: Operator, needs: Needs) -> Iterator[Needs]:
    """Yield what an operator needs of each tree below it."""
    match operator:
        case WindowOf(where=where, partition=partition, form=form):
            read = needs.columns | frozenset(partition) | (frozenset() if where is None else positions(where))
            # Which rows are the last is decided by the order of the elements.
            yield Needs(read, order=needs.order or (form == "rows" and not comes_in_order(operator.input)))
        case FilterOf(predicate=predicate):
            yield replace(needs, columns=needs.columns | positions(predicate), merged=True)
        case ProjectionOf(expressions=expressions):
            read = frozenset().union(*(positions(expressions[position]) for position in needs.columns))
            kept = (expressions[position] for position in needs.compared or ())
            compared = frozenset(each.position for each in kept if isinstance(each, Reference))
            yield replace(needs, columns=read, merged=True, compared=compared)
        case JoinOf(inputs=inputs, predicate=predicate):
            read = needs.columns | (frozenset() if predicate is None else positions(predicate))
            first = 0
            for part in inputs:
                own = frozenset(position - first for position in read if 0 <= position - first < len(part.attributes))
                yield Needs(own, order=needs.order, slots=not part.is_stream, merged=False)
                first += len(part.attributes)
        case AggregateOf(input=part, keys=keys, calls=calls):
            arguments = [call.argument for call in calls if call.argument is not None]
            read = frozenset().union(*(positions(each) for each in (*keys, *arguments)))
            is_ordered = any(call.function in ("first", "last") for call in calls)
            yield Needs(read, order=is_ordered and choose_ends(part) == ORDERING)
        case MembershipOf(input=part, values=values):
            read = needs.columns.union(*(positions(value) for value in values))
            yield Needs(read, order=needs.order, slots=True)
            # The joins give slots of the rows only.
            yield from (Needs(frozenset(), slots=True) for _ in joins_of(operator))
        case ToStream(input=part, form="rstream"):
            yield Needs(needs.columns, order=needs.order, slots=True)
            # The instants of windows of one instant, which are all among those of their merged elements, or of inputs.
            yield from (Needs(frozenset(), leaving=False) for _ in below(operator)[1:])
        case BagOf(form="union", left=left, right=right):
            yield from (Needs(needs.columns, order=needs.order) for _ in (left, right))
        case SampleOf(input=part):
            yield Needs(_all_of(part), order=needs.order)
        case ToStream(input=part, form="istream"):
            yield Needs(_all_of(part), leaving=False, compared=_all_of(part))
        case _:
            yield from (Needs(_all_of(part), order=needs.order and part.is_stream) for part in inputs_of(operator))


class EnginePlanner:
    """Builds the operators of a tree from the sources up."""

    def __init__(self, evaluator: ExpressionEvaluator, *, is_closed: bool) -> None:
        self._evaluator, self._is_closed = evaluator, is_closed
        self._steps: list[EngineStep] = []
        self._sources: dict[str, InputSource] = {}
        self._numbers: dict[Operator, int] = {}
        self._needs: dict[Operator, Needs] = {}
        self._paned: Mapping[WindowOf, Sequence[AggregateOf]] = {}

    def plan(self, root: Operator) -> EnginePlan:
        """Return the plan of a tree."""
        self._paned = list_paned_windows(root)
        order: dict[Operator, None] = {}
        self._walk(root, order)
        self._needs = dict.fromkeys(order, NO_NEEDS)
        self._needs[root] = Needs(_all_of(root))
        # Operators above come last in the walk: their needs are complete when they are passed on.
        for operator in reversed(order):
            needs = self._complete(operator)
            self._needs[operator] = needs
            for part, wanted in zip(self._below(operator), self._list_needs(operator, needs), strict=True):
                self._needs[part] |= wanted
        for operator in order:
            self._numbers[operator] = self._build(operator)
        return EnginePlan(tuple(self._steps), self._sources)

    def _find_paned(self, operator: Operator) -> WindowOf | None:
        """Return the window below an aggregate of which panes are kept."""
        part = operator.input if isinstance(operator, AggregateOf) else None
        return part if isinstance(part, WindowOf) and part in self._paned else None

    def _below(self, operator: Operator) -> tuple[Operator, ...]:
        window = self._find_paned(operator)
        return below(operator) if window is None else (window.input,)

    def _list_needs(self, operator: Operator, needs: Needs) -> Iterator[Needs]:
        window = self._find_paned(operator)
        where = None if window is None else window.where
        for each in list_needs(operator, needs):
            yield each if where is None else replace(each, columns=each.columns | positions(where))

    def _walk(self, operator: Operator, order: dict[Operator, None]) -> None:
        for part in self._below(operator):
            if part not in order:
                self._walk(part, order)
        order.setdefault(operator)

    def _complete(self, operator: Operator) -> Needs:
        """Return the needs of an operator, with those of the rows that are kept on top of it."""
        needs = self._needs[operator]
        # Rows that are kept in order are found by all their values: equal rows leave in the order of their arrival.
        return replace(needs, columns=_all_of(operator)) if needs.order and not gives_order(operator) else needs

    def _build(self, operator: Operator) -> int:
        needs = self._needs[operator]
        inputs = tuple(self._numbers[part] for part in self._below(operator))
        parts = [self._steps[number].operator for number in inputs]
        is_kept = not operator.is_stream and (
            (needs.slots and not keeps_slots(operator) and not isinstance(operator, JoinOf))
            or (needs.order and not gives_order(operator))
        )
        own = replace(needs, slots=needs.slots and not is_kept, order=needs.order and not is_kept)
        if isinstance(operator, JoinOf) and needs.slots and not self._is_membership(operator):
            own, is_kept = replace(own, slots=False), True
        number = self._add(self._make(operator, parts, own), inputs)
        if is_kept:
            number = self._add(Keep(self._steps[number].operator, needs, self._evaluator), (number,))
        return number

    def _is_membership(self, operator: JoinOf) -> bool:
        return any(operator in joins_of(other) for other in self._needs if isinstance(other, MembershipOf))

    def _add(self, operator: StepOperator, inputs: tuple[int, ...]) -> int:
        self._steps.append(EngineStep(operator, inputs))
        return len(self._steps) - 1

    def _make(self, operator: Operator, parts: list[StepOperator], needs: Needs) -> StepOperator:
        evaluator = self._evaluator
        match operator:
            case StreamInput() | RelationInput():
                if operator.name in self._sources:
                    # Elements are pushed by this name, and handed over once.
                    raise InvalidQuery(f"input {operator.name!r} is read as two kinds of rows; give each its own name")
                source = self._sources[operator.name] = InputSource(operator, needs, evaluator)
                return source
            case SampleOf():
                return Sample(operator, parts[0], evaluator)
            case WindowOf():
                return make_window(operator, needs, evaluator, is_closed=self._is_closed)
            case FilterOf():
                return Filter(operator, parts[0], evaluator)
            case ProjectionOf():
                return Projection(operator, parts[0], needs, evaluator)
            case JoinOf():
                return Join(operator, parts, needs, evaluator)
            case AggregateOf():
                window = self._find_paned(operator)
                if window is not None:
                    return PaneGrouping(operator, window, parts[0], evaluator, is_closed=self._is_closed)
                return Grouping(operator, parts[0], evaluator, ends=choose_ends(operator.input))
            case DistinctOf():
                return Bags(operator, evaluator)
            case BagOf():
                return (
                    Union(operator, parts, needs, evaluator) if operator.form == "union" else Bags(operator, evaluator)
                )
            case MembershipOf():
                return Membership(operator, parts[0], evaluator)
            case ToStream():
                maker = RelationStream if operator.form == "rstream" else ChangeStream
                return maker(operator, parts[0], needs, evaluator)
