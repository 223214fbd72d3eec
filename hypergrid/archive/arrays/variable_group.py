"""The group of a variable: its declaration, series, cells and side table."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import (
    ARRAYS,
    CHUNK_SLICES,
    TESTS,
    CellArrays,
    Slices,
    TilePool,
    describe_cells,
    describe_tests,
    split_consecutive,
    unique_numbers,
)
from hypergrid.archive.arrays.merge import SideRows
from hypergrid.archive.arrays.records import (
    Json,
    decode_series,
    encode_series,
    node_name,
)
from hypergrid.archive.arrays.table import CHUNK_ROWS, ColumnTable, describe_table
from hypergrid.archive.disk.concurrent_io import create_nodes, open_group, open_nodes, place_nodes
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import Window
from hypergrid.core.units import Variable

Extent = tuple[int, int]
"""First and last slice, inclusive."""
GROUP: Final = "variables"
_SIDE: Final = "side"
_TESTS: Final = "tests"
_SIDE_COLUMNS: Final = {
    "series": "int32",
    "time_ns": "int64",
    "value": "float64",
    "flag": "uint8",
    "arrival_ns": "int64",
    "superseded": "uint8",
}
_SIDE_ATTRIBUTES: Final = {
    "series": "index",
    "time_ns": "time_ns",
    "value": "value",
    "flag": "flag",
    "arrival_ns": "arrival_ns",
}
"""Attributes of readings by column."""


@dataclass
class VariableGroup:
    """A session's view of a variable.

    Only a writer changes it, and saves it before the commit.
    """

    group: zarr.Group
    variable: Variable
    series: tuple[Series, ...]
    extent: Extent | None
    """First and last slice with a reading; None if there are none."""
    # One stray stamp of a reset clock is decades away: without this list, readers would scan all the years between.
    chunks: NDArray[np.int64]
    """Chunks along time that hold readings, counted from the first slice, ascending, shape (chunks,)."""
    readings: int
    """Number of readings that are not superseded."""
    missing: int
    """Number of these without a value."""
    superseded: int
    tested: bool = False
    """Whether a test set a flag; then an array, and a column of the side table, record which tests."""
    # The side table grows with the archive: with the spans, a window reads only the chunks that overlap it.
    spans: NDArray[np.int64] | None = None
    """First and last stamp in each chunk of the side table [ns], shape (chunks, 2); None if unknown, in older
    archives.
    """
    pool: TilePool | None = None
    """Keeps chunks of cells while a writer changes them."""

    @classmethod
    def create(cls, root: zarr.Group, variable: Variable, *, slices: Slices) -> "VariableGroup":
        above, name = root.require_group(GROUP), node_name(variable.name)
        nodes = {
            **describe_cells(slices=slices.count, unit=variable.unit),
            **place_nodes(_SIDE, describe_table(_SIDE_COLUMNS)),
        }
        create_nodes(above, place_nodes(name, {"": {}, **nodes}))
        created = cls(open_group(above, name), variable, (), None, np.empty(0, np.int64), 0, 0, 0, spans=_NO_SPANS)
        created.save()
        return created

    @classmethod
    def load(cls, root: zarr.Group, name: str) -> "VariableGroup":
        group = open_group(root, f"{GROUP}/{node_name(name)}")
        content: dict[str, Any] = group.attrs.asdict()
        extent, counts = content["extent"], content["counts"]
        return cls(
            group,
            Variable(**content["variable"]),
            decode_series(name, content["series"]),
            None if extent is None else (extent[0], extent[1]),
            _expand_runs(content["chunks"]),
            counts["readings"],
            counts["missing"],
            counts["superseded"],
            content.get("tested", False),
            np.array(content["side"], np.int64).reshape(-1, 2) if "side" in content else None,
        )

    @property
    def cells(self) -> CellArrays:
        return self._nodes[0]

    @property
    def side(self) -> ColumnTable:
        return self._nodes[1]

    @cached_property
    def _nodes(self) -> tuple[CellArrays, ColumnTable]:
        # Opened on first use: only code that reads or writes readings needs the nodes.
        first = next(iter(_SIDE_COLUMNS))
        names = [*ARRAYS, *([TESTS] if self.tested else [])]
        side, column, *arrays = open_nodes(self.group, [_SIDE, f"{_SIDE}/{first}", *names])
        assert isinstance(side, zarr.Group)
        assert isinstance(column, zarr.Array)
        return CellArrays(dict(zip(names, arrays, strict=True)), self.pool), ColumnTable(side, {first: column})

    def keep_tests(self) -> None:
        """Create the array and the column for test bits if missing."""
        if not self.tested:
            slices, series = self.cells.shape
            create_nodes(self.group, describe_tests(slices=slices, series=series))
            self.side.add_column(_TESTS, "uint16")
            # The cached nodes lack the new array and column.
            self.tested = True
            del self._nodes

    def save(self) -> None:
        content: Json = {
            "variable": asdict(self.variable),
            "series": encode_series(self.series),
            "extent": None if self.extent is None else list(self.extent),
            "chunks": [[int(run[0]), int(run[-1]) + 1] for run in split_consecutive(self.chunks)],
            "counts": {"readings": self.readings, "missing": self.missing, "superseded": self.superseded},
            "tested": self.tested,
        }
        if self.spans is not None:
            content["side"] = self.spans.tolist()
        # `attrs.update` would write the group once per name.
        self.group.update_attributes(content)

    def occupy(self, slice_index: NDArray[np.int64]) -> None:
        """Extend the extent and the chunks to include these slices, at least one."""
        self.extent = join_extents(self.extent, (int(slice_index.min()), int(slice_index.max())))
        self.chunks = np.union1d(self.chunks, unique_numbers(slice_index // CHUNK_SLICES))

    def side_readings(self, *, superseded: bool, tests: bool = False, window: Window | None = None) -> Readings:
        """Return the superseded, or the other, readings of the side table, in its order.

        With a window the result contains at least the readings inside it.
        """
        columns = self._side_columns(window, *_SIDE_COLUMNS, *([_TESTS] if tests and self.tested else []))
        _, series, time_ns, value, flag, arrival_ns, replaced, *bits = columns
        if tests and not bits:
            bits = [np.zeros(len(series), np.uint16)]
        rows = (replaced == 1) == superseded
        return Readings(self.series, *(column[rows] for column in (series, time_ns, value, flag, arrival_ns, *bits)))

    def side_rows(self, window: Window | None = None) -> SideRows:
        """Return the side table's current rows; with a window at least those inside it."""
        row, *columns, replaced = self._side_columns(window, "series", "time_ns", "value", "flag", "superseded")
        kept = replaced == 0
        series, time_ns, value, flag = (column[kept] for column in columns)
        return SideRows(row[kept], series, time_ns, value, flag)

    def _side_columns(self, window: Window | None, *names: str) -> list[NDArray[Any]]:
        """Read row numbers and columns of the side table chunks that overlap a window."""
        count = len(self.side)
        chunks = np.arange(-(-count // CHUNK_ROWS))
        if window is not None and self.spans is not None:
            chunks = chunks[(self.spans[:, 0] < window.stop_ns) & (self.spans[:, 1] >= window.start_ns)]
        runs = [
            slice(int(run[0]) * CHUNK_ROWS, min((int(run[-1]) + 1) * CHUNK_ROWS, count))
            for run in split_consecutive(chunks)
        ]
        if not runs:
            kinds = {**_SIDE_COLUMNS, _TESTS: "uint16"}
            return [np.empty(0, np.intp), *(np.empty(0, kinds[name]) for name in names)]
        parts = [[np.arange(run.start, run.stop), *self.side.read(*names, rows=run)] for run in runs]
        return parts[0] if len(parts) == 1 else [np.concatenate(column) for column in zip(*parts, strict=True)]

    def read_side_tests(self, rows: NDArray[np.intp] | None = None) -> NDArray[np.uint16]:
        """Return the test bits of some, or all, rows of the side table."""
        if rows is None:
            return self.side.read(_TESTS)[0] if self.tested else np.zeros(len(self.side), np.uint16)
        if not self.tested or not len(rows):
            return np.zeros(len(rows), np.uint16)
        first = int(rows.min())
        bits = self.side.read(_TESTS, rows=slice(first, int(rows.max()) + 1))[0]
        return np.asarray(bits[rows - first])

    def add_side(self, parts: Iterable[tuple[Readings, bool]]) -> None:
        """Append readings to the side table, each part with whether its readings are superseded."""
        parts = [(readings, superseded) for readings, superseded in parts if len(readings)]
        if not parts:
            return
        columns = {
            name: np.concatenate([getattr(readings, attribute) for readings, _ in parts])
            for name, attribute in _SIDE_ATTRIBUTES.items()
        }
        columns["superseded"] = np.repeat(
            np.array([superseded for _, superseded in parts], np.uint8), [len(readings) for readings, _ in parts]
        )
        columns[_TESTS] = np.concatenate([readings.tests_or_none_set() for readings, _ in parts])
        self._extend_spans(columns["time_ns"])
        self.side.append(columns)

    def keep_side_rows(self, kept: NDArray[np.bool_]) -> None:
        """Rewrite the side table with only the `kept` rows, shape (rows,); these must be readable."""
        kinds = self.side.columns
        columns = {name: np.empty(0, kind) for name, kind in kinds.items()}
        for first in range(0, len(kept), CHUNK_ROWS):
            rows = kept[first : first + CHUNK_ROWS]
            # Chunks without kept rows may be damaged, and are not read.
            if rows.any():
                part = self.side.read(*kinds, rows=slice(first, first + len(rows)))
                columns = {
                    name: np.concatenate([columns[name], column[rows]])
                    for name, column in zip(kinds, part, strict=True)
                }
        del self.group[_SIDE]
        self.spans = _find_spans(0, columns["time_ns"])
        ColumnTable.create(self.group, _SIDE, columns=kinds).append(columns)
        del self._nodes

    def _extend_spans(self, time_ns: NDArray[np.int64]) -> None:
        """Update the spans for rows that are about to be appended."""
        before = len(self.side)
        # Older archives have no spans yet: compute them once.
        spans = _find_spans(0, self.side.read("time_ns")[0]) if self.spans is None else self.spans
        added = _find_spans(before, time_ns)
        # The first new rows fill up the last chunk.
        if before % CHUNK_ROWS:
            last, first = spans[-1], added[0]
            spans[-1] = min(last[0], first[0]), max(last[1], first[1])
            added = added[1:]
        self.spans = np.concatenate([spans, added])


def are_within_spans(spans: NDArray[np.int64], time_ns: NDArray[np.int64]) -> bool:
    """Return whether the stamps of a side table lie within its spans."""
    true = _find_spans(0, time_ns)
    return spans.shape == true.shape and bool((spans[:, 0] <= true[:, 0]).all() and (spans[:, 1] >= true[:, 1]).all())


def _find_spans(before: int, time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return first and last stamp per chunk, for stamps appended after `before` rows."""
    starts = [0, *range(CHUNK_ROWS - before % CHUNK_ROWS, len(time_ns), CHUNK_ROWS)] if len(time_ns) else []
    if not starts:
        return _NO_SPANS.copy()
    return np.stack([np.minimum.reduceat(time_ns, starts), np.maximum.reduceat(time_ns, starts)], axis=1)


_NO_SPANS: Final = np.empty((0, 2), np.int64)


def join_extents(known: Extent | None, other: Extent) -> Extent:
    return other if known is None else (min(known[0], other[0]), max(known[1], other[1]))


def _expand_runs(runs: list[list[int]]) -> NDArray[np.int64]:
    return np.concatenate([np.arange(start, stop) for start, stop in runs] or [np.empty(0, np.int64)])
