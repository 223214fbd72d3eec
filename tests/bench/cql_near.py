"""Continuous queries of near points: strokes of lightning and gauges, by a grid index and by all pairs.

Both runs are the same text in the same engine; all pairs are what it tests where it is not given the limit. Their
results are compared bit by bit. Stations stand at random in 400 km by 250 km, and report amounts each ten minutes in
turn; thunderstorms of 15 km drift over them, with a stroke each half a second.
"""

import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from hypergrid.continuous import join_plan
from hypergrid.continuous.algebra import StreamInput, walk_operators
from hypergrid.continuous.engine import ChangeBatch, ContinuousEngine, ElementBatch
from hypergrid.continuous.expressions import NULL_INTEGER, Attribute
from hypergrid.continuous.language import parse_query
from hypergrid.continuous.records import StreamCatalogue
from hypergrid.continuous.result_order import sort_changes
from hypergrid.continuous.rewrite import rewrite

SECOND_NS: Final = 1_000_000_000
STATIONS: Final = 1000
ELEMENTS: Final = 20_000
REPORT_S: Final = 600
STROKE_S: Final = 0.5
STORMS: Final = 5
BATCH: Final = 4096

CATALOGUE: Final = StreamCatalogue(
    streams={
        "lightning": (Attribute("lon", "number", "degree"), Attribute("lat", "number", "degree")),
        "rain": (Attribute("station", "text"), Attribute("mm", "number", "mm")),
    },
    relations={
        "stations": (
            Attribute("station", "text"),
            Attribute("lon", "number", "degree"),
            Attribute("lat", "number", "degree"),
        )
    },
    static=frozenset(("stations",)),
)
QUERIES: Final = {
    "rain near lightning": (
        "Select Istream(l.lon, l.lat, r.station, r.mm) "
        "From lightning [Range 10 Minutes] l, rain [Range 10 Minutes] r, stations s "
        "Where r.station = s.station and r.mm >= 0.2 and distance_m(l.lon, l.lat, s.lon, s.lat) < '5 km'"
    ),
    "stations near lightning": (
        "Select Istream(l.lon, l.lat, s.station) From lightning [Now] l, stations s "
        "Where distance_m(l.lon, l.lat, s.lon, s.lat) < '5 km'"
    ),
}


def make_feeds(elements: int, stations: int) -> dict[str, ElementBatch]:
    """Return strokes, rain and stations, whose names are numbers until an engine encodes them."""
    rng = np.random.default_rng(11)
    lon, lat = rng.uniform(6.0, 11.2, stations), rng.uniform(45.5, 47.75, stations)
    span_s = elements / (1 / STROKE_S + stations / REPORT_S)
    strokes = int(span_s / STROKE_S)
    at = np.sort(rng.uniform(0.0, span_s, strokes))
    storm = rng.integers(0, STORMS, strokes)
    start, drift = rng.uniform((6.0, 45.5), (11.2, 47.75), (STORMS, 2)), rng.normal(0.0, 2e-4, (STORMS, 2))
    points = start[storm] + drift[storm] * at[:, np.newaxis] + rng.normal(0.0, 1.0, (strokes, 2)) * (0.19, 0.13)
    rain = elements - strokes
    reported = np.sort(rng.uniform(0.0, span_s, rain))
    amounts = np.where(rng.random(rain) < 0.5, 0.0, np.round(rng.exponential(1.0, rain), 1))
    return {
        "lightning": ElementBatch((at * SECOND_NS).astype(np.int64), (points[:, 0].copy(), points[:, 1].copy())),
        "rain": ElementBatch((reported * SECOND_NS).astype(np.int64), (np.arange(rain) % stations, amounts)),
        "stations": ElementBatch(np.full(stations, NULL_INTEGER), (np.arange(stations), lon, lat)),
    }


