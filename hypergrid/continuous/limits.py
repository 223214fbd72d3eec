"""Memory of the windows of a query, which is projected before it starts."""

import math
from collections.abc import Mapping
from typing import Final

from hypergrid.continuous.algebra import Operator
from hypergrid.continuous.language import WindowProjection, project_windows
from hypergrid.continuous.records import Groups
from hypergrid.core.errors import InvalidQuery
from hypergrid.execution.planning.plan import free_bytes

ALLOWED_BYTES: Final = 256 * 2**20
"""Memory that the windows of a live query may take, unless more is allowed [bytes]."""

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
        slide_s = longest.window.slide_ns / 1e9
        fitting_s = math.floor((allowed_bytes - (total - own)) / own * longest.span_s - slide_s)
        if fitting_s >= 1:
            remedies.append(f"[Range {_format_range(fitting_s)}] in place of its {longest.label}")
        share = math.floor(100 * allowed_bytes / total)
        # Sums of panes do not get fewer with their rows.
        is_sampled = not any(each.part_words for each, _ in sized)
        if share >= 1 and is_sampled and len(ranges) == sum(own > 0 for _, own in sized):
            remedies.append(f"Sample({share}) of each stream")
    return (
        f"most is held by {largest.label}, {size:,.0f} bytes. What would fit: {', or '.join(remedies) or 'fewer rows'}"
    )


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
    unit_s, name = next((part for part in _UNITS if seconds >= 10 * part[0]), _UNITS[-1])
    count = seconds // unit_s
    return f"{count} {name}{'s' if count > 1 else ''}"
