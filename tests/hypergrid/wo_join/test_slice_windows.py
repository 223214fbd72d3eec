"""Fixed windows of slices, against an oracle that goes through the arrivals one by one and tries every size."""

from collections import deque
from pathlib import Path

import numpy as np
import pytest

from tests.support.stream_loads import small_load
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.loads import SETTINGS, stamped_load
from tests.support.streams.replay import station_stamps
from tests.support.streams.slice_windows import Slices

STAMPS = Path(__file__).parents[4] / "shared" / "data" / "sensorscope_gsb"


def emitted(arrivals: Arrivals, sizes: list[int], *, in_order: bool) -> dict[int, bool]:
    """Go through the arrivals; return whether each slice was whole when it was emitted, by key."""
    tuples = list(zip(arrivals.stream.tolist(), arrivals.key.tolist(), strict=True))
    missing = {key: sum(1 for _, other in tuples if other == key) for _, key in tuples}
    windows: list[deque[int]] = [deque() for _ in sizes]
    lost: set[int] = set()
    whole: dict[int, bool] = {}
    for stream, key in tuples:
        windows[stream].append(key)
        missing[key] -= 1
        if len(windows[stream]) > sizes[stream]:
            lost.add(windows[stream].popleft())
        for other in sorted(missing):
            if other in whole:
                continue
            if other in lost or missing[other] == 0:
                whole[other] = other not in lost
            elif in_order:
                break
    return whole


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_windows_give_the_slices_that_a_walk_through_the_arrivals_gives(seed: int, *, in_order: bool) -> None:
    arrivals = small_load(seed, most_streams=4)
    slices, rng = Slices.of(arrivals), np.random.default_rng(seed)
    for _ in range(4):
        sizes = rng.integers(1, 12, arrivals.streams)
        expected = emitted(arrivals, sizes.tolist(), in_order=in_order)
        assert dict(zip(slices.keys.tolist(), slices.whole(sizes, in_order=in_order).tolist(), strict=True)) == expected
        counts = np.cumsum([arrivals.stream == number for number in range(arrivals.streams)], axis=1)
        assert slices.held(sizes) == pytest.approx(np.minimum(counts, sizes[:, None]).sum(axis=0).mean())


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_windows_that_give_every_slice_are_the_smallest(seed: int, *, in_order: bool) -> None:
    arrivals = small_load(seed, most_streams=4)
    slices = Slices.of(arrivals)
    one, each = (slices.smallest(1.0, each=each, in_order=in_order) for each in (False, True))
    size = next(
        size
        for size in range(1, len(arrivals) + 1)
        if all(emitted(arrivals, [size] * arrivals.streams, in_order=in_order).values())
    )
    assert one.tolist() == [size] * arrivals.streams
    assert slices.whole(each, in_order=in_order).all()
    for stream in range(arrivals.streams):
        lower = each - (np.arange(arrivals.streams) == stream)
        assert lower.min() == 0 or not all(emitted(arrivals, lower.tolist(), in_order=in_order).values())
    # Nobody holds less who gives all of them; a window holds what it needs no more, too.
    assert slices.least_held(in_order=in_order) <= slices.held(each) <= slices.held(one)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_windows_of_a_share_are_of_hindsight(seed: int, *, in_order: bool) -> None:
    arrivals = small_load(seed, most_streams=4)
    slices = Slices.of(arrivals)
    all_of, some = (slices.smallest(share, each=True, in_order=in_order) for share in (1.0, 0.8))
    assert some.sum() <= all_of.sum()
    if not in_order:
        # In order of time, slices that are given up are counted as if they held nothing up.
        assert slices.whole(some, in_order=False).mean() >= 0.8
    # Windows of some of the slices are those of a network that brought no other.
    chosen = slices.keys < np.median(slices.keys)
    if chosen.any():
        sizes = slices.smallest(1.0, each=True, in_order=in_order, chosen=chosen)
        assert slices.whole(sizes, in_order=in_order, chosen=chosen).all()


def test_what_must_be_held_in_each_order() -> None:
    # Slice 1 is whole with the fourth tuple, slice 2 with the third: in order of time its tuples wait one tuple longer.
    arrivals = Arrivals(2, np.array([0, 0, 1, 1], np.int32), np.array([1, 2, 2, 1]), np.zeros(4), np.arange(4))
    slices = Slices.of(arrivals)
    # Each tuple waits from its arrival to the emission of its slice: 3 + 1 + 0 + 0 tuples, and 3 + 2 + 1 + 0.
    assert slices.least_held(in_order=False) == 1.0
    assert slices.least_held(in_order=True) == 1.5
    assert slices.smallest(1.0, each=True, in_order=False).tolist() == [2, 1]
    assert slices.smallest(1.0, each=True, in_order=True).tolist() == [2, 2]


def test_recorded_stamps_are_sent_with_the_disorder_of_a_setting() -> None:
    stamps = [np.arange(0, 40_000, 121) + 86_400, np.delete(np.arange(60, 40_000, 119), slice(100, 150)) + 86_400]
    for setting in SETTINGS:
        load = stamped_load(stamps, setting, seed=1)
        assert np.all(np.diff(load.arrival_ns) >= 0)
        for stream, own in enumerate(stamps):
            sent = load.take(load.stream == stream)
            # Each reading is there once, in its slice; days count from the first.
            assert sorted(sent.payload.tolist()) == (own - 86_400).tolist()
            assert np.array_equal(sent.key, sent.payload.astype(np.int64) // 120)
            waits_s = sent.arrival_ns / 1e9 - np.sort(sent.payload)
            assert np.ptp(waits_s) < 1e-6
            assert 0 <= waits_s[0] <= SETTINGS[setting][1]
            if SETTINGS[setting][0] == 0:
                assert np.all(np.diff(sent.payload) > 0)


def test_stamps_of_the_grand_st_bernard(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="give where the recording lies"):
        station_stamps(tmp_path)
    if not STAMPS.is_dir():
        pytest.skip("the real stamps ../shared/data/sensorscope_gsb are not here")
    stamps = station_stamps(STAMPS, days=2)
    assert len(stamps) == 14
    assert {int(own[0]) // 86_400 for own in stamps} == {int(own[-1]) // 86_400 - 1 for own in stamps}
    assert all(np.all(np.diff(own) > 0) and 1_000 < len(own) < 1_500 for own in stamps)
