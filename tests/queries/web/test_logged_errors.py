"""Every answer of status 500, and of 503 because of damage, has one record in the log, and names no path."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

import hypergrid as hg
from hypergrid.core.errors import DamagedArchive, NotFound, StoreUnavailable
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.repository import CatalogueDamaged, CatalogueUnavailable
from queries.web.app import create_app
from queries.web.auth.keys import KeysDamaged
from queries.web.responses.problems import problem_of

ROOT = Path(__file__).parents[3]
ELSEWHERE = "/elsewhere/on this machine/file"
PLACE = "{place}/store/manifests/M"
MISSING = f"{PLACE} is missing; 'hypergrid check {{place}}' names it"

# What is raised; its status; what the answer says.
RAISED: list[tuple[Exception, int, str]] = [
    (DamagedArchive(MISSING), 500, "store/manifests/M is missing; 'hypergrid check the archive' names it"),
    (DamagedArchive(f"{ELSEWHERE} is missing"), 500, "something unexpected happened"),
    (CatalogueDamaged("{place}/standing/standing.sqlite is cut"), 500, "standing/standing.sqlite is cut"),
    (CatalogueUnavailable("{place}/standing.sqlite: the disk is full"), 503, "standing.sqlite: the disk is full"),
    (StoreUnavailable("s3://bucket/prefix does not answer"), 503, "s3://bucket/prefix does not answer"),
    (KeysDamaged("{place}/server/keys.sqlite is cut"), 503, "nobody is let in until they can be read"),
    (OSError(5, "Input/output error", PLACE), 500, "something unexpected happened"),
    (
        OSError(28, "No space left on device", PLACE),
        503,
        "the server's disk is full, and this needs room on it; make room there, or ask for less: what is small is "
        "answered",
    ),
    (ZeroDivisionError(f"{PLACE}\nsecret"), 500, "something unexpected happened"),
]


@pytest.fixture
def client(archive: hg.OpenArchive, make_runner: Callable[..., Runner]) -> TestClient:
    return TestClient(create_app(make_runner(archive), Catalogue(archive)), base_url="http://127.0.0.1")


def errors_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


def raising(error: Exception, place: Path) -> Callable[[object], None]:
    """Return a function that raises an error whose texts name a place."""
    told = tuple(one.format(place=place) if isinstance(one, str) else one for one in error.args)
    # OSError keeps the name of the file apart.
    told += (str(error.filename).format(place=place),) if isinstance(error, OSError) and error.filename else ()

    def fail(*_: object) -> None:
        raise type(error)(*told)

    return fail


@pytest.mark.parametrize(("error", "status", "told"), RAISED, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("address", ["/api/v1/variables", "/edr/collections"])
def test_an_error_of_the_server_has_one_record_and_tells_no_path(
    client: TestClient, archive: hg.OpenArchive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    error: Exception, status: int, told: str, address: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(hg.OpenArchive, "latest", raising(error, archive.path))
    answer = client.get(address, headers={"X-Request-ID": "find-me"})
    (record,) = errors_of(caplog)
    assert answer.status_code == status
    assert answer.json()["detail"] == f"{told}; the server's log has it under find-me"
    assert "find-me" in record.getMessage()
    assert "secret" not in answer.text
    assert not any(str(place) in answer.text for place in (archive.path, archive.path.parent, "/elsewhere"))
    if "{place}" in str(error):
        assert str(archive.path) in record.getMessage()


def test_a_snapshot_that_expired_is_told_without_a_path(
    client: TestClient, archive: hg.OpenArchive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expired = NotFound("snapshot S of {place} expired while it was read; read the newest")
    monkeypatch.setattr(hg.OpenArchive, "latest", raising(expired, archive.path))
    answer = client.get("/api/v1/variables")
    assert answer.json()["detail"] == "snapshot S of the archive expired while it was read; read the newest"
    assert (answer.status_code, errors_of(caplog)) == (404, [])


def test_an_error_within_other_answers_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    failed = ZeroDivisionError("unforeseen")
    details = {problem_of(failed, posted=True, is_answer=False)["detail"] for _ in range(3)}
    assert (len(details), len(errors_of(caplog))) == (1, 1)
    problem_of(failed, posted=True)
    assert [record.exc_info is None for record in errors_of(caplog)] == [False, True]


BREAKS_OFF = """
import sys
from pathlib import Path
from fastapi.responses import StreamingResponse
import hypergrid as hg
from queries.snapshots.catalogue import Catalogue
from queries.jobs.runner import Runner
from queries.web.routes import about
from queries.web.app import create_app
from queries.web.middleware.request_limits import log_to_stderr
from queries.web.server import serve

def pieces():
    yield b"[1,"
    raise ZeroDivisionError("halfway")

archive = hg.open(sys.argv[1])
about.JSONResponse = lambda *_, **__: StreamingResponse(pieces())
log_to_stderr()
serve(create_app(Runner(archive), Catalogue(archive)), port=0, on_ready=lambda address: print(address, flush=True))
"""


def test_an_answer_that_breaks_off_has_one_record_too(archive: hg.OpenArchive) -> None:
    paths = os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(ROOT)))
    process = subprocess.Popen(
        [sys.executable, "-c", BREAKS_OFF, str(archive.path)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{address}api/v1/stations", headers={"X-Request-ID": "find-me"}, timeout=60)
        process.terminate()
        _, written = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert written.count("ERROR") == written.count("find-me") == 1, written
