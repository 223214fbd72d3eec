"""The shared graph of steps: what its trees hold, what is refused, and what costs are learnt."""

import math
import re

import numpy as np
import pytest

from queries.scheduling.job_tree import InvalidWork, Shape
from queries.scheduling.step_graph import ENOUGH, SMOOTHING, GraphStep, MeasuredCost, StepGraph


def ancestors(shape: Shape, job: int) -> set[str]:
    found = set()
    while job >= 0:
        found.add(shape.names[job])
        job = shape.parents[job]
    return found


def test_equal_steps_stand_once_and_a_step_earns_what_its_queries_weigh() -> None:
    graph = StepGraph()
    clean, mean = GraphStep("clean", projected_s=2.0), GraphStep("mean", ("clean",), projected_s=1.0)
    graph.add("frost", [clean, mean, GraphStep("minimum", ("mean",), projected_s=4.0)], weight=10.0, validity_s=60.0)
    graph.add("table", [mean, clean], weight=3.0, validity_s=90.0)
    graph.add("page", [clean, mean], weight=2.0, validity_s=120.0)
    tree = graph.tree(now_s=100.0)
    assert tree.shape.names == ("clean", "mean", "minimum")
    assert tree.shape.parents == (-1, 0, 1)
    assert tree.shape.costs_s == (2.0, 1.0, 4.0)
    # the last step of table is clean itself
    assert tree.shape.profits == (3.0, 2.0, 10.0)
    assert (tree.arrived_s, tree.deadline_s) == (100.0, 160.0)
    assert tree.shape.slacks_s == (30.0, 60.0, 0.0)
    told = graph.sharing()
    assert (told.queries, told.steps, told.steps_apart, told.seconds, told.seconds_apart) == (3, 3, 6, 7.0, 12.0)


def test_a_tree_holds_what_the_stale_queries_need_and_no_more() -> None:
    graph = StepGraph()
    graph.add("p", [GraphStep("a"), GraphStep("b", ("a",))], weight=1.0, validity_s=5.0)
    graph.add("q", [GraphStep("a"), GraphStep("c", ("a",))], weight=1.0, validity_s=7.0)
    tree = graph.tree({"q": 4.5}, now_s=0.0)
    assert tree.shape.names == ("a", "c")
    assert tree.shape.profits == (0.0, 4.5)
    assert tree.deadline_s == 7.0
    graph.remove("p")
    assert graph.tree(now_s=0.0).shape.names == ("a", "c")
    graph.record_run("b", 1.0)
    graph.remove("p")
    assert graph.sharing().steps == 2


def test_a_query_given_anew_takes_the_place_of_what_stood_there() -> None:
    graph = StepGraph()
    graph.add("p", [GraphStep("a"), GraphStep("b", ("a",))], weight=1.0, validity_s=5.0)
    graph.add("p", [GraphStep("b")], weight=2.0, validity_s=6.0)
    tree = graph.tree(now_s=0.0)
    assert (tree.shape.names, tree.shape.profits, tree.deadline_s) == (("b",), (2.0,), 6.0)


def test_an_answer_is_due_when_the_oldest_slice_that_it_lacks_expires() -> None:
    graph = StepGraph()
    graph.add("p", [GraphStep("a"), GraphStep("b", ("a",))], weight=1.0, validity_s=10.0)
    graph.add("q", [GraphStep("a"), GraphStep("c", ("a",))], weight=1.0, validity_s=30.0)
    tree = graph.tree(now_s=100.0, since_s={"q": 75.0})
    assert tree.deadline_s == 105.0
    assert dict(zip(tree.shape.names, tree.shape.slacks_s, strict=True)) == {"a": 0.0, "b": 5.0, "c": 0.0}
    assert graph.tree(now_s=100.0).deadline_s == 110.0


def test_a_query_given_anew_keeps_what_was_learnt_of_its_steps() -> None:
    graph = StepGraph()
    graph.add("p", [GraphStep("a"), GraphStep("b", ("a",))], weight=1.0, validity_s=5.0)
    graph.record_run("a", 3.0)
    graph.add("p", [GraphStep("a"), GraphStep("c", ("a",))], weight=1.0, validity_s=5.0)
    assert graph.cost("a").seconds == 3.0


@pytest.mark.parametrize("seed", range(40))
def test_a_tree_keeps_all_that_its_graph_asks_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 25))
    steps = []
    for number in range(size):
        count = int(rng.integers(0, min(number, 3) + 1))
        read = tuple(f"s{source}" for source in sorted(rng.choice(number, count, replace=False))) if count else ()
        steps.append(GraphStep(f"s{number}", read))
    graph, by_token = StepGraph(), {step.token: step for step in steps}
    for query in range(int(rng.integers(1, 6))):
        last = steps[int(rng.integers(0, size))]
        order = [by_token[name] for name in by_token if name != last.token] + [last]
        graph.add(f"q{query}", order, weight=1.0, validity_s=1.0)
    shape = graph.tree(now_s=0.0).shape
    assert len(set(shape.names)) == len(shape.names)
    for job, name in enumerate(shape.names):
        assert set(by_token[name].sources) <= ancestors(shape, job)


