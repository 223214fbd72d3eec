"""Planted faults, drawn once per campaign of 28 days, and their ledger."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from station_data.clock import sample_times
from station_data.network import Station
from station_data.sky import ANCHOR, CAMPAIGN_DAYS
from station_data.truth import VARIABLES, truth

FaultKind = Literal["spike", "impossible", "stuck", "drift", "gap", "dead", "timezone"]
Floats = NDArray[np.float64]

ALL = "*"
"""Instead of a variable: the fault affects whole rows."""
ZONE_ERROR_S = 7200
"""Error of the station with the wrong time zone: its stamps are this much too late [s]."""
CAMPAIGN_S = CAMPAIGN_DAYS * 86_400
ANCHOR_S = int(ANCHOR.astype("datetime64[s]").astype(np.int64))


@dataclass(frozen=True)
class Fault:
    """One planted fault, a row of the ledger."""

    kind: FaultKind
    station: str
    variable: str
    """Variable, or ``ALL``."""
    start_s: int
    """First affected stamp [s since 1970, UTC, as in the files]."""
    end_s: int
    """End, excluded [s since 1970]."""
    magnitude: float
    """spike: the added value; impossible, stuck: the reported value; drift: change per day; timezone: error [s]; else
    NaN.
    """


@dataclass(frozen=True)
class Role:
    """A station's role in a campaign: the faults that it gets."""

    slot: int
    """Position of the station in the campaign's random order of the first 24 stations."""
    kind: FaultKind
    variable: str
    low: float
    """Magnitudes are drawn uniformly between `low` and `high`."""
    high: float
    count: int = 1
    hours: tuple[float, float] = (0.0, 0.0)
    """Duration is drawn uniformly between these [h]; (0, 0) is a single reading, or up to the end of the campaign."""
    signs: tuple[float, ...] = (1.0,)
    """Magnitudes are multiplied by one of these, at random."""


ROLES: tuple[Role, ...] = (
    Role(0, "spike", "air_temperature", 6.0, 15.0, 8, signs=(-1.0, 1.0)),
    Role(1, "spike", "air_temperature", 6.0, 15.0, 8, signs=(-1.0, 1.0)),
    Role(2, "spike", "relative_humidity", 25.0, 40.0, 8, signs=(-1.0,)),
    Role(3, "spike", "soil_moisture", 8.0, 15.0, 8),
    Role(4, "spike", "wind_speed", 12.0, 25.0, 8),
    Role(5, "spike", "surface_temperature", 10.0, 25.0, 8, signs=(-1.0, 1.0)),
    Role(6, "impossible", "air_temperature", 123.6, 123.6, 12),
    Role(7, "impossible", "air_temperature", -95.0, -95.0, 12),
    Role(8, "impossible", "surface_temperature", 191.9, 191.9, 12),
    Role(9, "impossible", "relative_humidity", -2.9, -2.9, 12),
    Role(10, "impossible", "solar_radiation", 6553.5, 6553.5, 12),
    Role(11, "impossible", "wind_direction", 655.35, 655.35, 12),
    Role(12, "stuck", "air_temperature", 0.0, 0.0, 1, (5.0, 10.0)),
    Role(13, "stuck", "relative_humidity", 0.0, 0.0, 2, (6.0, 30.0)),
    Role(14, "stuck", "wind_direction", 0.0, 0.0, 2, (12.0, 48.0)),
    Role(15, "stuck", "soil_moisture", 0.0, 0.0, 2, (12.0, 48.0)),
    Role(8, "drift", "air_temperature", 0.03, 0.06),
    Role(9, "drift", "soil_moisture", 0.3, 0.6),
    Role(10, "drift", "relative_humidity", -1.0, -0.5),
    Role(0, "gap", "solar_radiation", 0.0, 0.0, 1, (100.0, 140.0)),
    Role(1, "gap", "solar_radiation", 0.0, 0.0, 1, (180.0, 240.0)),
    Role(2, "gap", "wind_speed", 0.0, 0.0, 1, (60.0, 120.0)),
    Role(3, "gap", "wind_direction", 0.0, 0.0, 1, (60.0, 120.0)),
    Role(16, "gap", ALL, 0.0, 0.0, 3, (2.0, 6.0)),
    Role(17, "gap", ALL, 0.0, 0.0, 3, (6.0, 12.0)),
    Role(18, "gap", ALL, 0.0, 0.0, 2, (12.0, 24.0)),
    Role(19, "gap", ALL, 0.0, 0.0, 1, (36.0, 48.0)),
    Role(20, "gap", ALL, 0.0, 0.0, 1, (60.0, 84.0)),
    Role(21, "dead", ALL, 0.0, 0.0),
)
"""Slots 16 to 23 have wrong or absent rows and no other faults; slot 22 has the wrong zone; slot 23 has no fault."""
ZONE_SLOT = 22


