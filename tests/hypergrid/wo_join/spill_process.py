"""What is run in a process of its own: `python -m tests.hypergrid.wo_join.spill_process NAME ARGUMENTS`."""

import importlib
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np

from hypergrid.wo_join import KnownParameters, SpillFailed, WoJoin
from hypergrid.wo_join.config import Strategy
from tests.hypergrid.wo_join.workloads import Workload, workload
from tests.support.streams.loads import lag_dominated

IN_ORDER = KnownParameters(disorder=(0, 0, 0))


def columns(load: Workload, start: int, stop: int | None) -> list[np.ndarray]:
    return [column[start:stop] for column in (load.stream, load.key, load.payload, load.arrival)]


def small(seed: int) -> Workload:
    return workload(seed, streams=3, keys=3000)


def dies(folder: str, at: int, until: int) -> None:
    """Take a snapshot after some tuples, and be killed after some more."""
    load = small(7)
    join = WoJoin(3, known=known_of(load), strategy="dbf", allowed_bytes=9000, spill_folder=folder)
    found = join.push(*columns(load, 0, at)).rows
    Path(folder, "snapshot").write_bytes(join.snapshot())
    np.save(Path(folder, "found.npy"), found)
    join.push(*columns(load, at, until))
    os.kill(os.getpid(), signal.SIGKILL)


def known_of(load: Workload) -> KnownParameters:
    """The disorder alone: it needs no slow definitions."""
    disorder = [0] * load.streams
    for stream in range(load.streams):
        keys = load.key[load.stream == stream]
        disorder[stream] = int((np.maximum.accumulate(keys) - keys).max())
    return KnownParameters(disorder=tuple(disorder))


def has_a_full_disk(folder: str) -> None:
    """Push where no file may be larger than a few hundred bytes, then on where it may."""
    load = small(7)
    join = WoJoin(3, known=known_of(load), strategy="dbf", allowed_bytes=9000, spill_folder=folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    rows, message, taken = [], "", 0
    try:
        join.push(*columns(load, 0, None))
    except SpillFailed as error:
        message, taken = str(error), error.taken
        rows.append(error.matches.rows)
    left = [path.name for path in Path(folder).rglob("*.arrow")]
    waiting = sum(one.waiting for one in join.statistics().streams)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    rows += [join.push(*columns(load, taken, None)).rows, join.finish().rows]
    found = sorted(map(tuple, np.concatenate(rows).tolist()))
    tell({"message": message, "taken": taken, "left": left, "waiting": waiting, "complete": found == load.joined()})


def grows(strategy: Strategy, needed_mb: int, share: float) -> None:
    """Join streams of which the last lags far behind; who measures from outside is waited for, before and after."""
    allowed = int(needed_mb * 2**20 * share)
    load = lag_dominated(needed_mb * 2**20)
    # What a process takes once is there before: compiled loops, and pandas, which pyarrow loads with its first array.
    importlib.import_module("pandas")
    warm = WoJoin(3, known=IN_ORDER, strategy=strategy, allowed_bytes=allowed)
    warm.push([0, 1, 2] * 50, np.repeat(np.arange(50), 3), np.zeros(150), np.repeat(np.arange(50), 3))
    warm.finish()
    chunks = load.chunks()
    chunk = next(chunks, None)
    be_measured()
    join = WoJoin(3, known=IN_ORDER, strategy=strategy, allowed_bytes=allowed)
    # Each key has one result: their number and the sum of their keys tell that each came once.
    count = total = held = on_disk = 0
    while chunk is not None:
        matches = join.push(chunk.stream, chunk.key, chunk.payload, chunk.arrival_ns)
        told = join.statistics()
        held, on_disk = max(held, told.held_bytes), max(on_disk, told.disk.bytes)
        count, total = count + len(matches), total + int(matches.key.sum())
        chunk = next(chunks, None)
    matches = join.finish()
    count, total = count + len(matches), total + int(matches.key.sum())
    tell(
        {
            "allowed": allowed,
            "held": held,
            "on_disk": on_disk,
            "count": count,
            "keys": load.keys,
            "total": total,
        }
    )
    be_measured()


def be_measured() -> None:
    """End a line, and wait for one."""
    sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stdin.readline()


def tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what))


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    {
        "dies": lambda: dies(rest[0], int(rest[1]), int(rest[2])),
        "has_a_full_disk": lambda: has_a_full_disk(rest[0]),
        "grows": lambda: grows(cast(Strategy, rest[0]), int(rest[1]), float(rest[2])),
    }[name]()
