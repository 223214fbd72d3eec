"""A limit of memory: rows that wait go to disk and come back, and nothing else about a stream is different."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.archive import writer as writer_module
from hypergrid.core.errors import InvalidDeployment, InvalidQuery
from hypergrid.core.lru_cache import LruCache
from hypergrid.wo_join import WoJoin
from ingest.deployment.deployment_file import load, parse_size
from ingest.streaming.assembler import JOIN_SHARE, ROWS_SHARE, Assembler, EmittedRows, JoinStatus, StateUnusable
from ingest.streaming.spilled_rows import KEPT_VERSIONS, SpilledRows
from ingest.streaming.spool_decoder import RowBatch
from ingest.streaming.stream_commit import HELD, STREAM
from tests.ingest.stream_loop import Loop, end, expected, made
from tests.ingest.streamed import everything, messages, write_deployment, write_spool
from tests.ingest.streaming.test_assembler import NS, SLICE_S, clock_of, released, rows, workload
from tests.support.no_clock import no_ticks

NO_CLOCK = no_ticks()
NOTHING = np.arange(0)


def in_turn(parts: list[EmittedRows]) -> dict[tuple[int, int], list[int]]:
    """Return the records of each station and instant in the order in which they are stored."""
    found: dict[tuple[int, int], list[int]] = {}
    for part in parts:
        for origin, time_ns, seq in zip(
            part.rows.origin.tolist(), part.rows.time_ns.tolist(), part.rows.seq.tolist(), strict=True
        ):
            found.setdefault((origin, time_ns), []).append(seq)
    return found


def run(
    came: RowBatch, cuts: NDArray[np.int64], *, memory: int | None, folder: Path | None, repeats: np.random.Generator
) -> tuple[Assembler, list[EmittedRows]]:
    """Assemble rows in batches, each from the saved state; some batches are lost and taken again."""
    assembler, parts = Assembler(SLICE_S, 1e5, memory=memory, folder=folder), []
    batches = [(came.take(np.arange(a, b)), NO_CLOCK) for a, b in zip([0, *cuts], [*cuts, len(came)], strict=True)]
    batches.append((came.take(NOTHING), clock_of([len(came) + 1], [1e6], [True])))
    while batches or len(assembler):
        batch = batches.pop(0) if batches else (came.take(NOTHING), NO_CLOCK)
        state = b"".join(assembler.to_chunks())
        part = assembler.process(*batch)
        if repeats.random() < 0.5:
            # What a process does that had the batch before, is what another one does from the saved state.
            other = Assembler.from_bytes(state, folder)
            again = other.process(*batch)
            assert again.rows.to_bytes() == part.rows.to_bytes()
            assert (other.counts, other.first_held) == (assembler.counts, assembler.first_held)
            assert other._join.held_bytes == assembler._join.held_bytes
            assert np.array_equal(other._numbers, assembler._numbers)
            assert np.array_equal(other._due.number, assembler._due.number)
            assembler = other
        parts.append(part)
        assert assembler.counts.readings == (
            assembler.counts.released + assembler.counts.duplicates + assembler.held_readings
        )
        if memory is not None:
            assert assembler._held.nbytes <= ROWS_SHARE * memory or len(assembler._held) == 1
            assert part.rows.nbytes <= max(1.5 * ROWS_SHARE * memory, 1.5 * batch[0].nbytes) + 200
    return assembler, parts


@pytest.mark.parametrize("seed", range(12))
def test_with_a_limit_the_same_rows_are_let_go_in_the_same_turn(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    came = workload(seed, stations=9, minutes=12, retried=0.1)
    # Some rows come again as they were, some with another value.
    again = random.integers(0, len(came), 60)
    size = len(came)
    both = came.take(np.concatenate([np.arange(size), again]))
    values = both.value.copy()
    values[2 * size :: 4] += 1.0
    late_ns = came.came_ns[again] + random.integers(1, 300, len(again)) * NS
    both = replace(both, value=values, came_ns=np.concatenate([came.came_ns, late_ns]))
    both = both.take(np.argsort(both.came_ns, kind="stable"))
    both = replace(both, seq=np.arange(1, len(both) + 1), arrival_ns=both.came_ns)
    cuts = np.sort(random.integers(0, len(both), 25))
    # One station brings its first rows late: all others wait for it.
    unlimited, whole = run(both, cuts, memory=None, folder=None, repeats=random)
    limited, parts = run(both, cuts, memory=120_000, folder=tmp_path / "held", repeats=random)
    assert limited.counts.closed_early == 0
    assert released(parts) == released(whole), "what was let go, when it closed, and whether it was late"
    assert in_turn(parts) == in_turn(whole)
    assert limited.counts.duplicates == unlimited.counts.duplicates > 0
    assert limited.counts.slices == unlimited.counts.slices


def test_files_are_written_read_and_removed(tmp_path: Path) -> None:
    folder, times = tmp_path / "held", np.arange(0.0, 4000.0, SLICE_S)
    # Station 1 is an hour behind, after a while.
    came_s = np.concatenate([times + 1, times + np.where(times < 500, 1, 3600)])
    came = rows(came_s.tolist(), [*times, *times], [0] * len(times) + [1] * len(times))
    assembler, most, parts = Assembler(SLICE_S, 1e5, memory=100_000, folder=folder, expected=came.origins), 0, []
    for part in np.array_split(np.arange(len(came)), 80):
        parts.append(assembler.process(came.take(part), NO_CLOCK))
        status = assembler.join_status()
        assert isinstance(status, JoinStatus)
        assert status.held == len(assembler)
        assert status.allowed_bytes == 100_000
        most = max(most, status.spilled)
        assert (status.disk_bytes > 0) == any(folder.glob("*.rows"))
        assert status.held_bytes <= status.allocated_bytes
    assert most > 150, "an hour of the other station waits"
    parts.append(assembler.process(came.take(NOTHING), clock_of([len(came) + 1], [1e6], [True])))
    while len(assembler):
        parts.append(assembler.process(came.take(NOTHING), NO_CLOCK))
    assert sorted(released(parts)) == came.seq.tolist()
    for _ in range(KEPT_VERSIONS + 1):
        assembler.process(came.take(NOTHING), NO_CLOCK)
    assert not list(folder.iterdir()), "no repeated batch needs them any more"


def test_the_oldest_slices_close_early_where_even_numbers_have_no_room(tmp_path: Path) -> None:
    times = np.arange(0.0, 40_000.0, SLICE_S)
    station = np.tile(np.arange(4), len(times))
    time_s = np.repeat(times, 4)
    # The last station brings nothing more after a while, and all of it at the end.
    came_s = np.where((station == 3) & (time_s > 500), times[-1] + 10 + time_s / 1e5, time_s + 1)
    came = rows(came_s.tolist(), time_s.tolist(), station.tolist())
    memory = 200_000
    assembler = Assembler(SLICE_S, 1e6, memory=memory, folder=tmp_path, expected=came.origins)
    parts = []
    for part in np.array_split(np.arange(len(came)), 60):
        parts.append(assembler.process(came.take(part), NO_CLOCK))
        assert assembler._join.held_bytes <= JOIN_SHARE * memory
    assert assembler.counts.closed_early > 100
    while len(assembler):
        clock = clock_of([10**6], [1e6], [True]) if not assembler._due.number.size else NO_CLOCK
        parts.append(assembler.process(came.take(NOTHING), clock))
    found = released(parts)
    assert sorted(found) == came.seq.tolist(), "nothing is lost"
    amended = np.array([found[seq][1] for seq in came.seq.tolist()])
    assert amended[came.origin == 3].mean() > 0.5, "what came later amends what was closed"
    assert not amended[came.origin != 3].any()


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_that_comes_again_closes_as_many_slices_early(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    came = workload(seed, stations=5, minutes=60, retried=0.1)
    assembler, parts = run(came, np.arange(50, len(came), 50), memory=30_000, folder=tmp_path, repeats=random)
    assert assembler.counts.closed_early > 0
    assert sorted(released(parts)) == came.seq.tolist()


def test_the_last_of_several_values_of_an_instant_is_stored_last(tmp_path: Path) -> None:
    # The clock of station 0 stands still from its hundredth row on, with another value in each row; 1 is far behind.
    times = np.concatenate([np.arange(0.0, 1000.0, SLICE_S), np.full(600, 1000.0)])
    came_s = np.arange(len(times)) * SLICE_S + 1
    station = [0] * len(times) + [1] * 40
    came = rows([*came_s, *(came_s[:40] + 0.5)], [*times, *times[:40]], station)
    outcomes = []
    for memory, folder in ((None, None), (80_000, tmp_path)):
        _, parts = run(came, np.arange(7, len(came), 7), memory=memory, folder=folder, repeats=np.random.default_rng(1))
        outcomes.append(in_turn(parts))
    assert outcomes[0] == outcomes[1]


def test_a_limit_may_come_and_go(tmp_path: Path) -> None:
    came = workload(3, stations=6, minutes=10, retried=0.1)
    assembler, parts = Assembler(SLICE_S, 1e5, folder=tmp_path), []
    for number, part in enumerate(np.array_split(np.arange(len(came)), 30)):
        assembler.memory = [None, 10_000, 40_000][number % 3]
        parts.append(assembler.process(came.take(part), NO_CLOCK))
    assembler.memory = None
    parts.append(assembler.process(came.take(NOTHING), clock_of([len(came) + 1], [1e6], [True])))
    assert len(assembler) == 0
    assert sorted(released(parts)) == came.seq.tolist()


def waiting(folder: Path) -> Assembler:
    """Return an assembler with rows on disk."""
    # Station 1 is heard at first, and waited for.
    times = [10.0 * n for n in range(300)]
    came = rows([*times, *times[:40]], [*times, *times[:40]], [0] * 300 + [1] * 40)
    assembler = Assembler(SLICE_S, 1e5, memory=150_000, folder=folder)
    assembler.process(came, NO_CLOCK)
    assert assembler._spilled is not None
    assert len(assembler._spilled) > 50
    return assembler


def test_rows_that_are_gone_from_the_disk_are_missed_and_not_skipped(tmp_path: Path) -> None:
    assembler = waiting(tmp_path)
    state = b"".join(assembler.to_chunks())
    first = min(tmp_path.glob("*.rows"))
    content = first.read_bytes()
    first.write_bytes(content[:-9] + b"x" * 9)
    empty = rows([], [], [])
    ends = clock_of([999], [1e6], [True])
    assembler.memory = None
    with pytest.raises(StateUnusable, match="cannot be read"):
        assembler.process(empty, ends)
    first.with_suffix(".keys").unlink()
    with pytest.raises(StateUnusable, match="cannot be read"):
        Assembler.from_bytes(state, tmp_path)
    with pytest.raises(StateUnusable, match="not told where"):
        Assembler.from_bytes(state)


def test_rows_that_wait_are_taken_once(tmp_path: Path) -> None:
    came = rows([float(n) for n in range(9)], [float(n) for n in range(9)], [0] * 9)
    spilled = SpilledRows(tmp_path)
    spilled.write(came.take(np.arange(6)), np.arange(6), version=1)
    assert [part.seq.tolist() for part in spilled.take(np.array([1, 4]), came, version=2)] == [[2, 5]]
    with pytest.raises(StateUnusable, match="lacks rows"):
        spilled.take(np.array([4]), came, version=3)
    with pytest.raises(StateUnusable, match="1 rows that wait are in no file"):
        spilled.take(np.array([7]), came, version=3)


def test_a_join_closes_its_oldest_slices_within_a_size() -> None:
    keys = np.arange(100)
    join = WoJoin(2, form="assembling", in_order=False)
    join.push(np.zeros(100, np.int32), keys, keys.astype(float))
    before = join.held_bytes
    found = join.close_oldest(before // 2)
    assert found.key.tolist() == list(range(len(found)))
    assert 49 <= len(found) <= 51
    assert join.held_bytes <= before // 2
    assert len(join.close_oldest(before)) == 0
    late = join.push([1], [3], [7.0])
    assert late.late.key.tolist() == [3]
    assert len(join.push([1], [80], [7.0]).late) == 0
    with pytest.raises(InvalidQuery, match='form "assembling"'):
        WoJoin(2).close_oldest(0)


def test_a_limited_stream_gives_the_archive_of_a_batch_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: set[int] = set()

    class NotedPool(LruCache[Any, Any]):
        def __init__(self, allowed_bytes: int) -> None:
            super().__init__(allowed_bytes)
            pools.add(allowed_bytes)

    archive, deployment = made(tmp_path, more='\n[stream]\nidle_s = 30000\nmemory = "2MiB"\n')
    assert deployment.stream.memory == 2 << 20
    sent = messages(("1", "3", "6", "9"), until_h=8.0)
    write_spool(archive / "spool", sent)
    end(archive)
    loop = Loop(archive, deployment, memory=100_000)
    monkeypatch.setattr(writer_module, "LruCache", NotedPool)
    # Some batches are lost and come again.
    loop.run(is_lost=lambda attempt: loop.number % 5 == 2 and attempt < 2)
    ledger = loop.drain()
    assert any((archive / STREAM / HELD).rglob("*.rows")), "rows waited on disk"
    assert pools == {(2 << 20) // 8}, "chunks of cells in memory take a part of the limit"
    assert everything(archive) == expected(tmp_path, sent)
    assert (ledger.came, ledger.stored, ledger.held) == (9 * len(sent), 9 * len(sent), 0)


def test_each_feed_needs_room(tmp_path: Path) -> None:
    feed = '\n[[feed]]\nname = "other"\nfiles = "*.dat"\nformat = "csv"\n'
    path = write_deployment(tmp_path, arrivals=False, more=f'\n[stream]\njoin = "feed"\nmemory = "1MiB"\n{feed}')
    with pytest.raises(InvalidDeployment, match=r"stream\.memory needs 1MiB for each of the 2 feeds"):
        load(path)


@pytest.mark.parametrize(("text", "size"), [("64MB", 64_000_000), ("1.5 GiB", 3 << 29), ("2MiB", 2 << 20)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("given", "reason"), [("64", "a size is a number and"), ("MB", "a size"), ("3kB", "needs 1MiB")]
)
def test_other_sizes_are_refused_with_the_key(given: str, reason: str, tmp_path: Path) -> None:
    path = write_deployment(tmp_path, arrivals=False, more=f'\n[stream]\nmemory = "{given}"\n')
    with pytest.raises(InvalidDeployment, match=rf"stream\.memory.*{reason}"):
        load(path)
