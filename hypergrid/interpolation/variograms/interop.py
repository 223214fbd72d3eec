"""Convert variograms to and from PyKrige, GSTools and gstat, whose conventions differ.

With h the distance, c the partial sill, r our `range_m`, n the nugget; each model adds n at every h above zero.

=========== ============================ ===================== ====================== ================================
model       semivariance here, without n PyKrige               GSTools                gstat
=========== ============================ ===================== ====================== ================================
exponential c (1 - exp(-3 h/r))          the same              len_scale = r/3        Exp, range = r/3
gaussian    c (1 - exp(-(7/4 h/r)^2))    the same              len_scale = 4/7 r s    Gau, range = 4/7 r
spherical   c (3/2 h/r - 1/2 (h/r)^3)    the same              len_scale = r          Sph, range = r
matern      c (1 - M(f h/r))             by a function         len_scale = r sqrt k/f Mat, range = r/f
linear      c h/r                        slope = c/r           none                   Lin, psill = c/r, range = 0
power       c (h/r)^p                    scale = c/r^p         none                   Pow, psill = c/r^p, range = p
nugget      0                            linear, slope 0       Nugget                 Nug (Err)
nested sum  sum of these                 by a function         `+`                    further rows
=========== ============================ ===================== ====================== ================================

* M(t) = 2^(1-k)/Gamma(k) t^k K_k(t), with k the smoothness (kappa, nu); f(k) is where M reaches exp(-3), so that
  `range_m` is the effective range, and k = 1/2 is the exponential model: 3 at 1/2, 4.75 at 3/2. GSTools' t is
  sqrt(k) h/len_scale.
* s is GSTools' `rescale` (sqrt(pi)/2 for its Gaussian, 1 for its other models here); any value is accepted.
* Sill: PyKrige's parameter list begins with the FULL sill, its mapping accepts `psill` or `sill`; all others are
  partial.
* Unbounded models have no range of their own; converted to here they get `range_m` 1.
* Angle of the longest range: here and PyKrige degrees counterclockwise from x; GSTools the same in radians; gstat
  degrees clockwise from y (north). Ratio: here and PyKrige longest over shortest; GSTools and gstat its inverse.
* Nugget as measurement error: PyKrige's `exact_values=False`; gstat's row Err instead of Nug; GSTools keeps it not in
  the model but in `Krige(exact=False)`, its default, while micro-scale is `Krige(exact=True)`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Protocol

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.geodesy import RADIUS_M
from hypergrid.interpolation.points import Floats, are_on_sphere
from hypergrid.interpolation.variograms.models import matern_factor
from hypergrid.interpolation.variograms.variogram import Anisotropy, NuggetIs, Structure, Variogram, sum_structures

GAUSSIAN_FACTOR = 7.0 / 4.0
"""Effective range over the scale of the Gaussian model."""

_GSTAT = {"exponential": "Exp", "gaussian": "Gau", "spherical": "Sph", "matern": "Mat", "linear": "Lin", "power": "Pow"}
_GSTOOLS = {"exponential": "Exponential", "gaussian": "Gaussian", "spherical": "Spherical", "matern": "Matern"}
_SCALED = ("exponential", "gaussian", "spherical")
"""Models with a sill that PyKrige has by name."""


def scale_factor(model: str, smoothness: float | None = None) -> float:
    """Compute a bounded model's effective range over its scale.

    The model's argument is distance over scale.

    Raises
    ------
    InvalidQuery
        A model without a range, or a Matern model without its smoothness.
    """
    if model == "matern" and smoothness is not None:
        return matern_factor(smoothness)
    factors = {"exponential": 3.0, "gaussian": GAUSSIAN_FACTOR, "spherical": 1.0}
    if model not in factors:
        known = ", ".join(factors)
        raise InvalidQuery(
            f"an effective range needs a model with a scale ({known}, or matern with a smoothness); got {model!r}"
        )
    return factors[model]


DEGREE_M = RADIUS_M * math.pi / 180.0
"""Length of a degree of a great circle [m], PyKrige's unit of distances on the sphere."""


