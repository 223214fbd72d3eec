"""Alerts of kept continuous queries: episodes of the keys of a result, reconciled when corrections come.

A kept query gives numbered elements; what a standing query has made of them is stored with the number of the last one,
in the transaction of its alerts. After a stop, elements beyond that number are read again, so none is lost or judged
twice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from hypergrid.continuous.expressions import Attribute
from hypergrid.continuous.records import NoLongerKept
from hypergrid.core.errors import TooLarge
from hypergrid.core.times import Window, format_timestamp
from hypergrid.core.units import format_quantity
from queries.continuous.kept import KeptQueries, ResultForm
from queries.standing.alert_evaluation import (
    NETWORK,
    OWED,
    change_time_ns,
    make_alerts,
    renumber_alerts,
    select_remembered,
)
from queries.standing.conditions import Episode, EpisodeChange, InResult, reconcile
from queries.standing.definition import FOLLOWED
from queries.standing.incremental_tasks import LOOK_BACK_NS
from queries.standing.repository import EvaluationProgress, EvaluationResult, StandingEntry

MOST_OPEN: Final = 1000
"""Open episodes of a query, at most."""
_LAST_NS: Final = 2**63 - 1
_REMEDY: Final = "ask for fewer rows, or group them by fewer columns"

Row = tuple[float | int | str | bool | None, ...]
Rows = Mapping[tuple[int, Row], int]
"""How many more of each row entered than left at each instant [ns since 1970 UTC]."""


def evaluate_rows(entry: StandingEntry, kept: KeptQueries, *, now_ns: int) -> EvaluationResult | None:
    """Judge the elements that a kept query gave since the last evaluation; None: nothing new.

    Episodes that were over before the standing query was made (`since_ns` of its progress) are the past, and not
    reported. Until the kept query has come so far, none is.

    Parameters
    ----------
    entry
        A standing query with the condition `InResult`.
    kept
        The kept queries.
    now_ns
        Current time [ns since 1970 UTC].

    Raises
    ------
    NotFound
        The kept query was removed.
    TooLarge
        It has too many keys at once for alerts.
    """
    before, condition = entry.progress, entry.definition.condition
    if not isinstance(condition, InResult):
        return None
    name = str(entry.definition.query[FOLLOWED])
    followed = kept.entry(name)
    form = kept.form(followed)
    after, past_ns = int(before.memory.get("after", 0)), before.memory.get("past_ns")
    has_begun, is_again = past_ns is not None, False
    try:
        elements = list(kept.iterate_elements(name, after))
    except NoLongerKept:
        # It was not looked at for as long as results are kept: judged again, from those that are.
        after, is_again = 0, True
        elements = list(kept.iterate_elements(name, after))
    since_ns, judged_ns = before.since_ns or 0, followed.heartbeat_ns
    # A kept query may have come as far as it can without having passed the newest reading.
    begins = not has_begun and judged_ns is not None and (judged_ns >= since_ns or kept.is_complete(name))
    if not (elements or is_again or begins or is_unreported(entry, now_ns)):
        return None
    counts = Counter[str]({} if is_again else before.memory.get("counts", {}))
    episodes, changes = list(before.episodes), list[EpisodeChange]()
    rows: dict[str, Row] = {}
    entered: dict[tuple[str, int], Row] = {}
    newest_ns = max([before.judged_ns or 0, *(element.tau_ns for element in elements)])
    upto = elements[-1].number if elements else after
    if elements or is_again:
        # Older corrections raise no alert, as of readings: their episodes are not remembered.
        kept_ns = max(followed.options.start_ns, followed.retention.kept_ns)
        is_followed = has_begun and not is_again
        first_ns = max(kept_ns, newest_ns - LOOK_BACK_NS) if is_followed else followed.options.start_ns
        # What is not there any more is over, too.
        from_ns = {each.place: kept_ns for each in episodes if is_again and each.cleared_ns is None}
        for element in elements:
            key = _key_of(element.row, form)
            counts[key] += 0 if form.is_stream else element.sign
            from_ns[key] = max(min(from_ns.get(key, _LAST_NS), element.tau_ns), first_ns)
            rows[key] = element.row
        span = Window(_read_from(min(from_ns.values(), default=kept_ns), form, condition, episodes), _LAST_NS)
        history = _sort_history(kept.count_given(name, span, upto=upto), from_ns, form)
        for key, listed in history.items():
            entered |= {(key, tau_ns): row for tau_ns, row, count in listed if count > 0}
        for key, start_ns in from_ns.items():
            own = [episode for episode in episodes if episode.place == key]
            others = [episode for episode in episodes if episode.place != key]
            if form.is_stream:
                current, own_changes = _follow_stream(
                    own, history.get(key, ()), start_ns, key=key, quiet_ns=condition.quiet_ns, kept_ns=kept_ns
                )
            else:
                current, own_changes = _follow_relation(own, history.get(key, ()), start_ns, key=key, count=counts[key])
            episodes, changes = others + current, changes + own_changes
        changes.sort(key=change_time_ns)
    open_episodes = sum(episode.cleared_ns is None for episode in episodes)
    if open_episodes > MOST_OPEN:
        raise TooLarge(f"the alert of {entry.name!r}", "keys in the result", open_episodes, MOST_OPEN, _REMEDY)

    def describe(change: EpisodeChange) -> dict[str, Any]:
        time_ns = change_time_ns(change)
        row = entered.get((change.episode.place, time_ns), rows.get(change.episode.place))
        names = (part.name for part in form.attributes)
        values = None if row is None else dict(zip(names, form.to_json(row), strict=True))
        return {
            "rule": _words(row, form), "condition": condition.to_json(), FOLLOWED: name, "row": values,
            "snapshot": followed.snapshot, "readings": [],
            "late": has_begun and before.judged_ns is not None and time_ns < before.judged_ns,
        }  # fmt: skip

    snapshot = followed.snapshot or before.snapshot
    if begins:
        past_ns = min(since_ns, judged_ns or 0)
    memory = {"after": upto, "past_ns": past_ns, "counts": dict(+counts)}
    remembered = select_remembered(episodes, newest_ns)
    if past_ns is None:
        return EvaluationResult(entry.name, EvaluationProgress(snapshot, since_ns, judged_ns, remembered, memory))
    if begins:
        changes = _list_changes(episodes, is_stream=form.is_stream)
    reported = [change for change in changes if not _is_past(change.episode, past_ns)]
    alerts, owed = make_alerts(entry, episodes, reported, describe, now_ns)
    progress = EvaluationProgress(snapshot, since_ns, judged_ns, remembered, {**memory, **owed})
    return EvaluationResult(entry.name, progress, renumber_alerts(alerts, episodes, remembered))


def is_unreported(entry: StandingEntry, now_ns: int) -> bool:
    """Return whether a mute is over that held alerts of a continuous query back."""
    memory = entry.progress.memory
    if memory.get("past_ns") is None or entry.is_muted(now_ns):
        return False
    lasting = (episode for episode in entry.progress.episodes if episode.cleared_ns is None)
    return bool(memory.get(OWED)) or any(episode.number is None for episode in lasting)


def _list_changes(episodes: Iterable[Episode], *, is_stream: bool) -> list[EpisodeChange]:
    """Return the changes that led to episodes, in order of time."""
    changes: list[EpisodeChange] = []
    for episode in episodes:
        changes.append(EpisodeChange("raised", episode))
        if episode.cleared_ns is not None and not is_stream:
            changes.append(EpisodeChange("cleared", episode))
    return sorted(changes, key=change_time_ns)


def _is_past(episode: Episode, past_ns: int) -> bool:
    """Return whether an episode was over before its query had alerts, and so was not reported."""
    return episode.number is None and episode.cleared_ns is not None and episode.cleared_ns <= past_ns


def _key_of(row: Row, form: ResultForm) -> str:
    """Return the key of a row as text; the network where the result has no key."""
    values = [_text_of(row[position], form.attributes[position]) for position in form.keys]
    return ", ".join(values) or NETWORK


def _text_of(value: object, attribute: Attribute) -> str:
    if value is None:
        return "none"
    if attribute.kind == "time":
        return format_timestamp(int(str(value)))
    if attribute.kind == "number":
        return format_quantity(float(str(value)), attribute.unit or "")
    return str(value)


def _words(row: Row | None, form: ResultForm) -> str:
    """Describe a row by its columns."""
    if row is None:
        return "in the result of the continuous query"
    parts = zip(form.attributes, row, strict=True)
    return ", ".join(f"{attribute.name} {_text_of(value, attribute)}" for attribute, value in parts)


def _read_from(first_ns: int, form: ResultForm, condition: InResult, episodes: Iterable[Episode]) -> int:
    """Return the instant from which elements are read again: an episode of a stream that goes on is made whole."""
    if not form.is_stream:
        return first_ns
    return _find_whole(first_ns - condition.quiet_ns, episodes)


def _find_whole(reached_ns: int, episodes: Iterable[Episode]) -> int:
    """Return the onset of the first episode that an instant reaches, or the instant if that is earlier."""
    onsets = (episode.onset_ns for episode in episodes if (episode.cleared_ns or _LAST_NS) >= reached_ns)
    return min([reached_ns, *onsets])


def _sort_history(given: Rows, from_ns: Mapping[str, int], form: ResultForm) -> dict[str, list[tuple[int, Row, int]]]:
    """Sort what entered and left by key and time, for the places that concern."""
    history: dict[str, list[tuple[int, Row, int]]] = {}
    for (tau_ns, row), count in given.items():
        key = _key_of(row, form)
        if key in from_ns:
            history.setdefault(key, []).append((tau_ns, row, count))
    for listed in history.values():
        listed.sort(key=lambda item: item[0])
    return history


def _follow_relation(
    episodes: Sequence[Episode], history: Iterable[tuple[int, Row, int]], start_ns: int, *, key: str, count: int
) -> tuple[list[Episode], list[EpisodeChange]]:
    """Return the episodes of a key of a relation, and what changed.

    Parameters
    ----------
    history
        What entered and left, by time; before `start_ns` nothing changed.
    count
        How many of its rows there are after all of it.
    """
    net = Counter[int]()
    for tau_ns, _, change in history:
        if tau_ns >= start_ns:
            net[tau_ns] += change
    count -= sum(net.values())
    begun_ns, current = (start_ns if count > 0 else None), list[Episode]()
    for tau_ns in sorted(net):
        count += net[tau_ns]
        if begun_ns is None and count > 0:
            begun_ns = tau_ns
        elif begun_ns is not None and count <= 0:
            current.append(Episode(key, begun_ns, tau_ns))
            begun_ns = None
    if begun_ns is not None:
        current.append(Episode(key, begun_ns))
    if not current:
        # Empty: what held before does not any more.
        current.append(Episode(key, start_ns, start_ns))
    return reconcile(episodes, {key: current}, start_ns)


def _follow_stream(
    episodes: Sequence[Episode],
    history: Iterable[tuple[int, Row, int]],
    start_ns: int,
    *,
    key: str,
    quiet_ns: int,
    kept_ns: int,
) -> tuple[list[Episode], list[EpisodeChange]]:
    """Return the episodes of a key of a stream, and what changed; an episode lasts until it was quiet.

    Elements before `kept_ns` are not kept any more; episodes that they began stand.
    """
    whole_ns = _find_whole(start_ns - quiet_ns, episodes)
    present = Counter[int]()
    for tau_ns, _, count in history:
        present[tau_ns] += count
    older = sorted((each for each in episodes if whole_ns <= each.onset_ns < kept_ns), key=lambda each: each.onset_ns)
    current = [replace(each, cleared_ns=min(each.cleared_ns or _LAST_NS, kept_ns + quiet_ns)) for each in older]
    for tau_ns in sorted(tau_ns for tau_ns, count in present.items() if count > 0 and tau_ns >= whole_ns):
        if current and tau_ns <= (current[-1].cleared_ns or 0):
            current[-1] = replace(current[-1], cleared_ns=max(current[-1].cleared_ns or 0, tau_ns + quiet_ns))
        else:
            current.append(Episode(key, tau_ns, tau_ns + quiet_ns))
    current, changes = reconcile(episodes, {key: current}, whole_ns)
    # A quiet time that is over is no news.
    return current, [change for change in changes if change.happening != "cleared"]
