"""Names of the functions and methods that are built in, for editors; a user may add others."""

from typing import Literal

ConvertName = Literal["valid_range", "scale", "limit", "clear_sky_index", "from_clear_sky_index", "wet"]
AggregateName = Literal[
    "mean", "sum", "min", "max", "count", "first", "last", "sample", "variance", "standard_deviation", "median",
    "quantile", "circular_mean", "exceedance", "degree_days", "trend", "rain_accumulation",
]  # fmt: skip
MergeName = Literal[
    "difference", "ratio", "anomaly", "standardised_anomaly", "dew_point", "relative_humidity",
    "vapour_pressure_deficit", "absolute_humidity", "specific_humidity", "potential_temperature", "eastward_wind",
    "northward_wind", "wind_speed", "wind_direction",
]  # fmt: skip
MethodName = Literal[
    "auto", "recipe", "ordinary_kriging", "simple_kriging", "universal_kriging", "external_drift_kriging",
    "inverse_distance", "nearest", "linear", "radial_basis", "spline",
]  # fmt: skip
"""Methods over space and over time."""
RefinementOrder = Literal["coarse_to_fine", "raster", "walk", "algorithm_9", "by_time"]
"""Orders in which a refined answer computes its cells."""
