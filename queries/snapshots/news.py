"""What is new in an archive: its newest snapshot, the variables that changed, and where their readings end."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.times import DAY_NS, SECOND_NS, format_timestamp
from queries.snapshots.latest import NEVER, LatestValues, NewestReadings
from queries.standing.incremental_tasks import newest_ns

MAX_COMMITS: Final = 200
"""Commits since the follower's snapshot that are looked through; after more, everything counts as changed."""


@dataclass(frozen=True)
class ReadingsEnd:
    """Where the readings of a variable end."""

    time_ns: int
    """The newest reading [ns since 1970 UTC]."""
    end_ns: int
    """End of its slice [ns since 1970 UTC], at which a time that follows it ends."""


@dataclass(frozen=True)
class SnapshotNews:
    """The newest snapshot, as a follower of an earlier one needs it."""

    id: str
    time_ns: int
    """When it was committed [ns since 1970 UTC]."""
    changed: tuple[str, ...] | None
    """Variables changed since the follower's snapshot; None: perhaps everything, such as stations."""
    ends: Mapping[str, ReadingsEnd]
    """By variable; variables without readings are left out."""

    def to_json(self) -> dict[str, Any]:
        """Convert to the document of the API."""
        return {
            "id": self.id, "time": format_timestamp(self.time_ns),
            "changed": None if self.changed is None else list(self.changed),
            "newest": {name: format_timestamp(end.time_ns) for name, end in self.ends.items()},
            "ends": {name: format_timestamp(end.end_ns) for name, end in self.ends.items()},
        }  # fmt: skip


class ArchiveNews:
    """Reads the news of an archive from the cached latest values; thread-safe.

    Parameters
    ----------
    values
        The latest values of the archive.
    """

    def __init__(self, values: LatestValues) -> None:
        self._values = values
        self._lock = threading.Lock()
        self._known = SnapshotNews("", 0, None, {})

    def read_news(self, since: str | None = None) -> SnapshotNews:
        """Return the news since a snapshot; without one, or after an unknown one, everything counts as changed."""
        if not self._values.is_recent:
            self._values.look()
        with self._lock, self._values.steady() as archive:
            store = archive.store
            if self._known.id != archive.snapshot:
                # Once per snapshot, as followers poll.
                newest = next(store.iterate_since(""))
                ends = {name: find_end(store, self._values.read_newest(name)) for name in archive.variables}
                self._known = SnapshotNews(
                    archive.snapshot, 0 if newest is None else newest.time_ns, None,
                    {name: end for name, end in ends.items() if end is not None},
                )  # fmt: skip
            known = self._known
            changed = () if since == known.id else list_changed(store, since)
        return SnapshotNews(known.id, known.time_ns, changed, known.ends)


def list_changed(archive: Archive, since: str | None) -> tuple[str, ...] | None:
    """List the variables whose readings changed since a snapshot; None: perhaps everything did."""
    if since is None:
        return None
    changed: dict[str, None] = {}
    for count, snapshot in enumerate(islice(archive.iterate_since(since), MAX_COMMITS + 1)):
        touched = {} if snapshot is None else snapshot.metadata.get("slices", {})
        # A commit without readings changed stations, layers or what is listed.
        if not touched or count == MAX_COMMITS:
            return None
        changed |= dict.fromkeys(touched)
    return tuple(sorted(changed))


def find_end(archive: Archive, newest: NewestReadings) -> ReadingsEnd | None:
    """Find where the readings of a variable end; None without readings.

    A station that is more than a day ahead of all others counts only as far as `newest_ns` trusts it.
    """
    rows = np.argsort(newest.valued_ns, kind="stable")[::-1]
    stamps = newest.valued_ns[rows].tolist()
    if not stamps or stamps[0] == NEVER:
        return None
    first = newest.series[rows[0]]
    others = (stamp for row, stamp in zip(rows, stamps, strict=True) if newest.series[row].station != first.station)
    second_ns = next(others, NEVER)
    if second_ns != NEVER and stamps[0] - second_ns > DAY_NS:
        end_ns = newest_ns(archive, first.variable)
        return ReadingsEnd(end_ns, end_ns)
    slice_ns = round(archive.slice_s * SECOND_NS)
    return ReadingsEnd(stamps[0], (stamps[0] // slice_ns + 1) * slice_ns)
