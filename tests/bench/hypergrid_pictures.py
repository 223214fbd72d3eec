"""The pictures of example 5.3.2 (figures 5.8 and 5.9): rain above radiation, by day and hour, 15 % walked and all.

``python -m tests.bench.hypergrid_pictures OUT`` makes the sample network and writes ``walk_15.png`` and
``walk_100.png`` into a folder.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hypergrid.query import Query
from tests.bench.hypergrid_cases import Sample, Sizes, sample
from tests.bench.hypergrid_walk import pair
from tests.bench.walk_quality import FRACTION, walked

Floats = NDArray[np.float64]

SEED = 73
"""A walk of middling luck: it correlates with the whole (radiation 0.95, rain 0.53) as the median of 100 does."""

LABELS = {"rain": "rain [mm h$^{-1}$]", "radiation": "radiation [W m$^{-2}$]"}


def pictures(queries: Mapping[str, Query], *, seed: int = SEED) -> dict[str, dict[str, Floats]]:
    """Return both quantities by file name, each of shape (days, hours): walked and completed, and computed in full."""
    full = {name: query.compute()["value"].to_numpy().reshape(-1, 24) for name, query in queries.items()}
    some = {name: walked(query, seed, FRACTION)[0] for name, query in queries.items()}
    return {"walk_15": some, "walk_100": full}


def drawn(shown: Mapping[str, Floats], full: Mapping[str, Floats], start: str, title: str) -> Figure:
    """Return a picture: days to the right, hours upwards, colours of the whole picture's range."""
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    figure.suptitle(title, fontsize=10)
    for axes, (name, label) in zip(figure.subplots(2, 1, sharex=True), LABELS.items(), strict=True):
        days = np.datetime64(start, "D") + np.arange(len(shown[name]) + 1)
        low, high = float(np.nanmin(full[name])), float(np.nanmax(full[name]))
        mesh = axes.pcolormesh(days, np.arange(25), shown[name].T, vmin=low, vmax=high, cmap="viridis")
        axes.set(ylabel="hour [UTC]", yticks=range(0, 25, 6))
        axes.tick_params(labelsize=8)
        figure.colorbar(mesh, ax=axes, label=label)
    figure.axes[1].tick_params(axis="x", rotation=30)
    return figure


def write(made: Sample, out: Path) -> list[Path]:
    """Write both pictures into a folder, and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    found = pictures(pair(made))
    titles = {"walk_15": "15 % of the cells walked, the rest estimated", "walk_100": "all cells computed"}
    written = []
    for name, shown in found.items():
        path = out / f"{name}.png"
        drawn(shown, found["walk_100"], made.sizes.start, titles[name]).savefig(path, dpi=90)
        written.append(path)
    return written


if __name__ == "__main__":
    with sample(Sizes(), lambda _stage, _done: None) as network:
        for one in write(network, Path(sys.argv[1])):
            print(one)
