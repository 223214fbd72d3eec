"""The figures of strategies in small: what they say, and that every strategy gives the same surface."""

from typing import Any

import pytest

from tests.bench.hypergrid_cases import Sizes, sample
from tests.bench.hypergrid_strategies import measure

SMALL = Sizes(start="2007-10-01", days=1, hours=6, side=5)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    def quiet(_stage: str, _done: float) -> None:
        """Hear nothing."""

    with sample(SMALL, quiet) as made:
        return measure(made, 2, quiet)


def test_every_strategy_gives_the_same_surface(measured: dict[str, Any]) -> None:
    assert [row["name"] for row in measured["differences"]] == ["Q1, every k", "Q5, every k"]
    assert all(row["met"] for row in measured["differences"]), measured["differences"]


def test_the_planned_k_has_a_goal(measured: dict[str, Any]) -> None:
    goals = {row["name"]: (row["goal"], row["goal_is"]) for row in measured["figures"]}
    planned = [goal for name, goal in goals.items() if ", planned hybrid-" in name]
    assert planned == [(1.25, "at most")] * 2


def test_every_k_has_its_total_and_its_mean_response(measured: dict[str, Any]) -> None:
    figures = {row["name"]: row for row in measured["figures"]}
    for name in ("Q1", "Q5"):
        for k in range(4):
            total = figures[f"{name}, hybrid-{k}, total"]["hypergrid_s"]
            # A cell is there before the run ends.
            assert 0 < figures[f"{name}, hybrid-{k}, mean response"]["hypergrid_s"] <= total
