"""The workloads of `bench_cql` by bytewax: batches of items, and a state of each station in its `stateful_batch`."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import bytewax.operators as op
import numpy as np
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.testing import TestingSink, TestingSource, run_main

from tests.bench.cql_peer_program import HOUR_NS, Columns, Job, serve


class Mean(StatefulBatchLogic):
    """The mean of the last hour of one station, given with each element."""

    def __init__(self, state: tuple[deque[tuple[int, float]], float] | None) -> None:
        self._window, self._sum = state or (deque(), 0.0)

    def on_batch(self, values: list[tuple[int, float]]) -> tuple[Iterable[tuple[int, float]], bool]:
        window, total, means = self._window, self._sum, []
        for element in values:
            tau, value = element
            window.append(element)
            total += value
            while window[0][0] <= tau - HOUR_NS:
                total -= window.popleft()[1]
            means.append((tau, total / len(window)))
        self._sum = total
        return means, self.RETAIN

    def snapshot(self) -> tuple[deque[tuple[int, float]], float]:
        return self._window.copy(), self._sum


class HourlyMean(StatefulBatchLogic):
    """The mean of each hour of one station, given at its end, with the first element after it."""

    def __init__(self, state: tuple[int, float, int] | None) -> None:
        self._end, self._sum, self._count = state or (0, 0.0, 0)

    def on_batch(self, values: list[tuple[int, float]]) -> tuple[Iterable[tuple[int, float]], bool]:
        end, total, count, means = self._end, self._sum, self._count, []
        for tau, value in values:
            if tau >= end:
                if count:
                    means.append((end, total / count))
                end, total, count = (tau // HOUR_NS + 1) * HOUR_NS, 0.0, 0
            total += value
            count += 1
        self._end, self._sum, self._count = end, total, count
        return means, self.RETAIN

    def snapshot(self) -> tuple[int, float, int]:
        return self._end, self._sum, self._count


def make_items(job: Job, columns: Columns) -> list[Any]:
    """Return rows as bytewax takes them: objects of Python, with the key as text."""
    if job.workload == "filter":
        return list(zip(*(columns[name].tolist() for name in ("tau", "A", "B", "C")), strict=True))
    elements = zip(columns["tau"].tolist(), columns["value"].tolist(), strict=True)
    return list(zip(map(str, columns["station"].tolist()), elements, strict=True))


def run(job: Job, items: list[Any]) -> Columns:
    """Return the rows of a workload."""
    listed: list[Any] = []
    flow = Dataflow("bench")
    stream = op.input("given", flow, TestingSource(items, batch_size=job.batch))
    if job.workload == "filter":
        result = op.flat_map_batch("where", stream, choose)
    else:
        result = op.stateful_batch("mean", stream, HourlyMean if job.workload == "hourly_mean" else Mean)
    op.output("out", result, TestingSink(listed))
    run_main(flow)
    if job.workload == "filter":
        return {"tau": np.array([row[0] for row in listed], np.int64)}
    return {
        "tau": np.array([row[1][0] for row in listed], np.int64),
        "station": np.array([int(row[0]) for row in listed], np.int64),
        "mean": np.array([row[1][1] for row in listed]),
    }


def choose(rows: list[tuple[int, float, float, float]]) -> list[tuple[int, float, float, float]]:
    """Return the rows of a batch that the filter passes."""
    return [row for row in rows if row[1] > 10 and row[2] < 20 and row[3] > 40]


if __name__ == "__main__":
    serve(run, make_items)
