"""What errors of regional means hold at once."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from hypergrid.interpolation import variogram
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.uncertainty import block_variance
from hypergrid.interpolation.uncertainty.block_variance import regions_of


def test_right_hand_sides_of_blocks_are_made_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_variance, "SIDES_BYTES", 2**21)
    rng = np.random.default_rng(3)
    stations = Stations(rng.uniform(0, 1000, (60, 2)), tuple(map(str, range(60))))
    model = variogram("exponential", psill=1.0, range_m=300.0, nugget=0.1)
    field = KrigingField(KrigingSystem.of(stations, model), rng.normal(10, 2, (3, 60)))
    parts, cells = 64, 1000
    targets = Targets(rng.uniform(0, 1000, (cells * parts, 2)), weights=np.full(parts, 1 / parts))
    each = sparse.csr_array(sparse.eye_array(cells))
    regions_of(field, targets.take_targets(slice(0, 1)), each[:1, :1])
    tracemalloc.start()
    try:
        found = regions_of(field, targets, each)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < cells * parts * 60 * 8 / 2, f"{peak / 2**20:.1f} MiB"
    few = regions_of(field, targets.take_targets(slice(5, 9)), each[:4, :4])
    np.testing.assert_allclose(found.full[5:9], few.full, rtol=1e-9)
