"""The tap of a stream: the readings of its messages as they arrive."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypergrid.archive.disk.raw_copies import RAW
from hypergrid.core.errors import NotFound
from hypergrid.core.flags import FAIL, GOOD
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive
from ingest.sources.spool import Spool, SpoolRecord, segments
from ingest.streaming import tap as tap_module
from ingest.streaming.stream_commit import SPOOL
from ingest.streaming.tap import Tap, TappedReadings
from tests.support.tap_networks import create_network, record, retire_segments

START_NS = 1_700_000_000 * SECOND_NS


def fill(opened: OpenArchive, count: int, *, at_once: int = 5) -> None:
    """Append messages with 20 degC and a growing stamp, a segment for each few."""
    with Spool.open(opened.path / SPOOL, segment_bytes=1) as spool:
        for first in range(0, count, at_once):
            spool.append(
                record(number % 3, START_NS + number * SECOND_NS, 20.0, START_NS + number * SECOND_NS + 7)
                for number in range(first, first + at_once)
            )
            spool.flush()


def test_readings_have_the_units_of_the_archive_and_the_numbers_of_their_records(tmp_path: Path) -> None:
    opened = create_network(tmp_path / "a", stations=3, now_ns=START_NS)
    fill(opened, 10)
    tap = Tap(opened.store)
    batch = tap.read(3, tap.newest)
    readings, records = batch.readings["air_temperature"]
    assert (batch.after, batch.upto, batch.rejected) == (3, 10, 0)
    assert records.tolist() == list(range(4, 11))
    np.testing.assert_allclose(readings.value, 20.0)
    assert readings.time_ns.tolist() == [START_NS + number * SECOND_NS for number in range(3, 10)]
    assert [readings.series[index].station for index in readings.index[:3]] == ["s0", "s1", "s2"]
    assert batch.clock_ns == START_NS + 9 * SECOND_NS + 7
    assert list(batch.readings) == ["air_temperature", "wind_speed"]


def test_single_readings_are_judged_by_the_tests_of_the_deployment(tmp_path: Path) -> None:
    opened = create_network(tmp_path / "a", stations=1, now_ns=START_NS)
    with Spool.open(opened.path / SPOOL) as spool:
        spool.append([record(0, START_NS, 20.0, START_NS), record(0, START_NS + 1, 120.0, START_NS)])
    readings, _ = Tap(opened.store).read(0, 2).readings["air_temperature"]
    assert readings.flag.tolist() == [GOOD, FAIL]


def test_messages_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    opened = create_network(tmp_path / "a", stations=1, now_ns=START_NS)
    with Spool.open(opened.path / SPOOL) as spool:
        spool.append([SpoolRecord(START_NS, "net", "net/s0/up", b"{", -1), record(0, START_NS, 20.0, START_NS)])
    batch = Tap(opened.store).read(0, 2)
    assert batch.rejected == 1
    assert batch.readings["air_temperature"][1].tolist() == [2]


def test_records_that_left_the_spool_are_read_from_raw_copies(tmp_path: Path) -> None:
    opened = create_network(tmp_path / "a", stations=3, now_ns=START_NS)
    fill(opened, 30)
    whole, _ = Tap(opened.store).read(0, 30).readings["air_temperature"]
    retire_segments(opened, 4, now_ns=START_NS)
    assert segments(opened.path / SPOOL)[0][0] == 21
    tap, after, stamps = Tap(opened.store), 2, []
    while after < 30:
        batch = tap.read(after, 30)
        assert batch.after == after
        stamps += batch.readings["air_temperature"][0].time_ns.tolist()
        after = batch.upto
    assert stamps == whole.time_ns.tolist()[2:]
    (opened.path / RAW).rename(opened.path / "gone")
    with pytest.raises((NotFound, FileNotFoundError)):
        Tap(opened.store).read(2, 30)


def test_an_archive_without_stream_has_no_tap(tmp_path: Path) -> None:
    opened = create_network(tmp_path / "a", stations=1, now_ns=START_NS)
    (opened.path / "stream").rename(tmp_path / "gone")
    with pytest.raises(NotFound, match="no stream yet"):
        Tap(opened.store)


def test_records_are_parsed_once_for_queries_at_any_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = create_network(tmp_path / "a", stations=3, now_ns=START_NS)
    fill(opened, 20)
    tap, whole = Tap(opened.store), Tap(opened.store).read(0, 20)
    parsed: list[tuple[int, int]] = []
    parse = Tap._parse  # noqa: SLF001

    def note(*given: Any) -> TappedReadings:  # noqa: ANN401
        parsed.append((given[2], given[3]))
        return parse(*given)

    monkeypatch.setattr(Tap, "_parse", note)
    for after, upto in ((0, 5), (5, 12), (12, 20), (0, 20)):
        batch = tap.read(after, upto)
    assert parsed == [(0, 5), (5, 12), (12, 20)]
    assert (batch.after, batch.upto, batch.clock_ns, batch.rejected) == (0, 20, whole.clock_ns, 0)
    for name, (readings, records) in batch.readings.items():
        expected, numbers = whole.readings[name]
        assert [readings.series[index] for index in readings.index] == [expected.series[at] for at in expected.index]
        assert records.tolist() == numbers.tolist()
        assert readings.time_ns.tolist() == expected.time_ns.tolist()
    # A part of what is in memory is not cut out of it.
    assert tap.read(0, 3).upto == 3
    assert tap.read(0, 20).upto == 3
    monkeypatch.setattr(tap_module, "_KEPT_READINGS", 10)
    tap.read(12, 19)
    assert tap.read(19, 20).upto == 20
    assert len(parsed) == 6
