"""The dense arrays of a variable, slice by series, and the numbering of slices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from hypergrid.archive.arrays.table import CODECS
from hypergrid.archive.disk.concurrent_io import EmptyArray, read_blocks, write_blocks
from hypergrid.core.errors import InvalidTime
from hypergrid.core.flags import TESTS as FLAG_TESTS
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.times import format_instant, parse_instant

FIRST_NS: Final = parse_instant("1900-01-01")
"""First instant that can be stored [ns since 1970 UTC]; slice 0 contains it."""
STOP_NS: Final = parse_instant("2261-12-31") + 86_400_000_000_000
"""End of the time that can be stored, exclusive [ns since 1970 UTC]."""
# 28 days of 2-minute slices of 24 stations are ten chunks per array, each 0.5 MB before compression. Measured on nine
# variables of them, best of three: a quarter of the length makes reading everything 1.7 times and writing 1.5 times
# slower; twice the length doubles the bytes that a commit of one slice writes (3 MB on average).
CHUNK_SLICES: Final = 2048
CHUNK_SERIES: Final = 32
"""Shape of a chunk."""
RUN_CHUNKS: Final = 16
"""Maximum number of chunks along time that are read or written at once: 26 MB."""
ARRAYS: Final[Mapping[str, tuple[str, float]]] = {
    "value": ("float64", np.nan),
    "flag": ("uint8", 0),
    "offset_ns": ("int64", 0),
    "delay_ns": ("int64", 0),
}


TESTS: Final = "flag_tests"
"""Array of the tests that set a flag; created when a test first sets one."""


@dataclass(frozen=True)
class Slices:
    """Slices of one length, counted from the one that contains 1900-01-01.

    Their bounds are multiples of the length.
    """

    length_ns: int
    """Length of a slice [ns]."""

    @property
    def count(self) -> int:
        return STOP_NS // self.length_ns - FIRST_NS // self.length_ns + 1

    @property
    def chunks_ns(self) -> tuple[int, int]:
        """Start of the first chunk along time [ns since 1970 UTC], and chunk length [ns]."""
        return self.start_ns(0), CHUNK_SLICES * self.length_ns

    def index(self, time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the slice of each instant.

        Raises
        ------
        InvalidTime
            An instant is outside the time that can be stored.
        """
        if len(time_ns) and (time_ns.min() < FIRST_NS or time_ns.max() >= STOP_NS):
            wrong = int(time_ns.min() if time_ns.min() < FIRST_NS else time_ns.max())
            raise InvalidTime(
                f"the archive keeps instants from 1900 to 2261; got {format_instant(wrong)}; reject such rows"
            )
        return time_ns // self.length_ns - FIRST_NS // self.length_ns

    def position(self, time_ns: int) -> int:
        """Return the slice of one instant, which may be outside the storable time."""
        return time_ns // self.length_ns - FIRST_NS // self.length_ns

    def start_ns(self, index: int) -> int:
        """Return the start of a slice [ns since 1970 UTC]."""
        return (index + FIRST_NS // self.length_ns) * self.length_ns

    def starts_ns(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the starts of slices [ns since 1970 UTC]."""
        return (index + FIRST_NS // self.length_ns) * self.length_ns


@dataclass(frozen=True, eq=False)
class Tile:
    """A block of cells in memory; each array has shape (slices, series)."""

    value: NDArray[np.float64]
    flag: NDArray[np.uint8]
    """0 marks an empty cell, whose other values are meaningless."""
    offset_ns: NDArray[np.int64]
    """Exact stamp minus the start of the slice [ns]."""
    delay_ns: NDArray[np.int64]
    """Arrival minus stamp [ns]."""
    tests: NDArray[np.uint16]
    """Tests that set the flag, one bit each."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.value, self.flag, self.offset_ns, self.delay_ns, self.tests))

    def copy_block(self, rows: slice, columns: slice) -> "Tile":
        return Tile(
            self.value[rows, columns].copy(),
            self.flag[rows, columns].copy(),
            self.offset_ns[rows, columns].copy(),
            self.delay_ns[rows, columns].copy(),
            self.tests[rows, columns].copy(),
        )

    def take_cells(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> "Tile":
        """Copy n cells; each array of the result has shape (n,)."""
        return Tile(
            self.value[row, column],
            self.flag[row, column],
            self.offset_ns[row, column],
            self.delay_ns[row, column],
            self.tests[row, column],
        )


@dataclass(frozen=True, eq=False)
class Judgements:
    """Flags and test bits of a block of cells; arrays of shape (slices, series)."""

    flag: NDArray[np.uint8]
    tests: NDArray[np.uint16]


TilePool = LruCache[tuple[str, int, int], Tile]
"""Chunks of cells in memory, by array and number of the chunk along slices and series."""


class CellArrays:
    """The arrays of a variable on disk, each of shape (slices, series).

    There are four, plus `TESTS` if a test set a flag. They span all storable time; chunks without readings are not
    written.

    Parameters
    ----------
    pool
        Keeps single chunks between reads and writes; None: each read decodes them again.
    """

    def __init__(self, arrays: Mapping[str, zarr.Group | zarr.Array[Any]], pool: TilePool | None = None) -> None:
        self._arrays: dict[str, zarr.Array[Any]] = {}
        self._pool = pool
        for name, array in arrays.items():
            assert isinstance(array, zarr.Array)
            self._arrays[name] = array

    @property
    def shape(self) -> tuple[int, int]:
        """Number of slices and of series."""
        slices, series = self._arrays["flag"].shape
        return int(slices), int(series)

    def resize(self, series: int) -> None:
        """Extend the arrays to a number of series."""
        for array in self._arrays.values():
            array.resize((array.shape[0], series))
        # The last chunk in memory may have become wider.
        if self._pool is not None:
            self._pool.clear()

    @property
    def has_tests(self) -> bool:
        return TESTS in self._arrays

    def read(self, rows: slice, columns: slice, *, tests: bool = True) -> Tile:
        """Read a block; with `tests=False` its test bits are zeros instead."""
        keys = self._keys(rows, columns)
        if self._pool is None or not tests or len(keys) != 1:
            return self._load(rows, columns, tests=tests)
        top, left = keys[0][1] * CHUNK_SLICES, keys[0][2] * CHUNK_SERIES
        tile = self._pool.peek(keys[0])
        if tile is None:
            slices, series = self.shape
            bottom, right = min(top + CHUNK_SLICES, slices), min(left + CHUNK_SERIES, series)
            tile = self._load(slice(top, bottom), slice(left, right), tests=True)
            self._pool.put(keys[0], tile, tile.nbytes)
        return tile.copy_block(
            slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left)
        )

    def _load(self, rows: slice, columns: slice, *, tests: bool) -> Tile:
        wanted = [self._arrays[name] for name in ARRAYS]
        if tests and self.has_tests:
            return Tile(*read_blocks([*wanted, self._arrays[TESTS]], rows, columns))
        value, flag, offset, delay = read_blocks(wanted, rows, columns)
        return Tile(value, flag, offset, delay, np.zeros(value.shape, np.uint16))

    def read_flags(self, rows: slice, columns: slice) -> NDArray[np.uint8]:
        return read_blocks([self._arrays["flag"]], rows, columns)[0]

    def read_judgements(self, rows: slice, columns: slice) -> "Judgements":
        if not self.has_tests:
            flag = self.read_flags(rows, columns)
            return Judgements(flag, np.zeros(flag.shape, np.uint16))
        return Judgements(*read_blocks([self._arrays["flag"], self._arrays[TESTS]], rows, columns))

    def write_judgements(self, rows: slice, columns: slice, judged: "Judgements") -> None:
        """Write the flags and test bits of a block, which need not align with chunks."""
        self._write({"flag": judged.flag, TESTS: judged.tests}, rows, columns)

    def write(self, rows: slice, columns: slice, tile: Tile) -> None:
        """Write a block of whole chunks; the tile must not be changed afterwards."""
        contents = {"value": tile.value, "offset_ns": tile.offset_ns, "delay_ns": tile.delay_ns}
        self._write(contents | {"flag": tile.flag, TESTS: tile.tests}, rows, columns)
        self._keep(rows, columns, tile)

    def write_flags(self, rows: slice, columns: slice, tile: Tile) -> None:
        """Write the flags and test bits of whole chunks; all else in the tile must be as stored, and stay so."""
        self.write_judgements(rows, columns, Judgements(tile.flag, tile.tests))
        self._keep(rows, columns, tile)

    def _write(self, contents: Mapping[str, NDArray[Any]], rows: slice, columns: slice) -> None:
        if self._pool is not None:
            for key in self._keys(rows, columns):
                self._pool.drop(key)
        names = [name for name in contents if name in self._arrays]
        write_blocks([self._arrays[name] for name in names], [contents[name] for name in names], rows, columns)

    def _keep(self, rows: slice, columns: slice, tile: Tile) -> None:
        keys = self._keys(rows, columns)
        if self._pool is not None and len(keys) == 1:
            self._pool.put(keys[0], tile, tile.nbytes)

    def _keys(self, rows: slice, columns: slice) -> list[tuple[str, int, int]]:
        """Return the keys of the chunks that a block touches."""
        path = self._arrays["flag"].path
        return [
            (path, row, column)
            for row in range(rows.start // CHUNK_SLICES, -(-rows.stop // CHUNK_SLICES))
            for column in range(columns.start // CHUNK_SERIES, -(-columns.stop // CHUNK_SERIES))
        ]


def describe_cells(*, slices: int, unit: str) -> dict[str, EmptyArray]:
    """Return the arrays of a variable without series."""
    units = {"value": unit, "flag": "1"}
    return {
        name: _make_empty(dtype, (slices, 0), fill, {"units": units.get(name, "ns")})
        for name, (dtype, fill) in ARRAYS.items()
    }


def describe_tests(*, slices: int, series: int) -> dict[str, EmptyArray]:
    """Return the array of test bits, whose attributes name the bits as CF does."""
    bits = {"flag_masks": [1 << bit for bit in range(len(FLAG_TESTS))], "flag_meanings": " ".join(FLAG_TESTS)}
    return {TESTS: _make_empty("uint16", (slices, series), 0, bits)}


def _make_empty(dtype: str, shape: tuple[int, int], fill: float, attributes: Mapping[str, Any]) -> EmptyArray:
    return EmptyArray(dtype, shape, (CHUNK_SLICES, CHUNK_SERIES), CODECS, fill, ("slice", "series"), attributes)


def make_empty_tile(shape: tuple[int, int]) -> Tile:
    value, flag, offset, delay = (np.full(shape, fill, dtype) for dtype, fill in ARRAYS.values())
    return Tile(value, flag, offset, delay, np.zeros(shape, np.uint16))


def unique_numbers(numbers: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the distinct whole numbers, ascending."""
    if not len(numbers):
        return np.empty(0, np.int64)
    lowest = int(numbers.min())
    span = int(numbers.max()) - lowest + 1
    if span > 4 * len(numbers):
        return np.unique(numbers).astype(np.int64)
    # Numbers of a block are dense, so marking them replaces the sort.
    marks = np.zeros(span, np.bool_)
    marks[numbers - lowest] = True
    return np.flatnonzero(marks) + lowest


def split_consecutive(numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split ascending whole numbers into runs of consecutive ones."""
    return np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1) if len(numbers) else []


def iterate_blocks(
    row: NDArray[np.int64], column: NDArray[np.int64], shape: tuple[int, int]
) -> Iterator[tuple[slice, slice, NDArray[np.intp]]]:
    """Yield the blocks of whole chunks that contain the given cells, with their cells' indices.

    Consecutive chunks in time are joined into one block, up to `RUN_CHUNKS`. Cells of the same chunk keep their order.
    """
    chunk_row, chunk_column = row // CHUNK_SLICES, column // CHUNK_SERIES
    # A stable sort: cells of one chunk keep their order.
    order = np.lexsort((chunk_row, chunk_column))
    rows, columns = chunk_row[order], chunk_column[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    starts = np.flatnonzero(begins)
    stops = [*starts[1:].tolist(), len(order)]
    first = 0
    while first < len(starts):
        last = first
        while (
            last + 1 < len(starts)
            and last + 1 - first < RUN_CHUNKS
            and columns[starts[last + 1]] == columns[starts[first]]
            and rows[starts[last + 1]] == rows[starts[last]] + 1
        ):
            last += 1
        top, left = int(rows[starts[first]]), int(columns[starts[first]])
        bottom = int(rows[starts[last]]) + 1
        yield (
            slice(top * CHUNK_SLICES, min(bottom * CHUNK_SLICES, shape[0])),
            slice(left * CHUNK_SERIES, min((left + 1) * CHUNK_SERIES, shape[1])),
            order[starts[first] : stops[last]],
        )
        first = last + 1
