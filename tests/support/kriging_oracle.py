"""Kriging as a textbook writes it: one system a slice and a point, no sharing, no inverse."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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


class Estimate(NamedTuple):
    """What kriging says of one point; NaN where too few stations say anything."""

    value: float
    variance: float
    stations: int
    """Stations that it is from."""


def around(
    mean: float,
    present: Sequence[tuple[Point, float]],
    point: Point,
    variogram: Mapping[str, object],
    maximum: int,
    radius_m: float = math.inf,
) -> Estimate:
    """Return the estimate at one point by simple kriging: what differs from a known mean, by covariances."""
    sill = float(str(variogram["psill"])) + float(str(variogram.get("nugget", 0.0)))
    near = [present[i] for i in nearest(present, point, maximum, radius_m)]
    if not near:
        return Estimate(math.nan, math.nan, 0)
    places = [place for place, _ in near]
    matrix = [[sill - semivariance(math.dist(one, other), variogram) for other in places] for one in places]
    side = [sill - semivariance(math.dist(place, point), variogram) for place in places]
    weights = np.linalg.solve(np.array(matrix), np.array(side))
    value = mean + math.fsum(float(w) * (value - mean) for w, (_, value) in zip(weights, near, strict=True))
    variance = sill - math.fsum(float(a) * b for a, b in zip(weights, side, strict=True))
    return Estimate(value, variance, len(near))


def estimate(
    present: Sequence[tuple[Point, float]],
    point: Point,
    variogram: Mapping[str, object],
    maximum: int,
    radius_m: float = math.inf,
    rises_m: Sequence[float] | None = None,
) -> Estimate:
    """Return the estimate at one point by ordinary kriging, or with a drift in height.

    Parameters
    ----------
    present
        Stations that have a value.
    point, variogram
        Where, and how values differ with distance.
    most, radius_m
        At most so many of the nearest stations, none farther.
    rises_m
        How much higher than the point each of these stations is [m]: the mean is linear in height, not constant.
    """
    near = nearest(present, point, maximum, radius_m)
    functions = [[1.0] if rises_m is None else [1.0, rises_m[i] / 100] for i in near]
    count, more = len(near), 1 if rises_m is None else 2
    if count < more:
        return Estimate(math.nan, math.nan, 0)
    matrix, side = np.zeros((count + more, count + more)), np.zeros(count + more)
    side[count] = 1.0
    for row, i in enumerate(near):
        matrix[row, count:] = matrix[count:, row] = functions[row]
        side[row] = semivariance(math.dist(present[i][0], point), variogram)
        for column, j in enumerate(near):
            matrix[row, column] = semivariance(math.dist(present[i][0], present[j][0]), variogram) if i != j else 0.0
    solved = np.linalg.solve(matrix, side)
    value = math.fsum(float(weight) * present[i][1] for weight, i in zip(solved, near, strict=False))
    return Estimate(value, math.fsum(float(a) * float(b) for a, b in zip(solved, side, strict=True)), count)


def nearest(present: Sequence[tuple[Point, float]], point: Point, maximum: int, radius_m: float) -> list[int]:
    """Return which stations are the nearest ones of a point, nearest first."""
    by_distance = sorted((math.dist(place, point), i) for i, (place, _) in enumerate(present))
    return [i for distance, i in by_distance[:maximum] if distance <= radius_m]
