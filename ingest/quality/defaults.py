"""Which tests a variable has where a deployment says nothing: for automatic weather stations on land."""

from collections.abc import Mapping
from typing import Final

from ingest.quality.settings import (
    SUN,
    BuddyCheck,
    CounterFall,
    Exempt,
    FlatLine,
    Gap,
    GrossRange,
    RateOfChange,
    Spike,
    VariableTests,
)

_GAP: Final = Gap()

DEFAULTS: Final[Mapping[str, VariableTests]] = {
    "air_temperature": VariableTests(
        # The records of the earth are -89.2 and 56.7 degC.
        gross_range=GrossRange(fail=(-90.0, 60.0), suspect=(-60.0, 50.0)),
        spike=Spike(suspect=3.0, fail=6.0, per_hour=4.0),
        flat_line=FlatLine(hours=4.0, fail_hours=24.0, readings=24),
        rate_of_change=RateOfChange(suspect=8.0, fail=15.0, per_hour=12.0),
        gap=_GAP,
        # A lapse of 6.5 K in a kilometre; pools of cold air and the sun's side of a valley make 6 K between neighbours.
        buddy_check=BuddyCheck(least_spread=2.0, per_m=-0.0065, threshold=4.0),
    ),
    "surface_temperature": VariableTests(
        gross_range=GrossRange(fail=(-90.0, 95.0), suspect=(-70.0, 80.0)),
        spike=Spike(suspect=7.0, fail=15.0, per_hour=10.0),
        # Snow that melts stays at 0 degC.
        flat_line=FlatLine(hours=4.0, fail_hours=24.0, readings=24, exempt=(Exempt(least=-0.5, most=0.5),)),
        rate_of_change=RateOfChange(suspect=20.0, fail=40.0, per_hour=30.0),
        gap=_GAP,
    ),
    "solar_radiation": VariableTests(
        # Up to 20 W m-2 below 0 is what a pyranometer loses to a clear sky; the edges of clouds add to the sun.
        gross_range=GrossRange(fail=(-50.0, 2000.0), suspect=(-25.0, 1600.0)),
        flat_line=FlatLine(hours=3.0, fail_hours=24.0, readings=24, exempt=(Exempt(SUN, most=5.0),)),
        gap=_GAP,
    ),
    "relative_humidity": VariableTests(
        gross_range=GrossRange(fail=(-2.0, 110.0), suspect=(0.0, 105.0)),
        # A wood of fir or a gust of dry air changes half of it within minutes: only what is alone stands out.
        spike=Spike(suspect=20.0, fail=40.0, per_hour=60.0),
        # Saturated: sensors end between 98 and 104 %.
        flat_line=FlatLine(hours=5.0, fail_hours=24.0, readings=24, exempt=(Exempt(least=98.0),)),
        rate_of_change=RateOfChange(suspect=40.0, per_hour=60.0),
        gap=_GAP,
    ),
    "soil_moisture": VariableTests(
        gross_range=GrossRange(fail=(-1.0, 100.0), suspect=(0.0, 80.0)),
        spike=Spike(suspect=4.0, fail=8.0, per_hour=2.0),
        # Frozen soil keeps what it has; the surface tells of frost where the soil's own temperature is not measured.
        flat_line=FlatLine(hours=6.0, fail_hours=72.0, readings=48, exempt=(Exempt("surface_temperature", most=-3.0),)),
        gap=_GAP,
    ),
    "watermark": VariableTests(
        gross_range=GrossRange(fail=(-1000.0, 1.0), suspect=(-300.0, 0.0)),
        spike=Spike(suspect=20.0, fail=60.0, per_hour=20.0),
        gap=_GAP,
    ),
    # A dry gauge stands still for weeks: no flat line.
    # Falls near zero are resets; smaller ones the noise of weighing gauges, which queries balance.
    "rain_meter": VariableTests(
        gross_range=GrossRange(fail=(0.0, 20_000.0)),
        gap=_GAP,
        counter_fall=CounterFall(least=0.5, near_zero=2.0),
    ),
    "wind_speed": VariableTests(
        gross_range=GrossRange(fail=(0.0, 115.0), suspect=(0.0, 75.0)),
        spike=Spike(suspect=9.0, fail=20.0, per_hour=10.0),
        # Calm, below what starts an anemometer.
        flat_line=FlatLine(hours=6.0, fail_hours=48.0, readings=24, exempt=(Exempt(most=0.5),)),
        gap=_GAP,
    ),
    "wind_direction": VariableTests(
        gross_range=GrossRange(fail=(0.0, 360.0)),
        # A vane stands where the last wind left it.
        flat_line=FlatLine(hours=8.0, fail_hours=48.0, readings=24, exempt=(Exempt("wind_speed", most=0.5),)),
        gap=_GAP,
    ),
    "air_pressure": VariableTests(
        gross_range=GrossRange(fail=(30.0, 110.0), suspect=(45.0, 108.5)),
        spike=Spike(suspect=0.3, fail=1.0, per_hour=0.2),
        flat_line=FlatLine(hours=12.0, fail_hours=48.0, readings=48),
        rate_of_change=RateOfChange(suspect=0.5, fail=2.0, per_hour=0.6),
        gap=_GAP,
    ),
}
"""By variable of `hypergrid.units`, in its unit there."""
