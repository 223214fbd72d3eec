"""Alert conditions on the rows of a surface, and the episodes in which they hold, as pure functions of arrays.

A condition measures (values, their rate of change, how long they have been missing) and judges with hysteresis: an
alert is raised beyond one level and cleared only beyond another, so that values that fluctuate around the level raise
one alert. Missing values leave the state unchanged.

When readings are amended, the changed rows are judged again and the episodes reconciled with those already reported: an
overlapping one is the same episode, a new one is raised, and one that vanished is withdrawn. The outcome therefore does
not depend on the order of arrival, nor on how often a row is judged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.times import SECOND_NS, format_duration, parse_duration
from hypergrid.core.units import difference_of, parse_number, unit_symbol

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]

Level = float | str
"""A number in the surface's unit, or text with its own unit ("30 degC")."""


@dataclass(frozen=True, eq=False)
class SurfaceRows:
    """Consecutive time cells of a surface, in time order."""

    starts_ns: NDArray[np.int64]
    """Start of each [ns since 1970 UTC], shape (times,)."""
    ends_ns: NDArray[np.int64]
    """End of each [ns since 1970 UTC], shape (times,)."""
    value: Floats
    """[the surface's unit], NaN if missing, shape (times, places)."""


class Rule:
    """What all conditions have in common; subclasses are dataclasses."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Convert to the document that `condition_from_json` reads."""
        document: dict[str, Any] = {"kind": self.kind}
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if value is not None:
                is_duration = item.name.endswith("_ns")
                document[item.name.removesuffix("_ns")] = format_duration(value) if is_duration else value
        return document


@dataclass(frozen=True)
class LevelRule(Rule):
    """Raised above (or below) a level; cleared when no longer above (below) `clear`."""

    above: Level | None = None
    below: Level | None = None
    clear: Level | None = None
    """Defaults to the level itself."""

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            choice = "neither" if self.above is None else "both"
            raise InvalidQuery(f"the condition {self.kind!r} needs 'above' or 'below'; got {choice}")

    @property
    def rises(self) -> bool:
        """Whether high values raise, rather than low ones."""
        return self.above is not None

    def convert_levels(self, unit: str) -> Self:
        """Convert the levels to numbers [unit].

        Raises
        ------
        InvalidUnit, InvalidQuery
            A level does not convert, or lies on the wrong side of the other.
        """

        def number(name: str, value: Level | None) -> float | None:
            return (
                None if value is None else parse_number(value, unit, label=f"{name!r} of the condition {self.kind!r}")
            )

        high, low, back = number("above", self.above), number("below", self.below), number("clear", self.clear)
        level = high if high is not None else low
        if back is not None and level is not None and (back > level if high is not None else back < level):
            side = "at or below 'above'" if high is not None else "at or above 'below'"
            raise InvalidQuery(f"the condition {self.kind!r} needs 'clear' {side}, {level:g}; got {back:g}")
        return replace(self, above=high, below=low, clear=level if back is None else back)

    def judge(self, measure: Floats, _rows: SurfaceRows, raised: Marks) -> Marks:
        """Return the alert state after each time cell, shape (times, places); `raised`: state before, (places,)."""
        return apply_hysteresis(measure, raised, above=self.above, below=self.below, clear=self.clear)

    def _level_words(self, what: str, unit: str) -> str:
        def format_level(level: Level) -> str:
            return level if isinstance(level, str) else f"{level:g} {unit_symbol(unit)}".strip()

        side, level = ("above", self.above) if self.above is not None else ("below", self.below)
        cleared = "" if self.clear in (None, level) else f", cleared at {format_level(self.clear)}"
        return f"{what} {side} {format_level(level)}{cleared}"  # type: ignore[arg-type]


