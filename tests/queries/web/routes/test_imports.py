"""Imports over HTTP: uploads within limits and without paths, descriptions, runs, and who may send what."""

import errno
import io
import os
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.importing import ImportLimits
from ingest.importing import importer as importer_module
from ingest.importing.folder import FOLDER
from ingest.importing.importer import FolderImporter
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import Services, create_app
from tests.serving import SharedServer

LIMITS = ImportLimits(file_bytes=3_000_000, files=3, total_bytes=5_000_000, seconds=60)
LONGEST_S = 60.0
TABLE = "station,time,T [degC]\n" + "".join(f"a,2024-03-12T{hour:02}:00,{hour}\n" for hour in range(24))


@pytest.fixture
def folder(tmp_path: Path, now_ns: int) -> Path:
    """The folder of an archive without readings."""
    Archive.create(tmp_path / "archive", name="empty", slice_s=120.0, variables=(), now_ns=now_ns)
    return tmp_path / "archive"


@pytest.fixture
def now_ns() -> int:
    return 1_700_000_000 * 10**9


@pytest.fixture
def web(folder: Path, make_runner: Callable[..., Runner], shared: SharedServer) -> Iterator[httpx.Client]:
    archive, importer = hg.open(folder), FolderImporter(folder, LIMITS)
    app = create_app(make_runner(archive), Catalogue(archive), services=Services(importer=importer))
    with shared.serving(app) as address, httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        yield client
    importer.close()


@pytest.fixture
def name(web: httpx.Client) -> str:
    answer = web.post("/imports")
    assert answer.status_code == 201
    name: str = answer.json()["id"]
    assert answer.headers["location"].endswith(f"/api/v1/imports/{name}")
    return name


def kept(folder: Path) -> list[str]:
    """Return every file of the imports, those that are hidden included."""
    return sorted(path.name for path in (folder / FOLDER).rglob("files/*"))


def finish(web: httpx.Client, name: str) -> dict[str, object]:
    ends_s = time.monotonic() + LONGEST_S
    while (state := web.get(f"/imports/{name}").json())["state"] == "running":
        assert time.monotonic() < ends_s
        time.sleep(0.02)
    return dict(state)


def test_files_become_readings(web: httpx.Client, name: str, folder: Path) -> None:
    assert web.get("/session").json()["imports"] is True
    # Other bodies may have a megabyte; files have limits of their own.
    assert web.put(f"/imports/{name}/files/long.csv", content=TABLE + "#" * 2_000_000).json() == {"name": "long.csv"}
    assert web.delete(f"/imports/{name}/files/long.csv").status_code == 204
    assert web.delete(f"/imports/{name}/files/long.csv").status_code == 404
    assert web.put(f"/imports/{name}/files/a.csv", content=TABLE).status_code == 200
    assert web.post(f"/imports/{name}/run").status_code == 422
    proposal = web.get(f"/imports/{name}/proposal").json()
    document = proposal["document"]
    wrong = {**document, "feed": [{**document["feed"][0], "timezone": "Nowhere"}]}
    refused = web.put(f"/imports/{name}/deployment", json=wrong)
    assert (refused.status_code, refused.json()["key"]) == (422, "feed[0].timezone")
    assert web.get(f"/imports/{name}/deployment").status_code == 404
    as_toml = web.put(f"/imports/{name}/deployment", json=document)
    assert as_toml.headers["content-type"] == "application/toml; charset=utf-8"
    by_hand = as_toml.text + "# checked by hand\n"
    headers = {"Content-Type": "application/toml"}
    assert web.put(f"/imports/{name}/deployment", content=by_hand, headers=headers).text == by_hand
    assert web.get(f"/imports/{name}/deployment").text == by_hand
    started = web.post(f"/imports/{name}/run")
    assert (started.status_code, started.json()["state"]) == (202, "running")
    state = finish(web, name)
    assert state["state"] == "done", state
    assert state["report"]["ingest"]["stored"] == 24  # type: ignore[index]
    assert [one["name"] for one in web.get("/variables").json()] == ["air_temperature"]
    assert [one["id"] for one in web.get("/imports").json()] == [name]
    assert web.delete(f"/imports/{name}").status_code == 204
    assert kept(folder) == []
    assert len(web.get("/series?variable=air_temperature&f=csv").text.splitlines()) == 25


def test_names_lead_nowhere(web: httpx.Client, name: str, folder: Path) -> None:
    sent = {
        "%2e%2e%2fescape.csv": 404, "..%5C..%5Cwindows.csv": 200, "a%00b%1b[2J.csv": 200, "%2e%2e": 422, "...": 422,
        "x" * 300 + ".csv": 422, ".hidden": 200,
    }  # fmt: skip
    for file, status in sent.items():
        answer = web.put(f"/imports/{name}/files/{file}", content=TABLE)
        assert answer.status_code in (status, 404), (file, answer.text)
    assert all(file.isprintable() and not file.startswith(".") for file in kept(folder))
    assert set(kept(folder)) == {"windows.csv", "a_0b_1b[2J.csv", "hidden"}
    assert [path.name for path in folder.parent.iterdir()] == ["archive"]
    for other in ("0" * 12, "..", "%2e%2e", "files"):
        assert web.get(f"/imports/{other}").status_code == 404


