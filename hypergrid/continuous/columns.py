"""Columns of tables: what is checked of them, their kinds and units, and their values as the engine holds them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.engine import Texts
from hypergrid.continuous.engine.batch import EMPTY, PHYSICAL, Column, Integers
from hypergrid.continuous.expressions import GREATEST_INTEGER, NULL_INTEGER, Kind, null_of
from hypergrid.continuous.records import SIGN, TAU
from hypergrid.core.errors import InvalidQuery, InvalidUnit
from hypergrid.core.lazy_libraries import pd
from hypergrid.core.units import check_unit

if TYPE_CHECKING:
    import pandas

_KINDS: Final[dict[str, Kind]] = {"f": "number", "i": "integer", "u": "integer", "b": "boolean", "M": "time"}
_INFERRED: Final[dict[str, Kind]] = {
    "string": "text",
    "empty": "text",
    "boolean": "boolean",
    "integer": "integer",
    "floating": "number",
    "mixed-integer-float": "number",
}
"""Kinds of columns of objects, by what all of them are that are not missing."""


def check_frame(name: str, frame: object) -> None:
    """Raise `InvalidQuery` unless a table is one of named columns that differ, with units that are known."""
    if not isinstance(frame, pd.DataFrame):
        raise InvalidQuery(f"table {name!r} needs a pandas.DataFrame; got {type(frame).__name__}")
    for column in frame.columns:
        if not isinstance(column, str):
            raise InvalidQuery(f"table {name!r} needs texts as names of its columns; got {column!r}: rename it")
    names = list(frame.columns)
    if frame.columns.has_duplicates:
        twice = next(column for column in names if names.count(column) > 1)
        raise InvalidQuery(f"table {name!r} has two columns {twice!r}; rename one of them")
    special = (TAU, SIGN) if any(column.lower() == TAU for column in names) else ()
    for column in names:
        if column.lower() in special and column not in special:
            raise InvalidQuery(f"table {name!r} has a column {column!r}; rename it to {column.lower()!r}")
    _check_units(name, frame)


def _check_units(name: str, frame: "pandas.DataFrame") -> None:
    units = frame.attrs.get("units", {})
    if not isinstance(units, Mapping):
        raise InvalidQuery(f"table {name!r} needs attrs['units'] as a mapping of columns to units; got {units!r}")
    for column, unit in units.items():
        if unit is None:
            continue
        if not isinstance(unit, str):
            raise InvalidQuery(f"the unit of column {column!r} of table {name!r} needs to be a text; got {unit!r}")
        try:
            check_unit(unit)
        except InvalidUnit as error:
            raise InvalidQuery(f"column {column!r} of table {name!r}: {error}") from error


def unit_of(frame: "pandas.DataFrame", column: str) -> str | None:
    """Return the unit of a column, None if it has none."""
    unit: str | None = frame.attrs.get("units", {}).get(column)
    return unit


def kind_of(name: str, column: str, values: "pandas.Series[Any]") -> Kind:
    """Return the kind of a column; that of categories and objects is the kind of all that are not missing.

    Raises
    ------
    InvalidQuery
        It has none.
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.cat.categories.to_series()
    kind = _KINDS.get(values.dtype.kind)
    if kind is not None:
        return kind
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    if inferred not in _INFERRED:
        raise InvalidQuery(
            f"column {column!r} of table {name!r} needs numbers, integers, booleans, instants or texts; got {inferred} "
            f"({values.dtype}): convert it by astype"
        )
    return _INFERRED[inferred]


