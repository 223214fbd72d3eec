"""What the values of a column reveal: numbers that stand for missing values, and units that contradict them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidUnit
from hypergrid.core.units import Variable, convert
from ingest.formats.base import MISSING_WORDS

SAMPLE_MOST: Final = 200_000
"""Maximum number of values of a column that are looked at, apart from those beyond the others."""
FREQUENT: Final = 3
"""Number of times that an unusual number or word occurs before it may stand for a missing value."""
_OTHERS_LEAST: Final = 3
"""Number of distinct other values that a code for missing ones is compared with."""
_CODE: Final = re.compile(r"-?(9{2,}(\.9+)?|[67]999|8{4,}|3276[78]|65535|10{6,}|1e\+\d+)$")
"""Numbers that programs write for missing values."""
_NEAR_ZERO: Final = frozenset(
    "calm calme calma windstill windstille windstil stille trace traces t tr spur spuren spoor traza trazas "
    "traccia tracce inapreciable ip dry trocken".split()
)
"""Words in lower case for no wind, no rain, or too little to measure: a value, which is not missing."""


@dataclass(frozen=True)
class PlausibleRange:
    """Range of a variable's values [its unit], and the units that files give it in."""

    low: float
    high: float
    units: tuple[str, ...]
    min_high: float = -np.inf
    """The highest values are above this one [the variable's unit]."""


_TEMPERATURES: Final = ("degC", "K", "degF")
_SPEEDS: Final = ("m s-1", "km h-1", "mile hour-1", "knot")
_SHARES: Final = ("%", "dimensionless")
PLAUSIBLE: Final[Mapping[str, PlausibleRange]] = {
    "air_temperature": PlausibleRange(-70.0, 60.0, _TEMPERATURES),
    "dew_point_temperature": PlausibleRange(-80.0, 40.0, _TEMPERATURES),
    "water_temperature": PlausibleRange(-3.0, 50.0, _TEMPERATURES),
    "surface_temperature": PlausibleRange(-80.0, 90.0, _TEMPERATURES),
    "soil_temperature": PlausibleRange(-60.0, 80.0, _TEMPERATURES),
    "ground_surface_temperature": PlausibleRange(-60.0, 80.0, _TEMPERATURES),
    "air_pressure": PlausibleRange(45.0, 110.0, ("kPa", "hPa", "Pa", "inHg", "mmHg")),
    "relative_humidity": PlausibleRange(-1.0, 110.0, _SHARES, 1.5),
    "soil_moisture": PlausibleRange(-5.0, 110.0, _SHARES, 1.0),
    "wind_speed": PlausibleRange(-0.5, 75.0, _SPEEDS),
    "wind_gust": PlausibleRange(-0.5, 110.0, _SPEEDS),
    "wind_direction": PlausibleRange(-180.0, 361.0, ("degree",)),
    "solar_radiation": PlausibleRange(-60.0, 2000.0, ("W m-2",)),
    "snow_height": PlausibleRange(-0.5, 15.0, ("m", "cm", "mm")),
    "battery_voltage": PlausibleRange(0.5, 60.0, ("V", "mV")),
}
"""Ranges of common variables; where a unit does not put the values there, it is another one."""


@dataclass
class ValueSample:
    """Values of a column: the first ones, and later ones beyond these."""

    values: list[NDArray[np.float64]] = field(default_factory=list)
    count: int = 0
    low: float = np.inf
    high: float = -np.inf

    def add(self, values: NDArray[np.float64]) -> None:
        """Add finite values, shape (n,)."""
        chosen = values[: max(0, SAMPLE_MOST - self.count)]
        rest = values[len(chosen) :]
        beyond = rest[(rest < self.low) | (rest > self.high)][:FREQUENT]
        self.values += [part for part in (chosen, beyond) if len(part)]
        self.count += len(chosen)
        if len(chosen):
            self.low, self.high = min(self.low, float(chosen.min())), max(self.high, float(chosen.max()))

    def joined(self, other: "ValueSample | None") -> "ValueSample":
        """Return the values of both; `other` may be missing."""
        both = ValueSample()
        for sample in (self, other):
            both.add(sample.array() if sample is not None else np.empty(0))
        return both

    def array(self) -> NDArray[np.float64]:
        return np.concatenate(self.values) if self.values else np.empty(0)


def find_missing_codes(values: NDArray[np.float64], variable: Variable, unit: str | None) -> dict[float, int]:
    """Return the numbers that probably stand for missing values, with their counts.

    Such a number is not zero, lies outside of the range of all others, by more than the length of that range, and it
    is either of the kind that programs write (-999, 9999), or frequent and beyond what the variable can have.

    Parameters
    ----------
    values
        Finite values of a column [its unit], shape (n,).
    unit
        Unit of the column; None if unknown.
    """
    numbers, counts = np.unique(values, return_counts=True)
    is_code = np.array([bool(_CODE.match(number_text(number))) for number in numbers.tolist()], bool)
    codes: dict[float, int] = {}
    inside = np.ones(len(numbers), bool)
    while inside.sum() > 1:
        ends = np.flatnonzero(inside)[[0, -1]].tolist()
        chosen = next((end for end in ends if _is_missing_code(end, numbers, counts, inside, is_code)), None)
        if chosen is None:
            break
        number = float(numbers[chosen])
        within = _is_possible(number, variable, unit)
        enough = 1 if within is False or number <= -999 else 2 if abs(number) >= 999 else FREQUENT
        enough = enough if is_code[chosen] else FREQUENT
        inside[chosen] = False
        if counts[chosen] < enough or within or not (is_code[chosen] or within is False):
            continue
        codes[number] = int(counts[chosen])
    return codes


