"""Several processes at one archive, and processes that are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.units import Variable

COMMITTER = Path(__file__).with_name("committer.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Archive.create(tmp_path / "archive", name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    return tmp_path / "archive"


def commit(folder: Path, station: str, first: int, last: int, rows: int) -> "subprocess.Popen[str]":
    arguments = [sys.executable, str(COMMITTER), str(folder), station, str(first), str(last), str(rows)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("each", [20, 50])
def test_no_commit_from_4_processes_is_lost(folder: Path, each: int) -> None:
    processes = [commit(folder, f"s{number}", 0, each, 4) for number in range(4)]
    ends = [(process.communicate()[0].split()[-1], process.returncode) for process in processes]
    assert ends == [(f"{each - 1}", 0)] * 4
    archive = Archive.open(folder)
    found = archive.read("v")
    assert len(archive.snapshots) == 4 * each + 1
    assert sorted(one.station for one in archive.series("v")) == ["s0", "s1", "s2", "s3"]
    for number in range(4):
        own = found.take_rows(found.index == number)
        np.testing.assert_array_equal(own.time_ns, np.arange(4 * each) * 60_000_000_000)
        np.testing.assert_array_equal(own.value, np.arange(4 * each) // 4)


def test_a_killed_committer_leaves_whole_batches_and_the_next_run_continues(folder: Path) -> None:
    rows, batches = 20_000, 40
    random = np.random.default_rng(11)
    for _ in range(4):
        process = commit(folder, "s", 0, batches, rows)
        assert process.stdout is not None
        process.stdout.readline()  # it is at work
        time.sleep(float(random.uniform(0.0, 0.3)))
        process.send_signal(signal.SIGKILL)
        reported = [int(line) for line in process.communicate()[0].split()] or [0]
        found = Archive.open(folder).read("v").value
        whole = len(found) // rows
        assert whole > reported[-1]
        np.testing.assert_array_equal(found, np.repeat(np.arange(whole), rows))
    process = commit(folder, "s", 0, batches, rows)
    process.communicate()
    assert process.returncode == 0
    np.testing.assert_array_equal(Archive.open(folder).read("v").value, np.repeat(np.arange(batches), rows))


def test_a_creation_that_was_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    target = tmp_path / "archive"
    script = (
        "import os, signal, sys\n"
        "from hypergrid.archive import Archive; from hypergrid.archive.disk import folder\n"
        "folder.os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Archive.create(sys.argv[1], name='p', slice_s=1, variables=[], now_ns=0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    assert len(os.listdir(tmp_path)) == 1
    Archive.create(target, name="p", slice_s=1, variables=[], now_ns=0)
    assert os.listdir(tmp_path) == ["archive"]


def test_nothing_is_printed(folder: Path) -> None:
    arguments = [sys.executable, str(COMMITTER), str(folder), "s", "0", "1", "2"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")
