"""Messages of a real broker: each is in the spool once, whoever goes away in between."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest.deployment.topics import PASSWORD_KEY, USER_KEY, Broker, Topic
from ingest.sources import spool as spool_module
from ingest.sources.mqtt import MESSAGE_MOST_BYTES, MqttSession, MqttSource
from ingest.sources.spool import REFUSED, Spool, durable, frames
from tests.ingest.brokers import RunningBroker, program, publish, wait_until

pytestmark = pytest.mark.broker
FEEDS = (("net", Topic("net/{station}/up")),)
Feeds = Sequence[tuple[str, Topic]]


class Told(list[str]):
    """What people were told."""

    def has(self, *parts: str) -> Callable[[], bool]:
        return lambda: any(all(part in text for part in parts) for text in self)


@contextmanager
def receiving(
    spool: Spool,
    broker: RunningBroker | Broker,
    told: Told,
    *,
    feeds: Feeds = FEEDS,
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    welcomed: bool = True,
) -> Iterator[MqttSource]:
    at = Broker("127.0.0.1", broker.port) if isinstance(broker, RunningBroker) else broker
    rows = [row for batch in frames(spool.folder, 0, spool.durable) for row in batch.to_pylist()]
    source = MqttSource(
        at,
        feeds,
        spool,
        MqttSession("archive-1", [(-row["place"], row["origin"], row["payload"]) for row in rows], before),
        notify=told.append,
        environment=environment or {},
    )
    source.start()
    try:
        if welcomed:
            wait_until(lambda: source.statistics().connected)
        yield source
    finally:
        source.stop()


def kept(folder: Path) -> list[tuple[int, str, str, bytes]]:
    return [
        (row["kind"], row["feed"], row["origin"], row["payload"])
        for batch in frames(folder, 0, durable(folder))
        for row in batch.to_pylist()
    ]


def numbered(start: int, stop: int) -> list[tuple[str, bytes]]:
    return [(f"net/{n % 5}/up", b'{"n": %d}' % n) for n in range(start, stop)]


def as_kept(messages: list[tuple[str, bytes]]) -> list[tuple[int, str, str, bytes]]:
    return [(0, "net", topic, payload) for topic, payload in messages]


def test_messages_come_in_order_while_we_are_there_and_after_we_were_away(
    tmp_path: Path, broker: RunningBroker
) -> None:
    told = Told()
    with Spool.open(tmp_path / "spool") as spool:
        for start in range(0, 2000, 500):
            with receiving(spool, broker, told):
                publish(broker, numbered(start, start + 250))
                wait_until(lambda start=start: spool.durable == start + 250)  # type: ignore[misc]
            publish(broker, numbered(start + 250, start + 500))
            broker.stop()
            broker.start()
            with receiving(spool, broker, told):
                wait_until(lambda start=start: spool.durable == start + 500)  # type: ignore[misc]
    assert kept(tmp_path / "spool") == as_kept(numbered(0, 2000))


def test_a_broker_that_goes_away_is_waited_for_and_both_are_told_once(tmp_path: Path, broker: RunningBroker) -> None:
    told = Told()
    with Spool.open(tmp_path / "spool") as spool, receiving(spool, broker, told) as source:
        publish(broker, numbered(0, 100))
        wait_until(lambda: spool.durable == 100)
        broker.save()
        broker.stop(signal.SIGKILL)
        wait_until(told.has(broker.url, "cannot be reached: Connection refused; we try again until it works"))
        time.sleep(1.5)
        broker.start()
        wait_until(lambda: source.statistics().connected)
        publish(broker, numbered(100, 200))
        wait_until(lambda: spool.durable >= 200)
    assert kept(tmp_path / "spool") == as_kept(numbered(0, 200))
    assert sum("is there; we listen to net/+/up" in text for text in told) == 2
    assert sum("Connection refused" in text for text in told) == 1


def test_what_was_not_acknowledged_and_comes_again_is_not_kept_twice(
    tmp_path: Path, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    with Spool.open(tmp_path / "spool") as spool:
        with monkeypatch.context() as patch:
            patch.setattr("paho.mqtt.client.Client.ack", lambda *_: None)
            with receiving(spool, broker, told):
                # Two messages that are alike, with a number of their own each.
                publish(broker, [*numbered(0, 5), *numbered(4, 10)])
                wait_until(lambda: spool.durable == 11)
        with receiving(spool, broker, told) as source:
            wait_until(lambda: source.statistics().duplicates == 11)
            publish(broker, numbered(10, 20))
            wait_until(lambda: spool.durable == 21)
            assert source.statistics().messages == 10
        with receiving(spool, broker, told) as source:
            publish(broker, numbered(0, 1))
            wait_until(lambda: spool.durable == 22)
            assert source.statistics().duplicates == 0
    expected = as_kept([*numbered(0, 5), *numbered(4, 20), *numbered(0, 1)])
    assert kept(tmp_path / "spool") == expected


def test_nothing_is_acknowledged_while_the_disk_is_full(
    tmp_path: Path, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, told, full = os.pwrite, Told(), threading.Event()

    def narrow(file: int, data: bytes, offset: int) -> int:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data, offset)

    monkeypatch.setattr(spool_module.os, "pwrite", narrow)
    with Spool.open(tmp_path / "spool") as spool:
        with receiving(spool, broker, told):
            publish(broker, numbered(0, 10))
            wait_until(lambda: spool.durable == 10)
            full.set()
            publish(broker, numbered(10, 20))
            wait_until(told.has("No space left on device"))
        assert spool.durable == 10
        full.clear()
        spool.flush()
    with Spool.open(tmp_path / "spool") as spool, receiving(spool, broker, told) as source:
        wait_until(lambda: source.statistics().messages + source.statistics().duplicates >= 10)
        publish(broker, numbered(20, 21))
        wait_until(lambda: spool.durable == 21)
    assert kept(tmp_path / "spool") == as_kept(numbered(0, 21))
    assert sum("No space left" in text for text in told) == 1


def test_what_is_too_long_or_of_no_feed_is_refused_with_its_beginning(tmp_path: Path, broker: RunningBroker) -> None:
    told = Told()
    long = b"y" * (MESSAGE_MOST_BYTES + 1)
    with Spool.open(tmp_path / "spool") as spool:
        with receiving(spool, broker, told, feeds=(*FEEDS, ("old", Topic("old/#")))):
            publish(broker, [("net/1/up", long), ("net/1/up", long[1:]), ("net/2/up", b"\xff\0{")])
            wait_until(lambda: spool.durable == 3)
        publish(broker, [("old/1", b"late")])
        with receiving(spool, broker, told, before=("old/#",)) as source:
            wait_until(lambda: spool.durable == 4)
            publish(broker, [("old/1", b"unwanted"), *numbered(0, 1)])
            wait_until(lambda: spool.durable == 5)
            assert source.filters == ("net/+/up",)
    one, whole, odd, late, last = kept(tmp_path / "spool")
    reason, beginning = one[3].split(b"\n")
    assert (one[0], one[1], one[2]) == (REFUSED, "net", "net/1/up")
    assert reason == b"too long: 1048577 bytes in one message, of at most 1048576"
    assert beginning == b"y" * 200
    assert whole == (0, "net", "net/1/up", long[1:])
    assert odd == (0, "net", "net/2/up", b"\xff\0{")
    assert late == (REFUSED, "", "old/1", b"no feed of the deployment has this topic\nlate")
    assert last == as_kept(numbered(0, 1))[0]


def test_retained_messages_are_passed_over(tmp_path: Path, broker: RunningBroker) -> None:
    told = Told()
    publish(broker, [("net/1/up", b"old")], retain=True)
    with Spool.open(tmp_path / "spool") as spool, receiving(spool, broker, told) as source:
        wait_until(lambda: source.statistics().retained == 1)
        # To who listens already, a message is new whether it is to be retained or not.
        publish(broker, [("net/1/up", b"new")], retain=True)
        wait_until(lambda: spool.durable == 1)
    assert kept(tmp_path / "spool") == as_kept([("net/1/up", b"new")])


def test_a_wrong_password_is_told_without_it(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    subprocess.run([program("mosquitto_passwd"), "-b", "-c", passwords, "me", "right"], check=True)
    running = RunningBroker(tmp_path / "broker", ["allow_anonymous false", f"password_file {passwords}"]).start()
    try:
        told = Told()
        (tmp_path / "secret").write_text("right\nthe rest is no part of it")
        with Spool.open(tmp_path / "spool") as spool:
            wrong = {USER_KEY: "me", PASSWORD_KEY: "wrong-secret"}
            with receiving(spool, running, told, environment=wrong, welcomed=False):
                wait_until(
                    told.has("refuses us: Not authorized (user 'me'); set `user` and `password_file` under [mqtt]")
                )
            with receiving(spool, running, told, welcomed=False):
                wait_until(told.has("Not authorized (without a user)"))
            at = Broker("127.0.0.1", running.port, user="me", password_file=tmp_path / "secret")
            with receiving(spool, at, told) as source:
                assert source.statistics().connected
            with receiving(spool, running, told, environment={USER_KEY: "me", PASSWORD_KEY: "right"}) as source:
                assert source.statistics().connected
        assert not told.has("secret;")()
        assert not any("right" in text or "wrong-secret" in text for text in told)
    finally:
        running.stop()


def certificates(folder: Path) -> None:
    """Make an authority, and certificates of a broker and of a client that it signed."""
    tool = shutil.which("openssl")
    if tool is None:
        pytest.skip("no openssl on the PATH to make certificates: install the package openssl")

    def run(*words: str) -> None:
        subprocess.run([tool, *words], check=True, cwd=folder, capture_output=True)

    key = ("-newkey", "rsa:2048", "-nodes")
    run("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name, subject in (("broker", "127.0.0.1"), ("client", "us")):
        run("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={subject}")
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        run("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)


# The client library leaves the socket of a failed handshake to the garbage collector, which warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    certificates(tmp_path)
    files = [f"cafile {tmp_path}/ca.pem", f"certfile {tmp_path}/broker.pem", f"keyfile {tmp_path}/broker.key"]
    options = [*files, "require_certificate true", "allow_anonymous true"]
    running = RunningBroker(tmp_path / "broker", options).start()
    try:
        told = Told()
        ours = {"certificate": tmp_path / "client.pem", "key": tmp_path / "client.key"}
        with Spool.open(tmp_path / "spool") as spool:
            stranger = Broker("127.0.0.1", running.port, tls=True, **ours)
            with receiving(spool, stranger, told, welcomed=False):
                wait_until(told.has("no trust between us and the broker mqtts://127.0.0.1", "see ca_file"))
            at = Broker("127.0.0.1", running.port, tls=True, ca_file=tmp_path / "ca.pem", **ours)
            with receiving(spool, at, told):
                publish(running, numbered(0, 300), certificates=tmp_path)
                wait_until(lambda: spool.durable == 300)
        assert kept(tmp_path / "spool") == as_kept(numbered(0, 300))
    finally:
        running.stop()


class OlderBroker(threading.Thread):
    """Knows MQTT 3.1.1 alone: it welcomes who speaks it, and says to others that it does not know theirs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.versions: list[int] = []
        self.clean: list[bool] = []

    def run(self) -> None:
        while True:
            connection, _ = self._server.accept()
            words = connection.recv(1000)
            self.versions.append(words[8])
            self.clean.append(bool(words[9] & 2))
            connection.sendall(bytes([0x20, 2, 0, 1 if words[8] > 4 else 0]))
            if words[8] > 4:
                connection.close()


def test_an_older_broker_is_spoken_to_in_its_own_words(tmp_path: Path) -> None:
    older = OlderBroker()
    older.start()
    with Spool.open(tmp_path) as spool, receiving(spool, Broker("127.0.0.1", older.port), Told()):
        assert older.versions == [5, 4]
        assert older.clean == [False, False]
