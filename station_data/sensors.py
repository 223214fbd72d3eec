"""The sensors: noise, offset, range and resolution of each variable, without faults."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from station_data.clock import draw, station_generator
from station_data.truth import VARIABLES

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sensor:
    """Deviation of a sensor from the truth; all in the variable's unit."""

    noise: float
    """Standard deviation of one reading."""
    offset: float = 0.0
    """Standard deviation, over the stations, of a constant offset."""
    relative_noise: float = 0.0
    """Standard deviation of one reading as a share of the value."""
    low: float = -np.inf
    high: float = np.inf
    step: float = 0.0
    """Resolution: values are rounded down to its multiples; 0 keeps the three decimals of the files."""


SENSORS: Mapping[str, Sensor] = {
    "air_temperature": Sensor(noise=0.12, offset=0.06),
    "surface_temperature": Sensor(noise=0.25, offset=0.1),
    "solar_radiation": Sensor(noise=1.5, relative_noise=0.03, low=0.0),
    "relative_humidity": Sensor(noise=0.8, offset=0.5, low=0.0, high=100.0),
    "soil_moisture": Sensor(noise=0.25, offset=0.3, low=0.0, high=100.0),
    "watermark": Sensor(noise=0.3, offset=0.3, high=0.0),
    "rain_meter": Sensor(noise=0.0, step=0.2),
    "wind_speed": Sensor(noise=0.35, relative_noise=0.08, low=0.0),
    "wind_direction": Sensor(noise=8.0, offset=2.0),
}


def measure(seed: int, station: str, numbers: NDArray[np.int64], true_values: Floats) -> Floats:
    """Simulate the readings of sensors without faults.

    Parameters
    ----------
    seed, station, numbers
        Identify the readings.
    true_values
        Truth, shape ``(len(numbers), 9)``, columns as in ``VARIABLES``.

    Returns
    -------
    ndarray
        Readings of the same shape.
    """
    width = len(VARIABLES)
    uniform = draw(seed, "noise", station, numbers, width)
    # Uniform numbers can be 0, whose normal quantile is infinite.
    normal = ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12))
    offsets = station_generator(seed, "noise", station).standard_normal(width)
    readings = np.empty_like(true_values)
    for column, variable in enumerate(VARIABLES):
        sensor = SENSORS[variable]
        spread = np.hypot(sensor.noise, sensor.relative_noise * true_values[:, column])
        values = true_values[:, column] + sensor.offset * offsets[column] + spread * normal[:, column]
        if sensor.step:
            values = np.floor(values / sensor.step + 1e-9) * sensor.step
        if variable == "wind_direction":
            values = np.mod(values, 360.0)
        readings[:, column] = np.clip(values, sensor.low, sensor.high)
    return readings
