"""Detect hidden extrapolation of a drift, by leverage.

The leverage of a place is `f' inv(F'F) f`, with f its drift functions and F those of the stations. Places with a
leverage above the greatest of a station lie outside the ellipsoid of the stations in the space of the drift functions
(Montgomery, Peck and Vining 2012, section 3.8): far beyond the network, or away from a line along which its stations
nearly lie. There the errors of the drift's coefficients dominate the estimate.
"""

import numpy as np

from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.methods.conditioning import iterate_leaves
from hypergrid.interpolation.points import Floats, Targets
from hypergrid.interpolation.solvers.field import KrigingField


def relative_leverage(field: object, targets: Targets) -> Floats | None:
    """Compute targets' leverage relative to the greatest of a station, shape (targets,); None without a drift.

    Targets above 1 are extrapolated. The stations are those of all slices together.
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
