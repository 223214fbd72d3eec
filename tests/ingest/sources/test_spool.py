"""The spool against a list: what was flushed is there once and in order, whatever is torn, killed, full or retired."""

import errno
import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest

from hypergrid.core.errors import ArchiveConflict, NotFound
from ingest.sources import spool as module
from ingest.sources.spool import (
    HEADER,
    MESSAGE,
    SCHEMA,
    STATE,
    TICK,
    Damaged,
    NotWritten,
    Spool,
    SpoolRecord,
    durable,
    frames,
    held_bytes,
    reach,
    retire,
    segments,
    spans,
)
from tests.ingest.forked import FORKED

Row = tuple[object, ...]


def make_records(count: int, *, seed: int = 0) -> list[SpoolRecord]:
    dice = random.Random(seed)
    return [
        SpoolRecord(n + 1, dice.choice(("a", "net")), f"net/{n % 7}/ü", dice.randbytes(dice.randrange(40)), n, MESSAGE)
        for n in range(count)
    ]


def rows_of(folder: Path, after: int = 0, upto: int | None = None, **options: int) -> list[Row]:
    found: list[Row] = []
    for batch in frames(folder, after, durable(folder) if upto is None else upto, **options):
        assert batch.schema == SCHEMA
        found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def decode_rows(records: list[SpoolRecord], first: int = 1) -> list[Row]:
    return [(first + n, r.arrival_ns, r.feed, r.origin, r.position, r.kind, r.payload) for n, r in enumerate(records)]


def fill(folder: Path, records: list[SpoolRecord], *, group: int = 7, **options: int) -> None:
    with Spool.open(folder, **options) as spool:
        for start in range(0, len(records), group):
            spool.append(records[start : start + group])
            spool.flush()


def test_what_was_flushed_comes_back_in_order(tmp_path: Path) -> None:
    records = make_records(200)
    fill(tmp_path, records, segment_bytes=500)
    assert len(segments(tmp_path)) > 3
    assert rows_of(tmp_path) == decode_rows(records)
    for after, upto in ((0, 1), (3, 3), (6, 7), (10, 101), (199, 200)):
        assert rows_of(tmp_path, after, upto, batch_bytes=1) == decode_rows(records)[after:upto]


def test_numbers_go_on_after_it_was_opened_again(tmp_path: Path) -> None:
    records = make_records(30)
    for start in range(0, 30, 10):
        fill(tmp_path, records[start : start + 10], group=3)
    assert rows_of(tmp_path) == decode_rows(records)


def test_what_is_not_flushed_is_seen_by_nobody(tmp_path: Path) -> None:
    with Spool.open(tmp_path) as spool:
        assert spool.append(make_records(3)) == 3
        assert (durable(tmp_path), spool.durable) == (0, 0)
        assert spool.flush() == 3
        assert (durable(tmp_path), spool.durable) == (3, 3)


def test_one_process_writes(tmp_path: Path) -> None:
    with Spool.open(tmp_path), pytest.raises(ArchiveConflict, match="another process receives"):
        Spool.open(tmp_path)


def test_a_torn_end_is_cut_at_every_byte(tmp_path: Path) -> None:
    records = make_records(12)
    fill(tmp_path / "whole", records, group=4)
    (_, path), *_ = segments(tmp_path / "whole")
    content = path.read_bytes()
    fill(tmp_path / "less", records[:8], group=4)
    begin = segments(tmp_path / "less")[0][1].stat().st_size
    assert content[:begin] == segments(tmp_path / "less")[0][1].read_bytes()
    for size in range(begin, len(content)):
        folder = tmp_path / "torn"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "less", folder)
        if size % 2:
            (folder / "durable").unlink()
        (folder / path.name).write_bytes(content[:size])
        assert durable(folder) == 8
        assert rows_of(folder) == decode_rows(records[:8])
        with Spool.open(folder) as spool:
            assert spool.durable == 8
        assert (folder / path.name).stat().st_size == begin
        if size % 9 == 0:
            fill(folder, records[8:], group=4)
            assert rows_of(folder) == decode_rows(records), size


