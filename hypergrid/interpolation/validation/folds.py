"""Parts of a set of samples that are left out at once: regions of stations, blocks of time."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.points.samples import Samples

PARTS = 4
"""Regions, or blocks of time, where none are given."""


def spatial_folds(samples: Samples, parts: NDArray[np.intp] | None) -> NDArray[np.intp]:
    """Return the region of each usable station, shape (usable stations,).

    Parameters
    ----------
    samples
        Values at stations.
    parts
        Region of each station, shape (stations,); four of about as many stations where absent.

    Raises
    ------
    InvalidQuery
        The shape does not fit, or there is one region only.
    """
    usable = samples.usable_mask
    if parts is None:
        return bisect(samples.positions_m[usable], min(PARTS, int(usable.sum())))
    _refuse_shape(parts, len(samples.names), "region", "station")
    regions = np.asarray(parts)[usable]
    _refuse_single(regions, "region")
    return regions


def time_folds(samples: Samples, parts: NDArray[np.intp] | None) -> NDArray[np.intp]:
    """Return the block of time of each slice, shape (slices,).

    Parameters
    ----------
    samples
        Values at stations.
    parts
        Block of each slice, shape (slices,); four of as many consecutive slices where absent.

    Raises
    ------
    InvalidQuery
        The shape does not fit, or there is one block only.
    """
    slices = len(samples.values)
    if parts is not None:
        _refuse_shape(parts, slices, "block of time", "slice")
    blocks = np.arange(slices) * min(PARTS, slices) // max(slices, 1) if parts is None else np.asarray(parts)
    _refuse_single(blocks, "block of time")
    return blocks


def bisect(positions_m: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Return a region of each station, shape (stations,): the largest is halved across its longer side, repeatedly.

    Parameters
    ----------
    positions_m
        Shape (stations, 2) [m].
    count
        How many regions, at most the number of stations.
    """
    labels = np.zeros(len(positions_m), dtype=np.intp)
    for label in range(1, count):
        largest = int(np.argmax(np.bincount(labels)))
        inside = np.flatnonzero(labels == largest)
        axis = int(np.argmax(np.ptp(positions_m[inside], axis=0)))
        order = inside[np.argsort(positions_m[inside, axis], kind="stable")]
        labels[order[len(order) // 2 :]] = label
    return labels


def _refuse_shape(parts: NDArray[np.intp], count: int, what: str, each: str) -> None:
    if np.shape(parts) != (count,):
        message = f"parts needs the {what} of each {each}, shape ({count},); got shape {np.shape(parts)}"
        raise InvalidQuery(message)


def _refuse_single(parts: NDArray[np.intp], what: str) -> None:
    if len(np.unique(parts)) < 2:
        message = f"leaving out a {what} needs another one to learn from; got {len(np.unique(parts))} in all"
        raise InvalidQuery(message)
