"""Compiled loop of local kriging, over neighbouring targets and, for each, over the masks.

A target only visits masks in which one of its candidates started or stopped reporting, and is solved again only if its
set changed; the factors of a set are cached for the next target with that set.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.kernels.cholesky import SINGULAR, UNDETERMINED, axpy, prepare, solve
from hypergrid.interpolation.kernels.local_task import (
    COUNTS,
    ESTIMATES,
    LANES,
    SOLVED,
    TOO_FEW_CANDIDATES,
    UNSOLVED,
    WEIGHTS_OF_ONE,
    ChunkOutput,
    Factors,
    Floats,
    LocalTask,
)
from hypergrid.interpolation.kernels.threads import jit_kernel
from hypergrid.interpolation.local.neighbourhood import SECTORS, TargetChunk

Numbers = NDArray[np.int32]


@jit_kernel(counted=False, wrapped=False)
def choose(
    candidates: Numbers,
    sectors: NDArray[np.int8],
    reporting: NDArray[np.bool_],
    octants: int,
    chosen: Numbers,
    held: Numbers,
) -> int:
    """Write the ranks of the nearest reporting stations into `chosen`, and return their number.

    `held` is scratch space, one number per sector; `octants` is the maximum per sector, 0 for no limit.
    """
    count = 0
    held[:] = 0
    for rank in range(candidates.size):
        if not reporting[candidates[rank]]:
            continue
        if octants:
            if held[sectors[rank]] == octants:
                continue
            held[sectors[rank]] += 1
        chosen[count] = rank
        count += 1
        if count == chosen.size:
            break
    return count


class Workspace(NamedTuple):
    """Factors of a chunk, and scratch arrays that its targets reuse."""

    factors: Factors
    """Those of the sets of earlier targets; new ones are added."""
    chosen: Numbers
    """Ranks of the selected candidates, shape (max_stations,)."""
    held: Numbers
    """Selected candidates of each sector."""
    rank_of: Numbers
    """Rank of each station among the target's candidates, shape (stations + 1,)."""
    right: Floats
    """Covariances of the target with its set, then its weights; shape (max_stations padded to `LANES`,)."""
    drift: Floats
    """Shape (2, functions)."""
    lines: Floats
    """Results of several targets, so that whole cache lines are written; shape (targets, slices + `LANES`)."""

    @classmethod
    def empty(cls, chunk: TargetChunk, task: LocalTask, max_factors: int) -> "Workspace":
        """Make the workspace of a task for a chunk, for at most `max_factors` sets, a power of two."""
        max_stations, slices = task.max_stations, task.slices.size
        return cls(
            Factors.empty(max_factors, max_stations, chunk.functions.shape[1]),
            np.empty(max_stations, dtype=np.int32),
            np.zeros(SECTORS, dtype=np.int32),
            np.zeros(chunk.covariances.shape[0] + 1, dtype=np.int32),
            np.zeros((max_stations + LANES - 1) & -LANES),
            np.empty((2, chunk.functions.shape[1])),
            np.empty((max(1, min(64, 2**17 // slices)), slices + LANES)),
        )


# Arrays are made by the caller, so that no references are counted: with counting, a call of `run_target` took as long
# as its work, and inlining it instead took two seconds more to compile.
@jit_kernel(counted=False)
def run(chunk: TargetChunk, task: LocalTask, workspace: Workspace, output: ChunkOutput, begin: int, end: int) -> None:
    """Run a task for some targets of a chunk.

    Parameters
    ----------
    begin, end
        Half-open range of targets.
    """
    lines = workspace.lines
    tile = lines.shape[0]
    for first in range(begin, end, tile):
        beyond = min(first + tile, end)
        for t in range(first, beyond):
            output.status[t] = run_target(chunk, task, workspace, t, lines[t - first])
        for own in range(task.slices.size):
            for column in range(first, beyond):
                output.rows[task.slices[own], output.columns[column]] = lines[column - first, own]


@jit_kernel(counted=False, wrapped=False)
def run_target(chunk: TargetChunk, task: LocalTask, workspace: Workspace, t: int, line: Floats) -> int:
    """Write the results of target `t` into `line`, mask by mask; return its status."""
    candidates, factors = chunk.candidates[t], workspace.factors
    chosen, right, rank_of = workspace.chosen, workspace.right, workspace.rank_of
    masks, functions, max_stations = task.reporting.shape[0], chunk.functions.shape[1], task.max_stations
    last, word, slot, count, variance, since = np.uint64(0), np.uint64(0), 0, 0, 0.0, 0
    for mask in range(masks + 1):
        if mask < masks:
            if mask % 64 == 0:
                word = np.uint64(mask == 0)
                for rank in range(candidates.size):
                    word |= task.changed[candidates[rank], mask // 64]
            if not (word >> np.uint64(mask % 64)) & np.uint64(1):
                continue
            chosen_count = choose(
                candidates, chunk.sectors[t], task.reporting[mask], task.octants, chosen, workspace.held
            )
            if chosen_count < max_stations and not chunk.complete[t]:
                return TOO_FEW_CANDIDATES
            key = np.uint64(chosen_count)
            for j in range(chosen_count):
                key ^= chunk.hashes[candidates[chosen[j]]]
            if mask > 0 and key == last:
                continue
            last = key
        # The set used since mask `since` ends here: write its slices.
        start, stop = task.starts[since], task.starts[mask]
        since = mask
        if task.what == COUNTS:
            line[start:stop] = count
        elif count == 0:
            line[start:stop] = math.nan
        elif task.what == ESTIMATES:
            # Numbers written past `stop` are overwritten by later masks.
            line[start : start + ((stop - start + LANES - 1) & -LANES)] = 0.0
            for j in range(count):
                axpy(line[start:], task.values[factors.members[slot, j], start:], -right[j], 0, stop - start)
        elif task.what == WEIGHTS_OF_ONE:
            line[start:stop] = 0.0
            for j in range(count):
                line[j] = right[j]
                line[max_stations + j] = chunk.numbers[factors.members[slot, j]]
            line[2 * max_stations] = max(variance, 0.0)
            line[2 * max_stations + 1] = count
        else:
            line[start:stop] = max(variance, 0.0)
        if mask == masks:
            break
        count = 0
        if chosen_count == 0 or chosen_count < functions:
            continue
        slot = find_set(chunk, task, factors, candidates, chosen[:chosen_count], key)
        if factors.states[slot] == UNDETERMINED:
            continue
        same = factors.sizes[slot] == chosen_count
        if same:
            for j in range(chosen_count):
                rank_of[candidates[chosen[j]]] = chosen[j]
            right[:] = 0.0
            for j in range(chosen_count):
                rank = rank_of[factors.members[slot, j]]
                same &= candidates[rank] == factors.members[slot, j]
                right[j] = task.shift + chunk.sides[t, rank]
        # On a hash collision (`not same`), or if the system is singular, the numpy backend solves the target.
        if factors.states[slot] == SINGULAR or not same:
            return UNSOLVED
        count = chosen_count
        if task.what != COUNTS:
            gained = solve(factors, slot, chunk.functions[t], right, workspace.drift, task.what)
            variance = chunk.within_variance[t] + task.shift + gained
    return SOLVED


@jit_kernel(counted=False, wrapped=False)
def find_set(
    chunk: TargetChunk, task: LocalTask, factors: Factors, candidates: Numbers, chosen: Numbers, key: np.uint64
) -> int:
    """Find the slot of a set of candidates by its hash, factorising its system if it is new."""
    keys, slots, beyond = factors.keys, factors.slots, factors.keys.size - 1
    bucket = np.int64(key >> np.uint64(1)) & beyond
    while slots[bucket] >= 0 and keys[bucket] != key:
        bucket = (bucket + 1) & beyond
    if slots[bucket] >= 0:
        return int(slots[bucket])
    if factors.held[0] == factors.sizes.size:
        slots[:] = -1
        factors.held[0] = 0
        bucket = np.int64(key >> np.uint64(1)) & beyond
    slot = int(factors.held[0])
    factors.held[0] += 1
    keys[bucket], slots[bucket], factors.sizes[slot] = key, slot, chosen.size
    members = factors.members[slot]
    # Sorted by station, so that the factor of a set does not depend on which target met it first.
    for j in range(chosen.size):
        station, at = candidates[chosen[j]], j
        while at > 0 and members[at - 1] > station:
            members[at] = members[at - 1]
            at -= 1
        members[at] = station
    factors.states[slot] = prepare(chunk.covariances, chunk.station_functions, factors, slot, task.shift)
    return slot
