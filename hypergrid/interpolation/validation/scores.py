"""Scores of estimates against what was measured, with how honest their variances are."""

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Z95 = 1.959963984540054
"""Half the width of the interval that holds 95 % of a standard normal distribution."""

BANDS = 4
"""Bands of elevation with about as many stations each, where no edges are given."""


@dataclass(frozen=True)
class Score:
    """How far estimates are from values; NaN where there is nothing to tell from."""

    count: int
    """Pairs of a value and its estimate."""
    missed: int
    """Values without an estimate; no error below counts them."""
    rmse: float
    """Root of the mean squared error [unit of the values]."""
    bias: float
    """Mean of estimate minus value [unit of the values]."""
    mae: float
    """Mean absolute error [unit of the values]."""
    standardised_mean: float
    """Mean of the errors over their standard deviations as the method states them; 0 where it is honest."""
    standardised_variance: float
    """Variance of the same; 1 where the method is honest, above 1 where it is too sure of itself."""
    coverage_95: float
    """Share of the values within 1.96 stated standard deviations of their estimates; 0.95 where it is honest."""

    def to_json(self) -> dict[str, float | int | None]:
        """Return the JSON form; null where a number is not known."""
        return {name: None if np.isnan(value) else value for name, value in asdict(self).items()}


def score(values: Floats, estimate: Floats, variance: Floats | None) -> Score:
    """Return the score of estimates.

    Parameters
    ----------
    values, estimate, variance
        Of one shape; NaN in `values` is skipped, NaN in `estimate` is counted. None: the method knows no variance.
    """
    wanted = np.isfinite(values)
    known = wanted & np.isfinite(estimate)
    error = estimate[known] - values[known]
    count = len(error)
    mean, covered = (float("nan"), float("nan")), float("nan")
    if variance is not None:
        sure = variance[known] > 0
        if sure.any():
            standardised = error[sure] / np.sqrt(variance[known][sure])
            mean = float(standardised.mean()), float(standardised.var())
            covered = float(np.mean(np.abs(standardised) <= Z95))
    return Score(
        count,
        int(wanted.sum()) - count,
        float(np.sqrt(np.mean(error**2))) if count else float("nan"),
        float(error.mean()) if count else float("nan"),
        float(np.abs(error).mean()) if count else float("nan"),
        *mean,
        covered,
    )


def by_station(values: Floats, estimate: Floats, variance: Floats | None, names: tuple[str, ...]) -> pd.DataFrame:
    """Return the score of each station, one row a station in their order."""
    rows = [
        asdict(score(values[:, i], estimate[:, i], None if variance is None else variance[:, i]))
        for i in range(len(names))
    ]
    return pd.DataFrame(rows, index=pd.Index(names, name="station"), columns=list(Score.__annotations__))


def by_elevation(
    values: Floats,
    estimate: Floats,
    variance: Floats | None,
    elevation_m: Floats,
    *,
    edges_m: Floats | None = None,
) -> pd.DataFrame:
    """Return the score of each band of elevation, lowest first.

    Parameters
    ----------
    values, estimate, variance
        Shape (slices, stations).
    elevation_m
        Shape (stations,); stations whose elevation is not known are in the last row, whose band is NaN.
    edges_m
        Increasing edges of bands, lower ones included, and the last one as well; quartiles of the stations where
        absent. Stations outside are in no row.

    Returns
    -------
    Columns low_m, high_m, stations, and those of `Score`.
    """
    known = np.isfinite(elevation_m)
    edges = edges_m
    if edges is None:
        shares = np.linspace(0.0, 1.0, BANDS + 1)
        edges = np.unique(np.quantile(elevation_m[known], shares)) if known.any() else np.empty(0)
        edges = np.repeat(edges, 2) if len(edges) == 1 else edges
    rows = []
    for low, high, last in zip(edges[:-1], edges[1:], np.arange(1, len(edges)) == len(edges) - 1, strict=True):
        inside = (elevation_m >= low) & ((elevation_m <= high) if last else (elevation_m < high))
        rows.append((float(low), float(high), np.flatnonzero(inside)))
    if not known.all():
        rows.append((float("nan"), float("nan"), np.flatnonzero(~known)))
    table = [
        {
            "low_m": low,
            "high_m": high,
            "stations": len(columns),
            **asdict(
                score(values[:, columns], estimate[:, columns], None if variance is None else variance[:, columns])
            ),
        }
        for low, high, columns in rows
    ]
    return pd.DataFrame(table, columns=["low_m", "high_m", "stations", *Score.__annotations__])
