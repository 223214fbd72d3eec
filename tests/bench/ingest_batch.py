"""Ingest of many values from text through Spark: values a second by stage, memory, and the ratio to a pandas script.

Every run is a process of its own, begun when the files are written. A rate is of all readings, the missing ones
included, over the time from the first look at the files to the commit, without the start and the stop of Spark. Memory
is what the system says of each process of the run while it goes: most of its resident pages, and the greatest sum of
proportional shares over all that run Python. The time of processors and the load of the machine before a run tell
whether it had the cores for itself.
"""

import json
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ingest.job import Engine
from tests.bench.ingest_files import Files, write_files
from tests.bench.kriging_figures import Tell
from tests.bench.process_memory import run_watched

VALUES: Final = 100_000_000
PEER_VALUES: Final = 10_000_000
"""Values of the files that pandas reads too: it holds all of them at once."""
GOAL: Final = 1.5e6
"""Values a second that are wanted."""
MOST_BYTES: Final = 4_000_000_000
"""Memory that Python and the JVM may take, each."""
ROOT: Final = Path(__file__).resolve().parents[2]
NOT_COUNTED: Final = ("start Spark", "stop Spark")


def measure(
    values: int, pairs: int, notify: Tell, *, peer_values: int = PEER_VALUES, engine: Engine = "spark"
) -> dict[str, Any]:
    """Return rates, stages and memory with the tests and without, and the ratio to pandas."""
    with tempfile.TemporaryDirectory(prefix="bench-ingest-") as scratch:
        folder = Path(scratch)
        notify("write the files", 0.0)
        files = write_files(folder / "files", values)
        notify("write the files", 1.0)
        runs = {}
        for place, tests in enumerate((True, False)):
            notify("ingest", place / 2)
            runs["with tests" if tests else "without tests"] = _ours(
                files.folder, folder / "archive", engine, tests=tests
            )
        notify("ingest", 1.0)
        few = files if values <= peer_values else write_files(folder / "few", peer_values)
        compared = _compared(few, folder, engine, pairs, notify)
    rate = runs["with tests"]["values_a_second"]
    memory = runs["with tests"]["memory"]
    return {
        "files": {
            "values": files.values, "bytes": files.size_bytes, "stations": files.stations,
            "rows_a_station": files.rows_a_station, "shapes": ["csv, wide", "sensorscope"],
        },
        "runs": runs,
        "goals": {
            "values_a_second": {"goal": GOAL, "found": rate, "met": rate >= GOAL},
            "python_bytes": _below(memory["python_sum_bytes"]),
            "jvm_bytes": _below(memory["jvm_bytes"]),
        },
        "pandas": compared,
    }  # fmt: skip


def _below(found: int) -> dict[str, Any]:
    return {"goal": MOST_BYTES, "found": found, "met": found < MOST_BYTES}


def _ours(files: Path, archive: Path, engine: Engine, *, tests: bool) -> dict[str, Any]:
    """Ingest in a process of its own; return rate, stages [s] and memory [bytes]."""
    ran, memory = _process("tests.bench.ingest_run", files, archive, _word(tests=tests), engine)
    seconds: dict[str, float] = ran["seconds"]
    work_s = sum(spent for stage, spent in seconds.items() if stage not in NOT_COUNTED)
    return {
        "readings": ran["readings"],
        "values_a_second": ran["readings"] / work_s,
        "values_a_second_with_start": ran["readings"] / sum(seconds.values()),
        "work_s": work_s,
        "cpu_s": memory.pop("cpu_s"),
        "load_before": memory.pop("load_before"),
        "seconds": seconds,
        "flags": ran["flags"],
        "memory": memory,
    }


def _compared(files: Files, folder: Path, engine: Engine, pairs: int, notify: Tell) -> dict[str, Any]:
    """Run ours and pandas in turns; return medians, ranges and ratios."""
    compared: dict[str, Any] = {"values": files.values, "pairs": pairs}
    for place, tests in enumerate((True, False)):
        ours, theirs, told = [], [], {}
        for pair in range(pairs):
            notify("beside pandas", (place + pair / pairs) / 2)
            ours.append(_ours(files.folder, folder / "few-archive", engine, tests=tests)["values_a_second"])
            asked = (files.folder, folder / "few.zarr", _word(tests=tests))
            told, memory = _process("tests.bench.ingest_pandas", *asked)
            theirs.append(files.values / told["work_s"])
        compared["with tests" if tests else "without tests"] = {
            "ours": _spread(ours),
            "pandas": _spread(theirs),
            "ratio": _spread([one / other for one, other in zip(ours, theirs, strict=True)]),
            "pandas_seconds": told["seconds"],
            "pandas_flagged": told["flagged"],
            "pandas_bytes": memory["python_sum_bytes"],
        }
    notify("beside pandas", 1.0)
    return compared


def _spread(found: list[float]) -> dict[str, float]:
    return {"median": statistics.median(found), "least": min(found), "most": max(found)}


def _word(*, tests: bool) -> str:
    return "tests" if tests else "plain"


def _process(module: str, *asked: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    load = os.getloadavg()[0]
    printed, peaks = run_watched([sys.executable, "-m", module, *map(str, asked)], ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(printed), {**peaks, "cpu_s": cpu_s, "load_before": load}


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return the tables that people read."""
    runs: Mapping[str, Any] = measured["runs"]
    stages = dict.fromkeys(stage for run in runs.values() for stage in run["seconds"])
    by_stage = [(stage, *(run["seconds"].get(stage, 0.0) for run in runs.values())) for stage in stages]
    by_stage.append(("million values a second", *(run["values_a_second"] / 1e6 for run in runs.values())))
    by_stage.append(("processors' time [s]", *(run["cpu_s"] for run in runs.values())))
    by_stage.append(("processes that waited before (load)", *(run["load_before"] for run in runs.values())))
    by_stage.append(("Python [GB]", *(run["memory"]["python_sum_bytes"] / 1e9 for run in runs.values())))
    by_stage.append(("JVM [GB]", *(run["memory"]["jvm_bytes"] / 1e9 for run in runs.values())))
    goals = [(name, goal["goal"], goal["found"], goal["met"]) for name, goal in measured["goals"].items()]
    beside = [
        (tests, who, *(measured["pandas"][tests][who][name] for name in ("median", "least", "most")))
        for tests in runs
        for who in ("ours", "pandas", "ratio")
    ]
    count, few = measured["files"]["values"], measured["pandas"]["values"]
    return [
        (f"Ingest of {count:,} values through Spark: seconds", ("stage", *runs), by_stage),
        ("Goals", ("what", "goal", "found", "met"), goals),
        (f"Beside pandas: values a second of {few:,}", ("tests", "who", "median", "least", "most"), beside),
    ]
