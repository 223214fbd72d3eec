"""Create the AppCDS archive: run Spark once, and store the classes that it loaded.

``python -m ingest.spark.appcds`` creates it if it is missing. The archive saves each later start some five seconds and
takes half a minute once, so set-up runs this in the background at the lowest priority. The archive is created
atomically, by one process at a time.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from hypergrid.core.errors import HyperGridError
from ingest.spark.session import (
    QUICK_OPTIONS,
    ClassArchive,
    Java,
    cache_folder,
    class_archive,
    find_java,
    session,
    stop,
)


def make_archive() -> tuple[Java, ClassArchive]:
    """Create the archive for the Java that is found, unless it exists.

    Starts a Spark session of its own: call it in a process that has none.

    Raises
    ------
    NotFound
        No Java was found.
    OSError
        The cache is not writable, or Java did not create an archive.
    """
    java = find_java()
    wanted = class_archive(java)
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "archive.lock").open("w") as lock,
        tempfile.TemporaryDirectory(dir=folder, prefix=".draft-") as draft_folder,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.base is not None and not wanted.base.is_file():
            draft = Path(draft_folder) / wanted.base.name
            dump = (java.executable, "-Xshare:dump", "-Xlog:disable", f"-XX:SharedArchiveFile={draft}")
            subprocess.run(dump, check=False, capture_output=True)
            _publish(draft, wanted.base)
        if not wanted.top.is_file():
            draft = Path(draft_folder) / wanted.top.name
            below = () if wanted.base is None else (f"-XX:SharedArchiveFile={wanted.base}",)
            running = session(java_options=(*QUICK_OPTIONS, *below, f"-XX:ArchiveClassesAtExit={draft}"))
            try:
                _exercise(running)
            finally:
                stop(running, patience_s=600.0)
            _publish(draft, wanted.top)
    return java, wanted


def _publish(draft: Path, final: Path) -> None:
    if not draft.is_file():
        raise OSError(f"Java made no archive {final.name}; Spark works without it, and starts slower")
    # Atomic, so that no other process sees a partial archive.
    draft.replace(final)


def _exercise(running: SparkSession) -> None:
    """Load the classes of an ingest: Arrow to and from workers, a shuffle, the result."""
    numbers = running.range(1000).repartition(2)
    passed = numbers.mapInArrow(_unchanged, "id long")
    passed.groupBy((passed.id % 3).alias("rest")).count().orderBy("rest").toArrow()
    running.createDataFrame([("a", 1), ("b", 2)], "name string, size long").mapInArrow(
        _unchanged, "name string, size long"
    ).collect()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def main() -> int:
    """Create the archive; a failure is printed and does no harm."""
    with contextlib.suppress(OSError):
        os.nice(19)
    try:
        java, made = make_archive()
    except (HyperGridError, OSError) as problem:
        print(f"no AppCDS archive: {problem}", file=sys.stderr)
        return 0
    size_mb = made.top.stat().st_size / 1e6
    print(f"AppCDS archive of Java {java.feature} ({java.origin}): {made.top.name}, {size_mb:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
