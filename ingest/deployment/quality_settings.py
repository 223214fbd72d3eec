"""Parameters of the quality tests: frozen records, read from `deployment.toml`, kept with the archive as JSON.

Each field declares what its number measures, so that a default in degC also serves a variable in degF: a "level" is a
value of the variable, a "difference" is one between two values, "plain" numbers are not converted.
"""

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Literal, Self

from hypergrid.core.flags import FAIL, SUSPECT
from hypergrid.core.units import convert
from ingest.deployment.toml_table import TomlTable

Bounds = tuple[float, float]
Of = Literal["level", "difference", "plain"]
VALUE: Final = "value"
SUN: Final = "sun"
MINUTE_NS: Final = 60_000_000_000
JOINED_INTERVALS: Final = 1.5
"""Maximum distance of consecutive readings [nominal intervals]; beyond it there is a gap."""


def _number(
    default: float | None, of: Of = "plain", *, minimum: float = -1e300, maximum: float = 1e300, **more: object
) -> Any:  # noqa: ANN401 - as dataclasses.field
    return field(default=default, metadata={"kind": "number", "of": of, "least": minimum, "most": maximum, **more})


def _duration(default: float | None, *, at_least: str = "") -> Any:  # noqa: ANN401
    """Return a field for a positive number of hours."""
    return _number(default, minimum=0.0, above=0.0, at_least=at_least)


def _span(default: Bounds | None = None, of: Of = "level") -> Any:  # noqa: ANN401 - as dataclasses.field
    return field(default=default, metadata={"kind": "span", "of": of})


def _choice(default: str, *among: str) -> Any:  # noqa: ANN401
    return field(default=default, metadata={"kind": "text", "among": among, "of": "plain"})


# NaN, because None means that an optional number is absent.
NEEDED: Final = math.nan
"""Default of a required number."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of one test; keys that are not given keep the values of `base`."""

    token_name: ClassVar[str] = "Parameters"

    def convert_units(self, source: str, target: str) -> Self:
        """Return the parameters converted for values in another unit.

        Raises
        ------
        hypergrid.core.errors.InvalidUnit
            The units are not convertible.
        """
        # Differences are converted without the offset of the scale, as between degC and degF.
        zero = float(convert(0.0, source, target))

        def convert_one(given: float, of: Of) -> float:
            there = float(convert(given, source, target))
            return given if of == "plain" else there - zero if of == "difference" else there

        changed: dict[str, Any] = {}
        for each in fields(self):
            value, of = getattr(self, each.name), each.metadata.get("of", "plain")
            if each.metadata["kind"] == "records":
                changed[each.name] = tuple(record.convert_units(source, target) for record in value)
            elif of != "plain" and value is not None:
                whole = isinstance(value, tuple)
                changed[each.name] = tuple(convert_one(v, of) for v in value) if whole else convert_one(value, of)
        return replace(self, **changed)

    @classmethod
    def read(cls, table: TomlTable, base: "Parameters | None") -> Self:
        """Read a table of the deployment file over the defaults in `base`.

        Raises
        ------
        hypergrid.core.errors.InvalidDeployment
            A key is unknown, missing or out of bounds; the message names it.
        """
        made = cls(
            **table.finish({each.name: _read(table, each, getattr(base or cls(), each.name)) for each in fields(cls)})
        )
        made.check(table)
        return made

    def check(self, table: TomlTable) -> None:
        """Refuse parameters that contradict each other, such as one below the field that `at_least` names."""
        for each in fields(self):
            value, least = getattr(self, each.name), getattr(self, each.metadata.get("at_least", ""), None)
            if value is not None and least is not None and value < least:
                table.refuse(each.name, f"needs at least what is suspect, {least:g}; got {value:g}")


