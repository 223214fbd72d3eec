"""Results of the tests with a memory, by blocks of three hours. Pure.

The tests are those of level shifts and faulty zeros. They are independent of the other tests: readings that those flag
are not excluded from blocks (a block is a median), and the results do not change those of the other tests. Readings in
a flagged block are suspect; these tests never set a reading to good.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import MISSING, SUSPECT, TESTS
from hypergrid.core.readings import Readings, Series
from ingest.deployment.quality_settings import VariableTests
from ingest.quality.blocks import BLOCK_NS, Blocks, means, medians, sums, usable
from ingest.quality.levels import shifted
from ingest.quality.spatial import Places
from ingest.quality.zeros import faulty_zeros

LEVEL_BIT = np.uint16(1 << TESTS.index("level_shift"))
ZERO_BIT = np.uint16(1 << TESTS.index("faulty_zeros"))


class MutableFlags(Protocol):
    """Mutable flags and tests of readings."""

    @property
    def flag(self) -> NDArray[np.uint8]:
        """Shape (n,)."""

    @property
    def tests(self) -> NDArray[np.uint16]:
        """Shape (n,)."""


@dataclass(frozen=True, eq=False)
class BlockBits:
    """Bits of failed tests, by series and block."""

    first: int
    """Index of the first block, counted from 1970."""
    tests: NDArray[np.uint16]
    """Bits of the tests, shape (series, blocks)."""

    def reading_bits(self, readings: Readings) -> NDArray[np.uint16]:
        """Return the bits of readings of the same series, shape (n,); 0 outside."""
        block = readings.time_ns // BLOCK_NS - self.first
        inside = (block >= 0) & (block < self.tests.shape[1]) & (readings.flag != MISSING)
        tests = np.zeros(len(readings), np.uint16)
        tests[inside] = self.tests[readings.index[inside], block[inside]]
        return tests

    def renumber(self, known: tuple[Series, ...], series: tuple[Series, ...]) -> "BlockBits":
        """Return a copy in the order of other series; unknown series have no bits."""
        number = {sensor_series: index for index, sensor_series in enumerate(known)}
        at = np.array([number.get(sensor_series, -1) for sensor_series in series], np.intp)
        tests = np.zeros((len(series), self.tests.shape[1]), np.uint16)
        inside = (at >= 0) & (at < len(self.tests))
        tests[inside] = self.tests[at[inside]]
        return BlockBits(self.first, tests)


def blocks_of(readings: Readings, tests: VariableTests, first: int, stop: int) -> tuple[Blocks, Blocks]:
    """Return the blocks for the level test and those for the zero test, of the same readings."""
    rows = usable(readings, tests.gross_range)
    middle = medians(readings, rows, first, stop) if needs_medians(tests) else _none(readings)
    fallen = means if tests.faulty_zeros is not None and tests.faulty_zeros.of == "rate" else sums
    total = fallen(readings, rows, first, stop) if needs_sums(tests) else _none(readings)
    return Blocks(first, middle), Blocks(first, total)


def needs_medians(tests: VariableTests) -> bool:
    return tests.level_shift is not None or (tests.faulty_zeros is not None and tests.faulty_zeros.of == "counter")


def needs_sums(tests: VariableTests) -> bool:
    """Return whether any test uses sums, or means of rates."""
    return tests.faulty_zeros is not None and tests.faulty_zeros.of != "counter"


def _none(readings: Readings) -> NDArray[np.float64]:
    return np.empty((len(readings.series), 0))


def evaluate(middle: Blocks, total: Blocks, tests: VariableTests, places: Places, first: int, stop: int) -> BlockBits:
    """Run the tests on some blocks; `middle` and `total` include the surrounding ones."""
    bits = np.zeros((len(middle.value), stop - first), np.uint16)
    if tests.level_shift:
        settings = replace(tests.level_shift, memory_days=tests.memory_days)
        bits[shifted(middle, settings, places, first, stop)] |= LEVEL_BIT
    if tests.faulty_zeros:
        looked = middle if tests.faulty_zeros.of == "counter" else total
        zeros = replace(tests.faulty_zeros, memory_days=tests.memory_days)
        bits[faulty_zeros(looked, zeros, places, first, stop)] |= ZERO_BIT
    return BlockBits(first, bits)


def evaluate_readings(readings: Readings, tests: VariableTests, places: Places) -> BlockBits:
    """Run the tests on readings without surroundings."""
    first, stop = int(readings.time_ns.min() // BLOCK_NS), int(readings.time_ns.max() // BLOCK_NS) + 1
    return evaluate(*blocks_of(readings, tests, first, stop), tests, places, first, stop)


def mark_suspect(judged: MutableFlags, readings: Readings, block_bits: BlockBits) -> None:
    """Set readings in flagged blocks to suspect, in place."""
    bits = block_bits.reading_bits(readings)
    rows = np.flatnonzero(bits)
    judged.tests[rows] |= bits[rows]
    # A fail flag of another test is kept.
    judged.flag[rows] = np.maximum(judged.flag[rows], SUSPECT)
