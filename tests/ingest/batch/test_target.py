"""One run at a time has the archive, and a run that fails leaves none that it made."""

import threading
import time
from pathlib import Path

import pytest

from hypergrid.archive import Archive
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.core.errors import Rejected
from ingest.batch.report import IngestReport, RunListener
from ingest.job import ingest


def test_a_failed_run_leaves_an_empty_folder_empty(network: Path, tmp_path: Path, now_ns: int) -> None:
    (network / "empty.txt").write_bytes(b"")
    (tmp_path / "a").mkdir()
    with pytest.raises(Rejected):
        ingest([network], tmp_path / "a", now_ns=now_ns, strict=True)
    assert list((tmp_path / "a").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "network"]


def test_a_second_run_waits_and_says_so_once(network: Path, tmp_path: Path, now_ns: int) -> None:
    ingest([network / "pass-1.txt"], tmp_path / "a", now_ns=now_ns)
    heard: list[str] = []
    reports: list[IngestReport] = []

    def second() -> None:
        reports.append(ingest([network], tmp_path / "a", now_ns=now_ns, listener=RunListener(on_warning=heard.append)))

    thread = threading.Thread(target=second)
    with wait_for_lock(tmp_path / "a" / "staging" / "lock"):
        thread.start()
        await_word(heard)
        assert heard == ["another ingest of this archive is running; waiting"]
    thread.join(60)
    assert reports[0].stored == 2 * 200 * 9
    assert reports[0].warnings.count(heard[0]) == 1


def test_who_waited_for_a_run_that_took_its_archive_away_makes_one(network: Path, tmp_path: Path, now_ns: int) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "empty.txt").write_bytes(b"")
    heard: list[str] = []
    reports: list[IngestReport] = []

    def second() -> None:
        reports.append(ingest([network], tmp_path / "a", now_ns=now_ns, listener=RunListener(on_warning=heard.append)))

    thread = threading.Thread(target=second)

    def begin(stage: str, part: float) -> None:
        if (stage, part) == ("plan", 1.0):
            thread.start()
            await_word(heard)

    described = network / "deployment.toml"
    with pytest.raises(Rejected):
        ingest(
            [tmp_path / "bad"],
            tmp_path / "a",
            deployment=described,
            strict=True,
            now_ns=now_ns,
            listener=RunListener(begin),
        )
    thread.join(60)
    assert reports[0].stored == 5400
    assert len(Archive.open(tmp_path / "a").files()) == 3


def await_word(heard: list[str]) -> None:
    for _ in range(2000):
        if heard:
            return
        time.sleep(0.01)
    pytest.fail("nothing was heard for 20 s")
