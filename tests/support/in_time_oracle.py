"""Interpolation in time, slow and obvious: one instant of one series at a time."""

import math

import numpy as np

Reading = tuple[int, float]
"""Instant [ns] and value."""

SECOND = 1_000_000_000


def in_time(method: str, readings: list[Reading], instant: int, max_gap_ns: int) -> tuple[float, int]:
    """Return the estimate at an instant, NaN where there is none, and how many readings it was made from.

    Parameters
    ----------
    method
        "nearest", "linear" or "spline".
    readings
        In any order; of several at one instant the first counts, and none that is NaN.
    instant, max_gap_ns
        Where, and the longest time between two readings that is filled [ns].
    """
    known: dict[int, float] = {}
    for when, value in readings:
        if math.isfinite(value):
            known.setdefault(when, value)
    if instant in known:
        return known[instant], 1
    if method == "nearest":
        near = [(abs(when - instant), when) for when in known if 2 * abs(when - instant) <= max_gap_ns]
        return (known[min(near)[1]], 1) if near else (math.nan, 0)
    for run in _runs(sorted(known.items()), max_gap_ns):
        for number in range(len(run) - 1):
            if run[number][0] < instant < run[number + 1][0]:
                return _line(run, number, instant) if method == "linear" else _cubic(run, number, instant)
    return math.nan, 0


def _runs(readings: list[Reading], max_gap_ns: int) -> list[list[Reading]]:
    runs: list[list[Reading]] = []
    for reading in readings:
        if runs and reading[0] - runs[-1][-1][0] <= max_gap_ns:
            runs[-1].append(reading)
        else:
            runs.append([reading])
    return runs


def _line(run: list[Reading], number: int, instant: int) -> tuple[float, int]:
    (start, first), (stop, last) = run[number], run[number + 1]
    share = (instant - start) / (stop - start)
    return (1 - share) * first + share * last, 2


def _cubic(run: list[Reading], number: int, instant: int) -> tuple[float, int]:
    """Return the cubic with given values and slopes at both ends of an interval of a run."""
    (start, first), (stop, last) = run[number], run[number + 1]
    slopes = [_slope(run, number), _slope(run, number + 1)]
    length, seconds = (stop - start) / SECOND, (instant - start) / SECOND
    # Coefficients from the four conditions: values at 0 and at the length, slopes at both.
    conditions = [[1, 0, 0, 0], [1, length, length**2, length**3], [0, 1, 0, 0], [0, 1, 2 * length, 3 * length**2]]
    coefficients = np.linalg.solve(np.array(conditions, dtype=float), [first, last, *slopes])
    used = [other for other in range(number - 1, number + 3) if 0 <= other < len(run)]
    return float(np.polynomial.Polynomial(coefficients)(seconds)), len(used)


def _slope(run: list[Reading], number: int) -> float:
    """Return the slope [per s] of the parabola through a reading and its neighbours, or the last three of the run."""
    begin = min(max(number - 1, 0), max(len(run) - 3, 0))
    points = [((when - run[number][0]) / SECOND, value) for when, value in run[begin : begin + 3]]
    powers = np.vander([seconds for seconds, _ in points], increasing=True)
    return float(np.linalg.solve(powers, [value for _, value in points])[1])
