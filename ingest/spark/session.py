"""One quiet Spark session, and its end.

Without a master Spark stays on this machine: bound to the loopback address, without its web page, its temporary files
under the system's temporary folder and gone afterwards. The environment is changed only while the session starts. With
a master the driver is here and the work is done by the executors of a cluster, which see this Python, and the archive,
under the same paths.
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
"""Heap of the JVM: it only passes Arrow batches between files and Python workers."""

LOOPBACK = "127.0.0.1"

_IMPORTED_FROM = str(Path(hypergrid.__file__).resolve().parents[1])
"""A checkout, or where a wheel was installed."""
_PATIENCE_S = 10.0
GONE = (Py4JError, OSError)
"""What asking a JVM that died raises."""

TRIES = 3
"""How often a task is tried: one whose worker died, for memory was short, is done by another."""

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def session(
    *,
    cores: int | None = None,
    master: str | None = None,
    app: str = "hypergrid",
    java_options: tuple[str, ...] | None = None,
) -> SparkSession:
    """Start a Spark session, or give the one that this process already has.

    Parameters
    ----------
    cores
        Executor threads; all cores of the machine, or of the cluster, by default.
    master
        Where a cluster's master listens, spark://HOST:PORT; this machine alone by default.
    app
        The name of the application.
    java_options
        Options of the JVM in place of `ingest.spark.java.start_options`.

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
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    options = (
        *(start_options(java) if java_options is None else java_options),
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    )
    settings: dict[str, bool | float | int | str | None] = {
        # In quotes, for the temporary folder's path may hold a blank.
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in options),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A handful of cores has no use for the default of 200 pieces.
        "spark.sql.shuffle.partitions": str(cores or os.cpu_count() or 1),
    }
    is_local = master is None or urlsplit(master).hostname in ("localhost", LOOPBACK)
    if is_local:
        settings |= {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
    if master is not None:
        _check_answers(master)
        settings |= {
            # Executors import what the driver imports, wherever that lies; one thread a task, as tasks share the cores.
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(
                path for path in (_IMPORTED_FROM, os.environ.get("PYTHONPATH")) if path
            ),
            "spark.executorEnv.NUMBA_NUM_THREADS": "1",
            "spark.executor.memory": DRIVER_MEMORY,
            **({} if cores is None else {"spark.cores.max": cores}),
        }
    environment = {
        "JAVA_HOME": str(make_home(java)),
        # Another Spark on the machine would be started in place of the locked one.
        "SPARK_HOME": _spark_home(),
        **({"SPARK_LOCAL_IP": LOOPBACK} if is_local else {}),
        # The workers must be this Python, or they miss pyarrow.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # The JVM that only assembles the command of the real one.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto",
    }
    builder = SparkSession.builder.appName(app).master(master or f"local[{cores or '*'},{TRIES}]").config(map=settings)
    with _changed_environment(environment), _new_session(), _hold_interrupts() as interrupted:
        try:
            running = builder.getOrCreate()
        except BaseException:
            abandon(scratch)
            raise
        # Where the JVM dies, both print tracebacks; that it died is told elsewhere, in a sentence.
        logging.getLogger().addFilter(_is_not_of_the_gateway)
        running.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        if interrupted():
            stop(running)
        return running


def _is_not_of_the_gateway(record: logging.LogRecord) -> bool:
    """Tell whether a record of the root's log is not one that py4j wrote there."""
    return record.module not in ("java_gateway", "clientserver")


def _check_answers(master: str) -> None:
    """Raise `NotFound` where nobody listens at a master: Spark would ask it for minutes, and then end by itself."""
    address = urlsplit(master)
    try:
        if address.scheme != "spark" or address.hostname is None:
            message = f"a master is spark://HOST:PORT; got {master!r}"
            raise NotFound(message)
        with socket.create_connection((address.hostname, address.port or 7077), timeout=_PATIENCE_S):
            return
    except (OSError, ValueError) as error:
        message = f"no Spark master answers at {master} ({error}); start it, or leave --master out to work here"
        raise NotFound(message) from error


@contextlib.contextmanager
def _new_session() -> Iterator[None]:
    """Have the JVM begin a session of its own: a signal to our process group ends it only once we let go of it.

    It ends with us however we end, for then nobody holds the other end of its input.
    """
    before = java_gateway.Popen
    java_gateway.Popen = partial(before, start_new_session=True)  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        java_gateway.Popen = before  # type: ignore[misc]


@contextlib.contextmanager
def _hold_interrupts() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C until the block ends; yields what tells whether it came.

    A start that is cut in the middle leaves a JVM that nobody knows of. Afterwards Python's own handler is back in the
    place of the one that Spark installs, whose KeyboardInterrupt comes out of the gateway as another error.
    """
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
    """End the JVM of a session that did not come to be, or was lost; another can be started then."""
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
    """Stop the session and end its JVM, so that neither memory nor a temporary file stays behind.

    A JVM that has not ended by itself within `patience_s` [s] is killed.
    """
    gateway = SparkContext._gateway
    scratch = None
    # A JVM that is gone already, for somebody killed it, cannot be asked.
    with contextlib.suppress(*GONE):
        scratch = running.conf.get("spark.local.dir")
    with contextlib.suppress(*GONE):
        running.stop()
    if gateway is not None:
        # Spark keeps its JVM for a next session until Python ends; a page that is served for days must not carry it.
        with contextlib.suppress(*GONE):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
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
    """Let the next session be a new one, also where the JVM could not tell this one that it ended."""
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


@contextlib.contextmanager
def spark_session(*, cores: int | None = None, app: str = "hypergrid") -> Iterator[SparkSession]:
    """Give a Spark session that is stopped at the end of the block."""
    running = session(cores=cores, app=app)
    try:
        yield running
    finally:
        stop(running)


def _spark_home() -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        message = "the package pyspark was imported and then lost; install the extra 'ingest' again"
        raise ModuleNotFoundError(message)
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
