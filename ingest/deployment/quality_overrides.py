"""Quality settings of a deployment: `[quality]` and `[quality.<variable>]`, over the default tests of a variable.

The defaults are chosen by a variable's name or by its declared CF standard name. A kind serves every variable that
measures the same quantity, whatever its name and unit in a network. Limits of single values are the earth's records
plus a margin; if no source is named, they are the limits that instruments of automatic stations can report.

```toml
[quality]
run = true                        # false: flags stay 2, not evaluated
zone_guard = true                 # report clocks that radiation says are hours off
bound_clocks = false              # true: also keep how far they may be off as clock errors
[quality.clock_shift_h]           # corrected only when told: hours added to the stamps of a station
"7" = -2.0
[quality.clock_error_s]           # bounds of clock errors: true times lie within them of the stamps
"12" = 90
"13" = [{from = 2007-10-01T00:00:00Z, s = 600}, {from = 2007-11-01T00:00:00Z, s = 0}]
[quality.air_temperature]
spike = {suspect = 2.0}           # the rest of the test as by default; in the variable's unit
rate_of_change = false            # not run
climatology = {normal = [{months = [12, 1, 2], suspect = [-30, 15]}]}
```
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.clock_errors import ClockError, ClockErrors
from hypergrid.core.errors import InvalidUnit, NotFound
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import DIMENSIONLESS_TEXT, KNOWN_VARIABLES, Variable
from ingest.deployment.quality_settings import (
    SUN,
    VALUE,
    BuddyCheck,
    Climatology,
    CounterFall,
    Exempt,
    FaultyZeros,
    FlatLine,
    Gap,
    GrossRange,
    LevelShift,
    Normal,
    Parameters,
    RateOfChange,
    Spike,
    SunLimit,
    VariableTests,
)
from ingest.deployment.toml_table import TomlTable

MOST_SHIFT_H: Final = 26.0
"""Maximum clock shift [h]; time zones span -12 to +14 h."""
MOST_CLOCK_ERROR_S: Final = MOST_SHIFT_H * 3600
"""Maximum bound of a clock error [s]."""


@dataclass(frozen=True)
class QualityOverrides:
    """Quality tests of a deployment."""

    token_name: ClassVar[str] = "QualityOverrides"

    run: bool = True
    zone_guard: bool = True
    clock_shift_h: tuple[tuple[str, float], ...] = ()
    """Hours added to the stamps of a station, by station."""
    variables: tuple[tuple[str, VariableTests], ...] = ()
    """Declared variables; the others have default tests."""
    # Omitted from tokens if empty, so that deployments without any keep theirs.
    clock_error_s: tuple[tuple[str, tuple[ClockError, ...]], ...] = field(default=(), metadata={"omit_default": True})
    """Bounds of clock errors, by station."""
    bound_clocks: bool = field(default=False, metadata={"omit_default": True})
    """Whether stations that the zone guard suspects get a clock error, unless they have one."""

    @property
    def clock_errors(self) -> ClockErrors:
        return dict(self.clock_error_s)

    def tests(self, variable: Variable) -> VariableTests:
        """Return the tests of a variable, in its unit."""
        if not self.run:
            return VariableTests()
        declared = dict(self.variables)
        return declared[variable.name] if variable.name in declared else default_tests(variable)

    def shift_times(
        self, stations: Sequence[str], code: NDArray[np.int32], time_ns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the stamps of `stations[code]` at `time_ns` after clock shifts [ns], shape (n,)."""
        shifts = {station: round(hours * 3600 * SECOND_NS) for station, hours in self.clock_shift_h}
        if shifts.keys().isdisjoint(stations):
            return time_ns
        return time_ns + np.array([shifts.get(station, 0) for station in stations], np.int64)[code]

    def to_json(self, variables: Mapping[str, Variable]) -> dict[str, Any]:
        """Return all parameters of the tests of some variables, in the form that `from_json` reads."""
        tests = {
            name: asdict(self.tests(variable), dict_factory=lambda items: {k: v for k, v in items if v is not None})
            for name, variable in variables.items()
        }
        # With lists instead of tuples, as when they are read again.
        return dict(json.loads(json.dumps(tests)))


