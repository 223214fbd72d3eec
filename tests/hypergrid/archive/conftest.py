"""A small archive, and readings written as rows."""

import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import parse_instant
from hypergrid.core.units import KNOWN_VARIABLES

Row = tuple[str, int, float, int, int]
"""Station, stamp [ns], value, flag, arrival [ns]."""


@pytest.fixture(scope="session")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive without readings, which each test copies: to make one takes as long as many a test."""
    folder = tmp_path_factory.mktemp("created") / "archive"
    variables = [KNOWN_VARIABLES["air_temperature"], KNOWN_VARIABLES["watermark"]]
    return Archive.create(folder, name="pass", slice_s=120, variables=variables, now_ns=7).path


@pytest.fixture
def archive(created: Path, tmp_path: Path) -> Archive:
    return Archive.open(shutil.copytree(created, tmp_path / "archive"))


@pytest.fixture
def readings() -> Callable[..., Readings]:
    """Build readings of one variable from rows; stations become series in their order of appearance."""

    def build(
        rows: Iterable[tuple[object, ...]], *, variable: str = "air_temperature", stations: Sequence[str] = ()
    ) -> Readings:
        table = [_complete(row) for row in rows]
        names = list(dict.fromkeys([*stations, *(row[0] for row in table)]))
        series = tuple(Series(variable, name, 2.0, interval_s=120.0) for name in names)
        return Readings(
            series,
            np.array([names.index(row[0]) for row in table], np.int32),
            np.array([row[1] for row in table], np.int64),
            np.array([row[2] for row in table], np.float64),
            np.array([row[3] for row in table], np.uint8),
            np.array([row[4] for row in table], np.int64),
        )

    return build


@pytest.fixture
def rows() -> Callable[[Readings], list[Row]]:
    """Write readings as rows again, with a value that is missing as None, so that rows compare."""

    def write(given: Readings) -> list[Row]:
        stations = [given.series[number].station for number in given.index]
        values = [None if math.isnan(value) else value for value in given.value.tolist()]
        columns = (stations, given.time_ns.tolist(), values, given.flag.tolist(), given.arrival_ns.tolist())
        return list(zip(*columns, strict=True))  # type: ignore[arg-type]

    return write


def _complete(row: tuple[object, ...]) -> Row:
    station, stamp, value, *rest = row
    time_ns = parse_instant(stamp) if isinstance(stamp, str) else int(stamp)  # type: ignore[call-overload]
    number = math.nan if value is None else float(value)  # type: ignore[arg-type]
    flag = int(rest[0]) if rest else 9 if value is None else 2  # type: ignore[call-overload]
    return str(station), time_ns, number, flag, int(rest[1]) if len(rest) > 1 else time_ns  # type: ignore[call-overload]
