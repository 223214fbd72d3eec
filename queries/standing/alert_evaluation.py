"""Turn computed rows into alerts: evaluate conditions, reconcile episodes and compose alert documents."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.archive import Change as Written
from hypergrid.core.errors import TooLarge
from hypergrid.core.times import (
    DAY_NS,
    SECOND_NS,
    Window,
    format_duration,
    format_instant,
    format_timestamp,
)
from hypergrid.core.units import format_quantity
from hypergrid.perspective import question_from_json
from hypergrid.perspective.sources.archive_source import find_named_stations
from hypergrid.query import OpenArchive
from hypergrid.topology import Grid, Space
from queries.standing.conditions import (
    Dead,
    Episode,
    EpisodeChange,
    Listening,
    OnRows,
    Silent,
    SurfaceRows,
    find_episodes,
    find_standing_places,
    reconcile,
)
from queries.standing.incremental_tasks import LOOK_BACK_NS, EvaluationTask, RowCache, newest_ns, places_of
from queries.standing.liveness import MAX_GAPS, LivenessState, ReportingInterval
from queries.standing.repository import Alert, EvaluationProgress, EvaluationResult, StandingEntry

MOST_EPISODES: Final = 1000
"""Finished episodes remembered per query; the alerts themselves stay in the catalogue."""

RECENT_NS: Final = 30 * DAY_NS
"""How far back a new dead-station query learns from the archive [ns]."""

MOST_ARRIVALS: Final = 1_000_000
"""Most readings that a replay hears station by station, which took 10.8 s on two busy cores."""

NETWORK: Final = "network"
"""Place of an alert that concerns all stations."""

OWED: Final = "owed"
"""Key in a query's memory: changes of delivered episodes during a mute, by alert number."""

Alerts = list[tuple[Alert, int | None]]


def evaluate_condition(
    entry: StandingEntry, task: EvaluationTask, kept: RowCache, *, snapshot: str, now_ns: int
) -> EvaluationResult:
    """Evaluate a row condition and return progress, episodes and alerts to store.

    Parameters
    ----------
    entry
        The standing query, with a condition on rows.
    task
        What was computed; its rows are in `kept`.
    snapshot
        Snapshot of the computation.
    now_ns
        Current time [ns since 1970 UTC].
    """
    before = entry.progress
    condition = entry.definition.condition
    if condition is None or isinstance(condition, Listening):
        return EvaluationResult(entry.name, replace(before, snapshot=snapshot))
    settled: OnRows = condition.convert_levels(task.node.unit)
    judged_span, needed = task.select_judged(settled, before.since_ns or 0, before.judged_ns)
    if judged_span.start == judged_span.stop:
        return EvaluationResult(entry.name, replace(before, snapshot=snapshot))
    rows = task.rows(kept, needed)
    space = task.node.topology.space
    measure, at = measure_places(settled, rows, space)
    # The rows before the judged span are only needed for the measure's look-back.
    cut = slice(judged_span.start - needed.start, None)
    rows = SurfaceRows(rows.starts_ns[cut], rows.ends_ns[cut], rows.value[cut])
    measure, at = measure[cut], at[cut]
    places = places_of(space)
    from_ns = int(rows.starts_ns[0])
    raised = find_standing_places(before.episodes, places, from_ns)
    state = settled.judge(measure, rows, raised)
    new_episodes = find_episodes(rows.starts_ns, state, raised, places)
    episodes, changes = reconcile(before.episodes, new_episodes, from_ns)

    def reading(change: EpisodeChange) -> dict[str, Any]:
        row = int(np.clip(np.searchsorted(rows.starts_ns, change_time_ns(change)), 0, len(rows.starts_ns) - 1))
        column = places.index(change.episode.place) if change.episode.place in places else 0
        return _describe_reading(rows, space, row, int(at[row, column]), task.node.unit, float(measure[row, column]))

    late_ns = before.judged_ns
    body = {"rule": settled.words(task.node.unit), "condition": settled.to_json(), "snapshot": snapshot}

    def describe(change: EpisodeChange) -> dict[str, Any]:
        is_late = late_ns is not None and change_time_ns(change) <= late_ns
        return {**body, "readings": [reading(change)], "late": is_late}

    alerts, memory = make_alerts(entry, episodes, changes, describe, now_ns)
    judged_ns = max(int(rows.starts_ns[-1]), before.judged_ns or 0)
    progress = EvaluationProgress(snapshot, before.since_ns, judged_ns, select_remembered(episodes, judged_ns), memory)
    return EvaluationResult(entry.name, progress, renumber_alerts(alerts, episodes, progress.episodes))


