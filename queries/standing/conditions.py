"""What raises an alert: conditions on the rows of a surface, as pure functions of arrays.

A condition measures (the values themselves, their rate of change, how long they have been missing) and judges: when a
measure goes over one level an alert is raised, and it is cleared only beyond another one (hysteresis), so that a value
that trembles about the level alerts once. A missing value changes nothing.
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
"""A number in the surface's unit, or text with a unit of its own ("30 degC")."""


@dataclass(frozen=True, eq=False)
class SurfaceRows:
    """Time cells of a surface, in the order of time, none left out."""

    starts_ns: NDArray[np.int64]
    """Where each begins [ns since 1970 UTC], shape (times,)."""
    ends_ns: NDArray[np.int64]
    """Where each ends, shape (times,)."""
    value: Floats
    """[the surface's unit], NaN where missing, shape (times, places)."""


@dataclass(frozen=True)
class Threshold:
    """Raised where a value is above (or below) a level; cleared where it is not above (below) `clear`."""

    kind: ClassVar[str] = "threshold"
    above: Level | None = None
    below: Level | None = None
    clear: Level | None = None
    """The level itself where absent."""

    memory_ns: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check_one_level(self.kind, self.above, self.below)

    @property
    def rises(self) -> bool:
        """Whether high values raise, rather than low ones."""
        return self.above is not None

    def convert_levels(self, unit: str) -> "Threshold":
        """Return it with its levels as numbers [unit].

        Raises
        ------
        InvalidUnit, InvalidQuery
            A level does not convert, or lies on the wrong side of the other.
        """
        above, below, clear = _convert_levels(self.kind, self.above, self.below, self.clear, unit)
        return replace(self, above=above, below=below, clear=clear)

    def measure(self, rows: SurfaceRows) -> Floats:
        """Return what is judged, shape (times, places): the values."""
        return rows.value

    def judge(self, measure: Floats, _rows: SurfaceRows, raised: Marks) -> Marks:
        """Return where an alert stands after each time cell, shape (times, places); `raised`: before, (places,)."""
        return apply_hysteresis(measure, raised, above=self.above, below=self.below, clear=self.clear)

    def to_json(self) -> dict[str, Any]:
        """Return the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, unit: str) -> str:
        """Return the rule in words."""
        return _level_words("value", self.above, self.below, self.clear, unit)


@dataclass(frozen=True)
class Rate:
    """Raised where values change faster than a level, in their unit per `per`, over a time `over`."""

    kind: ClassVar[str] = "rate"
    above: Level | None = None
    below: Level | None = None
    clear: Level | None = None
    per_ns: int = 3600 * SECOND_NS
    """[ns]"""
    over_ns: int | None = None
    """Between the two values that are compared [ns]; the next time cell where absent."""

    def __post_init__(self) -> None:
        _check_one_level(self.kind, self.above, self.below)

    @property
    def memory_ns(self) -> int:
        """How far back a judgement looks [ns]; at the time cell before at least."""
        return self.over_ns or 1

    @property
    def rises(self) -> bool:
        """Whether high rates raise, rather than low ones."""
        return self.above is not None

    def convert_levels(self, unit: str) -> "Rate":
        """Return it with its levels as numbers [unit per `per`]; a change of temperature is a difference."""
        above, below, clear = _convert_levels(self.kind, self.above, self.below, self.clear, difference_of(unit))
        return replace(self, above=above, below=below, clear=clear)

    def measure(self, rows: SurfaceRows) -> Floats:
        """Return the rates, NaN where one of the two values is missing or was not known; shape (times, places)."""
        numbers = np.arange(len(rows.starts_ns))
        before = numbers - 1 if self.over_ns is None else np.searchsorted(rows.starts_ns, rows.starts_ns - self.over_ns)
        before = np.maximum(before, 0)
        over_ns = rows.starts_ns - rows.starts_ns[before]
        known = (over_ns > 0) & (over_ns == (self.over_ns or over_ns))
        change = rows.value - rows.value[before]
        return np.where(known[:, np.newaxis], change * (self.per_ns / np.maximum(over_ns, 1))[:, np.newaxis], np.nan)

    def judge(self, measure: Floats, _rows: SurfaceRows, raised: Marks) -> Marks:
        """As `Threshold.judge`, of rates."""
        return apply_hysteresis(measure, raised, above=self.above, below=self.below, clear=self.clear)

    def to_json(self) -> dict[str, Any]:
        """Return the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, unit: str) -> str:
        """Return the rule in words."""
        per = f"{unit} per {format_duration(self.per_ns)}"
        return _level_words("rate of change", self.above, self.below, self.clear, per)


