"""How the time grows: slices, cells and stations doubled four times, one at a time, and the exponents fitted.

Weights are dropped before each call, so that all the work is in the time. The smallest sizes take tens of milliseconds:
constant costs would make the growth look slower than it is.
"""

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hypergrid.core.result_names import value_of
from tests.bench.kriging_cases import Case, network
from tests.bench.kriging_figures import Tell, seconds_of
from tests.bench.kriging_ours import Floats, forget, query

DOUBLINGS = 4
REPEATS = 3
"""Calls of each size; the best counts, as what disturbs only adds."""

ALL = Case("growth", 100, 100, 400, cell_m=100.0, range_m=2500.0, burst_slices=33.0)
LOCAL = Case("growth", 200, 64, 100, cell_m=100.0, range_m=1600.0, burst_slices=33.0, neighbours=20)
"""The smallest sizes, from all stations and from the nearest."""

GOALS = {"slices": 1.1, "cells": 1.1, "stations": 1.3}
"""Greatest exponents."""

BASES = (("all stations", ALL, ("slices", "cells")), ("k nearest", LOCAL, ("slices", "cells", "stations")))
"""What is doubled of which."""


def measure(
    *, notify: Tell, bases: tuple[tuple[str, Case, tuple[str, ...]], ...] = BASES, doublings: int = DOUBLINGS
) -> list[dict[str, Any]]:
    """Return a row for each quantity that was doubled: sizes, seconds, the exponent, its goal."""
    rows = []
    for label, base, quantities in bases:
        for quantity in quantities:
            stage = f"growth: {label}, {quantity}"
            sizes, seconds = [], []
            for step in range(doublings + 1):
                notify(stage, (2**step - 1) / 2 ** (doublings + 1))
                case = _doubled(base, quantity, step)
                sizes.append({"slices": case.slices, "cells": case.side**2, "stations": case.stations}[quantity])
                seconds.append(_best(case))
            notify(stage, 1.0)
            exponent = fitted_exponent(sizes, seconds)
            rows.append({
                "method": label, "doubled": quantity, "fixed": _fixed(base, quantity), "sizes": sizes,
                "seconds": [float(f"{s:.4g}") for s in seconds], "exponent": round(exponent, 3),
                "last_doubling": round(fitted_exponent(sizes[-2:], seconds[-2:]), 3),
                "goal": GOALS[quantity], "met": exponent <= GOALS[quantity],
            })  # fmt: skip
    return rows


def tables(rows: list[dict[str, Any]]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return the growth as tables: title, columns, rows."""
    title = "growth: seconds of the best call as one size is doubled, weights cold"
    return [(title, COLUMNS, [_cells(row) for row in rows])]


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the growth as a table for a README."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *(_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


COLUMNS = ("method", "doubled", "fixed", "from, to", "seconds", "exponent", "of the last doubling", "goal")
"""The last doubling by itself tells whether constant costs still hide growth."""


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    seconds = ", ".join(f"{s:.3g}" for s in row["seconds"])
    ends = f"{row['sizes'][0]:,} to {row['sizes'][-1]:,}"
    goal = f"<= {row['goal']:g}: {'met' if row['met'] else 'missed'}"
    return (
        row["method"],
        row["doubled"],
        row["fixed"],
        ends,
        seconds,
        f"{row['exponent']:.2f}",
        f"{row['last_doubling']:.2f}",
        goal,
    )


def fitted_exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the slope of the least-squares line through the logarithms."""
    return float(statistics.linear_regression(np.log(sizes), np.log(seconds)).slope)


def _doubled(base: Case, quantity: str, times: int) -> Case:
    if quantity == "cells":
        # The same area in finer cells; a side is a whole number, so that cells are doubled to about a hundredth.
        side = round(base.side * 2 ** (times / 2))
        return replace(base, side=side, cell_m=round(base.extent_m / side, 3))
    if quantity == "slices":
        return replace(base, slices=base.slices * 2**times)
    return replace(base, stations=base.stations * 2**times)


def _best(case: Case) -> float:
    asked = query(case, network(case), neighbours=case.neighbours)

    def anew(_: int) -> Floats:
        forget()
        return value_of(asked.compute()).to_numpy()

    return min(seconds_of(anew, number) for number in range(REPEATS))


def _fixed(base: Case, quantity: str) -> str:
    sizes = {"stations": base.stations, "cells": base.side**2, "slices": base.slices}
    near = f"k = {base.neighbours}, " if base.neighbours else ""
    return near + ", ".join(f"{size:,} {name}" for name, size in sizes.items() if name != quantity)
