"""Elevation trends: a lapse rate, or a vertical profile that can represent inversions.

In mountains most of the difference between two stations is due to elevation, which a variogram of horizontal distance
does not capture. A trend is subtracted from the values of the stations, the residuals are interpolated, and the trend
at the elevation of each target is added back (Dodson and Marks 1997, Climate Research 8; with nonlinear profiles, Frei
2014, International Journal of Climatology 34, section 3.1).

A profile is piecewise linear between knots at quantiles of the stations' elevations, fitted by least squares with a
ridge penalty on changes of slope; a linear profile incurs no penalty and is reproduced exactly. Below the lowest and
above the highest station it continues with the slope of its last piece or with the slice's overall lapse rate,
whichever is less steep, and level if they differ in sign.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.parameters import Parameter
from hypergrid.core.units import parse_number
from hypergrid.interpolation.points import Floats

Kind = Literal["lapse_rate", "profile", "fixed", "auto"]

ELEVATION: Final = "elevation"
"""Name of the covariate (and layer) that trends depend on [m]."""

# Several stations must constrain every piece.
STATIONS_A_KNOT: Final = 4
"""Stations per knot of a profile."""

MAX_KNOTS: Final = 6
MIN_STATIONS_OF_PROFILE: Final = 8
MIN_STATIONS_OF_LAPSE_RATE: Final = 4
# Over a smaller span, noise of 0.2 K becomes a lapse rate of 4 K/km.
MIN_SPAN_M: Final = 50.0
"""Least elevation span of the reporting stations [m]."""

# The penalty keeps a profile of few stations from oscillating.
RIDGE: Final = 0.01
"""Weight of changes of slope relative to the squared misfit of a station."""

# Without it a variogram would be fitted to rounding errors.
ROUNDING: Final = 1e-13
"""Share of the largest value below which residuals count as zero."""

PARAMETER: Final = Parameter(
    "trend",
    "trend",
    "profile, lapse_rate, {'lapse_rate': change per km}, none, or auto (by cross-validation): what is taken off "
    "before, and added after",
    required=False,
)


NETWORK_M: Final = "elevations_of_network"
"""Extra argument of a method: elevations of the network's stations [m], with or without values."""


@dataclass(frozen=True)
class Trend:
    """Requested kind of trend."""

    token_name: ClassVar[str] = "Trend"

    kind: Kind
    rate_per_km: float = 0.0
    """Change of the value per km of elevation [the variable's unit km-1]; kind "fixed"."""

    @property
    def is_chosen(self) -> bool:
        """Whether the values of all slices select the trend, or none (`detrended.py`)."""
        return self.kind == "auto"

    def __str__(self) -> str:
        """Format the trend as in a query."""
        return f"{self.rate_per_km:g} per km" if self.kind == "fixed" else self.kind

    def to_json(self) -> object:
        """Convert to the form that `parse_trend` reads."""
        return {"lapse_rate": self.rate_per_km} if self.kind == "fixed" else self.kind


def parse_trend(value: object) -> Trend | None:
    """Parse the trend of a query; None for "none".

    Raises
    ------
    NotFound, InvalidQuery, InvalidUnit
        Neither "profile", "lapse_rate", "auto" nor {"lapse_rate": number}.
    """
    if value is None or isinstance(value, Trend):
        return value
    if isinstance(value, Mapping):
        if set(value) != {"lapse_rate"}:
            raise InvalidQuery(f"trend needs the one key lapse_rate, the change per km; got {sorted(map(str, value))}")
        return Trend("fixed", parse_number(value["lapse_rate"], "", label="lapse_rate of a trend"))
    kinds: dict[object, Trend | None] = {
        "profile": Trend("profile"), "lapse_rate": Trend("lapse_rate"), "auto": Trend("auto"), "none": None,
    }  # fmt: skip
    if isinstance(value, str) and value in kinds:
        return kinds[value]
    raise NotFound.among(kind="trend", given=value, existing=("profile", "lapse_rate", "auto", "none"))


def trend_of(given: Mapping[str, Any]) -> Trend | None:
    """Get the trend from a method's parameters; None if absent."""
    trend = given.get("trend")
    return trend if isinstance(trend, Trend) else None


