"""A whole archive once more on Spark: on this machine, and on a cluster of two workers that die."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from pyspark.sql import SparkSession

import hypergrid as hg
from hypergrid.archive import Archive, Branch
from hypergrid.cli.main import main
from hypergrid.core.errors import HyperGridError, NotFound
from ingest.reprocess.reflag import run_quality
from ingest.spark.batch import Executors
from tests.bench.reprocess_archive import make_archive
from tests.ingest.spark.cluster import PATIENCE_S, Cluster
from tests.ingest.spark.years import DAILY, DEPLOYMENT, NOW_NS, PROGRAM

MONTHLY = {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "month"}]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("years")
    make_archive(folder / "a", days=150, stations=10)
    (folder / "daily.json").write_text(json.dumps(DAILY))
    (folder / "monthly.json").write_text(json.dumps(MONTHLY))
    return folder


@pytest.fixture(scope="module")
def judged(made: Path) -> Archive:
    """Return the archive after the tests ran in this process."""
    archive = Archive.open(shutil.copytree(made / "a", made / "judged"))
    run_quality(archive.path, now_ns=NOW_NS)
    return archive.latest()


@pytest.fixture
def archive(made: Path, tmp_path: Path) -> Archive:
    return Archive.open(shutil.copytree(made / "a", tmp_path / "a"))


def assert_same_flags(archive: Archive, judged: Archive) -> None:
    one, two = (each.latest().read("air_temperature", tests=True) for each in (archive, judged))
    for column in ("index", "time_ns", "value", "arrival_ns", "flag", "tests"):
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column), column)
    assert Branch.names(archive) == ()


def _run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> dict[str, object]:
    monkeypatch.setattr(sys, "argv", ["hypergrid", "reprocess", *map(str, arguments), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


def test_the_command_judges_and_computes(
    spark: SparkSession,
    archive: Archive,
    judged: Archive,
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = tmp_path / "new.toml"
    deployment.write_text(DEPLOYMENT)
    out = tmp_path / "out"
    asked = ("--queries", made / "daily.json", "--queries", made / "monthly.json", "-o", out)
    told = _run(capsys, monkeypatch, archive.path, "--quality", deployment, *asked)
    assert_same_flags(archive, judged)
    newest = hg.open(archive.path)
    assert told["judged"]["snapshot"] == newest.snapshot  # type: ignore[index]
    for name, document in (("daily", DAILY), ("monthly", MONTHLY)):
        expected = newest.query(document).compute()
        with xr.open_dataset(out / f"{name}.nc") as found:
            np.testing.assert_allclose(found["air_temperature"].values, expected["air_temperature"].values, rtol=1e-12)
            np.testing.assert_array_equal(
                found["air_temperature_count"].values, expected["air_temperature_count"].values
            )
            assert found.attrs["hypergrid_token"] == expected.attrs["hypergrid_token"]
    # A session that somebody else started is left to them.
    assert spark.range(3).count() == 3
    assert [path.name for path in (archive.path / "reprocess").iterdir()] == ["lock"]


def test_a_part_of_the_time(
    spark: SparkSession,
    archive: Archive,
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = (archive.path, "--from", "2021-02-01", "--to", "2021-03-11", "--queries", made / "daily.json")
    told = _run(capsys, monkeypatch, *asked, "-o", tmp_path / "out.zarr")
    assert told["judged"] is None
    assert archive.latest().snapshot == archive.snapshot
    expected = hg.open(archive.path).query(DAILY).clip(time=("2021-02-01", "2021-03-11")).compute()
    with xr.open_zarr(tmp_path / "out.zarr") as found:
        np.testing.assert_allclose(found["air_temperature"].values, expected["air_temperature"].values, rtol=1e-12)
        np.testing.assert_array_equal(found["time"].values, expected["time"].values)
    assert expected.sizes["time"] == 38


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--queries", "daily.json"], "need a place to go: give -o OUT"),
        (["-o", "out.nc"], "give them as well"),
        (["--queries", "none.json", "-o", "out.nc"], "cannot be read"),
        (["--queries", "daily.json", "--variable", "air_temperature", "-o", "out.nc"], "give --quality as well"),
        (["--queries", "daily.json", "-o", "out.txt"], "unknown ending of a result file"),
        (
            ["--queries", "daily.json", "-o", "out.nc", "--from", "2030-01-01"],
            "no reading of 'air_temperature' lies in",
        ),
        (["--quality", "none.toml"], "no deployment file"),
        (["--from", "2022-01-01", "--to", "2021-01-01"], "stop after its start"),
    ],
)
def test_who_asks_wrongly_is_told(
    spark: SparkSession,
    archive: Archive,
    made: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setattr(sys, "argv", ["hypergrid", "reprocess", str(archive.path), *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert Branch.names(archive) == ()


def _fail(task: int) -> int:
    if task == 1:
        message = "the second one cannot be done"
        raise NotFound(message)
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_what_a_task_raises_comes_back(spark: SparkSession) -> None:
    workers = Executors(spark)
    assert workers.map(_fail, [2, 0, 2]) == [2, 0, 2]
    with pytest.raises(NotFound, match="the second one cannot be done"):
        workers.map(_fail, [0, 1])
    with pytest.raises(HyperGridError, match=r"worker exited unexpectedly.*give the same command again: it goes on"):
        workers.map(_fail, [0, 3])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = None
    try:
        running = Cluster(tmp_path_factory.mktemp("cluster"))
        yield running
    finally:
        if running is not None:
            running.end()


def test_a_cluster_of_two_workers_gives_the_same(
    cluster: Cluster, archive: Archive, judged: Archive, made: Path, tmp_path: Path
) -> None:
    deployment = tmp_path / "new.toml"
    deployment.write_text(DEPLOYMENT)
    asked = ("--queries", made / "daily.json", "-o", tmp_path / "out.nc", "--quality", deployment)
    command = [sys.executable, "-c", PROGRAM, "reprocess", archive.path, *asked, "--master", cluster.master, "--json"]
    # The driver is killed once it has done something; a worker while the second start is at it.
    first = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, start_new_session=True)
    _until(lambda: any(Branch(archive, name).notes for name in Branch.names(archive)), first)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert archive.latest().snapshot == archive.snapshot
    (name,) = Branch.names(archive)
    done = len(Branch(archive, name).notes)
    second = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, start_new_session=True)
    _until(lambda: not Branch.names(archive) or len(Branch(archive, name).notes) > done, second)
    cluster.kill(cluster.workers[0])
    answer, _ = second.communicate(timeout=600)
    assert second.returncode == 0
    told = json.loads(answer)
    assert told["judged"]["resumed"] >= done > 0
    assert_same_flags(archive, judged)
    with xr.open_dataset(tmp_path / "out.nc") as found:
        expected = hg.open(archive.path).query(DAILY).compute()
        np.testing.assert_allclose(found["air_temperature"].values, expected["air_temperature"].values, rtol=1e-12)


def _until(happens: Callable[[], object], process: subprocess.Popen[Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(HyperGridError, OSError):
            if happens():
                return
        time.sleep(0.1)
    pytest.fail("the run ended, or did nothing, before it could be killed")


def _master(master: str) -> str:
    """Return what a process without a session says of a master."""
    program = f"from ingest.spark.batch import executors\nwith executors(master={master!r}):\n    pass\n"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    return answer.stderr


def test_a_master_that_is_not_there_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"spark://127.0.0.1:{taken.getsockname()[1]}"
    assert f"NotFound: no Spark master answers at {nobody}" in _master(nobody)


def test_a_master_is_an_address() -> None:
    assert "NotFound: a master is spark://HOST:PORT; got 'yarn'" in _master("yarn")
