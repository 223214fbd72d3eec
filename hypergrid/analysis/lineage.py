"""What a cell of a result was made of: its stations, its readings, and what changed since (`hg.lineage`).

Thesis, section 6.2: the readings with their flags, arrivals and earlier versions that made a cell are found from the
result's query at the snapshot that it cites, and compared with those of the newest snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.analysis.incremental import clip_query, move_to_snapshot
from hypergrid.analysis.reproduce import find_cited_query, open_result
from hypergrid.archive.diff import find_differences
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, NotFound
from hypergrid.core.lazy_libraries import pd, xr
from hypergrid.core.readings import Readings, Series
from hypergrid.core.result_names import drop_file_variables, value_of
from hypergrid.core.times import SECOND_NS, Window, format_instant, parse_instant
from hypergrid.core.units import unit_symbol
from hypergrid.execution import make_plan
from hypergrid.execution.planning.dependencies import list_fitted_steps
from hypergrid.execution.running.trace import Trace, TracedReadings, find_values, trace
from hypergrid.perspective import Base, Interpolate, Perspective, Surface
from hypergrid.perspective.build.restrict import are_instants, restrict
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.query import ARCHIVE_FOLDER, OpenArchive, Query, open_archive
from hypergrid.topology import Instants, Periodic, SeriesAxis, TimeAxis, axes_of, blocks_of

NAMED: Final = 8
"""Stations and kinds of readings named in a description."""
ROUNDING: Final = 1e-9
"""Relative difference of two computations of a cell that is rounding."""
CHANGES: Final[Mapping[str, str]] = {
    "new": "new", "replaced": "replaced", "flags": "given another flag", "gone": "withdrawn"
}  # fmt: skip
"""Kinds of changes of a reading, with their words."""


@dataclass(frozen=True, eq=False)
class Lineage:
    """What a cell of a result was made of, and what changed since."""

    cell: Mapping[str, Any]
    """Coordinates of the cell by dimension; times as their bounds, in text."""
    variable: str
    unit: str
    value: float
    """The value that the result holds."""
    recomputed: float
    """The value that its query gives from the readings listed here."""
    now: float | None
    """The value that its query gives from the newest snapshot; None if the cells differ there, or nothing changed."""
    steps: tuple[str, ...]
    """The steps from the surface down, each with the number of its cells that the cell was made of."""
    stations: pd.DataFrame
    """Stations that reported: variable, station, distance_m, weight (mean over slices, NaN if not known), slices in
    which each was used, and of_slices; those not used have 0. Without an interpolation it is empty."""
    readings: pd.DataFrame
    """Readings of the stations that were used, in the cell: variable, station, time, value [the archive's unit], flag,
    arrival, versions (1: never replaced), used, and reason, if not."""
    changes: pd.DataFrame
    """Readings in the cell's time that differ in the newest snapshot: variable, station, time, change, value_then,
    value_now, flag_then, flag_now, arrival, and whether the reading that was there had been used."""
    uncertain: pd.DataFrame
    """Readings of which it depends on their clocks, right only within a bound, whether the cell has them: variable,
    station, time, value, flag, clock_error_s, and whether it has each by its stamp (used)."""
    snapshot: str
    """Snapshot, or instant, that the readings are of."""
    newest: str
    """Snapshot that they are compared with."""
    notes: tuple[str, ...]

    @property
    def used(self) -> pd.DataFrame:
        """The readings that the cell was made of."""
        return self.readings[self.readings["used"]].drop(columns=["used", "reason"])

    @property
    def left_out(self) -> dict[str, int]:
        """Number of readings that were not used, by reason."""
        rest = self.readings[~self.readings["used"]]
        return {str(reason): int(count) for reason, count in rest["reason"].value_counts().items()}

    @property
    def changed(self) -> dict[str, int]:
        """Number of changes by kind."""
        return {str(kind): int(count) for kind, count in self.changes["change"].value_counts().items()}

    def __repr__(self) -> str:
        return f"Lineage({self.describe()})"

    def describe(self) -> str:
        """Return the lineage as lines of text."""
        where = ", ".join(f"{name} {_show(value)}" for name, value in self.cell.items())
        lines = [f"{self.variable} {self.value:.6g} {unit_symbol(self.unit)}".rstrip() + f": {where}"]
        lines += [f"  {step}" for step in self.steps]
        lines += _describe_stations(self.stations)
        if self.left_out:
            counts = [f"{count:,} ({reason})" for reason, count in list(self.left_out.items())[:NAMED]]
            lines.append(f"not used: {', '.join(counts)}")
        lines.append(self._describe_changes())
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _describe_changes(self) -> str:
        now = "" if self.now is None else f"; the cell would now be {self.now:.6g}"
        if self.changed:
            counts = ", ".join(f"{count:,} {kind}" for kind, count in self.changed.items())
            used = int(self.changes["used"].sum())
            return f"changed since {self.snapshot}: readings {counts}, {used:,} of which this cell had used{now}"
        if self.snapshot == self.newest:
            return f"read: snapshot {self.snapshot}, the newest"
        return f"{'readings ' if now else ''}unchanged since {self.snapshot}{now}"

    def to_json(self, *, limit: int | None = None) -> dict[str, Any]:
        """Return the lineage for JSON, with at most `limit` rows of each table; numbers are of all."""
        return {
            "cell": dict(self.cell), "variable": self.variable, "unit": self.unit,
            "value": _finite(self.value), "recomputed": _finite(self.recomputed),
            "now": None if self.now is None else _finite(self.now), "steps": list(self.steps),
            "stations": _list_rows(self.stations, limit), "used": int(self.readings["used"].sum()),
            "left_out": self.left_out, "readings": _list_rows(self.readings, limit),
            "uncertain": _list_rows(self.uncertain, limit), "changed": self.changed,
            "changed_used": int(self.changes["used"].sum()), "changes": _list_rows(self.changes, limit),
            "snapshot": self.snapshot, "newest": self.newest, "notes": list(self.notes), "described": self.describe(),
        }  # fmt: skip


def lineage(
    result: str | Path | xr.Dataset,
    cell: Mapping[str, object] | xr.Dataset | xr.DataArray,
    archive: OpenArchive | None = None,
    *,
    max_readings: int = 2_000_000,
) -> Lineage:
    """Find what a cell of a result was made of, and what changed since.

    Parameters
    ----------
    result
        A result of HyperGrid: a file (.nc), a store (.zarr), or a dataset.
    cell
        The cell by its coordinates, such as `{"time": "2007-10-01T12:00", "lat": 45.87, "lon": 7.18}` or `{"time":
        "2007-10-01", "station": "7"}`; each lies in the cell. Dimensions of one cell may be absent. Or one cell that
        was selected from the result, `result.isel(time=0, lat=3, lon=4)`.
    archive
        The archive that the result was computed from; absent: the one that this process computed the dataset from.
    max_readings
        Maximum number of readings that are read.

    Returns
    -------
    The lineage. Readings are those of the snapshot that the result cites or, if it has expired, as of its commit.

    Raises
    ------
    NotFound
        The result has no such cell; or as for `hg.again`.
    InvalidQuery
        The cell is not given fully; or as for `hg.again`.
    TooLarge
        The cell is made of more readings than may be read.
    """
    with open_result(result) as (name, opened):
        archive = _find_archive(name, opened) if archive is None else archive
        cited = find_cited_query(name, opened, archive)
        as_of = ", ".join(map(format_instant, cited.as_of_ns))
        traced = make_lineage(name, opened, cell, cited.query, archive.latest(), max_readings=max_readings)
        # An expired snapshot is named by the instant as of which its readings are read.
        return replace(traced, snapshot=as_of or traced.snapshot)


def make_lineage(
    name: str,
    result: xr.Dataset,
    cell: object,
    query: Query,
    newest: OpenArchive,
    *,
    max_readings: int,
) -> Lineage:
    """Find the lineage of a cell of a result from its query.

    Parameters
    ----------
    name, result
        Name of the result for messages, and the result.
    cell
        As for `lineage`.
    query
        Query of the result, at the snapshot that it was computed from.
    newest
        Archive at the snapshot to compare with.
    max_readings
        As for `lineage`.

    Raises
    ------
    NotFound, InvalidQuery, TooLarge
        As for `lineage`.
    """
    dataset, node = drop_file_variables(result), clip_query(query)
    values = value_of(dataset)
    index = _find_cell(dataset, values, node, cell, name)
    held = float(values[index].item())
    cell_node, mask = _narrow(node, index)
    make_plan(Surface(cell_node)).check(None)
    made = trace(cell_node, mask, max_readings=max_readings)
    recomputed = float(made.value[0])
    readings, notes = _tabulate_readings(made), [*made.notes]
    # The order of sums depends on how much is computed together.
    scale = np.nanmax([abs(held), *readings["value"].abs(), 0.0])
    if not np.isclose(held, recomputed, rtol=0.0, atol=ROUNDING * scale, equal_nan=True):
        notes.append(f"the result holds {held!r}, and its query gives {recomputed!r} from these readings")
    uncertain = _tabulate_clocks(made)
    notes += _note_clocks(uncertain)
    changes, now, more = _list_changes(query, node, index, made, newest)
    return Lineage(
        _describe_cell(dataset, values, node, index),
        str(values.name),
        node.unit,
        held,
        recomputed,
        now,
        tuple(_describe_steps(made)),
        _tabulate_stations(made),
        readings,
        changes,
        uncertain,
        _describe_snapshots(node),
        newest.snapshot,
        (*notes, *more),
    )


def _narrow(node: Perspective, index: Sequence[int]) -> tuple[Perspective, NDArray[np.bool_]]:
    """Narrow a surface to one cell, with the mask of that cell, unless a step learns from all slices."""
    space = node.topology.space
    at = tuple(index)
    if not list_fitted_steps(node):
        axes = len(axes_of(space))
        parts = tuple(slice(number, number + 1) for number in index[1 : 1 + axes])
        node = restrict(node, slice(index[0], index[0] + 1), parts)
        at = (0, *(0 for _ in parts), *index[1 + axes :])
    mask = np.zeros((node.topology.time.count, node.topology.space.count), dtype=bool)
    mask[at[0], int(np.ravel_multi_index(at[1:], node.topology.space.shape))] = True
    return node, mask


def _describe_snapshots(node: Perspective) -> str:
    """Name the snapshots that a surface reads, with the instants as of which it does."""
    archives = [base.source.archive for base in node.bases if isinstance(base.source, ArchiveSource)]
    return ", ".join(
        dict.fromkeys(
            archive.snapshot + ("" if archive.as_of_ns is None else f" as of {format_instant(archive.as_of_ns)}")
            for archive in archives
        )
    )


def _find_archive(name: str, dataset: xr.Dataset) -> OpenArchive:
    folder = dataset.encoding.get(ARCHIVE_FOLDER)
    if folder is None:
        raise InvalidQuery(
            f"{name} does not say where its archive is; give it: hg.lineage(result, cell, hg.open(folder))"
        )
    return open_archive(folder)


# The cell.


def _find_cell(
    dataset: xr.Dataset, values: xr.DataArray, node: Perspective, cell: object, name: str
) -> tuple[int, ...]:
    """Return the index of a cell along each dimension of the values.

    Raises
    ------
    InvalidQuery, NotFound
        The cell is not given fully, or not one cell; there is no such cell.
    """
    if values.shape != node.topology.shape:
        raise InvalidQuery(
            f"{name} has {dict(values.sizes)} cells, and its query {node.topology.shape}; give the result as it was "
            "computed, and a part of it as the cell"
        )
    given = _read_cell(values, cell)
    index = []
    for dimension, size in values.sizes.items():
        label = given.pop(str(dimension), None)
        if label is None and dimension == node.topology.time.name:
            # Numbers of periodic cells have a name of their own, such as hour_of_day.
            label = given.pop("time", None)
        if label is None and size == 1:
            index.append(0)
            continue
        if label is None:
            known = ", ".join(
                f"{'time' if other == node.topology.time.name else other}={_show(_example(dataset, str(other)))}"
                for other in values.dims
            )
            raise InvalidQuery(
                f"a cell of {name} needs {', '.join(map(str, values.dims))}; got no {dimension}; give for example "
                f"{known}"
            )
        index.append(_find_index(dataset, str(dimension), node.topology.time, label, name))
    if given:
        raise InvalidQuery(
            f"a cell of {name} has the coordinates {', '.join(map(str, values.dims))}; got {', '.join(given)}, too"
        )
    return tuple(index)


def _read_cell(values: xr.DataArray, cell: object) -> dict[str, object]:
    if isinstance(cell, xr.Dataset | xr.DataArray):
        sizes = {str(dimension): cell.sizes[dimension] for dimension in values.dims if cell.sizes.get(dimension, 1) > 1}
        if sizes:
            raise InvalidQuery(
                f"a lineage is of one cell; got {sizes}; choose one with .isel(…) or .sel(…, method='nearest')"
            )
        return {str(dimension): _read_label(values, str(dimension), cell) for dimension in values.dims}
    if not isinstance(cell, Mapping):
        raise InvalidQuery(
            f"a cell is given by its coordinates, such as {{'time': '2007-10-01', 'lat': 45.87, 'lon': 7.18}}, or as "
            f"a part of the result; got {cell!r}"
        )
    return {str(key): value for key, value in cell.items()}


def _read_label(values: xr.DataArray, dimension: str, cell: xr.Dataset | xr.DataArray) -> object:
    """Return the label of a cell along a dimension; its position if the dimension has none; None if unknown."""
    if dimension in cell.coords:
        return np.ravel(cell.coords[dimension].to_numpy())[0]
    matching = np.ones(values.sizes[dimension], dtype=bool)
    for name, coordinate in values.coords.items():
        if coordinate.dims == (dimension,) and name in cell.coords:
            label = np.ravel(cell.coords[name].to_numpy())[0]
            matching &= [item == label or (item != item and label != label) for item in coordinate.to_numpy()]  # noqa: PLR0124 - NaN
    positions = np.flatnonzero(matching)
    return int(positions[0]) if len(positions) == 1 else None


def _example(dataset: xr.Dataset, dimension: str) -> object:
    return dataset[dimension].to_numpy()[0] if dimension in dataset.coords else 0


def _find_index(dataset: xr.Dataset, dimension: str, time: TimeAxis, label: object, name: str) -> int:
    if dimension == time.name:
        return _find_time(time, label, name)
    labels = dataset[dimension].to_numpy() if dimension in dataset.coords else np.arange(dataset.sizes[dimension])
    if labels.dtype.kind in "OUST":
        matching = np.flatnonzero(labels.astype(str) == str(label))
        if not len(matching):
            raise NotFound.among(kind=f"{dimension} of {name}", given=str(label), existing=labels.astype(str).tolist())
        return int(matching[0])
    try:
        number = float(label)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InvalidQuery(f"{dimension} of a cell is a number; got {label!r}") from error
    bounds = f"{dimension}_bounds"
    edges = dataset[bounds].to_numpy() if bounds in dataset.variables else np.stack([labels, labels], axis=1)
    low, high = edges.min(axis=1), edges.max(axis=1)
    inside = np.flatnonzero((low <= number) & (number <= high))
    if not len(inside):
        raise NotFound(
            f"{name} has no cell at {dimension} {number:g}; its cells reach from {low.min():g} to {high.max():g}"
        )
    # On a shared edge, the cell with the nearest centre, of two the first.
    return int(inside[np.abs(labels[inside] - number).argmin()])


def _find_time(time: TimeAxis, label: object, name: str) -> int:
    if isinstance(time, Periodic):
        numbers = list(map(str, time.cells.tolist()))
        if str(label) in numbers:
            return numbers.index(str(label))
    try:
        instant = parse_instant(label)
    except InvalidTime as error:
        if isinstance(time, Periodic):
            raise NotFound(f"{name} has no {time.name} {label}; it has {', '.join(numbers)}") from error
        raise InvalidQuery(f"time of a cell needs an instant, such as '2007-10-01T12:00'; got {label!r}") from error
    if isinstance(time, Instants):
        matching = np.flatnonzero(time.times_ns == instant)
    else:
        starts, ends = blocks_of(time)
        matching = np.flatnonzero((starts <= instant) & (instant < ends))
        exact = matching[starts[matching] == instant]
        matching = exact if len(exact) else matching
        if isinstance(time, Periodic):
            matching = time.owners[matching]
    if not len(matching):
        first, last = format_instant(int(time.origin)), format_instant(int(time.stop))
        raise NotFound(f"{name} has no time cell at {format_instant(instant)}; it reaches from {first} to {last}")
    return int(matching[-1])


def _describe_cell(
    dataset: xr.Dataset, values: xr.DataArray, node: Perspective, index: Sequence[int]
) -> dict[str, Any]:
    time = node.topology.time
    described: dict[str, Any] = {}
    for dimension, number in zip(values.dims, index, strict=True):
        if dimension == time.name and isinstance(time, Periodic):
            described[str(dimension)] = int(time.cells[number])
        elif dimension == time.name and are_instants(time):
            described[str(dimension)] = format_instant(int(time.corners[number]))
        elif dimension == time.name and not isinstance(time, Periodic | Instants):
            starts, ends = blocks_of(time)
            described[str(dimension)] = [format_instant(int(starts[number])), format_instant(int(ends[number]))]
        elif dimension in dataset.coords:
            described[str(dimension)] = dataset[dimension].to_numpy()[number].item()
        else:
            described[str(dimension)] = int(number)
    return described


# Tables.


def _describe_steps(made: Trace) -> Iterator[str]:
    for step in made.steps:
        operator = step.operator
        if isinstance(operator, Base):
            yield f"{operator.describe()}: {step.with_value:,} of {step.cells:,} readings"
            continue
        if isinstance(operator, Interpolate):
            # The reason of an automatic choice is a note of the result.
            plain = tuple(parameter for parameter in operator.parameters if parameter[0] != "because")
            operator = replace(operator, parameters=plain)
        yield f"{operator.describe()}: {step.with_value:,} of {step.cells:,} cells have a value"


def _tabulate_stations(made: Trace) -> pd.DataFrame:
    tables = []
    for item in made.stations:
        axis, base = item.node.source.stations, item.node.bases[0]
        unknown = np.full(len(item.series), np.nan)
        tables.append(
            pd.DataFrame(
                {
                    "variable": base.source.variable.name,
                    "station": [axis.series[number].station for number in item.series.tolist()],
                    "distance_m": item.distances_m,
                    "weight": unknown if item.weights is None else item.weights,
                    "slices": item.slices,
                    "of_slices": item.of_slices,
                }
            ).sort_values(["slices", "distance_m"], ascending=[False, True], kind="stable")
        )
    columns = ["variable", "station", "distance_m", "weight", "slices", "of_slices"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


_KEY: Final = ["variable", "station", "series", "time"]
_ORIGIN: Final = "origin"
"""Token of the source of a reading: a query may compare two snapshots of an archive."""


def _tabulate_readings(made: Trace) -> pd.DataFrame:
    tables = []
    for item in made.readings:
        table = _tabulate(item.base, item.readings)
        table[_ORIGIN] = item.base.source.token
        table["versions"] = 1 + _count_superseded(item)
        table["used"] = item.used
        table["reason"] = item.reasons
        tables.append(table)
    columns = [*_KEY, "value", "flag", "arrival", "versions", "used", "reason"]
    if not tables:
        return pd.DataFrame(columns=columns).drop(columns="series").astype({"used": bool})
    # Several branches of a query may read the same readings: one that any of them used is used.
    every = pd.concat(tables, ignore_index=True).sort_values("used", ascending=False, kind="stable")
    every = every.drop_duplicates([*_KEY, _ORIGIN]).sort_values(_KEY, kind="stable")
    return _drop_plain_series(every[columns])


def _drop_plain_series(table: pd.DataFrame) -> pd.DataFrame:
    """Drop the description of series if each station has one of each variable."""
    several = table.drop_duplicates(["variable", "station", "series"]).duplicated(["variable", "station"]).any()
    return (table if several else table.drop(columns="series")).reset_index(drop=True)


def _tabulate(base: Base, readings: Readings) -> pd.DataFrame:
    names = np.array([item.station for item in readings.series], dtype=object)
    series = np.array(list(map(_identify_series, readings.series)), dtype=object)
    return pd.DataFrame(
        {
            "variable": base.source.variable.name,
            "station": names[readings.index],
            "series": series[readings.index],
            "time": readings.time_ns.astype("datetime64[ns]"),
            "value": readings.value,
            "flag": readings.flag.astype(np.int64),
            "arrival": readings.arrival_ns.astype("datetime64[ns]"),
        }
    )


def _identify_series(series: Series) -> str:
    """Describe what distinguishes a series from the others of its station."""
    height = "" if series.height_m is None else f"{series.height_m:g} m, "
    return f"{height}{series.statistic}, {series.interval_s:g} s, replicate {series.replicate}, {series.source}"


def _count_superseded(item: TracedReadings) -> NDArray[np.int64]:
    """Count the superseded versions of each reading, shape (readings,)."""
    source, readings = item.base.source, item.readings
    counts = np.zeros(len(readings), dtype=np.int64)
    if not isinstance(source, ArchiveSource) or not len(readings):
        return counts
    numbers = source.series_numbers
    series = numbers[np.unique(readings.index)]
    earlier = source.archive.read(source.variable.name, series=series, window=_stamps(readings), superseded=True)
    if not len(earlier):
        return counts
    position = np.full(max(len(earlier.series), 1), -1, dtype=np.int64)
    position[numbers] = np.arange(len(numbers))
    both = pd.DataFrame({"index": position[earlier.index], "time_ns": earlier.time_ns}).value_counts()
    keys = pd.MultiIndex.from_arrays([readings.index, readings.time_ns], names=["index", "time_ns"])
    return np.asarray(both.reindex(keys, fill_value=0).to_numpy(), dtype=np.int64)


def _stamps(readings: Readings) -> Window:
    return Window(int(readings.time_ns.min()), int(readings.time_ns.max()) + 1)


# Clocks.


def _tabulate_clocks(made: Trace) -> pd.DataFrame:
    tables = []
    for item in made.clocks:
        table = _tabulate(item.base, item.readings)
        table["clock_error_s"] = item.bound_ns / SECOND_NS
        table["used"] = item.used
        tables.append(table)
    columns = [*_KEY, "value", "flag", "clock_error_s", "used"]
    if not tables:
        return pd.DataFrame(columns=columns).drop(columns="series").astype({"used": bool})
    every = pd.concat(tables, ignore_index=True).sort_values("used", ascending=False, kind="stable")
    return _drop_plain_series(every.drop_duplicates(_KEY).sort_values(_KEY, kind="stable")[columns])


def _note_clocks(uncertain: pd.DataFrame) -> Iterator[str]:
    """Yield the note on readings that may belong to another cell by their clocks."""
    if not len(uncertain):
        return
    bounds = uncertain.groupby("station")["clock_error_s"].max()
    named = ", ".join(f"{station}: {bound_s:g} s" for station, bound_s in bounds.head(NAMED).items())
    more = f", {len(bounds) - NAMED} more" if len(bounds) > NAMED else ""
    used = int(uncertain["used"].sum())
    yield (
        f"clocks that are right only within a bound ({named}{more}): {used:,} readings of this cell may belong to "
        f"another, and {len(uncertain) - used:,} of others to this one"
    )


# Changes.


_CHANGE_COLUMNS: Final = [
    "variable", "station", "series", "time", "change", "value_then", "value_now", "flag_then", "flag_now", "arrival",
    "used",
]  # fmt: skip


def _list_changes(
    query: Query, node: Perspective, index: Sequence[int], made: Trace, newest: OpenArchive
) -> tuple[pd.DataFrame, float | None, list[str]]:
    """List the readings that differ in the newest snapshot, with the cell's value there, and notes."""
    none = pd.DataFrame(columns=_CHANGE_COLUMNS).drop(columns="series")
    if _describe_snapshots(node) == newest.snapshot:
        return none, None, []
    try:
        surface = _read_newest(query, newest)
    except HyperGridError as error:
        return none, None, [f"what changed since is not known: {error}"]
    sources = {_identify(base): base.source for base in surface.bases}
    tables = []
    for item in made.readings:
        then = item.base
        source = sources.get(_identify(then))
        if source is None:
            return none, None, [f"what changed since is not known: {then.source.variable.name} is read otherwise now"]
        before, after = then.source.read(item.window, then.unread), source.read(item.window)
        if isinstance(before, Readings) and isinstance(after, Readings):
            tables.append(_compare(item, before, after))
    tables = [table for table in tables if len(table)]
    notes = list(_note_moves(made, newest))
    if not tables and not notes:
        return none, None, []
    now = _find_value_now(node, index, surface)
    if not tables:
        return none, now, notes
    every = pd.concat(tables, ignore_index=True).sort_values("used", ascending=False, kind="stable")
    every = every.drop_duplicates(_KEY).sort_values(_KEY, kind="stable")
    return _drop_plain_series(every[_CHANGE_COLUMNS]), now, notes


def _note_moves(made: Trace, newest: OpenArchive) -> Iterator[str]:
    """Yield what changed of the stations and layers that the interpolations used."""
    for item in made.stations:
        source, operator = item.node.bases[0].source, item.node.operator
        if not isinstance(source, ArchiveSource) or not isinstance(operator, Interpolate):
            continue
        was, now, axis = source.archive.stations, newest.store.stations, item.node.source.stations
        names = dict.fromkeys(axis.series[number].station for number in item.series.tolist())
        # As text, since an unknown elevation is NaN, which equals nothing.
        moved = [name for name in names if repr(was.get(name)) != repr(now.get(name))]
        if moved:
            yield f"positions or names of stations changed since: {', '.join(moved[:NAMED])}"
        layers = newest.store.layers
        changed = [name for name, known in operator.layers if name not in layers or layers[name].token != known]
        if changed:
            yield f"layers changed since: {', '.join(changed)}"


def _find_value_now(node: Perspective, index: Sequence[int], surface: Perspective) -> float | None:
    """Return the value of a cell in the newest snapshot; None if the cells are others there."""
    old, new = node.topology, surface.topology
    same = (
        isinstance(old.space, SeriesAxis) and isinstance(new.space, SeriesAxis) and old.space.series == new.space.series
    )
    if not same and (old.shape[1:] != new.shape[1:] or old.space != new.space):
        return None
    rows = np.flatnonzero(np.asarray(new.time.corners) == np.asarray(old.time.corners)[index[0]])
    if not len(rows):
        return None
    narrow, mask = _narrow(surface, (int(rows[0]), *index[1:]))
    make_plan(Surface(narrow)).check(None)
    return float(find_values(narrow, mask)[0])


def _identify(base: Base) -> tuple[object, ...]:
    source = base.source
    return source.variable.name, source.select if isinstance(source, ArchiveSource) else ()


def _read_newest(query: Query, newest: OpenArchive) -> Perspective:
    """Return the surface of a query at the newest snapshot, as of no instant."""
    question = query.question
    for archive in query.archives():
        question = move_to_snapshot(question, archive.snapshot, newest.snapshot)
    return clip_query(newest.query(_without_as_of(question.to_json())))


def _without_as_of(document: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in document.items() if key != "as_of"}
    plain["steps"] = [
        {**step, "with": list(map(_without_as_of, step["with"]))} if "with" in step else step
        for step in document.get("steps", ())
    ]
    return plain


def _compare(item: TracedReadings, before: Readings, after: Readings) -> pd.DataFrame:
    """Compare the readings in the time of a cell, of all stations, then and now."""
    series = tuple(dict.fromkeys((*before.series, *after.series)))
    numbers = {each: number for number, each in enumerate(series)}
    old, new = (
        _renumber(part.take_rows(_mask_series(part, item) & item.is_inside(part)), series, numbers).sort_rows()
        for part in (before, after)
    )
    parts = []
    for kind, rows in find_differences(old, new):
        if not len(rows):
            continue
        there = (old if kind == "gone" else new).take_rows(rows)
        table = _tabulate(item.base, there)
        then, now = (_look_up(part, there) for part in (old, new))
        table["change"] = CHANGES[kind]
        table["value_then"], table["flag_then"] = then
        table["value_now"], table["flag_now"] = now
        parts.append(table.drop(columns=["value", "flag"]))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    used_table = _tabulate(item.base, item.readings.take_rows(item.used))
    table["used"] = pd.MultiIndex.from_frame(table[_KEY]).isin(pd.MultiIndex.from_frame(used_table[_KEY]))
    return table


def _mask_series(readings: Readings, item: TracedReadings) -> NDArray[np.bool_]:
    """Mask the readings of series that can affect the cell, shape (readings,)."""
    if item.series is None:
        return np.ones(len(readings), dtype=bool)
    return np.array([each in item.series for each in readings.series] or [False])[readings.index]


def _renumber(readings: Readings, series: tuple[Series, ...], numbers: Mapping[Series, int]) -> Readings:
    position = np.array([numbers[each] for each in readings.series] or [0], dtype=np.int32)
    return replace(readings, series=series, index=position[readings.index])


def _look_up(readings: Readings, there: Readings) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return value and flag of the readings at the series and times of others, NaN if absent."""
    keys = pd.MultiIndex.from_arrays([readings.index, readings.time_ns])
    at = keys.get_indexer(pd.MultiIndex.from_arrays([there.index, there.time_ns]))
    value, flag = np.full(len(there), np.nan), np.full(len(there), np.nan)
    value[at >= 0], flag[at >= 0] = readings.value[at[at >= 0]], readings.flag[at[at >= 0]]
    return value, flag


# Words.


def _show(value: object) -> str:
    if isinstance(value, list):
        return " to ".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _describe_stations(stations: pd.DataFrame) -> Iterator[str]:
    for variable, table in stations.groupby("variable", sort=False):
        used = table[table["slices"] > 0]
        if used["weight"].notna().all() and len(used):
            used = used.sort_values("weight", key=abs, ascending=False, kind="stable")
        named = [
            f"{station} ({'' if np.isnan(weight) else f'weight {weight:.3f}, '}{distance_m:,.0f} m)"
            for station, weight, distance_m in zip(
                *(used[column].tolist()[:NAMED] for column in ("station", "weight", "distance_m")), strict=True
            )
        ]
        more = f" and {len(used) - NAMED} more" if len(used) > NAMED else ""
        yield f"stations of {variable}: {len(used)} of {len(table)} that report: {', '.join(named)}{more}"


def _list_rows(table: pd.DataFrame, limit: int | None) -> list[dict[str, Any]]:
    part = table if limit is None else table.head(limit)
    rows = []
    for row in part.to_dict("records"):
        rows.append({str(key): _to_json(value) for key, value in row.items()})
    return rows


def _to_json(value: Any) -> Any:  # noqa: ANN401 - a cell of a table
    if isinstance(value, pd.Timestamp):
        return format_instant(int(value.value))
    if isinstance(value, float):
        return _finite(value)
    return value.item() if isinstance(value, np.generic) else value
