"""The benchmark of scheduling in small: what it tells, and that its shapes are judged by what they say."""

import json
from typing import Any

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery
from tests.bench import bench_scheduling, scheduling_cases, scheduling_figures, scheduling_hybrid, scheduling_shapes
from tests.bench.scheduling_cases import LATE, OURS, SWEEPS, THESIS, Point, Sizes

SMALL = Sizes(seeds=2, duration_s=4.0, values=2, trees=25, slices=5)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return bench_scheduling.measure("all", sizes=SMALL)


def test_every_figure_is_there_with_every_strategy(measured: dict[str, Any]) -> None:
    assert {"4.6", "4.7", "4.8", *SWEEPS, "5.13", "hybrid", "optimum"} <= set(measured["parts"])
    for name in SWEEPS:
        for key in (name, f"{name}, late {LATE[1]}"):
            rows = measured["parts"][key]["rows"]
            assert {row["strategy"] for row in rows} == {*THESIS, *OURS}
            assert len(rows) == 2 * len((*THESIS, *OURS))
            assert all(row["low"] <= row["mean"] <= row["high"] for row in rows)
    json.dumps(measured, allow_nan=False)


def test_each_shape_is_a_record(measured: dict[str, Any]) -> None:
    for shape in measured["shapes"]:
        assert set(shape) == {"shape", "holds", "interval", "reason"}
        assert shape["holds"] is True or shape["reason"]
    asked = " / ".join(shape["shape"] for shape in measured["shapes"])
    for claim in (
        "opt-profit at least basic", "opt-profit+pd best under bursts", "opt-profit+dd loses less than opt-profit",
        "basic+dd gains with weight variance", "batching beats none by far", "intelligent batching beats fixed length",
        "higher weighted update frequency than round-robin", "hybrid: mean regret", "hybrid: worst point",
    ):  # fmt: skip
        assert claim in asked


def test_tables_show_it(measured: dict[str, Any]) -> None:
    shown = bench_scheduling.tables(measured)
    assert len(shown) == len(measured["parts"]) + 2
    for title, columns, rows in shown:
        assert title
        assert all(len(row) == len(columns) for row in rows)


def test_the_linear_programme_is_never_beaten_and_horn_never_short(measured: dict[str, Any]) -> None:
    rows = {row["rule"]: row for row in measured["parts"]["optimum"]["rows"]}
    assert rows["horn"]["falls short"] == 0
    assert rows["horn"]["trees"] == rows["printed"]["trees"] == 25


def test_a_shape_holds_where_its_interval_lies_above_the_bound() -> None:
    differences = np.array([0.02, 0.03, 0.04])
    low, high = scheduling_figures.interval(differences)
    # the mean 0.03, its standard error 0.01 / sqrt(3), and Student's 4.303 for two degrees of freedom
    assert (low, high) == pytest.approx((0.03 - 4.3027 * 0.01 / 3**0.5, 0.03 + 4.3027 * 0.01 / 3**0.5), abs=1e-6)
    assert scheduling_shapes.record("claim", differences)["holds"]
    assert not scheduling_shapes.record("claim", differences, above=0.01)["holds"]
    assert scheduling_shapes.record("claim", -differences)["reason"].startswith("mean difference -0.0300, needed")


def test_all_strategies_meet_the_same_streams_and_weights_have_their_variance() -> None:
    first, again = (scheduling_cases.inputs(3, Point(spread=3.5), SMALL) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert one.shape == other.shape
        assert one.arrivals_s.tolist() == other.arrivals_s.tolist()
    variances = {variance: point.spread for variance, point in SWEEPS["4.10"].points.items()}
    for variance, spread in variances.items():
        assert spread is not None
        assert variance == pytest.approx(float(np.var(np.arange(round(5.5 - spread), round(5.5 + spread) + 1))))


def test_replayed_arrivals_are_the_generated_ones_of_the_sample_network() -> None:
    times = scheduling_cases.sample_arrivals(1)
    assert "generated" in SWEEPS["replay"].title
    assert len(times) == 6 * scheduling_cases.SLICES
    assert np.isfinite(times).all()


def test_the_hybrid_was_not_tuned_on_what_it_is_judged_by() -> None:
    assert not set(scheduling_hybrid.TUNED_ON) & set(range(Sizes().seeds))


def test_quick_is_for_the_benchmark_that_has_it() -> None:
    commands = pytest.importorskip("hypergrid.cli.commands")
    with pytest.raises(InvalidQuery, match="--quick is not for the benchmark kriging"):
        commands.bench("kriging", case="all", quick=True)
    with pytest.raises(InvalidQuery, match="--values is not for the benchmark scheduling"):
        commands.bench("scheduling", case="all", values=5)
