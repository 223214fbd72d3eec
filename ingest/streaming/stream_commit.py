"""Commit micro-batches to the archive, each once, with the stream's ledger."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Conservation, FileEntry, Reject, Writer
from hypergrid.archive.disk.raw_copies import RAW, hash_of, keep
from hypergrid.archive.writer import POOL_BYTES
from hypergrid.core.errors import HyperGridError, InvalidUnit
from hypergrid.core.flags import MISSING
from hypergrid.core.readings import Readings, Series, has_version, share_series
from hypergrid.core.times import SECOND_NS, Window, format_instant
from hypergrid.core.units import Variable, convert
from ingest.batch.plan import merge_stations
from ingest.deployment.deployment_file import Deployment
from ingest.deployment.to_readings import series_of
from ingest.formats.file_metadata import FileMetadata
from ingest.quality.flagging import add_stations
from ingest.sources.spool import retire, segment_first, segments
from ingest.streaming.assembler import JoinStatus, MicroBatch, StreamBatch, Tally
from ingest.streaming.spool_decoder import RowBatch

SPOOL: Final = "spool"
STREAM: Final = "stream"
"""Folders of an archive: the spool, and the state of its stream;"""
CHECKPOINT: Final = "checkpoint"
DEPLOYMENTS: Final = "deployments"
HELD: Final = "held"
SHARES: Final = "shares.json"
"""within the latter: Spark's checkpoint, the deployments over time, and rows that wait on disk."""
POOL_SHARE: Final = 1 / 8
"""Share of a limit of memory that a commit's chunks of cells may take."""
GAP_NS: Final = 7 * 86_400 * SECOND_NS
"""Readings further apart than this are compared with the archive separately, so that no gap is read [ns]."""


def is_segment(name: str) -> bool:
    return name.startswith(f"{SPOOL}/segment-") and name.endswith(".spool")


def kept_segments(files: Iterable[FileEntry]) -> dict[int, str]:
    """Return the hashes of the raw copies of segments, by the number of their first record."""
    return {segment_first(Path(entry.name)): entry.sha256 for entry in files if is_segment(entry.name)}


def stream_id(checkpoint: Path) -> str:
    """Return the id of a stream, which lives as long as its checkpoint."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


@dataclass(frozen=True)
class Ledger:
    """Account of a stream's readings: came == stored + superseded + duplicates + rejected + held."""

    came: int = 0
    """Readings that arrived, including those of rejected rows."""
    stored: int = 0
    """Readings in the archive that are not superseded."""
    superseded: int = 0
    """Readings that were replaced by another in the archive, or that replaced one."""
    duplicates: int = 0
    """Readings that were already there, value by value."""
    rejected: int = 0
    held: int = 0
    """Readings that wait for their slice to close."""
    repeated: int = 0
    """Duplicates detected by the archive."""
    unconverted: int = 0
    """Rejected readings whose unit does not convert to that of the archive."""
    late: int = 0
    """Rows that arrived after their slice was closed; they are among those stored or superseded."""
    slices: int = 0
    upto: int = 0
    """Last record of the spool that is accounted for."""
    first_held: int = 0
    """First record of the spool with a row that waits; 0: there is none, or an earlier release wrote the ledger."""
    groups: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Last counts of each group of stations; groups that a later deployment lacks are kept."""

    @property
    def balance(self) -> int:
        """Number of readings that are not accounted for; 0."""
        return self.came - self.stored - self.superseded - self.duplicates - self.rejected - self.held

    def describe(self) -> str:
        return (
            f"{self.came:,} readings came = {self.stored:,} in the archive + {self.superseded:,} superseded + "
            f"{self.rejected:,} rejected + {self.duplicates:,} duplicates + {self.held:,} held"
        )


def ledger_of(archive: Archive, stream: str) -> Ledger:
    record: Mapping[str, Any] = archive.streams.get(stream, {})
    return Ledger(**{key: value for key, value in record.items() if key in Ledger.__dataclass_fields__})


@dataclass(frozen=True)
class CommitResult:
    """Outcome of a stream's commit."""

    ledger: Ledger
    snapshot: str | None
    """None if nothing changed, or the batch was already committed."""
    readings: int
    """Readings that were emitted."""


