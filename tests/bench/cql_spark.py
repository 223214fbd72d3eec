"""A back-test of three years of 200 stations: by one process, and on Spark with one core, two, and a cluster of two.

`measure_spark` makes an archive (`reprocess_archive`), and runs `hypergrid cql backtest` on it, each way in a process
of its own, timed from its start to its end; the files that they write must be equal byte for byte.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.reprocess_archive import make_archive
from tests.ingest.spark.cluster import Cluster

QUERIES: Final = {
    "by station": """Select station, avg(value) as mean, max(value) as most, count(*) as readings
From air_temperature [Range 1 Day Slide 1 Day] Group By station""",
    "by time": """Select avg(value) as mean, max(value) as most, count(distinct station) as stations
From air_temperature [Range 1 Day Slide 1 Hour]""",
}
"""Text by what the query may be split by."""


def measure_spark(
    days: int = 1095,
    stations: int = 200,
    *,
    cores: Sequence[int] = (1, 2),
    with_cluster: bool = True,
    splits: Sequence[str] = tuple(QUERIES),
    notify: Callable[[str, float], None] = lambda _stage, _done: None,
) -> dict[str, Any]:
    """Return the times of each way [s], the tasks of each, and whether all wrote the same file."""
    with tempfile.TemporaryDirectory(prefix="hypergrid-cql-spark-") as name:
        folder = Path(name)
        notify("archive", 0.0)
        make_archive(folder / "archive", days=days, stations=stations)
        ways: dict[str, tuple[str, ...]] = {
            "one process": (),
            **{f"Spark, cores: {count}": ("--spark", "--cores", str(count)) for count in cores},
        }
        cluster: Cluster | None = None
        if with_cluster:
            (folder / "cluster").mkdir()
            cluster = Cluster(folder / "cluster")
            ways["a cluster of two workers"] = ("--spark", "--master", cluster.master)
        try:
            runs = [
                _run(folder, split, way, options, notify=notify) for split in splits for way, options in ways.items()
            ]
        finally:
            if cluster is not None:
                cluster.end()
    for split in splits:
        written = {run["sha256"] for run in runs if run["split"] == split}
        assert len(written) == 1, f"the ways of the query {split} wrote different files: {runs}"
    return {"readings": days * 144 * stations, "runs": runs}


def _run(
    folder: Path, split: str, way: str, options: tuple[str, ...], *, notify: Callable[[str, float], None]
) -> dict[str, Any]:
    notify(f"{way}, {split}", 0.0)
    query, out = folder / "query.cql", folder / "out.csv"
    query.write_text(QUERIES[split])
    started_s = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "hypergrid", "cql", "backtest", str(folder / "archive"), str(query), *options,
         "-o", str(out), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - started_s
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    out.unlink()
    return {
        "split": split,
        "way": way,
        "seconds": round(seconds, 1),
        "tasks": report.get("tasks", 1),
        "rows": report["rows"],
        "sha256": digest,
    }


def spark_table(measured: dict[str, Any]) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Return the runs as a table for people: title, columns, rows."""
    rows = [
        (run["split"], run["way"], f"{run['seconds']:.1f}", f"{run['tasks']}", f"{run['rows']:,}")
        for run in measured["runs"]
    ]
    title = f"back-tests of {measured['readings']:,} readings, each way with the same file"
    return title, ("query", "way", "seconds", "tasks", "rows"), rows
