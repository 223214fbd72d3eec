"""The picture of example 5.3.2 (figures 5.8 and 5.9): rain above radiation, by day and hour, 15 % walked beside all.

``python -m tests.bench.hypergrid_pictures OUT`` makes the sample network, writes ``pair.png`` into a folder, and says
what was computed and how well it tells the whole.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hypergrid.core.result_names import by_role, value_of
from hypergrid.query import Query
from station_data.sky import ANCHOR, RAIN, RainEvent
from tests.bench.hypergrid_cases import Sample, Sizes, sample
from tests.bench.hypergrid_walk import pair
from tests.bench.walk_quality import FRACTION, correlation

Floats = NDArray[np.float64]

LABELS = {"rain": "rain [mm h$^{-1}$]", "radiation": "radiation [W m$^{-2}$]"}


@dataclass(frozen=True, eq=False)
class Shown:
    """One quantity, walked in part and whole."""

    some: Floats
    """The picture that a walk's share gives, the rest estimated, shape (days, hours)."""
    full: Floats
    work: float
    """Share of the cells that were computed for it."""
    readings: float
    """Share of the readings that were averaged for it, or of the increments that were added up."""

    @property
    def correlation(self) -> float:
        """Pearson's, of both pictures."""
        return correlation(self.some, self.full)


def shown(query: Query, *, seed: int = 0) -> Shown:
    """Walk a share of a query's cells, as pages and `refine` do where a walk pays, and compute all of them."""
    whole = query.compute()
    cells = round(FRACTION * query.plan().cells)
    walk = query.refine(order="walk", seed=seed, fraction=FRACTION, min_gain=0)
    state = next(dropwhile(lambda one: one.cells < cells, walk))
    known = np.isfinite(value_of(state.dataset()))
    used = float(by_role(state.dataset())["count"].where(known, 0).sum() / by_role(whole)["count"].sum())
    return Shown(state.estimate, value_of(whole).to_numpy().reshape(-1, 24), state.cells / state.total, used)


def darkness(picture: Floats, event: RainEvent, start: str) -> float:
    """Return the mean radiation of an event's hours over that of the same hours of the darker day beside it.

    Parameters
    ----------
    picture
        Radiation, shape (days, hours) [W m-2].
    event
        When it rains.
    start
        The first day of the picture.
    """
    begin = event.start_day - float((np.datetime64(start, "D") - ANCHOR) / np.timedelta64(1, "D"))
    day, hour = int(begin), round(begin % 1 * 24)
    before, during, after = (picture[one, hour : hour + round(event.hours)].mean() for one in (day - 1, day, day + 1))
    return float(during / min(before, after))


def drawn(quantities: Mapping[str, Shown], start: str) -> Figure:
    """Return the picture: days to the right, hours upwards, the walked part left, events between white bars."""
    figure = Figure(figsize=(10.0, 4.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, (name, label) in zip(panels, LABELS.items(), strict=True):
        one = quantities[name]
        low, high = float(np.nanmin(one.full)), float(np.nanmax(one.full))
        for axes, picture in zip(row, (one.some, one.full), strict=True):
            days = np.datetime64(start, "D") + np.arange(len(picture) + 1)
            mesh = axes.pcolormesh(days, np.arange(25), picture.T, vmin=low, vmax=high, cmap="viridis")
            axes.tick_params(labelsize=8)
            _mark(axes, days)
        row[0].set(ylabel="hour [UTC]", yticks=range(0, 25, 6))
        figure.colorbar(mesh, ax=row, label=label, pad=0.01)
    for axes, title in zip(
        panels[0],
        (f"{100 * FRACTION:.0f} % of the cells walked, the rest estimated", "all cells computed"),
        strict=True,
    ):
        axes.set_title(title, fontsize=10)
    ticks = np.datetime64(start, "D") + np.arange(1, 28, 5)
    panels[1, 0].set_xticks(ticks, [f"{day.item():%d %b}" for day in ticks])
    return figure


def _mark(axes: Axes, days: NDArray[np.datetime64]) -> None:
    for event in RAIN:
        day = ANCHOR.astype("datetime64[D]") + np.timedelta64(int(event.start_day), "D")
        if days[0] <= day < days[-1]:
            for side in (day, day + np.timedelta64(1, "D")):
                axes.axvline(side, color="white", linewidth=0.8)
            axes.text(day + np.timedelta64(1, "D"), 23.5, f" {event.name}", color="white", fontsize=8, va="top")


def write(made: Sample, out: Path) -> tuple[Path, dict[str, Shown]]:
    """Write the picture into a folder, and return its path and what it shows."""
    out.mkdir(parents=True, exist_ok=True)
    quantities = {name: shown(query) for name, query in pair(made).items()}
    path = out / "pair.png"
    drawn(quantities, made.sizes.start).savefig(path, dpi=90)
    return path, quantities


def main(out: Path) -> None:
    """Write the picture, and say what it shows."""
    with sample(Sizes(), lambda _stage, _done: None) as network:
        path, quantities = write(network, out)
    for name, one in quantities.items():
        print(
            f"{name}: {100 * one.work:.1f} % of the cells computed, from {100 * one.readings:.1f} % of the readings; "
            f"correlation with the whole {one.correlation:.2f}"
        )
    radiation = quantities["radiation"]
    for event in RAIN:
        some, full = (100 * darkness(picture, event, Sizes().start) for picture in (radiation.some, radiation.full))
        print(f"{event.name}: radiation {some:.0f} % of the darker day beside it where walked, {full:.0f} % in full")
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
