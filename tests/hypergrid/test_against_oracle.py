"""The whole query core against a slow, obvious oracle: random questions about random readings."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, given, reject, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.errors import HyperGridError
from hypergrid.execution import Plan, make_plan, run
from hypergrid.execution.strategy import path
from hypergrid.perspective import Surface, question_from_json
from hypergrid.perspective.build import selected
from hypergrid.perspective.sources import pinned
from hypergrid.query import OpenArchive, Query
from hypergrid.rewrite import Rewritten, rewrite
from hypergrid.testing.feeds import Feed
from hypergrid.testing.networks import random_archive, random_array
from hypergrid.testing.oracle import Answer, answer
from hypergrid.testing.strategies import documents

SEEDS = range(6)
slowly = settings(
    max_examples=250,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    # A failing example is short as it is; shrinking it would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


class Archives:
    """Archives and their readings by seed; short to print."""

    def __init__(self, folder: Path) -> None:
        self._made = [random_archive(folder / str(seed), seed) for seed in SEEDS]

    def __getitem__(self, seed: int) -> tuple[OpenArchive, dict[str, Feed]]:
        return self._made[seed]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return Archives(tmp_path_factory.mktemp("archives"))


def check(query: Query, feeds: dict[str, Feed]) -> None:
    surface = query.surface()
    expected = answer(query.question, feeds)
    computed = query.compute()
    same(computed["value"].to_numpy(), expected.value, "value")
    same(computed["count"].to_numpy(), expected.count, "count")
    possible = computed["count_possible"].to_numpy() if "count_possible" in computed else np.zeros(1)
    same(np.broadcast_to(possible, computed["count"].shape), expected.possible, "possible")
    assert computed["time"].to_numpy().astype(np.int64).tolist() == [start for start, _ in expected.times]
    for order in ("coarse_to_fine", "raster", "walk"):
        refinements = list(query.refine(order=order))
        assert refinements[-1].complete
        last = refinements[-1].dataset()
        same(last["value"].to_numpy(), expected.value, order)
        same(last["count"].to_numpy(), expected.count, order)
    same(unrewritten(surface), expected.value, "without rules")
    for k, places, times, buffered in strategies(surface):
        plan = make_plan(surface, strategy=k)
        in_boxes = replace(
            plan, block_cells=places, block_times=times, chosen=replace(plan.strategy, buffered=buffered)
        )
        outcome, what = list(run(in_boxes))[-1].outcome, f"k = {k}, boxes of {places} x {times}, buffered {buffered}"
        same(outcome.value, expected.value, what)
        same(np.broadcast_to(outcome.count, outcome.value.shape), expected.count, what)
        same(np.broadcast_to(outcome.possible, outcome.value.shape), expected.possible, what)


def strategies(surface: Surface) -> Iterator[tuple[int, int, int | None, bool]]:
    """Yield every k with large and small boxes: places and time cells of a box, and whether there are buffers."""
    most = len(path(make_plan(surface).surface))
    for k in range(most + 1):
        yield k, 10**6, None, True
        yield k, 7, 5, True
    yield 0, 7, 5, False


def answerable(query: Query) -> Query:
    """Return the query where it can be answered, and pass over the few that are refused."""
    try:
        query.surface()
    except HyperGridError as error:
        event(f"refused: {str(error)[-40:]}")
        reject()
    event(f"{len(query.question.steps)} steps")
    return query


def unrewritten(surface: Surface) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Compute every cell of the surface without any rule, then take those that the clip selects."""
    plan = make_plan(surface)
    whole = Rewritten(Surface(surface.perspective), ())
    assert rewrite(whole.surface, ()).fired == ()
    perspective = surface.perspective
    bare = Plan(whole.surface, whole, plan.steps, perspective.topology.count, 7, plan.projected_bytes, plan.projected_s)
    outcome = list(run(bare))[-1].outcome
    values = outcome.value.reshape(perspective.topology.shape)
    times, space = selected(perspective.topology, surface.clip)
    return values[times, *space]


def same(found: np.ndarray[Any, Any], expected: list[list[Any]], what: str) -> None:
    wanted = np.array(expected, dtype=np.float64)
    np.testing.assert_allclose(
        found.reshape(len(wanted), -1), wanted, rtol=1e-10, atol=1e-10, equal_nan=True, err_msg=what
    )


@slowly
@given(seed=st.sampled_from(SEEDS), document=documents(is_lonlat=True))
def test_an_archive_answers_as_the_oracle(archives: Archives, seed: int, document: dict[str, Any]) -> None:
    archive, feeds = archives[seed]
    check(answerable(archive.query(document)), feeds)


@slowly
@given(seed=st.integers(0, 10_000), document=documents(is_lonlat=False))
def test_an_array_answers_as_the_oracle(seed: int, document: dict[str, Any]) -> None:
    array, feeds = random_array(seed)
    document.pop("accept_flags", None)
    query = hg.base(array)
    question = pinned(question_from_json(document), str(query.question.snapshot))
    check(answerable(replace(query, question=question)), feeds)


def test_two_variables_are_merged_as_the_oracle_says(archives: Archives) -> None:
    steps = [{"op": "aggregate", "function": "mean", "time": "10min"}]
    other = {"variable": "surface_temperature", "steps": steps}
    merged = {"op": "merge", "function": "difference", "with": [other]}
    for seed in SEEDS:
        archive, feeds = archives[seed]
        check(archive.query({"variable": "air_temperature", "steps": [*steps, merged]}), feeds)


def test_the_oracle_knows_a_case_done_by_hand() -> None:
    array, feeds = random_array(1, instants=4)
    question = question_from_json(
        {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "sum", "time": "all"}]}
    )
    found: Answer = answer(question, feeds)
    np.testing.assert_allclose(found.value[0], array.sum("time", min_count=1).to_numpy())