def test_every_damaged_byte_of_a_torn_end_is_noticed(tmp_path: Path) -> None:
    records = make_records(6)
    fill(tmp_path / "less", records[:3], group=3)
    begin = segments(tmp_path / "less")[0][1].stat().st_size
    fill(tmp_path / "whole", records, group=3)
    (_, path), *_ = segments(tmp_path / "whole")
    content = bytearray(path.read_bytes())
    (tmp_path / "whole" / "durable").unlink()
    for place in range(begin, len(content)):
        content[place] ^= 0x40
        path.write_bytes(content)
        assert durable(tmp_path / "whole") == 3, place
        content[place] ^= 0x40
    path.write_bytes(content)
    assert durable(tmp_path / "whole") == 6


def test_damage_before_the_end_is_told_and_nothing_is_cut(tmp_path: Path) -> None:
    fill(tmp_path, make_records(12), group=4)
    (_, path), *_ = segments(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Damaged, match="is damaged at byte"):
        rows_of(tmp_path)
    with pytest.raises(Damaged, match="records 5 to 12 had been on the disk"):
        Spool.open(tmp_path)
    assert path.read_bytes() == content


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, real = make_records(40), os.pwrite
    room = [0]

    def narrow(file: int, data: bytes, offset: int) -> int:
        if len(data) == 20 and offset == 0:  # the mark
            return real(file, data, offset)
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(file, data[: room[0]], offset)
        room[0] -= written
        return written

    fill(tmp_path, records[:4])
    monkeypatch.setattr(module.os, "pwrite", narrow)
    with Spool.open(tmp_path, segment_bytes=100) as spool:
        for start in range(4, 40, 6):
            spool.append(records[start : start + 6])
            before = spool.durable
            for free in (0, 10, 300):
                room[0] = free
                with pytest.raises(NotWritten, match="No space left on device; .* records wait, make room"):
                    spool.flush()
                assert durable(tmp_path) == spool.durable == before
                assert rows_of(tmp_path) == decode_rows(records[:before])
            room[0] = 1 << 20
            assert spool.flush() == start + 6
    assert rows_of(tmp_path) == decode_rows(records)
    assert len(segments(tmp_path)) > 2


def test_names_that_are_no_text_are_not_taken_and_nothing_is_lost(tmp_path: Path) -> None:
    records = make_records(4)
    with Spool.open(tmp_path) as spool:
        spool.append(records[:2])
        for bad in (records[2]._replace(origin="b\udcff.csv"), records[2]._replace(feed="\ud800")):
            with pytest.raises(ValueError, match="have to be text; .* has half a character: escape it"):
                spool.append([records[2], bad])
        assert spool.append(records[2:]) == 4
        spool.flush()
    assert rows_of(tmp_path) == decode_rows(records)


def test_a_segment_that_is_retired_meanwhile_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, make_records(30), segment_bytes=50)
    known = segments(tmp_path)
    sizes = [path.stat().st_size for _, path in known]
    assert len(known) > 3
    assert held_bytes(tmp_path) == sum(sizes)
    monkeypatch.setattr(module, "segments", lambda _: known)
    known[1][1].unlink()
    assert held_bytes(tmp_path) == sum(sizes) - sizes[1]


def test_ranges_cover_everything_once_and_are_alike(tmp_path: Path) -> None:
    records = [SpoolRecord(n + 1, payload=b"x" * 100) for n in range(1000)]
    fill(tmp_path, records, group=5, segment_bytes=20_000)
    for after, upto in ((0, 1000), (123, 877), (999, 1000), (5, 5)):
        for pieces in (1, 2, 7):
            ranges = spans(tmp_path, after, upto, pieces)
            assert [row for one in ranges for row in rows_of(tmp_path, *one)] == decode_rows(records)[after:upto]
            assert len(ranges) <= pieces
            if upto - after > 500:
                assert max(b - a for a, b in ranges) <= (upto - after) / pieces + 10


def test_a_batch_reaches_as_far_as_its_bounds_allow(tmp_path: Path) -> None:
    fill(tmp_path, [SpoolRecord(n, payload=b"x" * 1000) for n in range(50)], group=5)
    assert reach(tmp_path, 0, most_bytes=1) == 5
    assert reach(tmp_path, 5, most_bytes=1 << 30) == 50
    assert reach(tmp_path, 0, most_bytes=1 << 30, most_records=12) == 10
    assert reach(tmp_path, 50, most_bytes=1) == 50
    assert 10 <= reach(tmp_path, 0, most_bytes=14_000) <= 15