def list_pykrige_coordinates(positions_m: Floats) -> tuple[Floats, Floats, dict[str, Any]]:
    """List coordinates for PyKrige, with the keywords of their kind.

    Positions (x, y) [m], shape (places, 2), are x and y; those on the sphere, shape (places, 3), longitude and latitude
    [degree], of which its distances are great circles [degree].
    """
    if not are_on_sphere(positions_m):
        return positions_m[:, 0], positions_m[:, 1], {}
    x, y, z = positions_m.T
    lon, lat = np.degrees(np.arctan2(y, x)), np.degrees(np.arctan2(z, np.hypot(x, y)))
    return lon, lat, {"coordinates_type": "geographic"}


def to_pykrige(variogram: Variogram) -> dict[str, Any]:
    """Build keywords for `pykrige.ok.OrdinaryKriging` and its kin: model, parameters, anisotropy, exact_values.

    Models that PyKrige lacks become its "custom" function.
    """
    keywords: dict[str, Any] = {"exact_values": variogram.nugget_is == "micro-scale"}
    if variogram.anisotropy:
        keywords["anisotropy_angle"] = variogram.anisotropy.angle_degree
        keywords["anisotropy_scaling"] = variogram.anisotropy.ratio
    if variogram.nested or variogram.model not in (*_SCALED, "linear", "power", "nugget"):

        def semivariance(_: object, distance_m: Floats) -> Floats:
            return variogram.semivariance(distance_m)

        custom = {"variogram_model": "custom", "variogram_parameters": [], "variogram_function": semivariance}
        return {**keywords, **custom}
    if variogram.model in _SCALED:
        named = {"psill": variogram.psill, "range": variogram.range_m}
    elif variogram.exponent is not None:
        named = {"scale": variogram.psill / variogram.range_m**variogram.exponent, "exponent": variogram.exponent}
    else:
        named = {"slope": variogram.psill / variogram.range_m}
    model = "linear" if variogram.model == "nugget" else variogram.model
    return {**keywords, "variogram_model": model, "variogram_parameters": {**named, "nugget": variogram.nugget}}


def from_pykrige(keywords: Mapping[str, Any]) -> Variogram:
    """Build the variogram described by keywords of `pykrige.ok.OrdinaryKriging`.

    Raises
    ------
    InvalidQuery
        A model without a counterpart here (hole-effect, custom), or missing parameters.
    """
    model = str(keywords.get("variogram_model", "linear"))
    names = {"linear": ("slope", "nugget"), "power": ("scale", "exponent", "nugget")}
    if model not in _SCALED and model not in names:
        _refuse_model("PyKrige", model, (*_SCALED, *names))
    order = names.get(model, ("sill", "range", "nugget"))
    given = keywords.get("variogram_parameters")
    parameters = dict(given) if isinstance(given, Mapping) else dict(zip(order, given or (), strict=False))
    if "psill" in parameters and "nugget" in parameters:
        parameters.setdefault("sill", parameters["psill"] + parameters["nugget"])
    if not set(order) <= set(parameters):
        raise InvalidQuery(f"PyKrige's {model} model needs the parameters {', '.join(order)}; got {given!r}")
    numbers = {name: float(parameters[name]) for name in order}
    ratio = float(keywords.get("anisotropy_scaling", 1.0))
    turned = _make_anisotropy(float(keywords.get("anisotropy_angle", 0.0)), ratio)
    meaning: NuggetIs = "micro-scale" if keywords.get("exact_values", True) else "measurement error"
    if model in _SCALED:
        # Use psill directly if given: computing it from the sill would round it.
        psill = float(parameters.get("psill", numbers["sill"] - numbers["nugget"]))
        term = Structure(model, psill, numbers["range"])
    elif model == "power":
        term = Structure("power", numbers["scale"], 1.0, exponent=numbers["exponent"])
    else:
        term = Structure("linear" if numbers["slope"] else "nugget", numbers["slope"], 1.0)
    return sum_structures([_scale_to_longest(term, ratio)], numbers["nugget"], turned, meaning)