def wrong_zone_station(seed: int, count: int) -> str | None:
    """Return the station with the wrong zone in every campaign; None if too few stations."""
    order = _order(seed, count)
    return str(order[ZONE_SLOT]) if ZONE_SLOT < len(order) else None


def plan(seed: int, network: tuple[Station, ...], start_s: int, stop_s: int) -> tuple[Fault, ...]:
    """Plan the faults that affect stamps in ``[start_s, stop_s)`` [s since 1970].

    Ordered by start, station and variable. A fault keeps its full extent if it reaches beyond the interval.
    """
    faults: list[Fault] = []
    for campaign in range((start_s - ANCHOR_S) // CAMPAIGN_S, (stop_s - 1 - ANCHOR_S) // CAMPAIGN_S + 1):
        faults += _campaign(seed, network, campaign)
    kept = (fault for fault in faults if fault.start_s < stop_s and fault.end_s > start_s)
    return tuple(sorted(kept, key=lambda fault: (fault.start_s, int(fault.station), fault.variable, fault.kind)))


def apply(faults: tuple[Fault, ...], stamps_s: NDArray[np.int64], readings: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Apply the faults of one station to its readings.

    Parameters
    ----------
    faults
        Faults of this station.
    stamps_s
        Stamps as in the files [s since 1970], ascending.
    readings
        Sound readings, shape ``(len(stamps_s), 9)``; not changed.

    Returns
    -------
    readings, absent
        The faulty readings, and a mask of the absent rows.
    """
    faulty, absent = readings.copy(), np.zeros(stamps_s.shape, dtype=np.bool_)
    columns = {variable: column for column, variable in enumerate(VARIABLES)}
    for fault in faults:
        first, last = np.searchsorted(stamps_s, (fault.start_s, fault.end_s))
        rows = slice(int(first), int(last))
        if fault.kind == "timezone":
            continue
        if fault.variable == ALL:
            absent[rows] = True
        elif fault.kind == "gap":
            faulty[rows, columns[fault.variable]] = np.nan
        elif fault.kind == "drift":
            faulty[rows, columns[fault.variable]] += fault.magnitude * (stamps_s[rows] - fault.start_s) / 86_400.0
        elif fault.kind == "spike":
            faulty[rows, columns[fault.variable]] += fault.magnitude
        else:
            faulty[rows, columns[fault.variable]] = fault.magnitude
    return faulty, absent


def _order(seed: int, count: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, 10]).permutation(min(count, 24)) + 1


def _campaign(seed: int, network: tuple[Station, ...], campaign: int) -> list[Fault]:
    """Draw all faults of one campaign."""
    # Each role has its own random generator, so that changing one leaves the others unchanged.
    order = _order(seed, len(network))
    begin = ANCHOR_S + campaign * CAMPAIGN_S
    faults: list[Fault] = []
    for number, role in enumerate(ROLES):
        if role.slot < len(order):
            generator = np.random.default_rng([seed, 11, campaign + (1 << 32), number])
            station = network[int(order[role.slot]) - 1]
            faults += _planted(role, station, begin, generator, seed)
    zone = wrong_zone_station(seed, len(network))
    if zone is not None:
        faults.append(Fault("timezone", zone, ALL, begin, begin + CAMPAIGN_S, float(ZONE_ERROR_S)))
    return faults


def _planted(role: Role, station: Station, begin: int, generator: np.random.Generator, seed: int) -> list[Fault]:
    end = begin + CAMPAIGN_S
    if role.kind == "dead":
        return [Fault("dead", station.id, ALL, begin + int(generator.uniform(13, 15) * 86_400), end, np.nan)]
    if role.kind == "drift":
        start = begin + int(generator.uniform(4, 12) * 86_400)
        return [Fault("drift", station.id, role.variable, start, end, round(generator.uniform(role.low, role.high), 4))]
    # One fault in each equal part of the campaign, so that two of a role never overlap.
    parts = (np.arange(role.count) * CAMPAIGN_S) // role.count
    share, sign = generator.random(role.count), generator.choice(role.signs, role.count)
    sizes = generator.uniform(role.low, role.high, role.count)
    if role.kind in ("spike", "impossible"):
        number = (begin - ANCHOR_S + parts + share * (CAMPAIGN_S // role.count - 600)) // 120 + 2
        # A whole block is drawn for each, so a single stamp costs as much as a day of them.
        starts = np.concatenate([sample_times(seed, station.id, np.array([index], np.int64)) for index in number])
        ends = starts + 1
        values = sizes * sign
    else:
        lengths = (generator.uniform(*role.hours, role.count) * 3600).astype(np.int64)
        starts = begin + parts + (share * (CAMPAIGN_S // role.count - lengths)).astype(np.int64)
        ends = starts + lengths
        values = np.full(role.count, np.nan)
        if role.kind == "stuck":
            values = truth(role.variable, starts * 1_000_000_000, station.lon, station.lat)
    return [
        Fault(role.kind, station.id, role.variable, int(start), int(stop), round(float(value), 3))
        for start, stop, value in zip(starts, ends, values, strict=True)
    ]
