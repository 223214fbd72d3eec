"""Random trees of continuous queries as the language makes them, with random streams and relations for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

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
)
from hypergrid.continuous.expressions import Attribute, Attributes, Expression, Kind, Reference
from hypergrid.continuous.properties import is_momentary, is_ordered
from tests.support.continuous_oracle import START, oracle_result
from tests.support.continuous_scalars import Row, Value
from tests.support.continuous_trees import aggregate_call, call, constant, tree_text

T = TypeVar("T")

STARTS: Final = (0, 1_000, -55, 1_700_000_000_000_000_000)
TEXTS: Final = ("a", "b", "ab", "é%", "")
KINDS: Final[dict[str, Kind]] = {"x": "number", "y": "number", "s": "text", "i": "integer", "b": "boolean", "w": "time"}
RANGES: Final = (1, 9, 10, 20, 35, 100)
SLIDES: Final = (5, 10, 25)


@dataclass
class Case:
    """Tree with its inputs."""

    tree: Operator
    streams: dict[str, list[tuple[int, Row]]]
    relations: dict[str, list[tuple[int, int, Row]]]
    static: frozenset[str]

    def describe(self) -> str:
        """Return the case as text, to reproduce it by hand."""
        lines = [tree_text(self.tree)]
        lines += [f"{name} = {rows}" for name, rows in (self.streams | self.relations).items()]
        return "\n".join([*lines, f"static: {sorted(self.static)}"])


def random_case(seed: int, depth: int = 3, elements: int = 12) -> Case:
    """Return the random case of a seed; the tree has subqueries of up to `depth` levels below each other.

    Most random questions have no answer: of those drawn, the first with a few rows is taken, of nine at most.
    """
    for attempt in range(9):
        rng = np.random.default_rng([seed, attempt])
        maker = Maker(rng, elements)
        case = Case(maker.make_query(int(rng.integers(0, depth + 1))), maker.streams, maker.relations, maker.static)
        if len(oracle_result(case.tree, case.streams, case.relations)) > 2:
            break
    return case


class Maker:
    """Random trees over random inputs."""

    def __init__(self, rng: np.random.Generator, elements: int) -> None:
        self.rng, self.elements = rng, elements
        self.origin = int(rng.choice(STARTS, p=[0.4, 0.3, 0.15, 0.15]))
        self.streams: dict[str, list[tuple[int, Row]]] = {}
        self.relations: dict[str, list[tuple[int, int, Row]]] = {}
        self.leaves = 0
        self.bodies: list[Operator] = []
        inputs: list[StreamInput | RelationInput] = []
        for number in range(int(rng.integers(1, 4))):
            inputs.append(StreamInput(f"S{number}", self._make_attributes()))
            self.streams[inputs[-1].name] = self._make_stream(inputs[-1].attributes)
        static = []
        for number in range(int(rng.integers(0, 3))):
            inputs.append(RelationInput(f"R{number}", self._make_attributes()))
            name = inputs[-1].name
            static += [name] if rng.random() < 0.6 else []
            self.relations[name] = self._make_relation(inputs[-1].attributes, is_static=name in static)
        self.static = frozenset(static)
        self.stream_inputs = [part for part in inputs if isinstance(part, StreamInput)]
        self.relation_inputs = [part for part in inputs if isinstance(part, RelationInput)]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choose(self, options: Sequence[T]) -> T:
        return options[int(self.rng.integers(len(options)))]

    # Inputs

    def _make_attributes(self) -> Attributes:
        others = [name for name in KINDS if self.chance(0.45)]
        return (Attribute("k", "integer"), *(Attribute(name, KINDS[name]) for name in others))

    def _make_value(self, attribute: Attribute) -> Value:
        rng = self.rng
        if self.chance(0.05 if attribute.name == "k" else 0.12):
            return None
        match attribute.kind:
            case "text":
                return self.choose(TEXTS)
            case "boolean":
                return self.chance(0.5)
            case "time":
                return self.origin + int(rng.integers(0, 40))
            case "integer":
                return int(rng.integers(0, 3 if attribute.name == "k" else 6))
        # Quarters are exact; tenths are not.
        return int(rng.integers(-6, 7)) / 4 if attribute.name == "x" else int(rng.integers(-9, 10)) / 10

    def _make_stamps(self, count: int) -> list[int]:
        steps = self.rng.choice([0, 1, 3, 10, 60], size=count, p=[0.35, 0.15, 0.15, 0.25, 0.1])
        return (self.origin + np.cumsum(steps)).tolist()

    def _make_stream(self, attributes: Attributes) -> list[tuple[int, Row]]:
        count = 0 if self.chance(0.03) else int(self.rng.integers(4, self.elements + 1))
        stamps = self._make_stamps(count)
        rows: list[Row] = []
        for _ in stamps:
            again = rows and self.chance(0.15)
            rows.append(self.choose(rows) if again else tuple(self._make_value(part) for part in attributes))
        return list(zip(stamps, rows, strict=True))

    def _make_relation(self, attributes: Attributes, *, is_static: bool) -> list[tuple[int, int, Row]]:
        count = 0 if self.chance(0.03) else int(self.rng.integers(2, 7))
        changes: list[tuple[int, int, Row]] = []
        rows: list[Row] = []
        for tau in [START] * count if is_static else self._make_stamps(count + 2):
            if rows and not is_static and self.chance(0.4):
                changes.append((tau, -1, rows.pop(int(self.rng.integers(len(rows))))))
            else:
                again = rows and self.chance(0.2)
                rows.append(self.choose(rows) if again else tuple(self._make_value(part) for part in attributes))
                changes.append((tau, +1, rows[-1]))
        return changes

    # Scalars

    def make_columns(self, below: Operator) -> list[Reference]:
        return [Reference(number, attribute) for number, attribute in enumerate(below.attributes)]

    def _list_of_kind(self, below: Operator, kind: Kind) -> list[Reference]:
        return [part for part in self.make_columns(below) if part.kind == kind]

    def make_scalar(self, below: Operator, kind: Kind) -> Expression:
        """Return a small expression of a kind."""
        rng, columns = self.rng, self._list_of_kind(below, kind)
        if columns and self.chance(0.6):
            return self.choose(columns)
        if kind == "number":
            integers = self._list_of_kind(below, "integer")
            if not columns and integers:
                columns = [call("to_number", self.choose(integers))]  # type: ignore[list-item]
            if columns:
                a, b = self.choose(columns), self.choose(columns)
                size = int(rng.integers(-4, 9)) / 4
                options = [
                    call("add", a, b), call("subtract", a, size), call("multiply", a, size), call("divide", a, b),
                    call("abs", a), call("negate", a), call("coalesce", a, size), call("least", a, b),
                    call("greatest", a, size), call("floor", a), call("ceil", a), call("round", a),
                    call("modulo", a, b), call("sqrt", a), call("round", a, int(rng.integers(-1, 3))),
                ]  # fmt: skip
                if booleans := self._list_of_kind(below, "boolean"):
                    options.append(call("case", self.choose(booleans), a, size))
                return self.choose(options)
            return constant(int(rng.integers(-4, 9)) / 4)
        if kind == "integer" and columns:
            a, b = self.choose(columns), self.choose(columns)
            return self.choose([call("add", a, b), call("modulo", a, 3), call("coalesce", a, 1), call("negate", a)])
        if kind == "text" and columns:
            return call(self.choose(["upper", "lower"]), self.choose(columns))
        if kind == "time":
            return self.choose(columns) if columns else constant(self.origin + 20, "time")
        return constant({"integer": int(rng.integers(0, 4)), "text": "a", "boolean": True}[kind], kind)

    def make_condition(self, below: Operator) -> Expression:
        """Return a predicate, often with AND, now and then with OR and NOT."""
        if self.chance(0.2):
            parts = [self.make_condition(below) for _ in range(int(self.rng.integers(2, 4)))]
            return call("and" if self.chance(0.5) else "or", *parts)
        if self.chance(0.08):
            return call("not", self.make_condition(below))
        column = self.choose(self.make_columns(below))
        kind = column.kind
        if self.chance(0.1):
            return call("is_null", column)
        if kind == "boolean":
            return self.choose([column, call("equal", column, constant(value=True))])  # type: ignore[return-value]
        if kind == "text" and self.chance(0.5):
            return self.choose([call("like", column, "a%"), call("regex", column, "b"), call("like", column, "_")])
        if kind in ("integer", "text") and self.chance(0.3):
            options = [constant(value) for value in ((0, 2) if kind == "integer" else ("a", "b"))]
            return call("in", column, *options, *([constant(None, kind)] if self.chance(0.2) else []))
        comparison = self.choose(["equal", "unequal", "unequal", "less", "less_equal", "greater", "greater_equal"])
        return call(comparison, column, self.make_scalar(below, kind) if self.chance(0.4) else self._make_limit(kind))

    def _make_limit(self, kind: Kind) -> Expression:
        if kind == "time":
            return constant(self.origin + int(self.rng.integers(0, 40)), "time")
        limits: dict[str, tuple[Value, ...]] = {"integer": (0, 1, 1, 2), "text": TEXTS, "number": (-0.5, 0.0, 0.5)}
        return constant(self.choose(limits[kind]), kind)

    # Streams and windows

    def make_stream(self, depth: int) -> Operator:
        if depth > 0 and self.chance(0.3):
            below = self.make_changes(self.make_body(depth - 1))
        else:
            below = self.choose(self.stream_inputs)
            self.leaves += 1
        if self.chance(0.1):
            below = SampleOf(below, self.choose((0.3, 0.7)), int(self.rng.integers(0, 100)))
        if self.chance(0.1):
            below = FilterOf(below, self.make_condition(below))
        if self.chance(0.08):
            left, right = self._align(below, self.choose(self.stream_inputs))
            below = BagOf("union", left, right)
        return below

    def make_changes(self, below: Operator) -> Operator:
        """Return a stream of a relation, in one of the forms that are bounded."""
        if is_momentary(below) and self.chance(0.5):
            return ToStream(below, "rstream")
        form = self.choose(("istream", "istream", "dstream", "rstream"))
        return ToStream(below, form, slide_ns=self.choose((20, 50)) if form == "rstream" else 0)

    def make_window(self, below: Operator) -> Operator:
        forms = ["range", "range", "slide", "now", "unbounded"]
        forms += ["rows", "rows", "partition"] if is_ordered(below, self.static) else []
        form = self.choose(forms)
        where = self.make_condition(below) if self.chance(0.2) else None
        if form == "range":
            return WindowOf(below, "range", range_ns=self.choose(RANGES), where=where)
        if form == "slide":
            return WindowOf(below, "range", range_ns=self.choose(RANGES), slide_ns=self.choose(SLIDES), where=where)
        if form in ("now", "unbounded"):
            return WindowOf(below, form, where=where)  # type: ignore[arg-type]
        positions = range(len(below.attributes))
        count = min(len(positions), int(self.rng.integers(1, 3))) if form == "partition" else 0
        partition = tuple(sorted(self.rng.choice(positions, size=count, replace=False).tolist()))
        return WindowOf(below, "rows", rows=int(self.rng.integers(1, 5)), partition=partition, where=where)

    # Relations

    def make_query(self, depth: int) -> Operator:
        if self.relation_inputs and self.chance(0.08):
            return self._make_enriched()
        below = self.make_body(depth)
        return self.make_changes(below) if self.chance(0.5) else below

    def _make_enriched(self) -> Operator:
        """Return a stream whose elements are joined with a relation, in the form of the language."""
        is_now = self.chance(0.4)
        window = WindowOf(self.make_stream(0), "now" if is_now else "unbounded")
        fixed = self.choose(self.relation_inputs)
        below = self._make_join((window, fixed) if self.chance(0.7) else (fixed, window))
        return ToStream(self._make_list(below), "rstream" if is_now and self.chance(0.8) else "istream")

    def make_body(self, depth: int) -> Operator:
        """Return a select, or two of them as bags."""
        below = self.make_select(depth)
        if not self.chance(0.12) or self.leaves > 4:
            return below
        left, right = self._align(below, self.make_select(depth))
        form = self.choose(("union", "except", "intersect", "intersect"))
        if self.chance(0.4):
            left, right = (left, right) if form == "union" else (DistinctOf(left), DistinctOf(right))
            return DistinctOf(BagOf(form, left, right))
        return BagOf(form, left, right)

    def _align(self, left: Operator, right: Operator) -> tuple[Operator, Operator]:
        """Return projections of two inputs with attributes of the same kinds."""
        kinds = [self.choose(left.attributes).kind for _ in range(int(self.rng.integers(1, 3)))]
        names = tuple(f"u{number}" for number in range(len(kinds)))
        first, second = (
            ProjectionOf(side, tuple(self.make_scalar(side, kind) for kind in kinds), names) for side in (left, right)
        )
        return first, second

    def _make_source(self, depth: int) -> Operator:
        if self.relation_inputs and self.chance(0.2):
            self.leaves += 1
            return self.choose(self.relation_inputs)
        if self.bodies and self.chance(0.12):
            # Read twice, as a view is.
            return self.choose(self.bodies)
        if depth > 0 and self.leaves < 6 and self.chance(0.35):
            self.bodies.append(self.make_body(depth - 1))
            return self.bodies[-1]
        return self.make_window(self.make_stream(depth))

    def make_select(self, depth: int) -> Operator:
        """Return a select: sources, condition, membership, groups or list, duplicates."""
        sources = [self._make_source(depth)]
        if self.chance(0.5) and self.leaves < 5:
            sources += [self._make_source(depth - 1) for _ in range(self.choose((1, 1, 2, 3)))]
        below = self._make_join(tuple(sources)) if len(sources) > 1 else sources[0]
        if self.chance(0.35):
            below = FilterOf(below, self.make_condition(below))
        if self.chance(0.12) and self.leaves < 6:
            below = self._make_membership(below, depth)
        if self.chance(0.3):
            below = self._make_groups(below)
            if self.chance(0.3):
                below = FilterOf(below, self.make_condition(below))
            if self.chance(0.3):
                below = self._make_list(below)
        elif self.chance(0.8):
            below = self._make_list(below)
        return DistinctOf(below) if self.chance(0.15) else below

    def _make_join(self, sources: tuple[Operator, ...]) -> Operator:
        join = JoinOf(sources)
        starts = np.cumsum([0, *(len(part.attributes) for part in sources)]).tolist()
        columns = self.make_columns(join)
        conditions: list[Expression] = []
        for number in range(1, len(sources)):
            earlier = columns[: starts[number]]
            own = columns[starts[number] : starts[number + 1]]
            pairs = [(a, b) for a in earlier for b in own if a.kind == b.kind != "boolean"]
            keys = [pair for pair in pairs if pair[0].kind in ("integer", "text")]
            if keys and (len(sources) > 2 or self.chance(0.8)):
                conditions.append(call("equal", *self.choose(keys)))
            if pairs and self.chance(0.15):
                a, b = self.choose(pairs)
                conditions.append(call(self.choose(["less", "unequal", "greater_equal", "equal"]), a, b))
            bands = [pair for pair in pairs if pair[0].kind == "number"]
            if bands and self.chance(0.3):
                difference = call("subtract", *self.choose(bands))
                conditions.append(call("less", call("abs", difference), 0.8))
        if self.chance(0.2):
            conditions.append(self.make_condition(join))
        if not conditions:
            return join
        predicate = call("and", *conditions) if len(conditions) > 1 else conditions[0]
        return JoinOf(sources, predicate) if self.chance(0.5) else FilterOf(join, predicate)

    def _make_membership(self, below: Operator, depth: int) -> Operator:
        values = tuple(self.choose(self.make_columns(below)) for _ in range(self.choose((1, 1, 2))))
        other = self._make_source(depth - 1)
        kinds = [value.kind for value in values]
        names = tuple(f"m{number}" for number in range(len(kinds)))
        listed = ProjectionOf(other, tuple(self.make_scalar(other, kind) for kind in kinds), names)
        return MembershipOf(below, values, listed, self.chance(0.5))

    def _make_list(self, below: Operator) -> Operator:
        columns = self.make_columns(below)
        count = int(self.rng.integers(1, min(4, len(columns)) + 1))
        chosen = [self.choose(columns) for _ in range(count)]
        parts = tuple(part if self.chance(0.75) else self.make_scalar(below, part.kind) for part in chosen)
        return ProjectionOf(below, parts, tuple(f"c{number}" for number in range(count)))

    def _make_groups(self, below: Operator) -> Operator:
        columns = self.make_columns(below)
        keys: tuple[Expression, ...] = tuple(self.choose(columns) for _ in range(self.choose((0, 1, 1, 2))))
        if keys and self.chance(0.2):
            keys = (self.make_scalar(below, keys[0].kind), *keys[1:])
        calls = tuple(self._make_call(below) for _ in range(int(self.rng.integers(0 if keys else 1, 4))))
        names = (*(f"g{number}" for number in range(len(keys))), *(f"a{number}" for number in range(len(calls))))
        return AggregateOf(below, keys, calls, names)

    def _make_call(self, below: Operator) -> AggregateCall:
        columns = self.make_columns(below)
        if self.chance(0.2):
            return aggregate_call("count")
        column = self.choose(columns)
        functions = ["count", "count_distinct"]
        functions += ["min", "max"] if column.kind != "boolean" else []
        functions += ["sum", "avg", "stddev", "median", "quantile"] if column.kind in ("number", "integer") else []
        functions += ["first", "last"] if is_ordered(below, self.static) else []
        argument = self.make_scalar(below, column.kind) if self.chance(0.2) else column
        return aggregate_call(self.choose(functions), argument, self.choose((0.1, 0.25, 0.9)))
