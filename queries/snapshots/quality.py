"""What the tests said of the readings, and what could not be read, counted for those who look after a network."""

import csv
import io
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Reject
from hypergrid.core.flags import MEANINGS, TESTS
from hypergrid.core.times import DAY_NS, Window
from hypergrid.formats.results import harmless

MOST_DAYS: Final = 36_600
_CHUNKS: Final = 256
"""Chunks of slices that are read at once."""
EXAMPLES: Final = 5
"""Rejects of a kind that are shown."""


@dataclass(frozen=True)
class Quality:
    """Flags of one station and variable."""

    station: str
    variable: str
    readings: int
    flags: dict[str, int]
    """Readings by the CF word of their flag (`hypergrid.core.flags.MEANINGS`); those that there are."""
    tests: dict[str, int]
    """Readings whose flag a test set, by test (`hypergrid.core.flags.TESTS`); several may have set one."""


@dataclass
class RejectKind:
    """Rejects whose reasons begin alike."""

    kind: str
    count: int = 0
    files: set[str] = field(default_factory=set)
    examples: list[Reject] = field(default_factory=list)
    """The first ones, at most `EXAMPLES`."""


def quality(archive: Archive, days: int | None = None) -> list[Quality]:
    """Return the flags of every station and variable that has readings, by variable, then station.

    Parameters
    ----------
    archive
        The archive at a snapshot.
    days
        So many days before each variable's newest reading; None: all readings.
    """
    found = []
    for name in archive.variables:
        extent = archive.extent(name)
        if extent is None:
            continue
        wanted = extent if days is None else Window(extent.stop_ns - days * DAY_NS, extent.stop_ns)
        stations = sorted({one.station for one in archive.series(name)})
        flags, tests = _counted(archive, name, wanted, stations)
        for place, station in enumerate(stations):
            readings = int(flags[place].sum())
            if readings:
                by_flag = {word: int(flags[place, value]) for value, word in MEANINGS.items() if flags[place, value]}
                by_test = {test: int(tests[place, bit]) for bit, test in enumerate(TESTS) if tests[place, bit]}
                found.append(Quality(station, name, readings, by_flag, by_test))
    return found


def _counted(
    archive: Archive, variable: str, wanted: Window, stations: list[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many readings of each station have each flag, and how many flags each test set."""
    flags, tests = (np.zeros((len(stations), width), np.int64) for width in (max(MEANINGS) + 1, len(TESTS)))
    for span in archive.spans(variable, _CHUNKS):
        window = span.intersect(wanted)
        if window is None:
            continue
        read = archive.read(variable, window=window, tests=True)
        place = np.searchsorted(stations, [one.station for one in read.series])[read.index]
        flags += np.bincount(place * flags.shape[1] + read.flag, minlength=flags.size).reshape(flags.shape)
        bits = read.tests_or_none_set()
        set_by = np.flatnonzero(bits)
        for bit in range(len(TESTS)):
            rows = set_by[(bits[set_by] >> np.uint16(bit)) & np.uint16(1) > 0]
            tests[:, bit] += np.bincount(place[rows], minlength=len(stations))
    return flags, tests


def reject_kinds(rejects: list[Reject]) -> list[RejectKind]:
    """Return rejects by what their reasons begin with, up to a colon, the most frequent first."""
    found: dict[str, RejectKind] = {}
    for one in rejects:
        kind = one.reason.partition(":")[0]
        mine = found.setdefault(kind, RejectKind(kind))
        mine.count += 1
        mine.files.add(one.file)
        if len(mine.examples) < EXAMPLES:
            mine.examples.append(one)
    return sorted(found.values(), key=lambda one: -one.count)


def rejects_csv(rejects: list[Reject]) -> bytes:
    """Return rejects as CSV, a row each, in the order of the commits."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("file", "line", "column", "reason", "text"))
    writer.writerows(
        [harmless(one.file), one.line, harmless(one.column), harmless(one.reason), harmless(one.text)]
        for one in rejects
    )
    return text.getvalue().encode()
