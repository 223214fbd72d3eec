"""From computed rows to alerts: what a condition finds, compared with what was told, in the words of an alert."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.archive import Change as Written
from hypergrid.core.times import (
    DAY_NS,
    SECOND_NS,
    Window,
    format_duration,
    format_instant,
    format_timestamp,
)
from hypergrid.query import OpenArchive
from hypergrid.topology import Grid, Space
from queries.standing.conditions import Dead, Listening, OnRows, Rows, Silent
from queries.standing.episodes import Change, Episode, episodes_in, reconcile, standing_at
from queries.standing.incremental_tasks import LOOK_BACK_NS, Kept, Task, newest_ns, places_of
from queries.standing.liveness import MOST, Learned, Silence
from queries.standing.repository import Alert, Entry, Found, Progress

MOST_EPISODES: Final = 1000
"""Episodes of one query that are over and are remembered; alerts themselves stay in the catalogue."""

RECENT_NS: Final = 30 * DAY_NS
"""How far back a new query for dead stations learns from the archive [ns]."""

NETWORK: Final = "network"
"""The place of an alert about all stations together."""

OWED: Final = "owed"
"""Where a query's memory holds what became of episodes that were told, while it was muted; by their alert."""

Alerts = list[tuple[Alert, int | None]]


def judged(entry: Entry, task: Task, kept: Kept, *, snapshot: str, now_ns: int) -> Found:
    """Return what an evaluation found, to be kept: progress, episodes and alerts.

    Parameters
    ----------
    entry
        The standing query, with a condition on rows.
    task
        What was computed; its rows are held by `kept`.
    snapshot
        That it was computed at.
    now_ns
        The present [ns since 1970 UTC].
    """
    before = entry.progress
    condition = entry.definition.condition
    if condition is None or isinstance(condition, Listening):
        return Found(entry.name, replace(before, snapshot=snapshot))
    settled: OnRows = condition.settled(task.here.unit)
    which, needed = task.judged(settled, before.since_ns or 0, before.judged_ns)
    if which.start == which.stop:
        return Found(entry.name, replace(before, snapshot=snapshot))
    rows = task.rows(kept, needed)
    measure = settled.measure(rows)
    space = task.here.topology.space
    at = np.zeros(measure.shape, np.intp) + np.arange(measure.shape[1])
    if isinstance(space, Grid):
        measure, at = _extreme(measure, rises=settled.rises)
    cut = slice(which.start - needed.start, None)
    rows = Rows(rows.starts_ns[cut], rows.ends_ns[cut], rows.value[cut])
    measure, at = measure[cut], at[cut]
    places = places_of(space)
    from_ns = int(rows.starts_ns[0])
    raised = standing_at(before.episodes, places, from_ns)
    state = settled.judge(measure, rows, raised)
    found = episodes_in(rows.starts_ns, state, raised, places)
    episodes, changes = reconcile(before.episodes, found, from_ns)

    def reading(change: Change) -> dict[str, Any]:
        row = int(np.clip(np.searchsorted(rows.starts_ns, _when(change)), 0, len(rows.starts_ns) - 1))
        column = places.index(change.episode.place) if change.episode.place in places else 0
        return _reading(rows, space, row, int(at[row, column]), task.here.unit, float(measure[row, column]))

    late_ns = before.judged_ns
    body = {"rule": settled.words(task.here.unit), "condition": settled.to_json(), "snapshot": snapshot}

    def told(change: Change) -> dict[str, Any]:
        is_late = late_ns is not None and _when(change) <= late_ns
        return {**body, "readings": [reading(change)], "late": is_late}

    alerts, memory = _alerts(entry, episodes, changes, told, now_ns)
    judged_ns = max(int(rows.starts_ns[-1]), before.judged_ns or 0)
    progress = Progress(snapshot, before.since_ns, judged_ns, _remembered(episodes, judged_ns), memory)
    return Found(entry.name, progress, _renumbered(alerts, episodes, progress.episodes))


