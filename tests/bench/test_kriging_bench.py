"""The benchmark in small: that it agrees with its peer and says what it measured. Times are not tested."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.bench import bench_kriging, kriging_growth
from tests.bench.kriging_agreement import agreement
from tests.bench.kriging_cases import CASES, Case, masks, network
from tests.bench.kriging_figures import Figure, faster, interleaved, level, slower
from tests.bench.kriging_fresh import Fresh, fresh
from tests.bench.kriging_ours import all_slices, kernel

SMALL = {
    name: replace(
        case, stations=30, side=6, slices=20, cell_m=round(case.extent_m / 6), neighbours=case.neighbours and 6
    )
    for name, case in CASES.items()
}
KEYS = {"name", "hypergrid_s", "peer_s", "ratio", "ratio_range", "goal", "met", "extrapolated_from"}


def quiet(_stage: str, _done: float) -> None:
    """Hear nothing."""


@pytest.mark.parametrize(("name", "fewest", "maximum"), [("ref", 35, 45), ("mid", 650, 750), ("big", 50, 50)])
def test_gaps_are_as_the_case_says(name: str, fewest: int, maximum: int) -> None:
    readings = network(CASES[name])
    assert fewest <= masks(readings) <= maximum
    silent = np.isnan(readings.to_numpy())
    assert 0.09 < silent.mean() < 0.11
    changes = np.count_nonzero(silent[1:] != silent[:-1])
    # Each gap begins once and ends once, but for those that the ends of the time cut off.
    lengths = 2 * np.count_nonzero(silent) / changes
    assert 0.6 * CASES[name].burst_slices < lengths < 1.6 * CASES[name].burst_slices


@pytest.mark.parametrize("name", ["ref", "mid", "big"])
def test_estimates_agree_with_the_peer(name: str) -> None:
    case = SMALL[name]
    found = agreement(case, network(case), notify=quiet)
    assert all(row["met"] and row["greatest"] <= 1e-10 for row in found)
    assert ("k = 6 nearest" in {row["name"] for row in found}) == (name != "ref")


def test_a_large_case_is_compared_at_some_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.kriging_agreement.MOST_PRODUCTS", 0)
    found = agreement(SMALL["big"], network(SMALL["big"]), notify=quiet)
    assert [row["name"] for row in found] == ["all stations, 300 cells", "k = 6 nearest"]
    assert all(row["met"] for row in found)


def test_the_kernel_gives_what_the_public_interface_gives() -> None:
    case = SMALL["ref"]
    readings = network(case)
    whole = all_slices(case, readings)
    np.testing.assert_allclose(kernel(case, readings)().reshape(whole.shape), whole, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """The case with figures of every kind, two pairs; first calls are not made, as each takes a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_kriging, "fresh", lambda *_, **__: Fresh(first_s=0.1, second_s=0.01, peak_bytes=10_000))
        return bench_kriging.measure("mid", pairs=2, sizes=SMALL)


def test_every_figure_has_its_goal_and_says_what_it_was_extrapolated_from(measured: dict[str, Any]) -> None:
    document = json.loads(json.dumps(measured, allow_nan=False))
    figures = {row["name"]: row for row in document["cases"]["mid"]["figures"]}
    assert all(KEYS <= set(row) for row in figures.values())
    assert figures["all slices, warm"]["goal"] == 1000
    assert figures["time mean, warm"]["goal"] == 5000
    assert figures["k = 6 nearest, warm"]["goal"] == 30
    assert figures["variances of all masks, warm"]["goal"] == 30
    assert figures["share of a product into new memory"]["goal"] == 0.5
    told = {row["extrapolated_from"] for row in figures.values()}
    assert told == {None, "2 of 20 slices a pair, other ones in each pair, times 10"}
    for row in figures.values():
        low, high = row["ratio_range"]
        assert low <= row["ratio"] <= high
        assert (row["met"] is None) == (row["goal"] is None)
    assert list(document["cases"]) == ["mid"]


def test_tables_have_a_row_a_figure(measured: dict[str, Any]) -> None:
    (title, columns, rows), (_, _, differences) = bench_kriging.tables(measured)
    assert "30 stations, 6 x 6 cells, 20 slices" in title
    assert "PyKrige on 2 of 20 slices" in title
    assert [row[0] for row in rows] == [row["name"] for row in measured["cases"]["mid"]["figures"]]
    assert all(len(row) == len(columns) for row in rows)
    assert len(differences) == 4


def test_a_ratio_is_the_median_of_the_pairs_and_not_the_ratio_of_the_medians() -> None:
    figure = faster("x", [1.0, 2.0, 4.0], [10.0, 40.0, 8.0], goal=10.0)
    assert (figure.ratio, figure.ratio_range, figure.met) == (10.0, (2.0, 20.0), True)
    assert (figure.hypergrid_s, figure.peer_s) == (2.0, 10.0)
    assert slower("x", [3.0], [1.0], what="", goal=2.9).met is False
    assert level("x", 1.6, what="", goal=1.6).met is True
    assert faster("x", [1.0], [1.0]).met is None
    assert Figure.from_json(figure.to_json()) == figure


def test_works_are_timed_in_turn() -> None:
    called: list[tuple[str, int]] = []
    works = {name: lambda number, name=name: called.append((name, number)) for name in "ab"}
    seconds = interleaved(works, 2, notify=quiet, stage="", warm_up=True)
    assert called == [("a", -1), ("b", -1), ("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert {name: len(row) for name, row in seconds.items()} == {"a": 2, "b": 2}


def test_a_fresh_process_counts_the_memory_of_its_result() -> None:
    case = replace(SMALL["ref"], side=100, cell_m=7.0, slices=200)
    found = fresh(case, "all_slices")
    assert found.first_s > 0
    assert found.peak_bytes is None or found.peak_bytes > case.output_bytes


def test_growth_is_fitted_through_the_logarithms() -> None:
    assert kriging_growth.fitted_exponent(
        [1, 2, 4, 8], [3.0, 3.0 * 2**1.5, 3.0 * 4**1.5, 3.0 * 8**1.5]
    ) == pytest.approx(1.5)


def test_growth_doubles_one_size_at_a_time() -> None:
    base = Case("growth", 12, 8, 4, cell_m=100.0, range_m=500.0, burst_slices=5.0)
    rows = kriging_growth.measure(
        notify=quiet, bases=(("all stations", base, ("slices", "cells", "stations")),), doublings=2
    )
    assert [row["sizes"] for row in rows] == [[4, 8, 16], [64, 121, 256], [12, 24, 48]]
    assert [row["fixed"] for row in rows] == ["12 stations, 64 cells", "12 stations, 4 slices", "64 cells, 4 slices"]
    text = kriging_growth.markdown(rows).splitlines()
    assert len(text) == 5
    assert len({line.count("|") for line in text}) == 1
