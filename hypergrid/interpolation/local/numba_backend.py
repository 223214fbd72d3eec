"""Compiled loop of local kriging, over neighbouring targets and, for each, over the masks.

A target only visits masks in which one of its candidates started or stopped reporting, and is solved again only if its
set changed; the factors of a set are cached for the next target with that set.
"""

import math

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.kernels.cholesky import SINGULAR, UNDETERMINED, axpy, prepare, solve
from hypergrid.interpolation.kernels.local_task import (
    COUNTS,
    ESTIMATES,
    LANES,
    TOO_FEW_CANDIDATES,
    UNSOLVED,
    WEIGHTS_OF_ONE,
    Factors,
    LocalTask,
)
from hypergrid.interpolation.kernels.threads import jit_kernel
from hypergrid.interpolation.local.neighbourhood import SECTORS, TargetChunk

Floats = NDArray[np.float64]
Numbers = NDArray[np.int32]


@jit_kernel()
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


@jit_kernel()
def run(
    chunk: TargetChunk,
    task: LocalTask,
    factors: Factors,
    begin: int,
    end: int,
    out: Floats,
    columns: NDArray[np.int64],
    status: NDArray[np.int8],
) -> None:
    """Run a task for some targets of a chunk.

    Parameters
    ----------
    factors
        Factors computed for other targets of the chunk; new ones are added.
    begin, end
        Half-open range of targets.
    out
        Estimates, variances or counts, one row per slice; valid where `status` is `SOLVED`.
    columns
        Column of each target in `out`, shape (targets,).
    status
        Shape (targets,), `SOLVED` on entry.
    """
    functions = chunk.functions.shape[1]
    keys, slots, members, sizes, states = factors.keys, factors.slots, factors.members, factors.sizes, factors.states
    uppers, lowers, rows, triangles = factors.uppers, factors.lowers, factors.rows, factors.triangles
    capacity, held_sets = sizes.size, factors.held[0]
    masks, max_stations = task.reporting.shape[0], task.max_stations
    padded = (max_stations + LANES - 1) & -LANES
    chosen = np.empty(max_stations, dtype=np.int32)
    held = np.zeros(SECTORS, dtype=np.int32)
    scratch = np.empty((2, functions))
    rank_of = np.zeros(chunk.covariances.shape[0] + 1, dtype=np.int32)
    right = np.zeros(padded)
    # Buffer the results of several targets, so that whole cache lines are written.
    tile = max(1, min(64, 2**17 // task.slices.size))
    buffer = np.empty((tile, task.slices.size + LANES))
    for first in range(begin, end, tile):
        beyond = min(first + tile, end)
        for t in range(first, beyond):
            line = buffer[t - first]
            candidates = chunk.candidates[t]
            last, slot, count, variance = np.uint64(0), -1, 0, 0.0
            since = 0
            for mask in range(masks + 1):
                if mask < masks:
                    if mask % 64 == 0:
                        word = np.uint64(mask == 0)
                        for rank in range(candidates.size):
                            word |= task.changed[candidates[rank], mask // 64]
                    if not (word >> np.uint64(mask % 64)) & np.uint64(1):
                        continue
                    chosen_count = choose(
                        candidates, chunk.sectors[t], task.reporting[mask], task.octants, chosen, held
                    )
                    if chosen_count < max_stations and not chunk.complete[t]:
                        status[t] = TOO_FEW_CANDIDATES
                        break
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
                        axpy(line[start:], task.values[members[slot, j], start:], -right[j], 0, stop - start)
                elif task.what == WEIGHTS_OF_ONE:
                    line[start:stop] = 0.0
                    for j in range(count):
                        line[j] = right[j]
                        line[max_stations + j] = chunk.numbers[members[slot, j]]
                    line[2 * max_stations] = max(variance, 0.0)
                    line[2 * max_stations + 1] = count
                else:
                    line[start:stop] = max(variance, 0.0)
                if mask == masks:
                    break
                count = 0
                if chosen_count == 0 or chosen_count < functions:
                    continue
                for j in range(chosen_count):
                    rank_of[candidates[chosen[j]]] = chosen[j]
                bucket = np.int64(key >> np.uint64(1)) & (2 * capacity - 1)
                while slots[bucket] >= 0 and keys[bucket] != key:
                    bucket = (bucket + 1) & (2 * capacity - 1)
                slot = int(slots[bucket])
                if slot < 0:
                    if held_sets == capacity:
                        slots[:] = -1
                        held_sets = 0
                        bucket = np.int64(key >> np.uint64(1)) & (2 * capacity - 1)
                    slot = held_sets
                    held_sets += 1
                    keys[bucket], slots[bucket], sizes[slot] = key, slot, chosen_count
                    # Sorted by station, so that the factor of a set does not depend on which target met it first.
                    for j in range(chosen_count):
                        station, at = candidates[chosen[j]], j
                        while at > 0 and members[slot, at - 1] > station:
                            members[slot, at] = members[slot, at - 1]
                            at -= 1
                        members[slot, at] = station
                    states[slot] = prepare(
                        chunk.covariances,
                        chunk.station_functions,
                        members[slot, :chosen_count],
                        task.shift,
                        uppers[slot],
                        lowers[slot],
                        rows[slot],
                        triangles[slot],
                    )
                if states[slot] == UNDETERMINED:
                    continue
                same = sizes[slot] == chosen_count
                if same:
                    right[:] = 0.0
                    for j in range(chosen_count):
                        rank = rank_of[members[slot, j]]
                        same &= candidates[rank] == members[slot, j]
                        right[j] = task.shift + chunk.sides[t, rank]
                # On a hash collision (`not same`), or if the system is singular, the numpy backend solves the target.
                if states[slot] == SINGULAR or not same:
                    status[t] = UNSOLVED
                    break
                count = chosen_count
                if task.what != COUNTS:
                    variance = chunk.within_variance[t] + task.shift + solve(
                        uppers[slot], lowers[slot], rows[slot], triangles[slot], chunk.functions[t], right, scratch,
                        count, task.what,
                    )  # fmt: skip
        for own in range(task.slices.size):
            for column in range(first, beyond):
                out[task.slices[own], columns[column]] = buffer[column - first, own]
    factors.held[0] = held_sets
