"""What the programs of `bench_cql`'s peers share, run by the Python of an environment without HyperGrid.

A program computes a workload in one process: from the first half, whose rows are written to be compared, then from
the first half and from all rows by turns, both timed. What is timed begins with the input as the peer takes
it, and ends with rows in memory, or with the peer's own sink that drops them.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
HOUR_NS: Final = 3600 * 1_000_000_000
TIMES: Final = 2
"""How often both are timed; the least of each is given, which is kind to peers whose compilers warm up."""


class Job(NamedTuple):
    """What a program computes: a workload, rows that the peer takes at once, and whether its rows must be returned."""

    workload: str
    batch: int
    """A peer without batches leaves it aside."""
    is_checked: bool = False


Prepare = Callable[[Job, Columns], Any]
"""Gives the input as the peer takes it, which is not timed."""
Run = Callable[[Job, Any], Columns]
"""Gives the columns of the result from that input."""


def serve(run: Run, prepare: Prepare = lambda _job, columns: columns) -> None:
    """Run a workload by the arguments of the command line: its name, the input, where rows go, and rows of a batch."""
    workload, source, target, batch = sys.argv[1:]
    job = Job(workload, int(batch))
    with np.load(source) as archive:
        columns = dict(archive)
    half = {name: values[: len(values) // 2] for name, values in columns.items()}
    np.savez(target, **run(job._replace(is_checked=True), prepare(job, half)))
    seconds: dict[str, list[float]] = {"half_cpu_s": [], "cpu_s": []}
    for _ in range(TIMES):
        for name, part in zip(seconds, (half, columns), strict=True):
            given = prepare(job, part)
            start = processor_seconds()
            run(job, given)
            seconds[name].append(processor_seconds() - start)
    sys.stdout.write("\n" + json.dumps({name: min(each) for name, each in seconds.items()}) + "\n")


def processor_seconds() -> float:
    """Return the processor time of this process and all below it, also of those that still run [s]."""
    times = os.times()
    ticks = sum(sum(_ticks(child)) for child in _children(os.getpid()))
    return time.process_time() + times.children_user + times.children_system + ticks / os.sysconf("SC_CLK_TCK")


def _children(process: int) -> Iterator[int]:
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            yield child
            yield from _children(child)


def _ticks(process: int) -> list[int]:
    """Return user and system time of a process and of its children that ended."""
    return [int(part) for part in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:15]]
