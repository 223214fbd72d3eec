"""Conditioning of kriging systems: lost digits, and amplified noise.

Under a model smoother than the exponential one, nearby stations have nearly equal values, and small differences between
them are extrapolated steeply. A station's own share, the part of its variance that the others do not explain, measures
this: noise of the readings is amplified by up to about one over its root.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.local.neighbourhood import Neighbourhood
from hypergrid.interpolation.local.numpy_backend import choose
from hypergrid.interpolation.points import Floats, Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.variograms.variogram import Variogram, is_valid_on_sphere

# Seven of sixteen digits are left, as many as a float32 has.
ILL = 1e9
"""Condition number from which a system is reported to lose digits."""
# One over its root: noise comes back some thirty times as large.
MIN_OWN_SHARE = 1e-3
"""Own share of a station below which a smooth model is reported to amplify noise."""
SINGULAR = 1e13
"""Condition number from which a set of neighbours is treated as singular."""
# Larger sets are even worse conditioned.
MAX_SET = 64
"""Maximum neighbours inspected of a larger set."""
WORK = 4e6
"""Budget of sets times their stations cubed per network: some ten milliseconds."""
SETS_AT_ONCE = 512
"""Stations whose neighbours are held together."""


@dataclass(frozen=True)
class Conditioning:
    """Distance of a system from singularity."""

    number: float
    """Condition number, an upper bound close to the true value."""
    own: float
    """Least share of a station's variance that the others do not explain.

    In units of the largest semivariance.
    """


def iterate_leaves(field: object) -> Iterator[object]:
    """Yield the innermost fields, such as those of single slices or of residuals."""
    inner = getattr(field, "inner_fields", None)
    if inner is None:
        yield field
        return
    for each in inner:
        yield from iterate_leaves(each)


def models_of(field: object) -> tuple[Variogram, ...]:
    """List the distinct variograms that a field uses."""
    kriged = (leaf for leaf in iterate_leaves(field) if isinstance(leaf, KrigingField | LocalField))
    return tuple(dict.fromkeys(leaf.system.model for leaf in kriged))


def min_stations(field: object) -> int:
    """Get the minimum stations of a field's estimates; 1 if its method has no minimum."""
    return max((leaf.min_stations for leaf in iterate_leaves(field) if isinstance(leaf, LocalField)), default=1)


def condition_number(field: KrigingField) -> float:
    """Compute a close upper bound of the condition number (1-norm) of a field's system."""
    # In units of the largest semivariance among the stations, so that neither the unit of the values nor that of the
    # mean matters.
    system = field.system
    scale = system.semivariance_across or 1.0
    sizes = np.full(system.size, np.sqrt(scale))
    sizes[system.stations.count :] = 1.0 / np.sqrt(scale)
    inverse = np.abs(field.inverse) * sizes * sizes[:, None]
    # Elements of the scaled matrix are at most one, so no column sum exceeds their number.
    return float(system.size * inverse.sum(axis=0).max())


def assess_conditioning(field: object) -> Conditioning | None:
    """Assess the system of a field, or those of its sets of neighbours; None for other methods.

    Local fields are only assessed under smooth models (others do not amplify noise), at sets of neighbours around
    stations, as if all reported.
    """
    if isinstance(field, KrigingField) and field.factored is not None:
        return Conditioning(field.factored.condition.number, field.factored.condition.own)
    if isinstance(field, KrigingField):
        stations = field.system.stations.count
        largest = np.abs(np.diagonal(field.inverse)[:stations]).max(initial=0.0)
        scale = field.system.semivariance_across or 1.0
        return Conditioning(condition_number(field), 1.0 / max(scale * float(largest), 1.0))
    if not isinstance(field, LocalField) or is_valid_on_sphere(field.system.model):
        return None
    own, number = 1.0, 1.0
    for matrices, scales, counts in _iterate_sets(field):
        min_eigenvalues = np.maximum(np.linalg.eigvalsh(matrices)[:, 0], np.finfo(np.float64).eps * scales)
        own = min(own, float((min_eigenvalues / scales).min()))
        number = max(number, float((counts * scales / min_eigenvalues).max()))
    return Conditioning(number, own)


def is_singular(field: object) -> bool:
    """Check whether sets of neighbours of a local field are singular to working precision."""
    condition = assess_conditioning(field) if isinstance(field, LocalField) else None
    return condition is not None and condition.number > SINGULAR


def conditioning_note(label: str, field: object) -> tuple[str, ...]:
    """Describe the worst system that loses digits or amplifies noise; empty if there is none."""
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
    # A model is invalid on the sphere if it is smoother than the exponential model at short distances.
    return condition.number >= ILL or (condition.own < MIN_OWN_SHARE and not is_valid_on_sphere(model))


def _iterate_sets(field: LocalField) -> Iterator[tuple[Floats, Floats, NDArray[np.intp]]]:
    """Yield each set's covariances, largest semivariance and number of stations.

    A set is a station with its neighbours.

    Returns
    -------
    Shapes (sets, most, most), (sets,) and (sets,); smaller sets are padded with rows and columns of the identity times
    the largest semivariance.
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
        covariances = chunk.covariances[held[:, :, None], held[:, None, :]] + system.shift
        diagonal = system.origin + system.shift
        scales = np.where(both, diagonal - covariances, 0.0).max(axis=(1, 2))
        scales[scales == 0.0] = diagonal or 1.0
        matrices = np.where(both, covariances, np.eye(members.shape[1]) * scales[:, None, None])
        yield matrices, scales, is_member.sum(axis=1)
