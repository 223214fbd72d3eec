"""The group of one variable: its declaration, its series, its cells and its side table."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from hypergrid.store.attributes import Json, decode_series, decode_variable, encode_series, encode_variable, node_name
from hypergrid.store.cells import ARRAYS, CHUNK_SLICES, TESTS, Cells, Slices, consecutive, create_cells, create_tests
from hypergrid.store.merge import SideRows
from hypergrid.store.table import Table
from hypergrid.store.together import nodes
from hypergrid.streams.elements import Readings, Series
from hypergrid.units import Variable

Extent = tuple[int, int]
"""The first and the last slice of something."""
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


@dataclass
class VariableGroup:
    """What a session knows of one variable. Only a writer changes it, and saves it before the commit."""

    group: zarr.Group
    variable: Variable
    series: tuple[Series, ...]
    extent: Extent | None
    """First and last slice that hold a reading; None where none does."""
    chunks: NDArray[np.int64]
    """Which chunks along time hold readings, counted from the first slice, ascending, shape (chunks,).

    One stray stamp of a reset clock lies decades away: without this, whoever reads would look at all the years between.
    """
    readings: int
    """Readings that are not superseded."""
    missing: int
    """Of these, those without a value."""
    superseded: int
    tested: bool = False
    """Whether a test set a flag: then there is an array, and a column beside, that tell which."""

    @classmethod
    def create(cls, root: zarr.Group, variable: Variable, *, slices: Slices) -> "VariableGroup":
        """Make the group of a new variable."""
        group = root.require_group(GROUP).create_group(node_name(variable.name))
        create_cells(group, slices=slices.count, unit=variable.unit)
        Table.create(group, _SIDE, columns=_SIDE_COLUMNS)
        created = cls(group, variable, (), None, np.empty(0, np.int64), 0, 0, 0)
        created.save()
        return created

    @classmethod
    def load(cls, root: zarr.Group, name: str) -> "VariableGroup":
        """Return the group of a variable that exists."""
        group = root[f"{GROUP}/{node_name(name)}"]
        assert isinstance(group, zarr.Group)
        content: dict[str, Any] = group.attrs.asdict()
        extent, counts = content["extent"], content["counts"]
        return cls(
            group,
            decode_variable(content["variable"]),
            decode_series(name, content["series"]),
            None if extent is None else (extent[0], extent[1]),
            _expand(content["chunks"]),
            counts["readings"],
            counts["missing"],
            counts["superseded"],
            content.get("tested", False),
        )

    @property
    def cells(self) -> Cells:
        """The cells."""
        return self._opened[0]

    @property
    def side(self) -> Table:
        """The side table."""
        return self._opened[1]

    @cached_property
    def _opened(self) -> tuple[Cells, Table]:
        """The nodes below, which only who reads or writes readings needs."""
        first = next(iter(_SIDE_COLUMNS))
        names = [*ARRAYS, *([TESTS] if self.tested else [])]
        side, column, *arrays = nodes(self.group, [_SIDE, f"{_SIDE}/{first}", *names])
        assert isinstance(side, zarr.Group)
        assert isinstance(column, zarr.Array)
        return Cells(dict(zip(names, arrays, strict=True))), Table(side, {first: column})

    def keep_tests(self) -> None:
        """Make room for the tests that set flags, if there is none; older archives have none, nor have new ones."""
        if not self.tested:
            slices, series = self.cells.shape
            create_tests(self.group, slices=slices, series=series)
            self.side.add_column(_TESTS, "uint16")
            self.tested = True
            del self._opened

    def save(self) -> None:
        """Write what belongs into the group's attributes."""
        content: Json = {
            "variable": encode_variable(self.variable),
            "series": encode_series(self.series),
            "extent": None if self.extent is None else list(self.extent),
            "chunks": [[int(run[0]), int(run[-1]) + 1] for run in consecutive(self.chunks)],
            "counts": {"readings": self.readings, "missing": self.missing, "superseded": self.superseded},
            "tested": self.tested,
        }
        self.group.attrs.update(content)

    def occupy(self, slice_index: NDArray[np.int64]) -> None:
        """Let the extent and the chunks include these slices, at least one."""
        self.extent = hull(self.extent, (int(slice_index.min()), int(slice_index.max())))
        self.chunks = np.union1d(self.chunks, slice_index // CHUNK_SLICES)

    def side_readings(self, *, superseded: bool, tests: bool = False) -> Readings:
        """Return the side table's readings that are superseded, or those that are not, in the order of the table."""
        if len(self.side) == 0:
            return Readings.empty(self.series)
        *columns, replaced = self.side.read("series", "time_ns", "value", "flag", "arrival_ns", "superseded")
        if tests:
            columns.append(self.side_tests())
        rows = (replaced == 1) == superseded
        return Readings(self.series, *(column[rows] for column in columns))

    def side_rows(self) -> SideRows:
        """Return the side table's rows that are not superseded."""
        *columns, replaced = self.side.read("series", "time_ns", "value", "flag", "superseded")
        rows = np.flatnonzero(replaced == 0)
        series, time_ns, value, flag = (column[rows] for column in columns)
        return SideRows(rows, series, time_ns, value, flag)

    def side_tests(self) -> NDArray[np.uint16]:
        """Return the tests that set the flags of all rows of the side table."""
        return self.side.read(_TESTS)[0] if self.tested else np.zeros(len(self.side), np.uint16)

    def add_side(self, readings: Readings, *, superseded: bool) -> None:
        """Append readings to the side table."""
        if len(readings):
            self.side.append(
                {
                    "series": readings.index,
                    "time_ns": readings.time_ns,
                    "value": readings.value,
                    "flag": readings.flag,
                    "arrival_ns": readings.arrival_ns,
                    "superseded": np.full(len(readings), superseded, np.uint8),
                    _TESTS: readings.tests_or_none_set(),
                }
            )


def hull(one: Extent | None, other: Extent) -> Extent:
    """Return the smallest extent that includes both."""
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def _expand(runs: list[list[int]]) -> NDArray[np.int64]:
    return np.concatenate([np.arange(start, stop) for start, stop in runs] or [np.empty(0, np.int64)])
