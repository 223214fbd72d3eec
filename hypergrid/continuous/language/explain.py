"""Explanation of a bound query as stable text: what was assumed, what is computed, and what it holds in memory."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

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
)
from hypergrid.continuous.algebra_text import column_text, duration_text, expression_text, operator_text
from hypergrid.continuous.expressions import Attribute, Expression, Operation, Reference, positions, walk
from hypergrid.continuous.join_plan import limit_of_distance, plan_join
from hypergrid.continuous.properties import keeps_no_values, list_paned_windows
from hypergrid.continuous.records import BoundQuery, Groups
from hypergrid.continuous.rewrite import Rewritten

VALUE_BYTES: Final = 8
"""Bytes of a value in a window's store, of a stamp, and of the number of a row."""
PART_WORDS: Final = {"part": 3, "counter": 1, "sum": 3, "whole": 2, "squares": 6, "min": 1, "max": 1, "ends": 2}
"""Words of what a window of panes holds of a group and pane, and of each aggregate in it."""
PANE_WORDS: Final = 8
"""Words of a pane besides."""

_DAY_S: Final = 86_400


@dataclass(frozen=True)
class WindowProjection:
    """Projected memory of one window: of its rows, or of what its panes hold in place of them."""

    window: WindowOf
    label: str
    columns: tuple[int, ...]
    """Positions of the attributes that the query uses."""
    rows: float | None
    """Rows that it holds, at most; None if rates or groups are not known, or it has no limit."""
    reason: str = ""
    """Why the rows are unknown, or what they depend on."""
    span_s: float = 0.0
    """Time within which its rows lie, of a window of time [s]."""
    part_words: int = 0
    """Words of what is held of a group and pane in place of rows, of which `rows` is then the number; 0 if rows are."""
    panes: int = 0
    """Panes that there are at a time, of such a window, for all aggregates."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row: its columns, and what says when it leaves; or those of a part of a pane."""
        if self.part_words:
            return VALUE_BYTES * self.part_words
        return VALUE_BYTES * (len(self.columns) + self._queue_words)

    @property
    def _queue_words(self) -> int:
        if self.window.form == "unbounded":
            return 0
        # The next row of its group, or a stamp and the place of the row.
        return 1 if self.window.partition else 2

    @property
    def projected_bytes(self) -> float | None:
        if self.rows is None:
            return None
        return self.rows * self.row_bytes + min(self.panes, self.rows) * VALUE_BYTES * PANE_WORDS


def explain_query(
    query: BoundQuery,
    *,
    rewritten: Rewritten | None = None,
    rates: Mapping[str, float] | None = None,
    groups: Groups | None = None,
    partitions: Iterable[str] = (),
    origins: Mapping[str, str] | None = None,
) -> str:
    """Explain a query.

    Parameters
    ----------
    query
        The bound query.
    rewritten
        What rewriting made of its tree; without it the tree as written is explained.
    rates
        Mean rate of the streams [rows/s].
    groups
        Distinct values of the columns of streams, at most.
    partitions
        Sentences: by what a back-test is split into tasks.
    origins
        Sentences by relation: where those come from that are computed when they are read.
    """
    tree = query.tree if rewritten is None else rewritten.tree
    kind = f"stream ({query.tree.form})" if isinstance(query.tree, ToStream) else "stream"
    parts = {
        f"result: {kind if query.tree.is_stream else 'relation'}": map(_describe_column, query.tree.attributes),
        "emit": [f"{query.emit}: " + _EMITS[query.emit]],
        "defaults": query.defaults,
        "warnings": query.warnings,
        "windows": [f"{label}: {interval_text(window)}" for label, window in _windows(tree)],
        "tree": _tree_lines(query.tree),
    }
    if rewritten is not None:
        parts["rewriting"] = rewritten.rules or ("no rule applies",)
        if rewritten.rules:
            parts["tree after rewriting"] = _tree_lines(rewritten.tree)
    parts["computed once"] = [
        f"{operator_text(part)} over {_leaf_names(part)}: used {count} times"
        for part, count in _find_shared(tree).items()
    ]
    leaves = [part.name for part in _walk_once(tree) if isinstance(part, RelationInput)]
    parts["surfaces"] = [origin for name, origin in (origins or {}).items() if name in leaves]
    parts["distances"] = list(_describe_distances(tree))
    parts["back-test in parts"] = tuple(partitions)
    parts["memory"] = list(_describe_memory(project_windows(tree, rates or {}, groups=groups)))
    return "\n".join(_section(title, lines) for title, lines in parts.items() if lines) + "\n"


