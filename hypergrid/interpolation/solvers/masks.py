"""Grouping of slices by mask: whatever depends on the mask is computed once per mask."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def group_masks(present: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.intp]]]:
    """Yield each distinct mask, shape (stations,), with the indices of its slices.

    Parameters
    ----------
    present
        Which station reports in which slice, shape (slices, stations).
    """
    if not present.size:
        return
    if (present == present[0]).all():
        # Most blocks of a surface have only such slices.
        yield present[0], np.arange(len(present))
        return
    packed = np.packbits(present, axis=1)
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    edges = np.flatnonzero(np.diff(inverse[order])) + 1
    for first, slices in zip(firsts, np.split(order, edges), strict=True):
        yield present[first], slices
