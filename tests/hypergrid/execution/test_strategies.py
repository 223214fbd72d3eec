"""Strategies: top-down, bottom-up and every hybrid-k, in boxes of any size, give one surface."""

from dataclasses import replace

import numpy as np
import pytest

from hypergrid.execution import Plan, make_plan, run
from hypergrid.execution.planning.strategy import Strategy, path
from hypergrid.execution.running.run import Outcome
from tests.support.chains import CHAINS


def computed(plan: Plan, k: int, *, places: int, times: int | None, buffered: bool = True) -> Outcome:
    chosen = Strategy(k, len(path(plan.surface)), "hybrid", buffered=buffered)
    return list(run(replace(plan, block_cells=places, block_times=times, strategy=chosen)))[-1].outcome


def same(found: Outcome, wanted: Outcome, what: str) -> None:
    shape = wanted.value.shape
    np.testing.assert_allclose(found.value, wanted.value, rtol=1e-11, atol=1e-11, err_msg=what)
    for name in ("count", "possible"):
        pair = (np.broadcast_to(getattr(each, name), shape) for each in (found, wanted))
        np.testing.assert_array_equal(*pair, err_msg=f"{name}, {what}")
    for name in ("variance", "variance_low"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert (one is None) == (other is None), what
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=f"{name}, {what}")
    assert (found.notes, found.left_out, found.correlation) == (wanted.notes, wanted.left_out, wanted.correlation), what
    assert (found.extrapolated is None) == (wanted.extrapolated is None), what
    if found.extrapolated is not None and wanted.extrapolated is not None:
        np.testing.assert_array_equal(found.extrapolated, wanted.extrapolated, err_msg=what)
    assert found.computed.all()


@pytest.mark.parametrize("name", CHAINS)
def test_every_strategy_gives_the_same_surface(name: str) -> None:
    plan = make_plan(CHAINS[name]().surface())
    wanted = list(run(plan))[-1].outcome
    for k in range(len(path(plan.surface)) + 1):
        for places, times, buffered in ((64, None, True), (25, 5, True), (64, 7, False)):
            what = f"k = {k}, buffered {buffered}, boxes of {places} places and {times} time cells"
            same(computed(plan, k, places=places, times=times, buffered=buffered), wanted, what)
