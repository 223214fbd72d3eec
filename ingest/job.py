"""Ingest files in one commit: plan, parse (locally or on Spark), keep raw copies, store."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Final, Literal

from hypergrid.archive import Archive, Reject
from hypergrid.archive.disk.raw_copies import RAW, hash_of, keep, sweep
from hypergrid.core.clock_errors import encode_clock_errors
from hypergrid.core.errors import HyperGridError, NotFound, Rejected
from hypergrid.core.readings import Station
from hypergrid.core.times import floor_to_microsecond, format_instant
from hypergrid.core.tokens import token
from hypergrid.core.version import explain_missing
from hypergrid.perspective.sources.series_selection import SELECTED_BY_DEFAULT
from ingest.batch.archive_session import STAGING, check_same, locked_archive, open_if_exists
from ingest.batch.clock_back import ClockBack, merge_clock_backs
from ingest.batch.plan import (
    IngestPlan,
    columns_of,
    find_distant_stations,
    guess_slice_s,
    is_placed,
    layout_warnings,
    make_plan,
    with_file_metadata,
)
from ingest.batch.report import IngestReport, RunListener, Stages, check_conservation
from ingest.batch.staging import StagedChunk, stage
from ingest.batch.write_staged import VALUES_AT_ONCE, StagedBatch, Totals, count_by_reason, examples_by_reason, store
from ingest.deployment.arrival_table import read_arrivals
from ingest.deployment.deployment_file import Deployment, default_deployment, load
from ingest.formats import FORMATS
from ingest.sources.folder import (
    FILE_NAME,
    Chunk,
    Discovery,
    SourceFile,
    discover,
    find_deployment,
    has_changed,
    network_name,
)

Engine = Literal["auto", "spark", "inprocess"]
SPARK_FROM_BYTES: Final = 32 << 20
"""Input size from which "auto" uses Spark [bytes]; the sample network is larger."""
# 30 MiB of CSV, 3.5 million readings, were parsed in 0.7 s of processor time, on Spark in 6.5 s with its start: on two
# cores it saves time from some 300 MiB on, and costs at most 4 s below.
MAX_LISTED: Final = 5
"""Maximum number of second series listed in a warning."""
WAITING: Final = "another ingest of this archive is running; waiting"


@dataclass
class _IngestRun:
    """Context shared by all steps of a run."""

    folder: Path
    now_ns: int
    strict: bool
    stages: Stages
    on_warning: Callable[[str], None]
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.on_warning(text)


@dataclass(frozen=True, eq=False)
class _Outcome:
    """What became of the staged rows of a run."""

    engine: str = ""
    totals: Totals = field(default_factory=Totals)
    rejects: Sequence[Reject] = ()
    snapshot: str | None = None


def ingest(
    paths: Sequence[str | Path],
    archive_path: str | Path,
    *,
    deployment: Path | None = None,
    engine: Engine = "auto",
    strict: bool = False,
    now_ns: int,
    listener: RunListener = RunListener(),  # noqa: B008 - immutable
) -> IngestReport:
    """Ingest files into an archive in one commit, creating the archive if it is missing.

    Files whose content is already in the archive are skipped; if none is new, nothing is committed except another
    `[publication]`. Rows that cannot be
    read become rejects, and the rest is ingested; a file without any readings is retried when its mapping changes. A
    run that fails leaves no new archive behind; one that is killed leaves the archive unchanged, and the next run does
    its work.

    Parameters
    ----------
    paths
        Files, and folders to search recursively.
    archive_path
        Folder of the archive.
    deployment
        Deployment file; by default the `deployment.toml` of the first folder that has one, else the plain CSV default.
    engine
        Where to parse; "auto" uses Spark, which needs Java, from `SPARK_FROM_BYTES` of new files on.
    strict
        Whether any reject fails the run.
    now_ns
        Current time [ns since 1970 UTC]; in whole microseconds the arrival of readings without a known one.
    listener
        What is called as the run goes on; all warnings are also in the report.

    Raises
    ------
    NotFound
        A path does not exist, no file matches a feed, or Spark is needed and cannot start.
    InvalidDeployment
        The deployment file is unusable.
    NotAnArchive
        The folder contains something else; it is left unchanged.
    ArchiveConflict
        The archive belongs to another network, or has slices of another length.
    Rejected
        `strict`, and something could not be read; nothing was committed.
    """
    now_ns = floor_to_microsecond(now_ns)
    run = _IngestRun(
        Path(archive_path), now_ns, strict, Stages(time.perf_counter, listener.on_progress), listener.on_warning
    )
    sources = [Path(path) for path in paths]
    there = open_if_exists(run.folder)
    described = _describe(sources, deployment, there)
    discovery = discover(sources, described, exclude=run.folder)
    _refuse_nothing(discovery, described, sources)
    if there is None and not described.declared:
        described = replace(described, slice_s=guess_slice_s(discovery, described))
    with ExitStack() as stack:
        waiting = partial(run.warn, WAITING)
        archive = stack.enter_context(locked_archive(run.folder, described, now_ns=now_ns, on_wait=waiting))
        _sweep(run.folder)
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="plain-", dir=run.folder / STAGING))
        with run.stages.stage("plan") as on_progress:
            plan = make_plan(
                discovery,
                described,
                ledger=archive.files(),
                scratch=Path(scratch),
                progress=on_progress,
            )
        for text in layout_warnings(plan, described):
            run.warn(text)
        if plan.files and not described.declared and (above := _deployment_above(sources)) is not None:
            run.warn(f"a deployment file lies above them and was not used: --deployment {above} uses it")
        if plan.files_elsewhere:
            run.warn(
                f"{plan.files_elsewhere} files are in the archive already, read with another description (units, "
                f"columns, "
                "zone); their readings stay as they are: ingest the files into a new archive to read them this way"
            )
        if not plan.files:
            outcome = _Outcome(snapshot=_state(archive, described, now_ns))
            return _report(run, discovery, {}, StagedBatch(plan, described, (), run.folder, {}, {}), outcome)
        described = with_file_metadata(described, plan, variables=archive.variables, stations=archive.stations)
        return _ingest_new(run, plan, discovery, described, archive, choose_engine(engine, plan))


def _describe(sources: Sequence[Path], given: Path | None, archive: Archive | None) -> Deployment:
    path = given or find_deployment(sources)
    if path is None:
        if archive is not None:
            variables = tuple(archive.variables.values())
            return default_deployment(name=archive.name, slice_s=archive.slice_s, variables=variables)
        return default_deployment(name=network_name(sources))
    described = load(path)
    if archive is not None:
        check_same(archive, described)
    return described


def _refuse_nothing(discovery: Discovery, deployment: Deployment, sources: Sequence[Path]) -> None:
    if discovery.files:
        return
    patterns = ", ".join(feed.files for feed in deployment.feeds if feed.files)
    if not deployment.declared:
        patterns += f", and none in a format that is known ({', '.join(FORMATS)}),"
    where = ", ".join(map(str, sources)) or "no path"
    seen = len(discovery.ignored) + len(discovery.companions)
    hint = "check the path and the patterns of the feeds"
    above = None if deployment.declared else _deployment_above(sources)
    if above is not None:
        hint = f"give the deployment file that lies above them: --deployment {above}"
    elif not deployment.declared:
        hint = "describe them in a deployment file"
    if discovery.companions:
        hint = f"to read {discovery.companions[0]} as data, give its own path"
    raise NotFound(f"nothing to ingest: no file named {patterns} in {where} ({seen} others were seen); {hint}")


def _deployment_above(sources: Sequence[Path]) -> Path | None:
    return next((path for source in sources if (path := source.resolve().parent / FILE_NAME).is_file()), None)


def _ingest_new(
    run: _IngestRun, plan: IngestPlan, discovery: Discovery, deployment: Deployment, archive: Archive, engine: str
) -> IngestReport:
    arrivals, hashes = {}, [file.sha256 for file in plan.files]
    beside: dict[str, str] = {}
    if deployment.path is not None:
        beside[keep_description(deployment.path, run.folder)] = deployment.path.name
        for feed in deployment.feeds:
            if feed.arrivals is not None:
                with run.stages.stage("arrivals"):
                    arrivals[feed.name] = read_arrivals(deployment.path.parent / feed.arrivals)
        for path in deployment.tables:
            hashes.append(keep_description(path, run.folder))
            beside[hashes[-1]] = path.name
    # Identifies the content and its description, so that the same batch is committed only once.
    batch = token(sorted(hashes), deployment.token())
    if run.strict and plan.unreadable:
        _refuse(plan.unreadable)
    # A unique name, because workers of a run that was just killed may still write into its folder.
    staging = Path(tempfile.mkdtemp(prefix=f"{batch[:12]}-", dir=run.folder / STAGING))
    try:
        staged = stage_chunks(plan.chunks, staging, engine, run.stages)
        stock = StagedBatch(plan, deployment, staged, staging, columns_of(plan, deployment), arrivals)
        rejects = stock.rejects()
        if run.strict and rejects:
            _refuse(rejects)
        # Before the commit, so that no snapshot refers to a missing copy.
        with run.stages.stage("keep raw"):
            _keep_raw(plan.files, run.folder / RAW)
        totals, snapshot = _commit(run, stock, archive, batch, rejects, beside)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    if snapshot is not None and (beside_others := _second_series(archive, archive.at_snapshot(snapshot))):
        run.warn(
            f"stations got a second series of a variable: {beside_others}; queries and saved surfaces that interpolate "
            "it are refused until they choose one of each station with 'select'"
        )
    backs = (ClockBack(chunk.repeated, chunk.repeated_ns) for chunk in staged if chunk.repeated)
    if (back := reduce(merge_clock_backs, backs, None)) is not None:
        run.warn(back.describe())
    for text in stock.arrival_warnings(run.now_ns):
        run.warn(text)
    for suspicion in totals.suspicions:
        run.warn(suspicion.describe())
    if totals.instants_ahead:
        listed = ", ".join(
            f"{name} (to {format_instant(stamp)})" for name, stamp in sorted(totals.instants_ahead.items())
        )
        run.warn(f"stamps in the future are kept as they are; the clocks of these stations are likely wrong: {listed}")
    return _report(run, discovery, archive.stations, stock, _Outcome(engine, totals, rejects, snapshot))


def _state(archive: Archive, deployment: Deployment, now_ns: int) -> str | None:
    """Commit the statements of a deployment on readings that are there already, if they are others.

    They are its publication and the clock errors. The snapshot is returned, and the description kept beside, as with
    readings.
    """
    publication, errors, path = deployment.publication, deployment.quality.clock_errors, deployment.path
    changed = {
        "publication": publication is not None and publication != archive.publication,
        "clock errors": {**archive.clock_errors, **errors} != archive.clock_errors,
    }
    if path is None or not any(changed.values()):
        return None
    kept = {keep_description(each, archive.path): each.name for each in (path, *deployment.tables)}
    stated = {} if publication is None else publication.attributes()
    message = " and ".join(name for name, is_other in changed.items() if is_other)
    batch = f"{message} {token(stated, encode_clock_errors(errors), archive.snapshot)}"
    with archive.commit(batch=batch, message=message, now_ns=now_ns) as writer:
        writer.publication(publication)
        writer.clock_errors(errors)
        writer.described_by(kept)
    return writer.snapshot


def _keep_raw(files: Sequence[SourceFile], raw: Path) -> None:
    def copied(file: SourceFile) -> bool:
        keep(file.path, raw, sha256=file.sha256, size_bytes=file.size_bytes)
        return not has_changed(file)

    # In threads, because most of the work is compression.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, is_same in zip(files, pool.map(copied, files), strict=True):
            if not is_same:
                raise HyperGridError(f"{file.path} changed while it was read; nothing was committed; ingest it again")


def keep_description(path: Path, folder: Path) -> str:
    """Keep a raw copy of a file that describes the data; return its hash."""
    size_bytes = path.stat().st_size
    sha256 = hash_of(path, size_bytes)
    keep(path, folder / RAW, sha256=sha256, size_bytes=size_bytes)
    return sha256


def choose_engine(engine: Engine, plan: IngestPlan) -> str:
    return engine if engine != "auto" else "spark" if plan.size_bytes >= SPARK_FROM_BYTES else "inprocess"


def stage_chunks(chunks: Sequence[Chunk], staging: Path, engine: str, stages: Stages) -> list[StagedChunk]:
    if engine == "spark":
        return _stage_on_spark(chunks, staging, stages)
    with stages.stage("parse") as on_progress:
        staged = []
        for count, chunk in enumerate(chunks):
            staged.append(stage(chunk, staging))
            on_progress((count + 1) / len(chunks))
        return staged


def _stage_on_spark(chunks: Sequence[Chunk], staging: Path, stages: Stages) -> list[StagedChunk]:
    try:
        from ingest.spark.batch import stage_on_spark  # noqa: PLC0415 - Spark is heavy, and small inputs need none

        return stage_on_spark(chunks, staging, stages)
    except (ModuleNotFoundError, NotFound) as error:
        missing = explain_missing(error) if isinstance(error, ModuleNotFoundError) else str(error)
        if missing is None:
            raise
        raise NotFound(
            f"the files were to be parsed on Spark, which 'auto' takes from {SPARK_FROM_BYTES >> 20} MiB on, and which "
            f"cannot start: {missing}. To parse them on one core of this process, without Java: --engine inprocess"
        ) from error


def _commit(
    run: _IngestRun,
    stock: StagedBatch,
    archive: Archive,
    batch: str,
    rejects: Sequence[Reject],
    beside: Mapping[str, str],
) -> tuple[Totals, str | None]:
    count = len(stock.plan.files)
    message = f"ingest of {count} file{'s' if count != 1 else ''}, deployment {stock.deployment.token()[:12]}"
    with (
        run.stages.stage("store") as on_progress,
        archive.commit(batch=batch, message=message, now_ns=run.now_ns) as writer,
    ):
        totals = store(
            stock,
            writer,
            known=archive.stations,
            now_ns=run.now_ns,
            values_at_once=VALUES_AT_ONCE,
            progress=on_progress,
        )
        went = totals.conservation
        check_conservation(
            rows_in=stock.rows_in(),
            rejected=stock.readings_rejected(),
            stored=went.stored + went.side,
            superseded=went.superseded,
            duplicates=went.duplicates,
        )
        writer.rejects(rejects)
        writer.files(stock.files(run.now_ns))
        writer.described_by(beside)
    return totals, writer.snapshot


def _second_series(before: Archive, after: Archive) -> str:
    """List series added to stations that already had one of the variable; empty if none."""
    descriptions = []
    for name in before.variables:
        known = {
            sensor_series.station: sensor_series
            for sensor_series in before.series(name)
            if sensor_series.statistic in SELECTED_BY_DEFAULT["statistic"]
        }
        for new_series in after.series(name)[len(before.series(name)) :]:
            if (
                new_series.statistic in SELECTED_BY_DEFAULT["statistic"]
                and (other := known.get(new_series.station)) is not None
            ):
                names = ("height_m", "statistic", "replicate", "interval_s", "source")
                keys = [key for key in names if getattr(new_series, key) != getattr(other, key)]
                was, now = (", ".join(f"{key}={getattr(each, key)!r}" for key in keys) for each in (other, new_series))
                descriptions.append(f"{name} of {new_series.station} ({was} beside {now})")
    return "; ".join(descriptions[:MAX_LISTED]) + (
        f" and {len(descriptions) - MAX_LISTED} more" if len(descriptions) > MAX_LISTED else ""
    )


def _refuse(rejects: Sequence[Reject]) -> None:
    first = rejects[0]
    counted = ", ".join(f"{count} x {kind}" for kind, count in count_by_reason(rejects).items())
    raise Rejected(
        f"{len(rejects)} rejects ({counted}), the first in {first.file}, line {first.line}: {first.reason}; "
        "nothing was committed; mend the files, or ingest without strict to keep the rest"
    )


def _sweep(folder: Path) -> None:
    """Remove leftovers of killed runs."""
    # This run holds the lock, so no other run is alive.
    for leftover in (folder / STAGING).iterdir():
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
    sweep(folder / RAW)


def _report(
    run: _IngestRun, discovery: Discovery, known: Mapping[str, Station], stock: StagedBatch, outcome: _Outcome
) -> IngestReport:
    totals, rejects, stations = outcome.totals, outcome.rejects, stock.stations()
    by_kind = count_by_reason(rejects)
    far_stations: dict[str, float] = {}
    if stock.plan.files:
        described = {**known, **{station.id: station for station in stock.deployment.stations}}
        unknown = sorted(set(stations) - set(described)) if stock.deployment.declared else []
        if unknown:
            run.warn(f"stations that the deployment does not know have no position: {', '.join(unknown)}")
        nowhere = [name for name in stations if name not in unknown and not is_placed(described.get(name))]
        if nowhere:
            run.warn(f"positions of stations are missing; they cannot be interpolated: {', '.join(nowhere)}")
        far_stations = find_distant_stations(described.values())
        if far_stations:
            listed = ", ".join(f"{name} ({away_m / 1000:.0f} km)" for name, away_m in far_stations.items())
            run.warn(f"stations far off the network's middle are kept, and no sensible grid holds them: {listed}")
    if unmapped := sorted({name for staged in stock.staged for name in staged.unmapped}):
        run.warn(f"columns that nothing maps were left out: {', '.join(unmapped)}")
    if rejects:
        run.warn(f"{len(rejects)} rejects: " + ", ".join(f"{count} x {kind}" for kind, count in by_kind.items()))
    if discovery.ignored:
        run.warn(
            f"files that no feed reads were left out: {len(discovery.ignored)} ({', '.join(discovery.ignored[:5])})"
        )
    if discovery.station_tables:
        listed = ", ".join(path.name for path in discovery.station_tables)
        run.warn(
            f"a table of stations was not used, because no deployment file names it: {listed}; 'hypergrid ingest "
            "--dry-run --write-deployment FILE' proposes one that does"
        )
    if discovery.companions:
        listed = ", ".join(discovery.companions)
        run.warn(f"taken for files that go with the data, and not read: {listed}; to read one, give its own path")
    went = totals.conservation
    return IngestReport(
        archive=str(run.folder),
        engine=outcome.engine,
        size_bytes=stock.plan.size_bytes,
        stations=len(stations),
        files=len(stock.plan.files),
        files_skipped=stock.plan.skipped,
        files_ignored=len(discovery.ignored),
        rows=sum(staged.rows for staged in stock.staged),
        rows_rejected=sum(staged.rejects for staged in stock.staged),
        cells_rejected=sum(staged.cells for staged in stock.staged),
        readings=went.readings,
        values=totals.values,
        missing=totals.missing,
        readings_rejected=stock.readings_rejected(),
        rejects=by_kind,
        stored=went.stored + went.side,
        duplicates=went.duplicates,
        superseded=went.superseded,
        slices=len(totals.slices),
        seconds=dict(run.stages.seconds),
        snapshot=outcome.snapshot,
        quality=totals.quality,
        skipped=totals.skipped,
        revised=totals.revised,
        reject_examples=examples_by_reason(rejects),
        far_off=tuple(far_stations),
        warnings=tuple(run.warnings),
    )


__all__ = ["Engine", "IngestReport", "ingest"]
