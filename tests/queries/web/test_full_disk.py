"""A disk without a free byte: data are served, writes say why, and all goes on once there is room."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.archive.disk.row_checksums import find_damage
from hypergrid.cli.main import main
from hypergrid.core.settings import Settings
from queries.web.auth.access import Audit
from queries.web.auth.keys import KeyStore
from queries.web.middleware.request_limits import stderr_handler
from queries.web.routes import health
from queries.web.routes.health import LEAST_FREE_BYTES
from queries.web.serving import application
from tests.queries.conftest import MAP, SERIES
from tests.serving import SharedServer

DISK_BYTES = LEAST_FREE_BYTES + 24 * 2**20
DATA = ("variables", "stations", "latest", "series?variable=air_temperature", "snapshots", "queries", "standing")
FINE: dict[str, Any] = {
    **MAP, "steps": [*MAP["steps"][:2], {
        "op": "interpolate", "method": "inverse_distance",
        "grid": {"lon": "7:10:37", "lat": "45:52:01", "step": "0.1arcsec", "shape": [100, 100]},
    }],
}  # fmt: skip
"""A query whose answer as CSV is too large to be held in memory while it is sent."""
STANDING: dict[str, Any] = {
    "query": SERIES | {"steps": MAP["steps"][:1] * 90 + SERIES["steps"]}, "to": ["events"],
}  # fmt: skip
"""A standing query whose definition fills more than a page of SQLite has free."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small file system of its own, with temporary files on it, too."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a small file system: it takes root and the right to mount")
    (place / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "tmp"))
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path) -> Path:
    """Write a file until nothing more fits; return it."""
    path = disk / "ballast"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    assert shutil.disk_usage(disk).free == 0
    return path


def ingested(archive: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Return the exit status of `hypergrid ingest` of a file."""
    words = ["hypergrid", "ingest", str(file), "--archive", str(archive), "--engine", "inprocess"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_a_disk_without_a_free_byte(
    archive: hg.OpenArchive, disk: Path, shared: SharedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], wait_until: Callable[..., None],
) -> None:  # fmt: skip
    monkeypatch.setattr(health, "KEPT_S", 0.0)
    path, more = disk / "archive", tmp_path / "more.csv"
    shutil.copytree(archive.path, path, ignore=shutil.ignore_patterns("server", "standing"))
    rows = "".join(f"9,2007-10-01T{minute // 60:02}:{minute % 60:02}Z,{minute / 7}\n" for minute in range(600))
    more.write_text(f"station,time,air_temperature\n{rows}")
    with closing(KeyStore(path / "server" / "keys.sqlite")) as keys:
        key = keys.create("admin", "admin", now_ns=time.time_ns())[1]
    with ExitStack() as held:
        app = held.enter_context(application(path, Settings()))
        base = f"{held.enter_context(shared.serving(app))}/api/v1/"
        client = held.enter_context(httpx.Client(base_url=base, headers={"X-API-Key": key}, timeout=60))

        def state() -> tuple[int, str]:
            return client.get("../../health/ready").status_code, client.get("../../health").json()["status"]

        def large(address: str) -> httpx.Response:
            return client.get(f"queries/{address}/result?f=csv")

        job = client.post("queries?wait=30s", json=FINE).headers["location"].rpartition("/")[2]
        assert state() == (200, "ok")
        ballast = fill(disk)
        caplog.clear()
        # Reads go on.
        assert [client.get(one).status_code for one in DATA] == [200] * len(DATA)
        assert state() == (200, "degraded")
        assert client.post("queries?wait=30s", json=SERIES).status_code == 200
        # Writes say why.
        spooled, kept = large(job), client.post("standing", json=STANDING | {"name": "frost"})
        for answer in (spooled, kept):
            assert (answer.status_code, "disk is full" in answer.text) == (503, True), answer.text
            assert "retry-after" in answer.headers
            assert str(tmp_path) not in answer.text
        # It is noted when the answer is on its way.
        wait_until(lambda: "a change could not be noted" in caplog.text)
        lines = [stderr_handler().format(record) for record in caplog.records]
        assert not any("Traceback" in line for line in lines)
        for answer in (spooled, kept):
            assert sum(answer.headers["x-request-id"] in line for line in lines) == 1
        assert sum("a change could not be noted" in line for line in lines) == 1
        capsys.readouterr()
        assert ingested(path, more, monkeypatch) == 1
        said = capsys.readouterr().err
        assert ("make room" in said, "Traceback" in said, said.count("hypergrid:")) == (True, False, 1), said
        assert list(Archive.open(path).check()) == []
        # After room is made, all goes on.
        ballast.unlink()
        assert state() == (200, "ok")
        answer = large(job)
        assert (answer.status_code, answer.text.count("\n")) == (200, 4 * 100 * 100 + 1)
        assert client.post("standing", json=STANDING | {"name": "frost"}).status_code == 201
        assert ingested(path, more, monkeypatch) == 0
        assert "9" in [one["id"] for one in client.get("stations").json()["features"]]
        assert client.post("queries?wait=30s", json=SERIES).status_code == 200
        audit = path / "server" / "audit.jsonl"
        wait_until(lambda: "POST /api/v1/standing" in audit.read_text("utf-8"))
        assert list(find_damage(audit)) == []
    assert list(Archive.open(path).check()) == []


def test_a_line_of_the_audit_log_that_does_not_fit_leaves_nothing_of_itself(disk: Path) -> None:
    audit = Audit(disk / "audit.jsonl")
    audit.note(now_ns=1, label="alice", what="before")
    ballast, noted = fill(disk), 1
    # The last page of the file has room for some lines, and for a part of one.
    with suppress(OSError):
        while noted < 1000:
            audit.note(now_ns=1, label="alice", what="while it is full")
            noted += 1
    with pytest.raises(OSError, match="No space left on device"):
        audit.note(now_ns=1, label="alice", what="while it is full")
    ballast.unlink()
    audit.note(now_ns=1, label="alice", what="after")
    assert noted > 1
    assert len(audit.path.read_text("utf-8").splitlines()) == noted + 1
    assert list(find_damage(audit.path)) == []
