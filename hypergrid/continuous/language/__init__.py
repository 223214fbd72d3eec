"""CQL: from text to a tree of the algebra, with names, types, units and defaults."""

from hypergrid.continuous.language.errors import InvalidCql
from hypergrid.continuous.language.explain import WindowProjection, explain_query, project_windows
from hypergrid.continuous.language.parse import Script, list_registered, parse_query, parse_script

__all__ = [
    "InvalidCql",
    "Script",
    "WindowProjection",
    "explain_query",
    "list_registered",
    "parse_query",
    "parse_script",
    "project_windows",
]
