"""Units by pint, and the known variables with their unit in the archive."""

import difflib
import math
import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.core.errors import InvalidUnit

if TYPE_CHECKING:
    import pint

DIMENSIONLESS_TEXT: Final = ("", "1", "unknown")
"""Unit texts that mean an unknown unit; such values are used unconverted."""

_LONGEST: Final = 80
# Pint evaluates powers of numbers and groups: "9**9**9**9 m" would never return.
_COSTLY: Final = re.compile(r"\d{3}|[\d)]\s*(\*\*|\^)")
"""Unit texts that are refused as too expensive to parse."""


@dataclass(frozen=True)
class Variable:
    """A measured quantity, and the unit that the archive stores it in."""

    token_name: ClassVar[str] = "Variable"

    name: str
    """Name in queries, for example "air_temperature"."""
    unit: str = "unknown"
    """Declared unit, in CF spelling ("degC", "W m-2")."""
    standard_name: str | None = None
    """CF standard name, if it has one."""
    long_name: str = ""
    """Display name in plots and tables."""
    is_counter: bool = field(default=False, metadata={"omit_default": True})
    """Whether its readings are those of a counter."""
    resolution: float | None = field(default=None, metadata={"omit_default": True})
    """Step of a counter [unit]; None if not declared."""
    rollover: float | None = field(default=None, metadata={"omit_default": True})
    """Value at which a counter wraps to zero [unit]; None if it does not, or is not declared."""


KNOWN_VARIABLES: Final = {
    variable.name: variable
    for variable in (
        Variable("air_temperature", "degC", "air_temperature", "Air temperature"),
        Variable("surface_temperature", "degC", "surface_temperature", "Surface temperature"),
        Variable("solar_radiation", "W m-2", "surface_downwelling_shortwave_flux_in_air", "Solar radiation"),
        Variable("relative_humidity", "%", "relative_humidity", "Relative humidity"),
        Variable("soil_moisture", "%", "volume_fraction_of_condensed_water_in_soil", "Soil moisture"),
        Variable("watermark", "kPa", None, "Soil water tension (watermark)"),
        Variable("precipitation", "mm", "lwe_thickness_of_precipitation_amount", "Precipitation"),
        Variable("rain_meter", "mm", None, "Rain meter (counter)"),
        Variable("wind_speed", "m s-1", "wind_speed", "Wind speed"),
        Variable("wind_direction", "degree", "wind_from_direction", "Wind direction"),
        Variable("air_pressure", "kPa", "air_pressure", "Air pressure"),
    )
}
"""Variables that need no declaration; a deployment can declare others."""

COUNTERS: Final = frozenset({"rain_meter"})
"""Known variables that are counters."""

_NEAREST: Final = (
    "degC", "degF", "K", "m s-1", "m/s", "km/h", "knot", "mm", "cm", "m", "km", "kg m-2", "mm/h", "hPa", "kPa", "Pa",
    "W m-2", "J m-2", "W/m2", "degree", "radian", "%", "g kg-1", "m3 m-3", "ppm", "V", "mV", "s", "minute", "hour",
    "day",
)  # fmt: skip
"""Units that are suggested for one that is unknown."""

_OTHER_SPELLINGS: Final = {
    "degreesC": "degC", "celcius": "degC", "Grad C": "degC", "degreesF": "degF", "farenheit": "degF", "mps": "m s-1",
    "m/sec": "m s-1", "meters/sec": "m s-1", "percent": "%", "percentage": "%", "hectopascals": "hPa",
    "watt/m2": "W m-2",
}  # fmt: skip
"""Texts that are written for a unit, and the unit."""

_AMOUNTS: Final = ("mm", "m3", "kg", "kg m-2", "J", "J m-2")
"""One unit of each dimension that a counter can accumulate."""


@cache
def _registry() -> "pint.UnitRegistry[float]":
    # Pint takes half a second to import and to read its units, and most processes never need it.
    import pint  # noqa: PLC0415

    registry: pint.UnitRegistry[float] = pint.UnitRegistry(autoconvert_offset_to_baseunit=True)
    registry.define("percent_ = 0.01 = %")
    # Pint defines a decade as a logarithmic unit: a factor of ten in frequency.
    registry.define("decade_ = 10 * year")
    return registry