def _read(table: TomlTable, each: Field[Any], base: Any) -> Any:  # noqa: ANN401 - any field type
    name, metadata = each.name, each.metadata
    if metadata["kind"] == "records":
        return (
            tuple(metadata["record"].read(subtable, None) for subtable in table.tables(name))
            if table.has(name)
            else base
        )
    if not table.has(name):
        if isinstance(base, float) and math.isnan(base):
            table.refuse(name, "is missing")
        return base
    if metadata["kind"] == "number":
        number = table.number(name, minimum=metadata["least"], maximum=metadata["most"])
        if number <= metadata.get("above", -math.inf):
            table.refuse(name, f"needs more than {metadata['above']:g} hours; got {number:g}")
        return number if math.isfinite(number) else table.refuse(name, f"needs a finite number; got {number!r}")
    if metadata["kind"] == "text":
        return table.text(name, among=metadata["among"] or None)
    value = table.value(name)
    numbers = isinstance(value, list) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
    if metadata["kind"] == "months":
        if not numbers or not value or not set(value) <= set(range(1, 13)):
            table.refuse(name, f"needs a list of months from 1 to 12; got {value!r}")
        return tuple(sorted(set(value)))
    if not numbers or len(value) != 2 or not value[0] < value[1]:
        table.refuse(name, f"needs two numbers, [lowest, highest]; got {value!r}")
    return float(value[0]), float(value[1])


def _refuse_wider(table: TomlTable, suspect: Bounds | None, fail: Bounds | None) -> None:
    if suspect is None and fail is None:
        table.refuse("", "needs fail or suspect, as [lowest, highest]")
    if suspect is not None and fail is not None and (suspect[0] < fail[0] or suspect[1] > fail[1]):
        table.refuse("suspect", f"{list(suspect)} must lie inside fail {list(fail)}")


@dataclass(frozen=True)
class SunLimit(Parameters):
    """Upper limit by the sun: `factor * S * sin(elevation) ** power + offset`.

    S is the irradiance at the top of the atmosphere [W m-2]. The formula is that of BSRN's limits (C. N. Long and E. G.
    Dutton 2002, BSRN Global Network recommended QC tests, V2.0). For an amount (`interval_exponent` above zero) the
    limit is multiplied by its seconds.
    """

    token_name: ClassVar[str] = "SunLimit"

    factor: float = _number(1.2, "difference", minimum=0.0)
    """[unit of the variable per W m-2]"""
    offset: float = _number(50.0, "difference", minimum=0.0)
    power: float = _number(1.2, minimum=0.0, maximum=10.0)
    flag: str = _choice("suspect", "suspect", "fail")


@dataclass(frozen=True)
class GrossRange(Parameters):
    """Fail values outside `fail`, mark those outside `suspect` as suspect; bounds are inclusive.

    Bounds of a quantity that scales with its interval are those for one hour: readings over h hours are compared with
    the bounds times `h ** interval_exponent`. A positive exponent is for totals: if the interval is unknown, the upper
    bounds are not tested. A negative one is for rates: a sample or an extreme counts as one minute.
    """

    token_name: ClassVar[str] = "GrossRange"

    fail: Bounds | None = _span()
    suspect: Bounds | None = _span()
    interval_exponent: float = _number(0.0, minimum=-1.0, maximum=1.0)
    sun: tuple[SunLimit, ...] = field(default=(), metadata={"kind": "records", "record": SunLimit})

    def check(self, table: TomlTable) -> None:
        super().check(table)
        _refuse_wider(table, self.suspect, self.fail)


@dataclass(frozen=True)
class Normal(Parameters):
    """Normal range in some months, at some heights above ground, latitudes and elevations.

    Bounds are those at sea level: they change by `low_per_m` and `high_per_m` per metre of elevation or, if
    `scale_heights_m` is given, by exp(-elevation / scale height), with one scale height for the lower and one for the
    upper bound. If the elevation is unknown, bounds that change per metre are widened to cover 0 to 4,000 m.
    """

    token_name: ClassVar[str] = "Normal"

    months: tuple[int, ...] = field(default=tuple(range(1, 13)), metadata={"kind": "months"})
    fail: Bounds | None = _span()
    suspect: Bounds | None = _span()
    height_m: Bounds | None = _span(of="plain")
    lat: Bounds | None = _span(of="plain")
    elevation_m: Bounds | None = _span(of="plain")
    low_per_m: float = _number(0.0, "difference", minimum=-1e3, maximum=1e3)
    high_per_m: float = _number(0.0, "difference", minimum=-1e3, maximum=1e3)
    scale_heights_m: Bounds | None = _span(of="plain")

    def check(self, table: TomlTable) -> None:
        super().check(table)
        _refuse_wider(table, self.suspect, self.fail)
        if self.scale_heights_m is not None and self.scale_heights_m[0] <= 0.0:
            table.refuse("scale_heights_m", f"needs heights above 0 m; got {list(self.scale_heights_m)}")


