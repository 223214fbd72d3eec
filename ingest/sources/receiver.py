"""The receiver: a process that brings what comes, by MQTT and in a watched folder, into the spool of an archive.

    python -m ingest.sources.receiver ARCHIVE --deployment FILE [--watch DIR] [--mqtt URL] [--until-idle] [--parent PID]
        [--by-arrival]

It ends when it is told to (SIGTERM), with its parent, or with `--until-idle` once nothing more comes. It may be killed
at any moment: what it had acknowledged is in the spool once, and it goes on from there.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from hypergrid.core.errors import ArchiveConflict, HyperGridError, InvalidDeployment, NotFound
from hypergrid.core.files import replace_atomically
from hypergrid.core.stop_signals import stop_at_signals
from hypergrid.core.times import floor_to_microsecond
from ingest.deployment.deployment_file import Deployment, load, read_versions
from ingest.deployment.topics import Broker, address
from ingest.sources.arrival_replay import ArrivalReplay, check_replayable, count_lines
from ingest.sources.folder_watcher import TailStates, WatchedFolder
from ingest.sources.mqtt import UNNUMBERED, MqttSession, MqttSource
from ingest.sources.spool import (
    HEADER,
    MESSAGE,
    REFUSED,
    STATE,
    TICK,
    NotWritten,
    Spool,
    SpoolRecord,
    frames,
    held_bytes,
    is_state,
    segments,
)

SPOOL: Final = "spool"
TICK_S: Final = 1.0
"""Interval of clock ticks in the spool [s]."""
IDLE_S: Final = 5.0
"""Input is considered finished after this much silence [s]."""
SPOOL_MOST_BYTES: Final = 4 << 30
"""Size of the spool above which files are no longer read [bytes]; messages still are."""
USED_WRONGLY: Final = 2
"""Exit status for invalid arguments or settings."""
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end it."""


@dataclass(frozen=True)
class ReceiverSources:
    """Sources of a receiver."""

    deployment: Deployment
    broker: Broker | None = None
    watch: Path | None = None
    by_arrival: bool = False
    """Whether the files of the folder are replayed in the order of arrival, instead of being followed."""


def command(
    archive: Path,
    deployment: Path,
    *,
    watch: Path | None = None,
    mqtt: str | None = None,
    until_idle: bool = False,
    by_arrival: bool = False,
) -> tuple[str, ...]:
    """Return the command line of a receiver that ends with this process."""
    words = [sys.executable, "-m", "ingest.sources.receiver", str(archive), "--deployment", str(deployment)]
    words += ["--watch", str(watch)] if watch is not None else []
    words += ["--mqtt", mqtt] if mqtt is not None else []
    words += ["--until-idle"] if until_idle else []
    words += ["--by-arrival"] if by_arrival else []
    return (*words, "--parent", str(os.getpid()))


def resolve_sources(
    deployment: Deployment, *, watch: Path | None, mqtt: str | None, by_arrival: bool = False
) -> ReceiverSources:
    """Return the sources to receive; the broker address in `mqtt`, if given, overrides that of the deployment.

    Raises
    ------
    InvalidDeployment
        There is no source, or it is unusable.
    """
    if by_arrival:
        if watch is None or mqtt is not None:
            raise InvalidDeployment(
                "--by-arrival replays the files of a folder: name it (--watch), and leave the broker (--mqtt) away"
            )
        check_replayable(deployment)
        return ReceiverSources(deployment, None, watch, by_arrival)
    broker = deployment.broker
    if mqtt is not None:
        host, port, tls = address(mqtt)
        broker = replace(broker or Broker(host), host=host, port=port, tls=tls)
    name = deployment.path.name if deployment.path else "the deployment"
    if broker is None and watch is None:
        raise InvalidDeployment(
            f"nothing to receive: name a folder (--watch), a broker (--mqtt), or one under [mqtt] in {name}"
        )
    if broker is not None and not any(feed.topic for feed in deployment.feeds):
        if mqtt is not None or watch is None:
            raise InvalidDeployment(
                f"{name}: no feed has a topic, so nothing is asked of {broker.url}; give a [[feed]] its `topic`"
            )
        broker = None
    if broker is not None:
        broker.check_files()
    if watch is not None and not any(feed.files for feed in deployment.feeds):
        raise InvalidDeployment(
            f"{name}: no feed has files, so nothing is read from {watch}; give a [[feed]] its `files`"
        )
    return ReceiverSources(deployment, broker, watch)


