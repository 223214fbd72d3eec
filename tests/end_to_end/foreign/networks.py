"""Three networks of strangers: where their stations stand, what they report, and the folders that they send.

Each has its own seed for everything: sites, weather, gaps and the order of rows. `write` makes a folder with `raw`, the
files up to the day after the last whole one; `later`, the files of six hours after that, in which a warm front passes;
and for the mountains `terrain.tif`.
"""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.transform import from_bounds

from tests.end_to_end.foreign.fields import SECOND_NS, Bools, Climate, Component, Floats, Places, Weather, draw

HOUR_NS: Final = 3600 * SECOND_NS
LATER_NS: Final = 6 * HOUR_NS
FRONT_K_PER_HOUR: Final = 2.0
"""By how much the air warms in the hours of `later`."""
DEM_STEP: Final = 0.001
"""Width and height of the elevation model's cells [degree]."""


@dataclass(frozen=True)
class Network:
    """A stranger's network, drawn by its seed."""

    name: str
    ids: tuple[str, ...]
    weather: Weather
    box: tuple[float, float, float, float]
    """West, south, east and north of all stations' possible sites [degree]."""
    written_c: Floats
    """What the files say (time, station) [degC]: rounded as they are; missing where they say so or have no row."""
    rows: Bools
    """Where there is a row (time, station)."""
    raw_count: int
    """How many of the instants are in `raw`."""
    day_ns: tuple[int, int]
    """The last day, of UTC, that is whole in `raw`."""
    elevation: Callable[[Floats, Floats], Floats] | None
    """Elevation [m] of points, where the network lies in mountains."""
    zone: str
    """The time zone of the files."""
    units: Mapping[str, str]
    """Units of columns of which the files themselves say none."""

    @property
    def threshold_c(self) -> float:
        """Return a temperature [degC] above all readings of `raw`, which most stations exceed in `later`."""
        return float(np.nanmax(self.written_c[: self.raw_count])) + 1.0

    def cells(self, lon: Floats, lat: Floats) -> Places:
        """Return points, given by longitude and latitude [degree], with their elevations."""
        height = np.zeros(len(lon)) if self.elevation is None else self.elevation(lon, lat)
        return Places(np.asarray(lon, np.float64), np.asarray(lat, np.float64), height)

    def write(self, folder: Path) -> None:
        """Write `raw`, `later`, and `terrain.tif` where there are mountains."""
        WRITERS[self.name](self, folder / "raw", slice(0, self.raw_count))
        WRITERS[self.name](self, folder / "later", slice(self.raw_count, None))
        if self.elevation is not None:
            self._write_terrain(folder / "terrain.tif")

    def humidity(self) -> Floats:
        """Return relative humidity [%] (time, station), drier where it is warmer."""
        return np.clip(np.round(70.0 - 3.0 * (self.written_c - np.nanmean(self.written_c))), 5.0, 100.0)

    def instants(self, part: slice) -> list[datetime]:
        """Return the instants of a part, in UTC."""
        return [datetime.fromtimestamp(int(time) // SECOND_NS, UTC) for time in self.weather.times_ns[part]]

    def _write_terrain(self, path: Path) -> None:
        assert self.elevation is not None
        west, south, east, north = (edge + by for edge, by in zip(self.box, (-0.05, -0.05, 0.05, 0.05), strict=True))
        columns, rows = round((east - west) / DEM_STEP), round((north - south) / DEM_STEP)
        lon = west + (np.arange(columns) + 0.5) * (east - west) / columns
        lat = north - (np.arange(rows) + 0.5) * (north - south) / rows
        values = self.elevation(*np.meshgrid(lon, lat)).astype(np.float32)
        form = {"driver": "GTiff", "width": columns, "height": rows, "count": 1, "dtype": "float32"}
        place = {"crs": "EPSG:4326", "transform": from_bounds(west, south, east, north, columns, rows)}
        with rasterio.open(path, "w", **form, **place) as file:
            file.write(values, 1)
            file.units = ("m",)


def plain(seed: int) -> Network:
    """Draw eight stations in a plain, every ten minutes over the end of summer time of 2023."""
    rng = np.random.default_rng([seed, 2])
    box = (11.20, 51.80, 12.40, 52.45)
    lon, lat = _spread(rng, 8, box)
    stations = Places(lon.round(5), lat.round(5), rng.integers(45, 110, 8).astype(np.float64))
    times_ns = _times("2023-10-26T22:00", "2023-10-31T06:00", 600)
    rows = np.ones((len(times_ns), 8), np.bool_)
    missing = _runs(rng, rows.shape, share=0.02, longest=6)
    climate = Climate(
        mean_c=9.0,
        wave_k=3.5,
        components=(
            Component(sill=0.9, range_m=80_000.0, shape="matern"),
            Component(sill=0.6, range_m=150_000.0, shape="exponential", memory_s=8 * 3600.0),
        ),
    )
    weather = draw(climate, seed=seed, stations=stations, times_ns=times_ns, reported=rows & ~missing)
    fahrenheit = (weather.readings * 1.8 + 32.0).round(1)
    ids = ("BARBY", "BIEDERITZ", "CALBE", "DESSAU", "EGELN", "GENTHIN", "KOETHEN", "ZERBST")
    units = {"Lufttemperatur": "degF", "Luftfeuchte": "%", "Windgeschwindigkeit": "m s-1"}
    return _network(
        "plain", ids, weather, box=box, written_c=(fahrenheit - 32.0) / 1.8, rows=rows,
        end="2023-10-31T00:00", zone="Europe/Berlin", units=units,
    )  # fmt: skip


def mountains(seed: int) -> Network:
    """Draw 24 stations between 400 and 2,800 m, every half hour of four days in winter."""
    rng = np.random.default_rng([seed, 2])
    box = (7.00, 45.95, 7.65, 46.30)
    lon, lat = _spread(rng, 24, box)
    # As exact as what the table says: a tenth of a second of arc.
    lon, lat = (lon * 36_000.0).round() / 36_000.0, (lat * 36_000.0).round() / 36_000.0
    stations = Places(lon, lat, terrain(lon, lat).round())
    times_ns = _times("2024-02-09T23:00", "2024-02-14T05:00", 1800)
    rows = np.ones((len(times_ns), 24), np.bool_)
    missing = _runs(rng, rows.shape, share=0.02, longest=4)
    climate = Climate(
        mean_c=6.0,
        wave_k=2.5,
        components=(
            Component(sill=0.7, range_m=25_000.0, shape="matern"),
            Component(sill=0.6, range_m=60_000.0, shape="exponential", memory_s=6 * 3600.0),
        ),
        lapse_k_per_m=-0.0062,
    )
    weather = draw(climate, seed=seed, stations=stations, times_ns=times_ns, reported=rows & ~missing)
    ids = tuple(f"VAL{number:02d}" for number in range(1, 25))
    return _network(
        "mountains", ids, weather, box=box, written_c=weather.readings.round(1), rows=rows,
        end="2024-02-14T00:00", zone="+01:00", units={}, elevation=terrain,
    )  # fmt: skip


def country(seed: int) -> Network:
    """Draw 200 stations of a country, two of them at one mast, every hour of five days with gaps and late rows."""
    rng = np.random.default_rng([seed, 2])
    box = (14.20, 49.60, 20.80, 53.60)
    lon, lat = (rng.uniform(low, high, 200).round(4) for low, high in ((box[0], box[2]), (box[1], box[3])))
    lon[199], lat[199] = lon[198], lat[198]
    stations = Places(lon, lat, rng.integers(20, 180, 200).astype(np.float64))
    stations.elevation[199] = stations.elevation[198]
    times_ns = _times("2024-06-02T00:00", "2024-06-07T05:00", 3600)
    # On each day all stations report some hours, and most of them all.
    rows = ~_runs(rng, (len(times_ns), 200), share=0.05, longest=9)
    missing = _runs(rng, rows.shape, share=0.01, longest=2)
    climate = Climate(
        mean_c=18.0,
        wave_k=5.0,
        components=(
            Component(sill=1.0, range_m=120_000.0, shape="exponential"),
            Component(sill=1.2, range_m=400_000.0, shape="matern", memory_s=12 * 3600.0),
        ),
        north_k_per_degree=-0.7,
        offset_k=0.15,
    )
    weather = draw(climate, seed=seed, stations=stations, times_ns=times_ns, reported=rows & ~missing)
    ids = tuple(str(number) for number in sorted(rng.choice(np.arange(1001, 2000), 200, replace=False)))
    return _network(
        "country", ids, weather, box=box, written_c=weather.readings.round(1), rows=rows,
        end="2024-06-07T00:00", zone="UTC", units={"ta": "degC", "rh": "%"},
    )  # fmt: skip


def terrain(lon: Floats, lat: Floats) -> Floats:
    """Return the elevation [m] of points among the mountains."""
    east = (lon - 7.0) * 77.3
    north = (lat - 46.0) * 111.2
    ridges = 700.0 * np.sin(2.0 * np.pi * (east / 18.0 + 0.3 * np.sin(2.0 * np.pi * north / 25.0)))
    valleys = 350.0 * np.sin(2.0 * np.pi * north / 11.0 + 1.0) * np.cos(2.0 * np.pi * east / 31.0)
    return np.asarray(1600.0 + ridges + valleys + 150.0 * np.sin(2.0 * np.pi * (east + north) / 6.0))


def _network(
    name: str, ids: tuple[str, ...], weather: Weather, *, box: tuple[float, float, float, float], written_c: Floats,
    rows: Bools, end: str, zone: str, units: Mapping[str, str],
    elevation: Callable[[Floats, Floats], Floats] | None = None,
) -> Network:  # fmt: skip
    end_ns = _ns(end)
    raw_count = int(np.searchsorted(weather.times_ns, weather.times_ns[-1] - LATER_NS, side="right"))
    hours = np.maximum(weather.times_ns - weather.times_ns[raw_count - 1], 0) / HOUR_NS
    written_c = written_c + FRONT_K_PER_HOUR * hours[:, np.newaxis]
    return Network(
        name, ids, weather, box, written_c, rows, raw_count, (end_ns - 24 * HOUR_NS, end_ns), elevation, zone, units
    )


def _times(start: str, last: str, step_s: int) -> NDArray[np.int64]:
    """Return the instants of `raw` up to the last, and those of `later`."""
    return np.arange(_ns(start), _ns(last) + LATER_NS + 1, step_s * SECOND_NS, dtype=np.int64)


def _ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND_NS


def _spread(rng: np.random.Generator, count: int, box: tuple[float, float, float, float]) -> tuple[Floats, Floats]:
    """Return points in a box, each of ten candidates the one that is farthest from those before."""
    found = np.empty((count, 2))
    for at in range(count):
        candidates = np.column_stack([rng.uniform(box[0], box[2], 10), rng.uniform(box[1], box[3], 10)])
        apart = candidates[:, np.newaxis] - found[:at]
        apart[..., 0] *= np.cos(np.radians(box[1]))
        found[at] = candidates[np.argmax(np.hypot(*np.moveaxis(apart, -1, 0)).min(axis=1, initial=np.inf))]
    return found[:, 0], found[:, 1]


def _runs(rng: np.random.Generator, shape: tuple[int, int], *, share: float, longest: int) -> Bools:
    """Return where runs of 1 to `longest` instants lie (time, station), of which some may touch."""
    found = np.zeros(shape, np.bool_)
    starts = rng.random(shape) < share * 2.0 / (1 + longest)
    for time, station in np.argwhere(starts):
        found[time : time + rng.integers(1, longest + 1), station] = True
    return found


def _write_plain(network: Network, folder: Path, part: slice) -> None:
    """Write a file a station, as a German spreadsheet does: local time, decimal commas, two words for missing."""
    zone = ZoneInfo(network.zone)
    rng = np.random.default_rng([network.weather.seed, 3])
    humidity = network.humidity()[part]
    wind = rng.gamma(2.0, 1.5, network.rows.shape)[part].round(1)
    fahrenheit = (network.written_c * 1.8 + 32.0)[part].round(1)
    as_number = rng.random(network.rows.shape)[part] < 0.5
    for at, name in enumerate(network.ids):
        lines = [["Datum", "Uhrzeit", "Lufttemperatur", "Luftfeuchte", "Windgeschwindigkeit"]]
        for index, instant in enumerate(network.instants(part)):
            local = instant.astimezone(zone)
            values = [fahrenheit[index, at], humidity[index, at], wind[index, at]]
            missing = "-999" if as_number[index, at] else "n.a."
            fields = [missing if np.isnan(value) else f"{value:.1f}".replace(".", ",") for value in values]
            lines.append([local.strftime("%d.%m.%Y"), local.strftime("%H:%M"), *fields])
        _write_table(folder / f"{name}.csv", lines, ";", "\r\n")
    table = [["Kennung", "Name", "Längengrad", "Breitengrad", "Höhe (m)"]]
    stations = network.weather.stations
    for at, name in enumerate(network.ids):
        place = [f"{value[at]:.5f}".replace(".", ",") for value in (stations.lon, stations.lat)]
        table.append([name, name.title().replace("oe", "ö"), *place, f"{stations.elevation[at]:.0f}"])
    _write_table(folder / "stations.csv", table, ";", "\r\n", encoding="utf-8-sig")


def _write_mountains(network: Network, folder: Path, part: slice) -> None:
    """Write a file a day, as a French service does: units in the header, offsets in the times, positions in seconds."""
    zone = timezone(timedelta(hours=1))
    humidity = network.humidity()[part]
    celsius = network.written_c[part]
    days: dict[str, list[list[str]]] = {}
    for index, instant in enumerate(network.instants(part)):
        local = instant.astimezone(zone)
        lines = days.setdefault(local.strftime("%Y-%m-%d"), [])
        for at, name in enumerate(network.ids):
            values = (celsius[index, at], humidity[index, at])
            fields = ["---" if np.isnan(value) else f"{value:.1f}" for value in values]
            lines.append([name, local.isoformat(), *fields])
    header = ["station", "date", "température de l'air (°C)", "humidité relative (%)"]
    for day, lines in days.items():
        _write_table(folder / f"releve_{day}{'' if part.start == 0 else '_suite'}.csv", [header, *lines], ",", "\n")
    table = [["station", "nom", "latitude", "longitude", "altitude (m)"]]
    stations = network.weather.stations
    for at, name in enumerate(network.ids):
        place = [_sexagesimal(stations.lat[at], "NS"), _sexagesimal(stations.lon[at], "EO")]
        table.append([name, f"Vallon {at + 1}", *place, f"{stations.elevation[at]:.0f}"])
    _write_table(folder / "stations.csv", table, ",", "\n")


def _write_country(network: Network, folder: Path, part: slice) -> None:
    """Write a file for each ten stations; one row in thirty is late, and one in two hundred is repeated."""
    rng = np.random.default_rng([network.weather.seed, 3, part.start])
    humidity = network.humidity()[part]
    celsius = network.written_c[part]
    instants = [instant.strftime("%Y-%m-%d %H:%M") for instant in network.instants(part)]
    rows = network.rows[part]
    for first in range(0, len(network.ids), 10):
        lines = [
            [network.ids[at], text, *_coded((celsius[index, at], humidity[index, at]), "-9999")]
            for index, text in enumerate(instants)
            for at in range(first, first + 10)
            if rows[index, at]
        ]
        # A late row follows those of up to two days later.
        order = np.arange(len(lines)) + np.where(rng.random(len(lines)) < 1 / 30, rng.integers(10, 480, len(lines)), 0)
        sent = [lines[index] for index in np.argsort(order, kind="stable")]
        sent += [sent[index] for index in np.flatnonzero(rng.random(len(sent)) < 1 / 200)]
        name = f"region_{first // 10 + 1:02d}{'' if part.start == 0 else '_b'}.csv"
        _write_table(folder / name, [["stn", "obs_time", "ta", "rh"], *sent], ",", "\n")
    table = [["stn", "name", "lat", "lon", "elev"]]
    stations = network.weather.stations
    for at, name in enumerate(network.ids):
        place = (f"{stations.lat[at]:.4f}", f"{stations.lon[at]:.4f}", f"{stations.elevation[at]:.0f}")
        table.append([name, f"Site {name}", *place])
    _write_table(folder / "stations.csv", table, ",", "\n")


def _coded(values: tuple[float, ...], missing: str) -> list[str]:
    return [missing if np.isnan(value) else f"{value:.1f}" for value in values]


def _sexagesimal(degrees: float, letters: str) -> str:
    tenths = round(abs(degrees) * 36_000)
    minutes, seconds = divmod(tenths, 600)
    return f"{minutes // 60}°{minutes % 60:02d}'{seconds / 10:04.1f}\"{letters[int(degrees < 0)]}"


def _write_table(path: Path, rows: list[list[str]], delimiter: str, end: str, encoding: str = "utf-8") -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end).writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.getvalue().encode(encoding))


NETWORKS: Final[Mapping[str, Callable[[int], Network]]] = MappingProxyType(
    {"plain": plain, "mountains": mountains, "country": country}
)
"""What draws each network from a seed."""
WRITERS: Final[Mapping[str, Callable[[Network, Path, slice], None]]] = MappingProxyType(
    {"plain": _write_plain, "mountains": _write_mountains, "country": _write_country}
)
