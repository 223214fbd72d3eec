"""Limits that depend on place and time: climatology by latitude and elevation, and limits by the sun."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, GOOD, NOT_EVALUATED, SUSPECT
from hypergrid.core.readings import Series
from hypergrid.physics.sun import LONGEST_STEP_S, MAX_STEPS, sun
from ingest.deployment.quality_settings import Bounds, Climatology, GrossRange, Normal, SunLimit
from ingest.quality.spatial import Places
from ingest.quality.temporal import HOUR_NS, Flags, Floats, Line

# Dawn and dusk do not reveal it; errors of hours are found by the zone guard.
CLOCK_NS: Final = 15 * 60 * 10**9
"""Clock error to allow for [ns]."""
UNKNOWN_ELEVATION_M: Final = 4000.0
"""Assumed maximum elevation of a station of unknown elevation [m]; only some dozens worldwide are higher."""


def climatology(line: Line, settings: Climatology, places: Places) -> Flags:
    """Flag values outside the normal range of their month and place; as ioos_qc, the last match counts.

    Parameters
    ----------
    places
        Of each series. If a height, latitude or elevation is unknown, only ranges that do not depend on it apply.
    """
    count = len(places.lat)
    known = np.zeros((12, count), np.bool_)
    bounds = {flag: (np.full((12, count), -np.inf), np.full((12, count), np.inf)) for flag in (SUSPECT, FAIL)}
    for normal in settings.normal:
        where = np.ix_(np.array(normal.months, np.intp) - 1, np.flatnonzero(_applies(normal, places)))
        known[where] = True
        for flag, span in ((SUSPECT, normal.suspect), (FAIL, normal.fail)):
            low, high = _bounds_at(normal, span, places.elevation_m)
            bounds[flag][0][where], bounds[flag][1][where] = low[where[1]], high[where[1]]
    month: NDArray[np.int64] | int = 0
    if any(len(normal.months) < 12 for normal in settings.normal):
        month = line.time_ns.astype("datetime64[ns]").astype("datetime64[M]").astype(np.int64) % 12
    flags = np.where(known[month, line.index], GOOD, NOT_EVALUATED).astype(np.uint8)
    for flag, (low, high) in bounds.items():
        flags[(line.value < low[month, line.index]) | (line.value > high[month, line.index])] = flag
    return flags


def _applies(normal: Normal, places: Places) -> NDArray[np.bool_]:
    """Return at which series a normal range applies, shape (series,)."""
    mask = np.ones(len(places.lat), np.bool_)
    for span, of in (
        (normal.height_m, places.height_m), (normal.lat, places.lat), (normal.elevation_m, places.elevation_m),
    ):  # fmt: skip
        if span is not None:
            mask &= (of >= span[0]) & (of <= span[1])
    if normal.scale_heights_m is not None:
        mask &= np.isfinite(places.elevation_m)
    return mask


def _bounds_at(normal: Normal, span: Bounds | None, elevation_m: Floats) -> tuple[Floats, Floats]:
    """Return the bounds at elevations [m], shape (series,) each; infinite without a span."""
    if span is None:
        return np.full(len(elevation_m), -np.inf), np.full(len(elevation_m), np.inf)
    low, high = span
    if normal.scale_heights_m is not None:
        return low * np.exp(-elevation_m / normal.scale_heights_m[0]), high * np.exp(
            -elevation_m / normal.scale_heights_m[1]
        )
    known = np.isfinite(elevation_m)
    below, above = min(0.0, normal.low_per_m * UNKNOWN_ELEVATION_M), max(0.0, normal.high_per_m * UNKNOWN_ELEVATION_M)
    return (
        low + np.where(known, normal.low_per_m * elevation_m, below),
        high + np.where(known, normal.high_per_m * elevation_m, above),
    )


def sun_limits(line: Line, settings: GrossRange, series: tuple[Series, ...], places: Places) -> Flags:
    """Flag radiation beyond what the sun allows; not evaluated if the position is unknown.

    An amount, whose bounds grow with its interval, is compared with the limit times its seconds.

    An instantaneous reading, or one of at most two hours, is compared with the highest limit of its interval and of
    `CLOCK_NS` before and after it; a longer one with the mean of the limits. For a sample, the nominal interval before
    and after it counts, up to an hour; the same holds for a mean whose stamp may mark its start or its end, because a
    file may not say which.
    """
    limits, known = settings.sun, np.isfinite(places.lon) & np.isfinite(places.lat)
    seconds = np.array(
        [sensor_series.interval_s if settings.interval_exponent > 0.0 else 1.0 for sensor_series in series]
    )
    known &= seconds > 0.0
    flags = np.where(known[line.index], GOOD, NOT_EVALUATED).astype(np.uint8)
    start_ns, stop_ns = _reach(series)
    # Values below the offset of every limit pass without computing the sun's position.
    low = min(limit.offset for limit in limits) * seconds
    rows = np.flatnonzero(known[line.index] & (line.value > low[line.index]))
    index = line.index[rows]
    value = line.value[rows] / seconds[index]
    length_ns = stop_ns - start_ns
    for number in np.unique(index[length_ns[index] > 2 * HOUR_NS]).tolist():
        chosen = np.flatnonzero(index == number)
        begin_ns, position = line.time_ns[rows[chosen]] + start_ns[number], (places.lon[[number]], places.lat[[number]])
        # A stamp that may mark either end leaves two possible intervals: the higher limit counts.
        halves = [begin_ns, begin_ns + length_ns[number] // 2] if start_ns[number] and stop_ns[number] else [begin_ns]
        mean = [_means(half, int(length_ns[number]) // len(halves), *position, limits) for half in halves]
        flags[rows[chosen]] = np.maximum(flags[rows[chosen]], _flag_beyond(value[chosen], np.max(mean, axis=0), limits))
    chosen = np.flatnonzero(length_ns[index] <= 2 * HOUR_NS)
    at, of = rows[chosen], index[chosen]
    begin_ns, end_ns = line.time_ns[at] + start_ns[of] - CLOCK_NS, line.time_ns[at] + stop_ns[of] + CLOCK_NS
    short_flags = _flag_short_means(value[chosen], begin_ns, end_ns, places.lon[of], places.lat[of], limits)
    flags[at] = np.maximum(flags[at], short_flags)
    return flags


def _reach(series: tuple[Series, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return start and stop of a reading's interval relative to its stamp [ns], shape (series,) each."""
    start, stop = np.zeros(len(series), np.int64), np.zeros(len(series), np.int64)
    for index, sensor_series in enumerate(series):
        length = round(sensor_series.interval_s * 1e9)
        if sensor_series.statistic == "sample":
            length = min(length, HOUR_NS)
        start[index] = 0 if sensor_series.stamp == "start" else -length
        stop[index] = 0 if sensor_series.stamp == "end" else length
    return start, stop


