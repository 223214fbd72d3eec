"""Compiled loops over pairs of a point and a station."""

import math

import numpy as np

from hypergrid.core.geodesy import FAR_CHORD, RADIUS_M
from hypergrid.interpolation.kernels.covariance import (
    EXPONENTIAL,
    GAUSSIAN,
    LINEAR,
    MATERN_FIVE_HALVES,
    MATERN_THREE_HALVES,
    SPHERICAL,
    CovariancePairs,
    Floats,
)
from hypergrid.interpolation.kernels.threads import jit_kernel

# Batches of a few thousand pairs go through plain loops without branches, which the compiler vectorises; calling the
# library's exponential once per pair was ten times slower.
PAIRS_AT_ONCE = 2048
"""Pairs processed together: their numbers fit into the first-level cache."""
LOG2_E = 1.4426950408889634
# The first part has so few digits that integer multiples of it are exact.
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
"""ln 2 as a sum of two parts (Cody and Waite 1980)."""
# Adding it leaves the integer part of a number in the low bits.
ROUNDING = 6755399441055744.0 + 1023.0
"""1.5 * 2^52, plus the exponent bias."""
MIN_EXPONENT = -708.0
"""Lower limit of the argument of exp; smaller ones give exp(-708) = 3e-308."""
HALF_PI = math.pi / 2.0
QUARTER = 0.25 / RADIUS_M**2
"""Factor from a squared chord [m2] to the squared sine of half its arc."""
MAX_QUARTER_SQUARE = FAR_CHORD**2 / 4.0
"""Squared sine beyond which an arc is computed from the antipode."""


@jit_kernel(counted=False, wrapped=False)
def exponential(x: float) -> float:
    """Compute exp(x) for x <= 0 to 1e-15, by a Taylor polynomial.

    It has degree 13, and is scaled by 2^n.
    """
    x = max(x, MIN_EXPONENT)
    shifted = x * LOG2_E + ROUNDING
    whole = shifted - ROUNDING
    r = (x - whole * LN2_HIGH) - whole * LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = np.int64(np.float64(shifted).view(np.int64) << np.int64(52)).view(np.float64)
    return p * power


@jit_kernel(counted=False, wrapped=False)
def arcsine(square: float) -> float:
    """Compute asin(sqrt(square)) for arguments from 0 to 1, by the rational function of Sun's fdlibm."""
    x = math.sqrt(square)
    is_large = square > 0.25
    t = 0.5 * (1.0 - x) if is_large else square
    s = math.sqrt(t) if is_large else x
    p = 3.47933107596021167570e-05 * t + 7.91534994289814532176e-04
    p = (((p * t - 4.00555345006794114027e-02) * t + 2.01212532134862925881e-01) * t - 3.25565818622400915405e-01) * t
    p = (p + 1.66666666666666657415e-01) * t
    q = (7.70381505559019352791e-02 * t - 6.88283971605453293030e-01) * t + 2.02094576023350569471e00
    q = (q * t - 2.40339491173441421878e00) * t + 1.0
    angle = s + s * (p / q)
    return HALF_PI - 2.0 * angle if is_large else angle


@jit_kernel(counted=False, wrapped=False)
def distances(points: Floats, stations: Floats, point: int, out: Floats, start: int) -> None:
    """Write the distances [m] of a point from all stations; coordinates have shape (2 or 3, places)."""
    count = stations.shape[1]
    x, y = points[0, point], points[1, point]
    if points.shape[0] == 2:
        for s in range(count):
            out[start + s] = math.sqrt((stations[0, s] - x) ** 2 + (stations[1, s] - y) ** 2)
        return
    z = points[2, point]
    far_count = 0
    for s in range(count):
        square = (stations[0, s] - x) ** 2 + (stations[1, s] - y) ** 2 + (stations[2, s] - z) ** 2
        out[start + s] = square * QUARTER
        far_count += square * QUARTER > MAX_QUARTER_SQUARE
    for s in range(count):
        out[start + s] = 2.0 * RADIUS_M * arcsine(out[start + s] if out[start + s] < 1.0 else 1.0)
    if far_count:
        for s in range(count):
            square = (stations[0, s] + x) ** 2 + (stations[1, s] + y) ** 2 + (stations[2, s] + z) ** 2
            if square * QUARTER < 1.0 - MAX_QUARTER_SQUARE:
                out[start + s] = 2.0 * RADIUS_M * (HALF_PI - arcsine(square * QUARTER))