def read_quality(table: TomlTable, variable: Callable[[str], Variable | None]) -> QualityOverrides:
    """Read the table `quality` of a deployment file.

    Parameters
    ----------
    variable
        Looks up a variable by name; None if unknown.

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment
        The table is invalid; the message names the key.
    """
    run, guard = (table.switch(key, default=True) for key in ("run", "zone_guard"))
    bounded = table.switch("bound_clocks", default=False)
    if bounded and not guard:
        table.refuse("bound_clocks", "needs the zone guard, which finds clocks that are off; got zone_guard = false")
    shifts: tuple[tuple[str, float], ...] = ()
    if table.has("clock_shift_h"):
        inner = table.table("clock_shift_h")
        shifts = tuple(
            (name, inner.number(name, minimum=-MOST_SHIFT_H, maximum=MOST_SHIFT_H)) for name in inner.names()
        )
    errors: tuple[tuple[str, tuple[ClockError, ...]], ...] = ()
    if table.has("clock_error_s"):
        inner = table.table("clock_error_s")
        errors = tuple((name, _read_clock_error(inner, name)) for name in inner.names())
    declared = []
    for name in table.names():
        if name in ("run", "zone_guard", "bound_clocks", "clock_shift_h", "clock_error_s"):
            continue
        known = variable(name)
        if known is None:
            unknown = NotFound.among("variable", name, KNOWN_VARIABLES)
            table.refuse(name, f"is neither a key nor a variable that is known or declared: {unknown}")
        declared.append((name, _read_tests(table.table(name), default_tests(known), variable)))
    return QualityOverrides(run, guard, shifts, tuple(declared), errors, bounded)


def _read_clock_error(table: TomlTable, station: str) -> tuple[ClockError, ...]:
    """Read the bound of a station's clock error: a number for all time, or tables from an instant on each."""

    def read_bound(inner: TomlTable, key: str) -> float:
        bound_s = inner.number(key, minimum=0.0, maximum=MOST_CLOCK_ERROR_S)
        return bound_s if math.isfinite(bound_s) else inner.refuse(key, f"needs a finite number; got {bound_s!r}")

    if not isinstance(table.value(station), list):
        return (ClockError(None, read_bound(table, station)),)
    history: list[ClockError] = []
    starts: list[int] = []
    for part in table.tables(station):
        start = part.run_check("from", lambda part=part: parse_instant(part.value("from")))  # type: ignore[misc]
        history.append(part.finish(ClockError(start, read_bound(part, "s"))))
        starts.append(start)
    if not history or starts != sorted(set(starts)):
        table.refuse(station, "needs tables with instants one after the other; order them by `from`")
    return tuple(history)


def from_json(content: Mapping[str, Any]) -> QualityOverrides:
    """Parse the output of `QualityOverrides.to_json`; errors as in `read_quality`."""
    table = TomlTable(content, "quality", file="the archive")
    tests = [
        (name, _read_tests(TomlTable(table.value(name), name, file="the archive"), VariableTests(), Variable))
        for name in table.names()
    ]
    return QualityOverrides(variables=tuple(tests))


def _read_tests(table: TomlTable, base: VariableTests, variable: Callable[[str], Variable | None]) -> VariableTests:
    chosen: dict[str, Parameters | None] = {}
    for name, kind in VariableTests.KINDS.items():
        standing = getattr(base, name)
        value = table.value(name, default=True if standing is not None else False)
        if not table.has(name) or value is False:
            chosen[name] = standing if not table.has(name) else None
            continue
        inner = TomlTable({} if value is True else value, f"{table.path}.{name}", file=table.file)
        chosen[name] = kind.read(inner, standing)
    tests = table.finish(VariableTests(**chosen))  # type: ignore[arg-type]
    for index, exempt in enumerate(tests.flat_line.exempt if tests.flat_line else ()):
        if exempt.of not in (VALUE, SUN) and variable(exempt.of) is None:
            unknown = NotFound.among("variable", exempt.of, {VALUE, SUN, *KNOWN_VARIABLES})
            table.refuse(f"flat_line.exempt[{index}].of", f"is neither value, sun nor a known variable: {unknown}")
        if exempt == Exempt(exempt.of):
            table.refuse(f"flat_line.exempt[{index}]", "needs least or most; without them all time would be exempt")
    return tests


GAP: Final = Gap()