def test_a_header_stays_with_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRAME_BYTES", 10)
    records = [
        SpoolRecord(n, kind=HEADER if n % 2 else MESSAGE, payload=b"x" * (4 * (n % 3 + 1))) for n in range(1, 41)
    ]
    fill(tmp_path, records, group=40)
    ends = {after for after, _ in spans(tmp_path, 0, 40, 40)} - {0}
    assert len(ends) > 5
    assert all(end % 2 == 0 for end in ends)


def test_segments_are_retired(tmp_path: Path) -> None:
    records = make_records(100)
    fill(tmp_path, records, segment_bytes=300)
    known = segments(tmp_path)
    retire(tmp_path, known[2][0] - 2)
    assert segments(tmp_path) == known[1:]
    retire(tmp_path, 100)
    assert segments(tmp_path) == known[-1:]
    first = known[-1][0]
    assert rows_of(tmp_path, first - 1) == decode_rows(records)[first - 1 :]
    with pytest.raises(NotFound, match="those from 1 on were retired"):
        rows_of(tmp_path)
    with pytest.raises(NotFound, match="no record 101 yet"):
        rows_of(tmp_path, 100, 102)
    fill(tmp_path, make_records(1))
    assert durable(tmp_path) == 101


def test_each_further_segment_begins_with_the_state(tmp_path: Path) -> None:
    count = [0]

    def state() -> bytes:
        count[0] += 1
        return f"state {count[0]}".encode()

    with Spool.open(tmp_path, state=state, segment_bytes=300) as spool:
        for record in make_records(40):
            spool.append([record], may_roll=record.position % 2 == 0)
            spool.flush()
    firsts = [rows_of(tmp_path, first - 1, first)[0] for first, _ in segments(tmp_path)]
    assert len(firsts) > 2
    assert firsts[0][5] == MESSAGE
    assert [(row[5], row[6]) for row in firsts[1:]] == [(STATE, b"state %d" % n) for n in range(1, len(firsts))]
    assert [row[6] for row in rows_of(tmp_path) if row[5] != STATE] == [record.payload for record in make_records(40)]


def test_segments_end_by_age(tmp_path: Path, give_time: Callable[..., None]) -> None:
    now = [0.0]
    give_time(module, monotonic=lambda: now[0])
    with Spool.open(tmp_path, segment_s=60.0) as spool:
        for step in range(10):
            now[0] = step * 20.0
            spool.append([SpoolRecord(step, kind=TICK)])
            spool.flush()
    assert [first for first, _ in segments(tmp_path)] == [1, 4, 7, 10]


def test_a_damaged_mark_is_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, make_records(9))
    (tmp_path / "durable").write_bytes(b"x" * 20)
    assert durable(tmp_path) == 9
    assert durable(tmp_path / "nowhere") == 0


def test_batches_share_the_schema_of_an_empty_table(tmp_path: Path) -> None:
    fill(tmp_path, make_records(20))
    assert pa.Table.from_batches(list(frames(tmp_path, 0, 20)), SCHEMA).num_rows == 20


def write(folder: Path, acknowledged: Connection) -> None:
    """Write records, and tell how far after each group."""
    spool = Spool.open(folder, segment_bytes=20_000)
    number = spool.durable
    while True:
        group = [SpoolRecord(number + n + 1, "f", "o", b"%d " % (number + n + 1) * 9) for n in range(1 + number % 13)]
        number += len(group)
        spool.append(group)
        spool.flush()
        acknowledged.send(number)


def killed_writer(folder: Path, kills: int) -> None:
    dice, acknowledged = random.Random(kills), 0
    for _ in range(kills):
        told, tell = FORKED.Pipe(duplex=False)
        writer = FORKED.Process(target=write, args=(folder, tell))
        writer.start()
        tell.close()
        acknowledged = told.recv()
        time.sleep(dice.random() * 0.2)
        assert durable(folder) >= acknowledged
        writer.kill()
        with suppress(EOFError):
            while True:
                acknowledged = told.recv()
        writer.join()
        assert durable(folder) >= acknowledged
    found = rows_of(folder)
    assert [(row[0], row[1], row[6]) for row in found] == [(n, n, b"%d " % n * 9) for n in range(1, len(found) + 1)]
    assert len(found) >= acknowledged > 0


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    killed_writer(tmp_path, 5)


@pytest.mark.soak
def test_a_writer_that_is_killed_often_loses_nothing(tmp_path: Path) -> None:
    killed_writer(tmp_path, 200)
