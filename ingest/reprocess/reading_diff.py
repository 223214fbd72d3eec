"""What two descriptions say of the same files, compared reading by reading, and the difference amended."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Conservation, FileEntry, Writer
from hypergrid.core.flags import MISSING
from hypergrid.core.readings import Readings, Series, concatenate, renumbered, same_values
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.core.tokens import token
from hypergrid.core.units import Variable
from ingest.batch.staging import Span, windows
from ingest.batch.write_staged import VALUES_AT_ONCE, Stock, rows_within
from ingest.deployment.deployment_file import Deployment
from ingest.deployment.to_readings import Rows, assemble, stations_of
from ingest.quality.flagging import Inspector
from ingest.sources.raw_files import RAW, hash_of, keep


@dataclass
class RemapReport:
    """What a remapping did. A reading is told by its series and its exact time."""

    archive: str
    deployment: str
    """The description that holds now."""
    files: int = 0
    """Files that were read again."""
    files_left: int = 0
    """Files that were not, and stay as they are."""
    same: int = 0
    """Readings that both descriptions give alike."""
    replaced: int = 0
    """Readings with another value now."""
    added: int = 0
    """Readings that only the new description gives."""
    withdrawn: int = 0
    """Readings that only the old one gave: a missing value has taken their place."""
    kept: int = 0
    """Readings that are to change, but that something else replaced since they were ingested."""
    revised: int = 0
    """Other readings that have another flag now."""
    rejects: Mapping[str, int] = field(default_factory=dict)
    """Rows that cannot be read as described now, by kind of reason."""
    superseded: int = 0
    """Readings that were replaced, and are retained."""
    empty_series: tuple[str, ...] = ()
    """Series, as variable:station:feed:column, of which every reading was withdrawn."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    snapshot: str | None = None
    """Snapshot that was committed; None where nothing changed."""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "warnings": list(self.warnings), "empty_series": list(self.empty_series)}


@dataclass(frozen=True, eq=False)
class Said:
    """What a description says of some files."""

    stock: Stock
    series: Mapping[str, tuple[Series, ...]]

    def pieces(self, window: Window, now_ns: int) -> list[Rows]:
        """Return the rows within a window."""
        return rows_within(self.stock, window, now_ns=now_ns)

    def pieces_around(self, window: Window, now_ns: int) -> list[Rows]:
        """Return the rows within a window, and those nearby that the shift of a clock may bring into it."""
        shift_ns = self._longest_shift_ns
        return self.pieces(Window(window.start_ns - shift_ns, window.stop_ns + shift_ns), now_ns)

    @property
    def spans(self) -> list[Span]:
        """Where the values of each chunk lie in time, as far as the shift of a clock may bring them."""
        shift_ns = self._longest_shift_ns
        return [(first - shift_ns, last + shift_ns, count) for first, last, count in self.stock.spans()]

    @property
    def _longest_shift_ns(self) -> int:
        shifts = self.stock.deployment.quality.clock_shift_h
        return round(max((abs(hours) for _, hours in shifts), default=0.0) * 3600 * SECOND_NS)

    def versions(self, name: str, pieces: Sequence[Rows]) -> Readings:
        """Return the readings of a variable, ordered; those with one stamp as they came."""
        if name not in self.series:
            return Readings.empty()
        deployment = self.stock.deployment
        return assemble(pieces, deployment.variable(name), self.series[name], deployment).ordered()

    def readings(self, name: str, pieces: Sequence[Rows]) -> Readings:
        """Return the readings of a variable, of those with one stamp the last, ordered."""
        found = self.versions(name, pieces)
        return found.take(np.r_[~found.repeats(), True][: len(found)])


