"""Tests with a memory over an archive: the same flags by batch, in pieces, late, judged once more and in parts."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.flags import SUSPECT, TESTS
from hypergrid.core.readings import Position, Readings, Station
from hypergrid.core.times import Window
from hypergrid.core.units import KNOWN_VARIABLES
from ingest.deployment.quality_overrides import DEFAULTS, QualityOverrides
from ingest.deployment.quality_settings import LevelShift
from ingest.quality.block_tests import MEMORIES
from ingest.quality.flagging import QualityFlagger, reflag_part
from ingest.reprocess.reflag import run_quality
from tests.bench.quality_networks import HOUR_NS, SHAPES, START_NS, Shift, station_years

AIR = KNOWN_VARIABLES["air_temperature"]
QUALITY = QualityOverrides(
    variables=(
        (
            "air_temperature",
            replace(DEFAULTS["air_temperature"], level_shift=LevelShift(least_shift=0.3, days=14, memory_days=14)),
        ),
    )
)
NETWORK = station_years(replace(SHAPES[3], stations=5), 611, days=36, gaps=False)
STATIONS = {one.id: Station(one.id, one.id, (Position(None, 8.0, 47.0, 400.0),)) for one in NETWORK.stations}
DAY_NS = 24 * HOUR_NS
SHIFTED = Shift(2, START_NS + 20 * DAY_NS, START_NS + 28 * DAY_NS, 9.0).plant(NETWORK).readings()


def _store(archive: Archive, given: Readings, batch: object) -> None:
    with archive.latest().commit(batch=str(batch), message="", now_ns=1) as writer:
        inspector = QualityFlagger(QUALITY, STATIONS, 3600.0)
        inspector.keep(writer, {"air_temperature": AIR})
        inspector.store(writer, AIR, given, lambda _: None)


def _archive(folder: Path) -> Archive:
    return Archive.create(folder, name="n", slice_s=3600, variables=[AIR], now_ns=0)


def _flags(archive: Archive) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    found = archive.latest().read("air_temperature", tests=True)
    order = np.lexsort((found.time_ns, np.array([found.series[n].station for n in found.index])))
    return found.flag[order], found.tests_or_none_set()[order]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    archive = _archive(tmp_path_factory.mktemp("whole") / "archive")
    _store(archive, SHIFTED, "all")
    return archive.latest()


def test_a_shift_is_suspect_for_as_long_as_it_lasts(whole: Archive) -> None:
    found = whole.read("air_temperature", tests=True)
    bit = np.uint16(1 << TESTS.index("level_shift"))
    mine = np.array([one.station for one in found.series])[found.index] == "s02"
    inside = (found.time_ns >= START_NS + 20 * DAY_NS) & (found.time_ns < START_NS + 28 * DAY_NS)
    assert ((found.flag >= SUSPECT) & ((found.tests_or_none_set() & bit) > 0))[mine & inside].mean() > 0.95
    assert ((found.tests_or_none_set() & bit) > 0)[~(mine & inside)].mean() < 0.01


def _pieces(way: str) -> list[Readings]:
    generator = np.random.default_rng(5)
    if way == "days":
        part = (SHIFTED.time_ns - START_NS) // (6 * DAY_NS)
    elif way == "stations":
        part = SHIFTED.index.astype(np.int64)
    else:
        # Some readings come after all others.
        part = (generator.random(len(SHIFTED)) < 0.1).astype(np.int64)
    return [SHIFTED.take_rows(part == number) for number in np.unique(part)]


@pytest.mark.parametrize("way", ["days", "days, a process each", "stations", "late"])
def test_pieces_have_the_flags_of_the_whole(tmp_path: Path, whole: Archive, way: str) -> None:
    archive = _archive(tmp_path / "archive")
    for number, piece in enumerate(_pieces(way.split(",")[0])):
        if way.endswith("each"):
            MEMORIES.memories.clear()
        _store(archive, piece, number)
    for one, other in zip(_flags(archive), _flags(whole), strict=True):
        np.testing.assert_array_equal(one, other)


def test_judging_once_more_changes_nothing(tmp_path: Path, whole: Archive) -> None:
    archive = _archive(tmp_path / "archive")
    _store(archive, SHIFTED, "all")
    assert run_quality(archive.path, now_ns=2).changed == 0


def test_parts_have_the_flags_of_the_whole(whole: Archive) -> None:
    extent = whole.extent("air_temperature")
    assert extent is not None
    edges = np.linspace(extent.start_ns, extent.stop_ns, 4).astype(np.int64).tolist()
    read = partial(whole.read, tests=True)
    for start, stop in zip(edges[:-1], edges[1:], strict=True):
        tests = QUALITY.tests(AIR)
        old, new, inside = reflag_part(read, whole, AIR, tests, Window(start, stop))
        np.testing.assert_array_equal(old.flag[inside], new.flag[inside])
        np.testing.assert_array_equal(old.tests_or_none_set()[inside], new.tests_or_none_set()[inside])
