"""Stream of an archive: a receiver fills the spool, and Spark follows it with micro-batches."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from hypergrid.archive import Archive, StoreError
from hypergrid.archive.arrays import stream_log
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.raw_copies import RAW, sweep
from hypergrid.core.errors import ArchiveConflict, HyperGridError, NotFound, StoreUnavailable
from hypergrid.core.times import SECOND_NS
from hypergrid.wo_join.warm import is_warm
from ingest.batch.archive_session import check_same, check_units, locked_archive, open_if_exists
from ingest.deployment.deployment_file import Deployment, deploy, load, read_versions, version_at
from ingest.sources import receiver
from ingest.sources.spool import END, TICK, Spool, SpoolRecord, durable
from ingest.spark.streaming_query import QueryFailed, SparkLost, StreamingJob
from ingest.streaming import memory_shares
from ingest.streaming.assembler import EMITTED_BYTES, ROWS_SHARE, JoinStatus, MicroBatch, StateUnusable, StreamBatch
from ingest.streaming.restart import begin_anew, has_checkpoint, replayed
from ingest.streaming.spool_decoder import groups_of
from ingest.streaming.stream_commit import (
    CHECKPOINT,
    DEPLOYMENTS,
    SPOOL,
    STREAM,
    CommitResult,
    Ledger,
    StreamStatus,
    commit,
    ledger_of,
    stream_id,
)

JVM: Final = "jvm"
"""File with the process id of Spark's JVM."""
RESTARTS: Final = 3
"""Maximum number of restarts of Spark within `RESTARTS_S` [s]."""
RESTARTS_S: Final = 600.0
PAUSE_S: Final = 30.0
"""Maximum pause between retries [s]."""
BATCH_SHARE: Final = 1 / 32
"""Size of a batch, as a share of a limit of memory."""
LEAST_BATCH: Final = 1 << 20
"""Size of a batch under a small limit [bytes]."""
DRAIN_BATCHES: Final = 32
"""Most empty batches at a time after the end of the input, as what a batch emits is bounded."""
READING_BYTES: Final = 20.0
"""Size of a held reading with its part of the row, about [bytes]."""


class _Leaving(HyperGridError):
    """The query is being stopped; the batch will be replayed."""


@dataclass
class _Pauses:
    """Exponential backoff between retries: each pause is twice the previous one."""

    failures: int = 0

    def next_s(self) -> float:
        """Return the pause after one more failure [s]."""
        self.failures += 1
        return float(min(PAUSE_S, 2.0 ** min(self.failures - 1, 10)))


