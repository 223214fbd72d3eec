"""Scores of increments of a rain gauge against what really fell, by day, hour and ten minutes.

Written with the simulated gauges, before the method. An increment belongs to the later of two readings; what fell over
a gap that is too long to bridge, or while a gauge was emptied, is asked of no method where the method gives none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.bench.gauges_simulated import DAY_S, MM_IN, START, Gauge

Floats = NDArray[np.float64]

DAY_NS: Final = DAY_S * 10**9
HOUR_NS: Final = DAY_NS // 24
TEN_MINUTES_NS: Final = HOUR_NS // 6

LEAST_HEARD: Final = 0.8
"""Share of a day's readings below which the day is not judged, as a daily total would be missing."""
MONTH_DAYS, LEAST_MONTH_DAYS = 30, 20
"""Days of a month, and how many of them must be judged."""
LEAST_MONTH_MM: Final = 10.0
"""Rain that a month needs for a bias."""
WITHIN_MONTH: Final = 0.01
"""Bias of a month that is within what is allowed, as a part."""


@dataclass(frozen=True)
class Score:
    """What is found for one gauge, in millimetres."""

    seed: int
    kind: str
    days: int
    within: int
    """Days within max(2 %, three times the noise, the resolution)."""
    beyond: int
    """Days beyond max(10 %, 0.5 mm)."""
    worst_mm: float
    """The largest error of a day beyond what is allowed of any day; 0 where there is none."""
    wet_days: int
    wet_within: int
    not_judged: int
    """Days of which too few readings were heard to judge them."""
    unknown: int
    """Readings of judged days whose increment is not known, though something may have fallen: gaps and emptyings."""
    unknown_mm: float
    """What fell in them."""
    within_all: int
    """Days within, where what is not known counts as nothing."""
    beyond_all: int
    """Days beyond, where what is not known counts as nothing."""
    fallen_mm: float
    found_mm: float
    months_fallen_mm: tuple[float, ...]
    months_found_mm: tuple[float, ...]
    """Each month of the gauge that has 20 judged days or more."""
    hourly_rmse_mm: float
    ten_minutes_rmse_mm: float
    """Root mean square error of the hours, and of the ten minutes, in which it rained; NaN for longer intervals."""


