"""Ordinary kriging as a textbook writes it: one system a slice (and a point), no sharing, no inverse."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyproj

Point = tuple[float, float]


def plane(stations: Sequence[Point], points: Sequence[Point], *, is_lonlat: bool) -> tuple[list[Point], list[Point]]:
    """Return stations and points in metres, on a plane around the stations' middle."""
    if not is_lonlat:
        return list(stations), list(points)
    lon, lat = (math.fsum(values) / len(stations) for values in zip(*stations, strict=True))
    project = pyproj.Proj(proj="aeqd", lon_0=round(lon, 6), lat_0=round(lat, 6), datum="WGS84")
    return [project(*place) for place in stations], [project(*place) for place in points]


def semivariance(distance_m: float, variogram: Mapping[str, object]) -> float:
    """Return the semivariance of two places; 0 for a place and itself."""
    if distance_m == 0:
        return 0.0
    sill, reach, nugget = (float(str(variogram.get(key, 0.0))) for key in ("psill", "range_m", "nugget"))
    ratio = distance_m / reach
    share = {
        "exponential": 1 - math.exp(-3 * ratio),
        "gaussian": 1 - math.exp(-((ratio / (4 / 7)) ** 2)),
        "spherical": 1.5 * ratio - 0.5 * ratio**3 if ratio < 1 else 1.0,
    }[str(variogram["model"])]
    return nugget + sill * share


def krige(
    stations_m: Sequence[Point],
    values: Sequence[float],
    points_m: Sequence[Point],
    variogram: Mapping[str, object],
    most: int,
) -> list[float]:
    """Return the estimates of one slice at points, from at most `most` nearest stations with a value."""
    present = [(place, value) for place, value in zip(stations_m, values, strict=True) if math.isfinite(value)]
    return [estimate(present, point, variogram, most)[0] if present else math.nan for point in points_m]


def krige_around(
    mean: float,
    stations_m: Sequence[Point],
    values: Sequence[float],
    points_m: Sequence[Point],
    variogram: Mapping[str, object],
    most: int,
) -> list[float]:
    """Return the estimates of one slice by simple kriging: what differs from a known mean, by covariances."""
    sill = float(str(variogram["psill"])) + float(str(variogram.get("nugget", 0.0)))
    present = [(place, value) for place, value in zip(stations_m, values, strict=True) if math.isfinite(value)]
    found = []
    for point in points_m:
        near = sorted(present, key=lambda pair: math.dist(pair[0], point))[:most]
        places = [place for place, _ in near]
        matrix = [[sill - semivariance(math.dist(one, other), variogram) for other in places] for one in places]
        side = [sill - semivariance(math.dist(place, point), variogram) for place in places]
        weights = np.linalg.solve(np.array(matrix), np.array(side)) if near else np.empty(0)
        found.append(mean + math.fsum(float(w) * (value - mean) for w, (_, value) in zip(weights, near, strict=True)))
    return [value if present else math.nan for value in found]


def estimate(
    present: Sequence[tuple[Point, float]], point: Point, variogram: Mapping[str, object], most: int
) -> tuple[float, float]:
    """Return the estimate at one point and its variance."""
    near = sorted(present, key=lambda pair: math.dist(pair[0], point))[:most]
    count = len(near)
    matrix, side = np.zeros((count + 1, count + 1)), np.ones(count + 1)
    for i, (place, _) in enumerate(near):
        matrix[i, count] = matrix[count, i] = 1.0
        side[i] = semivariance(math.dist(place, point), variogram)
        for j, (other, _) in enumerate(near):
            matrix[i, j] = semivariance(math.dist(place, other), variogram) if i != j else 0.0
    solved = np.linalg.solve(matrix, side)
    value = math.fsum(float(weight) * value for weight, (_, value) in zip(solved, near, strict=False))
    return value, math.fsum(float(a) * float(b) for a, b in zip(solved, side, strict=True))
