"""Episodes in which a condition holds at a place, derived from the surface alone.

When readings are amended, the changed rows are judged again and the episodes reconciled with those already reported: an
overlapping one is the same episode, a new one is raised, and one that vanished is withdrawn. The outcome therefore does
not depend on the order of arrival, nor on how often a row is judged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Happening = Literal["raised", "cleared", "withdrawn"]


@dataclass(frozen=True)
class Episode:
    """A time span over which a condition holds at a place."""

    place: str
    onset_ns: int
    """Start of the first time cell in which it holds [ns since 1970 UTC]."""
    cleared_ns: int | None = None
    """Start of the first time cell after it [ns since 1970 UTC]; None: still open."""
    number: int | None = None
    """Number of the alert that reported it; None: not reported yet."""

    def overlaps(self, other: "Episode") -> bool:
        """Return whether the two share a time cell."""
        before = self.cleared_ns is not None and self.cleared_ns <= other.onset_ns
        after = other.cleared_ns is not None and other.cleared_ns <= self.onset_ns
        return not before and not after


@dataclass(frozen=True)
class EpisodeChange:
    """A reportable change of an episode."""

    happening: Happening
    episode: Episode


def find_standing_places(episodes: Iterable[Episode], places: Sequence[str], time_ns: int) -> NDArray[np.bool_]:
    """Find places whose episode began before an instant and reaches it, shape (places,)."""
    active_places = {
        episode.place
        for episode in episodes
        if episode.onset_ns < time_ns and (episode.cleared_ns or time_ns) >= time_ns
    }
    return np.array([place_name in active_places for place_name in places], dtype=bool)


def find_episodes(
    starts_ns: NDArray[np.int64], state: NDArray[np.bool_], before: NDArray[np.bool_], places: Sequence[str]
) -> dict[str, list[Episode]]:
    """Find the episodes of each place that has any, in time order.

    Parameters
    ----------
    starts_ns
        Start of each time cell [ns since 1970 UTC], shape (times,).
    state
        Whether the condition holds after each time cell, shape (times, places).
    before
        Whether it held before the first, shape (places,): such an episode begins with the first cell, or earlier.
    """
    episodes: dict[str, list[Episode]] = {}
    if not len(starts_ns):
        return episodes
    edges = np.diff(state.astype(np.int8), axis=0, prepend=before.astype(np.int8)[np.newaxis])
    # An episode that continues from before has no rising edge; it is reported as starting with the first row.
    edges[0] = np.where(before & state[0], 1, edges[0])
    for column, time in zip(*(axis.tolist() for axis in np.nonzero(edges.T)), strict=True):
        listed, start_ns = episodes.setdefault(places[column], []), int(starts_ns[time])
        if edges[time, column] > 0:
            listed.append(Episode(places[column], start_ns))
        elif listed:
            listed[-1] = replace(listed[-1], cleared_ns=start_ns)
        else:
            # An episode that held before ends with the first row.
            listed.append(Episode(places[column], start_ns, start_ns))
    return episodes


def reconcile(
    old_episodes: Sequence[Episode], new_episodes: Mapping[str, Sequence[Episode]], from_ns: int
) -> tuple[list[Episode], list[EpisodeChange]]:
    """Reconcile known episodes with new ones; return the current episodes and the changes to report.

    Parameters
    ----------
    old_episodes
        Episodes reported before.
    new_episodes
        Episodes in the rows from an instant on, by place; one that held before begins with the first row.
    from_ns
        Start of the first of these rows [ns since 1970 UTC].
    """
    kept: list[Episode] = []
    open_: dict[str, list[Episode]] = {}
    for old_episode in old_episodes:
        if old_episode.cleared_ns is not None and old_episode.cleared_ns < from_ns:
            kept.append(old_episode)
        else:
            open_.setdefault(old_episode.place, []).append(old_episode)
    changes: list[EpisodeChange] = []
    for place_name in dict.fromkeys([*open_, *new_episodes]):
        before = sorted(open_.get(place_name, ()), key=lambda candidate: candidate.onset_ns)
        for episode in new_episodes.get(place_name, ()):
            match = next((candidate for candidate in before if _is_same(candidate, episode, from_ns)), None)
            if match is None:
                # An empty episode only marks that one from before ended.
                if episode.cleared_ns == episode.onset_ns:
                    continue
                kept.append(episode)
                changes.append(EpisodeChange("raised", episode))
                if episode.cleared_ns is not None:
                    changes.append(EpisodeChange("cleared", episode))
                continue
            # Each known episode matches once; the rest is kept or withdrawn below.
            before.remove(match)
            # An episode that held before the first row keeps its onset.
            onset_ns = min(match.onset_ns, episode.onset_ns) if match.onset_ns < from_ns else episode.onset_ns
            now = replace(match, onset_ns=onset_ns, cleared_ns=episode.cleared_ns)
            kept.append(now)
            if match.cleared_ns is None and now.cleared_ns is not None:
                changes.append(EpisodeChange("cleared", now))
            elif match.cleared_ns is not None and now.cleared_ns is None:
                changes.append(EpisodeChange("raised", now))
        for gone in before:
            if gone.onset_ns < from_ns:
                kept.append(gone)
            else:
                changes.append(EpisodeChange("withdrawn", gone))
    return kept, changes


def _is_same(old_episode: Episode, new_episode: Episode, from_ns: int) -> bool:
    if new_episode.onset_ns == from_ns and old_episode.onset_ns < from_ns:
        # An episode that held before the first row continues, or ends, with it.
        return True
    return new_episode.cleared_ns != new_episode.onset_ns and old_episode.overlaps(new_episode)