@dataclass(frozen=True)
class Missing:
    """Raised where no value has come for longer than `after`; cleared by the next value."""

    kind: ClassVar[str] = "missing"
    after_ns: int
    """[ns]"""

    rises: ClassVar[bool] = True

    @property
    def memory_ns(self) -> int:
        """How far back a judgement looks [ns]."""
        return self.after_ns

    def convert_levels(self, _unit: str) -> "Missing":
        """Return it; it has no levels."""
        return self

    def measure(self, rows: SurfaceRows) -> Floats:
        """Return for how long there has been no value at the end of each time cell [s], shape (times, places).

        A place that never had one counts from the first of the rows.
        """
        present = np.isfinite(rows.value)
        ends = np.where(present, rows.ends_ns[:, np.newaxis], rows.starts_ns[:1] if len(present) else 0)
        last = np.maximum.accumulate(ends, axis=0)
        return np.asarray((rows.ends_ns[:, np.newaxis] - last) / SECOND_NS)

    def judge(self, measure: Floats, _rows: SurfaceRows, _raised: Marks) -> Marks:
        """Return where an alert stands after each time cell, shape (times, places)."""
        return measure > self.after_ns / SECOND_NS

    def to_json(self) -> dict[str, Any]:
        """Return the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, _unit: str) -> str:
        """Return the rule in words."""
        return f"no value for more than {format_duration(self.after_ns)}"


@dataclass(frozen=True)
class Dead:
    """Raised for a station that has not been heard for longer than its own readings taught.

    What it was heard at are the arrivals of the readings of the query's variable, whatever their flags: a sensor that
    fails is no dead station. `silence.py` says how the interval is learnt.
    """

    kind: ClassVar[str] = "dead"
    memory_ns: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """Return the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, _unit: str) -> str:
        """Return the rule in words."""
        return "a station is not heard for one and a half times its learned interval"


@dataclass(frozen=True)
class Silent:
    """Raised where nothing of the variable comes from any station: the network, its line or its server is silent.

    It is counted on the clock of the process, since readings that were committed: no slice comes that could tell.
    """

    kind: ClassVar[str] = "silent"
    memory_ns: ClassVar[int] = 0
    after_ns: int
    """[ns]"""

    def to_json(self) -> dict[str, Any]:
        """Return the document that `condition_from_json` reads."""
        return _document(self)

    def words(self, _unit: str) -> str:
        """Return the rule in words."""
        return f"nothing came from any station for more than {format_duration(self.after_ns)}"


OnRows = Threshold | Rate | Missing
"""Conditions on the rows of a surface."""

Listening = Dead | Silent
"""Conditions on what arrives: they compute no surface, so that their queries have no steps."""

Condition = OnRows | Listening

KINDS: Final[Mapping[str, type[Condition]]] = {kind.kind: kind for kind in (Threshold, Rate, Missing, Dead, Silent)}


def condition_from_json(document: object, *, label: str = "a condition") -> Condition:
    """Return the condition that a document says.

    ::

        {"kind": "threshold", "above": 30, "clear": 28}     {"kind": "rate", "below": -3, "per": "1h", "over": "20min"}
        {"kind": "missing", "after": "30min"}               {"kind": "dead"}
        {"kind": "silent", "after": "30min"}

    Raises
    ------
    InvalidQuery, NotFound, InvalidTime
        A key that is missing, unknown or does not fit.
    """
    if not isinstance(document, Mapping) or "kind" not in document:
        message = f"the condition of {label} is a JSON object with a 'kind': {', '.join(KINDS)}; got {document!r}"
        raise InvalidQuery(message)
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
        message = f"the condition {kind.kind!r} of {label} needs 'after', such as '30min'; got {dict(document)!r}"
        raise InvalidQuery(message)
    try:
        return kind(**values)
    except InvalidQuery as error:
        message = f"{label}: {error}"
        raise InvalidQuery(message) from error


def apply_hysteresis(
    measure: Floats, raised: Marks, *, above: Level | None, below: Level | None, clear: Level | None
) -> Marks:
    """Return where an alert stands after each row: raised beyond one level, until cleared at the other.

    Parameters
    ----------
    measure
        Shape (times, places), NaN where nothing is known.
    raised
        Where an alert stood before, shape (places,).
    above, below, clear
        Levels as numbers, of `settled` conditions: one of the first two, and where an alert is cleared.
    """
    level = float(above if above is not None else below)  # type: ignore[arg-type]
    back = level if clear is None else float(clear)
    with np.errstate(invalid="ignore"):
        goes_up = measure > level if above is not None else measure < level
        goes_down = measure <= back if above is not None else measure >= back
    decided = goes_up | goes_down
    rows = np.where(decided, np.arange(len(measure))[:, np.newaxis], -1)
    last = np.maximum.accumulate(rows, axis=0)
    held = np.take_along_axis(goes_up, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, held, raised)


def _check_one_level(kind: str, above: Level | None, below: Level | None) -> None:
    if (above is None) == (below is None):
        choice = "neither" if above is None else "both"
        message = f"the condition {kind!r} needs 'above' or 'below'; got {choice}"
        raise InvalidQuery(message)


def _convert_levels(
    kind: str, above: Level | None, below: Level | None, clear: Level | None, unit: str
) -> tuple[float | None, float | None, float | None]:
    def number(name: str, value: Level | None) -> float | None:
        return None if value is None else parse_number(value, unit, label=f"{name!r} of the condition {kind!r}")

    high, low, back = number("above", above), number("below", below), number("clear", clear)
    level = high if high is not None else low
    if back is not None and level is not None and (back > level if high is not None else back < level):
        side = "at or below 'above'" if high is not None else "at or above 'below'"
        message = f"the condition {kind!r} needs 'clear' {side}, {level:g}; got {back:g}"
        raise InvalidQuery(message)
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
