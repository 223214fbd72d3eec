"""The benchmark of standing queries in small: that it counts what it says. No time is tested."""

from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from queries.standing.service import StandingQueries
from tests.bench import bench_standing, standing_live, standing_strategies
from tests.bench.standing_network import Network, documents
from tests.support.standing_runner import settle


def test_sharing_counts_steps_once() -> None:
    measured = bench_standing.measure("sharing", pairs=1, queries=24, templates=6, side=4)
    (row,) = measured["parts"]["sharing"]["rows"]
    assert row["steps asked"] > 3 * row["steps run"]
    assert row["ratio"] > 0
    ((_, columns, rows),) = bench_standing.tables(measured)
    assert columns == ("figure", "here")
    assert ("queries", 24) in rows


def test_the_bound_is_that_of_a_greedy_fraction_where_nothing_is_shared(tmp_path: Path) -> None:
    network = Network(tmp_path / "archive")
    network.create(10)
    standing = StandingQueries(hg.open(tmp_path / "archive"), clock=lambda: 0)
    listed = documents(6, templates=6, side=3)
    for document in listed:
        standing.add(document)
    settle(standing.runner)
    network.add()
    settle(standing.runner)
    whole = sum(one["weight"] for one in listed)
    assert standing_live.bound_of(standing, listed, capacity_s=1e6) == pytest.approx(whole)
    assert standing_live.bound_of(standing, listed, capacity_s=0.0) == pytest.approx(0.0)
    some = [standing_live.bound_of(standing, listed, capacity_s=one) for one in np.linspace(0, 0.02, 5)]
    assert some == sorted(some)
    assert standing_live.weighted({"q000": 3, "q001": 9}, listed, 6) == pytest.approx(
        0.5 * listed[0]["weight"] + listed[1]["weight"]
    )
    standing.stop()


def test_strategies_meet_the_same_live_load_and_stand_in_one_table() -> None:
    measured = bench_standing.measure("live", queries=6, slices=2, rounds=1, strategies=("opt-profit", "round-robin"))
    rows = measured["parts"]["live"]["rows"]
    assert [row["strategy"] for row in rows] == ["opt-profit", "round-robin"]
    assert all(row["weighted updates a slice"] > 0 for row in rows)
    assert rows[0]["updates over opt-profit"] == 1.0
    ((_, columns, shown),) = bench_standing.tables(measured)
    assert columns == ("figure", "opt-profit", "round-robin")
    assert {"alert p99 [slices]", "oldest archive work [slices]", "question p99 [s]"} <= {row[0] for row in shown}


def test_a_strategy_wins_that_is_ahead_in_every_round() -> None:
    ratios = {"opt-profit": 1.0, "ahead": 1.06, "behind": 0.9, "by chance": 1.04}
    rows = [{"strategy": name, "least ratio": ratio} for name, ratio in ratios.items()]
    assert standing_strategies.pick_winners(rows) == ["ahead"]
