"""Limits by place and time: temperature by latitude and elevation, pressure by elevation, radiation by the sun."""

from dataclasses import replace

import numpy as np
import pytest

from hypergrid.core.flags import FAIL, GOOD, SUSPECT
from hypergrid.core.readings import Position, Readings, Series, Stamp, Station, Statistic
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from hypergrid.physics.sun import clear_sky_of_cells, sun
from ingest.deployment.quality_overrides import default_tests
from ingest.deployment.quality_settings import Climatology, Normal, VariableTests
from ingest.quality.flagging import places_of
from ingest.quality.run_tests import judge

NAN = float("nan")
AIR, PRESSURE = KNOWN_VARIABLES["air_temperature"], KNOWN_VARIABLES["air_pressure"]
SUN = KNOWN_VARIABLES["solar_radiation"]


def flags(
    variable: Variable,
    value: "list[float] | np.ndarray",
    site: tuple[float, float, float],
    *,
    stamps: "np.ndarray | None" = None,
    statistic: Statistic = "sample",
    interval_s: float = 0.0,
    stamp: Stamp = "instant",
    tests: VariableTests | None = None,
) -> list[int]:
    """Return the flags of values a day apart, which no test along the series compares."""
    size = len(value)
    if stamps is None:
        stamps = np.datetime64("2020-01-15T12:00", "ns").astype(np.int64) + np.arange(size) * 86_400 * 10**9
    series = Series(variable.name, "a", statistic=statistic, interval_s=interval_s, stamp=stamp)
    flag = np.full(size, 2, np.uint8)
    readings = Readings((series,), np.zeros(size, np.int32), stamps, np.asarray(value, np.float64), flag, stamps)
    places = places_of((series,), {"a": Station("a", "a", (Position(None, *site),))})
    return judge(readings, default_tests(variable) if tests is None else tests, places, {}).flag.tolist()


@pytest.mark.parametrize(
    ("site", "value", "flag"),
    [
        ((166.7, -77.8, 24.0), -60.5, GOOD),  # McMurdo and the ice shelves beside it
        ((170.0, -80.0, 50.0), -71.0, GOOD),
        ((106.8, -78.5, 3488.0), -89.2, GOOD),  # Vostok, the record of the earth
        ((0.0, -90.0, 2835.0), -82.8, GOOD),
        ((0.0, -90.0, 2835.0), 30.0, SUSPECT),
        ((-116.9, 36.5, -59.0), 56.7, GOOD),  # Death Valley
        ((143.1, 63.3, 740.0), -67.7, GOOD),  # Oymyakon
        ((-38.5, 72.3, 3105.0), -69.6, GOOD),  # Klinck
        ((-121.6, 50.2, 229.0), 49.6, GOOD),  # Lytton
        ((7.2, 45.9, 2500.0), 45.0, SUSPECT),  # no pass in the Alps is as hot
        ((5.2, 52.1, 2.0), -65.0, SUSPECT),
        ((-60.0, -3.0, 60.0), -20.0, SUSPECT),  # the Amazon
        ((-67.0, -21.0, 4100.0), -30.0, GOOD),  # the Altiplano
        ((-67.0, -21.0, NAN), -30.0, GOOD),  # of unknown elevation
        ((NAN, NAN, NAN), -71.0, GOOD),
        ((5.2, 52.1, 2.0), 99.0, FAIL),
        ((NAN, NAN, NAN), -99.0, FAIL),
    ],
)
def test_air_temperature_goes_by_latitude_and_elevation(
    site: tuple[float, float, float], value: float, flag: int
) -> None:
    assert flags(AIR, [value], site) == [flag]


@pytest.mark.parametrize(
    ("elevation_m", "value", "flag"),
    [
        (0.0, 101.3, GOOD),
        (0.0, 89.2, SUSPECT),  # the Labor Day hurricane
        (0.0, 80.0, SUSPECT),
        (2500.0, 101.3, SUSPECT),  # reduced to sea level, in spite of its name
        (2500.0, 75.0, GOOD),
        (2835.0, 64.1, GOOD),  # the lowest of the South Pole
        (8848.0, 33.5, GOOD),
        (8848.0, 60.0, SUSPECT),
        (NAN, 60.0, GOOD),
        (0.0, 200.0, FAIL),
    ],
)
def test_air_pressure_goes_by_elevation(elevation_m: float, value: float, flag: int) -> None:
    assert flags(PRESSURE, [value], (8.0, 46.0, elevation_m)) == [flag]
    hectopascals = Variable("air_pressure", "hPa")
    assert flags(hectopascals, [value * 10], (8.0, 46.0, elevation_m)) == [flag]