_BANDS: Final = (
    # Latitudes [degree]; lowest and highest normal air temperature at sea level [degC], and their change with elevation
    # [K/m]. Records that each band must include: -89.2 (Vostok, 3,488 m), -71 on the ice shelves, 19.8 (Signy); -32.8
    # (Sarmiento); 48.9 (Rivadavia), 50.7 (Oodnadatta), -23 (Charlotte Pass, 1,755 m); -25 (Altiplano, 4,000 m); -48
    # (Darlag, 3,968 m), 54.0 (Mitribah); -56 (Peter Sink, 2,500 m), 56.7 (Death Valley); -58 (Uvs Nuur), 49.6 (Lytton);
    # -71 (Tomtor), 40 (Fort Smith); -69.6 (Klinck, 3,105 m), 37 (Khatanga).
    ((-90.0, -60.0), (-76.0, 25.0), (-0.0045, -0.004)),
    ((-60.0, -40.0), (-40.0, 45.0), (-0.0045, -0.005)),
    ((-40.0, -20.0), (-25.0, 55.0), (-0.0045, -0.005)),
    ((-20.0, 20.0), (-10.0, 51.0), (-0.006, -0.005)),
    ((20.0, 35.0), (-35.0, 57.0), (-0.006, -0.005)),
    ((35.0, 45.0), (-53.0, 58.0), (-0.0045, -0.005)),
    ((45.0, 55.0), (-60.0, 51.0), (-0.003, -0.005)),
    ((55.0, 70.0), (-73.0, 43.0), (-0.003, -0.005)),
    ((70.0, 90.0), (-70.0, 40.0), (-0.0045, -0.005)),
)


def _by_latitude(low: float = 0.0, high: float = 0.0) -> Climatology:
    """Return normal ranges by latitude and elevation, with their bounds shifted by `low` and `high` [K]."""
    return Climatology(
        tuple(
            Normal(
                suspect=(span[0] + low, span[1] + high), lat=lat, low_per_m=per_m[0],
                high_per_m=per_m[1] if high == 0.0 else 0.0,
            )
            for lat, span, per_m in _BANDS
        )
    )  # fmt: skip


