from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from station_data.faults import wrong_zone_station
from station_data.generate import UPLOADS

Table = NDArray[np.float64]
DAY_START = float(np.datetime64("2007-10-01", "s").astype(np.int64))


def scrambling_factor(keys: NDArray[np.float64]) -> int:
    """Largest PI(s) - PI(s') over pairs with s.A <= s'.A, by looking at every pair."""
    largest = 0
    for place, key in enumerate(keys):
        for earlier in range(place):
            if key <= keys[earlier]:
                largest = max(largest, place - earlier)
                break
    return largest


@pytest.fixture(scope="module")
def one_day(four_weeks: Path, read_arrivals: Callable[[Path], Table]) -> Table:
    arrivals = read_arrivals(four_weeks)
    return arrivals[(arrivals[:, 1] >= DAY_START) & (arrivals[:, 1] < DAY_START + 86_400)]


def test_each_reading_has_one_arrival_in_order(
    four_weeks: Path, read_text: Callable[[Path, str], Table], read_arrivals: Callable[[Path], Table]
) -> None:
    arrivals = read_arrivals(four_weeks)
    assert (np.diff(arrivals[:, 2]) >= 0).all()
    for station in range(1, 25):
        times = np.sort(arrivals[arrivals[:, 0] == station, 1])
        np.testing.assert_array_equal(times, read_text(four_weeks, str(station))[:, 7])


def test_nothing_arrives_before_it_was_taken(four_weeks: Path, read_arrivals: Callable[[Path], Table]) -> None:
    arrivals = read_arrivals(four_weeks)
    delay = arrivals[:, 2] - arrivals[:, 1]
    late = arrivals[:, 0] == int(wrong_zone_station(2007, 24) or 0)
    assert delay[~late].min() > 0.0
    # Its stamps are two hours ahead, the base station's clock is right.
    assert -7200.0 < delay[late].min() < -7000.0


@pytest.mark.parametrize(
    ("station", "low", "high"),
    [
        (3, 0, 0),  # number divisible by 3: no retry
        (15, 0, 0),
        (1, 1, 9),  # remainder 1: 2 % retried, 150 to 900 s late, overtaken by up to 8 readings
        (4, 1, 9),
        (2, 3, 12),  # remainder 2: 10 % retried
        (6, 0, 0),  # upload each half hour, oldest first
        (21, 13, 14),  # upload each half hour, newest first: 15 readings reversed
        (13, 28, 30),  # upload each hour, newest first: 30 readings reversed
        (18, 0, 0),  # upload each six hours, oldest first
    ],
)
def test_disorder_by_station(one_day: Table, station: int, low: int, high: int) -> None:
    keys = one_day[one_day[:, 0] == station, 1]
    assert keys.size > 500
    assert low <= scrambling_factor(keys) <= high


def test_uploads_come_together(one_day: Table) -> None:
    for station, upload in UPLOADS.items():
        arrivals = one_day[one_day[:, 0] == int(station), 2]
        # A burst lasts less than a minute; between bursts the line is silent.
        bursts = 1 + int((np.diff(arrivals) > 60.0).sum())
        assert bursts == 86_400 // upload.period_s
