"""Continuous queries: CQL over streams and relations.

The package can be called: ``hypergrid.continuous(source)`` is `hypergrid.continuous.query.continuous(source)`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

    from hypergrid.continuous.query import ContinuousTables, LiveArchive
    from hypergrid.query import OpenArchive


class _CallablePackage(ModuleType):
    """Package whose name in `hypergrid` is a function of users, too."""

    def __call__(
        self,
        source: "OpenArchive | str | Path | Mapping[str, pandas.DataFrame]",
        *,
        tables: "Mapping[str, pandas.DataFrame | str | Path] | None" = None,
        views: Mapping[str, str] | None = None,
    ) -> "LiveArchive | ContinuousTables":
        from hypergrid.continuous.query import continuous  # noqa: PLC0415 - numba and sqlglot take a second

        return continuous(source, tables=tables, views=views)


sys.modules[__name__].__class__ = _CallablePackage
