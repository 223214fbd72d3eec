"""Rewrite rules in order of application, and the loop that applies them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import Window
from hypergrid.core.tokens import token
from hypergrid.perspective.build.build import select_ranges
from hypergrid.perspective.build.restrict import restrict
from hypergrid.perspective.build.station_projection import mask_in_reach
from hypergrid.perspective.functions.user_function_calls import FUNCTION_IDENTITIES
from hypergrid.perspective.sources.array_source import has_intervals
from hypergrid.perspective.sources.series_selection import find_columns
from hypergrid.perspective.tree import Aggregate, Base, Call, Convert, Interpolate, Merge, Perspective, Surface
from hypergrid.topology import Grid, Instants, Points, SeriesAxis, blocks_of

# `push_clip` is exact if nothing is learned from all slices: a cell's value depends on the source cells that cover it,
# and those are kept; a climatology that it is compared with still uses all its readings. A fitted variogram
# (`variogram="fit"`) and an estimated correlation in time are learned from the computed slices, which are those of the
# clip: with them, a clip in time asks for a different surface, whose notes say what was fitted to how many slices.


def push_clip(surface: Surface) -> tuple[Surface, str]:
    """Restrict the surface to the cells that its clip selects, and drop the clip.

    ::

        base 28 days > aggregate 5min > clip 3 days   becomes   base 3 days > aggregate 5min
    """
    if surface.clip.is_open:
        return surface, ""
    whole = surface.perspective
    narrow = restrict(whole, *select_ranges(whole.topology, surface.clip))
    part = _share_bases(narrow, _find_widest(narrow))
    part_cells, all_ = part.topology.count, whole.topology.count
    below = _count_cells_read(part), _count_cells_read(whole)
    why = f"{part_cells:,} of {all_:,} cells are wanted, which need {below[0]:,} of {below[1]:,} cells of the base"
    return Surface(part), why


def _count_cells_read(node: Perspective) -> int:
    """Count the base cells to read; each distinct base counts once."""
    return sum(item.topology.count for item in node.list_bases())


def _find_widest(node: Perspective) -> dict[str, Perspective]:
    # The longest comes last, and of equally long ones the first.
    by_length = sorted(
        reversed(node.list_bases()), key=lambda item: _base_window(item).stop_ns - _base_window(item).start_ns
    )
    return {_make_source_key(item): item for item in by_length}


def _share_bases(node: Perspective, widest: dict[str, Perspective]) -> Perspective:
    """Let branches share the widest base of their source, which is then read only once."""
    # An aggregate takes all values that its cells cover. Only a cell that lies within its own base keeps its value:
    # a cell that the clip cuts would also take the values beyond the cut.
    if _holds_cells(node, widest) and _is_base(node.source):
        sources: tuple[Perspective, ...] = (_widen_base(node.source, widest),)
    else:
        sources = tuple(_share_bases(source, widest) for source in node.sources)
    same = all(new is old for new, old in zip(sources, node.sources, strict=True))
    return node if same else node.with_source(*sources)


def _holds_cells(node: Perspective, widest: dict[str, Perspective]) -> bool:
    """Return whether a step aggregates time in cells that gain nothing from the widest base."""
    operator, time = node.operator, node.topology.time
    if not isinstance(operator, Aggregate) or "time" not in operator.dimensions:
        return False
    if operator.row.reach_ns or isinstance(time, Instants):
        return False
    (starts, ends), base = blocks_of(time), node.list_bases()[0]
    if has_intervals(base.topology.time, base.topology.space):
        # Such cells select values by the start of their interval, which the instants do not contain.
        return False
    own, wide = base.topology.time, widest[_make_source_key(base)].topology.time
    if isinstance(own, Instants) and isinstance(wide, Instants):
        here_ns, there_ns = (np.searchsorted(axis.times_ns, np.stack([starts, ends])) for axis in (own, wide))
        # Equal numbers of instants per cell: the cells gain nothing from the widest base.
        return bool(np.array_equal(np.diff(here_ns, axis=0), np.diff(there_ns, axis=0)))
    window = _base_window(base)
    return bool(starts.min() >= window.start_ns and ends.max() <= window.stop_ns)


def _widen_base(node: Perspective, widest: dict[str, Perspective]) -> Perspective:
    """Replace a base, below converts or not, by the widest one covering it."""
    if isinstance(node.operator, Base):
        wider = widest[_make_source_key(node)]
        return wider if _base_window(wider).intersect(_base_window(node)) == _base_window(node) else node
    source = _widen_base(node.source, widest)
    return node if source is node.source else replace(node, sources=(source,), topology=source.topology)


def _is_base(node: Perspective) -> bool:
    return isinstance(node.operator, Base) or (isinstance(node.operator, Convert) and _is_base(node.source))


def _make_source_key(node: Perspective) -> str:
    return token(node.operator.source.token, node.operator.accept_flags)  # type: ignore[union-attr]


def _base_window(node: Perspective) -> Window:
    return node.operator.window  # type: ignore[union-attr]


# Push the station selection down: do not read series that no step above uses.
#
# Always exact: below an interpolation every step computes the values of a series from that series alone, so the other
# series keep theirs. A merge on common stations uses the stations that all its sources have. An interpolation uses the
# stations in reach of one of its cells (`perspective/build/station_projection.py`): those near enough to the step's
# grid and, if only those within a radius are used and nothing is learned from the others, within that radius of the
# cells that the clip leaves. A limit to the nearest neighbours excludes no station before the values are known: if one
# does not report, the next nearest takes its place.

Mask = NDArray[np.bool_]


def push_stations(surface: Surface) -> tuple[Surface, str]:
    """Restrict the bases of a surface to the series that are used.

    ::

        base > aggregate > interpolate radius 200 m   becomes   base, 18 series not read > aggregate > interpolate …
    """
    return _change_steps(surface, partial(_restrict_base, _find_wanted(surface.perspective)))


def _change_steps(surface: Surface, change: Callable[[Perspective, list[str]], Perspective]) -> tuple[Surface, str]:
    """Change each step, after its sources; steps that stay the same keep their objects, and cached tokens.

    Parameters
    ----------
    change
        Maps a step to its replacement, and adds the reason to the notes.
    """
    notes: list[str] = []
    changed: dict[str, Perspective] = {}
    for node in surface.perspective.list_chain():
        sources = tuple(changed[source.token] for source in node.sources)
        same = all(new is old for new, old in zip(sources, node.sources, strict=True))
        changed[node.token] = change(node if same else node.with_source(*sources), notes)
    return replace(surface, perspective=changed[surface.perspective.token]), "; ".join(dict.fromkeys(notes))


def _restrict_base(wanted_series: dict[str, Mask], node: Perspective, notes: list[str]) -> Perspective:
    operator = node.operator
    if not isinstance(operator, Base):
        return node
    wanted = wanted_series[node.token]
    # If no series is used, keep all: the step that finds no stations then reports it in its own words.
    if wanted.all() or not wanted.any():
        return node
    name = operator.source.variable.name
    notes.append(f"{np.count_nonzero(wanted):,} of {len(wanted):,} series of {name} are used")
    unread = tuple(np.flatnonzero(~wanted).tolist())
    return replace(node, operator=replace(operator, unread=unread))


def _find_wanted(surface: Perspective) -> dict[str, Mask]:
    """Map the token of each perspective at stations to its used series."""
    masks: dict[str, Mask] = {}
    # Consumers precede their sources in this order, so the mask of a perspective is complete when it is visited.
    for node in reversed(surface.list_chain()):
        space = node.topology.space
        own = masks.setdefault(node.token, np.ones(space.count, dtype=bool)) if node.is_at_stations else None
        for source in node.sources:
            if isinstance(source.topology.space, SeriesAxis):
                used = _mask_source(node, own, source.topology.space)
                masks[source.token] = masks.get(source.token, np.zeros_like(used)) | used
    return masks


def _mask_source(node: Perspective, own: Mask | None, axis: SeriesAxis) -> Mask:
    """Mask the series of a source that a step uses for its own used series."""
    operator, space = node.operator, node.topology.space
    if isinstance(operator, Interpolate) and isinstance(space, Grid | Points):
        return mask_in_reach(axis, space, operator)
    if own is None or not isinstance(space, SeriesAxis):
        return np.ones(axis.count, dtype=bool)
    if not isinstance(operator, Merge) or not operator.row.matched:
        return own
    used = np.zeros(axis.count, dtype=bool)
    used[find_columns(space, axis)] = own
    return used


# Commute linear steps: a mean of interpolated slices is the interpolated mean of the stations.
#
# Exact if the interpolation is one linear map of the values of all stations in every slice, with gaps filled by kriging
# (kriging from all stations, reporting or not, with a variogram that is given or fitted once), and the aggregate is a
# mean or a sum over time alone. With a known mean (simple kriging) a sum would have to contain that mean once per
# slice, so only means commute.


def commute(surface: Surface) -> tuple[Surface, str]:
    """Move linear aggregates over time below the interpolation, to the stations.

    ::

        interpolate 864 slices > mean of all   becomes   mean of 864 slices of the stations > interpolate 1
    """
    return _change_steps(surface, _commute_node)


def _commute_node(node: Perspective, notes: list[str]) -> Perspective:
    operator = node.operator
    if not isinstance(operator, Aggregate) or operator.at_stations or not is_commutative(node):
        return node
    below = node.source.operator
    notes.append(
        f"{below.method} and {operator.function} are linear: {node.topology.time.count:,} in place of "  # type: ignore[union-attr]
        f"{node.source.topology.time.count:,} slices are interpolated"
    )
    return replace(node, operator=replace(operator, at_stations=True))


def is_commutative(node: Perspective) -> bool:
    operator = node.operator
    if not isinstance(operator, Aggregate) or not operator.row.linear or operator.dimensions != ("time",):
        return False
    below = node.source.operator
    if not isinstance(below, Interpolate):
        return False
    known_mean = bool(below.arguments.get("mean"))
    return below.is_linear(node.source.source.topology.space.count) and (operator.function == "mean" or not known_mean)


# Drop converts that change nothing.
#
# Always exact: a factor of one without an offset returns each value unchanged, missing values included.


def drop_idle(surface: Surface) -> tuple[Surface, str]:
    """Remove the steps that return their input unchanged.

    ::

        base > convert scale(factor=1, offset=0) > aggregate   becomes   base > aggregate
    """
    return _change_steps(surface, _drop_node)


def _drop_node(node: Perspective, notes: list[str]) -> Perspective:
    operator = node.operator
    if not isinstance(operator, Convert) or node.unit != node.source.unit:
        return node
    kept = tuple(call for call in operator.calls if not _is_idle(call))
    if kept == operator.calls:
        return node
    notes.append("scale by 1 changes nothing")
    return replace(node, operator=replace(operator, calls=kept)) if kept else node.source


def _is_idle(call: Call) -> bool:
    given = call.arguments
    return call.name == "scale" and given["factor"] == 1.0 and given["offset"] == 0.0 and given["unit"] is None


# Coalesce adjacent converts into one pass over the cells (thesis 5.7.1).
#
# Always exact: the same functions run on the same values in the same order.


def coalesce(surface: Surface) -> tuple[Surface, str]:
    """Merge each run of adjacent converts into one convert.

    ::

        base > convert valid_range > convert scale   becomes   base > convert valid_range, then scale
    """
    return _change_steps(surface, _coalesce_node)


def _coalesce_node(node: Perspective, notes: list[str]) -> Perspective:
    if not isinstance(node.operator, Convert) or not isinstance(node.source.operator, Convert):
        return node
    below, last = node.source.operator, node.operator
    calls, layers = (*below.calls, *last.calls), tuple(dict.fromkeys((*below.layers, *last.layers)))
    notes.append(f"{' and '.join(call.name for call in calls)} go cell by cell: one pass")
    steps = (*node.source.steps, *node.steps)
    return replace(node, sources=node.source.sources, operator=Convert(calls, layers), steps=steps)


# Fuse a convert into the aggregate above it: one pass over the values, none of which is held converted (thesis 5.7.1).
#
# Always exact: the same functions run on the same values in the same order, those of a map a few places at a time.
# Only if nothing else reads the converted values, or the readings below them, which would be read again. On a map the
# aggregate is over time alone, and both functions are the engine's own: a user's may take long, and a later box of
# time would call it again.


def fuse(surface: Surface) -> tuple[Surface, str]:
    """Let an aggregate convert the values that it reads.

    ::

        base > convert valid_range > aggregate 10min   becomes   base > aggregate 10min of valid values
    """
    notes = []
    while (fusible := _find_fusible(surface.perspective)) is not None:
        surface, why = _change_steps(surface, partial(_fuse_node, fusible))
        notes.append(why)
    return surface, "; ".join(notes)


def _find_fusible(surface: Perspective) -> str | None:
    """Return the token of an aggregate that can apply the convert below it; None if there is none."""
    chain = surface.list_chain()
    readers = Counter(source.token for item in chain for source in item.sources)
    for node in chain:
        if not isinstance(node.operator, Aggregate):
            continue
        below, convert = node.source, node.source.operator
        if not isinstance(convert, Convert) or convert.fused or readers[below.token] > 1:
            continue
        of_base = isinstance(below.source.operator, Base) and readers[below.source.token] == 1
        if of_base if below.holds_readings else _folds_map(node, node.operator, convert):
            return node.token
    return None


def _folds_map(node: Perspective, operator: Aggregate, convert: Convert) -> bool:
    """Return whether an aggregate folds the time of a converted map, both by functions of the engine."""
    over_time = operator.dimensions == ("time",) and not isinstance(node.topology.time, Instants)
    if node.is_at_stations or not over_time or operator.row.prepare is not None:
        return False
    names = [("aggregate", operator.function), *(("convert", call.name) for call in convert.calls)]
    return not any(name in FUNCTION_IDENTITIES for name in names)


def _fuse_node(fusible: str, node: Perspective, notes: list[str]) -> Perspective:
    below = node.source if node.sources else node
    if node.token != fusible or not isinstance(below.operator, Convert):
        return node
    names = " and ".join((*(call.name for call in below.operator.calls), node.aggregate.function))
    notes.append(f"{names} are one pass over the {'readings' if below.holds_readings else 'values of the map'}")
    return node.with_source(replace(below, operator=replace(below.operator, fused=True)))


Rule = Callable[[Surface], tuple[Surface, str]]
"""Maps a surface to an equal one and the reason for the change; the reason is empty if nothing changed."""

# The clip comes first, while every perspective still has its own step; then the stations that it leaves. Fewer steps
# follow, then their order.
RULES: tuple[Rule, ...] = (push_clip, push_stations, drop_idle, coalesce, commute)
"""The rewrite rules, in order of application."""

# Fusing saves an array, not time (`hypergrid bench hypergrid --case rewriting`), and a held array may serve others.
RULES_FOR_MEMORY: tuple[Rule, ...] = (*RULES, fuse)
"""The rules for plans that would not fit in memory otherwise."""


@dataclass(frozen=True)
class FiredRule:
    """A rule that changed a surface, and why."""

    rule: str
    why: str


@dataclass(frozen=True, eq=False)
class RewriteResult:
    """A surface after rewriting, and the rules that changed it."""

    surface: Surface
    fired: tuple[FiredRule, ...]


def rewrite(surface: Surface, rules: tuple[Rule, ...] = RULES) -> RewriteResult:
    """Apply every rule in turn; cells and values of the surface stay the same."""
    fired = []
    for rule in rules:
        changed, why = rule(surface)
        if changed.token != surface.token:
            fired.append(FiredRule(rule.__name__, why))
        surface = changed
    return RewriteResult(surface, tuple(fired))
