"""Previews of alerts: what a condition would have raised and cleared over past readings, judged as new ones are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.analysis.incremental import clip_query
from hypergrid.core.encoded_arrays import encode
from hypergrid.core.errors import InvalidQuery, InvalidTime, TooLarge
from hypergrid.core.times import DAY_NS, Window, format_duration, format_instant, format_timestamp
from hypergrid.core.units import difference_of
from hypergrid.perspective import Perspective
from hypergrid.perspective.build.restrict import restrict
from hypergrid.perspective.spec.document_time import clip_in_time, is_clipped_in_time
from hypergrid.query import OpenArchive
from hypergrid.topology import Grid, Periodic, Space
from queries.standing.alert_evaluation import evaluate_condition, measure_places, replay_liveness
from queries.standing.conditions import (
    Condition,
    Dead,
    LevelRule,
    Listening,
    Missing,
    OnRows,
    Rate,
    Silent,
    SurfaceRows,
    Threshold,
)
from queries.standing.definition import Definition
from queries.standing.incremental_tasks import (
    EvaluationTask,
    RowCache,
    cell_bounds,
    check_definition,
    first_needed,
    newest_ns,
    places_of,
    resolve_definition,
)
from queries.standing.planning import CELL_BYTES, REMEDY
from queries.standing.repository import Alert, EvaluationProgress, StandingEntry
from queries.standing.shared_steps import SnapshotEvaluation

DEFAULT_NS: Final = 7 * DAY_NS
"""Length of the past that is judged, where none is given [ns]."""
LONGEST_NS: Final = 31 * DAY_NS
"""Longest past that is judged [ns]."""
MOST_BYTES: Final = 1 << 28
"""Largest projection of a preview [bytes]."""
LONGEST_S: Final = 10.0
"""Longest computation of a preview [s]."""
MOST_ALERTS: Final = 1000
"""Alerts that a preview lists; all are counted."""
MOST_LINES: Final = 12
"""Places whose measure a preview contains, those with alerts first."""
MOST_ROWS: Final = 1500
"""Time cells of these lines; of more, each holds the extreme of several."""
QUANTILES: Final = (0.02, 0.5, 0.98)
"""Low, middle and high value among the recent ones."""
RATE_QUANTILES: Final = (0.005, 0.995)
"""Fall and rise among the recent changes."""
_WIDEST_CELL_NS: Final = 32 * DAY_NS
"""Longest time cell that may begin before the judged time, a month [ns]."""


@dataclass(frozen=True)
class RecentValues:
    """Quantiles of what is judged, from which levels are proposed."""

    low: float
    middle: float
    high: float
    fall: float | None
    """Change within an hour that is rarely exceeded downwards [unit per hour]; None: no two values are apart so far."""
    rise: float | None


@dataclass(frozen=True, eq=False)
class MeasureLines:
    """Judged quantity at some places over time."""

    starts_ns: NDArray[np.int64]
    """Start of each time cell [ns since 1970 UTC], shape (times,)."""
    names: tuple[str, ...]
    measure: NDArray[np.float64]
    """[unit of the measure], NaN if unknown, shape (times, names)."""


@dataclass(frozen=True, eq=False)
class AlertPreview:
    """What a condition would have raised and cleared."""

    window: Window
    """Judged time."""
    snapshot: str
    condition: Condition | None
    """With levels as numbers [unit of the measure]."""
    rule: str
    """The condition in words, as its alerts have them; empty without one."""
    unit: str
    """Unit of the measure: of the values, of their change, or "s" where values are missing."""
    names: tuple[str, ...]
    """Places that are judged; empty for conditions on arrivals."""
    alerts: tuple[Alert, ...]
    lines: MeasureLines | None = None
    recent: RecentValues | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Convert to the answer of the web API: alerts as `Alert.to_json`, without numbers; arrays as base64."""
        level, clear = None, None
        if isinstance(self.condition, LevelRule):
            level = self.condition.above if self.condition.above is not None else self.condition.below
            clear = self.condition.clear
        if isinstance(self.condition, Missing):
            level = self.condition.after_ns / 10**9
        recent = self.recent
        return {
            "start": format_timestamp(self.window.start_ns),
            "stop": format_timestamp(self.window.stop_ns),
            "snapshot": self.snapshot,
            "rule": self.rule,
            "unit": self.unit,
            "level": level,
            "clear": clear,
            "places": len(self.names),
            "raised": sum(alert.happening == "raised" for alert in self.alerts),
            "alerts": [
                {"query": alert.name, "happening": alert.happening, **alert.body} for alert in self.alerts[:MOST_ALERTS]
            ],
            "series": None if self.lines is None else _lines_to_json(self.lines),
            "recent": None if recent is None else dict(vars(recent)),
            "notes": list(self.notes),
        }


