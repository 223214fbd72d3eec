"""The zone guard: clocks that are hours off are told, shade and clouds are not."""

import numpy as np
import pandas as pd
import pvlib
import pytest
from numpy.typing import NDArray

from hypergrid.core.clock_errors import ClockError
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.physics.sun import clear_sky, sun
from ingest.quality.temporal import HOUR_NS
from ingest.quality.zone import ZoneGuard, ZoneSuspicion, bound_clocks

Floats = NDArray[np.float64]
PLACES = {"alps": (7.2, 45.9, 2450.0), "tropics": (-68.3, 12.1, 5.0), "south": (174.8, -41.3, 120.0)}


def _radiation(
    place: tuple[float, float, float], seed: int, *, shade: tuple[float, float] = (0.0, 0.0), days: int = 12
) -> tuple[NDArray[np.int64], Floats]:
    """Ten-minute readings under passing clouds; terrain hides the sun up to some degrees in the morning and evening."""
    start = np.datetime64("2019-02-10", "ns").astype(np.int64)
    stamps = start + np.arange(days * 144) * 600 * 10**9
    now = sun(stamps)
    sine = now.sine(np.array([place[0]]), np.array([place[1]]))
    clear = clear_sky(sine, np.array([place[2]]), now.irradiance_w_m2)[:, 0]
    generator = np.random.default_rng(seed)
    clouds = np.repeat(generator.choice([1.0, 0.8, 0.35, 0.15], days * 12), 12)
    elevation = np.degrees(np.arcsin(sine[:, 0]))
    noon = (stamps % (24 * HOUR_NS)) / HOUR_NS + place[0] / 15.0
    hidden = elevation < np.where(noon % 24 < 12.0, *shade)
    value = clear * clouds * np.where(hidden, 0.12, 1.0) * (1.0 + 0.03 * generator.normal(size=len(stamps)))
    return stamps, np.round(np.maximum(value, 0.0) + generator.normal(0.0, 1.0, len(stamps)), 1)


def _told(stamps: NDArray[np.int64], value: Floats, place: tuple[float, float, float]) -> list[ZoneSuspicion]:
    guard = ZoneGuard()
    # In two pieces, as they come.
    for part in (slice(0, 500), slice(500, None)):
        size = len(stamps[part])
        flag = np.full(size, 2, np.uint8)
        series = (Series("solar_radiation", "7"),)
        guard.add(Readings(series, np.zeros(size, np.int32), stamps[part], value[part], flag, stamps[part]))
    return guard.suspicions({"7": Station("7", "7", (Position(None, *place),))})


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shift_h", [-9.0, -2.0, 2.0, 5.5, 12.0])
def test_a_clock_that_is_off_is_told_with_its_hours(place: str, shift_h: float) -> None:
    stamps, value = _radiation(PLACES[place], 1)
    [found] = _told(stamps + round(shift_h * HOUR_NS), value, PLACES[place])
    # A whole day is told by no sun; a half hour is told as one of the hours beside it.
    assert abs((found.shift_h - shift_h + 12.0) % 24.0 - 12.0) == (0.0 if shift_h.is_integer() else 0.5)
    assert f'"7" = {-found.shift_h:g} under [quality.clock_shift_h]' in found.describe()
    assert f'"7" = {found.bound_s:g} under [quality.clock_error_s]' in found.describe()
    assert found.bound_s / 3600 > abs((shift_h + 12.0) % 24.0 - 12.0)
    assert bound_clocks([found], {}) == {"7": (ClockError(None, found.bound_s),)}
    assert bound_clocks([found], {"7": ()}) == {}
    assert abs((found.noon_h - shift_h + 12.0) % 24.0 - 12.0) < 1.0


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shade", [(0.0, 0.0), (25.0, 0.0), (0.0, 25.0), (20.0, 20.0)])
def test_shade_and_clouds_are_no_wrong_clock(place: str, shade: tuple[float, float]) -> None:
    for seed in range(4):
        assert _told(*_radiation(PLACES[place], seed, shade=shade), PLACES[place]) == []


def test_a_wrong_clock_in_a_shaded_valley_is_told_within_an_hour() -> None:
    for shade in ((15.0, 5.0), (5.0, 15.0)):
        stamps, value = _radiation(PLACES["alps"], 2, shade=shade)
        [found] = _told(stamps + 3 * HOUR_NS, value, PLACES["alps"])
        assert abs(found.shift_h - 3.0) <= 1.0


def test_nothing_is_told_of_what_no_clock_explains() -> None:
    stamps, value = _radiation(PLACES["alps"], 1)
    nights = np.random.default_rng(1).uniform(0.0, 800.0, len(stamps))
    assert _told(stamps, nights, PLACES["alps"]) == []
    # Nor without a position, nor of a single day.
    assert _told(stamps + 2 * HOUR_NS, value, (float("nan"), 45.0, 0.0)) == []
    assert _told(stamps[:140] + 2 * HOUR_NS, value[:140], PLACES["alps"]) == []


@pytest.mark.parametrize("place", PLACES)
def test_the_sun_is_where_pvlib_has_it(place: str) -> None:
    lon, lat, elevation_m = PLACES[place]
    stamps = np.datetime64("2019-02-10", "ns").astype(np.int64) + np.arange(400) * 1801 * 10**9
    theirs = pvlib.solarposition.get_solarposition(pd.DatetimeIndex(stamps, tz="UTC"), lat, lon, elevation_m)
    ours = np.degrees(np.arcsin(sun(stamps).sine(np.array([lon]), np.array([lat]))[:, 0]))
    np.testing.assert_allclose(ours, theirs["elevation"].to_numpy(), atol=0.02)
