"""The picture of example 5.3.2, walked in part: what it tells of the rain events, and what was computed for it."""

from collections.abc import Iterator

import numpy as np
import pytest

from station_data.sky import RAIN
from tests.bench.hypergrid_cases import Sample, Sizes, sample
from tests.bench.hypergrid_pictures import Shown, darkness, shown, write
from tests.bench.hypergrid_walk import pair

EVENTS = {event.name: event for event in RAIN}
START = Sizes().start


@pytest.fixture(scope="module")
def made() -> Iterator[Sample]:
    with sample(Sizes(), lambda _stage, _done: None) as one:
        yield one


@pytest.fixture(scope="module")
def quantities(made: Sample, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    path, found = write(made, tmp_path_factory.mktemp("pictures"))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < 250_000
    return found


@pytest.mark.parametrize("event", ["E1", "E3"])
@pytest.mark.parametrize("picture", ["some", "full"])
def test_radiation_during_the_rain_is_below_that_of_the_days_beside(
    quantities: dict[str, Shown], picture: str, event: str
) -> None:
    values = getattr(quantities["radiation"], picture)
    day, begin, end = {"E1": (3, 9, 14), "E3": (20, 10, 14)}[event]  # 23 September, 10 October
    during, before, after = (values[one, begin:end].mean() for one in (day, day - 1, day + 1))
    assert during < 0.9 * before
    assert during < 0.9 * after
    assert darkness(values, EVENTS[event], START) < 0.9


def test_a_picture_is_told_by_15_percent_of_the_cells(quantities: dict[str, Shown]) -> None:
    for one in quantities.values():
        assert one.full.shape == one.some.shape == (28, 24)
        assert one.work == pytest.approx(101 / 672)
        assert one.readings == pytest.approx(0.15, abs=0.01)
        # What was walked is there as it is; the rest is estimated.
        assert np.count_nonzero(one.some == one.full) >= 101
        assert np.isfinite(one.some).all()
    assert quantities["radiation"].correlation > 0.93
    assert quantities["rain"].correlation > 0.7


def test_other_walks_tell_the_events_as_well(made: Sample) -> None:
    """Of 100 walks 62 do; the walk before, which went where a slope is steep, did in 37."""
    query = pair(made)["radiation"]
    dark = []
    for seed in range(1, 21):
        some = shown(query, seed=seed).some
        dark.append(all(darkness(some, EVENTS[name], START) < 1 for name in ("E1", "E3")))
    assert np.mean(dark) >= 0.5


def test_darkness_is_of_the_events_hours_and_of_the_darker_day_beside() -> None:
    picture = np.full((28, 24), 100.0)
    picture[2] = 80.0
    picture[3, 9:14] = 20.0
    assert darkness(picture, EVENTS["E1"], START) == pytest.approx(20 / 80)
    assert darkness(picture[1:], EVENTS["E1"], "2007-09-21") == pytest.approx(20 / 80)
