"""Reprocess a whole archive: new flags, surfaces of queries; resumable after a kill.

A run and its branch are named by a digest of the request, so a second start of the same command finds them. The branch
holds the flags of completed partitions, and keeps the base snapshot of the run from expiring; the archive's folder
`reprocess` holds completed pieces of surfaces. Both are removed when the run is complete.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hypergrid.archive import Archive, Branch
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.core.errors import DamagedArchive, HyperGridError, InvalidQuery
from hypergrid.core.times import SECOND_NS, Window, format_instant
from hypergrid.core.tokens import token
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
from ingest.reprocess.partitions import PARTS_OF_A_CORE, ReflagJob, ReflagResult, SerialWorkers, Workers, reflag_all
from ingest.reprocess.reflag import parameters_of, select_variables

FOLDER: Final = "reprocess"
"""Folder of an archive for the pieces of surfaces, and for the lock of a run."""
BRANCHES: Final = "reprocess-"
"""Prefix of branch names; the run's token follows."""

ProgressListener = Callable[[str, float], None]


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
    """Output file."""
    workers: int
    """Number of processes that share the memory."""


def compute(piece: SurfacePiece) -> None:
    """Compute a piece and write it to its file."""
    query = open_archive(piece.archive, snapshot=piece.snapshot).query(json.loads(piece.query))
    # Each process may use its share of half the free memory.
    allowed = free_bytes() // (2 * piece.workers)
    save_piece(compute_piece(query, slice(piece.first, piece.stop), allowed_bytes=allowed), Path(piece.path))


@dataclass
class _StageClock:
    """Duration of each stage [s]."""

    listener: ProgressListener
    seconds: dict[str, float] = field(default_factory=dict)
    _started_s: dict[str, float] = field(default_factory=dict)

    def report_progress(self, stage: str, done: float) -> None:
        now = time.monotonic()
        self.seconds[stage] = round(now - self._started_s.setdefault(stage, now), 3)
        self.listener(stage, done)


@dataclass(frozen=True)
class _SurfaceRequest:
    """A query file, and the output of its surface."""

    file: Path
    document: Mapping[str, Any]
    out: Path

    def query(self, archive: Path, snapshot: str, window: Window | None) -> Query:
        """Return the query on a snapshot, limited to a window."""
        query = open_archive(archive, snapshot=snapshot).query(self.document)
        if window is None:
            return query
        clip = dict(query.question.clip)
        limited: Window | None = window
        if "time" in clip:
            limited = Window.parse(*clip["time"]).intersect(window)
        if limited is None:
            raise InvalidQuery(
                f"the query {self.file} asks for nothing from --from to --to; widen them, or leave it out"
            )
        clip["time"] = format_instant(limited.start_ns), format_instant(limited.stop_ns)
        return replace(query, question=replace(query.question, clip=tuple(clip.items())))


