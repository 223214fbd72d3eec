"""A real broker on a free port of this machine, which can be stopped, killed and started again, and a publisher."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.processes import kill_at_exit

PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


def program(name: str) -> str:
    """Give the path of a program that comes with the broker, or skip."""
    found = shutil.which(name, path=PLACES)
    if found is None:
        pytest.skip(f"no {name} on the PATH: install the package mosquitto")
    return found


def wait_until(true: object, *, within_s: float = 60.0) -> None:
    """Wait until a function returns something true."""
    until = time.monotonic() + within_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


class RunningBroker:
    """A mosquitto that keeps its sessions and messages in a folder."""

    def __init__(self, folder: Path, options: Sequence[str] = ("allow_anonymous true",)) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        lines = (
            f"listener {self.port} 127.0.0.1",
            f"user {getpass.getuser()}",
            "persistence true",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            *options,
        )
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> "RunningBroker":
        """Start it, and wait until it can be reached."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("mosquitto"), "-c", str(self.folder / "mosquitto.conf")], stdout=log, stderr=log
            )
        wait_until(self._listens)
        return self

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def save(self) -> None:
        """Let it write its sessions and messages to the disk, as it does by itself every half hour and at its end."""
        assert self._process is not None
        before = time.time_ns()
        self._process.send_signal(signal.SIGUSR1)
        kept = self.folder / "mosquitto.db"
        wait_until(lambda: kept.exists() and kept.stat().st_mtime_ns >= before - 10**7)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it; by `SIGKILL` it loses what it did not save."""
        if self._process is not None:
            with kill_at_exit(self._process):
                self._process.send_signal(number)
                self._process.wait(60)
            self._process = None


def publish(
    broker: RunningBroker,
    messages: Iterable[tuple[str, bytes]],
    *,
    retain: bool = False,
    certificates: Path | None = None,
) -> None:
    """Publish messages at QoS 1 (by TLS with these certificates), and wait until the broker has acknowledged them."""
    client = Client(CallbackAPIVersion.VERSION2)
    if certificates is not None:
        client.tls_set(*(str(certificates / name) for name in ("ca.pem", "client.pem", "client.key")))
    client.max_inflight_messages_set(500)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    left = iter(messages)
    # The client has room for some 65,000 that are not acknowledged.
    while sent := [client.publish(*one, qos=1, retain=retain) for one in islice(left, 10_000)]:
        for one in sent:
            one.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()
