import numpy as np
import pytest

from station_data import sky
from station_data.network import stations
from station_data.terrain import CENTRE_LAT, CENTRE_LON, elevation
from station_data.truth import LAPSE_K_PER_M, VARIABLES, pool, truth, truth_mean

HOUR = np.timedelta64(1, "h")


def instants(start: str, stop: str, minutes: int = 10) -> np.ndarray:
    return np.arange(start, stop, np.timedelta64(minutes, "m"), dtype="datetime64[ns]")


@pytest.mark.parametrize("variable", VARIABLES)
def test_broadcasts_and_takes_both_forms_of_time(variable: str) -> None:
    time = instants("2007-10-01", "2007-10-02", 60)
    lon, lat = CENTRE_LON + np.linspace(-0.003, 0.003, 5), np.full(5, CENTRE_LAT)
    values = truth(variable, time[:, None], lon, lat)
    assert values.shape == (24, 5)
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(values, truth(variable, time.astype(np.int64)[:, None], lon, lat))
    np.testing.assert_array_equal(values[7, 3], truth(variable, time[7], lon[3], lat[3]))


def test_unknown_variable_and_float_time_are_refused() -> None:
    with pytest.raises(KeyError, match="got 'temperature'; there are air_temperature"):
        truth("temperature", np.datetime64("2007-10-01", "ns"), 7.18, 45.87)
    with pytest.raises(TypeError, match="got dtype float64"):
        truth("air_temperature", 1.19e18, 7.18, 45.87)


def test_temperature_falls_with_height_by_the_lapse_rate_at_noon() -> None:
    sites = stations()
    lon, lat = np.array([one.lon for one in sites]), np.array([one.lat for one in sites])
    values = truth("air_temperature", np.datetime64("2007-10-02T12:00", "ns"), lon, lat)
    slope = np.polyfit(elevation(lon, lat), values, 1)[0]
    # The front of four days before is the same everywhere; what is left of the pool at noon is below 1 %.
    assert slope == pytest.approx(-LAPSE_K_PER_M, rel=0.05)


def test_cold_air_pools_in_the_hollow_at_night_only() -> None:
    lon, lat = np.array([7.1780, 7.1780]), np.array([45.8685, 45.8729])
    floor, flank = elevation(lon, lat)
    assert pool(np.array([floor, flank])) == pytest.approx([1.0, 0.0], abs=0.1)
    night = truth("air_temperature", np.datetime64("2007-10-02T03:00", "ns"), lon, lat)
    noon = truth("air_temperature", np.datetime64("2007-10-02T12:00", "ns"), lon, lat)
    assert night[0] < night[1] - 2.0
    assert noon[0] > noon[1] + 0.3


@pytest.mark.parametrize("event", sky.RAIN, ids=lambda event: event.name)
def test_rain_darkens_the_radiation(event: sky.RainEvent) -> None:
    middle = sky.ANCHOR + np.timedelta64(round((event.start_day + event.end_day) / 2 * 86_400e9), "ns")
    wet = truth("solar_radiation", middle, CENTRE_LON, CENTRE_LAT)
    dry = truth("solar_radiation", middle + np.array([-24, 24]) * HOUR, CENTRE_LON, CENTRE_LAT)
    assert 8 <= middle.astype("datetime64[h]").astype(int) % 24 <= 15
    assert wet < 0.35 * dry.min()


def test_rain_counter_rises_with_the_events_and_resets_at_midnight() -> None:
    time = instants("2007-09-19", "2007-10-19")
    meter = truth("rain_meter", time, CENTRE_LON, CENTRE_LAT)
    assert meter.min() == 0.0
    steps = np.diff(meter)
    midnight = (time[1:] == time[1:].astype("datetime64[D]")) & (steps < 0)
    assert midnight.sum() == len(sky.RAIN)
    assert (steps[~midnight] >= 0).all()
    here = 1.0 + 0.0015 * (elevation(CENTRE_LON, CENTRE_LAT) - 2450.0)
    assert steps[steps > 0].sum() == pytest.approx(sum(event.total_mm for event in sky.RAIN) * here)


def test_front_cools_and_wind_veers() -> None:
    time = np.array(["2007-09-28T09:00", "2007-09-28T15:00"], dtype="datetime64[ns]")
    before, after = truth("wind_direction", time, CENTRE_LON, CENTRE_LAT)
    assert 60.0 < after - before < 130.0
    # The nights before and after, at the same hour: 6 K fading over three days, against a spell warming by 0.9 K.
    nights = np.array(["2007-09-28T03:00", "2007-09-29T03:00"], dtype="datetime64[ns]")
    warm, cold = truth("air_temperature", nights, CENTRE_LON, CENTRE_LAT)
    assert cold < warm - 3.0
    # West of the pass first: 500 m at 3 m/s are some three minutes.
    passing = np.array([["2007-09-28T09:00"], ["2007-09-28T12:00"]], dtype="datetime64[ns]")
    west, east = np.diff(truth("wind_direction", passing, np.array([7.177, 7.183]), CENTRE_LAT), axis=0)[0]
    assert west > east


def test_radiation_is_zero_at_night_and_physical_by_day() -> None:
    time = instants("2007-09-20", "2007-10-18")
    radiation = truth("solar_radiation", time, CENTRE_LON, CENTRE_LAT)
    hour = time.astype("datetime64[h]").astype(int) % 24
    assert (radiation[(hour >= 20) | (hour < 4)] == 0.0).all()
    assert 600.0 < radiation.max() < 900.0
    noon = time[:144][np.argmax(radiation[:144])]
    assert abs(noon - np.datetime64("2007-09-20T11:31", "ns")) < HOUR


def test_percentages_stay_percentages() -> None:
    time = instants("2007-09-20", "2007-10-18", 60)[:, None]
    lon, lat = 7.177 + np.linspace(0, 0.006, 7), 45.867 + np.linspace(0, 0.006, 7)
    for variable in ("relative_humidity", "soil_moisture"):
        values = truth(variable, time, lon, lat)
        assert values.min() > 0.0
        assert values.max() < 100.0


def test_mean_equals_the_plain_mean_of_the_middles() -> None:
    start, stop = np.datetime64("2007-10-01", "s"), np.datetime64("2007-10-01T06:00", "s")
    lon, lat = np.meshgrid(CENTRE_LON + np.array([-0.002, 0.0, 0.002]), CENTRE_LAT + np.array([0.0, 0.001]))
    middles = np.arange("2007-10-01T00:01", "2007-10-01T06:01", np.timedelta64(120, "s"), dtype="datetime64[ns]")
    expected = truth("air_temperature", middles[:, None, None], lon, lat).mean(axis=0)
    np.testing.assert_allclose(truth_mean("air_temperature", start, stop, lon, lat), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="start before stop"):
        truth_mean("air_temperature", stop, start, lon, lat)


def test_next_campaign_begins_without_a_jump() -> None:
    edge = np.datetime64("2007-10-18", "ns") + np.array([-1, 1]) * np.timedelta64(10, "s")
    for variable, allowed in (("air_temperature", 0.05), ("soil_moisture", 0.05), ("wind_direction", 0.6)):
        before, after = truth(variable, edge, CENTRE_LON, CENTRE_LAT)
        assert abs(after - before) < allowed
