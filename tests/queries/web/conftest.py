"""The web application on a loopback port, with the gated archive behind it."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import hypergrid as hg
from queries.catalogue import Catalogue
from queries.scheduling.runner import Runner
from queries.web.app import create_app
from queries.web.server import Server, listen


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "hourly.json").write_text('{"variable": "air_temperature", "steps": []}', "utf-8")
    return folder


@pytest.fixture
def runner(make_runner: Callable[..., Runner], gate: Any) -> Runner:  # noqa: ANN401 - of the folder above
    return make_runner(gate, results=2)


@pytest.fixture
def app(runner: Runner, archive: hg.OpenArchive, saved: Path) -> FastAPI:
    return create_app(runner, Catalogue(archive, saved=saved))


@pytest.fixture
def client(app: FastAPI, gate: Any) -> Iterator[httpx.Client]:  # noqa: ANN401 - of the folder above
    listening = listen("127.0.0.1", 0)
    ready = threading.Event()
    server = Server(app, listening, lambda _address: ready.set())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    assert ready.wait(20)
    with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=20) as made:
        yield made
    gate.open()
    server.should_exit = True
    thread.join(20)
    listening.close()
    assert not thread.is_alive(), "the server did not stop"
