"""A standalone cluster of Spark on this machine, whose daemons can be killed."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from ingest.spark.session import find_java, make_home

PATIENCE_S = 120.0


class Cluster:
    """A standalone master and two workers of one core, on this machine."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as found, socket.socket() as page:
            found.bind(("127.0.0.1", 0))
            page.bind(("127.0.0.1", 0))
            self.port, self.page = found.getsockname()[1], page.getsockname()[1]
        self.master = f"spark://127.0.0.1:{self.port}"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master.Master", "--host", "127.0.0.1", "--port", self.port, "--webui-port", self.page)
        self._await("master", "Started daemon", "I have been elected leader")
        self.workers = [self.worker(), self.worker()]
        self._await("master", *["Registering worker"] * 2)

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker of one core."""
        return self._start("worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
                           "--work-dir", self._folder / "work", self.master)  # fmt: skip

    def _start(self, name: str, *arguments: object) -> subprocess.Popen[bytes]:
        home = str(Path(pyspark.__file__).parent)
        environment = {**os.environ, "JAVA_HOME": str(make_home(find_java())), "SPARK_HOME": home}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        log = (self._folder / f"{name.partition('.')[0]}.log").open("ab")
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *map(str, arguments)]
        # A group of its own, so that the executors that a worker started end with it.
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=self._folder
        )
        log.close()
        self._processes.append(process)
        return process

    def _await(self, log: str, *words: str) -> None:
        until = time.monotonic() + PATIENCE_S
        wanted = {word: words.count(word) for word in words}
        while time.monotonic() < until:
            text = (self._folder / f"{log}.log").read_text(errors="replace")
            if all(text.count(word) >= count for word, count in wanted.items()):
                return
            time.sleep(0.2)
        pytest.fail(f"the {log} of the cluster did not start: {text[-2000:]}")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a daemon with all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """Kill everything."""
        for process in self._processes:
            self.kill(process)
