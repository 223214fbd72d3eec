"""The plot of `viz/README.md`: errors and correlations of pictures by the share of cells computed, in each order.

``python -m tests.bench.orders_pictures OUT`` measures as ``hypergrid bench orders`` does, writes ``orders.png`` into a
folder, and prints the table that stands beside it.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.bench.bench_orders import NAMES, SHARES, TOLD, Curve, measure

LOOKS: Final = {
    "coarse_to_fine": ("coarse to fine", {"color": "#0072B2", "marker": "o"}),
    "walk": ("walk: median and range", {"color": "#D55E00", "marker": "s"}),
    "raster": ("row by row", {"color": "#555555", "marker": "^", "linestyle": "--"}),
}
"""Label and look of each order; the colours differ for colour-blind eyes too."""
TICKS: Final = (2, 5, 10, 20, 50, 100)


def drawn(measured: Mapping[str, Any]) -> Figure:
    """Return the plot: three pictures beside each other, of each the error above the correlation."""
    curves = [Curve(**one) for one in measured["curves"]]
    names = list(dict.fromkeys(one.picture for one in curves))
    figure = Figure(figsize=(10.0, 4.4 * -(-len(names) // 3)), layout="constrained")
    panels = figure.subplots(2 * -(-len(names) // 3), 3, sharex=True, squeeze=False)
    for number, name in enumerate(names):
        row, column = divmod(number, 3)
        above, below = panels[2 * row, column], panels[2 * row + 1, column]
        for one in (one for one in curves if one.picture == name):
            _draw(above, below, one)
        above.set_title(name, fontsize=10)
        above.set_yscale("log")
        above.set_ylim(top=2.0)
        below.set_ylim(-0.35, 1.03)
        below.set_xscale("log")
        below.set_xticks(TICKS, [str(tick) for tick in TICKS])
        below.minorticks_off()
        for axes in (above, below):
            axes.grid(alpha=0.3, linewidth=0.5)
            axes.tick_params(labelsize=8)
    for row, axes in enumerate(panels[:, 0]):
        axes.set_ylabel(("error / standard deviation", "correlation")[row % 2], fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel("cells computed [%]", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    return figure


def _draw(above: Axes, below: Axes, one: Curve) -> None:
    label, look = LOOKS[one.order]
    percent = 100 * np.array(SHARES)
    look = {**look, "markersize": 3.5, "linewidth": 1.4}
    # Nothing is off where all is computed: no place on an axis of logarithms.
    above.plot(percent[:-1], one.errors[:-1], label=label, **look)
    above.fill_between(percent[:-1], one.least[:-1], one.greatest[:-1], color=look["color"], alpha=0.15, linewidth=0)
    below.plot(percent, one.correlations, **look)


def table(measured: Mapping[str, Any]) -> str:
    """Return errors at a few shares, as a table in Markdown."""
    curves = {(one["picture"], one["order"]): Curve(**one) for one in measured["curves"]}
    orders = [LOOKS[order][0].split(":")[0] for order in NAMES]
    lines = [f"| error (correlation) at {', '.join(f'{100 * share:g}' for share in TOLD)} % | {' | '.join(orders)} |"]
    lines.append("|---|" + "---|" * len(NAMES))
    for picture in dict.fromkeys(name for name, _ in curves):
        cells = [", ".join(curves[picture, order].at(share) for share in TOLD) for order in NAMES]
        lines.append(f"| {picture} | {' | '.join(cells)} |")
    means = [f"{measured['off'][order]:.3f}" for order in NAMES]
    return "\n".join([*lines, f"| geometric mean of all errors, 2 to 75 % | {' | '.join(means)} |"])


def write(measured: Mapping[str, Any], out: Path) -> Path:
    """Write the plot into a folder, and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "orders.png"
    drawn(measured).savefig(path, dpi=90)
    return path


if __name__ == "__main__":
    result = measure()
    print(table(result))
    print(write(result, Path(sys.argv[1])))
