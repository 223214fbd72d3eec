"""Boxes: some time cells of some places are those of the whole, whatever lies below and whichever are asked for."""

import numpy as np
import pytest

from hypergrid.execution import make_plan
from hypergrid.execution.running.evaluate import Evaluator
from tests.support.chains import CHAINS


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("pull", [False, True])
def test_a_box_holds_what_the_whole_does(name: str, *, pull: bool) -> None:
    here = make_plan(CHAINS[name]().surface()).surface
    places, count = np.arange(here.topology.space.count), here.topology.time.count
    reference = Evaluator()
    whole = reference.surface(here, places)
    shape = whole.value.shape
    pulled = frozenset(item.token for item in here.list_chain()[1:]) if pull else frozenset[str]()
    evaluator = Evaluator(pulled=pulled)
    for times in (np.arange(2), np.arange(2, count), np.arange(1, count, 3)):
        for some in (places[:3], places[3:]):
            box = evaluator.surface(here, some, times)
            index = np.ix_(times, some)
            np.testing.assert_allclose(box.value, whole.value[index], rtol=1e-11, atol=1e-11)
            for found, wanted in ((box.count, whole.count), (box.possible, whole.possible)):
                found = np.broadcast_to(found, box.value.shape)
                np.testing.assert_array_equal(found, np.broadcast_to(wanted, shape)[index])
            assert (box.variance is None) == (whole.variance is None)
            if box.variance is not None and whole.variance is not None:
                np.testing.assert_allclose(box.variance, whole.variance[index], rtol=1e-9, atol=1e-9)
    assert evaluator.diagnostics.notes == reference.diagnostics.notes
    assert evaluator.left_out == reference.left_out
    assert {grid: marks.tolist() for grid, marks in evaluator.diagnostics.extrapolated.items()} == {
        grid: marks.tolist() for grid, marks in reference.diagnostics.extrapolated.items()
    }
