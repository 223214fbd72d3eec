"""Spark and an archive whose values lie in an S3-compatible store: executors read and write them themselves."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from pyspark.sql import SparkSession

import hypergrid as hg
from hypergrid.archive import Archive, Branch
from ingest.job import ingest
from ingest.reprocess.reflag import run_quality
from tests.bench.reprocess_archive import make_archive
from tests.ingest.spark.cluster import Cluster
from tests.ingest.spark.years import DAILY, DEPLOYMENT, NOW_NS, PROGRAM
from tests.s3_server import CREDENTIALS, S3Server, table


def test_a_batch_through_spark_is_that_of_a_folder(
    spark: SparkSession,
    network: Path,
    tmp_path: Path,
    now_ns: int,
    summarise: Callable[[Path], object],
    s3: S3Server,
) -> None:
    here = ingest([network], tmp_path / "here", now_ns=now_ns, engine="inprocess")
    with (network / "deployment.toml").open("a") as deployment:
        deployment.write(table(s3.place()))
    there = ingest([network], tmp_path / "there", now_ns=now_ns, engine="spark")
    assert (there.engine, there.stored) == ("spark", here.stored)
    assert summarise(tmp_path / "there") == summarise(tmp_path / "here")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an archive, and what the engine makes of it in this process."""
    folder = tmp_path_factory.mktemp("months")
    make_archive(folder / "raw", days=60, stations=10)
    shutil.copytree(folder / "raw", folder / "judged")
    run_quality(folder / "judged", now_ns=NOW_NS)
    (folder / "new.toml").write_text(DEPLOYMENT)
    (folder / "daily.json").write_text(json.dumps(DAILY))
    hg.open(folder / "judged").query(DAILY).compute().to_netcdf(folder / "daily.nc")
    return folder


@pytest.fixture
def cluster(tmp_path: Path, s3: S3Server) -> Iterator[Cluster]:
    """Give a cluster whose executors have the credentials that it was started with."""
    running = None
    try:
        running = Cluster(tmp_path)
        yield running
    finally:
        if running is not None:
            running.end()


@pytest.mark.parametrize("where", ["here", "cluster"])
def test_a_reprocessing_is_that_of_this_process(
    where: str, made: Path, tmp_path: Path, s3: S3Server, request: pytest.FixtureRequest
) -> None:
    archive = Path(shutil.copytree(made / "raw", tmp_path / "a"))
    s3.take(archive)
    asked = ["--quality", made / "new.toml", "--queries", made / "daily.json", "-o", tmp_path / "out.nc", "--json"]
    if where == "cluster":
        asked += ["--master", request.getfixturevalue("cluster").master]
    command = [sys.executable, "-c", PROGRAM, "reprocess", archive, *asked]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found, expected = (Archive.open(path).read("air_temperature", tests=True) for path in (archive, made / "judged"))
    for column in ("index", "time_ns", "value", "arrival_ns", "flag", "tests"):
        np.testing.assert_array_equal(getattr(found, column), getattr(expected, column), column)
    assert Branch.names(Archive.open(archive)) == ()
    with xr.open_dataset(tmp_path / "out.nc") as one, xr.open_dataset(made / "daily.nc") as two:
        np.testing.assert_allclose(one["air_temperature"].values, two["air_temperature"].values, rtol=1e-12)
    for secret in CREDENTIALS.values():
        assert secret not in done.stdout + done.stderr
