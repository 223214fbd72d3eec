"""Linear Road: tolls and accidents on expressways by the golden queries of CQL, and how many of them two cores hold.

Traffic is generated here, not by the benchmark's own program: each expressway has 100 segments of a mile in two
directions and 51,000 cars, 1,700 reports a second, which is what is commonly given as the peak of its data. A run is
a stretch of that peak, not three hours that lead to it: windows are filled first, then each second of traffic is a step
(push, advance, results) for each query. An answer may take 5 s from the beginning of the second of its report. A step
begins at the end of its second or when the step before is done, so what is late adds up. Expressways are divided among
the cores; cars stay on theirs.
"""

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.engine import ChangeBatch, ContinuousEngine, ElementBatch
from hypergrid.continuous.engine.warm import warm
from hypergrid.continuous.expressions import NULL_INTEGER
from hypergrid.continuous.language import parse_script
from hypergrid.continuous.records import StreamCatalogue
from hypergrid.continuous.rewrite import rewrite

GOLDEN = Path(__file__).parents[1] / "golden" / "cql"
QUERIES = ("road_1_tolls", "road_2_accidents", "road_3_balances", "road_4_expenditure")
SECOND_NS = 1_000_000_000
LIMIT_S = 5.0
"""Time in which the benchmark wants answers."""
EXPRESSWAYS = (2, 8, 16, 24, 32, 40, 48, 56, 64)
PERIOD_S = 30
MILE_FT = 5280
PEAK_CARS = 51_000
"""Cars of an expressway at the end of the benchmark's three hours, as commonly given: 1,700 reports a second."""
STOPPED_REPORTS = 8
"""Reports of a car that an accident stops."""
BALANCE_SHARE, EXPENDITURE_SHARE = 0.005, 0.001
"""Questions a position report."""
DAYS = 2
"""Days of tolls that are known of each car; the benchmark has ten weeks."""
COLUMNS = "kind second car speed xway lane dir seg pos request seg_from seg_to weekday minute_of_day day".split()


@dataclass(frozen=True)
class Road:
    """What traffic is generated of."""

    expressways: int
    seconds: int
    cars: int = PEAK_CARS
    """On each expressway, at all times."""
    segments: int = 100
    accidents: float = 0.25
    """On each expressway, a minute; the benchmark has one in twenty minutes, a run here is shorter."""
    seed: int = 7