@dataclass(frozen=True)
class Threshold(LevelRule):
    """Raised by the values themselves."""

    kind: ClassVar[str] = "threshold"
    memory_ns: ClassVar[int] = 0

    def measure(self, rows: SurfaceRows) -> Floats:
        """Return the judged quantity, shape (times, places): the values."""
        return rows.value

    def words(self, unit: str) -> str:
        """Describe the rule in words."""
        return self._level_words("value", unit)


@dataclass(frozen=True)
class Rate(LevelRule):
    """Raised when values change faster than a level, per `per`, over a time `over`."""

    kind: ClassVar[str] = "rate"
    per_ns: int = 3600 * SECOND_NS
    """[ns]"""
    over_ns: int | None = None
    """Time between the two compared values [ns]; None: consecutive time cells."""

    @property
    def memory_ns(self) -> int:
        """How far back a judgement looks [ns]; at least to the previous time cell."""
        return self.over_ns or 1

    def convert_levels(self, unit: str) -> Self:
        """Convert the levels to numbers [unit per `per`]; temperature changes are differences."""
        # A rate of 1 degC per hour is 1 K per hour: no offset applies.
        return super().convert_levels(difference_of(unit))

    def measure(self, rows: SurfaceRows) -> Floats:
        """Compute the rates, NaN if either value is missing or unknown; shape (times, places)."""
        numbers = np.arange(len(rows.starts_ns))
        before = numbers - 1 if self.over_ns is None else np.searchsorted(rows.starts_ns, rows.starts_ns - self.over_ns)
        before = np.maximum(before, 0)
        over_ns = rows.starts_ns - rows.starts_ns[before]
        # searchsorted may find a later cell; only exact distances are compared.
        known = (over_ns > 0) & (over_ns == (self.over_ns or over_ns))
        change = rows.value - rows.value[before]
        return np.where(known[:, np.newaxis], change * (self.per_ns / np.maximum(over_ns, 1))[:, np.newaxis], np.nan)

    def words(self, unit: str) -> str:
        return self._level_words("rate of change", f"{unit} per {format_duration(self.per_ns)}")


@dataclass(frozen=True)
class Missing(Rule):
    """Raised when values have been missing for longer than `after`; cleared by the next value."""

    kind: ClassVar[str] = "missing"
    after_ns: int
    """[ns]"""

    rises: ClassVar[bool] = True

    @property
    def memory_ns(self) -> int:
        """How far back a judgement looks [ns]."""
        return self.after_ns

    def convert_levels(self, _unit: str) -> "Missing":
        """Return the condition unchanged: it has no levels."""
        return self

    def measure(self, rows: SurfaceRows) -> Floats:
        """Compute the time without a value at each cell's end [s], shape (times, places).

        At a place that never had a value it counts from the first row.
        """
        present = np.isfinite(rows.value)
        # A place without any value counts from the first row.
        ends = np.where(present, rows.ends_ns[:, np.newaxis], rows.starts_ns[:1] if len(present) else 0)
        last = np.maximum.accumulate(ends, axis=0)
        return np.asarray((rows.ends_ns[:, np.newaxis] - last) / SECOND_NS)

    def judge(self, measure: Floats, _rows: SurfaceRows, _raised: Marks) -> Marks:
        """Return the alert state after each time cell, shape (times, places)."""
        return measure > self.after_ns / SECOND_NS

    def words(self, _unit: str) -> str:
        return f"no value for more than {format_duration(self.after_ns)}"


@dataclass(frozen=True)
class Dead(Rule):
    """Raised when a station is silent for longer than its learned reporting interval allows.

    Silence is measured by the arrivals of readings of the query's variable, whatever their flags: a failing sensor is
    not a dead station. `liveness.py` describes how the interval is learned.
    """

    kind: ClassVar[str] = "dead"
    memory_ns: ClassVar[int] = 0

    def words(self, _unit: str) -> str:
        return "a station is not heard for one and a half times its learned interval"


