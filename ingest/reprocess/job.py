"""Reprocess a whole archive: new flags, surfaces of queries; resumable after a kill.

A run and its branch are named by a digest of the request, so a second start of the same command finds them. The branch
holds the flags of completed partitions, and keeps the base snapshot of the run from expiring; the archive's folder
`reprocess` holds completed pieces of surfaces. Both are removed when the run is complete.

Flags are set in partitions: the readings of a variable in some chunks of time, with all stations, so that no two write
the same chunk. Each is flagged with its surroundings in the snapshot at which the run began, wherever and whenever that
happens; the flags therefore equal those of an uninterrupted run. They are committed in waves to the branch
(`hypergrid.archive.branch`).
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from hypergrid.archive import Archive, Branch, BranchResult, Fork, ForkResult, Writer
from hypergrid.archive.arrays.cells import CHUNK_SLICES
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.core.errors import DamagedArchive, HyperGridError, InvalidQuery
from hypergrid.core.flags import MEANINGS
from hypergrid.core.readings import Readings
from hypergrid.core.times import SECOND_NS, Window, format_instant
from hypergrid.core.tokens import token
from hypergrid.core.units import Variable
from hypergrid.execution import free_bytes
from hypergrid.formats.partitioned import (
    compute_piece,
    gather,
    load_piece,
    pieces_token,
    save_piece,
    split_pieces,
)
from hypergrid.formats.results import check_path
from hypergrid.query import Query, open_archive, read_document
from ingest.batch.report import Stages
from ingest.deployment.quality_overrides import QualityOverrides
from ingest.deployment.quality_settings import VariableTests
from ingest.quality.block_tests import affected
from ingest.quality.blocks import BLOCK_NS
from ingest.quality.flagging import places_of, reach_ns, reflag_part, select_reflagged, skipped_series, widen_window
from ingest.reprocess.reflag import parameters_of, select_variables, split_window

FOLDER: Final = "reprocess"
"""Folder of an archive for the pieces of surfaces, and for the lock of a run."""
BRANCHES: Final = "reprocess-"
"""Prefix of branch names; the run's token follows."""
READINGS_OF_A_PART: Final = 2_000_000
"""Approximate size of a partition: a process needs less than a gigabyte, and a kill loses seconds."""
PARTS_OF_A_CORE: Final = 2
"""Partitions per core between two commits of the branch."""

Task = TypeVar("Task")
Done = TypeVar("Done")


class Workers(Protocol):
    """Processes that run tasks."""

    @property
    def count(self) -> int:
        """Number of concurrent tasks."""

    def map(self, work: Callable[[Task], Done], tasks: Sequence[Task]) -> list[Done]:
        """Run `work` on each task; return the results in order."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Readings of a variable that are flagged together."""

    archive: str
    snapshot: str
    variable: Variable
    tests: VariableTests
    window: Window
    fork: Fork | None = None
    """Fork of the branch that flags are written to."""

    @property
    def key(self) -> tuple[str, int, int]:
        return self.variable.name, self.window.start_ns, self.window.stop_ns

    def describe(self) -> str:
        return f"{self.variable.name} {format_instant(self.window.start_ns)} to {format_instant(self.window.stop_ns)}"


def reflag_partition(part: Partition) -> tuple[ForkResult, dict[str, Any]]:
    """Flag a partition and write the flags to its fork; return the result and a note."""
    archive = Archive.open(part.archive, snapshot=part.snapshot)
    context, judged, inside = reflag_part(partial(_read, archive), archive, part.variable, part.tests, part.window)
    old, new = context.take_rows(inside), judged.take_rows(inside)
    if part.fork is None:
        raise ValueError("a part needs a fork of the branch that it is written to")
    written = part.fork.flags(select_reflagged(old, new))
    variable, start_ns, stop_ns = part.key
    note = {"variable": variable, "start_ns": start_ns, "stop_ns": stop_ns, "readings": len(new)}
    return written, {**note, "before": _counts(old), "after": _counts(new)}


def _read(archive: Archive, name: str, *, window: Window) -> Readings:
    if name not in archive.variables:
        return Readings.empty()
    return archive.read(name, window=window, tests=True)