def _lines_to_json(lines: MeasureLines) -> dict[str, Any]:
    # A place a row, as the page draws a line each.
    values = lines.measure.T
    return {
        "places": list(lines.names),
        "times": [format_timestamp(start) for start in lines.starts_ns.tolist()],
        "values": {"shape": list(values.shape), "float64": encode(values, "<f8")},
    }


def preview_alerts(
    definition: Definition,
    archive: OpenArchive,
    window: Window | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AlertPreview:
    """Evaluate a definition's condition over past readings, without storing or sending anything.

    Parameters
    ----------
    definition
        A valid definition; without a condition nothing is raised, and recent values are returned all the same.
    archive
        At the snapshot to read.
    window
        Judged time, at most `LONGEST_NS`; None: the last `DEFAULT_NS` before the end of the newest slice.
    clock
        Monotonic clock, for the limit of the computing time [s].

    Raises
    ------
    InvalidQuery, InvalidTime, InvalidUnit, NotFound
        The definition does not fit the archive, or the window is too long.
    TooLarge
        It needs more memory or time than a preview may take; the message has both numbers.
    """
    check_definition(definition, archive)
    variable = str(definition.query["variable"])
    if window is None:
        stop_ns = newest_ns(archive.store, variable)
        window = Window(stop_ns - DEFAULT_NS, stop_ns)
    if window.stop_ns - window.start_ns > LONGEST_NS:
        given = format_duration(window.stop_ns - window.start_ns)
        raise InvalidTime(f"a preview covers at most {format_duration(LONGEST_NS)}; got {given}; choose a shorter time")
    progress = EvaluationProgress(archive.snapshot, since_ns=window.start_ns)
    entry = StandingEntry(definition, window.stop_ns, paused=False, muted_until_ns=None, progress=progress)
    if isinstance(definition.condition, Dead | Silent):
        replayed = replay_liveness(entry, archive, window, refuse_late=_limit_time(clock, "preview a shorter time"))
        alerts = tuple(alert for alert, _ in replayed)
        condition = definition.condition
        return AlertPreview(window, archive.snapshot, condition, condition.words(""), "", (), alerts)
    return _preview_rows(replace(entry, definition=resolve_definition(definition, archive)), archive, window, clock)


def _preview_rows(
    entry: StandingEntry, archive: OpenArchive, window: Window, clock: Callable[[], float]
) -> AlertPreview:
    """Compute the surface of the window, and evaluate the condition on its rows."""
    definition = entry.definition
    given = definition.condition
    # Without a condition the values themselves are measured.
    condition: OnRows = Threshold(above=0.0) if given is None or isinstance(given, Listening) else given
    task, first = _make_task(definition, archive, window, condition)
    cached = _compute_rows(entry.name, task, archive.snapshot, clock)
    alerts: tuple[Alert, ...] = ()
    if given is not None:
        result = evaluate_condition(entry, task, cached, snapshot=archive.snapshot, now_ns=window.stop_ns)
        alerts = tuple(alert for alert, _ in result.alerts)
    unit, space = task.node.unit, task.node.topology.space
    rows = task.rows(cached, slice(0, task.node.topology.time.count))
    settled = condition.convert_levels(unit)
    measure = measure_places(settled, rows, space)[0][first:]
    names = places_of(space)
    counted = Counter(str(alert.body["place"]) for alert in alerts)
    drawn = sorted(range(len(names)), key=lambda index: -counted[names[index]])[:MOST_LINES]
    lines = MeasureLines(rows.starts_ns[first:], tuple(names[index] for index in drawn), measure[:, drawn])
    return AlertPreview(
        window,
        archive.snapshot,
        None if given is None else settled,
        "" if given is None else settled.words(unit),
        _unit_of(settled, unit),
        names,
        alerts,
        _thin_lines(lines, rises=settled.rises),
        _summarise(rows, space),
        _notes(definition),
    )


def _notes(definition: Definition) -> tuple[str, ...]:
    if definition.window_ns is None:
        return ()
    return ("The window is left out of the preview: each time cell is judged once, as it is when its readings come.",)


def _unit_of(condition: OnRows, unit: str) -> str:
    """Return the unit of what a condition measures."""
    if isinstance(condition, Missing):
        return "s"
    if isinstance(condition, Rate):
        return f"{difference_of(unit)} per {format_duration(condition.per_ns)}"
    return unit


def _make_task(
    definition: Definition, archive: OpenArchive, window: Window, condition: OnRows
) -> tuple[EvaluationTask, int]:
    """Plan the time cells of a window and those that the condition looks back to.

    Returns the task and the index of the first judged time cell.
    """
    query = definition.query
    if not is_clipped_in_time(query):
        reach_ns = condition.memory_ns + _WIDEST_CELL_NS
        query = clip_in_time(query, Window(window.start_ns - reach_ns, window.stop_ns + _WIDEST_CELL_NS))
    clipped = archive.query(query)
    node = clip_query(clipped)
    if isinstance(node.topology.time, Periodic):
        raise InvalidQuery(
            f"a preview needs time cells that follow one another; the surface is by {node.topology.time.describe()}; "
            "aggregate over time='1h' instead"
        )
    starts_ns, ends_ns = cell_bounds(node)
    judged = int(np.searchsorted(ends_ns, window.start_ns, side="right"))
    stop = int(np.searchsorted(starts_ns, window.stop_ns))
    if judged >= stop:
        between = f"{format_instant(window.start_ns)} and {format_instant(window.stop_ns)}"
        raise InvalidQuery(f"the query has no time cells between {between}; preview a time that has readings")
    begin = first_needed(starts_ns, judged, condition.memory_ns)
    part = restrict(node, slice(begin, stop))
    _refuse_large(part)
    count = stop - begin
    task = EvaluationTask(
        query=clipped,
        node=part,
        content="preview",
        parts=((slice(0, count), part),),
        changed=0,
        keep_from_ns=int(starts_ns[begin]),
        anchor_ns=window.stop_ns,
        look_back_ns=window.stop_ns - window.start_ns,
    )
    return task, judged - begin


def _refuse_large(part: Perspective) -> None:
    projected = sum(CELL_BYTES * item.topology.count for item in part.list_chain() if not item.holds_readings)
    if projected > MOST_BYTES:
        raise TooLarge("the preview", "bytes of memory", projected, MOST_BYTES, REMEDY)


def _compute_rows(name: str, task: EvaluationTask, snapshot: str, clock: Callable[[], float]) -> RowCache:
    """Compute the rows of a task as the runner does, until the time of a preview is over."""
    evaluation, refuse_late = SnapshotEvaluation(snapshot), _limit_time(clock, REMEDY)
    evaluation.add(name, task)
    for step in evaluation.remaining_steps(name):
        for _ in evaluation.compute(step):
            refuse_late()
    cached = RowCache()
    task.store_rows(cached, [cells.value for cells in evaluation.values(task)])
    return cached


def _limit_time(clock: Callable[[], float], remedy: str) -> Callable[[], None]:
    """Return what raises `TooLarge` once `LONGEST_S` have passed from now on."""
    began_s = clock()

    def refuse_late() -> None:
        taken_s = clock() - began_s
        if taken_s > LONGEST_S:
            raise TooLarge("the preview", "seconds of computing", taken_s, LONGEST_S, remedy)

    return refuse_late


def _thin_lines(lines: MeasureLines, *, rises: bool) -> MeasureLines:
    """Reduce lines to `MOST_ROWS` rows, each with the extreme of the cells that it stands for."""
    count = len(lines.starts_ns)
    if count <= MOST_ROWS:
        return lines
    edges = np.unique(np.linspace(0, count, MOST_ROWS, endpoint=False).astype(np.intp))
    # fmax and fmin ignore missing values.
    extreme = (np.fmax if rises else np.fmin).reduceat(lines.measure, edges, axis=0)
    return MeasureLines(lines.starts_ns[edges], lines.names, extreme)


def _summarise(rows: SurfaceRows, space: Space) -> RecentValues | None:
    """Compute the quantiles of what is judged; of a grid these are the extremes of its cells. None without values."""
    is_grid = isinstance(space, Grid)
    lows, highs = (extreme.reduce(rows.value, axis=1) if is_grid else rows.value for extreme in (np.fmin, np.fmax))
    if not np.isfinite(lows).any():
        return None
    low, middle = _quantiles(lows, QUANTILES[:2])
    (high,) = _quantiles(highs, QUANTILES[2:])
    falls, rises = _measure_changes(Rate(below=0.0), rows, space), _measure_changes(Rate(above=0.0), rows, space)
    fall = None if falls is None else _quantiles(falls, RATE_QUANTILES[:1])[0]
    rise = None if rises is None else _quantiles(rises, RATE_QUANTILES[1:])[0]
    return RecentValues(low, middle, high, fall, rise)


def _quantiles(values: NDArray[np.float64], shares: Sequence[float]) -> list[float]:
    quantiles: list[float] = np.quantile(values[np.isfinite(values)], shares).tolist()
    return quantiles


def _measure_changes(rate: Rate, rows: SurfaceRows, space: Space) -> NDArray[np.float64] | None:
    """Measure changes over an hour, or from one value to the next if none are an hour apart; None if there are none."""
    for over_ns in (rate.per_ns, None):
        changes = measure_places(replace(rate, over_ns=over_ns), rows, space)[0]
        if np.isfinite(changes).any():
            return changes
    return None
