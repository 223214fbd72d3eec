"""Alerts as episodes: where a condition begins to hold at a place, and where it ends; a function of the surface alone.

When readings are amended, the rows that changed are judged once more, and the episodes are compared with those that
were told: one that overlaps is the same, a new one is raised, one that is no more is withdrawn. So it does not matter
in which order readings came, nor how often a row is judged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Happening = Literal["raised", "cleared", "withdrawn"]


@dataclass(frozen=True)
class Episode:
    """A stretch over which a condition holds at a place."""

    place: str
    onset_ns: int
    """Start of the first time cell that it holds in [ns since 1970 UTC]."""
    cleared_ns: int | None = None
    """Start of the first time cell after it; None: it holds as far as is known."""
    number: int | None = None
    """Number of the alert that told it; None: none did yet."""

    def overlaps(self, other: "Episode") -> bool:
        """Return whether the two share a time cell."""
        before = self.cleared_ns is not None and self.cleared_ns <= other.onset_ns
        after = other.cleared_ns is not None and other.cleared_ns <= self.onset_ns
        return not before and not after


@dataclass(frozen=True)
class EpisodeChange:
    """What is to be told of an episode."""

    happening: Happening
    episode: Episode


def find_standing_places(episodes: Iterable[Episode], places: Sequence[str], time_ns: int) -> NDArray[np.bool_]:
    """Return at which places an episode that began before an instant reaches it, shape (places,)."""
    active_places = {
        episode.place
        for episode in episodes
        if episode.onset_ns < time_ns and (episode.cleared_ns or time_ns) >= time_ns
    }
    return np.array([place_name in active_places for place_name in places], dtype=bool)


def find_episodes(
    starts_ns: NDArray[np.int64], state: NDArray[np.bool_], before: NDArray[np.bool_], places: Sequence[str]
) -> dict[str, list[Episode]]:
    """Return the episodes of each place that has any, in order.

    Parameters
    ----------
    starts_ns
        Where each time cell begins, shape (times,).
    state
        Where the condition holds after each, shape (times, places).
    before
        Where it held before the first, shape (places,): such an episode begins with the first, or earlier.
    """
    episodes: dict[str, list[Episode]] = {}
    if not len(starts_ns):
        return episodes
    edges = np.diff(state.astype(np.int8), axis=0, prepend=before.astype(np.int8)[np.newaxis])
    edges[0] = np.where(before & state[0], 1, edges[0])
    for column, time in zip(*(axis.tolist() for axis in np.nonzero(edges.T)), strict=True):
        listed, start_ns = episodes.setdefault(places[column], []), int(starts_ns[time])
        if edges[time, column] > 0:
            listed.append(Episode(places[column], start_ns))
        elif listed:
            listed[-1] = replace(listed[-1], cleared_ns=start_ns)
        else:
            # What held before ends with the first row.
            listed.append(Episode(places[column], start_ns, start_ns))
    return episodes


def reconcile(
    old_episodes: Sequence[Episode], new_episodes: Mapping[str, Sequence[Episode]], from_ns: int
) -> tuple[list[Episode], list[EpisodeChange]]:
    """Return the episodes as they stand now, and what is to be told.

    Parameters
    ----------
    old_episodes
        Those that were told before.
    new_episodes
        Those of the rows from an instant on, by place; one that held before begins with the first row.
    from_ns
        Where the first of these rows begins [ns since 1970 UTC].
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
                if episode.cleared_ns == episode.onset_ns:
                    continue
                kept.append(episode)
                changes.append(EpisodeChange("raised", episode))
                if episode.cleared_ns is not None:
                    changes.append(EpisodeChange("cleared", episode))
                continue
            before.remove(match)
            # What held before the first row keeps its onset.
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
        # What held before the first row goes on, or ends, with it.
        return True
    return new_episode.cleared_ns != new_episode.onset_ns and old_episode.overlaps(new_episode)
