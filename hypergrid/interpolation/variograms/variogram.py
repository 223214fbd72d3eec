"""Variograms: how unlike two values are, by distance.

Conventions (PyKrige's): `psill` is the partial sill; `range_m` the effective range, where 95 % of the partial sill is
reached (for the spherical model the range itself); `nugget` is added at every distance above zero. The unbounded
models have no sill: their `psill` is what the semivariance has gained at `range_m`. `conventions.py` has the table of
all models, and of other libraries.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.units import parse_number
from hypergrid.interpolation.variograms.models import MODELS
from hypergrid.interpolation.variograms.structure import Anisotropy, Structure

__all__ = ["MODELS", "Anisotropy", "NuggetIs", "Structure", "Variogram", "parse_variogram", "variogram"]

NuggetIs = Literal["micro-scale", "measurement error"]
"""What the nugget stands for: a part of the field that varies between any two places, or noise of the instruments."""

MAX_NESTED = 10
"""Further terms that a written sum may have: each costs as much as the first, and nobody can fit so many."""

# A token leaves these out where they are not used, so that what needs only sill, range and nugget keeps its token.
_LATER: dict[str, Any] = {"omit_default": True}


@dataclass(frozen=True)
class Variogram:
    """A variogram model with its parameters; `hg.variogram` builds one from what a user writes, `+` nests two.

    Raises
    ------
    NotFound
        No such model.
    InvalidQuery
        A negative sill or nugget, all of them zero, a range that is not above zero, or a parameter of another model.
    """

    token_name: ClassVar[str] = "Variogram"

    model: str
    psill: float
    """Partial sill [square of the variable's unit]."""
    range_m: float
    """Effective range [m]."""
    nugget: float = 0.0
    """Nugget [square of the variable's unit]."""
    smoothness: float | None = field(default=None, metadata=_LATER)
    """Of the matern model: 0.5 is the exponential model, greater is smoother."""
    exponent: float | None = field(default=None, metadata=_LATER)
    """Of the power model, between 0 and 2; 1 is the linear model."""
    anisotropy: Anisotropy | None = field(default=None, metadata=_LATER)
    """Of all terms; `semivariance` is then of distances between positions that went through `isotropic`."""
    nugget_is: NuggetIs = field(default="micro-scale", metadata=_LATER)
    nested: tuple[Structure, ...] = field(default=(), metadata=_LATER)
    """Further terms of the sum."""

    def __post_init__(self) -> None:
        total = sum(term.psill for term in self.structures) + self.nugget
        if not (0 <= self.nugget < math.inf and 0 < total < math.inf):
            message = (
                f"a variogram needs psill and nugget of zero or more, and one above zero; got psill {self.psill} and "
                f"nugget {self.nugget}"
            )
            raise InvalidQuery(message)
        if self.nugget_is not in get_args(NuggetIs):
            message = f"nugget_is of a variogram is one of {', '.join(get_args(NuggetIs))}; got {self.nugget_is!r}"
            raise InvalidQuery(message)

    @property
    def structures(self) -> tuple[Structure, ...]:
        """All terms of the sum but the nugget."""
        return (Structure(self.model, self.psill, self.range_m, self.smoothness, self.exponent), *self.nested)

    @property
    def is_bounded(self) -> bool:
        """Whether there is a sill; without one there is no covariance, and simple kriging is not possible."""
        return all(MODELS[term.model].is_bounded for term in self.structures if term.psill)

    @property
    def sill(self) -> float:
        """What the semivariance tends to, nugget included; infinite for an unbounded variogram."""
        return self.nugget + sum(term.psill for term in self.structures) if self.is_bounded else math.inf

    @property
    def effective_range_m(self) -> float:
        """Where every term has reached 95 % of its partial sill [m]; infinite for an unbounded variogram."""
        return max(term.effective_range_m for term in self.structures)

    def semivariance(self, distance_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return half the expected squared difference between different places at distances [m], same shape."""
        first, *others = self.structures
        result = self.nugget + first.semivariance(distance_m)
        for term in others:
            result = result + term.semivariance(distance_m)
        return result

    def isotropic(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return positions (x, y) [m], shape (..., 2), whose plain distances `semivariance` takes.

        Without anisotropy these are the positions themselves.
        """
        return self.anisotropy.isotropic(points_m) if self.anisotropy else points_m

    def __add__(self, other: "Variogram") -> "Variogram":
        if (self.anisotropy, self.nugget_is) != (other.anisotropy, other.nugget_is):
            message = "variograms that are added need the same anisotropy and the same meaning of their nuggets"
            raise InvalidQuery(message)
        terms = [term for term in (*self.structures, *other.structures) if term.model != "nugget"]
        first, *rest = terms or self.structures
        return replace(self, **asdict(first), nugget=self.nugget + other.nugget, nested=tuple(rest))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; what was added to sill, range and nugget appears only where it is used."""
        shown = {f.name: f for f in fields(self) if not f.metadata or getattr(self, f.name) != f.default}
        document = {name: value for name, value in asdict(self).items() if name in shown}
        if self.nested:
            document["nested"] = [{k: v for k, v in asdict(t).items() if v is not None} for t in self.nested]
        return document


def variogram(
    model: str, *, psill: object = None, range_m: object = None, nugget: object = 0.0, **more: object
) -> Variogram:
    """Describe a variogram.

    Parameters
    ----------
    model
        "exponential", "gaussian", "spherical", "matern", "linear", "power" or "nugget".
    psill, nugget
        Partial sill and nugget [square of the variable's unit]; of the unbounded models (linear, power) `psill` is what
        the semivariance has gained at `range_m`. The nugget model takes a nugget alone.
    range_m
        Effective range [m], or text with a unit of its own ("0.25 km").
    more
        `smoothness` (matern), `exponent` (power), `anisotropy` (an `Anisotropy`, or a mapping of angle_degree and
        ratio), `nugget_is` ("micro-scale", the default, or "measurement error") and `nested`, further terms as
        mappings.

    Raises
    ------
    NotFound
        No such model.
    InvalidQuery, InvalidUnit
        A parameter that makes no variogram, or is no number.

    Examples
    --------
    >>> variogram("matern", psill=1.2, range_m="2 km", smoothness=1.5).sill
    1.2
    """
    return parse_variogram({"model": model, "psill": psill, "range_m": range_m, "nugget": nugget, **more})


SQUARED = " (in the square of the variable's unit)"
"""What the number of a sill or a nugget is in: the unit is the variable's, so that text cannot give another."""

_TERM_KEYS = {"model", "psill", "range_m", "smoothness", "exponent"}


def parse_variogram(value: object) -> Variogram:
    """Return a variogram given as one, or as its JSON form.

    Raises
    ------
    InvalidQuery
        Neither; or keys that are missing or unknown.
    """
    if isinstance(value, Variogram):
        return value
    known = {f.name for f in fields(Variogram)}
    term = _parse_term(value, "a variogram", known)
    given = cast(Mapping[str, Any], value)
    nested = given.get("nested") or ()
    if not isinstance(nested, list | tuple) or len(nested) > MAX_NESTED:
        problem = f"{len(nested)} terms" if isinstance(nested, list | tuple) else repr(nested)
        message = f"nested of a variogram needs a list of at most {MAX_NESTED} terms; got {problem}"
        raise InvalidQuery(message)
    return Variogram(
        **asdict(term),
        nugget=parse_number(given.get("nugget", 0.0), "", label=f"nugget of a variogram{SQUARED}"),
        anisotropy=_parse_anisotropy(given.get("anisotropy")),
        nugget_is=given.get("nugget_is", "micro-scale"),
        nested=tuple(_parse_term(each, "a nested term of a variogram", _TERM_KEYS) for each in nested),
    )


def _parse_term(value: object, label: str, known: set[str]) -> Structure:
    if isinstance(value, Structure):
        return value
    given = {k: v for k, v in value.items() if v is not None} if isinstance(value, Mapping) else {}
    needed = {"model"} if given.get("model") == "nugget" else {"model", "psill", "range_m"}
    if not needed <= set(given) <= known:
        shown = sorted(map(str, given)) if isinstance(value, Mapping) else value
        others = ", ".join(sorted(known - {"model", "psill", "range_m"}))
        message = f"{label} needs the keys model, psill, range_m and perhaps {others}; got {shown!r}"
        raise InvalidQuery(message)
    # The nugget model has no distance; one metre stands in for it.
    numbers = {"psill": 0.0, "range_m": 1.0} | {k: given[k] for k in _TERM_KEYS - {"model"} if k in given}
    units, squared = {"range_m": "m"}, {"psill": SQUARED}
    parsed = {
        k: parse_number(v, units.get(k, ""), label=f"{k} of a variogram{squared.get(k, '')}")
        for k, v in numbers.items()
    }
    return Structure(given["model"], **parsed)


def _parse_anisotropy(value: object) -> Anisotropy | None:
    if value is None or isinstance(value, Anisotropy):
        return value
    if not isinstance(value, Mapping) or set(value) != {"angle_degree", "ratio"}:
        message = f"anisotropy of a variogram needs the keys angle_degree and ratio; got {value!r}"
        raise InvalidQuery(message)
    angle = parse_number(value["angle_degree"], "degree", label="angle_degree of a variogram")
    return Anisotropy(angle, parse_number(value["ratio"], "", label="ratio of a variogram"))
