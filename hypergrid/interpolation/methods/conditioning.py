"""Conditioning of kriging systems: lost digits, amplified noise, and hidden extrapolation of a drift.

Under a model smoother than the exponential one, nearby stations have nearly equal values, and small differences between
them are extrapolated steeply. A station's own share, the part of its variance that the others do not explain, measures
this: noise of the readings is amplified by up to about one over its root.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.pacing import split_work
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.local.neighbourhood import Neighbourhood
from hypergrid.interpolation.local.numpy_backend import choose
from hypergrid.interpolation.points import Field, Floats, Targets
from hypergrid.interpolation.solvers.factored import Condition
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


def iterate_leaves(field: Field) -> Iterator[Field]:
    """Yield the innermost fields, such as those of single slices or of residuals."""
    for each in field.inner_fields:
        yield from iterate_leaves(each)
    if not field.inner_fields:
        yield field


def models_of(field: Field) -> tuple[Variogram, ...]:
    """List the distinct variograms that a field uses."""
    kriged = (leaf for leaf in iterate_leaves(field) if isinstance(leaf, KrigingField | LocalField))
    return tuple(dict.fromkeys(leaf.system.model for leaf in kriged))


def min_stations(field: Field) -> int:
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


def assess_conditioning(field: Field) -> Condition | None:
    """Assess the system of a field, or those of its sets of neighbours; None for other methods.

    Local fields are only assessed under smooth models (others do not amplify noise), at sets of neighbours around
    stations, as if all reported.
    """
    if isinstance(field, KrigingField) and field.factored is not None:
        return field.factored.condition
    if isinstance(field, KrigingField):
        stations = field.system.stations.count
        largest = np.abs(np.diagonal(field.inverse)[:stations]).max(initial=0.0)
        scale = field.system.semivariance_across or 1.0
        return Condition(condition_number(field), 1.0 / max(scale * float(largest), 1.0))
    if not isinstance(field, LocalField) or is_valid_on_sphere(field.system.model):
        return None
    own, number = 1.0, 1.0
    for matrices, scales, counts in _iterate_sets(field):
        min_eigenvalues = np.maximum(np.linalg.eigvalsh(matrices)[:, 0], np.finfo(np.float64).eps * scales)
        own = min(own, float((min_eigenvalues / scales).min()))
        number = max(number, float((counts * scales / min_eigenvalues).max()))
    return Condition(number, own)


def is_singular(field: Field) -> bool:
    """Check whether sets of neighbours of a local field are singular to working precision."""
    condition = assess_conditioning(field) if isinstance(field, LocalField) else None
    return condition is not None and condition.number > SINGULAR


def conditioning_note(label: str, field: Field) -> tuple[str, ...]:
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


def _is_ill(model: Variogram, condition: Condition) -> bool:
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
    for span in split_work(len(looked), SETS_AT_ONCE):
        places = stations.take_stations(looked[span])
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


def relative_leverage(field: Field | None, targets: Targets) -> Floats | None:
    """Compute targets' leverage relative to the greatest of a station, shape (targets,); None without a drift.

    The leverage of a place is `f' inv(F'F) f`, with f its drift functions and F those of the stations, of all slices
    together. Targets above 1 are hidden extrapolations: they lie outside the ellipsoid of the stations in the space of
    the drift functions (Montgomery, Peck and Vining 2012, section 3.8), far beyond the network, or away from a line
    along which its stations nearly lie. There the errors of the drift's coefficients dominate the estimate.
    """
    for leaf in () if field is None else iterate_leaves(field):
        if isinstance(leaf, KrigingField | LocalField) and leaf.system.drift.drift.count_coefficients() > 1:
            drift = leaf.system.drift
            _, triangle = np.linalg.qr(drift.columns(leaf.system.stations))
            back = np.linalg.pinv(triangle)
            own, wanted = (
                np.square(drift.columns(places) @ back).sum(axis=1) for places in (leaf.system.stations, targets)
            )
            return np.asarray(wanted / own.max())
    return None
