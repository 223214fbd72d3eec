"""What the engine costs over bare kernels: the same arithmetic through a query, and by direct calls and numpy.

The bare form is what its author would write who knows the network, the cells and the kernels: no query, no plan, no
tokens, no counts, no attributes. It is given the memory that the engine keeps for large results: without it, fetching
new memory from the system would be charged to it alone.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.parameters import bind
from hypergrid.core.result_names import value_of
from hypergrid.execution.running.result_cache import allocate
from hypergrid.interpolation import Field, Targets
from hypergrid.interpolation.methods.registry import METHODS
from hypergrid.interpolation.points import Stations
from tests.bench.hypergrid_cases import Engine
from tests.bench.kriging_cases import Case, network
from tests.bench.kriging_figures import Figure, Tell, interleaved, slower
from tests.bench.kriging_ours import METHOD

Floats = NDArray[np.float64]

READINGS = 5
"""Readings a slice: one each 2 minutes, in slices of 10 minutes."""
LOW, HIGH = -40.0, 50.0
HOUR = 6
"""Slices an hour."""
PIECE = 2000
"""Cells at once where an aggregate follows: all slices of all cells would only be written and read again."""
GOAL = 1.1
LIMIT = 1e-9
"""Greatest difference that is allowed [K]."""

Work = Callable[[], Floats]


def measure(sizes: Engine, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return how many times longer the engine takes than the bare kernels, and how far their values are apart."""
    case = Case("engine", sizes.stations, sizes.side, sizes.slices, cell_m=100.0, range_m=5000.0, burst_slices=33.0)
    readings = every_two_minutes(case)
    bare = Bare(case, readings)
    query = aligned(case, readings)
    chains: dict[str, tuple[Work, Work]] = {
        "convert, align, krige": (lambda: values_of(query), lambda: bare.kriged(readings.to_numpy())),
        "convert, align, krige, hourly maximum": (
            lambda: values_of(query.aggregate("max", time="1h", min_coverage=0)),
            lambda: bare.hourly(readings.to_numpy()),
        ),
    }
    figures: list[Figure] = []
    differences = []
    for name, (engine, kernels) in chains.items():
        greatest = float(np.abs(engine().reshape(-1) - kernels().reshape(-1)).max())
        differences.append({"name": name, "greatest": greatest, "goal": LIMIT, "met": greatest <= LIMIT})
        works = {"engine": _untold(engine), "bare": _untold(kernels)}
        seconds = interleaved(
            works, pairs, notify=notify, stage=f"engine: {name}", warm_up=True, held_bytes=case.output_bytes
        )
        figures.append(slower(name, seconds["engine"], seconds["bare"], what="engine / bare kernels", goal=GOAL))
    return {"case": case.describe(), "figures": [figure.to_json() for figure in figures], "differences": differences}


def _untold(work: Work) -> Callable[[int], object]:
    return lambda _number: work()


def every_two_minutes(case: Case) -> xr.DataArray:
    """Return the readings of a case's slices, `READINGS` of each, shape (slices x READINGS, stations)."""
    readings = network(replace(case, slices=case.slices * READINGS))
    times = pd.date_range("2007-10-01", periods=len(readings), freq="2min")
    return readings.assign_coords(time=times)


def aligned(case: Case, readings: xr.DataArray) -> hg.Query:
    """Return the query: what is out of range is missing, means of what is left, kriged from all stations."""
    slices = (
        hg.base(readings).convert("valid_range", low=LOW, high=HIGH).aggregate("mean", time="10min", min_coverage=0)
    )
    return slices.interpolate(
        METHOD, grid=hg.grid(x=0.0, y=0.0, step=case.cell_m, shape=(case.side, case.side)), variogram=variogram(case)
    )


def values_of(query: hg.Query) -> Floats:
    """Return what a query gives."""
    return value_of(query.compute()).to_numpy()


def variogram(case: Case) -> hg.Variogram:
    """Return the variogram of a case."""
    return hg.variogram("exponential", psill=case.psill, range_m=case.range_m, nugget=case.nugget)


class Bare:
    """The same arithmetic by direct calls."""

    def __init__(self, case: Case, readings: xr.DataArray) -> None:
        self._case = case
        self._row = METHODS[METHOD]
        given = {"variogram": variogram(case)}
        self._given = self._row.parse(bind(METHOD, self._row.parameters, given, variable_unit="degC"))
        y, x = np.meshgrid(case.centres_m, case.centres_m, indexing="ij")
        self._cells_m = np.stack([x.ravel(), y.ravel()], axis=1)
        places = np.stack([readings["x"].to_numpy(), readings["y"].to_numpy()], axis=1)
        self._stations = Stations(places, tuple(map(str, range(case.stations))))

    def field(self, readings: Floats) -> Field:
        """Return the field of the cleaned and aligned readings."""
        clean = np.where((readings >= LOW) & (readings <= HIGH), readings, np.nan)
        by_slice = clean.reshape(-1, READINGS, clean.shape[1])
        there = np.isfinite(by_slice)
        counts = there.sum(axis=1)
        sums = np.where(there, by_slice, 0.0).sum(axis=1)
        means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
        return self._row.prepare(self._stations, means, self._given)

    def kriged(self, readings: Floats) -> Floats:
        """Return every slice, shape (slices, cells)."""
        out = allocate((self._case.slices, len(self._cells_m)))
        return self.field(readings).estimate(Targets(self._cells_m), out=out)

    def hourly(self, readings: Floats) -> Floats:
        """Return the greatest value of each hour, shape (hours, cells)."""
        field = self.field(readings)
        starts = np.arange(0, self._case.slices, HOUR)
        hours = np.empty((len(starts), len(self._cells_m)))
        for first in range(0, len(self._cells_m), PIECE):
            piece = slice(first, first + PIECE)
            # The last hour may be cut off.
            hours[:, piece] = np.maximum.reduceat(field.estimate(Targets(self._cells_m[piece])), starts, axis=0)
        return hours
