"""What an operator sees: health, metrics, a log of requests, a check before the start, and a server that is killed."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from typer.testing import CliRunner

import hypergrid as hg
from hypergrid.cli.main import app as command_line
from hypergrid.core.errors import NotAnArchive
from hypergrid.core.settings import Settings
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from queries.web.auth.access import Access
from queries.web.commands import rules_of
from queries.web.middleware.request_limits import RequestLog
from queries.web.routes import health

Document = dict[str, Any]
ROOT = Path(__file__).parents[3]
NOW_NS = 1_191_300_000 * 10**9


class Gate(Protocol):
    """What the fixture of this name does."""

    def open(self) -> None: ...


@pytest.fixture
def client(archive: hg.OpenArchive, make_runner: Callable[..., Runner], tmp_path: Path) -> TestClient:
    standing = StandingQueries(archive, clock=lambda: NOW_NS, folder=tmp_path / "standing")
    app = create_app(
        make_runner(archive), Catalogue(archive), services=Services(standing=standing),
        access=Access(None, lambda: NOW_NS),
        monitoring=health.Monitoring(
            folders={"archive": archive.path},
            listeners=[RequestLog(str(tmp_path / "log.jsonl"), lambda: NOW_NS).write_entry],
        ),
    )  # fmt: skip
    return TestClient(app, base_url="http://127.0.0.1")


def figures(client: TestClient) -> dict[tuple[str, ...], float]:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_metrics_tell_of_archive_disk_queries_and_requests(
    client: TestClient, archive: hg.OpenArchive, map_query: Document, wait_until: Callable[..., None]
) -> None:
    job = client.post("/api/v1/queries", json=map_query).json()["id"]
    wait_until(lambda: client.get(f"/api/v1/queries/{job}").json()["state"] == "done")
    client.get("/api/v1/nonsense-that-a-client-made-up")
    told = figures(client)
    newest_ns = archive.store.extent("air_temperature").stop_ns - 120 * 10**9  # type: ignore[union-attr]
    assert told["hypergrid_feed_age_seconds", "feed"] == (NOW_NS - newest_ns) / 1e9
    assert told["hypergrid_commit_age_seconds",] == (NOW_NS - archive.snapshots[0].time_ns) / 1e9
    assert told["hypergrid_rejects",] == 0
    assert told["hypergrid_snapshots",] == len(archive.snapshots)
    assert told["hypergrid_disk_free_bytes", "archive"] > 0
    assert told["hypergrid_queries_ended_total", "done"] == 1
    assert told["hypergrid_queries_queued",] == 0
    assert told["hypergrid_standing_queries",] == 0
    assert told["hypergrid_requests_total", "POST", "/api/v1/queries", "202"] == 1
    assert told["hypergrid_requests_total", "GET", "none", "404"] == 1
    assert told["hypergrid_request_seconds_count", "/api/v1/queries"] == 1
    assert told["process_resident_memory_bytes",] > 0


def test_a_client_cannot_make_metrics_grow(client: TestClient) -> None:
    client.get("/x")
    before = len(figures(client))
    for number in range(50):
        client.get(f"/x{number}/y")
        client.request(f"FOO{number}", "/x")
        client.get(f"/api/v1/queries/{number}")
    assert len(figures(client)) <= before + 40


def test_health_says_what_is_wrong_and_to_whom(
    client: TestClient, archive: hg.OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/health/live").json() == {"status": "ok"}
    assert client.get("/health/ready").json() == {"status": "ready"}
    assert client.get("/health").json()["troubles"] == {}
    monkeypatch.setattr(health, "KEPT_S", 0.0)
    monkeypatch.setattr(health, "LEAST_FREE_BYTES", 1 << 60)
    # Data can be served from a full disk.
    assert client.get("/health/ready").json() == {"status": "ready"}
    assert client.get("/health").json()["status"] == "degraded"
    assert set(client.get("/health").json()["troubles"]) == {"disk"}

    def fail(_archive: object) -> None:
        message = f"{archive.path} is gone"
        raise NotAnArchive(message)

    monkeypatch.setattr(hg.OpenArchive, "latest", fail)
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "not ready: archive;" in answer.json()["detail"]
    assert str(archive.path) not in answer.text
    found = client.get("/health").json()
    assert (found["status"], set(found["troubles"])) == ("failing", {"archive", "disk"})
    assert found["troubles"]["archive"] == "it cannot be read: the archive is gone"
    assert client.get("/health/live").status_code == 200


def test_a_line_for_each_request(client: TestClient, tmp_path: Path) -> None:
    client.get("/api/v1/variables?secret=1", headers={"X-Request-ID": "a1"})
    client.get("/api/v1/%0a%22x", headers={"X-Request-ID": "a2"})
    first, second = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("ascii").splitlines()]
    assert (first["request_id"], first["path"], first["status"]) == ("a1", "/api/v1/variables", 400)
    assert (first["caller"], first["time"], first["client"]) == ("local", "2007-10-02T04:40Z", "testclient")
    assert first["bytes"] > 0
    assert first["seconds"] > 0
    assert "secret" not in json.dumps(first)
    assert (second["path"], second["status"], second["route"]) == ('/api/v1/\n"x', 404, "")


def test_an_error_is_found_in_the_log_under_its_request(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_catalogue: object) -> None:
        message = "secret"
        raise ZeroDivisionError(message)

    monkeypatch.setattr(Catalogue, "variables", fail)
    answer = client.get("/api/v1/variables", headers={"X-Request-ID": "find-me"})
    assert answer.status_code == 500
    assert "find-me" in answer.json()["detail"]
    assert "secret" not in answer.text
    assert "find-me" in caplog.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def checked(archive: Path, tmp_path: Path, *words: str, settings: str = "") -> tuple[int, dict[str, tuple[str, str]]]:
    (tmp_path / "s.toml").write_text(f'state = "{tmp_path}/state"\n{settings}')
    command = ["serve", "--check", "--json", "--archive", str(archive), "--settings", str(tmp_path / "s.toml"), *words]
    done = CliRunner().invoke(command_line, command)
    rows = json.loads(done.stdout)
    return done.exit_code, {row["what"]: (row["state"], row["found"]) for row in rows}


def test_a_check_before_the_start(archive: hg.OpenArchive, tmp_path: Path) -> None:
    status, found = checked(archive.path, tmp_path, "--port", "0")
    assert status == 0
    assert {state for state, _ in found.values()} == {"fine"}
    assert found["archive"][1].startswith("small: 6 stations, 1 variables")
    assert "access control is off" in found["keys"][1]
    assert not (tmp_path / "state").exists()
    status, found = checked(archive.path, tmp_path, "--port", "0", "--host", "0.0.0.0")
    assert status == 1
    assert [what for what, (state, _) in found.items() if state == "wrong"] == ["address"]
    status, found = checked(tmp_path / "none", tmp_path, "--port", "0", settings='root_path = "/a/../b"\n')
    assert status == 1
    assert "does not exist" in found["archive"][1]
    assert "root_path" in found["address"][1]


PROGRAM = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    import hypergrid as hg
    from hypergrid.core.settings import Settings
    from queries.web.serving import Pages, serve_archive
    from starlette.responses import PlainTextResponse

    refine = hg.Query.refine

    def slowly(query, **options):
        for refinement in refine(query, **options):
            yield refinement
            time.sleep(0.02)

    hg.Query.refine = slowly
    settings = Settings(port=0, state=sys.argv[2])
    tell = lambda address: print(address, flush=True)
    serve_archive(Path(sys.argv[1]), settings, pages=Pages(PlainTextResponse("")), on_ready=tell)
    """
)