DEFAULTS: Final[Mapping[str, VariableTests]] = {
    "air_temperature": VariableTests(
        # The records of the earth are -89.2 and 56.7 degC.
        gross_range=GrossRange(fail=(-90.0, 60.0)),
        climatology=_by_latitude(),
        spike=Spike(suspect=3.0, fail=6.0, per_hour=4.0),
        flat_line=FlatLine(hours=4.0, fail_hours=24.0, readings=24),
        # Air cools by some 15 K within minutes when a front or a downburst passes.
        rate_of_change=RateOfChange(suspect=12.0, fail=20.0, per_hour=12.0),
        gap=GAP,
        # A lapse rate of 6.5 K/km; cold-air pools and the sunny side of a valley cause 6 K between neighbours. The
        # outflow of a cloudburst causes 10 K and more between a station and all of its neighbours for some minutes.
        buddy_check=BuddyCheck(least_spread=2.0, per_m=-0.0065, threshold=6.0),
        level_shift=LevelShift(least_shift=0.3),
    ),
    "surface_temperature": VariableTests(
        gross_range=GrossRange(fail=(-100.0, 95.0), suspect=(-95.0, 82.0)),
        # A radiating surface is some kelvins colder than the air; bare ground in the sun is hotter by 40.
        climatology=_by_latitude(-8.0, 40.0),
        spike=Spike(suspect=7.0, fail=15.0, per_hour=10.0),
        # Melting snow stays at 0 degC.
        flat_line=FlatLine(hours=4.0, fail_hours=24.0, readings=24, exempt=(Exempt(least=-0.5, most=0.5),)),
        rate_of_change=RateOfChange(suspect=20.0, fail=40.0, per_hour=30.0),
        gap=GAP,
    ),
    "solar_radiation": VariableTests(
        # A pyranometer loses 4 W m-2 to a clear night sky, 10 without wind on its dome; cloud edges add to the sun. At
        # the zenith these are BSRN's limits, extremely rare and physically possible; below it they use the exponent of
        # the direct beam, because many instruments are parallel to a slope that faces the sun.
        gross_range=GrossRange(
            fail=(-30.0, 2000.0),
            suspect=(-10.0, 1750.0),
            sun=(SunLimit(1.2, 50.0, power=0.2), SunLimit(1.5, 100.0, power=0.2, flag="fail")),
        ),
        flat_line=FlatLine(hours=3.0, fail_hours=24.0, readings=24, exempt=(Exempt(SUN, most=5.0),)),
        gap=GAP,
    ),
    "relative_humidity": VariableTests(
        gross_range=GrossRange(fail=(-2.0, 110.0), suspect=(0.0, 105.0)),
        # Foehn or a gust of dry air changes half of it within minutes: only isolated readings are spikes.
        spike=Spike(suspect=20.0, fail=40.0, per_hour=60.0),
        # Saturation: sensors read between 95 and 104 %, because their errors are 5 % there.
        flat_line=FlatLine(hours=5.0, fail_hours=24.0, readings=24, exempt=(Exempt(least=95.0),)),
        rate_of_change=RateOfChange(suspect=40.0, per_hour=60.0),
        gap=GAP,
        level_shift=LevelShift(least_shift=3.0),
    ),
    "soil_moisture": VariableTests(
        gross_range=GrossRange(fail=(-1.0, 100.0), suspect=(0.0, 80.0)),
        spike=Spike(suspect=4.0, fail=8.0, per_hour=2.0),
        # Soil dries by less than a probe resolves in half a day; plateaus of the International Soil Moisture Network
        # last at least 12 hours (Dorigo and others 2013, Vadose Zone J. 12). Frozen soil keeps its value; the surface
        # temperature indicates frost where the soil temperature is not measured.
        flat_line=FlatLine(
            hours=12.0, fail_hours=72.0, readings=48, exempt=(Exempt("surface_temperature", most=-3.0),)
        ),
        gap=GAP,
    ),
    "watermark": VariableTests(
        gross_range=GrossRange(fail=(-1000.0, 1.0), suspect=(-300.0, 0.0)),
        spike=Spike(suspect=20.0, fail=60.0, per_hour=20.0),
        gap=GAP,
    ),
    # A dry gauge is constant for weeks: no flat line. Falls near zero are resets; smaller ones are the noise of
    # weighing gauges, which queries balance.
    "rain_meter": VariableTests(
        gross_range=GrossRange(fail=(0.0, 20_000.0)),
        gap=GAP,
        faulty_zeros=FaultyZeros(of="counter"),
        counter_fall=CounterFall(least=0.5, near_zero=2.0),
    ),
    "wind_speed": VariableTests(
        gross_range=GrossRange(fail=(0.0, 115.0), suspect=(0.0, 75.0)),
        spike=Spike(suspect=9.0, fail=20.0, per_hour=10.0),
        # Calm: below an anemometer's starting speed.
        flat_line=FlatLine(hours=6.0, fail_hours=48.0, readings=24, exempt=(Exempt(most=0.5),)),
        gap=GAP,
    ),
    "wind_direction": VariableTests(
        gross_range=GrossRange(fail=(0.0, 360.0)),
        # A vane stays where the last wind left it.
        flat_line=FlatLine(hours=8.0, fail_hours=48.0, readings=24, exempt=(Exempt("wind_speed", most=0.5),)),
        gap=GAP,
    ),
    "air_pressure": VariableTests(
        gross_range=GrossRange(fail=(30.0, 110.0), suspect=(32.0, 108.5)),
        # 90 to 107 kPa at sea level, beneath the coldest and the warmest column of air: 226 and 300 K.
        climatology=Climatology((Normal(suspect=(90.0, 107.0), scale_heights_m=(6600.0, 8800.0)),)),
        spike=Spike(suspect=0.3, fail=1.0, per_hour=0.2),
        flat_line=FlatLine(hours=12.0, fail_hours=48.0, readings=48),
        rate_of_change=RateOfChange(suspect=0.5, fail=2.0, per_hour=0.6),
        gap=GAP,
        level_shift=LevelShift(least_shift=0.05),
    ),
}
"""Default tests by variable of `hypergrid.core.units`, in the unit defined there."""


@dataclass(frozen=True)
class QuantityKind:
    """A kind of quantity, and its default tests."""

    units: tuple[str, ...]
    """Units with the same numeric value: a millimetre of water is a kilogram per square metre."""
    tests: VariableTests
    standard_names: tuple[str, ...] = ()


def _range(fail: tuple[float, float], suspect: tuple[float, float] | None = None) -> VariableTests:
    return VariableTests(gross_range=GrossRange(fail, suspect), gap=GAP)


