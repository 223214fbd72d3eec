"""Linear Road: answers to small traffic are those of a slow direct evaluation, and what the benchmark reports."""

import json
import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from hypergrid.continuous.engine import ChangeBatch, ElementBatch
from hypergrid.continuous.expressions import NULL_INTEGER
from tests.bench.bench_cql import tables
from tests.bench.linear_road import (
    COLUMNS,
    QUERIES,
    SECOND_NS,
    STOPPED_REPORTS,
    Road,
    make_engines,
    make_relations,
    make_traffic,
    measure_road,
    response_times,
    split_seconds,
    step_engine,
)

Segment = tuple[int, int, int]
Answers = dict[str, Counter[tuple[Any, ...]]]
SMALL = Road(2, 340, cars=720, segments=6, accidents=1.0)


def evaluate_directly(parts: list[ElementBatch], relations: dict[str, ElementBatch]) -> Answers:
    """Return all answers with their seconds; each second looks at the reports before it again."""
    rows = [
        dict(zip(COLUMNS, values, strict=True))
        for part in parts
        for values in zip(*(column.tolist() for column in part.columns), strict=True)
    ]
    by_second: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_second[row["second"]].append(row)

    def list_reports(first: int, last: int) -> list[dict[str, Any]]:
        return [row for at in range(first, last + 1) for row in by_second[at] if row["kind"] == 0]

    segments = set(zip(*(column.tolist() for column in relations["Segment"].columns), strict=True))
    answers: Answers = {name: Counter() for name in QUERIES}
    balances: dict[int, float] = defaultdict(float)
    by_minute: dict[int, dict[Segment, tuple[int, float]]] = {}
    for second in range(rows[-1]["second"] + 1):
        if second % 60 == 0:
            by_minute[second] = _list_minute(list_reports(second - 60, second))
        # A car that reports each 30 s has its last four in four minutes, if the last is in two.
        affected = _list_affected(list_reports(second - 239, second), second) & {
            (xway, way, seg) for xway, seg in segments for way in (0, 1)
        }
        tolls = _list_tolls(by_minute, second, affected)
        before = {(row["car"], *_segment(row)) for row in list_reports(second - 30, second - 1) if row["lane"] != 4}
        for row in list_reports(second, second):
            if row["lane"] == 4 or (row["car"], *_segment(row)) in before:
                continue
            toll, speed = tolls.get(_segment(row), (0.0, None))
            answers["road_1_tolls"][second, row["car"], toll, speed] += 1
            if _segment(row) in tolls:
                balances[row["car"]] += toll
            if _segment(row) in affected:
                answers["road_2_accidents"][second, row["car"], row["seg"]] += 1
        for row in by_second[second]:
            if row["kind"] == 2 and row["car"] in balances:
                answers["road_3_balances"][second, row["request"], row["car"], balances[row["car"]]] += 1
    paid: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for car, day, xway, toll in zip(*(column.tolist() for column in relations["History"].columns), strict=True):
        paid[car, day, xway].append(toll)
    for row in rows:
        days = paid.get((row["car"], row["day"], row["xway"]), [])
        if row["kind"] == 3 and days:
            answers["road_4_expenditure"][row["second"], row["request"], math.fsum(days)] += 1
    return answers


def _segment(row: dict[str, Any]) -> Segment:
    return row["xway"], row["dir"], row["seg"]


