"""Fragments by Horn's rule against the linear programme with precedence, and the printed rule as a contrast."""

from itertools import pairwise

import numpy as np
import pytest

from queries.scheduling.job_tree import InvalidWork, JobTree, Shape, cut_into_fragments, find_horn_fragments
from tests.queries.scheduling.trees import best_by_programme, best_by_trying, earned_by, random_tree
from tests.support.scheduling.cuts import cut_as_printed, cut_into_jobs, find_printed_fragments, min_slacks_s

OPS = ("J1", "J2", "J3", "J4", "J5", "J6", "J7", "J8")
WORKED = Shape(
    OPS,
    (-1, 0, 1, 1, 0, 4, 5, 5),
    (1.0, 1.0, 2.0, 1.0, 3.0, 3.0, 4.0, 2.0),
    (0.0, 0.0, 1.0, 9.0, 0.0, 0.0, 1.0, 20.0),
)
"""Figure 4.3 with profits of our own: J8 is densest, J2 and J4 together are denser than J6 and J8, as in figure 4.5."""


@pytest.mark.parametrize("hundred", range(20))
def test_fragments_earn_what_the_linear_programme_does(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        rng = np.random.default_rng(seed)
        parents, costs, profits = random_tree(rng, maximum=9)
        fragments, _ = find_horn_fragments(parents, costs, profits)
        time_s = float(rng.uniform(0, sum(costs)))
        best = best_by_programme(parents, costs, profits, time_s)
        assert earned_by(fragments, costs, profits, time_s) == pytest.approx(best, abs=1e-7), seed
        assert earned_by(find_printed_fragments(parents, costs, profits)[0], costs, profits, time_s) <= best + 1e-7, (
            seed
        )


@pytest.mark.parametrize("seed", range(60))
def test_fragments_earn_most_by_every_moment_at_which_one_ends(seed: int) -> None:
    parents, costs, profits = random_tree(np.random.default_rng([1, seed]), maximum=6)
    fragments, _ = find_horn_fragments(parents, costs, profits)
    ends = np.cumsum([sum(costs[job] for job in jobs) for jobs in fragments])
    for end_s in ends:
        earned = earned_by(fragments, costs, profits, end_s)
        assert earned == pytest.approx(best_by_trying(parents, costs, profits, end_s))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("rule", [find_horn_fragments, find_printed_fragments], ids=["horn", "printed"])
def test_fragments_hold_every_job_once_after_its_parent(rule: type[object], seed: int) -> None:
    parents, costs, profits = random_tree(np.random.default_rng([2, seed]), maximum=30)
    order = [job for jobs in rule(parents, costs, profits)[0] for job in jobs]  # type: ignore[call-arg,index]
    assert sorted(order) == list(range(len(parents)))
    assert all(order.index(parent) < order.index(job) for job, parent in enumerate(parents) if parent >= 0)


@pytest.mark.parametrize("seed", range(60))
def test_densities_of_fragments_never_rise(seed: int) -> None:
    parents, costs, profits = random_tree(np.random.default_rng([3, seed]), maximum=40)
    cut = cut_into_fragments(Shape(tuple(map(str, range(len(parents)))), parents, costs, profits))
    densities = [piece.value / piece.cost_s for piece in cut.fragments]
    assert all(before >= after - 1e-12 for before, after in pairwise(densities))


@pytest.mark.parametrize("make", [cut_into_fragments, cut_as_printed], ids=["horn", "printed"])
def test_the_worked_example_has_its_first_two_fragments(make: type[object]) -> None:
    cut = make(WORKED)  # type: ignore[call-arg]
    named = [[OPS[job] for job in piece.jobs] for piece in cut.fragments]  # type: ignore[attr-defined]
    assert named[:2] == [["J1", "J2", "J4"], ["J5", "J6", "J8"]]
    # 60 tuples in 420 units of time: 180 for the first fragment, and 240 for half of the tuples of the second
    first, second = cut.fragments[:2]  # type: ignore[attr-defined]
    assert 60 * first.cost_s == 180
    assert (420 - 60 * first.cost_s) / second.cost_s == 30


def test_the_printed_rule_falls_short_of_this_tree() -> None:
    # The last job lifts its parent, so the rule merges the two, and cannot take the parent without it any more.
    parents, costs, profits = (-1, 0, 0, 2), (3.0, 1.0, 2.0, 4.0), (0.0, 9.0, 7.0, 10.0)
    best, as_printed = (
        find_horn_fragments(parents, costs, profits)[0],
        find_printed_fragments(parents, costs, profits)[0],
    )
    assert best == [[0, 1, 2], [3]]
    assert [sorted(jobs) for jobs in as_printed] == [[0, 1, 2, 3]]
    assert best_by_programme(parents, costs, profits, 6.0) == pytest.approx(16.0)
    assert earned_by(best, costs, profits, 6.0) == pytest.approx(16.0)
    assert earned_by(as_printed, costs, profits, 6.0) == pytest.approx(15.6)


def test_jobs_are_valued_as_in_aurora_and_due_so_that_all_below_can_be_in_time() -> None:
    cut = cut_into_jobs(WORKED)
    assert [piece.value for piece in cut.fragments] == [31.0, 10.0, 1.0, 9.0, 21.0, 21.0, 1.0, 20.0]
    assert [piece.profit for piece in cut.fragments] == list(WORKED.profits)
    assert [piece.below_s for piece in cut.fragments] == [16.0, 3.0, 0.0, 0.0, 9.0, 6.0, 0.0, 0.0]
    assert cut.first == (0,)
    assert cut.following[0] == (1, 4)


def test_a_fragment_waits_for_the_one_above_it_and_takes_the_least_slack_of_what_it_earns() -> None:
    shape = Shape(("a", "b", "c"), (-1, 0, 0), (1.0, 1.0, 1.0), (0.0, 9.0, 1.0), (0.0, 5.0, 2.0))
    cut = cut_into_fragments(shape)
    assert [piece.jobs for piece in cut.fragments] == [(0, 1), (2,)]
    assert [piece.after for piece in cut.fragments] == [-1, 0]
    assert [piece.slack_s for piece in cut.fragments] == [5.0, 2.0]
    assert min_slacks_s(shape) == (2.0, 5.0, 2.0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"parents": (-1, 2, 1)}, "needs a parent before it"),
        ({"costs_s": (1.0, 0.0, 1.0)}, "needs a cost above 0 s; got 0.0"),
        ({"costs_s": (1.0, float("nan"), 1.0)}, "needs a cost above 0 s; got nan"),
        ({"profits": (0.0, -1.0, 1.0)}, "needs a profit of 0 or more; got -1.0"),
        ({"profits": (0.0, 1.0)}, "one parent, cost, profit and slack a job"),
    ],
)
def test_work_that_cannot_be_is_refused(changed: dict[str, tuple[float, ...]], said: str) -> None:
    whole = {"names": ("a", "b", "c"), "parents": (-1, 0, 1), "costs_s": (1.0, 1.0, 1.0), "profits": (0.0, 0.0, 1.0)}
    with pytest.raises(InvalidWork, match=said):
        Shape(**{**whole, **changed})  # type: ignore[arg-type]


def test_trees_are_never_equal() -> None:
    assert JobTree(WORKED, 0.0, 1.0) != JobTree(WORKED, 0.0, 1.0)
