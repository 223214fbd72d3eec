"""Back-tests as records: what was asked, how far it is, what limits it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hypergrid.continuous.expressions import Attributes
from hypergrid.continuous.records import Order
from hypergrid.core.times import DAY_NS, Window
from queries.jobs.records import ENDED, State

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class BacktestLimits:
    """Limits of back-tests."""

    stretch_ns: int = 3 * 366 * DAY_NS
    """Longest stretch [ns]."""
    elements: int = 50_000_000
    """Elements of all streams that are read."""
    rows: int = 200_000
    """Rows of a result."""
    seconds: float = 120.0
    """Computing time, unless the caller has a limit of its own [s]."""
    open: int = 16
    """Back-tests that wait or run."""
    remembered: int = 64
    """Ended back-tests that are remembered."""
    kept_bytes: int = 256 << 20
    """Size of the results that are kept [bytes]."""


@dataclass(frozen=True)
class BacktestQuestion:
    """What a back-test is of."""

    text: str
    """The query in CQL."""
    start_ns: int | None = None
    end_ns: int | None = None
    """The stretch, its end excluded [ns]; None: from the first reading to the last."""
    order: Order = "time"


@dataclass(frozen=True)
class Backtest:
    """State of a back-test."""

    id: str
    question: BacktestQuestion
    window: Window
    """The stretch."""
    snapshot: str
    """Version of the archive that it reads."""
    is_stream: bool
    attributes: Attributes
    keys: tuple[int, ...]
    """Positions of the attributes that tell its episodes apart."""
    owner: str
    created_ns: int
    state: State = "queued"
    started_ns: int | None = None
    ended_ns: int | None = None
    fraction: float = 0.0
    """Share of the stretch that is read, 0 to 1."""
    rows: int = 0
    """Rows so far."""
    error: Exception | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True, eq=False)
class BacktestRows:
    """Result of a back-test."""

    backtest: Backtest
    frame: "pandas.DataFrame"
    """Columns `tau` (UTC), `sign` (+1: the row enters, -1: it leaves), then the select list."""


REMEDY: Final = (
    "choose a shorter stretch or a query with fewer rows; `hypergrid cql backtest` beside the archive has no limit"
)
