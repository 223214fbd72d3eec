"""A short archive once more: what is measured is there, and killed or not the result is the same."""

import pytest

from tests.bench.bench_reprocess import CASES, measure, tables


def test_a_short_archive_is_reprocessed() -> None:
    told: list[str] = []
    found = measure("short", lambda name, _done: told.append(name))
    sizes = CASES["short"]
    assert found["readings"] == sizes.days * 144 * sizes.stations
    assert found["cells"] == sizes.days * sizes.rows * sizes.columns
    assert found["same"]
    assert [run["cores"] for run in found["runs"]] == [1, 2]
    assert all(run["changed"] == found["readings"] for run in found["runs"])
    assert found["killed"]["kills"] == 2
    # The flags were main's before the second kill.
    assert found["killed"]["parts_resumed"] == found["killed"]["parts"] > 0
    assert found["killed"]["pieces_resumed"] > 0
    assert [len(rows) for _, _, rows in tables(found)] == [2, 1, 1]
    assert told[0] == "make the archive"


@pytest.mark.soak
def test_three_years_are_reprocessed() -> None:
    found = measure("all", lambda _name, _done: None)
    assert found["readings"] == 31_536_000
    assert found["same"]
    # The archive's lock is held only for a small part of it.
    assert all(run["publish_s"] < 0.3 * run["quality_s"] for run in found["runs"])
