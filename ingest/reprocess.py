"""A whole archive once more: quality with other parameters, on a branch that becomes main's; killed, it goes on."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from hypergrid.errors import HyperGridError
from hypergrid.store import Archive, Branch
from hypergrid.store.lock import exclusive
from hypergrid.times import Window
from hypergrid.tokens import token
from ingest.reprocessing import Alone, Judged, Judging, Workers, judge_all
from ingest.requality import chosen_of, parameters_of
from ingest.target import STAGING

BRANCHES: Final = "reprocess-"
"""What names of branches begin with; the run's token follows."""
_LOCK: Final = "reprocess.lock"


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
    judged: Judged | None
    seconds: Mapping[str, float]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "warnings": list(self.warnings)}


@dataclass
class _Clock:
    """Seconds by stage."""

    listener: Callable[[str, float], None]
    seconds: dict[str, float] = field(default_factory=dict)
    _begun: dict[str, float] = field(default_factory=dict)

    def tell(self, stage: str, done: float) -> None:
        now = time.monotonic()
        self.seconds[stage] = round(now - self._begun.setdefault(stage, now), 3)
        self.listener(stage, done)


def reprocess(
    archive_path: str | Path,
    *,
    quality: Path | None = None,
    variables: Sequence[str] = (),
    window: Window | None = None,
    workers: Workers | None = None,
    now_ns: int,
    progress: Callable[[str, float], None] = lambda _stage, _done: None,
    on_wait: Callable[[], None] = lambda: None,
) -> ReprocessReport:
    """Judge an archive once more in parts; a second start of the same run does what the first one left.

    Parameters
    ----------
    quality
        Deployment file with the parameters under `[quality]`; None: those of the archive, and defaults where it has
        none.
    variables
        Only these; empty: all.
    window
        Only readings within it; None: all. The parameters are kept as those of the archive only where all is judged.
    workers
        Who does the parts; this process alone where absent.
    now_ns
        The present [ns since 1970 UTC].
    on_wait
        Is called where another run is at work, which this one waits for.

    Raises
    ------
    hypergrid.errors.InvalidDeployment, hypergrid.errors.ArchiveConflict
        The deployment file cannot be used, or is of another network.
    hypergrid.errors.NotFound
        The archive has no such variable.
    """
    archive = Archive.open(archive_path)
    parameters, source = parameters_of(archive, quality)
    chosen_of(archive, variables)
    judging = Judging(parameters, tuple(variables), window)
    clock = _Clock(progress)
    with _alone(archive, on_wait):
        branch = Branch.begin(archive, f"{BRANCHES}{token(judging.token())[:16]}")
        judged = judge_all(branch, judging, workers or Alone(), now_ns=now_ns, progress=clock.tell)
        Branch.remove(archive, branch.name)
    return ReprocessReport(
        str(archive.path), branch.name, branch.base.snapshot, source, judged, clock.seconds, _others(archive)
    )


def abandon(archive_path: str | Path) -> tuple[str, ...]:
    """Remove the branches of runs that nobody will end, which keep snapshots from expiring; return their names.

    Raises
    ------
    HyperGridError
        One is at work.
    """
    archive = Archive.open(archive_path)

    def refuse() -> None:
        message = f"a reprocessing of {archive.path} is at work; end it first, then abandon it"
        raise HyperGridError(message)

    with _alone(archive, refuse):
        names = _runs(archive)
        for name in names:
            Branch.remove(archive, name)
    return names


@contextmanager
def _alone(archive: Archive, on_wait: Callable[[], None]) -> Iterator[None]:
    """Let one reprocessing of an archive be at work at a time."""
    folder = archive.path / STAGING
    folder.mkdir(exist_ok=True)
    with exclusive(folder / _LOCK, on_wait=on_wait):
        yield


def _runs(archive: Archive) -> tuple[str, ...]:
    return tuple(name for name in Branch.names(archive) if name.startswith(BRANCHES))


def _others(archive: Archive) -> tuple[str, ...]:
    """Return warnings of runs that were begun and not ended."""
    return tuple(
        f"another reprocessing ({name}) was begun and not ended, and keeps old snapshots from expiring: give its "
        "command again, or remove it with --abandon"
        for name in _runs(archive)
    )
