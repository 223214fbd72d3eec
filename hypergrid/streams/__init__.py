"""Streams: stations, series and readings, and the join of streams whose memory is driven by the data (WO-Join)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypergrid.streams.faults import BufferFull, KeysDoNotGrow, SpillFailed
    from hypergrid.streams.join import WoJoin
    from hypergrid.streams.matches import Late, Matches
    from hypergrid.streams.monitors import DependentMonitor, Monitors
    from hypergrid.streams.parameters import Known
    from hypergrid.streams.pipeline import Pipeline, Stage
    from hypergrid.streams.sharing import SharedMemory
    from hypergrid.streams.statistics import Statistics, StreamStatistics

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
    "Known": "parameters",
    "Late": "matches",
    "Matches": "matches",
    "Monitors": "monitors",
    "Pipeline": "pipeline",
    "SharedMemory": "sharing",
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