_PRECIPITATION: Final = GrossRange(
    # All records of WMO's archive (126 mm in 8 minutes, 305 mm in 42, 1,825 mm in a day, 4,936 mm in four, 26.5 m in a
    # year) lie below 520 mm times the root of the hours, as R. L. Jennings' envelope of 1950 had it with 422 mm and
    # 0.475. Differences of a weighing gauge are a little below zero at times; to leave these alone out would bias sums.
    fail=(-1.0, 520.0), suspect=(-0.2, 260.0), interval_exponent=0.5,
)  # fmt: skip
_INTENSITY: Final = GrossRange(_PRECIPITATION.fail, _PRECIPITATION.suspect, interval_exponent=-0.5)
"""The same envelope for means over an interval."""

# BSRN limits, extremely rare and physically possible (C. N. Long and E. G. Dutton 2002); with the exponent of the
# direct beam where the beam may fall on an instrument parallel to a slope, or on a slope.
_REFLECTED: Final = GrossRange(
    fail=(-30.0, 2000.0),
    suspect=(-10.0, 1500.0),
    sun=(SunLimit(1.0, 50.0, power=0.2), SunLimit(1.2, 50.0, power=0.2, flag="fail")),
)
_DIFFUSE: Final = GrossRange(
    fail=(-30.0, 1500.0), suspect=(-10.0, 1200.0), sun=(SunLimit(0.75, 30.0), SunLimit(0.95, 50.0, flag="fail"))
)
_DIRECT: Final = GrossRange(
    fail=(-30.0, 1500.0), suspect=(-10.0, 1450.0),
    sun=(SunLimit(0.95, 10.0, power=0.2), SunLimit(1.0, 10.0, power=0.0, flag="fail")),
)  # fmt: skip

