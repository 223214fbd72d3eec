"""What a stream tells of itself every few seconds, where a server of the archive finds it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from hypergrid.archive.arrays import stream_log
from hypergrid.core.times import SECOND_NS
from ingest.streaming.status import StreamStatus

EVERY_S: Final = 5.0
"""How often it is told [s]."""


class ProgressLog:
    """Writes how a stream stands, now and then.

    Parameters
    ----------
    folder
        The archive's.
    now_ns
        Gives the present [ns since 1970 UTC].
    """

    def __init__(self, folder: Path, now_ns: Callable[[], int]) -> None:
        self._folder, self._now_ns = folder, now_ns
        self._written_ns: int | None = None
        self._last: Mapping[str, Any] = {}

    def update(self, status: StreamStatus) -> None:
        """Note how the stream stands, if that was not done a moment ago."""
        now_ns = self._now_ns()
        self._last = _record(status)
        # A clock that was set back must not keep it silent.
        if self._written_ns is None or not 0 <= now_ns - self._written_ns < EVERY_S * SECOND_NS:
            self._write(now_ns, {})

    def end(self) -> None:
        """Note that the stream ended."""
        if self._written_ns is not None:
            self._write(self._now_ns(), {"ended": True})

    def _write(self, now_ns: int, more: Mapping[str, Any]) -> None:
        self._written_ns = now_ns
        # A full disk is told by whoever commits; what is lost here is one point of a line.
        with suppress(OSError):
            stream_log.append_record(self._folder, {"at_ns": now_ns, **self._last, **more})


def _record(status: StreamStatus) -> dict[str, Any]:
    ledger = status.ledger
    return {
        "readings_per_s": status.readings_per_s,
        "behind": status.behind,
        "batches": status.batches,
        "came": ledger.came,
        "held": ledger.held,
        "late": ledger.late,
        "slices": ledger.slices,
        "last_slice_ns": status.last_slice_ns,
        "joins": {group: asdict(join_status) for group, join_status in status.joins.items()},
    }
