"""Which tests a variable has where a deployment says nothing: for automatic weather stations on land."""

from collections.abc import Mapping
from typing import Final

from ingest.deployment.quality_settings import (
    SUN,
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
    RateOfChange,
    Spike,
    SunLimit,
    VariableTests,
)

GAP: Final = Gap()

_BANDS: Final = (
    # Latitudes [degree]; lowest and highest air temperature that is normal at sea level [degC], and how they change
    # with elevation [K/m]. Records that each must hold: -89.2 (Vostok, 3,488 m), -71 on the ice shelves, 19.8 (Signy);
    # -32.8 (Sarmiento); 48.9 (Rivadavia), 50.7 (Oodnadatta), -23 (Charlotte Pass, 1,755 m); -25 (Altiplano, 4,000 m);
    # -48 (Darlag, 3,968 m), 54.0 (Mitribah); -56 (Peter Sink, 2,500 m), 56.7 (Death Valley); -58 (Uvs Nuur), 49.6
    # (Lytton); -71 (Tomtor), 40 (Fort Smith); -69.6 (Klinck, 3,105 m), 37 (Khatanga).
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
    """Return what is normal by latitude and elevation, with bounds so much further down and up [K]."""
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
        # Air falls by some 15 K within minutes where a front or a downburst passes.
        rate_of_change=RateOfChange(suspect=12.0, fail=20.0, per_hour=12.0),
        gap=GAP,
        # A lapse of 6.5 K in a kilometre; pools of cold air and the sun's side of a valley make 6 K between neighbours.
        # The outflow of a cloudburst makes 10 K and more between a station and all of its neighbours for some minutes.
        buddy_check=BuddyCheck(least_spread=2.0, per_m=-0.0065, threshold=6.0),
        level_shift=LevelShift(least_shift=0.3),
    ),
    "surface_temperature": VariableTests(
        gross_range=GrossRange(fail=(-100.0, 95.0), suspect=(-95.0, 82.0)),
        # A surface that radiates is some kelvins colder than the air; bare ground in the sun hotter by 40.
        climatology=_by_latitude(-8.0, 40.0),
        spike=Spike(suspect=7.0, fail=15.0, per_hour=10.0),
        # Snow that melts stays at 0 degC.
        flat_line=FlatLine(hours=4.0, fail_hours=24.0, readings=24, exempt=(Exempt(least=-0.5, most=0.5),)),
        rate_of_change=RateOfChange(suspect=20.0, fail=40.0, per_hour=30.0),
        gap=GAP,
    ),
    "solar_radiation": VariableTests(
        # A pyranometer loses 4 W m-2 to a clear night sky, 10 where nothing blows on its dome; the edges of clouds add
        # to the sun. At the zenith these are BSRN's limits, extremely rare and physically possible; below it with the
        # exponent of the direct beam, for many an instrument stands parallel to a slope that faces the sun.
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
        # A wood of fir or a gust of dry air changes half of it within minutes: only what is alone stands out.
        spike=Spike(suspect=20.0, fail=40.0, per_hour=60.0),
        # Saturated: sensors end between 95 and 104 %, as their errors are of 5 % there.
        flat_line=FlatLine(hours=5.0, fail_hours=24.0, readings=24, exempt=(Exempt(least=95.0),)),
        rate_of_change=RateOfChange(suspect=40.0, per_hour=60.0),
        gap=GAP,
        level_shift=LevelShift(least_shift=3.0),
    ),
    "soil_moisture": VariableTests(
        gross_range=GrossRange(fail=(-1.0, 100.0), suspect=(0.0, 80.0)),
        spike=Spike(suspect=4.0, fail=8.0, per_hour=2.0),
        # Soil dries by less than a probe resolves in half a day; plateaus of the International Soil Moisture Network
        # are of 12 hours at least (Dorigo and others 2013, Vadose Zone J. 12). Frozen soil keeps what it has; the
        # surface tells of frost where the soil's own temperature is not measured.
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
    # A dry gauge stands still for weeks: no flat line.
    # Falls near zero are resets; smaller ones the noise of weighing gauges, which queries balance.
    "rain_meter": VariableTests(
        gross_range=GrossRange(fail=(0.0, 20_000.0)),
        gap=GAP,
        faulty_zeros=FaultyZeros(of="counter"),
        counter_fall=CounterFall(least=0.5, near_zero=2.0),
    ),
    "wind_speed": VariableTests(
        gross_range=GrossRange(fail=(0.0, 115.0), suspect=(0.0, 75.0)),
        spike=Spike(suspect=9.0, fail=20.0, per_hour=10.0),
        # Calm, below what starts an anemometer.
        flat_line=FlatLine(hours=6.0, fail_hours=48.0, readings=24, exempt=(Exempt(most=0.5),)),
        gap=GAP,
    ),
    "wind_direction": VariableTests(
        gross_range=GrossRange(fail=(0.0, 360.0)),
        # A vane stands where the last wind left it.
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
"""By variable of `hypergrid.core.units`, in its unit there."""
