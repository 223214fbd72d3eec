"""How many digits a kriging system leaves of what is put into it."""

import numpy as np

from hypergrid.kriging.field import KrigingField

ILL = 1e9
"""Condition number from which a system is said to lose digits: seven of sixteen are left, as many as a float32 has."""


def condition_number(field: KrigingField) -> float:
    """Return an upper bound, near the true value, of the condition number of a field's system in the 1-norm.

    Covariances are taken in units of the largest semivariance among the stations, so that neither the unit of the
    values nor that of the mean matters.
    """
    system = field.system
    extent_m = float(np.linalg.norm(np.ptp(system.isotropic_m, axis=0)))
    scale = float(system.model.semivariance(np.array([extent_m]))[0]) or 1.0
    sizes = np.full(system.size, np.sqrt(scale))
    sizes[system.stations.count :] = 1.0 / np.sqrt(scale)
    inverse = np.abs(field.inverse) * sizes * sizes[:, None]
    # No element of the scaled matrix is above one, so none of its columns has a sum above their number.
    return float(system.size * inverse.sum(axis=0).max())


def conditioning_note(who: str, field: object) -> tuple[str, ...]:
    """Return a note where kriging on all stations has lost digits, and nothing elsewhere."""
    if not isinstance(field, KrigingField):
        return ()
    found = condition_number(field)
    if found < ILL:
        return ()
    lost = min(round(float(np.log10(found))), 16)
    model = field.system.model.model
    return (
        f"the system of {who} is ill-conditioned under this {model} model (condition number {found:.0e}): "
        f"solving it loses about {lost} of 16 digits; a nugget or a shorter range keeps more",
    )
