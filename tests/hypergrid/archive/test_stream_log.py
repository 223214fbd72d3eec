"""The log of a stream: what was appended is read; torn lines are passed over; it is bounded."""

from pathlib import Path

import pytest

from hypergrid.archive.arrays import stream_log
from hypergrid.archive.arrays.stream_log import FILE, append_record, read_records


def test_what_is_appended_is_read_in_order(tmp_path: Path) -> None:
    assert read_records(tmp_path) == []
    records = [{"at_ns": 10 * number, "held": number} for number in range(1, 6)]
    for one in records:
        append_record(tmp_path, one)
    assert read_records(tmp_path) == records


def test_lines_that_are_torn_or_something_else_are_passed_over(tmp_path: Path) -> None:
    append_record(tmp_path, {"at_ns": 1})
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"at_ns": "soon"}\n[1]\nnonsense\n\xff\n{"at_ns": 2}\n{"at_ns": 3, "he')
    assert read_records(tmp_path) == [{"at_ns": 1}, {"at_ns": 2}]


def test_the_file_stays_within_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_BYTES", 4000), ("SHOWN_BYTES", 2500)):
        monkeypatch.setattr(stream_log, name, value)
    for number in range(1000):
        append_record(tmp_path, {"at_ns": number, "more": "x" * 20})
        assert (tmp_path / FILE).stat().st_size <= 4000
    found = [one["at_ns"] for one in read_records(tmp_path)]
    assert found == list(range(found[0], 1000))
    assert len(found) > 30
