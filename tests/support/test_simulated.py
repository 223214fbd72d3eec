"""The simulation: its graphs, its arrivals, and its scores against what can be counted by hand or slowly."""

import math
from dataclasses import replace

import numpy as np
import pytest

from queries.scheduling.job_tree import Shape, cut_into_fragments
from queries.scheduling.step_graph import Tokens
from tests.support.scheduling.arrivals import b_model, replayed
from tests.support.scheduling.batching import FixedLength, Intelligent, Single
from tests.support.scheduling.graphs import STREAMS, Operator, QueryGraph, random_graph
from tests.support.scheduling.quality import Input, Overheads, simulate
from tests.support.scheduling.strategies import STRATEGIES, make_strategy
from tests.support.scheduling.updates import random_standing, simulate_updates

FREE = Overheads(0.0, 0.0, 0.0)
CHAIN = Shape(("a", "b"), (-1, 0), (1.0, 1.0), (0.0, 0.5))


def stream(shape: Shape, times: list[float], validity_s: float, delay_s: float = 0.0) -> Input:
    return Input(shape, np.array(times), validity_s, delay_s)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_graph_is_what_the_thesis_describes(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed))
    assert 20 <= len(graph.weights) <= 28
    assert 32 <= len(graph.operators) <= 48
    assert set(graph.weights) <= set(range(1, 11))
    inner = {operator.parent for operator in graph.operators}
    for number, operator in enumerate(graph.operators):
        assert -1 <= operator.parent < number
        assert (operator.weight > 0) == (number not in inner)
    assert {operator.stream for operator in graph.operators} == set(range(STREAMS))
    counts = [100, 200, 300, 400]
    shapes = graph.shapes(counts, work_s=60.0)
    assert sum(n * sum(shape.costs_s) for n, shape in zip(counts, shapes, strict=True)) == pytest.approx(60.0)
    earned = sum(n * sum(shape.profits) for n, shape in zip(counts, shapes, strict=True))
    assert earned == pytest.approx(sum(graph.weights))


def test_a_join_stands_in_the_trees_of_both_its_inputs() -> None:
    graph = random_graph(np.random.default_rng(3), queries=24, operators=40)
    joins = [number for number, operator in enumerate(graph.operators) if operator.other_stream >= 0]
    assert joins
    for number in joins:
        operator = graph.operators[number]
        assert number in graph.reached(operator.stream)
        assert graph.reached(operator.other_stream)[number] == 1.0


@pytest.mark.parametrize("bias", [0.5, 0.7, 0.9])
def test_the_b_model_gives_the_fuller_half_its_share_again_and_again(bias: float) -> None:
    times = b_model(np.random.default_rng(1), 20_000, duration_s=16.0, bias=bias)
    assert len(times) == 20_000
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] <= 16
    halves = np.histogram(times, 2, (0, 16))[0] / len(times)
    assert max(halves) == pytest.approx(bias, abs=0.01)
    quarters = np.histogram(times, 4, (0, 16))[0] / len(times)
    assert sorted(quarters[:2] / halves[0]) == pytest.approx([1 - bias, bias], abs=0.01)


@pytest.mark.parametrize("bias", [0.4, 1.0, math.nan])
def test_a_bias_that_is_none_is_refused(bias: float) -> None:
    with pytest.raises(ValueError, match="needs a bias from 0.5 to below 1"):
        b_model(np.random.default_rng(1), 10, duration_s=1.0, bias=bias)


def test_a_replay_keeps_the_pattern_of_what_was_recorded() -> None:
    recorded = np.array([30.0, 10.0, 11.0, 13.0, 99.0])
    assert replayed(recorded, duration_s=6.0, count=3).tolist() == [0.0, 2.0, 6.0]
    assert replayed(recorded, duration_s=8.6, count=3, start=1.0).tolist() == pytest.approx([0.0, 1.7, 8.6])
    with pytest.raises(ValueError, match="at least 6 arrivals; got 5"):
        replayed(recorded, duration_s=6.0, count=6)
    with pytest.raises(ValueError, match="at different times"):
        replayed(np.ones(4), duration_s=6.0, count=3)


def test_tuples_that_are_done_in_time_count() -> None:
    # two jobs of 1 s a tuple: they end at 1 and 2, at 3 and 4; the second is valid until 3.5
    found = simulate([stream(CHAIN, [0.0, 0.0], 3.5)], make_strategy("fifo"), Single(), overheads=FREE)
    assert found.score == 0.5
    assert (found.batches, found.busy_s, found.wasted_s) == (2, 4.0, 1.0)


