"""Units and quantities as people read them."""

import math

import pytest

from hypergrid.core.units import format_quantity, unit_symbol


@pytest.mark.parametrize(
    ("unit", "shown"),
    [("degC", "°C"), ("W m-2", "W m⁻²"), ("m s-1", "m s⁻¹"), ("(degC)2", "(°C)²"), ("degree", "°"), ("%", "%"),
     ("unknown", "unknown"), ("mm/h", "mm/h"), ("K", "K")],
)  # fmt: skip
def test_units(unit: str, shown: str) -> None:
    assert unit_symbol(unit) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(-0.30000000000000004, "degC", "-0.3 °C"), (2494.0, "m", "2,494 m"), (1013.27, "hPa", "1,013.3 hPa"),
     (12.345, "m s-1", "12.3 m s⁻¹"), (0.000123456, "mm", "0.000123 mm"), (0.0, "%", "0 %"), (270.04, "degree", "270°"),
     (-0.0000001, "K", "-0.0000001 K"), (math.nan, "K", "nan")],
)  # fmt: skip
def test_quantities(value: float, unit: str, shown: str) -> None:
    assert format_quantity(value, unit) == shown