class CovModel(Protocol):
    """Attributes read from a `gstools.CovModel` in two dimensions."""

    name: str
    var: float
    len_scale: float
    rescale: float
    nugget: float
    anis: Sequence[float]
    angles: Sequence[float]


def to_gstools(variogram: Variogram) -> tuple[tuple[str, dict[str, float]], ...]:
    """Describe the GSTools model: class name and keywords of each term.

    The models add up with `+`: ``sum`` of ``getattr(gstools, name)(**keywords)``; the first has the nugget.

    Raises
    ------
    InvalidQuery
        An unbounded model: GSTools describes covariances, which such a field lacks.
    """
    shared: dict[str, float] = {"dim": 2}
    if variogram.anisotropy:
        shared |= {"anis": 1 / variogram.anisotropy.ratio, "angles": math.radians(variogram.anisotropy.angle_degree)}
    terms: list[tuple[str, dict[str, float]]] = []
    for term in variogram.structures:
        nugget = 0.0 if terms else variogram.nugget
        if term.model == "nugget":
            terms.append(("Nugget", {**shared, "nugget": nugget}))
            continue
        if term.model not in _GSTOOLS:
            _refuse_model("GSTools", term.model, tuple(_GSTOOLS))
        length = term.range_m / scale_factor(term.model, term.smoothness) * _gstools_length(term.model, term.smoothness)
        keywords = {**shared, "var": term.psill, "len_scale": length, "nugget": nugget}
        if term.smoothness is not None:
            keywords["nu"] = term.smoothness
        terms.append((_GSTOOLS[term.model], keywords))
    return tuple(terms)


def _gstools_length(model: str, smoothness: float | None) -> float:
    """Compute GSTools' len_scale, at its default rescale, over the scale."""
    if model == "matern" and smoothness is not None:
        return math.sqrt(smoothness)
    return math.sqrt(math.pi) / 2 if model == "gaussian" else 1.0


def from_gstools(model: CovModel, *, nugget_is: NuggetIs = "micro-scale") -> Variogram:
    """Build the variogram of a two-dimensional `gstools.CovModel`, including sums of models.

    Raises
    ------
    InvalidQuery
        A model without a counterpart here, or one of other than two dimensions.
    """
    if getattr(model, "dim", 2) != 2 or getattr(model, "latlon", False):
        raise InvalidQuery(
            "a variogram here is of positions x, y [m]; got a GSTools model of other dimensions, or of lat and lon"
        )
    ours = {theirs: name for name, theirs in _GSTOOLS.items()}
    terms = []
    parts: Sequence[CovModel] = getattr(model, "models", (model,))
    for part in parts:
        if part.name not in ours:
            _refuse_model("GSTools", part.name, tuple(ours))
        name = ours[part.name]
        smoothness = float(part.nu) if name == "matern" and hasattr(part, "nu") else None
        scale = float(part.len_scale) / float(part.rescale) / (math.sqrt(smoothness) if smoothness else 1.0)
        terms.append(Structure(name, float(part.var), scale * scale_factor(name, smoothness), smoothness))
    ratio = 1 / float(model.anis[0])
    turned = _make_anisotropy(math.degrees(float(model.angles[0])), ratio)
    terms = [_scale_to_longest(term, ratio) for term in terms]
    return sum_structures(terms, float(model.nugget), turned, nugget_is)


