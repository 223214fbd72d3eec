"""Queues of windows: against a list, over the bounds of blocks, and kept as a state."""

import numpy as np
import pytest

from hypergrid.continuous.engine.batch import pick
from hypergrid.continuous.engine.kernels.windows import are_in_order
from hypergrid.continuous.engine.operators.window import (
    BLOCK_ROWS,
    LEAST_FOR_RUNS,
    MOST_SLICES,
    Fifo,
    find_shown,
    round_up,
)
from hypergrid.continuous.expressions import GREATEST_INTEGER, NULL_INTEGER


@pytest.mark.parametrize("seed", range(5))
def test_a_queue_is_a_list_of_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queue, rows, newest = Fifo(), [], 0
    for _ in range(60):
        count = int(rng.choice([0, 1, 7, BLOCK_ROWS // 2, BLOCK_ROWS, 2 * BLOCK_ROWS + 1]))
        stamps = newest + np.cumsum(rng.integers(0, 3, count))
        slots = rng.integers(0, 1000, count)
        newest = int(stamps[-1]) if count else newest
        queue.append(slots, stamps)
        rows += zip(slots.tolist(), stamps.tolist(), strict=True)
        bound = int(rng.integers(rows[0][1] if rows else 0, newest + 2))
        assert queue.count_before(bound) == sum(stamp < bound for _, stamp in rows)
        first, stop = sorted(rng.integers(0, len(rows) + 1, 2).tolist())
        assert queue.slots(first, stop).tolist() == [slot for slot, _ in rows[first:stop]]
        assert queue.stamps(first, stop).tolist() == [stamp for _, stamp in rows[first:stop]]
        leaving = int(rng.integers(0, len(rows) + 1)) if rng.random() < 0.5 else 0
        queue.drop(leaving)
        rows = rows[leaving:]
        assert len(queue) == len(rows)
        # Parts of the first and the last block, and a block that is kept for rows to come.
        held = sum(block.nbytes for block in (*queue._blocks, *queue._spare))
        assert held <= 16 * (len(rows) + 3 * BLOCK_ROWS)
        other = Fifo()
        other.load(queue.save())
        assert other.slots(0, len(other)).tolist() == [slot for slot, _ in rows]


def test_positions_past_the_end_are_empty() -> None:
    queue = Fifo()
    assert len(queue.stamps(5, 0)) == 0
    queue.append(np.arange(3), np.arange(3))
    assert len(queue.slots(2 * BLOCK_ROWS, 3)) == 0


@pytest.mark.parametrize("slide", [1, 7, 1000, 5 * 10**3, 10**12, 2**62])
@pytest.mark.parametrize("spread", [3, 10**6, 10**15])
def test_stamps_are_rounded_up_to_multiples_of_a_slide(slide: int, spread: int) -> None:
    rng = np.random.default_rng(slide % 97 + spread % 89)
    for middle in (NULL_INTEGER + spread + 1, -(10**15), 0, 5 * 10**17, GREATEST_INTEGER - spread - 1):
        stamps = np.sort(middle + rng.integers(-spread, spread, LEAST_FOR_RUNS + 100))
        for part in (stamps, stamps[:50], stamps[:0]):
            rounded = [min(-(-stamp // slide) * slide, GREATEST_INTEGER) for stamp in part.tolist()]
            assert round_up(part, slide).tolist() == rounded
            for span in {1, slide // 3 + 1, slide}:
                shown = [multiple - stamp < span for multiple, stamp in zip(rounded, part.tolist(), strict=True)]
                positions = find_shown(part, slide, span)
                assert (positions is None) == all(shown)
                assert (
                    positions is None
                    or pick(np.arange(len(part)), positions).tolist() == np.flatnonzero(shown).tolist()
                )
    assert round_up(stamps, 0) is stamps


@pytest.mark.parametrize("count", [1, 3, 8, 9])
@pytest.mark.parametrize("gap", [1, 50])
def test_few_stretches_that_show_are_slices_also_with_gaps_between(count: int, gap: int) -> None:
    slide, span = 100, 10
    # Bursts of which the last ten instants show, and those before do not.
    ends = slide * gap * np.arange(1, count + 1)
    stamps = np.sort((ends[:, None] - np.arange(LEAST_FOR_RUNS) % 50).ravel())
    shown = find_shown(stamps, slide, span)
    assert shown is not None
    assert isinstance(shown, list) == (count <= MOST_SLICES)
    assert pick(stamps, shown).tolist() == [stamp for stamp in stamps.tolist() if -stamp % slide < span]


def test_one_instant_before_another_is_seen_wherever_it_stands() -> None:
    extremes = np.iinfo(np.int64)
    assert are_in_order(np.empty(0, np.int64))
    assert are_in_order(np.array([extremes.min, extremes.min, extremes.max, extremes.max]))
    assert not are_in_order(np.array([extremes.max, extremes.min]))
    for count in (*range(1, 20), 1000):
        instants = np.arange(count) // 2
        assert are_in_order(instants)
        for at in range(count - 1):
            moved = instants.copy()
            moved[at] = count
            assert not are_in_order(moved), (count, at)
