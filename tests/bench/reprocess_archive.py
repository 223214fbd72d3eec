"""A generated archive of years, committed directly: no text is parsed, so that making it costs little."""

from pathlib import Path
from typing import Final

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES

STEP_S: Final = 600
START: Final = "2021-01-01"
DAY_S: Final = 86_400
VARIABLE: Final = "air_temperature"
SPIKES: Final = 2e-4
"""Share of the readings that are spikes."""
_STEPS_AT_ONCE: Final = 8 * 2048


def make_archive(folder: Path, *, days: int, stations: int, seed: int = 6, now_ns: int | None = None) -> Archive:
    """Make an archive of 10-minute air temperature, not yet judged: a course of the year and of the day, weather that
    stations share, noise of each, a few spikes, and a sensor in fifty that stands still for a day a month.
    """
    random = np.random.default_rng(seed)
    names = [f"s{number:03d}" for number in range(stations)]
    lon, lat = 7.0 + random.uniform(0.0, 1.0, stations), 46.0 + random.uniform(0.0, 0.7, stations)
    elevation_m = random.uniform(400.0, 2400.0, stations)
    start_ns = parse_instant(START)
    arrived_ns = now_ns or start_ns + days * DAY_S * SECOND_NS
    archive = Archive.create(
        folder, name="years", slice_s=STEP_S, variables=[KNOWN_VARIABLES[VARIABLE]], now_ns=arrived_ns
    )
    series = tuple(Series(VARIABLE, name, interval_s=float(STEP_S), source="bench") for name in names)
    places = zip(lon.tolist(), lat.tolist(), elevation_m.tolist(), strict=True)
    known = [Station(name, name, (Position(None, *place),)) for name, place in zip(names, places, strict=True)]
    steps = days * DAY_S // STEP_S
    weather = np.cumsum(random.normal(0.0, 0.05, steps))
    weather -= np.linspace(weather[0], weather[-1], steps)
    for first in range(0, steps, _STEPS_AT_ONCE):
        at = np.arange(first, min(first + _STEPS_AT_ONCE, steps))
        day = at * (STEP_S / DAY_S)
        shared = 9.0 * np.sin(2 * np.pi * (day - 105.0) / 365.25) + 4.0 * np.sin(2 * np.pi * (day - 0.4)) + weather[at]
        value = shared + 12.0 - 0.0065 * elevation_m[:, None] + random.normal(0.0, 0.15, (stations, len(at)))
        spiked = random.random(value.shape) < SPIKES
        value[spiked] += random.choice([-25.0, 25.0], int(spiked.sum()))
        still = (np.arange(stations) % 50 == 7)[:, None] & (day % 30.0 < 1.0)
        value = np.where(still, value[:, :1], value).round(2)
        time_ns = start_ns + at * (STEP_S * SECOND_NS)
        count = value.size
        readings = Readings(
            series,
            np.repeat(np.arange(stations, dtype=np.int32), len(at)),
            np.tile(time_ns, stations),
            value.ravel(),
            np.full(count, NOT_EVALUATED, np.uint8),
            np.full(count, arrived_ns, np.int64),
        )
        with archive.commit(batch=f"bench {first}", message=f"steps from {first}", now_ns=arrived_ns) as writer:
            writer.stations(known)
            writer.readings(readings)
    return archive.latest()