def _dead(entry: Entry, archive: OpenArchive, changes: Sequence[Written] | None, *, now_ns: int) -> Found:
    """Return what the arrivals of new readings tell of dead stations.

    Parameters
    ----------
    changes
        What was committed since; None: not known, the last month is read again, of which what was heard counts once.
    """
    before, store = entry.progress, archive.store
    variable = str(entry.definition.query["variable"])
    silence = Silence.from_json(before.memory, resolution_ns=round(store.slice_s * SECOND_NS) // 2)
    select = dict(entry.definition.query.get("select", {})).get("station")
    wanted = {select} if isinstance(select, str) else set(select or ())
    if "stations" not in before.memory:
        silence.learn(_recent(store, variable), wanted)
        arrivals = {}
    elif changes is None:
        arrivals = _recent(store, variable)
    else:
        mine = [one for one in changes if one.variable == variable and one.kind != "flags"]
        arrivals = _joined(_arrivals(store, variable, run) for one in mine for run in one.runs)
    episodes, happened = silence.hear(arrivals, before.episodes, wanted)

    def told(change: Change) -> dict[str, Any]:
        learned = silence.stations[change.episode.place]
        words = Dead().words("")
        body = {"rule": words, "condition": {"kind": "dead"}, "snapshot": archive.snapshot}
        return {**body, "readings": [], "late": change.episode.cleared_ns is not None, **_learned(learned)}

    alerts, owed = _alerts(entry, episodes, happened, told, now_ns)
    remembered = _remembered(episodes, silence.newest_ns)
    progress = Progress(archive.snapshot, before.since_ns, None, remembered, {**silence.to_json(), **owed})
    return Found(entry.name, progress, _renumbered(alerts, episodes, remembered))


def _recent(store: Archive, variable: str) -> dict[str, NDArray[np.int64]]:
    """Return the arrivals of the last month by station, or as many days of it as every station's interval needs."""
    if store.extent(variable) is None:
        return {}
    from_ns = newest_ns(store, variable) - RECENT_NS
    stations = {one.station for one in store.series(variable)}
    found: dict[str, NDArray[np.int64]] = {}
    for span in reversed(list(store.spans(variable, 1))):
        if span.stop_ns <= from_ns or (len(found) == len(stations) and all(len(one) > MOST for one in found.values())):
            break
        found = _joined([found, _arrivals(store, variable, Window(max(span.start_ns, from_ns), span.stop_ns))])
    return found


def _arrivals(store: Archive, variable: str, window: Window) -> dict[str, NDArray[np.int64]]:
    """Return when the readings of a window arrived, by station."""
    readings = store.read(variable, window=window)
    numbers = np.unique(readings.index).tolist()
    return _joined({readings.series[one].station: readings.arrival_ns[readings.index == one]} for one in numbers)


def _joined(parts: Iterable[Mapping[str, NDArray[np.int64]]]) -> dict[str, NDArray[np.int64]]:
    """Return the arrivals of each station in any of the parts, each instant once, ascending."""
    found: dict[str, list[NDArray[np.int64]]] = {}
    for part in parts:
        for station, times_ns in part.items():
            found.setdefault(station, []).append(times_ns)
    return {station: np.unique(np.concatenate(listed)) for station, listed in found.items()}


def heard(entry: Entry, archive: OpenArchive, changes: Sequence[Written] | None, *, now_ns: int) -> Found | None:
    """Return what a condition that listens finds in what was committed since; None: nothing new."""
    condition = entry.definition.condition
    if isinstance(condition, Silent):
        variable = entry.definition.query["variable"]
        came = changes is None or any(one.variable == variable and one.kind != "flags" for one in changes)
        return _hushed(entry, condition, archive.snapshot, came=came, now_ns=now_ns)
    return _dead(entry, archive, changes, now_ns=now_ns)


def _hushed(entry: Entry, condition: Silent, snapshot: str, *, came: bool, now_ns: int) -> Found | None:
    """Return what the time tells of a network that may be silent; where it steps back, silence counts from there."""
    before = entry.progress
    known_ns = before.memory.get("heard_ns")
    heard_ns = now_ns if came or known_ns is None else min(known_ns, now_ns)
    episodes, changes = list(before.episodes), []
    standing = episodes[-1] if episodes and episodes[-1].cleared_ns is None else None
    if standing is not None and came:
        episodes[-1] = replace(standing, cleared_ns=now_ns)
        changes = [Change("cleared", episodes[-1])]
    elif standing is None and now_ns - heard_ns > condition.after_ns:
        episodes.append(Episode(NETWORK, heard_ns + condition.after_ns))
        changes = [Change("raised", episodes[-1])]
    is_untold = (standing is not None and standing.number is None) or before.memory.get(OWED)
    is_untold = is_untold and not entry.is_muted(now_ns)
    if not changes and not is_untold and heard_ns == known_ns and snapshot == before.snapshot:
        return None

    def told(_change: Change) -> dict[str, Any]:
        body = {"rule": condition.words(""), "condition": condition.to_json(), "snapshot": snapshot}
        return {**body, "readings": [], "late": False, "last_heard": format_timestamp(heard_ns)}

    alerts, owed = _alerts(entry, episodes, changes, told, now_ns)
    remembered = _remembered(episodes, now_ns)
    progress = Progress(snapshot, before.since_ns, None, remembered, {"heard_ns": heard_ns, **owed})
    return Found(entry.name, progress, _renumbered(alerts, episodes, remembered))


def _learned(learned: Learned) -> dict[str, Any]:
    interval_ns, bound_ns = learned.interval_ns, learned.bound_ns
    return {
        "last_heard": format_timestamp(learned.last_ns),
        "learned_interval_s": None if interval_ns is None else interval_ns / SECOND_NS,
        "bound_s": None if bound_ns is None else bound_ns / SECOND_NS,
    }


def _alerts(
    entry: Entry,
    episodes: Sequence[Episode],
    changes: Sequence[Change],
    told: Callable[[Change], Mapping[str, Any]],
    now_ns: int,
) -> tuple[Alerts, dict[str, Any]]:
    """Return the alerts of changes, at the end of a mute of what stands and what ended; and what is owed then."""
    muted = entry.is_muted(now_ns)
    alerts: Alerts = []
    raised: set[int] = set()
    owed: dict[str, Any] = dict(entry.progress.memory.get(OWED, {}))
    for change in changes:
        number = change.episode.number
        place = next((n for n, one in enumerate(episodes) if one is change.episode or one == change.episode), None)
        if change.happening == "raised" and place is not None:
            raised.add(place)
        # Of what nobody was told the end is told to nobody.
        silent = muted or (change.happening != "raised" and number is None and place not in raised)
        alert = _alert(entry, change, told(change), now_ns, muted=silent)
        alerts.append((alert, place))
        before, _ = owed.pop(str(number), ("", None))
        # What ended and goes on again is as it was told.
        if muted and number is not None and {before, change.happening} != {"raised", "cleared"}:
            owed[str(number)] = [change.happening, alert.body]
    if muted:
        return alerts, {OWED: owed} if owed else {}
    ended: Alerts = [(Alert(entry.name, happening, body, now_ns), None) for happening, body in owed.values()]
    for place, episode in enumerate(episodes):
        if episode.cleared_ns is None and episode.number is None and place not in raised:
            change = Change("raised", episode)
            alerts.append((_alert(entry, change, told(change), now_ns, muted=False), place))
    return ended + alerts, {}


def _alert(entry: Entry, change: Change, told: Mapping[str, Any], now_ns: int, *, muted: bool) -> Alert:
    episode = change.episode
    ended = None if episode.cleared_ns is None else format_timestamp(episode.cleared_ns)
    body = {
        "variable": entry.definition.query["variable"],
        "place": episode.place,
        "since": format_timestamp(episode.onset_ns),
        "until": ended,
        "text": _text(entry, change, told),
        **told,
    }
    return Alert(entry.name, change.happening, body, now_ns, muted)


def _when(change: Change) -> int:
    """Return where the time cell begins that a change is of [ns since 1970 UTC]."""
    ended_ns = change.episode.cleared_ns if change.happening == "cleared" else None
    return change.episode.onset_ns if ended_ns is None else ended_ns


def _text(entry: Entry, change: Change, told: Mapping[str, Any]) -> str:
    """Return an alert as a sentence."""
    episode, readings = change.episode, told["readings"]
    value = (
        f", {readings[0]['value']:.6g} {readings[0]['unit']}" if readings and readings[0]["value"] is not None else ""
    )
    learned = ""
    if told.get("bound_s"):
        bound = format_duration(round(told["bound_s"]) * SECOND_NS)
        learned = f"; last heard {told['last_heard']}, dead after {bound}"
    late = ", told late" if told["late"] else ""
    return (
        f"{entry.name} {change.happening} at {episode.place}, {format_instant(_when(change))}: {told['rule']}"
        f"{value}{learned}{late}"
    )


def _reading(rows: Rows, space: Space, row: int, column: int, unit: str, measure: float) -> dict[str, Any]:
    """Return the value that a condition judged, with where and when it is."""
    value = float(rows.value[row, column])
    told: dict[str, Any] = {
        "time": format_timestamp(int(rows.starts_ns[row])),
        "value": value if np.isfinite(value) else None,
        "unit": unit,
        "measure": measure if np.isfinite(measure) else None,
    }
    if isinstance(space, Grid):
        y, x = divmod(column % (space.y.count * space.x.count), space.x.count)
        told |= {space.y.name: float(space.y.centres[y]), space.x.name: float(space.x.centres[x])}
    return told


def _extreme(measure: NDArray[np.float64], *, rises: bool) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the measure of a map and where it is: the greatest, or where low ones raise the least; (times, 1)."""
    worst = np.where(np.isnan(measure), -np.inf, measure if rises else -measure)
    at = np.argmax(worst, axis=1)[:, np.newaxis]
    return np.take_along_axis(measure, at, axis=1), at


def _remembered(episodes: Sequence[Episode], newest_ns: int) -> tuple[Episode, ...]:
    """Return the episodes that stand, and those that an amendment may still change."""
    over = sorted((one.cleared_ns, place) for place, one in enumerate(episodes) if one.cleared_ns is not None)
    recent = {place for cleared_ns, place in over[-MOST_EPISODES:] if cleared_ns >= newest_ns - LOOK_BACK_NS - DAY_NS}
    # Those that stand are all remembered: what is forgotten is raised again.
    return tuple(one for place, one in enumerate(episodes) if one.cleared_ns is None or place in recent)


def _renumbered(
    alerts: Alerts, before: Sequence[Episode], after: Sequence[Episode]
) -> tuple[tuple[Alert, int | None], ...]:
    """Return alerts with the places of their episodes among those that are remembered."""
    places = {id(one): place for place, one in enumerate(after)}
    return tuple((alert, None if place is None else places.get(id(before[place]))) for alert, place in alerts)
