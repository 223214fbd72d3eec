"""Status of the program that evaluates live queries over a tap, beside an archive; others read it without an engine."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from hypergrid.archive.disk.lock import is_free
from hypergrid.core.files import replace_atomically
from hypergrid.core.times import SECOND_NS

FOLDER: Final = "continuous"
LOCK: Final = "tap.lock"
FILE: Final = "tap.json"
EVERY_S: Final = 2.0
"""How often the status is written [s]."""
SILENT_S: Final = 30.0
"""Age from which on a status says that its program hangs [s]."""
LATE_S: Final = 300.0
"""Time for which a query has not taken all that arrived, from which on its alerts count as late [s]."""
_NOT_FOLLOWED: Final = "no program evaluates the queries over the tap; start 'hypergrid cql watch {}'"


@dataclass(frozen=True)
class TapStatus:
    """What the program did last."""

    at_ns: int
    """When this was written [ns since 1970 UTC]."""
    record: int = 0
    """Last record of the tap that all queries took."""
    behind: int = 0
    """Records that a query did not take yet."""
    queries: int = 0
    ignored: int = 0
    """Readings that arrived too late for the tap, or whose clock is ahead, since the program began."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Why queries are not evaluated, by name."""
    slowest: str = ""
    """The query that has not taken all that arrived for the longest time."""
    behind_s: float = 0.0
    """That time [s]."""


def write_status(archive: Path, status: TapStatus) -> None:
    """Write the status of an archive's tap.

    Raises
    ------
    OSError
        It cannot be written, for example because the disk is full.
    """
    with replace_atomically(archive / FOLDER / FILE) as draft:
        draft.write_text(json.dumps(asdict(status)))


def read_status(archive: Path) -> TapStatus | None:
    """Return the last status of an archive's tap; None if there is none that can be read."""
    try:
        return TapStatus(**json.loads((archive / FOLDER / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def find_query_error(archive: Path, name: str) -> str:
    """Return why a query over the tap of an archive is not evaluated now; empty if nothing is known to be wrong."""
    if is_free(archive / FOLDER / LOCK):
        return _NOT_FOLLOWED.format(archive.name)
    status = read_status(archive)
    return "" if status is None else status.errors.get(name, "")


def find_tap_trouble(archive: Path, now_ns: int) -> str:
    """Return why queries over the tap of an archive are not evaluated in time; empty if they are, or if there are none.

    Parameters
    ----------
    now_ns
        Current time [ns since 1970 UTC].
    """
    status = read_status(archive)
    if status is None or not status.queries:
        return ""
    age_s = (now_ns - status.at_ns) / SECOND_NS
    if is_free(archive / FOLDER / LOCK):
        return _NOT_FOLLOWED.format(archive.name)
    if age_s > SILENT_S:
        return f"the program that evaluates the queries over the tap has said nothing for {age_s:.0f} s"
    if status.errors:
        name, error = next(iter(status.errors.items()))
        return f"the query {name!r} over the tap is not evaluated: {error}"
    if status.behind_s > LATE_S:
        return f"the query {status.slowest!r} over the tap has been behind what arrives for {status.behind_s:.0f} s"
    return ""