def _limit(limit: SunLimit, sine: Floats, irradiance: Floats) -> Floats:
    return np.asarray(limit.factor * irradiance * np.maximum(sine, 0.0) ** limit.power + limit.offset)


def _sine(stamps_ns: NDArray[np.int64], lon: Floats, lat: Floats) -> tuple[Floats, Floats]:
    """Return sine of the sun's elevation and irradiance outside the atmosphere, shape (n,) each."""
    east, north = np.radians(lon), np.radians(lat)
    up = np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=1)
    now = sun(stamps_ns)
    return np.einsum("ij,ij->i", now.directions, up), now.irradiance_w_m2


def _flag_beyond(value: Floats, highest: Floats, limits: tuple[SunLimit, ...]) -> Flags:
    """Return flags of values by `highest` limits, shape (limits, n)."""
    flags = np.full(len(value), GOOD, np.uint8)
    for limit, maximum in zip(limits, highest, strict=True):
        beyond = value > maximum
        flags[beyond] = np.maximum(flags[beyond], FAIL if limit.flag == "fail" else SUSPECT)
    return flags


def _flag_short_means(
    value: Floats,
    begin_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    lon: Floats,
    lat: Floats,
    limits: tuple[SunLimit, ...],
) -> Flags:
    """Return flags by the highest limit of each interval."""
    highest = np.zeros((len(limits), len(value)))
    # Most values are already below the limit at the middle, so only the others are compared with the ends.
    open_ = np.arange(len(value))
    for stamps_ns in (begin_ns + (end_ns - begin_ns) // 2, begin_ns, end_ns):
        sine, irradiance = _sine(stamps_ns[open_], lon[open_], lat[open_])
        for index, limit in enumerate(limits):
            highest[index, open_] = np.maximum(highest[index, open_], _limit(limit, sine, irradiance))
        open_ = open_[value[open_] > highest[:, open_].min(axis=0)]
    return _flag_beyond(value, highest, limits)


def _means(
    begin_ns: NDArray[np.int64], length_ns: int, lon: Floats, lat: Floats, limits: tuple[SunLimit, ...]
) -> Floats:
    """Return mean limits over intervals of equal length at one place, shape (limits, n)."""
    steps = int(np.clip(-(-length_ns // (LONGEST_STEP_S * 10**9)), 1, MAX_STEPS))
    means = np.zeros((len(limits), len(begin_ns)))
    for step in range(steps):
        stamps_ns = begin_ns + length_ns * (2 * step + 1) // (2 * steps)
        sine, irradiance = _sine(stamps_ns, np.repeat(lon, len(stamps_ns)), np.repeat(lat, len(stamps_ns)))
        for index, limit in enumerate(limits):
            means[index] += _limit(limit, sine, irradiance) / steps
    return means
