"""Figures 3.7 to 3.15 and table 5.4 of the thesis, and throughput: what the join of streams holds, gives and takes.

What a policy gives is counted against all results that there are, and what it holds against the optimum, which knows
the future. Five loads a figure; each goal stands beside what was measured.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from tests.bench import (
    wo_join_accuracy,
    wo_join_buffers,
    wo_join_orders,
    wo_join_settings,
    wo_join_speed,
    wo_join_strategies,
)
from tests.bench.kriging_figures import COLUMNS, Figure, Tell, machine
from tests.bench.wo_join_cases import Sizes
from tests.bench.wo_join_strategies import spills

Part = Callable[[Sizes, int, Tell], dict[str, Any]]
Table = tuple[str, tuple[str, ...], list[tuple[object, ...]]]

PARTS: Mapping[str, Part] = {
    "buffers": lambda sizes, _, notify: wo_join_buffers.measure(sizes, notify),
    "accuracy": lambda sizes, _, notify: wo_join_accuracy.accuracy(sizes, notify),
    "window": lambda sizes, _, notify: wo_join_accuracy.windows(sizes, notify),
    **({"strategies": lambda sizes, _, notify: wo_join_strategies.measure(sizes, notify)} if spills() else {}),
    "table-5.4": lambda sizes, _, notify: wo_join_settings.measure(sizes, notify),
    "orders": lambda sizes, _, notify: wo_join_orders.measure(sizes, notify),
    "speed": wo_join_speed.measure,
}
"""What is measured, in the order of the thesis; strategies where joins can spill to disk."""

TITLES = {
    "buffers": "Figures 3.7 to 3.11: tuples of each input of a query's last join, means of {seeds} loads",
    "accuracy": "Share of the results, {seeds} loads",
    "window": "Figure 3.12: tuples held by all joins of a query, and by fixed windows of equal accuracy, {seeds} loads",
    "strategies": "Figures 3.13 to 3.15: a window, sorted first (msf), waiting on disk (dbf), or both, {seeds} loads",
    "table-5.4": "Table 5.4: {stations} stations, {slices} slices, {seeds} loads; settled: after {beginning} tuples",
    "orders": "Table 5.4 in both orders, beside windows, the published policy and a watermark, {seeds} loads",
    "speed": "Throughput of push, one core, warm",
}

CASES = (*PARTS, "all")
"""What can be asked for."""

SHOWN = {
    "table-5.4": (
        "setting", "lag", "policy", "optimum", "held", "settled", "goal", "met", "share", "least share", "window",
        "saving", "window each", "saving each", "thesis", "waits [s]", "slice waits [s]", "push [us]",
    ),
    "orders": (
        "network", "setting", "lag", "order", "loads", "least", "held", "share", "published", "published share",
        "window each", "saved, each", "saved at most", "window one", "next days: held", "next days: share",
        "day before", "day before: share", "a tenth more", "a tenth more: share", "watermark", "saved, watermark",
    ),
}  # fmt: skip
"""Columns of a table, where it does not show all."""


def measure(
    case: str = "all", *, pairs: int = 5, notify: Tell = lambda _stage, _done: None, sizes: Sizes | None = None
) -> dict[str, Any]:
    """Return the figures by part.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Runs that a median of times is of.
    tell
        Told how far it is.
    sizes
        How large everything is, smaller in tests; the thesis's where absent.
    """
    sizes = sizes or Sizes()
    return {
        "machine": machine(),
        "peers": {name: version(name) for name in ("pandas", "pyspark")},
        "pairs": pairs,
        "parts": {name: part(sizes, pairs, notify) for name, part in PARTS.items() if case in (name, "all")},
    }


def tables(measured: Mapping[str, Any]) -> list[Table]:
    """Return what `measure` returned as tables: title, columns, rows."""
    shown: list[Table] = []
    for name, part in measured["parts"].items():
        title = TITLES[name].format(**part)
        if name != "speed":
            title += "".join(f"; {reason}" for reason in part.get("absent", ()))
            shown.append(show_rows(title, part["rows"], SHOWN.get(name)))
            if "shapes" in part:
                shown.append(show_rows("What the thesis says of figures 3.13 to 3.15", part["shapes"], None))
            continue
        absent = f"; not installed here: {', '.join(part['absent'])}" if part["absent"] else ""
        shown.append((title + absent, COLUMNS, [Figure.from_json(row).row() for row in part["figures"]]))
        shown.append(
            show_rows("Results that both sides found", part["differences"], ("name", "here", "there", "of", "met"))
        )
        shown.append(show_rows("Spark's stream-stream join", part["spark"], None))
    return shown


def show_rows(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...] | None) -> Table:
    """Return rows as a table of some of their columns, or of all."""
    chosen = columns or tuple(rows[0])
    return title, chosen, [tuple(_short(name, row[name]) for name in chosen) for row in rows]


def _short(name: str, value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, list):
        return " / ".join(str(_short(name, one)) for one in value)
    if isinstance(value, float):
        if "share" in name or (name in ("least", "greatest") and value <= 1):
            return f"{value:.2%}"
        if "sav" in name:
            return f"{value:.0%}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return value