def commit(
    archive: Archive, batch: StreamBatch, deployment: Deployment, *, now_ns: int, replayed: int = 0
) -> CommitResult:
    """Commit a batch to the archive exactly once; finished spool segments become raw copies.

    Parameters
    ----------
    replayed
        Records up to this one were committed by an earlier stream, except for rows that waited. Of their readings only
        those are stored that the archive does not have, neither in force nor replaced since.

    Raises
    ------
    HyperGridError
        A reading is lost, or counted twice, which is a defect of this program; nothing was committed.
    """
    # Earlier batches of all groups have committed the records up to here.
    groups = batch.groups
    done = min(group.after for group in groups)
    archive = archive.latest()
    entries = _segments_done(done, groups, archive, deployment, now_ns)
    # Identifies the batch, so that a replay is recognised as already committed.
    name = f"stream {batch.stream} {batch.number}"
    rows = sum(len(group.rows) for group in groups)
    message = f"stream: {rows:,} rows of batch {batch.number}"
    memory = deployment.stream.memory
    pool_bytes = POOL_BYTES if memory is None else min(POOL_BYTES, round(POOL_SHARE * memory))
    with archive.commit(batch=name, message=message, now_ns=now_ns, pool_bytes=pool_bytes) as writer:
        # Another commit may have succeeded while this one waited for the lock.
        archive = archive.latest()
        ledger = ledger_of(archive, batch.stream)
        if not writer.already_committed:
            went, refused = _store(writer, groups, deployment, archive, replayed)
            ledger = _next_ledger(ledger, went, groups, len(refused))
            unread = [reject for group in groups for seq, reject in group.rejects if seq > replayed]
            writer.rejects([*unread, *_unlisted(refused, archive, replayed)])
            writer.files(entries)
            # Without emitted rows and rejects there is nothing worth a commit.
            if rows or entries or any(group.rejects for group in groups):
                writer.set_stream(batch.stream, asdict(ledger))
                writer.clock_errors(deployment.quality.clock_errors)
    # The commit must be durable before Spark marks the batch as done and before its segments are retired, so that a
    # power cut cannot leave either without the commit.
    archive.settle()
    retire(archive.path / SPOOL, done)
    return CommitResult(ledger, writer.snapshot, sum(group.rows.readings for group in groups))


def _unlisted(refused: Sequence[Reject], archive: Archive, replayed: int) -> Sequence[Reject]:
    """Return the rejects that the archive does not list yet."""
    # Only rejects of replayed records can be listed already.
    if all(reject.line > replayed for reject in refused):
        return refused
    listed = set(archive.rejects())
    return [reject for reject in refused if reject not in listed]


def _next_ledger(before: Ledger, went: Conservation, groups: Sequence[MicroBatch], unconverted: int) -> Ledger:
    by_group = {**before.groups, **{group.group: _group_counts(group) for group in groups}}
    summed = {key: sum(counts.get(key, 0) for counts in by_group.values()) for key in _group_counts(groups[0])}
    repeated, unconverted = before.repeated + went.duplicates, before.unconverted + unconverted
    ledger = Ledger(
        came=summed["came"],
        stored=before.stored + went.stored + went.side,
        superseded=before.superseded + went.superseded,
        duplicates=repeated + summed["duplicates"],
        rejected=summed["rejected"] + unconverted,
        held=summed["held"],
        repeated=repeated,
        unconverted=unconverted,
        late=summed["late"],
        slices=summed["slices"],
        upto=max(group.upto for group in groups),
        first_held=min((counts["first_held"] for counts in by_group.values() if counts.get("first_held")), default=0),
        groups=by_group,
    )
    if ledger.balance:
        raise HyperGridError(
            f"{ledger.describe()}: {ledger.balance} too few; nothing was committed; please report this"
        )
    return ledger


def _group_counts(group: MicroBatch) -> dict[str, int]:
    """Return the total counts of a group since the stream began."""
    counts = group.counts
    return {
        "came": counts.readings + group.rejected,
        "duplicates": counts.duplicates,
        "rejected": group.rejected,
        "held": group.held_readings,
        "late": counts.late,
        "slices": counts.slices,
        "first_held": group.first_held or 0,
    }


def _store(
    writer: Writer, groups: Sequence[MicroBatch], deployment: Deployment, archive: Archive, replayed: int
) -> tuple[Conservation, list[Reject]]:
    """Flag and write the emitted rows.

    Returns conservation counts, and readings whose unit does not convert.
    """
    described = _describe_groups(groups, deployment, archive)
    parts = [_by_variable(group.rows) for group in groups]
    names = dict.fromkeys(name for part in parts for name in part)
    variables = {name: described.variable(name) for name in names}
    refused = [reject for part in parts for reject in _refuse_units(part, variables)]
    total = Conservation(duplicates=sum(_drop_known(part, variables, archive, replayed) for part in parts))
    # Variables without remaining readings are not added to the archive.
    variables = {name: variable for name, variable in variables.items() if any(name in part for part in parts)}
    writer.variables(variables.values())
    present = {group.rows.origins[number][1] for group in groups for number in np.unique(group.rows.origin).tolist()}
    inspector = add_stations(writer, present, described, archive)
    inspector.keep(writer, variables)

    def coming(name: str) -> Readings | None:
        slices = [part[name] for part in parts if name in part]
        return _readings(slices, variables[name]) if slices else None

    for name, variable in variables.items():
        readings = coming(name)
        assert readings is not None
        total += inspector.store(writer, variable, readings, coming)
    return total, refused


