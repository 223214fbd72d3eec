"""Arrival of readings at the base station: lag, random delay, retries and buffered uploads."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from station_data.clock import NOMINAL_S, draw, station_generator


@dataclass(frozen=True)
class Upload:
    """A station that buffers its readings and sends them together."""

    period_s: int
    """Time between uploads [s]."""
    order: Literal["oldest_first", "newest_first"]


UPLOADS: dict[str, Upload] = {
    "6": Upload(1800, "oldest_first"),
    "13": Upload(3600, "newest_first"),
    "18": Upload(21_600, "oldest_first"),
    "21": Upload(1800, "newest_first"),
}
"""Stations with buffered upload; oldest first keeps order but not promptness, newest first neither."""
SENDING_S = 0.05
"""Time between two readings of one upload [s]."""
BASE_LAG_S = (1.0, 40.0)
"""Range of a station's constant lag, drawn uniformly [s]."""
RANDOM_DELAY_S = 2.0
"""Mean of the exponential part of the delay [s]."""
RETRY_SHARE = {0: 0.0, 1: 0.02, 2: 0.10}
"""Share of the readings that are sent again later, by the station's number modulo 3."""
# More than a sampling interval, so that newer readings overtake it.
RETRY_S = (150.0, 900.0)
"""Delay of a retry, drawn uniformly [s]."""


def arrival_times(
    seed: int, station: str, numbers: NDArray[np.int64], taken_s: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Compute the arrival of each reading [s since 1970, UTC], to the millisecond, never before sampling.

    Parameters
    ----------
    seed, station, numbers
        Identify the readings.
    taken_s
        True sampling times [s since 1970].
    """
    uniform = draw(seed, "arrival", station, numbers, 3)
    low, high = BASE_LAG_S
    lag = low + (high - low) * station_generator(seed, "arrival", station).random()
    upload = UPLOADS.get(station)
    if upload is None:
        delay = lag - RANDOM_DELAY_S * np.log1p(-uniform[:, 0])
        retried = uniform[:, 1] < RETRY_SHARE[int(station) % 3]
        delay = delay + retried * (RETRY_S[0] + (RETRY_S[1] - RETRY_S[0]) * uniform[:, 2])
        return np.round(taken_s + delay, 3)
    sent = (taken_s // upload.period_s + 1) * upload.period_s
    # The position in the upload follows from the time within the period, not from the given rows, so it is independent
    # of the generated span.
    age = taken_s % upload.period_s if upload.order == "oldest_first" else sent - taken_s
    return np.round(sent + lag + SENDING_S * age / NOMINAL_S, 3)
