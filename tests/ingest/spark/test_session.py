"""The local session: quiet, at UTC, on this machine, its workers of this Python."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from ingest.spark import session


def interpreters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"path": [sys.executable] * batch.num_rows})


def test_the_session_stays_here(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.master == "local[2,3]"


def test_the_workers_are_this_python(spark: SparkSession) -> None:
    found = spark.range(4).mapInArrow(interpreters, "path string").toArrow()
    assert set(found["path"].to_pylist()) == {sys.executable}


def test_the_environment_is_as_it_was(spark: SparkSession) -> None:
    assert not {"PYSPARK_DRIVER_PYTHON", "SPARK_LAUNCHER_OPTS"} & os.environ.keys()


def test_a_connection_that_breaks_off_prints_no_traceback(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    # As socketserver calls it where a handler raised, and as py4j logs; both print tracebacks otherwise.
    try:
        raise EOFError
    except EOFError:
        spark.sparkContext._accumulatorServer.handle_error(None, ("127.0.0.1", 1))  # type: ignore[arg-type]
    gateway = logging.LogRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "sending", None, None)
    ours = logging.LogRecord("root", logging.ERROR, "/x/ours.py", 1, "ours", None, None)
    assert (logging.getLogger().filter(gateway), bool(logging.getLogger().filter(ours))) == (False, True)
    assert "".join(capsys.readouterr()) == ""


def run(program: str, folder: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, with its temporary files in another."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


# Twice in one process: the second one needs a JVM of its own.
@pytest.mark.parametrize("times", [1, 2])
def test_a_session_is_quiet_and_leaves_nothing(times: int, tmp_path: Path) -> None:
    program = (
        "from ingest.spark.session import session, stop\n"
        f"for _ in range({times}):\n"
        "    spark = session(cores=1)\n"
        "    assert spark.range(10).count() == 10\n"
        "    stop(spark)\n"
    )
    folder, scratch = tmp_path / "here", tmp_path / "scratch with blanks"
    folder.mkdir()
    scratch.mkdir()
    answer = run(program, folder, scratch)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert list(folder.iterdir()) == []
    assert list(scratch.iterdir()) == []


def test_a_jvm_that_no_longer_answers_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from pyspark import SparkContext\n"
        "from ingest.spark.session import session, stop\n"
        "spark = session(cores=1)\n"
        "frozen = SparkContext._gateway.proc\n"
        "os.kill(frozen.pid, signal.SIGSTOP)\n"
        "stop(spark, patience_s=2.0)\n"
        "assert frozen.returncode == -signal.SIGKILL\n"
        "assert SparkContext._gateway is None\n"
    )
    answer = run(program, tmp_path, tmp_path)
    # pyspark warns that it could not end the JVM.
    assert (answer.returncode, answer.stdout) == (0, "")
    assert "Traceback" not in answer.stderr
    assert list(tmp_path.glob("hypergrid-spark-*")) == []


class BrokenSession:
    """A session that cannot be stopped."""

    def stop(self) -> None:
        raise AssertionError("no session")


def test_an_error_while_stopping_is_raised_once_all_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(session, "_SCRATCH", [folder])
    with pytest.raises(AssertionError, match="no session"):
        session.stop(BrokenSession())  # type: ignore[arg-type]
    assert not folder.exists()
