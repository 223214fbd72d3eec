"""The benchmark of a stream that waits, small: rows on disk, equal to a run without a limit."""

from dataclasses import replace

import pytest

from tests.bench.stream_memory import Waiting, measure, tables

SMALL = Waiting(
    stations=20, late=2, late_s=1000, length_s=1200, interval_s=10, variables=10, slice_s=60, limit="1MiB", kills=0,
    batch_bytes=100_000, trigger_s=0.5,
)  # fmt: skip


def test_a_limit_changes_nothing_but_the_memory() -> None:
    stages: list[str] = []
    measured = measure(SMALL, lambda stage, _: stages.append(stage))
    runs = measured["runs"]
    assert set(runs) == {"idle", "no limit", "limit"}
    sent = SMALL.stations * SMALL.rounds * SMALL.variables
    for name in ("no limit", "limit"):
        ledger = runs[name]["ledger"]
        assert (ledger["came"], ledger["held"]) == (sent, 0)
    assert runs["no limit"]["held"] > 1500, "rows wait for those that are late"
    assert runs["no limit"]["spilled"] == 0
    assert runs["limit"]["spilled"] > 0
    assert runs["limit"]["closed_early"] == 0
    assert measured["limited"] == {"differs": []}
    assert measured["killed"] == {}
    for run in runs.values():
        assert run["sum_bytes"] >= run["python_sum_bytes"] > 10_000_000
    assert [len(table) for table in tables(measured)] == [3, 3]
    assert stages


@pytest.mark.soak
def test_kills_with_rows_on_disk_change_nothing() -> None:
    measured = measure(replace(SMALL, kills=3), lambda _stage, _done: None)
    assert measured["killed"]["kills"] == 3
    assert measured["killed"]["differs"] == []