def measure_places(condition: OnRows, rows: SurfaceRows, space: Space) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Measure a condition at each place of a surface; a grid is one place, measured at its extreme cell.

    Returns the measure and the index of the cell that it is of, both of shape (times, places).
    """
    measure = condition.measure(rows)
    if isinstance(space, Grid):
        return _find_extreme(measure, rises=condition.rises)
    return measure, np.zeros(measure.shape, np.intp) + np.arange(measure.shape[1])


def _evaluate_dead(
    entry: StandingEntry, archive: OpenArchive, changes: Sequence[Written] | None, *, now_ns: int
) -> EvaluationResult:
    """Evaluate a dead-station condition on the arrivals of new readings.

    Parameters
    ----------
    changes
        Changes committed since the last evaluation; None: unknown, so the last month is read again, ignoring arrivals
        already counted.
    """
    before, store = entry.progress, archive.store
    variable = str(entry.definition.query["variable"])
    silence = LivenessState.from_json(before.memory, resolution_ns=_resolution_ns(store))
    wanted = _wanted_stations(entry, store)
    # First evaluation: learn from the past, but report only stations that are dead by now.
    if "stations" not in before.memory:
        silence.learn(_read_recent(store, variable), wanted)
        arrivals = {}
    elif changes is None:
        arrivals = _read_recent(store, variable)
    else:
        own_changes = [change for change in changes if change.variable == variable and change.kind != "flags"]
        arrivals = _join_arrivals(_read_arrivals(store, variable, run) for change in own_changes for run in change.runs)
    return _hear_arrivals(entry, archive.snapshot, silence, (arrivals, wanted), now_ns=now_ns)


def _resolution_ns(store: Archive) -> int:
    return round(store.slice_s * SECOND_NS) // 2


def _wanted_stations(entry: StandingEntry, store: Archive) -> set[str]:
    """Return the stations that a query selects, by their ids or names; empty: all."""
    select = dict(find_named_stations(store, question_from_json(entry.definition.query).select)).get("station")
    return {select} if isinstance(select, str) else set(select or ())


def _hear_arrivals(
    entry: StandingEntry,
    snapshot: str,
    silence: LivenessState,
    reports: tuple[Mapping[str, NDArray[np.int64]], set[str]],
    *,
    now_ns: int,
) -> EvaluationResult:
    """Process arrivals by station, with the stations that are reported, and evaluate a dead-station condition."""
    before, (arrivals, wanted) = entry.progress, reports
    episodes, happened = silence.hear(arrivals, before.episodes, wanted)

    def describe(change: EpisodeChange) -> dict[str, Any]:
        learned = silence.stations[change.episode.place]
        words = Dead().words("")
        body = {"rule": words, "condition": {"kind": "dead"}, "snapshot": snapshot}
        return {**body, "readings": [], "late": change.episode.cleared_ns is not None, **_describe_interval(learned)}

    alerts, owed = make_alerts(entry, episodes, happened, describe, now_ns)
    remembered = select_remembered(episodes, silence.newest_ns)
    progress = EvaluationProgress(snapshot, before.since_ns, None, remembered, {**silence.to_json(), **owed})
    return EvaluationResult(entry.name, progress, renumber_alerts(alerts, episodes, remembered))


def replay_liveness(
    entry: StandingEntry, archive: OpenArchive, window: Window, *, refuse_late: Callable[[], None]
) -> Alerts:
    """Evaluate a listening condition on the arrivals of a past window, as if it had been followed.

    Parameters
    ----------
    entry
        A standing query without progress; intervals are learned from the month before the window.
    window
        Readings of this time are heard; the end of the window is the current time of the replay.
    refuse_late
        Called after each piece that was read; raises once the time for all of them is over.

    Raises
    ------
    TooLarge
        There are too many readings.
    """
    store, variable = archive.store, str(entry.definition.query["variable"])
    condition = entry.definition.condition
    if isinstance(condition, Silent):
        times_ns = _join_all(map(_join_all_stations, _read_pieces(store, variable, window, refuse_late)))
        return _replay_silence(entry, condition, archive.snapshot, times_ns, stop_ns=window.stop_ns)
    projected = store.count_at_least(variable, window=window, maximum=MOST_ARRIVALS)
    if projected > MOST_ARRIVALS:
        raise TooLarge("the preview", "readings at least", projected, MOST_ARRIVALS, "preview a shorter time")
    silence = LivenessState(_resolution_ns(store))
    wanted = _wanted_stations(entry, store)
    before = Window(window.start_ns - RECENT_NS, window.start_ns)
    silence.learn(_read_latest(store, variable, before, refuse_late), wanted)
    arrivals = _join_arrivals(_read_pieces(store, variable, window, refuse_late))
    result = _hear_arrivals(entry, archive.snapshot, silence, (arrivals, wanted), now_ns=window.stop_ns)
    return list(result.alerts)


def _join_all_stations(arrivals: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    return _join_all(arrivals.values())


def _join_all(parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Join arrival times, ascending and deduplicated [ns since 1970 UTC]."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))


def _replay_silence(
    entry: StandingEntry, condition: Silent, snapshot: str, times_ns: NDArray[np.int64], *, stop_ns: int
) -> Alerts:
    """Evaluate a silent-network condition at the ends of all gaps between arrivals that exceed its limit.

    The last gap ends at `stop_ns`, if no arrival is later.
    """
    alerts: Alerts = []
    edges_ns = np.append(times_ns, max(stop_ns, int(times_ns[-1]))) if len(times_ns) else times_ns
    for index in np.flatnonzero(np.diff(edges_ns) > condition.after_ns).tolist():
        memory = {"heard_ns": int(edges_ns[index])}
        before = replace(entry, progress=EvaluationProgress(snapshot, memory=memory))
        # Just before the next arrival the silence has been raised, and the arrival clears it.
        moments = [(int(edges_ns[index + 1]) - 1, False), (int(edges_ns[index + 1]), True)]
        if index == len(times_ns) - 1:
            moments = [(stop_ns, False)]
        for now_ns, has_arrivals in moments:
            result = _evaluate_silent(before, condition, snapshot, has_arrivals=has_arrivals, now_ns=now_ns)
            if result is not None:
                alerts += result.alerts
                before = replace(before, progress=_report_episodes(result.progress))
    return alerts


def _report_episodes(progress: EvaluationProgress) -> EvaluationProgress:
    """Mark all episodes as reported, as storing their alerts does."""
    episodes = tuple(replace(episode, number=episode.number or 1) for episode in progress.episodes)
    return replace(progress, episodes=episodes)


def _read_recent(store: Archive, variable: str) -> dict[str, NDArray[np.int64]]:
    """Read recent arrivals by station, with those of stations whose clock runs ahead."""
    extent = store.extent(variable)
    if extent is None:
        return {}
    return _read_latest(store, variable, Window(newest_ns(store, variable) - RECENT_NS, extent.stop_ns))


def _read_latest(
    store: Archive, variable: str, window: Window, refuse_late: Callable[[], None] = lambda: None
) -> dict[str, NDArray[np.int64]]:
    """Read the latest arrivals of a window by station: as many days as the intervals need."""
    stations = {series.station for series in store.list_series(variable).values()}
    arrivals: dict[str, NDArray[np.int64]] = {}
    for part in _read_pieces(store, variable, window, refuse_late):
        arrivals = _join_arrivals([arrivals, part])
        if len(arrivals) == len(stations) and all(len(times_ns) > MAX_GAPS for times_ns in arrivals.values()):
            break
    return arrivals


def _read_pieces(
    store: Archive, variable: str, window: Window, refuse_late: Callable[[], None]
) -> Iterator[dict[str, NDArray[np.int64]]]:
    """Yield the arrivals of a window by station, in pieces of one chunk of slices, newest first."""
    for span in reversed(list(store.spans(variable, 1))):
        start_ns, stop_ns = max(span.start_ns, window.start_ns), min(span.stop_ns, window.stop_ns)
        if start_ns < stop_ns:
            yield _read_arrivals(store, variable, Window(start_ns, stop_ns))
            refuse_late()


def _read_arrivals(store: Archive, variable: str, window: Window) -> dict[str, NDArray[np.int64]]:
    """Read the arrival times of a window, by station [ns since 1970 UTC]."""
    listed = np.array(list(store.list_series(variable)), np.intp)
    readings = store.read(variable, window=window, series=listed)
    # Readings are ordered by series.
    numbers, starts = np.unique(readings.index, return_index=True)
    parts = np.split(readings.arrival_ns, starts[1:])
    return _join_arrivals(
        {readings.series[number].station: part} for number, part in zip(numbers.tolist(), parts, strict=False)
    )


def _join_arrivals(parts: Iterable[Mapping[str, NDArray[np.int64]]]) -> dict[str, NDArray[np.int64]]:
    """Merge arrivals by station, sorted and deduplicated."""
    times_by_station: dict[str, list[NDArray[np.int64]]] = {}
    for part in parts:
        for station, times_ns in part.items():
            times_by_station.setdefault(station, []).append(times_ns)
    return {station: np.unique(np.concatenate(listed)) for station, listed in times_by_station.items()}


def evaluate_liveness(
    entry: StandingEntry, archive: OpenArchive, changes: Sequence[Written] | None, *, now_ns: int
) -> EvaluationResult | None:
    """Evaluate a listening condition on the changes since the last evaluation; None: nothing new."""
    condition = entry.definition.condition
    if isinstance(condition, Silent):
        variable = entry.definition.query["variable"]
        has_arrivals = changes is None or any(
            change.variable == variable and change.kind != "flags" for change in changes
        )
        return _evaluate_silent(entry, condition, archive.snapshot, has_arrivals=has_arrivals, now_ns=now_ns)
    return _evaluate_dead(entry, archive, changes, now_ns=now_ns)


def _evaluate_silent(
    entry: StandingEntry, condition: Silent, snapshot: str, *, has_arrivals: bool, now_ns: int
) -> EvaluationResult | None:
    """Evaluate a silent-network condition; if the clock steps back, silence counts from then."""
    before = entry.progress
    known_ns = before.memory.get("heard_ns")
    # min(): if the clock stepped back, silence counts from now.
    heard_ns = now_ns if has_arrivals or known_ns is None else min(known_ns, now_ns)
    episodes, changes = list(before.episodes), []
    standing = episodes[-1] if episodes and episodes[-1].cleared_ns is None else None
    if standing is not None and has_arrivals:
        episodes[-1] = replace(standing, cleared_ns=now_ns)
        changes = [EpisodeChange("cleared", episodes[-1])]
    elif standing is None and now_ns - heard_ns > condition.after_ns:
        episodes.append(Episode(NETWORK, heard_ns + condition.after_ns))
        changes = [EpisodeChange("raised", episodes[-1])]
    is_untold = (standing is not None and standing.number is None) or before.memory.get(OWED)
    is_untold = is_untold and not entry.is_muted(now_ns)
    # Nothing to store: avoid a catalogue write at every poll.
    if not changes and not is_untold and heard_ns == known_ns and snapshot == before.snapshot:
        return None

    def describe(_change: EpisodeChange) -> dict[str, Any]:
        body = {"rule": condition.words(""), "condition": condition.to_json(), "snapshot": snapshot}
        return {**body, "readings": [], "late": False, "last_heard": format_timestamp(heard_ns)}

    alerts, owed = make_alerts(entry, episodes, changes, describe, now_ns)
    remembered = select_remembered(episodes, now_ns)
    progress = EvaluationProgress(snapshot, before.since_ns, None, remembered, {"heard_ns": heard_ns, **owed})
    return EvaluationResult(entry.name, progress, renumber_alerts(alerts, episodes, remembered))


def _describe_interval(learned: ReportingInterval) -> dict[str, Any]:
    interval_ns, bound_ns = learned.interval_ns, learned.bound_ns
    return {
        "last_heard": format_timestamp(learned.last_ns),
        "learned_interval_s": None if interval_ns is None else interval_ns / SECOND_NS,
        "bound_s": None if bound_ns is None else bound_ns / SECOND_NS,
    }


def make_alerts(
    entry: StandingEntry,
    episodes: Sequence[Episode],
    changes: Sequence[EpisodeChange],
    describe_change: Callable[[EpisodeChange], Mapping[str, Any]],
    now_ns: int,
) -> tuple[Alerts, dict[str, Any]]:
    """Make the alerts of changes; after a mute, also those held back by it.

    Returns the alerts, and the owed changes to remember while muted.
    """
    muted = entry.is_muted(now_ns)
    alerts: Alerts = []
    raised: set[int] = set()
    owed: dict[str, Any] = dict(entry.progress.memory.get(OWED, {}))
    for change in changes:
        number = change.episode.number
        index = next(
            (n for n, episode in enumerate(episodes) if episode is change.episode or episode == change.episode), None
        )
        if change.happening == "raised" and index is not None:
            raised.add(index)
        # The end of an episode that was never delivered is not delivered either.
        silent = muted or (change.happening != "raised" and number is None and index not in raised)
        alert = _make_alert(entry, change, describe_change(change), now_ns, muted=silent)
        alerts.append((alert, index))
        before, _ = owed.pop(str(number), ("", None))
        # Ended and raised again during the mute: the recipients' state is unchanged.
        if muted and number is not None and {before, change.happening} != {"raised", "cleared"}:
            owed[str(number)] = [change.happening, alert.body]
    if muted:
        return alerts, {OWED: owed} if owed else {}
    ended: Alerts = [(Alert(entry.name, happening, body, now_ns), None) for happening, body in owed.values()]
    for index, episode in enumerate(episodes):
        if episode.cleared_ns is None and episode.number is None and index not in raised:
            change = EpisodeChange("raised", episode)
            alerts.append((_make_alert(entry, change, describe_change(change), now_ns, muted=False), index))
    return ended + alerts, {}


def _make_alert(
    entry: StandingEntry, change: EpisodeChange, details: Mapping[str, Any], now_ns: int, *, muted: bool
) -> Alert:
    episode = change.episode
    ended = None if episode.cleared_ns is None else format_timestamp(episode.cleared_ns)
    body = {
        # A continuous query may be of several.
        "variable": entry.definition.query.get("variable"),
        "place": episode.place,
        "since": format_timestamp(episode.onset_ns),
        "until": ended,
        "text": _text(entry, change, details),
        **details,
    }
    return Alert(entry.name, change.happening, body, now_ns, muted)


def change_time_ns(change: EpisodeChange) -> int:
    """Return the start of the time cell of a change [ns since 1970 UTC]."""
    ended_ns = change.episode.cleared_ns if change.happening == "cleared" else None
    return change.episode.onset_ns if ended_ns is None else ended_ns


def _text(entry: StandingEntry, change: EpisodeChange, details: Mapping[str, Any]) -> str:
    episode, readings = change.episode, details["readings"]
    value = (
        f", {format_quantity(readings[0]['value'], readings[0]['unit'])}"
        if readings and readings[0]["value"] is not None
        else ""
    )
    learned = ""
    if details.get("bound_s"):
        bound = format_duration(round(details["bound_s"]) * SECOND_NS)
        learned = f"; last heard {details['last_heard']}, dead after {bound}"
    late = ", told late" if details["late"] else ""
    return (
        f"{entry.name} {change.happening} at {episode.place}, {format_instant(change_time_ns(change))}: "
        f"{details['rule']}"
        f"{value}{learned}{late}"
    )


def _describe_reading(
    rows: SurfaceRows, space: Space, row: int, column: int, unit: str, measure: float
) -> dict[str, Any]:
    """Describe the judged value, with its place and time."""
    value = float(rows.value[row, column])
    reading: dict[str, Any] = {
        "time": format_timestamp(int(rows.starts_ns[row])),
        "value": value if np.isfinite(value) else None,
        "unit": unit,
        "measure": measure if np.isfinite(measure) else None,
    }
    if isinstance(space, Grid):
        y, x = divmod(column % (space.y.count * space.x.count), space.x.count)
        reading |= {space.y.name: float(space.y.centres[y]), space.x.name: float(space.x.centres[x])}
    return reading


def _find_extreme(measure: NDArray[np.float64], *, rises: bool) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Find the maximum of a map, or the minimum if low values raise.

    Returns the value and its index, shape (times, 1).
    """
    worst = np.where(np.isnan(measure), -np.inf, measure if rises else -measure)
    at = np.argmax(worst, axis=1)[:, np.newaxis]
    return np.take_along_axis(measure, at, axis=1), at


def select_remembered(episodes: Sequence[Episode], newest_ns: int) -> tuple[Episode, ...]:
    """Keep open episodes, and those that an amendment may still change."""
    over = sorted(
        (episode.cleared_ns, index) for index, episode in enumerate(episodes) if episode.cleared_ns is not None
    )
    recent = {index for cleared_ns, index in over[-MOST_EPISODES:] if cleared_ns >= newest_ns - LOOK_BACK_NS - DAY_NS}
    # Open episodes are always kept: a forgotten one would be raised again.
    return tuple(episode for index, episode in enumerate(episodes) if episode.cleared_ns is None or index in recent)


def renumber_alerts(
    alerts: Alerts, before: Sequence[Episode], after: Sequence[Episode]
) -> tuple[tuple[Alert, int | None], ...]:
    """Map the episode index of each alert to the remembered episodes."""
    places = {id(episode): index for index, episode in enumerate(after)}
    return tuple((alert, None if index is None else places.get(id(before[index]))) for alert, index in alerts)