_EMITS: Final = {
    "final": "rows are given after the heartbeat, in order of time",
    "now": "rows are given at once in order of arrival, with corrections",
}


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join((title, *(f"  {line}" for line in lines)))


def _describe_column(attribute: Attribute) -> str:
    return f"{attribute.name} {attribute.kind}" + (f" [{attribute.unit}]" if attribute.unit else "")


def interval_text(window: WindowOf) -> str:
    """Return the rows that a window holds at instant t (R1)."""
    if window.form == "now":
        text = "{t}, the rows of the instant"
    elif window.form == "unbounded":
        text = "all rows up to t"
    elif window.form == "rows":
        text = f"the last {window.rows:,} row{'s' if window.rows != 1 else ''} up to t"
        if window.partition:
            columns = ", ".join(column_text(position, window.attributes) for position in window.partition)
            text += f" of each {columns}"
    elif window.slide_ns:
        length = duration_text(window.range_ns)
        text = f"(f - {length}, f], where f is t rounded down to a multiple of {duration_text(window.slide_ns)}"
    else:
        text = f"(t - {duration_text(window.range_ns)}, t]"
    return text if window.where is None else f"{text}, of the rows for which its Where is true"


def _walk_once(tree: Operator) -> Iterator[Operator]:
    """Yield the operators of a tree from the root down, equal subtrees once."""
    seen: set[Operator] = set()
    below = [tree]
    while below:
        part = below.pop()
        if part not in seen:
            seen.add(part)
            yield part
            below += reversed(inputs_of(part))


def _windows(tree: Operator) -> list[tuple[str, WindowOf]]:
    return [(_label(part), part) for part in _walk_once(tree) if isinstance(part, WindowOf)]


def _label(window: WindowOf) -> str:
    below: Operator = window.input
    prefix = ""
    while isinstance(below, SampleOf | FilterOf | ProjectionOf):
        if not isinstance(below, ProjectionOf):
            prefix = prefix or ("filtered " if isinstance(below, FilterOf) else "sampled ")
        below = below.input
    name = below.name if isinstance(below, StreamInput) else f"a stream of {_leaf_names(below)}"
    return f"{prefix}{name} [{operator_text(window).removeprefix('window ')}]"


def _leaf_names(tree: Operator) -> str:
    leaves = (part for part in _walk_once(tree) if isinstance(part, StreamInput | RelationInput))
    return ", ".join(dict.fromkeys(part.name for part in leaves))


def _tree_lines(tree: Operator) -> list[str]:
    """Return a tree, one operator a line, with subtrees that occur more than once in full only where they first do."""
    numbers = {part: number for number, part in enumerate(_find_shared(tree), start=1)}
    shown: set[Operator] = set()

    def write(part: Operator, indent: str) -> Iterator[str]:
        number = numbers.get(part)
        mark = "" if number is None else f"#{number}: "
        if part in shown:
            yield f"{indent}{mark}as above, {operator_text(part)} …"
            return
        yield f"{indent}{mark}{operator_text(part)}"
        for below in inputs_of(part):
            yield from write(below, indent + "  ")
        if number is not None:
            shown.add(part)

    return list(write(tree, ""))


def _find_shared(tree: Operator) -> dict[Operator, int]:
    """Return subtrees that occur more than once, and not always inside a larger one that does, with their numbers."""
    counts: Counter[Operator] = Counter()
    above: dict[Operator, set[Operator]] = {}
    below = [tree]
    while below:
        part = below.pop()
        counts[part] += 1
        for each in inputs_of(part):
            above.setdefault(each, set()).add(part)
            below.append(each)
    return {part: counts[part] for part in _walk_once(tree)
            if counts[part] > 1 and inputs_of(part)
            and not any(counts[parent] == counts[part] for parent in above.get(part, ()))}  # fmt: skip


