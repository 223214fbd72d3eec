"""How a stream stands: what its log, its metrics and the command line show."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypergrid.core.times import format_instant
from ingest.streaming.join_status import JoinStatus
from ingest.streaming.stream_commit import Ledger


@dataclass(frozen=True)
class StreamStatus:
    """How a stream stands."""

    ledger: Ledger
    readings_per_s: float
    """Readings let go, over the last batches [1/s]."""
    last_slice_ns: int | None
    """End of the last slice that was closed [ns since 1970 UTC]; None: none was."""
    behind: int
    """Records of the spool that no batch has had yet."""
    batches: int
    joins: Mapping[str, JoinStatus] = field(default_factory=dict)
    """How the join of each group of stations stood when it was looked at last."""

    def describe(self) -> str:
        """Return it as a line."""
        closed = "none" if self.last_slice_ns is None else format_instant(self.last_slice_ns)
        return (
            f"{self.readings_per_s:,.0f} readings/s, {self.ledger.held:,} held, {self.ledger.late:,} rows late, "
            f"last slice closed {closed}, {self.behind:,} records behind"
        )
