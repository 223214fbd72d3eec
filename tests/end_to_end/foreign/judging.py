"""How good maps of the foreign networks are: against the truth, and against kriging with the true covariance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import xarray as xr

from tests.end_to_end.foreign.fields import Floats
from tests.end_to_end.foreign.networks import Network

MOST_CELLS: Final = 400
"""At how many cells the truth is drawn, at random where a map has more."""
HALF_WIDTH: Final = 1.959964
"""Half of a 95 % interval in standard deviations."""
CORRELATION: Final = 0.97
"""Share of the correlation of kriging with the true covariance that is to be reached."""
BIAS: Final = 0.1
"""Largest mean error, in standard deviations of the truth."""
COVERED: Final = (0.90, 0.98)
"""Share of true cells in the 95 % intervals."""


@dataclass(frozen=True)
class Estimate:
    """How one way of estimating fared in one weather."""

    correlation: float
    error_k: float
    """Mean of estimate minus truth [K]."""
    covered: float
    """Share of the cells whose 95 % interval holds the truth."""


@dataclass(frozen=True)
class Score:
    """How a map, and kriging with the true covariance of the same readings, fared in one weather."""

    spread_k: float
    """Standard deviation of the truth [K]."""
    chosen: Estimate
    possible: Estimate
    method: str
    """What is said of the choice."""


@dataclass(frozen=True)
class Verdict:
    """Scores of several weathers, pooled."""

    correlation: float
    """Mean correlation over that of kriging with the true covariance."""
    bias: float
    """Mean error in standard deviations of the truth."""
    covered: float

    @property
    def failures(self) -> list[str]:
        """Return what is not as it must be."""
        found = []
        if not self.correlation >= CORRELATION:
            found.append(f"correlation is {self.correlation:.4f} of what is possible, not {CORRELATION}")
        if not abs(self.bias) <= BIAS:
            found.append(f"bias is {self.bias:+.3f} standard deviations, not at most {BIAS}")
        if not COVERED[0] <= self.covered <= COVERED[1]:
            found.append(f"95 % intervals hold {self.covered:.3f} of the truth, not {COVERED[0]} to {COVERED[1]}")
        return found


def judge(network: Network, answer: xr.Dataset) -> Score:
    """Judge a map of a mean over time, with its variance, at up to `MOST_CELLS` of its cells."""
    value, variance = (pick(answer, what).squeeze() for what in ("", "variance"))
    assert value.dims == ("lat", "lon"), value.dims
    unit = value.attrs["units"]
    assert unit == "degC", unit
    begin, end = np.asarray(answer["time_bounds"].values, "datetime64[ns]").astype(np.int64).ravel().tolist()
    lat, lon = (each.ravel() for each in np.meshgrid(value["lat"].values, value["lon"].values, indexing="ij"))
    rng = np.random.default_rng([network.weather.seed, 4])
    drawn = np.sort(rng.permutation(len(lon))[:MOST_CELLS])
    cells = network.cells(lon[drawn], lat[drawn])
    truth = network.weather.true_means((begin, end), cells)
    best, best_variance = network.weather.kriged_means((begin, end), cells)
    return Score(
        float(truth.std()),
        estimate(truth, value.values.ravel()[drawn], variance.values.ravel()[drawn]),
        estimate(truth, best, best_variance),
        str(answer.attrs.get("comment", "")),
    )


def estimate(truth: Floats, found: Floats, variance: Floats) -> Estimate:
    """Compare an estimate with the truth; cells without one are outside any interval, and leave no correlation."""
    flat = not np.isfinite(found).all() or np.ptp(found) == 0.0
    return Estimate(
        0.0 if flat else float(np.corrcoef(truth, found)[0, 1]),
        float(np.mean(found - truth)),
        float(np.mean(np.abs(found - truth) <= HALF_WIDTH * np.sqrt(variance))),
    )


def pool(scores: Sequence[Score]) -> Verdict:
    """Pool the scores of several weathers of one network."""
    spread = np.sqrt(np.mean([score.spread_k**2 for score in scores]))
    return Verdict(
        float(np.mean([score.chosen.correlation for score in scores]))
        / float(np.mean([score.possible.correlation for score in scores])),
        float(np.mean([score.chosen.error_k for score in scores]) / spread),
        float(np.mean([score.chosen.covered for score in scores])),
    )


def pick(answer: xr.Dataset, what: str) -> xr.DataArray:
    """Return the air temperature of a result, or what is said of it, by its own name or as `value`."""
    own = "_".join(filter(None, ["air_temperature", what]))
    return answer[own] if own in answer else answer[what or "value"]