def _describe_distances(tree: Operator) -> Iterator[str]:
    """Yield what each condition on a distance between two inputs is tested on."""
    for join in _walk_once(tree):
        if not isinstance(join, JoinOf):
            continue
        plan = plan_join(join)
        edges = {link.predicate: link.edge_m for link in plan.searched_links}
        firsts = [part.first for part in plan.inputs]
        searched = [_list_owners(predicate, firsts) for predicate in edges]
        for predicate in plan.rest:
            if not any(isinstance(part, Operation) and part.name == "distance_m" for part in walk(predicate)):
                continue
            owners = _list_owners(predicate, firsts)
            names = " and ".join(_leaf_names(join.inputs[owner]) for owner in owners)
            if predicate in edges:
                how = f"grid index of {names}, in cubes of {edges[predicate]:,.0f} m"
            elif limit_of_distance(predicate) and owners in searched:
                how = "tested on what the grid of a narrower limit leaves"
            else:
                how = f"tested on each pair of {names}: a grid needs a constant upper limit"
            yield f"{expression_text(predicate, join.attributes)}: {how}"


def _list_owners(predicate: Expression, firsts: Sequence[int]) -> list[int]:
    """Return the inputs of a join that a predicate reads, by the first column of each."""
    return sorted({bisect_right(firsts, position) - 1 for position in positions(predicate)})


# Memory


def project_windows(
    tree: Operator,
    rates: Mapping[str, float],
    counts: Mapping[str, float] | None = None,
    groups: Groups | None = None,
) -> tuple[WindowProjection, ...]:
    """Project the memory of the windows of a tree: what the engine holds of each row, or of each group and pane.

    Parameters
    ----------
    tree
        Tree after rewriting.
    rates
        Mean rate of the streams [rows/s]; filters below a window are not taken off.
    counts
        Elements that a stream has at most, where it ends.
    groups
        Distinct values of the columns of streams, at most, by which windows may be partitioned.
    """
    used: dict[WindowOf, frozenset[int]] = {}
    _note_used(tree, frozenset(range(len(tree.attributes))), used)
    uses, paned = list_uses(tree), list_paned_windows(tree)
    volumes = _Volumes(rates, counts or {}, groups or {})
    return tuple(
        _project_panes(window, used[window], volumes, paned[window])
        if window in paned
        else _project_window(window, used[window], volumes, uses[window])
        for window in used
    )


Use: TypeAlias = Literal["summed", "condensed", "referred"]
"""What operators above keep of the rows of a window: sums of them, distinct rows or values, or the rows themselves."""
USES: Final[tuple[Use, ...]] = ("summed", "condensed", "referred")


class _Volumes(NamedTuple):
    rates: Mapping[str, float]
    counts: Mapping[str, float]
    groups: Groups


def _project_window(window: WindowOf, columns: frozenset[int], volumes: _Volumes, use: Use) -> WindowProjection:
    count = _rate_of(window.input, volumes.counts)

    def project(rows: float | None, reason: str = "", span_s: float = 0.0) -> WindowProjection:
        held = rows if rows is None or count is None else min(rows, count)
        return WindowProjection(window, _label(window), tuple(sorted(columns)), held, reason, span_s)

    if window.form == "rows" and window.partition:
        number = _count_groups(window, window.partition, volumes.groups)
        if number is None:
            return project(None, "one such window for each group, whose number is not known")
        return project(window.rows * number, f"one such window for each of {number:,.0f} groups")
    if window.form == "rows":
        return project(float(window.rows))
    if window.form == "now":
        return project(0.0)
    rate = _rate_of(window.input, volumes.rates)
    if window.form == "unbounded":
        if use == "summed":
            return project(0.0, "its rows are not kept")
        if use == "condensed":
            return project(None, "its distinct rows or values are kept, whose number is not known")
        if count is not None:
            return project(count, "all rows there are")
    if rate is None:
        return project(None, "its rate is not known")
    if window.form == "unbounded":
        return project(None, f"grows by {rate * _DAY_S * project(None).row_bytes:,.0f} bytes a day")
    span_s = (window.range_ns + window.slide_ns) / 1e9
    rows = rate * span_s if count is None else min(rate * span_s, count)
    return project(rows, span_s=rows / rate if rate else span_s)


