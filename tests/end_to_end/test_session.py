"""A user's session with processes of its own: a server that files are imported into, and a script that asks it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "station_data" / "sample"
PATIENCE_S = 300.0
SETTINGS = """\
requests_log = "{log}"
origins = ["https://maps.example.org"]
embed_origins = ["https://www.example.org"]
"""
SCRIPT = '''\
"""A map that grows, asked of a server."""
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore", DeprecationWarning)
import hypergrid as hg
from hypergrid.errors import NotFound
from viz.client import Client

assert "suggest" in dir(hg)
with Client(sys.argv[1]) as remote:
    assert "air_temperature" in remote._ipython_key_completions_()
    assert remote.boards == []
    means = remote["air_temperature"].aggregate("mean", time="1h")
    maps = means.interpolate("inverse_distance", grid=hg.grid(lon=7.17, lat=45.86, step="2arcsec", shape=(20, 30)))
    for refinement in maps.refine():
        assert refinement.seconds >= 0.0
        last = refinement
    assert last.complete and last.frames == last.dataset().sizes["time"]
    values, frame = last.dataset()["air_temperature"].to_numpy(), last.frame(0)
    np.testing.assert_allclose(frame.values.reshape(values[0].shape), values[0], rtol=1e-5)
    np.testing.assert_array_equal(maps.compute()["air_temperature"].to_numpy(), values)
    try:
        remote["no_such"]
    except NotFound:
        print("refined to", last.total, "cells")
try:
    Client("http://127.0.0.1:9", tries=2).stations()
except Exception as error:
    print(error)
'''


@dataclass(frozen=True)
class Session:
    """A running `hypergrid serve --import`."""

    process: subprocess.Popen[str]
    address: str
    log: Path


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    log = tmp_path / "requests.jsonl"
    (tmp_path / "settings.toml").write_text(SETTINGS.format(log=log))
    command = [sys.executable, "-m", "hypergrid", "serve", str(tmp_path / "archive"), "--import", "--port", "0"]
    with subprocess.Popen(
        [*command, "--settings", str(tmp_path / "settings.toml")], stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "http://" in line)
        yield Session(process, next(word for word in line.split() if word.startswith("http://")).rstrip("/"), log)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def run_import(web: httpx.Client) -> dict[str, object]:
    """Import a part of the sample as the page does; return how it ended."""
    name = web.post("/imports").raise_for_status().json()["id"]
    # The description names the table of arrivals, which has to be there before it.
    files = [*sorted((SAMPLE / "sensorscope").glob("*.txt"))[:5], SAMPLE / "arrivals.csv", SAMPLE / "deployment.toml"]
    for path in files:
        taken = web.put(f"/imports/{name}/files/{path.name}", content=path.read_bytes())
        assert taken.is_success, taken.text
    proposal = web.get(f"/imports/{name}/proposal").raise_for_status().json()
    web.put(f"/imports/{name}/deployment", json=proposal["document"]).raise_for_status()
    web.post(f"/imports/{name}/run").raise_for_status()
    ends = time.monotonic() + PATIENCE_S
    while (shown := web.get(f"/imports/{name}").json())["state"] == "running":
        assert time.monotonic() < ends
        time.sleep(0.5)
    return dict(shown)


def test_an_empty_folder_is_served_imported_into_and_asked_from_a_script(session: Session, tmp_path: Path) -> None:
    with httpx.Client(base_url=f"{session.address}/api/v1", timeout=120) as web:
        assert web.get("/imports").json() == []
        assert web.post("/imports/none/stop").status_code == 404
        done = run_import(web)
        assert done["state"] == "done", done
        assert web.post(f"/imports/{done['id']}/stop").status_code in (200, 409)
        page = httpx.get(f"{session.address}/", timeout=60)
        assert page.status_code == 200
        unknown = httpx.get(f"{session.address}/static/none.js", timeout=60)
        assert (unknown.status_code, unknown.json()["title"]) == (404, "Not found")
    script = tmp_path / "session.py"
    script.write_text(SCRIPT)
    asked = subprocess.run(
        [sys.executable, str(script), session.address], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(ROOT)))},
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    assert "refined to" in asked.stdout
    assert "does not answer" in asked.stdout
    session.process.send_signal(signal.SIGINT)
    session.process.communicate(timeout=120)
    requests = [json.loads(line) for line in session.log.read_text().splitlines()]
    assert {"GET", "POST", "PUT"} <= {request["method"] for request in requests}
