"""Change sets in commit metadata: runs of slices and series per variable and kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import icechunk
import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.attributes import Json
from hypergrid.archive.arrays.cells import Slices, split_consecutive, unique_numbers
from hypergrid.archive.arrays.records import Snapshot

KINDS: Final = ("new", "replaced", "flags")
"""Kinds of changes: new readings, replaced readings, changed flags."""
MAX_RUNS: Final = 48
"""Maximum number of runs of slices, and of series, recorded per kind; beyond it the nearest runs are joined."""

Runs = list[tuple[int, int]]
"""Ascending runs of whole numbers, each as its first and last number."""


@dataclass
class ChangeSet:
    """Changes of one kind to one variable in a commit."""

    readings: int = 0
    slices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Slice numbers, ascending."""
    series: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Series numbers, ascending."""

    def add(self, slices: NDArray[np.int64], series: NDArray[np.int32]) -> None:
        """Add n readings by their slices and series, each of shape (n,)."""
        self.add_all(len(slices), unique_numbers(slices), unique_numbers(series))

    def add_all(self, readings: int, slices: NDArray[np.int64], series: NDArray[np.int64] | NDArray[np.int32]) -> None:
        """Add a number of readings that lie in the given slices and series."""
        self.readings += readings
        self.slices = np.union1d(self.slices, slices)
        self.series = np.union1d(self.series, series)

    def to_record(self, slices: Slices) -> Json:
        """Encode for a commit's metadata."""
        runs = [[slices.start_ns(first), slices.start_ns(last)] for first, last in _make_runs(self.slices)]
        return {"readings": self.readings, "runs": runs, "series": [list(run) for run in _make_runs(self.series)]}


def make_record(touched: Mapping[str, ChangeSet], slices: Slices) -> Json:
    """Encode a variable's change sets for a commit's metadata: their hull and each kind."""
    every = np.concatenate([change_set.slices for change_set in touched.values()])
    series = np.unique(np.concatenate([change_set.series for change_set in touched.values()]))
    kinds = {kind: touched[kind].to_record(slices) for kind in KINDS if kind in touched}
    first_ns, last_ns = slices.start_ns(int(every.min())), slices.start_ns(int(every.max()))
    return {"first_ns": first_ns, "last_ns": last_ns, "series": len(series), **kinds}


def _make_runs(numbers: NDArray[np.int64]) -> Runs:
    runs = [(int(run[0]), int(run[-1])) for run in split_consecutive(numbers)]
    return _join_runs(runs) if len(runs) > MAX_RUNS else runs


def _join_runs(runs: Runs) -> Runs:
    """Reduce to at most `MAX_RUNS` runs by joining those with the narrowest gaps."""
    gaps = np.array([later[0] - earlier[1] for earlier, later in zip(runs[:-1], runs[1:], strict=True)])
    kept = np.sort(np.argsort(-gaps, kind="stable")[: MAX_RUNS - 1])
    edges = [0, *(kept + 1).tolist(), len(runs)]
    return [(runs[first][0], runs[stop - 1][1]) for first, stop in zip(edges[:-1], edges[1:], strict=True)]


def read_snapshot(info: icechunk.SnapshotInfo) -> Snapshot | None:
    """Decode the snapshot record of a commit; None for Icechunk's own initial snapshot."""
    metadata = _sort_content(info.metadata)
    # Icechunk creates its first snapshot before the archive writes its tables.
    if "time_ns" not in metadata:
        return None
    return Snapshot(info.id, int(metadata.pop("time_ns")), info.message, MappingProxyType(metadata))


def _sort_content(content: Any) -> Any:  # noqa: ANN401 - as of JSON
    """Sort metadata by key."""
    # Icechunk returns the keys in an order that differs between processes.
    return {key: _sort_content(content[key]) for key in sorted(content)} if isinstance(content, Mapping) else content


def commit_metadata(now_ns: int, content: dict[str, object]) -> dict[str, object]:
    """Add the time of the committer's clock to a commit's metadata."""
    return {"time_ns": int(now_ns), **content}