def _counts(readings: Readings) -> dict[str, int]:
    counts = np.bincount(readings.flag, minlength=16)
    return {word: int(counts[flag]) for flag, word in MEANINGS.items() if counts[flag]}


@dataclass(frozen=True)
class ReflagJob:
    """Selection and parameters of a reflagging."""

    quality: QualityOverrides
    names: tuple[str, ...]
    """Variables; empty: all."""
    window: Window | None
    """Time range of the readings; None: all."""

    def token(self) -> str:
        window = None if self.window is None else (self.window.start_ns, self.window.stop_ns)
        return token("quality", self.quality, self.names, window)

    def partitions(self, archive: Archive) -> list[Partition]:
        """Return the partitions of an archive, in order."""
        partitions = []
        for name, variable in select_variables(archive, self.names).items():
            # Assumes a reading of every series in every slice.
            chunks = max(1, READINGS_OF_A_PART // (CHUNK_SLICES * max(1, len(archive.series(name)))))
            for span in archive.spans(name, chunks):
                window = span if self.window is None else span.intersect(self.window)
                if window is not None:
                    partitions.append(
                        Partition(str(archive.path), archive.snapshot, variable, self.quality.tests(variable), window)
                    )
        return partitions


@dataclass(frozen=True)
class ReflagResult:
    """Result of reflagging an archive."""

    snapshot: str | None
    """Snapshot committed to main; None if neither a flag nor a parameter changed."""
    readings: int
    changed: int
    """Readings whose flag, or the tests that set it, changed."""
    parts: int
    resumed: int
    """Partitions that an earlier start of the same run had completed."""
    before: Mapping[str, Mapping[str, int]]
    """Number of readings per flag, by variable."""
    after: Mapping[str, Mapping[str, int]]
    skipped: Mapping[str, Mapping[str, int]]
    """Number of stations that cannot be tested against neighbours, by variable and reason."""


def reflag_all(branch: Branch, judging: ReflagJob, workers: Workers, stages: Stages, *, now_ns: int) -> ReflagResult:
    """Flag the partitions left by an earlier start, and publish the flags to main."""
    base = branch.base
    parts = judging.partitions(base)
    done = {(note["variable"], note["start_ns"], note["stop_ns"]) for note in branch.notes}
    left = [part for part in parts if part.key not in done]
    branch.prepare(list(select_variables(base, judging.names)), now_ns=now_ns)
    at_once = max(1, workers.count * PARTS_OF_A_CORE)
    with stages.stage("judge") as on_progress:
        on_progress(len(done) / max(1, len(parts)))
        for first in range(0, len(left), at_once):
            wave = left[first : first + at_once]
            fork = branch.fork()
            tasks = [replace(part, fork=fork) for part in wave]
            written, notes = zip(*workers.map(reflag_partition, tasks), strict=True)
            message = f"parts of {len(parts)}: {', '.join(part.describe() for part in wave)}"
            branch.commit(written, notes, message=message, now_ns=now_ns)
            on_progress(len(branch.notes) / len(parts))
    with stages.stage("publish"):
        snapshot = branch.publish(_result(branch, judging, parts), partial(_reflag_window, judging), now_ns=now_ns)
    return ReflagResult(
        snapshot,
        sum(note["readings"] for note in branch.notes),
        sum(note["changed"] for note in branch.notes),
        len(parts),
        len(done),
        _sum_counts(branch.notes, "before"),
        _sum_counts(branch.notes, "after"),
        _skipped(base, judging),
    )


def _skipped(archive: Archive, judging: ReflagJob) -> dict[str, dict[str, int]]:
    """Count the stations that cannot be tested against neighbours, which depends only on positions."""
    result = {}
    for name, variable in select_variables(archive, judging.names).items():
        series = archive.series(name)
        reasons = skipped_series(judging.quality.tests(variable), places_of(series, archive.stations))
        counts = {
            reason: len({series[i].station for i in np.flatnonzero(rows).tolist()}) for reason, rows in reasons.items()
        }
        if any(counts.values()):
            result[name] = {reason: count for reason, count in counts.items() if count}
    return result


def _result(branch: Branch, judging: ReflagJob, parts: Sequence[Partition]) -> BranchResult:
    chosen = select_variables(branch.base.latest(), judging.names)
    parameters = judging.quality.to_json(chosen)
    batch = f"reprocess {judging.token()} after {branch.base.snapshot}"
    within = "" if judging.window is None else f" from {format_instant(judging.window.start_ns)}"
    within += "" if judging.window is None else f" to {format_instant(judging.window.stop_ns)}"
    return BranchResult(
        batch,
        f"quality of {', '.join(chosen)}{within} by parameters {token(parameters)[:12]}",
        # Parameters used for a part of the time are not those of the archive.
        parameters if judging.window is None else {},
        [(part.variable.name, part.window) for part in parts],
        {name: (name, *judging.quality.tests(variable).companions) for name, variable in chosen.items()},
    )


def _reflag_window(judging: ReflagJob, writer: Writer, archive: Archive, name: str, window: Window) -> None:
    """Reflag the readings that depend on a window, with the current readings of the archive."""
    variable = archive.variable(name)
    tests = judging.quality.tests(variable)
    readings = writer.read(name, window=window)
    around = widen_window(window, reach_ns(tests, readings, archive.slice_s))
    if tests.memory_days:
        # New readings may make other blocks suspect, as far as a memory reaches.
        first, stop = affected(tests, window.start_ns // BLOCK_NS, -(-window.stop_ns // BLOCK_NS))
        extent = archive.extent(name)
        last_ns = around.stop_ns if extent is None else max(around.stop_ns, min(stop * BLOCK_NS, extent.stop_ns))
        around = Window(min(around.start_ns, first * BLOCK_NS), last_ns)
    limited = around if judging.window is None else around.intersect(judging.window)
    if limited is None:
        return
    share = (limited.stop_ns - limited.start_ns) / max(1, window.stop_ns - window.start_ns)
    pieces = max(1, round(share * len(readings)) // READINGS_OF_A_PART)
    for part in split_window(limited, pieces):
        context, judged, inside = reflag_part(writer.read, archive, variable, tests, part)
        old, new = context.take_rows(inside), judged.take_rows(inside)
        writer.flags(select_reflagged(old, new))


def _sum_counts(notes: Sequence[Mapping[str, Any]], key: str) -> dict[str, dict[str, int]]:
    variable_counts: dict[str, Counter[str]] = {}
    for note in notes:
        variable_counts.setdefault(note["variable"], Counter()).update(note[key])
    return {name: dict(counts) for name, counts in variable_counts.items()}


@dataclass(frozen=True)
class SurfaceResult:
    """Result of computing a query."""

    query: str
    """Query file."""
    out: str
    cells: int
    missing: int
    pieces: int
    resumed: int
    """Pieces that an earlier start of the same run had computed."""
    snapshot: str
    token: str
    """Token of the query, as in its results."""


@dataclass(frozen=True)
class ReprocessReport:
    """Result of a reprocessing."""

    archive: str
    branch: str
    """Name of the run's branch: equal for equal requests, so that a second start resumes the run."""
    base: str
    """Snapshot at which the run began."""
    parameters: str
    """Origin of the test parameters; empty if no tests ran."""
    judged: ReflagResult | None
    """None if no tests were requested."""
    surfaces: tuple[SurfaceResult, ...]
    seconds: Mapping[str, float]
    """Duration of each stage [s]."""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "surfaces": [asdict(surface) for surface in self.surfaces],
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class SurfacePiece:
    """Task to compute a piece of a surface."""

    archive: str
    snapshot: str
    query: str
    """Query as JSON."""
    first: int
    stop: int
    path: str
    workers: int
    """Number of processes that share the memory."""


def compute(piece: SurfacePiece) -> None:
    query = open_archive(piece.archive, snapshot=piece.snapshot).query(json.loads(piece.query))
    # Each process may use its share of half the free memory.
    allowed = free_bytes() // (2 * piece.workers)
    save_piece(compute_piece(query, slice(piece.first, piece.stop), allowed_bytes=allowed), Path(piece.path))


@dataclass(frozen=True)
class _SurfaceRequest:
    """A query file, and the output of its surface."""

    file: Path
    document: Mapping[str, Any]
    out: Path
    window: Window | None
    """To which the query is limited; None: it is not."""

    def query(self, archive: Archive) -> Query:
        query = open_archive(archive.path, snapshot=archive.snapshot).query(self.document)
        if self.window is None:
            return query
        clip = dict(query.question.clip)
        limited = Window.parse(*clip["time"]).intersect(self.window) if "time" in clip else self.window
        if limited is None:
            raise InvalidQuery(
                f"the query {self.file} asks for nothing from --from to --to; widen them, or leave it out"
            )
        clip["time"] = format_instant(limited.start_ns), format_instant(limited.stop_ns)
        return replace(query, question=replace(query.question, clip=tuple(clip.items())))


@dataclass(frozen=True)
class ReprocessRequest:
    """What to reprocess; a run of an equal request is resumed."""

    judge: bool = True
    """Whether to run the tests."""
    quality: Path | None = None
    """Deployment file with the parameters under `[quality]`; None: those of the archive, with defaults for missing
    ones."""
    variables: tuple[str, ...] = ()
    """Variables to reflag; empty: all."""
    window: Window | None = None
    """Time range of readings, and of the beginnings of time cells; None: all. The parameters become those of the
    archive only if the whole archive is reflagged."""
    queries: tuple[Path, ...] = ()
    """Query files as JSON; the queries see the flags of this run."""
    out: Path | None = None
    """Output of a query's surface; of several queries a folder, where each surface gets the name of its query file, as
    NetCDF."""


def reprocess(
    archive_path: str | Path,
    request: ReprocessRequest,
    *,
    workers: Workers,
    now_ns: int,
    progress: Callable[[str, float], None] = lambda _stage, _done: None,
    on_wait: Callable[[], None] = lambda: None,
) -> ReprocessReport:
    """Reflag an archive and compute surfaces, in partitions; a second start resumes an interrupted run.

    Parameters
    ----------
    workers
        Processes that run the partitions.
    now_ns
        Current time [ns since 1970 UTC].
    on_wait
        Called if another run is active, before waiting for it.

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment, hypergrid.core.errors.ArchiveConflict
        The deployment file is unusable, or describes another network.
    hypergrid.core.errors.InvalidQuery, hypergrid.core.errors.NotFound
        The archive has no such variable, a query is invalid, or its output cannot be written; raised before the run
        starts if possible.
    """
    archive, stages, window = Archive.open(archive_path), Stages(time.monotonic, progress), request.window
    select_variables(archive, request.variables)
    parameters, source = parameters_of(archive, request.quality) if request.judge else (None, "")
    judging = None if parameters is None else ReflagJob(parameters, request.variables, window)
    asked = _read_requests(request)
    for surface in asked:
        # Finds invalid queries before the run starts.
        split_pieces(surface.query(archive), workers=1)
    named = token(judging and judging.token(), [surface.document for surface in asked], window)
    with _exclusive_run(archive, on_wait) as folder:
        branch = Branch.begin(archive, f"{BRANCHES}{named[:16]}")
        judged = None if judging is None else reflag_all(branch, judging, workers, stages, now_ns=now_ns)
        # Queries see the flags of this run.
        seen = archive.at_snapshot(judged.snapshot if judged and judged.snapshot else branch.base.snapshot)
        run_folder = folder / branch.name
        history = f"{format_instant(now_ns // SECOND_NS * SECOND_NS)} hypergrid reprocess"
        surfaces = [_compute(surface, seen, run_folder, workers, stages, history) for surface in asked]
        shutil.rmtree(run_folder, ignore_errors=True)
        Branch.remove(archive, branch.name)
    others = (
        f"another reprocessing ({name}) was begun and not ended, and keeps old snapshots from expiring: give its "
        "command again, or remove it with --abandon"
        for name in _runs(archive)
    )
    return ReprocessReport(
        str(archive.path),
        branch.name,
        branch.base.snapshot,
        source,
        judged,
        tuple(surface for surface, _ in surfaces),
        {stage: round(taken_s, 3) for stage, taken_s in stages.seconds.items()},
        (*(warning for _, warnings in surfaces for warning in warnings), *others),
    )


def _read_requests(request: ReprocessRequest) -> list[_SurfaceRequest]:
    queries, out = request.queries, request.out
    if queries and out is None:
        raise InvalidQuery("the surfaces of --queries need a place to go: give -o OUT")
    requests = []
    for file in queries:
        document = read_document(file)
        assert out is not None
        path = out / f"{file.stem}.nc" if len(queries) > 1 else out
        if len(queries) > 1:
            out.mkdir(exist_ok=True)
        check_path(path)
        requests.append(_SurfaceRequest(file, document, path, request.window))  # type: ignore[arg-type]
    if len({surface.out for surface in requests}) < len(requests):
        raise InvalidQuery("the files of --queries need names of their own, by which their surfaces are told apart")
    return requests


def _compute(
    asked: _SurfaceRequest, archive: Archive, folder: Path, workers: Workers, stages: Stages, history: str
) -> tuple[SurfaceResult, list[str]]:
    """Compute the missing pieces of a surface, and gather all; return warnings about damaged ones, too."""
    # Resolved once, so that all pieces are of one surface.
    query, damaged = asked.query(archive).resolve(), list[str]()
    ranges = split_pieces(query, workers=workers.count)
    pieces_folder = folder / pieces_token(query, ranges)[:16]
    pieces_folder.mkdir(parents=True, exist_ok=True)
    if older := [*folder.rglob("*.piece")]:
        damaged.append(f"{len(older)} pieces of an earlier program were computed once more: they are not read")
    piece_paths = [pieces_folder / f"{cell_range.start:09d}.npz" for cell_range in ranges]
    path, snapshot, text = str(archive.path), archive.snapshot, json.dumps(query.to_json())
    left = [
        SurfacePiece(path, snapshot, text, cell_range.start, cell_range.stop, str(out_path), workers.count)
        for cell_range, out_path in zip(ranges, piece_paths, strict=True)
        if not _is_done(out_path, damaged)
    ]
    resumed, at_once = len(ranges) - len(left), max(1, workers.count * PARTS_OF_A_CORE)
    with stages.stage(f"compute {asked.out.name}") as on_progress:
        on_progress(resumed / len(ranges))
        for first in range(0, len(left), at_once):
            wave = left[first : first + at_once]
            workers.map(compute, wave)
            on_progress((resumed + first + len(wave)) / len(ranges))
    with stages.stage(f"write {asked.out.name}"):
        missing = gather(query, zip(ranges, piece_paths, strict=True), asked.out, history=history)
    out, cells = str(asked.out), query.plan().cells
    result = SurfaceResult(str(asked.file), out, cells, missing, len(ranges), resumed, snapshot, query.token)
    return result, damaged


def _is_done(path: Path, damaged: list[str]) -> bool:
    """Return whether an earlier start computed a piece that is still intact."""
    try:
        load_piece(path)
    except FileNotFoundError:
        return False
    except DamagedArchive as error:
        damaged.append(f"a piece that an earlier start had computed was computed once more: {error}")
        return False
    return True


def abandon(archive_path: str | Path) -> tuple[str, ...]:
    """Remove the branches and pieces of interrupted runs, which keep snapshots from expiring; return their names.

    Raises
    ------
    HyperGridError
        A run is active.
    """
    archive = Archive.open(archive_path)

    def refuse() -> None:
        raise HyperGridError(f"a reprocessing of {archive.path} is at work; end it first, then abandon it")

    with _exclusive_run(archive, refuse) as folder:
        names = _runs(archive)
        for name in names:
            shutil.rmtree(folder / name, ignore_errors=True)
            Branch.remove(archive, name)
    return names


@contextmanager
def _exclusive_run(archive: Archive, on_wait: Callable[[], None]) -> Iterator[Path]:
    """Lock an archive for one reprocessing at a time; yields the folder for its pieces."""
    folder = archive.path / FOLDER
    folder.mkdir(exist_ok=True)
    with wait_for_lock(folder / "lock", on_wait=on_wait):
        yield folder


def _runs(archive: Archive) -> tuple[str, ...]:
    return tuple(name for name in Branch.names(archive) if name.startswith(BRANCHES))