@dataclass(frozen=True)
class Climatology(Parameters):
    """Compare each reading with the last entry of `normal` for its month and place.

    Readings without an entry are not evaluated.
    """

    token_name: ClassVar[str] = "Climatology"

    normal: tuple[Normal, ...] = field(default=(), metadata={"kind": "records", "record": Normal})


@dataclass(frozen=True)
class Spike(Parameters):
    """A reading that differs from both neighbours by more than the change expected in between.

    The threshold is `suspect` plus `per_hour` for each hour between readings. "differential": the smaller of the two
    steps, if they have opposite directions; "average": the distance from the mean of the two neighbours.
    """

    token_name: ClassVar[str] = "Spike"

    suspect: float = _number(NEEDED, "difference", minimum=0.0)
    fail: float | None = _number(None, "difference", minimum=0.0, at_least="suspect")
    per_hour: float = _number(0.0, "difference", minimum=0.0)
    method: str = _choice("differential", "differential", "average")
    within_hours: float = _duration(3.0)


@dataclass(frozen=True)
class RateOfChange(Parameters):
    """A step from the previous reading of more than `suspect` plus `per_hour` for each hour in between."""

    token_name: ClassVar[str] = "RateOfChange"

    suspect: float = _number(NEEDED, "difference", minimum=0.0)
    fail: float | None = _number(None, "difference", minimum=0.0, at_least="suspect")
    per_hour: float = _number(0.0, "difference", minimum=0.0)
    within_hours: float = _duration(3.0)


@dataclass(frozen=True)
class Exempt(Parameters):
    """Stop counting time while a quantity lies between `least` and `most` (both inclusive).

    `of` is "value" (the reading itself), "sun" (its elevation [degree]; unknown without a position: exempt), or a
    variable (the latest reading at the station, at most three hours old; if missing: not exempt).
    """

    token_name: ClassVar[str] = "Exempt"

    of: str = _choice(VALUE)
    least: float = _number(-1e300, "level")
    most: float = _number(1e300, "level")

    def convert_units(self, source: str, target: str) -> Self:
        """Convert the bounds to another unit; bounds of other quantities and infinite bounds stay."""
        if self.of != VALUE:
            return self
        # 1e300 means no bound, which has no unit.
        low, high = (x if abs(x) >= 1e300 else float(convert(x, source, target)) for x in (self.least, self.most))
        return replace(self, least=low, most=high)


@dataclass(frozen=True)
class FlatLine(Parameters):
    """Readings that stay within `tolerance` for `hours` or longer, at least `readings` of them.

    Exempt times do not count. All of the readings are suspect, and fail from `fail_hours` on. A pause of more than
    `within_hours` ends the run.
    """

    token_name: ClassVar[str] = "FlatLine"

    hours: float = _duration(NEEDED)
    fail_hours: float | None = _duration(None, at_least="hours")
    readings: float = _number(12, minimum=2)
    tolerance: float = _number(0.0, "difference", minimum=0.0)
    within_hours: float = _duration(6.0)
    exempt: tuple[Exempt, ...] = field(default=(), metadata={"kind": "records", "record": Exempt})

    @property
    def worst_flag(self) -> int:
        return SUSPECT if self.fail_hours is None else FAIL


@dataclass(frozen=True)
class AttenuatedSignal(Parameters):
    """Standard deviation or range of the last `hours` up to each reading lies below a threshold."""

    token_name: ClassVar[str] = "AttenuatedSignal"

    hours: float = _duration(NEEDED)
    suspect: float = _number(NEEDED, "difference", minimum=0.0)
    fail: float | None = _number(None, "difference", minimum=0.0)
    readings: float = _number(12, minimum=2)
    measure: str = _choice("std", "std", "range")

    def check(self, table: TomlTable) -> None:
        """Refuse thresholds in the wrong order: a smaller deviation is worse."""
        super().check(table)
        if self.fail is not None and self.fail > self.suspect:
            table.refuse("fail", f"needs at most what is suspect, {self.suspect:g}; got {self.fail:g}")


