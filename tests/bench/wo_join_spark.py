"""Spark's own join of two streams, with a watermark just large enough, on the data that our join is fed.

Both sides carry a watermark on their key, as an instant, and are joined on it: so Spark knows which rows no partner can
come for any more. Its state is held in the heap, its results go nowhere and are counted on the way.
"""

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.streams.arrivals import Arrivals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIDES = ("left", "right")
STATE_IN_HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
FIRST_S = 1_700_000_000
"""When the first file was written and what key 0 is, as Spark is told: at 0 s its watermark begins, so that what is
there is late."""
WARM_BATCHES = 2
"""Batches that are not counted, of each run."""


@dataclass(frozen=True)
class Measured:
    """What Spark told of a run."""

    results: int
    """Joined pairs."""
    total: float
    """Sum of the payloads of both sides over all pairs."""
    tuples_per_s: float
    """Median of the batches after the first ones."""
    state_rows: float
    """Mean of the rows in its state at the end of these batches."""
    rows_a_batch: float


def measure(arrivals: Arrivals, delay: int, batch: int) -> Measured:
    """Join two streams of whole-numbered keys, which Spark is told as seconds.

    Parameters
    ----------
    arrivals
        Of two streams.
    delay
        The watermark's delay [key units]; `watermark` tells the least.
    batch
        Tuples of both streams in each of its batches.
    """
    with bench_session() as spark, tempfile.TemporaryDirectory() as folder:
        return _run(spark, arrivals, delay, batch, Path(folder))


@contextmanager
def bench_session() -> "Iterator[SparkSession]":
    """Give a session of one core: the one that this process has, or one that is stopped at the end of the block."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a bench of our own join needs no Spark

    from ingest.spark.session import session, stop  # noqa: PLC0415

    before = SparkSession.getActiveSession()
    running = session(cores=1)
    try:
        yield running
    finally:
        if before is None:
            stop(running)


def _run(spark: "SparkSession", arrivals: Arrivals, delay: int, batch: int, folder: Path) -> Measured:
    from pyspark.sql import functions as f  # noqa: PLC0415

    _write(arrivals, batch, folder)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_IN_HEAP)
    left, right = (_side(spark, folder, side, delay) for side in SIDES)
    joined = left.join(right, f.expr("left_time = right_time"))
    sums = (f.count("*").alias("results"), f.sum(f.col("left_value") + f.col("right_value")).alias("total"))
    query = (
        joined.observe("found", *sums)
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told: list[dict[str, Any]] = [progress for progress in map(_plain, query.recentProgress) if progress["rows"]]
    steady = told[min(WARM_BATCHES, len(told) - 1) :]
    return Measured(
        results=sum(one["results"] for one in map(_plain, query.recentProgress)),
        total=sum(one["total"] for one in map(_plain, query.recentProgress)),
        tuples_per_s=statistics.median(one["rows"] / one["took_s"] for one in steady),
        state_rows=statistics.fmean(one["state_rows"] for one in steady),
        rows_a_batch=statistics.fmean(one["rows"] for one in steady),
    )


def _plain(progress: Any) -> dict[str, Any]:  # noqa: ANN401 - Spark's own record
    found = progress.observedMetrics.get("found")
    return {
        "rows": progress.numInputRows,
        "took_s": progress.batchDuration / 1000,
        "state_rows": sum(operator.numRowsTotal for operator in progress.stateOperators),
        "results": found["results"] if found else 0,
        "total": (found["total"] or 0.0) if found else 0.0,
    }


def _write(arrivals: Arrivals, batch: int, folder: Path) -> None:
    """Write each side as files, of which Spark takes one a batch."""
    for number, side in enumerate(SIDES):
        (folder / side).mkdir()
        for at, start in enumerate(range(0, len(arrivals), batch)):
            part = arrivals.take(slice(start, start + batch))
            own = part.stream == number
            instants = pa.array((FIRST_S + part.key[own]) * 10**6, pa.timestamp("us", tz="UTC"))
            table = pa.table({f"{side}_time": instants, f"{side}_value": pa.array(part.payload[own])})
            path = folder / side / f"{at:06d}.parquet"
            pq.write_table(table, path)
            # Spark takes files in the order of their times.
            os.utime(path, (FIRST_S + at, FIRST_S + at))


def _side(spark: "SparkSession", folder: Path, side: str, delay: int) -> "DataFrame":
    source = (
        spark.readStream.schema(f"{side}_time timestamp, {side}_value double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / side))
    )
    return source.withWatermark(f"{side}_time", f"{delay} seconds")


def watermark(arrivals: Arrivals) -> int:
    """Return the delay that is just large enough for all results [key units].

    It is one more than keys of any stream lie below the greatest before them, as Spark drops what is at the watermark.
    Its watermark is that of the slower stream, so that a lag needs none.
    """
    own = (arrivals.key[arrivals.stream == stream] for stream in range(arrivals.streams))
    return 1 + max(int((np.maximum.accumulate(keys) - keys).max()) for keys in own)
