"""Rows of physical functions: humidity, wind, radiation, rain."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, InvalidUnit
from hypergrid.core.parameters import Parameter
from hypergrid.core.units import DIMENSIONLESS_TEXT
from hypergrid.perspective.functions.rows import CONVERTS, MERGES, CellPlaces, ConvertRow, MergeRow, make_formula_unit
from hypergrid.physics import moisture, sun, wind

Floats = NDArray[np.float64]

WET_FROM_MM: Final = 0.1
"""Threshold of a wet interval: the resolution of most rain gauges [mm]."""

_TURBIDITY = Parameter("turbidity", "number", "Linke turbidity of the clear sky", required=False, default=sun.TURBIDITY)


TURBIDITIES: Final = (1.0, 20.0)
"""Range of Linke turbidities; 1 is air without water or dust."""


def _index_unit(unit: str, given: Mapping[str, Any]) -> str:
    # Values without a unit are accepted as W m-2.
    if unit != "W m-2" and unit not in DIMENSIONLESS_TEXT:
        raise InvalidUnit(
            f"clear_sky_index needs values in 'W m-2'; got {unit!r}; convert them with scale(factor=…, unit=…)"
        )
    _refuse_turbidity(given["turbidity"])
    return "1"


# Units are resolved before execution, so an invalid turbidity is refused early.
def _radiation_unit(_unit: str, given: Mapping[str, Any]) -> str:
    _refuse_turbidity(given["turbidity"])
    return "W m-2"


def _refuse_turbidity(turbidity: float) -> None:
    low, high = TURBIDITIES
    if not low <= turbidity <= high:
        raise InvalidQuery(f"a clear sky needs a Linke turbidity from {low:g} to {high:g}; got {turbidity:g}")


def _clear(given: Mapping[str, Any], where: CellPlaces) -> Floats:
    return sun.clear_sky_of_cells(
        where.start_ns, where.length_ns, where.lon, where.lat, where.elevation_m, turbidity=given["turbidity"]
    )


def _index(values: Floats, given: Mapping[str, Any], where: CellPlaces) -> Floats:
    return sun.clear_sky_index(values, _clear(given, where))


def _from_index(values: Floats, given: Mapping[str, Any], where: CellPlaces) -> Floats:
    return sun.from_clear_sky_index(values, _clear(given, where))


def _wet(values: Floats, given: Mapping[str, Any]) -> Floats:
    # NaN compares false and would become 0.
    return np.where(np.isnan(values), np.nan, (values >= given["threshold"]).astype(np.float64))


def _limit(values: Floats, given: Mapping[str, Any]) -> Floats:
    return np.clip(values, given["low"], given["high"])


_THRESHOLD = Parameter(
    "threshold", "number", "from which it is rain", unit="variable", required=False, default=WET_FROM_MM
)

for _name, _summary, _parameters, _apply, _unit, _placed in (
    (
        "limit",
        "Values below low become low, those above high become high.",
        (
            Parameter("low", "number", "least value", unit="variable"),
            Parameter("high", "number", "greatest value; none where absent", unit="variable", required=False),
        ),
        _limit,
        lambda unit, _: unit,
        False,
    ),
    (
        "clear_sky_index",
        "Global radiation over that of a clear sky, damped under a low sun.",
        (_TURBIDITY,),
        _index,
        _index_unit,
        True,
    ),
    (
        "from_clear_sky_index",
        "Global radiation from a damped clear-sky index; 0 at night.",
        (_TURBIDITY,),
        _from_index,
        _radiation_unit,
        True,
    ),
    ("wet", "1 where it rained, 0 where it did not.", (_THRESHOLD,), _wet, lambda _unit, _: "1", False),
):
    CONVERTS.add(_name, ConvertRow(_name, _summary, _parameters, _apply, _unit, _placed))


_HUMIDITY, _TEMPERATURE, _PRESSURE = ("relative humidity", "%"), ("air temperature", "degC"), ("air pressure", "kPa")
_DEW_POINT = ("dew point", "degC")
_SPEED_AND_DIRECTION = (("wind speed", "m s-1"), ("wind direction", "degree"))
_COMPONENTS = (("eastward wind", "m s-1"), ("northward wind", "m s-1"))

for _name, _summary, _formula, _takes, _result, _standard_name, _long_name in (
    (
        "dew_point",
        "Dew point from relative humidity and temperature.",
        moisture.dew_point,
        (_HUMIDITY, _TEMPERATURE),
        "degC",
        "dew_point_temperature",
        "Dew point",
    ),
    (
        "relative_humidity",
        "Relative humidity from dew point and temperature, at most 100 %.",
        moisture.relative_humidity,
        (_DEW_POINT, _TEMPERATURE),
        "%",
        "relative_humidity",
        "Relative humidity",
    ),
    (
        "vapour_pressure_deficit",
        "What the pressure of water vapour lacks to saturation, from temperature and relative humidity.",
        moisture.vapour_pressure_deficit,
        (_TEMPERATURE, _HUMIDITY),
        "kPa",
        "water_vapor_saturation_deficit_in_air",
        "Vapour pressure deficit",
    ),
    (
        "absolute_humidity",
        "Mass of water vapour in a volume of air, from temperature and relative humidity.",
        moisture.absolute_humidity,
        (_TEMPERATURE, _HUMIDITY),
        "g m-3",
        "mass_concentration_of_water_vapor_in_air",
        "Absolute humidity",
    ),
    (
        "specific_humidity",
        "Mass of water vapour in a mass of air, from temperature, relative humidity and pressure.",
        moisture.specific_humidity,
        (_TEMPERATURE, _HUMIDITY, _PRESSURE),
        "g kg-1",
        "specific_humidity",
        "Specific humidity",
    ),
    (
        "potential_temperature",
        "Temperature of the air when it is brought to 100 kPa, from temperature and pressure.",
        moisture.potential_temperature,
        (_TEMPERATURE, _PRESSURE),
        "K",
        "air_potential_temperature",
        "Potential temperature",
    ),
    (
        "eastward_wind",
        "Component towards the east, from speed and direction.",
        wind.eastward,
        _SPEED_AND_DIRECTION,
        "m s-1",
        "eastward_wind",
        "Eastward wind",
    ),
    (
        "northward_wind",
        "Component towards the north, from speed and direction.",
        wind.northward,
        _SPEED_AND_DIRECTION,
        "m s-1",
        "northward_wind",
        "Northward wind",
    ),
    (
        "wind_speed",
        "Speed from the components towards east and north.",
        wind.speed,
        _COMPONENTS,
        "m s-1",
        "wind_speed",
        "Wind speed",
    ),
    (
        "wind_direction",
        "Where the wind comes from, from the components towards east and north; missing in calm air.",
        wind.direction,
        _COMPONENTS,
        "degree",
        "wind_from_direction",
        "Wind direction",
    ),
):
    _roles, _units = tuple(role for role, _ in _takes), tuple(unit for _, unit in _takes)
    MERGES.add(
        _name,
        MergeRow(
            _name,
            _summary,
            _formula,
            make_formula_unit(_name, _roles, _units, _result),
            alike=False,
            takes=_units,
            matched=True,
            roles=_roles,
            long_name=_long_name,
            standard_name=_standard_name,
        ),
    )
