"""Reprocess on Spark's executors: tasks receive partitions, and return records of their results.

Flags and surfaces do not pass through the JVM: tasks write them into the archive's folder, which all executors share.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hypergrid.core.errors import HyperGridError
from ingest.spark.session import session, stop


class Executors:
    """Executors of a session, as `ingest.reprocess.partitions.Workers`."""

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
