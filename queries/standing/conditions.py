"""Alert conditions on the rows of a surface, as pure functions of arrays.

A condition measures (values, their rate of change, how long they have been missing) and judges with hysteresis: an
alert is raised beyond one level and cleared only beyond another, so that values that fluctuate around the level raise
one alert. Missing values leave the state unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.times import SECOND_NS, format_duration, parse_duration
from hypergrid.core.units import difference_of, parse_number

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]

Level = float | str
"""A number in the surface's unit, or text with its own unit ("30 degC")."""


@dataclass(frozen=True, eq=False)
class SurfaceRows:
    """Consecutive time cells of a surface, in time order."""

    starts_ns: NDArray[np.int64]
    """Start of each [ns since 1970 UTC], shape (times,)."""
    ends_ns: NDArray[np.int64]
    """End of each [ns since 1970 UTC], shape (times,)."""
    value: Floats
    """[the surface's unit], NaN if missing, shape (times, places)."""


@dataclass(frozen=True)
class Threshold:
    """Raised above (or below) a level; cleared when no longer above (below) `clear`."""

    kind: ClassVar[str] = "threshold"
    above: Level | None = None
    below: Level | None = None
    clear: Level | None = None
    """Defaults to the level itself."""

    memory_ns: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check_one_level(self.kind, self.above, self.below)

    @property
    def rises(self) -> bool:
        """Whether high values raise, rather than low ones."""
        return self.above is not None

    def convert_levels(self, unit: str) -> "Threshold":
        """Convert the levels to numbers [unit].

        Raises
        ------
        InvalidUnit, InvalidQuery
            A level does not convert, or lies on the wrong side of the other.
        """
        above, below, clear = _convert_levels(self.kind, self.above, self.below, self.clear, unit)
        return replace(self, above=above, below=below, clear=clear)

    def measure(self, rows: SurfaceRows) -> Floats:
        """Return the judged quantity, shape (times, places): the values."""
        return rows.value

    def judge(self, measure: Floats, _rows: SurfaceRows, raised: Marks) -> Marks:
        """Return the alert state after each time cell, shape (times, places); `raised`: state before, (places,)."""
        return apply_hysteresis(measure, raised, above=self.above, below=self.below, clear=self.clear)

    def to_json(self) -> dict[str, Any]:
        """Convert to the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, unit: str) -> str:
        """Describe the rule in words."""
        return _level_words("value", self.above, self.below, self.clear, unit)


@dataclass(frozen=True)
class Rate:
    """Raised when values change faster than a level, per `per`, over a time `over`."""

    kind: ClassVar[str] = "rate"
    above: Level | None = None
    below: Level | None = None
    clear: Level | None = None
    per_ns: int = 3600 * SECOND_NS
    """[ns]"""
    over_ns: int | None = None
    """Time between the two compared values [ns]; None: consecutive time cells."""

    def __post_init__(self) -> None:
        _check_one_level(self.kind, self.above, self.below)

    @property
    def memory_ns(self) -> int:
        """How far back a judgement looks [ns]; at least to the previous time cell."""
        return self.over_ns or 1

    @property
    def rises(self) -> bool:
        return self.above is not None

    def convert_levels(self, unit: str) -> "Rate":
        """Convert the levels to numbers [unit per `per`]; temperature changes are differences."""
        # A rate of 1 degC per hour is 1 K per hour: no offset applies.
        above, below, clear = _convert_levels(self.kind, self.above, self.below, self.clear, difference_of(unit))
        return replace(self, above=above, below=below, clear=clear)

    def measure(self, rows: SurfaceRows) -> Floats:
        """Compute the rates, NaN if either value is missing or unknown; shape (times, places)."""
        numbers = np.arange(len(rows.starts_ns))
        before = numbers - 1 if self.over_ns is None else np.searchsorted(rows.starts_ns, rows.starts_ns - self.over_ns)
        before = np.maximum(before, 0)
        over_ns = rows.starts_ns - rows.starts_ns[before]
        # searchsorted may find a later cell; only exact distances are compared.
        known = (over_ns > 0) & (over_ns == (self.over_ns or over_ns))
        change = rows.value - rows.value[before]
        return np.where(known[:, np.newaxis], change * (self.per_ns / np.maximum(over_ns, 1))[:, np.newaxis], np.nan)

    def judge(self, measure: Floats, _rows: SurfaceRows, raised: Marks) -> Marks:
        """Return the alert state as `Threshold.judge`, from rates."""
        return apply_hysteresis(measure, raised, above=self.above, below=self.below, clear=self.clear)

    def to_json(self) -> dict[str, Any]:
        """Convert to the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, unit: str) -> str:
        """Describe the rule in words."""
        per = f"{unit} per {format_duration(self.per_ns)}"
        return _level_words("rate of change", self.above, self.below, self.clear, per)


