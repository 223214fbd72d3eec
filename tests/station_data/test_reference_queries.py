"""The reference queries, and Q1 against the truth by a dense solve that shares no code with the product."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from station_data import terrain
from station_data.generate import generate
from station_data.network import stations
from station_data.truth import VARIABLES, truth_mean

Table = NDArray[np.float64]
FOLDER = Path(terrain.__file__).parent
GSB = Path(__file__).parents[3] / "shared" / "data" / "sensorscope_gsb"
NAMES = ("bands", "levels", "mean_map", "q1", "q2", "q3", "q4", "q5", "q5_fine", "radiation")


def load(name: str) -> dict:
    return json.loads((FOLDER / "queries" / f"{name}.json").read_text())


def degrees(text: str) -> float:
    whole, minutes, seconds = text.split(":")
    return int(whole) + int(minutes) / 60 + float(seconds) / 3600


def centres(grid: dict) -> tuple[Table, Table]:
    step = float(grid["step"].removesuffix("arcsec")) / 3600
    rows, columns = grid["shape"]
    lon, lat = degrees(grid["lon"]), degrees(grid["lat"])
    return np.meshgrid(lon + (np.arange(columns) + 0.5) * step, lat + (np.arange(rows) + 0.5) * step)


def interpolation(query: dict) -> dict:
    (step,) = (step for step in query["steps"] if step["op"] == "interpolate")
    return step


def ten_minute_means(table: Table, low: float, high: float, start: int, count: int) -> tuple[Table, float]:
    """Means of ten minutes of one station's air temperature, NaN where empty, and the mean of all its readings."""
    values = table[:, 8]
    sound = (values >= low) & (values <= high)
    slots = ((table[sound, 7] - start) // 600).astype(int)
    number, total = np.bincount(slots, minlength=count), np.bincount(slots, values[sound], minlength=count)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan), float(values[sound].mean())


def kriging_weights(points: Table, cells: Table, variogram: dict) -> Table:
    """Weights of ordinary kriging on all points, shape (points, cells), by one solve of the bordered matrix."""

    def gamma(distance: Table) -> Table:
        shape = 1.0 - np.exp(-3.0 * distance / variogram["range_m"])
        return np.where(distance > 0.0, variogram["nugget"] + variogram["psill"] * shape, 0.0)

    count = len(points)
    system = np.ones((count + 1, count + 1))
    system[:count, :count] = gamma(np.linalg.norm(points[:, None] - points, axis=-1))
    system[count, count] = 0.0
    right = np.ones((count + 1, len(cells)))
    right[:count] = gamma(np.linalg.norm(points[:, None] - cells, axis=-1))
    return np.linalg.solve(system, right)[:count]


@pytest.mark.parametrize("seed", [2007, 1, 2])
def test_q1_recovers_the_truth(tmp_path: Path, read_text: Callable[[Path, str], Table], seed: int) -> None:
    query = load("q1")
    out = generate(tmp_path / "out", start="2007-10-01", days=3, seed=seed, formats=("sensorscope",))
    start, count = int(np.datetime64("2007-10-01", "s").astype(np.int64)), 3 * 144
    limits = query["steps"][0]["params"]
    sites = stations()
    results = [ten_minute_means(read_text(out, one.id), limits["low"], limits["high"], start, count) for one in sites]
    means = np.stack([series for series, _ in results], axis=1)
    lon, lat = centres(interpolation(query)["grid"])
    cells = np.stack(terrain.local_metres(lon.ravel(), lat.ravel()), axis=1)
    points = np.stack(terrain.local_metres([one.lon for one in sites], [one.lat for one in sites]), axis=1)
    surface = np.empty((count, len(cells)))
    masks, which = np.unique(np.isfinite(means), axis=0, return_inverse=True)
    for number, mask in enumerate(masks):
        rows = which.ravel() == number
        weights = kriging_weights(points[mask], cells, interpolation(query)["params"]["variogram"])
        surface[rows] = means[rows][:, mask] @ weights
    true_mean = truth_mean(
        "air_temperature", np.datetime64("2007-10-01"), np.datetime64("2007-10-04"), lon, lat, step_s=600.0
    ).ravel()
    plain = np.mean([mean for _, mean in results])
    error = np.sqrt(np.mean((surface.mean(axis=0) - true_mean) ** 2))
    error_of_plain = np.sqrt(np.mean((plain - true_mean) ** 2))
    assert error <= 0.4 * error_of_plain, (error, error_of_plain)


@pytest.mark.parametrize("name", NAMES)
def test_queries_name_what_exists(name: str) -> None:
    query = load(name)
    assert query["variable"] in VARIABLES
    assert query["steps"][0]["function"] == "valid_range"
    assert query["steps"][0]["params"]["low"] < query["steps"][0]["params"]["high"]
    begin, end = (np.datetime64(edge.removesuffix("Z")) for edge in query["clip"]["time"])
    assert np.datetime64("2007-09-20") <= begin < end <= np.datetime64("2007-10-18")


def test_no_other_query_lies_in_the_folder() -> None:
    assert sorted(path.stem for path in (FOLDER / "queries").glob("*.json")) == sorted(NAMES)


@pytest.mark.parametrize("name", ["q4", "q5_fine"])
def test_grids_are_centred_alike(name: str) -> None:
    grids = [centres(interpolation(load(query))["grid"]) for query in ("q1", name)]
    for one, other in zip(*grids, strict=True):
        assert other.mean() == pytest.approx(one.mean(), abs=1e-9)


def test_gsb_deployment_names_the_stations_of_the_data() -> None:
    deployment = tomllib.loads((FOLDER / "deployments" / "gsb.toml").read_text(encoding="utf-8"))
    assert list(deployment["feed"][0]["columns"]) == list(VARIABLES)
    if not GSB.is_dir():
        pytest.skip(f"real data absent: {GSB.name} is not beside the project in ../shared/data")
    files = [path for path in GSB.iterdir() if path.match(deployment["feed"][0]["files"])]
    assert {path.stem.rsplit("-", 1)[1] for path in files} == {one["id"] for one in deployment["station"]}
    table = np.loadtxt(GSB / "stations_invented.csv", delimiter=",", skiprows=2)
    listed = [[float(one[key]) for key in ("id", "lon", "lat", "elevation_m")] for one in deployment["station"]]
    assert listed == table.tolist()