def test_a_delay_on_the_way_takes_from_the_validity() -> None:
    source = stream(CHAIN, [2.0], 3.5, 2.0)
    assert simulate([source], make_strategy("fifo"), Single(), overheads=FREE).score == 0.0
    source = stream(CHAIN, [2.0], 4.5, 2.0)
    assert simulate([source], make_strategy("fifo"), Single(), overheads=FREE).score == 1.0


def test_scheduling_costs_time() -> None:
    source = stream(CHAIN, [0.0], 2.5)
    # two switches, and a handler for the input and for the second job
    dear = Overheads(interrupt_s=0.25, step_s=0.0, switch_s=0.25)
    found = simulate([source], make_strategy("fifo"), Single(), overheads=dear)
    assert found.overhead_s == pytest.approx(1.0)
    assert found.score == 0.0


def test_what_has_expired_is_passed_over_or_runs_as_one_asks() -> None:
    source = stream(CHAIN, [0.0, 0.0, 0.0, 0.0], 4.0)
    dropped = simulate([source], make_strategy("fifo"), FixedLength(4), overheads=FREE)
    runs = simulate([source], make_strategy("fifo"), FixedLength(4), overheads=FREE, late_runs=True)
    # the first job runs for all four, then it is too late for the second
    assert (dropped.score, dropped.busy_s) == (0.0, 5.0)
    assert (runs.score, runs.busy_s) == (0.0, 8.0)


def slow_fifo(sources: list[Input]) -> float:
    """Return the QoS where each tuple goes through its whole tree before the next one has its turn."""
    arrivals = sorted(
        (float(at), number, float(at) + source.validity_s)
        for number, source in enumerate(sources)
        for at in source.arrivals_s
    )
    now_s = earned = 0.0
    for at, number, expiry_s in arrivals:
        now_s = max(now_s, at)
        shape = sources[number].shape
        latest_s = max(slack for slack, profit in zip(shape.slacks_s, shape.profits, strict=True) if profit)
        for cost_s, profit, slack_s in zip(shape.costs_s, shape.profits, shape.slacks_s, strict=True):
            if expiry_s + latest_s < now_s:
                break
            now_s += cost_s
            earned += profit * (now_s <= expiry_s + slack_s)
    return earned / sum(sum(source.shape.profits) * len(source.arrivals_s) for source in sources)


def loaded(seed: int, load: float, *, count: int = 80) -> list[Input]:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, queries=20, operators=32)
    validities_s = rng.uniform(1, 2, STREAMS).tolist()
    return [
        Input(
            replace(shape, slacks_s=graph.slacks_s(stream_, validities_s)),
            b_model(rng, count, duration_s=10.0, bias=0.7),
            validities_s[stream_],
        )
        for stream_, shape in enumerate(graph.shapes([count] * STREAMS, work_s=10.0 * load))
    ]


def test_an_output_expires_with_the_first_of_the_inputs_that_contribute_to_it() -> None:
    # input 0 -> select -> join with input 1 -> answer;  input 0 -> answer of its own
    operators = (
        Operator(-1, 0, -1, 1.0, 1.0, 0.0),
        Operator(0, 0, 1, 1.0, 1.0, 3.0),
        Operator(0, 0, -1, 1.0, 1.0, 2.0),
    )
    graph = QueryGraph(operators)
    assert graph.slacks_s(0, [6.0, 4.0, 9.0, 9.0]) == (0.0, -2.0, 0.0)
    assert graph.slacks_s(1, [6.0, 4.0, 9.0, 9.0]) == (0.0,)
    shape = Shape(("select", "join", "own"), (-1, 0, 0), (1.0, 1.0, 1.0), (0.0, 3.0, 2.0), (0.0, -2.0, 0.0))
    # All is done at 3 s: of a tuple valid until 3.5 the join is late, which needed a tuple valid until 1.5.
    found = simulate([stream(shape, [0.0], 3.5)], make_strategy("fifo"), Single(), overheads=FREE)
    assert found.score == pytest.approx(2 / 5)
    assert found.wasted_s == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(8))
def test_first_come_first_served_is_what_it_says(seed: int) -> None:
    sources = loaded(seed, 1.2)
    found = simulate(sources, make_strategy("fifo"), Single(), overheads=FREE)
    assert found.score == pytest.approx(slow_fifo(sources), abs=1e-9)
    assert found.mean_batch == 1.0


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_with_time_enough_every_strategy_earns_all(name: str) -> None:
    found = simulate(loaded(1, 0.2), make_strategy(name), Intelligent(), overheads=FREE)
    assert found.score == pytest.approx(1.0, abs=0.02)
    assert found.busy_s == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@pytest.mark.parametrize("late_runs", [False, True])
