"""Simulated networks for the quality tests: station-years, shifts of level, blocked gauges, cloudbursts and fronts.

Everything follows from a seed. Station-years have a season, a daily course whose size depends on season and clouds,
weather of days that the network shares with a gradient across it, pools of cold air in valleys, fronts that cross the
network, what each station has of its own (hours), noise of the sensor, single missing readings and pauses of days.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from hypergrid.core.flags import MISSING, NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station

Floats = NDArray[np.float64]
START_NS: Final = int(np.datetime64("2019-01-01", "ns").astype(np.int64))
HOUR_NS: Final = 3_600 * 10**9
DAY_H: Final = 24.0
KM_PER_DEGREE: Final = 111.2


@dataclass(frozen=True)
class Shape:
    """What a network is like."""

    name: str
    stations: int
    interval_s: int
    spacing_km: float
    relief_m: float
    """Elevations lie between 300 m and this much more."""
    positions: bool = True
    """Whether positions are known to those who judge."""


SHAPES: Final = (
    Shape("lowland, 10 min", 20, 600, 20.0, 150.0),
    Shape("mountains with inversions, hourly", 20, 3600, 12.0, 2200.0),
    Shape("five stations, 10 min", 5, 600, 30.0, 400.0),
    Shape("no positions, hourly", 20, 3600, 15.0, 900.0, positions=False),
    Shape("two hundred kilometres apart, hourly", 15, 3600, 200.0, 500.0),
)
"""Sub-daily networks. Daily ones report once a day: see `DAILY`."""
DAILY: Final = Shape("daily means", 20, 86_400, 25.0, 600.0)


@dataclass(frozen=True, eq=False)
class Network:
    """Values of one variable at all stations and times."""

    variable: str
    stations: tuple[Station, ...]
    time_ns: NDArray[np.int64]
    """Shape (time,)."""
    value: Floats
    """NaN where a station did not report, shape (time, station)."""
    x_km: Floats
    y_km: Floats
    """Where stations are, whether that is known or not, shape (station,)."""

    def between(self, start_ns: int, stop_ns: int) -> "Network":
        """Return it within a window."""
        first, last = np.searchsorted(self.time_ns, [start_ns, stop_ns])
        return replace(self, time_ns=self.time_ns[first:last], value=self.value[first:last])

    def readings(self) -> Readings:
        """Return it as readings, ordered by series, then time; nothing where a station did not report."""
        series, time = np.nonzero(np.isfinite(self.value.T))
        stamps, value = self.time_ns[time], self.value[time, series]
        names = tuple(Series(self.variable, one.id) for one in self.stations)
        flag = np.where(np.isnan(value), MISSING, NOT_EVALUATED).astype(np.uint8)
        return Readings(names, series.astype(np.int32), stamps, value, flag, stamps)

    def spread(self) -> float:
        """Return the residual spread of the network, in the variable's unit.

        That is 1.4826 times the median absolute deviation of the readings from the median of the other stations, with
        the mean level of each station taken off, over all stations.
        """
        residual = np.empty_like(self.value)
        for one in range(self.value.shape[1]):
            others = np.delete(self.value, one, axis=1)
            with np.errstate(all="ignore"):
                residual[:, one] = self.value[:, one] - np.nanmedian(others, axis=1)
        residual -= np.nanmedian(residual, axis=0)
        return float(1.4826 * np.nanmedian(np.abs(residual)))


def _stations(shape: Shape, rng: np.random.Generator) -> tuple[tuple[Station, ...], Floats, Floats, Floats]:
    side = int(np.ceil(np.sqrt(shape.stations)))
    place = np.arange(shape.stations)
    jitter = rng.uniform(-0.35, 0.35, (2, shape.stations))
    x_km, y_km = (place % side + jitter[0]) * shape.spacing_km, (place // side + jitter[1]) * shape.spacing_km
    height = 300.0 + shape.relief_m * rng.beta(1.2, 1.8, shape.stations)
    nan = float("nan")
    made = []
    for n in range(shape.stations):
        lon, lat = 8.0 + x_km[n] / (KM_PER_DEGREE * np.cos(np.radians(47.0))), 46.5 + y_km[n] / KM_PER_DEGREE
        at = (float(lon), float(lat), float(height[n])) if shape.positions else (nan, nan, nan)
        made.append(Station(f"s{n:02d}", f"s{n:02d}", (Position(None, *at),)))
    return tuple(made), x_km, y_km, height


def _waves(rng: np.random.Generator, size: int, hours: float, step_h: float, count: int = 1) -> Floats:
    """Return processes with a memory of some hours and a deviation of 1, shape (size, count)."""
    keep = np.exp(-step_h / hours)
    drawn = rng.normal(0.0, np.sqrt(1.0 - keep * keep), (size, count))
    drawn[0] = rng.normal(0.0, 1.0, count)
    return np.asarray(lfilter([1.0], [1.0, -keep], drawn, axis=0))


def station_years(shape: Shape, seed: int, *, days: int = 365, gaps: bool = True) -> Network:
    """Return air temperature [degC] of a network for some days from the first of January."""
    rng = np.random.default_rng([seed, 19])
    stations, x_km, y_km, height = _stations(shape, rng)
    step_h = min(shape.interval_s / 3600.0, 1.0)
    size = round(days * DAY_H / step_h)
    hours = np.arange(size) * step_h
    season = -np.cos(2.0 * np.pi * (hours / DAY_H - 15.0) / 365.0)
    extent = max(float(np.ptp(x_km)), float(np.ptp(y_km)), 1.0)
    # Weather of days: shared, and different from one end to the other the more the network is wide.
    wide = min(1.0, extent / 1000.0)
    shared, across, along = (_waves(rng, size, 60.0, step_h)[:, 0] for _ in range(3))
    weather = 4.0 * shared[:, None] + 4.0 * np.sqrt(wide) * (
        across[:, None] * (x_km / extent - 0.5) + along[:, None] * (y_km / extent - 0.5)
    )
    cloud = 1.0 / (1.0 + np.exp(-1.5 * _waves(rng, size, 30.0, step_h)[:, 0]))
    amplitude = (2.0 + 2.0 * (season + 1.0)) * (1.2 - 0.9 * cloud)
    course = np.cos(2.0 * np.pi * (hours - 15.0) / DAY_H)
    factor = rng.normal(1.0, 0.08, shape.stations)
    value = 9.0 + 9.0 * season[:, None] + weather + (amplitude * course)[:, None] * factor
    value = value - 0.0065 * (height - 300.0) * (1.0 + 0.1 * season[:, None])
    # Pools of cold air: clear nights, and days on end in winter, for the lower of a network with relief.
    if shape.relief_m > 1000.0:
        low = np.clip((900.0 - height) / 600.0, 0.0, 1.0)
        night = np.clip(-course, 0.0, None) * (1.0 - cloud)
        pool = _waves(rng, size, 70.0, step_h)[:, 0] - 0.6
        persistent = np.clip(pool, 0.0, None) * np.clip(-season, 0.0, None)
        value -= low * (4.0 * night + 4.5 * persistent)[:, None]
    else:
        hollow = rng.beta(1.0, 4.0, shape.stations)
        value -= hollow * (3.0 * np.clip(-course, 0.0, None) * (1.0 - cloud))[:, None]
    # Fronts cross with some 50 km/h: a fall within an hour that decays over two days.
    for begin in np.cumsum(rng.exponential(14.0 * DAY_H, days // 10)):
        toward = rng.uniform(0.0, 2.0 * np.pi)
        delay = (x_km * np.cos(toward) + y_km * np.sin(toward)) / rng.uniform(35.0, 70.0)
        since = hours[:, None] - begin - delay + delay.min()
        fall = rng.uniform(3.0, 9.0) * rng.normal(1.0, 0.1, shape.stations)
        value -= np.where(since > 0.0, fall * (1.0 - np.exp(-np.abs(since) / 0.4)) * np.exp(-np.abs(since) / 48.0), 0.0)
    own = rng.uniform(0.3, 0.6, shape.stations) * _waves(rng, size, 5.0, step_h, shape.stations)
    slow = rng.uniform(0.1, 0.3, shape.stations) * _waves(rng, size, 15.0 * DAY_H, step_h, shape.stations)
    value += own + slow + rng.normal(0.0, 0.4, shape.stations) + rng.normal(0.0, 0.1, value.shape)
    stamps = START_NS + np.round(hours * HOUR_NS).astype(np.int64)
    if shape.interval_s == 86_400:
        value, stamps = value.reshape(-1, 24, shape.stations).mean(axis=1), stamps[::24]
    value = np.round(value, 2)
    if gaps:
        value[rng.random(value.shape) < 0.01] = np.nan
        for station in range(shape.stations):
            for begin in np.flatnonzero(rng.random(days) < 1.0 / 120.0):
                first = START_NS + int(begin * DAY_H * HOUR_NS)
                inside = slice(*np.searchsorted(stamps, [first, first + int(rng.exponential(4.0) * DAY_H * HOUR_NS)]))
                value[inside, station] = np.nan
    return Network("air_temperature", stations, stamps, value, x_km, y_km)


@dataclass(frozen=True)
class Shift:
    """A station that reads too much or too little for some days."""

    station: int
    start_ns: int
    stop_ns: int
    size: float
    """In the variable's unit, signed."""

    def plant(self, network: Network) -> Network:
        """Return the network with it."""
        value = network.value.copy()
        rows = (network.time_ns >= self.start_ns) & (network.time_ns < self.stop_ns)
        value[rows, self.station] += self.size
        return replace(network, value=value)


