"""Orders of the cells of a surface: which come first when an answer is refined."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hypergrid.registry import Registry

Order = Callable[[tuple[int, ...]], NDArray[np.intp]]

ORDERS: Registry[Order] = Registry("order of blocks")
"""Order name to a function of the shape of one slice to a permutation of its flat cells."""


@ORDERS.register("raster")
def raster(shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the cells row by row."""
    return np.arange(int(np.prod(shape)), dtype=np.intp)


@ORDERS.register("coarse_to_fine")
def coarse_to_fine(shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the cells of a coarse lattice first, then those of each lattice twice as fine."""
    coarsest = max(int(np.log2(max(max(shape) / 4, 1))), 0)
    levels = np.full(shape, coarsest)
    for axis, size in enumerate(shape):
        index = np.arange(size)
        twos = np.where(index == 0, coarsest, np.log2(np.maximum(index & -index, 1)).astype(int))
        view = [1] * len(shape)
        view[axis] = size
        levels = np.minimum(levels, twos.reshape(view))
    return np.argsort(-levels.ravel(), kind="stable").astype(np.intp)