@dataclass(frozen=True)
class Missing:
    """Raised when values have been missing for longer than `after`; cleared by the next value."""

    kind: ClassVar[str] = "missing"
    after_ns: int
    """[ns]"""

    rises: ClassVar[bool] = True

    @property
    def memory_ns(self) -> int:
        """How far back a judgement looks [ns]."""
        return self.after_ns

    def convert_levels(self, _unit: str) -> "Missing":
        """Return the condition unchanged: it has no levels."""
        return self

    def measure(self, rows: SurfaceRows) -> Floats:
        """Compute the time without a value at each cell's end [s], shape (times, places).

        At a place that never had a value it counts from the first row.
        """
        present = np.isfinite(rows.value)
        # A place without any value counts from the first row.
        ends = np.where(present, rows.ends_ns[:, np.newaxis], rows.starts_ns[:1] if len(present) else 0)
        last = np.maximum.accumulate(ends, axis=0)
        return np.asarray((rows.ends_ns[:, np.newaxis] - last) / SECOND_NS)

    def judge(self, measure: Floats, _rows: SurfaceRows, _raised: Marks) -> Marks:
        """Return the alert state after each time cell, shape (times, places)."""
        return measure > self.after_ns / SECOND_NS

    def to_json(self) -> dict[str, Any]:
        """Convert to the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, _unit: str) -> str:
        """Describe the rule in words."""
        return f"no value for more than {format_duration(self.after_ns)}"


@dataclass(frozen=True)
class Dead:
    """Raised when a station is silent for longer than its learned reporting interval allows.

    Silence is measured by the arrivals of readings of the query's variable, whatever their flags: a failing sensor is
    not a dead station. `liveness.py` describes how the interval is learned.
    """

    kind: ClassVar[str] = "dead"
    memory_ns: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """Convert to the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, _unit: str) -> str:
        """Describe the rule in words."""
        return "a station is not heard for one and a half times its learned interval"


