"""Peers of `bench_cql` that run apart: Spark, and bytewax, csp, Flink and others in environments of `make cql-peers`.

Each is a program (`cql_peers_NAME.py`) that the Python of its environment runs, on the core that the engine has. Rates
are of the second half of the rows, of both: the processor time for all rows less that for the first half, so that what
each run costs once is left out. The rows of the first half are compared with the engine's. Instants of readings are
whole milliseconds, each once, as Flink and pyclink have no finer ones.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from hypergrid.continuous.engine import ChangeBatch, ElementBatch
from tests.bench.cql_peers import HOUR_NS, Columns, compare

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 240
"""Longest time of one program."""
BATCH: Final = 65536
"""Rows of the engine's batches beside a peer without batches."""
WHOLE: Final = 1 << 40
"""Rows of a batch that takes all of the input."""
LEAST_SHARE: Final = 0.2
"""Part of a run that its second half must take, at least, for its rate to be computed."""
OWN_RUNS: Final = 5
"""Runs of the engine in a round, of which the median counts: they are short."""
RunEngine = Callable[[str, Mapping[str, ElementBatch], int], list[ChangeBatch]]
"""Takes a workload, its input and rows of a batch."""
Tell = Callable[[str, float], None]


class Peer(NamedTuple):
    """A program beside the engine, in an environment below `.venv` or, without one, in that of the project."""

    environment: str | None
    aim: float
    """The engine's rate over its that we aim at."""
    batches: tuple[int, ...] = ()
    """Rows that it takes at once; empty where it cannot be set."""
    most_rows: Mapping[str, int] = MappingProxyType({})
    """Greatest inputs."""


PROGRAMS: Final[Mapping[str, Peer]] = {
    "bytewax": Peer("cql-peers", 20.0, (4096, 65536), {"filter": 1_000_000}),
    "csp": Peer("cql-peers", 5.0, (), {"filter": 1_000_000}),
    "flink": Peer("cql-peers-flink", 5.0, (), {"filter": 400_000, "sliding_mean": 200_000}),
    # For the sliding mean it keeps pairs of readings: sixty for each.
    "pathway": Peer("cql-peers", 5.0, (), {"filter": 200_000, "sliding_mean": 30_000, "hourly_mean": 300_000}),
    "spark": Peer(None, 5.0, (65536, WHOLE), {"sliding_mean": 300_000, "hourly_mean": 500_000}),
    "laminardb": Peer("cql-peers", 0.5, (4096, 65536), {"filter": 1_000_000}),
    "pyclink": Peer("cql-peers", 0.5, (), {"filter": 1_000_000}),
}
NAMES: Final = {"filter": ("A", "B", "C")} | dict.fromkeys(("sliding_mean", "hourly_mean"), ("station", "value"))
RESULT: Final = {"filter": ("tau",)} | dict.fromkeys(("sliding_mean", "hourly_mean"), ("tau", "station", "mean"))


def find_python(environment: str | None) -> Path | None:
    """Return the Python of an environment, or nothing where `make cql-peers` has not made it."""
    if environment is None:
        return Path(sys.executable)
    python = ROOT / ".venv" / environment / "bin" / "python"
    return python if python.exists() else None


def name_batch(batch: int | None) -> str:
    """Return the size of a batch for people."""
    return "" if batch is None else "whole" if batch == WHOLE else f"{batch:,}"


