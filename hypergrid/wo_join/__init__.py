"""Streams: stations, series and readings, and the join of streams whose memory is driven by the data (WO-Join)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypergrid.wo_join.config import Known
    from hypergrid.wo_join.faults import BufferFull, KeysDoNotGrow, SpillFailed
    from hypergrid.wo_join.join import WoJoin
    from hypergrid.wo_join.memory.shares import SharedMemory
    from hypergrid.wo_join.monitors import DependentMonitor, Monitors
    from hypergrid.wo_join.pipeline import Pipeline, Stage
    from hypergrid.wo_join.results import Late, Matches
    from hypergrid.wo_join.statistics import Statistics, StreamStatistics

__all__ = [
    "BufferFull",
    "DependentMonitor",
    "KeysDoNotGrow",
    "Known",
    "Late",
    "Matches",
    "Monitors",
    "Pipeline",
    "SharedMemory",
    "SpillFailed",
    "Stage",
    "Statistics",
    "StreamStatistics",
    "WoJoin",
]

_PLACES = {
    "BufferFull": "faults",
    "DependentMonitor": "monitors",
    "KeysDoNotGrow": "faults",
    "Known": "config",
    "Late": "results",
    "Matches": "results",
    "Monitors": "monitors",
    "Pipeline": "pipeline",
    "SharedMemory": "memory.shares",
    "SpillFailed": "faults",
    "Stage": "pipeline",
    "Statistics": "statistics",
    "StreamStatistics": "statistics",
    "WoJoin": "join",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what a module gives
    # The elements are needed everywhere, the join is not: it loads a compiler, which takes half a second.
    if name not in _PLACES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
