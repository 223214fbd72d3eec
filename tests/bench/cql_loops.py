"""The loops of the workloads of `cql_peers` alone: the rate that the engine would have if all around them took no time.

A filter is three comparisons and a selection of numpy. The other workloads are the compiled loops of their operators,
which do for each row what the language asks: groups by key, rows that enter and leave in one order of time, sums that
are exact, and what changes at each instant, with signs. To each is added the loop that checks that instants are in
order. Where a peer's rate times an aim is beyond this, no saving around the loops meets the aim: they would have to
change. A filter could be a loop that is compiled for its query, but the engine compiles nothing when a query comes.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from numpy.typing import NDArray

from hypergrid.continuous.engine import ElementBatch, row_table
from hypergrid.continuous.engine.kernels import join
from hypergrid.continuous.engine.kernels.windows import are_in_order
from hypergrid.continuous.engine.operators import aggregate, source, window
from tests.bench.cql_peers import Begin

_GROUPING: Final = ((row_table, "intern_rows"), (aggregate, "change_groups"))
LOOPS: Final[Mapping[str, Sequence[tuple[ModuleType, str]]]] = {
    "sliding_mean": ((source, "are_in_order"), (window, "merge_changes"), *_GROUPING),
    "mean_at_ends": ((source, "are_in_order"), *_GROUPING),
    "join": ((source, "are_in_order"), (join, "join_elements")),
}


def rate_loops(workload: str, feeds: Mapping[str, ElementBatch], size: int, begin: Begin, rounds: int) -> float:
    """Return the rows a processor second of the loops alone, the best of some rounds after one that is not counted.

    Parameters
    ----------
    begin
        Prepares a run of the engine in batches of that size.
    """
    runs = [_time_loops(workload, feeds, size, begin) for _ in range(rounds + 1)]
    return sum(len(feed.tau) for feed in feeds.values()) / min(runs[1:])


def _time_loops(workload: str, feeds: Mapping[str, ElementBatch], size: int, begin: Begin) -> float:
    if workload == "filter":
        feed = feeds["S"]
        parts = [slice(first, first + size) for first in range(0, len(feed.tau), size)]
        batches = [(feed.tau[part], *(column[part] for column in feed.columns)) for part in parts]
        start = time.process_time()
        deque(map(_filter, batches), maxlen=0)
        return time.process_time() - start
    with ExitStack() as stack:
        seconds = [stack.enter_context(_timed(*loop)) for loop in LOOPS[workload]]
        deque(begin(), maxlen=0)
    return sum(map(sum, seconds))


def _filter(batch: tuple[NDArray[Any], ...]) -> tuple[NDArray[Any], ...]:
    tau, a, b, c = batch
    are_in_order(tau)
    kept = ((a > 10) & (b < 20) & (c > 40)).nonzero()[0]
    return tau[kept], a[kept], b[kept], c[kept]


@contextmanager
def _timed(module: ModuleType, name: str) -> Iterator[list[float]]:
    """Give the processor time of each call of a function within the block [s]."""
    seconds: list[float] = []
    function = getattr(module, name)

    def call(*arguments: Any) -> Any:  # noqa: ANN401 - those of the function
        start = time.process_time()
        result = function(*arguments)
        seconds.append(time.process_time() - start)
        return result

    with patch.object(module, name, call):
        yield seconds
