"""Status of a stream for its log, its metrics and the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypergrid.core.times import format_instant
from ingest.streaming.join_status import JoinStatus
from ingest.streaming.stream_commit import Ledger


@dataclass(frozen=True)
class StreamStatus:
    """Current status of a stream."""

    ledger: Ledger
    readings_per_s: float
    """Readings emitted, over the last batches [1/s]."""
    last_slice_ns: int | None
    """End of the last closed slice [ns since 1970 UTC]; None if none was closed."""
    behind: int
    """Records of the spool that are not in a batch yet."""
    batches: int
    joins: Mapping[str, JoinStatus] = field(default_factory=dict)
    """Last known status of each group's join."""

    def describe(self) -> str:
        closed = "none" if self.last_slice_ns is None else format_instant(self.last_slice_ns)
        return (
            f"{self.readings_per_s:,.0f} readings/s, {self.ledger.held:,} held, {self.ledger.late:,} rows late, "
            f"last slice closed {closed}, {self.behind:,} records behind"
        )
