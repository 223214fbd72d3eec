"""Recognition of columns that hold no measurement: arrivals by their names, stations by how their values repeat.

Only a dry run asks for them, so that what is ingested without a deployment file is read as it always was.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.batch.column_names import VARIABLES_BY_NAME, guess_column
from ingest.formats import Layout, ReadOptions
from ingest.formats.csv import read_texts
from ingest.formats.csv_lines import parse_number
from ingest.formats.file_metadata import ARRIVAL, normalise_name
from ingest.formats.timestamps import AmbiguousDates, fits, recognise_form

_STATIONS_MOST: Final = 5_000
_ROWS_EACH: Final = 3
"""Minimum number of rows of a station, on average."""
_COVERED: Final = 0.3
"""Share of the times between its first and last row that a station usually has at least."""
_SHARED: Final = 0.8
"""Share of rows below which the number of distinct times is where stations share them."""
_SLACK: Final = 0.02
"""Share of rows that may be out of order within a station, such as an hour that is there twice."""
_INTEGER: Final = re.compile(r"\d{1,12}")
_WITHIN_STATION: Final = re.compile(
    r"depth|tiefe|prof(ondeur|ondita|undidad)|height|hoehe|höhe|hauteur|altezza|altura|level|layer|schicht|horizon|"
    r"channel|kanal|sensor|sonde|probe|replicate|flag|quality|qc|status|state",
    re.IGNORECASE,
)
"""Words of columns that tell apart what one station measures, or how well."""


@dataclass(frozen=True)
class ColumnRoles:
    """Columns of stations and arrivals; empty if there is none to be recognised."""

    station: str = ""
    arrival: str = ""
    notes: tuple[str, ...] = ()
    """The reasons."""

    def apply_to(self, options: ReadOptions) -> ReadOptions:
        """Return the options with these columns."""
        text = replace(options.text, arrival_column=self.arrival) if self.arrival else options.text
        return replace(options, station_column=self.station or options.station_column, text=text)


def recognise_roles(data: bytes, layout: Layout) -> ColumnRoles:
    """Recognise the roles of a text table's columns.

    Parameters
    ----------
    data
        Whole lines below the header.
    layout
        The layout of the table, from which the columns of the times are known.
    """
    texts, time_ns = read_texts(data, layout)
    form, options = layout.options.text, layout.options
    taken = {*form.time_columns, form.variable_column, form.value_column, form.unit_column, form.flag_column}
    free = [name for name in layout.header if name not in taken]
    arrival = next((name for name in free if _holds_arrivals(name, texts, form.time_format or "")), "")
    notes = [f"{arrival!r} is the arrival, by its name"] if arrival else []
    station = ""
    if options.station_column not in layout.header and not form.across:
        series = pc.dictionary_encode(texts[form.variable_column]).indices.to_numpy() if form.long else None
        candidates = [name for name in free if name != arrival]
        station, reason = _find_station(candidates, texts, time_ns, series)
        notes += [reason] if reason else []
    return ColumnRoles(station, arrival, tuple(notes))


def _holds_arrivals(name: str, texts: Mapping[str, pa.Array], time_format: str) -> bool:
    if normalise_name(name) not in ARRIVAL:
        return False
    sample = texts[name][:200].to_pylist()
    try:
        return recognise_form(sample) is not None
    except AmbiguousDates:
        return fits(sample, time_format)


def _find_station(
    names: list[str], texts: Mapping[str, pa.Array], time_ns: NDArray[np.int64], series: NDArray[np.int32] | None
) -> tuple[str, str]:
    """Return the column that tells rows of one time apart, and the reason; empty if there is none.

    Of one that is no station by its name, only what to do is returned.

    Parameters
    ----------
    names
        Columns that may hold it.
    time_ns
        Instants of the rows [ns since 1970 UTC], shape (n,).
    series
        Variable of each row of a long table, shape (n,).
    """
    best: tuple[tuple[int, bool], str, str] | None = None
    for name in names:
        if guess_column(name).variable.name in VARIABLES_BY_NAME:
            continue
        encoded = pc.dictionary_encode(pc.utf8_trim_whitespace(texts[name]))
        values, code = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
        is_integer = all(_INTEGER.fullmatch(value) for value in values)
        is_text = not any(parse_number(value, ",") is not None for value in values)
        if not 2 <= len(values) <= min(_STATIONS_MOST, len(code) / _ROWS_EACH) or not (is_integer or is_text):
            continue
        if "" in values or not _separates(code, time_ns, series):
            continue
        rank = (len(values), is_integer)
        if best is None or rank < best[0]:
            shown = ", ".join(values[:3]) + (" …" if len(values) > 3 else "")
            reason = (
                f"{name!r} is the station, by its values: {len(values)} in {len(code)} rows ({shown}), each with "
                "times of its own in order"
            )
            best = rank, name, reason
    if best is not None and _WITHIN_STATION.search(best[1]):
        return "", (
            f"{best[1]!r} TELLS ROWS OF ONE TIME APART, and is no station by its name: give each of its values a file "
            "or a column of its own, or rows of one time replace one another"
        )
    return best[1:] if best is not None else ("", "")


def _separates(code: NDArray[np.int64], time_ns: NDArray[np.int64], series: NDArray[np.int32] | None) -> bool:
    """Return whether times are in order and regular within each value of a column, and not without it."""
    variables = np.zeros(len(code), np.int64) if series is None else series.astype(np.int64)
    groups = _split(code * (int(variables.max(initial=0)) + 1) + variables)
    within, together = (
        np.concatenate([np.diff(time_ns[rows]) for rows in parts]) for parts in (groups, _split(variables))
    )
    back = int(np.count_nonzero(within <= 0))
    if back > _SLACK * len(code):
        return False
    regular = [_is_regular(np.diff(time_ns[rows])) for rows in groups if len(rows) > 2]
    are_regular = sum(regular) >= max(1, 0.8 * len(regular))
    pairs = np.unique(np.stack([variables, time_ns]), axis=1).shape[1]
    # Several rows at one time, or one station after the other.
    if pairs <= _SHARED * len(code) or np.count_nonzero(together <= 0) > 2 * back + 1:
        return are_regular or _are_covered(groups, time_ns)
    return are_regular and not _is_regular(together)


def _are_covered(groups: list[NDArray[np.intp]], time_ns: NDArray[np.int64]) -> bool:
    """Return whether most groups have many of all times between their first and their last one."""
    times = np.unique(time_ns)
    own = [time_ns[rows] for rows in groups]
    between = [np.searchsorted(times, part.max(), side="right") - np.searchsorted(times, part.min()) for part in own]
    return float(np.median([len(part) / count for part, count in zip(own, between, strict=True)])) >= _COVERED


def _is_regular(gaps_ns: NDArray[np.int64]) -> bool:
    """Return whether most gaps are nearly the usual one."""
    if not len(gaps_ns):
        return False
    usual = float(np.median(gaps_ns))
    return usual > 0 and float(np.mean(np.abs(gaps_ns - usual) <= 0.25 * usual)) >= 0.7


def _split(group: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Return the rows of each group."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