def _project_panes(
    window: WindowOf, columns: frozenset[int], volumes: _Volumes, aggregates: Sequence[AggregateOf]
) -> WindowProjection:
    """Project what panes of a sliding window hold: a part for each group in each pane, for each aggregate of it."""
    label, names = _label(window), tuple(sorted(columns))
    # A slide that is no divisor of the length is cut in two, by what enters and by what leaves.
    slides = 1 + -(-window.range_ns // window.slide_ns)
    panes = slides if window.range_ns % window.slide_ns == 0 or window.range_ns < window.slide_ns else 2 * slides
    rate, count = _rate_of(window.input, volumes.rates), _rate_of(window.input, volumes.counts)
    span_s = (window.range_ns + window.slide_ns) / 1e9
    limits = [each for each in (count, None if rate is None else rate * span_s) if each is not None]
    rows = min(limits, default=None)
    numbers = [_count_keys(aggregate, window, volumes.groups) for aggregate in aggregates]
    words = max(_count_part_words(aggregate.calls) for aggregate in aggregates)
    reason = "aggregates by pane and group are kept, not rows"
    if None in numbers:
        if rows is None:
            unknown = "neither its rate nor the number of groups is known"
            return WindowProjection(window, label, names, None, unknown, part_words=words)
        reason += "; at most one for each row, as the number of groups is not known"
    each = [panes * number for number in numbers if number is not None]
    parts = sum(part if rows is None else min(part, rows) for part in each) + (rows or 0.0) * numbers.count(None)
    return WindowProjection(window, label, names, parts, reason, span_s, words, panes * len(aggregates))


def _count_keys(aggregate: AggregateOf, window: WindowOf, groups: Groups) -> float | None:
    """Return how many groups an aggregate of a window has at most; None if it is not known."""
    keys = [key.position for key in aggregate.keys if isinstance(key, Reference)]
    return _count_groups(window, keys, groups) if len(keys) == len(aggregate.keys) else None


def _count_part_words(calls: Sequence[AggregateCall]) -> int:
    """Return the words of a part: counts, sums and extremes, each of which stands there once."""
    words = set()
    for call in calls:
        if call.argument is None:
            continue
        is_number = call.argument.kind == "number" or call.function in ("avg", "stddev")
        words.add(("counter", call.argument, is_number))
        if call.function in ("min", "max", "first", "last"):
            words.add((call.function if call.function in ("min", "max") else "ends", call.argument, is_number))
        elif call.function != "count":
            words.add(("sum" if is_number else "whole", call.argument, is_number))
        if call.function == "stddev":
            words.add(("squares", call.argument, is_number))
    return PART_WORDS["part"] + sum(PART_WORDS[name] for name, _, _ in words)


def _count_groups(window: WindowOf, keys: Iterable[int], groups: Groups) -> float | None:
    """Return how many groups the rows of a window make at most; None if it is not known of a column of the key."""
    columns = {_find_column(window.input, position) for position in keys}
    sizes = [groups.get(stream, {}).get(name) for stream, name in columns]
    if None in sizes:
        return None
    # A series has one station and one variable.
    series = [groups[stream].get("series", math.inf) for stream, _ in columns]
    return min([math.prod(size for size in sizes if size is not None), *series])


def _find_column(tree: Operator, position: int) -> tuple[str, str]:
    """Return the stream and the name of a column of a tree; two empty names if it is computed."""
    match tree:
        case StreamInput():
            return tree.name, tree.attributes[position].name
        case FilterOf(input=below) | SampleOf(input=below):
            return _find_column(below, position)
        case ProjectionOf(input=below, expressions=expressions):
            part = expressions[position]
            if isinstance(part, Reference):
                return _find_column(below, part.position)
    return "", ""


def list_uses(tree: Operator) -> dict[WindowOf, Use]:
    """List the windows of a tree with the greatest of their uses."""
    uses: dict[WindowOf, Use] = {}

    def walk_uses(part: Operator, use: Use) -> None:
        match part:
            case WindowOf(input=below):
                uses[part] = max(use, uses.get(part, USES[0]), key=USES.index)
                walk_uses(below, USES[0])
            case FilterOf(input=below) | ProjectionOf(input=below):
                walk_uses(below, use)
            case MembershipOf(input=below, other=other):
                walk_uses(below, "referred")
                walk_uses(other, "condensed")
            case JoinOf(inputs=inputs):
                for below in inputs:
                    walk_uses(below, "referred")
            case ToStream(input=below, form="rstream"):
                walk_uses(below, "referred")
            case AggregateOf(input=below):
                walk_uses(below, "summed" if keeps_no_values(part) else "condensed")
            case DistinctOf() | BagOf() if not part.is_stream:
                for below in inputs_of(part):
                    walk_uses(below, "condensed")
            case _:
                for below in inputs_of(part):
                    walk_uses(below, USES[0])

    walk_uses(tree, USES[0])
    return uses


def _rate_of(tree: Operator, rates: Mapping[str, float]) -> float | None:
    """Return the rate of a tree, or its count of elements, given those of the streams; None if it is not known."""
    if isinstance(tree, StreamInput):
        return rates.get(tree.name)
    if isinstance(tree, SampleOf):
        rate = _rate_of(tree.input, rates)
        return None if rate is None else rate * tree.share
    if isinstance(tree, FilterOf | ProjectionOf) and tree.is_stream:
        return _rate_of(tree.input, rates)
    return None


def _note_used(tree: Operator, wanted: frozenset[int], used: dict[WindowOf, frozenset[int]]) -> None:
    """Note for each window below which of its columns are read, given those of the tree that are."""
    for part, columns in _used_below(tree, wanted):
        if isinstance(tree, WindowOf):
            used[tree] = used.get(tree, frozenset()) | wanted
        _note_used(part, columns, used)


def _used_below(tree: Operator, wanted: frozenset[int]) -> list[tuple[Operator, frozenset[int]]]:
    match tree:
        case FilterOf(input=below, predicate=predicate):
            return [(below, wanted | positions(predicate))]
        case ProjectionOf(input=below, expressions=expressions):
            return [(below, frozenset().union(*(positions(expressions[index]) for index in wanted)))]
        case JoinOf(inputs=inputs, predicate=predicate):
            wanted = wanted if predicate is None else wanted | positions(predicate)
            split, start = [], 0
            for part in inputs:
                end = start + len(part.attributes)
                split.append((part, frozenset(index - start for index in wanted if start <= index < end)))
                start = end
            return split
        case AggregateOf(input=below, keys=keys, calls=calls):
            read = [*keys, *(call.argument for call in calls if call.argument is not None)]
            return [(below, frozenset().union(*(positions(part) for part in read)))]
        case MembershipOf(input=below, values=values, other=other):
            read_here = frozenset().union(*(positions(value) for value in values))
            return [(below, wanted | read_here), (other, _all_columns(other))]
        case WindowOf(input=below, where=where):
            read_by_where = frozenset() if where is None else positions(where)
            return [(below, wanted | frozenset(tree.partition) | read_by_where)]
        case BagOf(form="union", left=left, right=right):
            return [(left, wanted), (right, wanted)]
        case DistinctOf() | ToStream() | BagOf() | SampleOf():
            return [(below, _all_columns(below)) for below in inputs_of(tree)]
    return []


def _all_columns(tree: Operator) -> frozenset[int]:
    return frozenset(range(len(tree.attributes)))


def _describe_memory(projections: tuple[WindowProjection, ...]) -> Iterator[str]:
    total = 0.0
    for each in projections:
        columns = f"{len(each.columns)} of {len(each.window.attributes)} columns, {each.row_bytes} bytes a row"
        rows = f"{each.rows or 0.0:,.0f} row{'s' if each.rows != 1 else ''}"
        if each.part_words:
            columns = f"parts of {each.row_bytes} bytes"
            rows = f"{each.rows or 0.0:,.0f} of them in {each.panes:,} panes"
        if each.projected_bytes is None:
            yield f"{each.label}: {columns}; {each.reason}"
        elif each.window.form == "now":
            yield f"{each.label}: the rows of one instant, {columns}"
        elif not each.rows and each.window.form == "unbounded":
            yield f"{each.label}: {each.reason}"
        else:
            after = f"; {each.reason}" if each.reason else ""
            yield f"{each.label}: {columns}, {rows}: {each.projected_bytes:,.0f} bytes{after}"
            total += each.projected_bytes
    if total:
        yield f"total of the windows that are limited: {total:,.0f} bytes, without indexes of joins and groups"
