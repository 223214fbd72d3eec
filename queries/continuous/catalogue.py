"""Names that continuous queries of an archive may use, for completion; forms and examples that it can answer."""

from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from hypergrid.continuous.language.functions import AGGREGATES, SCALARS
from hypergrid.core.errors import InvalidQuery
from queries.continuous.examples import EXAMPLES, Example
from queries.continuous.explanation import describe_attributes
from queries.continuous.forms import find_gap, list_forms

if TYPE_CHECKING:
    from hypergrid.continuous.archive_query import ContinuousArchive

KEYWORDS: Final = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "AS", "AND", "OR", "NOT", "IN", "NOT IN", "LIKE",
    "BETWEEN", "IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "UNION", "UNION ALL", "EXCEPT",
    "INTERSECT", "WITH", "ISTREAM", "DSTREAM", "RSTREAM", "SAMPLE", "EMIT FINAL", "EMIT NOW",
)  # fmt: skip
WINDOW_KEYWORDS: Final = ("RANGE", "ROWS", "NOW", "UNBOUNDED", "PARTITION BY", "SLIDE", "WHERE")
TIME_UNITS: Final = ("Millisecond", "Second", "Minute", "Hour", "Day", "Week")


def describe_catalogue(archive: "ContinuousArchive") -> dict[str, Any]:
    """Describe streams and relations with their attributes, functions, keywords, and forms and examples that fit."""
    known = archive.inputs.of_archive
    sources = [
        {
            "name": name,
            "kind": kind,
            "attributes": describe_attributes(attributes),
            "rate": known.rates.get(name),
        }
        for kind, group in (("stream", known.streams), ("relation", known.relations))
        for name, attributes in group.items()
    ]
    functions = [
        *({"name": name, "kind": "aggregate", "arguments": [1, 2 if name == "quantile" else 1]} for name in AGGREGATES),
        *(
            {"name": name, "kind": "scalar", "arguments": [fewest, limit]}
            for name, (fewest, limit, _) in SCALARS.items()
        ),
    ]
    return {
        "sources": sources,
        "functions": functions,
        "keywords": list(KEYWORDS),
        "window_keywords": list(WINDOW_KEYWORDS),
        "time_units": list(TIME_UNITS),
        "forms": [
            asdict(form) for form in list_forms(archive.inputs.archive, known.streams.keys() | known.relations.keys())
        ],
        "examples": [{"number": row.number, "title": row.title, "text": row.text} for row in _list_fitting(archive)],
    }


def _list_fitting(archive: "ContinuousArchive") -> list[Example]:
    """Return the first variant of each example whose names an archive has."""
    fitting: dict[int, Example] = {}
    gap = str(find_gap(archive.inputs.archive))
    for example in EXAMPLES:
        if example.number not in fitting:
            text = example.text.replace("{gap}", gap)
            with suppress(InvalidQuery):
                archive.query(text)
                fitting[example.number] = replace(example, text=text)
    return list(fitting.values())
