"""Binding of queries: from syntax and a catalogue to a tree of the algebra."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

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
    StreamOf,
    ToStream,
    WindowOf,
    inputs_of,
)
from hypergrid.continuous.expressions import Constant, Expression, Operation, Reference, positions
from hypergrid.continuous.language import defaults
from hypergrid.continuous.language.errors import Refusal, Span, suggest_name
from hypergrid.continuous.language.grouping import GroupedBinder, has_aggregate
from hypergrid.continuous.language.joins import check_join, is_single_row
from hypergrid.continuous.language.scalar import ScalarBinder, check_depth
from hypergrid.continuous.language.scope import Scope, ScopedSource, distinct_names
from hypergrid.continuous.language.syntax import (
    Body,
    CombinedClause,
    ItemClause,
    QueryClause,
    SelectClause,
    SourceClause,
    StreamClause,
    query_in,
    span_of,
)
from hypergrid.continuous.language.units import match, to_unit
from hypergrid.continuous.records import SIGN, TAU, StreamCatalogue
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT

MOST_OPERATORS: Final = 1024
"""Operators of a tree, at most, with those of its views."""


@dataclass(frozen=True)
class BoundBody:
    """Relation or stream of a query, with what decides whether a relation is a stream by default (R3)."""

    tree: Operator
    obstacle: str = ""
    """Why the query stays a relation; empty if nothing keeps it from being a stream."""
    has_stream: bool = False
    """Whether a stream is in its From clause."""
    union_of_sets: Span | None = None
    """Union without All in it, which is of relations only (R9)."""


@dataclass
class QueryBinder:
    """Binder of one statement; collects the sentences of its defaults."""

    catalogue: StreamCatalogue
    words: frozenset[str]
    """Words of the statement, in lower case."""
    seed: int
    open_view: Callable[[str, Span], Operator]
    """What gives the tree of a view."""
    expand: Callable[[exp.Anonymous], exp.Expr | None]
    sentences: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _named: dict[str, Operator | None] = field(default_factory=dict)
    """Queries named by With; None while one is being bound."""

    def bind_outermost(self, query: QueryClause) -> Operator:
        """Return the tree of a whole query, a stream where R3 says so."""
        bound = self._query(query)
        tree = self._stream_by_default(bound, "The query")
        if bound.has_stream and bound.obstacle and not tree.is_stream:
            self._say(defaults.say_relation(bound.obstacle))
        _check_size(tree, query.span)
        return tree

    def bind_result(self, query: QueryClause) -> Operator:
        """Return the tree of a query that is run: no column has the name of one that results have beside them."""
        tree = self.bind_outermost(query)
        names = tuple(attribute.name for attribute in tree.attributes)
        renamed = distinct_names((TAU, SIGN, *names))[2:]
        for name, other in zip(names, renamed, strict=True):
            if name != other:
                self._say(defaults.say_renamed(name, other))
        return _project(tree, [(Reference(index, part), renamed[index]) for index, part in enumerate(tree.attributes)])

    # Bodies

    def _say(self, sentence: str) -> None:
        if sentence not in self.sentences:
            self.sentences.append(sentence)

    def _stream_by_default(self, bound: BoundBody, label: str) -> Operator:
        if bound.tree.is_stream or bound.obstacle or not bound.has_stream:
            return bound.tree
        if bound.union_of_sets is not None:
            raise Refusal(bound.union_of_sets, defaults.REFUSED_UNION_OF_STREAMS)
        self._say(defaults.say_istream(label))
        return ToStream(bound.tree, "istream")

    def _query(self, query: QueryClause) -> BoundBody:
        before = dict(self._named)
        for name, span, clause in query.named:
            if name in self.catalogue.names or name in self._named:
                raise Refusal(span, f"{name!r} is the name of something else already")
            self._named[name] = None
            self._named[name] = self._stream_by_default(self._query(clause), f"{name} (With)")
        bound = self._body(query.body)
        self._named = before
        return bound

    def _body(self, body: Body) -> BoundBody:
        if isinstance(body, QueryClause):
            return self._query(body)
        if isinstance(body, StreamClause):
            return BoundBody(self._to_stream(self._query(body.query).tree, body.form, body.span))
        if isinstance(body, CombinedClause):
            return self._combined(body)
        return self._select(body)

    def _to_stream(self, tree: Operator, form: StreamOf, span: Span) -> Operator:
        if tree.is_stream:
            raise Refusal(span, f"{form.title()} is of a relation, but this query is a stream already")
        return defaults.make_stream(tree, form, span)

    def _combined(self, body: CombinedClause) -> BoundBody:
        left, right = self._body(body.left), self._body(body.right)
        obstacle = left.obstacle or right.obstacle
        if body.form == "except":
            obstacle = obstacle or "it has an Except"
        has_stream, of_sets = left.has_stream or right.has_stream, left.union_of_sets or right.union_of_sets
        if left.tree.is_stream or right.tree.is_stream:
            return BoundBody(self._streams_combined(body, left.tree, right.tree))
        first, second = _alike(left.tree, right.tree, body.span)
        if body.is_all:
            return BoundBody(BagOf(body.form, first, second), obstacle, has_stream, of_sets)
        if body.form == "union":
            if has_stream:
                self.warnings.append(defaults.UNION_OF_SETS)
            return BoundBody(DistinctOf(BagOf("union", first, second)), obstacle, has_stream, body.span)
        # Sets on both sides make a set.
        return BoundBody(BagOf(body.form, _distinct(first), _distinct(second)), obstacle, has_stream, of_sets)

    def _streams_combined(self, body: CombinedClause, left: Operator, right: Operator) -> Operator:
        if not (left.is_stream and right.is_stream):
            raise Refusal(
                body.span, "one side is a stream and the other a relation; write Istream(…) around both, or none"
            )
        if body.form != "union":
            raise Refusal(
                body.span, f"{body.form.title()} is of relations; give the streams windows in a query around them"
            )
        if not body.is_all:
            raise Refusal(body.span, defaults.REFUSED_UNION_OF_STREAMS)
        first, second = _alike(left, right, body.span)
        return BagOf("union", first, second)

    # Select

    def _select(self, clause: SelectClause) -> BoundBody:
        trees, obstacle, has_stream = self._from(clause)
        scope = Scope(tuple(source for source, _ in trees))
        scope = Scope(scope.sources, _equal_positions(scope, (clause.where, *clause.joined_on)))
        selected = SelectBinder(self, clause, scope, [tree for _, tree in trees])
        tree = selected.bind()
        obstacle = selected.obstacle or obstacle
        if clause.is_distinct:
            tree = _distinct(tree)
        if clause.to_stream is not None:
            return BoundBody(self._to_stream(tree, clause.to_stream, clause.span))
        return BoundBody(tree, obstacle, has_stream)

    def _from(self, clause: SelectClause) -> tuple[list[tuple[ScopedSource, Operator]], str, bool]:
        """Return sources with relations, why the query is no stream by default, and whether a source is one."""
        sources: list[tuple[ScopedSource, Operator]] = []
        obstacle, has_stream = "", False
        for source in clause.sources:
            tree = self._source(source)
            alias = source.alias or source.name
            if alias and any(alias == other.alias for other, _ in sources):
                raise Refusal(
                    source.span, f"two sources have the name {alias!r}; give one another name: {alias} As other"
                )
            scoped = ScopedSource(alias, source.name, tree.attributes)
            if tree.is_stream:
                has_stream = True
                if source.window is not None:
                    obstacle = obstacle or f"{alias or 'a stream'} has a window"
                tree = self._window(source, scoped, tree)
            elif source.window is not None:
                raise Refusal(source.window.span, f"{alias or 'this query'} is a relation; windows are of streams")
            elif source.sample is not None:
                raise Refusal(source.span, f"{alias or 'this query'} is a relation; samples are of streams")
            else:
                obstacle = obstacle or defaults.find_obstacle(tree, alias or "a query in From")
            sources.append((scoped, tree))
        return sources, obstacle, has_stream

    def _source(self, source: SourceClause) -> Operator:
        if source.query is not None:
            return self._stream_by_default(self._query(source.query), f"The query {source.alias or 'in From'}")
        name, catalogue = source.name, self.catalogue
        if name in self._named:
            named = self._named[name]
            if named is None:
                raise Refusal(source.span, f"recursion is no part of CQL: {name!r} is its own source")
            return named
        names = (*catalogue.names, *self._named)
        if name not in names:
            alike = [each for each in names if each.lower() == name.lower()]
            if len(alike) != 1:
                raise Refusal(source.span, f"unknown stream or relation {name!r}{suggest_name(name, names)}")
            return self._source(SourceClause(source.span, name=alike[0]))
        if name in catalogue.relations:
            return RelationInput(name, catalogue.relations[name])
        if name in catalogue.streams:
            return self._stream(name)
        return self.open_view(name, source.span)

    def _stream(self, name: str) -> Operator:
        tree: Operator = StreamInput(name, self.catalogue.streams[name])
        if name not in self.catalogue.flagged or "flag" in self.words:
            return tree
        position = next(index for index, attribute in enumerate(tree.attributes) if attribute.name == "flag")
        self._say(defaults.say_flags(name))
        accepted = tuple(Constant(flag, "integer") for flag in ACCEPTED_BY_DEFAULT)
        flag = Reference(position, tree.attributes[position])
        return FilterOf(tree, Operation("in", (flag, *accepted), "boolean"))

    def _window(self, source: SourceClause, scoped: ScopedSource, tree: Operator) -> Operator:
        if source.sample is not None:
            tree = SampleOf(tree, source.sample, self.seed)
        window = source.window
        if window is None:
            self._say(defaults.say_unbounded(scoped.alias or "The query in From"))
            return WindowOf(tree, "unbounded")
        binder = self.scalar_binder(Scope((scoped,)))
        partition = [binder.bind(column) for column in window.partition]
        where = None if window.where is None else binder.condition(window.where)
        return WindowOf(
            tree,
            window.form,
            rows=window.rows,
            range_ns=window.range_ns,
            slide_ns=window.slide_ns,
            partition=tuple(part.position for part in partition if isinstance(part, Reference)),
            where=where,
        )

    def scalar_binder(self, scope: Scope) -> ScalarBinder:
        """Return a binder of expressions without aggregates and queries."""
        return ScalarBinder(scope, self.expand, tuple(self.catalogue.functions))

    def operand(self, query: QueryClause) -> Operator:
        """Return the relation of a query inside an expression; that of a stream is unbounded."""
        tree = self._query(query).tree
        if tree.is_stream:
            self._say(defaults.say_unbounded("The query in parentheses"))
            return WindowOf(tree, "unbounded")
        return tree


@dataclass
class SelectBinder:
    """Binder of one Select over its sources."""

    outer: QueryBinder
    clause: SelectClause
    scope: Scope
    inputs: list[Operator]
    """Relations of the sources, then those of single values that expressions ask for."""
    obstacle: str = ""
    """Why the query is no stream by default."""

    def bind(self) -> Operator:
        """Return the relation of the select list."""
        clause = self.clause
        for node in self._nodes():
            check_depth(node)
        conditions = [self._scalar().condition(node) for node in clause.joined_on]
        where, members = _split_where(clause.where)
        conditions += [self._scalar().condition(node) for node in where]
        memberships = [self._membership(node) for node in members]
        is_grouped = bool(clause.group) or clause.having is not None or any(has_aggregate(item.value, self.outer.expand)
                                                                            for item in clause.items)  # fmt: skip
        items = [] if is_grouped else self._items()
        tree = self._join(_conjuncts(conditions))
        for values, other, is_negated in memberships:
            tree = MembershipOf(tree, values, other, is_negated)
        if is_grouped:
            self.obstacle = "it has an aggregate"
            return self._grouped(tree)
        return _project(tree, items)

    def _nodes(self) -> list[exp.Expr]:
        clause = self.clause
        nodes = [*clause.joined_on, *clause.group, *(item.value for item in clause.items)]
        return nodes + [node for node in (clause.where, clause.having) if node is not None]

    def _scalar(self) -> ScalarBinder:
        outer = self.outer
        return ScalarBinder(self.scope, outer.expand, tuple(outer.catalogue.functions), self._single_value)

    def _single_value(self, query: QueryClause, span: Span | None) -> Expression:
        """Return the value of a query of one row, which becomes one more input."""
        tree = self.outer.operand(query)
        if len(tree.attributes) != 1:
            raise Refusal(span, f"a query used as a value needs one column; got {len(tree.attributes)}")
        if not is_single_row(tree):
            raise Refusal(
                span, "a query used as a value needs exactly one row, so an aggregate without Group By; "
                "write In (Select …), or join it in From",
            )  # fmt: skip
        position = sum(len(part.attributes) for part in self.inputs)
        self.inputs.append(tree)
        return Reference(position, tree.attributes[0])

    def _membership(self, node: exp.Expr) -> tuple[tuple[Expression, ...], Operator, bool]:
        is_negated = False
        while isinstance(node, exp.Not | exp.Paren):
            is_negated ^= isinstance(node, exp.Not)
            node = node.this
        if is_negated:
            self.obstacle = "it has a Not In"
        query = query_in(node.expressions[0])
        other = self.outer.operand(query)  # type: ignore[arg-type]
        values, spans = self._row(node.this)
        if len(values) != len(other.attributes):
            raise Refusal(
                span_of(node.this), f"{len(values)} value{'s' if len(values) != 1 else ''} cannot be among rows of "
                f"{len(other.attributes)} columns; select as many",
            )  # fmt: skip
        columns, changed = [], []
        for index, (value, span) in enumerate(zip(values, spans, strict=True)):
            column = Reference(index, other.attributes[index])
            # The column comes first, so that the value takes its unit.
            fitted, matched = match((column, value), (query.span, span))  # type: ignore[union-attr]
            columns.append(fitted)
            changed.append(matched)
        if tuple(columns) != tuple(Reference(index, each) for index, each in enumerate(other.attributes)):
            other = ProjectionOf(other, tuple(columns), tuple(each.name for each in other.attributes))
        return tuple(changed), other, is_negated

    def _row(self, node: exp.Expr) -> tuple[list[Expression], list[Span | None]]:
        """Return the values before In: a row in parentheses, all columns of a source, or one expression."""
        if isinstance(node, exp.Tuple):
            return [self._scalar().bind(part) for part in node.expressions], [
                span_of(part) for part in node.expressions
            ]
        if isinstance(node, exp.Column) and not node.table:
            source = self.scope.source_named(node.name)
            names = [attribute.name.lower() for attribute in self.scope.attributes]
            if source is not None and node.name.lower() not in names:
                references = self.scope.references(source)
                return list(references), [span_of(node)] * len(references)
        return [self._scalar().bind(node)], [span_of(node)]

    def _items(self) -> list[tuple[Expression, str]]:
        items: list[tuple[Expression, str]] = []
        for item in self.clause.items:
            references = self._star(item)
            if references is None:
                bound = self._scalar().bind(item.value)
                items.append((bound, item.name or _default_name(item.value)))
            else:
                items += [(reference, reference.attribute.name) for reference in references]
        return items

    def _star(self, item: ItemClause) -> tuple[Reference, ...] | None:
        """Return the columns of ``*`` or ``source.*``, None for another item."""
        node = item.value
        if isinstance(node, exp.Star):
            return self.scope.all_references()
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            return self.scope.references(self.scope.find_source(node, node.table))
        return None

    def _join(self, conditions: list[Expression]) -> Operator:
        if len(self.inputs) == 1:
            return FilterOf(self.inputs[0], conjunction(conditions)) if conditions else self.inputs[0]
        starts = [0]
        for part in self.inputs:
            starts.append(starts[-1] + len(part.attributes))

        def sides(condition: Expression) -> frozenset[int]:
            read = positions(condition)
            return frozenset(index for index in range(len(self.inputs))
                             if any(starts[index] <= position < starts[index + 1] for position in read))  # fmt: skip

        check_join(self.clause.sources, tuple(self.inputs), [sides(condition) for condition in conditions])
        connecting = [condition for condition in conditions if len(sides(condition)) > 1]
        others = [condition for condition in conditions if len(sides(condition)) <= 1]
        tree: Operator = JoinOf(tuple(self.inputs), conjunction(connecting) if connecting else None)
        return FilterOf(tree, conjunction(others)) if others else tree

    def _grouped(self, tree: Operator) -> Operator:
        clause, plain = self.clause, self._scalar()
        keys = []
        for node in clause.group:
            key = self.outer.scalar_binder(self.scope).bind(node)
            if isinstance(key, Constant):
                raise Refusal(span_of(node), "Group By needs an expression of columns; got a constant")
            keys.append(key)
        grouped = GroupedBinder(self.outer.scalar_binder(self.scope), tuple(keys), tuple(
            _default_name(node) for node in clause.group))  # fmt: skip
        del plain
        having = None if clause.having is None else grouped.condition(clause.having)
        items = []
        for item in clause.items:
            if self._star(item) is not None:
                raise Refusal(item.span, "* cannot stand beside an aggregate or Group By; name the columns")
            items.append((grouped.bind(item.value), item.name or _default_name(item.value)))
        names = distinct_names((*grouped.key_names, *grouped.call_names))
        tree = AggregateOf(tree, tuple(keys), tuple(grouped.calls), names)
        renamed = [_rename(bound, names) for bound, _ in items]
        if having is not None:
            tree = FilterOf(tree, _rename(having, names))
        return _project(tree, [(bound, name) for bound, (_, name) in zip(renamed, items, strict=True)])


def _rename(expression: Expression, names: tuple[str, ...]) -> Expression:
    """Return an expression over groups whose references have the final names."""
    if isinstance(expression, Reference):
        attribute = expression.attribute
        return Reference(
            expression.position, type(attribute)(names[expression.position], attribute.kind, attribute.unit)
        )
    if isinstance(expression, Operation):
        arguments = tuple(_rename(argument, names) for argument in expression.arguments)
        return Operation(expression.name, arguments, expression.kind, expression.unit)
    return expression


def _split_where(where: exp.Expr | None) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return the parts of a Where joined by And: conditions of a row, and those on the rows of a query."""
    plain: list[exp.Expr] = []
    members: list[exp.Expr] = []
    below = [] if where is None else [where]
    while below:
        node = below.pop()
        inner = node
        while isinstance(inner, exp.Paren | exp.Not) and query_in(inner) is None:
            inner = inner.this
        if isinstance(node, exp.And):
            below += [node.args["expression"], node.this]
        elif isinstance(node, exp.Paren) and isinstance(inner, exp.And) and isinstance(node.this, exp.And):
            below.append(node.this)
        elif isinstance(inner, exp.In) and len(inner.expressions) == 1 and query_in(inner.expressions[0]) is not None:
            members.append(node)
        else:
            plain.append(node)
    return plain, members


