"""Where the sun stands, the clear sky, and the share of it."""

import numpy as np
import pytest

from hypergrid.physics import sun

HOUR_NS = 3_600 * 10**9


def instant(text: str) -> np.ndarray:
    return np.array([np.datetime64(text, "ns")]).astype(np.int64)


def elevation_degree(text: str, lon: float, lat: float) -> float:
    return float(np.degrees(np.arcsin(sun.sun(instant(text)).sine(np.array([lon]), np.array([lat]))[0, 0])))


def test_agrees_with_the_published_example_of_a_finer_algorithm() -> None:
    # Reda and Andreas 2008 (NREL/TP-560-34302), table A5.1: topocentric elevation without refraction.
    assert elevation_degree("2003-10-17T19:30:30", -105.1786, 39.742476) == pytest.approx(39.872046, abs=0.01)


@pytest.mark.parametrize(
    ("when", "lat", "expected"),
    [
        ("2007-06-21T12:01:45", 66.0, 90.0 - 66.0 + 23.44),  # solstice, at noon of the sun
        ("2007-12-22T11:58:20", 46.0, 90.0 - 46.0 - 23.44),
        ("2007-03-21T12:07:20", 0.0, 90.0 - 0.2),  # half a day after the equinox
    ],
)
def test_noon_elevations(when: str, lat: float, expected: float) -> None:
    assert elevation_degree(when, 0.0, lat) == pytest.approx(expected, abs=0.1)


def test_a_place_elsewhere_sees_the_same_sun_at_another_hour() -> None:
    assert elevation_degree("2007-10-01T06:00", 90.0, 45.0) == pytest.approx(
        elevation_degree("2007-10-01T12:00", 0.0, 45.0), abs=0.15
    )


def test_the_clear_sky_is_dark_at_night_and_bright_on_mountains() -> None:
    sine = np.sin(np.radians([[-10.0, 0.0, 30.0, 90.0]]))
    above = np.array([sun.SOLAR_CONSTANT_W_M2])
    low = sun.clear_sky(sine, np.zeros(4), above)[0]
    high = sun.clear_sky(sine, np.full(4, 2500.0), above)[0]
    assert low[:2].tolist() == high[:2].tolist() == [0.0, 0.0]
    assert (high[2:] > low[2:]).all()
    assert (high < above[0]).all()
    # Equation 8 under the zenith at sea level, where the air mass is one: 0.868 I exp(-0.0387 TL).
    assert low[3] == pytest.approx(0.868 * 1361.0 * np.exp(-0.0387 * 3.0), rel=2e-3)
    assert sun.clear_sky(sine, np.zeros(4), above, turbidity=5.0)[0, 3] < low[3]


def test_long_cells_hold_the_mean_of_their_parts() -> None:
    starts = instant("2007-10-01T00:00") + np.arange(24) * HOUR_NS
    place = {"lon": np.array([7.0]), "lat": np.array([46.0]), "elevation_m": np.array([2000.0])}
    hours = sun.clear_sky_of_cells(starts, HOUR_NS, **place, turbidity=3.0)
    day = sun.clear_sky_of_cells(starts[:1], 24 * HOUR_NS, **place, turbidity=3.0)
    assert day[0, 0] == pytest.approx(hours.mean(), rel=1e-12)
    assert hours[0, 0] == 0.0
    assert hours[11, 0] > 500.0


def test_a_cell_is_the_same_whichever_are_asked_for_with_it() -> None:
    starts, place = instant("2007-10-01T00:00") + np.arange(3) * 7 * HOUR_NS, (np.array([7.0]), np.array([46.0]))
    lengths = np.array([HOUR_NS // 2, 7 * HOUR_NS, 30 * HOUR_NS])
    together = sun.clear_sky_of_cells(starts, lengths, *place, np.zeros(1), turbidity=3.0)
    for cell in range(3):
        alone = sun.clear_sky_of_cells(starts[cell : cell + 1], int(lengths[cell]), *place, np.zeros(1), turbidity=3.0)
        assert together[cell] == pytest.approx(alone[0], rel=1e-14)


def test_an_instant_is_a_cell_without_length() -> None:
    noon, place = instant("2007-10-01T11:30"), (np.array([7.0]), np.array([46.0]))
    now = sun.sun(noon)
    point = sun.clear_sky_of_cells(noon, 0, *place, np.zeros(1), turbidity=3.0)
    assert point == pytest.approx(sun.clear_sky(now.sine(*place), np.zeros(1), now.irradiance_w_m2))


def test_radiation_comes_back_from_its_share_and_nights_are_dark() -> None:
    clear = np.array([0.0, 0.0, 20.0, 700.0])
    read = np.array([0.0, 4.0, 15.0, 300.0])
    assert sun.from_clear_sky_index(sun.clear_sky_index(read, clear), clear).tolist() == pytest.approx([0, 0, 15, 300])
    # Under a sun that has just risen a reading of the stray light of the terrain is no share of five.
    assert sun.clear_sky_index(np.array([10.0]), np.array([2.0]))[0] < 1.3
    assert sun.from_clear_sky_index(np.array([0.0, np.nan]), np.array([50.0, 50.0])).tolist()[0] == 0.0
    assert np.isnan(sun.from_clear_sky_index(np.array([np.nan, np.nan]), np.array([50.0, 0.0]))).all()
    # Where a station has no position nobody knows whether it is night.
    assert np.isnan(sun.from_clear_sky_index(np.array([0.7]), np.array([np.nan]))).all()
