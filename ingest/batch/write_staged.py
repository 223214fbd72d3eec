"""Write staged chunks into the archive: one commit, by range of time and variable."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Conservation, FileEntry, Reject, Writer
from hypergrid.core.readings import Readings, Series, Station
from hypergrid.core.times import SECOND_NS, Window, format_instant
from ingest.batch.plan import IngestPlan, column_of
from ingest.batch.staging import Span, StagedChunk, staged_rejects, staged_rows, windows
from ingest.deployment.arrival_table import Arrivals
from ingest.deployment.deployment_file import Column, Deployment, Feed
from ingest.deployment.to_readings import ParsedRows, all_series, assemble_readings, stations_of
from ingest.formats import Parsed
from ingest.formats.base import VALUE
from ingest.quality.flagging import QualityFlagger, Summary
from ingest.quality.zone import ZoneSuspicion, bound_clocks

VALUES_AT_ONCE: Final = 12_000_000
"""Values of all columns in memory at once: about 400 MB including conversions."""


@dataclass(frozen=True, eq=False)
class StagedBatch:
    """All staged chunks of a run, with their deployment."""

    plan: IngestPlan
    deployment: Deployment
    staged: Sequence[StagedChunk]
    """One per chunk, in order."""
    folder: Path
    columns: Mapping[int, tuple[Column, ...]]
    """Columns by file index; of long rows those known beforehand."""
    arrivals: Mapping[str, Arrivals]
    """By feed, for feeds with an arrivals table."""
    ingested_ns: Mapping[int, int] = field(default_factory=dict)
    """Time of ingest by file index, for files that were ingested before [ns since 1970 UTC]."""

    def series(self) -> Mapping[str, tuple[Series, ...]]:
        """Return the series of all rows, by variable."""
        present: set[tuple[Feed, Column, str]] = set()
        for chunk, staged in zip(self.plan.chunks, self.staged, strict=True):
            feed = self.deployment.feeds_by_name[self.plan.files[chunk.file].feed]
            if staged.columns is None:
                present |= {(feed, column, name) for name in staged.stations for column in self.columns[chunk.file]}
            else:
                pairs = zip(staged.columns, staged.stations, strict=True)
                present |= {(feed, self.column(chunk.file, column), station) for column, station in pairs}
        return all_series(present, self.deployment)

    def column(self, file_index: int, name: str) -> Column:
        feed = self.deployment.feeds_by_name[self.plan.files[file_index].feed]
        return column_of(feed, self.plan.layouts[file_index], name)

    def width(self, file_index: int) -> int:
        """Return the readings per row of a file; 0 if it is unreadable."""
        if file_index not in self.columns:
            return 0
        return 1 if self.plan.layouts[file_index].long else len(self.columns[file_index])

    def spans(self) -> list[Span]:
        """Return first stamp, last stamp and number of values of each chunk."""
        return [
            (staged.first_ns, staged.last_ns, staged.rows * max(1, self.width(chunk.file)))
            for chunk, staged in zip(self.plan.chunks, self.staged, strict=True)
        ]

    def stations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(station for staged in self.staged for station in staged.stations))

    def rejects(self) -> list[Reject]:
        """Return all rejects, with line numbers relative to the start of their file."""
        all_rejects = list(self.plan.unreadable)
        before = {file_index: layout.lines_before for file_index, layout in self.plan.layouts.items()}
        for chunk, staged in zip(self.plan.chunks, self.staged, strict=True):
            name = self.plan.files[chunk.file].name
            all_rejects += [
                Reject(name, before[chunk.file] + row.line, row.column, row.text, row.reason)
                for row in staged_rejects(staged, self.folder)
            ]
            before[chunk.file] += staged.lines
        return all_rejects

    def arrival_warnings(self, now_ns: int) -> list[str]:
        """Return warnings about the arrivals in columns, by feed."""
        warnings = []
        for feed in self.deployment.feeds:
            column = feed.options.text.arrival_column
            pairs = zip(self.plan.chunks, self.staged, strict=True)
            own = [staged for chunk, staged in pairs if self.plan.files[chunk.file].feed == feed.name]
            if not column or not own:
                continue
            what = f"of {sum(staged.rows for staged in own):,} rows of feed {feed.name!r}"
            # What the column lacks may be in the table of arrivals.
            if (missing := sum(staged.no_arrivals for staged in own)) and feed.arrivals is None:
                warnings.append(
                    f"{missing:,} {what} have no arrival in column {column!r} that can be read, and arrive as they are "
                    "ingested; check arrival_format"
                )
            if early := sum(staged.early_arrivals for staged in own):
                warnings.append(
                    f"{early:,} {what} arrived before they were measured, says column {column!r}; "
                    "check arrival_column and time zone"
                )
            if (last_ns := max(staged.last_arrival_ns for staged in own)) > now_ns:
                warnings.append(
                    f"rows of feed {feed.name!r} arrive in the future, says column {column!r} (to "
                    f"{format_instant(last_ns)}); check arrival_column and arrival_format"
                )
        return warnings

    def rows_in(self) -> dict[int, tuple[int, int]]:
        """Return rows (including rejected ones) and columns of each readable file, by file index."""
        rows: Counter[int] = Counter()
        for chunk, staged in zip(self.plan.chunks, self.staged, strict=True):
            rows[chunk.file] += staged.rows + staged.rejects
        return {file_index: (rows[file_index], self.width(file_index)) for file_index in self.columns}

    def readings_rejected(self) -> int:
        """Return the number of readings that the rejected rows and cells would have given."""
        pairs = zip(self.plan.chunks, self.staged, strict=True)
        return sum(staged.rejects * self.width(chunk.file) + staged.cells for chunk, staged in pairs)

    def files(self, now_ns: int) -> list[FileEntry]:
        """Return the entries for the ledger of files."""
        rows, bad, cells = Counter[int](), Counter[int](), Counter[int]()
        for chunk, staged in zip(self.plan.chunks, self.staged, strict=True):
            rows[chunk.file] += staged.rows
            bad[chunk.file] += staged.rejects + staged.cells
            cells[chunk.file] += staged.cells
        mapping = {feed.name: self.deployment.mapping_of(feed) for feed in self.deployment.feeds}
        return [
            FileEntry(
                file.name,
                file.sha256,
                file.size_bytes,
                rows[file_index],
                rows[file_index] * self.width(file_index) - cells[file_index],
                bad[file_index] + (file_index not in self.columns),
                now_ns,
                mapping[file.feed],
            )
            for file_index, file in enumerate(self.plan.files)
        ]


@dataclass
class Totals:
    """Running totals of stored readings."""

    conservation: Conservation = field(default_factory=Conservation)
    values: int = 0
    missing: int = 0
    slices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Indices of the slices with rows."""
    quality: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts of flags, tests and gaps, by station."""
    skipped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Number of stations that no neighbour test could evaluate, by variable and reason."""
    revised: int = 0
    """Stored readings whose flag changed."""
    suspicions: Sequence[ZoneSuspicion] = ()
    """Stations whose clocks are probably off."""
    instants_ahead: dict[str, int] = field(default_factory=dict)
    """Latest future stamp by station [ns since 1970 UTC]."""

    def add(self, missing: int, ahead: Mapping[str, int], outcome: Conservation) -> None:
        """Add the outcome of a variable within a range of time, with its missing and future readings."""
        self.missing += missing
        self.values += outcome.readings - missing
        self.conservation = self.conservation + outcome
        for station, stamp in ahead.items():
            self.instants_ahead[station] = max(stamp, self.instants_ahead.get(station, stamp))