@lru_cache(maxsize=512)
def _parse(unit: str) -> "pint.Unit":
    # CF writes powers as "m-2"; pint needs "m**-2".
    text = " ".join(_power(word) for word in unit.replace("%", "percent_").replace("decade", "decade_").split())
    try:
        if len(unit) > _LONGEST or _COSTLY.search(unit):
            raise ValueError(unit)
        return _registry().parse_units(text)
    except Exception as error:  # pint passes the text to Python's tokenizer, which can raise any kind of error
        near = difflib.get_close_matches(unit[:_LONGEST], [*_NEAREST, *_OTHER_SPELLINGS], n=1)
        hint = f"did you mean {_OTHER_SPELLINGS.get(near[0], near[0])!r}? Write" if near else "write"
        raise InvalidUnit(
            f"unknown unit {unit!r}; {hint} it as CF does, for example 'degC', 'W m-2' or 'm s-1'"
        ) from error


def _power(word: str) -> str:
    head = word.rstrip("0123456789")
    if head != word and head.endswith("-"):
        return f"{head[:-1]}**-{word[len(head) :]}"
    return f"{head}**{word[len(head) :]}" if head != word and head.isalpha() else word


_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SYMBOLS: Final = {"degree": "°", "degrees": "°", "um": "µm"}
"""Words of units that have a symbol."""
_POWER: Final = re.compile(r"(?<=[A-Za-z)])-?[0-9]+$")


def unit_symbol(unit: str) -> str:
    """Return a unit as it is printed: °C for degC, W m⁻² for W m-2.

    Examples
    --------
    >>> [unit_symbol(unit) for unit in ("degC", "W m-2", "m s-1", "%", "unknown")]
    ['°C', 'W m⁻²', 'm s⁻¹', '%', 'unknown']
    """
    words = re.sub(r"\bdeg([CF])\b", r"°\1", unit).split()
    return " ".join(_SYMBOLS.get(word, _POWER.sub(lambda power: power[0].translate(_RAISED), word)) for word in words)


def format_quantity(value: float, unit: str = "") -> str:
    """Return a value with its unit for people, to three digits or one decimal: "-0.3 °C", "1,013.2 hPa"."""
    if not math.isfinite(value):
        return f"{value}"
    digits = 0 if value == 0 else min(max(2 - math.floor(math.log10(abs(value))), 1), 12)
    number = f"{value:,.{digits}f}"
    number = number.rstrip("0").rstrip(".") if "." in number else number
    symbol = "" if unit in DIMENSIONLESS_TEXT else unit_symbol(unit)
    return f"{'0' if number == '-0' else number}{'' if symbol in ('', '°') else ' '}{symbol}"


def check_unit(unit: str) -> str:
    """Return the unit unchanged if it is known.

    Raises
    ------
    InvalidUnit
        The unit is unknown.
    """
    # Units of `KNOWN_VARIABLES` are accepted without pint, which is slow to import.
    if unit not in DIMENSIONLESS_TEXT and all(unit != variable.unit for variable in KNOWN_VARIABLES.values()):
        _parse(unit)
    return unit


def convert(values: ArrayLike, source: str, target: str) -> NDArray[np.float64]:
    """Convert values from one unit to another; return them unchanged if either unit is unknown.

    Raises
    ------
    InvalidUnit
        A unit cannot be parsed, or one does not convert to the other.
    """
    array = np.asarray(values, dtype=np.float64)
    if source == target or source in DIMENSIONLESS_TEXT or target in DIMENSIONLESS_TEXT:
        return array
    if _is_difference(source) != _is_difference(target) and (is_offset(source) or is_offset(target)):
        raise InvalidUnit(
            f"{to_cf(source)!r} does not convert to {to_cf(target)!r}: a difference of temperatures is not a "
            "temperature; give it in K, or as a number alone"
        )
    import pint  # noqa: PLC0415 - as in `_registry`

    try:
        return np.asarray(_registry().Quantity(array, _parse(source)).to(_parse(target)).magnitude, dtype=np.float64)
    except pint.errors.DimensionalityError as error:
        raise InvalidUnit(f"{source!r} does not convert to {target!r}: they measure different things") from error


