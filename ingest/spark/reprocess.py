"""Reprocessing on Spark's executors: parts and pieces out, what is to be noted of them back.

Flags and surfaces do not travel through the JVM: a task writes them into the archive's folder, which all executors
share.
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
    """The executors of a session, as `ingest.reprocess.partitions.Workers`."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @property
    def count(self) -> int:
        """How many tasks are at work at once; executors of a cluster come one after the other."""
        return int(self._context.defaultParallelism)

    def map(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """Return what came of each task, in their order.

        Raises
        ------
        HyperGridError, OSError
            What a task raised; or executors were lost.
        """

        def run(task: Any) -> tuple[Any, Exception | None]:  # noqa: ANN401 - whatever `work` takes
            # Tasks share the cores already; threads in each would only compete.
            pa.set_cpu_count(1)
            try:
                return work(task), None
            except (HyperGridError, OSError) as error:
                return None, error

        try:
            outcomes = self._context.parallelize(tasks, len(tasks)).map(run).collect()
        except (PySparkException, Py4JError) as error:
            message = f"Spark could not end a task ({_cause(error)}); give the same command again: it goes on"
            raise HyperGridError(message) from error
        for _, problem in outcomes:
            if problem is not None:
                raise problem
        return [result for result, _ in outcomes]


def _cause(error: Exception) -> str:
    """Return the one line of a Java trace that says what went wrong."""
    lines = str(error).strip().splitlines()
    causes = [line.partition("SparkException: ")[2] for line in lines if "SparkException: " in line]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0]


@contextmanager
def executors(*, master: str | None = None, cores: int | None = None) -> Iterator[Executors]:
    """Give the executors of a session; one that runs already is used and left running.

    Parameters
    ----------
    master
        A cluster, spark://HOST:PORT; None: this machine.
    cores
        Cores of this machine, or of all executors; all where absent.

    Raises
    ------
    hypergrid.core.errors.NotFound
        There is no Java 17 or newer, or nobody answers at the master.
    """
    was_running = SparkContext._active_spark_context is not None
    spark = session(cores=cores, master=master)
    try:
        yield Executors(spark)
    finally:
        if not was_running:
            stop(spark)