class FittedTrend:
    """Trend fitted to every slice of a network, zero at the network's mean elevation.

    Parameters
    ----------
    trend
        Kind of trend.
    elevation_m
        Elevations of the stations [m], shape (stations,); no NaN.
    values
        Shape (slices, stations), NaN where missing.
    network_m
        Elevations of all stations of the network [m], including those without values; defaults to `elevation_m`.
    """

    def __init__(self, trend: Trend, elevation_m: Floats, values: Floats, network_m: Floats | None = None) -> None:
        # Knots at elevations of the whole network keep the fit of a slice independent of the other slices.
        network_m = elevation_m if network_m is None else network_m
        self.trend = trend
        self._elevation_m = elevation_m
        self.knots_m = _place_knots(network_m, trend.kind)
        """Elevations between which the trend is linear [m], shape (knots,)."""
        self._reference_m = float(network_m.mean())
        present = np.isfinite(values)
        self.coefficients = np.zeros((len(values), len(self.knots_m) + 2))
        """Value at each knot, slope below the first and above the last; shape (slices, knots + 2)."""
        self.untrended_slices, self.straight_slices, self.slices = 0, 0, int(present.any(axis=1).sum())
        """Slices without a trend, slices with a lapse rate instead of a profile, and non-empty slices."""
        if trend.kind == "fixed":
            self._put_straight(np.arange(len(values)), np.full(len(values), trend.rate_per_km / 1000.0))
        else:
            self._fit(present, np.where(present, values, 0.0))

    @property
    def range_m(self) -> tuple[float, float]:
        """Lowest and highest elevation of the stations [m]."""
        return float(self._elevation_m.min()), float(self._elevation_m.max())

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the number of slices that got a simpler trend than requested."""
        few = f"too few stations report, or they span less than {MIN_SPAN_M:g} m of elevation"
        note_parts = []
        if self.straight_slices:
            note_parts.append(
                f"trend: in {self.straight_slices} of {self.slices} slices a lapse rate in place of a profile ({few})"
            )
        if self.untrended_slices:
            note_parts.append(f"trend: in {self.untrended_slices} of {self.slices} slices none ({few})")
        return tuple(note_parts)

    def columns(self, elevation_m: Floats) -> Floats:
        """Evaluate the basis functions of the coefficients at elevations [m], shape (places, knots + 2)."""
        # Zero at the mean elevation, so that the level of a slice stays in the residuals.
        columns: Floats = self._make_columns(elevation_m) - self._make_columns(np.array([self._reference_m]))
        return columns

    def take_slices(self, slices: NDArray[np.intp]) -> "FittedTrend":
        """Copy the trend with some of its slices; its notes are still those of all."""
        part = copy(self)
        part.coefficients = self.coefficients[slices]
        return part

    def estimate_at_stations(self) -> Floats:
        """Evaluate the trend at the stations, shape (slices, stations)."""
        return np.asarray(self.coefficients @ self.columns(self._elevation_m).T)

    def mask_outside(self, elevation_m: Floats) -> NDArray[np.bool_]:
        """Mask the elevations [m] outside the range of the stations."""
        low, high = self.range_m
        return np.asarray((elevation_m < low) | (elevation_m > high))

    def _make_columns(self, elevation_m: Floats) -> Floats:
        knots = self.knots_m
        clipped = np.clip(elevation_m, knots[0], knots[-1])
        columns = np.zeros((len(elevation_m), len(knots) + 2))
        if len(knots) > 1:
            piece = np.clip(np.searchsorted(knots, clipped, side="right") - 1, 0, len(knots) - 2)
            share = (clipped - knots[piece]) / (knots[piece + 1] - knots[piece])
            rows = np.arange(len(elevation_m))
            columns[rows, piece], columns[rows, piece + 1] = 1.0 - share, share
        columns[:, -2] = np.minimum(elevation_m - knots[0], 0.0)
        columns[:, -1] = np.maximum(elevation_m - knots[-1], 0.0)
        return columns

    def _put_straight(self, slices: NDArray[np.intp], slopes: Floats) -> None:
        self.coefficients[slices, :-2] = slopes[:, None] * (self.knots_m - self._reference_m)
        self.coefficients[slices, -2:] = slopes[:, None]

    def _fit(self, present: NDArray[np.bool_], filled: Floats) -> None:
        """Fit all slices by their normal equations."""
        # Matrix products over stations, and one batch of small systems.
        count = present.sum(axis=1)
        height = np.where(present, self._elevation_m, np.nan)
        has_values = count > 0
        span = np.zeros(len(count))
        span[has_values] = np.nanmax(height[has_values], axis=1) - np.nanmin(height[has_values], axis=1)
        enough = span >= MIN_SPAN_M
        straight = np.flatnonzero(enough & (count >= MIN_STATIONS_OF_LAPSE_RATE))
        self._put_straight(straight, self._find_slopes(present[straight].astype(np.float64), filled[straight]))
        self.untrended_slices = self.slices - len(straight)
        if self.trend.kind == "profile":
            curved = np.flatnonzero(enough & (count >= MIN_STATIONS_OF_PROFILE))
            self.straight_slices = len(straight) - len(curved)
            if len(curved):
                self._put_profiles(curved, present[curved].astype(np.float64), filled[curved])

    def _find_slopes(self, present: Floats, filled: Floats) -> Floats:
        height = self._elevation_m - self._reference_m
        count = present.sum(axis=1)
        mean_height, mean_value = present @ height / count, filled.sum(axis=1) / count
        squares = present @ height**2 - count * mean_height**2
        return np.asarray((filled @ height - count * mean_height * mean_value) / squares)

    def _put_profiles(self, slices: NDArray[np.intp], present: Floats, filled: Floats) -> None:
        knots = len(self.knots_m)
        basis = self._make_columns(self._elevation_m)[:, :-2]
        # Fit deviations from the slice's lapse rate: a linear profile then leaves nothing to solve for.
        overall = self.coefficients[slices, -1]
        line = overall[:, None] * (self._elevation_m - self._reference_m)
        left = np.where(present > 0, filled - line, 0.0)
        products = (basis[:, :, None] * basis[:, None, :]).reshape(len(basis), knots * knots)
        normal = (present @ products).reshape(-1, knots, knots) + present.sum(axis=1)[
            :, None, None
        ] * self._make_ridge()
        around = np.linalg.solve(normal, (left @ basis)[:, :, None])[:, :, 0]
        values = self.coefficients[slices, :-2] + around
        self.coefficients[slices, :-2] = values
        below = (values[:, 1] - values[:, 0]) / (self.knots_m[1] - self.knots_m[0])
        above = (values[:, -1] - values[:, -2]) / (self.knots_m[-1] - self.knots_m[-2])
        # Either slope may be that of an inversion only tens of metres deep. Above the stations of the sample network
        # temperature was off by 0.21 K with the limited slope, by 0.32 K with the overall lapse rate.
        self.coefficients[slices, -2], self.coefficients[slices, -1] = (
            _limit_slope(below, overall),
            _limit_slope(above, overall),
        )

    def _make_ridge(self) -> Floats:
        """Build the quadratic form of slope changes, in values per mean knot distance."""
        knots = self.knots_m
        step = np.diff(knots)
        bends = np.zeros((max(len(knots) - 2, 0), len(knots)))
        for row in range(len(bends)):
            bends[row, row : row + 3] = 1 / step[row], -1 / step[row] - 1 / step[row + 1], 1 / step[row + 1]
        bends *= step.mean() if len(step) else 1.0
        return np.asarray(RIDGE * bends.T @ bends)


def subtract_trend(values: Floats, part: Floats) -> Floats:
    """Subtract a trend from values, setting residuals at rounding level to 0.

    Shapes broadcast, NaN is preserved.
    """
    left = values - part
    largest = np.nanmax(np.abs(values), initial=0.0, where=np.isfinite(values))
    return np.where(np.abs(left) < ROUNDING * largest, 0.0, left)


def _limit_slope(slope: Floats, other: Floats) -> Floats:
    """Select the less steep of two slopes, 0 if they differ in sign."""
    return np.asarray(np.where(slope * other > 0, np.sign(slope) * np.minimum(np.abs(slope), np.abs(other)), 0.0))


def _place_knots(elevation_m: Floats, kind: Kind) -> Floats:
    """Place the knots [m]: both ends and, for a profile, quantiles that are not too close."""
    low, high = float(elevation_m.min()), float(elevation_m.max())
    if low == high:
        return np.array([low])
    count = min(MAX_KNOTS, len(elevation_m) // STATIONS_A_KNOT) if kind == "profile" else 2
    inner = np.quantile(elevation_m, np.linspace(0.0, 1.0, max(count, 2)))[1:-1]
    spacing_m = (high - low) / (3.0 * max(count, 2))
    kept = [low]
    for knot in inner:
        if knot - kept[-1] >= spacing_m and high - knot >= spacing_m:
            kept.append(float(knot))
    return np.array([*kept, high])
