"""Configuration of a join, and parameters of its streams that are known beforehand."""

import datetime
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.wo_join import state_layout
from hypergrid.wo_join.state_layout import (
    ALLOWED,
    ASSEMBLING,
    CEILING,
    DROPS_WHOLE,
    FORM,
    IDLE,
    INNER,
    JUMP,
    KNOWN_DISORDER,
    KNOWN_DISPLACED,
    KNOWN_REPEATED,
    POLICY,
    PROGRESS,
    PUBLISHED,
    WINDOW,
    WINDOW_COUNT,
    WINDOW_TIME,
    Ints,
    KnownArrays,
)

Policy = Literal["window", "published", "progress"]
Form = Literal["inner", "assembling"]
Strategy = Literal["msf", "dbf", "hybrid"]

POLICIES = ("window", "published", "progress")
FORMS = ("inner", "assembling")
STRATEGIES = ("msf", "dbf", "hybrid")
SPILLING = ("dbf", "hybrid")
"""Strategies that spill to disk."""
SLOT_BYTES = 32
"""Bytes of a held tuple: row, payload, and four links of 4 bytes; 8 more if its arrival is kept."""
ENTRY_BYTES = 32
"""Bytes of a key with held tuples: the key, four links, two buckets; 4 more for each stream."""
ROW_BYTES = 24
"""Bytes of a tuple that waits in memory before it is joined: key, row, payload."""
RARE = 1000
"""Default quantile of monitored disorder: 1 - 1/1000."""


@dataclass(frozen=True)
class KnownParameters:
    """Parameters known beforehand; those that are None are monitored.

    The model counts r_i k_j / r_j arrivals of stream i while k_j of stream j arrive (equation 3.6). If arrivals come in
    bursts beyond that, the excess belongs to the lag.
    """

    scrambling_factor: tuple[int, ...] | None = None
    """Of each stream [tuples], for policy "published"."""
    rate_hz: tuple[float, ...] | None = None
    """Of each stream [Hz], for policy "published"."""
    lag: tuple[tuple[float, ...], ...] | None = None
    """Greatest lag from each stream (row) to each other (column) [tuples], for policy "published"."""
    disorder: tuple[int, ...] | None = None
    """Greatest distance of each stream's keys below the greatest before them [key units], for policy "progress"."""
    multiplicity: tuple[int, ...] | None = None
    """Most tuples with one key in each stream, for policy "progress": a key that all streams have brought that often is
    dropped at once. If the disorder is known and this is not, no key is dropped early, so no result can be lost."""