def store(
    stock: StagedBatch,
    writer: Writer,
    *,
    known: Mapping[str, Station],
    now_ns: int,
    values_at_once: int,
    progress: Callable[[float], None],
) -> Totals:
    """Flag and write all staged rows; the caller commits. `known`: stations in the archive."""
    series = stock.series()
    variables = {name: stock.deployment.variable(name) for name in series}
    writer.variables(variables.values())
    stations = stations_of(stock.stations(), stock.deployment, known=known)
    writer.stations(stations)
    writer.publication(stock.deployment.publication)
    quality = stock.deployment.quality
    writer.clock_errors(quality.clock_errors)
    places = {**known, **{station.id: station for station in stations}}
    # One for each variable, because variables run in parallel threads.
    inspectors = {name: QualityFlagger(quality, places, stock.deployment.slice_s) for name in variables}
    for name, variable in variables.items():
        inspectors[name].keep(writer, {name: variable})
    cuts = windows(stock.spans(), maximum=values_at_once, chunks_ns=writer.chunks_ns)
    totals, slice_ns = Totals(), round(stock.deployment.slice_s * SECOND_NS)

    def stored(name: str, pieces: list[ParsedRows]) -> tuple[int, Mapping[str, int], Conservation]:
        def coming(other: str) -> Readings | None:
            known = other in series
            return assemble_readings(pieces, variables[other], series[other], stock.deployment) if known else None

        readings = assemble_readings(pieces, variables[name], series[name], stock.deployment)
        missing = int(np.isnan(readings.value).sum())
        outcome = inspectors[name].store(writer, variables[name], readings, coming)
        return missing, _instants_ahead(readings, now_ns), outcome

    # Variables run in parallel, as most of the work is in numpy and the compressor; the next range is read meanwhile.
    with ThreadPoolExecutor(os.cpu_count()) as variables_at_once, ThreadPoolExecutor(1) as reader:
        load = partial(rows_within, stock, now_ns=now_ns)
        ahead = reader.submit(load, cuts[0]) if cuts else None
        for index in range(len(cuts)):
            assert ahead is not None
            pieces = ahead.result()
            ahead = reader.submit(load, cuts[index + 1]) if index + 1 < len(cuts) else None
            slices = [_runs(piece.time_ns // slice_ns) for piece in pieces]
            totals.slices = np.unique(np.concatenate([totals.slices, *slices]))
            results = variables_at_once.map(stored, variables, repeat(pieces))
            for count, result in enumerate(results):
                totals.add(*result)
                progress((index + (count + 1) / len(series)) / len(cuts))
    summary = Summary.of([inspector.summary for inspector in inspectors.values()])
    totals.quality, totals.skipped = summary.count_by_station(), summary.count_skipped()
    totals.revised = sum(inspector.revised for inspector in inspectors.values())
    totals.suspicions = [suspicion for inspector in inspectors.values() for suspicion in inspector.suspicions()]
    if quality.bound_clocks:
        writer.clock_errors(bound_clocks(totals.suspicions, quality.clock_errors), replacing=False)
    return totals


def _instants_ahead(readings: Readings, now_ns: int) -> dict[str, int]:
    """Return the latest future stamp of each station [ns]."""
    ahead_ns: dict[str, int] = {}
    # No time zone is a day off, so the clock must be wrong.
    ahead = readings.time_ns > now_ns + 24 * 3600 * SECOND_NS
    if ahead.any():
        latest = np.zeros(len(readings.series), np.int64)
        np.maximum.at(latest, readings.index[ahead], readings.time_ns[ahead])
        for number in np.flatnonzero(latest).tolist():
            station = readings.series[number].station
            ahead_ns[station] = max(int(latest[number]), ahead_ns.get(station, 0))
    return ahead_ns


def rows_within(stock: StagedBatch, window: Window, *, now_ns: int) -> list[ParsedRows]:
    """Return the staged rows with stamps within a window."""
    pieces = []
    for chunk, staged in zip(stock.plan.chunks, stock.staged, strict=True):
        parsed = staged_rows(staged, stock.folder, window)
        if parsed is None:
            continue
        feed = stock.deployment.feeds_by_name[stock.plan.files[chunk.file].feed]
        known = stock.arrivals.get(feed.name, Arrivals({}))
        ingested_ns = stock.ingested_ns.get(chunk.file, now_ns)
        arrival_ns = known.arrival_times(parsed.stations, parsed.code, parsed.time_ns, otherwise_ns=ingested_ns)
        if parsed.arrival_ns is not None:
            # The arrivals table takes precedence over arrivals in the file.
            arrival_ns = np.where((arrival_ns == ingested_ns) & (parsed.arrival_ns > 0), parsed.arrival_ns, arrival_ns)
        columns = {column.name: column for column in stock.columns[chunk.file]}
        time_ns = stock.deployment.quality.shift_times(parsed.stations, parsed.code, parsed.time_ns)
        rows = ParsedRows(
            feed, columns, parsed.stations, parsed.code, time_ns, arrival_ns, parsed.values,
            flag=parsed.flags, refused=parsed.refused,
        )  # fmt: skip
        pieces += [rows] if parsed.name_code is None else _split_by_column(stock, chunk.file, rows, parsed)
    return pieces


def _split_by_column(stock: StagedBatch, file_index: int, rows: ParsedRows, parsed: Parsed) -> list[ParsedRows]:
    """Split long rows by column, so that each piece is a table of one column."""
    pieces = []
    for number, name in enumerate(parsed.names):
        mask = parsed.name_code == number
        pieces.append(
            replace(
                rows,
                columns={name: stock.column(file_index, name)},
                code=rows.code[mask],
                time_ns=rows.time_ns[mask],
                arrival_ns=rows.arrival_ns[mask],
                values={name: rows.values[VALUE][mask]},
                flag=None if rows.flag is None else rows.flag[mask],
            )
        )
    return pieces


def _runs(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers without consecutive repeats."""
    # Rows ordered by time leave few numbers, which makes the following sort cheap.
    return numbers[np.r_[True, numbers[1:] != numbers[:-1]]] if len(numbers) else numbers


def count_by_reason(rejects: Iterable[Reject]) -> dict[str, int]:
    """Return the number of rejects by kind of reason, the most frequent first."""
    return dict(Counter(reject.reason.partition(":")[0] for reject in rejects).most_common())


def examples_by_reason(rejects: Iterable[Reject], most_examples: int = 3) -> dict[str, list[dict[str, Any]]]:
    """Return the first rejects of each kind of reason, as documents."""
    examples: dict[str, list[dict[str, Any]]] = {}
    for reject in rejects:
        listed = examples.setdefault(reject.reason.partition(":")[0], [])
        if len(listed) < most_examples:
            listed.append(asdict(reject))
    return examples
