"""The process of an import: a proposal, or an ingest; started by `ingest.importing.importer`."""

import argparse
import logging
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, NoReturn, get_args

from hypergrid.archive import Archive
from hypergrid.core.errors import HyperGridError
from hypergrid.core.times import floor_to_microsecond
from ingest.batch.archive_session import STAGING
from ingest.batch.dry_run import DryRun, dry_run
from ingest.batch.report import RunListener
from ingest.importing.folder import ImportFolder, size_below
from ingest.importing.proposal_document import describe_dry_run
from ingest.job import ingest
from ingest.reprocess.remap import remap

Task = Literal["propose", "ingest"]
PROGRESS_S: Final = 0.2
"""Shortest time between two reports of progress [s]."""
WATCHED_S: Final = 0.5
"""Time between two looks at the limits of a process [s]."""
REPEATED_S: Final = 5.0
"""Time after which a process that did not end at a limit is stopped again [s]."""
UNPACKED_RATIO: Final = 8
"""Maximum size of unpacked and staged files, as a multiple of that of all uploads; text packs to about a fifth."""
UNPACKED_BYTES: Final = 1 << 30
"""Size that they may have in any case [bytes]."""
_REASONS: Final = frozenset({"error", "warnings", "why", "notes", "problems", "unreadable", "questions", "reason"})
"""Keys of reports and proposals below which there are reasons and errors."""
_LEFT_OUT: Final = ("archive", "deployment", "engine", "size_bytes")
"""Fields of reports that concern the machine."""
_LOG: Final = logging.getLogger(__name__)


class ImportStopped(HyperGridError):
    """A run exceeds its time or its disk space.

    No builtin class beside it: readers of packed files take `OSError` and `RuntimeError` for damage, and go on.
    """


@dataclass(frozen=True)
class JobLimits:
    """Limits of one process."""

    seconds: int
    """Duration [s]."""
    scratch_bytes: int
    """Size of what is unpacked and staged on the disk at a time [bytes]."""
    reserved_bytes: int
    """Size of the disk that stays free [bytes]."""


def command(archive: Path, name: str, task: Task, limits: JobLimits) -> list[str]:
    """Return the command line of this process."""
    numbers = map(str, astuple(limits))
    return [sys.executable, "-m", "ingest.importing.job", str(archive), name, task, *numbers]


@dataclass
class ProgressFile:
    """Reports the progress of a run to its folder, a few times a second."""

    folder: ImportFolder
    warnings: list[str] = field(default_factory=list)
    _written_s: float = 0.0

    def on_progress(self, stage: str, fraction: float) -> None:
        now_s = time.monotonic()
        if fraction in (0.0, 1.0) or now_s - self._written_s >= PROGRESS_S:
            self._written_s = now_s
            self._write(stage, fraction)

    def on_warning(self, text: str) -> None:
        self.warnings.append(text)
        self._write("warning", 0.0)

    def _write(self, stage: str, fraction: float) -> None:
        document = {"stage": stage, "fraction": round(fraction, 3), "warnings": self.warnings[-5:]}
        self.folder.write("progress", document, durable=False)


def propose(archive: Path, folder: ImportFolder) -> None:
    """Write how the files would be read, and why."""
    key = folder.content_token()
    given = folder.deployment if folder.deployment.is_file() else None
    run = dry_run([folder.files_folder], deployment=given)
    others = _look_at_others(folder, run)
    proposal = describe_dry_run(run, others, Archive.open(archive))
    folder.write("proposal", {"key": key, "proposal": hide_paths(proposal, [folder.files_folder, archive])})


def _look_at_others(folder: ImportFolder, run: DryRun) -> DryRun | None:
    """Return a dry run, without a deployment, of the files that the kept one does not name."""
    if not run.deployment.declared or not run.unknown:
        return None
    # Beside the kept deployment, it would be found.
    with tempfile.TemporaryDirectory(prefix="others-") as beside:
        for name in {name.partition("/")[0] for name in run.unknown}:
            (Path(beside) / name).hardlink_to(folder.files_folder / name)
        return dry_run([beside])


def run_ingest(archive: Path, folder: ImportFolder) -> dict[str, Any]:
    """Ingest the files; what former runs brought is read again first, and amended where it is another now.

    The instant of the run is noted before anything is committed: it identifies the files of this import in the ledger,
    also after a kill.
    """
    instants: list[int] = folder.read("runs").get("instants_ns", [])
    now_ns = floor_to_microsecond(time.time_ns())
    progress = ProgressFile(folder)
    listener = RunListener(progress.on_progress, progress.on_warning)
    before = {entry.ingested_ns for entry in Archive.open(archive).files()} & set(instants)
    folder.write("runs", {"instants_ns": [*instants, now_ns]})
    remapped: dict[str, Any] | None = None
    if before:
        # A microsecond earlier, so that the run and the amendments differ in time.
        report = remap(
            archive,
            deployment=folder.deployment,
            now_ns=now_ns - 1000,
            ingested_ns=before,
            listener=listener,
        )
        remapped = _shorten(report.to_dict())
    # Without Spark whatever the size: a server starts no Java beside itself, and memory is bounded by the chunk.
    ingested = ingest(
        [folder.files_folder],
        archive,
        deployment=folder.deployment,
        engine="inprocess",
        now_ns=now_ns,
        listener=listener,
    )
    return {"ingest": _shorten(ingested.to_dict()), "remap": remapped}


