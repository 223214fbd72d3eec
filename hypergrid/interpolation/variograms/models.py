"""Variogram models: share of the partial sill by distance over range."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy  # submodules load on first use: most queries need none

from hypergrid.core.registry import Registry
from hypergrid.interpolation.points import Floats

Shape = Callable[[Floats, float], Floats]

SHARE_AT_RANGE = 1.0 - math.exp(-3.0)
"""Share of the partial sill (95.02 %) that the exponential and every Matern model reach at their effective range."""


@dataclass(frozen=True)
class Model:
    """Shape of a variogram, and its parameter."""

    shape: Shape
    """Maps distance over range (arrays, at least 0) and the model's own parameter to the share."""
    parameter: Literal["smoothness", "exponent"] | None = None
    """Parameter beyond sill and range, if any."""
    bounds: tuple[float, float] = (0.0, 0.0)
    """Least and greatest value of the parameter."""
    is_bounded: bool = True
    """Whether the share tends to 1; unbounded models have share 1 at the range by definition."""

    def __call__(self, ratio: Floats, parameter: float = 0.0) -> Floats:
        """Evaluate the share at distances over range, same shape."""
        return self.shape(ratio, parameter)


MODELS: Registry[Model] = Registry("variogram model")
"""Variogram models by name."""


def _exponential(ratio: Floats, _: float) -> Floats:
    return 1.0 - np.exp(-3.0 * ratio)


def _gaussian(ratio: Floats, _: float) -> Floats:
    # PyKrige's effective range is 7/4 of the scale, where the share is 1 - exp(-49/16) = 95.3 %.
    return 1.0 - np.exp(-((ratio * 7.0 / 4.0) ** 2))


def _spherical(ratio: Floats, _: float) -> Floats:
    inside = np.minimum(ratio, 1.0)
    return 1.5 * inside - 0.5 * inside**3


def _matern(ratio: Floats, smoothness: float) -> Floats:
    return 1.0 - matern_correlation(ratio * matern_factor(smoothness), smoothness)


def _linear(ratio: Floats, _: float) -> Floats:
    return np.asarray(ratio, dtype=np.float64)


def _power(ratio: Floats, exponent: float) -> Floats:
    return np.asarray(ratio**exponent, dtype=np.float64)


def _nugget(ratio: Floats, _: float) -> Floats:
    return np.zeros_like(ratio)


def matern_correlation(scaled: Floats, smoothness: float) -> Floats:
    """Evaluate the Matern correlation `2^(1-s) / Gamma(s) t^s K_s(t)`, same shape.

    With t the distance over scale and s the smoothness: Rasmussen and Williams (2006), equation 4.14, without the
    factor sqrt(2 s), which `matern_factor` includes.
    """
    t = np.asarray(scaled, dtype=np.float64)
    # Half-integers have closed forms, about ten times faster than the Bessel function.
    if smoothness == 0.5:
        return np.asarray(np.exp(-t))
    if smoothness == 1.5:
        return np.asarray((1.0 + t) * np.exp(-t))
    if smoothness == 2.5:
        return np.asarray((1.0 + t + t * t / 3.0) * np.exp(-t))
    safe = np.where(t > 0, t, 1.0)
    # In logarithms: K_s overflows near zero where t^s underflows.
    logarithm = (1.0 - smoothness) * math.log(2.0) - scipy.special.gammaln(smoothness) + smoothness * np.log(safe)
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.exp(logarithm + np.log(scipy.special.kve(smoothness, safe)) - safe)
    # If even the scaled function overflows, the distance is effectively zero.
    return np.asarray(np.where((t > 0) & np.isfinite(result), np.minimum(result, 1.0), 1.0))


@lru_cache(maxsize=512)
def matern_factor(smoothness: float) -> float:
    """Compute effective range over scale, where a Matern model reaches `SHARE_AT_RANGE`; 3 at smoothness 0.5."""
    if smoothness == 0.5:
        return 3.0
    front = 2.0 ** (1.0 - smoothness) / math.gamma(smoothness)

    def off(t: float) -> float:
        return float(front * t**smoothness * scipy.special.kv(smoothness, t)) - (1.0 - SHARE_AT_RANGE)

    return float(scipy.optimize.brentq(off, 1e-3, 100.0, xtol=1e-14, rtol=1e-14))


MODELS.add("exponential", Model(_exponential))
MODELS.add("gaussian", Model(_gaussian))
MODELS.add("spherical", Model(_spherical))
# Other libraries also support these bounds; above them it equals the Gaussian model to three digits.
MODELS.add("matern", Model(_matern, "smoothness", (0.2, 20.0)))
MODELS.add("linear", Model(_linear, is_bounded=False))
# At exponent 2 the power model is no longer a valid variogram: the field would be a plane.
MODELS.add("power", Model(_power, "exponent", (0.01, 1.99), is_bounded=False))
MODELS.add("nugget", Model(_nugget))
