"""Memory of the windows of a query, which is projected before it starts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from hypergrid.continuous.algebra import Operator, WindowOf
from hypergrid.continuous.language import WindowProjection, project_windows
from hypergrid.continuous.records import Groups
from hypergrid.continuous.rewrite.trees import transform
from hypergrid.core.errors import InvalidQuery
from hypergrid.execution.planning.plan import free_bytes

ALLOWED_BYTES: Final = 256 * 2**20
"""Memory that the windows of a live query may take, unless more is allowed [bytes]."""

_SLIDES_S: Final = (10, 60, 600, 3600, 21_600, 86_400)
"""Slides that are suggested [s]."""
_UNITS: Final = ((86_400, "Day"), (3600, "Hour"), (60, "Minute"), (1, "Second"))

Rates = Mapping[str, float]


def find_free_share() -> int:
    """Return the memory that the windows of a query that ends may take, unless another limit is given [bytes]."""
    return free_bytes() // 2


def project_bytes(tree: Operator, rates: Rates, counts: Rates | None = None, groups: Groups | None = None) -> float:
    """Return the memory that the windows of a tree whose rows are known hold at mean rates [bytes].

    Parameters
    ----------
    tree
        Tree after rewriting.
    rates
        Mean rates of streams [rows/s].
    counts
        Elements that a stream has at most, where it ends.
    groups
        Distinct values of the columns of streams, at most.
    """
    return sum(size for _, size in _list_sizes(tree, rates, counts, groups))


def _list_sizes(
    tree: Operator, rates: Rates, counts: Rates | None, groups: Groups | None
) -> list[tuple[WindowProjection, float]]:
    parts = project_windows(tree, rates, counts, groups)
    return [(each, each.projected_bytes) for each in parts if each.projected_bytes is not None]


def suggest_fitting(
    tree: Operator, rates: Rates, allowed_bytes: int, counts: Rates | None = None, groups: Groups | None = None
) -> str:
    """Return which window holds most, and what would fit."""
    sized = _list_sizes(tree, rates, counts, groups)
    total = sum(size for _, size in sized)
    largest, size = max(sized, key=lambda part: part[1])
    remedies = []
    ranges = [(each, own) for each, own in sized if each.window.form == "range" and own]
    if ranges:
        longest, own = max(ranges, key=lambda part: part[1])

        def project(changed: WindowOf) -> float:
            replaced = transform(tree, lambda part: changed if part == longest.window else part)
            return project_bytes(replaced, rates, counts, groups)

        fitting_s = (allowed_bytes - (total - own)) / own * longest.span_s - longest.window.slide_ns / 1e9
        range_text = _find_range(longest.window, fitting_s, project, allowed_bytes)
        remedies += [f"{range_text} in place of its {longest.label}"] if range_text else []
        slide_text = _find_slide(longest.window, project, allowed_bytes)
        remedies += (
            [f"Slide {slide_text} in it, as its aggregates are then kept by pane, in place of rows"]
            if slide_text
            else []
        )
        share = math.floor(100 * allowed_bytes / total)
        holds_parts = any(each.part_words for each, _ in sized)
        if share >= 1 and not holds_parts and len(ranges) == sum(own > 0 for _, own in sized):
            remedies.append(f"Sample({share}) of each stream")
    return (
        f"most is held by {largest.label}, {size:,.0f} bytes. What would fit: {', or '.join(remedies) or 'fewer rows'}"
    )


def _find_range(
    window: WindowOf, fitting_s: float, project: Callable[[WindowOf], float], allowed_bytes: int
) -> str | None:
    """Return a shorter window of about some seconds that fits, as CQL writes it; None if none is.

    Ranges of windows with a slide are whole multiples of it, as others have more panes.
    """
    slide_s, rest_ns = divmod(window.slide_ns, 1_000_000_000)
    if rest_ns or fitting_s < max(slide_s, 1):
        return None
    if not slide_s:
        return f"[Range {_format_range(math.floor(fitting_s))}]"
    count = math.floor(fitting_s / slide_s)
    for multiple in range(count, max(count - 3, 0), -1):
        if project(replace(window, range_ns=multiple * window.slide_ns)) <= allowed_bytes:
            return f"[Range {_format_exactly(multiple * slide_s)} Slide {_format_exactly(slide_s)}]"
    return None


def _find_slide(window: WindowOf, project: Callable[[WindowOf], float], allowed_bytes: int) -> str | None:
    """Return the shortest usual slide, longer than that of a window of time, with which it fits; None if none is."""
    for slide_s in _SLIDES_S:
        slide_ns = slide_s * 1_000_000_000
        is_shorter = window.slide_ns < slide_ns < window.range_ns
        if is_shorter and project(replace(window, slide_ns=slide_ns)) <= allowed_bytes:
            return _format_exactly(slide_s)
    return None


def require_share(
    tree: Operator, rates: Rates, allowed_bytes: int, counts: Rates | None = None, groups: Groups | None = None
) -> None:
    """Raise `InvalidQuery` if the windows that are limited need more memory than is allowed; says what would fit."""
    total = project_bytes(tree, rates, counts, groups)
    if total > allowed_bytes:
        raise InvalidQuery(
            f"the windows of this query need {total:,.0f} bytes at the mean rates of its streams, and may take "
            f"{allowed_bytes:,}; {suggest_fitting(tree, rates, allowed_bytes, counts, groups)}; or allow "
            f"{math.ceil(total):,} bytes"
        )


def _format_range(seconds: int) -> str:
    """Return a length of at most some seconds as CQL writes it, in the largest unit of which there are ten."""
    unit = next((part for part in _UNITS if seconds >= 10 * part[0]), _UNITS[-1])
    return _format_units(seconds, unit)


def _format_exactly(seconds: int) -> str:
    """Return a length of some seconds as CQL writes it, in the largest unit of which it is a whole multiple."""
    return _format_units(seconds, next(part for part in _UNITS if seconds % part[0] == 0))


def _format_units(seconds: int, unit: tuple[int, str]) -> str:
    count = seconds // unit[0]
    return f"{count} {unit[1]}{'s' if count > 1 else ''}"
