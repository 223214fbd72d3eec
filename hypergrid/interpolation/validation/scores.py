"""Scores of estimates against measured values, and of the calibration of their variances."""

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from hypergrid.interpolation.points.points import Floats

Z95 = 1.959963984540054
"""Half-width of the interval that holds 95 % of a standard normal distribution."""

BANDS = 4
"""Default number of elevation bands, with about equally many stations each."""


@dataclass(frozen=True)
class Score:
    """Errors of estimates; NaN if undefined."""

    count: int
    """Pairs of a value and its estimate."""
    missed: int
    """Values without an estimate, excluded from the errors below."""
    rmse: float
    """Root mean squared error [unit of the values]."""
    bias: float
    """Mean of estimate minus value [unit of the values]."""
    mae: float
    """Mean absolute error [unit of the values]."""
    standardised_mean: float
    """Mean of the errors divided by their stated standard deviations; 0 if calibrated."""
    standardised_variance: float
    """Variance of the same; 1 if calibrated, above 1 if the method is overconfident."""
    coverage_95: float
    """Share of the values within 1.96 stated standard deviations of their estimates; 0.95 if calibrated."""

    def to_json(self) -> dict[str, float | int | None]:
        """Convert to JSON; undefined numbers become null."""
        return {name: None if np.isnan(value) else value for name, value in asdict(self).items()}


def score(values: Floats, estimate: Floats, variance: Floats | None) -> Score:
    """Score estimates.

    Parameters
    ----------
    values, estimate, variance
        Of equal shape; NaN in `values` is skipped, NaN in `estimate` is counted as missed. A method without variance
        has None.
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
    """Score each station, one row per station in their order."""
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
    """Score each elevation band, lowest first.

    Parameters
    ----------
    values, estimate, variance
        Shape (slices, stations).
    elevation_m
        Shape (stations,) [m]; stations of unknown elevation are in the last row, whose band is NaN.
    edges_m
        Increasing edges of bands [m], including lower ones and the very last; defaults to quartiles of the stations.
        Stations outside are in no row.

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
