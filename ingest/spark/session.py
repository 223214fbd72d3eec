"""Start and stop one quiet Spark session.

Without a master Spark stays on this machine: bound to the loopback address, without its web page, with its temporary
files under the system's temporary folder, where they are removed at the end. The environment is changed only while the
session starts. With a master the driver runs here and the work is done by the executors of a cluster, which must have
this Python and the archive under the same paths.
"""

import atexit
import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

import hypergrid
from hypergrid.core.errors import NotFound
from ingest.spark.java import find_java, make_home, start_options

DRIVER_MEMORY = "1g"
"""Heap of the JVM, which only passes Arrow batches between files and Python workers."""

LOOPBACK = "127.0.0.1"

_IMPORTED_FROM = str(Path(hypergrid.__file__).resolve().parents[1])
"""Root of the checkout, or of the installed wheel."""
_PATIENCE_S = 10.0
GONE = (Py4JError, OSError)
"""Errors of calls into a JVM that died."""

TRIES = 3
"""Attempts per task: if a worker dies because memory is short, another one retries its task."""

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def session(
    *,
    cores: int | None = None,
    master: str | None = None,
    app: str = "hypergrid",
    java_options: tuple[str, ...] | None = None,
) -> SparkSession:
    """Start a Spark session, or return the one that this process already has.

    Parameters
    ----------
    cores
        Executor threads; default: all cores of the machine, or of the cluster.
    master
        Address of a cluster's master, spark://HOST:PORT; default: this machine only.
    app
        Name of the application.
    java_options
        JVM options instead of `ingest.spark.java.start_options`.

    Raises
    ------
    hypergrid.core.errors.NotFound
        There is no Java 17 or newer, or the master does not answer.

    Notes
    -----
    End it with `stop`, or use `spark_session`.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    java = find_java()
    scratch = Path(tempfile.mkdtemp(prefix="hypergrid-spark-"))
    # Removed even if `stop` is never called.
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    options = (
        *(start_options(java) if java_options is None else java_options),
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    )
    settings: dict[str, bool | float | int | str | None] = {
        # Quoted, because the path of the temporary folder may contain a blank.
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in options),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # The default of 200 partitions is useless on a handful of cores.
        "spark.sql.shuffle.partitions": str(cores or os.cpu_count() or 1),
    }
    is_local = master is None or urlsplit(master).hostname in ("localhost", LOOPBACK)
    if is_local:
        settings |= {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
    if master is not None:
        _check_answers(master)
        settings |= {
            # Executors import the driver's packages from the same paths; one thread per task, because tasks share the
            # cores.
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(
                path for path in (_IMPORTED_FROM, os.environ.get("PYTHONPATH")) if path
            ),
            "spark.executorEnv.NUMBA_NUM_THREADS": "1",
            "spark.executor.memory": DRIVER_MEMORY,
            **({} if cores is None else {"spark.cores.max": cores}),
        }
    environment = {
        "JAVA_HOME": str(make_home(java)),
        # Otherwise another Spark on the machine could be started instead of the locked one.
        "SPARK_HOME": _spark_home(),
        **({"SPARK_LOCAL_IP": LOOPBACK} if is_local else {}),
        # Workers must run this Python, or they lack pyarrow.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Options of the launcher JVM, which only assembles the command of the real one.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto",
    }
    builder = SparkSession.builder.appName(app).master(master or f"local[{cores or '*'},{TRIES}]").config(map=settings)
    with _changed_environment(environment), _new_session(), _hold_interrupts() as interrupted:
        try:
            running = builder.getOrCreate()
        except BaseException:
            abandon(scratch)
            raise
        # If the JVM dies, both print tracebacks; its death is reported elsewhere in one sentence.
        logging.getLogger().addFilter(_is_not_of_the_gateway)
        running.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        if interrupted():
            stop(running)
        return running


def _is_not_of_the_gateway(record: logging.LogRecord) -> bool:
    """Tell whether a record of the root logger does not come from py4j."""
    return record.module not in ("java_gateway", "clientserver")


def _check_answers(master: str) -> None:
    """Raise `NotFound` if no master listens at the address."""
    # Spark would retry for minutes, and then end by itself.
    address = urlsplit(master)
    try:
        if address.scheme != "spark" or address.hostname is None:
            raise NotFound(f"a master is spark://HOST:PORT; got {master!r}")
        with socket.create_connection((address.hostname, address.port or 7077), timeout=_PATIENCE_S):
            return
    except (OSError, ValueError) as error:
        raise NotFound(
            f"no Spark master answers at {master} ({error}); start it, or leave --master out to work here"
        ) from error


@contextlib.contextmanager
def _new_session() -> Iterator[None]:
    """Start the JVM in a process session of its own, out of reach of signals."""
    # It still ends with this process, however that ends, because the other end of its input is then closed.
    before = java_gateway.Popen
    java_gateway.Popen = partial(before, start_new_session=True)  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        java_gateway.Popen = before  # type: ignore[misc]


@contextlib.contextmanager
def _hold_interrupts() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C until the block ends; yields a function that tells whether it was pressed."""
    # An interrupted start would leave an unknown JVM behind. Afterwards Python's own handler is restored instead of
    # Spark's, whose KeyboardInterrupt comes out of the gateway as another error.
    interrupts: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield lambda: bool(interrupts)
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def abandon(scratch: Path | None = None) -> None:
    """Kill the JVM of a failed or lost session, so that another can start."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)


def stop(running: SparkSession, *, patience_s: float = 20.0) -> None:
    """Stop the session and end its JVM, which frees its memory and temporary files.

    A JVM that has not ended by itself within `patience_s` [s] is killed.
    """
    gateway = SparkContext._gateway
    scratch = None
    # A JVM that is already dead, for example killed, cannot be asked.
    with contextlib.suppress(*GONE):
        scratch = running.conf.get("spark.local.dir")
    with contextlib.suppress(*GONE):
        running.stop()
    if gateway is not None:
        # Spark keeps its JVM for a next session until Python ends, but a server that runs for days must not carry it.
        with contextlib.suppress(*GONE):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            # The JVM ends when its input is closed.
            process.stdin.close()
            try:
                process.wait(timeout=patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        _forget(running)
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)


def _forget(running: SparkSession) -> None:
    """Reset pyspark's globals, so that the next session is a new one."""
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


@contextlib.contextmanager
def spark_session(*, cores: int | None = None, app: str = "hypergrid") -> Iterator[SparkSession]:
    """Provide a Spark session that is stopped at the end of the block."""
    running = session(cores=cores, app=app)
    try:
        yield running
    finally:
        stop(running)


def _spark_home() -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the package pyspark was imported and then lost; install the extra 'ingest' again")
    return next(iter(spec.submodule_search_locations))


@contextlib.contextmanager
def _changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