def make_traffic(road: Road) -> Iterator[ElementBatch]:
    """Yield the stream `Input` in parts of 30 s, in each of which each car reports once, and some ask."""
    rng = np.random.default_rng(road.seed)
    count = road.expressways * road.cars
    xway = np.repeat(np.arange(road.expressways), road.cars)
    phase = rng.integers(0, PERIOD_S, count)
    # The speed of traffic differs between ten stretches of a road: about two fifths of them are congested.
    flow = rng.uniform(20.0, 65.0, (road.expressways, 2, 10))
    car = np.arange(count)
    direction, pos, exit_pos, temper = _enter(rng, count, road.segments)
    # Cars are under way when the stretch begins.
    pos = (pos + rng.uniform(0.0, 1.0, count) * (exit_pos - pos)).astype(np.int64)
    lane, stopped = rng.integers(1, 4, count), np.zeros(count, np.int64)
    is_new = np.zeros(count, bool)
    for period in range(-(-road.seconds // PERIOD_S)):
        _collide(rng, road, (xway, direction, pos, lane, stopped))
        seg = pos // MILE_FT
        traffic = flow[xway, direction, seg * 10 // road.segments]
        speed = np.rint(traffic * temper + rng.normal(0.0, 4.0, count)).clip(5.0, 100.0)
        speed[stopped > 0] = 0.0
        is_leaving = ((pos - exit_pos) * np.where(direction == 0, 1, -1) >= 0) & (stopped == 0)
        shown = np.where(is_leaving, 4, np.where(is_new & (stopped == 0), 0, lane))
        second = period * PERIOD_S + phase
        reports = {"second": second, "car": car, "speed": speed, "xway": xway, "lane": shown,
                   "dir": direction, "seg": seg, "pos": pos}  # fmt: skip
        yield _add_questions(rng, reports, road.seconds)
        # Cars that left are replaced by others, which enter a period later.
        step = np.rint(speed * (MILE_FT / 3600.0) * PERIOD_S).astype(np.int64)
        pos = (pos + np.where(direction == 0, step, -step)).clip(0, road.segments * MILE_FT - 1)
        stopped = np.maximum(stopped - 1, 0)
        gone = np.flatnonzero(is_leaving)
        direction[gone], pos[gone], exit_pos[gone], temper[gone] = _enter(rng, len(gone), road.segments)
        car[gone] = count * (period + 1) + gone
        is_new = is_leaving


def _enter(rng: np.random.Generator, count: int, segments: int) -> tuple[NDArray[Any], ...]:
    """Return direction, position [ft], exit [ft] and share of the speed of traffic of cars that enter."""
    direction = rng.integers(0, 2, count)
    miles = rng.uniform(1.0, max(2.0, 0.4 * segments), count)
    first = rng.uniform(0.0, 1.0, count) * (segments - 1)
    last = np.minimum(first + miles, segments - 0.01)
    pos = (np.where(direction == 0, first, segments - first - 0.001) * MILE_FT).astype(np.int64)
    exit_pos = (np.where(direction == 0, last, segments - last) * MILE_FT).astype(np.int64)
    return direction, pos, exit_pos, rng.uniform(0.8, 1.2, count)


def _collide(rng: np.random.Generator, road: Road, cars: tuple[NDArray[Any], ...]) -> None:
    """Stop pairs of cars at one position; `cars` are expressway, direction, position, lane and reports of the stop."""
    xway, direction, pos, lane, stopped = cars
    for _ in range(int(rng.poisson(road.accidents * road.expressways * PERIOD_S / 60.0))):
        first = int(rng.integers(0, len(pos)))
        others = np.flatnonzero((xway == xway[first]) & (direction == direction[first]) & (stopped == 0))
        others = others[others != first]
        if len(others) and not stopped[first]:
            second = int(others[np.abs(pos[others] - pos[first]).argmin()])
            pos[second], lane[second] = pos[first], lane[first]
            stopped[[first, second]] = STOPPED_REPORTS


def _add_questions(rng: np.random.Generator, reports: dict[str, NDArray[Any]], seconds: int) -> ElementBatch:
    """Return reports of a stretch and questions of their cars, in order of time."""
    order = np.argsort(reports["second"], kind="stable")
    order = order[reports["second"][order] < seconds]
    drawn = rng.uniform(0.0, 1.0, len(order))
    kinds = np.where(drawn < BALANCE_SHARE, 2, np.where(drawn < BALANCE_SHARE + EXPENDITURE_SHARE, 3, 0))
    # A question comes after the report that it belongs to.
    source = np.repeat(order, 1 + (kinds > 0))
    kind = np.zeros(len(source), np.int64)
    kind[np.cumsum(1 + (kinds > 0))[kinds > 0] - 1] = kinds[kinds > 0]
    columns: dict[str, NDArray[Any]] = {name: values[source] for name, values in reports.items()}
    is_question = kind > 0
    for name in ("lane", "dir", "seg", "pos"):
        columns[name][is_question] = NULL_INTEGER
    columns["speed"][is_question] = np.nan
    columns["xway"][kind == 2] = NULL_INTEGER
    absent = np.full(len(source), NULL_INTEGER)
    columns["kind"] = kind
    columns["request"] = np.where(is_question, columns["second"] * len(source) + np.arange(len(source)), NULL_INTEGER)
    columns["day"] = np.where(kind == 3, rng.integers(1, DAYS + 1, len(source)), NULL_INTEGER)
    return ElementBatch(columns["second"] * SECOND_NS, tuple(columns.get(name, absent) for name in COLUMNS))


def make_relations(road: Road) -> dict[str, ElementBatch]:
    """Return all segments, and what the cars of the beginning paid on each of the days before."""
    rng = np.random.default_rng([road.seed, 1])
    xway = np.repeat(np.arange(road.expressways), road.segments)
    seg = np.tile(np.arange(road.segments), road.expressways)
    count = road.expressways * road.cars
    car, day = np.repeat(np.arange(count), DAYS), np.tile(np.arange(1, DAYS + 1), count)
    toll = rng.integers(0, 100, len(car)).astype(np.float64)
    return {
        "Segment": ElementBatch(np.full(len(seg), NULL_INTEGER), (xway, seg)),
        "History": ElementBatch(np.full(len(car), NULL_INTEGER), (car, day, car // road.cars, toll)),
    }


def make_engines(relations: dict[str, ElementBatch]) -> dict[str, ContinuousEngine]:
    """Return an engine of each query, with the relations that it reads."""
    engines = {}
    for name in QUERIES:
        script = parse_script((GOLDEN / f"{name}.sql").read_text(), StreamCatalogue())
        tree = rewrite(script.queries[-1].tree, script.catalogue.static).tree
        engine = engines[name] = ContinuousEngine(tree)
        for relation in relations.keys() & engine.inputs:
            engine.push(relation, relations[relation])
    return engines


def split_seconds(parts: Iterable[ElementBatch]) -> Iterator[tuple[int, ElementBatch]]:
    """Yield each second of traffic and its elements."""
    for part in parts:
        first, last = int(part.tau[0]) // SECOND_NS, int(part.tau[-1]) // SECOND_NS
        first -= first % PERIOD_S
        for second in range(first, last + 1):
            yield second, part_of(part, second, second + 1)


def part_of(batch: ElementBatch, first_s: int, last_s: int) -> ElementBatch:
    """Return the elements of seconds in [first, last)."""
    begin, end = np.searchsorted(batch.tau, [first_s * SECOND_NS, last_s * SECOND_NS])
    return ElementBatch(batch.tau[begin:end], tuple(column[begin:end] for column in batch.columns))


def step_engine(engine: ContinuousEngine, batch: ElementBatch, end_s: int) -> list[ChangeBatch]:
    """Give an engine the elements before a second, and return what follows of them."""
    engine.push("Input", batch)
    engine.advance(end_s * SECOND_NS)
    return engine.results()


def run_part(road: Road, filled_s: int) -> dict[str, Any]:
    """Return processor and wall time of each second of a run after `filled_s`, by query, and the rows of answers."""
    warm()
    engines = make_engines(make_relations(road))
    rows = dict.fromkeys(QUERIES, 0)
    cpu, wall = (np.zeros((road.seconds - filled_s, len(QUERIES))) for _ in range(2))
    reports = 0
    for second, batch in split_seconds(make_traffic(road)):
        at = second - filled_s
        reports += len(batch.tau) if at >= 0 else 0
        for number, (name, engine) in enumerate(engines.items()):
            start, start_cpu = time.perf_counter(), time.process_time()
            answers = step_engine(engine, batch, second + 1)
            if at >= 0:
                cpu[at, number] = time.process_time() - start_cpu
                wall[at, number] = time.perf_counter() - start
                rows[name] += sum(len(part.tau) for part in answers)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"cpu_s": cpu, "wall_s": wall, "rows": rows, "reports": reports, "peak_bytes": peak_bytes}


def response_times(step_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time from the beginning of each second to the answers of its reports, if steps take so long [s]."""
    done = 0.0
    responses = np.zeros(len(step_s))
    for second, taken in enumerate(step_s):
        done = max(done, second + 1.0) + taken
        responses[second] = done - second
    return responses


def run_road(road: Road, filled_s: int, cores: int) -> dict[str, Any]:
    """Return the load and the slowest answers of a run whose expressways are divided among processes."""
    shares = [len(part) for part in np.array_split(np.arange(road.expressways), cores) if len(part)]
    roads = [
        Road(share, road.seconds, road.cars, road.segments, road.accidents, road.seed + number)
        for number, share in enumerate(shares)
    ]
    with ProcessPoolExecutor(len(roads), multiprocessing.get_context("spawn")) as pool:
        parts = list(pool.map(run_part, roads, [filled_s] * len(roads)))
    responses = {
        clock: np.concatenate([response_times(part[clock].sum(1)) for part in parts]) for clock in ("cpu_s", "wall_s")
    }
    steps = road.seconds - filled_s
    return {
        "expressways": road.expressways,
        "cores": len(parts),
        "reports_a_s": sum(part["reports"] for part in parts) / steps,
        "load": max(float(part["cpu_s"].sum()) / steps for part in parts),
        "slowest_s": float(responses["cpu_s"].max()),
        "slowest_by_wall_s": float(responses["wall_s"].max()),
        "slowest_step_s": max(float(part["cpu_s"].sum(1).max()) for part in parts),
        "load_by_query": {
            name: max(float(part["cpu_s"][:, number].sum()) / steps for part in parts)
            for number, name in enumerate(QUERIES)
        },
        "peak_bytes": max(part["peak_bytes"] for part in parts),
        "answers": {name: sum(part["rows"][name] for part in parts) for name in QUERIES},
        "is_held": bool(responses["cpu_s"].max() <= LIMIT_S),
    }


def measure_road(
    seconds: int = 70,
    filled_s: int = 130,
    *,
    cars: int = PEAK_CARS,
    expressways: Sequence[int] = EXPRESSWAYS,
    notify: Callable[[str, float], None] = lambda _stage, _done: None,
) -> dict[str, Any]:
    """Return runs of more and more expressways on two cores, up to the first that is not held or needs more memory.

    `ended_by` is what was reached first: the limit of answers, memory (a run is projected from the one before, and may
    take three quarters of what is free), or the last number to try.

    Parameters
    ----------
    seconds
        Traffic that is measured, after `filled_s` that fill windows.
    cars
        Cars on each expressway.
    expressways
        How many to try, in rising order.
    """
    runs: list[dict[str, Any]] = []
    ended_by = "list"
    for number, tried in enumerate(expressways):
        if runs and 2 * runs[-1]["peak_bytes"] * tried / runs[-1]["expressways"] > 0.75 * _available_bytes():
            ended_by = "memory"
            break
        notify(f"road, {tried} expressways", number / len(expressways))
        runs.append(run_road(Road(tried, filled_s + seconds, cars), filled_s, 2))
        if not runs[-1]["is_held"]:
            ended_by = "limit"
            break
    held = max((run["expressways"] for run in runs if run["is_held"]), default=0)
    return {
        "seconds": seconds,
        "filled_s": filled_s,
        "cars": cars,
        "limit_s": LIMIT_S,
        "held": held,
        "ended_by": ended_by,
        "runs": runs,
    }


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("MemAvailable"))) * 1024


def road_table(road: dict[str, Any]) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Return runs as a table for people: title, columns, rows."""
    rows = [
        (
            str(run["expressways"]),
            f"{run['reports_a_s']:,.0f}",
            f"{run['load']:.2f}",
            f"{run['peak_bytes'] / 1e9:.1f}",
            f"{run['slowest_step_s']:.2f}",
            f"{run['slowest_s']:.2f}",
            f"{run['slowest_by_wall_s']:.2f}",
            "held" if run["is_held"] else "not held",
        )
        for run in road["runs"]
    ]
    columns = (
        "expressways",
        "reports/s",
        "load of a core",
        "GB a core",
        "slowest step [s]",
        "answer [s]",
        "by wall clock [s]",
        "",
    )
    title = f"Linear Road, {road['seconds']} s at {road['cars']:,} cars an expressway, ended by {road['ended_by']}"
    return title, columns, rows
