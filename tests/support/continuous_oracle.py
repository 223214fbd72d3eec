"""Oracle of continuous queries: at every instant all bags are computed again from the definitions of the algebra.

Slow, obvious, and apart from rewriting and engine: streams are lists of (tau, row), relations of (tau, sign, row), rows
tuples of Python values with None for NULL. Rows of a relation that never changes have the instant `START`.
"""

import hashlib
import itertools
import math
import statistics
import struct
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, Literal, NamedTuple

from hypergrid.continuous.algebra import (
    AggregateCall,
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
    walk_operators,
)
from hypergrid.continuous.expressions import NULL_INTEGER, Attributes
from tests.support.continuous_scalars import Row, Value, evaluate, is_true

Edge = Literal["half-open", "closed"]
Streams = Mapping[str, Sequence[tuple[int, Row]]]
Relations = Mapping[str, Sequence[tuple[int, int, Row]]]
Change = tuple[int, int, Row]
Key = tuple[int, tuple[int, ...]]
"""Order of a row: its stamp, then stamp and number of each of its parts from left to right."""

START: Final = NULL_INTEGER
"""Instant before all others."""


class Keyed(NamedTuple):
    """Row with its order."""

    key: Key
    row: Row


Bag = list[Keyed]


def oracle_result(
    tree: Operator, streams: Streams, relations: Relations, edge: Edge = "half-open", until: int | None = None
) -> list[Change]:
    """Return the changes of a relation, leaving rows first at each instant, or the elements of a stream.

    Parameters
    ----------
    until
        Last instant that is looked at; by default all windows of time have emptied by then.
    """
    oracle = Oracle(tree, streams, relations, edge, until)
    if tree.is_stream:
        return [(keyed.key[0], +1, keyed.row) for keyed in oracle.elements(tree)]
    changes: list[Change] = []
    before: Counter[Row] = Counter()
    for tau in oracle.instants(tree) or [START]:
        after = _count(oracle.rows(tree, tau))
        changes += [(tau, -1, row) for row in (before - after).elements()]
        changes += [(tau, +1, row) for row in (after - before).elements()]
        before = after
    return changes


def oracle_relation(
    tree: Operator, streams: Streams, relations: Relations, tau: int, edge: Edge = "half-open"
) -> Counter[Row]:
    """Return the bag of a relation at an instant."""
    return _count(Oracle(tree, streams, relations, edge, tau).rows(tree, tau))


def find_end(tree: Operator, streams: Streams, relations: Relations) -> int:
    """Return an instant at which all windows of time have emptied."""
    operators = list(walk_operators(tree))
    names = {part.name for part in operators if isinstance(part, StreamInput | RelationInput)}
    stamps = [tau for name in names for tau, *_ in (*streams.get(name, ()), *relations.get(name, ()))]
    spans = [part.range_ns + part.slide_ns + 1 for part in operators if isinstance(part, WindowOf)]
    slides = [part.slide_ns for part in operators if isinstance(part, ToStream)]
    return max([tau for tau in stamps if tau != START], default=0) + sum(spans) + sum(slides)


def net_changes(changes: Iterable[Change]) -> dict[int, Counter[Row]]:
    """Return by instant how many more of each row there are; instants and rows without change are not listed."""
    by_instant: dict[int, Counter[Row]] = defaultdict(Counter)
    for tau, sign, row in changes:
        by_instant[tau][row] += sign
    counted = {tau: Counter({row: n for row, n in bag.items() if n}) for tau, bag in by_instant.items()}
    return {tau: bag for tau, bag in counted.items() if bag}


def _count(bag: Bag) -> Counter[Row]:
    return Counter(keyed.row for keyed in bag)


