"""Programs from a message at a broker to an alert at a webhook, each in a process of its own that can be killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.processes import kill_at_exit

ROOT = Path(__file__).resolve().parents[2]
SERVER = """
import signal, sys, time
from pathlib import Path
from hypergrid.core.settings import Settings
from hypergrid.core.stop_signals import stop_at_signals
from hypergrid.query import open_archive
from queries.standing.service import StandingQueries
settings = Settings(webhook_hosts=("127.0.0.1",))
with stop_at_signals(signal.SIGTERM) as stopping, StandingQueries(
    open_archive(Path(sys.argv[1])), settings, clock=time.time_ns
) as standing:
    standing.start()
    print("ready", flush=True)
    stopping.wait()
"""


class Delivered(NamedTuple):
    """An alert as the webhook got it."""

    at_ns: int
    body: dict[str, Any]


class Webhook:
    """Receiver of alerts on this machine that can be out of reach for a while."""

    def __init__(self) -> None:
        self.delivered: list[Delivered] = []
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/alerts"

    def start(self) -> "Webhook":
        """Begin to answer, at the same port as before."""
        delivered = self.delivered

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                delivered.append(Delivered(time.time_ns(), body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        """Be out of reach: connections are refused."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def alerts(self) -> list[Delivered]:
        """Return the alerts in the order in which they came first, without those that came again."""
        first: dict[str, Delivered] = {}
        for one in self.delivered:
            first.setdefault(one.body["id"], one)
        return list(first.values())


class Program:
    """A process that is started, killed and started again."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self._words, self._log = list(words), log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Program":
        # What is on the path already counts which functions users reach.
        paths = os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(ROOT)))
        environment = {**os.environ, "PYTHONPATH": paths}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, *self._words], stdout=log, stderr=log, env=environment)
        return self

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            with kill_at_exit(self._process):
                self._process.send_signal(number)
                self._process.wait(60)
            self._process = None

    def restart(self) -> None:
        """Kill it with -9, and start it again."""
        self.end(signal.SIGKILL)
        self.start()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


def receiver(archive: Path, deployment: Path, url: str) -> Program:
    words = ["-m", "ingest.sources.receiver", str(archive), "--deployment", str(deployment), "--mqtt", url]
    return Program(words, archive.parent / "receiver.log")


def streamer(archive: Path, deployment: Path, url: str) -> Program:
    """Return the receiver with Spark, which follows the messages into the archive."""
    words = ["-m", "hypergrid", "stream", str(archive), "--deployment", str(deployment), "--mqtt", url]
    return Program(words, archive.parent / "receiver.log")


def watcher(archive: Path) -> Program:
    return Program(["-m", "hypergrid", "cql", "watch", str(archive)], archive.parent / "watch.log")


def server(archive: Path) -> Program:
    return Program(["-c", SERVER, str(archive)], archive.parent / "server.log")