@dataclass(frozen=True)
class Silent(Rule):
    """Raised when no station delivers the variable: the network or server is silent.

    Time is measured by the clock of the process since the last committed readings of the variable, as a silent network
    commits no slices.
    """

    kind: ClassVar[str] = "silent"
    memory_ns: ClassVar[int] = 0
    after_ns: int
    """[ns]"""

    def words(self, _unit: str) -> str:
        return f"nothing came from any station for more than {format_duration(self.after_ns)}"


@dataclass(frozen=True)
class InResult(Rule):
    """Raised while a kept continuous query has a row of a key, or when its stream brings an element of it.

    Rows of a relation are one episode as long as there is one with their key. Elements of a stream are one episode as
    long as none is later than the one before by more than `quiet`; nothing is reported at its end.
    """

    kind: ClassVar[str] = "continuous"
    memory_ns: ClassVar[int] = 0
    quiet_ns: int = 600 * SECOND_NS
    """[ns]"""


OnRows = Threshold | Rate | Missing
"""Conditions on the rows of a surface."""

Listening = Dead | Silent | InResult
"""Conditions on arrivals and on results of continuous queries: they compute no surface, so their queries have no steps.
"""

Condition = OnRows | Listening

KINDS: Final[Mapping[str, type[Condition]]] = {
    kind.kind: kind for kind in (Threshold, Rate, Missing, Dead, Silent, InResult)
}


def condition_from_json(document: object, *, label: str = "a condition") -> Condition:
    """Parse a condition document.

    ::

        {"kind": "threshold", "above": 30, "clear": 28}     {"kind": "rate", "below": -3, "per": "1h", "over": "20min"}
        {"kind": "missing", "after": "30min"}               {"kind": "dead"}
        {"kind": "silent", "after": "30min"}                {"kind": "continuous", "quiet": "1h"}

    Raises
    ------
    InvalidQuery, NotFound, InvalidTime
        A key is missing, unknown or invalid.
    """
    if not isinstance(document, Mapping) or "kind" not in document:
        raise InvalidQuery(
            f"the condition of {label} is a JSON object with a 'kind': {', '.join(KINDS)}; got {document!r}"
        )
    if document["kind"] not in tuple(KINDS):
        raise NotFound.among(kind=f"kind of condition of {label}", given=document["kind"], existing=KINDS)
    kind = KINDS[document["kind"]]
    known = {item.name.removesuffix("_ns"): item.name for item in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key == "kind":
            continue
        if key not in known:
            raise NotFound.among(kind=f"key of the {kind.kind} condition of {label}", given=key, existing=known)
        values[known[key]] = parse_duration(value) if known[key].endswith("_ns") else value
    if kind in (Missing, Silent) and "after_ns" not in values:
        raise InvalidQuery(
            f"the condition {kind.kind!r} of {label} needs 'after', such as '30min'; got {dict(document)!r}"
        )
    try:
        return kind(**values)
    except InvalidQuery as error:
        raise InvalidQuery(f"{label}: {error}") from error


def apply_hysteresis(
    measure: Floats, raised: Marks, *, above: Level | None, below: Level | None, clear: Level | None
) -> Marks:
    """Compute the alert state after each row: raised beyond one level, cleared at another.

    Parameters
    ----------
    measure
        Shape (times, places), NaN if unknown.
    raised
        Alert state before the first row, shape (places,).
    above, below, clear
        Levels as numbers (`convert_levels`): exactly one of the first two, and the clearing level.
    """
    level = float(above if above is not None else below)  # type: ignore[arg-type]
    back = level if clear is None else float(clear)
    # Comparisons with NaN are False on both sides, so missing values keep the state.
    with np.errstate(invalid="ignore"):
        goes_up = measure > level if above is not None else measure < level
        goes_down = measure <= back if above is not None else measure >= back
    decided = goes_up | goes_down
    # Forward-fill: each row takes the state of the latest row that crossed a level.
    rows = np.where(decided, np.arange(len(measure))[:, np.newaxis], -1)
    last = np.maximum.accumulate(rows, axis=0)
    held = np.take_along_axis(goes_up, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, held, raised)


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
