"""A query as a notebook shows it: its steps in order, each with its cells and parameters."""

import json
from typing import Any, Final

from hypergrid.core.flags import ACCEPTED_BY_DEFAULT
from hypergrid.core.html import format_line, format_table, join_parts
from hypergrid.core.lazy_libraries import pd
from hypergrid.perspective.spec.query_spec import QuerySpec

_LONGEST: Final = 120
"""Characters of a value, at most: the GeoJSON of zones is long."""


def format_query(kind: str, question: QuerySpec) -> str:
    """Return a query as HTML.

    Parameters
    ----------
    kind
        Name of its class.
    question
        The query.
    """
    document = question.to_json()
    base: dict[str, Any] = {name: document[name] for name in ("select", "accept_flags", "as_of") if name in document}
    readings = _format_values({"accept_flags": list(ACCEPTED_BY_DEFAULT), **base})
    rows = [{"": 0, "step": "readings", "name": question.variable, "of": "", "parameters": readings}]
    for number, step in enumerate(document["steps"], start=1):
        cells = {
            name: value for name, value in step.items() if name not in ("op", "function", "method", "params", "with")
        }
        given = dict(step.get("params", {}))
        given |= {f"with query {count}": other["variable"] for count, other in enumerate(step.get("with", ()), start=1)}
        name = step.get("function", step.get("method"))
        rows.append(
            {
                "": number,
                "step": step["op"],
                "name": name,
                "of": _format_values(cells),
                "parameters": _format_values(given),
            }
        )
    ends: dict[str, Any] = {name: document[name] for name in ("clip", "variance") if name in document}
    if ends:
        rows.append({"": "", "step": "surface", "name": "", "of": _format_values(ends), "parameters": ""})
    details = [f"snapshot {question.snapshot}"] if question.snapshot else []
    table = pd.DataFrame(rows).rename(columns={"of": "cells"})
    return join_parts(format_line(f"{kind}: {question.variable}", *details), format_table(table))


def _format_values(values: dict[str, Any]) -> str:
    texts = []
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        texts.append(f"{name}={text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}")
    return ", ".join(texts)