def run_near(text: str, feeds: Mapping[str, ElementBatch], *, is_indexed: bool) -> tuple[ChangeBatch, float]:
    """Return the changes of a query in canonical order, and the processor time that they took [s]."""
    query = parse_query(text, CATALOGUE)
    limit_of = join_plan.limit_of_distance if is_indexed else lambda _: None
    with patch.object(join_plan, "limit_of_distance", limit_of):
        engine = ContinuousEngine(rewrite(query.tree, CATALOGUE.static).tree)
    codes = engine.texts.encode([f"station {number}" for number in range(len(feeds["stations"].tau))])
    begin = time.process_time()
    changes: list[ChangeBatch] = []
    known = feeds["stations"]
    engine.push("stations", ElementBatch(known.tau, (codes[known.columns[0]], *known.columns[1:])))
    streams = [name for name in ("lightning", "rain") if name in engine.inputs]
    end = int(max(feeds[name].tau[-1] for name in streams))
    count = sum(len(feeds[name].tau) for name in streams)
    # Both streams go on to the same instants.
    for heartbeat in np.linspace(0, end + 1, max(count // BATCH, 1) + 1).astype(np.int64)[1:].tolist():
        for name in streams:
            feed = feeds[name]
            first, last = np.searchsorted(feed.tau, (engine.heartbeat, heartbeat)).tolist()
            columns = tuple(column[first:last] for column in feed.columns)
            if name == "rain":
                columns = (codes[columns[0]], columns[1])
            engine.push(name, ElementBatch(feed.tau[first:last], columns))
        engine.advance(heartbeat)
        changes += engine.results()
    seconds = time.process_time() - begin
    parts = zip(*((part.tau, part.sign, *part.columns) for part in changes), strict=True)
    tau, sign, *columns_of_all = (np.concatenate(each) for each in parts)
    whole = ChangeBatch(tau, sign, tuple(columns_of_all))
    return sort_changes(whole, engine.tree.attributes, engine.texts), seconds


def measure_near(pairs: int, elements: int = ELEMENTS, stations: int = STATIONS) -> list[dict[str, Any]]:
    """Return times of both ways in interleaved pairs, after a run that is not measured.

    Raises
    ------
    AssertionError
        The results differ, or there are none.
    """
    feeds = make_feeds(elements, stations)
    listed: list[dict[str, Any]] = []
    for name, text in QUERIES.items():
        tree = parse_query(text, CATALOGUE).tree
        leaves = {part.name for part in walk_operators(tree) if isinstance(part, StreamInput)}
        count = sum(len(feeds[leaf].tau) for leaf in leaves)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        run_near(text, feeds, is_indexed=True)
        results: dict[bool, ChangeBatch] = {}
        for _ in range(pairs):
            for is_indexed in (True, False):
                results[is_indexed], taken = run_near(text, feeds, is_indexed=is_indexed)
                seconds[is_indexed].append(taken)
        compare(name, results[True], results[False])
        ratios = sorted(slow / fast for fast, slow in zip(seconds[True], seconds[False], strict=True))
        listed.append(
            {
                "query": name,
                "stations": stations,
                "elements": count,
                "rows": len(results[True].tau),
                "elements_per_cpu_s": count / median(seconds[True]),
                "elements_per_cpu_s_of_pairs": count / median(seconds[False]),
                "ratio": median(ratios),
                "ratio_range": [ratios[0], ratios[-1]],
            }
        )
    return listed


def compare(name: str, indexed: ChangeBatch, of_pairs: ChangeBatch) -> None:
    """Raise an error if results differ in a bit, or there are none."""
    parts = [[part.tobytes() for part in (each.tau, each.sign, *each.columns)] for each in (indexed, of_pairs)]
    if parts[0] != parts[1] or not len(indexed.tau):
        raise AssertionError(f"the results of {name} differ, or are empty")


def near_table(measured: list[dict[str, Any]]) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Return what was measured as a table for people: title, columns, rows."""
    rows = [
        (
            row["query"],
            f"{row['rows']:,}",
            f"{row['elements_per_cpu_s'] / 1e3:.0f}",
            f"{row['elements_per_cpu_s_of_pairs'] / 1e3:.1f}",
            f"{row['ratio']:.0f}",
            f"{row['ratio_range'][0]:.0f} to {row['ratio_range'][1]:.0f}",
        )
        for row in measured
    ]
    title = f"near points, {measured[0]['stations']:,} stations, thousands of elements a second on one core"
    return title, ("query", "rows", "grid", "all pairs", "ratio", "of pairs of runs"), rows
