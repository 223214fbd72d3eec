"""Archives that grow by commits through the real writer: readings in disorder, late, amended and superseded."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.continuous.archive_query import ArchiveQuery, QueryPart
from hypergrid.continuous.engine import Texts
from hypergrid.continuous.expressions import NULL_INTEGER
from hypergrid.continuous.live import LiveQuery, open_store
from hypergrid.continuous.live.rows import Row, rows_of
from hypergrid.continuous.sources import Stretch
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.core.units import KNOWN_VARIABLES
from hypergrid.query import OpenArchive, open_archive
from tests.support.networks import SLICE_S, START_NS

NAMES = ("s0", "s1", "s2")
VARIABLES = ("air_temperature", "wind_speed")
QUERIES = {
    "mean": "Select station, avg(value) as mean, count(*) as k From air_temperature [Range 20 Minutes] "
    "Group By station",
    "slide": "Select station, max(value) as most From air_temperature [Range 15 Minutes Slide 5 Minutes] "
    "Group By station",
    "join": "Select Istream(a.station, a.value, w.value) From air_temperature [Range 10 Minutes] a, "
    "wind_speed [Range 10 Minutes] w Where a.station = w.station and a.slice = w.slice and a.value > 3",
    "silent": "Select Dstream(station) From (Select distinct station From readings [Range 15 Minutes])",
    "stuck": "Select series From readings [Partition By series Rows 3] Group By series "
    "Having count(distinct value) = 1",
    "total": "Select station, count(*) as k, sum(value) as total From wind_speed Group By station",
    "near": "Select Rstream(n.station, n.value, s.elevation_m) From air_temperature [Now] n, stations s "
    "Where n.station = s.station and n.value > 4",
    "first": "Select Istream(station, value, time) From air_temperature Where value > 6 EMIT NOW",
}


def create(folder: Path) -> None:
    """Write an archive without readings."""
    variables = [KNOWN_VARIABLES[name] for name in VARIABLES]
    archive = Archive.create(folder, name="made-up", slice_s=SLICE_S, variables=variables, now_ns=START_NS)
    stations = [
        Station(name, name.upper(), (Position(None, 7.177 + 0.001 * number, 45.867, 2300.0 + 25.0 * number),))
        for number, name in enumerate(NAMES)
    ]
    with archive.commit(batch="0", message="stations", now_ns=START_NS) as writer:
        writer.stations(stations)


def draw_commits(seed: int, count: int) -> list[list[Readings]]:
    """Return what each commit brings: most readings soon, some late by hours, some again with another value."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, int, int, int, float]] = []
    span = 3 * 3600
    for variable in range(len(VARIABLES)):
        for station in range(len(NAMES)):
            value = 4.0
            for second in range(int(rng.integers(0, 60)), span, 150):
                if rng.random() < 0.15:
                    continue
                value += 0.0 if rng.random() < 0.4 else round(float(rng.normal()), 1)
                longest = span if rng.random() < 0.06 else 400 if rng.random() < 0.3 else 1
                delay = int(rng.integers(0, longest))
                number = min((second + delay) * count // span, count - 1)
                rows.append((number, variable, station, second, value))
                if rng.random() < 0.04:
                    rows.append((int(rng.integers(number, count)), variable, station, second, value + 1.5))
    return [_make_commit([row for row in rows if row[0] == number], number) for number in range(count)]


def _make_commit(rows: list[tuple[int, int, int, int, float]], number: int) -> list[Readings]:
    parts = []
    for variable, name in enumerate(VARIABLES):
        own = {(station, second): value for _, kind, station, second, value in rows if kind == variable}
        keys = sorted(own)
        series = tuple(Series(name, station, 2.0, 1, interval_s=150.0) for station in NAMES)
        stamps = np.array([START_NS + second * SECOND_NS for _, second in keys], np.int64)
        parts.append(
            Readings(
                series, np.array([station for station, _ in keys], np.int32), stamps,
                np.array([own[key] for key in keys], np.float64), np.ones(len(keys), np.uint8),
                stamps + (number + 1) * SECOND_NS,
            )
        )  # fmt: skip
    return parts


def commit(folder: Path, number: int, parts: list[Readings]) -> None:
    archive = Archive.open(folder)
    with archive.commit(batch=f"b{number}", message="readings", now_ns=START_NS + number * SECOND_NS) as writer:
        for part in parts:
            if len(part):
                writer.readings(part)


def backtest(archive: OpenArchive, text: str, start_ns: int, end_ns: int) -> dict[tuple[int, Row], int]:
    """Return the net changes of one evaluation over the archive."""
    query = hg.continuous(archive).query(text)
    texts = Texts()
    counts = Counter[tuple[int, Row]]()
    assert isinstance(query, ArchiveQuery)
    for batches, _ in query.iterate_changes(texts, QueryPart(Stretch(start_ns, end_ns, "time"), NULL_INTEGER)):
        for batch in batches:
            for tau, sign, row in rows_of(batch, query.bound.tree.attributes, texts):
                counts[tau, row] += sign
    return {key: count for key, count in counts.items() if count}


def given(folder: Path, name: str) -> dict[tuple[int, Row], int]:
    """Return the net changes of all that a live query gave."""
    counts = Counter[tuple[int, Row]]()
    for element in open_store(folder).list_elements(name, limit=10**6):
        counts[element.tau_ns, element.row] += element.sign
    return {key: count for key, count in counts.items() if count}


def run_steps(folder: Path, count: int) -> None:
    """Follow an archive with all its live queries until a number of commits are processed; for a process of its own."""
    archive = open_archive(folder)
    store = open_store(folder)
    queries = [LiveQuery(archive, store, entry.name) for entry in store.list_entries()]
    while True:
        for query in queries:
            query.step()
        if len(Archive.open(folder).snapshots) >= count + 2:
            for query in queries:
                query.step()
            return


if __name__ == "__main__":
    run_steps(Path(sys.argv[1]), int(sys.argv[2]))