@dataclass(frozen=True)
class StreamReport:
    """Summary of a run of a stream."""

    archive: str
    batches: int
    """Batches processed in this run."""
    readings: int
    """Readings emitted in this run."""
    ledger: Ledger
    snapshot: str | None
    """Last committed snapshot."""
    seconds: float
    restarts: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _StreamProgress:
    """Progress of the batches; written by Spark's thread, read by the main thread."""

    folder: Path
    now_ns: Callable[[], int]
    batches: int = 0
    readings: int = 0
    snapshot: str | None = None
    ledger: Ledger = field(default_factory=Ledger)
    last_slice_ns: int | None = None
    failure: BaseException | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)
    leaving: threading.Event = field(default_factory=threading.Event)
    """Set while the query is being stopped; `commit_batch` then refuses."""
    recent: list[tuple[float, int]] = field(default_factory=list)
    joins: dict[str, JoinStatus] = field(default_factory=dict)
    replayed: int = 0
    """Last record of the spool that an earlier stream had committed."""
    on_warning: Callable[[str], None] = lambda _: None

    def commit_batch(self, batch: StreamBatch) -> None:
        """Commit a batch, retrying while the archive cannot be written, for example on a full disk."""
        pauses = _Pauses()
        while (trouble := self._try_commit(batch)) is not None:
            if not pauses.failures:
                self.on_warning(f"{self.folder} cannot be written, which is tried again; nothing is lost: {trouble}")
            self.leaving.wait(pauses.next_s())
        if pauses.failures:
            self.on_warning(f"{self.folder} can be written again")

    def _try_commit(self, batch: StreamBatch) -> OSError | StoreError | None:
        """Commit a batch; return the disk or store error that prevented it."""
        with self.busy:
            if self.leaving.is_set():
                raise _Leaving(f"the stream is being stopped; batch {batch.number} comes again")
            try:
                deployment = version_at(read_versions(self.folder / STREAM / DEPLOYMENTS), batch.groups[0].upto)
                archive = Archive.open(self.folder)
                done = commit(archive, batch, deployment, now_ns=self.now_ns(), replayed=self.replayed)
            except BaseException as error:
                # Only disk and store errors are retried; an error of this program would recur.
                ours = isinstance(error, HyperGridError) and not isinstance(error, StoreUnavailable)
                if isinstance(error, (OSError, StoreError)) and not ours:
                    return error
                self.failure = error
                raise
            self._note(done, batch.groups, deployment.slice_s)
            self._share_memory(deployment, batch.groups)
        return None

    def _share_memory(self, deployment: Deployment, groups: Sequence[MicroBatch]) -> None:
        """Decide the shares of groups of stations in the limit of memory, from the next record on."""
        memory, names = deployment.stream.memory, groups_of(deployment)
        if memory is None or len(names) == 1 or not self.joins.keys() >= set(names):
            return
        shares = memory_shares.split(memory, {name: self.joins[name] for name in names})
        if shares is not None:
            # On a full disk the shares stay as they are until a later batch.
            with suppress(OSError):
                memory_shares.decide(self.folder / STREAM, groups[0].upto + 1, shares)

    def _note(self, done: CommitResult, groups: Sequence[MicroBatch], slice_s: float) -> None:
        self.batches += 1
        self.readings += done.readings
        self.snapshot = done.snapshot or self.snapshot
        self.ledger = done.ledger
        closed = [group.counts.last_slice for group in groups if group.counts.slices]
        if closed:
            self.last_slice_ns = round((max(closed) + 1) * slice_s * SECOND_NS)
        self.joins = self.joins | {group.group: group.join for group in groups if group.join is not None}
        self.recent = [*self.recent[-9:], (time.monotonic(), self.readings)]

    def status(self) -> StreamStatus:
        rate = 0.0
        if len(self.recent) > 1:
            (start, before), (stop, now) = self.recent[0], self.recent[-1]
            rate = (now - before) / max(1e-9, stop - start)
        behind = durable(self.folder / SPOOL) - self.ledger.upto
        return StreamStatus(self.ledger, rate, self.last_slice_ns, max(0, behind), self.batches, self.joins)


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream."""

    deployment: Path | None = None
    """Deployment file; None: the stream's current deployment."""
    watch: Path | None = None
    mqtt: str | None = None
    """Address of the MQTT broker; None: that of the deployment, if it has one."""
    trigger_s: float = 10.0
    """Interval between batches [s]."""
    until_idle: bool = False
    """Stop when there is no more input, and close all slices."""
    by_arrival: bool = False
    """Replay the files of the folder in the order of arrival, instead of following it; goes with `until_idle`."""
    batch_bytes: int = 64 << 20
    """Maximum size of a batch [bytes]."""


