"""Tables as users get and give them: kept with a live query, and made of its results."""

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hypergrid.continuous.algebra import list_leaves
from hypergrid.continuous.archive_query import ArchiveInputs, ArchiveQuery, open_inputs
from hypergrid.continuous.expressions import NULL_INTEGER, Attributes, Kind
from hypergrid.continuous.live.evaluation import LiveElement
from hypergrid.continuous.live.rows import Row
from hypergrid.continuous.live.store import GivenElement, LiveEntry, LiveStore
from hypergrid.continuous.records import SIGN, TAU
from hypergrid.continuous.sources.batch import Integers
from hypergrid.core.lazy_libraries import pd
from hypergrid.query import OpenArchive

if TYPE_CHECKING:
    import pandas

NUMBER: Final = "number"
"""Column of running numbers, after which a reader goes on."""
CORRECTS: Final = "corrects"
"""Column of the snapshot with which the results so far were right, None for new results."""
GIVEN: Final = "given"
"""Column of the arrival with which a row was given."""
SNAPSHOT: Final = "snapshot"
"""Column of the snapshot that an element was computed from."""


def pack_tables(query: ArchiveQuery) -> dict[str, bytes]:
    """Return the tables of the user that a query reads, packed, by name."""
    named = {leaf.name for leaf in list_leaves(query.bound.tree)}
    return {label: pack_table(query.inputs.tables[label]) for label in query.tables.frames if label in named}


def pack_table(frame: "pandas.DataFrame") -> bytes:
    """Return a table as Parquet, units included."""
    content = io.BytesIO()
    frame.to_parquet(content, index=False)
    return content.getvalue()


def unpack_table(content: bytes) -> "pandas.DataFrame":
    """Return the table of `pack_table`."""
    return pd.read_parquet(io.BytesIO(content))


def read_tables(store: LiveStore, entry: LiveEntry) -> "dict[str, pandas.DataFrame]":
    """Return the tables that are kept with a query, by name."""
    return {label: unpack_table(content) for label, content in store.read_tables(entry).items()}


def open_kept_inputs(archive: OpenArchive, store: LiveStore, entry: LiveEntry) -> ArchiveInputs:
    """Return an archive, and tables and surfaces as they were when a query was added, as its inputs."""
    inputs = open_inputs(archive, read_tables(store, entry))
    return replace(inputs, kept_surfaces=entry.options.surfaces)


def tabulate_elements(elements: Sequence[GivenElement], attributes: Attributes) -> "pandas.DataFrame":
    """Return elements as a table: number, `tau` (UTC), `sign`, the select list, `corrects` and `snapshot`.

    A column of the select list that has one of these names gets "_2" behind it.
    """
    ends = (CORRECTS, SNAPSHOT)
    taken = {NUMBER, *ends}
    own = [f"{part.name}_2" if part.name in taken else part.name for part in attributes]
    frame = tabulate_rows([element.row for element in elements], attributes)
    columns = [
        pd.Series([element.number for element in elements], dtype=np.int64),
        _make_column([element.tau_ns for element in elements], "time"),
        pd.Series([element.sign for element in elements], dtype=np.int64),
        *(frame.iloc[:, position] for position in range(len(attributes))),
        *(pd.Series([getattr(element, name) for element in elements], dtype=object) for name in ends),
    ]
    table = pd.concat(columns, axis=1)
    table.columns = pd.Index([NUMBER, TAU, SIGN, *own, *ends])
    table.attrs = frame.attrs
    return table


def tabulate_given(elements: Sequence[LiveElement], given: Integers, attributes: Attributes) -> "pandas.DataFrame":
    """Return elements as a table: `tau` (UTC), `sign`, the select list, `given` and `corrects`.

    A column of the select list that has one of the last names gets "_2" behind it.

    Parameters
    ----------
    given
        When each was given [ns].
    """
    frame = tabulate_rows([element.row for element in elements], attributes)
    columns = [
        _make_column([element.tau for element in elements], "time"),
        pd.Series([element.sign for element in elements], dtype=np.int64),
        *(frame.iloc[:, position] for position in range(len(attributes))),
        _make_column(given.tolist(), "time"),
        pd.Series([element.is_correction for element in elements], dtype=bool),
    ]
    table = pd.concat(columns, axis=1)
    own = [f"{part.name}_2" if part.name in (GIVEN, CORRECTS) else part.name for part in attributes]
    table.columns = pd.Index([TAU, SIGN, *own, GIVEN, CORRECTS])
    table.attrs = frame.attrs
    return table


def tabulate_rows(rows: Sequence[Row], attributes: Attributes) -> "pandas.DataFrame":
    """Return rows as a table of the select list."""
    columns = [_make_column([row[position] for row in rows], part.kind) for position, part in enumerate(attributes)]
    table = pd.concat(columns, axis=1)
    table.columns = pd.Index([part.name for part in attributes])
    units = {part.name: part.unit for part in attributes if part.unit is not None}
    if units:
        table.attrs["units"] = units
    return table


def _make_column(values: list[Any], kind: Kind) -> "pandas.Series[Any]":
    if kind == "time":
        instants = np.array([NULL_INTEGER if value is None else value for value in values], np.int64)
        # NULL is the integer of NaT.
        return pd.Series(instants.view("datetime64[ns]")).dt.tz_localize("UTC")
    if kind == "number":
        return pd.Series(np.array([np.nan if value is None else value for value in values], np.float64))
    if kind == "text":
        return pd.Series(values, dtype=object)
    whole, missing = ("int64", "Int64") if kind == "integer" else ("bool", "boolean")
    return pd.Series(values, dtype=missing if None in values else whole)
