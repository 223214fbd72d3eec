"""Surfaces that grow with their archive equal those that are computed anew."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from tests.support.networks import random_array

START_NS = parse_instant("2007-10-01T00:00Z")
STEP_NS = 120 * SECOND_NS
COUNT = 6
GRID = hg.grid(lon=7.177, lat=45.867, step="2arcsec", shape=(4, 5))
LEVELS = hg.grid(lon=7.177, lat=45.867, step="2arcsec", shape=(4, 5), z={"start": 2350, "stop": 2600, "step": 50})
MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
RINGS = {
    "west": [[7.1771, 45.8672], [7.1785, 45.8671], [7.178, 45.869], [7.1771, 45.8672]],
    "partly outside": [[7.178, 45.868], [7.19, 45.868], [7.18, 45.87], [7.178, 45.868]],
}
ZONES = {name: {"type": "Polygon", "coordinates": [ring]} for name, ring in RINGS.items()}
NAMES = ("air_temperature", "surface_temperature")


class Network:
    """An archive that readings are added to, slices of two minutes."""

    def __init__(self, folder: Path, *, stamp: str = "instant", seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.stamp = stamp
        variables = [KNOWN_VARIABLES[name] for name in NAMES]
        self.archive = Archive.create(folder, name="made-up", slice_s=120.0, variables=variables, now_ns=START_NS)
        self.folder, self.batches = folder, 0
        self.places = np.stack(
            [7.177 + self.rng.uniform(0, 0.004, COUNT), 45.867 + self.rng.uniform(0, 0.003, COUNT)], 1
        )

    def station(self, number: int) -> Station:
        lon, lat = self.places[number]
        # The sixth has no elevation.
        elevation_m = 2400.0 + 30.0 * number if number < COUNT - 1 else None
        return Station(f"s{number}", f"Station {number}", (Position(None, float(lon), float(lat), elevation_m),))

    def add(self, first: int, stop: int, *, stations: int = COUNT, variables: tuple[str, ...] = NAMES) -> None:
        self.batches += 1
        with self.archive.commit(batch=str(self.batches), message="more", now_ns=START_NS) as writer:
            writer.stations([self.station(number) for number in range(stations)])
            for variable in variables:
                writer.readings(self.readings(variable, first, stop, stations))
        self.archive = self.archive.latest()

    def readings(self, variable: str, first: int, stop: int, stations: int) -> Readings:
        interval = 120.0 if self.stamp == "end" else 0.0
        statistic = "mean" if self.stamp == "end" else "sample"
        series = tuple(
            Series(variable, f"s{number}", 2.0, 1, statistic, interval, self.stamp)  # type: ignore[arg-type]
            for number in range(stations)
        )
        index, slices = np.meshgrid(np.arange(stations, dtype=np.int32), np.arange(first, stop), indexing="ij")
        heard = self.rng.random(index.shape) > 0.25
        stamps = START_NS + slices[heard] * STEP_NS
        values = np.round(self.rng.normal(5.0, 3.0, len(stamps)), 2)
        flags = np.full(len(stamps), 2, np.uint8)
        return Readings(series, index[heard], stamps, values, flags, stamps)


def q5(archive: hg.OpenArchive) -> hg.Query:
    aligned = archive["air_temperature"].aggregate("mean", time="4min", min_coverage=0)
    mapped = aligned.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    return mapped.aggregate("mean", time={"length": "12min", "step": "4min"}, min_coverage=0)


def queries(archive: hg.OpenArchive) -> dict[str, hg.Query]:
    air, surface = (archive[name].aggregate("mean", time="4min", min_coverage=0) for name in NAMES)
    mapped = air.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    return {
        "sliding windows of a map": q5(archive),
        "at stations": archive["air_temperature"]
        .convert("valid_range", low=0.0, high=9.0)
        .aggregate("max", time="10min"),
        "counter": archive["air_temperature"]
        .convert("scale", factor=1.0, unit="mm")
        .aggregate("rain_accumulation", time="10min", max_gap="6min", min_coverage=0),
        "greatest of cells": air.aggregate("max", time="12min", min_coverage=0),
        "hour of the day": air.aggregate("mean", time="hour_of_day", min_coverage=0),
        "given edges": air.aggregate(
            "mean", time={"edges": [f"2007-10-01T0{hour}:00" for hour in range(9)]}, min_coverage=0
        ),
        "merge": air.merge("difference", surface).interpolate("inverse_distance", grid=GRID),
        "instants": archive["air_temperature"].interpolate("linear", time="3min", max_gap="8min"),
        "instants of cells": air.interpolate("linear", time="4min", max_gap="12min"),
        "variance": mapped.with_variance(),
        "nearest": air.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=3),
        "mean of all": mapped.aggregate("mean", time="all", min_coverage=0),
        "zones": mapped.aggregate("mean", zones=ZONES),
        "zones in windows": mapped.aggregate("max", time={"length": "12min", "step": "4min"}, zones=ZONES),
        "zones by hour of the day": mapped.aggregate("mean", time="hour_of_day", zones=ZONES, min_coverage=0),
        "clipped": mapped.clip(time=("2007-10-01T00:20", "2007-10-01T01:00"), lon=(7.177, 7.179)),
        "fitted": air.interpolate("ordinary_kriging", grid=GRID, variogram="fit"),
        "anomaly": air.merge("anomaly", air.aggregate("mean", time="hour_of_day", min_coverage=0)),
        "anomaly from a normal of its own time": air.merge(
            "anomaly",
            air.aggregate("mean", time="hour_of_day", min_coverage=0).clip(
                time=("2007-10-01T00:00", "2007-10-01T00:30")
            ),
        ),
    }


def about_heights(archive: hg.OpenArchive) -> dict[str, hg.Query]:
    air = archive["air_temperature"].convert("valid_range", low=0.0, high=9.0)
    aligned = air.aggregate("mean", time="4min", min_coverage=0)
    drifted = aligned.interpolate("external_drift_kriging", grid=LEVELS, variogram=MODEL)
    lapsing = aligned.interpolate("ordinary_kriging", grid=LEVELS, variogram=MODEL, trend="lapse_rate")
    near = aligned.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, radius_m=100.0)
    sliding = {"length": "12min", "step": "4min"}
    fixed = aligned.interpolate("ordinary_kriging", grid=LEVELS, variogram=MODEL, trend={"lapse_rate": -6.5})
    mapped = aligned.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    return {
        "levels by drift": drifted,
        "levels by a trend": lapsing,
        "levels by a given trend": fixed.aggregate("max", time=sliding, min_coverage=0),
        "coarser levels": lapsing.aggregate("mean", z=100, min_coverage=0),
        "bands of stations": aligned.aggregate("mean", z={"edges": [2350, 2450, 2500]}, min_coverage=0),
        "radius": near,
        "greatest within the radius": near.aggregate("max", time=sliding, min_coverage=0),
        "inverse distances around a trend": aligned.interpolate("inverse_distance", grid=LEVELS, trend="profile"),
        "variance of a mean over space": mapped.aggregate("mean", lat="all", lon="all").with_variance(),
        "variance of a mean over time": mapped.aggregate("mean", time=sliding, min_coverage=0).with_variance(
            correlation_time="1h"
        ),
    }


EVERYTHING = ("mean of all", "fitted", "anomaly", "hour of the day", "zones by hour of the day", "given edges")
"""What a new slice changes as a whole."""


@pytest.mark.parametrize("stamp", ["instant", "end"])
def test_updates_equal_computing_anew(tmp_path: Path, stamp: str) -> None:
    network = Network(tmp_path / "archive", stamp=stamp)
    network.add(0, 40)
    growing = {name: hg.Growing(query) for name, query in queries(hg.open(network.folder)).items()}
    for first, stop in [(40, 41), (41, 44), (20, 22), (44, 60), (60, 61)]:
        network.add(first, stop)
        opened = hg.open(network.folder)
        for name, query in queries(opened).items():
            update, fresh = growing[name].update(), query.compute()
            assert update.snapshot == growing[name].snapshot == opened.snapshot
            same(growing[name].dataset(), fresh)
            if name == "anomaly":
                assert "what is normal" in update.why
            if name not in EVERYTHING:
                assert update.why == ""
                # A counter's falls are judged within two days around them, which is all that there is.
                least = 1.0 if name == "counter" else 0.5
                assert len(update.time_cells) <= fresh.sizes["time"] * least


def test_what_is_told_of_heights_reach_and_readings_is_of_the_whole_surface(tmp_path: Path) -> None:
    network = Network(tmp_path / "archive")
    network.add(0, 40)
    growing = {name: hg.Growing(query) for name, query in about_heights(hg.open(network.folder)).items()}
    # In the new slices one station, or three, do not report, and nobody else is without a value in this time.
    for first, stop, stations in [(40, 43, 5), (10, 12, 3), (43, 47, 6)]:
        network.add(first, stop, stations=stations)
        told = ""
        for name, query in about_heights(hg.open(network.folder)).items():
            update, fresh = growing[name].update(), query.compute()
            assert update.why == "", name
            assert len(update.time_cells) < fresh.sizes["time"] / 2, name
            same(growing[name].dataset(), fresh)
            told += fresh.attrs["hypergrid_readings_left_out"] + fresh.attrs.get("comment", "")
        for what in ("by valid_range", "within radius_m", "extrapolated", "s5", "trend: in", "in no band"):
            assert what in told, what


@pytest.mark.parametrize(
    ("method", "given", "why"),
    [
        ("ordinary_kriging", {"variogram": "fit"}, "variogram is fitted"),
        ("ordinary_kriging", {"variogram": "fit_by_slice"}, "variogram is fitted"),
        ("ordinary_kriging", {"variogram": MODEL, "trend": "profile"}, ""),
        ("inverse_distance", {"trend": "lapse_rate"}, ""),
    ],
)
def test_what_learns_from_all_slices_is_computed_anew_and_a_trend_does_not(
    tmp_path: Path, method: str, given: dict[str, object], why: str
) -> None:
    network = Network(tmp_path / "archive")
    network.add(0, 30)

    def asked() -> hg.Query:
        aligned = hg.open(network.folder)["air_temperature"].aggregate("mean", time="4min", min_coverage=0)
        return aligned.interpolate(method, grid=LEVELS if "trend" in given else GRID, **given)

    growing = hg.Growing(asked())
    network.add(30, 33)
    update = growing.update()
    assert why in update.why
    assert (update.why == "") == (why == "")
    assert len(update.time_cells) == (2 if why == "" else growing.dataset().sizes["time"])
    same(growing.dataset(), asked().compute())


def test_an_automatic_map_keeps_its_method_and_computes_what_changed(tmp_path: Path) -> None:
    network = Network(tmp_path / "archive")
    network.add(0, 30)
    aligned = hg.open(network.folder)["air_temperature"].aggregate("mean", time="4min", min_coverage=0)
    growing = hg.Growing(aligned.interpolate(grid=GRID))
    [_, first] = growing.query.to_json()["steps"]
    assert "auto chose" in first["params"]["because"]
    network.add(30, 33)
    update = growing.update()
    assert (update.why, len(update.time_cells)) == ("", 2)
    assert growing.query.to_json()["steps"][1] == first
    same(growing.dataset(), growing.query.compute())


@pytest.mark.parametrize("memory", [None, "estimate"])
def test_a_variance_whose_correlation_is_found_from_all_slices_is_computed_anew(
    tmp_path: Path, memory: str | None
) -> None:
    network = Network(tmp_path / "archive")
    network.add(0, 60)

    def asked() -> hg.Query:
        return q5(hg.open(network.folder)).with_variance(correlation_time=memory)

    growing = hg.Growing(asked())
    network.add(60, 70)
    assert "correlation_time" in growing.update().why
    same(growing.dataset(), asked().compute())


def same(found: xr.Dataset, fresh: xr.Dataset) -> None:
    assert list(found.coords) == list(fresh.coords)
    assert found.attrs == fresh.attrs
    for name in fresh.variables:
        assert {key: str(text) for key, text in found[name].attrs.items()} == {
            key: str(text) for key, text in fresh[name].attrs.items()
        }
    for coordinate in fresh.coords:
        np.testing.assert_array_equal(found[coordinate].to_numpy(), fresh[coordinate].to_numpy())
    assert set(found.data_vars) == set(fresh.data_vars)
    for variable in fresh.data_vars:
        np.testing.assert_allclose(found[variable].to_numpy(), fresh[variable].to_numpy(), rtol=1e-11, atol=1e-11)


def test_only_the_cells_that_a_slice_touches_are_computed(tmp_path: Path) -> None:
    network = Network(tmp_path / "archive")
    network.add(0, 200)
    opened = hg.open(network.folder)
    growing = hg.Growing(q5(opened))
    assert repr(growing) == f"Growing({repr(q5(opened))[6:-1]}, snapshot {opened.snapshot})"
    assert repr(opened).startswith(f"OpenArchive({opened.name}: {len(opened.stations)} stations, ")
    network.add(200, 201)
    update = growing.update()
    # One new cell of 4 minutes, which three windows of 12 minutes cover, of which two began before.
    assert len(update.time_cells) == 3
    assert update.time_cells.tolist() == list(
        range(growing.dataset().sizes["time"] - 3, growing.dataset().sizes["time"])
    )
    assert growing.update().time_cells.tolist() == []
    network.add(201, 203, variables=("surface_temperature",))
    assert growing.update().time_cells.tolist() == []


def test_a_new_station_changes_everything_and_the_update_says_so(tmp_path: Path) -> None:
    network = Network(tmp_path / "archive")
    network.add(0, 30, stations=4)
    growing = hg.Growing(q5(hg.open(network.folder)))
    network.add(30, 31, stations=6)
    update = growing.update()
    assert "stations" in update.why
    same(growing.dataset(), q5(hg.open(network.folder)).compute())


def test_an_archive_that_begins_earlier_moves_what_is_known(tmp_path: Path) -> None:
    network = Network(tmp_path / "archive")
    network.add(30, 60)
    growing = hg.Growing(q5(hg.open(network.folder)))
    network.add(10, 12)
    update = growing.update()
    assert update.why == ""
    same(growing.dataset(), q5(hg.open(network.folder)).compute())


def test_it_takes_the_memory_that_it_is_allowed(tmp_path: Path) -> None:
    network = Network(tmp_path / "archive")
    network.add(0, 400)
    grid = hg.grid(lon=7.177, lat=45.867, step="0.5arcsec", shape=(30, 30))

    def asked() -> hg.Query:
        aligned = hg.open(network.folder)["air_temperature"].aggregate("mean", time="4min", min_coverage=0)
        mapped = aligned.interpolate("ordinary_kriging", grid=grid, variogram=MODEL)
        return mapped.aggregate("max", time={"length": "12min", "step": "4min"}, min_coverage=0)

    query = asked()
    allowed = query.plan().projected_bytes * 3 // 4
    with pytest.raises(TooLarge):
        query.plan().check(allowed)
    growing = hg.Growing(query, allowed_bytes=allowed)
    same(growing.dataset(), query.compute())
    network.add(400, 403)
    assert growing.update().why == ""
    fresh = asked()
    same(growing.dataset(), fresh.compute())
    assert growing.dataset().attrs["hypergrid_token"] == fresh.token


def test_an_array_does_not_grow() -> None:
    array, _ = random_array(1)
    with pytest.raises(InvalidQuery, match="an array in memory does not grow"):
        hg.Growing(hg.base(array).aggregate("mean", time="1h"))