def stream(
    folder: Path,
    how: StreamOptions,
    *,
    now_ns: Callable[[], int] = time.time_ns,
    on_status: Callable[[StreamStatus], None] = lambda _: None,
    on_warning: Callable[[str], None] = lambda _: None,
    stopping: threading.Event | None = None,
) -> StreamReport:
    """Stream into an archive, created if missing, until stopped or out of input.

    Rows held at a stop are still held after the next start. Killing the process loses nothing.

    Parameters
    ----------
    now_ns
        Returns the current time [ns since 1970 UTC].
    on_status
        Called with the status several times a second.
    stopping
        Set it to stop the stream.

    Raises
    ------
    ArchiveConflict
        Another stream writes into the archive, or it belongs to another network.
    InvalidDeployment, NotFound
        There is no usable deployment.
    HyperGridError
        Spark failed repeatedly, or a reading is lost.
    """
    started_s = time.monotonic()
    stopping = stopping or threading.Event()
    with ExitStack() as stack:
        _make(folder, how, now_ns())
        stack.enter_context(_exclusive_stream(folder))
        sweep(folder / RAW)
        if not has_checkpoint(folder):
            _begin_anew(folder, "it remembers nothing", on_warning)
        progress = _StreamProgress(folder, now_ns, replayed=replayed(folder), on_warning=on_warning)
        if has_checkpoint(folder):
            progress.ledger = ledger_of(Archive.open(folder), stream_id(folder / STREAM / CHECKPOINT))
        log = ProgressLog(folder, now_ns)
        stack.callback(log.end)

        def report_status(status: StreamStatus) -> None:
            log.update(status)
            on_status(status)

        run = _StreamRun(folder, how, progress, stopping, report_status, on_warning)
        stack.callback(run.end)
        run.deploy()
        stack.enter_context(_compiling(on_warning))
        if run.receives:
            stack.enter_context(run.receiving())
        if run.receives or not how.until_idle:
            run.follow(how.trigger_s)
        if how.until_idle and not stopping.is_set():
            with Spool.open(folder / SPOOL) as spool:
                # Closes all slices at the end of the spool.
                spool.append([SpoolRecord(now_ns(), kind=END)])
            run.follow(None)
            run.drain(now_ns)
    seconds = time.monotonic() - started_s
    return StreamReport(
        str(folder), progress.batches, progress.readings, progress.ledger, progress.snapshot, seconds, len(run.restarts)
    )


def _make(folder: Path, how: StreamOptions, now_ns: int) -> None:
    """Create the archive if it is missing, else check the deployment against it."""
    versions = read_versions(folder / STREAM / DEPLOYMENTS)
    if how.deployment is None and not versions:
        raise NotFound(f"a stream into {folder} needs --deployment FILE, which says what comes and what it is")
    described = versions[-1].deployment if how.deployment is None else load(how.deployment)
    archive = open_if_exists(folder)
    if archive is None:
        with locked_archive(folder, described, now_ns=now_ns, on_wait=lambda: None):
            return
    _check(archive, described)


def _check(archive: Archive, described: Deployment) -> None:
    check_same(archive, described)
    check_units(archive, described)


@contextmanager
def _exclusive_stream(folder: Path) -> Iterator[None]:
    """Lock the archive for one stream, and kill what is left of an earlier one."""
    lock = folder / STREAM / "lock"
    lock.parent.mkdir(exist_ok=True)

    def refuse() -> None:
        raise ArchiveConflict(f"another stream writes into {folder}; end it first, or use another archive")

    with wait_for_lock(lock, on_wait=refuse):
        # Spark's own process may outlive a killed parent for a moment, and must not touch the checkpoint any more.
        _end_jvm(folder / STREAM / JVM)
        yield


