"""Serving: loopback only, a port in use, and Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import httpx
import pytest

import hypergrid as hg
from hypergrid.core.errors import CannotListen
from queries.web.server import listen


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::"])
def test_another_host_than_loopback_is_refused(host: str) -> None:
    with pytest.raises(CannotListen, match="access keys"):
        listen(host, 0)


def test_a_name_is_refused() -> None:
    with pytest.raises(CannotListen, match="localhost"):
        listen("example.org", 0)


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    """Connections inherit the protocol, by which asyncio knows that they are to send at once."""
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_a_port_in_use_is_told() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"port {port}.*--port"):
            listen("127.0.0.1", port)


def test_a_port_that_does_not_exist_is_told() -> None:
    with pytest.raises(CannotListen, match="70000"):
        listen("127.0.0.1", 70000)


PROGRAM = textwrap.dedent(
    """
    import sys, time
    import hypergrid as hg
    from queries.snapshots.catalogue import Catalogue
    from queries.jobs.runner import Runner
    from queries.web.app import create_app
    from queries.web.server import serve

    refine = hg.Query.refine

    def slowly(query, **options):
        for refinement in refine(query, **options):
            yield refinement
            time.sleep(0.3)

    hg.Query.refine = slowly
    archive = hg.open(sys.argv[1])
    runner = Runner(archive)
    serve(create_app(runner, Catalogue(archive)), port=0, on_ready=lambda address: print(address, flush=True))
    print([job.state for job in runner.jobs()], flush=True)
    """
)


@pytest.mark.usefixtures("default_hangup")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_what_runs_and_ends_the_server(archive: hg.OpenArchive, map_query: dict, stop: int) -> None:
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(archive.path)],
        cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(root)))},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        job = httpx.post(f"{address}api/v1/queries", json=map_query, timeout=60).json()
        with httpx.stream("GET", f"{address}api/v1/queries/{job['id']}/events", timeout=60) as response:
            lines = response.iter_lines()
            assert next(lines).startswith(("id", "event"))
            process.send_signal(stop)
            assert "event: cancelled" in list(lines)
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert output.strip() == "['cancelled']"
    assert errors == ""
    assert process.returncode == 0
    with socket.socket() as after, pytest.raises(ConnectionRefusedError):
        after.connect(("127.0.0.1", httpx.URL(address).port))
