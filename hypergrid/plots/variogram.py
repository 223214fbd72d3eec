"""Picture of a fitted variogram: bins with their pairs, the model, and warnings."""

import textwrap
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from hypergrid.interpolation.variograms.fit import VariogramFit
from hypergrid.interpolation.variograms.variogram import Variogram
from hypergrid.plots.kinds import HALO, Picture

MODEL_COLOUR, BINS_COLOUR, DOUBT_COLOUR = "#0072B2", "0.25", "#A03C00"
"""Okabe and Ito's blue, a grey, and a dark vermilion: distinguishable without colour vision."""

MAX_LABELLED = 20
"""Number of bins up to which each is labelled with its pairs; more labels would overlap."""


def plot_variogram(fit: VariogramFit, *, unit: str = "", title: str | None = None) -> Figure:
    """Draw a variogram fit.

    Parameters
    ----------
    fit
        The fit; the reasons for a poor one are printed below the picture.
    unit
        Unit of the variable; the axis shows its square.
    title
        Replaces the title made from the model.
    """
    doubt = textwrap.wrap(fit.warning, 105)
    strip = 0.03 + 0.035 * len(doubt)
    figure = Picture(figsize=(7.2, 4.8), dpi=120, layout=ConstrainedLayoutEngine(rect=(0, strip, 1, 1 - strip)))
    axes = figure.add_subplot()
    per, length = (1000.0, "km") if fit.bins.cutoff_m >= 5000 else (1.0, "m")
    _draw_bins(axes, fit, per)
    _draw_model(axes, fit, per, length)
    axes.set_xlim(0, fit.bins.cutoff_m / per * 1.03)
    axes.set_ylim(0, _find_top(fit))
    axes.set_xlabel(f"distance [{length}]" + (" along the longest range" if fit.variogram.anisotropy else ""))
    axes.set_ylabel("semivariance" + (f" [({unit})²]" if unit else ""))
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc=_free_corner(fit), fontsize=8, framealpha=0.9)
    axes.set_title(title or describe_model(fit.variogram, per, length), fontsize=10, loc="left")
    made = (
        f"weights {fit.weights}, weighted residual {fit.weighted_residual:.4g}, explains {max(fit.explained, 0.0):.0%}"
    )
    figure.text(0.99, 0.008, made, fontsize=6.5, color="0.35", ha="right", va="bottom")
    if doubt:
        figure.text(0.01, 0.035, "\n".join(doubt), fontsize=8, color=DOUBT_COLOUR, ha="left", va="bottom")
    return figure


def _find_top(fit: VariogramFit) -> float:
    ends = fit.variogram.semivariance(np.array([fit.bins.cutoff_m]))
    return 1.12 * max(float(fit.bins.semivariance.max()), float(ends[0]))


def _free_corner(fit: VariogramFit) -> Literal["lower right", "upper left"]:
    """Return the corner without a bin below the legend; matplotlib's own choice ignores the bins."""
    right = fit.bins.semivariance[fit.bins.distance_m > fit.bins.cutoff_m / 2]
    return "lower right" if float(right.min(initial=np.inf)) > 0.28 * _find_top(fit) else "upper left"


def _draw_bins(axes: Axes, fit: VariogramFit, per: float) -> None:
    bins = fit.bins
    # The area shows the number of pairs; a minimum keeps small bins visible.
    areas = 12 + 110 * bins.pairs / bins.pairs.max()
    axes.scatter(
        bins.distance_m / per, bins.semivariance, s=areas, facecolor="white", edgecolor=BINS_COLOUR, zorder=3,
        label=f"bins ({bins.pairs.min():,} to {bins.pairs.max():,} pairs, by area)",
    )  # fmt: skip
    if len(bins.pairs) > MAX_LABELLED:
        return
    for distance, semivariance, pairs in zip(bins.distance_m / per, bins.semivariance, bins.pairs, strict=True):
        axes.annotate(
            _format_pairs(int(pairs)), (distance, semivariance), (0, -13), textcoords="offset points", fontsize=6,
            color=BINS_COLOUR, ha="center",
            path_effects=HALO,
        )  # fmt: skip


def _format_pairs(pairs: int) -> str:
    for size, letter in ((1_000_000, "M"), (1000, "k")):
        if pairs >= size:
            return f"{pairs / size:.3g}{letter}"
    return str(pairs)


def _draw_model(axes: Axes, fit: VariogramFit, per: float, length: str) -> None:
    model, bins = fit.variogram, fit.bins
    # A nugget begins above distance zero, where the semivariance itself is 0.
    distance = np.linspace(bins.cutoff_m / 1e4, bins.cutoff_m * 1.03, 400)
    name = " + ".join(term.model for term in model.structures)
    axes.plot(distance / per, model.semivariance(distance), color=MODEL_COLOUR, linewidth=1.8, label=name)
    if model.nugget < model.sill <= _find_top(fit):
        axes.axhline(model.sill, color=MODEL_COLOUR, linewidth=0.8, linestyle=":", label=f"sill {model.sill:.3g}")
    if 0 < model.effective_range_m <= bins.cutoff_m:
        label = f"effective range {model.effective_range_m / per:,.3g} {length}"
        axes.axvline(model.effective_range_m / per, color=MODEL_COLOUR, linewidth=0.8, linestyle="--", label=label)


def describe_model(model: Variogram, per: float, length: str) -> str:
    """Describe a variogram, with ranges in units of `length`, each of `per` metres."""
    terms = [f"nugget {model.nugget:.3g}"]
    for term in model.structures:
        if not term.psill:
            continue
        own = (("smoothness", term.smoothness), ("exponent", term.exponent))
        more = next((f", {name} {value:.3g}" for name, value in own if value is not None), "")
        terms.append(f"{term.psill:.3g} {term.model} ({term.range_m / per:,.4g} {length}{more})")
    ellipse = model.anisotropy
    turned = f"; longest range at {ellipse.angle_degree:g}°, ratio {ellipse.ratio:g}" if ellipse else ""
    return " + ".join(terms) + turned