class Receiver:
    """Receives into the spool until `stopping` is set, or until no more input arrives.

    Parameters
    ----------
    notify
        Receives messages for the user, of one sentence each.
    environment
        Environment variables with the user and the password for the broker.
    is_orphan
        Returns whether the parent process, with which this one has to end, is gone.
    """

    def __init__(
        self,
        archive: Path,
        what: ReceiverSources,
        *,
        notify: Callable[[str], None],
        environment: Mapping[str, str],
        stopping: threading.Event,
        is_orphan: Callable[[], bool] = lambda: False,
    ) -> None:
        self._notify, self._stopping, self._is_orphan = notify, stopping, is_orphan
        self._files, self._filters = TailStates(), tuple[str, ...]()
        self._spool = Spool.open(archive / SPOOL, state=self._state)
        self._folder: WatchedFolder | None = None
        self._mqtt: MqttSource | None = None
        self._full = self._waits = False
        self._archive, self._what = archive, what
        self._replayed, self._replay_lines, self._replay_token = 0, 0, ""
        recent = self._restore_state()
        if what.watch is not None and not what.by_arrival:
            self._folder = WatchedFolder(what.watch, what.deployment, self._files, notify=notify, exclude=archive)
        if what.broker is not None:
            self._mqtt = MqttSource(
                what.broker,
                [(feed.name, feed.topic) for feed in what.deployment.feeds if feed.topic is not None],
                self._spool,
                MqttSession(what.broker.client_id or client_id(archive / SPOOL), recent, self._filters),
                notify=notify,
                environment=environment,
            )
        if not self._spool.durable:
            # Every segment begins with the state, including the first one.
            self._spool.append([self._state_record()])

    def _state_record(self) -> SpoolRecord:
        return SpoolRecord(floor_to_microsecond(time.time_ns()), payload=self._state(), kind=STATE)

    def _state(self) -> bytes:
        filters = self._mqtt.filters if self._mqtt is not None else self._filters
        state: dict[str, Any] = {"files": self._files.state(), "filters": filters}
        if self._replay_token:
            state["replay"] = {"token": self._replay_token, "lines": self._replayed, "of": self._replay_lines}
        return json.dumps(state).encode()

    def _restore_state(self) -> Iterator[tuple[int, str, bytes]]:
        """Restore the state that an earlier run left in the spool; return the last messages in it."""
        while True:
            known = segments(self._spool.folder)
            try:
                return self._resume()
            except (NotFound, FileNotFoundError):
                # A concurrent commit retires segments: a later one has the state, too.
                if segments(self._spool.folder) == known:
                    raise

    def _resume(self) -> Iterator[tuple[int, str, bytes]]:
        spool = self._spool
        # Unacknowledged messages may lie before the last segment, which begins with the state.
        firsts = [first for first, _ in segments(spool.folder)]
        start = next(
            (first for first in reversed(firsts[:-1]) if is_state(spool.folder, first)), min(firsts, default=1)
        )
        messages: deque[pa.RecordBatch] = deque()
        count = 0
        for batch in frames(spool.folder, start - 1, spool.durable):
            position, kind = batch.column("place").to_numpy(), batch.column("kind").to_numpy()
            of_files = (position >= 0) & np.isin(kind, (MESSAGE, HEADER, STATE, REFUSED))
            for record in SpoolRecord.from_batch(batch.filter(pa.array(of_files))):
                if record.kind == STATE:
                    state = json.loads(record.payload)
                    self._files.restore(state["files"])
                    self._filters = tuple(state["filters"])
                    replay = state.get("replay", {})
                    self._replay_token, self._replayed = replay.get("token", ""), replay.get("lines", 0)
                    self._replay_lines = replay.get("of", 0)
                elif self._what.by_arrival or self._replayed < self._replay_lines:
                    self._replayed += count_lines(record)
                else:
                    self._files.replay(record)
            messages.append(batch.filter(pa.array((position < 0) & (position > -UNNUMBERED))))
            count += messages[-1].num_rows
            # Packet identifiers have 16 bits: older messages share theirs with newer ones.
            while count - messages[0].num_rows >= UNNUMBERED:
                count -= messages.popleft().num_rows
        return (
            (-record.position, record.origin, record.payload)
            for batch in messages
            for record in SpoolRecord.from_batch(batch)
        )

    def run(self, *, until_idle: bool = False) -> None:
        """Receive until stopped.

        Raises
        ------
        NotWritten
            The last records could not be written to disk; their source still has them.
        """
        if self._what.by_arrival:
            self._run_replay()
            return
        if self._folder is not None and self._replayed < self._replay_lines:
            raise InvalidDeployment(
                f"{self._archive} has {self._replayed:,} of {self._replay_lines:,} lines of a replay, which --watch "
                "would read again; end it with --by-arrival first, or follow the folder into a new archive"
            )
        if self._mqtt is not None:
            self._mqtt.start()
        try:
            next_tick = next_poll = time.monotonic()
            while not self._stopping.is_set() and not self._is_orphan():
                now, still = time.monotonic(), True
                if now >= next_tick:
                    self._spool.append([SpoolRecord(floor_to_microsecond(time.time_ns()), kind=TICK)])
                    next_tick = now + TICK_S
                if not self._flush():
                    # Buffered records wait, and no more input is taken meanwhile.
                    self._stopping.wait(TICK_S)
                    next_tick = time.monotonic() + TICK_S
                    continue
                if now >= next_poll:
                    still, next_poll = self._poll(now)
                if until_idle and still and self._is_quiet():
                    self._drain()
                    break
                self._stopping.wait(max(0.0, min(next_tick, next_poll) - time.monotonic()))
        finally:
            if self._mqtt is not None:
                self._mqtt.stop()
        # So that the next run need not compare what was read.
        self._spool.append([self._state_record()])

    def _run_replay(self) -> None:
        """Append the files of the folder in the order of arrival, from where an earlier run ended."""
        assert self._what.watch is not None
        with tempfile.TemporaryDirectory(prefix="hypergrid-") as scratch:
            replay = ArrivalReplay(
                self._what.watch, self._what.deployment, exclude=self._archive, scratch=Path(scratch)
            )
            if self._replay_token != replay.token:
                if self._replay_token:
                    raise InvalidDeployment(
                        f"the files of {self._what.watch}, or when their lines arrived, are others than those whose "
                        f"replay into {self._archive} began, so that their order is another one; "
                        "replay them into a new archive"
                    )
                self._replay_token, self._replayed, self._replay_lines = replay.token, 0, len(replay)
                self._spool.append([self._state_record()])
            self._notify(replay.describe(self._replayed))
            for records, lines in replay.batches(self._replayed):
                self._spool.append(records)
                # Only after append: a segment that begins with them holds the state without them.
                self._replayed += lines
                while not self._stopping.is_set() and (not self._flush() or self._is_crowded()):
                    self._stopping.wait(TICK_S)
                if self._stopping.is_set() or self._is_orphan():
                    return
        self._spool.append([self._state_record()])

    def close(self) -> None:
        """Flush and close the spool; errors as in `run`."""
        self._spool.close()

    def _flush(self) -> bool:
        """Write appended records to disk, and return whether that succeeded."""
        try:
            self._spool.flush()
        except NotWritten as error:
            if not self._full:
                self._notify(str(error))
            self._full = True
            return False
        if self._full:
            self._notify("the spool can be written again")
        self._full = False
        return True

    def _poll(self, now_s: float) -> tuple[bool, float]:
        """Poll the folder; return whether it has no more input, and when to poll again [s]."""
        if self._folder is None:
            return True, now_s + TICK_S
        if self._is_crowded():
            return False, now_s + TICK_S
        polled = self._folder.poll(self._spool, now_s)
        self._flush()
        done = time.monotonic()
        if polled.records and polled.waiting:
            return False, done
        # Polling a large folder takes about a fifth of the time at most.
        return not polled.waiting and not polled.records, done + max(TICK_S, 5 * (done - now_s))

    def _is_crowded(self) -> bool:
        held = held_bytes(self._spool.folder)
        crowded = held > SPOOL_MOST_BYTES
        if crowded and not self._waits:
            self._notify(f"{held / 2**30:.1f} GiB wait in the spool; files are left where they are until there is less")
        self._waits = crowded
        return crowded

    def _is_quiet(self) -> bool:
        if self._mqtt is None:
            return True
        received = self._mqtt.statistics()
        return received.connected and time.monotonic() - received.last_s >= IDLE_S

    def _drain(self) -> None:
        while self._folder is not None:
            polled = self._folder.poll(self._spool, time.monotonic(), final=True)
            if not self._flush() or not (polled.records or polled.waiting):
                break