def shift_of(network: Network, spreads: float, spread: float, seed: int, *, least_days: int = 75) -> Shift:
    """Return a shift of so many residual spreads somewhere in a network, for one to four weeks.

    It begins where the station reports: three days on either side have at least nine in ten readings.
    """
    rng = np.random.default_rng([seed, 23])
    day_ns = round(DAY_H * HOUR_NS)
    days = int((network.time_ns[-1] - network.time_ns[0]) // day_ns)
    while True:
        station = int(rng.integers(len(network.stations)))
        length = round(rng.uniform(7.0, 28.0) * day_ns)
        start = int(network.time_ns[0]) + round(rng.uniform(least_days, days - 36.0) * day_ns)
        near = network.between(start - 3 * day_ns, start + 3 * day_ns)
        if np.isfinite(near.value[:, station]).mean() >= 0.9:
            return Shift(station, start, start + length, float(rng.choice([-1.0, 1.0])) * spreads * spread)


RAIN: Final = Shape("rain gauges, 10 min", 25, 600, 8.0, 400.0)


def rain(shape: Shape, seed: int, *, days: int = 365) -> Network:
    """Return rain of each interval [mm] of a network: wide rain of fronts, and cells of showers that move."""
    rng = np.random.default_rng([seed, 29])
    stations, x_km, y_km, _ = _stations(shape, rng)
    step_h = shape.interval_s / 3600.0
    size = round(days * DAY_H / step_h)
    hours = np.arange(size) * step_h
    fallen = np.zeros((size, shape.stations))
    for begin in np.cumsum(rng.exponential(3.5 * DAY_H, days)):
        if begin > hours[-1]:
            break
        length = rng.uniform(3.0, 16.0)
        rows = np.flatnonzero((hours >= begin) & (hours < begin + length))
        if rng.random() < 0.6:
            shape_of = np.sin(np.pi * (hours[rows] - begin) / length)[:, None]
            field = np.exp(0.5 * _waves(rng, len(rows), 1.5, step_h, shape.stations)) if len(rows) else 0.0
            fallen[rows] += rng.gamma(2.0, 0.8) * step_h * shape_of * field * rng.lognormal(0.0, 0.2, shape.stations)
        else:
            for _ in range(int(rng.integers(1, 6))):
                toward, speed, radius = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(20.0, 45.0), rng.uniform(3.0, 8.0)
                middle = (
                    x_km.mean() + rng.normal(0.0, np.ptp(x_km) / 3),
                    y_km.mean() + rng.normal(0.0, np.ptp(y_km) / 3),
                )
                since = hours[rows] - begin - rng.uniform(0.0, length)
                away = np.hypot(
                    x_km - middle[0] - (speed * np.cos(toward) * since)[:, None],
                    y_km - middle[1] - (speed * np.sin(toward) * since)[:, None],
                )
                fallen[rows] += rng.uniform(8.0, 60.0) * step_h * np.exp(-0.5 * (away / radius) ** 2)
    # A tipping bucket of 0.1 mm.
    total = np.floor(np.cumsum(fallen, axis=0) / 0.1 + rng.random(shape.stations))
    tips = np.round(np.diff(total, axis=0, prepend=np.floor(total[:1])) * 0.1, 1)
    stamps = START_NS + np.round(hours * HOUR_NS).astype(np.int64)
    return Network("precipitation", stations, stamps, tips, x_km, y_km)


def counted(network: Network, seed: int) -> Network:
    """Return the same rain as counters of it, each with a content of its own at the beginning."""
    rng = np.random.default_rng([seed, 31])
    value = np.round(np.cumsum(network.value, axis=0) + np.round(rng.uniform(0.0, 300.0, network.value.shape[1]), 1), 1)
    return replace(network, variable="rain_meter", value=value)


@dataclass(frozen=True, eq=False)
class Event:
    """A cloudburst or a front over a network, by variable, and when it passes each station."""

    kind: str
    networks: tuple[Network, ...]
    inside: NDArray[np.bool_]
    """Readings that the event concerns, shape (time, station)."""


EVENT_SHAPE: Final = Shape("event", 25, 600, 9.0, 500.0)


def event(kind: str, seed: int) -> Event:
    """Return three days of a network at 10 minutes in whose middle a "cloudburst" or a "front" passes.

    Size, speed, direction and time of day are drawn. A cloudburst is a cell of 4 to 9 km that moves: up to 25 mm in ten
    minutes, air that falls by up to 14 K, gusts, a rise of pressure, saturated air. A front is a line: temperature
    falls by up to 14 K within 10 to 40 minutes, wind rises and pressure jumps at each station as it passes.
    """
    rng = np.random.default_rng([seed, 37 if kind == "front" else 41])
    stations, x_km, y_km, height = _stations(EVENT_SHAPE, rng)
    count, step_h = EVENT_SHAPE.stations, 1.0 / 6.0
    hours = np.arange(432) * step_h
    begin, toward = 36.0 + rng.uniform(-12.0, 12.0), rng.uniform(0.0, 2.0 * np.pi)
    course = np.cos(2.0 * np.pi * (hours - 15.0) / DAY_H)
    base = 20.0 + 5.0 * course[:, None] - 0.0065 * (height - 300.0) + rng.normal(0.0, 0.3, count)
    base = base + 0.3 * _waves(rng, 432, 5.0, step_h, count)
    moist = np.clip(60.0 - 18.0 * course[:, None] + 3.0 * _waves(rng, 432, 6.0, step_h, count), 15.0, 99.0)
    wind = np.abs(2.5 + _waves(rng, 432, 4.0, step_h)[:, :1] + 0.6 * _waves(rng, 432, 1.0, step_h, count))
    pressure = (
        101.3 * np.exp(-height / 8400.0)
        + 0.2 * _waves(rng, 432, 40.0, step_h)[:, :1]
        + rng.normal(0, 0.005, (432, count))
    )
    middle = x_km.mean() + rng.normal(0.0, 4.0), y_km.mean() + rng.normal(0.0, 4.0)
    east, north = x_km - middle[0], y_km - middle[1]
    along, side = east * np.cos(toward) + north * np.sin(toward), -east * np.sin(toward) + north * np.cos(toward)
    fallen = np.zeros((432, count))
    if kind == "front":
        since = hours[:, None] - begin - along / rng.uniform(35.0, 80.0)
        after, ramp = since > 0.0, rng.uniform(1.0, 4.0) * step_h
        part = np.clip(since / ramp, 0.0, 1.0)
        fall = rng.uniform(6.0, 14.0) * rng.normal(1.0, 0.07, count)
        base = base - part * fall * np.exp(-np.clip(since, 0.0, None) / 30.0)
        moist = moist + part * rng.uniform(15.0, 35.0)
        gust = rng.uniform(6.0, 16.0) * rng.lognormal(0.0, 0.12, count)
        wind = wind + part * gust * np.exp(-np.clip(since, 0.0, None) / rng.uniform(1.0, 4.0))
        pressure = pressure + part * rng.uniform(0.05, 0.25)
        fallen = np.where(after, rng.uniform(2.0, 12.0) * step_h * np.exp(-np.clip(since, 0, None) / 1.5), 0.0)
        inside = (since > -0.5) & (since < 6.0)
    else:
        speed, radius = rng.uniform(15.0, 45.0), rng.uniform(4.0, 9.0)
        away = np.hypot(along - speed * (hours[:, None] - begin), side)
        cell = np.exp(-0.5 * (away / radius) ** 2)
        fallen = rng.uniform(6.0, 25.0) * cell
        # Cold outflow: what fell stays cold for hours.
        reached = np.maximum.accumulate(cell, axis=0)
        since = hours[:, None] - hours[np.argmax(cell, axis=0)]
        base = base - rng.uniform(5.0, 14.0) * reached * np.exp(-np.clip(since, 0.0, None) / 4.0)
        moist = moist + 55.0 * reached * np.exp(-np.clip(since, 0.0, None) / 5.0)
        wind = wind + rng.uniform(5.0, 18.0) * np.exp(-0.5 * (away / (1.3 * radius)) ** 2)
        pressure = pressure + rng.uniform(0.05, 0.3) * cell
        inside = (np.abs(since) < 3.0) & (reached[-1] > 0.1)
    counter = np.floor(np.cumsum(fallen, axis=0) / 0.1) * 0.1 + np.round(rng.uniform(0.0, 200.0, count), 1)
    stamps = START_NS + 180 * round(DAY_H * HOUR_NS) + np.round(hours * HOUR_NS).astype(np.int64)
    wetness = np.clip(moist + rng.normal(0.0, 0.4, moist.shape), 5.0, 100.0)
    values = (
        ("air_temperature", np.round(base + rng.normal(0.0, 0.1, base.shape), 2)),
        ("relative_humidity", np.round(wetness, 1)),
        ("wind_speed", np.round(wind + np.abs(rng.normal(0.0, 0.3, wind.shape)), 2)),
        ("air_pressure", np.round(pressure, 4)),
        ("rain_meter", np.round(counter, 1)),
        ("precipitation", np.round(np.diff(counter, axis=0, prepend=counter[:1]), 1)),
    )
    networks = tuple(Network(name, stations, stamps, value, x_km, y_km) for name, value in values)
    return Event(kind, networks, inside)
