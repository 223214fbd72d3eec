"""Parse and reprocess on Spark's executors.

Tasks receive chunks of files, or partitions of an archive, and return summaries. Rows, flags and surfaces do not pass
through the JVM: tasks write them to the archive's folder, where the driver reads them. The folder must therefore be
shared by all executors, which it is on one machine.
"""

import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hypergrid.core.errors import HyperGridError
from ingest.batch.report import Stages
from ingest.batch.staging import SUMMARY, StagedChunk, stage
from ingest.sources.folder import Chunk
from ingest.spark.session import GONE, session, stop

_SUMMARY_DDL = ", ".join(
    f"{field.name} {'array<string>' if pa.types.is_list(field.type) else 'long'}" for field in SUMMARY
)
LOST = (*GONE, PySparkException)
CRASHED = ("exited unexpectedly", "JAVA_GATEWAY_EXITED")
"""Messages of Spark about a worker or JVM that died, as opposed to a Python error in a worker."""


def stage_on_spark(chunks: Sequence[Chunk], folder: Path, stages: Stages) -> list[StagedChunk]:
    """Parse and stage the chunks on all cores; return the staged chunks in order.

    A running session is used and left running; one that is started here is stopped.
    """
    # The session may have been started by another thread, for which it is not the "active" one here.
    was_running = SparkContext._active_spark_context is not None
    with stages.stage("start Spark"), _translate_loss():
        spark = session()
    try:
        with stages.stage("parse"), _translate_loss(), _watch_progress(folder, len(chunks), stages):
            return _stage(spark, chunks, folder)
    finally:
        if not was_running:
            with stages.stage("stop Spark"):
                stop(spark)


@contextmanager
def _translate_loss() -> Iterator[None]:
    """Translate the loss of the JVM or of workers into an error of this program."""
    try:
        yield
    except LOST as error:
        if isinstance(error, PySparkException) and not any(mark in str(error) for mark in CRASHED):
            raise
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
        raise HyperGridError(
            f"Spark, which parses the files, was lost ({reason}); nothing was committed; run it again"
        ) from error


def _stage(spark: SparkSession, chunks: Sequence[Chunk], folder: Path) -> list[StagedChunk]:
    if not chunks:
        return []
    folder_name = str(folder)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Tasks already share the cores; threads within each would only compete.
        pa.set_cpu_count(1)
        for batch in batches:
            for packed in batch.column(0):
                staged = stage(pickle.loads(packed.as_py()), Path(folder_name))
                yield pa.RecordBatch.from_pylist([asdict(staged)], schema=SUMMARY)

    tasks = pa.table({"chunk": pa.array([pickle.dumps(chunk) for chunk in _deal_chunks(chunks, spark)], pa.binary())})
    summaries = spark.createDataFrame(tasks).mapInArrow(run, _SUMMARY_DDL).toArrow()
    staged = sorted(
        (StagedChunk.from_record(record) for record in summaries.to_pylist()), key=lambda chunk: chunk.number
    )
    if [chunk.number for chunk in staged] != [chunk.number for chunk in chunks]:
        raise RuntimeError(
            f"Spark was given {len(chunks)} chunks and returned {len(staged)}; nothing was committed; run it again"
        )
    return staged


def _deal_chunks(chunks: Sequence[Chunk], spark: SparkSession) -> list[Chunk]:
    """Order the chunks so that runs of equal length have similar sizes in bytes."""
    # Spark cuts the list into tasks of equally many chunks.
    hands = spark.sparkContext.defaultParallelism
    by_size = sorted(chunks, key=lambda chunk: chunk.start - chunk.stop)
    return [chunk for hand in range(hands) for chunk in by_size[hand::hands]]


@contextmanager
def _watch_progress(folder: Path, total: int, stages: Stages) -> Iterator[None]:
    """Report the fraction of staged chunks while the driver waits for Spark."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            staged = {name.split("-")[1] for name in os.listdir(folder) if name.endswith(".parquet")}
            stages.report_progress("parse", min(0.99, len(staged) / max(1, total)))

    watcher = threading.Thread(target=watch, name="ingest progress", daemon=True)
    if stages.listener is not None:
        watcher.start()
    try:
        yield
    finally:
        done.set()
        if watcher.is_alive():
            watcher.join()


class Executors:
    """Executors of a session, as `ingest.reprocess.job.Workers`."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @property
    def count(self) -> int:
        """Number of concurrent tasks; executors of a cluster register one after the other."""
        return int(self._context.defaultParallelism)

    def map(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """Run `work` on each task; return the results in order.

        Raises
        ------
        HyperGridError, OSError
            An error of a task, or the loss of executors.
        """

        def run(task: Any) -> tuple[Any, Exception | None]:  # noqa: ANN401 - whatever `work` takes
            # Tasks already share the cores; threads within each would only compete.
            pa.set_cpu_count(1)
            try:
                return work(task), None
            # Returned instead of raised, so that the caller gets the original error.
            except (HyperGridError, OSError) as error:
                return None, error

        try:
            outcomes = self._context.parallelize(tasks, len(tasks)).map(run).collect()
        except (PySparkException, Py4JError) as error:
            raise HyperGridError(
                f"Spark could not end a task ({_cause(error)}); give the same command again: it goes on"
            ) from error
        for _, problem in outcomes:
            if problem is not None:
                raise problem
        return [result for result, _ in outcomes]


def _cause(error: Exception) -> str:
    """Extract the line of a Java stack trace that names the cause."""
    lines = str(error).strip().splitlines()
    causes = [line.partition("SparkException: ")[2] for line in lines if "SparkException: " in line]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0]


@contextmanager
def executors(*, master: str | None = None, cores: int | None = None) -> Iterator[Executors]:
    """Provide the executors of a session; a running session is used and left running.

    Parameters
    ----------
    master
        Master of a cluster, spark://HOST:PORT; None: this machine.
    cores
        Cores of this machine, or of all executors; None: all.

    Raises
    ------
    hypergrid.core.errors.NotFound
        There is no Java 17 or newer, or the master does not answer.
    """
    was_running = SparkContext._active_spark_context is not None
    spark = session(cores=cores, master=master)
    try:
        yield Executors(spark)
    finally:
        if not was_running:
            stop(spark)