def _start_time(pid: int) -> str | None:
    """Return a process's start time, which distinguishes reused ids; None if absent or dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # Zombies count as dead: in containers no parent may ever reap them.
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return None


def _end_jvm(note: Path) -> None:
    until = time.monotonic() + 30.0
    with suppress(OSError, ValueError):
        pid, started = note.read_text().split()
        while _start_time(int(pid)) == started:
            os.kill(int(pid), signal.SIGKILL)
            if time.monotonic() > until:
                raise HyperGridError(
                    f"process {pid}, Spark of a run before, was killed and does not end; start again when it has"
                )
            time.sleep(0.05)


@contextmanager
def _compiling(on_warning: Callable[[str], None]) -> Iterator[None]:
    """Compile the loops of joins while Spark starts, before the first stream of an installation."""
    # They take 31 s of one core, which would otherwise follow the start of Spark.
    if is_warm():
        yield
        return
    on_warning("the first stream of an installation compiles its joins, once: half a minute on an idle core")
    words = [sys.executable, "-m", "hypergrid.wo_join.warm"]
    # Out of reach of Ctrl-C, which ends it by way of this process.
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True) as compiler:
        # Spark gives up on a worker that does not connect within ten seconds, so its processes go first.
        os.setpriority(os.PRIO_PROCESS, compiler.pid, 19)
        try:
            yield
        finally:
            compiler.terminate()


def _begin_anew(folder: Path, why: str, on_warning: Callable[[str], None]) -> None:
    restart = begin_anew(folder)
    if restart is None:
        return
    recovery = (
        f"{restart.segments} segments of it came back from raw copies" if restart.segments else "all of it is there"
    )
    on_warning(
        f"the stream into {folder} begins anew ({why}): it reads its spool again ({recovery}); readings up to record "
        f"{restart.upto} that are in the archive stay as they are" + (f". LOST: {restart.lost}" if restart.lost else "")
    )


@dataclass
class _StreamRun:
    """A running stream: its receiver and its Spark query."""

    folder: Path
    how: StreamOptions
    progress: _StreamProgress
    stopping: threading.Event
    on_status: Callable[[StreamStatus], None]
    on_warning: Callable[[str], None]
    restarts: list[float] = field(default_factory=list)
    _receiver: "subprocess.Popen[bytes] | None" = None
    _received_since: float = 0.0
    _receive_at: float | None = None
    """When to restart a receiver that ended; None: it is not known to have ended."""
    _receiver_pauses: _Pauses = field(default_factory=_Pauses)
    _deployment_stamp: tuple[int, int] | None = None
    _job: StreamingJob = field(default_factory=StreamingJob)

    def deploy(self) -> bool:
        """Deploy the current deployment file; return whether it changed."""
        if self.how.deployment is None:
            return False
        self._deployment_stamp = _stamp(self.how.deployment)
        journal = self.folder / STREAM / DEPLOYMENTS
        before = read_versions(journal)
        # Records that are already in the spool keep their deployment, so that a replay reads them as before.
        changed = deploy(journal, self.how.deployment, first=durable(self.folder / SPOOL) + 1, check=self._check)
        if before:
            was, now = before[-1].deployment.stream, read_versions(journal)[-1].deployment.stream
            # A limit of memory holds from the next batch on.
            for name in ("idle_s", "order"):
                if getattr(was, name) != getattr(now, name):
                    self.on_warning(f"{name} changed: stations that are assembled already keep what they began with")
        return changed

    def _check(self, described: Deployment) -> None:
        """Raise unless the archive, and the receiver if there is one, can use a deployment."""
        _check(Archive.open(self.folder), described)
        how = self.how
        receives = how.by_arrival or how.watch is not None or how.mqtt is not None or described.broker is not None
        if receives or self._receiver is not None:
            receiver.resolve_sources(described, watch=how.watch, mqtt=how.mqtt, by_arrival=how.by_arrival)

    def _is_changed(self) -> bool:
        """Return whether the deployment file has changed and is usable."""
        path = self.how.deployment
        if path is None or (stamp := _stamp(path)) == self._deployment_stamp:
            return False
        before, self._deployment_stamp = self._deployment_stamp, stamp
        try:
            self._check(load(path))
        except StoreUnavailable:
            # The file may be valid: it is checked again later.
            self._deployment_stamp = before
            return False
        except HyperGridError as error:
            self.on_warning(f"the deployment changed and cannot be used; the one before it stays: {error}")
            return False
        # A file that was only touched has not changed.
        return path.read_text(encoding="utf-8-sig") != read_versions(self.folder / STREAM / DEPLOYMENTS)[-1].text

    @property
    def receives(self) -> bool:
        """Whether there is any input to receive; otherwise only the spool is followed."""
        broker = read_versions(self.folder / STREAM / DEPLOYMENTS)[-1].deployment.broker
        return self.how.watch is not None or self.how.mqtt is not None or broker is not None

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Run the receiver in the background."""
        self._receive()
        try:
            yield
        finally:
            self._stop_receiving()

    def _receive(self) -> None:
        # The receiver reads the journal, not the deployment file, so that it uses the deployment that the rows are read
        # by.
        how, journal = self.how, self.folder / STREAM / DEPLOYMENTS
        words = receiver.command(
            self.folder, journal, watch=how.watch, mqtt=how.mqtt, until_idle=how.until_idle, by_arrival=how.by_arrival
        )
        self._receiver = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        self._received_since, self._receive_at = time.monotonic(), None

    def _stop_receiving(self) -> None:
        if self._receiver is not None and self._receiver.poll() is None:
            self._receiver.terminate()
            try:
                self._receiver.wait(timeout=30.0)
            except subprocess.TimeoutExpired:
                self._receiver.kill()
                self._receiver.wait()

    def _is_received(self) -> bool:
        """Return whether the receiver is done; restart it if it died."""
        if self._receiver is None or (code := self._receiver.poll()) is None:
            return False
        if code == 0 and self.how.until_idle:
            return True
        if code == receiver.USED_WRONGLY:
            raise HyperGridError("the receiver cannot work as it was told; see its message above")
        now = time.monotonic()
        if self._receive_at is None:
            # A receiver that ran for a while starts again with short pauses.
            if now - self._received_since > 2 * PAUSE_S:
                self._receiver_pauses = _Pauses()
            if not self._receiver_pauses.failures:
                self.on_warning(f"the receiver ended with status {code}; it is started again, as often as that happens")
            self._receive_at = now + self._receiver_pauses.next_s()
        if now >= self._receive_at:
            self._receive()
        return False

    def follow(self, trigger_s: float | None, *, batch_bytes: int | None = None) -> None:
        """Follow the spool until stopped or received completely; without a trigger, to its end.

        A batch has at least one record, and at most `batch_bytes` if it has more.
        """
        while not self.stopping.is_set():
            try:
                if self._follow_query(trigger_s, batch_bytes):
                    return
            except (SparkLost, QueryFailed) as lost:
                self._note_loss(lost)
                # A stream that begins again has all of its spool to read.
                batch_bytes = None
                continue
            self._stop_receiving()
            try:
                self.deploy()
                self.on_warning("the deployment changed; what comes from now on is read by it")
            except HyperGridError as error:
                self.on_warning(f"the deployment changed and cannot be used; the one before it stays: {error}")
            if self.receives:
                self._receive()

    def drain(self, now_ns: Callable[[], int]) -> None:
        """Process empty batches until all that is due was emitted: with a limit of memory each emits a part."""
        held = -1
        # A stream that began again meanwhile may hold more than before.
        while self.progress.ledger.held not in (0, held) and not self.stopping.is_set():
            held = self.progress.ledger.held
            with Spool.open(self.folder / SPOOL) as spool:
                for _ in range(self._drain_batches(held)):
                    # A frame each, as a batch has whole ones.
                    spool.append([SpoolRecord(now_ns(), kind=TICK)])
                    spool.flush()
            self.follow(None, batch_bytes=1)

    @property
    def _memory(self) -> int | None:
        """Limit of memory of the current deployment [bytes]."""
        versions = read_versions(self.folder / STREAM / DEPLOYMENTS)
        return versions[-1].deployment.stream.memory if versions else None

    def _drain_batches(self, held: int) -> int:
        """Return about how many empty batches emit a number of held readings."""
        memory = self._memory
        emitted_bytes = EMITTED_BYTES if memory is None else min(EMITTED_BYTES, ROWS_SHARE * memory)
        return min(DRAIN_BATCHES, 1 + int(held * READING_BYTES / emitted_bytes))

    def _follow_query(self, trigger_s: float | None, batch_bytes: int | None = None) -> bool:
        """Run one query; return True if the stream is done, False if the deployment changed."""
        progress, follower = self.progress, self._job
        progress.leaving.clear()
        follower.connect()
        # Lets the next run kill this process, should it outlive its parent.
        (self.folder / STREAM / JVM).write_text(f"{follower.pid} {_start_time(follower.pid or 0)}")
        # A small folder is received while Spark starts: then the query that closes its slices reads all of it.
        if trigger_s is not None and self._is_received():
            return True
        size = self._batch_bytes if batch_bytes is None else batch_bytes
        limited = self._memory is not None
        follower.start(self.folder, progress.commit_batch, trigger_s=trigger_s, batch_bytes=size, limited=limited)
        while True:
            if not self._is_active():
                self.on_status(progress.status())
                return True
            # Ctrl-C also ends the receiver, which must not be restarted then.
            looks = trigger_s is not None and not self.stopping.is_set()
            changed = looks and self._is_changed()
            # What arrived after the last batch is left to the query that closes all slices, which starts at once.
            received = looks and self._is_received() and follower.is_waiting()
            if changed or received or self.stopping.is_set():
                # Wait for a commit in progress, which would otherwise be repeated. Later commits are refused, because
                # the query ends only after they have been answered.
                with progress.busy:
                    progress.leaving.set()
                follower.stop()
                self.on_status(progress.status())
                return not changed
            self.on_status(progress.status())
            self.stopping.wait(0.2)

    @property
    def _batch_bytes(self) -> int:
        """Maximum size of a batch [bytes]."""
        memory = self._memory
        if memory is None:
            return self.how.batch_bytes
        # Its rows are in memory several times: parsed, on their way between processes, and beside those that wait.
        return min(self.how.batch_bytes, max(LEAST_BATCH, round(BATCH_SHARE * memory)))

    def _is_active(self) -> bool:
        try:
            return self._job.is_active()
        except QueryFailed:
            # The original error says more than Spark's report of it.
            if self.progress.failure is not None:
                raise self.progress.failure from None
            raise

    def _note_loss(self, lost: SparkLost | QueryFailed) -> None:
        """Prepare a restart, unless there were too many."""
        # Spark waits only ten seconds for its workers, so a loss on a busy machine is not a failure.
        now = time.monotonic()
        self.restarts.append(now)
        is_unusable = StateUnusable.__name__ in str(lost)
        if is_unusable or isinstance(lost, SparkLost):
            self._job.end()
        self.progress.failure = None
        if len([restart_s for restart_s in self.restarts if now - restart_s < RESTARTS_S]) > RESTARTS:
            raise HyperGridError(
                f"{lost}, {RESTARTS + 1} times within {RESTARTS_S:g} s; nothing is lost: start the stream again; if "
                f"that does not help, remove {self.folder / STREAM / CHECKPOINT} before: it begins anew then"
            ) from lost
        if is_unusable:
            _begin_anew(self.folder, str(lost), self.on_warning)
            self.progress.ledger, self.progress.replayed = Ledger(), replayed(self.folder)
            return
        self.on_warning(f"{lost}; it is started again")

    def end(self) -> None:
        self._job.end()
        (self.folder / STREAM / JVM).unlink(missing_ok=True)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


