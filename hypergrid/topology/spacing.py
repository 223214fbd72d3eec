"""How far apart instants usually lie, where they agree."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

AGREEMENT: Final = 0.1
"""Spacings agree with their median within this share of it …"""
AGREEING: Final = 0.9
"""… and tell the interval where at least this share of them does."""


def usual_spacing_ns(times_ns: NDArray[np.int64], *, minimum: int = 2) -> int:
    """Return the median spacing of instants where 90 % of the spacings agree with it within 10 %, else 0 [ns].

    Parameters
    ----------
    times_ns
        In increasing order [ns since 1970 UTC].
    minimum
        Fewer spacings than this tell nothing: a single one always agrees with itself.

    Examples
    --------
    >>> usual_spacing_ns(np.array([0, 600, 1200, 1801, 9000]), minimum=2), usual_spacing_ns(np.array([0, 600]))
    (0, 0)
    >>> usual_spacing_ns(np.array([0, 600, 1200, 1801]))
    600
    """
    spacing = np.diff(times_ns)
    if len(spacing) < minimum:
        return 0
    median = round(float(np.median(spacing)))
    agrees = np.abs(spacing - median) <= AGREEMENT * median
    return median if np.count_nonzero(agrees) >= AGREEING * len(spacing) else 0
