"""Parsing on Spark makes the archive that parsing in this process makes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ingest.job as job
from hypergrid.errors import Rejected
from ingest.job import ingest

Tell = Callable[[Path], dict[str, list[tuple[object, ...]]]]


def test_both_engines_make_the_same_archive(
    spark: SparkSession,
    network: Path,
    tmp_path: Path,
    now_ns: int,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (network / "empty.txt").write_bytes(b"")
    (network / "bad.txt").write_bytes(b"spoilt\n" * 50 + (network / "pass-1.txt").read_bytes()[:5000])
    monkeypatch.setattr(job, "CHUNK_BYTES", 9000)
    here = ingest([network], tmp_path / "here", now_ns=now_ns, engine="inprocess")
    heard: list[str] = []
    there = ingest(
        [network], tmp_path / "there", now_ns=now_ns, engine="spark", progress=lambda name, _: heard.append(name)
    )
    assert tell(tmp_path / "there") == tell(tmp_path / "here")
    assert (there.engine, there.rejects, there.stored) == ("spark", here.rejects, here.stored)
    assert {"start Spark", "parse", "store"} <= set(heard)
    # a session that somebody else started is left to them
    assert spark.range(3).count() == 3
    assert ingest([network], tmp_path / "there", now_ns=now_ns, engine="spark").snapshot is None


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