def _describe_groups(groups: Sequence[MicroBatch], deployment: Deployment, archive: Archive) -> Deployment:
    """Add variables and stations found in the data; those of the archive take precedence.

    Rows that were held may belong to an earlier deployment, whose columns have other variables and units.
    """
    variables = {variable.name: variable for variable in deployment.variables} | dict(archive.variables)
    for variable in (variable for group in groups for variable in group.variables):
        variables.setdefault(variable.name, variable)
    metadata = FileMetadata(stations=tuple(station for group in groups for station in group.stations))
    stations = merge_stations([metadata], deployment.stations, archive.stations)
    return replace(deployment, variables=tuple(variables.values()), stations=stations)


@dataclass(frozen=True, eq=False)
class _VariableSlice:
    """Readings of one variable within rows."""

    rows: RowBatch
    # Narrow, and rows found when they are needed: the slices of all variables are held at a time.
    reading: NDArray[np.int32]
    """Indices of the readings, ascending, shape (k,)."""

    @property
    def row(self) -> NDArray[np.intp]:
        """Row of each reading, shape (k,)."""
        return np.searchsorted(self.rows.stops, self.reading, side="right")


def readings_by_variable(
    rows: RowBatch, variables: Mapping[str, Variable]
) -> dict[str, tuple[Readings, NDArray[np.int64]]]:
    """Return readings of some variables within rows, in their units, with arrival times.

    Readings keep their order; those whose unit does not convert are omitted. Arrival times are in ns since 1970 UTC.
    """
    part = {name: variable_slice for name, variable_slice in _by_variable(rows).items() if name in variables}
    _refuse_units(part, variables)
    return {
        name: (_readings([variable_slice], variables[name]), rows.came_ns[variable_slice.row])
        for name, variable_slice in part.items()
    }


def _by_variable(rows: RowBatch) -> dict[str, _VariableSlice]:
    names = [column.variable for _, column in rows.columns]
    by_variable = {}
    for name in dict.fromkeys(names):
        mask = np.array([column_name == name for column_name in names])[rows.column]
        if mask.any():
            by_variable[name] = _VariableSlice(rows, np.flatnonzero(mask).astype(np.int32))
    return by_variable


def _refuse_units(part: dict[str, _VariableSlice], variables: Mapping[str, Variable]) -> list[Reject]:
    """Remove readings whose unit does not convert to their variable's from `part`; return them as rejects.

    Files may state units of their own, which the deployment that reads them need not know.
    """
    refused = []
    for name, variable_slice in list(part.items()):
        rows, unit = variable_slice.rows, variables[name].unit
        column = rows.column[variable_slice.reading]
        reasons = {number: _unit_error(rows.columns[number][1].unit, unit) for number in np.unique(column).tolist()}
        bad = np.isin(column, [number for number, reason in reasons.items() if reason])
        for reading, row in zip(variable_slice.reading[bad].tolist(), variable_slice.row[bad].tolist(), strict=True):
            feed, station = rows.origins[int(rows.origin[row])]
            number = int(rows.column[reading])
            where, column_name = f"{SPOOL}/{feed}/{station}", rows.columns[number][1].name
            refused.append(
                Reject(where, int(rows.seq[row]), column_name, repr(float(rows.value[reading])), reasons[number])
            )
        if bad.all():
            del part[name]
        elif bad.any():
            part[name] = replace(variable_slice, reading=variable_slice.reading[~bad])
    return refused


def _drop_known(
    part: dict[str, _VariableSlice], variables: Mapping[str, Variable], archive: Archive, replayed: int
) -> int:
    """Remove readings of replayed records that the archive already has from `part`; return their number.

    A reading that waited is not one of them, even if the archive has another value at its timestamp.
    """
    dropped = 0
    for name, variable_slice in list(part.items()):
        known = variable_slice.rows.seq[variable_slice.row] <= replayed
        if name not in archive.variables or not known.any():
            continue
        known &= _is_stored(archive, _readings([variable_slice], variables[name]), name)
        dropped += int(np.count_nonzero(known))
        if known.all():
            del part[name]
        else:
            part[name] = replace(variable_slice, reading=variable_slice.reading[~known])
    return dropped