def test_months_heights_and_places_meet() -> None:
    normal = (
        Normal(suspect=(-10.0, 30.0)),
        Normal(months=(1, 2), suspect=(-30.0, 10.0), lat=(40.0, 50.0), elevation_m=(1000.0, 3000.0)),
    )
    tests = VariableTests(climatology=Climatology(normal))
    stamps = np.array(["2020-01-15", "2020-06-15"], "datetime64[ns]").astype(np.int64)
    assert flags(AIR, [20.0, 20.0], (8.0, 46.0, 2000.0), stamps=stamps, tests=tests) == [SUSPECT, GOOD]
    assert flags(AIR, [20.0, 20.0], (8.0, 46.0, 500.0), stamps=stamps, tests=tests) == [GOOD, GOOD]
    assert flags(AIR, [20.0, 20.0], (8.0, NAN, 2000.0), stamps=stamps, tests=tests) == [GOOD, GOOD]


SITES = [(5.2, 52.1, 2.0), (-68.3, 12.1, 3.0), (11.4, 47.3, 1921.0), (0.0, -75.0, 30.0)]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(("statistic", "interval_s", "stamp"), [
    ("sample", 600.0, "instant"), ("mean", 600.0, "end"), ("mean", 3600.0, "start"), ("mean", 86_400.0, "end"),
])  # fmt: skip
def test_no_clear_sky_is_beyond_what_the_sun_allows(
    site: tuple[float, float, float], statistic: Statistic, interval_s: float, stamp: Stamp
) -> None:
    day = np.datetime64("2020-01-01", "ns").astype(np.int64)
    stamps = day + np.arange(0, 366 * 24 * 6, 37) * 600 * 10**9
    length_ns = 0 if statistic == "sample" else round(interval_s * 1e9)
    begin = stamps - length_ns if stamp == "end" else stamps
    sky = clear_sky_of_cells(begin, length_ns, *(np.array([one]) for one in site), turbidity=2.0)[:, 0]
    tests = VariableTests(gross_range=default_tests(SUN).gross_range)
    given = {"stamps": stamps, "statistic": statistic, "interval_s": interval_s, "stamp": stamp, "tests": tests}
    assert set(flags(SUN, 1.1 * sky - 4.0, site, **given)) == {GOOD}
    # Amounts of the same, in megajoules.
    if statistic == "mean":
        energy = Variable("exposure", "MJ m-2", "integral_wrt_time_of_surface_downwelling_shortwave_flux_in_air")
        given |= {"statistic": "total", "tests": VariableTests(gross_range=default_tests(energy).gross_range)}
        assert set(flags(energy, sky * interval_s / 1e6, site, **given)) == {GOOD}
        assert set(flags(energy, sky * interval_s / 1e6 + 1700 * interval_s / 1e6, site, **given)) <= {SUSPECT, FAIL}


def _on_slopes(stamps: np.ndarray, site: tuple[float, float, float], seed: int, count: int) -> np.ndarray:
    """Return clear skies on instruments parallel to drawn slopes of up to 45 degrees [W m-2], shape (slopes, time).

    Beam by Meinel's formula (A. B. and M. P. Meinel 1976), a tenth of it from the sky; above fresh snow.
    """
    rng = np.random.default_rng([seed, 47])
    slope, aspect = np.radians(rng.uniform(0.0, 45.0, count)), rng.uniform(0.0, 2.0 * np.pi, count)
    east, north = np.radians(site[0]), np.radians(site[1])
    now = sun(stamps)
    up = np.array([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)])
    to_east = np.array([-np.sin(east), np.cos(east), 0.0])
    x, y, z = now.directions @ to_east, now.directions @ np.cross(up, to_east), now.directions @ up
    mass = 1.0 / np.maximum(z, 0.01)
    beam = np.where(z > 0.0, now.irradiance_w_m2 * 0.7 ** (mass**0.678), 0.0)
    facing = np.sin(slope)[:, None] * (np.sin(aspect)[:, None] * x + np.cos(aspect)[:, None] * y)
    facing = np.maximum(facing + np.cos(slope)[:, None] * z, 0.0)
    level = beam * np.maximum(z, 0.0) + 0.1 * beam
    view = 0.5 * (1.0 + np.cos(slope))[:, None]
    return beam * facing + 0.1 * beam * view + 0.8 * level * (1.0 - view)