def test_limits_hold_while_files_arrive(web: httpx.Client, name: str, folder: Path) -> None:
    half = b"x" * 2_000_000
    too_large = web.put(f"/imports/{name}/files/a.csv", content=half * 2)
    assert too_large.status_code == 413
    assert "3,000,000 bytes" in too_large.json()["detail"]
    assert kept(folder) == []
    assert [web.put(f"/imports/{name}/files/{file}", content=half).status_code for file in "ab"] == [200, 200]
    together = web.put(f"/imports/{name}/files/c", content=half)
    assert (together.status_code, "together" in together.json()["detail"]) == (413, True)
    # What replaces a file, or comes after one was removed, has room.
    assert web.put(f"/imports/{name}/files/b", content=b"small").status_code == 200
    assert web.put(f"/imports/{name}/files/c", content=half).status_code == 200
    fourth = web.put(f"/imports/{name}/files/d", content=b"")
    assert (fourth.status_code, "3 files" in fourth.json()["detail"]) == (413, True)
    assert kept(folder) == ["a", "b", "c"]


def test_an_upload_that_stops_half_way_leaves_nothing(web: httpx.Client, name: str, folder: Path) -> None:
    parts = urlsplit(str(web.base_url))
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        path = f"/api/v1/imports/{name}/files/a.csv"
        head = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{parts.port}\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head.encode() + b"half")
        ends_s = time.monotonic() + LONGEST_S
        while kept(folder) != [".a.csv.part"] and time.monotonic() < ends_s:
            time.sleep(0.01)
        # While it is received, another under its name waits for its turn.
        assert web.put(f"/imports/{name}/files/a.csv", content=TABLE).status_code == 409
    while kept(folder) and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert kept(folder) == []
    assert web.put(f"/imports/{name}/files/a.csv", content=TABLE).status_code == 200


def test_a_full_disk_is_told_and_leaves_nothing(
    web: httpx.Client, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/secret/path")

    with monkeypatch.context() as patched:
        patched.setattr(importer_module.FileUpload, "write", refuse)
        answer = web.put(f"/imports/{name}/files/a.csv", content=TABLE)
    assert (answer.status_code, answer.json()["title"]) == (503, "The disk is full")
    assert "secret" not in answer.text
    assert kept(folder) == []


def test_a_bomb_is_not_unpacked(web: httpx.Client, name: str) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.csv", TABLE + "\n" * (100 << 20))
        archive.writestr("../../../escape.csv", TABLE)
    assert web.put(f"/imports/{name}/files/bomb.zip", content=packed.getvalue()).status_code == 200
    proposal = web.get(f"/imports/{name}/proposal").json()
    assert any(reason.startswith("packed too densely") for reason in proposal["unreadable"].values())
    assert [feed["files"] for feed in proposal["feeds"]] == [["bomb.zip/escape.csv"]]


def test_proposals_wait_for_their_turn_beside_other_requests(
    web: httpx.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def hold(_importer: FolderImporter, _name: str) -> dict[str, object]:
        release.wait(LONGEST_S)
        return {}

    monkeypatch.setattr(FolderImporter, "propose", hold)
    with ThreadPoolExecutor(60) as pool:
        try:
            waiting = [pool.submit(web.get, f"/imports/{name}/proposal") for _ in range(50)]
            done, held = wait(waiting, timeout=LONGEST_S, return_when=FIRST_COMPLETED)
            while len(done) < 48:
                more, held = wait(held, timeout=LONGEST_S, return_when=FIRST_COMPLETED)
                assert more
                done |= more
            assert {answer.result().status_code for answer in done} == {409}
            assert web.get(f"/imports/{name}").status_code == 200
        finally:
            release.set()
        assert [answer.result().status_code for answer in held] == [200, 200]


def test_a_deployment_that_is_sent_as_a_file_is_checked(web: httpx.Client, name: str, folder: Path) -> None:
    text = '[network]\nname = "own"\n[[feed]]\nname = "f"\nfiles = "*.csv"\nformat = "csv"\ntimezone = "{zone}"\n'
    answer = web.put(f"/imports/{name}/files/deployment.toml", content=text.format(zone="Nowhere"))
    assert (answer.status_code, answer.json()["key"]) == (422, "feed[0].timezone")
    assert kept(folder) == []
    web.put(f"/imports/{name}/files/deployment.toml", content=text.format(zone="+01:00")).raise_for_status()
    web.put(f"/imports/{name}/files/a.csv", content=TABLE).raise_for_status()
    document = web.get(f"/imports/{name}/proposal").json()["document"]
    # It is fitted to the archive, and filled from the files.
    assert document["network"]["name"] == "empty"
    assert document["feed"][0]["timezone"] == "+01:00"
    assert document["feed"][0]["columns"]["T [degC]"]["variable"] == "air_temperature"


def test_other_sites_and_servers_without_imports(
    web: httpx.Client, name: str, folder: Path, make_runner: Callable[..., Runner]
) -> None:
    foreign = {"Origin": "https://evil.example"}
    for method, path in (
        ("POST", "/imports"),
        ("PUT", f"/imports/{name}/files/a.csv"),
        ("POST", f"/imports/{name}/run"),
    ):
        assert web.request(method, path, headers=foreign).status_code == 403
    assert web.put(f"/imports/{name}/files/a.csv", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert kept(folder) == []
    # A deployment must be JSON or TOML, which no form of another site sends.
    form = {"Content-Type": "text/plain"}
    assert web.put(f"/imports/{name}/deployment", content="{}", headers=form).status_code == 415


def test_a_server_takes_no_imports_unless_told(client: httpx.Client) -> None:
    assert client.get("/api/v1/session").json()["imports"] is False
    assert client.post("/api/v1/imports").status_code == 404
    assert "/api/v1/imports" not in client.get("/openapi.json").json()["paths"]
