"""The figures of strategies in small: what they say, and that every strategy gives the same surface."""

from typing import Any

import pytest

from tests.bench.hypergrid_cases import Sizes, sample
from tests.bench.hypergrid_strategies import measure

CASES = (
    "Q1",
    "Q5",
    "maps of moving quantiles by time",
    "maps of moving quantiles of means by time",
    "overlapping zones",
    "overlapping zones of a dear convert",
    "maps of moving maxima, short of memory",
)
SMALL = Sizes(start="2007-10-01", days=1, hours=6, side=5, run_s=0.0)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    def quiet(_stage: str, _done: float) -> None:
        """Hear nothing."""

    with sample(SMALL, quiet) as made:
        return measure(made, 2, quiet)


def test_every_strategy_gives_the_same_surface(measured: dict[str, Any]) -> None:
    assert [row["name"] for row in measured["differences"]] == [f"{name}, every k" for name in CASES]
    assert all(row["met"] for row in measured["differences"]), measured["differences"]


def test_the_chosen_k_has_a_goal(measured: dict[str, Any]) -> None:
    goals = {row["name"]: (row["goal"], row["goal_is"]) for row in measured["figures"]}
    chosen = [goal for name, goal in goals.items() if ", best hybrid-" in name]
    assert chosen == [(1.1, "at most")] * (2 * len(CASES))


def test_every_k_has_its_total_and_its_mean_response(measured: dict[str, Any]) -> None:
    """Time comes in one box: what is at the stations, and the surface itself, may be pulled or materialised."""
    figures = {row["name"]: row for row in measured["figures"]}
    for name in ("Q1", "Q5"):
        for ks in ("0 = 1", "2 = 3"):
            total = figures[f"{name}, hybrid-{ks}, total"]["hypergrid_s"]
            # A cell is there before the run ends.
            assert 0 < figures[f"{name}, hybrid-{ks}, mean response"]["hypergrid_s"] <= total


def test_each_k_is_timed_or_the_same_run_as_a_timed_one(measured: dict[str, Any]) -> None:
    for name in CASES:
        rows = [row["name"].removeprefix(f"{name}, hybrid-") for row in measured["figures"]]
        labels = [row.removesuffix(", total") for row in rows if row[0].isdigit() and row.endswith(", total")]
        counted = sorted(int(k) for label in labels for k in label.split(" = "))
        assert counted == list(range(len(counted))), labels
        # Where all k were the same run there would be nothing to choose; only memory may leave one.
        assert len(labels) > 1 or name == CASES[-1], labels
