"""Queries that are built together are what they are when each is built alone, at every snapshot."""

from collections.abc import Mapping
from typing import Any

import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import HyperGridError
from hypergrid.core.readings import Position, Station
from hypergrid.perspective.build.data_sources import PlanMemo
from hypergrid.perspective.tree import Perspective
from tests.queries.standing.live import START_NS, STATIONS, Live
from tests.queries.standing.test_runner import MAP, MEAN

OTHER = {**MAP, "grid": {**MAP["grid"], "shape": [4, 4]}}
CLIP = {"time": ["2007-10-01T00:04Z", "2007-10-01T00:12Z"]}
RANGE = {"op": "convert", "function": "valid_range", "params": {"low": -40.0, "high": 50.0}}
HOUR = {"op": "aggregate", "function": "mean", "time": "all", "params": {"min_coverage": 0}}
BOTH = {"op": "merge", "function": "difference", "with": [{"variable": "surface_temperature", "steps": [MEAN]}]}
INSTANTS = {"op": "interpolate", "method": "linear", "time": "1min"}
DOCUMENTS: dict[str, Mapping[str, Any]] = {
    "mean": {"steps": [MEAN]},
    "in range": {"steps": [RANGE, MEAN]},
    "of one": {"steps": [RANGE, MEAN], "select": {"station": "1"}},
    "other flags": {"steps": [RANGE, MEAN], "accept_flags": [1, 2, 3]},
    "map": {"steps": [RANGE, MEAN, MAP]},
    "map again": {"steps": [RANGE, MEAN, MAP]},
    "smaller": {"steps": [RANGE, MEAN, OTHER]},
    "uncertain": {"steps": [RANGE, MEAN, MAP], "variance": True},
    "of all": {"steps": [RANGE, MEAN, MAP, HOUR]},
    "clipped": {"steps": [RANGE, MEAN, MAP], "clip": CLIP},
    "of the clip": {"steps": [RANGE, MEAN, MAP, HOUR], "clip": CLIP},
    "merged": {"steps": [MEAN, BOTH, MAP]},
    "merged, clipped": {"steps": [MEAN, BOTH], "clip": CLIP},
    "instants": {"steps": [RANGE, INSTANTS]},
}


def told(here: Perspective) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(item.token, item.unit, item.steps) for item in here.list_chain()]


def test_what_is_shared_changes_no_query(live: Live) -> None:
    known = PlanMemo()
    moved = [Station(one, f"Station {one}", (Position(None, x + 1e-3, y, 2400.0),)) for one, (x, y) in STATIONS.items()]
    for change in (lambda: live.everywhere(10, 6.0), lambda: live.add(11, {"2": 6.0}), lambda: place(live, moved)):
        change()
        opened = hg.open(live.folder)
        for name, document in DOCUMENTS.items():
            asked = {"variable": "air_temperature", **document}
            alone, together = opened.query(asked).surface(), opened.query(asked, known=known).surface()
            assert told(together.perspective) == told(alone.perspective), name
            assert together.clip == alone.clip


def test_equal_parts_are_one_object_and_errors_are_told_again(live: Live) -> None:
    known, opened = PlanMemo(), hg.open(live.folder)
    asked = [{"variable": "air_temperature", **DOCUMENTS[name]} for name in ("map", "smaller", "of all")]
    first, second, third = (opened.query(one, known=known).surface().perspective for one in asked)
    assert first.source is second.source
    assert third.source is first
    far = {**MAP, "grid": {**MAP["grid"], "lon": "70:10:37"}}
    for _ in range(2):
        with pytest.raises(HyperGridError, match="misses all 4 stations"):
            opened.query({"variable": "air_temperature", "steps": [MEAN, far]}, known=known).surface()


def place(live: Live, stations: list[Station]) -> None:
    """Correct where stations are."""
    live.archive = Archive.open(live.folder)
    with live.archive.commit(batch="moved", message="moved", now_ns=START_NS) as writer:
        writer.stations(stations)
