"""What streams brought, read once more: from raw copies of their segments, and from what the spool holds.

Records are parsed under the deployments of their time, as they were when they came. Only what lies in the windows that
are asked for is kept, so memory is that of a segment and of what was found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.errors import HyperGridError
from hypergrid.store import Archive, FileEntry
from hypergrid.streams.elements import Readings, concatenate
from hypergrid.times import Window
from ingest.amending import renumbered
from ingest.arrived import Arrived, Names
from ingest.assembler import Sent
from ingest.deployed import Deployed, deployments, parse
from ingest.job import RAW
from ingest.sources.raw import read_back
from ingest.sources.spool import durable, reach, segment_first, segment_name, segments
from ingest.streamed import DEPLOYMENTS, SPOOL, STREAM, Ledger, is_segment, ledger_of, readings_by_variable

BYTES_AT_ONCE: Final = 64 << 20
"""Of records that are parsed at once [bytes]."""


@dataclass(frozen=True, eq=False)
class Came:
    """Readings of a variable, in the order in which they came."""

    readings: Readings
    came_ns: NDArray[np.int64]
    """When each was received [ns since 1970 UTC], shape (e,)."""

    def within(self, window: Window, start_ns: float, stop_ns: float) -> Readings:
        """Return those with stamps in a window that were received from one instant on, and before another."""
        time_ns, came_ns = self.readings.time_ns, self.came_ns
        stamped = (time_ns >= window.start_ns) & (time_ns < window.stop_ns)
        return self.readings.take(stamped & (came_ns >= start_ns) & (came_ns < stop_ns))


def read_streams(
    archive: Archive,
    files: Sequence[FileEntry],
    windows: Mapping[str, Sequence[Window]],
    scratch: Path,
    warn: Callable[[str], None],
) -> dict[str, Came]:
    """Return what streams committed of variables, within the windows of each.

    Parameters
    ----------
    files
        The ledger of files, segments of streams among them.
    scratch
        A folder for segments that are unpacked.
    warn
        Is told which records cannot be read any more, and why.
    """
    described = deployments(archive.path / STREAM / DEPLOYMENTS)
    upto = max((ledger_of(archive, stream).upto for stream in archive.streams), default=Ledger().upto)
    history = _History(archive, windows)
    for folder, first in _segments(archive, files, scratch, warn):
        last = min(upto, durable(folder))
        try:
            history.add(folder, first - 1, last, described)
        except (HyperGridError, OSError) as error:
            warn(f"records {first} to {last} of a stream cannot be read again: {error}")
    return history.by_variable()


def _segments(
    archive: Archive, files: Sequence[FileEntry], scratch: Path, warn: Callable[[str], None]
) -> Iterator[tuple[Path, int]]:
    """Yield a folder for each segment, in order, and the number of its first record; all that is in the spool last."""
    spool = archive.path / SPOOL
    there = segments(spool)
    kept = {segment_first(Path(entry.name)): entry.sha256 for entry in files if is_segment(entry.name)}
    for first in sorted(kept):
        if there and first >= there[0][0]:
            break
        try:
            content = read_back(archive.path / RAW, kept[first])
        except (HyperGridError, OSError) as error:
            warn(f"a segment of a stream, from record {first} on, cannot be read again: {error}")
            continue
        folder = scratch / f"segment-{first}"
        folder.mkdir()
        path = folder / segment_name(first)
        path.write_bytes(content)
        yield folder, first
        path.unlink()
    if there:
        yield spool, there[0][0]


@dataclass
class _History:
    archive: Archive
    windows: Mapping[str, Sequence[Window]]
    _names: dict[str, Names] = field(default_factory=dict)
    _sent: dict[str, Sent] = field(default_factory=dict)
    _found: dict[str, list[Came]] = field(default_factory=dict)

    def add(self, folder: Path, after: int, upto: int, described: list[Deployed]) -> None:
        """Take the records of a spool with after < seq <= upto."""
        while after < upto:
            stop = min(upto, reach(folder, after, most_bytes=BYTES_AT_ONCE))
            for pieces in parse(folder, after, stop, described):
                for piece in pieces:
                    # Who sends a message again gives it the stamp of the first.
                    rows = self._names.setdefault(piece.group, Names()).counted(piece.rows)
                    rows = replace(rows, time_ns=self._sent.setdefault(piece.group, Sent()).first_times(rows))
                    self._take(rows)
            after = stop

    def _take(self, rows: Arrived) -> None:
        variables = {name: self.archive.variable(name) for name in self.windows}
        for name, (readings, came_ns) in readings_by_variable(rows, variables).items():
            inside = np.zeros(len(readings), np.bool_)
            for window in self.windows[name]:
                inside |= (readings.time_ns >= window.start_ns) & (readings.time_ns < window.stop_ns)
            if inside.any():
                self._found.setdefault(name, []).append(Came(readings.take(inside), came_ns[inside]))

    def by_variable(self) -> dict[str, Came]:
        """Return what came so far."""
        made = {}
        for name, parts in self._found.items():
            series = tuple(dict.fromkeys(each for part in parts for each in part.readings.series))
            # Not put in order: amendments come after what they amend.
            whole = concatenate([renumbered(part.readings, series) for part in parts])
            made[name] = Came(whole, np.concatenate([part.came_ns for part in parts]))
        return made
