"""Standing queries: what sharing saves, how fresh they are live, and what each strategy makes of a live load."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.bench import standing_live, standing_sharing, standing_strategies
from tests.bench.kriging_figures import Tell, machine

PARTS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "sharing": standing_sharing.measure,
    "freshness": standing_live.measure,
    "live": standing_strategies.measure,
}
TITLES = {
    "sharing": "What a slice costs: many standing queries from few templates, and the templates alone",
    "freshness": "Live, a slice each two seconds: freshness, and updates by weight over a bound by linear programme",
    "live": "Live, standing queries at an overload of 1.5 and users' questions beside them, by strategy",
}
CASES = (*PARTS, "all")
"""What can be asked for."""


def measure(
    case: str = "all",
    *,
    pairs: int = 5,
    notify: Tell = lambda _stage, _done: None,
    **sizes: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Return the figures by part.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Slices that a median of costs is of.
    tell
        Told how far it is.
    sizes
        Of the part, smaller in tests.
    """
    chosen = {name: part for name, part in PARTS.items() if case in (name, "all")}
    return {
        "machine": machine(),
        "pairs": pairs,
        "parts": {name: part(pairs, notify, **sizes) for name, part in chosen.items()},
    }


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows; each figure is a row."""
    shown = []
    for name, part in measured["parts"].items():
        # What each round gave is in the document alone.
        names = tuple(name for name in part["rows"][0] if name != "rounds")
        columns = ("figure", *(_head(row) for row in part["rows"]))
        rows = [(figure, *(_short(row.get(figure)) for row in part["rows"])) for figure in names]
        shown.append((TITLES[name], columns, rows))
    return shown


def _head(row: Mapping[str, Any]) -> str:
    return row["strategy"] if "strategy" in row else f"load {row['load']:g}" if "load" in row else "here"


def _short(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) else value
