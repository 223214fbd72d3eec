"""Clocks of the stations: sampling times, and the random numbers of each reading.

Everything random about a reading is a function of (seed, purpose, station, number of the reading), never of the
generated period, so one day generated alone equals that day of four weeks.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from station_data.sky import ANCHOR

NOMINAL_S = 120
JITTER_S = 0.98
"""Width of the jitter of one sample [s]."""
RATE_ERROR_S = 0.004
"""Largest error of a station's period [s]; with the jitter below 1 - 2 * RATE_ERROR_S, periods are 119 to 121 s."""
BLOCK = 720
"""Readings that share a generator: one day of them."""
LOSS_RATE, MISSING_RATE = 0.004, 0.002
"""Shares of the readings that never arrive, and of single values that are missing, at random."""

Purpose = Literal["clock", "noise", "loss", "arrival"]
_PURPOSES: dict[Purpose, int] = {"clock": 1, "noise": 2, "loss": 3, "arrival": 4}


def station_generator(seed: int, purpose: Purpose, station: str) -> np.random.Generator:
    """Make the random generator of a station's constants: its phase, its offsets."""
    return np.random.default_rng([seed, _PURPOSES[purpose], int(station)])


def draw(seed: int, purpose: Purpose, station: str, numbers: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Draw uniform random numbers in [0, 1) for readings.

    Parameters
    ----------
    seed, purpose, station
        Identify the random stream.
    numbers
        Numbers of the readings, consecutive and ascending.
    width
        Random numbers per reading.

    Returns
    -------
    ndarray
        Shape ``(len(numbers), width)``.
    """
    if not numbers.size:
        return np.empty((0, width))
    first = int(numbers[0]) // BLOCK
    last = int(numbers[-1]) // BLOCK
    # Readings before the anchor have negative numbers, which are not valid in a seed.
    blocks = [
        np.random.default_rng([seed, _PURPOSES[purpose], int(station), block + (1 << 32)]).random((BLOCK, width))
        for block in range(first, last + 1)
    ]
    begin = int(numbers[0]) - first * BLOCK
    return np.concatenate(blocks)[begin : begin + numbers.size]


def dropouts(
    seed: int, station: str, numbers: NDArray[np.int64], width: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Draw masks of the lost readings, ``(readings,)``, and of the missing values, ``(readings, width)``."""
    uniform = draw(seed, "loss", station, numbers, width + 1)
    return uniform[:, 0] < LOSS_RATE, uniform[:, 1:] < MISSING_RATE


def sample_times(seed: int, station: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute a station's sampling times [s since 1970, UTC], whole seconds, 119 to 121 s apart."""
    constant = station_generator(seed, "clock", station).random(2)
    phase, rate = constant[0] * NOMINAL_S, (2.0 * constant[1] - 1.0) * RATE_ERROR_S
    jitter = JITTER_S * draw(seed, "clock", station, numbers, 1)[:, 0]
    seconds = np.floor(phase + (NOMINAL_S + rate) * numbers + jitter).astype(np.int64)
    return int(ANCHOR.astype("datetime64[s]").astype(np.int64)) + seconds


def numbers_between(seed: int, station: str, start_s: int, stop_s: int) -> NDArray[np.int64]:
    """Return the numbers of the readings taken in ``[start_s, stop_s)`` [s since 1970]."""
    anchor = int(ANCHOR.astype("datetime64[s]").astype(np.int64))
    # The clock's error grows with the distance from the anchor: 2 readings of margin and 1 in 10,000 cover it.
    margin = 2 + max(abs(start_s - anchor), abs(stop_s - anchor)) // NOMINAL_S // 10_000
    numbers = np.arange((start_s - anchor) // NOMINAL_S - margin, (stop_s - anchor) // NOMINAL_S + margin + 1)
    times = sample_times(seed, station, numbers)
    return numbers[(times >= start_s) & (times < stop_s)]
