"""A whole archive once more: quality with other parameters, surfaces of queries; a run that is killed goes on.

A run is named by what is asked, and so is its branch: a second start of the same command finds it. The branch holds the
flags of the parts that are done, and keeps the snapshot that the run began at from expiring; the folder `reprocess` of
the archive holds the pieces of surfaces that are done. Both go when all is done.
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
"""Folder of an archive for the pieces of surfaces, and the lock that a run holds."""
BRANCHES: Final = "reprocess-"
"""What names of branches begin with; the run's token follows."""

ProgressListener = Callable[[str, float], None]


@dataclass(frozen=True)
class SurfaceResult:
    """What computing a query did."""

    query: str
    """Its file."""
    out: str
    cells: int
    missing: int
    pieces: int
    resumed: int
    """Pieces that an earlier start of the same run had done."""
    snapshot: str
    token: str
    """Of the query, as a result has it."""


@dataclass(frozen=True)
class ReprocessReport:
    """What a run did."""

    archive: str
    branch: str
    """Names the run: the same for the same question, so that a second start goes on with it."""
    base: str
    """Snapshot that it began at."""
    parameters: str
    """Where the parameters of the tests are from; empty where none ran."""
    judged: ReflagResult | None
    """None where no test was to run."""
    surfaces: tuple[SurfaceResult, ...]
    seconds: Mapping[str, float]
    """Duration of each stage [s]."""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            **asdict(self),
            "surfaces": [asdict(surface) for surface in self.surfaces],
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class SurfacePiece:
    """A piece of a surface that a process computes."""

    archive: str
    snapshot: str
    query: str
    """As JSON."""
    first: int
    stop: int
    path: str
    """Where it goes."""
    workers: int
    """Processes that share the memory."""


def compute(piece: SurfacePiece) -> None:
    """Compute a piece, and write it where it goes."""
    query = open_archive(piece.archive, snapshot=piece.snapshot).query(json.loads(piece.query))
    allowed = free_bytes() // (2 * piece.workers)
    save_piece(compute_piece(query, slice(piece.first, piece.stop), allowed_bytes=allowed), Path(piece.path))


@dataclass
class _StageClock:
    """Seconds by stage."""

    listener: ProgressListener
    seconds: dict[str, float] = field(default_factory=dict)
    _started_s: dict[str, float] = field(default_factory=dict)

    def report_progress(self, stage: str, done: float) -> None:
        now = time.monotonic()
        self.seconds[stage] = round(now - self._started_s.setdefault(stage, now), 3)
        self.listener(stage, done)


@dataclass(frozen=True)
class _SurfaceRequest:
    """A query of a file, and where its surface goes."""

    file: Path
    document: Mapping[str, Any]
    out: Path

    def query(self, archive: Path, snapshot: str, window: Window | None) -> Query:
        """Return it as it is of a snapshot, within a window."""
        query = open_archive(archive, snapshot=snapshot).query(self.document)
        if window is None:
            return query
        clip = dict(query.question.clip)
        limited: Window | None = window
        if "time" in clip:
            limited = Window.parse(*clip["time"]).intersect(window)
        if limited is None:
            message = f"the query {self.file} asks for nothing from --from to --to; widen them, or leave it out"
            raise InvalidQuery(message)
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
    """Judge an archive once more and compute surfaces, in parts; a second start does what the first one left.

    Parameters
    ----------
    judge
        Whether the tests run.
    quality
        Deployment file with the parameters under `[quality]`; None: those of the archive, and defaults where it has
        none.
    variables
        Only these are judged; empty: all.
    window
        Only readings, and time cells that begin, within it; None: all. The parameters are kept as those of the archive
        only where all is judged.
    queries
        Files of queries as JSON; they see the flags of this run.
    out
        Where the surface of a query goes; of several, the folder, in which each has the name of its file, as NetCDF.
    workers
        Who does the parts; only this process where absent.
    now_ns
        The present [ns since 1970 UTC].
    on_wait
        Is called where another run is at work, which this one waits for.

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment, hypergrid.core.errors.ArchiveConflict
        The deployment file cannot be used, or is of another network.
    hypergrid.core.errors.InvalidQuery, hypergrid.core.errors.NotFound
        The archive has no such variable, or a query cannot be answered, or its surface cannot be where it is to go;
        found before anything begins, as far as it can be.
    """
    archive, clock = Archive.open(archive_path), _StageClock(progress)
    select_variables(archive, variables)
    parameters, source = parameters_of(archive, quality) if judge else (None, "")
    judging = None if parameters is None else ReflagJob(parameters, tuple(variables), window)
    asked = _read_requests(queries, out)
    for request in asked:
        split_pieces(request.query(archive.path, archive.snapshot, window), workers=1)
    named = token(judging and judging.token(), [request.document for request in asked], window)
    hands = workers or SerialWorkers()
    with _exclusive_run(archive, on_wait) as folder:
        branch = Branch.begin(archive, f"{BRANCHES}{named[:16]}")
        judged = None
        if judging is not None:
            judged = reflag_all(branch, judging, hands, now_ns=now_ns, progress=clock.report_progress)
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
        message = "the surfaces of --queries need a place to go: give -o OUT"
        raise InvalidQuery(message)
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
        message = "the files of --queries need names of their own, by which their surfaces are told apart"
        raise InvalidQuery(message)
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
    """Compute the pieces of a surface that an earlier start left, and put all together; `damaged` ones are told."""
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
    """Return whether an earlier start computed a piece, and it is what was written."""
    try:
        load_piece(path)
    except FileNotFoundError:
        return False
    except DamagedArchive as error:
        damaged.append(f"a piece that an earlier start had computed was computed once more: {error}")
        return False
    return True


def abandon(archive_path: str | Path) -> tuple[str, ...]:
    """Remove what runs left that nobody will end, which keeps snapshots from expiring; return their names.

    Raises
    ------
    HyperGridError
        One is at work.
    """
    archive = Archive.open(archive_path)

    def refuse() -> None:
        message = f"a reprocessing of {archive.path} is at work; end it first, then abandon it"
        raise HyperGridError(message)

    with _exclusive_run(archive, refuse) as folder:
        names = _runs(archive)
        for name in names:
            shutil.rmtree(folder / name, ignore_errors=True)
            Branch.remove(archive, name)
    return names


@contextmanager
def _exclusive_run(archive: Archive, on_wait: Callable[[], None]) -> Iterator[Path]:
    """Let one reprocessing of an archive be at work at a time; yields the folder for what it makes."""
    folder = archive.path / FOLDER
    folder.mkdir(exist_ok=True)
    with wait_for_lock(folder / "lock", on_wait=on_wait):
        yield folder


def _runs(archive: Archive) -> tuple[str, ...]:
    return tuple(name for name in Branch.names(archive) if name.startswith(BRANCHES))


def _others(archive: Archive) -> tuple[str, ...]:
    """Return warnings of runs that were begun and not ended."""
    return tuple(
        f"another reprocessing ({name}) was begun and not ended, and keeps old snapshots from expiring: give its "
        "command again, or remove it with --abandon"
        for name in _runs(archive)
    )
