"""What the answers to the tasks of a station network should have been, in closed form, and how far off they are."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import shapely
from numpy.typing import NDArray

from station_data.network import stations
from station_data.truth import truth
from tests.bench.tasks.places import ARCSEC, LAT, LON, PLACE, SIDE, SOUTH, WEST

Floats = NDArray[np.float64]

STEP_S: Final = 120
Z95: Final = 1.96
NETWORK: Final = stations()
IDS: Final = tuple(station.id for station in NETWORK)
STATION_LON: Final = np.array([station.lon for station in NETWORK])
STATION_LAT: Final = np.array([station.lat for station in NETWORK])
CELL_LON, CELL_LAT = (axis.ravel() for axis in np.meshgrid(LON, LAT))
CATCHMENTS: Final[Mapping[str, list[list[float]]]] = {
    "west": [[7.1772, 45.8674], [7.1800, 45.8674], [7.1806, 45.8702], [7.1796, 45.8730], [7.1772, 45.8730]],
    "east": [[7.1800, 45.8674], [7.1830, 45.8674], [7.1830, 45.8730], [7.1796, 45.8730], [7.1806, 45.8702]],
}
"""Two catchments within the map."""


@dataclass(frozen=True)
class Task:
    """A task, and how its answers are judged."""

    title: str
    judge: Callable[[Any, Path], dict[str, float]]
    """Takes an answer and the folder of the data; the first number is the one to compare."""
    unit: str


def average(variable: str, window: tuple[str, str], step: str, lon: Floats, lat: Floats) -> Floats:
    """Average the truth over time cells, at places; shape (cells, places)."""
    first, stop = (np.datetime64(edge, "ns") for edge in window)
    middles = np.arange(first, stop, np.timedelta64(STEP_S, "s")) + np.timedelta64(STEP_S // 2, "s")
    values = truth(variable, middles[:, None], lon, lat)
    per_cell = round(pd.Timedelta(step).total_seconds() / STEP_S)
    return values.reshape(-1, per_cell, len(lon)).mean(axis=1)


def root_mean_square(difference: Floats) -> float:
    return float(np.sqrt(np.nanmean(np.square(difference))))


def judge_map(window: tuple[str, str], step: str) -> Callable[[Any, Path], dict[str, float]]:
    """Make the judge of a map of a mean air temperature."""

    def judge(answer: Any, _data: Path) -> dict[str, float]:  # noqa: ANN401 - an array
        true = average("air_temperature", window, step, CELL_LON, CELL_LAT).mean(axis=0).reshape(SIDE, SIDE)
        return {"rmse": root_mean_square(np.asarray(answer) - true), "missing": float(np.isnan(answer).mean())}

    return judge


def judge_hourly(answer: pd.DataFrame, _data: Path) -> dict[str, float]:
    window = ("2007-09-28", "2007-10-04")
    true = average("air_temperature", window, "1h", STATION_LON, STATION_LAT)
    index = pd.date_range(*window, freq="1h", inclusive="left")
    values = answer.reindex(index=index, columns=list(IDS)).to_numpy(float)
    return {"rmse": root_mean_square(values - true), "missing": float(np.isnan(values).mean())}


def judge_frost(answer: pd.DataFrame, _data: Path) -> dict[str, float]:
    window = ("2007-09-28", "2007-10-04")
    index = pd.date_range(*window, freq="10min", inclusive="left")
    means = pd.DataFrame(average("air_temperature", window, "10min", STATION_LON, STATION_LAT), index, list(IDS))
    state = pd.DataFrame(np.select([means < 0, means > 1], [1.0, 0.0], np.nan), index, means.columns)
    true = state.ffill().fillna(0).to_numpy(bool)
    given = answer.reindex(index=index, columns=list(IDS)).fillna(0).to_numpy(bool)
    hits = (true & given).sum()
    return {"wrong": float(1 - hits / (true | given).sum()), "alert_share": float(given.mean())}


def judge_intervals(answer: pd.DataFrame, true: Floats) -> dict[str, float]:
    """Judge estimates with their standard errors."""
    off = answer["mean"].to_numpy(float) - true
    error = answer["error"].to_numpy(float)
    with np.errstate(invalid="ignore"):
        inside = np.abs(off) <= Z95 * error
    return {"rmse": root_mean_square(off), "inside_95": float(inside.mean()), "width": float(np.nanmean(Z95 * error))}


def judge_region(answer: pd.DataFrame, _data: Path) -> dict[str, float]:
    true = average("air_temperature", ("2007-10-02", "2007-10-03"), "1h", CELL_LON, CELL_LAT).mean(axis=1)
    return judge_intervals(answer, true)


def judge_place(answer: pd.DataFrame, _data: Path) -> dict[str, float]:
    lon, lat = np.array(PLACE[:1]), np.array(PLACE[1:])
    return judge_intervals(answer, average("air_temperature", ("2007-10-01", "2007-10-04"), "1h", lon, lat)[:, 0])


def judge_rain(answer: pd.Series, _data: Path) -> dict[str, float]:
    # The counter shows the rain since midnight: its last value of each day is that day's rain.
    days = pd.date_range("2007-09-27", "2007-10-03", freq="1D") + pd.Timedelta("1D") - pd.Timedelta("1ns")
    fine = (np.arange(SIDE * 4) + 0.5) * ARCSEC / 4
    lon, lat = (axis.ravel() for axis in np.meshgrid(WEST + fine, SOUTH + fine))
    off = []
    for name, ring in CATCHMENTS.items():
        inside = shapely.contains_xy(shapely.Polygon(ring), lon, lat)
        rain = truth("rain_meter", days.to_numpy()[:, None], lon[inside], lat[inside]).sum(axis=0).mean()
        off.append(abs(float(answer[name]) - rain))
    return {"worst": max(off), "mean": float(np.mean(off))}


def judge_wind(answer: tuple[pd.DataFrame, pd.DataFrame], _data: Path) -> dict[str, float]:
    first, stop = np.datetime64("2007-09-28", "ns"), np.datetime64("2007-09-30", "ns")
    middles = np.arange(first, stop, np.timedelta64(STEP_S, "s")) + np.timedelta64(STEP_S // 2, "s")
    speed = truth("wind_speed", middles[:, None], STATION_LON, STATION_LAT)
    angle = np.radians(truth("wind_direction", middles[:, None], STATION_LON, STATION_LAT))
    index = pd.date_range("2007-09-28", "2007-09-30", freq="1h", inclusive="left")
    squares = []
    for given, true in zip(answer, (-speed * np.sin(angle), -speed * np.cos(angle)), strict=True):
        values = given.reindex(index=index, columns=list(IDS)).to_numpy(float)
        squares.append((values - true.reshape(len(index), -1, len(IDS)).mean(axis=1)) ** 2)
    return {"rmse": float(np.sqrt(np.nanmean(squares[0] + squares[1]))), "missing": float(np.isnan(squares[0]).mean())}


def judge_known(answer: pd.Series, data: Path) -> dict[str, float]:
    """Compare with the ledger of arrivals and the files; spikes that tests leave out are the difference."""
    noon = pd.Timestamp("2007-10-02T12:00")
    arrivals = pd.read_csv(data / "arrivals.csv", dtype={"station": str})
    arrived = arrivals[arrivals["arrival"] <= noon.timestamp()].drop_duplicates(["station", "time"])
    files = [pd.read_csv(file, dtype={"station": str}) for file in sorted((data / "csv").glob("*.csv"))]
    readings = pd.concat(files).dropna(subset=["air_temperature"])
    readings["time"] = pd.to_datetime(readings["time"]).dt.tz_localize(None).astype("datetime64[s]").astype("int64")
    known = readings.merge(arrived, on=["station", "time"])
    known["time"] -= 7200 * (known["station"] == "9")
    recent = known[(known["time"] >= (noon - pd.Timedelta(hours=6)).timestamp()) & (known["time"] < noon.timestamp())]
    true = recent.groupby("station").size().reindex(list(IDS), fill_value=0)
    return {"mean": float((answer.reindex(list(IDS)).fillna(0) - true).abs().mean()), "readings": float(true.sum())}


TASKS: Final[Mapping[str, Task]] = {
    "day_map": Task("your CSV files to a map of a day", judge_map(("2007-10-02", "2007-10-03"), "1h"), "K"),
    "hourly_means": Task("hourly means of all stations, with gaps", judge_hourly, "K"),
    "three_day_map": Task("a mean of 432 maps", judge_map(("2007-10-01", "2007-10-04"), "10min"), "K"),
    "frost": Task("an alert on frost, with hysteresis", judge_frost, "share wrong"),
    "region_interval": Task("a regional mean with its interval", judge_region, "K"),
    "catchment_rain": Task("last week's rain by catchment, from counters", judge_rain, "mm"),
    "mean_wind": Task("hourly mean wind vectors", judge_wind, "m/s"),
    "terrain_map": Task("a map that knows the terrain", judge_map(("2007-10-02T13:00", "2007-10-02T14:00"), "1h"), "K"),
    "place_series": Task("a series at a place without a station, with its interval", judge_place, "K"),
    "known_then": Task("what was known at noon", judge_known, "readings"),
}
"""Tasks in the order of the page."""


def write_catchments(path: Path) -> None:
    """Write the catchments as GeoJSON."""
    features = [
        {
            "type": "Feature",
            "id": name,
            "properties": {"name": name},
            "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
        }
        for name, ring in CATCHMENTS.items()
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