@dataclass
class Comparison:
    """What two descriptions say of the same files, and what is stored of the difference."""

    archive: Archive
    described: Deployment
    new: Said
    old: Sequence[Said]
    report: RemapReport
    now_ns: int

    def commit(self, entries: Mapping[str, FileEntry], tell: Callable[[float], None]) -> None:
        """Amend what differs, in one commit, with the ledger; `entries`: the last of each content, by its hash."""
        described, new = self.new.stock.deployment, self.new
        names = list(dict.fromkeys([*new.series, *(name for one in self.old for name in one.series)]))
        batch = f"remap {token(described.token(), sorted(entries), self.archive.latest().snapshot)}"
        message = f"{self.report.files} raw files read again, deployment {described.token()[:12]}"
        with self.archive.commit(batch=batch, message=message, now_ns=self.now_ns) as writer:
            variables = {name: described.variable(name) for name in new.series}
            writer.variables(variables.values())
            known = self.archive.stations
            stations = stations_of(new.stock.stations(), described, known=known)
            writer.stations(stations)
            variables |= {name: self.archive.variable(name) for name in names if name not in variables}
            inspector = Inspector(
                described.quality, {**known, **{one.id: one for one in stations}}, self.archive.slice_s
            )
            inspector.compare(writer, variables)
            total = Conservation()
            cuts = self._windows(writer)
            for place, window in enumerate(cuts):
                offered = self._offered(writer, window, names)
                for name, readings in offered.items():
                    total += inspector.store(writer, variables[name], readings, offered.get)
                tell((place + 1) / len(cuts))
            self.report.revised, self.report.superseded = inspector.revised, total.superseded
            self.report.empty_series = self._empty(writer, names)
            if described.quality.run and total.changed:
                writer.quality({**self.archive.quality, **described.quality.to_json(_of(variables, new.series))})
            self._write_ledger(writer, entries, changed=total.changed > 0)
        self.report.snapshot = writer.snapshot

    def _windows(self, writer: Writer) -> Sequence[Window]:
        """Cut time so that what both descriptions say of each piece fits in memory."""
        spans = [span for said in (self.new, *self.old) for span in said.stock.spans()]
        return windows(spans, most=VALUES_AT_ONCE, chunks_ns=writer.chunks_ns)

    def _offered(self, writer: Writer, window: Window, names: Sequence[str]) -> dict[str, Readings]:
        """Return, by variable, the readings of a window that are to be stored."""
        now = self.new.pieces(window, self.now_ns)
        before = [(said, said.pieces(window, self.now_ns)) for said in self.old]
        found = {}
        for name in names:
            new = self.new.readings(name, now)
            old = _together([said.readings(name, pieces) for said, pieces in before])
            if not len(new) and not len(old):
                continue
            stored = writer.read(name, window=_around(new, old))
            series = tuple(dict.fromkeys([*stored.series, *old.series, *new.series]))
            offered = self._difference(*(counted(one, series) for one in (new, old, stored)))
            if len(offered):
                found[name] = offered
        return found

    def _difference(self, new: Readings, old: Readings, stored: Readings) -> Readings:
        """Return what is to be stored: other values, further readings, and missing values for those withdrawn."""
        report = self.report
        was, is_now, again = find(old, new), find(stored, new), find(new, old)
        same = (was >= 0) & _alike(new, old, was, flags=True)
        # Where the archive has what neither says, somebody else replaced it.
        others = ~same & (is_now >= 0) & (was >= 0) & ~_alike(old, stored, is_now, of=was)
        done = ~same & (is_now >= 0) & _alike(new, stored, is_now)
        changes = ~same & ~others & ~done
        at = find(stored, old)
        gone = (again < 0) & (at >= 0) & (old.flag != MISSING)
        mine = gone & _alike(old, stored, at)
        report.same += int(np.count_nonzero(same | done))
        report.kept += int(np.count_nonzero(others & ~done)) + int(np.count_nonzero(gone & ~mine))
        report.replaced += int(np.count_nonzero(changes & (is_now >= 0)))
        report.added += int(np.count_nonzero(changes & (is_now < 0)))
        report.withdrawn += int(np.count_nonzero(mine))
        withdrawn = old.take(mine)
        withdrawn = replace(
            withdrawn, value=np.full(len(withdrawn), np.nan), flag=np.full(len(withdrawn), MISSING, np.uint8)
        )
        offered = concatenate([replace(one, tests=None) for one in (new.take(changes), withdrawn)])
        return replace(offered, arrival_ns=np.full(len(offered), self.now_ns, np.int64)).ordered()

    def _empty(self, writer: Writer, names: Sequence[str]) -> tuple[str, ...]:
        """Return the series that only the old description gives, and that have no value any more."""
        found = []
        for name in names:
            gone = {one for said in self.old for one in said.series.get(name, ())} - set(self.new.series.get(name, ()))
            if gone and self.report.withdrawn:
                stored = writer.read(name)
                alive = set(np.unique(stored.index[stored.flag != MISSING]).tolist())
                found += [
                    f"{name}:{one.station}:{one.source}"
                    for number, one in enumerate(stored.series)
                    if one in gone and number not in alive
                ]
        return tuple(found)

    def _write_ledger(self, writer: Writer, entries: Mapping[str, FileEntry], *, changed: bool) -> None:
        """Note by what the files were read last, with what cannot be read, and keep the description."""
        stock = self.new.stock
        read = [entry for entry in stock.files(self.now_ns) if entry.readings and entry.sha256 in entries]
        other = [entry for entry in read if entry.mapping != entries[entry.sha256].mapping]
        if not changed and not other:
            return
        writer.files(other or read)
        known = set(self.archive.rejects())
        writer.rejects([reject for reject in stock.rejects() if reject not in known])
        path = self.described.path
        if path is not None and path.is_file():
            size_bytes = path.stat().st_size
            sha256 = hash_of(path, size_bytes)
            keep(path, self.archive.path / RAW, sha256=sha256, size_bytes=size_bytes)
            writer.described_by({sha256: path.name})


