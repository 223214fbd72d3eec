"""What a stream tells of itself: the join of its stations against the rows themselves; a line every few seconds."""

from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive.arrays.stream_log import FILE, read_records
from hypergrid.core.times import SECOND_NS
from hypergrid.wo_join.monitors import Monitors
from ingest import streaming_service
from ingest.deployment.deployment_file import Column
from ingest.streaming.assembler import Assembler, JoinStatus, assemble_batch
from ingest.streaming.spool_decoder import ClockTicks, DecodedPiece, RowBatch
from ingest.streaming.stream_commit import Ledger, StreamStatus
from ingest.streaming_service import ProgressLog

SLICE_S = 10.0
NO_CLOCK = ClockTicks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


def arrived(first: int, slices: list[int], stations: list[int]) -> RowBatch:
    """Return rows of one reading each, numbered from `first`, a second apart."""
    size = len(slices)
    seq = np.arange(first, first + size)
    return RowBatch(
        (("net", "0"), ("net", "1"), ("net", "2")),
        (("net", Column("t", "air_temperature")),),
        seq,
        seq * SECOND_NS,
        seq * SECOND_NS,
        np.array(slices, np.int64) * round(SLICE_S * SECOND_NS),
        np.array(stations, np.int32),
        np.full(size, -1, np.int64),
        np.arange(1, size + 1),
        np.zeros(size, np.int32),
        np.zeros(size),
        np.full(size, 2, np.uint8),
    )


def scrambled(seed: int, slices: int) -> tuple[list[int], list[int]]:
    """Return slices and stations of rows in the order of their arrival: two stations in order, one scrambled."""
    random = np.random.default_rng(seed)
    keys = np.repeat(np.arange(slices), 3)
    stations = np.tile([0, 1, 2], slices)
    order = np.argsort(keys + np.where(stations == 2, random.uniform(0, 6, len(keys)), 0), kind="stable")
    return keys[order].tolist(), stations[order].tolist()


@pytest.mark.parametrize("seed", range(3))
def test_the_join_of_a_group_is_told_with_each_batch(seed: int) -> None:
    slices, stations = scrambled(seed, 200)
    assembler, monitors, held = Assembler(SLICE_S), Monitors(3), []
    for first in range(0, len(slices), 50):
        some = slice(first, first + 50)
        piece = DecodedPiece("net", arrived(first + 1, slices[some], stations[some]), NO_CLOCK)
        told = assemble_batch(assembler, piece, [1]).join
        monitors.observe(stations[some], slices[some], (np.arange(first, first + 50) + 1) * SECOND_NS)
        assert told is not None
        assert told.streams == 3
        assert told.held == len(assembler)
        assert told.scrambling_factor == monitors.scrambling_factor.max()
        assert told.allowed_bytes is None
        assert 0 < told.held_bytes <= told.allocated_bytes or not told.held
        held.append(told)
    assert held[0].needed is None, "nothing is known of stations of which fewer than 32 rows have come"
    last = held[-1]
    assert last.needed is not None
    assert last.needed >= last.scrambling_factor + 2, "what is out of order, and one of each other station"
    assert last.lag is not None
    assert 0 <= last.lag <= 7, "no station is further ahead than what is scrambled; who never came is not waited for"


def test_of_many_streams_the_join_is_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.streaming.assembler.STREAMS_AT_ONCE", 1)
    assembler = Assembler(SLICE_S)
    told = []
    for first in range(0, 80, 10):
        piece = DecodedPiece("net", arrived(first + 1, [first // 3] * 10, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]), NO_CLOCK)
        told.append(assemble_batch(assembler, piece, [1]).join is not None)
    assert told == [False, False, False, True] * 2, "the join has room for four streams"


JOIN = JoinStatus(3, 0, 5, 160, 1000, None, 7.0, 2, 1.5)


def test_a_line_every_few_seconds_and_one_at_the_end(tmp_path: Path) -> None:
    now = [1_000 * SECOND_NS]
    log = ProgressLog(tmp_path, lambda: now[0])
    log.end()
    assert not (tmp_path / FILE).exists(), "a stream that never stood has nothing to tell"
    for second in range(13):
        now[0] = (1_000 + second) * SECOND_NS
        log.update(StreamStatus(Ledger(came=9 + second, held=4, stored=5), 2.5, None, 7, 3, {"net": JOIN}))
    log.end()
    found = read_records(tmp_path)
    assert [one["at_ns"] // SECOND_NS for one in found] == [1000, 1005, 1010, 1012]
    assert [one["came"] for one in found] == [9, 14, 19, 21]
    assert [one.get("ended", False) for one in found] == [False, False, False, True]
    assert found[0]["joins"]["net"]["needed"] == 7.0
    assert (found[0]["held"], found[0]["behind"], found[0]["readings_per_s"]) == (4, 7, 2.5)


def test_a_clock_that_is_set_back_keeps_nothing_from_being_told(tmp_path: Path) -> None:
    now = [1_000 * SECOND_NS]
    log = ProgressLog(tmp_path, lambda: now[0])
    for at in (1_000, 10, 12, 16):
        now[0] = at * SECOND_NS
        log.update(StreamStatus(Ledger(), 0.0, None, 0, 0))
    assert [one["at_ns"] // SECOND_NS for one in read_records(tmp_path)] == [1_000, 10, 16]


def test_a_full_disk_does_not_end_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(streaming_service.stream_log, "append_record", full)
    ProgressLog(tmp_path, lambda: 1).update(StreamStatus(Ledger(), 0.0, None, 0, 0))
    assert read_records(tmp_path) == []
