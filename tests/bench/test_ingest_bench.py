"""The benchmark of ingest in small: what is written is what is asked, and what is measured is there."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from hypergrid.archive import Archive
from ingest.job import ingest
from tests.bench import ingest_batch
from tests.bench.bench_ingest import tables
from tests.bench.ingest_files import deployment_of, write_files
from tests.bench.ingest_pandas import judge, read, write
from tests.bench.process_memory import Watch

NOW_NS = 1_300_000_000 * 10**9


def test_the_files_are_read_whole_and_pandas_stores_the_same_values(tmp_path: Path) -> None:
    files = write_files(tmp_path / "files", 40_000)
    assert files.values == 9 * files.stations * files.rows_a_station
    assert abs(files.values - 40_000) < 100
    report = ingest([files.folder], tmp_path / "archive", engine="inprocess", now_ns=NOW_NS)
    assert (report.readings, report.rejects, report.duplicates) == (files.values, {}, 0)
    # A thousandth is missing, few values are bad, and no clock is suspected.
    assert 0 < report.missing < 0.003 * files.values
    assert sum(counts.get("fail", 0) for counts in report.quality.values()) < 0.001 * files.values
    assert report.warnings == ()
    rows = read(files.folder)
    flags = {name: judge(rows, name) for name in Archive.open(tmp_path / "archive").variables}
    write(rows, flags, tmp_path / "peer.zarr")
    with xr.open_zarr(tmp_path / "peer.zarr", consolidated=False) as peer:
        for name in ("air_temperature", "wind_direction"):
            ours = Archive.open(tmp_path / "archive").read(name)
            # Station by station and in order of time on both sides.
            np.testing.assert_array_equal(ours.value, peer[name].to_numpy().T.ravel())
            corner = peer["time"].to_numpy().astype(np.int64)
            exact = (corner[:, None] + peer[f"{name}_offset"].to_numpy()).T.ravel()
            np.testing.assert_array_equal(ours.time_ns, exact)


def test_a_deployment_without_tests_leaves_flags_alone(tmp_path: Path) -> None:
    files = write_files(tmp_path / "files", 20_000)
    plain = deployment_of(files.folder, quality=False)
    report = ingest([files.folder], tmp_path / "archive", deployment=plain, engine="inprocess", now_ns=NOW_NS)
    flags = {word for counts in report.quality.values() for word in counts}
    assert flags == {"not_evaluated", "missing"}


def test_memory_is_watched_while_a_process_holds_it() -> None:
    # In a process of its own: this one may have Spark's for a child.
    holding = "import sys, numpy as np; held = np.ones(30_000_000); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        with Watch(running.pid) as watch:
            assert running.stdout is not None
            assert running.stdout.readline() == b"held\n"
            time.sleep(0.6)
        running.communicate()
    peaks = watch.peaks()
    assert peaks["python_sum_bytes"] > 240_000_000
    assert peaks["python_each_bytes"][0] > 240_000_000
    assert peaks["jvm_bytes"] == 0


def test_few_values_are_measured() -> None:
    told: list[str] = []
    # Without Spark, whose start takes longer than all the rest; the proof below has it.
    batch = ingest_batch.measure(20_000, 1, lambda stage, _: told.append(stage), engine="inprocess")
    assert {"plan", "parse", "keep raw", "store"} <= set(batch["runs"]["with tests"]["seconds"])
    assert batch["runs"]["with tests"]["readings"] == batch["files"]["values"]
    assert batch["goals"]["python_bytes"]["met"]
    assert batch["runs"]["with tests"]["memory"]["python_sum_bytes"] > 10_000_000
    assert batch["pandas"]["without tests"]["ratio"]["median"] > 0
    assert "beside pandas" in told
    assert [title for title, *_ in tables({"batch": batch})][1] == "Goals"


@pytest.mark.soak
def test_ten_million_values_take_bounded_memory() -> None:
    measured = ingest_batch.measure(10_000_000, 1, lambda _stage, _done: None, peer_values=1_000_000)
    assert measured["runs"]["with tests"]["memory"]["jvm_bytes"] > 10_000_000
    assert measured["goals"]["python_bytes"]["met"]
    assert measured["goals"]["jvm_bytes"]["met"]
