"""The process of an import: a proposal, or an ingest; started by `ingest.importing.importer`."""

import argparse
import logging
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, NoReturn, get_args

from hypergrid.archive import Archive
from hypergrid.core.errors import HyperGridError
from hypergrid.core.times import floor_to_microsecond
from ingest.batch.dry_run import DryRun, dry_run
from ingest.importing.folder import ImportFolder
from ingest.importing.proposal_document import describe_dry_run
from ingest.job import ingest
from ingest.reprocess.remap import remap

Task = Literal["propose", "ingest"]
PROGRESS_S: Final = 0.2
"""Shortest time between two reports of progress [s]."""
_LEFT_OUT: Final = ("archive", "deployment", "engine", "size_bytes")
"""Fields of reports that concern the machine."""
_LOG: Final = logging.getLogger(__name__)


class TookTooLong(HyperGridError, TimeoutError):
    """A run exceeds its time."""


def command(archive: Path, name: str, task: Task, seconds: int) -> list[str]:
    """Return the command line of this process."""
    return [sys.executable, "-m", "ingest.importing.job", str(archive), name, task, str(seconds)]


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
    proposal = _without_paths(describe_dry_run(run, others, Archive.open(archive)), archive, folder)
    folder.write("proposal", {"key": key, "proposal": proposal})


def _look_at_others(folder: ImportFolder, run: DryRun) -> DryRun | None:
    """Return a dry run, without a deployment, of the files that the kept one does not name."""
    if not run.deployment.declared or not run.unknown:
        return None
    # Beside the kept deployment, it would be found.
    with tempfile.TemporaryDirectory(prefix="others-", dir=folder.path) as beside:
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
    before = {entry.ingested_ns for entry in Archive.open(archive).files()} & set(instants)
    folder.write("runs", {"instants_ns": [*instants, now_ns]})
    remapped: dict[str, Any] | None = None
    if before:
        # A microsecond earlier, so that the run and the amendments are told apart.
        report = remap(
            archive,
            deployment=folder.deployment,
            now_ns=now_ns - 1000,
            ingested_ns=before,
            progress=progress.on_progress,
            on_warning=progress.on_warning,
        )
        remapped = _shorten(report.to_dict())
    # Without Spark whatever the size: a server starts no Java beside itself, and memory is bounded by the chunk.
    ingested = ingest(
        [folder.files_folder],
        archive,
        deployment=folder.deployment,
        engine="inprocess",
        now_ns=now_ns,
        progress=progress.on_progress,
        on_warning=progress.on_warning,
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


def _without_paths(value: Any, archive: Path, folder: ImportFolder) -> Any:  # noqa: ANN401 - JSON
    """Return a document whose texts name files below the folder of the import."""
    match value:
        case str():
            for path in (folder.files_folder, archive):
                value = value.replace(f"{path}/", "").replace(str(path), "the archive")
            return value
        case dict():
            return {name: _without_paths(item, archive, folder) for name, item in value.items()}
        case [*items]:
            return [_without_paths(item, archive, folder) for item in items]
        case _:
            return value


def main() -> None:
    """Do one task of an import."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("name")
    parser.add_argument("task", choices=get_args(Task))
    parser.add_argument("seconds", type=int)
    words = parser.parse_args()
    folder = ImportFolder.find(words.archive, words.name)

    def give_up(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise TookTooLong(
            f"it took longer than {words.seconds} s, the setting 'import_seconds'; import fewer files at a time, or "
            "have the limit raised: a run does not store anything twice"
        )

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(words.seconds)
    outcome: dict[str, Any] = {"report": None, "error": None}
    try:
        if words.task == "propose":
            propose(words.archive, folder)
            return
        outcome["report"] = run_ingest(words.archive, folder)
    except Exception as error:  # noqa: BLE001 - libraries raise any error on a damaged file
        outcome["error"] = describe_error(error)
    signal.alarm(0)
    kind = "proposal" if words.task == "propose" else "outcome"
    folder.write(kind, _without_paths(outcome, words.archive, folder))


if __name__ == "__main__":
    main()