def test_instruments_on_slopes_are_good_by_default_and_not_by_limits_of_level_ones() -> None:
    """A third of these slopes, of a seed on which nothing was chosen, is beyond the limits of level instruments."""
    site, size = (11.4, 47.3, 1921.0), 4 * 144
    stamps = np.concatenate([
        np.datetime64(f"2021-{month}-10", "ns").astype(np.int64) + np.arange(144) * 600 * 10**9
        for month in ("01", "03", "06", "10")
    ])  # fmt: skip
    sky = _on_slopes(stamps, site, 611, 40)
    suspect, fail = default_tests(SUN).gross_range.sun
    strict = replace(default_tests(SUN).gross_range, sun=(replace(suspect, power=1.2), replace(fail, power=1.2)))
    series = tuple(Series("solar_radiation", str(n)) for n in range(40))
    places = places_of(series, {str(n): Station(str(n), "", (Position(None, *site),)) for n in range(40)})
    bad = {}
    for name, limits in (("default", default_tests(SUN).gross_range), ("level", strict)):
        index, all_stamps = np.repeat(np.arange(40, dtype=np.int32), size), np.tile(stamps, 40)
        readings = Readings(series, index, all_stamps, sky.ravel(), np.full(sky.size, 2, np.uint8), all_stamps)
        bad[name] = judge(readings, VariableTests(gross_range=limits), places, {}).flag != GOOD
    assert not bad["default"].any()
    assert bad["level"].reshape(sky.shape).any(axis=1).mean() > 0.1


@pytest.mark.parametrize(("late_min", "flagged"), [(-14, False), (14, False), (90, True), (-90, True)])
def test_clocks_within_a_quarter_of_an_hour_are_let_alone_at_dusk(late_min: int, *, flagged: bool) -> None:
    site = (11.4, 47.3, 1921.0)
    day = np.datetime64("2021-06-21", "ns").astype(np.int64)
    stamps = day + np.arange(0, 10 * 144) * 600 * 10**9
    sky = clear_sky_of_cells(stamps, 0, *(np.array([one]) for one in site), turbidity=2.0)[:, 0]
    tests = VariableTests(gross_range=default_tests(SUN).gross_range)
    found = flags(SUN, sky, site, stamps=stamps + late_min * 60 * 10**9, tests=tests)
    assert (max(found) > GOOD) == flagged


def test_radiation_of_the_night_and_beyond_the_sun_is_flagged() -> None:
    stamps = np.array(
        ["2020-12-21T00:00", "2020-12-21T00:00", "2020-12-21T00:00", "2020-12-21T11:40"], "datetime64[ns]"
    )
    site = (5.2, 52.1, 2.0)
    for value, expected in ((0.0, GOOD), (-8.0, GOOD), (-15.0, SUSPECT), (-40.0, FAIL), (70.0, SUSPECT), (300.0, FAIL)):
        assert flags(SUN, [value], site, stamps=stamps[:1].astype(np.int64)) == [expected], value
        assert flags(SUN, [value], (NAN, NAN, NAN), stamps=stamps[:1].astype(np.int64)) == [
            GOOD if value > 0 else expected
        ]
    noon = stamps[3:].astype(np.int64)
    top = float(sun(noon).irradiance_w_m2[0])
    sine = float(sun(noon).sine(np.array([5.2]), np.array([52.1]))[0, 0])
    for factor, offset, flag in ((1.2, 49.0, GOOD), (1.2, 60.0, SUSPECT), (1.5, 110.0, FAIL)):
        assert flags(SUN, [factor * top * sine**0.2 + offset], site, stamps=noon) == [flag]
