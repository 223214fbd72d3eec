"""Quality report: flags by test, and rejected rows, counted for network operators."""

import csv
import io
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Reject
from hypergrid.core.flags import MEANINGS, TESTS
from hypergrid.core.times import DAY_NS, Window
from hypergrid.formats.results import escape_formula

MOST_DAYS: Final = 36_600
_CHUNKS: Final = 256
"""Chunks of slices read at once."""
EXAMPLES: Final = 5
"""Rejects shown of each kind."""


@dataclass(frozen=True)
class StationQuality:
    """Flags of one station and variable."""

    station: str
    variable: str
    readings: int
    flags: dict[str, int]
    """Number of readings by the CF meaning of their flag (`hypergrid.core.flags.MEANINGS`), without zeros."""
    tests: dict[str, int]
    """Number of readings whose flag a test set, by test (`hypergrid.core.flags.TESTS`); several may have set one."""


@dataclass
class RejectKind:
    """Rejects whose reasons share a prefix."""

    kind: str
    count: int = 0
    files: set[str] = field(default_factory=set)
    examples: list[Reject] = field(default_factory=list)
    """The first ones, at most `EXAMPLES`."""


def assess_quality(archive: Archive, days: int | None = None) -> list[StationQuality]:
    """Count the flags of every station and variable with readings, by variable, then station.

    Parameters
    ----------
    archive
        The archive at a snapshot.
    days
        Number of days before each variable's newest reading; None: all readings.
    """
    qualities = []
    for name in archive.variables:
        extent = archive.extent(name)
        if extent is None:
            continue
        wanted = extent if days is None else Window(extent.stop_ns - days * DAY_NS, extent.stop_ns)
        stations = sorted({series.station for series in archive.series(name)})
        flags, tests = _count_flags(archive, name, wanted, stations)
        for row, station in enumerate(stations):
            readings = int(flags[row].sum())
            if readings:
                by_flag = {word: int(flags[row, value]) for value, word in MEANINGS.items() if flags[row, value]}
                by_test = {test: int(tests[row, bit]) for bit, test in enumerate(TESTS) if tests[row, bit]}
                qualities.append(StationQuality(station, name, readings, by_flag, by_test))
    return qualities


def _count_flags(
    archive: Archive, variable: str, wanted: Window, stations: list[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count readings by station and flag, and by station and test."""
    flags, tests = (np.zeros((len(stations), width), np.int64) for width in (max(MEANINGS) + 1, len(TESTS)))
    # In chunks of slices, which bounds the memory.
    for span in archive.spans(variable, _CHUNKS):
        window = span.intersect(wanted)
        if window is None:
            continue
        read = archive.read(variable, window=window, tests=True)
        station_index = np.searchsorted(stations, [series.station for series in read.series])[read.index]
        flags += np.bincount(station_index * flags.shape[1] + read.flag, minlength=flags.size).reshape(flags.shape)
        bits = read.tests_or_none_set()
        set_by = np.flatnonzero(bits)
        for bit in range(len(TESTS)):
            rows = set_by[(bits[set_by] >> np.uint16(bit)) & np.uint16(1) > 0]
            tests[:, bit] += np.bincount(station_index[rows], minlength=len(stations))
    return flags, tests


def reject_kinds(rejects: list[Reject]) -> list[RejectKind]:
    """Group rejects by the prefix of their reasons, up to a colon, most frequent first."""
    kinds: dict[str, RejectKind] = {}
    for reject in rejects:
        kind = reject.reason.partition(":")[0]
        reject_kind = kinds.setdefault(kind, RejectKind(kind))
        reject_kind.count += 1
        reject_kind.files.add(reject.file)
        if len(reject_kind.examples) < EXAMPLES:
            reject_kind.examples.append(reject)
    return sorted(kinds.values(), key=lambda entry: -entry.count)


def rejects_csv(rejects: list[Reject]) -> bytes:
    """Format rejects as CSV, one row each, in the order of the commits."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("file", "line", "column", "reason", "text"))
    writer.writerows(
        [
            # Spreadsheets would execute text that begins like a formula.
            escape_formula(reject.file),
            reject.line,
            escape_formula(reject.column),
            escape_formula(reject.reason),
            escape_formula(reject.text),
        ]
        for reject in rejects
    )
    return text.getvalue().encode()
