"""Figures 4.6 to 4.13, 5.13 and 5.14 of the thesis: what each strategy earns when there is not time for all.

Simulated on a moved clock with the strategies that live workers use; only what handlers cost is timed. Each shape that
the thesis tells of is a record that holds or does not.
"""

from collections.abc import Mapping
from typing import Any

from tests.bench import scheduling_figures as figures
from tests.bench import scheduling_hybrid, scheduling_optimum, scheduling_shapes
from tests.bench.kriging_figures import Tell, machine
from tests.bench.scheduling_cases import LATE, QUICK, SWEEPS, Sizes
from tests.support.scheduling.quality import Overheads
from tests.support.scheduling.updates import CLASSES

CASES = ("u", "batching", "sweeps", "updates", "optimum", "all")
"""What can be asked for."""
ALSO = ("weighted", "token score", "longest wait")
"""Columns of figure 5.14, of the score of 5.11 and of starvation [slices], after the classes of queries."""


def measure(
    case: str = "all",
    *,
    pairs: int = 5,  # noqa: ARG001 - no medians here
    notify: Tell = lambda _stage, _done: None,
    sizes: Sizes | None = None,
    quick: bool = False,
) -> dict[str, Any]:
    """Return the figures by part, and whether what the thesis tells of them holds.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Not used: nothing is timed.
    tell
        Told how far it is.
    sizes
        How large everything is; the thesis's where absent.
    quick
        Whether a minute's version is enough.
    """
    sizes = sizes or (QUICK if quick else Sizes())
    parts: dict[str, Any] = {}
    shapes: list[dict[str, Any]] = []
    if case in ("optimum", "all"):
        parts["optimum"] = scheduling_optimum.measure(sizes, notify)
    if case in ("u", "all"):
        for figure, scores in figures.u_scores(sizes, notify).items():
            us = figures.DD_US if figure == "4.6" else figures.PD_US
            parts[figure] = {"title": f"Figure {figure}: coefficient u", "rows": figures.table(scores, us, "u")}
    if case in ("batching", "all"):
        parts["handlers"] = {
            "title": "Cost of the handlers, measured, and as the figures take it",
            "rows": figures.handler_costs(sizes, notify),
        }
        batching = figures.batching_scores(sizes, notify)
        for cost, scores in batching.items():
            rows = figures.table(scores, figures.BATCHINGS, "batching")
            parts[f"4.8, {cost}"] = {"title": f"Figure 4.8: tuple batching, cost of handlers: {cost}", "rows": rows}
        shapes += scheduling_shapes.of_batching(batching)
    if case in ("sweeps", "all"):
        swept = figures.sweep_scores(sizes, notify)
        for name, by_late in swept.items():
            sweep = SWEEPS[name].cut(sizes.values)
            title = f"Figure {name}: {sweep.title}" if name[0].isdigit() else sweep.title.capitalize()
            for late in LATE:
                rows = figures.table(by_late[late], list(sweep.points), sweep.what)
                key = name if late == LATE[0] else f"{name}, late {late}"
                parts[key] = {"title": f"{title}; late {late}", "rows": rows}
        shapes += scheduling_shapes.of_sweeps(swept, sizes)
        hybrid = scheduling_hybrid.of_hybrid(swept, sizes)
        shapes += hybrid.pop("shapes")
        parts["hybrid"] = {"title": "Hybrid: regret against the best single strategy, late dropped by all", **hybrid}
    if case in ("updates", "all"):
        updates = figures.update_scores(sizes, notify)
        rows = figures.table(updates, (*CLASSES, *ALSO), "updates of")
        parts["5.13"] = {"title": "Figures 5.13 and 5.14: updates of a query for one of the base", "rows": rows}
        shapes += scheduling_shapes.of_updates(updates)
        by_weights = figures.update_scores(sizes, notify, profits="weights")
        rows = figures.table(by_weights, (*CLASSES, *ALSO), "updates of")
        title = "Figures 5.13 and 5.14 with weights as profits in place of tokens"
        parts["5.13, by weights"] = {"title": title, "rows": rows}
    return {
        "machine": machine(),
        "seeds": sizes.seeds,
        "duration_s": sizes.duration_s,
        "overheads": vars(Overheads()),
        "parts": parts,
        "shapes": shapes,
    }


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows."""
    shown: list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]] = []
    for name, part in measured["parts"].items():
        title = part.get("title", "Schedules that earn less than the linear programme with precedence")
        if name in ("optimum", "hybrid", "handlers"):
            shown.append((title, *_listed(part["rows"])))
            if "always" in part:
                shown.append(("Regret of each strategy, were it always taken", *_listed(part["always"])))
            continue
        shown.append((title, *_crossed(part["rows"])))
    rows = [
        (shape["shape"], shape["holds"], "{:+.4f} to {:+.4f}".format(*shape["interval"]), shape["reason"])
        for shape in measured["shapes"]
    ]
    if rows:
        shown.append((f"Shapes, {measured['seeds']} seeds", ("shape", "holds", "interval", "reason"), rows))
    return shown


def _listed(rows: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return rows as they are."""
    return tuple(rows[0]), [tuple(row.values()) for row in rows]


def _crossed(rows: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return one row a strategy and one column a value, means with half of their intervals."""
    what = next(name for name in rows[0] if name not in ("strategy", "mean", "low", "high"))
    values = list(dict.fromkeys(row[what] for row in rows))
    by_strategy: dict[str, list[str]] = {}
    for row in rows:
        by_strategy.setdefault(row["strategy"], []).append(f"{row['mean']:.3f} ±{row['high'] - row['mean']:.3f}")
    columns = (what, *(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values))
    return columns, [(name, *cells) for name, cells in by_strategy.items()]
