"""Tests with a memory over an archive, evaluated before and after new readings.

The result for a block of hours follows from the values of its term and the neighbouring ones (`ingest.quality.blocks`),
so that it does not depend on how readings are split into batches. Blocks are cached from one micro-batch to the next as
long as nothing else wrote in between; a batch then costs the blocks that it touches, and the weeks after.
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
from hypergrid.core.readings import Readings, Series, renumber_series
from hypergrid.core.times import Window
from ingest.deployment.quality_settings import VariableTests
from ingest.quality.blocks import A_DAY, BLOCK_NS, BlockBits, Blocks, blocks_of, faulty_zeros, term_blocks
from ingest.quality.levels import LOOK, Term
from ingest.quality.run_tests import WITH_MEMORY
from ingest.quality.spatial import Places
from ingest.quality.temporal import bits_of

Read = Callable[..., Readings]
"""Reads all readings of a variable within a `window`, of all its series."""
_READINGS_AT_ONCE: Final = 2_000_000
_HISTORIES: Final[dict[tuple[str, str, str, VariableTests], "BlockHistory"]] = {}


def affected(tests: VariableTests, first: int, stop: int) -> tuple[int, int]:
    """Return the range of blocks whose result may change if some blocks change."""
    length = term_blocks(tests.memory_days)
    return (first - LOOK) // length * length, (stop // length + 2) * length


class BlockHistory:
    """Blocks of a variable in an archive, read on demand, and their test results."""

    def __init__(self, read: Read, tests: VariableTests, places: Callable[[tuple[Series, ...]], Places]) -> None:
        self.read, self.places = read, places
        self._tests = tests
        self.series: tuple[Series, ...] = ()
        """In the archive's numbering."""
        self._blocks = np.empty((2, 0, 0))
        """As `blocks_of`, from block `_first` to `_stop`."""
        self._first = self._stop = 0
        self._terms: dict[int, Term] = {}
        self._bits: dict[int, NDArray[np.uint16]] = {}
        self._changed: dict[int, int] = {}
        self.length = term_blocks(tests.memory_days)
        """Blocks of a term; both tests use the longest memory."""

    def grow(self, series: tuple[Series, ...]) -> None:
        """Add rows for new series."""
        if len(series) > len(self.series):
            pad = ((0, len(series) - len(self.series)), (0, 0))
            self.series = series
            self._blocks = np.pad(self._blocks, ((0, 0), *pad), constant_values=np.nan)
            # All terms are evaluated again, because new series change references and neighbours.
            self._terms.clear()
            self._bits = {number: np.pad(bits, pad) for number, bits in self._bits.items()}
            self._changed = dict.fromkeys(self._bits, -(1 << 60))

    def need(self, first: int, stop: int) -> None:
        """Load all blocks that the results of some blocks depend on."""
        length = self.length
        low, high = (first // length - 1) * length, -(-stop // length) * length + LOOK
        if low >= self._first and high <= self._stop:
            return
        missing = [(low, min(high, self._first)), (max(low, self._stop), high)]
        missing = missing if self._first < self._stop else [(low, high)]
        made = [(begin, self._make_blocks(begin, end)) for begin, end in missing if begin < end]
        known = [(self._first, self._blocks)]
        self._first, self._stop = low, high
        self._blocks = np.full((2, len(self.series), high - low), np.nan)
        for begin, blocks in (*known, *made):
            self._put(begin, blocks)
        kept = range(low // length + 1, -(-high // length))
        self._terms = {number: term for number, term in self._terms.items() if number in kept}
        self._bits = {number: bits for number, bits in self._bits.items() if number in kept}

    def _put(self, first: int, blocks: NDArray[np.float64]) -> None:
        """Replace the blocks from `first` on, as far as they are in the range."""
        start, stop = max(first, self._first), min(first + blocks.shape[2], self._stop)
        if start < stop:
            chosen = blocks[:, :, start - first : stop - first]
            self._blocks[:, : blocks.shape[1], start - self._first : stop - self._first] = chosen

    def _make_blocks(self, begin: int, end: int) -> NDArray[np.float64]:
        """Return blocks of the archive, read in pieces."""
        made, at, step = np.full((2, 0, end - begin), np.nan), begin, 8
        while at < end:
            until = min(at + step, end)
            readings = self.read(window=Window(at * BLOCK_NS, until * BLOCK_NS))
            self.grow(readings.series)
            made = np.pad(made, ((0, 0), (0, len(self.series) - made.shape[1]), (0, 0)), constant_values=np.nan)
            made[:, : len(readings.series), at - begin : until - begin] = blocks_of(readings, self._tests, at, until)
            # The step adapts to the density of readings, so that each piece has a bounded size.
            if len(readings) < _READINGS_AT_ONCE // 4:
                step *= 2
            elif len(readings) > _READINGS_AT_ONCE:
                step = max(8, step // 2)
            at = until
        return made

    def change(self, first: int, stop: int) -> None:
        """Read blocks again after their readings changed."""
        self._put(first, self._make_blocks(first, stop))
        for number in self._bits:
            if (number - 1) * self.length < stop and first < (number + 1) * self.length + LOOK:
                self._changed[number] = min(first, self._changed.get(number, first))

    def evaluate(self, first: int, stop: int) -> BlockBits:
        """Return the test results of some blocks."""
        self.need(first, stop)
        bits = np.zeros((len(self.series), stop - first), np.uint16)
        for number in range(first // self.length, -(-stop // self.length)):
            part = self._of_term(number)
            low, high = max(first, number * self.length), min(stop, (number + 1) * self.length)
            bits[: len(part), low - first : high - first] = part[
                :, low - number * self.length : high - number * self.length
            ]
        return BlockBits(first, bits, self.series)

    def _of_term(self, number: int) -> NDArray[np.uint16]:
        if number in self._bits and number not in self._changed:
            return self._bits[number]
        places, tests = self.places(self.series), self._tests
        middle, total = (Blocks(self._first, values) for values in self._blocks)
        bits = np.zeros((len(self.series), self.length), np.uint16)
        # Both tests use the terms of the longer memory.
        if tests.level_shift:
            settings = replace(tests.level_shift, memory_days=tests.memory_days)
            term = self._terms.setdefault(number, Term(number, settings))
            changed = self._changed.get(number, term.begin) if number in self._bits else term.begin
            bits[term.find_shifts(middle, places, changed)] |= bits_of("level_shift")
        if tests.faulty_zeros:
            zeros = replace(tests.faulty_zeros, memory_days=tests.memory_days)
            bits[faulty_zeros(middle if zeros.of == "counter" else total, zeros, places, number)] |= bits_of(
                "faulty_zeros"
            )
        self._bits[number] = bits
        self._changed.pop(number, None)
        return bits


@dataclass
class Memory:
    """Cached history of one variable of an archive that is being written."""

    variable: str
    tests: VariableTests
    writer: Writer
    history: BlockHistory
    changed: bool = False

    def holds(self, writer: Writer, variable: str, tests: VariableTests) -> bool:
        """Return whether the cache is valid for the archive in the writer's state."""
        if variable != self.variable or tests != self.tests:
            return False
        if writer is self.writer:
            return True
        # The cache is valid only if nothing else was committed since.
        base = self.writer.snapshot or (None if self.changed else self.writer.parent)
        return base is not None and base == writer.parent


@dataclass
class Memories:
    """Cached histories of the last commits of this process."""

    memories: list[Memory] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def memory_of(
        self, writer: Writer, variable: str, tests: VariableTests, places: Callable[[tuple[Series, ...]], Places]
    ) -> Memory:
        """Return the cached memory, or an empty one on a miss."""
        with self.lock:
            memory = next((memory for memory in self.memories if memory.holds(writer, variable, tests)), None)
            # At most 16 variables are cached from one commit to the next.
            self.memories = [other for other in self.memories if other is not memory][-16:]
            if memory is None:
                memory = Memory(variable, tests, writer, BlockHistory(writer.read, tests, places))
            elif memory.writer is not writer:
                memory.writer, memory.changed = writer, False
            memory.history.read, memory.history.places = partial(writer.read, variable), places
            self.memories.append(memory)
            return memory


def without_memory(readings: Readings, tests: VariableTests) -> Readings:
    """Return readings with the flags of the tests without a memory only."""
    bits = readings.tests_or_none_set()
    marked = (bits & WITH_MEMORY) > 0
    if not marked.any():
        return readings
    rest = bits & ~WITH_MEMORY
    before = GOOD if tests.without_memory() else NOT_EVALUATED
    flag = np.where(marked & (rest == 0), before, readings.flag).astype(np.uint8)
    return replace(readings, flag=flag, tests=rest)


def with_memory(readings: Readings, block_bits: BlockBits) -> Readings:
    """Return readings with the results of the tests with a memory added."""
    bits = block_bits.reading_bits(readings)
    flag = np.where(bits > 0, np.maximum(readings.flag, SUSPECT), readings.flag).astype(np.uint8)
    return replace(readings, flag=flag, tests=readings.tests_or_none_set() | bits)


@dataclass(frozen=True, eq=False)
class MemorylessReader:
    """Archive reader that hides the results of the tests with a memory."""

    writer: Writer
    tests: VariableTests

    def read(self, variable: str, *, window: Window | None = None, series: Iterable[Series] | None = None) -> Readings:
        """Read as `Writer.read` does, with the flags of the other tests only."""
        return without_memory(self.writer.read(variable, window=window, series=series), self.tests)

    def extent(self, variable: str) -> Window | None:
        return self.writer.extent(variable)


def revise(memory: Memory, before: BlockBits, after: BlockBits, touched: NDArray[np.bool_]) -> int:
    """Update flags of stored readings where results changed or readings arrived; return their number.

    Parameters
    ----------
    before, after
        Results for the same blocks.
    touched
        Blocks with new readings, shape (series, blocks).
    """
    old = np.zeros_like(after.tests)
    old[: len(before.tests)] = before.tests
    other = (old != after.tests) | (touched & (after.tests > 0))
    columns = np.flatnonzero(other.any(axis=0))
    count, series = 0, memory.writer.series(memory.variable)
    # A week at a time, so that a gauge blocked for months does not load all of them at once.
    for part in np.split(columns, np.flatnonzero(np.diff(columns // (7 * A_DAY))) + 1) if len(columns) else ():
        first, stop = int(part[0]), int(part[-1]) + 1
        chosen = np.flatnonzero(other[:, first:stop].any(axis=1))
        window = Window((after.first + first) * BLOCK_NS, (after.first + stop) * BLOCK_NS)
        stored = memory.writer.read(memory.variable, window=window, series=[series[n] for n in chosen.tolist()])
        given = with_memory(without_memory(stored, memory.tests), after)
        changed = (given.flag != stored.flag) | (given.tests_or_none_set() != stored.tests_or_none_set())
        changed &= stored.flag != MISSING
        if changed.any():
            count += memory.writer.flags(given.take_rows(changed))
    return count


def history_of(
    archive: Archive,
    variable: str,
    tests: VariableTests,
    read: Read,
    places: Callable[[tuple[Series, ...]], Places],
) -> BlockHistory:
    """Return the cached block history of a variable at a snapshot."""
    key = str(archive.path), archive.snapshot, variable, tests
    past = _HISTORIES.pop(key, None) or BlockHistory(read, tests, places)
    past.read, past.places = read, places
    # Inserted at the end, so that the least recently used entry is evicted first.
    _HISTORIES[key] = past
    while len(_HISTORIES) > 2:
        _HISTORIES.pop(next(iter(_HISTORIES)))
    return past


def evaluate_before(memory: Memory, new: Readings) -> BlockBits:
    """Return the current results of all blocks that new readings may change."""
    memory.history.grow(memory.writer.series(memory.variable))
    return memory.history.evaluate(*affected(memory.tests, *_span(new)))


def remember(memory: Memory, before: BlockBits, new: Readings) -> tuple[int, Readings]:
    """Add stored readings to the memory and update flags; `before` are the previous results.

    Returns the number of previously stored readings with another flag, and the readings with their flags.
    """
    memory.changed = True
    past = memory.history
    past.change(*_span(new))
    after = past.evaluate(before.first, before.first + before.tests.shape[1])
    touched = np.zeros(after.tests.shape, np.bool_)
    touched[renumber_series(new, past.series).index, new.time_ns // BLOCK_NS - after.first] = True
    flagged_readings = with_memory(new, after)
    marked = np.count_nonzero(flagged_readings.tests_or_none_set() != new.tests_or_none_set())
    revised = revise(memory, before, after, touched)
    # New readings were stored before their marks, and do not count as revised.
    return max(0, revised - int(marked)), flagged_readings


def _span(readings: Readings) -> tuple[int, int]:
    return int(readings.time_ns.min() // BLOCK_NS), int(readings.time_ns.max() // BLOCK_NS) + 1


MEMORIES: Final = Memories()
