"""A shortened year of minute commits: what is measured is there, and nothing grows that should not."""

import pytest

from tests.bench.bench_archive_year import MONTHS, Sizes, measure, tables


def test_a_very_short_year_is_measured() -> None:
    told: list[float] = []
    sizes = Sizes(commits_a_month=6, slices_a_commit=4, variables=1, stations=4, late=0.1, drifting=0.1, replaced=0.1)
    found = measure(sizes, lambda _name, done: told.append(done))
    assert found["is_whole"]
    assert len(found["months"]) == MONTHS
    assert told[-1] == 1.0
    last = found["months"][-1]
    # All of the 24 minutes of each month, but what has not come yet, or took the place of another.
    assert 0.9 < last["readings"] / (MONTHS * 24 * 4) <= 1.0
    assert last["files"] < 128 * 12 + 1000
    ratios = found["ratios"]
    assert {"files", "bytes_a_reading", "commit_s"} < set(ratios)
    assert 0 < ratios["query_s, least"] <= ratios["query_s"] <= ratios["query_s, most"]
    titles = [title for title, *_ in tables(found)]
    assert titles == ["A year of minute commits at 0.01% of its commits", "Month 12 against month 1"]


@pytest.mark.soak
def test_the_twelfth_month_is_like_the_first() -> None:
    found = measure(Sizes(), lambda _name, _done: None)
    assert found["is_whole"]
    assert found["ratios"]["query_s"] <= 1.5
    assert found["ratios"]["bytes_a_reading"] <= 1.5
    assert found["ratios"]["files"] <= 1.5
