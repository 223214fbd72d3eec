"""The tests with a memory (of levels, of faulty zeros) over an archive: what they said, and what they say with more.

What a block of hours is found to be follows from the values of its term and those around it (`ingest.quality.blocks`),
so that it is the same in whatever pieces readings come. Blocks of what was read are kept from one batch of a stream to
the next, as long as nothing else wrote in between; a batch then costs the blocks that it touches, and the weeks after.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Writer
from hypergrid.core.flags import GOOD, MISSING, NOT_EVALUATED, SUSPECT
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import Window
from ingest.deployment.quality_settings import VariableTests
from ingest.quality.block_memory import LEVEL_BIT, ZERO_BIT, BlockBits, blocks_of
from ingest.quality.blocks import BLOCK_NS, Blocks, term_blocks
from ingest.quality.levels import LOOK, Term
from ingest.quality.run_tests import WITH_MEMORY
from ingest.quality.spatial import Places
from ingest.quality.zeros import faulty_zeros

Read = Callable[[Window], Readings]
"""Gives all readings of a variable within a window, of all its series."""
_READINGS_AT_ONCE: Final = 2_000_000
_MAX_MEMORIES: Final = 16
"""Variables that are remembered from one commit to the next."""
_BLOCKS_AT_ONCE: Final = 56


def affected(tests: VariableTests, first: int, stop: int) -> tuple[int, int]:
    """Return the blocks of which something else may be said where some change."""
    length = term_blocks(tests.memory_days)
    return (first - LOOK) // length * length, (stop // length + 2) * length


class BlockHistory:
    """Blocks of a variable in an archive, read when they are needed, and what is said of them."""

    def __init__(self, read: Read, tests: VariableTests, places: Callable[[tuple[Series, ...]], Places]) -> None:
        self.read, self.places = read, places
        self._tests = tests
        self.series: tuple[Series, ...] = ()
        """As the archive numbers them."""
        self._middle, self._total = Blocks(0, np.empty((0, 0))), Blocks(0, np.empty((0, 0)))
        self._first = self._stop = 0
        self._terms: dict[int, Term] = {}
        self._bits: dict[int, NDArray[np.uint16]] = {}
        self._changed: dict[int, int] = {}
        self.length = term_blocks(tests.memory_days)
        """Blocks of a term; the longest memory holds for both tests."""

    def grow(self, series: tuple[Series, ...]) -> None:
        """Know of series that are new."""
        if len(series) > len(self.series):
            self.series = series
            more = len(series) - len(self._middle.value)
            pad = ((0, more), (0, 0))
            self._middle = Blocks(self._first, np.pad(self._middle.value, pad, constant_values=np.nan))
            self._total = Blocks(self._first, np.pad(self._total.value, pad, constant_values=np.nan))
            self._terms.clear()
            self._bits = {number: np.pad(bits, pad) for number, bits in self._bits.items()}
            self._changed = dict.fromkeys(self._bits, -(1 << 60))

    def need(self, first: int, stop: int) -> None:
        """Have the blocks that what is said of some blocks depends on."""
        low, high = self._context(first, stop)
        if low >= self._first and high <= self._stop:
            return
        middle, total = self._middle.part(low, high), self._total.part(low, high)
        missing = (
            [(low, high)]
            if self._first >= self._stop
            else [(low, min(high, self._first)), (max(low, self._stop), high)]
        )
        for begin, end in missing:
            if begin < end:
                made = self._make_blocks(begin, end)
                self.grow(made[2])
                if len(self.series) > len(middle):
                    pad = ((0, len(self.series) - len(middle)), (0, 0))
                    middle, total = (
                        np.pad(block_values, pad, constant_values=np.nan) for block_values in (middle, total)
                    )
                middle[: len(made[0]), begin - low : end - low] = made[0]
                total[: len(made[1]), begin - low : end - low] = made[1]
        self._first, self._stop = low, high
        self._middle, self._total = Blocks(low, middle), Blocks(low, total)
        kept = range(low // self.length + 1, -(-high // self.length))
        self._terms = {number: term for number, term in self._terms.items() if number in kept}
        self._bits = {number: bits for number, bits in self._bits.items() if number in kept}

    def _context(self, first: int, stop: int) -> tuple[int, int]:
        length = self.length
        return (first // length - 1) * length, -(-stop // length) * length + LOOK

    def _make_blocks(self, begin: int, end: int) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[Series, ...]]:
        """Return medians and sums of blocks of the archive, read in pieces."""
        parts, series, at, step = [], self.series, begin, 8
        while at < end:
            until = min(at + step, end)
            readings = self.read(Window(at * BLOCK_NS, until * BLOCK_NS))
            series = readings.series if len(readings.series) > len(series) else series
            parts.append((*blocks_of(readings, self._tests, at, until), until - at))
            fits = 2 * step if len(readings) < _READINGS_AT_ONCE // 4 else max(8, step // 2)
            at, step = (
                until,
                fits if len(readings) < _READINGS_AT_ONCE // 4 or len(readings) > _READINGS_AT_ONCE else step,
            )
        arrays = []
        for pieces in ([(part[0], part[2]) for part in parts], [(part[1], part[2]) for part in parts]):
            whole = np.full((len(series), end - begin), np.nan)
            column = 0
            for blocks, width in pieces:
                if blocks.value.shape[1]:
                    whole[: len(blocks.value), column : column + width] = blocks.value
                column += width
            arrays.append(whole)
        return arrays[0], arrays[1], series

    def change(self, first: int, stop: int) -> None:
        """Read some blocks again, whose readings changed."""
        middle, total, series = self._make_blocks(first, stop)
        self.grow(series)
        for blocks, new in ((self._middle, middle), (self._total, total)):
            blocks.value[: len(new), first - self._first : stop - self._first] = new
        for number in self._bits:
            if (number - 1) * self.length < stop and first < (number + 1) * self.length + LOOK:
                self._changed[number] = min(first, self._changed.get(number, first))

    def affected_blocks(self, first: int, stop: int) -> tuple[int, int]:
        """Return the blocks of which something else may be said where some change."""
        return affected(self._tests, first, stop)

    def evaluate(self, first: int, stop: int) -> BlockBits:
        """Return what is said of some blocks."""
        self.need(first, stop)
        bits = np.zeros((len(self.series), stop - first), np.uint16)
        for number in range(first // self.length, -(-stop // self.length)):
            part = self._of_term(number)
            low, high = max(first, number * self.length), min(stop, (number + 1) * self.length)
            bits[: len(part), low - first : high - first] = part[
                :, low - number * self.length : high - number * self.length
            ]
        return BlockBits(first, bits)

    def _of_term(self, number: int) -> NDArray[np.uint16]:
        if number in self._bits and number not in self._changed:
            return self._bits[number]
        places, tests = self.places(self.series), self._tests
        begin, end = number * self.length, (number + 1) * self.length
        bits = np.zeros((len(self.series), self.length), np.uint16)
        if tests.level_shift:
            settings = replace(tests.level_shift, memory_days=tests.memory_days)
            term = self._terms.setdefault(number, Term(number, settings))
            changed = self._changed.get(number, term.begin) if number in self._bits else term.begin
            bits[term.find_shifts(self._middle, places, changed)] |= LEVEL_BIT
        if tests.faulty_zeros:
            zeros = replace(tests.faulty_zeros, memory_days=tests.memory_days)
            looked = self._middle if zeros.of == "counter" else self._total
            bits[faulty_zeros(looked, zeros, places, begin, end)] |= ZERO_BIT
        self._bits[number] = bits
        self._changed.pop(number, None)
        return bits


@dataclass
class Memory:
    """What is remembered of a variable of an archive that is written to."""

    variable: str
    tests: VariableTests
    writer: Writer
    history: BlockHistory
    changed: bool = False

    def holds(self, writer: Writer, variable: str, tests: VariableTests) -> bool:
        """Return whether it is of the archive as a writer finds it."""
        if variable != self.variable or tests != self.tests:
            return False
        if writer is self.writer:
            return True
        base = self.writer.snapshot or (None if self.changed else self.writer.parent)
        return base is not None and base == writer.parent


@dataclass
class Memories:
    """Those of the last commits of this process."""

    memories: list[Memory] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def memory_of(
        self, writer: Writer, variable: str, tests: VariableTests, places: Callable[[tuple[Series, ...]], Places]
    ) -> Memory:
        """Return what is remembered, or a memory that is empty yet."""
        with self.lock:
            memory = next((memory for memory in self.memories if memory.holds(writer, variable, tests)), None)
            self.memories = [other for other in self.memories if other is not memory][-_MAX_MEMORIES:]
            if memory is None:
                memory = Memory(variable, tests, writer, BlockHistory(lambda _: Readings.empty(), tests, places))
            elif memory.writer is not writer:
                memory.writer, memory.changed = writer, False
            memory.history.read, memory.history.places = partial(_read, writer, variable), places
            self.memories.append(memory)
            return memory


def _read(writer: Writer, variable: str, window: Window) -> Readings:
    return writer.read(variable, window=window)


def without_memory(readings: Readings, tests: VariableTests) -> Readings:
    """Return readings with the flags that the other tests gave them."""
    bits = readings.tests_or_none_set()
    marked = (bits & WITH_MEMORY) > 0
    if not marked.any():
        return readings
    rest = bits & ~WITH_MEMORY
    before = GOOD if tests.without_memory() else NOT_EVALUATED
    flag = np.where(marked & (rest == 0), before, readings.flag).astype(np.uint8)
    return replace(readings, flag=flag, tests=rest)


def with_memory(readings: Readings, block_bits: BlockBits) -> Readings:
    """Return readings, of the same series, with what the tests with a memory found."""
    bits = block_bits.reading_bits(readings)
    flag = np.where(bits > 0, np.maximum(readings.flag, SUSPECT), readings.flag).astype(np.uint8)
    return replace(readings, flag=flag, tests=readings.tests_or_none_set() | bits)


@dataclass(frozen=True, eq=False)
class MemorylessReader:
    """An archive as the tests without a memory see it: what those with one found is not there."""

    writer: Writer
    tests: VariableTests

    def read(self, variable: str, *, window: Window | None = None, series: Iterable[Series] | None = None) -> Readings:
        """Return readings as `Writer.read` does, with the flags of the other tests."""
        return without_memory(self.writer.read(variable, window=window, series=series), self.tests)

    def extent(self, variable: str) -> Window | None:
        """Return what `Writer.extent` does."""
        return self.writer.extent(variable)

    def series(self, variable: str) -> tuple[Series, ...]:
        """Return what `Writer.series` does."""
        return self.writer.series(variable)


def revise(writer: Writer, memory: Memory, before: BlockBits, after: BlockBits, touched: NDArray[np.bool_]) -> int:
    """Give readings the flags of what is said now where that differs, or where readings came; return how many.

    Parameters
    ----------
    before, after
        Of the same blocks.
    touched
        To which readings came, shape (series, blocks).
    """
    old = np.zeros_like(after.tests)
    old[: len(before.tests)] = before.tests
    other = (old != after.tests) | (touched & (after.tests > 0))
    columns = np.flatnonzero(other.any(axis=0))
    count = 0
    series = writer.series(memory.variable)
    # Some weeks at a time: a gauge that was blocked for months is no reason to read all of these at once.
    for part in np.split(columns, np.flatnonzero(np.diff(columns // _BLOCKS_AT_ONCE)) + 1) if len(columns) else ():
        first, stop = int(part[0]), int(part[-1]) + 1
        chosen = np.flatnonzero(other[:, first:stop].any(axis=1))
        window = Window((after.first + first) * BLOCK_NS, (after.first + stop) * BLOCK_NS)
        stored = writer.read(memory.variable, window=window, series=[series[n] for n in chosen.tolist()])
        number = {sensor_series: index for index, sensor_series in enumerate(series)}
        table = np.array([number[sensor_series] for sensor_series in stored.series], np.int32)
        stored = replace(stored, series=series, index=table[stored.index].astype(np.int32))
        given = with_memory(without_memory(stored, memory.tests), after)
        changed = (given.flag != stored.flag) | (given.tests_or_none_set() != stored.tests_or_none_set())
        changed &= stored.flag != MISSING
        if changed.any():
            count += writer.flags(given.take_rows(changed))
    return count


def history_of(
    archive: Archive,
    variable: str,
    tests: VariableTests,
    read: Callable[..., Readings],
    places: Callable[[tuple[Series, ...]], Places],
) -> BlockHistory:
    """Return the past of a variable as of a snapshot; `read` gives the values of that, by `window`."""
    key = str(archive.path), archive.snapshot, variable, tests
    past = _HISTORIES.pop(key, None)
    if past is None:
        past = BlockHistory(lambda _: Readings.empty(), tests, places)
    past.read, past.places = partial(_read_window, read), places
    _HISTORIES[key] = past
    while len(_HISTORIES) > _FEW:
        _HISTORIES.pop(next(iter(_HISTORIES)))
    return past


def _read_window(read: Callable[..., Readings], window: Window) -> Readings:
    return read(window=window)


_HISTORIES: Final[dict[tuple[str, str, str, VariableTests], BlockHistory]] = {}
_FEW: Final = 2


def evaluate_before(memory: Memory, new: Readings) -> BlockBits:
    """Return what is said of all blocks of which something else may be said once readings came."""
    first, stop = _span(new)
    memory.history.grow(memory.writer.series(memory.variable))
    return memory.history.evaluate(*memory.history.affected_blocks(first, stop))


def remember(writer: Writer, memory: Memory, before: BlockBits, new: Readings) -> tuple[int, Readings]:
    """Take readings that were stored into the memory, and give flags by it; `before` is what was said before.

    Returns how many that were stored before have another flag, and the readings with their flags.
    """
    first, stop = _span(new)
    memory.changed = True
    past = memory.history
    past.change(first, stop)
    after = past.evaluate(before.first, before.first + before.tests.shape[1])
    touched = np.zeros(after.tests.shape, np.bool_)
    number = {sensor_series: index for index, sensor_series in enumerate(past.series)}
    table = np.array([number[sensor_series] for sensor_series in new.series], np.intp)
    touched[table[new.index], new.time_ns // BLOCK_NS - after.first] = True
    flagged_readings = with_memory(new, after.renumber(past.series, new.series))
    marked = np.count_nonzero(flagged_readings.tests_or_none_set() != new.tests_or_none_set())
    revised = revise(writer, memory, before, after, touched)
    return max(0, revised - int(marked)), flagged_readings


def _span(readings: Readings) -> tuple[int, int]:
    return int(readings.time_ns.min() // BLOCK_NS), int(readings.time_ns.max() // BLOCK_NS) + 1


MEMORIES: Final = Memories()
"""Those of this process."""
