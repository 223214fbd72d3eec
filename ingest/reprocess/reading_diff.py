"""Compare two descriptions of the same files reading by reading, and amend the differences."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Conservation, FileEntry, Reject, Writer
from hypergrid.core.flags import MEANINGS, MISSING
from hypergrid.core.readings import Readings, Series, concatenate, equal_values, share_series
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.core.tokens import token
from ingest.batch.staging import Span, windows
from ingest.batch.write_staged import VALUES_AT_ONCE, StagedBatch, rows_within
from ingest.deployment.deployment_file import Deployment
from ingest.deployment.to_readings import ParsedRows, assemble_readings
from ingest.job import keep_description
from ingest.quality.flagging import add_stations


@dataclass
class RemapReport:
    """Result of a remapping. Readings are identified by their series and exact time."""

    archive: str
    deployment: str
    """The current description."""
    files: int = 0
    """Files that were read again."""
    files_left: int = 0
    """Files that were not read again and stay as they are."""
    same: int = 0
    """Readings that are equal in both descriptions."""
    replaced: int = 0
    """Readings whose value changed."""
    added: int = 0
    """Readings that only the new description gives."""
    withdrawn: int = 0
    """Readings that only the old description gave; missing values take their place."""
    kept: int = 0
    """Readings that differ, but were replaced otherwise since their ingest; left alone."""
    revised: int = 0
    """Other readings whose flag changed."""
    rejects: Mapping[str, int] = field(default_factory=dict)
    """Rows that the current description cannot read, by kind of reason."""
    reject_examples: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The first of them of each kind."""
    superseded: int = 0
    """Readings that were replaced and are retained."""
    empty_series: tuple[str, ...] = ()
    """Series, as variable:station:feed:column, all of whose readings were withdrawn; they are listed no more."""
    rejects_withdrawn: int = 0
    """Rejects of these files that only the old description gave; they are listed no more."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    snapshot: str | None = None
    """Committed snapshot; None if nothing changed."""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings), "empty_series": list(self.empty_series)}


@dataclass(frozen=True, eq=False)
class ParsedAs:
    """Files parsed with one description."""

    stock: StagedBatch
    series: Mapping[str, tuple[Series, ...]]

    def pieces(self, window: Window, now_ns: int) -> list[ParsedRows]:
        return rows_within(self.stock, window, now_ns=now_ns)

    def pieces_around(self, window: Window, now_ns: int) -> list[ParsedRows]:
        """Return the rows that lie in a window after clock shifts, and some around."""
        shift_ns = self._longest_shift_ns
        return self.pieces(Window(window.start_ns - shift_ns, window.stop_ns + shift_ns), now_ns)

    @property
    def spans(self) -> list[Span]:
        """Range of time of each chunk, extended by clock shifts, and number of values."""
        shift_ns = self._longest_shift_ns
        return [(first - shift_ns, last + shift_ns, count) for first, last, count in self.stock.spans()]

    @property
    def _longest_shift_ns(self) -> int:
        shifts = self.stock.deployment.quality.clock_shift_h
        return round(max((abs(hours) for _, hours in shifts), default=0.0) * 3600 * SECOND_NS)

    def versions(self, name: str, pieces: Sequence[ParsedRows]) -> Readings:
        """Return the readings of a variable, ordered; those with equal timestamps stay in order of arrival."""
        if name not in self.series:
            return Readings.empty()
        deployment = self.stock.deployment
        return assemble_readings(pieces, deployment.variable(name), self.series[name], deployment).sort_rows()

    def readings(self, name: str, pieces: Sequence[ParsedRows]) -> Readings:
        """Return the readings of a variable, ordered; of several with one timestamp the last."""
        versions = self.versions(name, pieces)
        return versions.take_rows(np.r_[~versions.mark_repeats(), True][: len(versions)])


@dataclass
class ReadingDiff:
    """Comparison of two descriptions of the same files, and storage of the differences."""

    archive: Archive
    deployment: Deployment
    new: ParsedAs
    old: Sequence[ParsedAs]
    report: RemapReport
    now_ns: int

    def commit(self, entries: Mapping[str, FileEntry], notify: Callable[[float], None]) -> None:
        """Amend the differences in one commit, with the ledger.

        `entries` has the last entry of each content, by hash.
        """
        described, new = self.new.stock.deployment, self.new
        names = list(dict.fromkeys([*new.series, *(name for parsed_as in self.old for name in parsed_as.series)]))
        batch = f"remap {token(described.token(), sorted(entries), self.archive.latest().snapshot)}"
        message = f"{self.report.files} raw files read again, deployment {described.token()[:12]}"
        with self.archive.commit(batch=batch, message=message, now_ns=self.now_ns) as writer:
            variables = {name: described.variable(name) for name in new.series}
            writer.variables(variables.values())
            inspector = add_stations(writer, new.stock.stations(), described, self.archive)
            variables |= {name: self.archive.variable(name) for name in names if name not in variables}
            inspector.compare(writer, variables)
            total = Conservation()
            cuts = self._windows(writer)
            for index, window in enumerate(cuts):
                offered = self._find_offered(writer, window, names)
                for name, readings in offered.items():
                    total += inspector.store(writer, variables[name], readings, offered.get)
                notify((index + 1) / len(cuts))
            self.report.revised, self.report.superseded = inspector.revised, total.superseded
            empty = self._find_empty_series(writer, names)
            self.report.empty_series = tuple(
                f"{name}:{item.station}:{item.source}" for name, gone in empty.items() for item in gone
            )
            stale = self._find_stale_rejects(entries)
            self.report.rejects_withdrawn = len(stale)
            writer.withdraw(
                empty, set(stale), since_ns=self.now_ns, kept={station.id for station in described.stations}
            )
            if described.quality.run and total.changed:
                tested = {name: variables[name] for name in new.series}
                writer.quality({**self.archive.quality, **described.quality.to_json(tested)})
            writer.clock_errors(described.quality.clock_errors)
            self._write_ledger(writer, entries, changed=total.changed > 0 or bool(stale))
        self.report.snapshot = writer.snapshot

    def _windows(self, writer: Writer) -> Sequence[Window]:
        """Cut time into windows whose readings by both descriptions fit in memory."""
        spans = [span for parsed_as in (self.new, *self.old) for span in parsed_as.stock.spans()]
        return windows(spans, maximum=VALUES_AT_ONCE, chunks_ns=writer.chunks_ns)

    def _find_offered(self, writer: Writer, window: Window, names: Sequence[str]) -> dict[str, Readings]:
        """Return, by variable, the readings of a window to be stored."""
        now = self.new.pieces(window, self.now_ns)
        before = [(parsed_as, parsed_as.pieces(window, self.now_ns)) for parsed_as in self.old]
        by_variable = {}
        for name in names:
            new = self.new.readings(name, now)
            parts = [parsed_as.readings(name, pieces) for parsed_as, pieces in before]
            old = concatenate(share_series(Readings.empty(), *parts)).sort_rows()
            if not len(new) and not len(old):
                continue
            stamps = np.concatenate([new.time_ns, old.time_ns])
            stored = writer.read(name, window=Window(int(stamps.min()), int(stamps.max()) + 1))
            stored, old, new = share_series(stored, old, new)
            offered = self._difference(new, old, stored)
            if len(offered):
                by_variable[name] = offered
        return by_variable

    def _difference(self, new: Readings, old: Readings, stored: Readings) -> Readings:
        """Return the readings to store: changed values, new readings, and missing values for withdrawn ones."""
        report = self.report
        was, is_now, again = find_readings(old, new), find_readings(stored, new), find_readings(new, old)
        same = (was >= 0) & _is_alike(new, old, was, flags=True)
        # The archive has a value that neither description gives, so it was replaced otherwise.
        others = ~same & (is_now >= 0) & (was >= 0) & ~_is_alike(old, stored, is_now, of=was)
        done = ~same & (is_now >= 0) & _is_alike(new, stored, is_now)
        changes = ~same & ~others & ~done
        at = find_readings(stored, old)
        gone = (again < 0) & (at >= 0) & (old.flag != MISSING)
        is_withdrawn = gone & _is_alike(old, stored, at)
        report.same += int(np.count_nonzero(same | done))
        report.kept += int(np.count_nonzero(others & ~done)) + int(np.count_nonzero(gone & ~is_withdrawn))
        report.replaced += int(np.count_nonzero(changes & (is_now >= 0)))
        report.added += int(np.count_nonzero(changes & (is_now < 0)))
        report.withdrawn += int(np.count_nonzero(is_withdrawn))
        withdrawn = old.take_rows(is_withdrawn)
        withdrawn = replace(
            withdrawn, value=np.full(len(withdrawn), np.nan), flag=np.full(len(withdrawn), MISSING, np.uint8)
        )
        offered = concatenate([replace(readings, tests=None) for readings in (new.take_rows(changes), withdrawn)])
        return replace(offered, arrival_ns=np.full(len(offered), self.now_ns, np.int64)).sort_rows()

    def _find_stale_rejects(self, entries: Mapping[str, FileEntry]) -> list[Reject]:
        """Return the rejects that only the old descriptions give of the files that were read again."""
        stock = self.new.stock
        read = {entries[entry.sha256].name for entry in stock.files(self.now_ns)
                if entry.readings and entry.sha256 in entries}  # fmt: skip
        # Others may be of streams, or of files that stay as they are and have the same name.
        gone = {reject for parsed_as in self.old for reject in parsed_as.stock.rejects()} - set(stock.rejects())
        return [reject for reject in self.archive.rejects() if reject.file in read and reject in gone]

    def _find_empty_series(self, writer: Writer, names: Sequence[str]) -> dict[str, list[Series]]:
        """Return the series, by variable, that the current description does not give and that have no values left."""
        empty_series = {}
        for name in dict.fromkeys([*names, *self.archive.variables]):
            given = set(self.new.series.get(name, ()))
            old = {sensor_series for parsed_as in self.old for sensor_series in parsed_as.series.get(name, ())}
            gone = (old - given if self.report.withdrawn else set()) | self._find_withdrawn_before(name, given | old)
            if gone:
                stored = writer.read(name, series=gone)
                alive = set(np.unique(stored.index[stored.flag != MISSING]).tolist())
                empty_series[name] = [
                    sensor_series
                    for number, sensor_series in enumerate(stored.series)
                    if sensor_series in gone and number not in alive
                ]
        return empty_series

    def _find_withdrawn_before(self, name: str, given: Collection[Series]) -> set[Series]:
        """Return listed series of these feeds of whose values none is in force since an earlier remapping."""
        if name not in self.archive.variables:
            return set()
        # Former versions of the program listed such series further.
        feeds = tuple({f"{file.feed}:" for parsed_as in (self.new, *self.old) for file in parsed_as.stock.plan.files})
        listed = self.archive.list_series(name)
        count = partial(self.archive.count_at_least, name, flags=tuple(MEANINGS.keys() - {MISSING}), maximum=0)
        dead = [
            number
            for number, item in listed.items()
            if item not in given and item.source.startswith(feeds) and not count(series=np.array([number], np.intp))
        ]
        if not dead:
            return set()
        replaced = self.archive.read(name, series=np.array(dead, np.intp), superseded=True)
        return {listed[number] for number in np.unique(replaced.index[replaced.flag != MISSING]).tolist()}

    def _write_ledger(self, writer: Writer, entries: Mapping[str, FileEntry], *, changed: bool) -> None:
        """Record by which mapping the files were last read, add rejects, and keep the description."""
        stock = self.new.stock
        read = [entry for entry in stock.files(self.now_ns) if entry.readings and entry.sha256 in entries]
        other = [entry for entry in read if entry.mapping != entries[entry.sha256].mapping]
        if not changed and not other:
            return
        writer.files(other or read)
        known = set(self.archive.rejects())
        writer.rejects([reject for reject in stock.rejects() if reject not in known])
        path = self.deployment.path
        if path is not None and path.is_file():
            tables = (table for table in self.deployment.tables if table.is_file())
            writer.described_by({keep_description(kept, self.archive.path): kept.name for kept in (path, *tables)})


def find_readings(readings: Readings, wanted: Readings) -> NDArray[np.intp]:
    """Return the index of each wanted reading by series and timestamp, -1 if none."""
    index, time_ns = (
        np.concatenate([getattr(part, name) for part in (readings, wanted)]) for name in ("index", "time_ns")
    )
    order = np.lexsort((time_ns, index))
    before, after = order[:-1], order[1:]
    equal = (index[before] == index[after]) & (time_ns[before] == time_ns[after])
    rows = np.full(len(wanted), -1, np.intp)
    rows[after[equal] - len(readings)] = before[equal]
    return rows


def _is_alike(
    readings: Readings,
    other: Readings,
    at: NDArray[np.intp],
    *,
    of: NDArray[np.intp] | None = None,
    flags: bool = False,
) -> NDArray[np.bool_]:
    """Tell which readings equal those of `other` at the indices `at`; False for index -1.

    Parameters
    ----------
    of
        Indices of the readings to compare; None: all, in order.
    flags
        Whether to compare the flags too.
    """
    rows = np.arange(len(readings)) if of is None else of
    known = (at >= 0) & (rows >= 0)
    is_alike = np.zeros(len(at), np.bool_)
    is_alike[known] = equal_values(readings.value[rows[known]], other.value[at[known]])
    if flags:
        is_alike[known] &= readings.flag[rows[known]] == other.flag[at[known]]
    return is_alike
