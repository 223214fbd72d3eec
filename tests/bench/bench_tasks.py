"""Ten tasks of a station network: by hand with pandas, xarray and PyKrige, with gridpp, and with HyperGrid.

Each solution is a file of `tests/bench/tasks`, as short and as good as its author could make it. Lines are those of
code: no blank ones, comments or docstrings. Seconds are the median of several runs after a first one, which imports and
compiles, and is listed too. Both sides prepare the files once: by hand into a table of cleaned readings, with HyperGrid
into an archive. Errors are against the truth of the sample network.
"""

import ast
import gc
import importlib
import importlib.util
import io
import os
import platform
import statistics
import tempfile
import time
import tokenize
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from hypergrid.core.version import VERSION
from hypergrid.interpolation.weight_cache import WEIGHTS
from station_data.generate import generate
from station_data.terrain import write_terrain
from tests.bench.task_judging import TASKS, write_catchments

Tell = Callable[[str, float], None]

CASES: Final = ("all", *TASKS)
FOLDER: Final = Path(__file__).parent / "tasks"
PEERS: Final = ("by_hand", "gridpp", "hypergrid")
PREPARE: Final = "prepare"
DAYS: Final = 9
CLOCK: Final = '\n[quality.clock_shift_h]\n"9" = -2.0\n'
"""Both sides know that one clock is off; HyperGrid reports it when it ingests."""
_NO_CODE: Final = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    tokenize.ENCODING,
}  # fmt: skip


def measure(case: str = "all", *, pairs: int = 3, notify: Tell = lambda *_: None) -> dict[str, Any]:
    """Return lines, seconds and errors of each solution.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Runs that a median is of.
    notify
        Receives the stage and the share of it that is done.
    """
    chosen = list(TASKS) if case == "all" else [case]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(Path(folder) / "data")
        prepared = [solve(PREPARE, peer, data, runs=1)[1] for peer in PEERS if has_solution(PREPARE, peer)]
        for number, name in enumerate(chosen):
            notify("tasks", number / len(chosen))
            for peer in PEERS:
                if has_solution(name, peer):
                    rows.append(judge(name, peer, data, runs=pairs))
    notify("tasks", 1.0)
    return {
        "case": f"ten tasks, {case}", "command": "hypergrid bench tasks --json", "machine": describe_machine(),
        "prepare": prepared, "tasks": rows,
    }  # fmt: skip


def make_data(data: Path) -> Path:
    """Make the files that all solutions read: CSV of nine days, stations, arrivals, terrain, catchments."""
    generate(data, start="2007-09-26", days=DAYS, formats=("csv",))
    deployment = data / "deployment.toml"
    deployment.write_text(deployment.read_text() + CLOCK)
    write_terrain(data / "dem.tif")
    write_catchments(data / "catchments.geojson")
    return data


def has_solution(name: str, peer: str) -> bool:
    return (FOLDER / f"{name}_{peer}.py").is_file()


def judge(name: str, peer: str, data: Path, *, runs: int) -> dict[str, Any]:
    """Run a solution and judge its answer; one whose library is not installed says so."""
    if peer == "gridpp" and importlib.util.find_spec("gridpp") is None:
        return {"task": name, "peer": peer, "lines": count_lines(FOLDER / f"{name}_{peer}.py"), "absent": "gridpp"}
    answer, row = solve(name, peer, data, runs=runs)
    return {**row, "errors": TASKS[name].judge(answer, data), "unit": TASKS[name].unit}


def solve(name: str, peer: str, data: Path, *, runs: int) -> tuple[Any, dict[str, Any]]:
    """Run a solution once, and then some times more; return its answer, lines and seconds."""
    started = time.perf_counter()
    module = importlib.import_module(f"tests.bench.tasks.{name}_{peer}")
    answer = module.answer(data)
    first_s = time.perf_counter() - started
    seconds = []
    for _ in range(runs):
        # What HyperGrid keeps from one query to the next would make the second run no run.
        WEIGHTS.clear()
        gc.collect()
        started = time.perf_counter()
        answer = module.answer(data)
        seconds.append(time.perf_counter() - started)
    row = {
        "task": name, "peer": peer, "lines": count_lines(FOLDER / f"{name}_{peer}.py"), "first_s": round(first_s, 3),
        "seconds": round(statistics.median(seconds or [first_s]), 3),
    }  # fmt: skip
    return answer, row


def count_lines(path: Path) -> int:
    """Count the lines of code of a file, without blank ones, comments and docstrings."""
    source = path.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.FunctionDef) and body and ast.get_docstring(node) is not None:
            lines -= set(range(body[0].lineno, (body[0].end_lineno or body[0].lineno) + 1))
    return len(lines)


def describe_machine() -> dict[str, str]:
    names = ("numpy", "pandas", "xarray", "PyKrige", *(["gridpp"] if importlib.util.find_spec("gridpp") else []))
    libraries = ", ".join(f"{name} {version(name)}" for name in names)
    return {"processors": str(os.cpu_count()), "python": platform.python_version(), "libraries": libraries,
            "hypergrid": VERSION}  # fmt: skip


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Return the measurements as tables for people: title, columns, rows."""
    columns = ("task", "by", "lines", "seconds", "first run [s]", "error", "and")
    rows = [_format_row(row) for row in (*measured["prepare"], *measured["tasks"])]
    return [(measured["case"], columns, rows)]


def _format_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    begin = (row["task"], row["peer"].replace("_", " "), str(row["lines"]))
    if "absent" in row:
        return (*begin, "not installed", "", "", "")
    errors = [f"{name} {value:.3g}" for name, value in row.get("errors", {}).items()]
    first = f"{errors[0]} {row['unit']}" if errors else ""
    return (*begin, f"{row['seconds']:.3g}", f"{row['first_s']:.3g}", first, ", ".join(errors[1:]))
