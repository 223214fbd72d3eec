"""What changed between two snapshots: which slices and series of each variable, and how.

Each commit tells in its metadata what it touched, in runs (`touched`); `told` sums that up without reading a reading.
`compared` reads both snapshots, piece by piece, and is exact.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.archive import Archive
from hypergrid.archive.arrays.attributes import Json
from hypergrid.archive.arrays.cells import CHUNK_SLICES, Slices, split_consecutive
from hypergrid.archive.arrays.change_set import KINDS, ChangeSet, Runs
from hypergrid.core.errors import NotFound
from hypergrid.core.readings import Readings, Series, equal_values
from hypergrid.core.times import Window

_UNKNOWN_KIND: Final = "changed"
"""Kind of a commit that tells no kinds: those of earlier programs."""
_READINGS_AT_ONCE: Final = 4_000_000


@dataclass(frozen=True)
class Change:
    """What changed of one variable, in one way."""

    variable: str
    kind: str
    """One of `KINDS`; "gone" where the later snapshot lacks a reading; "changed" where commits do not tell."""
    readings: int | None
    """How many; told by commits a reading counts each time. None where commits do not tell."""
    runs: tuple[Window, ...]
    """Runs of slices: from the start of the first to the end of the last."""
    series: tuple[Series, ...]
    """Those of which readings changed."""


def diff_from_log(archive: Archive, since: str) -> tuple[Change, ...]:
    """Return what the commits after an older snapshot, up to the one that an archive reads, tell that they changed.

    Raises
    ------
    NotFound
        The archive no longer has the commits between the two, or the other one is not the older.
    """
    slice_ns = round(archive.slice_s * 1e9)
    records_by_kind: dict[tuple[str, str], list[Json]] = {}
    for snapshot in archive.iterate_since(since):
        if snapshot is None:
            message = (
                f"the commits between {since} and {archive.snapshot} are not known: the first is not the older, or "
                "they expired; give the older snapshot first, or compare the readings themselves with --exact"
            )
            raise NotFound(message)
        for variable, touched in snapshot.metadata.get("slices", {}).items():
            kinds = [kind for kind in KINDS if kind in touched]
            for kind in kinds:
                records_by_kind.setdefault((variable, kind), []).append(touched[kind])
            if not kinds:
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
    runs = _merge_runs([(first, last + slice_ns) for record in records for first, last in record["runs"]])
    numbers = {n for record in records for first, last in record["series"] for n in range(first, last + 1)}
    return Change(
        name,
        kind,
        None if None in counts else sum(counts),
        tuple(Window(first, stop) for first, stop in runs),
        tuple(series[number] for number in sorted(numbers) if number < len(series)),
    )


def _merge_runs(runs: Runs) -> Runs:
    """Return half-open runs, those that overlap or touch as one."""
    merged: Runs = []
    for first, stop in sorted(runs):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((first, stop))
    return merged


def compare_snapshots(
    old: Archive, new: Archive, *, progress: Callable[[str, float], None] = lambda _name, _done: None
) -> tuple[Change, ...]:
    """Return what differs between the readings of two snapshots of an archive, in either order of time.

    A reading is replaced where its value or its arrival is another, and has another flag where only that, or the tests
    that set it, differ.
    """
    slices = Slices(round(new.slice_s * 1e9))
    changes = []
    for name in dict.fromkeys([*old.variables, *new.variables]):
        touched = {kind: ChangeSet() for kind in (*KINDS, "gone")}
        windows = list(_iterate_windows(old, new, name))
        for index, window in enumerate(windows):
            progress(name, index / len(windows))
            before, after = (_read_window(archive, name, window) for archive in (old, new))
            for kind, rows in _find_differences(before, after):
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
    """Yield windows that hold all readings of both, none of them too many."""
    spans = [archive.spans(name, 1) for archive in (old, new) if name in archive.variables]
    width = max([1, *(len(archive.series(name)) for archive in (old, new) if name in archive.variables)])
    slice_ns = round(new.slice_s * 1e9)
    most_ns = max(1, _READINGS_AT_ONCE // width // CHUNK_SLICES) * CHUNK_SLICES * slice_ns
    for first, stop in _merge_runs(
        [(window.start_ns, window.stop_ns) for archive_spans in spans for window in archive_spans]
    ):
        for start in range(first, stop, most_ns):
            yield Window(start, min(start + most_ns, stop))


def _read_window(archive: Archive, name: str, window: Window) -> Readings:
    return archive.read(name, window=window, tests=True) if name in archive.variables else Readings.empty()


def _find_differences(old: Readings, new: Readings) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield each kind with its rows: of the old readings where they are gone, else of the new ones."""
    index = np.concatenate([old.index, new.index])
    time_ns = np.concatenate([old.time_ns, new.time_ns])
    # The sort keeps the order of equal keys: of two, the old one comes first.
    order = np.lexsort((time_ns, index))
    same = (index[order[1:]] == index[order[:-1]]) & (time_ns[order[1:]] == time_ns[order[:-1]])
    was, now = order[:-1][same], order[1:][same] - len(old)
    yield "gone", np.setdiff1d(np.arange(len(old)), was)
    yield "new", np.setdiff1d(np.arange(len(new)), now)
    value, other = old.value[was], new.value[now]
    equal = equal_values(value, other) & (old.arrival_ns[was] == new.arrival_ns[now])
    yield "replaced", now[~equal]
    judged = (old.flag[was] != new.flag[now]) | (old.tests_or_none_set()[was] != new.tests_or_none_set()[now])
    yield "flags", now[equal & judged]