@dataclass(frozen=True, eq=False)
class ByDay:
    """What fell and what was found, by reading and by day [mm]."""

    known: NDArray[np.bool_]
    true: Floats
    own: Floats
    """By reading, shape (n,): 0 where nothing is known."""
    day: NDArray[np.int64]
    """Days since the gauge began, shape (n,)."""
    judged: NDArray[np.bool_]
    fallen: Floats
    found: Floats
    """By day, shape (days,)."""

    def months(self) -> list[NDArray[np.intp]]:
        """Return the judged days of each month that has enough of them."""
        days = np.flatnonzero(self.judged)
        cuts = np.flatnonzero(np.diff(days // MONTH_DAYS)) + 1
        return [month for month in np.split(days, cuts) if len(month) >= LEAST_MONTH_DAYS]


def by_day(gauge: Gauge, found: Floats) -> ByDay:
    """Return what fell and what was found [mm] in readings whose increment [the gauge's unit] is known."""
    true, own = np.diff(gauge.fallen, prepend=np.nan) * MM_IN[gauge.unit], found * MM_IN[gauge.unit]
    known = np.isfinite(own) & np.isfinite(true)
    true, own = np.where(known, true, 0.0), np.where(known, own, 0.0)
    day = (gauge.time_ns - int(START.astype(np.int64))) // DAY_NS
    days = int(day[-1]) + 1
    judged = np.bincount(day, known, days) >= LEAST_HEARD * DAY_S / gauge.interval_s
    return ByDay(known, true, own, day, judged, np.bincount(day, true, days), np.bincount(day, own, days))


def beyond(fell: Floats, found: Floats) -> NDArray[np.bool_]:
    """Return which days [mm] are beyond max(10 %, 0.5 mm); what equals a limit is within it."""
    return np.asarray(np.abs(found - fell) > np.maximum(0.1 * fell, 0.5) + 1e-6)


def score(gauge: Gauge, found: Floats) -> Score:
    """Return the score of increments, one a reading [the gauge's unit]; NaN where none is known."""
    mm = MM_IN[gauge.unit]
    held = by_day(gauge, found)
    judged, day, days, true, own = held.judged, held.day, len(held.judged), held.true, held.own
    whole = np.nan_to_num(np.diff(gauge.fallen, prepend=np.nan) * mm)
    lost = np.isfinite(np.diff(gauge.fallen, prepend=np.nan)) & ~held.known
    fell, got = held.fallen[judged], held.found[judged]
    off = np.abs(got - fell)
    allowed = np.maximum.reduce([0.02 * fell, np.full(len(fell), max(3 * gauge.noise, gauge.resolution) * mm)])
    # Sums of decimals: what equals a limit is within it.
    within, too_far, wet = off <= allowed + 1e-6, beyond(fell, got), fell >= 0.1
    fell_all = np.bincount(day, whole, days)[judged]
    off_all = np.abs(got - fell_all)
    allowed_all = np.maximum(0.02 * fell_all, max(3 * gauge.noise, gauge.resolution) * mm)
    beyond_all = beyond(fell_all, got)
    lost &= judged[day]
    months = [tuple(float(each[block].sum()) for block in held.months()) for each in (held.fallen, held.found)]
    return Score(
        gauge.seed, gauge.kind, int(judged.sum()), int(within.sum()), int(too_far.sum()),
        float(np.max(np.where(too_far, off, 0.0), initial=0.0)), int(wet.sum()), int((within & wet).sum()),
        days - int(judged.sum()), int(lost.sum()), float(whole[lost].sum()),
        int((off_all <= allowed_all + 1e-6).sum()), int(beyond_all.sum()),
        float(fell.sum()), float(got.sum()), months[0], months[1],
        _rmse(gauge, true, own, HOUR_NS), _rmse(gauge, true, own, TEN_MINUTES_NS),
    )  # fmt: skip


def _rmse(gauge: Gauge, true: Floats, own: Floats, length_ns: int) -> float:
    if gauge.interval_s * 10**9 > length_ns:
        return float("nan")
    cell = (gauge.time_ns - gauge.time_ns[0] // DAY_NS * DAY_NS) // length_ns
    fell, got = np.bincount(cell, true), np.bincount(cell, own)
    wet = fell > 0
    return float(np.sqrt(np.mean((got - fell)[wet] ** 2))) if wet.any() else float("nan")


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Return the figures of many gauges together."""
    days, wet = sum(s.days for s in scores), sum(s.wet_days for s in scores)
    fell = np.array([x for s in scores for x in s.months_fallen_mm])
    got = np.array([x for s in scores for x in s.months_found_mm])
    some = fell >= LEAST_MONTH_MM
    bias = (got - fell)[some] / fell[some] if some.any() else np.zeros(1)
    by_gauge = np.array([(s.found_mm - s.fallen_mm) / s.fallen_mm for s in scores if s.fallen_mm > 10]) * 100
    return {
        "gauges": len(scores),
        "gauge_days": days,
        "within_percent": 100 * sum(s.within for s in scores) / max(days, 1),
        "wet_days_within_percent": 100 * sum(s.wet_within for s in scores) / max(wet, 1),
        "beyond_days": sum(s.beyond for s in scores),
        "days_not_judged": sum(s.not_judged for s in scores),
        "unknown_readings": sum(s.unknown for s in scores),
        "unknown_mm": sum(s.unknown_mm for s in scores),
        "unknown_as_nothing_within_percent": 100 * sum(s.within_all for s in scores) / max(days, 1),
        "unknown_as_nothing_beyond_days": sum(s.beyond_all for s in scores),
        "worst_day_mm": max((s.worst_mm for s in scores), default=0.0),
        "monthly_bias_percent": 100 * float((got - fell).sum() / fell.sum()) if fell.sum() else 0.0,
        "median_month_bias_percent": 100 * float(np.median(bias)),
        "months_within_1_percent": 100 * float(np.mean(np.abs(bias) <= WITHIN_MONTH)),
        "worst_gauge_bias_percent": float(by_gauge[np.argmax(np.abs(by_gauge))]) if len(by_gauge) else 0.0,
        "hourly_rmse_mm": float(np.nanmean([s.hourly_rmse_mm for s in scores])),
        "ten_minutes_rmse_mm": float(np.nanmean([s.ten_minutes_rmse_mm for s in scores])),
    }
