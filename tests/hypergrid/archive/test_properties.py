"""Batches of any readings in any order, against a dictionary."""

import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hypergrid.archive import Archive, Conservation
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window, parse_instant
from hypergrid.core.units import Variable
from tests.support.archive_counts import count_content

SLICE_NS = 120_000_000_000
# Around the earliest instant, the epoch, and the border between two chunks of 2048 slices.
_BORDER = parse_instant("1900-01-01") + 2048 * 13_000 * SLICE_NS
CLUSTERS = [parse_instant("1900-01-01"), -SLICE_NS, _BORDER - SLICE_NS]

ROW = st.tuples(
    st.sampled_from([f"s{number}" for number in range(40)]) | st.sampled_from(["s0", "s33"]),
    st.builds(lambda base, step: base + step * SLICE_NS // 3, st.sampled_from(CLUSTERS), st.integers(0, 5)),
    st.sampled_from([None, 0.0, -1.5, 3.25]),
    st.sampled_from([1, 2]),
    st.integers(0, 2**62),
)
BATCHES = st.lists(st.lists(ROW, max_size=25), min_size=1, max_size=5)


class Oracle:
    """What should be in the archive, one reading at a time."""

    def __init__(self) -> None:
        self.current: dict[tuple[str, int], tuple[object, ...]] = {}
        self.superseded: list[tuple[object, ...]] = []
        self.duplicates = 0

    def add(self, row: tuple[str, int, float | None, int, int]) -> None:
        station, stamp, value, flag, arrival = row
        new = (station, stamp, value, 9 if value is None else flag, arrival)
        old = self.current.get((station, stamp))
        if old is not None and old[2:4] == new[2:4]:
            self.duplicates += 1
            return
        if old is not None:
            self.superseded.append(old)
        self.current[station, stamp] = new


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty") / "archive"
    Archive.create(folder, name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    return folder


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(batches=BATCHES)
def test_the_archive_holds_what_a_dictionary_holds(
    empty: Path,
    readings: Callable[..., Readings],
    rows: Callable[[Readings], list[tuple[object, ...]]],
    batches: list[list[tuple[str, int, float | None, int, int]]],
) -> None:
    oracle = Oracle()
    with tempfile.TemporaryDirectory() as scratch:
        archive = Archive.open(shutil.copytree(empty, Path(scratch) / "archive"))
        total = Conservation()
        for number, batch in enumerate(batches):
            complete = [(s, t, v, 9 if v is None else flag, arrival) for s, t, v, flag, arrival in batch]
            with archive.commit(batch=str(number), message="", now_ns=number) as writer:
                result = writer.readings(readings(complete, variable="v"))
            assert result.readings == result.stored + result.side + result.superseded + result.duplicates
            total += result
            for row in batch:
                oracle.add(row)
        newest = archive.latest()
        order = {one.station: number for number, one in enumerate(newest.series("v"))}

        def ordered(found: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
            return sorted(found, key=lambda row: (order[str(row[0])], row[1]))

        assert rows(newest.read("v")) == ordered(list(oracle.current.values()))
        assert rows(newest.read("v", superseded=True)) == ordered(oracle.superseded)
        assert total.duplicates == oracle.duplicates
        assert total.superseded == len(oracle.superseded)
        assert total.stored + total.side == len(oracle.current)
        counts = count_content(newest)["v"]
        stamps = [int(str(row[1])) for row in oracle.current.values()]
        assert counts["readings"] == len(stamps)
        assert counts["missing"] == sum(row[2] is None for row in oracle.current.values())
        assert counts["superseded"] == len(oracle.superseded)
        assert counts["slices"] == len({math.floor(stamp / SLICE_NS) for stamp in stamps})

        # A window and a choice of series read what they say.
        window = Window(CLUSTERS[1] + SLICE_NS // 2, CLUSTERS[2] + SLICE_NS)
        chosen = np.arange(0, len(order), 2)
        wanted = [r for r in oracle.current.values() if window.start_ns <= int(str(r[1])) < window.stop_ns]
        wanted = [row for row in wanted if order[str(row[0])] % 2 == 0]
        assert rows(newest.read("v", window=window, series=chosen)) == ordered(wanted)

        # How many there are at least is known without reading them.
        assert newest.count_at_least("v") == total.stored
        assert newest.count_at_least("v", maximum=2) >= min(total.stored, 3)
        assert newest.count_at_least("v", window=window, series=chosen) <= len(wanted)
        good = [row for row in wanted if row[3] in (1, 2)]
        assert newest.count_at_least("v", window=window, series=chosen, flags=(1, 2)) <= len(good)
        whole = Window(CLUSTERS[0] - SLICE_NS, CLUSTERS[-1] + 100 * SLICE_NS)
        inside = [row for row in oracle.current.values() if whole.start_ns <= int(str(row[1])) < whole.stop_ns]
        assert newest.count_at_least("v", window=whole) >= len(inside) - total.side