def to_gstat(variogram: Variogram) -> list[dict[str, str | float]]:
    """Build the rows of gstat's variogramModel (model, psill, range, kappa, ang1, anis1), nugget first."""
    turned = variogram.anisotropy
    ellipse = {"ang1": (90.0 - turned.angle_degree) % 180.0, "anis1": 1 / turned.ratio} if turned else {}
    plain: dict[str, float] = {"kappa": 0.0, "ang1": 0.0, "anis1": 1.0}
    rows: list[dict[str, str | float]] = []
    if variogram.nugget:
        kind = "Nug" if variogram.nugget_is == "micro-scale" else "Err"
        rows.append({"model": kind, "psill": variogram.nugget, "range": 0.0, **plain})
    for term in variogram.structures:
        if term.model == "nugget":
            continue
        psill, reach = term.psill, term.range_m
        if term.model == "linear":
            psill, reach = term.psill / term.range_m, 0.0
        elif term.exponent is not None:
            psill, reach = term.psill / term.range_m**term.exponent, term.exponent
        else:
            reach = term.range_m / scale_factor(term.model, term.smoothness)
        kappa = {"kappa": 0.5 if term.smoothness is None else term.smoothness}
        rows.append({"model": _GSTAT[term.model], "psill": psill, "range": reach, **plain, **kappa, **ellipse})
    return rows


def from_gstat(rows: Sequence[Mapping[str, Any]]) -> Variogram:
    """Build the variogram of the rows of gstat's variogramModel; kappa, ang1 and anis1 are optional.

    Raises
    ------
    InvalidQuery
        A model without a counterpart here, both Nug and Err, or terms of different anisotropy.
    """
    ours = {theirs: name for name, theirs in _GSTAT.items()} | {"Ste": "matern"}
    terms: list[Structure] = []
    ellipses: set[tuple[float, float]] = set()
    nuggets: dict[str, float] = {}
    for row in rows:
        kind, psill, reach = str(row["model"]), float(row["psill"]), float(row.get("range", 0.0))
        if kind in ("Nug", "Err"):
            nuggets[kind] = nuggets.get(kind, 0.0) + psill
            continue
        if kind not in ours or (kind == "Lin" and reach):
            # With a range gstat's linear model has a sill, and is not a valid variogram in the plane.
            _refuse_model("gstat", f"{kind} with range {reach:g}", tuple(ours))
        terms.append(_from_gstat_row(kind, ours[kind], psill, reach, float(row.get("kappa", 0.5))))
        ellipses.add((float(row.get("ang1", 0.0)), float(row.get("anis1", 1.0))))
    if len(ellipses) > 1 or len(nuggets) > 1:
        raise InvalidQuery(
            "a variogram here has one anisotropy for all its terms, and a nugget of one kind (Nug or Err); got "
            f"(ang1, anis1) {sorted(ellipses)} and {sorted(nuggets)}"
        )
    north, shortest = next(iter(ellipses), (0.0, 1.0))
    meaning: NuggetIs = "measurement error" if "Err" in nuggets else "micro-scale"
    turned = _make_anisotropy((90.0 - north) % 180.0, 1 / shortest)
    return sum_structures(terms, sum(nuggets.values()), turned, meaning)


def _from_gstat_row(kind: str, model: str, psill: float, reach: float, kappa: float) -> Structure:
    if model == "linear":
        return Structure("linear", psill, 1.0)
    if model == "power":
        return Structure("power", psill, 1.0, exponent=reach)
    if model == "matern":
        # Stein's form of the Matern model has the argument 2 sqrt(kappa) h / range.
        scale = reach / (2 * math.sqrt(kappa)) if kind == "Ste" else reach
        return Structure("matern", psill, scale * matern_factor(kappa), kappa)
    return Structure(model, psill, reach * scale_factor(model))


def _make_anisotropy(angle_degree: float, ratio: float) -> Anisotropy | None:
    """Build the anisotropy along the longest range, for a ratio above or below one."""
    if ratio == 1:
        return None
    return Anisotropy(angle_degree, ratio) if ratio > 1 else Anisotropy(angle_degree + 90.0, 1 / ratio)


def _scale_to_longest(term: Structure, ratio: float) -> Structure:
    """Convert the term's range to the longest direction, for a ratio below one."""
    return replace(term, range_m=term.range_m / ratio) if ratio < 1 else term


def _refuse_model(library: str, model: str, known: Sequence[str]) -> NoReturn:
    raise InvalidQuery(
        f"the variogram model {model!r} does not convert between {library} and here; those that do: {', '.join(known)}"
    )