def client_id(spool: Path) -> str:
    """Return the MQTT client id of an archive, generated once and stored with the spool."""
    path = spool / "client-id"
    if not path.exists():
        with replace_atomically(path) as scratch:
            scratch.write_text(f"hypergrid-{uuid.uuid4().hex[:12]}")
    return path.read_text().strip()


def _opened(make: Callable[[], Receiver]) -> Receiver:
    """Open a receiver, waiting at most 15 s for a previous one that is shutting down."""
    until = time.monotonic() + 15.0
    while True:
        try:
            return make()
        except ArchiveConflict:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _print_message(text: str) -> None:
    print(f"receiving: {text}", file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Run the receiver with command-line arguments, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ingest.sources.receiver", description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument(
        "--deployment", type=Path, required=True, help="a file, or the folder of a stream's deployments"
    )
    parser.add_argument("--watch", type=Path)
    parser.add_argument("--mqtt", help="address of the broker, mqtt://HOST:1883 or mqtts://HOST:8883")
    parser.add_argument("--until-idle", action="store_true", help="end once nothing more comes")
    parser.add_argument("--by-arrival", action="store_true", help="replay the files in the order of arrival, and end")
    parser.add_argument("--parent", type=int, help="number of the process to end with")
    given = parser.parse_args(words)
    with stop_at_signals(*_STOPPING) as stopping:
        return _receive(given, stopping)


def _receive(given: argparse.Namespace, stopping: threading.Event) -> int:
    """Run the receiver until it is stopped or has all, and return the exit status."""
    try:
        described = given.deployment
        deployment = read_versions(described)[-1].deployment if described.is_dir() else load(described)
        what = resolve_sources(deployment, watch=given.watch, mqtt=given.mqtt, by_arrival=given.by_arrival)
        receiver = _opened(
            lambda: Receiver(
                given.archive,
                what,
                notify=_print_message,
                environment=os.environ,
                stopping=stopping,
                is_orphan=lambda: given.parent is not None and os.getppid() != given.parent,
            )
        )
    except HyperGridError as error:
        _print_message(str(error))
        return USED_WRONGLY
    except OSError as error:
        _print_message(f"the spool of {given.archive} cannot be opened: {error}")
        return 1
    try:
        receiver.run(until_idle=given.until_idle)
        receiver.close()
    except NotWritten as error:
        _print_message(str(error))
        return 1
    except (InvalidDeployment, NotFound) as error:
        # Of a replay, which reads all files first.
        _print_message(str(error))
        return USED_WRONGLY
    return 0


if __name__ == "__main__":
    status = main()
    # All is closed: a second signal must not change how it ends.
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(status)