def _is_stored(archive: Archive, readings: Readings, name: str) -> NDArray[np.bool_]:
    """Tell whether the archive has each reading, even if replaced since; shape (e,)."""
    is_stored = np.zeros(len(readings), np.bool_)
    for window, inside in _runs(readings.time_ns):
        for superseded in (False, True):
            stored = archive.read(name, window=window, superseded=superseded)
            is_stored[inside] |= has_version(*share_series(stored, readings.take_rows(inside)))
    return is_stored


def _runs(time_ns: NDArray[np.int64]) -> Iterator[tuple[Window, NDArray[np.intp]]]:
    """Yield windows of timestamps with gaps of at most `GAP_NS`, and the timestamps' indices."""
    order = np.argsort(time_ns, kind="stable")
    ordered = time_ns[order]
    for part in np.split(np.arange(len(order)), np.flatnonzero(np.diff(ordered) > GAP_NS) + 1):
        if len(part):
            yield Window(int(ordered[part[0]]), int(ordered[part[-1]]) + 1), order[part]


def _unit_error(unit: str, kept: str) -> str:
    """Return why a unit does not convert to the archive's unit; empty if it does."""
    try:
        convert(np.empty(0), unit, kept)
    except InvalidUnit as error:
        return f"unit: {error}"
    return ""


def _readings(parts: Sequence[_VariableSlice], variable: Variable) -> Readings:
    """Return the readings of a variable in order of arrival, in its unit."""
    series: dict[Series, int] = {}
    columns = []
    for part in parts:
        rows, column = part.rows, part.rows.column[part.reading]
        row = part.row
        pair = column.astype(np.int64) * len(rows.origins) + rows.origin[row]
        pairs, inverse = np.unique(pair, return_inverse=True)
        index = np.empty(len(pairs), np.int32)
        for pair_index, (number, origin) in enumerate(zip(*divmod(pairs, len(rows.origins)), strict=True)):
            (feed, station), (_, described) = rows.origins[int(origin)], rows.columns[int(number)]
            index[pair_index] = series.setdefault(series_of(feed, described, station), len(series))
        value = rows.value[part.reading]
        for number in np.unique(column).tolist():
            mask = column == number
            value[mask] = convert(value[mask], rows.columns[number][1].unit, variable.unit)
        flag = np.where(np.isnan(value), MISSING, rows.flag[part.reading]).astype(np.uint8)
        columns.append((index[inverse], rows.time_ns[row], value, flag, rows.arrival_ns[row]))
    index, time_ns, value, flag, arrival_ns = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Readings(tuple(series), index, time_ns, value, flag, arrival_ns)


def _segments_done(
    done: int, groups: Sequence[MicroBatch], archive: Archive, deployment: Deployment, now_ns: int
) -> list[FileEntry]:
    """Keep raw copies of segments that are fully committed; return their ledger entries."""
    listed = segments(archive.path / SPOOL)
    # The last segment is still growing.
    finished = [path for (_, path), (after, _) in zip(listed[:-1], listed[1:], strict=True) if after <= done + 1]
    if not finished:
        return []
    known = {entry.sha256 for entry in archive.files()}
    tally: Tally = {}
    for group in groups:
        for first, counts in group.finished.items():
            tally[first] = [a + b for a, b in zip(tally.get(first, [0, 0, 0]), counts, strict=True)]
    entries = []
    for path in finished:
        size_bytes = path.stat().st_size
        sha256 = hash_of(path, size_bytes)
        if sha256 not in known:
            keep(path, archive.path / RAW, sha256=sha256, size_bytes=size_bytes)
            rows, readings, rejects = tally.get(segment_first(path), [0, 0, 0])
            name = f"spool/{path.name}"
            entries.append(FileEntry(name, sha256, size_bytes, rows, readings, rejects, now_ns, deployment.token()))
    return entries


@dataclass(frozen=True)
class StreamStatus:
    """Current status of a stream."""

    ledger: Ledger
    readings_per_s: float
    """Readings emitted, over the last batches [1/s]."""
    last_slice_ns: int | None
    """End of the last closed slice [ns since 1970 UTC]; None if none was closed."""
    behind: int
    """Records of the spool that are not in a batch yet."""
    batches: int
    joins: Mapping[str, JoinStatus] = field(default_factory=dict)
    """Last known status of each group's join."""

    def describe(self) -> str:
        closed = "none" if self.last_slice_ns is None else format_instant(self.last_slice_ns)
        return (
            f"{self.readings_per_s:,.0f} readings/s, {self.ledger.held:,} held, {self.ledger.late:,} rows late, "
            f"last slice closed {closed}, {self.behind:,} records behind"
        )