class Oracle:
    """Bags of all operators of a tree at all instants."""

    def __init__(self, tree: Operator, streams: Streams, relations: Relations, edge: Edge, until: int | None) -> None:
        self.streams, self.relations, self.is_closed = streams, relations, edge == "closed"
        self.until = find_end(tree, streams, relations) if until is None else until
        self._instants: dict[int, list[int]] = {}
        self._elements: dict[int, Bag] = {}
        self._rows: dict[tuple[int, int], Bag] = {}

    # Instants

    def instants(self, operator: Operator) -> list[int]:
        """Return all instants at which the result of an operator may change, and possibly more."""
        known = self._instants.get(id(operator))
        if known is None:
            taus = set(self._iterate_instants(operator))
            known = self._instants[id(operator)] = sorted(tau for tau in taus if START < tau <= self.until)
        return known

    def _iterate_instants(self, operator: Operator) -> Iterable[int]:
        for part in inputs_of(operator):
            yield from self.instants(part)
        match operator:
            case StreamInput(name=name):
                yield from (tau for tau, _ in self.streams[name])
            case RelationInput(name=name):
                yield from (tau for tau, _, _ in self.relations[name])
            case WindowOf(input=below, form="now"):
                yield from (tau + 1 for tau in self.instants(below))
            case WindowOf(input=below, form="range", range_ns=range_ns, slide_ns=slide_ns):
                after = range_ns + self.is_closed
                edges = [edge for tau in self.instants(below) for edge in (tau, tau + after)]
                yield from (-(-edge // slide_ns) * slide_ns if slide_ns else edge for edge in edges)
            case ToStream(input=below, form="rstream", slide_ns=slide_ns) if slide_ns:
                first = min(self.instants(below), default=self.until + 1)
                yield from range(-(-first // slide_ns) * slide_ns, self.until + 1, slide_ns)

    # Streams

    def elements(self, operator: Operator) -> Bag:
        """Return the elements of a stream up to the end, in order."""
        known = self._elements.get(id(operator))
        if known is None:
            known = [keyed for keyed in self._list_elements(operator) if keyed.key[0] <= self.until]
            self._elements[id(operator)] = known
        return known

    def _list_elements(self, operator: Operator) -> Bag:
        match operator:
            case StreamInput(name=name):
                return [Keyed((tau, (tau, number)), row) for number, (tau, row) in enumerate(self.streams[name])]
            case SampleOf(input=below, share=share, seed=seed):
                kept = below.attributes
                return [part for part in self.elements(below) if _hash(seed, part, kept) < share]
            case FilterOf(input=below, predicate=predicate):
                return [part for part in self.elements(below) if is_true(predicate, part.row)]
            case ProjectionOf(input=below):
                return [_project(operator, part) for part in self.elements(below)]
            case BagOf(left=left, right=right):
                return _number(sorted(_unite(self.elements(left), self.elements(right)), key=_order))
            case JoinOf(inputs=inputs, predicate=predicate):
                bags = [self.elements(part) if part.is_stream else self.rows(part, START) for part in inputs]
                joined = [_combine(parts) for parts in itertools.product(*bags)]
                return _number(sorted((part for part in joined if is_true(predicate, part.row)), key=_order))
            case ToStream():
                return self._list_changes(operator)
        raise TypeError(operator)

    def _list_changes(self, operator: ToStream) -> Bag:
        elements: list[tuple[int, Row]] = []
        before = self.rows(operator.input, START)
        for tau in self.instants(operator):
            after = self.rows(operator.input, tau)
            if operator.form == "rstream":
                shown = [] if operator.slide_ns and tau % operator.slide_ns else after
            else:
                old, new = (before, after) if operator.form == "istream" else (after, before)
                shown = _take_newest(new, _count(new) - _count(old))
            elements += [(tau, keyed.row) for keyed in sorted(shown, key=_order)]
            before = after
        return [Keyed((tau, (tau, number)), row) for number, (tau, row) in enumerate(elements)]

    # Relations

    def rows(self, operator: Operator, tau: int) -> Bag:
        """Return the bag of a relation at an instant."""
        known = self._rows.get((id(operator), tau))
        if known is None:
            known = self._rows[id(operator), tau] = self._list_rows(operator, tau)
        return known

    def _list_rows(self, operator: Operator, tau: int) -> Bag:
        match operator:
            case RelationInput(name=name):
                return _apply_changes(change for change in self.relations[name] if change[0] <= tau)
            case WindowOf():
                return self._list_window(operator, tau)
            case FilterOf(input=below, predicate=predicate):
                return [part for part in self.rows(below, tau) if is_true(predicate, part.row)]
            case ProjectionOf(input=below):
                return [_project(operator, part) for part in self.rows(below, tau)]
            case JoinOf(inputs=inputs, predicate=predicate):
                joined = (_combine(parts) for parts in itertools.product(*(self.rows(part, tau) for part in inputs)))
                return [part for part in joined if is_true(predicate, part.row)]
            case AggregateOf(input=below):
                return _group(operator, self.rows(below, tau))
            case DistinctOf(input=below):
                oldest: dict[Row, Keyed] = {}
                for keyed in sorted(self.rows(below, tau), key=_order):
                    oldest.setdefault(keyed.row, keyed)
                return list(oldest.values())
            case BagOf(form=form, left=left, right=right):
                return _combine_bags(form, self.rows(left, tau), self.rows(right, tau))
            case MembershipOf(input=below, other=other, values=values, is_negated=is_negated):
                others = [keyed.row for keyed in self.rows(other, tau)]
                wanted = not is_negated
                return [
                    keyed
                    for keyed in self.rows(below, tau)
                    if _is_among(tuple(evaluate(value, keyed.row) for value in values), others) is wanted
                ]
        raise TypeError(operator)

    def _list_window(self, window: WindowOf, tau: int) -> Bag:
        elements = self.elements(window.input)
        recent = elements[: bisect_right(elements, tau, key=lambda keyed: keyed.key[0])]
        recent = [keyed for keyed in recent if is_true(window.where, keyed.row)]
        match window.form:
            case "unbounded":
                return recent
            case "now":
                return [keyed for keyed in recent if keyed.key[0] == tau]
            case "rows":
                groups: dict[Row, Bag] = defaultdict(list)
                for keyed in recent:
                    groups[tuple(keyed.row[position] for position in window.partition)].append(keyed)
                return sorted((keyed for group in groups.values() for keyed in group[-window.rows :]), key=_order)
            case "range":
                end = tau // window.slide_ns * window.slide_ns if window.slide_ns else tau
                first = end - window.range_ns + (0 if self.is_closed else 1)
                return [keyed for keyed in recent if first <= keyed.key[0] <= end]


def _order(keyed: Keyed) -> Key:
    return keyed.key


def _number(bag: Bag) -> Bag:
    """Number the elements of a stream, so that their order is their number."""
    return [Keyed((keyed.key[0], (keyed.key[0], number)), keyed.row) for number, keyed in enumerate(bag)]


def _unite(left: Bag, right: Bag) -> Bag:
    sides = ((0, left), (1, right))
    return [Keyed((keyed.key[0], (side, *keyed.key[1])), keyed.row) for side, bag in sides for keyed in bag]


def _combine(parts: Sequence[Keyed]) -> Keyed:
    """Return the concatenation of rows."""
    stamp = max(part.key[0] for part in parts)
    order = tuple(number for part in parts for number in part.key[1])
    return Keyed((stamp, order), tuple(value for part in parts for value in part.row))


def _project(projection: ProjectionOf, keyed: Keyed) -> Keyed:
    return Keyed(keyed.key, tuple(evaluate(part, keyed.row) for part in projection.expressions))


def _apply_changes(changes: Iterable[Change]) -> Bag:
    """Return the rows of a relation after changes; of equal rows the oldest is removed first."""
    bag: Bag = []
    for number, (tau, sign, row) in enumerate(changes):
        if sign > 0:
            bag.append(Keyed((tau, (tau, number)), row))
        else:
            del bag[next(index for index, keyed in enumerate(bag) if keyed.row == row)]
    return bag


def _take_newest(bag: Bag, counts: Counter[Row]) -> Bag:
    """Return as many of each row as counted, the newest."""
    left = Counter(counts)
    taken: Bag = []
    for keyed in sorted(bag, key=_order, reverse=True):
        if left[keyed.row] > 0:
            left[keyed.row] -= 1
            taken.append(keyed)
    return taken[::-1]


def _combine_bags(form: str, left: Bag, right: Bag) -> Bag:
    if form == "union":
        return _unite(left, right)
    of_left, of_right = _count(left), _count(right)
    return _take_newest(left, of_left - of_right if form == "except" else of_left & of_right)


def _is_among(values: Row, others: Iterable[Row]) -> bool | None:
    """Return whether values equal one of some rows, by SQL's logic: None if that is not known."""
    unknown = False
    for other in others:
        pairs = list(zip(values, other, strict=True))
        if any(a is not None and b is not None and a != b for a, b in pairs):
            continue
        if all(a is not None and b is not None for a, b in pairs):
            return True
        unknown = True
    return None if unknown else False


def _group(aggregate: AggregateOf, bag: Bag) -> Bag:
    groups: dict[Row, Bag] = defaultdict(list)
    if not aggregate.keys:
        groups[()] = []
    for keyed in sorted(bag, key=_order):
        groups[tuple(evaluate(key, keyed.row) for key in aggregate.keys)].append(keyed)
    return [
        Keyed(
            max((keyed.key for keyed in group), default=(START, ())),
            (*key, *(aggregate_rows(call, [keyed.row for keyed in group]) for call in aggregate.calls)),
        )
        for key, group in groups.items()
    ]


def aggregate_rows(call: AggregateCall, rows: Sequence[Row]) -> Value:
    """Return an aggregate over rows, which are given from the oldest to the newest."""
    if call.argument is None:
        return len(rows)
    values = [value for row in rows if (value := evaluate(call.argument, row)) is not None]
    match call.function:
        case "count":
            return len(values)
        case "count_distinct":
            return len(set(values))
    if not values:
        return None
    match call.function:
        case "sum":
            if call.kind == "number":
                return math.fsum(values)
            return total if abs(total := sum(values)) < 2**63 else None
        case "avg":
            return float(sum(map(Fraction, values))) / len(values)
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "stddev":
            if len(values) < 2:
                return None
            return math.sqrt(statistics.variance(map(Fraction, values)))
        case "first":
            return values[0]
        case "last":
            return values[-1]
        case "median":
            return _find_quantile(values, 0.5)
        case "quantile":
            return _find_quantile(values, call.share)
    raise ValueError(call.function)


def _find_quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = min(math.floor(position), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    low, high, part = float(ordered[below]), float(ordered[above]), position - below
    if low == high or part == 0:
        return low
    if math.isinf(low) or math.isinf(high):
        return low * (1 - part) + high * part
    return low + (high - low) * part if math.isfinite(high - low) else low * (1 - part) + high * part


# The hash of a sample, as the algebra defines it.

WORD: Final = 2**64 - 1


def _mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def _find_bits(value: Value, kind: str) -> int:
    """Return the 64 bits of a value."""
    if kind == "number":
        if value is None:
            return 0x7FF8000000000000
        return int.from_bytes(struct.pack("<d", float(value) + 0.0), "little")
    if kind == "text":
        if value is None:
            return WORD
        return int.from_bytes(hashlib.blake2b(str(value).encode(), digest_size=8).digest(), "little")
    if value is None:
        return (WORD if kind == "boolean" else START) & WORD
    return int(value) & WORD


def _hash(seed: int, keyed: Keyed, attributes: Attributes) -> float:
    """Return the hash of an element, in [0, 1)."""
    word = _mix(_mix(seed & WORD) ^ _mix(keyed.key[0] & WORD))
    for value, attribute in zip(keyed.row, attributes, strict=True):
        word = _mix(word ^ _find_bits(value, attribute.kind))
    return (word >> 11) * 2.0**-53