def _of(variables: Mapping[str, Variable], names: Iterable[str]) -> dict[str, Variable]:
    return {name: variables[name] for name in names}


def _around(*some: Readings) -> Window:
    stamps = np.concatenate([one.time_ns for one in some])
    return Window(int(stamps.min()), int(stamps.max()) + 1)


def _together(some: Sequence[Readings]) -> Readings:
    series = tuple(dict.fromkeys(one for readings in some for one in readings.series))
    return concatenate([Readings.empty(series), *(counted(one, series) for one in some)]).ordered()


def counted(readings: Readings, series: tuple[Series, ...]) -> Readings:
    """Return readings that count other series, among which theirs are; ordered."""
    return renumbered(readings, series).ordered()


def find(here: Readings, wanted: Readings) -> NDArray[np.intp]:
    """Return for each wanted reading the place of the one with its series and stamp, -1 where there is none."""
    index, time_ns = (np.concatenate([getattr(one, name) for one in (here, wanted)]) for name in ("index", "time_ns"))
    order = np.lexsort((time_ns, index))
    before, after = order[:-1], order[1:]
    equal = (index[before] == index[after]) & (time_ns[before] == time_ns[after])
    found = np.full(len(wanted), -1, np.intp)
    found[after[equal] - len(here)] = before[equal]
    return found


def _alike(
    one: Readings, other: Readings, at: NDArray[np.intp], *, of: NDArray[np.intp] | None = None, flags: bool = False
) -> NDArray[np.bool_]:
    """Return which readings have the value of those of another at some places; False where the place is -1.

    Parameters
    ----------
    of
        Places of `one` that are compared; all, in order, where absent.
    flags
        Compare the flags too.
    """
    mine = np.arange(len(one)) if of is None else of
    known = (at >= 0) & (mine >= 0)
    found = np.zeros(len(at), np.bool_)
    found[known] = same_values(one.value[mine[known]], other.value[at[known]])
    if flags:
        found[known] &= one.flag[mine[known]] == other.flag[at[known]]
    return found
