"""Variograms: semivariance by distance.

Conventions (PyKrige's): `psill` is the partial sill; `range_m` the effective range, where 95 % of the partial sill is
reached (for the spherical model the range itself); `nugget` is added at every distance above zero. The unbounded models
have no sill: their `psill` is the increase of the semivariance up to `range_m`. `interop.py` has the table of all
models, and of other libraries.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.units import parse_number
from hypergrid.interpolation.points import Floats, are_on_sphere, separations
from hypergrid.interpolation.variograms.models import MODELS, Model


@dataclass(frozen=True)
class Anisotropy:
    """Geometric anisotropy: the range by direction is an ellipse (PyKrige's convention).

    Raises
    ------
    InvalidQuery
        An angle that is not finite, or a ratio below one.
    """

    token_name: ClassVar[str] = "Anisotropy"

    angle_degree: float
    """Direction of the longest range, counterclockwise from x (east) [degree]; `range_m` applies along it."""
    ratio: float
    """Longest range over the shortest, at least one."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.angle_degree) and 1 <= self.ratio < math.inf):
            raise InvalidQuery(
                "anisotropy needs an angle in degrees and a ratio of one or more (longest range over shortest); got "
                f"angle {self.angle_degree} and ratio {self.ratio}; for a ratio below one turn the angle by 90 "
                "degrees, and give the inverse ratio and the range along the new angle"
            )

    def isotropic(self, points_m: Floats) -> Floats:
        """Transform positions (x, y) [m], shape (..., 2), so that Euclidean distances compare to `range_m`."""
        angle = math.radians(self.angle_degree)
        along = np.array([math.cos(angle), math.sin(angle)])
        across = np.array([-math.sin(angle), math.cos(angle)]) * self.ratio
        return np.asarray(points_m @ np.stack([along, across], axis=1), dtype=np.float64)


@dataclass(frozen=True)
class Structure:
    """Term of a nested sum: a model with its partial sill and range.

    Raises
    ------
    NotFound
        Unknown model.
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
            raise InvalidQuery(
                f"a variogram needs psill and nugget of zero or more, and one above zero; got psill {self.psill}"
            )
        if not 0 < self.range_m < math.inf:
            raise InvalidQuery(f"a variogram needs a range above zero metres; got {self.range_m}")
        if self.model == "nugget" and self.psill > 0:
            raise InvalidQuery(f"the nugget model takes its level as nugget, not as psill; got psill {self.psill}")
        for name in ("smoothness", "exponent"):
            _check_parameter(self.model, row, name, getattr(self, name))

    @property
    def parameter(self) -> float:
        """The model's own parameter; 0 if it has none."""
        name = MODELS[self.model].parameter
        return float(getattr(self, name)) if name else 0.0

    @property
    def effective_range_m(self) -> float:
        """Distance at 95 % of the partial sill [m]; infinite without a sill, 0 if `psill` is 0."""
        if not self.psill:
            return 0.0
        return self.range_m if MODELS[self.model].is_bounded else math.inf

    def semivariance(self, distance_m: Floats) -> Floats:
        """Evaluate this term's semivariance at distances [m], same shape."""
        return self.psill * MODELS[self.model](distance_m / self.range_m, self.parameter)


def _check_parameter(model: str, row: Model, name: str, value: float | None) -> None:
    low, high = row.bounds
    if row.parameter != name and value is not None:
        raise InvalidQuery(f"the {model} model takes no {name}; got {value}")
    if row.parameter == name and (value is None or not low <= value <= high):
        raise InvalidQuery(f"the {model} model needs its {name} from {low:g} to {high:g}; got {value}")


__all__ = ["MODELS", "Anisotropy", "NuggetIs", "Structure", "Variogram", "parse_variogram", "variogram"]

NuggetIs = Literal["micro-scale", "measurement error"]
"""Meaning of the nugget: variation of the field at the shortest distances, or instrument noise."""

# Each term costs as much as the first, and more cannot be fitted.
MAX_NESTED = 10
"""Maximum further terms of a variogram from JSON."""

# Omitted from the token if unused, so that a plain sill, range and nugget keep their token.
_LATER: dict[str, Any] = {"omit_default": True}


@dataclass(frozen=True)
class Variogram:
    """Variogram model with its parameters; `hg.variogram` parses user input, `+` nests two.

    Raises
    ------
    NotFound
        Unknown model.
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
    """Smoothness of the matern model: 0.5 is the exponential model, greater is smoother."""
    exponent: float | None = field(default=None, metadata=_LATER)
    """Exponent of the power model, between 0 and 2; 1 is the linear model."""
    anisotropy: Anisotropy | None = field(default=None, metadata=_LATER)
    """Anisotropy of all terms; `semivariance` then takes distances between positions transformed by `isotropic`."""
    nugget_is: NuggetIs = field(default="micro-scale", metadata=_LATER)
    nested: tuple[Structure, ...] = field(default=(), metadata=_LATER)
    """Further terms of the sum."""

    def __post_init__(self) -> None:
        total = sum(term.psill for term in self.structures) + self.nugget
        if not (0 <= self.nugget < math.inf and 0 < total < math.inf):
            raise InvalidQuery(
                f"a variogram needs psill and nugget of zero or more, and one above zero; got psill {self.psill} and "
                f"nugget {self.nugget}"
            )
        if self.nugget_is not in get_args(NuggetIs):
            raise InvalidQuery(
                f"nugget_is of a variogram is one of {', '.join(get_args(NuggetIs))}; got {self.nugget_is!r}"
            )

    @property
    def structures(self) -> tuple[Structure, ...]:
        """All terms of the sum except the nugget."""
        return (Structure(self.model, self.psill, self.range_m, self.smoothness, self.exponent), *self.nested)

    @property
    def is_bounded(self) -> bool:
        """Whether there is a sill, without which there is no covariance and no simple kriging."""
        return all(MODELS[term.model].is_bounded for term in self.structures if term.psill)

    @property
    def sill(self) -> float:
        """Limit of the semivariance, including the nugget; infinite if unbounded."""
        return self.nugget + sum(term.psill for term in self.structures) if self.is_bounded else math.inf

    @property
    def noise(self) -> float:
        """Variance of the measurement error: the nugget, or 0 if that is micro-scale."""
        return self.nugget if self.nugget_is == "measurement error" else 0.0

    @property
    def effective_range_m(self) -> float:
        """Distance at which all terms reached 95 % of their partial sills [m]; infinite if unbounded."""
        return max(term.effective_range_m for term in self.structures)

    def semivariance(self, distance_m: Floats) -> Floats:
        """Evaluate the semivariance between different places at distances [m], same shape.

        It is half the expected squared difference.
        """
        first, *others = self.structures
        result = first.semivariance(distance_m)
        result += self.nugget
        for term in others:
            result += term.semivariance(distance_m)
        return result

    def isotropic(self, points_m: Floats) -> Floats:
        """Transform positions (x, y) [m], shape (..., 2), to those whose Euclidean distances `semivariance` takes.

        Without anisotropy positions are unchanged.
        """
        return self.anisotropy.isotropic(points_m) if self.anisotropy else points_m

    def __add__(self, other: "Variogram") -> "Variogram":
        if (self.anisotropy, self.nugget_is) != (other.anisotropy, other.nugget_is):
            raise InvalidQuery(
                "variograms that are added need the same anisotropy and the same meaning of their nuggets"
            )
        terms = [term for term in (*self.structures, *other.structures) if term.model != "nugget"]
        nugget = self.nugget + other.nugget
        return sum_structures(terms or self.structures, nugget, self.anisotropy, self.nugget_is)

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON; optional parameters appear only if used."""
        shown = {f.name: f for f in fields(self) if not f.metadata or getattr(self, f.name) != f.default}
        document = {name: value for name, value in asdict(self).items() if name in shown}
        if self.nested:
            document["nested"] = [{k: v for k, v in asdict(t).items() if v is not None} for t in self.nested]
        return document


def sum_structures(
    terms: Sequence[Structure],
    nugget: float,
    anisotropy: Anisotropy | None = None,
    nugget_is: NuggetIs = "micro-scale",
) -> Variogram:
    """Build the variogram of terms, perhaps none, and a nugget."""
    first, *others = terms or [Structure("nugget", 0.0, 1.0)]
    return Variogram(**vars(first), nugget=nugget, anisotropy=anisotropy, nugget_is=nugget_is, nested=tuple(others))


def variogram(
    model: str, *, psill: object = None, range_m: object = None, nugget: object = 0.0, **more: object
) -> Variogram:
    """Create a variogram from user input.

    Parameters
    ----------
    model
        "exponential", "gaussian", "spherical", "matern", "linear", "power" or "nugget".
    psill, nugget
        Partial sill and nugget [square of the variable's unit]; for the unbounded models (linear, power) `psill` is the
        increase of the semivariance up to `range_m`. The nugget model takes only a nugget.
    range_m
        Effective range [m], or text with a unit of its own ("0.25 km").
    more
        `smoothness` (matern), `exponent` (power), `anisotropy` (an `Anisotropy`, or a mapping of angle_degree and
        ratio), `nugget_is` ("micro-scale", the default, or "measurement error") and `nested`, further terms as
        mappings.

    Raises
    ------
    NotFound
        Unknown model.
    InvalidQuery, InvalidUnit
        A parameter that is not a number, or makes no valid variogram.

    Examples
    --------
    >>> variogram("matern", psill=1.2, range_m="2 km", smoothness=1.5).sill
    1.2
    """
    return parse_variogram({"model": model, "psill": psill, "range_m": range_m, "nugget": nugget, **more})


# It follows from the variable, so text cannot give another.
SQUARED = " (in the square of the variable's unit)"
"""Unit of sills and nuggets in messages."""

_TERM_KEYS = {"model", "psill", "range_m", "smoothness", "exponent"}


def parse_variogram(value: object) -> Variogram:
    """Parse a variogram from its JSON form; a `Variogram` is returned unchanged.

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
        raise InvalidQuery(f"nested of a variogram needs a list of at most {MAX_NESTED} terms; got {problem}")
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
        raise InvalidQuery(f"{label} needs the keys model, psill, range_m and perhaps {others}; got {shown!r}")
    # The nugget model has no range; one metre is a placeholder.
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
        raise InvalidQuery(f"anisotropy of a variogram needs the keys angle_degree and ratio; got {value!r}")
    angle = parse_number(value["angle_degree"], "degree", label="angle_degree of a variogram")
    return Anisotropy(angle, parse_number(value["ratio"], "", label="ratio of a variogram"))


# Variograms on the sphere: not every model valid on a plane is valid for great-circle distances.
#
# Gneiting (2013), "Strictly and non-strictly positive definite functions on spheres", table 1: on the sphere the
# exponential and the spherical model and Matern models of a smoothness up to 1/2 are valid for stations anywhere, and
# so are the linear model and powers up to 1 of the distance. The Gaussian model and smoother Matern models are not: for
# some stations they give a negative variance. With a range much shorter than the earth, or with a nugget, this may not
# happen at the given stations, so it is checked for them.

ROUNDING = 1e-10
"""Negative variances up to this share of the largest semivariance count as rounding."""

# The check takes as long as a kriging system.
MAX_CHECKED = 5_000
"""Maximum stations for the validity check; with more, a possibly invalid model is rejected."""


def is_valid_on_sphere(model: Variogram) -> bool:
    """Check whether a variogram is valid for great-circle distances between any stations."""
    return all(_is_valid(term) for term in model.structures if term.psill)


def check_validity(label: str, model: Variogram, stations_m: Floats) -> tuple[str, ...]:
    """Check a variogram at these stations; a model not valid everywhere gets a note.

    Parameters
    ----------
    label
        The step's method, for messages.
    stations_m
        Positions [m], shape (stations, 2), which are not checked, or (stations, 3) on the sphere.

    Raises
    ------
    InvalidQuery
        A contrast of these stations has a negative variance, or there are too many stations to check.
    """
    if not are_on_sphere(stations_m) or is_valid_on_sphere(model) or len(stations_m) < 2:
        return ()
    remedy = "use the exponential or the spherical model, raise the nugget, or ask for distance='plane'"
    if len(stations_m) > MAX_CHECKED:
        raise InvalidQuery(
            f"{label} cannot check the {model.model} model on a sphere for more than {MAX_CHECKED:,} stations, "
            f"where it "
            f"is not valid in general; got {len(stations_m):,}; {remedy}"
        )
    lowest = _find_lowest_variance(model, stations_m)
    if lowest < 0:
        raise InvalidQuery(
            f"{label} cannot use the {model.model} model with great-circle distances between these {len(stations_m)} "
            f"stations: it is no valid variogram on a sphere, and gives a contrast of them the variance {lowest:.2g} "
            f"(below 0); {remedy}"
        )
    return (
        f"the {model.model} model is no valid variogram of great-circle distances in general; between these stations "
        "no variance is negative",
    )


def _is_valid(term: Structure) -> bool:
    if term.model == "matern":
        return term.smoothness is not None and term.smoothness <= 0.5
    if term.model == "power":
        return term.exponent is not None and term.exponent <= 1.0
    return term.model != "gaussian"


def _find_lowest_variance(model: Variogram, stations_m: Floats) -> float:
    """Compute the least variance of a contrast of stations (weights of sum 0 and length 1); 0 if not negative."""
    gamma = model.semivariance(separations(stations_m, stations_m))
    np.fill_diagonal(gamma, 0.0)
    largest = float(gamma.max())
    means = gamma.mean(axis=0)
    contrasts = means + means[:, None] - gamma - means.mean()
    # Give the mean of all stations, which is not a contrast, a variance of its own.
    contrasts += largest / len(contrasts)
    contrasts[np.diag_indices(len(contrasts))] += ROUNDING * largest * len(contrasts)
    try:
        np.linalg.cholesky(contrasts)
    except np.linalg.LinAlgError:
        return float(np.linalg.eigvalsh(contrasts)[0])
    return 0.0