@jit_kernel(counted=False, wrapped=False)
def subtract_term(kind: int, psill: float, scale: float, distance: Floats, out: Floats, count: int) -> None:
    """Subtract one variogram term at the first `count` distances from `out`."""
    if kind == EXPONENTIAL:
        for i in range(count):
            out[i] -= psill * (1.0 - exponential(-scale * distance[i]))
    elif kind == GAUSSIAN:
        for i in range(count):
            ratio = scale * distance[i]
            out[i] -= psill * (1.0 - exponential(-(ratio * ratio)))
    elif kind == SPHERICAL:
        for i in range(count):
            ratio = min(scale * distance[i], 1.0)
            out[i] -= psill * (1.5 * ratio - 0.5 * ratio * ratio * ratio)
    elif kind == MATERN_THREE_HALVES:
        for i in range(count):
            ratio = scale * distance[i]
            out[i] -= psill * (1.0 - (1.0 + ratio) * exponential(-ratio))
    elif kind == MATERN_FIVE_HALVES:
        for i in range(count):
            ratio = scale * distance[i]
            out[i] -= psill * (1.0 - (1.0 + ratio + ratio * ratio / 3.0) * exponential(-ratio))
    elif kind == LINEAR:
        for i in range(count):
            out[i] -= psill * scale * distance[i]


@jit_kernel(counted=False, wrapped=False)
def write_block(pairs: CovariancePairs, first: int, beyond: int, distance: Floats, values: Floats) -> None:
    """Write the covariances of points `first` to `beyond` with all stations, point by point."""
    stride, terms = pairs.stations.shape[1], pairs.terms
    level, origin, coincident_m = pairs.level, pairs.origin, pairs.coincident_m
    count = (beyond - first) * stride
    for point in range(first, beyond):
        distances(pairs.points, pairs.stations, point, distance, (point - first) * stride)
    for i in range(count):
        values[i] = level
    for term in range(terms.shape[0]):
        subtract_term(int(terms[term, 0]), terms[term, 1], terms[term, 2], distance, values, count)
    if coincident_m >= 0.0:
        for i in range(count):
            values[i] = origin if distance[i] <= coincident_m else values[i]


@jit_kernel()
def write_covariances(pairs: CovariancePairs, out: Floats, start: int, stop: int) -> None:
    """Write rows `start` to `stop` of the covariances of points with stations."""
    stride = pairs.stations.shape[1]
    at_once = max(1, PAIRS_AT_ONCE // stride)
    distance, values = np.empty(at_once * stride), np.empty(at_once * stride)
    for first in range(start, stop, at_once):
        beyond = min(first + at_once, stop)
        write_block(pairs, first, beyond, distance, values)
        for point in range(first, beyond):
            for s in range(stride):
                out[point, s] = values[(point - first) * stride + s]


@jit_kernel(reordered=True, counted=False, wrapped=False)
def dot_column(values: Floats, start: int, column: Floats) -> float:
    """Compute the dot product of `column` with the values from `start` on."""
    total = 0.0
    for s in range(column.size):
        total += values[start + s] * column[s]
    return total


@jit_kernel()
def write_products(pairs: CovariancePairs, dual: Floats, out: Floats, start: int, stop: int) -> None:
    """Write columns `start` to `stop` of the products with a dual form, shape (columns, stations)."""
    stride = pairs.stations.shape[1]
    at_once = max(1, PAIRS_AT_ONCE // stride)
    distance, values = np.empty(at_once * stride), np.empty(at_once * stride)
    for first in range(start, stop, at_once):
        beyond = min(first + at_once, stop)
        write_block(pairs, first, beyond, distance, values)
        for point in range(first, beyond):
            for column in range(dual.shape[0]):
                out[column, point] = dot_column(values, (point - first) * stride, dual[column])
