"""Local kriging in numpy, for small jobs and for systems that need pivoting.

Small jobs finish before compiled code would be loaded. Each distinct set of stations is solved once by its bordered
matrix with pivoting, the weights of each pair of a target and a set are computed once, and singular systems are
rejected.
"""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.pacing import split_work
from hypergrid.interpolation.kernels.local_task import (
    COUNTS,
    ESTIMATES,
    INDEPENDENT,
    TOO_FEW_CANDIDATES,
    WEIGHTS_OF_ONE,
    ChunkOutput,
    LocalTask,
)
from hypergrid.interpolation.local.neighbourhood import SECTORS, TargetChunk
from hypergrid.interpolation.points import Floats
from hypergrid.interpolation.solvers.system import invert

BATCH_FLOATS = 2**20
"""Numbers in one batch of systems, or of selections (8 MiB)."""


def run(chunk: TargetChunk, task: LocalTask, output: ChunkOutput, *, label: str) -> None:
    """Run a task for a chunk of targets, as `numba_backend.run` does.

    Raises
    ------
    SingularSystem
        A set of stations whose system has no unique solution.
    """
    targets, width = chunk.candidates.shape
    for masks in split_work(len(task.reporting), BATCH_FLOATS // max(1, targets * width)):
        chosen = choose(chunk, task.reporting[masks], task.max_stations, task.octants)
        lacking = (chosen.sum(axis=2) < task.max_stations) & ~chunk.complete
        output.status[lacking.any(axis=0)] = TOO_FEW_CANDIDATES
        _run_masks(chunk, task, masks, chosen, output, label=label)


def choose(chunk: TargetChunk, reporting: NDArray[np.bool_], maximum: int, octants: int) -> NDArray[np.bool_]:
    """Select the candidates to use, shape (masks, targets, candidates).

    Parameters
    ----------
    chunk
        Targets with their candidates.
    reporting
        Which stations report, shape (masks, stations + 1); the last column is padding.
    maximum, octants
        Maximum stations in all and in each sector; 0 for no limit per sector.
    """
    chosen = reporting[:, chunk.candidates]
    if octants:
        for sector in range(SECTORS):
            inside = chosen & (chunk.sectors == sector)
            chosen &= ~inside | (np.cumsum(inside, axis=2) <= octants)
    chosen &= np.cumsum(chosen, axis=2) <= maximum
    return np.asarray(chosen)


def _run_masks(
    chunk: TargetChunk,
    task: LocalTask,
    masks: slice,
    chosen: NDArray[np.bool_],
    output: ChunkOutput,
    *,
    label: str,
) -> None:
    count, targets, _ = chosen.shape
    hashes = np.append(chunk.hashes, np.uint64(0))[chunk.candidates]
    keys = np.bitwise_xor.reduce(np.where(chosen, hashes, np.uint64(0)), axis=2)
    _, firsts, sets = np.unique(keys, return_index=True, return_inverse=True)
    # A target has the same weights under all masks that give it the same set.
    each = sets.ravel() * targets + np.tile(np.arange(targets), count)
    pairs, pair = np.unique(each, return_inverse=True)
    set_of, target_of = pairs // targets, pairs % targets
    members = _list_members(chunk, chosen.reshape(count * targets, -1), firsts, task.max_stations)
    solved = np.empty((len(pairs), task.max_stations))
    gained, used = np.empty(len(pairs)), np.empty(len(pairs), dtype=np.int64)
    size = (task.max_stations + chunk.functions.shape[1]) ** 2
    edges = np.searchsorted(set_of, np.arange(0, len(firsts) + 1, max(1, BATCH_FLOATS // size)))
    for start, stop in zip(edges, [*edges[1:], len(pairs)], strict=True):
        batch = slice(start, stop)
        if start < stop:
            low = set_of[start]
            solved[batch], gained[batch], used[batch] = _solve(
                chunk, members[low : set_of[stop - 1] + 1], set_of[batch] - low, target_of[batch], label=label
            )
    lines = pair.reshape(count, targets)
    for mask, line in enumerate(lines, start=masks.start):
        places = slice(task.starts[mask], task.starts[mask + 1])
        cells = np.ix_(task.slices[places], output.columns)
        if task.what == COUNTS:
            output.rows[cells] = used[line]
            continue
        if task.what == ESTIMATES:
            values = np.append(task.values[:, places], np.zeros((1, places.stop - places.start)), axis=0)
            outputs = np.einsum("tks,tk->st", values[members[set_of[line]]], solved[line])
        else:
            outputs = np.maximum(chunk.within_variance + gained[line], 0.0)
            if task.what == WEIGHTS_OF_ONE:
                # Padding entries get zero weight; their index is irrelevant.
                own = members[set_of[line]]
                stations = np.append(chunk.numbers, 0)[own]
                outputs = np.concatenate(
                    [
                        np.where(own < len(chunk.numbers), solved[line], 0.0).T,
                        stations.T,
                        outputs[None],
                        used[line][None],
                    ]
                )
        output.rows[cells] = np.where(used[line] > 0, outputs, np.nan)


def _list_members(
    chunk: TargetChunk, chosen: NDArray[np.bool_], firsts: NDArray[np.intp], maximum: int
) -> NDArray[np.intp]:
    """List the stations of each set, ascending and padded with the number of stations, shape (sets, most)."""
    targets = firsts % len(chunk.candidates)
    nothing = len(chunk.hashes)
    selection = np.sort(np.where(chosen[firsts], chunk.candidates[targets], nothing), axis=1)[:, :maximum]
    padding = np.full((len(selection), maximum - selection.shape[1]), nothing)
    return np.concatenate([selection, padding], axis=1).astype(np.intp)


def _solve(
    chunk: TargetChunk, members: NDArray[np.intp], set_of: NDArray[np.intp], target_of: NDArray[np.intp], *, label: str
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Compute weights, variance changes and station counts, one row per pair of target and set."""
    sets, max_stations = members.shape
    functions = chunk.functions.shape[1]
    is_member = members < len(chunk.hashes)
    held = np.where(is_member, members, 0)
    columns = np.where(is_member[:, :, None], chunk.station_functions.T[held], 0.0)
    orthonormal, triangle, determined = _orthonormalise(columns, is_member)
    matrix = np.zeros((sets, max_stations + functions, max_stations + functions))
    matrix[:, :max_stations, :max_stations] = chunk.covariances[held[:, :, None], held[:, None, :]] * (
        is_member[:, :, None] & is_member[:, None, :]
    )
    matrix[:, :max_stations, max_stations:] = orthonormal
    matrix[:, max_stations:, :max_stations] = np.swapaxes(orthonormal, 1, 2)
    # Padding gets a diagonal in units of the covariances, which decouples it and gives it no weight.
    diagonal, unit = np.arange(max_stations), np.abs(chunk.covariances).max(initial=0.0) or 1.0
    matrix[:, diagonal, diagonal] = np.where(is_member, matrix[:, diagonal, diagonal], unit)
    matrix[~determined] = np.diag(np.append(np.full(max_stations, unit), np.full(functions, 1.0 / unit)))
    systems = invert(matrix, label=label, functions=functions)
    sides = np.zeros((len(set_of), max_stations + functions))
    sides[:, :max_stations] = _sides_of(chunk, members[set_of], target_of)
    if functions:
        wanted = chunk.functions[target_of][:, :, None]
        sides[:, max_stations:] = np.linalg.solve(np.swapaxes(triangle, 1, 2)[set_of], wanted)[:, :, 0]
    solved = np.einsum("pij,pj->pi", systems[set_of], sides)
    used = np.where(determined, is_member.sum(axis=1), 0)[set_of]
    return solved[:, :max_stations], -np.einsum("pi,pi->p", solved, sides), used


def _orthonormalise(columns: Floats, is_member: NDArray[np.bool_]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Compute Q and R of each set's drift functions, and whether the set determines their coefficients."""
    sets, _, functions = columns.shape
    counts = is_member.sum(axis=1)
    determined = counts >= max(functions, 1)
    if functions < 2:
        # A constant needs no factorisation: the system is then the textbook one.
        return columns, np.ones((sets, functions, functions)), determined
    middle = columns.sum(axis=1, keepdims=True) / np.maximum(counts, 1)[:, None, None]
    size = np.linalg.norm(np.where(is_member[:, :, None], columns - middle, 0.0), axis=1)
    orthonormal, triangle = np.linalg.qr(columns)
    own = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
    whole = np.linalg.norm(columns, axis=1)
    is_independent = (own > INDEPENDENT * size) & (own > 1e-10 * whole)
    determined &= is_independent[:, 1:].all(axis=1)
    triangle[~determined] = np.eye(functions)
    return orthonormal, triangle, determined


def _sides_of(chunk: TargetChunk, members: NDArray[np.intp], target_of: NDArray[np.intp]) -> Floats:
    """Gather the covariances of targets with the members of their sets, shape (pairs, members)."""
    by_station = np.argsort(chunk.candidates, axis=1)
    # With candidates sorted by station, one search finds them in all rows.
    nothing = len(chunk.hashes)
    step = nothing + 1
    rows = np.arange(len(chunk.candidates))[:, None] * step
    lookup = (np.take_along_axis(chunk.candidates, by_station, axis=1) + rows).ravel()
    indices = np.searchsorted(lookup, (members + target_of[:, None] * step).ravel())
    flat = np.take_along_axis(chunk.sides, by_station, axis=1).ravel()
    sides = flat[np.minimum(indices, len(flat) - 1)].reshape(members.shape)
    return np.where(members < nothing, sides, 0.0)
