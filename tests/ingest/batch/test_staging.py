"""Staged chunks: what was parsed comes back, whole or by ranges of time."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from hypergrid.core.times import Window
from ingest.batch.staging import StagedChunk, stage, staged_rejects, staged_rows, windows
from ingest.formats import FORMATS, ReadOptions
from ingest.sources.folder import Chunk

TEXT = b"time,a,b\n2007-10-01T00:00:00,1,\n2007-10-01T00:01:00,x,2\n2007-10-01T00:02:00,3,4\n"


@pytest.fixture
def staged(tmp_path: Path) -> StagedChunk:
    source = tmp_path / "s.csv"
    source.write_bytes(TEXT)
    layout = FORMATS["csv"].layout(TEXT, "s.csv", ReadOptions(columns=("a", "b")))
    return stage(Chunk(3, 0, str(source), "csv", layout, layout.data_start, len(TEXT), True), tmp_path)  # noqa: FBT003


def test_rows_and_rejects_come_back(tmp_path: Path, staged: StagedChunk) -> None:
    first, last = 1191196800 * 10**9, 1191196920 * 10**9
    assert staged == StagedChunk(3, 3, 3, 0, 1, first, last, ("s",))
    assert StagedChunk.from_record(asdict(staged)) == staged
    rows = staged_rows(staged, tmp_path, Window(first, last + 1))
    assert rows is not None
    assert rows.time_ns.tolist() == [first, first + 60 * 10**9, last]
    np.testing.assert_array_equal(rows.values["b"], [np.nan, 2.0, 4.0])
    # The cell was rejected, and its row was not.
    assert {name: cells.tolist() for name, cells in rows.refused.items()} == {"a": [False, True, False]}
    assert [(row.line, row.column) for row in staged_rejects(staged, tmp_path)] == [(2, "a")]


def test_a_window_is_half_open(tmp_path: Path, staged: StagedChunk) -> None:
    first, last = staged.first_ns, staged.last_ns
    early = staged_rows(staged, tmp_path, Window(first, last))
    assert early is not None
    assert early.time_ns.tolist() == [first, first + 60 * 10**9]
    assert staged_rows(staged, tmp_path, Window(first - 5, first)) is None
    assert staged_rows(staged, tmp_path, Window(first + 1, first + 2)) is None


LONG = (0, 10**18)
"""Chunks of an archive that are longer than all windows."""


def test_windows_part_time_without_gap_and_bound_what_is_held() -> None:
    #  time   0    100   200   300
    #  one    [==========]          1000 rows
    #  two          [==========]    1000 rows
    spans = [(0, 199, 2000), (100, 299, 2000)]
    cuts = windows(spans, maximum=500, chunks_ns=LONG)
    assert (cuts[0].start_ns, cuts[-1].stop_ns) == (0, 300)
    assert all(one.stop_ns == other.start_ns for one, other in zip(cuts[:-1], cuts[1:], strict=True))
    held = [sum(10 * len(range(max(cut.start_ns, a), min(cut.stop_ns, a + 200))) for a in (0, 100)) for cut in cuts]
    assert len(cuts) == 8
    assert max(held) <= 550


def test_windows_that_are_long_begin_and_end_with_chunks() -> None:
    #  chunks of 30 from 7 on: 7, 37, 67, 97, ...; four windows of 75 would begin at 0, 75, 150, 225
    spans = [(0, 299, 1000)]
    cuts = windows(spans, maximum=250, chunks_ns=(7, 30))
    assert [one.start_ns for one in cuts] == [0, 67, 157, 217]
    assert cuts[-1].stop_ns == 300
    # Windows that hold less than two chunks stay as they are, or they would hold too much.
    assert [one.start_ns for one in windows(spans, maximum=250, chunks_ns=(7, 38))] == [0, 75, 150, 225]


def test_windows_of_an_instant_and_of_nothing() -> None:
    assert windows([(7, 7, 9000)], maximum=10, chunks_ns=LONG) == [Window(7, 8)]
    assert windows([(0, 0, 0)], maximum=10, chunks_ns=LONG) == []
