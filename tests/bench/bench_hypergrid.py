"""Figures 5.3 to 5.10 of the thesis on the sample network: what the engine is worth, part by part.

Each figure is the median of interleaved pairs with their range. What is compared is checked to agree in the same run.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from tests.bench import (
    hypergrid_array,
    hypergrid_buffers,
    hypergrid_engine,
    hypergrid_growing,
    hypergrid_rewriting,
    hypergrid_strategies,
    hypergrid_walk,
)
from tests.bench.hypergrid_cases import Sample, Sizes, sample
from tests.bench.kriging_figures import COLUMNS, Figure, Tell, machine

Part = Callable[[Sample, int, Tell], dict[str, Any]]

PARTS: Mapping[str, Part] = {
    "array": hypergrid_array.measure,
    "rewriting": hypergrid_rewriting.measure,
    "buffers": hypergrid_buffers.measure,
    "strategies": hypergrid_strategies.measure,
    "walk": hypergrid_walk.measure,
}
"""What is measured on the sample network, in the order of the figures."""

TITLES = {
    "array": "Figure 5.3: a hand-written script of xarray and PyKrige [there], HyperGrid [here]",
    "rewriting": "Figure 5.4: as written, or unfused [there], rewritten, or fused [here]",
    "buffers": "Figure 5.5: a plan short of memory without what it keeps from box to box [there], with it [here]",
    "strategies": "Figures 5.6 and 5.7: every hybrid-k beside the chosen one [there]",
    "walk": "Figure 5.10: the whole picture [there], 15 % of it walked [here]",
    "engine": "The engine [here] over bare kernels [there]",
    "growing": "A slice more: what it touches [here], everything anew [there]",
}

CORRELATION = ("name", "order", "median", "least", "greatest", "mean", "goal", "met")
"""Columns of the table of correlations."""

CASES = (*PARTS, "engine", "growing", "all")
"""What can be asked for."""


def measure(
    case: str = "all", *, pairs: int = 5, notify: Tell = lambda _stage, _done: None, sizes: Sizes | None = None
) -> dict[str, Any]:
    """Return the figures by part, with the differences of what is compared.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Pairs that a median is of.
    tell
        Told how far it is.
    sizes
        How large everything is, smaller in tests; the thesis's where absent.
    """
    sizes = sizes or Sizes()
    result: dict[str, Any] = {
        "case": sizes.describe(),
        "script": f"pandas {version('pandas')} (pyarrow) from CSV files, xarray {version('xarray')}, "
        f"PyKrige {version('pykrige')} with its C backend, one call a slice",
        "pairs": pairs,
        "machine": machine(),
        "parts": {},
    }
    wanted = [name for name in PARTS if case in (name, "all")]
    if wanted:
        with sample(sizes, notify) as made:
            result["parts"] |= {name: PARTS[name](made, pairs, notify) for name in wanted}
    if case in ("engine", "all"):
        result["parts"]["engine"] = hypergrid_engine.measure(sizes.engine, pairs, notify)
    if case in ("growing", "all"):
        result["parts"]["growing"] = hypergrid_growing.measure(sizes.growth, pairs, notify)
    return result


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows."""
    shown: list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]] = []
    for name, part in measured["parts"].items():
        case = part.get("case", measured["case"])
        rows = [Figure.from_json(row).row() for row in part["figures"]]
        shown.append((f"{TITLES[name]}; {case}", COLUMNS, rows))
        differences = [(row["name"], row["greatest"], row["goal"], row["met"]) for row in part["differences"]]
        shown.append((f"{name}: greatest differences", ("what", "greatest", "goal: at most", "met"), differences))
        if "correlation" in part:
            title = f"Figures 5.8 and 5.9: correlation with the whole picture, {part['seeds']} seeds"
            rows = [tuple(_short(row[column]) for column in CORRELATION) for row in part["correlation"]]
            shown.append((title, CORRELATION, rows))
    return shown


def _short(value: object) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