def round_instants(feed: ElementBatch) -> ElementBatch:
    """Return a feed at whole milliseconds, with the first element of each."""
    tau, kept = np.unique(feed.tau // 1_000_000 * 1_000_000, return_index=True)
    return ElementBatch(tau, tuple(column[kept] for column in feed.columns))


def prepare_feed(workload: str, feed: ElementBatch) -> ElementBatch:
    """Return a feed as all peers can take it, for which windows of an hour are the same for all.

    Those of SQL include their older edge, those of the engine the newer one: no reading is at a full hour.
    """
    if workload == "filter":
        return feed
    feed = round_instants(feed)
    if workload == "hourly_mean":
        kept = np.flatnonzero(feed.tau % HOUR_NS)
        feed = ElementBatch(feed.tau[kept], tuple(column[kept] for column in feed.columns))
    return feed


def cut_feed(feed: ElementBatch, count: int) -> ElementBatch:
    """Return the first elements of a feed."""
    return ElementBatch(feed.tau[:count], tuple(column[:count] for column in feed.columns))


def run_program(
    python: Path, peer: str, workload: str, feed: ElementBatch, batch: int
) -> tuple[dict[str, Any], Columns]:
    """Return what a program measured, and the rows of its first half.

    Raises RuntimeError with the last line of what the program says where it fails or takes too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "input.npz"), Path(folder, "rows.npz")
        np.savez(source, tau=feed.tau, **dict(zip(NAMES[workload], feed.columns, strict=True)))
        command = [str(python), "-m", f"tests.bench.cql_peers_{peer}", workload]
        command += [str(source), str(target), str(batch)]
        environment = {**os.environ, "PATHWAY_THREADS": "1", "PYTHONPATH": str(ROOT)}
        try:
            ended = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"not ended after {LIMIT_S} s") from None
        if ended.returncode or not target.exists():
            lines = (ended.stderr or ended.stdout).strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"ended with {ended.returncode}")
        with np.load(target) as archive:
            return json.loads(ended.stdout.strip().splitlines()[-1]), dict(archive)


def rate_rows(rows: int, cpu_s: float, half_cpu_s: float) -> float:
    """Return the rows a second of the second half.

    Where its time does not stand out of that of the start, the rate of all rows with the start: a lower bound.
    """
    more_s = cpu_s - half_cpu_s
    return (rows - rows // 2) / more_s if more_s > LEAST_SHARE * cpu_s else rows / cpu_s


def measure_apart(
    feeds: Mapping[str, Mapping[str, ElementBatch]],
    rounds: int,
    run_engine: RunEngine,
    notify: Tell = lambda _stage, _done: None,
) -> list[dict[str, Any]]:
    """Return rates of each program beside the engine's on the same rows, or why there is none.

    The engine has the batches of the peer, or else those of `BATCH` rows.
    """
    listed: list[dict[str, Any]] = []
    for workload, streams in feeds.items():
        [(stream, whole)] = streams.items()
        whole = prepare_feed(workload, whole)
        for name, peer in PROGRAMS.items():
            feed = cut_feed(whole, peer.most_rows.get(workload, len(whole.tau)))
            for batch in peer.batches or (None,):
                notify(f"{workload} by {name}", 0.0)
                row: dict[str, Any] = {"workload": workload, "run": name, "batch": batch, "aim": peer.aim}
                listed.append(row)
                try:
                    contest = _Contest(workload, name, batch or BATCH, {stream: feed}, run_engine)
                    row |= contest.compare_rates(rounds)
                except (RuntimeError, AssertionError) as error:
                    row["failure"] = str(error)
                    continue
                row["is_met"] = row["ours_over_it"] >= peer.aim
    return listed


class _Rate(NamedTuple):
    """Rows a processor second with batches of one size."""

    rows_per_cpu_s: float
    batch: int


def compare_best(peers: Sequence[Mapping[str, Any]], apart: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the engine's rate over each peer's where both have the batch that is best for them.

    Ratios are of medians. Left out are peers that were measured with fewer than two sizes, also because others failed,
    and `mean_at_ends`, which asks something else with batches of another size.

    Parameters
    ----------
    peers
        Rows of `bench_cql.measure_peers`: larger batches have more rows in all.
    apart
        Rows of `measure_apart`.
    """
    own = {(row["workload"], row["batch"]): row["rows_per_cpu_s"] for row in peers if row["run"] == "ours"}
    beside = [(row, own[row["workload"], row["batch"]]) for row in peers if row["run"] != "ours"]
    beside += [(row, row["ours_per_cpu_s"]) for row in apart if row["batch"] and "failure" not in row]
    listed: list[dict[str, Any]] = []
    for workload, run in dict.fromkeys((row["workload"], row["run"]) for row, _ in beside):
        rows = [(row, ours) for row, ours in beside if (row["workload"], row["run"]) == (workload, run)]
        if len(rows) == 1 or workload == "mean_at_ends":
            continue
        by_batch: dict[int, list[float]] = {}
        for row, ours in rows:
            by_batch.setdefault(min(row["batch"], BATCH), []).append(ours)
        theirs = max(_Rate(row["rows_per_cpu_s"], row["batch"]) for row, _ in rows)
        best = max(_Rate(median(rates), batch) for batch, rates in by_batch.items())
        ratio, aim = best.rows_per_cpu_s / theirs.rows_per_cpu_s, rows[0][0]["aim"]
        listed.append(
            {
                "workload": workload,
                "run": run,
                "batch": theirs.batch,
                "rows_per_cpu_s": theirs.rows_per_cpu_s,
                "own_batch": best.batch,
                "ours_per_cpu_s": best.rows_per_cpu_s,
                "ours_over_it": ratio,
                "aim": aim,
                "is_met": ratio >= aim,
            }
        )
    return listed


class _Contest(NamedTuple):
    """A peer and the engine, which compute one workload from the same rows in batches of one size."""

    workload: str
    peer: str
    batch: int
    feeds: Mapping[str, ElementBatch]
    run_engine: RunEngine

    def compare_rates(self, rounds: int) -> dict[str, Any]:
        """Return the rates of both, by rounds in which one follows the other; RuntimeError where the peer cannot."""
        python = find_python(PROGRAMS[self.peer].environment)
        if python is None:
            raise RuntimeError("no environment: run `make cql-peers`")
        [(stream, feed)] = self.feeds.items()
        half = {stream: cut_feed(feed, len(feed.tau) // 2)}
        checked = self.run_engine(self.workload, half, self._own_batch())
        theirs, ours = [], []
        for _ in range(rounds):
            seconds, rows = run_program(python, self.peer, self.workload, feed, self.batch)
            compare(self.workload, half, checked, [rows[name] for name in RESULT[self.workload]])
            theirs.append(rate_rows(len(feed.tau), seconds["cpu_s"], seconds["half_cpu_s"]))
            half_cpu_s, cpu_s = (median(self._time_engine(of) for _ in range(OWN_RUNS)) for of in (half, self.feeds))
            ours.append(rate_rows(len(feed.tau), cpu_s, half_cpu_s))
        ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
        return {
            "rows": len(feed.tau),
            "rows_per_cpu_s": median(theirs),
            "range": [min(theirs), max(theirs)],
            "ours_per_cpu_s": median(ours),
            "ours_over_it": median(ratios),
            "ratio_range": [min(ratios), max(ratios)],
        }

    def _own_batch(self) -> int:
        return min(self.batch, BATCH)

    def _time_engine(self, feeds: Mapping[str, ElementBatch]) -> float:
        start = time.process_time()
        self.run_engine(self.workload, feeds, self._own_batch())
        return time.process_time() - start
