"""Variograms: how unlike two values are, by distance.

Conventions (PyKrige's): `psill` is the partial sill; `range_m` the effective range, where 95 % of the partial sill is
reached (for the spherical model the range itself); `nugget` is added at every distance above zero.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.errors import InvalidQuery
from hypergrid.registry import Registry
from hypergrid.units import parse_number

Shape = Callable[[NDArray[np.float64]], NDArray[np.float64]]

MODELS: Registry[Shape] = Registry("variogram model")
"""Model name to its shape: distance over range to the share of the partial sill."""


@MODELS.register("exponential")
def _exponential(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - np.exp(-3.0 * ratio)


@MODELS.register("gaussian")
def _gaussian(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    # PyKrige's effective range is 7/4 of the scale, where the share is 1 - exp(-49/16) = 95.3 %.
    return 1.0 - np.exp(-((ratio * 7.0 / 4.0) ** 2))


@MODELS.register("spherical")
def _spherical(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    inside = np.minimum(ratio, 1.0)
    return 1.5 * inside - 0.5 * inside**3


@dataclass(frozen=True)
class Variogram:
    """A variogram model with its parameters; `hg.variogram` builds one from what a user writes.

    Raises
    ------
    InvalidQuery
        A negative sill or nugget, both zero, or a range that is not above zero.
    """

    model: str
    psill: float
    """Partial sill [square of the variable's unit]."""
    range_m: float
    """Effective range [m]."""
    nugget: float = 0.0
    """Nugget [square of the variable's unit]."""

    def __post_init__(self) -> None:
        MODELS[self.model]
        # Written so that NaN is refused as well.
        if not (0 <= self.psill < math.inf and 0 <= self.nugget < math.inf and self.psill + self.nugget > 0):
            message = (
                f"a variogram needs psill and nugget of zero or more, and one above zero; got psill {self.psill} and "
                f"nugget {self.nugget}"
            )
            raise InvalidQuery(message)
        if not 0 < self.range_m < math.inf:
            message = f"a variogram needs a range above zero metres; got {self.range_m}"
            raise InvalidQuery(message)

    def semivariance(self, distance_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return half the expected squared difference between different places at distances [m], same shape."""
        return self.nugget + self.psill * MODELS[self.model](distance_m / self.range_m)

    def to_json(self) -> dict[str, str | float]:
        """Return the JSON form."""
        return asdict(self)


def variogram(model: str, *, psill: object, range_m: object, nugget: object = 0.0) -> Variogram:
    """Describe a variogram.

    Parameters
    ----------
    model
        "exponential", "gaussian" or "spherical".
    psill, nugget
        Partial sill and nugget [square of the variable's unit].
    range_m
        Effective range [m], or text with a unit of its own ("0.25 km").

    Raises
    ------
    NotFound
        No such model.
    InvalidQuery, InvalidUnit
        A parameter that makes no variogram, or is no number.
    """
    return Variogram(
        model,
        parse_number(psill, "", who="psill of a variogram"),
        parse_number(range_m, "m", who="range_m of a variogram"),
        parse_number(nugget, "", who="nugget of a variogram"),
    )


def parse_variogram(value: object) -> Variogram:
    """Return a variogram given as one, or as its JSON form.

    Raises
    ------
    InvalidQuery
        Neither; or keys that are missing or unknown.
    """
    if isinstance(value, Variogram):
        return value
    wanted = {"model", "psill", "range_m", "nugget"}
    if not isinstance(value, Mapping) or not {"model", "psill", "range_m"} <= set(value) <= wanted:
        given = sorted(map(str, value)) if isinstance(value, Mapping) else value
        message = f"a variogram needs the keys model, psill, range_m and perhaps nugget; got {given!r}"
        raise InvalidQuery(message)
    keys = {key: value[key] for key in ("psill", "range_m", "nugget") if key in value}
    return variogram(value["model"], **keys)