def _equal_positions(scope: Scope, conditions: tuple[exp.Expr | None, ...]) -> tuple[frozenset[int], ...]:
    """Return the positions of columns that conditions joined by And set equal, as classes."""
    classes: list[frozenset[int]] = []
    for node in (part for condition in conditions for part in _split_where(condition)[0]):
        sides = (node.this, node.args["expression"]) if isinstance(node, exp.EQ) else ()
        if not all(isinstance(side, exp.Column) and side.table for side in sides) or not sides:
            continue
        first, second = (scope.resolve(side) for side in sides)
        if isinstance(first, Reference) and isinstance(second, Reference) and _is_same_type(first, second):
            joined = frozenset((first.position, second.position))
            joined = joined.union(*(each for each in classes if each & joined))
            classes = [each for each in classes if not each & joined] + [joined]
    return tuple(classes)


def _is_same_type(first: Expression, second: Expression) -> bool:
    return (first.kind, first.unit) == (second.kind, second.unit)


def _conjuncts(conditions: list[Expression]) -> list[Expression]:
    parts: list[Expression] = []
    for condition in conditions:
        is_and = isinstance(condition, Operation) and condition.name == "and"
        parts += condition.arguments if is_and else (condition,)  # type: ignore[union-attr]
    return parts


def conjunction(conditions: list[Expression]) -> Expression:
    """Return the condition that all of at least one hold."""
    return conditions[0] if len(conditions) == 1 else Operation("and", tuple(conditions), "boolean")


