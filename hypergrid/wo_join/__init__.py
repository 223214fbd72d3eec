"""WO-Join: the join of many streams whose memory is driven by the data (thesis, chapter 3)."""

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypergrid.wo_join.config import KnownParameters
    from hypergrid.wo_join.join import WoJoin
    from hypergrid.wo_join.memory import SharedMemory
    from hypergrid.wo_join.monitors import DependentMonitor, Monitors
    from hypergrid.wo_join.pipeline import Pipeline, Stage
    from hypergrid.wo_join.results import BufferFull, KeysDoNotGrow, LateTuples, Matches, SpillFailed
    from hypergrid.wo_join.statistics import JoinStatistics, StreamStatistics

__all__ = [
    "BufferFull",
    "DependentMonitor",
    "JoinStatistics",
    "KeysDoNotGrow",
    "KnownParameters",
    "LateTuples",
    "Matches",
    "Monitors",
    "Pipeline",
    "SharedMemory",
    "SpillFailed",
    "Stage",
    "StreamStatistics",
    "WoJoin",
]

_MODULES = {
    "BufferFull": "results",
    "DependentMonitor": "monitors",
    "KeysDoNotGrow": "results",
    "KnownParameters": "config",
    "LateTuples": "results",
    "Matches": "results",
    "Monitors": "monitors",
    "Pipeline": "pipeline",
    "SharedMemory": "memory",
    "SpillFailed": "results",
    "Stage": "pipeline",
    "JoinStatistics": "statistics",
    "StreamStatistics": "statistics",
    "WoJoin": "join",
}
_FORMER = {"Known": "KnownParameters", "Late": "LateTuples", "Statistics": "JoinStatistics"}
"""Former names of classes, accepted for one release."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what a module gives
    # Loaded lazily, because the join loads a compiler, which takes half a second.
    if name in _FORMER:
        message = f"{__name__}.{name} is {_FORMER[name]} now; the former name ends with the next release"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        name = _FORMER[name]
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