@dataclass(frozen=True)
class Gap(Parameters):
    """A pause of more than `hours`: counted, and `flag` set on the reading after it."""

    token_name: ClassVar[str] = "Gap"

    hours: float = _duration(3.0)
    flag: str = _choice("none", "none", "suspect", "fail")


@dataclass(frozen=True)
class CounterFall(Parameters):
    """A counter fell by `least` or more, to above `near_zero`, within `within_hours`."""

    token_name: ClassVar[str] = "CounterFall"

    least: float = _number(NEEDED, "difference", minimum=0.0)
    near_zero: float = _number(NEEDED, "level")
    within_hours: float = _number(3.0, minimum=0.0)
    flag: str = _choice("suspect", "suspect", "fail")


@dataclass(frozen=True)
class BuddyCheck(Parameters):
    """A reading far from the mean of its neighbours, reduced to its elevation (titanlib's definition).

    Neighbours are the other stations within `radius_km` (if not given: derived from the network's spacing,
    `Places.radius_m`) and `most_elevation_m` up or down, in the same cell of `minutes`; at least `neighbours` of them
    must report.
    """

    token_name: ClassVar[str] = "BuddyCheck"

    radius_km: float | None = _number(None, minimum=0.0)
    neighbours: float = _number(5, minimum=1)
    threshold: float = _number(4.0, minimum=0.0)
    least_spread: float = _number(NEEDED, "difference", minimum=1e-9)
    per_m: float = _number(0.0, "difference", minimum=-1e3, maximum=1e3)
    most_elevation_m: float = _number(300.0, minimum=0.0)
    iterations: float = _number(3, minimum=1, maximum=100)
    minutes: float = _number(10.0, minimum=0.01)


@dataclass(frozen=True)
class SpatialConsistency(Parameters):
    """A reading far from a linear fit in elevation through its neighbours.

    The line is fitted without the station itself. If the neighbours' elevations spread by less than `least_elevation_m`
    (standard deviation), their mean is used instead, reduced by `per_m`.
    """

    token_name: ClassVar[str] = "SpatialConsistency"

    radius_km: float = _number(50.0, minimum=0.0)
    neighbours: float = _number(8, minimum=3)
    threshold: float = _number(5.0, minimum=0.0)
    least_spread: float = _number(NEEDED, "difference", minimum=1e-9)
    per_m: float = _number(0.0, "difference", minimum=-1e3, maximum=1e3)
    least_elevation_m: float = _number(50.0, minimum=0.0)
    iterations: float = _number(3, minimum=1, maximum=100)
    minutes: float = _number(10.0, minimum=0.01)


@dataclass(frozen=True)
class LevelShift(Parameters):
    """A series that for most of a day deviates from its references, or its past.

    It deviates if its difference from them is more than `threshold` usual spreads from its usual level
    (`alone_threshold` if there are not two references), and more than `least_shift`. The usual level is learned from
    unflagged readings of the last `days`, at least `least_days` of them. A shift that lasts longer than `memory_days`,
    at most twice that, becomes usual.
    """

    token_name: ClassVar[str] = "LevelShift"

    threshold: float = _number(3.0, minimum=1.0)
    least_shift: float = _number(NEEDED, "difference", minimum=1e-9)
    alone_threshold: float = _number(6.0, minimum=1.0)
    references: float = _number(8, minimum=2, maximum=24)
    days: float = _number(45.0, minimum=7.0, maximum=366.0)
    least_days: float = _number(5.0, minimum=2.0)
    memory_days: float = _number(91.0, minimum=14.0, maximum=732.0)


