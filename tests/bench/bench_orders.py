"""Walk, coarse to fine and row by row: how far the picture that is shown is off, by the share of cells computed.

Pictures of the sample network: rain and radiation at one station by day and hour (example 5.3.2), and maps by kriging.
At each share the rest is estimated as it is for whoever watches (`complete`). An error is the root mean square
difference from the whole picture, over the standard deviation of that. Of walks it is the median, with the range.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.result_names import value_of
from hypergrid.execution.orders.orders import WALK, make_lattice, make_order
from hypergrid.execution.orders.walk import WalkSettings
from hypergrid.query import Query
from tests.bench.hypergrid_cases import Sample, Sizes, sample
from tests.bench.hypergrid_walk import pair
from tests.bench.kriging_figures import Tell, machine
from tests.bench.walk_quality import completed, correlation

Floats = NDArray[np.float64]

SHARES: Final = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)
NAMES: Final = ("coarse_to_fine", WALK, "raster")
WALKS: Final = 20
TOLD: Final = (0.05, 0.15, 0.5)
"""Shares of the short table."""


def _map(name: str, **changed: object) -> Callable[[Sample], Query]:
    """Return a maker of a reference query, its grid or its clip changed."""

    def made(network: Sample) -> Query:
        document = copy.deepcopy(network.query(name))
        for step in document["steps"]:
            if "grid" in step:
                step["grid"] |= changed.get("grid", {})
        if "clip" in changed:
            document["clip"] = {"time": changed["clip"]}
        return hg.open(network.archive).query(document)

    return made


PICTURES: Final[Mapping[str, Callable[[Sample], Query]]] = {
    "radiation, 28 days x 24 hours": lambda network: pair(network)["radiation"],
    "rain, 28 days x 24 hours": lambda network: pair(network)["rain"],
    "Q1, 23 x 23": _map("q1"),
    "Q2, 23 x 23": _map("q2"),
    "Q1, 200 x 200": _map("q1", grid={"lon": "7:10:36", "lat": "45:51:59", "step": "0.125arcsec", "shape": [200, 200]}),
    "Q5 at one noon, 92 x 92": _map("q5_fine", clip=["2007-10-01T12:00Z", "2007-10-01T12:15Z"]),
}
"""Maps, of which the first time cell is judged, and series of one station."""

CASES: Final = ("all",)


@dataclass(frozen=True)
class Curve:
    """One picture in one order."""

    picture: str
    order: str
    errors: list[float]
    """By `SHARES`; of walks the median."""
    least: list[float]
    greatest: list[float]
    correlations: list[float]
    """With the whole picture; of walks the median."""

    def at(self, share: float) -> str:
        """Return error and correlation at a share, for people."""
        number = SHARES.index(share)
        return f"{self.errors[number]:.2g} ({round(self.correlations[number], 2) + 0.0:.2f})"


def served(query: Query, slices: Floats, order: str, seed: int) -> NDArray[np.intp]:
    """Return the cells of a picture in the order in which the engine computes them, from its values by `whole`."""
    lattice = make_lattice(query.plan().surface)
    serving, found = make_order(order, lattice, WalkSettings(seed=seed)), []
    while len(cells := serving.next_cells(lattice.cells)):
        serving.add_values(cells, slices.reshape(len(slices), -1)[:, cells])
        found.append(cells)
    return np.concatenate(found)


def whole(query: Query) -> Floats:
    """Return all cells in rows and columns, shape (time cells of a map or 1, rows, columns)."""
    lattice = make_lattice(query.plan().surface)
    return value_of(query.compute()).to_numpy().reshape(-1, lattice.rows, lattice.columns)


def told(full: Floats, cells: NDArray[np.intp]) -> tuple[list[float], list[float]]:
    """Return errors and correlations of a picture by `SHARES` of its cells."""
    pictures = [completed(full, cells[: round(share * full.size)]) for share in SHARES]
    errors = [float(np.sqrt(np.mean(np.square(one - full))) / full.std()) for one in pictures]
    return errors, [correlation(one, full) for one in pictures]


def curves(name: str, query: Query, *, walks: int = WALKS) -> list[Curve]:
    """Return how a picture, of a map the first time cell, sharpens in each order."""
    slices, found = whole(query), []
    for order in NAMES:
        seeds = range(walks if order == WALK else 1)
        errors, alike = np.moveaxis([told(slices[0], served(query, slices, order, seed)) for seed in seeds], 1, 0)
        middle = np.median(errors, axis=0), errors.min(axis=0), errors.max(axis=0), np.median(alike, axis=0)
        found.append(Curve(name, order, *(one.tolist() for one in middle)))
    return found


def off(measured: list[Curve]) -> dict[str, float]:
    """Return by order the geometric mean of the errors, over all pictures and all shares below the whole."""
    return {
        order: float(np.exp(np.mean([np.log(one.errors[:-1]) for one in measured if one.order == order])))
        for order in NAMES
    }


def measure(
    case: str = "all",
    *,
    pairs: int = 5,
    notify: Tell = lambda _stage, _done: None,
    sizes: Sizes | None = None,
    names: tuple[str, ...] = tuple(PICTURES),
    walks: int = WALKS,
) -> dict[str, Any]:
    """Return the curves of the pictures.

    Parameters
    ----------
    case, pairs
        Of every benchmark; here there is one, and nothing is timed.
    tell
        Told how far it is.
    sizes
        How large the sample network is.
    names
        Which of `PICTURES`.
    walks
        Walks that a median is of.
    """
    sizes = sizes or Sizes()
    found: list[Curve] = []
    with sample(sizes, notify) as network:
        for number, name in enumerate(names):
            notify("draw the pictures", number / len(names))
            found += curves(name, PICTURES[name](network), walks=walks)
        notify("draw the pictures", 1.0)
    return {
        "case": case,
        "network": sizes.describe(),
        "shares": SHARES,
        "walks": walks,
        "curves": [asdict(one) for one in found],
        "off": off(found),
        "machine": machine(),
        "pairs": pairs,
    }


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows."""
    curves = {(one["picture"], one["order"]): Curve(**one) for one in measured["curves"]}
    shown: list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]] = []
    for picture in dict.fromkeys(name for name, _ in curves):
        rows = [
            (f"{100 * share:g}", *(curves[picture, order].at(share) for order in NAMES)) for share in measured["shares"]
        ]
        shown.append((f"{picture}: error (correlation)", ("% of the cells", *NAMES), rows))
    means = [(order, f"{value:.3f}") for order, value in measured["off"].items()]
    return [*shown, ("Geometric mean of the errors below 100 %", ("order", "error"), means)]