def test_sources_that_one_merge_reads_stand_in_a_row() -> None:
    graph = StepGraph()
    steps = [
        GraphStep("a"),
        GraphStep("b", ("a",)),
        GraphStep("c", ("a",)),
        GraphStep("d", ("c",)),
        GraphStep("e", ("b", "d")),
    ]
    graph.add("difference", steps, weight=1.0, validity_s=1.0)
    shape = graph.tree(now_s=0.0).shape
    assert shape.names == ("a", "b", "c", "d", "e")
    assert shape.parents == (-1, 0, 1, 2, 3)


@pytest.mark.parametrize(
    ("steps", "given", "said"),
    [
        (
            [GraphStep("a", ("c",)), GraphStep("b", ("a",)), GraphStep("c", ("b",))],
            {},
            "got a circle, each reading the next: ",
        ),
        ([GraphStep("a", ("a",))], {}, "a -> a; break it"),
        ([GraphStep("a", ("b",))], {}, "reads 'b', which is no step of it"),
        ([], {}, "needs at least one step"),
        ([GraphStep("a")], {"weight": 0.0}, "'bad' needs a weight above 0; got 0.0"),
        ([GraphStep("a")], {"weight": math.nan}, "needs a weight above 0; got nan"),
        ([GraphStep("a")], {"validity_s": -1.0}, "'bad' needs a validity above 0; got -1.0"),
        ([GraphStep("a")], {"validity_s": math.inf}, "needs a validity above 0; got inf"),
        ([GraphStep("stands", ("elsewhere",)), GraphStep("elsewhere")], {}, "reads ('elsewhere',), but elsewhere ()"),
    ],
)
def test_a_query_that_cannot_stand_is_refused_and_changes_nothing(
    steps: list[GraphStep], given: dict[str, float], said: str
) -> None:
    graph = StepGraph()
    graph.add("good", [GraphStep("stands")], weight=1.0, validity_s=1.0)
    with pytest.raises(InvalidWork, match=re.escape(said)):
        graph.add("bad", steps, **{"weight": 1.0, "validity_s": 1.0, **given})
    assert graph.sharing().queries == 1
    assert graph.tree(now_s=0.0).shape.names == ("stands",)


@pytest.mark.parametrize("profits", [{}, {"nobody": 1.0}, {"p": 0.0}, {"p": math.nan}])
def test_a_tree_of_nothing_is_refused(profits: dict[str, float]) -> None:
    graph = StepGraph()
    graph.add("p", [GraphStep("a")], weight=1.0, validity_s=1.0)
    with pytest.raises(InvalidWork, match="a tree of jobs needs"):
        graph.tree(profits, now_s=0.0)


def test_costs_follow_what_is_measured() -> None:
    cost = MeasuredCost(GraphStep("a", projected_s=7.0))
    assert cost.seconds == 7.0
    taken = [2.0, 3.0, 2.5, 4.0]
    expected = taken[0]
    for number, seconds in enumerate(taken):
        cost.add(seconds)
        if number:
            expected = (1 - SMOOTHING) * expected + SMOOTHING * seconds
    assert cost.seconds == pytest.approx(expected)
    assert cost.predictable


def test_a_step_whose_cost_leaps_is_recognised_and_gets_its_mean() -> None:
    cost = MeasuredCost(GraphStep("a"))
    taken = [0.01] * ENOUGH + [5.0]
    for seconds in taken:
        cost.add(seconds)
    assert not cost.predictable
    assert cost.seconds == pytest.approx(sum(taken) / len(taken))
    # and steadies again
    for _ in range(40):
        cost.add(1.0)
    assert cost.predictable
    assert cost.seconds == pytest.approx(1.0, rel=0.05)


def test_a_step_that_is_declared_unpredictable_gets_its_mean() -> None:
    cost = MeasuredCost(GraphStep("join", predictable=False))
    for seconds in (1.0, 2.0, 6.0):
        cost.add(seconds)
    assert not cost.predictable
    assert cost.seconds == pytest.approx(3.0)


def test_a_clock_that_steps_back_teaches_no_cost() -> None:
    graph = StepGraph()
    graph.add("p", [GraphStep("a")], weight=1.0, validity_s=1.0)
    with pytest.raises(InvalidWork, match="was a clock set back"):
        graph.record_run("a", -0.5)
    graph.record_run("a", 0.0)
    assert graph.tree(now_s=0.0).shape.costs_s[0] > 0
