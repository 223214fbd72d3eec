"""kill -9 of a stream, of Spark's process, or of both, at any moment: the archive is that of an undisturbed run."""

import random
import shutil
import signal
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.archive.durability.backup import back_up, restore
from ingest.batch.archive_session import locked_archive
from ingest.deployment.deployment_file import load
from ingest.job import ingest
from ingest.sources.spool import durable, segments
from tests.ingest.stream_loop import expected, made
from tests.ingest.streamed import ROOT, SAMPLE, Streaming, everything, messages, write_deployment, write_spool

STATIONS = ("1", "3", "6", "9", "13", "21")
BATCH_BYTES = 1000
"""So that a batch is one frame of the spool, which is the least."""
What = Literal["python", "spark", "both"]


def prove(folder: Path, kills: list[tuple[What, int, float]], *, until_h: float, at_once: int, more: str = "") -> None:
    """Kill after so many batches and seconds more, again and again; let it end, and compare with a batch ingest.

    Before each run some more messages come: one whose Spark is killed goes on until there are none.
    """
    sent = messages(STATIONS, until_h=until_h)
    (folder / "files").mkdir()
    (folder / "files" / "all.jsonl").write_bytes(b"".join(one.payload + b"\n" for one in sent))
    (folder / "files" / "arrivals.csv").write_bytes((SAMPLE / "arrivals.csv").read_bytes())
    write_deployment(folder / "files", arrivals=True)
    ingest([folder / "files"], folder / "expected", now_ns=1, engine="inprocess")
    deployment, archive = write_deployment(folder, arrivals=False, more=more), folder / "archive"
    with locked_archive(archive, load(deployment), now_ns=1, on_wait=lambda: None):
        pass
    killed = 0
    bounds = np.linspace(0, len(sent), len(kills) + 2).astype(int).tolist()
    for (what, batches, after_s), start, stop in zip(kills, bounds, bounds[1:], strict=False):
        write_spool(archive / "spool", sent[start:stop], at_once=at_once, segment_bytes=150_000)
        streaming = Streaming(archive, deployment, batch_bytes=BATCH_BYTES)
        if streaming.until(batches):
            time.sleep(after_s)
            # One that is at its end may be gone before.
            victims = [streaming.kill_spark()] if what != "python" else []
            if what != "spark":
                victims.append(streaming.kill())
            killed += all(victims)
        assert streaming.end() in ((0,) if what == "spark" else (0, -signal.SIGKILL))
    write_spool(archive / "spool", sent[bounds[-2] :], at_once=at_once, segment_bytes=150_000)
    last = Streaming(archive, deployment, batch_bytes=BATCH_BYTES)
    assert last.end() == 0
    assert last.last.startswith("done")
    assert everything(archive) == everything(folder / "expected")
    opened = Archive.open(archive)
    (ledger,) = opened.streams.values()
    assert (ledger["came"], ledger["held"]) == (9 * len(sent), 0)
    assert len(sent) < ledger["upto"] <= durable(archive / "spool")
    # Segments that are done are raw copies with an entry, once each.
    names = [entry.name for entry in opened.files()]
    assert len(names) == len(set(names)) >= 1
    assert list(opened.check(deep=True)) == []
    assert killed >= 0.9 * len(kills)


@pytest.mark.parametrize("kills", [[("both", 1, 0.1)], [("python", 1, 0.3), ("spark", 1, 0.5), ("both", 1, 0.1)]])
def test_kills_of_python_of_spark_and_of_both(kills: list[tuple[What, int, float]], tmp_path: Path) -> None:
    prove(tmp_path, kills, until_h=8.0, at_once=100)


@pytest.mark.soak
def test_what_another_version_or_a_backup_remembers_is_made_again_from_the_spool(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sent = messages(STATIONS, until_h=8.0)
    truth = expected(tmp_path, sent)
    archive, _ = made(tmp_path)
    deployment = tmp_path / "deployment.toml"
    write_spool(archive / "spool", sent, at_once=100, segment_bytes=30_000)
    other = tmp_path / "other"
    for package in ("hypergrid", "ingest"):
        shutil.copytree(ROOT / package, other / package, ignore=shutil.ignore_patterns("__pycache__"))
    file = other / "ingest" / "streaming" / "assembler.py"
    file.write_text(file.read_text().replace("VERSION: Final = 3", "VERSION: Final = 9"))
    killed = Streaming(archive, deployment, batch_bytes=BATCH_BYTES, program=other)
    assert killed.until(6)
    assert killed.kill()
    killed.end()
    ledger = next(iter(Archive.open(archive).streams.values()))
    first = segments(archive / "spool")[0][0]
    assert 0 < ledger["first_held"] < first, "rows wait whose segment is a raw copy"
    back_up(archive, tmp_path / "backup", now_ns=1)
    restore(tmp_path / "backup", tmp_path / "restored")
    for folder, reason in ((archive, "got version 9"), (tmp_path / "restored", "it remembers nothing")):
        again = Streaming(folder, deployment, batch_bytes=64 << 20)
        assert again.end() == 0
        told = capfd.readouterr().err
        assert "begins anew" in told
        assert reason in told
        assert "LOST" not in told
        assert everything(folder) == truth
        assert list(Archive.open(folder).check(deep=True)) == []


@pytest.mark.soak
@pytest.mark.parametrize("setting", ['order = "time"', 'memory = "1MiB"'])
def test_ten_kills_of_a_stream_that_waits_for_long(setting: str, tmp_path: Path) -> None:
    chosen = random.Random(510)
    kinds: tuple[What, ...] = ("python", "spark", "both")
    kills = [(chosen.choice(kinds), chosen.randrange(0, 3), chosen.random() * 1.5) for _ in range(10)]
    # One station sends every six hours.
    prove(tmp_path, kills, until_h=24.0, at_once=50, more=f"\n[stream]\nidle_s = 30000\n{setting}\n")


@pytest.mark.soak
def test_fifty_random_kills(tmp_path: Path) -> None:
    chosen = random.Random(2007)
    kinds: tuple[What, ...] = ("python", "spark", "both")
    kills = [(chosen.choice(kinds), chosen.randrange(0, 3), chosen.random() * 1.5) for _ in range(50)]
    prove(tmp_path, kills, until_h=24.0, at_once=20)
