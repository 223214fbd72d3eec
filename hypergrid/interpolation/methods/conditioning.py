"""How many digits a kriging system leaves of what is put into it, and how far it enlarges what its model cannot follow.

Under a model that is smoother than the exponential one, values of near stations say nearly the same, and small
differences between them are carried on steeply. A station's own share, the part of its variance that the others do not
tell, says how steeply: noise of the readings comes back up to about one by its root times as large.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.local.neighbourhood import Neighbourhood
from hypergrid.interpolation.local.numpy_backend import choose
from hypergrid.interpolation.points.points import Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.variograms.variogram import Variogram, is_valid_on_sphere

Floats = NDArray[np.float64]

ILL = 1e9
"""Condition number from which a system is said to lose digits: seven of sixteen are left, as many as a float32 has."""
MIN_OWN_SHARE = 1e-3
"""Least share of its own of a station below which a smooth model is said to enlarge noise: some thirty times."""
SINGULAR = 1e13
"""Condition number from which a set of neighbours is taken as without a unique solution."""
MAX_SET = 64
"""Neighbours that are looked at of larger sets: more are ill-conditioned all the more."""
WORK = 4e6
"""Sets times the cube of their stations that are looked at in a network: some ten milliseconds."""
SETS_AT_ONCE = 512
"""Stations whose neighbours are held together."""


@dataclass(frozen=True)
class Conditioning:
    """How far a system is from one without a unique solution."""

    number: float
    """Condition number, an upper bound near the true value."""
    own: float
    """Least share of a station's variance, in units of the largest semivariance, that the others do not tell."""


def iterate_leaves(field: object) -> Iterator[object]:
    """Yield the fields that a field is made of, such as that of each slice, or that around a trend; else itself."""
    inner = getattr(field, "inner_fields", None)
    if inner is None:
        yield field
        return
    for each in inner:
        yield from iterate_leaves(each)


def models_of(field: object) -> tuple[Variogram, ...]:
    """Return the variograms that a field really uses, each once."""
    kriged = (leaf for leaf in iterate_leaves(field) if isinstance(leaf, KrigingField | LocalField))
    return tuple(dict.fromkeys(leaf.system.model for leaf in kriged))


def min_stations(field: object) -> int:
    """Return how many stations an estimate of a field needs at least; 1 where its method does not say."""
    return max((leaf.min_stations for leaf in iterate_leaves(field) if isinstance(leaf, LocalField)), default=1)


def condition_number(field: KrigingField) -> float:
    """Return an upper bound, near the true value, of the condition number of a field's system in the 1-norm.

    Covariances are taken in units of the largest semivariance among the stations, so that neither the unit of the
    values nor that of the mean matters.
    """
    system = field.system
    scale = _find_scale(field)
    sizes = np.full(system.size, np.sqrt(scale))
    sizes[system.stations.count :] = 1.0 / np.sqrt(scale)
    inverse = np.abs(field.inverse) * sizes * sizes[:, None]
    # No element of the scaled matrix is above one, so none of its columns has a sum above their number.
    return float(system.size * inverse.sum(axis=0).max())


def assess_conditioning(field: object) -> Conditioning | None:
    """Return how well a field of one system, or of one for each set of neighbours, can be solved; None elsewhere.

    Of local fields only smooth models are looked at (others do not enlarge noise), at sets of neighbours around
    stations, as if all reported.
    """
    if isinstance(field, KrigingField) and field.factored is not None:
        return Conditioning(field.factored.condition.number, field.factored.condition.own)
    if isinstance(field, KrigingField):
        stations = field.system.stations.count
        largest = np.abs(np.diagonal(field.inverse)[:stations]).max(initial=0.0)
        return Conditioning(condition_number(field), 1.0 / max(_find_scale(field) * float(largest), 1.0))
    if not isinstance(field, LocalField) or is_valid_on_sphere(field.system.model):
        return None
    own, number = 1.0, 1.0
    for matrices, scales, counts in _iterate_sets(field):
        min_eigenvalues = np.maximum(np.linalg.eigvalsh(matrices)[:, 0], np.finfo(np.float64).eps * scales)
        own = min(own, float((min_eigenvalues / scales).min()))
        number = max(number, float((counts * scales / min_eigenvalues).max()))
    return Conditioning(number, own)


