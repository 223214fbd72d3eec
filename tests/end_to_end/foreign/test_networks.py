"""The foreign networks have the distribution that they are said to have, and their files say what was drawn."""

import csv
from pathlib import Path

import numpy as np
import pytest
import rasterio

from tests.end_to_end.foreign.fields import Places
from tests.end_to_end.foreign.networks import NETWORKS, Network


def scattered(network: Network, count: int = 60) -> Places:
    """Return cells at random among the stations."""
    rng = np.random.default_rng(1)
    stations = network.weather.stations
    return network.cells(*(rng.uniform(each.min(), each.max(), count) for each in (stations.lon, stations.lat)))


@pytest.mark.parametrize("name", NETWORKS)
def test_kriging_with_the_true_covariance_is_unbiased_and_as_exact_as_it_says(name: str) -> None:
    scores = []
    for seed in range(20):
        network = NETWORKS[name](seed)
        cells = scattered(network)
        truth = network.weather.true_means(network.day_ns, cells)
        estimate, variance = network.weather.kriged_means(network.day_ns, cells)
        scores.append((estimate - truth) / np.sqrt(variance))
    # Errors of a seed hang together: twenty seeds are some twenty to some hundred independent errors.
    assert abs(np.mean(scores)) < 0.25
    assert 0.85 < np.std(scores) < 1.15
    assert 0.90 < np.mean(np.abs(scores) < 1.96) < 0.98


@pytest.mark.parametrize("name", NETWORKS)
def test_the_truth_at_a_station_is_what_its_instrument_errs_around(name: str) -> None:
    network = NETWORKS[name](3)
    weather, climate = network.weather, network.weather.climate
    within = (weather.times_ns >= network.day_ns[0]) & (weather.times_ns < network.day_ns[1])
    assert np.isfinite(weather.readings[within]).any(axis=0).all()
    held = np.isfinite(weather.readings[within]).all(axis=0)
    truth = weather.true_means(network.day_ns, weather.stations)
    errors = (weather.readings[within].mean(axis=0) - truth)[held]
    assert np.std(errors) < 2.0 * np.hypot(climate.offset_k, climate.noise_k / np.sqrt(within.sum()))


@pytest.mark.parametrize("name", NETWORKS)
def test_equal_seeds_write_equal_files(name: str, tmp_path: Path) -> None:
    for copy in ("first", "second"):
        NETWORKS[name](5).write(tmp_path / copy)
    files = sorted(path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*") if path.is_file())
    assert len(files) > 4
    assert all((tmp_path / "first" / path).read_bytes() == (tmp_path / "second" / path).read_bytes() for path in files)


def test_the_hour_that_summer_time_repeats_is_written_twice(tmp_path: Path) -> None:
    NETWORKS["plain"](1).write(tmp_path)
    for path in (tmp_path / "raw").glob("[A-Z]*.csv"):
        rows = list(csv.DictReader(path.read_text("utf-8").splitlines(), delimiter=";"))
        twice = [row for row in rows if row["Datum"] == "29.10.2023" and row["Uhrzeit"].startswith("02")]
        assert len(rows) == 625
        assert len(twice) == 12
    text = "".join(path.read_text("utf-8") for path in (tmp_path / "raw").glob("[A-Z]*.csv"))
    assert "-999;" in text
    assert "n.a.;" in text


def test_stations_stand_on_the_terrain(tmp_path: Path) -> None:
    network = NETWORKS["mountains"](1)
    network.write(tmp_path)
    stations = network.weather.stations
    with rasterio.open(tmp_path / "terrain.tif") as file:
        read = np.array([value[0] for value in file.sample(zip(stations.lon, stations.lat, strict=True))])
    # Half a cell is 50 m, on slopes of at most 0.6.
    np.testing.assert_allclose(read, stations.elevation, atol=40.0)


def test_two_stations_of_the_country_share_a_mast_and_rows_are_late_or_repeated(tmp_path: Path) -> None:
    network = NETWORKS["country"](1)
    network.write(tmp_path)
    table = list(csv.DictReader((tmp_path / "raw/stations.csv").read_text("utf-8").splitlines()))
    assert len(table) == 200
    assert len({(row["lat"], row["lon"]) for row in table}) == 199
    paths = sorted((tmp_path / "raw").glob("region_*.csv"))
    rows = [row for path in paths for row in csv.reader(path.read_text("utf-8").splitlines())]
    sent = [(row[0], row[1]) for row in rows if row[0] != "stn"]
    assert len(set(sent)) == network.rows[: network.raw_count].sum()
    assert 0 < len(sent) - len(set(sent)) < 0.01 * len(sent)
    times = [time for _, time in sent]
    assert sum(second < first for first, second in zip(times, times[1:], strict=False)) > 200
