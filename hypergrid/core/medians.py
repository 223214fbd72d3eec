"""Medians by group, computed in one sort."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def medians_by_group(
    value: Floats | Integers, group: NDArray[np.int32] | NDArray[np.int64] | NDArray[np.intp]
) -> tuple[Integers, Floats]:
    """Return the distinct groups in ascending order, and the median of each, shape (groups,) each.

    Parameters
    ----------
    value, group
        Values without NaN, and the group of each, in any order, shape (n,) each.

    Examples
    --------
    >>> import numpy as np
    >>> groups, middle = medians_by_group(np.array([1.0, 5.0, 2.0, 4.0, 9.0]), np.array([7, 3, 7, 3, 3]))
    >>> groups.tolist(), middle.tolist()
    ([3, 7], [5.0, 1.5])
    """
    # One sort for all groups: calling numpy once per group would dominate the run time.
    order = np.lexsort((value, group))
    value, group = value[order], group[order]
    first = np.flatnonzero(np.append(True, np.diff(group) != 0))[: len(group)]  # noqa: FBT003 - a value
    size = np.diff(np.append(first, len(group)))
    middle = (value[first + (size - 1) // 2] + value[first + size // 2]) / 2.0
    return group[first].astype(np.int64), np.asarray(middle, dtype=np.float64)
