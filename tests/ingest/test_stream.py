"""The stream as a command and a process: what it is told, what it refuses, and messages of a real broker."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from hypergrid.archive import Archive, StoreError
from hypergrid.archive.arrays import stream_log
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.cli.main import app, main
from hypergrid.core.errors import (
    ArchiveConflict,
    CannotListen,
    InvalidDeployment,
    NotFound,
    StoreUnavailable,
)
from ingest import streaming_service as stream_module
from ingest.batch.archive_session import locked_archive
from ingest.deployment.deployment_file import deploy, load, read_versions, split_by_version, version_at
from ingest.job import ingest
from ingest.repair.verify_values import check_parts
from ingest.streaming.assembler import Assembler, StreamBatch, assemble_batch
from ingest.streaming.metrics import StreamMetrics, serve_metrics
from ingest.streaming.spool_decoder import ClockTicks, DecodedPiece, RowBatch, merge_pieces, parse_span
from ingest.streaming.stream_commit import Ledger, StreamStatus, commit
from ingest.streaming_service import (
    StreamOptions,
    StreamReport,
    _end_jvm,
    _exclusive_stream,
    _Leaving,
    _start_time,
    _StreamProgress,
    _StreamRun,
    stream,
)
from tests.ingest.brokers import RunningBroker, publish
from tests.ingest.streamed import SAMPLE, everything, messages, write_deployment, write_spool

_NO_CLOCK = ClockTicks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


def test_a_stream_needs_a_deployment(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="needs --deployment FILE"):
        stream(tmp_path / "archive", StreamOptions())
    assert not (tmp_path / "archive").exists()
    done = CliRunner().invoke(app, ["stream", str(tmp_path / "archive")])
    assert isinstance(done.exception, NotFound)


def test_one_stream_an_archive_and_of_its_network(tmp_path: Path) -> None:
    deployment, archive = write_deployment(tmp_path, arrivals=False), tmp_path / "archive"
    with locked_archive(archive, load(deployment), now_ns=1, on_wait=lambda: None):
        pass
    other = tmp_path / "other.toml"
    other.write_text(deployment.read_text().replace('name = "pass"', 'name = "other"', 1))
    with pytest.raises(ArchiveConflict, match="network 'pass'"):
        stream(archive, StreamOptions(other, until_idle=True))
    (archive / "stream").mkdir(exist_ok=True)
    with wait_for_lock(archive / "stream" / "lock"), pytest.raises(ArchiveConflict, match="another stream"):
        stream(archive, StreamOptions(deployment, until_idle=True))


def test_deployments_read_the_records_that_came_under_them(tmp_path: Path) -> None:
    path = write_deployment(tmp_path, arrivals=False)
    journal = tmp_path / "journal"
    assert deploy(journal, path, first=10)
    assert not deploy(journal, path, first=20), "the same again is no other"
    path.write_text(path.read_text() + "\n[stream]\nidle_s = 7\n")
    assert deploy(journal, path, first=101)
    found = read_versions(journal)
    assert [one.first for one in found] == [10, 101]
    # What came before the first is read by it.
    assert [(a, b, one.stream.idle_s) for a, b, one in split_by_version(found, 0, 300)] == [
        (0, 9, None),
        (9, 100, None),
        (100, 300, 7.0),
    ]
    assert version_at(found, 100).stream.idle_s is None
    assert version_at(found, 101).stream.idle_s == 7.0
    with pytest.raises(NotFound, match="no deployment yet"):
        version_at([], 1)
    path.write_text("[[feed]]\n")
    with pytest.raises(InvalidDeployment):
        deploy(journal, path, first=400)
    assert len(read_versions(journal)) == 2


def test_keys_of_the_stream_are_checked(tmp_path: Path) -> None:
    for text, told in (('join = "all"', "stream.join"), ("idle_s = 0", "stream.idle_s"), ("ilde_s = 3", "ilde_s")):
        path = write_deployment(tmp_path, arrivals=False, more=f"\n[stream]\n{text}\n")
        with pytest.raises(InvalidDeployment, match=told):
            load(path)


def test_the_status_is_a_line() -> None:
    status = StreamStatus(Ledger(came=9, held=4, stored=5, late=1), 1234.5, 1_190_246_400_000_000_000, 7, 3)
    assert status.describe() == (
        "1,234 readings/s, 4 held, 1 rows late, last slice closed 2007-09-20T00:00Z, 7 records behind"
    )


def test_figures_of_a_stream_for_prometheus(tmp_path: Path) -> None:
    metrics = StreamMetrics(tmp_path)
    with serve_metrics(metrics, 0) as port:
        before = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        metrics.update(StreamStatus(Ledger(came=9, held=4, stored=5, late=1), 1234.5, 1_190_246_400_000_000_000, 7, 3))
        after = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        with pytest.raises(CannotListen, match=f"port {port}: .*choose another with --metrics-port"):
            serve_metrics(metrics, port).__enter__()
    assert "hypergrid_disk_free_bytes" in before
    assert "hypergrid_stream" not in before
    for line in (
        "hypergrid_stream_came_total 9.0", 'hypergrid_stream_readings{what="held"} 4.0',
        'hypergrid_stream_readings{what="stored"} 5.0', "hypergrid_stream_late_rows_total 1.0",
        "hypergrid_stream_behind_records 7.0", "hypergrid_stream_batches_total 3.0",
        "hypergrid_stream_readings_per_second 1234.5",
    ):  # fmt: skip
        assert f"\n{line}\n" in after
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60)


def test_messages_of_a_broker_become_the_archive_of_a_batch_ingest(tmp_path: Path, broker: RunningBroker) -> None:
    sent = messages(("1", "6", "9"), until_h=8.0)
    told = [
        (one.station, json.dumps({**json.loads(one.payload), "arrival": one.arrival_ns / 10**9}).encode())
        for one in sent
    ]
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "all.jsonl").write_bytes(b"".join(payload + b"\n" for _, payload in told))
    (tmp_path / "files" / "arrivals.csv").write_bytes((SAMPLE / "arrivals.csv").read_bytes())
    write_deployment(tmp_path / "files", arrivals=True)
    ingest([tmp_path / "files"], tmp_path / "expected", now_ns=1, engine="inprocess")
    deployment, archive = write_deployment(tmp_path, arrivals=False), tmp_path / "archive"
    words = [sys.executable, "-m", "hypergrid", "stream", str(archive), "--deployment", str(deployment)]
    words += ["--mqtt", broker.url, "--trigger", "1s", "--json"]
    first = subprocess.Popen(
        [*words, "--metrics-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert first.stderr is not None
    metrics = first.stderr.readline().rpartition(" ")[2].strip()
    until = time.monotonic() + 600
    while not (archive / "stream" / "jvm").exists():
        assert time.monotonic() < until, "Spark did not start"
        time.sleep(0.2)
    publish(broker, ((f"pass/{station}/up", payload) for station, payload in told[: len(told) // 2]))
    figures = ""
    while "hypergrid_stream_batches_total 0.0" in figures or "hypergrid_stream_came_total" not in figures:
        assert time.monotonic() < until, "no batch was told of"
        time.sleep(0.5)
        figures = httpx.get(metrics, timeout=60).text
    ended = dict(re.findall(r'hypergrid_stream_readings\{what="(\w+)"\} (\S+)', figures))
    came = re.search(r"^hypergrid_stream_came_total (\S+)$", figures, re.MULTILINE)
    assert came is not None
    assert 0 < float(came[1]) == sum(map(float, ended.values()))
    # As service managers do: the receiver and all else that it started get the signal, too.
    os.killpg(first.pid, signal.SIGTERM)
    out, said = first.communicate(timeout=600)
    assert (first.returncode, "Traceback" in said) == (0, False), said
    report = json.loads(out)
    assert report["ledger"]["came"] <= 9 * len(sent)
    # While nobody receives, the broker keeps what comes.
    publish(broker, ((f"pass/{station}/up", payload) for station, payload in told[len(told) // 2 :]))
    done = subprocess.run([*words, "--until-idle"], stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    ledger = json.loads(done.stdout)["ledger"]
    assert (ledger["came"] - ledger["duplicates"], ledger["held"]) == (9 * len(sent), 0)
    assert everything(archive) == everything(tmp_path / "expected")
    assert list(Archive.open(archive).check()) == []
    # Checksums of the checkpoint are those that Spark writes beside its files.
    assert list(check_parts(archive, Archive.open(archive), lambda _name, _done: None)) == []
    offset = max((archive / "stream" / "checkpoint" / "offsets").glob("[0-9]*"))
    offset.write_bytes(offset.read_bytes().replace(b"1", b"2"))
    (damaged,) = check_parts(archive, Archive.open(archive), lambda _name, _done: None)
    assert damaged.where == f"stream/checkpoint/offsets/{offset.name}"
    # What both runs told of themselves, for those who watch.
    told = stream_log.read_records(archive)
    assert sum(one.get("ended", False) for one in told) == 2
    assert told[-1]["ended"]
    assert told[-1]["came"] == ledger["came"]
    (stopped,) = [one for one in told[:-1] if one.get("ended", False)]
    assert [join["streams"] for join in stopped["joins"].values()] == [3]
    assert sum(join["held"] for join in told[-1]["joins"].values()) == 0


@pytest.mark.usefixtures("default_hangup")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_stream_with_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    before = signal.getsignal(number)

    def until_stopped(*_: object, stopping: threading.Event, **__: object) -> StreamReport:
        signal.raise_signal(number)
        assert stopping.wait(60)
        return StreamReport("archive", 1, 2, Ledger(came=3, held=1, stored=2), None, 0.5, 0)

    monkeypatch.setattr(stream_module, "stream", until_stopped)
    done = CliRunner().invoke(app, ["stream", str(tmp_path), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["ledger"]["came"]) == (0, 3)
    assert signal.getsignal(number) is before


@pytest.mark.soak
def test_sighup_of_its_process_alone_ends_a_stream_and_what_it_started(tmp_path: Path) -> None:
    deployment, archive = write_deployment(tmp_path, arrivals=False), tmp_path / "archive"
    words = [sys.executable, "-m", "hypergrid", "stream", str(archive), "--deployment", str(deployment), "--json"]
    (tmp_path / "watched").mkdir()
    with subprocess.Popen(
        [*words, "--watch", str(tmp_path / "watched"), "--trigger", "1s"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            until = time.monotonic() + 300
            while not (archive / "stream" / "jvm").exists():
                assert process.poll() is None
                assert time.monotonic() < until, "Spark did not start"
                time.sleep(0.2)
            process.send_signal(signal.SIGHUP)
            out, said = process.communicate(timeout=300)
            assert (process.returncode, "Traceback" in said) == (0, False), said
            assert json.loads(out)["ledger"]["held"] == 0
            # Nothing of its group is left: neither the receiver nor Spark's Java.
            with pytest.raises(ProcessLookupError):
                os.killpg(process.pid, 0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_batch_that_comes_while_the_query_is_stopped_is_refused_and_no_failure(tmp_path: Path) -> None:
    progress = _StreamProgress(tmp_path, lambda: 1)
    with progress.busy:
        progress.leaving.set()
    with pytest.raises(match="comes again"):
        progress.commit_batch(StreamBatch("id", 0, []))
    assert progress.failure is None


class _LateBatch:
    """A follower one of whose batches asks for its commit while it is stopped, as `StreamingQuery.stop` waits for."""

    pid = None

    def connect(self) -> None: ...

    def start(self, folder: Path, take: Callable[..., None], **_: object) -> None:
        self._take = take

    def is_active(self) -> bool:
        return True

    def stop(self) -> None:
        asked = threading.Thread(target=self._ask, daemon=True)
        asked.start()
        asked.join(60.0)
        assert not asked.is_alive(), "it waits for who waits for it"

    def _ask(self) -> None:
        with suppress(_Leaving):
            self._take(StreamBatch("id", 0, []))


def test_a_stream_that_is_told_to_stop_does_not_wait_for_who_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "stream").mkdir()
    stopping = threading.Event()
    stopping.set()
    run = _StreamRun(
        tmp_path, StreamOptions(), _StreamProgress(tmp_path, lambda: 1), stopping, lambda _: None, lambda _: None
    )
    run._job = _LateBatch()  # type: ignore[assignment]
    assert run._follow_query(10.0)


class _Received:
    """A follower beside a receiver that ends while Spark starts, or once the query runs."""

    pid = None

    def __init__(self, run: _StreamRun, *, during_start: bool) -> None:
        self._run, self._during_start = run, during_start
        self.calls: list[str] = []
        self.waiting = [False, False, True]
        """Whether the query waits for its next trigger, each time that it is asked."""

    def connect(self) -> None:
        self.calls.append("connect")
        if self._during_start:
            self._end_receiver()

    def start(self, *_: object, **__: object) -> None:
        self.calls.append("start")
        self._end_receiver()

    def _end_receiver(self) -> None:
        self._run._receiver = subprocess.Popen([sys.executable, "-c", ""])
        self._run._receiver.wait()

    def is_active(self) -> bool:
        return True

    def is_waiting(self) -> bool:
        return self.waiting.pop(0)

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.mark.parametrize("during_start", [True, False])
def test_what_is_received_at_once_is_read_by_one_query(tmp_path: Path, *, during_start: bool) -> None:
    (tmp_path / "stream").mkdir()
    how = StreamOptions(watch=tmp_path, until_idle=True)
    progress = _StreamProgress(tmp_path, lambda: 1)
    run = _StreamRun(tmp_path, how, progress, threading.Event(), lambda _: None, lambda _: None)
    follower = _Received(run, during_start=during_start)
    run._job = follower  # type: ignore[assignment]
    assert run._follow_query(3600.0)
    if during_start:
        assert follower.calls == ["connect"]
    else:
        # A batch in progress is not thrown away, and the next trigger, in an hour, is not waited for.
        assert (follower.calls, follower.waiting) == (["connect", "start", "stop"], [])


@pytest.mark.parametrize("is_warm", [True, False])
def test_the_first_stream_of_an_installation_compiles_while_spark_starts(
    monkeypatch: pytest.MonkeyPatch, *, is_warm: bool
) -> None:
    told, program = list[str](), "import sys; print('ready', flush=True); sys.stdin.read()"
    children = list[subprocess.Popen[bytes]]()
    popen = subprocess.Popen

    def start(words: list[str], **_: object) -> "subprocess.Popen[bytes]":
        assert words[1:] == ["-m", "hypergrid.wo_join.warm"]
        children.append(popen([sys.executable, "-c", program], stdin=subprocess.PIPE))
        return children[-1]

    monkeypatch.setattr(stream_module, "is_warm", lambda: is_warm)
    monkeypatch.setattr("ingest.streaming_service.subprocess.Popen", start)
    with stream_module._compiling(told.append):
        assert [child.poll() for child in children] == ([] if is_warm else [None])
    # It does not outlive the stream.
    assert [child.poll() for child in children] == ([] if is_warm else [-signal.SIGTERM])
    assert len(told) == len(children)


def test_a_dead_process_that_nobody_asks_for_is_not_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = _start_time(child.pid)
        assert started is not None
        (tmp_path / "jvm").write_text(f"{child.pid} {started}")
        # It becomes a zombie, as it is asked for by `wait` only.
        ending = threading.Thread(target=_end_jvm, args=(tmp_path / "jvm",), daemon=True)
        ending.start()
        ending.join(60.0)
        assert not ending.is_alive()
        assert child.wait() == -signal.SIGKILL


def test_of_two_starts_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stream").mkdir()
    # As where both have looked whether the lock is free before either took it.
    monkeypatch.setattr("ingest.streaming_service.is_free", lambda _: True, raising=False)
    with (
        _exclusive_stream(tmp_path),
        pytest.raises(ArchiveConflict, match="another stream"),
        _exclusive_stream(tmp_path),
    ):
        pass


def test_a_disk_that_is_full_for_a_while_is_waited_for_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, told = write_deployment(tmp_path, arrivals=False), list[str]()
    with locked_archive(tmp_path / "archive", load(deployment), now_ns=1, on_wait=lambda: None):
        pass
    write_spool(tmp_path / "archive" / "spool", messages(("1",), until_h=1.0))
    pieces = parse_span(tmp_path / "archive" / "spool", 0, 9, load(deployment))
    batch = assemble_batch(Assembler(60.0), merge_pieces(pieces), [1])
    deploy(tmp_path / "archive" / "stream" / "deployments", deployment, first=1)
    # The S3-compatible store of an archive is waited for as the disk is.
    troubles: list[Exception] = [StoreUnavailable("gone"), StoreError("no space"), OSError(errno.ENOSPC, "no space")]

    def full(*given: object, **more: object) -> object:
        if troubles:
            raise troubles.pop()
        return commit(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("ingest.streaming_service.commit", full)
    monkeypatch.setattr("ingest.streaming_service.PAUSE_S", 0.01)
    progress = _StreamProgress(tmp_path / "archive", lambda: 1, on_warning=told.append)
    progress.commit_batch(StreamBatch("id", 0, [batch]))
    assert (progress.batches, progress.failure) == (1, None)
    assert progress.ledger.came == batch.counts.readings > 0
    assert [("cannot be written" in text, "can be written again" in text) for text in told] == [
        (True, False),
        (False, True),
    ]


def test_a_full_disk_keeps_no_stream_from_being_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = StoreError("no space left")

    def full(path: Path) -> Archive:
        raise trouble

    monkeypatch.setattr("ingest.streaming_service.Archive.open", full)
    monkeypatch.setattr("ingest.streaming_service.version_at", lambda *_: None)
    progress = _StreamProgress(tmp_path, lambda: 1)
    monkeypatch.setattr(progress, "on_warning", lambda _: progress.leaving.set())
    group = assemble_batch(Assembler(60.0), DecodedPiece("n", RowBatch.empty(), _NO_CLOCK), [1])
    with pytest.raises(_Leaving):
        progress.commit_batch(StreamBatch("id", 0, [group]))


def test_what_the_store_cannot_do_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trouble = StoreError("no space left")

    def full() -> None:
        raise trouble

    monkeypatch.setattr("hypergrid.cli.main.app", full)
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "no space left" in capsys.readouterr().err


def test_a_receiver_that_ends_again_and_again_is_told_once_and_started_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give_time: Callable[..., None]
) -> None:
    told, started, clock = list[str](), list[float](), [0.0]

    class Ended:
        def __init__(self, *_: object, **__: object) -> None:
            started.append(clock[0])

        def poll(self) -> int:
            return 1

    monkeypatch.setattr("ingest.streaming_service.subprocess.Popen", Ended)
    give_time(stream_module, monotonic=lambda: clock[0])
    deployment = write_deployment(tmp_path, arrivals=False)
    deploy(tmp_path / "stream" / "deployments", deployment, first=1)
    how = StreamOptions(watch=tmp_path)
    run = _StreamRun(
        tmp_path, how, _StreamProgress(tmp_path, lambda: 1), threading.Event(), lambda _: None, told.append
    )
    run._receive()
    while clock[0] < 200.0:
        assert not run._is_received()
        clock[0] += 0.5
    pauses = [round(after - before) for before, after in zip(started[:-1], started[1:], strict=True)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]
    assert len(told) == 1


def test_an_edit_that_only_the_receiver_cannot_use_is_told_and_the_one_before_stays(tmp_path: Path) -> None:
    deployment, told = write_deployment(tmp_path, arrivals=False), list[str]()
    with locked_archive(tmp_path / "archive", load(deployment), now_ns=1, on_wait=lambda: None):
        pass
    how = StreamOptions(deployment, mqtt="mqtt://host")
    run = _StreamRun(
        tmp_path / "archive", how, _StreamProgress(tmp_path, lambda: 1), threading.Event(), lambda _: None, told.append
    )
    assert run.deploy()
    before = deployment.read_text()
    for text in (
        before.replace("topic = ", "files = "),
        before + '\n[mqtt]\nurl = "mqtts://h"\nca_file = "none.pem"\n',
    ):
        deployment.write_text(text)
        assert not run._is_changed()
        with pytest.raises(InvalidDeployment):
            run.deploy()
    assert ["the one before it stays" in text for text in told] == [True, True]
    assert [one.text for one in read_versions(tmp_path / "archive" / "stream" / "deployments")] == [before]
