"""How far estimates and variances are from PyKrige's on a few slices, and a time mean from the mean of its slices."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from tests.bench.kriging_cases import Case
from tests.bench.kriging_figures import Tell
from tests.bench.kriging_ours import all_slices, all_variances, time_mean
from tests.bench.kriging_peer import peer_points, peer_slice

LIMIT = 1e-10
"""Greatest difference allowed [the values' unit, or its square]."""

SLICES = 3
"""Slices that are compared, of those that differ in mask the first, a middle and the last."""

MOST_PRODUCTS = 10**10
"""Stations squared times cells above which the peer krige from all stations at some cells only: hours otherwise."""

SAMPLE = 300
"""Cells that are compared then."""


def agreement(case: Case, readings: xr.DataArray, *, notify: Tell) -> list[dict[str, Any]]:
    """Return the greatest differences by what was compared."""
    chosen = np.unique(np.linspace(0, case.slices - 1, SLICES).round().astype(int))
    notify(f"{case.name}: differences", 0.0)
    found = _sampled(case, readings, chosen) if _is_large(case) else _whole(case, readings, chosen)
    if case.neighbours is not None:
        notify(f"{case.name}: differences", 0.5)
        local = all_slices(case, readings, neighbours=case.neighbours)
        theirs = [peer_slice(case, readings, int(one), neighbours=case.neighbours)[0] for one in chosen]
        found[f"k = {case.neighbours} nearest"] = _greatest(local[chosen], np.stack(theirs))
    notify(f"{case.name}: differences", 1.0)
    slices = ", ".join(map(str, chosen))
    return [
        {"name": name, "slices": slices, "greatest": value, "goal": LIMIT, "met": value <= LIMIT}
        for name, value in found.items()
    ]


def _is_large(case: Case) -> bool:
    return case.stations**2 * case.side**2 > MOST_PRODUCTS


def _whole(case: Case, readings: xr.DataArray, chosen: NDArray[np.intp]) -> dict[str, float]:
    """Compare all cells, with their variances, and the time mean with the mean of the slices."""
    values, variances = all_variances(case, readings)
    theirs = [peer_slice(case, readings, int(one)) for one in chosen]
    return {
        "all stations": _greatest(values[chosen], np.stack([estimate for estimate, _ in theirs])),
        "variance, all stations": _greatest(variances[chosen], np.stack([variance for _, variance in theirs])),
        "time mean, from the mean of all slices": _greatest(time_mean(case, readings)[0], values.mean(axis=0)),
    }


def _sampled(case: Case, readings: xr.DataArray, chosen: NDArray[np.intp]) -> dict[str, float]:
    """Compare some cells."""
    rows, columns = np.random.default_rng(3).integers(0, case.side, size=(2, SAMPLE))
    places = np.stack([case.centres_m[columns], case.centres_m[rows]], axis=1)
    values = all_slices(case, readings)[:, rows, columns]
    theirs = [peer_points(case, readings, int(one), places) for one in chosen]
    return {f"all stations, {SAMPLE} cells": _greatest(values[chosen], np.stack(theirs))}


def _greatest(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    return float(np.abs(ours - theirs).max())
