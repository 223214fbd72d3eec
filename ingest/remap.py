"""Raw files once more, after a mistake in how they were described: what the new description says otherwise is amended.

Every file is read twice, as it was described when it was ingested and as it is described now, and the two are compared
reading by reading. What both say is left alone. A value that is another now replaces the old one; a reading that only
the new description gives is stored; one that only the old gave (it lies in another series, or at another instant, now)
is withdrawn: a missing value takes its place, as "nothing was measured here" is all that an archive can say. What is
replaced is retained, and all that changes arrives now, so that reading as of an earlier instant gives what was believed
then. A reading that somebody else replaced meanwhile is left as it is.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.errors import HyperGridError, InvalidDeployment, NotFound
from hypergrid.flags import MISSING
from hypergrid.store import Archive, Conservation, FileEntry, Writer
from hypergrid.streams.elements import Readings, Series, concatenate
from hypergrid.times import Window
from hypergrid.tokens import token
from hypergrid.units import Variable
from ingest.assemble import Rows, assemble, stations_of
from ingest.job import RAW, SPARK_FROM_BYTES
from ingest.judging import Inspector
from ingest.mapping import FILE_NAME, Deployment, default_deployment, load
from ingest.plan import make_plan
from ingest.report import Stages
from ingest.sources.folder import CHUNK_BYTES, Chunk, discover
from ingest.sources.raw import hash_of, keep, place_of, read_back
from ingest.staging import Staged, stage, windows
from ingest.storing import VALUES_AT_ONCE, Stock, kinds, rows_within
from ingest.target import STAGING, held
from ingest.telling import columns_of, is_placed, with_told


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


def remap(
    archive_path: str | Path,
    *,
    deployment: Path | None = None,
    now_ns: int,
    parse: Callable[[Sequence[Chunk], Path, Stages], list[Staged]] | None = None,
    progress: Callable[[str, float], None] | None = None,
    on_warning: Callable[[str], None] = lambda _text: None,
) -> RemapReport:
    """Read the raw files of an archive again, and amend what a new description says otherwise, in one commit.

    Parameters
    ----------
    deployment
        The description that holds now; None: the last that the archive keeps, as after a newer program.
    now_ns
        The present [ns since 1970 UTC]: the arrival of what changes.
    parse
        Parses chunks into a folder; only this process where absent.
    on_warning
        Is told each warning at once.

    Raises
    ------
    hypergrid.errors.InvalidDeployment
        The deployment file cannot be used.
    hypergrid.errors.ArchiveConflict
        It describes another network or other slices, or keeps a variable in another unit than the archive does.
    hypergrid.errors.NotFound
        The archive keeps neither a raw file nor a description, or no feed reads any of its files.
    """
    archive = Archive.open(archive_path)
    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(text)
        on_warning(text)

    stages = Stages(time.perf_counter, progress)
    kept = _kept_descriptions(archive)
    described = load(deployment) if deployment is not None else _latest(archive, kept)
    waiting = "another ingest of this archive is running; waiting"
    with held(archive.path, described, now_ns=now_ns, on_wait=lambda: warn(waiting)) as opened:
        scratch = Path(tempfile.mkdtemp(prefix="remap-", dir=archive.path / STAGING))
        try:
            run = _Run(opened, scratch, stages, parse or _parse_here, warn)
            report = run.do(described, kept, now_ns)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    report.seconds, report.warnings = dict(stages.seconds), tuple(warnings)
    return report


def stage_here_or_on_spark(chunks: Sequence[Chunk], folder: Path, stages: Stages) -> list[Staged]:
    """Parse chunks into a folder, on Spark where they are large."""
    if sum(chunk.stop - chunk.start for chunk in chunks) < SPARK_FROM_BYTES:
        return _parse_here(chunks, folder, stages)
    from ingest.spark.batch import stage_on_spark  # noqa: PLC0415 - Spark is heavy, and small inputs need none

    return stage_on_spark(chunks, folder, stages)


def _parse_here(chunks: Sequence[Chunk], folder: Path, stages: Stages) -> list[Staged]:
    with stages.stage("parse") as tell:
        staged = []
        for count, chunk in enumerate(chunks):
            staged.append(stage(chunk, folder))
            tell((count + 1) / len(chunks))
        return staged


def _kept_descriptions(archive: Archive) -> dict[str, Deployment]:
    """Return the descriptions whose raw copies the archive keeps, by the hash of their file, oldest first."""
    found: dict[str, Deployment] = {}
    with tempfile.TemporaryDirectory() as folder:
        for sha256, name in archive.described_by.items():
            if not name.endswith(".toml"):
                continue
            path = Path(folder) / FILE_NAME
            try:
                path.write_bytes(read_back(archive.path / RAW, sha256))
                found[sha256] = load(path)
            except (OSError, HyperGridError):
                # Lost, or written for a later or an earlier program: what was read by it is told as not known.
                continue
    return found


def _latest(archive: Archive, kept: Mapping[str, Deployment]) -> Deployment:
    if not kept:
        message = (
            f"{archive.path} keeps no description of its files; give the one that holds now: --deployment {FILE_NAME}"
        )
        raise NotFound(message)
    return list(kept.values())[-1]


@dataclass(frozen=True, eq=False)
class _Said:
    """What a description says of some files."""

    stock: Stock
    series: Mapping[str, tuple[Series, ...]]

    def pieces(self, window: Window, now_ns: int) -> list[Rows]:
        return rows_within(self.stock, window, now_ns=now_ns)

    def readings(self, name: str, pieces: Sequence[Rows]) -> Readings:
        """Return the readings of a variable, of those with one stamp the last, ordered."""
        if name not in self.series:
            return Readings.empty()
        deployment = self.stock.deployment
        found = assemble(pieces, deployment.variable(name), self.series[name], deployment).ordered()
        last = np.ones(len(found), np.bool_)
        last[:-1] = (found.index[1:] != found.index[:-1]) | (found.time_ns[1:] != found.time_ns[:-1])
        return found.take(last)


@dataclass
class _Run:
    """The steps of a run."""

    archive: Archive
    scratch: Path
    stages: Stages
    parse: Callable[[Sequence[Chunk], Path, Stages], list[Staged]]
    warn: Callable[[str], None]

    def do(self, described: Deployment, kept: Mapping[str, Deployment], now_ns: int) -> RemapReport:
        report = RemapReport(str(self.archive.path), str(described.path or "the one that the archive keeps"))
        entries = self._entries()
        new = self._said(described, list(entries.values()), "new")
        given = self._usable(new, entries)
        if not given:
            message = (
                f"no feed of {report.deployment} gives a reading from the {len(entries)} raw files of "
                f"{self.archive.path}; nothing was changed; check patterns, formats and columns of its feeds"
            )
            raise NotFound(message)
        if len(given) < len(entries):
            left = [entry.name for sha256, entry in entries.items() if sha256 not in given]
            self.warn(f"files that give no reading as described now stay as they are: {_some(left)}")
        report.files, report.files_left = len(given), len(entries) - len(given)
        old = self._old([entries[sha256] for sha256 in given], kept)
        with self.stages.stage("compare and store") as tell:
            _Comparison(self.archive, described, new, old, report, now_ns).commit(entries, tell)
        self._tell_stations(described)
        rejects = new.stock.rejects()
        report.rejects = kinds(rejects)
        if rejects:
            self.warn(f"{len(rejects)} rows or files cannot be read as described now, see hypergrid rejects")
        if report.kept:
            self.warn(f"{report.kept:,} readings were replaced by others since they were ingested, and were left alone")
        if report.empty_series:
            self.warn(
                f"series that nothing gives any more stay listed, with missing values alone: "
                f"{_some(report.empty_series)}; where a station has another one now, queries .select it by its source"
            )
        return report

    def _entries(self) -> dict[str, FileEntry]:
        """Return the last entry of each content, in the order in which contents came first."""
        found: dict[str, FileEntry] = {}
        for entry in self.archive.files():
            if place_of(self.archive.path / RAW, entry.sha256).is_file():
                found[entry.sha256] = entry
        if not found:
            message = f"{self.archive.path} keeps no raw file that could be read again; nothing was changed"
            raise NotFound(message)
        return found

    def _placed(self, entries: Iterable[FileEntry], folder: Path) -> list[Path]:
        """Unpack raw copies under their names, a folder for each run that ingested some; return these, in order."""
        order = {entry.sha256: entry.ingested_ns for entry in reversed(self.archive.files())}
        runs: dict[int, Path] = {}
        for instant in sorted({order[entry.sha256] for entry in entries}):
            runs[instant] = folder / f"{len(runs):06d}"
            runs[instant].mkdir(parents=True)
        for entry in entries:
            root = runs[order[entry.sha256]]
            # A name that leads elsewhere is not followed.
            parts = [part for part in PurePosixPath(entry.name).parts if part not in ("/", "..")]
            path = root.joinpath(*parts)
            if path.exists():
                path = root / entry.sha256[:12] / path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(read_back(self.archive.path / RAW, entry.sha256))
        return list(runs.values())

    def _said(self, deployment: Deployment, entries: Sequence[FileEntry], name: str) -> _Said:
        folder = self.scratch / name
        roots = self._placed(entries, folder / "files")
        plain, staging = folder / "plain", folder / "staging"
        plain.mkdir()
        staging.mkdir()
        names = {entry.sha256: entry.name for entry in entries}
        with self.stages.stage("plan") as tell:
            found = discover(roots, deployment)
            plan = make_plan(found, deployment, ledger=(), chunk_bytes=CHUNK_BYTES, scratch=plain, progress=tell)
        files = tuple(replace(file, name=names.get(file.sha256, file.name)) for file in plan.files)
        plan = replace(plan, files=files)
        told = with_told(deployment, plan, variables=self.archive.variables, stations=self.archive.stations)
        staged = self.parse(plan.chunks, staging, self.stages)
        stock = Stock(plan, told, staged, staging, columns_of(plan, told), {})
        return _Said(stock, stock.series())

    @staticmethod
    def _usable(said: _Said, entries: Mapping[str, FileEntry]) -> set[str]:
        """Return the contents of which a description gives a reading."""
        plan = said.stock.plan
        return {
            plan.files[chunk.file].sha256
            for chunk, staged in zip(plan.chunks, said.stock.staged, strict=True)
            if staged.rows and (plan.layouts[chunk.file].long or said.stock.width(chunk.file))
        } & entries.keys()

    def _old(self, entries: Sequence[FileEntry], kept: Mapping[str, Deployment]) -> list[_Said]:
        """Return what was said of files when they were ingested, as far as the archive keeps by what."""
        without = default_deployment(
            name=self.archive.name, slice_s=self.archive.slice_s, variables=tuple(self.archive.variables.values())
        )
        known = {feed.token(): deployment for deployment in (without, *kept.values()) for feed in deployment.feeds}
        groups: dict[int, tuple[Deployment, list[FileEntry]]] = {}
        unknown = []
        for entry in entries:
            deployment = known.get(entry.mapping)
            if deployment is None:
                unknown.append(entry.name)
            else:
                groups.setdefault(id(deployment), (deployment, []))[1].append(entry)
        found = []
        for number, (deployment, some) in enumerate(groups.values()):
            try:
                found.append(self._said(deployment, some, f"old-{number}"))
            except InvalidDeployment:
                unknown += [entry.name for entry in some]
        if unknown:
            self.warn(
                f"by what these files were read is not kept, so that nothing of them is withdrawn: {_some(unknown)}"
            )
        return found

    def _tell_stations(self, described: Deployment) -> None:
        before = self.archive.stations
        moved = [
            station.id
            for station in described.stations
            if station.id in before and is_placed(station) and station.position != before[station.id].position
        ]
        if moved:
            self.warn(f"stations stand elsewhere now, as the description says: {_some(moved)}")


@dataclass
class _Comparison:
    """What two descriptions say of the same files, and what is stored of the difference."""

    archive: Archive
    described: Deployment
    new: _Said
    old: Sequence[_Said]
    report: RemapReport
    now_ns: int

    def commit(self, entries: Mapping[str, FileEntry], tell: Callable[[float], None]) -> None:
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
        sizes = [
            (staged, said.stock.width(chunk.file))
            for said in (self.new, *self.old)
            for chunk, staged in zip(said.stock.plan.chunks, said.stock.staged, strict=True)
        ]
        return windows(sizes, most=VALUES_AT_ONCE, chunks_ns=writer.chunks_ns)

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
            offered = self._difference(*(_counted(one, series) for one in (new, old, stored)))
            if len(offered):
                found[name] = offered
        return found

    def _difference(self, new: Readings, old: Readings, stored: Readings) -> Readings:
        """Return what is to be stored: other values, further readings, and missing values for those withdrawn."""
        report = self.report
        was, is_now, again = _find(old, new), _find(stored, new), _find(new, old)
        same = (was >= 0) & _alike(new, old, was, flags=True)
        # Where the archive has what neither says, somebody else replaced it.
        others = ~same & (is_now >= 0) & (was >= 0) & ~_alike(old, stored, is_now, of=was)
        done = ~same & (is_now >= 0) & _alike(new, stored, is_now)
        changes = ~same & ~others & ~done
        at = _find(stored, old)
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
    return concatenate([Readings.empty(series), *(_counted(one, series) for one in some)]).ordered()


def _counted(readings: Readings, series: tuple[Series, ...]) -> Readings:
    """Return readings that count other series, among which theirs are."""
    place = {one: number for number, one in enumerate(series)}
    table = np.array([place[one] for one in readings.series] or [0], np.int32)
    return replace(readings, series=series, index=table[readings.index]).ordered()


def _find(here: Readings, wanted: Readings) -> NDArray[np.intp]:
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
    a, b = one.value[mine[known]], other.value[at[known]]
    found[known] = (a == b) | (np.isnan(a) & np.isnan(b))
    if flags:
        found[known] &= one.flag[mine[known]] == other.flag[at[known]]
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
