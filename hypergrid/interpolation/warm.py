"""Compile all kriging kernels ahead of the first large query: `python -m hypergrid.interpolation.warm`."""

import numpy as np

from hypergrid.interpolation.kernels import covariance_loops, imputation
from hypergrid.interpolation.kernels.covariance import CovariancePairs
from hypergrid.interpolation.kernels.local_task import ESTIMATES, ChunkOutput, task_of
from hypergrid.interpolation.local import numba_backend
from hypergrid.interpolation.local.neighbourhood import Neighbourhood, NeighbourSelection
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.variograms.variogram import variogram


def warm() -> None:
    """Compile every kernel for its only argument types; fast if cached on disk."""
    places_m = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    stations, targets = Stations(places_m, ("a", "b", "c")), Targets(places_m + 0.5)
    model = variogram("exponential", psill=1.0, range_m=1.0)
    around = Neighbourhood(KrigingSystem.of(stations, model), np.arange(3), NeighbourSelection(2))
    chunk = around.make_chunk(targets, 3)
    masks = [(np.ones(3, dtype=bool), np.arange(1))]
    task = task_of(ESTIMATES, masks, np.ones((1, 3)), model.sill, 2, 0).select_stations(chunk.numbers)
    output = ChunkOutput(np.empty((1, 3)), np.arange(3), np.zeros(3, dtype=np.int8))
    workspace = numba_backend.Workspace.empty(chunk, task, 64)
    numba_backend.run(chunk, task, workspace, output, 0, 3)
    points, wide = np.ascontiguousarray(places_m.T), np.empty((3, 4))
    pairs = CovariancePairs(points, points, np.array([[0.0, 1.0, 3.0]]), 0.0, 0.0, -1.0)
    for sides in (wide, wide[:, :3]):
        covariance_loops.write_covariances(pairs, sides, 0, 3)
    imputation.impute(np.eye(3), np.ones((1, 3), dtype=bool), np.ones((1, 3)), np.empty(1, dtype=bool), 0, 1)
    covariance_loops.write_products(pairs, np.ones((1, 3)), np.empty((1, 3)), 0, 3)


if __name__ == "__main__":
    warm()