def is_known_counter(variable: Variable) -> bool:
    """Return whether a variable is a counter, by its declaration or its name."""
    return variable.is_counter or variable.name in COUNTERS


def counter_words(variable: Variable) -> str:
    """Describe a counter for the user; empty for other variables."""
    if not is_known_counter(variable):
        return ""
    known = [f"{key} {value:g} {variable.unit}"
             for key, value in (("resolution", variable.resolution), ("rollover", variable.rollover))
             if value is not None]  # fmt: skip
    words = ", ".join(known) or "resolution and rollover not declared"
    return f"a counter, {words}: rain_accumulation gives what it grew by"


def counter_fault(resolution: float | None, rollover: float | None) -> str:
    """Describe the fault of a declared resolution and rollover [one unit]; empty if they are valid."""
    for name, value in (("resolution", resolution), ("rollover", rollover)):
        if value is not None and not (math.isfinite(value) and value > 0):
            return f"the {name} of a counter needs a number above 0; got {value:g}"
    if rollover is not None and resolution is not None and rollover <= 2 * resolution:
        return (
            f"the rollover of a counter needs more than two steps of its resolution; got a rollover of {rollover:g} "
            f"with a resolution of {resolution:g}: give both in the variable's unit"
        )
    return ""


def is_amount(unit: str) -> bool:
    """Return whether a counter can accumulate the unit.

    True for a depth, volume, mass or energy, the latter two also per area, and for a plain number.
    """
    if unit in (*DIMENSIONLESS_TEXT, "count"):
        return True
    return any(_parse(unit).dimensionality == _parse(amount).dimensionality for amount in _AMOUNTS)


def _is_difference(unit: str) -> bool:
    return unit.startswith("delta_")


def is_offset(unit: str) -> bool:
    """Return whether zero of the unit is an arbitrary offset, as with degC."""
    if unit in DIMENSIONLESS_TEXT:
        return False
    return not _is_difference(unit) and not _registry().Quantity(1.0, _parse(unit))._is_multiplicative  # noqa: SLF001


def difference_of(unit: str) -> str:
    """Return the unit of differences of values [unit]; a delta unit for offset temperatures.

    Examples
    --------
    >>> difference_of("degree_Celsius"), difference_of("degF"), difference_of("W m-2")
    ('delta_degC', 'delta_degF', 'W m-2')
    """
    if not is_offset(unit):
        return unit
    for temperature in ("degC", "degF"):
        if _parse(unit) == _parse(temperature):
            return f"delta_{temperature}"
    return f"delta_{unit}"


def to_cf(unit: str) -> str:
    """Return the unit in CF spelling.

    UDUNITS has no temperature differences: those of degC become K, of degF degR.
    """
    return unit.replace("delta_degC", "K").replace("delta_degF", "degR")


def parse_number(value: object, unit: str, *, label: str) -> float:
    """Parse a parameter into a number [unit]; text may carry its own unit ("-40 degF").

    Raises
    ------
    InvalidUnit
        Neither a finite number nor text with a number and a unit that converts.
    """
    number, given = value, unit
    if isinstance(value, str):
        # Users write "80%" without a space.
        number, _, text = re.sub(r"(?<=[0-9.])%$", " %", value.strip()).partition(" ")
        given = text.strip() or unit
    try:
        if isinstance(number, str | int | float | np.integer | np.floating) and not isinstance(number, bool):
            # A plain number also accepts a dimensionless unit ("80 %" is 0.8), but no other ("2 m" is refused).
            pure = "dimensionless" if unit in ("", "1") and given not in DIMENSIONLESS_TEXT else unit
            converted = float(convert(float(number), given, pure))
            if np.isfinite(converted):
                return converted
    except (ValueError, OverflowError) as error:
        if isinstance(error, InvalidUnit) and unit not in ("", "1"):
            raise InvalidUnit(f"{label}: {error}") from error
    wanted = "a plain number" if unit in ("", "1") else f"a number in {unit}, or text such as '12 {unit}'"
    raise InvalidUnit(f"{label} needs {wanted}; got {value!r}")
