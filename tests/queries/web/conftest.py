"""The web application on a loopback port, with the gated archive behind it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import hypergrid as hg
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from queries.web.auth.keys import SCOPES, KeyStore
from tests.serving import SharedServer


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


@pytest.fixture(scope="session")
def shared() -> Iterator[SharedServer]:
    """Give the server that all tests share; each puts its own application behind it."""
    with SharedServer().running() as made:
        yield made


@pytest.fixture
def client(app: FastAPI, gate: Any, shared: SharedServer) -> Iterator[httpx.Client]:  # noqa: ANN401 - of the folder above
    with shared.serving(app) as address:
        with httpx.Client(base_url=address, timeout=60) as made:
            yield made
        gate.open()


class Clock:
    def __init__(self) -> None:
        self.ns = 1_700_000_000 * 10**9

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyStore]:
    made = KeyStore(tmp_path / "server" / "keys.sqlite")
    yield made
    made.close()


@pytest.fixture
def texts(store: KeyStore, clock: Clock) -> dict[str, str]:
    """Keys by how they stand, or by their scope."""
    made = {scope: store.create(scope, scope, now_ns=clock())[1] for scope in SCOPES}
    made["expired"] = store.create("expired", "admin", now_ns=clock(), expires_ns=clock() + 1)[1]
    made["revoked"] = store.create("revoked", "admin", now_ns=clock())[1]
    store.revoke("revoked", now_ns=clock())
    made["wrong"] = made["admin"][:-1] + ("A" if made["admin"][-1] != "A" else "B")
    clock.ns += 1
    return made
