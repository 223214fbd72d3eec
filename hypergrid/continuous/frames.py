"""Tables as streams and relations: attributes of their columns, batches of their rows, and results as tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hypergrid.continuous.columns import check_frame, encode_column, instants_of, kind_of, unit_of
from hypergrid.continuous.engine import ChangeBatch, ElementBatch, Texts
from hypergrid.continuous.engine.batch import PHYSICAL, Column, Integers, Signs
from hypergrid.continuous.engine.row_table import RowTable, pack
from hypergrid.continuous.expressions import NULL_INTEGER, Attribute, Attributes, Kind, null_of
from hypergrid.continuous.records import SIGN, TAU, StreamCatalogue
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.lazy_libraries import pd

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class FrameSource:
    """Tables by name, with what queries may name.

    A table with a column `tau` (instants: datetime64, or integers in nanoseconds) is a stream; one with `tau` and
    `sign` (+1 or -1) a relation that changes; one without `tau` a relation that does not.
    """

    frames: Mapping[str, "pandas.DataFrame"]
    catalogue: StreamCatalogue
    has_datetimes: bool
    """Whether an instant is given as datetime64, as results then are."""


def read_frames(frames: Mapping[str, "pandas.DataFrame"], views: Mapping[str, str]) -> FrameSource:
    """Return tables as streams and relations.

    Parameters
    ----------
    frames
        Tables by name. Units of columns are those of ``frame.attrs["units"]``, by column.
    views
        Text of the query that each view stands for.

    Raises
    ------
    InvalidQuery
        A table is none, a column has a type without a kind, instants or signs are not valid, or a view has the name
        of a table.
    """
    streams: dict[str, Attributes] = {}
    relations: dict[str, Attributes] = {}
    static: list[str] = []
    rates: dict[str, float] = {}
    counts: dict[str, float] = {}
    for name, frame in frames.items():
        check_frame(name, frame)
        if name in views:
            raise InvalidQuery(f"{name!r} is the name of a table and of a view; give one another name")
        attributes = tuple(
            Attribute(column, kind_of(name, column, frame[column]), unit_of(frame, column))
            for column in frame.columns
            if column not in (TAU, SIGN) or TAU not in frame.columns
        )
        if TAU not in frame.columns:
            relations[name] = attributes
            static.append(name)
            continue
        taus = instants_of(name, frame[TAU])
        if SIGN in frame.columns:
            relations[name] = attributes
            if not frame[SIGN].isin((-1, 1)).all():
                raise InvalidQuery(f"table {name!r} needs signs of +1 or -1")
            continue
        streams[name] = attributes
        counts[name] = float(len(taus))
        if len(taus) > 1 and taus.max() > taus.min():
            rates[name] = len(taus) / (float(taus.max() - taus.min()) / 1e9)
    catalogue = StreamCatalogue(streams, relations, dict(views), static=frozenset(static), rates=rates, counts=counts)
    has_datetimes = any(frame[TAU].dtype.kind == "M" for frame in frames.values() if TAU in frame.columns)
    return FrameSource(frames, catalogue, has_datetimes)


def batch_of(source: FrameSource, name: str, attributes: Attributes, texts: Texts) -> ElementBatch:
    """Return the rows of a table in order of time, those of one instant in the order of the table.

    Raises
    ------
    InvalidQuery
        A relation removes a row that it does not hold, or a value does not fit its column.
    """
    frame = source.frames[name]
    columns = tuple(encode_column(name, frame[part.name], part.kind, texts) for part in attributes)
    if TAU not in frame.columns:
        return ElementBatch(np.full(len(frame), NULL_INTEGER), columns)
    tau = instants_of(name, frame[TAU])
    sign = frame[SIGN].to_numpy(np.int8) if name in source.catalogue.relations else None
    if (np.diff(tau) < 0).any():
        order = np.argsort(tau, kind="stable")
        tau, columns = tau[order], tuple(column[order] for column in columns)
        sign = None if sign is None else sign[order]
    if sign is not None:
        _check_removals(name, tau, sign, columns)
    return ElementBatch(tau, columns, sign)


def _check_removals(name: str, tau: Integers, sign: Signs, columns: Sequence[Column]) -> None:
    """Raise `InvalidQuery` if a relation removes a row before it is there: no operator expects that."""
    if not (sign < 0).any():
        return
    numbers = RowTable(len(columns)).intern(pack(columns, len(tau)))
    order = np.argsort(numbers, kind="stable")
    # How often each row is there after each change: sums over the changes of equal rows.
    sums = np.cumsum(sign[order], dtype=np.int64)
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    before = np.repeat(np.append(0, sums)[starts], np.diff(starts, append=len(order)))
    absent = order[sums < before]
    if len(absent):
        raise InvalidQuery(
            f"relation {name!r} removes at {tau[absent.min()]} ns a row that it does not hold; "
            "give the row as it was added"
        )


def frame_of(
    batches: Sequence[ChangeBatch], attributes: Attributes, texts: Texts, *, has_datetimes: bool
) -> "pandas.DataFrame":
    """Return changes as a table: `tau`, `sign`, then the attributes."""
    taus = _join([batch.tau for batch in batches], np.int64)
    signs = _join([batch.sign for batch in batches], np.int8)
    frame = _tabulate(_columns(batches, attributes), attributes, texts)
    frame.insert(0, TAU, taus.view("datetime64[ns]") if has_datetimes else taus)
    frame.insert(1, SIGN, signs.astype(np.int64))
    return frame


def rows_of(batches: Sequence[ChangeBatch], attributes: Attributes, texts: Texts) -> "pandas.DataFrame":
    """Return the rows that a relation holds after changes, as a table, in the order in which they first entered."""
    columns = _columns(batches, attributes)
    signs = _join([batch.sign for batch in batches], np.int8)
    numbers = RowTable(len(columns)).intern(pack(columns, len(signs)))
    # A row is there as often as it entered more than it left.
    distinct, first = np.unique(numbers, return_index=True)
    counts = np.bincount(numbers, weights=signs, minlength=len(distinct)).astype(np.int64)
    present = np.repeat(first, counts)
    return _tabulate([column[present] for column in columns], attributes, texts)


def _tabulate(columns: Sequence[Column], attributes: Attributes, texts: Texts) -> "pandas.DataFrame":
    """Return columns of the engine as a table with units."""
    parts = [_decode(column, part.kind, texts) for column, part in zip(columns, attributes, strict=True)]
    frame = pd.concat(parts, axis=1)
    frame.columns = pd.Index([part.name for part in attributes])
    units = {part.name: part.unit for part in attributes if part.unit is not None}
    if units:
        frame.attrs["units"] = units
    return frame


def _columns(batches: Sequence[ChangeBatch], attributes: Attributes) -> list[Column]:
    return [
        _join([batch.columns[position] for batch in batches], PHYSICAL[part.kind])
        for position, part in enumerate(attributes)
    ]


def _join(parts: Sequence[NDArray[Any]], dtype: DTypeLike) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])


def _decode(column: Column, kind: Kind, texts: Texts) -> "pandas.Series[Any]":
    """Return a column as a table shows it: NULL is NaN, NaT, None or NA."""
    if kind == "number":
        return pd.Series(column)
    if kind == "time":
        return pd.Series(column.view("datetime64[ns]"))
    if kind == "text":
        return pd.Series(texts.decode(column), dtype=object)
    missing = column == null_of(kind)
    values = column.astype(bool) if kind == "boolean" else column
    if not missing.any():
        return pd.Series(values)
    return pd.Series(pd.array(np.where(missing, 0, values), dtype="boolean" if kind == "boolean" else "Int64")).mask(
        missing
    )