KINDS: Final[Mapping[str, QuantityKind]] = {
    "air_temperature": QuantityKind(("degC",), DEFAULTS["air_temperature"], ("air_temperature",)),
    "surface_temperature": QuantityKind(("degC",), DEFAULTS["surface_temperature"], ("surface_temperature",)),
    "solar_radiation": QuantityKind(
        ("W m-2",),
        DEFAULTS["solar_radiation"],
        (
            "surface_downwelling_shortwave_flux_in_air",
            "downwelling_shortwave_flux_in_air",
            "total_downwelling_shortwave_flux_in_air",
        ),
    ),
    "relative_humidity": QuantityKind(("%",), DEFAULTS["relative_humidity"], ("relative_humidity",)),
    "soil_moisture": QuantityKind(("%",), DEFAULTS["soil_moisture"], ("volume_fraction_of_condensed_water_in_soil",)),
    "watermark": QuantityKind(("kPa",), DEFAULTS["watermark"]),
    "rain_meter": QuantityKind(("mm", "kg m-2"), DEFAULTS["rain_meter"]),
    "wind_speed": QuantityKind(("m s-1",), DEFAULTS["wind_speed"], ("wind_speed",)),
    "wind_direction": QuantityKind(("degree",), DEFAULTS["wind_direction"], ("wind_from_direction",)),
    "air_pressure": QuantityKind(("kPa",), DEFAULTS["air_pressure"], ("air_pressure", "surface_air_pressure")),
    "air_pressure_at_sea_level": QuantityKind(
        ("kPa",),
        # 87.0 kPa in a typhoon, 108.5 in Siberia.
        VariableTests(
            gross_range=GrossRange((85.0, 110.0), (90.0, 107.0)),
            spike=DEFAULTS["air_pressure"].spike,
            flat_line=DEFAULTS["air_pressure"].flat_line,
            rate_of_change=DEFAULTS["air_pressure"].rate_of_change,
            gap=GAP,
            level_shift=DEFAULTS["air_pressure"].level_shift,
        ),
        ("air_pressure_at_sea_level", "air_pressure_at_mean_sea_level"),
    ),
    "precipitation": QuantityKind(
        ("mm", "kg m-2"),
        VariableTests(gross_range=_PRECIPITATION, gap=GAP, faulty_zeros=FaultyZeros(of="amount")),
        (
            "lwe_thickness_of_precipitation_amount",
            "precipitation_amount",
            "rainfall_amount",
            "thickness_of_rainfall_amount",
            "thickness_of_precipitation_amount",
            "thickness_of_convective_precipitation_amount",
            "lwe_thickness_of_snowfall_amount",
            "snowfall_amount",
        ),
    ),
    "precipitation_rate": QuantityKind(
        ("mm/h", "kg m-2 h-1"),
        # Half a millimetre in three hours, as for amounts.
        VariableTests(gross_range=_INTENSITY, gap=GAP, faulty_zeros=FaultyZeros(of="rate", wet=0.5 / 3.0)),
        (
            "precipitation_flux",
            "rainfall_flux",
            "rainfall_rate",
            "precipitation_rate",
            "lwe_precipitation_rate",
            "snowfall_flux",
            "lwe_snowfall_rate",
        ),
    ),
    "evaporation": QuantityKind(
        ("mm", "kg m-2"),
        # Dew amounts to some tenths of a millimetre a night; a wet surface evaporates about 1.5 mm an hour at most.
        VariableTests(gross_range=GrossRange((-2.0, 4.0), (-0.5, 2.0), interval_exponent=1.0), gap=GAP),
        ("lwe_thickness_of_water_evaporation_amount", "water_evapotranspiration_amount"),
    ),
    "reflected_radiation": QuantityKind(
        ("W m-2",),
        VariableTests(gross_range=_REFLECTED, gap=GAP),
        ("surface_upwelling_shortwave_flux_in_air", "upwelling_shortwave_flux_in_air"),
    ),
    "diffuse_radiation": QuantityKind(
        ("W m-2",),
        VariableTests(gross_range=_DIFFUSE, gap=GAP),
        (
            "surface_diffuse_downwelling_shortwave_flux_in_air",
            "diffuse_downwelling_shortwave_flux_in_air",
        ),
    ),
    "direct_radiation": QuantityKind(
        ("W m-2",),
        VariableTests(gross_range=_DIRECT, gap=GAP),
        ("surface_direct_along_beam_shortwave_flux_in_air",),
    ),
    "radiant_exposure": QuantityKind(
        ("J m-2",),
        # Limits of one hour's irradiance, integrated over the hour.
        VariableTests(
            gross_range=GrossRange(
                (-108e3, 7.2e6),
                (-36e3, 6.3e6),
                interval_exponent=1.0,
                sun=(SunLimit(1.2, 50.0, power=0.2), SunLimit(1.5, 100.0, power=0.2, flag="fail")),
            ),
            gap=GAP,
        ),
        ("integral_wrt_time_of_surface_downwelling_shortwave_flux_in_air",),
    ),
    "longwave_radiation": QuantityKind(
        ("W m-2",),
        VariableTests(
            gross_range=GrossRange((40.0, 700.0), (60.0, 500.0)),
            flat_line=FlatLine(hours=6.0, fail_hours=48.0, readings=24),
            gap=GAP,
        ),
        ("surface_downwelling_longwave_flux_in_air", "downwelling_longwave_flux_in_air"),
    ),
    "emitted_longwave_radiation": QuantityKind(
        ("W m-2",),
        _range((40.0, 900.0), (60.0, 700.0)),
        ("surface_upwelling_longwave_flux_in_air", "upwelling_longwave_flux_in_air"),
    ),
    "net_radiation": QuantityKind(
        ("W m-2",),
        _range((-400.0, 1600.0), (-250.0, 1200.0)),
        ("surface_net_downward_radiative_flux",),
    ),
    "sunshine_duration": QuantityKind(
        ("s",),
        VariableTests(gross_range=GrossRange((-1.0, 3636.0), interval_exponent=1.0), gap=GAP),
        ("duration_of_sunshine", "precipitation_duration", "rainfall_duration"),
    ),
    "dew_point_temperature": QuantityKind(
        ("degC",),
        VariableTests(
            # 35 degC was measured at the Persian Gulf.
            gross_range=GrossRange((-100.0, 40.0), (-90.0, 36.0)),
            spike=Spike(suspect=6.0, fail=15.0, per_hour=8.0),
            flat_line=FlatLine(hours=6.0, fail_hours=24.0, readings=24),
            gap=GAP,
            level_shift=LevelShift(least_shift=0.5),
        ),
        ("dew_point_temperature",),
    ),
    "soil_temperature": QuantityKind(
        ("degC",),
        # Soil temperature is constant for weeks, at depth and while it freezes: no flat line. Snow on one site and not
        # on another, and soil that freezes later, cause real shifts of several kelvins for weeks: no level shift.
        VariableTests(
            gross_range=GrossRange((-70.0, 85.0), (-50.0, 75.0)), spike=Spike(suspect=3.0, fail=10.0, per_hour=4.0),
            gap=GAP,
        ),
        ("soil_temperature",),
    ),
    "ground_surface_temperature": QuantityKind(
        ("degC",),
        # Below snow it stays at 0 degC for months.
        VariableTests(
            gross_range=GrossRange((-70.0, 95.0), (-55.0, 80.0)), spike=Spike(suspect=7.0, fail=15.0, per_hour=10.0),
            gap=GAP,
        ),
    ),
    "water_temperature": QuantityKind(
        ("degC",),
        _range((-5.0, 60.0), (-2.5, 42.0)),
        ("water_temperature", "sea_water_temperature", "sea_surface_temperature"),
    ),
    "wind_gust": QuantityKind(
        ("m s-1",),
        # 113 m s-1 on Barrow Island, 1996. A squall is a single high reading: no spikes.
        VariableTests(
            gross_range=GrossRange((0.0, 130.0), (0.0, 90.0)),
            flat_line=FlatLine(hours=6.0, fail_hours=48.0, readings=24, exempt=(Exempt(most=0.5),)),
            gap=GAP,
        ),
        ("wind_speed_of_gust",),
    ),
    "snow_height": QuantityKind(
        ("m",),
        # 11.8 m on Mount Ibuki, 1927. Without snow, and in cold spells, it is constant.
        VariableTests(
            gross_range=GrossRange((-1.0, 20.0), (-0.2, 12.0)), spike=Spike(suspect=0.3, fail=1.5, per_hour=0.1),
            gap=GAP,
        ),
        ("surface_snow_thickness",),
    ),
    "snow_water_equivalent": QuantityKind(
        ("mm", "kg m-2"),
        _range((-50.0, 10_000.0), (-10.0, 5000.0)),
        ("lwe_thickness_of_surface_snow_amount", "surface_snow_amount"),
    ),
    "visibility": QuantityKind(("m",), _range((0.0, 400e3), (0.0, 250e3)), ("visibility_in_air",)),
    "cloud_base": QuantityKind(("m",), _range((-500.0, 30e3), (-500.0, 20e3)), ("cloud_base_altitude",)),
    "vapour_pressure": QuantityKind(
        ("kPa",), _range((0.0, 8.0), (0.0, 6.0)), ("water_vapor_partial_pressure_in_air",)
    ),
    "wind_to_direction": QuantityKind(("degree",), DEFAULTS["wind_direction"], ("wind_to_direction",)),
}  # fmt: skip