def _project(tree: Operator, items: list[tuple[Expression, str]]) -> Operator:
    """Return the relation of the items; the input itself if these are its columns."""
    names = distinct_names(tuple(name for _, name in items))
    expressions = tuple(bound for bound, _ in items)
    own = tuple(Reference(index, attribute) for index, attribute in enumerate(tree.attributes))
    if expressions == own and names == tuple(attribute.name for attribute in tree.attributes):
        return tree
    return ProjectionOf(tree, expressions, names)


def _distinct(tree: Operator) -> Operator:
    return tree if isinstance(tree, DistinctOf) else DistinctOf(tree)


def _default_name(node: exp.Expr) -> str:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Column | exp.Anonymous):
        return node.name if isinstance(node, exp.Column) else node.name.lower()
    return "value"


def _alike(left: Operator, right: Operator, span: Span) -> tuple[Operator, Operator]:
    """Return two sides with equal kinds and units; the names are those of the left side."""
    if len(left.attributes) != len(right.attributes):
        raise Refusal(
            span, f"the two sides need as many columns as each other; got {len(left.attributes)} and "
            f"{len(right.attributes)}",
        )  # fmt: skip
    names = tuple(attribute.name for attribute in left.attributes)
    firsts, seconds = [], []
    for index, (on_left, on_right) in enumerate(zip(left.attributes, right.attributes, strict=True)):
        if (on_left.kind == "number" or on_right.kind == "number") and {on_left.kind, on_right.kind} <= {
            "number",
            "integer",
        }:
            first, second = match((Reference(index, on_left), Reference(index, on_right)), (span, span))
        elif on_left.kind != on_right.kind:
            raise Refusal(
                span,
                f"column {on_left.name!r} is {on_left.kind} on the left side and {on_right.kind} on the right side",
            )
        else:
            first, second = Reference(index, on_left), to_unit(Reference(index, on_right), on_left.unit, span)
        firsts.append((first, names[index]))
        seconds.append((second, names[index]))
    return _project(left, firsts), _project(right, seconds)


def _check_size(tree: Operator, span: Span) -> None:
    sizes: dict[int, int] = {}

    def size(part: Operator) -> int:
        if id(part) not in sizes:
            sizes[id(part)] = 1 + sum(size(below) for below in inputs_of(part))
        return sizes[id(part)]

    if (count := size(tree)) > MOST_OPERATORS:
        raise Refusal(
            span, f"the query has {count:,} operators with those of its views; at most {MOST_OPERATORS:,} are read"
        )