def test_no_work_is_done_twice_or_left(name: str, late_runs: bool) -> None:  # noqa: FBT001 - a parameter of the test
    sources = loaded(2, 1.5)
    found = simulate(sources, make_strategy(name), Intelligent(), late_runs=late_runs)
    work_s = sum(sum(source.shape.costs_s) * len(source.arrivals_s) for source in sources)
    assert 0 < found.score <= 1
    assert found.overhead_s > 0
    assert found.busy_s <= work_s + 1e-9
    if late_runs:
        assert found.busy_s == pytest.approx(work_s)
    again = simulate(sources, make_strategy(name), Intelligent(), late_runs=late_runs)
    assert again == found


def test_opt_profit_earns_what_the_best_order_of_a_burst_does() -> None:
    # All comes at once, and all expires at once: the linear programme with precedence is the optimum.
    rng = np.random.default_rng(7)
    shape = random_graph(rng, queries=20, operators=32).shapes([400] * STREAMS, work_s=40.0)[0]
    fragments = shape.cut(cut_into_fragments).fragments
    source = stream(shape, [0.0] * 400, 5.0)
    left_s, best = 5.0, 0.0
    for piece in fragments:
        share = min(1.0, left_s / (400 * piece.cost_s))
        best += share * piece.profit * 400
        left_s -= share * 400 * piece.cost_s
    found = simulate([source], make_strategy("opt-profit"), FixedLength(400), overheads=FREE)
    assert found.score == pytest.approx(best / (400 * sum(shape.profits)), rel=0.01)


def test_a_token_grows_while_its_query_waits_and_is_credited_once() -> None:
    tokens = Tokens({"p": 10.0, "q": 2.0})
    for _ in range(3):
        tokens.offer(["p", "q"])
    assert tokens.profit("p") == pytest.approx(10 + 9 + 8.1)
    assert tokens.credit("p") == pytest.approx(27.1)
    assert tokens.credit("p") == 0.0
    assert tokens._saved == {"q": pytest.approx(2 + 1.8 + 1.62)}
    assert tokens.score == pytest.approx(27.1 / 36)
    for _ in range(500):
        tokens.offer(["q"])
    assert tokens.profit("q") == pytest.approx(20.0)
    tokens.forget("q")
    assert not tokens._saved


def test_offers_that_turn_out_to_change_nothing_are_undone_and_what_saved_nothing_is_worth_its_weight() -> None:
    tokens = Tokens({"p": 10.0, "q": 2.0})
    for _ in range(3):
        tokens.offer(["p", "q"])
    assert tokens.profit("q") == tokens._saved["q"] > 2.0
    tokens.credit("p")
    assert tokens.profit("p") == 10.0
    tokens.withdraw("q")
    assert tokens.score == pytest.approx(27.1 / 30)
    assert tokens.profit("q") == 2.0


def test_saved_tokens_do_not_keep_a_light_query_from_starving() -> None:
    # A token saved for ever is worth ten weights: as much as an alert is anew.
    standing = random_standing(np.random.default_rng(2))
    light = simulate_updates(standing, make_strategy("opt-profit"), overload=4.0, slices=60)
    fair = simulate_updates(standing, make_strategy("round-robin"), overload=4.0, slices=60)
    assert light.longest == 60
    assert fair.longest < 10


def test_with_time_enough_every_query_is_updated_with_its_base() -> None:
    standing = random_standing(np.random.default_rng(0))
    for name in STRATEGIES:
        found = simulate_updates(standing, make_strategy(name), overload=0.9, slices=10)
        assert set(found.frequency.values()) == {1.0}
        assert found.score == pytest.approx(1.0)
        assert found.weighted == pytest.approx(sum(standing.weights.values()))


def test_round_robin_updates_all_alike_and_opt_profit_by_weight() -> None:
    standing = random_standing(np.random.default_rng(1))
    fair = simulate_updates(standing, make_strategy("round-robin"), overload=1.6, slices=60)
    best = simulate_updates(standing, make_strategy("opt-profit"), overload=1.6, slices=60)
    assert max(fair.frequency.values()) - min(fair.frequency.values()) < 0.03
    assert best.frequency["alert"] > best.frequency["user"] > best.frequency["archive"]
    assert best.weighted > fair.weighted
    assert best.score > fair.score