@dataclass(frozen=True)
class Silent:
    """Raised when no station delivers the variable: the network or server is silent.

    Time is measured by the clock of the process since the last committed readings of the variable, as a silent network
    commits no slices.
    """

    kind: ClassVar[str] = "silent"
    memory_ns: ClassVar[int] = 0
    after_ns: int
    """[ns]"""

    def to_json(self) -> dict[str, Any]:
        """Convert to the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, _unit: str) -> str:
        """Describe the rule in words."""
        return f"nothing came from any station for more than {format_duration(self.after_ns)}"


OnRows = Threshold | Rate | Missing
"""Conditions on the rows of a surface."""

Listening = Dead | Silent
"""Conditions on arrivals: they compute no surface, so their queries have no steps."""

Condition = OnRows | Listening

KINDS: Final[Mapping[str, type[Condition]]] = {kind.kind: kind for kind in (Threshold, Rate, Missing, Dead, Silent)}


def condition_from_json(document: object, *, label: str = "a condition") -> Condition:
    """Parse a condition document.

    ::

        {"kind": "threshold", "above": 30, "clear": 28}     {"kind": "rate", "below": -3, "per": "1h", "over": "20min"}
        {"kind": "missing", "after": "30min"}               {"kind": "dead"}
        {"kind": "silent", "after": "30min"}

    Raises
    ------
    InvalidQuery, NotFound, InvalidTime
        A key is missing, unknown or invalid.
    """
    if not isinstance(document, Mapping) or "kind" not in document:
        raise InvalidQuery(
            f"the condition of {label} is a JSON object with a 'kind': {', '.join(KINDS)}; got {document!r}"
        )
    if document["kind"] not in tuple(KINDS):
        raise NotFound.among(kind=f"kind of condition of {label}", given=document["kind"], existing=KINDS)
    kind = KINDS[document["kind"]]
    known = {item.name.removesuffix("_ns"): item.name for item in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key == "kind":
            continue
        if key not in known:
            raise NotFound.among(kind=f"key of the {kind.kind} condition of {label}", given=key, existing=known)
        values[known[key]] = parse_duration(value) if known[key].endswith("_ns") else value
    if kind in (Missing, Silent) and "after_ns" not in values:
        raise InvalidQuery(
            f"the condition {kind.kind!r} of {label} needs 'after', such as '30min'; got {dict(document)!r}"
        )
    try:
        return kind(**values)
    except InvalidQuery as error:
        raise InvalidQuery(f"{label}: {error}") from error


def apply_hysteresis(
    measure: Floats, raised: Marks, *, above: Level | None, below: Level | None, clear: Level | None
) -> Marks:
    """Compute the alert state after each row: raised beyond one level, cleared at another.

    Parameters
    ----------
    measure
        Shape (times, places), NaN if unknown.
    raised
        Alert state before the first row, shape (places,).
    above, below, clear
        Levels as numbers (`convert_levels`): exactly one of the first two, and the clearing level.
    """
    level = float(above if above is not None else below)  # type: ignore[arg-type]
    back = level if clear is None else float(clear)
    # Comparisons with NaN are False on both sides, so missing values keep the state.
    with np.errstate(invalid="ignore"):
        goes_up = measure > level if above is not None else measure < level
        goes_down = measure <= back if above is not None else measure >= back
    decided = goes_up | goes_down
    # Forward-fill: each row takes the state of the latest row that crossed a level.
    rows = np.where(decided, np.arange(len(measure))[:, np.newaxis], -1)
    last = np.maximum.accumulate(rows, axis=0)
    held = np.take_along_axis(goes_up, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, held, raised)


def _check_one_level(kind: str, above: Level | None, below: Level | None) -> None:
    if (above is None) == (below is None):
        choice = "neither" if above is None else "both"
        raise InvalidQuery(f"the condition {kind!r} needs 'above' or 'below'; got {choice}")


def _convert_levels(
    kind: str, above: Level | None, below: Level | None, clear: Level | None, unit: str
) -> tuple[float | None, float | None, float | None]:
    def number(name: str, value: Level | None) -> float | None:
        return None if value is None else parse_number(value, unit, label=f"{name!r} of the condition {kind!r}")

    high, low, back = number("above", above), number("below", below), number("clear", clear)
    level = high if high is not None else low
    if back is not None and level is not None and (back > level if high is not None else back < level):
        side = "at or below 'above'" if high is not None else "at or above 'below'"
        raise InvalidQuery(f"the condition {kind!r} needs 'clear' {side}, {level:g}; got {back:g}")
    return high, low, level if back is None else back


def _level_words(what: str, above: Level | None, below: Level | None, clear: Level | None, unit: str) -> str:
    def format_level(level: Level) -> str:
        return level if isinstance(level, str) else f"{level:g} {unit}".strip()

    side, level = ("above", above) if above is not None else ("below", below)
    cleared = "" if clear in (None, level) else f", cleared at {format_level(clear)}"
    return f"{what} {side} {format_level(level)}{cleared}"  # type: ignore[arg-type]


def _document(condition: Condition) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": condition.kind}
    for item in fields(condition):
        value = getattr(condition, item.name)
        if value is not None:
            is_duration = item.name.endswith("_ns")
            document[item.name.removesuffix("_ns")] = format_duration(value) if is_duration else value
    return document
