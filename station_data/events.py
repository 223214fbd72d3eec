"""Streams that the sample network lacks: lightning, commands and their acknowledgements, an anemometer at 20 Hz.

    python -m station_data.events OUT

writes each as a CSV file with the column `tau`; everything is a function of the seed.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from station_data.network import stations

STORM: Final = (np.datetime64("2007-09-28T10:00", "ns"), np.datetime64("2007-09-28T16:00", "ns"))
"""The front's rain, with which the lightning comes."""
HEAT_FLUX: Final = 0.18
"""Covariance of vertical wind and temperature that the anemometer measures [K m s-1]."""
SECOND: Final = 1_000_000_000
_FIELDS: Final = {
    "lightning": "tau,lon,lat,current_ka",
    "commands": "tau,station,command",
    "acks": "tau,station,command",
    "sonic": "tau,station,w,t",
}

Times = NDArray[np.int64]


class Commands(NamedTuple):
    """Commands to stations, and what became of them."""

    sent: list[tuple[int, str, str]]
    """Instant [ns], station and command."""
    acks: list[tuple[int, str, str]]
    late: list[str]
    """Commands without an acknowledgement within fifteen minutes, in order."""


def make_lightning(seed: int = 2007, count: int = 60) -> list[tuple[int, float, float, float]]:
    """Return strokes within 15 km of the pass during the front: instant [ns], longitude, latitude, current [kA]."""
    rng = np.random.default_rng([seed, 30])
    start, stop = (int(bound.astype(np.int64)) for bound in STORM)
    times = np.sort(rng.integers(start // SECOND, stop // SECOND, count)) * SECOND
    distance_deg, angle = 15.0 / 111.2 * np.sqrt(rng.random(count)), rng.uniform(0, 2 * np.pi, count)
    lon = 7.18 + distance_deg * np.cos(angle) / np.cos(np.radians(45.87))
    lat = 45.87 + distance_deg * np.sin(angle)
    current = rng.lognormal(3.0, 0.5, count)
    rows = zip(times.tolist(), lon.round(5).tolist(), lat.round(5).tolist(), current.round(1).tolist(), strict=True)
    return list(rows)


def make_commands(seed: int = 2007, count: int = 200) -> Commands:
    """Return commands of two days: one in ten is never acknowledged, and one in ten late."""
    rng = np.random.default_rng([seed, 31])
    start = int(np.datetime64("2007-10-01", "s").astype(np.int64))
    times = np.sort(rng.choice(2 * 86_400, count, replace=False)) + start
    names = [station.id for station in stations()]
    sent, acks, late = [], [], []
    for number, time in enumerate(times.tolist()):
        station, command = names[int(rng.integers(len(names)))], f"c{number}"
        sent.append((time * SECOND, station, command))
        fate = rng.random()
        delay = int(rng.integers(960, 2400)) if fate < 0.1 else int(rng.integers(5, 840))  # noqa: PLR2004 - shares
        if fate < 0.2:  # noqa: PLR2004
            late.append(command)
        if not 0.1 <= fate < 0.2:  # noqa: PLR2004
            acks.append(((time + delay) * SECOND, station, command))
    return Commands(sent, sorted(acks), late)


def make_sonic(seed: int = 2007, minutes: int = 30) -> list[tuple[int, str, float, float]]:
    """Return wind and temperature at 20 Hz with the covariance `HEAT_FLUX`: instant [ns], station, w [m s-1], t."""
    rng = np.random.default_rng([seed, 32])
    count = minutes * 60 * 20
    start = int(np.datetime64("2007-10-01T12:00", "ns").astype(np.int64))
    times = start + np.arange(count, dtype=np.int64) * (SECOND // 20)
    w = rng.normal(0.0, 0.6, count)
    t = 6.0 + HEAT_FLUX / 0.36 * w + rng.normal(0.0, 0.3, count)
    rows = zip(times.tolist(), ["3"] * count, w.round(3).tolist(), t.round(3).tolist(), strict=True)
    return list(rows)


def write_events(out: Path, seed: int = 2007) -> None:
    """Write all streams into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    commands = make_commands(seed)
    streams: dict[str, Sequence[tuple[Any, ...]]] = {
        "lightning": make_lightning(seed), "commands": commands.sent, "acks": commands.acks, "sonic": make_sonic(seed),
    }  # fmt: skip
    for name, rows in streams.items():
        lines = (",".join([str(np.datetime64(tau, "ns")) + "Z", *map(str, rest)]) for tau, *rest in rows)
        (out / f"{name}.csv").write_text("\n".join([_FIELDS[name], *lines]) + "\n")


if __name__ == "__main__":
    write_events(Path(sys.argv[1]))