def _shorten(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in _LEFT_OUT}


def describe_error(error: Exception) -> str:
    """Return an error for users; details of one that is not foreseen are in the log only."""
    if isinstance(error, HyperGridError | OSError | MemoryError):
        return str(error) or type(error).__name__
    _LOG.exception("an import ended with an error that was not foreseen")
    return f"something unexpected happened ({type(error).__name__}); the server's log has the details"


def hide_paths(value: Any, folders: Sequence[Path], *, is_reason: bool = False) -> Any:  # noqa: ANN401 - JSON
    """Return a document whose reasons and errors name files below the first of the folders, without their paths.

    What comes from files and deployments stays as it is.
    """
    match value:
        case str() if is_reason:
            for path in folders:
                value = value.replace(f"{path}/", "").replace(str(path), "the archive")
            return value
        case dict():
            return {
                name: item if name == "document" else hide_paths(item, folders, is_reason=is_reason or name in _REASONS)
                for name, item in value.items()
            }
        case [*items]:
            return [hide_paths(item, folders, is_reason=is_reason) for item in items]
        case _:
            return value


@contextmanager
def limit_resources(limits: JobLimits, task: Task, folders: Sequence[Path]) -> Iterator[None]:
    """Raise `ImportStopped` in the main thread once the process exceeds its time, or the folders their size."""
    reasons: list[str] = []
    before_bytes = sum(map(size_below, folders))
    has_ended = threading.Event()

    def raise_stopped(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise ImportStopped(reasons[0])

    def watch() -> None:
        ends_s = time.monotonic() + limits.seconds
        while not has_ended.wait(WATCHED_S if not reasons else REPEATED_S):
            reason = (
                _time_reason(limits, task) if time.monotonic() > ends_s else _disk_reason(limits, before_bytes, folders)
            )
            if reason:
                reasons.append(reason)
                # Again if a library swallowed it.
                signal.pthread_kill(main_thread, signal.SIGUSR1)

    former = signal.signal(signal.SIGUSR1, raise_stopped)
    main_thread = threading.get_ident()
    watching = threading.Thread(target=watch, name="limits", daemon=True)
    watching.start()
    try:
        yield
    finally:
        has_ended.set()
        watching.join()
        signal.signal(signal.SIGUSR1, former)


def _time_reason(limits: JobLimits, task: Task) -> str:
    if task == "propose":
        return (
            f"it took longer than {limits.seconds} s to look at the files; send fewer at first, and the others once "
            "these are described"
        )
    return (
        f"it took longer than {limits.seconds} s, the setting 'import_seconds'; import fewer files at a time, or have "
        "the limit raised: a run does not store anything twice"
    )


def _disk_reason(limits: JobLimits, before_bytes: int, folders: Sequence[Path]) -> str:
    """Return which limit of the disk is exceeded; empty if none is."""
    free_bytes = shutil.disk_usage(folders[0]).free
    if free_bytes < limits.reserved_bytes:
        return (
            f"the server's disk has {free_bytes:,} bytes left, and needs {limits.reserved_bytes:,} to stay free; make "
            "room on it, or import fewer files at a time"
        )
    used_bytes = sum(map(size_below, folders)) - before_bytes
    if used_bytes > limits.scratch_bytes:
        return (
            f"the files take {used_bytes:,} bytes unpacked, and an import may take {limits.scratch_bytes:,}; import "
            f"fewer files at a time, or have the setting 'import_bytes' raised, of which it is {UNPACKED_RATIO} times"
        )
    return ""


def main() -> None:
    """Do one task of an import."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("name")
    parser.add_argument("task", choices=get_args(Task))
    for limit in fields(JobLimits):
        parser.add_argument(limit.name, type=int)
    words = parser.parse_args()
    folder = ImportFolder.find(words.archive, words.name)
    limits = JobLimits(words.seconds, words.scratch_bytes, words.reserved_bytes)
    scratch = folder.clear_scratch(words.task)
    # What is unpacked lies in the folder of the import, which is swept, and on the disk that is watched.
    tempfile.tempdir = str(scratch)
    outcome: dict[str, Any] = {"report": None, "error": None}
    try:
        with limit_resources(limits, words.task, [scratch, words.archive / STAGING]):
            if words.task == "propose":
                propose(words.archive, folder)
                return
            outcome["report"] = run_ingest(words.archive, folder)
    except Exception as error:  # noqa: BLE001 - libraries raise any error on a damaged file
        outcome["error"] = describe_error(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    kind = "proposal" if words.task == "propose" else "outcome"
    folder.write(kind, hide_paths(outcome, [folder.files_folder, words.archive]))


if __name__ == "__main__":
    main()
