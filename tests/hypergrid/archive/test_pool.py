"""Chunks that a writer keeps in memory: what is read within a commit is what commits of their own would have stored."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.archive.arrays.cells import Slices
from hypergrid.archive.writer import POOL_BYTES, Writer
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window

Build = Callable[..., Readings]
Step = Callable[[Writer], object]
AIR = "air_temperature"
SLICE = 120 * 10**9
FIRST, LENGTH = Slices(SLICE).chunks_ns
BOUND = FIRST - FIRST // LENGTH * LENGTH
"""First instant after 1970 at which a chunk ends and the next begins."""


def _steps(readings: Build, seed: int) -> list[Step]:
    """Return some steps: readings that are new, come again, or replace others, within and across chunks, and flags."""
    generator = np.random.default_rng(seed)
    steps: list[Step] = []
    for number in range(12):
        # More stations with each step: the last chunk along series becomes wider, and others follow.
        stations = [f"s{k}" for k in range(20 + 4 * number)]
        count = int(generator.integers(1, 400))
        first = int(generator.choice([BOUND - 10 * SLICE, BOUND - 5 * SLICE, BOUND, BOUND + LENGTH]))
        # Each stamp once a step: which of two is the later would hang on the order within the step.
        stamps = first + generator.permutation(10 * len(stations))[:count] % 10 * SLICE
        chosen = generator.permutation(len(stations) * 10)[:count] % len(stations)
        rows = {
            (f"s{k}", int(t)): (float(generator.integers(5)), 2, number + 1)
            for k, t in zip(chosen, stamps, strict=False)
        }
        given = readings([(*key, *row) for key, row in rows.items()], stations=stations)
        steps.append(lambda writer, given=given: writer.readings(given))
        if number % 3 == 1:
            steps.append(lambda writer, bits=number: _judge(writer, bits))
    return steps


def _judge(writer: Writer, bits: int) -> int:
    found = writer.read(AIR, window=Window(BOUND - 8 * SLICE, BOUND + bits % 3 * SLICE))
    flag = np.full(len(found), 1 + bits % 3, np.uint8)
    return writer.flags(replace(found, flag=flag, tests=np.full(len(found), bits, np.uint16)))


def _columns(found: Readings) -> list[list[object]]:
    tests = found.tests_or_none_set()
    return [np.asarray(column).tolist() for column in (
        found.index, found.time_ns, found.value, found.flag, found.arrival_ns, tests
    )]  # fmt: skip


@pytest.mark.parametrize("pool_bytes", [POOL_BYTES, 3_000_000, 0])
def test_steps_of_one_commit_read_and_store_as_commits_of_their_own(
    archive: Archive, readings: Build, tmp_path: object, pool_bytes: int
) -> None:
    # The budget holds all chunks, two of them, and none.
    other = Archive.create(
        f"{tmp_path}/other", name="pass", slice_s=120, variables=archive.variables.values(), now_ns=7
    )
    steps = _steps(readings, seed=pool_bytes)
    with archive.commit(batch="all", message="", now_ns=1, pool_bytes=pool_bytes) as together:
        for number, step in enumerate(steps):
            with other.commit(batch=str(number), message="", now_ns=1) as alone:
                said = step(alone)
            assert step(together) == said
            for window in (None, Window(BOUND - 10 * SLICE, BOUND), Window(BOUND, BOUND + 10 * SLICE)):
                stored = other.latest().read(AIR, window=window, tests=True)
                assert _columns(together.read(AIR, window=window)) == _columns(stored)
    assert _columns(archive.latest().read(AIR, tests=True)) == _columns(other.latest().read(AIR, tests=True))
    replaced = [some.latest().read(AIR, superseded=True, tests=True) for some in (archive, other)]
    assert _columns(replaced[0]) == _columns(replaced[1])
    assert together._pool.statistics().entries == 0
