"""Stored values against what raw copies say, reading by reading.

The store retains what it replaces. So a reading that a raw file, or a segment of a stream, gives is stored with its
value, in force or superseded; where it is neither, it was lost. What is in force and in no raw copy was amended,
withdrawn, or written from Python, and is counted.

Raw copies are parsed once more, as they were described when they were ingested; memory is that of a range of time.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.errors import DamagedArchive
from hypergrid.store import Archive, Defect
from hypergrid.streams.elements import Readings, Series
from hypergrid.times import Window, format_instant
from ingest.amending import Said, counted, find, has_version
from ingest.remap import said_by_raw_copies
from ingest.report import Stages
from ingest.staging import windows
from ingest.stream_history import EVER, Came, committed_upto, read_streams, stored_upto

VALUES_AT_ONCE: Final = 4_000_000
"""Values of all columns that are in memory at once: some 200 MB with what they are compared with."""
SERIES_TOLD: Final = 10
"""Series of a variable that are told of one by one."""
_REMEDY: Final = "'hypergrid check --deep --repair' stores what raw copies say"


@dataclass
class Lost:
    """Readings of a series that a raw copy gives, and that are not stored."""

    series: Series
    count: int
    first_ns: int
    last_ns: int
    """The stamps of the first and the last of them [ns since 1970 UTC]."""
    raw: float
    """The value of the first."""
    stored: float | None
    """The value that is in force at its stamp; None: none is."""

    def to_defect(self) -> Defect:
        """Return it as a defect of the archive."""
        one, instead = self.series, "nothing" if self.stored is None else _shown(self.stored)
        what = (
            f"{self.count:,} readings of raw copies are not stored, the first at {format_instant(self.first_ns)}: "
            f"{_shown(self.raw)} there, {instead} in the archive"
        )
        return Defect("values", f"{one.variable} of station {one.station} ({one.source})", what, _REMEDY)


@dataclass
class Verified:
    """What a comparison of stored values with raw copies found."""

    readings: int = 0
    """Readings in force that a raw copy gives."""
    other: int = 0
    """Readings in force that no raw copy gives."""
    waiting_from: int | None = None
    """The record of the spool from which on rows may wait, so that they were not compared; None: all were."""
    lost: list[Lost] = field(default_factory=list)
    lost_within: dict[str, list[Window]] = field(default_factory=dict)
    """Windows that were compared at once and of which some are, by variable."""
    warnings: tuple[str, ...] = ()

    def defects(self) -> Iterator[Defect]:
        """Yield what lacks: of a variable some series one by one, and the others in one."""
        by_variable: dict[str, list[Lost]] = {}
        for one in self.lost:
            by_variable.setdefault(one.series.variable, []).append(one)
        for name, some in by_variable.items():
            yield from (one.to_defect() for one in some[:SERIES_TOLD])
            if more := some[SERIES_TOLD:]:
                what = f"{sum(one.count for one in more):,} readings of raw copies are not stored"
                yield Defect("values", f"{name} of {len(more)} more series", what, _REMEDY)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, but for what lacks, which is told as defects."""
        told = ("readings", "other", "waiting_from")
        return {**{name: getattr(self, name) for name in told}, "warnings": list(self.warnings)}


def verify(archive: Archive, *, progress: Callable[[str, float], None] | None = None) -> Verified:
    """Compare the values of an archive with those of its raw copies; nothing of it is changed.

    Raises
    ------
    hypergrid.errors.DamagedArchive
        The ledger of files cannot be read.
    """
    stages = Stages(time.perf_counter, progress)
    with tempfile.TemporaryDirectory(prefix="hypergrid-") as folder:
        return _Comparison(archive, Path(folder), stages).do()


