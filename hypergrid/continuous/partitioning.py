"""Partitions of a query that can be evaluated apart: by the values of a key, by stretches of time, or neither.

By a key, rows of each input are dealt to parts by the value of a column, or given to all parts. What an operator makes
in a part is then exactly its rows of that part, if no two rows of different parts meet: joins compare the key, groups
and windows of rows are by it. By time, results of a stretch need only the elements that reach into it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Final, TypeAlias

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
    StreamInput,
    ToStream,
    WindowOf,
    inputs_of,
    list_leaves,
)
from hypergrid.continuous.algebra_text import column_text, duration_text, operator_text
from hypergrid.continuous.expressions import Attributes, Expression, Operation, Reference
from hypergrid.continuous.horizon import find_horizon
from hypergrid.continuous.properties import is_append_only, shows_from_start
from hypergrid.continuous.rewrite.conditions import split_condition

MOST_CHOICES: Final = 4096
"""Choices of keys that are tried, at most."""


@dataclass(frozen=True)
class KeyColumns:
    """Columns of an input by whose values its rows can be dealt to parts; of a row, all give the same part."""

    names: tuple[str, ...]
    never_null: bool = False


KeyOptions: TypeAlias = Mapping[str, Sequence[KeyColumns]]
"""Possible keys by input; one that is absent can only be given to all parts."""


@dataclass(frozen=True)
class Partitioning:
    """How a query can be evaluated in parts."""

    keys: Mapping[str, KeyColumns] = field(default_factory=dict)
    """Key of each input that is dealt; others are given to all parts. Empty: not by a key."""
    why_no_key: str = ""
    """Sentence: why there is no key."""
    horizon_ns: int | None = None
    """How long before a stretch of time its evaluation must begin [ns]; None: not by time."""
    why_no_time: str = ""
    """Sentence: why time cannot be cut."""
    shows_from_start: bool = False
    """Whether rows show that no element brought: parts must know when the inputs of the whole begin."""

    def describe(self) -> tuple[str, ...]:
        """Return sentences: by what the query can be split, and why not by the others."""
        if self.keys:
            dealt = ", ".join(f"{name} by {' and '.join(key.names)}" for name, key in self.keys.items())
            by_key = f"by key: {dealt}; rows of different keys never meet"
        else:
            by_key = f"not by key: {self.why_no_key}"
        if self.horizon_ns is None:
            by_time = f"not by time: {self.why_no_time}"
        else:
            reach = "their own instant" if not self.horizon_ns else f"up to {duration_text(self.horizon_ns)} before"
            by_time = f"by time: results depend on elements of {reach}"
        neither = () if self.keys or self.horizon_ns is not None else ("so it runs in one task",)
        return (by_key, by_time, *neither)


def find_partitioning(tree: Operator, static: frozenset[str], options: KeyOptions) -> Partitioning:
    """Decide how a tree can be evaluated in parts whose results, merged in order, are those of the whole.

    Parameters
    ----------
    tree
        Tree after rewriting.
    static
        Relations that never change.
    options
        Keys by which inputs may be dealt, the better ones first.
    """
    keys, why_no_key = _find_keys(tree, static, options)
    horizon_ns = find_horizon(tree, static)
    why_no_time = "" if horizon_ns is not None else next(_explain_reach(tree, static), "")
    if not any(isinstance(part, StreamInput) for part in list_leaves(tree)):
        horizon_ns, why_no_time = None, "the query reads no stream"
    return Partitioning(keys, why_no_key, horizon_ns, why_no_time, shows_from_start(tree))


def _explain_reach(tree: Operator, static: frozenset[str]) -> Iterator[str]:
    """Yield a sentence for each part of a tree whose reach has no limit."""
    match tree:
        case WindowOf(form="rows" | "unbounded"):
            yield f"{operator_text(tree)} of {_leaf_names(tree)} reaches back without limit"
        case RelationInput(name=name) if name not in static:
            yield f"the relation {name} changes, and what it holds reaches back without limit"
        case _:
            for below in inputs_of(tree):
                yield from _explain_reach(below, static)


# By a key


@dataclass(frozen=True)
class _Dealt:
    """Rows that are split: those of a part are in this part only."""

    columns: frozenset[int]
    """Positions whose value decides the part of a row."""
    never_null: frozenset[int] = frozenset()
    """Those of them that are never NULL."""


_Spread: TypeAlias = _Dealt | None
"""How the rows of an operator are spread over the parts; None: each part has all of them."""


class _MeetError(Exception):
    """Rows of different parts meet."""


def _find_keys(tree: Operator, static: frozenset[str], options: KeyOptions) -> tuple[dict[str, KeyColumns], str]:
    leaves = {part.name: part for part in list_leaves(tree)}
    streams = [name for name, leaf in leaves.items() if leaf.is_stream]
    reasons: dict[str, None] = {}
    # Streams are dealt rather than given to all parts, relations given to all rather than dealt.
    choices = [
        (*options.get(name, ()), None) if leaf.is_stream else (None, *options.get(name, ()))
        for name, leaf in leaves.items()
    ]
    for chosen in islice(product(*choices), MOST_CHOICES):
        keys = {name: key for name, key in zip(leaves, chosen, strict=True) if key is not None}
        if not keys or (streams and not any(name in keys for name in streams)):
            continue
        try:
            _check_root(tree, _Spreader(keys, static).spread(tree), static)
        except _MeetError as met:
            reasons.setdefault(str(met))
            continue
        return keys, ""
    return {}, next(iter(reasons), "no input has a column of texts or integers to deal its rows by")


def _check_root(tree: Operator, spread: _Spread, static: frozenset[str]) -> None:
    if spread is None:
        raise _MeetError("each part would give the whole result")
    if not tree.is_stream:
        _check_net(tree, spread, static, "the result")


def _check_net(tree: Operator, spread: _Dealt, static: frozenset[str], label: str) -> None:
    """Check that a row that leaves in one part does not enter in another at the same instant."""
    if not spread.columns and not is_append_only(tree, static):
        raise _MeetError(f"{label} has no column of the key, so rows of different keys may be equal")


@dataclass
class _Spreader:
    """How rows are spread over parts, from the inputs up."""

    keys: Mapping[str, KeyColumns]
    static: frozenset[str]
    known: dict[Operator, _Spread] = field(default_factory=dict)

    def spread(self, tree: Operator) -> _Spread:
        """Return how the rows of a tree are spread.

        Raises
        ------
        _MeetError
            Rows of different parts meet.
        """
        if tree not in self.known:
            self.known[tree] = self._find(tree)
        return self.known[tree]

    def _find(self, tree: Operator) -> _Spread:
        match tree:
            case StreamInput(name=name) | RelationInput(name=name):
                key = self.keys.get(name)
                if key is None:
                    return None
                columns = frozenset(at for at, part in enumerate(tree.attributes) if part.name in key.names)
                return _Dealt(columns, columns if key.never_null else frozenset())
            case JoinOf(inputs=inputs, predicate=predicate):
                return self._join(inputs, split_condition(predicate))
            case FilterOf(input=JoinOf(inputs=inputs, predicate=inner), predicate=predicate):
                return self._join(inputs, (*split_condition(inner), *split_condition(predicate)))
            case BagOf():
                return self._unite(tree)
            case MembershipOf():
                return self._find_members(tree)
        below = inputs_of(tree)[0]
        spread = self.spread(below)
        if spread is None:
            return None
        match tree:
            case FilterOf(predicate=predicate):
                return _follow([spread], [0], split_condition(predicate))
            case ProjectionOf(expressions=expressions):
                return _project(spread, expressions)
            case WindowOf(form="rows", partition=partition) if not spread.columns.intersection(partition):
                raise _MeetError(f"{operator_text(tree)} of {_leaf_names(tree)} counts rows of all keys together")
            case AggregateOf(keys=keys):
                grouped = _project(spread, keys)
                if not grouped.columns:
                    by = ", ".join(_text_of(key, below.attributes) for key in keys)
                    raise _MeetError(f"groups {f'by {by}' if by else 'without a key'} hold rows of all keys together")
                return grouped
            case DistinctOf() if not spread.columns:
                raise _MeetError("distinct rows without a column of the key may be equal for different keys")
            case ToStream(form="istream" | "dstream"):
                _check_net(below, spread, self.static, f"what {tree.form} is of")
        return spread

    def _join(self, inputs: tuple[Operator, ...], conditions: Sequence[Expression]) -> _Spread:
        spreads = [self.spread(part) for part in inputs]
        starts = [sum(len(part.attributes) for part in inputs[:number]) for number in range(len(inputs))]
        dealt = [(each, start) for each, start in zip(spreads, starts, strict=True) if each is not None]
        if not dealt:
            return None
        return _follow([each for each, _ in dealt], [start for _, start in dealt], conditions)

    def _unite(self, tree: BagOf) -> _Spread:
        left, right = self.spread(tree.left), self.spread(tree.right)
        if left is None and right is None:
            return None
        if left is None or right is None:
            dealt = left or right
            assert dealt is not None
            if not dealt.columns or tree.form == "union" or (tree.form == "except" and left is None):
                raise _MeetError(f"{tree.form} is of rows of a key and rows of none")
            return dealt
        shared = left.columns & right.columns
        if tree.form == "union":
            return _Dealt(shared, shared & left.never_null & right.never_null)
        if not shared:
            raise _MeetError(f"{tree.form} compares rows of different keys")
        return left

    def _find_members(self, tree: MembershipOf) -> _Spread:
        rows, other = self.spread(tree.input), self.spread(tree.other)
        if other is None:
            return rows
        compared = {
            position: value.position if isinstance(value, Reference) else None
            for position, value in enumerate(tree.values)
            if position in other.columns
        }
        label = "Not In" if tree.is_negated else "In"
        if rows is None:
            # A row is in the part of the row that it is equal to.
            own = frozenset(at for at in compared.values() if at is not None)
            if tree.is_negated or not own:
                raise _MeetError(f"{label} compares rows of no key with those of all")
            return _Dealt(own, own)
        pairs = [(at, own) for at, own in compared.items() if own in rows.columns]
        if not pairs:
            raise _MeetError(f"{label} compares rows of different keys")
        if tree.is_negated and not any(at in other.never_null and own in rows.never_null for at, own in pairs):
            raise _MeetError("Not In compares a key that may be NULL, which decides for rows of all keys")
        return rows


def _follow(dealt: Sequence[_Dealt], starts: Sequence[int], conditions: Sequence[Expression]) -> _Dealt:
    """Return how combinations of rows are spread, whose conditions make keys equal.

    Parameters
    ----------
    dealt, starts
        Inputs that are split, and the positions at which their columns begin.
    """
    equal = [pair for condition in conditions if (pair := _equal_columns(condition)) is not None]
    own = [frozenset(start + at for at in each.columns) for each, start in zip(dealt, starts, strict=True)]
    reached, columns = {0}, set(own[0])
    is_growing = True
    while is_growing:
        before = len(reached), len(columns)
        for pair in equal:
            columns |= pair if columns & pair else set()
        for number, each in enumerate(own):
            if columns & each:
                reached.add(number)
                columns |= each
        is_growing = before != (len(reached), len(columns))
    if len(reached) < len(dealt):
        raise _MeetError("a join combines rows of different keys")
    certain = {start + at for each, start in zip(dealt, starts, strict=True) for at in each.never_null}
    # Rows in which one of them is NULL do not meet the condition.
    certain |= {at for pair in equal for at in pair}
    return _Dealt(frozenset(columns), frozenset(columns & certain))


def _equal_columns(condition: Expression) -> frozenset[int] | None:
    """Return the positions of ``a = b``; None of another condition."""
    if not isinstance(condition, Operation) or condition.name != "equal":
        return None
    columns = [part for part in condition.arguments if isinstance(part, Reference)]
    if len(columns) < 2 or len({part.kind for part in columns}) > 1:  # noqa: PLR2004 - both sides
        return None
    return frozenset(part.position for part in columns)


def _project(spread: _Dealt, expressions: Sequence[Expression]) -> _Dealt:
    passed = {at: part.position for at, part in enumerate(expressions) if isinstance(part, Reference)}
    return _Dealt(
        frozenset(at for at, position in passed.items() if position in spread.columns),
        frozenset(at for at, position in passed.items() if position in spread.never_null),
    )


def _text_of(expression: Expression, attributes: Attributes) -> str:
    return column_text(expression.position, attributes) if isinstance(expression, Reference) else "an expression"


def _leaf_names(tree: Operator) -> str:
    return ", ".join(dict.fromkeys(part.name for part in list_leaves(tree)))
