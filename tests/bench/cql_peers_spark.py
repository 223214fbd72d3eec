"""The workloads of `bench_cql` by Spark's structured streams: Parquet of a batch each, all of it by one trigger.

The sliding mean keeps the last hour of all stations as one state in Spark's memory, and a batch is one call of numpy: a
state of each station costs a frame of pandas a station and batch. Streams of Spark have no `OVER` over a time of their
own.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from os import utime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation has it

from ingest.spark.session import session
from tests.bench.cql_peer_program import HOUR_NS, Columns, Job, serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

FOLDER: Final = tempfile.TemporaryDirectory()
atexit.register(FOLDER.cleanup)
SPAN_NS: Final = 1 << 50
"""Longer than the instants of a stream: stations and instants in one number."""
COLUMNS: Final = ("tau", "station", "value")


@cache
def start_spark() -> "SparkSession":
    """Return the session of this process: one core, the compiler of long runs, and states in the memory of the JVM."""
    spark = session(cores=1, java_options=("-XX:+UseSerialGC", "-XX:-UsePerfData"))
    # A batch of any size goes to numpy in one piece.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "0")
    return spark


def write_batches(job: Job, columns: Columns) -> Path:
    """Return a folder with a file for each batch, which Spark takes in order of their times."""
    folder = Path(FOLDER.name, "given")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, first in enumerate(range(0, len(columns["tau"]), job.batch)):
        path = folder / f"{number:06}.parquet"
        part = {name: values[first : first + job.batch] for name, values in columns.items()}
        pq.write_table(pa.table(part), path, compression="none", use_dictionary=False)
        utime(path, (1e9 + number, 1e9 + number))
    return folder


def average(_key: tuple[int], frames: Iterator[pd.DataFrame], state: "GroupState") -> Iterator[pd.DataFrame]:
    """Give the mean of the last hour at each element of a batch, and keep what later ones can reach."""
    new = pd.concat(frames).sort_values("tau", kind="stable")
    columns = [new[name].to_numpy() for name in COLUMNS]
    if state.exists:
        kept = [np.frombuffer(part, column.dtype) for part, column in zip(state.get, columns, strict=True)]
        columns = [np.concatenate(pair) for pair in zip(kept, columns, strict=True)]
    tau, station, value = columns
    is_new = np.arange(len(tau)) >= len(tau) - len(new)
    order = np.argsort(station, kind="stable")
    keys = station[order] * SPAN_NS + tau[order]
    sums = np.concatenate([[0.0], np.cumsum(value[order])])
    ends = np.flatnonzero(is_new[order])
    starts = np.searchsorted(keys, keys[ends] - HOUR_NS, side="right")
    means = (sums[ends + 1] - sums[starts]) / (ends + 1 - starts)
    reached = tau > tau[-1] - HOUR_NS
    state.update(tuple(column[reached].tobytes() for column in columns))
    yield pd.DataFrame({"tau": tau[order][ends], "station": station[order][ends], "mean": means})


def run(job: Job, folder: Path) -> Columns:
    """Return the rows of a workload, or send them to Spark's own sink that drops them."""
    spark = start_spark()
    given = spark.read.parquet(str(folder)).schema
    stream = spark.readStream.schema(given).option("maxFilesPerTrigger", 1).parquet(str(folder))
    result = make_result(job.workload, stream)
    checkpoint = tempfile.mkdtemp(dir=FOLDER.name)
    writer = result.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
    writer = writer.format("memory").queryName("result") if job.is_checked else writer.format("noop")
    query = writer.start()
    query.awaitTermination()
    if not job.is_checked:
        return {}
    frame = spark.table("result").toPandas()
    return {name: frame[name].to_numpy() for name in frame}


def make_result(workload: str, stream: "DataFrame") -> "DataFrame":
    """Return the rows of a workload as a stream."""
    if workload == "filter":
        return stream.where("A > 10 AND B < 20 AND C > 40").select("tau")
    if workload == "hourly_mean":
        timed = stream.selectExpr("timestamp_millis(tau div 1000000) AS instant", "station", "value")
        hours = timed.withWatermark("instant", "0 seconds").groupBy(F.window("instant", "1 hour"), "station")
        means = hours.agg(F.avg("value").alias("mean"))
        return means.selectExpr("unix_seconds(window.end) * 1000000000 AS tau", "station", "mean")
    return (
        stream.selectExpr("0 AS key", *COLUMNS)
        .groupBy("key")
        .applyInPandasWithState(
            average,
            "tau bigint, station bigint, mean double",
            "tau binary, station binary, value binary",
            "append",
            "NoTimeout",
        )
    )


if __name__ == "__main__":
    serve(run, write_batches)