_OTHER_NAMES: Final = {name: ("precipitation", "precipitation_rate") for name in ("precipitation", "rain", "rainfall")}
"""Kinds by alternative variable names: an amount or a rate, depending on the unit."""
_BY_STANDARD_NAME: Final = {name: kind for kind in KINDS.values() for name in kind.standard_names}


def default_tests(variable: Variable) -> VariableTests:
    """Return a variable's default tests in its unit; none if kind or unit is unknown.

    Examples
    --------
    >>> rain = Variable("rr", "kg m-2 s-1", "precipitation_flux")
    >>> round(default_tests(rain).gross_range.fail[1] * 3600)
    520
    """
    if variable.unit in DIMENSIONLESS_TEXT:
        return VariableTests()
    for kind in _kinds_of(variable):
        for unit in kind.units:
            try:
                tests = kind.tests if variable.unit == unit else kind.tests.convert_units(unit, variable.unit)
            except InvalidUnit:
                # Another unit with the same number, or a variable that only shares the name of a kind.
                continue
            if variable.is_counter and variable.rollover is not None:
                return replace(tests, gross_range=GrossRange(fail=(0.0, variable.rollover)))
            return tests
    return VariableTests()


def _kinds_of(variable: Variable) -> list[QuantityKind]:
    """Return the candidate kinds of a variable, the most likely first; its unit decides."""
    if variable.is_counter:
        # Whatever its name: limits of precipitation in an interval do not apply to the content of a gauge.
        return [KINDS["rain_meter"]]
    named = [KINDS[name] for name in _OTHER_NAMES.get(variable.name, (variable.name,)) if name in KINDS]
    # A known variable keeps its own kind, whatever standard name a deployment gives it.
    by_standard_name = _BY_STANDARD_NAME.get(variable.standard_name or "")
    return named if variable.name in KNOWN_VARIABLES or by_standard_name is None else [by_standard_name, *named]
