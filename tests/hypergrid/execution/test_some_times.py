"""Some time cells of a series, computed without the others, are those of the whole."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg


@pytest.mark.parametrize("seed", range(4))
def test_increments_of_a_counter_between_two_cells_belong_to_the_later_one(seed: int) -> None:
    # A counter that grows at every reading: without the last one of the hour before, each hour would lack an increment.
    times = pd.date_range("2007-10-01", periods=4 * 24 * 6, freq="10min")
    counter = np.arange(len(times), dtype=float)[:, None] * 0.2
    coords = {"time": times, "x": ("station", [0.0]), "y": ("station", [0.0])}
    array = xr.DataArray(counter, coords, ("time", "station"), "rain_meter", {"units": "mm"})
    query = hg.base(array).aggregate("rain_accumulation", time="1h", min_coverage=0.0)
    whole = query.compute()["value"]
    np.testing.assert_allclose(whole[1:, 0], 1.2)
    *_, last = query.refine(order="walk", seed=seed, fraction=0.5, min_gain=0)
    np.testing.assert_allclose(last.dataset()["value"], whole, rtol=0, atol=1e-12)