def started(archive: Path, state: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(archive), str(state)], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(ROOT)))},
    )  # fmt: skip
    assert process.stdout is not None
    return process, process.stdout.readline().strip() + "api/v1"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_ends_while_ten_queries_run_leaves_their_states_known(
    archive: hg.OpenArchive, map_query: Document, tmp_path: Path, how: int, wait_until: Callable[..., None]
) -> None:
    process, here = started(archive.path, tmp_path / "state")
    try:
        jobs = []
        for hour in range(10):
            asked = {**map_query, "clip": {"time": ["2007-10-01T00:00Z", f"2007-10-01T{hour + 2:02}:00Z"]}}
            if hour > 2:
                # These take so long that the server ends before any of them is done.
                steps = [dict(step) for step in map_query["steps"]]
                steps[2]["grid"] = {**steps[2]["grid"], "shape": [2000, 1000]}
                asked["steps"] = steps
            jobs.append(httpx.post(f"{here}/queries", json=asked, timeout=60).json()["id"])
        # Several run at a time, and the second may end before the first.
        for job in jobs[:2]:
            wait_until(
                lambda job=job: httpx.get(f"{here}/queries/{job}", timeout=60).json()["state"] == "done", seconds=60
            )
    finally:
        process.send_signal(how)
        process.wait(30)
    process, here = started(archive.path, tmp_path / "state")
    try:
        found = {job["id"]: job for job in httpx.get(f"{here}/queries", timeout=60).json()}
        states = [found[job]["state"] for job in jobs]
        assert states[:2] == ["done", "done"]
        ended = "failed" if how == signal.SIGKILL else "cancelled"
        assert set(states[3:]) == {ended}
        last = httpx.get(f"{here}/queries/{jobs[-1]}", timeout=60).json()
        assert last["error"]["detail"] == (
            "the server ended before it was done; post it again" if how == signal.SIGKILL else "it was stopped"
        )
        assert last["ended"] is not None
        assert httpx.get(f"{here}/queries/{jobs[0]}/result", timeout=60).status_code == 410
        events = httpx.get(f"{here}/queries/{jobs[-1]}/events", timeout=60).text
        assert f"event: {'error' if ended == 'failed' else 'cancelled'}" in events
        assert httpx.delete(f"{here}/queries/{jobs[0]}").json()["state"] == "done"
        again = httpx.post(f"{here}/queries", json=last["query"], timeout=60)
        assert again.status_code == 202
    finally:
        process.terminate()
        process.wait(30)
    assert list(hg.open(archive.path).store.check()) == []


def test_the_file_of_settings_says_everything(tmp_path: Path) -> None:
    rules = rules_of(Settings(host="10.0.0.5", names=("data.example.org",), cells=5, anonymous_read=True), "10.0.0.5")
    assert {"10.0.0.5", "data.example.org", "localhost"} <= set(rules.names)
    assert rules.keyed.queries.cells == 5
    assert rules.anonymous_read
