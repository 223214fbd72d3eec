"""What is held beside Spark's own watermark, in small."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.core.times import SECOND_NS
from ingest.streaming.assembler import Assembler
from tests.bench import ingest_orders
from tests.bench.ingest_watermark import SLICE_S, arrived, by_slice, compare, least_delay_s, not_passed
from tests.bench.wo_join_cases import Sizes
from tests.bench.wo_join_orders import Case
from tests.support.streams.loads import station_load
from tests.support.streams.slice_windows import Slices

SLICE = 10**9


class Followed(NamedTuple):
    whole: float
    held: list[int]


def _followed(
    time_ns: NDArray[np.int64], batch: NDArray[np.int64], slice_ns: int, delay_s: int, *, waiting: bool
) -> Followed:
    """Go through it as Spark does, batch by batch."""
    held: list[tuple[int, int]] = []
    broken, seen, counts = set(), set(), []
    mark = before = -(10**18)
    for number in range(int(batch.max()) + 1):
        own = time_ns[batch == number].tolist()
        # Late is what the watermark of the batch before had passed; closed is what this one's has.
        for one in own:
            end = (one // slice_ns + 1) * slice_ns
            seen.add(end)
            if end <= before:
                broken.add(end)
            else:
                held.append((end, one))
        held = [one for one in held if one[0] > mark]
        before, mark = mark, max(mark, max(own) - delay_s * SECOND_NS)
        if not waiting:
            # An empty batch follows.
            held, before = [one for one in held if one[0] > mark], mark
        counts.append(len(held))
    return Followed(1 - len(broken) / len(seen), counts)


@pytest.mark.parametrize("waiting", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_delay_is_the_least_that_leaves_as_many_slices_whole(seed: int, *, waiting: bool) -> None:
    rng = np.random.default_rng(seed)
    time_ns = (np.sort(rng.integers(0, 60, 300)) - rng.integers(0, 15, 300) + 100) * SLICE + 5
    batch = np.arange(300) // 20
    for share in (0.5, 0.9, 1.0):
        delay_s = least_delay_s(time_ns, batch, SLICE, share, waiting=waiting)
        found = _followed(time_ns, batch, SLICE, delay_s, waiting=waiting)
        assert found.whole >= share
        assert delay_s == 0 or _followed(time_ns, batch, SLICE, delay_s - 1, waiting=waiting).whole < share
        if not waiting:
            assert not_passed(time_ns, batch, SLICE, delay_s).tolist() == found.held


def test_what_spark_holds_until_as_many_slices_are_whole() -> None:
    rows = arrived(station_load("scrambled, lag 10 min", streams=8, keys=600).arrivals())
    found = compare(rows, lambda order: Assembler(SLICE_S, order=order, expected=rows.origins), batches=20, at_once=8)
    assert found["rows"] == 8 * 600
    # By its delay Spark has, in truth, as many whole slices, and holds what it would be thought to.
    assert found["Spark's whole"] >= found["whole at first closing"] >= 0.97
    batch = np.repeat(np.arange(20), 240)
    expected = _followed(rows.time_ns, batch, round(SLICE_S * SECOND_NS), found["Spark's delay [s]"], waiting=True)
    assert found["Spark's rows"] == pytest.approx(np.mean(expected.held), rel=0.02)
    assert 0 < found["rows held"] < found["Spark's rows"]
    assert found["saved"] == pytest.approx(1 - found["rows held"] / found["Spark's rows"])
    assert found["by slice: saved"] > 0.1
    # In order of time more is held, for longer.
    assert found["in order: closed behind a later one"] == 0 < found["by slice: closed behind a later one"]
    assert found["by slice: rows held"] < found["in order: rows held"]
    assert 0 < found["by slice: latency [s]"] < found["in order: latency [s]"]
    assert found["Spark's state [bytes]"] > 0


def test_the_stream_holds_what_its_batches_of_a_slice_hold() -> None:
    load = station_load("scrambled, lag 10 min", streams=6, keys=300).arrivals()
    slice_ns = round(SLICE_S * SECOND_NS)
    case, slices = Case(load, load.key * slice_ns, slice_ns, 86_400 * SECOND_NS), Slices.of(load)
    rows = arrived(load)
    parts = np.array_split(np.arange(len(load)), len(load) // 6)
    expected = by_slice(rows, lambda order: Assembler(SLICE_S, order=order, expected=rows.origins), parts)
    for name, in_order in (("by slice", False), ("in order", True)):
        found = ingest_orders.hold(case, slices, Sizes(), in_order)
        assert found.tuples.mean() == pytest.approx(expected[f"{name}: rows held"])
        assert found.at.tolist() == [part[-1] for part in parts]
        # What is still held at the end counts as whole here, and as not closed there.
        assert found.whole.mean() == pytest.approx(expected[f"{name}: whole"], abs=0.01)
        assert found.waited_s > 0
