"""Which default tests a variable has: by its name, or by the CF standard name that it is declared with.

A kind serves every variable that measures what it is of, whatever that is called in a network and in whichever unit it
is kept. Limits of single values are records of the earth with something to spare; where no source is named they are
what the instruments of automatic stations can say at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hypergrid.core.errors import InvalidUnit
from hypergrid.core.units import DIMENSIONLESS_TEXT, KNOWN_VARIABLES, Variable
from ingest.deployment.quality_defaults import DEFAULTS, GAP
from ingest.deployment.quality_settings import (
    Exempt,
    FaultyZeros,
    FlatLine,
    GrossRange,
    LevelShift,
    Spike,
    SunLimit,
    VariableTests,
)


@dataclass(frozen=True)
class QuantityKind:
    """A kind of quantity, and its tests."""

    units: tuple[str, ...]
    """Units of the same number: of water a millimetre is a kilogram on a square metre."""
    tests: VariableTests
    standard_names: tuple[str, ...] = ()
    """CF standard names of it."""


def _range(fail: tuple[float, float], suspect: tuple[float, float] | None = None) -> VariableTests:
    return VariableTests(gross_range=GrossRange(fail, suspect), gap=GAP)


_PRECIPITATION: Final = GrossRange(
    # All records of WMO's archive (126 mm in 8 minutes, 305 mm in 42, 1,825 mm in a day, 4,936 mm in four, 26.5 m in a
    # year) lie below 520 mm times the root of the hours, as R. L. Jennings' envelope of 1950 had it with 422 mm and
    # 0.475. Differences of a weighing gauge are a little below zero at times; to leave these alone out would bias sums.
    fail=(-1.0, 520.0), suspect=(-0.2, 260.0), interval_exponent=0.5,
)  # fmt: skip
_INTENSITY: Final = GrossRange(_PRECIPITATION.fail, _PRECIPITATION.suspect, interval_exponent=-0.5)
"""The same envelope as means over an interval."""

# Limits of BSRN: extremely rare, physically possible (C. N. Long and E. G. Dutton 2002); where the beam falls on an
# instrument that may stand parallel to a slope, or on one, with the exponent of the direct beam.
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
        # Half a millimetre in three hours, as of amounts.
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
        # Dew condenses some tenths of a millimetre in a night; a wet surface evaporates some 1.5 mm an hour at most.
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
        # What the limits of an hour's irradiance make in an hour.
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
        # Soil stays the same for weeks, at depth and where it freezes: no flat line. Snow on one site and none on
        # another, and soil that freezes later, make true shifts of several kelvins for weeks: no shifts of level.
        VariableTests(
            gross_range=GrossRange((-70.0, 85.0), (-50.0, 75.0)), spike=Spike(suspect=3.0, fail=10.0, per_hour=4.0),
            gap=GAP,
        ),
        ("soil_temperature",),
    ),
    "ground_surface_temperature": QuantityKind(
        ("degC",),
        # Below snow it is 0 degC for months.
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
        # 113 m s-1 on Barrow Island, 1996. A squall is one reading high: no spikes.
        VariableTests(
            gross_range=GrossRange((0.0, 130.0), (0.0, 90.0)),
            flat_line=FlatLine(hours=6.0, fail_hours=48.0, readings=24, exempt=(Exempt(most=0.5),)),
            gap=GAP,
        ),
        ("wind_speed_of_gust",),
    ),
    "snow_height": QuantityKind(
        ("m",),
        # 11.8 m on Mount Ibuki, 1927. Without snow, and in cold spells, it stands still.
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
"""By name of a variable."""

_OTHER_NAMES: Final = {name: ("precipitation", "precipitation_rate") for name in ("precipitation", "rain", "rainfall")}
"""Kinds by further names of a variable: an amount or a rate, as its unit says."""
_BY_STANDARD_NAME: Final = {name: kind for kind in KINDS.values() for name in kind.standard_names}


def default_tests(variable: Variable) -> VariableTests:
    """Return the default tests of a variable, in its unit: none where its kind or its unit is not known.

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
                # Of another unit that is the same number, or of the name of a kind, and something else.
                continue
            if variable.is_counter and variable.rollover is not None:
                return replace(tests, gross_range=GrossRange(fail=(0.0, variable.rollover)))
            return tests
    return VariableTests()


def _kinds_of(variable: Variable) -> list[QuantityKind]:
    """Return the kinds that a variable may be of, the likeliest first; its unit decides."""
    if variable.is_counter:
        # Whatever it is called: the content of a gauge is held against no limit of what falls in an interval.
        return [KINDS["rain_meter"]]
    named = [KINDS[name] for name in _OTHER_NAMES.get(variable.name, (variable.name,)) if name in KINDS]
    # A known variable keeps its own kind, whatever standard name a deployment gives it.
    by_standard_name = _BY_STANDARD_NAME.get(variable.standard_name or "")
    return named if variable.name in KNOWN_VARIABLES or by_standard_name is None else [by_standard_name, *named]
