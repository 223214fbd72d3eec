"""Targets beyond the range in which the stations support a drift: hidden extrapolation, by leverage.

The leverage of a place is `f' inv(F'F) f`, with f its drift functions and F those of the stations. Places whose
leverage exceeds the greatest of a station lie outside the ellipsoid of the stations in the space of the drift functions
(Montgomery, Peck and Vining 2012, section 3.8): far beyond the network, or off the line that its stations nearly are
on. There the estimate is what the drift's coefficients make of their errors.
"""

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.methods.conditioning import iterate_leaves
from hypergrid.interpolation.points.points import Targets
from hypergrid.interpolation.solvers.field import KrigingField

Floats = NDArray[np.float64]


def relative_leverage(field: object, targets: Targets) -> Floats | None:
    """Return the leverage of targets over the greatest of a station, shape (targets,); None without a drift.

    Above 1 a target is extrapolated. Stations are those of all slices together.
    """
    for leaf in iterate_leaves(field):
        if isinstance(leaf, KrigingField | LocalField) and leaf.system.drift.drift.count_coefficients() > 1:
            drift = leaf.system.drift
            _, triangle = np.linalg.qr(drift.columns(leaf.system.stations))
            back = np.linalg.pinv(triangle)
            own, wanted = (
                np.square(drift.columns(places) @ back).sum(axis=1) for places in (leaf.system.stations, targets)
            )
            return np.asarray(wanted / own.max())
    return None
