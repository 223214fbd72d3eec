"""Continuous queries that follow an archive: their state, corrections of late and amended readings, and results."""

from hypergrid.continuous.live.at_once import AtOnceQuery
from hypergrid.continuous.live.live_query import LiveQuery, add_query, find_start
from hypergrid.continuous.live.store import (
    GivenElement,
    LiveEntry,
    LiveOptions,
    LiveStore,
    StepTaken,
    has_store,
    open_store,
)
from hypergrid.continuous.live.tap_memory import TapBatch
from hypergrid.continuous.live.tap_query import TapQuery, add_tap_query
from hypergrid.continuous.records import NoLongerKept

__all__ = [
    "AtOnceQuery",
    "GivenElement",
    "LiveEntry",
    "LiveOptions",
    "LiveQuery",
    "LiveStore",
    "NoLongerKept",
    "StepTaken",
    "TapBatch",
    "TapQuery",
    "add_query",
    "add_tap_query",
    "find_start",
    "has_store",
    "open_store",
]
