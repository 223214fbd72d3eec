"""Maintenance: what keeps an archive of a commit a minute from growing without bound.

Every commit leaves a snapshot, and the chunks and manifests that the next one replaces. Snapshots expire when another
has been the newest for an hour; then what no snapshot uses is removed. Snapshots that are cited are tagged, and stay
with all that they hold: those cited by hand until they are released, those that results cite as long as they are among
the last `RetentionPolicy.results`, so that a query each minute does not keep every minute for ever. Tables and cells
need no compaction: each commit writes the last chunk of a table anew, whole, and Icechunk keeps the places of an
array's chunks in one manifest.

It runs under the archive's lock, so that no commit is at work. A reader has that hour to finish with a snapshot after
it was replaced. A process that dies meanwhile leaves litter, which the next maintenance removes.
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
"""File of an archive that tells how many snapshots the last maintenance left, and why it failed where it did."""
BACKING_UP: Final = "backup-"
UPGRADING: Final = "upgrade-to-"
"""What the names of branches begin with that keep snapshots while a backup, or an upgrade, is made."""
BACKUP_LOCK: Final = "backup.lock"
"""File of an archive that is held while it is backed up."""
_CITED: Final = "cited."
"""Tags of snapshots cited by hand, and by exports: the snapshot and a random number follow."""
_RESULT: Final = "result."
"""Tags of snapshots cited by results: the snapshot, when it was tagged [ns], and a random number follow."""


@dataclass(frozen=True)
class RetentionPolicy:
    """When an archive is maintained by those who commit, and what is kept."""

    keep_s: float = 3600.0
    """How long a snapshot can be read after another became the newest [s]."""
    every: int = 128
    """Commits after which a committer maintains the archive."""
    max_snapshots: int = 1024
    """Snapshots that are kept where commits follow one another fast."""
    least_s: float = 300.0
    """Even then, how long a snapshot can be read after another became the newest [s]."""
    results: int = 256
    """Snapshots that stay because results cite them; when there are more, the one that was cited first is let go."""


DEFAULT_RETENTION: Final = RetentionPolicy()
"""What holds where nothing else is asked for."""


@dataclass(frozen=True)
class MaintenanceReport:
    """What a maintenance did."""

    snapshots_expired: int
    objects_removed: int
    bytes_removed: int
    snapshots_left: int
    seconds: float
    held_by: tuple[str, ...] = ()
    """Branches that are at work, while which no snapshot expires."""


def is_due(folder: Path, storage: Storage, care: RetentionPolicy) -> bool:
    """Return whether `care.every` snapshots were added since the last maintenance, whether or not it failed."""
    try:
        left = int(_read_marker(folder)["snapshots_left"])
    except (ValueError, KeyError, TypeError):
        left = 0
    return storage.count_snapshots() - left >= care.every


def note_failure(folder: Path, storage: Storage, error: Exception) -> None:
    """Note that a maintenance failed: the next is due after as many commits as if it had not."""
    what = " ".join(str(error).split())[:200] or type(error).__name__
    _write_marker(folder, {"snapshots_left": storage.count_snapshots(), "failed": what})


def read_failure(folder: Path) -> str:
    """Return why the last maintenance failed; empty: it did not."""
    return str(_read_marker(folder).get("failed", ""))


def _read_marker(folder: Path) -> dict[str, Any]:
    try:
        return read_checked(folder / MARKER)
    except (OSError, DamagedArchive):
        return {}


def _write_marker(folder: Path, state: dict[str, Any]) -> None:
    write_checked(folder / MARKER, state)


def maintain(
    folder: Path, storage: Storage, sums: SnapshotChecksums | None, branch: str, *, now: datetime, care: RetentionPolicy
) -> MaintenanceReport:
    """Let snapshots expire, and remove what none uses; called under the lock.

    Parameters
    ----------
    folder, storage, sums
        Folder of the archive, where its Icechunk repository lies, and the checksums of its snapshots, if it has some.
    branch
        The branch that commits go to. While there are others no snapshot expires.
    now
        The present by the clock that Icechunk reads.
    """
    started_s = time.monotonic()
    # Opened anew: what another process let expire is in the memory of an older one.
    repository = storage.open()
    written = [info.written_at for info in repository.ancestry(branch=branch)]
    cutoff = _find_cutoff(written, now, care)
    for name in repository.list_branches():
        # What a backup or an upgrade that was killed left.
        is_left = name.startswith(BACKING_UP) and is_free(folder / BACKUP_LOCK)
        if is_left or name.startswith(UPGRADING):
            repository.delete_branch(name)
    others = tuple(sorted(repository.list_branches() - {branch}))
    with nullcontext() if sums is None else sums.track_expiry(repository), _translate_panics(folder):
        expired = 0 if others else len(repository.expire_snapshots(cutoff))
        # What is older and in no snapshot belongs to a commit that died, or to a snapshot that expired.
        before = max(cutoff, now - timedelta(seconds=care.keep_s))
        removed = repository.garbage_collect(now - timedelta(seconds=care.keep_s) if others else before)
    objects = removed.chunks_deleted + removed.manifests_deleted + removed.snapshots_deleted
    objects += removed.attributes_deleted + removed.transaction_logs_deleted
    litter, size = storage.sweep(before)
    left, seconds = storage.count_snapshots(), time.monotonic() - started_s
    done = MaintenanceReport(expired, objects + litter, removed.bytes_deleted + size, left, seconds, others)
    _write_marker(folder, asdict(done))
    return done


@contextmanager
def _translate_panics(folder: Path) -> Iterator[None]:
    """Turn a panic of Icechunk, which is no `Exception`, into an error: a commit goes on when its maintenance fails."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as panic:
        message = f"snapshots cannot expire: {panic}; 'hypergrid check {folder} --repair' mends what can be mended"
        raise DamagedArchive(message) from panic