def reprocess(  # noqa: PLR0913 - what the command line asks
    archive_path: str | Path,
    *,
    judge: bool = True,
    quality: Path | None = None,
    variables: Sequence[str] = (),
    window: Window | None = None,
    queries: Sequence[Path] = (),
    out: Path | None = None,
    workers: Workers | None = None,
    now_ns: int,
    progress: ProgressListener = lambda _stage, _done: None,
    on_wait: Callable[[], None] = lambda: None,
) -> ReprocessReport:
    """Reflag an archive and compute surfaces, in partitions; a second start resumes an interrupted run.

    Parameters
    ----------
    judge
        Whether to run the tests.
    quality
        Deployment file with the parameters under `[quality]`; None: those of the archive, with defaults for missing
        ones.
    variables
        Variables to reflag; empty: all.
    window
        Time range of readings, and of the beginnings of time cells; None: all. The parameters become those of the
        archive only if the whole archive is reflagged.
    queries
        Query files as JSON; the queries see the flags of this run.
    out
        Output of a query's surface; of several queries a folder, where each surface gets the name of its query file, as
        NetCDF.
    workers
        Processes that run the partitions; None: this process.
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
    archive, clock = Archive.open(archive_path), _StageClock(progress)
    select_variables(archive, variables)
    parameters, source = parameters_of(archive, quality) if judge else (None, "")
    judging = None if parameters is None else ReflagJob(parameters, tuple(variables), window)
    asked = _read_requests(queries, out)
    for request in asked:
        # Finds invalid queries before the run starts.
        split_pieces(request.query(archive.path, archive.snapshot, window), workers=1)
    named = token(judging and judging.token(), [request.document for request in asked], window)
    hands = workers or SerialWorkers()
    with _exclusive_run(archive, on_wait) as folder:
        branch = Branch.begin(archive, f"{BRANCHES}{named[:16]}")
        judged = None
        if judging is not None:
            judged = reflag_all(branch, judging, hands, now_ns=now_ns, progress=clock.report_progress)
        # Queries see the flags of this run.
        snapshot = judged.snapshot if judged and judged.snapshot else branch.base.snapshot
        run_folder = folder / branch.name
        damaged: list[str] = []
        surfaces = [
            _compute(request, archive, snapshot, window, run_folder, hands, now_ns, clock.report_progress, damaged)
            for request in asked
        ]
        shutil.rmtree(run_folder, ignore_errors=True)
        Branch.remove(archive, branch.name)
    return ReprocessReport(
        str(archive.path),
        branch.name,
        branch.base.snapshot,
        source,
        judged,
        tuple(surfaces),
        clock.seconds,
        (*damaged, *_others(archive)),
    )


def _read_requests(queries: Sequence[Path], out: Path | None) -> list[_SurfaceRequest]:
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
        requests.append(_SurfaceRequest(file, document, path))  # type: ignore[arg-type]
    if len({request.out for request in requests}) < len(requests):
        raise InvalidQuery("the files of --queries need names of their own, by which their surfaces are told apart")
    return requests


def _compute(  # noqa: PLR0913 - what a run knows
    asked: _SurfaceRequest,
    archive: Archive,
    snapshot: str,
    window: Window | None,
    folder: Path,
    workers: Workers,
    now_ns: int,
    progress: ProgressListener,
    damaged: list[str],
) -> SurfaceResult:
    """Compute the missing pieces of a surface, and gather all; damaged ones go to `damaged`."""
    query = asked.query(archive.path, snapshot, window)
    ranges = split_pieces(query, workers=workers.count)
    pieces_folder = folder / pieces_token(query, ranges)[:16]
    pieces_folder.mkdir(parents=True, exist_ok=True)
    if older := [*folder.rglob("*.piece")]:
        damaged.append(f"{len(older)} pieces of an earlier program were computed once more: they are not read")
    places = [pieces_folder / f"{cell_range.start:09d}.npz" for cell_range in ranges]
    text = json.dumps(query.to_json())
    left = [
        SurfacePiece(str(archive.path), snapshot, text, cell_range.start, cell_range.stop, str(path), workers.count)
        for cell_range, path in zip(ranges, places, strict=True)
        if not _is_done(path, damaged)
    ]
    stage, resumed = f"compute {asked.out.name}", len(ranges) - len(left)
    progress(stage, resumed / len(ranges))
    at_once = max(1, workers.count * PARTS_OF_A_CORE)
    for first in range(0, len(left), at_once):
        wave = left[first : first + at_once]
        workers.map(compute, wave)
        progress(stage, (resumed + first + len(wave)) / len(ranges))
    progress(f"write {asked.out.name}", 0.0)
    history = f"{format_instant(now_ns // SECOND_NS * SECOND_NS)} hypergrid reprocess"
    missing = gather(query, zip(ranges, places, strict=True), asked.out, history=history)
    progress(f"write {asked.out.name}", 1.0)
    cells = query.plan().cells
    return SurfaceResult(str(asked.file), str(asked.out), cells, missing, len(ranges), resumed, snapshot, query.token)


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


def _others(archive: Archive) -> tuple[str, ...]:
    """Return warnings about other interrupted runs."""
    return tuple(
        f"another reprocessing ({name}) was begun and not ended, and keeps old snapshots from expiring: give its "
        "command again, or remove it with --abandon"
        for name in _runs(archive)
    )
