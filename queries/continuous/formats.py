"""Rows of continuous queries as bytes: JSON, CSV, Parquet, Arrow."""

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from hypergrid.continuous.expressions import Attribute, Attributes, Kind
from hypergrid.core.times import format_timestamp
from hypergrid.formats.results import escape_formula
from queries.continuous.explanation import JsonObject, describe_attributes
from queries.continuous.records import BacktestRows

if TYPE_CHECKING:
    import pandas

    from hypergrid.continuous.live import GivenElement


@dataclass(frozen=True, eq=False)
class RowsTable:
    """Rows with what a file says of them."""

    frame: "pandas.DataFrame"
    columns: Attributes
    """Of each column, in order."""
    head: JsonObject = field(default_factory=dict)
    """What JSON says besides."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What Parquet and Arrow say besides."""


@dataclass(frozen=True)
class RowsFormat:
    """Format of rows."""

    suffix: str
    media_type: str
    to_bytes: Callable[[RowsTable], bytes]


def tabulate_backtest(result: BacktestRows) -> RowsTable:
    """Return the result of a back-test as a table."""
    backtest = result.backtest
    head = {
        "result": "stream" if backtest.is_stream else "relation",
        # Behind tau and sign.
        "keys": [position + 2 for position in backtest.keys],
        "start": format_timestamp(backtest.window.start_ns),
        "end": format_timestamp(backtest.window.stop_ns),
        "order": backtest.question.order,
        "snapshot": backtest.snapshot,
    }
    metadata = {"query": backtest.question.text, "snapshot": backtest.snapshot}
    return RowsTable(result.frame, (*_CHANGE, *backtest.attributes), head, metadata)


def tabulate_elements(elements: "Sequence[GivenElement]", attributes: Attributes, *, head: JsonObject) -> RowsTable:
    """Return elements of a kept query as a table: number, instant, sign, the select list, and what they correct."""
    from hypergrid.continuous.live import tables  # noqa: PLC0415 - loads numba

    columns = (Attribute("number", "integer"), *_CHANGE, *attributes, *_VERSIONS)
    return RowsTable(tables.tabulate_elements(elements, attributes), columns, head)


def tabulate_relation(
    counts: "Counter[tuple[Any, ...]]", attributes: Attributes, *, limit: int, head: JsonObject
) -> RowsTable:
    """Return the rows of a relation as a table, at most `limit`."""
    from hypergrid.continuous.live import tables  # noqa: PLC0415 - as above

    return RowsTable(tables.tabulate_rows(list(islice(counts.elements(), limit)), attributes), attributes, head)


_VERSIONS: Final = (Attribute("corrects", "text"), Attribute("snapshot", "text"))
_CHANGE: Final = (Attribute("tau", "time"), Attribute("sign", "integer"))


def _write_json(table: RowsTable) -> bytes:
    columns = [_list_values(table.frame.iloc[:, position], part.kind) for position, part in enumerate(table.columns)]
    document = {
        **table.head,
        "columns": describe_attributes(table.columns),
        "rows": list(zip(*columns, strict=True)),
    }
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def _list_values(column: "pandas.Series[Any]", kind: Kind) -> list[Any]:
    missing = column.isna().to_list()
    if kind == "time":
        instants = column.dt.tz_localize(None) if column.dt.tz is not None else column
        values: list[Any] = [
            None if is_missing else format_timestamp(int(instant))
            for instant, is_missing in zip(instants.to_numpy("datetime64[ns]").astype("int64"), missing, strict=True)
        ]
        return values
    # An infinite number has no JSON.
    limit = float("inf")
    return [
        None if is_missing or value in (limit, -limit) else value
        for value, is_missing in zip(column.to_list(), missing, strict=True)
    ]


def _write_csv(table: RowsTable) -> bytes:
    frame = _name_columns(table)
    for name in frame:
        if frame[name].dtype == object:
            frame[name] = frame[name].map(escape_formula)
        elif frame[name].dtype.kind == "M":
            frame[name] = _list_values(frame[name], "time")
    return str(frame.to_csv(index=False)).encode()


def _write_parquet(table: RowsTable) -> bytes:
    sink = io.BytesIO()
    pq.write_table(_make_table(table), sink)
    return sink.getvalue()


def _write_arrow(table: RowsTable) -> bytes:
    made, sink = _make_table(table), io.BytesIO()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    return sink.getvalue()


def _make_table(table: RowsTable) -> pa.Table:
    """Return the rows as a table whose fields have their units, and types that do not depend on the values."""
    frame = _name_columns(table)
    fields = [
        pa.field(name, _TYPES[part.kind], metadata={"unit": part.unit} if part.unit else None)
        for name, part in zip(frame, table.columns, strict=True)
    ]
    return pa.Table.from_pandas(frame, pa.schema(fields), preserve_index=False).replace_schema_metadata(
        dict(table.metadata)
    )


_TYPES: Final[dict[Kind, pa.DataType]] = {
    "number": pa.float64(),
    "integer": pa.int64(),
    "time": pa.timestamp("ns", "UTC"),
    "text": pa.string(),
    "boolean": pa.bool_(),
}


def _name_columns(table: RowsTable) -> "pandas.DataFrame":
    """Return the rows with names that differ, as the columns of a table must."""
    met: Counter[str] = Counter()
    names = []
    for name in map(str, table.frame.columns):
        met[name] += 1
        names.append(name if met[name] == 1 else f"{name}_{met[name]}")
    frame: pandas.DataFrame = table.frame.set_axis(names, axis=1)
    return frame


ROWS_FORMATS: Final = {
    "json": RowsFormat(".json", "application/json", _write_json),
    "csv": RowsFormat(".csv", "text/csv", _write_csv),
    "parquet": RowsFormat(".parquet", "application/vnd.apache.parquet", _write_parquet),
    "arrow": RowsFormat(".arrow", "application/vnd.apache.arrow.stream", _write_arrow),
}
"""Formats by name, the default first."""
