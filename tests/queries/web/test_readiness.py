"""Readiness reads: what cannot be served is found, once for all that ask, and a disk that hangs holds nobody up."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import hypergrid as hg
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web import serving
from queries.web.app import create_app
from queries.web.routes import health
from queries.web.routes.health import LIMIT_S, Monitoring, NewestData, SharedExamination, Troubles
from queries.web.serving import WarmUp


class Examined:
    """Counts its examinations, each of which may have to wait."""

    def __init__(self) -> None:
        self.count, self.passes = 0, threading.Event()
        self.troubles: Troubles = {}
        self.passes.set()

    def __call__(self) -> Troubles:
        self.count += 1
        assert self.passes.wait(60)
        return self.troubles


@pytest.fixture
def examined() -> Iterator[Examined]:
    made = Examined()
    yield made
    made.passes.set()


def test_all_that_ask_share_one_examination_and_it_is_kept(examined: Examined) -> None:
    clock = [0.0]
    shared = SharedExamination(examined, clock=lambda: clock[0])
    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(lambda _: shared.troubles(), range(200))) == [{}] * 200
    assert examined.count == 1
    examined.troubles = {"archive": "gone"}
    clock[0] += health.KEPT_S - 0.1
    assert shared.troubles() == {}
    clock[0] += 0.2
    assert shared.troubles() == {"archive": "gone"}
    assert examined.count == 2


def test_a_disk_that_hangs_is_told_once_and_then_at_once(
    examined: Examined, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
) -> None:  # fmt: skip
    monkeypatch.setattr(health, "KEPT_S", 0.0)
    shared = SharedExamination(examined)
    examined.passes.clear()
    begun = time.monotonic()
    assert "has not answered" in shared.troubles()["archive"]
    assert LIMIT_S <= time.monotonic() - begun < LIMIT_S + 5
    begun = time.monotonic()
    assert all("archive" in shared.troubles() for _ in range(100))
    assert time.monotonic() - begun < 1
    assert (examined.count, len(caplog.records)) == (1, 1)
    examined.passes.set()
    wait_until(lambda: not shared.troubles())


def test_an_examination_that_fails_is_a_trouble() -> None:
    def fail() -> Troubles:
        raise ZeroDivisionError

    assert "failed" in SharedExamination(fail).troubles()["archive"]


def copied(archive: hg.OpenArchive, tmp_path: Path) -> Path:
    return Path(shutil.copytree(archive.path, tmp_path / "archive"))


def test_chunks_that_were_emptied_are_found_though_they_were_read_before(
    archive: hg.OpenArchive, tmp_path: Path
) -> None:
    newest = NewestData(hg.open(copied(archive, tmp_path)))
    assert newest.trouble() == ""
    (chunk,) = (tmp_path / "archive" / "store" / "chunks").iterdir()
    content = chunk.read_bytes()
    chunk.write_bytes(b"")
    assert "lacks what snapshot" in newest.trouble()
    assert "lacks what snapshot" in newest.trouble()
    chunk.write_bytes(content)
    assert newest.trouble() == ""


def test_a_large_archive_is_read_in_parts_and_what_is_damaged_again(
    archive: hg.OpenArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, int]] = []
    damaged: set[int] = set()

    def note(_archive: object, name: str, first: int) -> None:
        read.append((name, first))
        if first in damaged:
            message = "damaged"
            raise ValueError(message)

    monkeypatch.setattr(health, "_read_newest", note)
    monkeypatch.setattr(health, "CHUNK_SERIES", 2)
    monkeypatch.setattr(health, "BUDGET_S", 0.0)
    newest = NewestData(archive)
    assert [newest.trouble() for _ in range(4)] == [""] * 4
    assert [first for _, first in read] == [0, 2, 4, 0]
    damaged.add(2)
    assert ["damaged" in newest.trouble() for _ in range(3)] == [True] * 3
    assert [first for _, first in read[4:]] == [2, 2, 2]


def test_asking_often_is_cheap(archive: hg.OpenArchive, make_runner: Callable[..., Runner]) -> None:
    client = TestClient(create_app(make_runner(archive), Catalogue(archive)), base_url="http://127.0.0.1")
    client.get("/health/ready")
    taken = []
    for _ in range(200):
        begun = time.perf_counter()
        assert client.get("/health/ready").status_code == 200
        taken.append(time.perf_counter() - begun)
    assert np.median(taken) < 0.05


def test_a_server_that_still_loads_answers_and_is_not_ready(
    archive: hg.OpenArchive,
    make_runner: Callable[..., Runner],
    wait_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "WARMED_S", np.inf)
    loaded, addresses = threading.Event(), list[str]()
    warm_up = WarmUp(loaded.wait)
    app = create_app(make_runner(archive), Catalogue(archive), monitoring=Monitoring(is_warm=warm_up.is_over))
    client = TestClient(app, base_url="http://127.0.0.1")
    warm_up.start(addresses.append, "http://127.0.0.1/")
    assert addresses == ["http://127.0.0.1/"]
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "loads what queries compute with" in answer.json()["detail"]
    assert client.get("/health/live").status_code == client.get("/api/v1/variables").status_code == 200
    loaded.set()
    wait_until(warm_up.is_over)
    assert client.get("/health/ready").json() == {"status": "ready"}


def test_what_takes_too_long_to_load_keeps_no_server_from_being_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "WARMED_S", 0.0)
    never = threading.Event()
    warm_up = WarmUp(never.wait)
    assert not warm_up.is_over()
    warm_up.start(None, "")
    assert warm_up.is_over()
    never.set()


def test_a_step_that_fails_is_logged_and_keeps_back_none_after_it(
    wait_until: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "WARMED_S", np.inf)

    def fail() -> None:
        raise OSError("no space for compiled code")

    loaded = threading.Event()
    warm_up = WarmUp(fail, loaded.set)
    warm_up.start(None, "")
    wait_until(warm_up.is_over)
    assert loaded.is_set()
    (record,) = [record for record in caplog.records if record.name == serving.__name__]
    assert "no space for compiled code" in str(record.exc_info)
