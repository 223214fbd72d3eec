"""Figure 5.3: Q1 to Q4 through the archive, beside the script that does them the array way."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import hypergrid as hg
from hypergrid.core.result_names import value_of
from hypergrid.interpolation.weight_cache import WEIGHTS
from tests.bench import hypergrid_script as script
from tests.bench.hypergrid_cases import Sample, wanted
from tests.bench.kriging_figures import Figure, Tell, Timings, faster, interleaved

QUERIES = ("q1", "q2", "q3", "q4")
GOALS = {"q1": 10.0, "q3": 10.0}
LIMIT = 1e-8
"""Greatest difference of the surfaces that is allowed [the variable's unit]."""


def measure(sample: Sample, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return the figures, and how far the surfaces are apart.

    Both sides answer from files at every call: here the archive is opened and read, there the CSV files; both hold all
    nine variables of the whole campaign. What the script does after reading is a figure of its own: no other format
    of its files could make it faster than that.
    """
    figures: list[Figure] = []
    differences = []
    for name in QUERIES:
        works, found = _works(sample, name)
        seconds = interleaved(works, pairs, notify=notify, stage=f"figure 5.3, {name}", warm_up=True)
        figures += _figures(name, seconds)
        ours, theirs = found["hypergrid"], found["script"]
        same_gaps = bool(np.array_equal(np.isfinite(ours), np.isfinite(theirs)))
        greatest = float(np.nanmax(np.abs(ours - theirs)))
        differences.append({"name": name, "greatest": greatest, "goal": LIMIT, "met": same_gaps and greatest <= LIMIT})
    return {"figures": [figure.to_json() for figure in figures], "differences": differences}


def _works(sample: Sample, name: str) -> tuple[dict[str, Callable[[int], None]], dict[str, Any]]:
    """Return what is timed, and where it leaves what it found."""
    document = sample.query(name)
    asked, found = wanted(document), dict[str, Any]()

    def hypergrid(_number: int) -> None:
        found["hypergrid"] = value_of(hg.open(sample.archive).query(document).compute()).to_numpy()[0]

    def cold(number: int) -> None:
        WEIGHTS.clear()
        hypergrid(number)

    def read(_number: int) -> None:
        found["readings"] = script.read(sample.stations / "csv", asked)

    def work(_number: int) -> None:
        stations = pd.read_csv(sample.stations / "stations.csv")
        found["script"] = script.mean_map(found["readings"], stations, asked).to_numpy()

    return {"hypergrid": hypergrid, "cold": cold, "read": read, "work": work}, found


def _figures(name: str, seconds: Timings) -> list[Figure]:
    whole = [read + work for read, work in zip(seconds["read"], seconds["work"], strict=True)]
    label, goal = name.upper(), GOALS.get(name)
    return [
        faster(f"{label}, reading included", seconds["hypergrid"], whole, what="script / hypergrid", goal=goal),
        faster(f"{label}, cold weights", seconds["cold"], whole, what="script / hypergrid", goal=goal),
        faster(
            f"{label}, the script's reading left out", seconds["hypergrid"], seconds["work"],
            what="script without reading / hypergrid with reading",
        ),
    ]  # fmt: skip
