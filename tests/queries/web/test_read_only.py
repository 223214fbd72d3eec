"""Archives that cannot be written: served by several processes at once, with standing queries at one of them."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import hypergrid as hg
from hypergrid.cli.main import app as command_line
from hypergrid.core.settings import Settings
from queries.boards.definition import board_from_json
from queries.boards.repository import BoardStore
from queries.web.auth.keys import KeysDamaged, KeyStore
from queries.web.commands import NotWritable, access_of
from queries.web.serving import application
from tests.queries.conftest import SERIES
from tests.serving import SharedServer

ROOT = Path(__file__).parents[3]
DATA = ("variables", "stations", "latest", "series?variable=air_temperature&f=csv", "snapshots")


@pytest.fixture
def copy(archive: hg.OpenArchive, tmp_path: Path) -> tuple[Path, str]:
    """A copy of an archive, with a key of scope admin."""
    path = tmp_path / "copy" / "archive"
    shutil.copytree(archive.path, path, ignore=shutil.ignore_patterns("server", "standing"))
    with closing(KeyStore(path / "server" / "keys.sqlite")) as store:
        return path, store.create("admin", "admin", now_ns=time.time_ns())[1]


@pytest.fixture
def read_only(copy: tuple[Path, str], tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The copy on a file system that is mounted read-only."""
    place = tmp_path / "mounted"
    place.mkdir()
    for command in (["mount", "--bind", copy[0].parent, place], ["mount", "-o", "remount,ro,bind", place]):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            subprocess.run(["umount", place], capture_output=True, check=False)
            pytest.skip("this machine lets nobody mount a folder read-only")
    yield place / copy[0].name, copy[1]
    subprocess.run(["umount", place], check=True)


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return sizes and times of what lies in a folder, but for keys, which processes share."""
    found = (path for path in folder.rglob("*") if "server" not in path.parts[-2:])
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def test_a_read_only_server_writes_nothing_and_answers_all_data(copy: tuple[Path, str], shared: SharedServer) -> None:
    path, key = copy
    before = files(path)
    with (
        application(path, Settings(read_only=True)) as app,
        shared.serving(app) as here,
        httpx.Client(base_url=f"{here}/api/v1/", headers={"X-API-Key": key}) as client,
    ):
        for address in DATA:
            assert client.get(address).status_code == 200
        assert client.post("queries?wait=30s", json=SERIES, timeout=60).status_code == 200
        assert client.get("standing").status_code == 404
        assert client.get("../../health").json()["status"] == "ok"
        assert httpx.get(f"{here}/api/v1/variables").status_code == 401
    assert files(path) == before


def test_boards_and_links_are_shown_by_a_read_only_server(copy: tuple[Path, str], shared: SharedServer) -> None:
    path, key = copy
    file = path / "server" / "boards.sqlite"
    with closing(BoardStore(file)) as store:
        store.add_board(board_from_json({"title": "Wall"}), now_ns=1)
        name = store.add_link("boards?board=wall", "", now_ns=1).name
        for is_kept_open in (True, False):
            with (
                application(path, Settings(read_only=True)) as app,
                shared.serving(app) as here,
                httpx.Client(base_url=f"{here}/api/v1/", headers={"X-API-Key": key}) as client,
            ):
                assert [board["name"] for board in client.get("boards").json()] == ["wall"]
                assert client.get(f"links/{name}").json()["address"] == "boards?board=wall"
                assert client.get("boards/hall").status_code == 404
                refused = client.post("boards", json={"title": "Hall"})
                assert (refused.status_code, "read-only" in refused.json()["detail"]) == (503, True)
                if is_kept_open:
                    store.add_board(board_from_json({"title": "Hall"}), now_ns=1)
                    assert client.get("boards/hall").status_code == 200
                    store.remove_board("hall")
                    store.close()


@pytest.mark.parametrize("is_read_only", [True, False])
def test_a_damaged_file_of_boards_says_so(copy: tuple[Path, str], shared: SharedServer, *, is_read_only: bool) -> None:
    path, key = copy
    (path / "server" / "boards.sqlite").write_bytes(b"no database at all" * 100)
    with (
        application(path, Settings(read_only=is_read_only)) as app,
        shared.serving(app) as here,
        httpx.Client(base_url=f"{here}/", headers={"X-API-Key": key}) as client,
    ):
        for address in ("api/v1/boards", "api/v1/boards/wall", "api/v1/links/abc", "l/abc", "l/abc.png"):
            answer = client.get(address)
            assert (answer.status_code, answer.json()["title"]) == (503, "The boards and links cannot be read"), address
            assert "boards.sqlite cannot be read as a file of boards and links" in answer.json()["detail"]
            assert str(path.parent) not in answer.text
        assert client.get("api/v1/variables").status_code == 200
        assert "boards.sqlite" in client.get("health").json()["troubles"]


def test_keys_in_a_folder_that_cannot_be_written_open_and_do_not_change(
    copy: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = copy
    file, now_ns = path / "server" / "keys.sqlite", time.time_ns()
    # Who may write everywhere, as root, may not here.
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    before = files(path)
    with closing(KeyStore(file)) as store:
        assert store.check(key, now_ns).name == "admin"
        with pytest.raises(KeysDamaged, match="readonly"):
            store.revoke("admin", now_ns=now_ns)
        assert store.check(key, now_ns).name == "admin"
    assert files(path) == before
    monkeypatch.undo()
    with closing(KeyStore(file)) as store:
        store.revoke("admin", now_ns=now_ns)
    (log,) = [file.with_name(f"{file.name}-wal")]
    log.write_bytes(b"a revocation that nobody put into the file")
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    with closing(KeyStore(file)) as store, pytest.raises(KeysDamaged, match="changes lie beside it in keys.sqlite-wal"):
        store.check(key, now_ns)


def test_state_elsewhere_does_not_open_an_archive_that_needs_keys(copy: tuple[Path, str], tmp_path: Path) -> None:
    elsewhere = Settings(state=str(tmp_path / "state"))
    assert access_of(copy[0], elsewhere, "127.0.0.1", required=False).is_on


def test_a_server_that_cannot_write_its_state_says_what_to_do(read_only: tuple[Path, str]) -> None:
    with (
        pytest.raises(NotWritable, match="server cannot be written; serve with --read-only, or give the settings"),
        application(read_only[0], Settings()),
    ):
        pass


def checked(path: Path, *options: str) -> tuple[int, dict[str, tuple[str, str]], str]:
    """Return the status of `hypergrid serve --check`, its findings and what it writes to standard error."""
    done = CliRunner().invoke(command_line, ["serve", str(path), "--port", "0", "--check", "--json", *options])
    found = {one["what"]: (one["state"], one["found"]) for one in json.loads(done.stdout)}
    return done.exit_code, found, done.stderr


def test_a_read_only_archive_is_checked(read_only: tuple[Path, str], copy: tuple[Path, str]) -> None:
    before = files(copy[0])
    status, found, said = checked(read_only[0], "--read-only")
    assert (status, {state for state, _ in found.values()}, said) == (0, {"fine"}, "")
    assert found["disk"][1] == "nothing is written"
    assert found["keys"][1] == "access control is on: 1 of 1 keys open something"
    # Without the option it says what a server would: where it may not write, it does not start.
    status, found, said = checked(read_only[0])
    assert (status, [what for what, (state, _) in found.items() if state == "wrong"], said) == (1, ["disk"], "")
    assert "serve with --read-only" in found["disk"][1]
    assert files(copy[0]) == before


def start(held: ExitStack, path: Path, *options: str, **settings: str) -> "subprocess.Popen[str]":
    """Start `hypergrid serve` in a process of its own."""
    words = [sys.executable, "-m", "hypergrid", "serve", str(path), "--port", "0", *options]
    env = {**os.environ, **settings}
    process = held.enter_context(subprocess.Popen(words, cwd=ROOT, text=True, stderr=subprocess.PIPE, env=env))
    held.callback(process.terminate)
    return process


def address_of(process: "subprocess.Popen[str]") -> str:
    """Return the address of a server once it answers."""
    assert process.stderr is not None
    line = next(line for line in process.stderr if line.startswith("serving") or "hypergrid:" in line)
    return line.partition(" at ")[2].partition(" ")[0]


@contextmanager
def proxy(standing: str, others: list[str]) -> Iterator[str]:
    """A proxy that gives each connection to the next server, and those about standing queries to one of them."""
    ready, ended, found = threading.Event(), threading.Event(), list[str]()
    turn = iter(others * 1000)

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while content := await source.read(65536):
            target.write(content)
            await target.drain()
        target.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        chosen = httpx.URL(standing if b"/standing" in head.split(b"\r\n", 1)[0] else next(turn))
        there, back = await asyncio.open_connection(chosen.host, chosen.port)
        back.write(head)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    async def run() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        found.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        ready.set()
        while not ended.is_set():
            await asyncio.sleep(0.05)
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    ready.wait(10)
    yield found[0]
    ended.set()
    thread.join(10)


@pytest.mark.soak
def test_three_processes_behind_one_proxy_serve_a_read_only_copy_with_standing_queries_at_one(
    read_only: tuple[Path, str], tmp_path: Path
) -> None:
    path, key = read_only
    state, standing = tmp_path / "state", tmp_path / "standing"
    shutil.copytree(path / "server", state)
    writing = {"HYPERGRID_STATE": str(state), "HYPERGRID_STANDING_FOLDER": str(standing)}
    headers = {"X-API-Key": key, "Connection": "close"}
    with ExitStack() as held:
        started = [start(held, path, **writing), start(held, path, "--read-only"), start(held, path, "--read-only")]
        addresses = [address_of(process) for process in started]
        here = held.enter_context(proxy(addresses[0], addresses))
        for address in DATA:
            answers = [httpx.get(f"{here}/api/v1/{address}", headers=headers) for _ in range(3)]
            assert [answer.status_code for answer in answers] == [200] * 3
            assert len({answer.content for answer in answers}) == 1
            assert httpx.get(f"{here}/api/v1/{address}").status_code == 401
        results = [
            httpx.post(f"{here}/api/v1/queries?wait=60s&f=csv", json=SERIES, headers=headers, timeout=90)
            for _ in range(3)
        ]
        assert [answer.status_code for answer in results] == [200] * 3
        assert len({answer.content for answer in results}) == 1
        document = {"name": "frost", "query": SERIES, "to": ["events"]}
        assert httpx.post(f"{here}/api/v1/standing", json=document, headers=headers).status_code == 201
        assert httpx.post(f"{here}/api/v1/standing/frost/test", headers=headers).is_success
        (alert,) = httpx.get(f"{here}/api/v1/standing/alerts", headers=headers).json()
        assert (alert["query"], alert["happening"]) == ("frost", "test")
        for address in addresses[1:]:
            assert httpx.get(f"{address}api/v1/standing", headers=headers).status_code == 404
            assert httpx.get(f"{address}health", headers=headers).json()["status"] == "ok"
    with closing(sqlite3.connect(standing / "standing.sqlite")) as db:
        assert db.execute("SELECT COUNT(*) FROM queries").fetchone() == (1,)