def is_singular(field: object) -> bool:
    """Return whether sets of neighbours of a local field have no unique solution to working precision."""
    condition = assess_conditioning(field) if isinstance(field, LocalField) else None
    return condition is not None and condition.number > SINGULAR


def conditioning_note(label: str, field: object) -> tuple[str, ...]:
    """Return a note where kriging has lost digits, or enlarges noise, in any of its systems, and nothing elsewhere."""
    fields = [leaf for leaf in iterate_leaves(field) if isinstance(leaf, KrigingField | LocalField)]
    conditions = [(leaf, state) for leaf in fields if (state := assess_conditioning(leaf)) is not None]
    ill = [(leaf, state) for leaf, state in conditions if _is_ill(leaf.system.model, state)]
    if not ill:
        return ()
    leaf, worst = max(ill, key=lambda pair: pair[1].number)
    lost = min(round(float(np.log10(worst.number))), 16)
    slices = f" in {len(ill)} of {len(fields)} slices, at worst" if len(fields) > 1 else ""
    sets = "a set of neighbours, " if isinstance(leaf, LocalField) else ""
    return (
        f"the system of {label} is ill-conditioned under this {leaf.system.model.model} model{slices} ({sets}"
        f"condition number {worst.number:.0e}): solving it loses about {lost} of 16 digits, and what readings have "
        f"that the model cannot follow, such as noise, comes back up to about {1.0 / np.sqrt(worst.own):,.0f} times "
        "as large; a nugget or a shorter range keeps more",
    )


def _is_ill(model: Variogram, condition: Conditioning) -> bool:
    # What is no variogram on the sphere is what is smoother than the exponential model at short distances.
    return condition.number >= ILL or (condition.own < MIN_OWN_SHARE and not is_valid_on_sphere(model))


def _find_scale(field: KrigingField) -> float:
    """Return the largest semivariance among the stations, or about it."""
    system = field.system
    extent_m = float(np.linalg.norm(np.ptp(system.isotropic_m, axis=0))) if system.stations.count else 0.0
    return float(system.model.semivariance(np.array([extent_m]))[0]) or 1.0


def _iterate_sets(field: LocalField) -> Iterator[tuple[Floats, Floats, NDArray[np.intp]]]:
    """Yield covariances of stations and their neighbours, the largest semivariance in each set, and their numbers.

    Returns
    -------
    Shapes (sets, most, most), (sets,) and (sets,); where a set has fewer stations, rows and columns are those of the
    identity times the largest semivariance.
    """
    system, selection = field.system, field.selection
    stations = system.stations
    max_stations = min(selection.max_stations, MAX_SET, stations.count)
    around = Neighbourhood(system, np.arange(stations.count), selection)
    looked = np.arange(0, stations.count, -(-stations.count // max(MAX_SET, int(WORK / max_stations**3))))
    width = max_stations if selection.octants is None else 3 * max_stations
    for start in range(0, len(looked), SETS_AT_ONCE):
        places = stations.take_stations(looked[start : start + SETS_AT_ONCE])
        chunk = around.make_chunk(Targets(places.positions_m, places.covariates), width)
        reporting = np.arange(len(chunk.numbers) + 1)[None] < len(chunk.numbers)
        chosen = choose(chunk, reporting, max_stations, selection.octants or 0)[0]
        members = np.sort(np.where(chosen, chunk.candidates, len(chunk.numbers)), axis=1)[:, :max_stations]
        is_member = members < len(chunk.numbers)
        held = np.where(is_member, members, 0)
        both = is_member[:, :, None] & is_member[:, None, :]
        covariances = chunk.covariances[held[:, :, None], held[:, None, :]] + field.shift
        diagonal = system.origin + field.shift
        scales = np.where(both, diagonal - covariances, 0.0).max(axis=(1, 2))
        scales[scales == 0.0] = diagonal or 1.0
        matrices = np.where(both, covariances, np.eye(members.shape[1]) * scales[:, None, None])
        yield matrices, scales, is_member.sum(axis=1)