@dataclass
class _Comparison:
    archive: Archive
    scratch: Path
    stages: Stages
    found: Verified = field(default_factory=Verified)
    _warnings: list[str] = field(default_factory=list)
    _lost: dict[Series, Lost] = field(default_factory=dict)

    def do(self) -> Verified:
        archive, found = self.archive, self.found
        once, anew = said_by_raw_copies(archive, self.scratch, self.stages, self._warnings.append)
        streams = self._streams()
        spans = [span for said in (*once, *anew) for span in said.spans]
        spans += [span for came in streams.values() for span in came.spans]
        cuts = windows(spans, most=VALUES_AT_ONCE, chunks_ns=archive.slices.chunks_ns)
        with self.stages.stage("compare values") as tell:
            for place, window in enumerate(cuts):
                self._window(window, once, anew, streams)
                tell((place + 1) / len(cuts))
        found.other = sum(archive.readings(name) for name in archive.variables) - found.readings
        found.lost = sorted(self._lost.values(), key=lambda one: one.series)
        found.warnings = tuple(self._warnings)
        return found

    def _streams(self) -> Mapping[str, Came]:
        upto = stored_upto(self.archive)
        if upto < committed_upto(self.archive):
            self.found.waiting_from = upto + 1
        always = dict.fromkeys(self.archive.variables, [EVER])
        with self.stages.stage("records of streams") as tell:
            streams = read_streams(
                self.archive, self.archive.files(), always, self.scratch, self._warnings.append, upto=upto
            )
            tell(1.0)
        return streams

    def _window(self, window: Window, once: Sequence[Said], anew: Sequence[Said], streams: Mapping[str, Came]) -> None:
        pieces = [(said, said.pieces_around(window, 0)) for said in (*once, *anew)]
        for name in self.archive.variables:
            parts = [_cut(said.versions(name, rows), window) for said, rows in pieces]
            parts += [streams[name].within(window)] if name in streams else []
            if any(len(part) for part in parts):
                try:
                    self._compare(name, window, parts, slice(len(once), len(once) + len(anew)))
                except DamagedArchive as error:
                    self._warnings.append(f"{name} from {format_instant(window.start_ns)} was not compared: {error}")

    def _compare(self, name: str, window: Window, parts: Sequence[Readings], anew: slice) -> None:
        """Compare a variable in a window; those of `anew` may have met what others had replaced, and then gave way."""
        stored = self.archive.read(name, window=window)
        replaced = self.archive.read(name, window=window, superseded=True)
        series = tuple(dict.fromkeys([*stored.series, *(one for part in parts for one in part.series)]))
        stored, replaced = counted(stored, series), counted(replaced, series)
        is_given = np.zeros(len(stored), np.bool_)
        for number, part in enumerate(parts):
            raw = counted(part, series)
            at, is_in_force = _in_force(stored, raw)
            is_given[at[is_in_force]] = True
            left = np.flatnonzero(~is_in_force)
            left = left[~has_version(replaced, raw.take(left))]
            if anew.start <= number < anew.stop:
                left = left[at[left] < 0]
            if len(left):
                self._note(raw.take(left), stored, at[left])
                self.found.lost_within.setdefault(name, []).append(window)
        self.found.readings += int(np.count_nonzero(is_given))

    def _note(self, raw: Readings, stored: Readings, at: NDArray[np.intp]) -> None:
        for number in np.unique(raw.index).tolist():
            mine = np.flatnonzero(raw.index == number)
            first, last = int(mine[0]), int(mine[-1])
            series, known = raw.series[number], self._lost.get(raw.series[number])
            last_ns = int(raw.time_ns[last])
            if known is not None:
                known.count += len(mine)
                known.last_ns = max(known.last_ns, last_ns)
                continue
            value = None if at[first] < 0 else float(stored.value[at[first]])
            self._lost[series] = Lost(
                series, len(mine), int(raw.time_ns[first]), last_ns, float(raw.value[first]), value
            )


def _shown(value: float) -> str:
    return "a missing value" if math.isnan(value) else repr(value)


def _cut(readings: Readings, window: Window) -> Readings:
    return readings.take((readings.time_ns >= window.start_ns) & (readings.time_ns < window.stop_ns))


def _in_force(stored: Readings, raw: Readings) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return for each raw reading the place of that with its series and stamp, -1: none, and if it has its value."""
    is_first = np.ones(len(raw), np.bool_)
    is_first[1:] = (raw.index[1:] != raw.index[:-1]) | (raw.time_ns[1:] != raw.time_ns[:-1])
    at = find(stored, raw.take(is_first))[np.cumsum(is_first) - 1]
    known = np.flatnonzero(at >= 0)
    a, b = stored.value[at[known]], raw.value[known]
    alike = np.zeros(len(raw), np.bool_)
    alike[known] = (a == b) | (np.isnan(a) & np.isnan(b))
    return at, alike
