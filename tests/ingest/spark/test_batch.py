"""Parsing on Spark makes the archive that parsing in this process makes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import ingest.job as job
from hypergrid.archive import Archive
from hypergrid.core.errors import Rejected
from ingest.batch.report import IngestReport, RunListener
from ingest.job import ingest
from tests.ingest.test_dirty_files import DIRTY

Tell = Callable[[Path], dict[str, list[tuple[object, ...]]]]


def outcome(report: IngestReport) -> dict[str, Any]:
    """Return all that a report says of the readings: counts, rejects, notes, flags."""
    told = report.to_dict()
    return {name: told[name] for name in told.keys() - {"archive", "engine", "seconds", "snapshot"}}


def test_both_engines_make_the_same_archive(
    spark: SparkSession,
    network: Path,
    tmp_path: Path,
    now_ns: int,
    summarise: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (network / "empty.txt").write_bytes(b"")
    (network / "bad.txt").write_bytes(b"spoilt\n" * 50 + (network / "pass-1.txt").read_bytes()[:5000])
    monkeypatch.setattr("ingest.batch.plan.CHUNK_BYTES", 9000)
    here = ingest([network], tmp_path / "here", now_ns=now_ns, engine="inprocess")
    heard: list[str] = []
    there = ingest(
        [network],
        tmp_path / "there",
        now_ns=now_ns,
        engine="spark",
        listener=RunListener(lambda name, _: heard.append(name)),
    )
    assert summarise(tmp_path / "there") == summarise(tmp_path / "here")
    assert (here.engine, there.engine) == ("inprocess", "spark")
    assert outcome(there) == outcome(here)
    assert here.rejects
    assert {"start Spark", "parse", "store"} <= set(heard)
    # a session that somebody else started is left to them
    assert spark.range(3).count() == 3
    assert ingest([network], tmp_path / "there", now_ns=now_ns, engine="spark").snapshot is None


def test_folders_of_dirty_files_are_the_same_on_both(
    spark: SparkSession, tmp_path: Path, now_ns: int, summarise: Tell
) -> None:
    for number, dirty in enumerate(DIRTY):
        folder = tmp_path / "in" / f"{number:02d}"
        folder.mkdir(parents=True)
        for name, content in dirty.files.items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    here = ingest([tmp_path / "in"], tmp_path / "here", now_ns=now_ns, engine="inprocess")
    there = ingest([tmp_path / "in"], tmp_path / "there", now_ns=now_ns, engine="spark")
    assert summarise(tmp_path / "there") == summarise(tmp_path / "here")
    assert outcome(there) == outcome(here)
    assert min(here.values, here.missing, here.readings_rejected, here.superseded, len(here.warnings)) > 0


def test_documents_and_long_rows_are_the_same_on_both(
    spark: SparkSession, tmp_path: Path, now_ns: int, summarise: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = np.arange(200)
    for n in range(200):
        envelope = {"station": f"s{n % 3}", "time": 1577836800 + 60 * n, "received_at": 1577836900 + 60 * n}
        with (folder / "a.jsonl").open("a") as stream:
            # one field, or two of which one has nothing
            stream.write(json.dumps(envelope | ({"t": n} if n % 2 else {"rh": n, "t": None})) + "\n")
    with (folder / "a.jsonl").open("a") as stream:
        stream.write("spoilt\n")
    table = pa.table({"time": pa.array(rows * 60, pa.timestamp("s")), "station": ["x", "y"] * 100, "v": rows * 0.5})
    pq.write_table(table, folder / "b.parquet", row_group_size=40)
    monkeypatch.setattr("ingest.batch.plan.CHUNK_BYTES", 2000)
    here = ingest([folder], tmp_path / "here", now_ns=now_ns, engine="inprocess")
    there = ingest([folder], tmp_path / "there", now_ns=now_ns, engine="spark")
    assert summarise(tmp_path / "there") == summarise(tmp_path / "here")
    assert (here.rows, here.rejects, here.readings, here.missing) == (200 + 100 + 200, {"bad JSON": 1}, 500, 100)
    arrivals = Archive.open(tmp_path / "here").read("rh").arrival_ns
    assert sorted(arrivals.tolist()) == [(1577836900 + 60 * n) * 10**9 for n in range(0, 200, 2)]
    assert there.stored == here.stored == 500


def test_strict_on_spark_commits_nothing(spark: SparkSession, network: Path, tmp_path: Path, now_ns: int) -> None:
    (network / "bad.txt").write_bytes(b"spoilt\n")
    with pytest.raises(Rejected, match="wrong number of fields"):
        ingest([network], tmp_path / "a", now_ns=now_ns, engine="spark", strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["network"]


def test_auto_takes_spark_for_large_inputs(
    spark: SparkSession, network: Path, tmp_path: Path, now_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SPARK_FROM_BYTES", 10_000)
    assert ingest([network], tmp_path / "a", now_ns=now_ns).engine == "spark"