@dataclass(frozen=True)
class FaultyZeros(Parameters):
    """A rain gauge that repeatedly reports no rain while its neighbours do (a blocked gauge).

    `of` says what readings are: "amount" (of an interval), "rate", or "counter" (one that grows). Three hours are wet
    if at least `share` of at least `neighbours` neighbours have more than `wet` (of rates: on average). A gauge is
    blocked if it is dry in more consecutive wet periods than chance makes likely (1 in 10 to the power of `evidence`),
    on at least `days` days.
    """

    token_name: ClassVar[str] = "FaultyZeros"

    of: str = _choice("amount", "amount", "rate", "counter")
    wet: float = _number(0.5, "difference", minimum=1e-9)
    share: float = _number(0.75, minimum=0.5, maximum=1.0)
    neighbours: float = _number(3, minimum=2)
    evidence: float = _number(6.0, minimum=1.0)
    days: float = _number(2, minimum=1)
    memory_days: float = _number(91.0, minimum=14.0, maximum=732.0)


@dataclass(frozen=True)
class VariableTests:
    """Tests of one variable; None: not run."""

    token_name: ClassVar[str] = "VariableTests"

    gross_range: GrossRange | None = None
    climatology: Climatology | None = None
    spike: Spike | None = None
    flat_line: FlatLine | None = None
    rate_of_change: RateOfChange | None = None
    attenuated_signal: AttenuatedSignal | None = None
    gap: Gap | None = None
    counter_fall: CounterFall | None = None
    buddy_check: BuddyCheck | None = None
    spatial_consistency: SpatialConsistency | None = None
    level_shift: LevelShift | None = None
    faulty_zeros: FaultyZeros | None = None

    KINDS: ClassVar[Mapping[str, type[Parameters]]] = {
        "gross_range": GrossRange,
        "climatology": Climatology,
        "spike": Spike,
        "flat_line": FlatLine,
        "rate_of_change": RateOfChange,
        "attenuated_signal": AttenuatedSignal,
        "gap": Gap,
        "counter_fall": CounterFall,
        "buddy_check": BuddyCheck,
        "spatial_consistency": SpatialConsistency,
        "level_shift": LevelShift,
        "faulty_zeros": FaultyZeros,
    }

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in self.KINDS)

    @property
    def companions(self) -> tuple[str, ...]:
        """Other variables that exemptions depend on."""
        exempt = self.flat_line.exempt if self.flat_line else ()
        return tuple(dict.fromkeys(exemption.of for exemption in exempt if exemption.of not in (VALUE, SUN)))

    def convert_units(self, source: str, target: str) -> "VariableTests":
        present = {name: getattr(self, name) for name in self.KINDS}
        return VariableTests(**{n: p.convert_units(source, target) for n, p in present.items() if p is not None})

    @property
    def cell_ns(self) -> int:
        """Length of the time cells of the neighbour tests [ns]; 0 if there are none."""
        checks = [check for check in (self.buddy_check, self.spatial_consistency) if check]
        return math.lcm(*(round(check.minutes * MINUTE_NS) for check in checks)) if checks else 0

    def series_tests(self) -> "VariableTests":
        """Return only the tests along a single series."""
        return replace(self.without_memory(), buddy_check=None, spatial_consistency=None)

    def without_memory(self) -> "VariableTests":
        """Return only the tests that look no further than `reach_s`."""
        return replace(self, level_shift=None, faulty_zeros=None)

    @property
    def memory_days(self) -> float:
        """Memory of the tests with one [d], which look back twice that at most; else 0."""
        return max((test.memory_days for test in (self.level_shift, self.faulty_zeros) if test), default=0.0)

    def reach_s(self, interval_s: float) -> float:
        """Return the reach of the tests [s] at intervals of at most `interval_s` [s]."""
        hours = [0.5]
        # Series with longer intervals than a test's limit are still joined, interval by interval.
        joined = interval_s * JOINED_INTERVALS / 3600.0
        hours += [max(test.within_hours, joined) for test in (self.spike, self.rate_of_change) if test]
        if self.flat_line:
            flat = self.flat_line
            hours.append(max(flat.hours, flat.fail_hours or 0.0, flat.readings * interval_s / 3600.0))
        if self.attenuated_signal:
            hours.append(self.attenuated_signal.hours)
        if self.counter_fall:
            hours.append(self.counter_fall.within_hours)
        if self.gap:
            hours.append(max(self.gap.hours, joined))
        return 3600.0 * (max(hours) * 1.01) + interval_s
