"""The readings that a lineage names are those that make the cell: by hand, and from an archive of nothing else."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.analysis.lineage import Lineage
from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.core.readings import Readings
from hypergrid.core.times import parse_instant
from tests.archives.make import q1
from tests.archives.make_questions import QUESTIONS, build_query, unpack_archive
from tests.support import kriging_oracle
from tests.support.networks import random_archive, write_archive
from tests.support.own_functions import forgotten_functions

GRID = hg.grid(lon=7.177, lat=45.867, step="2arcsec", shape=(4, 5))
MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
RINGS = {
    "west": [[7.1771, 45.8672], [7.1785, 45.8671], [7.178, 45.869], [7.1771, 45.8672]],
    "east": [[7.178, 45.868], [7.19, 45.868], [7.18, 45.87], [7.178, 45.868]],
}
ZONES = {name: {"type": "Polygon", "coordinates": [ring]} for name, ring in RINGS.items()}
BAD = 4
LATER_NS = parse_instant("2007-10-02T00:00")


def _air(archive: hg.OpenArchive) -> hg.Query:
    return archive["air_temperature"].aggregate("mean", time="10min", min_coverage=0)


def _surface(archive: hg.OpenArchive) -> hg.Query:
    return archive["surface_temperature"].aggregate("mean", time="10min", min_coverage=0)


def _of_two(archive: hg.OpenArchive) -> hg.Query:
    return _air(archive).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=2)


EDGES = {"edges": ["2007-10-01T00:00", "2007-10-01T01:10", "2007-10-01T04:00"]}
QUERIES: dict[str, Callable[[hg.OpenArchive], hg.Query]] = {
    "readings in slices": lambda archive: archive["air_temperature"].aggregate("first", time="2min", min_coverage=0),
    "at stations": lambda archive: (
        archive["air_temperature"]
        .convert("valid_range", low=-2.0, high=9.0)
        .aggregate("mean", time="1h", min_coverage=0)
    ),
    "greatest of cells": lambda archive: _air(archive).aggregate("max", time="1h", min_coverage=0),
    "sliding": lambda archive: archive["air_temperature"].aggregate(
        "mean", time={"length": "30min", "step": "10min"}, min_coverage=0
    ),
    "hour of the day": lambda archive: _air(archive).aggregate("mean", time="hour_of_day", min_coverage=0),
    "given edges": lambda archive: archive["air_temperature"].aggregate("mean", time=EDGES, min_coverage=0),
    "kriged": lambda archive: _air(archive).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL),
    "of two neighbours": lambda archive: _of_two(archive).aggregate("mean", time="1h", min_coverage=0),
    "nearest": lambda archive: _air(archive).interpolate("nearest", grid=GRID),
    "inverse distance": lambda archive: _air(archive).interpolate("inverse_distance", grid=GRID, neighbours=2),
    "linear": lambda archive: _air(archive).interpolate("linear", grid=GRID),
    "instants": lambda archive: archive["air_temperature"].interpolate("linear", time="15min", max_gap="40min"),
    "nearest instants": lambda archive: archive["air_temperature"].interpolate(
        "nearest", time="15min", max_gap="40min"
    ),
    "instants of cells": lambda archive: _air(archive).interpolate("linear", time="15min", max_gap="40min"),
    "difference": lambda archive: (
        _air(archive).merge("difference", _surface(archive)).interpolate("nearest", grid=GRID)
    ),
    "anomaly": lambda archive: _air(archive).merge(
        "anomaly", _air(archive).aggregate("mean", time="hour_of_day", min_coverage=0)
    ),
    "with coverage": lambda archive: (
        archive["air_temperature"].aggregate("mean", time="10min").aggregate("mean", time="1h", min_coverage=0.5)
    ),
    "converted cells": lambda archive: (
        _air(archive).convert("valid_range", low=-2.0, high=6.0).aggregate("mean", time="1h", min_coverage=0)
    ),
    "within a radius, over zones": lambda archive: (
        _air(archive).interpolate("inverse_distance", grid=GRID, radius_m=120).aggregate("mean", zones=ZONES)
    ),
    "counter": lambda archive: (
        archive["air_temperature"]
        .convert("scale", factor=1.0, unit="mm")
        .aggregate("rain_accumulation", time="1h", max_gap="40min", min_coverage=0)
    ),
    "last": lambda archive: archive["air_temperature"].aggregate("last", time="1h", min_coverage=0),
    "points": lambda archive: _air(archive).interpolate(
        "ordinary_kriging",
        grid=hg.points(lon=[7.178, 7.179], lat=[45.868, 45.8685], step="1arcsec"),
        variogram=MODEL,
        neighbours=3,
    ),
    "by octants": lambda archive: _air(archive).interpolate(
        "ordinary_kriging", grid=GRID, variogram=MODEL, octants=1, neighbours=4
    ),
    "known mean": lambda archive: _air(archive).interpolate(
        "simple_kriging", grid=GRID, variogram=MODEL, mean=5.0, neighbours=1
    ),
    "clipped": lambda archive: _of_two(archive).clip(
        time=("2007-10-01T01:00", "2007-10-01T03:00"), lon=(7.1775, 7.179)
    ),
    "zones": lambda archive: _of_two(archive).aggregate("mean", zones=ZONES),
}


def _draw_cells(query: hg.Query, seed: int, count: int) -> list[dict[str, int]]:
    """Return positions of cells with a value."""
    result = query.compute()
    array = result[next(iter(result.data_vars))]
    places = np.argwhere(np.isfinite(array.to_numpy()))
    chosen = np.random.default_rng(seed).choice(len(places), min(count, len(places)), replace=False)
    return [dict(zip(map(str, array.dims), map(int, places[number]), strict=True)) for number in chosen]


def _keep_used(archive: hg.OpenArchive, made: Lineage, folder: Path) -> hg.OpenArchive:
    """Write the archive again, with all readings but the used ones flagged as bad."""
    parts = []
    for name in archive.store.variables:
        stored = archive.store.read(name)
        used = made.used[made.used["variable"] == name]
        keys = pd.MultiIndex.from_arrays([used["station"], used["time"].astype("int64")])
        stations = [stored.series[number].station for number in stored.index.tolist()]
        held = pd.MultiIndex.from_arrays([stations, stored.time_ns]).isin(keys)
        parts.append(replace(stored, flag=np.where(held | np.isnan(stored.value), stored.flag, BAD).astype(np.uint8)))
    return write_archive(folder, stations=list(archive.store.stations.values()), readings=parts)


@pytest.mark.parametrize("name", QUERIES)
def test_an_archive_of_the_used_readings_alone_gives_the_cell(name: str, tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path / "whole", 4)
    query = QUERIES[name](archive)
    result = query.compute()
    values = result[next(iter(result.data_vars))]
    for number, at in enumerate(_draw_cells(query, 1, 2)):
        made = hg.lineage(result, result.isel(at), archive)
        held = float(values.isel(at))
        assert made.value == held == pytest.approx(made.recomputed, rel=1e-12, abs=1e-12)
        assert 0 < len(made.used) < len(archive.store.read("air_temperature"))
        alone = _keep_used(archive, made, tmp_path / f"alone {number}")
        again = QUERIES[name](alone).compute()
        found = again[next(iter(again.data_vars))]
        labels = {
            dimension: values[dimension].isel({dimension: position}).item()
            for dimension, position in at.items()
            if dimension in values.coords
        }
        labels = {key: pd.Timestamp(label) if key == "time" else label for key, label in labels.items()}
        assert float(found.sel(labels)) == pytest.approx(held, rel=1e-9, abs=1e-9)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> hg.OpenArchive:
    return hg.open(unpack_archive(tmp_path_factory.mktemp("sample")))


def test_q1_by_hand(sample: hg.OpenArchive) -> None:
    """Means of ten minutes, kriged slice by slice from the 20 nearest, and their mean: of the readings named alone."""
    result = sample.query(q1()).compute()
    values = result["air_temperature"]
    cell = values.isel(time=0, lat=7, lon=11)
    made = hg.lineage(result, {"time": "2007-10-01T12:00", "lat": cell.lat.item(), "lon": cell.lon.item()}, sample)
    used = made.used
    means = used.groupby([used["time"].dt.floor("10min"), "station"])["value"].mean().unstack()
    stations = sample.store.stations
    places = [(stations[name].position.lon, stations[name].position.lat) for name in means.columns]
    every = [(station.position.lon, station.position.lat) for station in stations.values()]
    _, (point,) = kriging_oracle.plane(every, [(cell.lon.item(), cell.lat.item())], is_lonlat=True)
    placed, _ = kriging_oracle.plane(every, [], is_lonlat=True)
    by_place = dict(zip(every, placed, strict=True))
    variogram = {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05}
    estimates = []
    for _, row in means.iterrows():
        present = [(by_place[place], value) for place, value in zip(places, row, strict=True) if math.isfinite(value)]
        assert len(present) <= 20
        estimates.append(kriging_oracle.estimate(present, point, variogram, 20).value)
    assert len(estimates) == 144
    assert made.value == pytest.approx(math.fsum(estimates) / len(estimates), abs=1e-9)
    weights = made.stations["weight"] * made.stations["slices"]
    assert weights.sum() == pytest.approx(144.0)
    assert set(made.left_out) <= {"suspect, flag 3", "fail, flag 4", "missing, flag 9", "valid_range"}
    assert "1 of 1 cells" in made.describe()


def test_questions_of_every_kind_have_a_lineage(sample: hg.OpenArchive) -> None:
    """The value that is computed from what the lineage follows is the one that the result holds."""
    entries = [entry for entry in json.loads(QUESTIONS.read_text()) if "seed" not in entry]
    random = np.random.default_rng(1)
    for entry in entries[::2]:
        result = build_query(sample, entry).compute()
        values = result[next(iter(result.data_vars))]
        cells = np.argwhere(np.isfinite(values.to_numpy()))
        cells = cells if len(cells) else np.zeros((1, values.ndim), dtype=int)
        at = dict(zip(values.dims, cells[random.integers(len(cells))].tolist(), strict=True))
        made = hg.lineage(result, result.isel(at), sample)
        assert made.recomputed == pytest.approx(made.value, rel=1e-9, abs=1e-9, nan_ok=True), entry["document"]
        # A count of nothing is made of nothing.
        assert math.isnan(made.value) or made.value == 0.0 or len(made.used) > 0, entry["document"]


def _commit(archive: hg.OpenArchive, change: Callable[[Readings], Readings]) -> None:
    store = archive.store.latest()
    with store.commit(batch=str(len(store.snapshots)), message="later", now_ns=LATER_NS) as writer:
        stored = store.read("air_temperature")
        later = np.full(len(stored), LATER_NS)
        writer.readings(change(replace(stored, arrival_ns=later)))


def test_an_amendment_is_told(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path, 4)
    result = QUERIES["of two neighbours"](archive).compute()
    cell = result.isel(time=0, lat=1, lon=1)
    before = hg.lineage(result, cell, archive)
    assert not len(before.changes)
    assert before.describe().endswith("the newest")
    assert before.now is None
    station, time = before.used.iloc[0][["station", "time"]]

    def correct(stored: Readings) -> Readings:
        chosen = [
            row
            for row, (number, stamp) in enumerate(zip(stored.index.tolist(), stored.time_ns.tolist(), strict=True))
            if stored.series[number].station == station and stamp == time.value
        ]
        part = stored.take_rows(np.array(chosen))
        return replace(part, value=part.value + 5.0)

    _commit(archive, correct)
    after = hg.lineage(result, cell, archive)
    assert after.value == before.value == pytest.approx(after.recomputed)
    (change,) = after.changes.to_dict("records")
    assert (change["station"], change["time"], change["change"], change["used"]) == (station, time, "replaced", True)
    assert change["value_now"] == pytest.approx(change["value_then"] + 5.0)
    assert (
        f"readings 1 replaced, 1 of which this cell had used; the cell would now be {after.now:.6g}" in after.describe()
    )
    # Of the newest snapshot, the reading has two versions.
    newest = archive.latest()
    renewed = QUERIES["of two neighbours"](newest).compute()
    assert after.now == pytest.approx(float(renewed["air_temperature"].isel(time=0, lat=1, lon=1)))
    told = hg.lineage(renewed, cell, newest).readings
    assert told[(told["station"] == station) & (told["time"] == time)]["versions"].tolist() == [2]


def test_readings_that_came_later_are_told(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path, 4)
    result = archive["air_temperature"].aggregate("mean", time="1h", min_coverage=0).compute()
    station = str(result["station"].to_numpy()[0])
    at = {"time": "2007-10-01T01:30", "station": station}
    stamp_ns = parse_instant("2007-10-01T01:00:01")
    _commit(archive, lambda stored: replace(stored.take_rows(slice(0, 1)), time_ns=np.array([stamp_ns])))
    made = hg.lineage(result, at, archive)
    assert made.cell["time"] == ["2007-10-01T01:00Z", "2007-10-01T02:00Z"]
    assert made.changes[["station", "change", "used"]].to_numpy().tolist() == [[station, "new", False]]
    assert math.isnan(made.changes["value_then"][0])


def test_what_a_missing_cell_lacks_is_said(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path, 4)
    result = archive["air_temperature"].aggregate("mean", time="1h", min_coverage=1.0).compute()
    values = result["air_temperature"]
    for at in np.argwhere(np.isnan(values.to_numpy())):
        made = hg.lineage(result, result.isel(time=int(at[0]), station=int(at[1])), archive)
        assert math.isnan(made.value)
        assert not len(made.used)
        assert set(made.left_out) <= {"its cell has no value", "suspect, flag 3", "fail, flag 4", "missing, flag 9"}


def test_only_what_can_matter_is_compared(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path, 4)
    at_stations = archive["air_temperature"].aggregate("mean", time="1h", min_coverage=0).compute()
    fitted = _air(archive).interpolate("ordinary_kriging", grid=GRID, variogram="fit").compute()
    kriged = QUERIES["kriged"](archive).compute()
    other = archive.store.read("air_temperature")
    last = int(other.index.max())
    _commit(archive, lambda stored: replace(part := stored.take_rows(stored.index == last), value=part.value + 1.0))
    # A cell at a station does not depend on another station; what was learned from all slices is told.
    first = hg.lineage(at_stations, at_stations.isel(time=1, station=0), archive)
    assert (len(first.changes), first.now) == (0, None)
    assert first.describe().endswith(f"unchanged since {first.snapshot}")
    made = hg.lineage(fitted, fitted.isel(time=3, lat=0, lon=0), archive)
    assert any("learned its variogram or trend from all" in note for note in made.notes)
    cell = {"time": 3, "lat": 0, "lon": 0}
    station = archive.store.stations[hg.lineage(kriged, kriged.isel(cell), archive).stations["station"][0]]
    moved = replace(station, positions=(replace(station.position, lon=station.position.lon + 0.001),))
    with archive.store.latest().commit(batch="moved", message="moved", now_ns=LATER_NS) as writer:
        writer.stations([moved])
    made = hg.lineage(kriged, kriged.isel(cell), archive)
    assert any(f"stations changed since: {station.id}" in note for note in made.notes)
    assert f"the cell would now be {made.now:.6g}" in made.describe()
    newest = archive.latest()
    assert made.now == pytest.approx(float(QUERIES["kriged"](newest).compute()["air_temperature"].isel(cell)))


def test_as_of_an_instant_and_of_two_snapshots(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path, 4)
    _commit(archive, lambda stored: replace(stored, value=stored.value + 1.0))
    newest = archive.latest()
    earlier = hg.open(tmp_path, as_of="2007-10-01T12:00")
    before = earlier["air_temperature"].aggregate("mean", time="1h", min_coverage=0)
    result = before.compute()
    made = hg.lineage(result, result.isel(time=1, station=0), newest)
    assert made.snapshot == f"{newest.snapshot} as of 2007-10-01T12:00Z"
    assert set(made.changes["change"]) == {"replaced"}
    assert made.now == pytest.approx(made.value + 1.0)
    both = newest["air_temperature"].aggregate("mean", time="1h", min_coverage=0).merge("difference", before).compute()
    made = hg.lineage(both, both.isel(time=1, station=0), newest)
    assert made.value == pytest.approx(1.0)
    assert made.used.groupby("time").size().unique().tolist() == [2]


def test_of_a_file_and_as_json(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path / "archive", 4)
    result = QUERIES["nearest"](archive).compute()
    result.to_netcdf(tmp_path / "map.nc", engine="h5netcdf")
    cell = {"time": "2007-10-01T02:00", "lat": result.lat.item(1), "lon": result.lon.item(2)}
    made = hg.lineage(tmp_path / "map.nc", cell, archive)
    told = made.to_json(limit=1)
    assert told["value"] == float(
        result["air_temperature"].sel(lat=cell["lat"], lon=cell["lon"]).sel(time=cell["time"])
    )
    assert len(told["readings"]) == 1
    assert told["used"] == len(made.used)
    (used,) = (row for row in told["stations"] if row["slices"])
    assert used["weight"] == 1.0
    assert used["distance_m"] == min(row["distance_m"] for row in told["stations"])


def test_an_interpolation_of_ones_own(tmp_path: Path) -> None:
    def of_nearest(east_m: "np.ndarray", north_m: "np.ndarray") -> "np.ndarray":  # type: ignore[type-arg]
        return np.argsort(np.hypot(east_m, north_m))[:1]

    def value(values: "np.ndarray", east_m: "np.ndarray", north_m: "np.ndarray") -> float:  # type: ignore[type-arg]
        return float(values.mean())

    archive, _ = random_archive(tmp_path, 4)
    air = archive["air_temperature"].aggregate("mean", time="10min", min_coverage=0)
    with forgotten_functions():
        hg.interpolation_function("lineage_nearest", select=of_nearest, compute=value)
        own, built_in = (
            hg.lineage(result, result.isel(time=5, lat=2, lon=3), archive)
            for result in (air.interpolate(name, grid=GRID).compute() for name in ("lineage_nearest", "nearest"))
        )
    pd.testing.assert_frame_equal(own.used, built_in.used)
    assert own.stations["weight"].isna().all()


def test_says_what_is_wrong_with_a_cell(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path, 4)
    result = QUERIES["kriged"](archive).compute()
    good: Mapping[str, object] = {"time": "2007-10-01T01:00", "lat": result.lat.item(0), "lon": result.lon.item(0)}
    assert hg.lineage(result, good, archive).value == float(result["air_temperature"].sel(time=str(good["time"]))[0, 0])
    for wrong, kind, words in (
        ({**good, "lat": 12.0}, NotFound, "no cell at lat 12; its cells reach from"),
        ({**good, "time": "2009-01-01"}, NotFound, "no time cell at 2009-01-01T00:00Z; it reaches from"),
        ({**good, "time": "noon"}, InvalidQuery, "needs an instant, such as"),
        ({**good, "lat": "north"}, InvalidQuery, "lat of a cell is a number; got 'north'"),
        ({**good, "station": "s0"}, InvalidQuery, "got station, too"),
        ({key: good[key] for key in ("time", "lat")}, InvalidQuery, "got no lon; give for example"),
        (result, InvalidQuery, "a lineage is of one cell; got"),
        (7, InvalidQuery, "a cell is given by its coordinates"),
    ):
        with pytest.raises(kind, match=words):
            hg.lineage(result, wrong, archive)  # type: ignore[arg-type]
    with pytest.raises(
        TooLarge, match=r"projects [0-9,]+ readings, above the 3 allowed; ask about a cell of less time"
    ):
        hg.lineage(result, good, archive, max_readings=3)
    with pytest.raises(InvalidQuery, match="does not say where its archive is; give it"):
        hg.lineage(xr.Dataset(result.data_vars, result.coords, result.attrs), good)
    with pytest.raises(InvalidQuery, match="needs the archive that it was computed from"):
        hg.lineage(result, good, "archive")  # type: ignore[arg-type]
    at = result["air_temperature"]
    with pytest.raises(InvalidQuery, match=r"has .* cells, and its query"):
        hg.lineage(result.isel(lat=slice(0, 2)), {**good, "lat": at.lat.item(0)}, archive)


def test_a_result_that_was_tampered_with_is_told(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path, 4)
    result = QUERIES["kriged"](archive).compute()
    result["air_temperature"][3, 0, 0] += 1.0
    made = hg.lineage(result, result.isel(time=3, lat=0, lon=0))
    assert any("the result holds" in note for note in made.notes)