def _is_missing_code(
    end: int,
    numbers: NDArray[np.float64],
    counts: NDArray[np.intp],
    inside: NDArray[np.bool_],
    is_code: NDArray[np.bool_],
) -> bool:
    """Return whether the lowest or highest number is far from all others that are not codes themselves."""
    others = inside & ~is_code
    others[end] = False
    rest = numbers[others]
    if len(rest) < _OTHERS_LEAST or numbers[end] == 0:
        return False
    span = float(rest[-1] - rest[0])
    away = max(float(rest[0] - numbers[end]), float(numbers[end] - rest[-1]))
    # Of a number that no program writes, more is asked.
    return away > (max(span, 1.0) if is_code[end] else 3.0 * max(span, 1.0)) and (
        bool(is_code[end]) or counts[end] >= FREQUENT
    )


def _is_possible(number: float, variable: Variable, unit: str | None) -> bool | None:
    """Return whether a variable can have a value [unit]; None if that is not known."""
    limits = PLAUSIBLE.get(variable.name)
    if limits is None:
        return None
    possible = [candidate for candidate in ([unit] if unit else limits.units)]
    converted = [_converted(np.array([number]), candidate, variable.unit) for candidate in possible]
    known = [numbers[0] for numbers in converted if numbers is not None]
    return any(limits.low <= number <= limits.high for number in known) if known else None


def number_text(number: float) -> str:
    """Return the shortest text that is exactly the number, as files have it.

    Examples
    --------
    >>> number_text(-9999999.0), number_text(-99.9)
    ('-9999999', '-99.9')
    """
    return repr(number).removesuffix(".0")


def find_missing_words(words: Mapping[str, int]) -> dict[str, int]:
    """Return the texts of cells that probably stand for missing values: known words, and frequent ones without digits.

    Words such as "calm" and "trace" are none of them.

    `words` has the number of cells of each text that is not a number.
    """
    return {
        word: count
        for word, count in words.items()
        if word.lower() in MISSING_WORDS
        or (count >= FREQUENT and not re.search(r"\d", word) and word.lower().strip(" .*()[]'\"") not in _NEAR_ZERO)
    }


@dataclass(frozen=True)
class UnitCheck:
    """Result of comparing a column's unit with its values."""

    unit: str | None
    """The unit to use; None if it is unknown or several are possible."""
    why: str = ""
    """Reason for another unit than the given one."""
    candidates: tuple[str, ...] = ()
    """Several possible units, one of which has to be chosen."""
    is_other: bool = False
    """Whether the values cannot be those of the variable in any unit."""


def check_unit_by_values(variable: Variable, unit: str | None, values: NDArray[np.float64]) -> UnitCheck:
    """Compare the values of a column with the range of its variable, in its unit and in others.

    Parameters
    ----------
    unit
        Unit of the column; None: that of the variable is assumed.
    values
        Finite values without codes for missing ones, shape (n,).

    Examples
    --------
    >>> from ingest.formats.file_metadata import COMMON
    >>> check_unit_by_values(COMMON["air_temperature"], "degC", np.linspace(285.0, 300.0, 9)).unit
    'K'
    """
    limits = PLAUSIBLE.get(variable.name)
    # In a header, "1" means a fraction; as a unit it would mean an unknown one.
    given = "dimensionless" if unit == "1" and limits is not None and "dimensionless" in limits.units else unit
    if limits is None or len(values) < 2 * FREQUENT:
        return UnitCheck(given)
    low, high = (float(value) for value in np.quantile(values, (0.02, 0.98)))
    if low == high or _fits(low, high, given or variable.unit, variable, limits):
        return UnitCheck(given)
    fitting = tuple(candidate for candidate in limits.units if _fits(low, high, candidate, variable, limits))
    shown = f"values from {low:g} to {high:g} are not {given or variable.unit}"
    if not fitting:
        # A sensor may fail for weeks.
        inner_low, inner_high = (float(value) for value in np.quantile(values, (0.25, 0.75)))
        if _fits(inner_low, inner_high, given or variable.unit, variable, limits):
            return UnitCheck(given, f"some values are impossible, as {low:g} or {high:g}")
        other = f"values from {low:g} to {high:g} are no {variable.long_name.lower()} in {' or '.join(limits.units)}"
        return UnitCheck(None, other, is_other=True)
    origin = " as the header says" if given else ""
    if len(fitting) > 1:
        return UnitCheck(None, f"{shown}{origin}, but could be {' or '.join(fitting)}", fitting)
    return UnitCheck(fitting[0], f"{shown}{origin}, but {fitting[0]}")


def _fits(low: float, high: float, unit: str, variable: Variable, limits: PlausibleRange) -> bool:
    converted = _converted(np.array([low, high]), unit, variable.unit)
    return (
        converted is not None
        and bool((converted >= limits.low).all() and (converted <= limits.high).all())
        and bool(converted[1] > limits.min_high)
    )


def _converted(values: NDArray[np.float64], unit: str, target: str) -> NDArray[np.float64] | None:
    try:
        return convert(values, unit, target)
    except InvalidUnit:
        return None


def are_outside(code: float, samples: Iterable[NDArray[np.float64]], codes: Iterable[float]) -> bool:
    """Return whether a code lies outside of the values of all columns, without their codes."""
    known = np.array([*codes], np.float64)
    for sample in samples:
        rest = sample[~np.isin(sample, known)]
        if len(rest) and rest.min() <= code <= rest.max():
            return False
    return True
