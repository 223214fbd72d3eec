"""Tables of the user in files, CSV or Parquet, as frames whose columns have checked types.

In CSV an empty cell is missing, texts that all are ISO 8601 instants are instants, and a column `tau` must hold such
instants, or whole numbers of nanoseconds since 1970.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hypergrid.continuous.archive_catalogue import NEIGHBOUR_ATTRIBUTES, STATION_ATTRIBUTES
from hypergrid.continuous.expressions import Attributes, Kind
from hypergrid.continuous.records import SIGN, TAU
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.lazy_libraries import pd
from hypergrid.core.times import parse_instant

if TYPE_CHECKING:
    import pandas

_KEYS: Final = ("station", "neighbour", "variable")
_OF_ARCHIVE: Final = (*STATION_ATTRIBUTES, *NEIGHBOUR_ATTRIBUTES)

_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")
_ARTICLES: Final = {"integer": "an"}


def read_table(name: str, path: Path) -> "pandas.DataFrame":
    """Read a table from a file.

    Parameters
    ----------
    name
        Name of the stream or relation, for messages.

    Raises
    ------
    NotFound
        The file does not exist.
    InvalidQuery
        It is not of its kind, a name of a column repeats, or a column has values of different types.
    """
    label = f"table {name!r}"
    if not path.is_file():
        raise NotFound(f"{label}: the file {path} does not exist")
    try:
        frame = _read_file(path)
    except (OSError, ValueError, ImportError) as error:
        raise InvalidQuery(f"{label}: {path} cannot be read as {path.suffix or 'CSV'}: {error}") from error
    if frame.columns.has_duplicates:
        raise InvalidQuery(f"{label} needs columns of different names; got {', '.join(map(str, frame.columns))}")
    for column in frame.columns:
        frame[column] = _settle_type(label, frame[column], is_tau=column == TAU)
    return frame


def _read_file(path: Path) -> "pandas.DataFrame":
    if path.suffix.lower() in (".parquet", ".pq"):
        return pd.read_parquet(path)
    # Texts such as "NA" are texts, and numbers are the nearest to what is written.
    return pd.read_csv(path, keep_default_na=False, na_values=[""], float_precision="round_trip", low_memory=False)


def _settle_type(label: str, column: "pandas.Series[Any]", *, is_tau: bool) -> "pandas.Series[Any]":
    if column.dtype.kind in "iubfM" and not (is_tau and column.dtype.kind in "fb"):
        return column
    present = [value for value in column if not _is_missing(value)]
    if is_tau or (present and all(isinstance(value, str) and _INSTANT.fullmatch(value) for value in present)):
        return _convert(label, column, "time")
    odd = next((value for value in present if not isinstance(value, str)), None)
    if odd is None or all(isinstance(value, bool) for value in present):
        return column
    number = next(row for row, value in enumerate(column, start=1) if value is odd)
    raise InvalidQuery(
        f"{label} needs values of one type in the column {column.name!r}; got texts and {odd!r} in row {number}"
    )


def match_archive(name: str, frame: "pandas.DataFrame") -> "pandas.DataFrame":
    """Return a table beside an archive: ids of stations and names of variables are texts, as they are there.

    Columns that a relation of the archive has have its units, unless the table says others.
    """
    label = f"table {name!r}"
    numbered = [each for each in _KEYS if each in frame and frame[each].dtype.kind in "iuf"]
    keys = {each: _convert(label, frame[each], "text") for each in numbered}
    matched = frame.assign(**keys) if keys else frame.copy(deep=False)
    units = {part.name: part.unit for part in _OF_ARCHIVE if part.name in frame and part.unit is not None}
    matched.attrs = {**frame.attrs, "units": {**units, **frame.attrs.get("units", {})}}
    return matched


def check_table(name: str, frame: "pandas.DataFrame", declared: Attributes) -> "pandas.DataFrame":
    """Return a table with the declared columns in the declared types, in this order, and its instants and signs.

    Raises
    ------
    InvalidQuery
        A column is missing, or has a value of another type; the message names the row.
    """
    label = f"table {name!r}"
    names = [str(each) for each in frame.columns if each not in (TAU, SIGN)]
    missing = [part.name for part in declared if part.name not in names]
    if missing:
        raise InvalidQuery(f"{label} needs the column {missing[0]!r}; got {', '.join(names) or 'none'}")
    columns = {each: frame[each] for each in (TAU, SIGN) if each in frame}
    columns |= {part.name: _convert(label, frame[part.name], part.kind) for part in declared}
    checked = pd.DataFrame(columns)
    checked.attrs = {"units": {part.name: part.unit for part in declared if part.unit is not None}}
    return checked


def _convert(label: str, column: "pandas.Series[Any]", kind: Kind) -> "pandas.Series[Any]":
    """Return a column in the type of a kind."""
    if column.dtype.kind in {"number": "fiu", "integer": "iu", "time": "M", "boolean": "b"}.get(kind, ""):
        return column.astype(np.float64) if kind == "number" else column
    values: list[Any] = []
    for number, value in enumerate(column, start=1):
        try:
            values.append(None if _is_missing(value) else _VALUES[kind](value))
        except (TypeError, ValueError, KeyError, OverflowError, HyperGridError) as error:
            article = _ARTICLES.get(kind, "a")
            raise InvalidQuery(
                f"{label} needs {article} {kind} in the column {column.name!r}; got {value!r} in row {number}"
            ) from error
    types: dict[Kind, Any] = {"number": np.float64, "integer": "Int64", "boolean": "boolean", "text": object}
    if kind == "time":
        instants = [np.datetime64("NaT") if value is None else np.datetime64(value, "ns") for value in values]
        return pd.Series(np.array(instants, "datetime64[ns]"), name=column.name)
    return pd.Series(values, dtype=types[kind], name=column.name)


def _is_missing(value: object) -> bool:
    return value is None or value is pd.NaT or value is pd.NA or (isinstance(value, float) and np.isnan(value))


def _to_number(value: object) -> float:
    if isinstance(value, bool | np.bool_):
        raise TypeError(value)
    return float(value)  # type: ignore[arg-type]


def _to_integer(value: object) -> int:
    number = _to_number(value)
    if number != int(number):
        raise ValueError(value)
    return int(value)  # type: ignore[call-overload, no-any-return]


def _to_instant(value: object) -> int:
    return int(value) if isinstance(value, int | np.integer) else parse_instant(value)


def _to_text(value: object) -> str:
    # A column of ids of which one is missing is of numbers in pandas.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _to_boolean(value: object) -> bool:
    return {"true": True, "false": False}[str(value).lower()]


_VALUES: Final[dict[Kind, Callable[[object], Any]]] = {
    "number": _to_number,
    "integer": _to_integer,
    "time": _to_instant,
    "text": _to_text,
    "boolean": _to_boolean,
}
