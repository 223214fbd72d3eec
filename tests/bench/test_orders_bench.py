"""Orders of cells compared, by fewer pictures and walks than the benchmark takes: what is shown, which is best."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viz
from hypergrid.execution.orders.orders import BY_TIME
from hypergrid.query import Query
from queries.jobs.records import QueryRun
from queries.jobs.runner import Runner, answer
from tests.bench.bench_orders import CASES, NAMES, PICTURES, SHARES, Curve, measure, served, tables, told, whole
from tests.bench.hypergrid_cases import Sample, Sizes, sample
from tests.bench.orders_pictures import table, write
from tests.bench.walk_quality import completed

SMALL = tuple(name for name in PICTURES if name.endswith(("hours", "23 x 23")))


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return measure(sizes=Sizes(), names=SMALL, walks=5)


@pytest.fixture(scope="module")
def curves(measured: dict[str, Any]) -> dict[tuple[str, str], Curve]:
    return {(one["picture"], one["order"]): Curve(**one) for one in measured["curves"]}


def test_the_default_of_engine_server_and_page_is_the_order_with_the_smallest_errors(measured: dict[str, Any]) -> None:
    best = min(measured["off"], key=measured["off"].__getitem__)
    for function in (Query.refine, answer, Runner.submit, QueryRun):
        assert inspect.signature(function).parameters["order"].default == best, function
    page = (Path(viz.__file__).parent / "pages" / "explore.js").read_text()
    offered = re.search(r"const ORDERS = \[(.*)\];", page)
    assert offered
    assert json.loads(f"[{offered[1]}]")[0] == best
    # Maps in the order of time are whole, so that none is estimated.
    assert set(json.loads(f"[{offered[1]}]")) == {*NAMES, BY_TIME}


def test_maps_are_told_best_coarse_to_fine_and_worst_row_by_row(curves: dict[tuple[str, str], Curve]) -> None:
    for name in (name for name in SMALL if name.startswith("Q")):
        coarse, walk, raster = (np.array(curves[name, order].errors[1:-1]) for order in NAMES)
        assert (coarse < 0.35 * raster).all()
        assert (walk < 0.4 * raster).all()
        assert (coarse[:-1] < walk[:-1]).all()
        assert curves[name, "coarse_to_fine"].correlations[SHARES.index(0.05)] > 0.95


def test_days_by_hours_are_told_best_by_the_walk(curves: dict[tuple[str, str], Curve]) -> None:
    for name in (name for name in SMALL if name.endswith("hours")):
        coarse, walk, raster = (np.array(curves[name, order].errors) for order in NAMES)
        at = SHARES.index(0.15)
        assert walk[at] < coarse[at]
        assert walk[at] < 0.8 * raster[at]


def test_nothing_is_off_where_all_is_computed(curves: dict[tuple[str, str], Curve]) -> None:
    assert set(curves) == {(name, order) for name in SMALL for order in NAMES}
    for one in curves.values():
        assert one.errors[-1] == one.least[-1] == one.greatest[-1] == 0.0
        assert one.correlations[-1] == pytest.approx(1.0)
        assert (np.array(one.least) <= one.errors).all()
        assert (np.array(one.errors) <= one.greatest).all()


@pytest.fixture(scope="module")
def network() -> Iterator[Sample]:
    with sample(Sizes(start="2007-10-01", days=4), lambda _stage, _done: None) as one:
        yield one


@pytest.mark.parametrize("order", NAMES)
@pytest.mark.parametrize("name", ["Q1, 23 x 23", "radiation, 28 days x 24 hours"])
def test_what_is_judged_is_what_the_engine_shows(network: Sample, name: str, order: str) -> None:
    """After each block of a run the picture is the one that as many cells of the benchmark's order give."""
    query = PICTURES[name](network)
    slices = whole(query)
    cells, states = served(query, slices, order, 0), 0
    for state in query.refine(order=order, min_gain=0):
        count = round(state.fraction * slices[0].size)
        np.testing.assert_allclose(state.estimate, completed(slices[0], cells[:count]), rtol=1e-9, atol=1e-9)
        states += 1
    assert states > 10


def test_an_error_is_the_root_mean_square_over_the_standard_deviation() -> None:
    full = np.arange(100.0).reshape(10, 10)
    errors, alike = told(full, np.arange(100))
    shown = completed(full, np.arange(50))
    apart = [(shown[row, column] - full[row, column]) ** 2 for row in range(10) for column in range(10)]
    spread = [(value - 49.5) ** 2 for value in range(100)]
    assert errors[SHARES.index(0.5)] == pytest.approx((sum(apart) / sum(spread)) ** 0.5)
    assert (errors[-1], alike[-1]) == (0.0, pytest.approx(1.0))


def test_tables_and_the_plot_have_all_pictures(measured: dict[str, Any], tmp_path: Path) -> None:
    assert CASES == ("all",)
    json.dumps(measured, allow_nan=False)
    *pictures, (_, _, means) = tables(measured)
    assert [title.split(":")[0] for title, _, _ in pictures] == list(SMALL)
    for _, columns, rows in pictures:
        assert len(rows) == len(SHARES)
        assert all(len(row) == len(columns) for row in rows)
        assert rows[-1] == ("100", *("0 (1.00)" for _ in NAMES))
    assert [row[0] for row in means] == list(NAMES)
    assert all(name in table(measured) for name in SMALL)
    assert write(measured, tmp_path).read_bytes().startswith(b"\x89PNG")