def _list_minute(reports: list[dict[str, Any]]) -> dict[Segment, tuple[int, float]]:
    """Return the number of cars and the mean of their mean speeds in each segment."""
    cars: dict[Segment, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in reports:
        cars[_segment(row)][row["car"]].append(row["speed"])
    return {
        segment: (len(each), math.fsum(math.fsum(speeds) / len(speeds) for speeds in each.values()) / len(each))
        for segment, each in cars.items()
    }


def _list_tolls(
    by_minute: dict[int, dict[Segment, tuple[int, float]]], second: int, affected: set[Segment]
) -> dict[Segment, tuple[float, float]]:
    """Return toll and mean speed of five minutes of the segments that cost."""
    minutes = [means for minute, means in by_minute.items() if second - 300 < minute <= second]
    tolls = {}
    for segment, (cars, _) in by_minute[second - second % 60].items():
        speeds = [means[segment][1] for means in minutes if segment in means]
        mean = math.fsum(speeds) / len(speeds)
        if cars > 50 and mean < 40 and segment not in affected:
            tolls[segment] = (float((cars - 50) ** 2), mean)
    return tolls


def _list_affected(reports: list[dict[str, Any]], second: int) -> set[Segment]:
    """Return the segments that are up to four before an accident."""
    lasts: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in reports:
        lasts[row["car"]] = [*lasts[row["car"]][-3:], row]
    stopped: Counter[tuple[int, ...]] = Counter()
    for last in lasts.values():
        spots = {(row["xway"], row["dir"], row["lane"], row["seg"], row["pos"]) for row in last}
        if len(last) == 4 and len(spots) == 1 and last[-1]["second"] > second - 120:
            stopped.update(spots)
    return {
        (xway, way, seg + step * (-1 if way == 0 else 1))
        for (xway, way, _, seg, _), cars in stopped.items()
        if cars > 1
        for step in range(5)
    }


def list_answers(batches: list[ChangeBatch]) -> Counter[tuple[Any, ...]]:
    answers: Counter[tuple[Any, ...]] = Counter()
    for batch in batches:
        assert (batch.sign == 1).all()
        for tau, *row in zip(batch.tau.tolist(), *(column.tolist() for column in batch.columns), strict=True):
            answers[tau // SECOND_NS, *(None if value != value else value for value in row)] += 1
    return answers


def test_answers_are_those_of_a_direct_evaluation() -> None:
    parts, relations = list(make_traffic(SMALL)), make_relations(SMALL)
    engines = make_engines(relations)
    answers: dict[str, list[ChangeBatch]] = {name: [] for name in QUERIES}
    for second, batch in split_seconds(parts):
        for name, engine in engines.items():
            answers[name] += step_engine(engine, batch, second + 1)
    expected = evaluate_directly(parts, relations)
    tolls = [toll for _, _, toll, _ in expected["road_1_tolls"]]
    assert {toll > 0 for toll in tolls} == {True, False}
    for name in QUERIES:
        assert expected[name]
        assert list_answers(answers[name]) == expected[name]


def test_traffic_is_what_the_benchmark_wants() -> None:
    parts = list(make_traffic(SMALL))
    columns = {name: np.concatenate([part.columns[at] for part in parts]) for at, name in enumerate(COLUMNS)}
    is_report = columns["kind"] == 0
    assert (np.diff(np.concatenate([part.tau for part in parts])) >= 0).all()
    assert is_report.sum() == pytest.approx(SMALL.seconds / 30 * 2 * SMALL.cars, rel=0.01)
    reports = {name: column[is_report] for name, column in columns.items()}
    assert (reports["seg"] == reports["pos"] // 5280).all()
    assert set(reports["seg"]) == set(range(6))
    by_car = defaultdict(list)
    for row in zip(*(reports[name].tolist() for name in ("car", "second", "lane", "pos", "dir", "xway")), strict=True):
        by_car[row[0]].append(row[1:])
    stops = 0
    for trip in by_car.values():
        assert {later[0] - former[0] for former, later in zip(trip, trip[1:], strict=False)} <= {30}
        assert len({row[3:] for row in trip}) == 1
        assert all(row[1] != 0 for row in trip[1:])
        assert all(row[1] != 4 for row in trip[:-1])
        ahead = 1 if trip[0][3] == 0 else -1
        moves = [(later[2] - former[2]) * ahead for former, later in zip(trip, trip[1:], strict=False)]
        assert min(moves, default=0) >= 0
        stops += moves.count(0) >= STOPPED_REPORTS - 1
    assert stops >= 2
    assert (columns["request"][is_report] == NULL_INTEGER).all()


def test_responses_wait_for_the_steps_before() -> None:
    assert response_times(np.array([0.5, 3.0, 0.25, 0.25])).tolist() == [1.5, 4.0, 3.25, 2.5]


def test_runs_are_reported_up_to_the_first_that_is_not_held() -> None:
    road = measure_road(5, 10, cars=200, expressways=(1, 2))
    assert [run["expressways"] for run in road["runs"]] == [1, 2]
    assert road["ended_by"] == ("list" if road["runs"][1]["is_held"] else "limit")
    assert [run["cores"] for run in road["runs"]] == [1, 2]
    assert road["runs"][1]["reports_a_s"] > 1.5 * road["runs"][0]["reports_a_s"]
    assert all(run["slowest_s"] >= 1 for run in road["runs"])
    measured = json.loads(json.dumps({"rates": [], "road": road}))
    [(_, columns, listed)] = tables(measured)
    assert all(len(line) == len(columns) for line in listed)
