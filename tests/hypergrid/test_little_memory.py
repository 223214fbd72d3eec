"""Queries that are given less memory than they would take: refused with both numbers, or the same result."""

from collections.abc import Callable

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.core.errors import TooLarge
from hypergrid.query import Query
from tests.support.chains import CHAINS, GRID, MODEL, hourly, network

SHARES = (0.8, 0.6, 0.4, 0.25, 0.15, 0.1)
"""Of the memory that a query takes where it is not short."""
QUERIES: dict[str, Callable[[], Query]] = CHAINS | {
    "converted maps": lambda: (
        hourly()
        .interpolate("inverse_distance", grid=GRID)
        .convert("scale", factor=1.7, offset=3.1)
        .aggregate("mean", time="6h")
    ),
    "sliding means of local kriging": lambda: (
        network(300)
        .interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=4)
        .aggregate("mean", time={"length": "2h", "step": "20min"}, min_coverage=0)
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_less_memory_gives_the_same_result_or_a_refusal(name: str) -> None:
    query = QUERIES[name]()
    whole, needed = query.compute(), query.plan().projected_bytes
    for share in SHARES:
        allowed = round(share * needed)
        try:
            result = query.compute(allowed_bytes=allowed)
        except TooLarge as error:
            assert f"{allowed:,}" in str(error) or str(allowed) in str(error)  # noqa: PT017 - of which shares is not known
            continue
        assert result.sizes == whole.sizes
        for label, values in whole.data_vars.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(result[label], values, rtol=1e-9, atol=1e-9)


def test_large_results_take_memory_that_another_left() -> None:
    maps = network(1).interpolate("nearest", grid=hg.grid(x=(0, 2100), y=(0, 2000), step=1))
    first = maps.compute()["air_temperature"].to_numpy().copy()
    np.testing.assert_array_equal(maps.compute()["air_temperature"], first)