def instants_of(name: str, values: "pandas.Series[Any]") -> Integers:
    """Return the instants of a column [ns], shape (n,).

    Raises
    ------
    InvalidQuery
        Instants are missing, of another type, or beyond the years 1678 to 2262.
    """
    if not len(values):
        return EMPTY
    if values.dtype.kind not in "iuM":
        raise InvalidQuery(
            f"column {TAU!r} of table {name!r} needs datetime64, or integers in nanoseconds; got {values.dtype}"
        )
    if values.isna().any():
        raise InvalidQuery(f"column {TAU!r} of table {name!r} has missing instants; drop these rows")
    taus = _to_nanoseconds(name, values) if values.dtype.kind == "M" else _to_integers(name, values)
    # The heartbeat past the last instant is an integer, too.
    _refuse_rows(name, TAU, values, taus == GREATEST_INTEGER)
    return taus


def encode_column(name: str, values: "pandas.Series[Any]", kind: Kind, texts: Texts) -> Column:
    """Return a column as the engine holds it.

    Raises
    ------
    InvalidQuery
        A value cannot be held; the message names the row.
    """
    if kind == "text":
        return _encode_texts(name, values, texts)
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object if kind in ("integer", "boolean") else values.cat.categories.dtype)
    if kind == "time":
        return _to_nanoseconds(name, values)
    if kind == "number":
        return values.to_numpy(np.float64, na_value=np.nan)
    missing = values.isna().to_numpy()
    if not missing.any():
        return _to_integers(name, values)
    held: Column = np.full(len(values), null_of(kind), PHYSICAL[kind])
    held[~missing] = _to_integers(name, values, ~missing)
    return held


def _encode_texts(name: str, values: "pandas.Series[Any]", texts: Texts) -> Column:
    codes, distinct = pd.factorize(values)
    words = [str(text) for text in distinct]
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        bad = next(code for code, word in enumerate(words) if word != word.encode(errors="replace").decode())
        row = int(np.argmax(codes == bad)) + 1
        raise InvalidQuery(
            f"column {values.name!r} of table {name!r} needs texts of Unicode; got {words[bad]!r}, half of a pair of "
            f"surrogates, in row {row}"
        ) from None
    table = np.append(texts.encode(words), null_of("text"))
    return np.asarray(table.astype(np.int64)[codes])


def _to_integers(name: str, values: "pandas.Series[Any]", present: NDArray[np.bool_] | slice = slice(None)) -> Integers:
    """Return integers or booleans, without the rows that are missing; -2**63 stands for NULL, so it is refused."""
    if values.dtype.kind in "ib":
        integers = values[present].to_numpy(np.int64)
        bad = integers == NULL_INTEGER
    elif values.dtype.kind == "u":
        unsigned = values[present].to_numpy(np.uint64)
        integers, bad = unsigned.astype(np.int64), unsigned > GREATEST_INTEGER
    else:
        given = values[present].to_numpy(object)
        bad = np.array([not NULL_INTEGER < value <= GREATEST_INTEGER for value in given], bool)
        integers = np.where(bad, 0, given).astype(np.int64)
    whole = np.zeros(len(values), bool)
    whole[present] = bad
    _refuse_rows(name, str(values.name), values, whole)
    return integers


def _to_nanoseconds(name: str, values: "pandas.Series[Any]") -> Integers:
    """Return instants [ns]; those that are missing are NULL."""
    if getattr(values.dtype, "tz", None) is not None:
        values = values.dt.tz_convert("UTC").dt.tz_localize(None)
    given = values.to_numpy()
    nanoseconds = given.astype("datetime64[ns]")
    # What does not fit wraps, and does not come back.
    _refuse_rows(name, str(values.name), values, (nanoseconds.astype(given.dtype) != given) & ~np.isnat(given))
    return np.asarray(nanoseconds.view(np.int64))


def _refuse_rows(name: str, column: str, values: "pandas.Series[Any]", bad: NDArray[np.bool_]) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        needed = "instants from 1678 to 2262" if values.dtype.kind == "M" else "integers of 64 bits above -2**63"
        if column == TAU and values.dtype.kind != "M":
            needed += " and below 2**63 - 1"
        raise InvalidQuery(
            f"column {column!r} of table {name!r} needs {needed}; got {values.iloc[row]} in row {row + 1}"
        )
