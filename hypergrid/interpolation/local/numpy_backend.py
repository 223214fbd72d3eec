"""Local kriging by numpy alone: for small jobs, which are done before compiled code is loaded, and for odd systems.

Each distinct set of stations is solved once by its bordered matrix with pivoting, each pair of a target and a set has
its weights once, and whatever is singular is refused.
"""

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.kernels.local_task import (
    COUNTS,
    ESTIMATES,
    INDEPENDENT,
    TOO_FEW_CANDIDATES,
    WEIGHTS_OF_ONE,
    Task,
)
from hypergrid.interpolation.local.neighbourhood import SECTORS, Chunk
from hypergrid.interpolation.solvers.system import inverse

Floats = NDArray[np.float64]

BATCH_FLOATS = 2**20
"""Numbers in one batch of systems, or of choices (8 MiB)."""


def run(
    chunk: Chunk, task: Task, out: Floats, columns: NDArray[np.int64], status: NDArray[np.int8], *, who: str
) -> None:
    """Do a task for a chunk of targets, as `local_kernels.run` does.

    Raises
    ------
    SingularSystem
        A set of stations whose system has no unique solution.
    """
    targets, width = chunk.candidates.shape
    masks_at_once = max(1, BATCH_FLOATS // max(1, targets * width))
    for first in range(0, len(task.reporting), masks_at_once):
        masks = slice(first, min(first + masks_at_once, len(task.reporting)))
        chosen = choose(chunk, task.reporting[masks], task.most, task.octants)
        lacking = (chosen.sum(axis=2) < task.most) & ~chunk.complete
        status[lacking.any(axis=0)] = TOO_FEW_CANDIDATES
        _run_masks(chunk, task, masks, chosen, out, columns, who=who)


def choose(chunk: Chunk, reporting: NDArray[np.bool_], most: int, octants: int) -> NDArray[np.bool_]:
    """Return which candidates are used, shape (masks, targets, candidates).

    Parameters
    ----------
    chunk
        Targets with their candidates.
    reporting
        Which stations report, shape (masks, stations + 1); the last stands for no station.
    most, octants
        Stations used at most, in all and in each sector; 0 where any number may be in a sector.
    """
    chosen = reporting[:, chunk.candidates]
    if octants:
        for sector in range(SECTORS):
            inside = chosen & (chunk.sectors == sector)
            chosen &= ~inside | (np.cumsum(inside, axis=2) <= octants)
    chosen &= np.cumsum(chosen, axis=2) <= most
    return np.asarray(chosen)


def _run_masks(
    chunk: Chunk,
    task: Task,
    masks: slice,
    chosen: NDArray[np.bool_],
    out: Floats,
    columns: NDArray[np.int64],
    *,
    who: str,
) -> None:
    count, targets, _ = chosen.shape
    hashes = np.append(chunk.hashes, np.uint64(0))[chunk.candidates]
    keys = np.bitwise_xor.reduce(np.where(chosen, hashes, np.uint64(0)), axis=2)
    _, firsts, sets = np.unique(keys, return_index=True, return_inverse=True)
    # A target has the same weights under all masks that leave it the same set.
    each = sets.ravel() * targets + np.tile(np.arange(targets), count)
    pairs, pair = np.unique(each, return_inverse=True)
    set_of, target_of = pairs // targets, pairs % targets
    members = _members(chunk, chosen.reshape(count * targets, -1), firsts, task.most)
    solved = np.empty((len(pairs), task.most))
    gained, used = np.empty(len(pairs)), np.empty(len(pairs), dtype=np.int64)
    size = (task.most + chunk.functions.shape[1]) ** 2
    edges = np.searchsorted(set_of, np.arange(0, len(firsts) + 1, max(1, BATCH_FLOATS // size)))
    for start, stop in zip(edges, [*edges[1:], len(pairs)], strict=True):
        batch = slice(start, stop)
        if start < stop:
            low = set_of[start]
            solved[batch], gained[batch], used[batch] = _solve(
                chunk, members[low : set_of[stop - 1] + 1], set_of[batch] - low, target_of[batch], who=who
            )
    lines = pair.reshape(count, targets)
    for mask, line in enumerate(lines, start=masks.start):
        places = slice(task.starts[mask], task.starts[mask + 1])
        cells = np.ix_(task.slices[places], columns)
        if task.what == COUNTS:
            out[cells] = used[line]
            continue
        if task.what == ESTIMATES:
            values = np.append(task.values[:, places], np.zeros((1, places.stop - places.start)), axis=0)
            found = np.einsum("tks,tk->st", values[members[set_of[line]]], solved[line])
        else:
            found = np.maximum(chunk.within + gained[line], 0.0)
            if task.what == WEIGHTS_OF_ONE:
                # What is no station has no weight: whichever number stands for it.
                own = members[set_of[line]]
                stations = np.append(chunk.numbers, 0)[own]
                found = np.concatenate(
                    [np.where(own < len(chunk.numbers), solved[line], 0.0).T, stations.T, found[None], used[line][None]]
                )
        out[cells] = np.where(used[line] > 0, found, np.nan)


def _members(chunk: Chunk, chosen: NDArray[np.bool_], firsts: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return the stations of each set, ascending and padded by the number of stations, shape (sets, most)."""
    targets = firsts % len(chunk.candidates)
    nothing = len(chunk.hashes)
    found = np.sort(np.where(chosen[firsts], chunk.candidates[targets], nothing), axis=1)[:, :most]
    padding = np.full((len(found), most - found.shape[1]), nothing)
    return np.concatenate([found, padding], axis=1).astype(np.intp)


def _solve(
    chunk: Chunk, members: NDArray[np.intp], set_of: NDArray[np.intp], target_of: NDArray[np.intp], *, who: str
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return weights, what each variance gains beyond that of the target by itself, and stations used, a row a pair."""
    sets, most = members.shape
    functions = chunk.functions.shape[1]
    here = members < len(chunk.hashes)
    held = np.where(here, members, 0)
    columns = np.where(here[:, :, None], chunk.station_functions.T[held], 0.0)
    orthonormal, triangle, determined = _orthonormal(columns, here)
    matrix = np.zeros((sets, most + functions, most + functions))
    matrix[:, :most, :most] = chunk.covariances[held[:, :, None], held[:, None, :]] * (
        here[:, :, None] & here[:, None, :]
    )
    matrix[:, :most, most:] = orthonormal
    matrix[:, most:, :most] = np.swapaxes(orthonormal, 1, 2)
    # What is not there stands by itself, in units of the covariances, and gets no weight.
    diagonal, unit = np.arange(most), np.abs(chunk.covariances).max(initial=0.0) or 1.0
    matrix[:, diagonal, diagonal] = np.where(here, matrix[:, diagonal, diagonal], unit)
    matrix[~determined] = np.diag(np.append(np.full(most, unit), np.full(functions, 1.0 / unit)))
    systems = inverse(matrix, who=who, functions=functions)
    sides = np.zeros((len(set_of), most + functions))
    sides[:, :most] = _sides_of(chunk, members[set_of], target_of)
    if functions:
        wanted = chunk.functions[target_of][:, :, None]
        sides[:, most:] = np.linalg.solve(np.swapaxes(triangle, 1, 2)[set_of], wanted)[:, :, 0]
    solved = np.einsum("pij,pj->pi", systems[set_of], sides)
    used = np.where(determined, here.sum(axis=1), 0)[set_of]
    return solved[:, :most], -np.einsum("pi,pi->p", solved, sides), used


def _orthonormal(columns: Floats, here: NDArray[np.bool_]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return Q and R of the drift functions of each set, and whether its stations determine their coefficients."""
    sets, _, functions = columns.shape
    counts = here.sum(axis=1)
    determined = counts >= max(functions, 1)
    if functions < 2:
        # A constant is its own factor: so the system is that of a textbook.
        return columns, np.ones((sets, functions, functions)), determined
    middle = columns.sum(axis=1, keepdims=True) / np.maximum(counts, 1)[:, None, None]
    size = np.linalg.norm(np.where(here[:, :, None], columns - middle, 0.0), axis=1)
    orthonormal, triangle = np.linalg.qr(columns)
    own = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
    whole = np.linalg.norm(columns, axis=1)
    apart = (own > INDEPENDENT * size) & (own > 1e-10 * whole)
    determined &= apart[:, 1:].all(axis=1)
    triangle[~determined] = np.eye(functions)
    return orthonormal, triangle, determined


def _sides_of(chunk: Chunk, members: NDArray[np.intp], target_of: NDArray[np.intp]) -> Floats:
    """Return the covariances of targets with the members of their sets, shape (pairs, members)."""
    by_station = np.argsort(chunk.candidates, axis=1)
    # Sorted by station, a row's candidates are found by one search over all rows.
    nothing = len(chunk.hashes)
    step = nothing + 1
    rows = np.arange(len(chunk.candidates))[:, None] * step
    lookup = (np.take_along_axis(chunk.candidates, by_station, axis=1) + rows).ravel()
    place = np.searchsorted(lookup, (members + target_of[:, None] * step).ravel())
    flat = np.take_along_axis(chunk.sides, by_station, axis=1).ravel()
    found = flat[np.minimum(place, len(flat) - 1)].reshape(members.shape)
    return np.where(members < nothing, found, 0.0)
