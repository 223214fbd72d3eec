"""Continuous queries explained as JSON: what was assumed, the windows, the plan as a graph, projected memory."""

from typing import TYPE_CHECKING, Any, Final

from hypergrid.continuous.algebra import AggregateOf, FilterOf, Operator, ProjectionOf, WindowOf, inputs_of
from hypergrid.continuous.algebra_text import operator_text
from hypergrid.continuous.expressions import Attributes, Reference
from hypergrid.continuous.language.explain import interval_text, project_windows

if TYPE_CHECKING:
    from hypergrid.continuous.archive_query import ArchiveQuery

JsonObject = dict[str, Any]


def describe_query(query: "ArchiveQuery") -> JsonObject:
    """Explain a query of an archive.

    The plan is the tree after rewriting: a node for each operator, equal subtrees once, edges in the direction of the
    elements. Bytes are null where the rate of a stream, the number of a window's groups or that of its distinct rows is
    not known, or it grows without limit.
    """
    bound, rewritten = query.bound, query.rewritten
    projections = project_windows(rewritten.tree, query.catalogue.rates, groups=query.catalogue.groups)
    windows = [
        {
            "window": part.label,
            "interval": interval_text(part.window),
            "columns": [part.window.attributes[position].name for position in part.columns],
            "rows": part.rows,
            "projected_bytes": part.projected_bytes,
            "note": part.reason,
        }
        for part in projections
    ]
    known = [part.projected_bytes for part in projections]
    return {
        "text": bound.text,
        "result": "stream" if bound.tree.is_stream else "relation",
        "emit": bound.emit,
        "columns": describe_attributes(bound.tree.attributes),
        "keys": list_keys(bound.tree),
        "defaults": list(bound.defaults),
        "warnings": list(bound.warnings),
        "rewrites": list(rewritten.rules),
        "windows": windows,
        "plan": describe_plan(rewritten.tree),
        "projected_bytes": round(sum(size for size in known if size is not None)),
        "unlimited": any(size is None for size in known),
        "explanation": query.explain(),
    }


def describe_attributes(attributes: Attributes) -> list[JsonObject]:
    return [{"name": part.name, "kind": part.kind, "unit": part.unit} for part in attributes]


def describe_plan(tree: Operator) -> JsonObject:
    """Return a tree as nodes, the root first, and edges from each operator to those that read it."""
    numbers: dict[Operator, int] = {}
    below = [tree]
    while below:
        part = below.pop()
        if part not in numbers:
            numbers[part] = len(numbers)
            below += reversed(inputs_of(part))
    nodes = [
        {
            "id": number,
            "operator": _NAMES.get(type(part).__name__, type(part).__name__),
            "text": operator_text(part),
            "is_stream": part.is_stream,
            "attributes": describe_attributes(part.attributes),
            "interval": interval_text(part) if isinstance(part, WindowOf) else None,
        }
        for part, number in numbers.items()
    ]
    edges = [{"from": numbers[source], "to": number} for part, number in numbers.items() for source in inputs_of(part)]
    return {"nodes": nodes, "edges": edges}


_NAMES: Final = {
    "StreamInput": "stream",
    "RelationInput": "relation",
    "SampleOf": "sample",
    "WindowOf": "window",
    "FilterOf": "filter",
    "ProjectionOf": "project",
    "JoinOf": "join",
    "AggregateOf": "aggregate",
    "DistinctOf": "distinct",
    "BagOf": "bag",
    "MembershipOf": "membership",
    "ToStream": "to stream",
}


def list_keys(tree: Operator) -> list[int]:
    """Return the positions of the attributes that tell the episodes of a result apart.

    They are those that it is grouped by where they are known, else its texts.
    """
    positions, part = list(range(len(tree.attributes))), tree
    # Positions of the result in the operator below; -1 for those that are computed.
    while isinstance(part, FilterOf | ProjectionOf):
        if isinstance(part, ProjectionOf):
            sources = [each.position if isinstance(each, Reference) else -1 for each in part.expressions]
            positions = [sources[position] if position >= 0 else -1 for position in positions]
        part = part.input
    if isinstance(part, AggregateOf):
        count = len(part.keys)
        return [index for index, position in enumerate(positions) if 0 <= position < count]
    return [index for index, attribute in enumerate(tree.attributes) if attribute.kind == "text"]