@dataclass(frozen=True)
class JoinConfig:
    """Validated configuration of a join; `WoJoin` explains each field."""

    streams: int
    policy: Policy = "progress"
    form: Form = "inner"
    allowed_bytes: int | None = None
    known: KnownParameters | None = None
    window: int | datetime.timedelta | None = None
    idle_s: float | None = None
    jump: int | None = None
    rare: int = RARE
    strategy: Strategy | None = None
    spill_folder: str | None = None
    in_order: bool = True

    def __post_init__(self) -> None:
        self._check_kinds()
        _require(2 <= self.streams <= 1024, f"2 to 1024 streams; got {self.streams}")
        _require(self.policy in POLICIES, f"a policy among {', '.join(POLICIES)}; got {self.policy!r}")
        _require(self.form in FORMS, f"a form among {', '.join(FORMS)}; got {self.form!r}")
        _require(
            (self.window is not None) == (self.policy == "window"),
            f"window= with policy 'window', and only there; got policy {self.policy!r}, window {self.window!r}",
        )
        _require(
            self.window is None or self.window_number >= 1,
            f"a window of at least one tuple or nanosecond; got {self.window!r}",
        )
        _require(self.idle_s is None or 0 < self.idle_s < 1e9, f"idle_s above 0 and below 1e9; got {self.idle_s!r}")
        _require(self.jump is None or self.jump >= 1, f"a jump of at least one key unit; got {self.jump!r}")
        _require(self.rare >= 1, f"rare= of at least 1; got {self.rare!r}")
        _require(
            self.in_order or (self.form, self.policy, self.strategy) == ("assembling", "progress", None),
            "in_order=False with form 'assembling', policy 'progress' and no strategy; got "
            f"{self.form!r}, {self.policy!r}, {self.strategy!r}",
        )
        self._check_strategy()
        self._check_known()

    def _check_kinds(self) -> None:
        for name in ("streams", "allowed_bytes", "jump", "rare"):
            number = getattr(self, name)
            is_whole = number is None or isinstance(number, int | np.integer)
            _require(is_whole, f"{name}= as a whole number; got {number!r}")
        _require(
            self.window is None or isinstance(self.window, int | np.integer | datetime.timedelta),
            f"window= as a whole number of tuples, or a datetime.timedelta; got {self.window!r}",
        )
        _require(
            self.known is None or isinstance(self.known, KnownParameters), f"known= as Known(…); got {self.known!r}"
        )

    def _check_strategy(self) -> None:
        _require(
            self.strategy in (*STRATEGIES, None),
            f"a strategy among {', '.join(STRATEGIES)}, or None; got {self.strategy!r}",
        )
        _require(
            self.strategy is None or self.policy != "window",
            f"policy 'progress' or 'published' with a strategy; got {self.strategy!r} with policy 'window', which "
            "says itself what is held: choose a smaller window",
        )
        _require(
            self.spill_folder is None or self.strategy in SPILLING,
            f"spill_folder= with strategy {' or '.join(SPILLING)} only; got strategy {self.strategy!r}",
        )

    def _check_known(self) -> None:
        known, n = self.known or KnownParameters(), self.streams
        for name, column in vars(known).items():
            if column is not None:
                _require(len(column) == n, f"known.{name} of {n} streams; got {len(column)}")
        _require(all(len(row) == n for row in known.lag or ()), f"known.lag of {n} rows and columns")
        numbers = [*(known.scrambling_factor or ()), *(known.disorder or ())]
        _require(
            all(number >= 0 for number in numbers) and all(rate > 0 for rate in known.rate_hz or ()),
            "known scrambling factors and disorder of 0 or more, and rates above 0",
        )
        _require(min(known.multiplicity or (1,)) >= 1, f"known multiplicities of 1 or more; got {known.multiplicity}")

    @property
    def window_number(self) -> int:
        """Window in tuples, or in nanoseconds if it is a time; 0 without a window."""
        if isinstance(self.window, datetime.timedelta):
            return round(self.window.total_seconds() * 1e9)
        return self.window or 0

    @property
    def policy_number(self) -> int:
        """Code of the policy in the compiled loops."""
        if self.policy == "window":
            return WINDOW_TIME if isinstance(self.window, datetime.timedelta) else WINDOW_COUNT
        return PUBLISHED if self.policy == "published" else PROGRESS

    @property
    def slot_bytes(self) -> int:
        return SLOT_BYTES + (8 if self.policy_number == WINDOW_TIME else 0)

    @property
    def entry_bytes(self) -> int:
        return ENTRY_BYTES + 4 * self.streams

    @property
    def one_each_bytes(self) -> int:
        """Bytes of one tuple of each stream, all with one key."""
        return self.streams * self.slot_bytes + self.entry_bytes

    @property
    def sorting_bytes(self) -> int:
        """Bytes of the "msf" sort buffers by known scrambling factors; 0 if these are not known."""
        factors = self.known.scrambling_factor if self.known and self.strategy == "msf" else None
        return 0 if factors is None or self.policy != "published" else sum(factors) * ROW_BYTES

    def write_settings(self, join_state: Ints, stream_state: Ints) -> None:
        """Write the settings and known parameters into a join's state arrays."""
        known = self.known or KnownParameters()
        join_state[POLICY], join_state[FORM] = self.policy_number, INNER if self.form == "inner" else ASSEMBLING
        join_state[WINDOW], join_state[JUMP] = self.window_number, self.jump or 0
        join_state[IDLE] = CEILING if self.idle_s is None else round(self.idle_s * 1e9)
        join_state[ALLOWED] = CEILING if self.allowed_bytes is None else self.allowed_bytes
        join_state[state_layout.RARE], join_state[state_layout.SLOT_BYTES] = self.rare, self.slot_bytes
        join_state[state_layout.ENTRY_BYTES] = self.entry_bytes
        stream_state[:, KNOWN_DISPLACED] = -1 if known.scrambling_factor is None else known.scrambling_factor
        stream_state[:, KNOWN_DISORDER] = -1 if known.disorder is None else known.disorder
        stream_state[:, KNOWN_REPEATED] = -1 if known.multiplicity is None else known.multiplicity
        # Known disorder makes results complete, which an underestimated multiplicity would break.
        believed = known.disorder is None or known.multiplicity is not None
        join_state[DROPS_WHOLE] = self.policy == "progress" and (self.form == "inner" or not self.in_order) and believed

    def known_arrays(self) -> KnownArrays:
        """Return the known rates and lags, NaN if monitored."""
        known, n = self.known or KnownParameters(), self.streams
        return KnownArrays(
            rate=np.array(known.rate_hz or [np.nan] * n, np.float64),
            lag=np.array(known.lag or np.full((n, n), np.nan), np.float64),
        )


def _require(condition: object, needed: str) -> None:
    if not condition:
        raise InvalidQuery(f"a join of streams needs {needed}")
