"""Picture of the stations' positions, with a title: for what has no result to draw yet."""

import textwrap

import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine

from hypergrid.plots.kinds import HALO, MAX_LABELLED, Picture, Stations, mark_stations

FEWEST_FOR_SMALL = 300
"""Number of stations from which marks are small."""


def plot_positions(stations: Stations, *, title: str) -> Picture:
    """Draw where stations are.

    Parameters
    ----------
    stations
        Stations of an archive, or of a query; those without a position are left out.
    title
        Text above the map; the whole picture if no position is known.
    """
    marks = [mark for mark in mark_stations(stations) if np.isfinite(mark.x) and np.isfinite(mark.y)]
    picture = Picture(figsize=(7.2, 5.6), dpi=120, layout=ConstrainedLayoutEngine())
    heading = textwrap.fill(title, 60)
    if not marks:
        picture.text(0.5, 0.5, heading, fontsize=15, ha="center", va="center")
        return picture
    axes = picture.add_subplot()
    x, y = np.array([(mark.x, mark.y) for mark in marks]).T
    size = 12 if len(marks) >= FEWEST_FOR_SMALL else 45
    axes.scatter(x, y, s=size, facecolor="#0072B2", edgecolor="white", linewidth=0.6)
    for mark in marks if len(marks) <= MAX_LABELLED else ():
        axes.annotate(
            mark.name, (mark.x, mark.y), (5, 4), textcoords="offset points", fontsize=7, path_effects=HALO
        )  # fmt: skip
    # A degree of longitude shrinks with the cosine of the latitude, which is bounded, as it vanishes at the poles.
    axes.set_aspect(1 / max(float(np.cos(np.radians(y.mean()))), 0.05), adjustable="datalim")
    axes.margins(0.12)
    axes.grid(visible=True, alpha=0.3)
    axes.ticklabel_format(useOffset=False)
    axes.locator_params(nbins=5)
    axes.set_xlabel("longitude [degree east]")
    axes.set_ylabel("latitude [degree north]")
    axes.set_title(heading, fontsize=11, loc="left")
    return picture