def _find_cutoff(written: list[datetime], now: datetime, care: RetentionPolicy) -> datetime:
    """Return the instant before which snapshots, newest first, expire: the oldest that may still be read stays."""

    def newest_at(instant: datetime) -> int:
        return next((index for index, written_at in enumerate(written) if written_at <= instant), len(written) - 1)

    oldest = newest_at(now - timedelta(seconds=care.keep_s))
    if oldest >= care.max_snapshots:
        oldest = min(
            oldest, max(care.max_snapshots - 1, newest_at(now - timedelta(seconds=min(care.keep_s, care.least_s))))
        )
    return written[oldest]


def cite(repository: icechunk.Repository, snapshot: str) -> None:
    """Tag a snapshot, so that it stays with all that it holds; called under the lock."""
    if snapshot not in _select_cited_by_hand(repository.list_tags()):
        # Never a name that was there before: a tag that was deleted cannot be made again.
        repository.create_tag(f"{_CITED}{snapshot}.{uuid.uuid4().hex}", snapshot)


def cite_for_result(repository: icechunk.Repository, snapshot: str, *, maximum: int) -> None:
    """Tag a snapshot that a result cites, and delete the oldest such tags beyond `most`; called under the lock.

    A snapshot that is cited already, by hand or by another result, gets no second tag.
    """
    tags = repository.list_tags()
    if snapshot in _select_cited_by_hand(tags) | _select_cited_by_results(tags).keys():
        return
    repository.create_tag(f"{_RESULT}{snapshot}.{time.time_ns():020d}.{uuid.uuid4().hex}", snapshot)
    oldest_first = sorted(_select_cited_by_results(repository.list_tags()).values(), key=lambda tag: tag.split(".")[2])
    for tag in oldest_first[: max(0, len(oldest_first) - maximum)]:
        repository.delete_tag(tag)


def release(repository: icechunk.Repository, snapshot: str) -> bool:
    """Delete the tags of a snapshot that was cited; return whether there was one. It expires like any other."""
    prefixes = (f"{_CITED}{snapshot}.", f"{_RESULT}{snapshot}.")
    tags = [tag for tag in repository.list_tags() if tag.startswith(prefixes)]
    for tag in tags:
        repository.delete_tag(tag)
    return bool(tags)


def cited(repository: icechunk.Repository) -> dict[str, str]:
    """Return the snapshots that were cited: by their ids, "hand" or "result"."""
    tags = repository.list_tags()
    by = dict.fromkeys(sorted(_select_cited_by_results(tags)), "result") | dict.fromkeys(
        sorted(_select_cited_by_hand(tags)), "hand"
    )
    return {snapshot: by[snapshot] for snapshot in sorted(by)}


def parse_tag(tag: str) -> str | None:
    """Return the snapshot that a tag is of by its name; None: it is no tag of ours."""
    for start in (_CITED, _RESULT):
        if tag.startswith(start):
            return tag.removeprefix(start).split(".")[0]
    return None


def _select_cited_by_hand(tags: Set[str]) -> set[str]:
    return {tag.removeprefix(_CITED).rsplit(".", 1)[0] for tag in tags if tag.startswith(_CITED)}


def _select_cited_by_results(tags: Set[str]) -> dict[str, str]:
    """Return the tags of snapshots that results cite, by snapshot."""
    return {tag.split(".")[1]: tag for tag in tags if tag.startswith(_RESULT)}
