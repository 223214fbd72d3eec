"""Several variables stored by threads at once: the archive is the one that they make one after the other."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from hypergrid.archive import Archive
from hypergrid.archive.arrays.cells import unique_numbers
from hypergrid.core.readings import Readings, Series
from hypergrid.core.units import Variable

NAMES = ("a", "b", "c", "d")
MINUTE_NS = 60 * 10**9


def _readings(name: str, part: int) -> Readings:
    rng = np.random.default_rng([ord(name), part])
    series = tuple(Series(name, f"s{number}") for number in range(40))
    index = np.repeat(np.arange(40, dtype=np.int32), 100)
    # Overlapping parts, so that cells are filled, replaced and read again.
    time_ns = 10**18 + np.tile(np.arange(100) + 60 * part, 40) * 50 * 10**9
    return Readings(series, index, time_ns, rng.normal(size=4000), np.ones(4000, np.uint8), time_ns)


def _archive(folder: Path, threads: int) -> Archive:
    archive = Archive.create(folder, name="n", slice_s=60.0, variables=[Variable(n, "degC") for n in NAMES], now_ns=0)

    with archive.commit(batch="one", message="", now_ns=1) as writer, ThreadPoolExecutor(threads) as pool:

        def work(name: str) -> None:
            for part in range(4):
                writer.readings(_readings(name, part))
                assert len(writer.read("a")) % 40 == 0
                stored = writer.read(name)
                worse = np.where(stored.value > 2.0, 3, stored.flag).astype(np.uint8)
                writer.flags(replace(stored, flag=worse))

        list(pool.map(work, NAMES))
    return archive.latest()


def test_threads_store_what_one_after_the_other_does(tmp_path: Path) -> None:
    one, several = _archive(tmp_path / "one", 1), _archive(tmp_path / "several", 4)
    assert one.snapshots[-1].metadata == several.snapshots[-1].metadata
    for name in NAMES:
        for superseded in (False, True):
            expected, found = (which.read(name, superseded=superseded) for which in (one, several))
            for column in ("index", "time_ns", "value", "flag", "arrival_ns"):
                np.testing.assert_array_equal(getattr(found, column), getattr(expected, column))


def test_distinct_numbers_near_and_far() -> None:
    for numbers in ([], [5], [7, 3, 7, 4], [-2, 10**9, -2], [0, 0, 0]):
        expected = sorted(set(numbers))
        assert unique_numbers(np.array(numbers, np.int64)).tolist() == expected
