"""Retention: expire old snapshots and collect garbage.

Without it an archive with frequent commits would grow without bound. Every commit leaves a snapshot, and the chunks and
manifests that the next one replaces. A snapshot expires once another has been the newest for an hour; then everything
that no snapshot uses is removed. Cited snapshots are tagged and kept with all their content: those cited by hand until
they are released, those cited by results while they are among the last `RetentionPolicy.results`, so that a query each
minute does not retain every minute forever. Tables and cells need no compaction: each commit rewrites the last chunk of
a table, and Icechunk keeps the chunk locations of an array in one manifest.

Maintenance runs under the archive's lock, so no commit is in progress. Readers have that hour to finish with a replaced
snapshot. A process that dies during maintenance leaves garbage, which the next run removes.
"""

import time
import uuid
from collections.abc import Iterator, Set
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import icechunk

from hypergrid.archive.disk.checksums import read_checked, write_checked
from hypergrid.archive.disk.lock import is_free
from hypergrid.archive.disk.snapshot_checksums import SnapshotChecksums
from hypergrid.archive.disk.storage import Storage
from hypergrid.core.errors import DamagedArchive

MARKER: Final = "maintained.json"
"""File of an archive with the number of snapshots left by the last maintenance, and the error if it failed."""
BACKING_UP: Final = "backup-"
UPGRADING: Final = "upgrade-to-"
"""Name prefixes of branches that keep snapshots during a backup or an upgrade."""
BACKUP_LOCK: Final = "backup.lock"
"""Lock file of an archive, held while it is backed up."""
_CITED: Final = "cited."
"""Tag prefix of snapshots cited by hand or by exports; the snapshot and a random number follow."""
_RESULT: Final = "result."
"""Tag prefix of snapshots cited by results; the snapshot, the time of tagging [ns] and a random number follow."""


@dataclass(frozen=True)
class RetentionPolicy:
    """When committers maintain an archive, and what is kept."""

    keep_s: float = 3600.0
    """How long a snapshot stays readable after another became the newest [s]."""
    every: int = 128
    """Number of commits between maintenance runs."""
    max_snapshots: int = 1024
    """Maximum number of snapshots kept under frequent commits."""
    least_s: float = 300.0
    """How long a snapshot stays readable even then [s]."""
    results: int = 256
    """Maximum number of snapshots kept because results cite them; the first cited is released first."""


DEFAULT_RETENTION: Final = RetentionPolicy()
"""The default policy."""


@dataclass(frozen=True)
class MaintenanceReport:
    """Result of a maintenance run."""

    snapshots_expired: int
    objects_removed: int
    bytes_removed: int
    snapshots_left: int
    seconds: float
    held_by: tuple[str, ...] = ()
    """Active branches, which prevent snapshots from expiring."""


def is_due(folder: Path, storage: Storage, care: RetentionPolicy) -> bool:
    """Return whether `care.every` snapshots were added since the last run, failed or not."""
    try:
        left = int(_read_marker(folder)["snapshots_left"])
    except (ValueError, KeyError, TypeError):
        left = 0
    return storage.count_snapshots() - left >= care.every


def note_failure(folder: Path, storage: Storage, error: Exception) -> None:
    """Record a failed maintenance, which postpones the next like a successful one."""
    what = " ".join(str(error).split())[:200] or type(error).__name__
    write_checked(folder / MARKER, {"snapshots_left": storage.count_snapshots(), "failed": what})


def read_failure(folder: Path) -> str:
    """Return why the last maintenance failed; empty if it succeeded."""
    return str(_read_marker(folder).get("failed", ""))


def _read_marker(folder: Path) -> dict[str, Any]:
    try:
        return read_checked(folder / MARKER)
    except (OSError, DamagedArchive):
        return {}


