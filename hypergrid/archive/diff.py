"""Differences between two snapshots: the slices and series that changed, by variable and kind.

`diff_from_log` sums up the change sets in the commits' metadata and reads no readings. `compare_snapshots` reads both
snapshots piece by piece and is exact.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.archive import Archive
from hypergrid.archive.arrays.cells import CHUNK_SLICES, Slices, split_consecutive
from hypergrid.archive.arrays.records import KINDS, ChangeSet, Json
from hypergrid.core.errors import NotFound
from hypergrid.core.readings import Readings, Series, equal_values
from hypergrid.core.times import Window

_UNKNOWN_KIND: Final = "changed"
"""Kind for commits of older programs, which record no kinds."""
_READINGS_AT_ONCE: Final = 4_000_000


@dataclass(frozen=True)
class Change:
    """Changes of one kind to one variable."""

    variable: str
    kind: str
    """One of `KINDS`; "gone" if the later snapshot lacks a reading; "changed" if the commits record no kind."""
    readings: int | None
    """Number of readings; from the log, a reading counts once per commit. None if the commits do not record it."""
    runs: tuple[Window, ...]
    """Runs of slices, each from the start of its first to the end of its last slice."""
    series: tuple[Series, ...]
    """Series with changed readings."""


def diff_from_log(archive: Archive, since: str) -> tuple[Change, ...]:
    """Return the changes recorded by the commits between an older snapshot and the archive's.

    Raises
    ------
    NotFound
        The commits between the two expired, or `since` is not the older one.
    """
    slice_ns = round(archive.slice_s * 1e9)
    records_by_kind: dict[tuple[str, str], list[Json]] = {}
    for snapshot in archive.iterate_since(since):
        if snapshot is None:
            raise NotFound(
                f"the commits between {since} and {archive.snapshot} are not known: the first is not the older, or "
                "they expired; give the older snapshot first, or compare the readings themselves with --exact"
            )
        for variable, touched in snapshot.metadata.get("slices", {}).items():
            kinds = [kind for kind in KINDS if kind in touched]
            for kind in kinds:
                records_by_kind.setdefault((variable, kind), []).append(touched[kind])
            if not kinds:
                # Older programs recorded only the first and last slice.
                hull = {"readings": None, "runs": [[touched["first_ns"], touched["last_ns"]]], "series": []}
                records_by_kind.setdefault((variable, _UNKNOWN_KIND), []).append(hull)
    changes = []
    for name in archive.variables:
        series = archive.series(name)
        for kind in (*KINDS, _UNKNOWN_KIND):
            if (name, kind) in records_by_kind:
                changes.append(_sum_changes(name, kind, records_by_kind[name, kind], series, slice_ns))
    return tuple(changes)


def _sum_changes(name: str, kind: str, records: Sequence[Json], series: tuple[Series, ...], slice_ns: int) -> Change:
    counts = [record["readings"] for record in records]
    runs = merge_windows(Window(first, last + slice_ns) for record in records for first, last in record["runs"])
    numbers = {n for record in records for first, last in record["series"] for n in range(first, last + 1)}
    return Change(
        name,
        kind,
        None if None in counts else sum(counts),
        runs,
        tuple(series[number] for number in sorted(numbers) if number < len(series)),
    )


def merge_windows(windows: Iterable[Window]) -> tuple[Window, ...]:
    """Merge windows that overlap or touch; return them in order."""
    merged: list[Window] = []
    for window in sorted(windows, key=lambda window: window.start_ns):
        if merged and window.start_ns <= merged[-1].stop_ns:
            merged[-1] = Window(merged[-1].start_ns, max(merged[-1].stop_ns, window.stop_ns))
        else:
            merged.append(window)
    return tuple(merged)


def compare_snapshots(
    old: Archive, new: Archive, *, progress: Callable[[str, float], None] = lambda _name, _done: None
) -> tuple[Change, ...]:
    """Compare the readings of two snapshots of an archive, in either order of time.

    A reading is "replaced" if its value or arrival differs, and "flags" if only its flag or the tests that set it
    differ.
    """
    slices = Slices(round(new.slice_s * 1e9))
    changes = []
    for name in dict.fromkeys([*old.variables, *new.variables]):
        touched = {kind: ChangeSet() for kind in (*KINDS, "gone")}
        windows = list(_iterate_windows(old, new, name))
        for index, window in enumerate(windows):
            progress(name, index / len(windows))
            before, after = (_read_window(archive, name, window) for archive in (old, new))
            for kind, rows in find_differences(before, after):
                readings = before if kind == "gone" else after
                touched[kind].add(slices.index(readings.time_ns[rows]), readings.index[rows])
        progress(name, 1.0)
        series = max((archive.series(name) for archive in (old, new) if name in archive.variables), key=len)
        for kind, change_set in touched.items():
            if change_set.readings:
                runs = [(int(run[0]), int(run[-1]) + 1) for run in split_consecutive(change_set.slices)]
                changes.append(
                    Change(
                        name,
                        kind,
                        change_set.readings,
                        tuple(Window(slices.start_ns(first), slices.start_ns(stop)) for first, stop in runs),
                        tuple(series[number] for number in change_set.series.tolist()),
                    )
                )
    return tuple(changes)


def _iterate_windows(old: Archive, new: Archive, name: str) -> Iterator[Window]:
    """Yield windows that together cover all readings of both archives, without overlap."""
    spans = [archive.spans(name, 1) for archive in (old, new) if name in archive.variables]
    # Bounds the memory: windows are as long as `_READINGS_AT_ONCE` readings of this many series.
    width = max([1, *(len(archive.series(name)) for archive in (old, new) if name in archive.variables)])
    slice_ns = round(new.slice_s * 1e9)
    most_ns = max(1, _READINGS_AT_ONCE // width // CHUNK_SLICES) * CHUNK_SLICES * slice_ns
    for span in merge_windows(window for archive_spans in spans for window in archive_spans):
        for start in range(span.start_ns, span.stop_ns, most_ns):
            yield Window(start, min(start + most_ns, span.stop_ns))


def _read_window(archive: Archive, name: str, window: Window) -> Readings:
    return archive.read(name, window=window, tests=True) if name in archive.variables else Readings.empty()


def find_differences(old: Readings, new: Readings) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield each kind with its rows: old readings for "gone", otherwise new ones."""
    index = np.concatenate([old.index, new.index])
    time_ns = np.concatenate([old.time_ns, new.time_ns])
    # The sort is stable: of two equal keys the old reading comes first.
    order = np.lexsort((time_ns, index))
    same = (index[order[1:]] == index[order[:-1]]) & (time_ns[order[1:]] == time_ns[order[:-1]])
    was, now = order[:-1][same], order[1:][same] - len(old)
    yield "gone", np.setdiff1d(np.arange(len(old)), was)
    yield "new", np.setdiff1d(np.arange(len(new)), now)
    equal = equal_values(old.value[was], new.value[now]) & (old.arrival_ns[was] == new.arrival_ns[now])
    yield "replaced", now[~equal]
    judged = (old.flag[was] != new.flag[now]) | (old.tests_or_none_set()[was] != new.tests_or_none_set()[now])
    yield "flags", now[equal & judged]
