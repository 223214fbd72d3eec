"""A year of commits a minute: what an archive grows to, and how long its queries take, month by month.

`measure(sizes, tell)` writes twelve shortened months. A commit holds `slices_a_commit` minutes of every station and
variable, some of which come late (they fill earlier cells), drift into a neighbour's cell (they lie in the side table)
or replace what was there. A real year of minutes has 525,600 commits of one minute: a month of 43,800. What a commit
costs depends on the chunks that it touches, which are those of the last slices, so that months are shortened by their
commits; what a query costs depends on what is stored, so that commits may hold more than a minute.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hypergrid as hg
from hypergrid.archive import Archive, RetentionPolicy
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.result_names import by_role
from hypergrid.core.units import Variable

MINUTE_NS = 60 * 10**9
MONTHS = 12
SAMPLED = 8
"""Commits between two looks at the files; between two maintenances their number rises and falls."""
REPEATS = 7
MONTHS_OF_MINUTES = 43_800


@dataclass(frozen=True)
class Sizes:
    """How large the year is."""

    commits_a_month: int = 600
    slices_a_commit: int = 10
    variables: int = 3
    stations: int = 24
    late: float = 0.01
    """Share of the readings that come an hour later."""
    drifting: float = 0.005
    """Share that lies in the cell of the reading before."""
    replaced: float = 0.002
    """Share that comes once more with another value."""

    @property
    def scale(self) -> float:
        """Which part of a year of minute commits is written."""
        return self.commits_a_month / MONTHS_OF_MINUTES


CASES = {"all": Sizes(), "short": Sizes(commits_a_month=60)}
CARE = RetentionPolicy(keep_s=0.0, every=128, max_snapshots=60, least_s=0.0)
"""As an archive of a commit a minute is kept: the snapshots of the last hour."""


def measure(sizes: Sizes | str, notify: Callable[[str, float], None], *, pairs: int = REPEATS) -> dict[str, Any]:
    """Return, for each month, most files and bytes, bytes a reading, seconds of commits, and seconds of queries.

    Parameters
    ----------
    sizes
        Or the name of a case.
    pairs
        Queries that the median of a month is of.
    """
    sizes = CASES[sizes] if isinstance(sizes, str) else sizes
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "archive"
        writer = _Year(folder, sizes)
        months = []
        for month in range(MONTHS):
            commits, held = [], []
            for number in range(sizes.commits_a_month):
                commits.append(writer.commit())
                if number % SAMPLED == 0:
                    held.append(_held(folder))
                notify("year of minute commits", (month + number / sizes.commits_a_month) / MONTHS)
            months.append(_month(folder, sizes, month, commits, held, pairs))
            if not month:
                shutil.copytree(folder, Path(scratch) / "first")
        notify("year of minute commits", 1.0)
        whole = not list(Archive.open(folder).check(grace_s=3600.0))
        # In turns, so that both see the same machine.
        queries = [
            _query(folder, sizes, MONTHS - 1) / _query(Path(scratch) / "first", sizes, 0) for _ in range(3 * pairs)
        ]
    first, last = months[0], months[-1]
    ratios = {"query_s": statistics.median(queries), "query_s, least": min(queries), "query_s, most": max(queries)}
    ratios |= {name: last[name] / first[name] for name in ("files", "bytes_a_reading", "commit_s")}
    return {"sizes": {**asdict(sizes), "scale": sizes.scale}, "months": months, "ratios": ratios, "is_whole": whole}


class _Year:
    def __init__(self, folder: Path, sizes: Sizes) -> None:
        names = [f"v{number}" for number in range(sizes.variables)]
        Archive.create(folder, name="year", slice_s=60.0, variables=[Variable(n, "degC") for n in names], now_ns=0)
        self.archive = Archive.open(folder, care=CARE)
        self.sizes = sizes
        self.rng = np.random.default_rng(2007)
        self.series = {
            name: tuple(Series(name, f"s{number}", interval_s=60.0) for number in range(sizes.stations))
            for name in names
        }
        self.late: dict[str, list[Readings]] = {name: [] for name in names}
        self.count = 0

    def commit(self) -> float:
        begun = time.perf_counter()
        now_ns = (self.count + 1) * self.sizes.slices_a_commit * MINUTE_NS
        with self.archive.commit(batch=str(self.count), message="minute", now_ns=now_ns) as writer:
            if not self.count:
                places = self.rng.uniform(0, 0.01, (self.sizes.stations, 2))
                writer.stations(
                    Station(f"s{number}", "", (Position(None, 7.0 + x, 46.0 + y, 2000.0),))
                    for number, (x, y) in enumerate(places.tolist())
                )
            for name, series in self.series.items():
                for given in self._readings(name, series):
                    writer.readings(given)
        self.count += 1
        return time.perf_counter() - begun

    def _readings(self, name: str, series: tuple[Series, ...]) -> list[Readings]:
        sizes, rng = self.sizes, self.rng
        slices = self.count * sizes.slices_a_commit + np.arange(sizes.slices_a_commit)
        index = np.tile(np.arange(len(series), dtype=np.int32), len(slices))
        time_ns = np.repeat(slices, len(series)) * MINUTE_NS + index * 10**9
        drifts = (rng.random(len(index)) < sizes.drifting) & (time_ns > MINUTE_NS)
        time_ns[drifts] -= MINUTE_NS - 10**7
        value = np.round(10.0 + rng.normal(size=len(index)), 2)
        new = Readings(series, index, time_ns, value, np.full(len(index), 1, np.uint8), time_ns + 10**9)
        late = rng.random(len(index)) < sizes.late
        again = rng.random(len(index)) < sizes.replaced
        hour = max(1, 60 // sizes.slices_a_commit)
        self.late[name].append(new.take_rows(late))
        due = [self.late[name].pop(0)] if len(self.late[name]) > hour else []
        corrected = new.take_rows(again & ~late)
        other = Readings(series, corrected.index, corrected.time_ns, corrected.value + 1.0, corrected.flag,
                         corrected.arrival_ns + 1)  # fmt: skip
        return [new.take_rows(~late), *due, other]


def _held(folder: Path) -> tuple[int, int]:
    """Return the files of an archive, and their bytes."""
    sizes = []
    for kind in (folder / "store").iterdir():
        if kind.is_dir():
            with os.scandir(kind) as entries:
                sizes += [entry.stat().st_size for entry in entries]
    return len(sizes), sum(sizes)


def _month(
    folder: Path, sizes: Sizes, month: int, commits: list[float], held: list[tuple[int, int]], repeats: int
) -> dict[str, Any]:
    files, size = (max(column) for column in zip(*held, strict=True))
    archive = Archive.open(folder)
    readings = sum(archive.readings(name) for name in archive.variables)
    return {
        "month": month + 1,
        "files": files,
        "bytes": size,
        "readings": readings,
        "bytes_a_reading": size / readings,
        "commit_s": statistics.median(commits),
        "slowest_commit_s": max(commits),
        "query_s": statistics.median(_query(folder, sizes, month) for _ in range(repeats)),
    }


def _query(folder: Path, sizes: Sizes, month: int) -> float:
    """Return the seconds of a query of the month's last tenth from the opening of the archive on."""
    minutes = sizes.commits_a_month * sizes.slices_a_commit
    stop = (month + 1) * minutes
    edges = (stop - max(20, minutes // 10), stop)
    clip = {"time": [str(np.datetime64(edge * MINUTE_NS, "ns")) for edge in edges]}
    steps = [{"op": "aggregate", "function": "mean", "time": "10min", "params": {"min_coverage": 0}}]
    begun = time.perf_counter()
    result = hg.open(folder).query({"variable": "v0", "steps": steps, "clip": clip}).compute()
    assert int(by_role(result)["count"].sum()) > 0
    return time.perf_counter() - begun


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return the tables that people read."""
    columns = ("month", "files", "bytes", "bytes_a_reading", "commit_s", "slowest_commit_s", "query_s")
    rows = [tuple(month[name] for name in columns) for month in measured["months"]]
    ratios = [(name, float(value)) for name, value in measured["ratios"].items()]
    return [
        (f"A year of minute commits at {measured['sizes']['scale']:.2%} of its commits", columns, rows),
        ("Month 12 against month 1", ("what", "times"), ratios),
    ]