def maintain(
    folder: Path, storage: Storage, sums: SnapshotChecksums | None, branch: str, *, now: datetime, care: RetentionPolicy
) -> MaintenanceReport:
    """Expire snapshots and collect garbage; call under the lock.

    Parameters
    ----------
    folder, storage, sums
        Folder of the archive, storage of its repository, and checksums of its snapshots, if any.
    branch
        The branch of the commits. While others exist no snapshot expires.
    now
        The current time by the clock that Icechunk reads.
    """
    started_s = time.monotonic()
    # Reopen: an older repository object still remembers snapshots that another process expired.
    repository = storage.open()
    written = [info.written_at for info in repository.ancestry(branch=branch)]
    cutoff = _find_cutoff(written, now, care)
    for name in repository.list_branches():
        # Left by a backup or an upgrade that was killed.
        is_left = name.startswith(BACKING_UP) and is_free(folder / BACKUP_LOCK)
        if is_left or name.startswith(UPGRADING):
            repository.delete_branch(name)
    others = tuple(sorted(repository.list_branches() - {branch}))
    with nullcontext() if sums is None else sums.track_expiry(repository), _translate_panics(folder):
        expired = 0 if others else len(repository.expire_snapshots(cutoff))
        # Older unreferenced objects belong to a commit that died or to an expired snapshot.
        before = max(cutoff, now - timedelta(seconds=care.keep_s))
        removed = repository.garbage_collect(now - timedelta(seconds=care.keep_s) if others else before)
    objects = (
        removed.chunks_deleted
        + removed.manifests_deleted
        + removed.snapshots_deleted
        + removed.attributes_deleted
        + removed.transaction_logs_deleted
    )
    litter, size = storage.sweep(before)
    left, seconds = storage.count_snapshots(), time.monotonic() - started_s
    done = MaintenanceReport(expired, objects + litter, removed.bytes_deleted + size, left, seconds, others)
    write_checked(folder / MARKER, asdict(done))
    return done


@contextmanager
def _translate_panics(folder: Path) -> Iterator[None]:
    """Translate a panic of Icechunk into `DamagedArchive`."""
    try:
        yield
    # A panic is a BaseException; as an error it cannot abort the commit that triggered the maintenance.
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as panic:
        raise DamagedArchive(
            f"snapshots cannot expire: {panic}; 'hypergrid check {folder} --repair' mends what can be mended"
        ) from panic


def _find_cutoff(written: list[datetime], now: datetime, care: RetentionPolicy) -> datetime:
    """Return the write time of the oldest snapshot to keep; the snapshots are newest first."""

    def newest_at(instant: datetime) -> int:
        return next((index for index, written_at in enumerate(written) if written_at <= instant), len(written) - 1)

    oldest = newest_at(now - timedelta(seconds=care.keep_s))
    if oldest >= care.max_snapshots:
        oldest = min(
            oldest, max(care.max_snapshots - 1, newest_at(now - timedelta(seconds=min(care.keep_s, care.least_s))))
        )
    return written[oldest]


def cite(repository: icechunk.Repository, snapshot: str) -> None:
    """Tag a snapshot to keep it with all its content; call under the lock."""
    if snapshot not in _select_cited_by_hand(repository.list_tags()):
        # Always a new name: Icechunk cannot recreate a deleted tag.
        repository.create_tag(f"{_CITED}{snapshot}.{uuid.uuid4().hex}", snapshot)


def cite_for_result(repository: icechunk.Repository, snapshot: str, *, maximum: int) -> None:
    """Tag a snapshot cited by a result, and delete the oldest such tags beyond `maximum`.

    Call under the lock. A snapshot already cited, by hand or by another result, gets no second tag.
    """
    tags = repository.list_tags()
    if snapshot in _select_cited_by_hand(tags) | _select_cited_by_results(tags).keys():
        return
    repository.create_tag(f"{_RESULT}{snapshot}.{time.time_ns():020d}.{uuid.uuid4().hex}", snapshot)
    # The time is zero-padded, so the order of the text is that of time.
    oldest_first = sorted(_select_cited_by_results(repository.list_tags()).values(), key=lambda tag: tag.split(".")[2])
    for tag in oldest_first[: max(0, len(oldest_first) - maximum)]:
        repository.delete_tag(tag)


def release(repository: icechunk.Repository, snapshot: str) -> bool:
    """Delete the tags of a cited snapshot, so that it expires; return whether any existed."""
    prefixes = (f"{_CITED}{snapshot}.", f"{_RESULT}{snapshot}.")
    tags = [tag for tag in repository.list_tags() if tag.startswith(prefixes)]
    for tag in tags:
        repository.delete_tag(tag)
    return bool(tags)


def cited(repository: icechunk.Repository) -> dict[str, str]:
    """Return "hand" or "result" for each cited snapshot, by id."""
    tags = repository.list_tags()
    by = dict.fromkeys(_select_cited_by_results(tags), "result") | dict.fromkeys(_select_cited_by_hand(tags), "hand")
    return dict(sorted(by.items()))


def parse_tag(tag: str) -> str | None:
    """Return the snapshot encoded in a tag name; None for foreign tags."""
    for start in (_CITED, _RESULT):
        if tag.startswith(start):
            return tag.removeprefix(start).split(".")[0]
    return None


def _select_cited_by_hand(tags: Set[str]) -> set[str]:
    return {tag.removeprefix(_CITED).rsplit(".", 1)[0] for tag in tags if tag.startswith(_CITED)}


def _select_cited_by_results(tags: Set[str]) -> dict[str, str]:
    return {tag.split(".")[1]: tag for tag in tags if tag.startswith(_RESULT)}
