"""What a variogram is made of: terms, and the ellipse of their ranges."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.variograms.models import MODELS, Floats, Model


@dataclass(frozen=True)
class Anisotropy:
    """Geometric anisotropy: the range depends on the direction, as an ellipse (PyKrige's convention).

    Raises
    ------
    InvalidQuery
        An angle that is no number, or a ratio below one.
    """

    token_name: ClassVar[str] = "Anisotropy"

    angle_degree: float
    """Direction of the longest range, counterclockwise from x (east) [degree]; `range_m` is meant along it."""
    ratio: float
    """The longest range over the shortest, one or more."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.angle_degree) and 1 <= self.ratio < math.inf):
            message = (
                "anisotropy needs an angle in degrees and a ratio of one or more (longest range over shortest); got "
                f"angle {self.angle_degree} and ratio {self.ratio}; for a ratio below one turn the angle by 90 "
                "degrees, and give the inverse ratio and the range along the new angle"
            )
            raise InvalidQuery(message)

    def isotropic(self, points_m: Floats) -> Floats:
        """Return positions (x, y) [m], shape (..., 2), moved to where plain distances count as `range_m` does."""
        angle = math.radians(self.angle_degree)
        along = np.array([math.cos(angle), math.sin(angle)])
        across = np.array([-math.sin(angle), math.cos(angle)]) * self.ratio
        return np.asarray(points_m @ np.stack([along, across], axis=1), dtype=np.float64)


@dataclass(frozen=True)
class Structure:
    """One term of a nested sum: a model with its partial sill and its range.

    Raises
    ------
    NotFound
        No such model.
    InvalidQuery
        A parameter that does not fit the model.
    """

    token_name: ClassVar[str] = "Structure"

    model: str
    psill: float
    range_m: float
    smoothness: float | None = None
    exponent: float | None = None

    def __post_init__(self) -> None:
        row = MODELS[self.model]
        # Written so that NaN is refused as well.
        if not 0 <= self.psill < math.inf:
            message = f"a variogram needs psill and nugget of zero or more, and one above zero; got psill {self.psill}"
            raise InvalidQuery(message)
        if not 0 < self.range_m < math.inf:
            message = f"a variogram needs a range above zero metres; got {self.range_m}"
            raise InvalidQuery(message)
        if self.model == "nugget" and self.psill > 0:
            message = f"the nugget model takes its level as nugget, not as psill; got psill {self.psill}"
            raise InvalidQuery(message)
        for name in ("smoothness", "exponent"):
            _check_parameter(self.model, row, name, getattr(self, name))

    @property
    def parameter(self) -> float:
        """The model's own parameter; 0 where it has none."""
        name = MODELS[self.model].parameter
        return float(getattr(self, name)) if name else 0.0

    @property
    def effective_range_m(self) -> float:
        """Where 95 % of the partial sill are reached [m]; infinite without a sill, zero where nothing is gained."""
        if not self.psill:
            return 0.0
        return self.range_m if MODELS[self.model].is_bounded else math.inf

    def semivariance(self, distance_m: Floats) -> Floats:
        """Return this term's part of the semivariance at distances [m], same shape."""
        return self.psill * MODELS[self.model](distance_m / self.range_m, self.parameter)


def _check_parameter(model: str, row: Model, name: str, value: float | None) -> None:
    low, high = row.bounds
    if row.parameter != name and value is not None:
        message = f"the {model} model takes no {name}; got {value}"
        raise InvalidQuery(message)
    if row.parameter == name and (value is None or not low <= value <= high):
        message = f"the {model} model needs its {name} from {low:g} to {high:g}; got {value}"
        raise InvalidQuery(message)