EVERY_S: Final = 5.0
"""Interval between entries of the progress log [s]."""


class ProgressLog:
    """Appends the status of a stream to its log at intervals.

    Parameters
    ----------
    folder
        Folder of the archive.
    now_ns
        Returns the current time [ns since 1970 UTC].
    """

    def __init__(self, folder: Path, now_ns: Callable[[], int]) -> None:
        self._folder, self._now_ns = folder, now_ns
        self._written_ns: int | None = None
        self._last: Mapping[str, Any] = {}

    def update(self, status: StreamStatus) -> None:
        """Log the status, at most once per `EVERY_S`."""
        now_ns = self._now_ns()
        self._last = _record(status)
        # A clock that was set back must not silence the log.
        if self._written_ns is None or not 0 <= now_ns - self._written_ns < EVERY_S * SECOND_NS:
            self._write(now_ns, {})

    def end(self) -> None:
        if self._written_ns is not None:
            self._write(self._now_ns(), {"ended": True})

    def _write(self, now_ns: int, more: Mapping[str, Any]) -> None:
        self._written_ns = now_ns
        # A full disk is reported by the commit; only one point of the log is lost here.
        with suppress(OSError):
            stream_log.append_record(self._folder, {"at_ns": now_ns, **self._last, **more})


def _record(status: StreamStatus) -> dict[str, Any]:
    ledger = status.ledger
    return {
        "readings_per_s": status.readings_per_s,
        "behind": status.behind,
        "batches": status.batches,
        "came": ledger.came,
        "held": ledger.held,
        "late": ledger.late,
        "slices": ledger.slices,
        "last_slice_ns": status.last_slice_ns,
        "joins": {group: asdict(join_status) for group, join_status in status.joins.items()},
    }
