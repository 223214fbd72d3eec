"""Evaluation that follows a source whose past changes: new results, and corrections of those that were given.

A version of a source is a fixed set of elements; from one to the next, elements are added, replaced and removed.
Results below the heartbeat were given. Where elements below it change, the part that they reach is evaluated again
from the source at its new version, and what differs from the results given is given as corrections: all results
together are at all times those of one evaluation of the newest version up to the heartbeat.

Where results are kept for a time only, a state is the past: elements before its heartbeat that change later are
counted, and change nothing. Results before it are let go of, but for the rows of a relation that hold then. Together
they are those of one evaluation of what the state has taken, and of the newest version from there on.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from hypergrid.continuous.algebra import Operator
from hypergrid.continuous.engine import ChangeBatch, ContinuousEngine, ElementBatch, Texts
from hypergrid.continuous.expressions import NULL_INTEGER
from hypergrid.continuous.horizon import find_horizon
from hypergrid.continuous.live.rows import Row, rows_of
from hypergrid.continuous.records import RowNotHeld
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import Window

START: Final = NULL_INTEGER
"""Instant of rows that are there from the start."""
KEPT_PARTS: Final = 4
"""Parts of the time for which results are kept; a state is kept of the end of each."""


class LiveElement(NamedTuple):
    """Element of a result."""

    tau: int
    """[ns since 1970 UTC]"""
    sign: int
    row: Row
    is_correction: bool = False


class VersionedSource(Protocol):
    """Elements of the inputs of a tree, at any version."""

    @property
    def floor_ns(self) -> int:
        """Instant from which on elements can be read [ns]; `START` if all can."""

    def begin(self, version: str, texts: Texts) -> Mapping[str, ElementBatch]:
        """Return the rows of relations that are there from the start."""

    def read(self, version: str, window: Window, texts: Texts) -> Iterator[tuple[Mapping[str, ElementBatch], int]]:
        """Yield the elements of a window in canonical order, in parts, each with the heartbeat at its end."""

    def list_changed(self, old: str, new: str, window: Window, past_ns: int) -> Sequence[Window] | None:
        """Return windows that hold all elements of a window that differ.

        None if rows of the start do, or of a relation before `past_ns`: these go on to hold.
        """


class LiveRecord(Protocol):
    """What is kept of an evaluation: its heartbeat, states, and the results given."""

    def find_heartbeat(self) -> int | None:
        """Return the heartbeat of the last step; None before the first."""

    def find_kept(self) -> int:
        """Return the instant from which on results are kept; `START` if all are."""

    def find_state(self, at_ns: int) -> tuple[int, bytes] | None:
        """Return the state with the greatest heartbeat up to an instant."""

    def list_states(self) -> Sequence[int]:
        """Return the heartbeats of all states, those that cannot be read included."""

    def count_given(self, window: Window) -> Counter[tuple[int, Row]]:
        """Return how many more of each row entered than left at each instant of a window, corrections included."""


class LiveStep(NamedTuple):
    """What a step of an evaluation gives; to be kept at once, or not at all."""

    elements: tuple[LiveElement, ...]
    """Corrections, then new elements, each in order of time."""
    states: Mapping[int, bytes]
    """States by heartbeat, which replace those that are known; the greatest is that of the evaluation."""
    dropped: tuple[int, ...]
    """Heartbeats of states that need not be kept."""
    late_windows: int
    """Windows below the heartbeat in which elements changed."""
    kept_ns: int = START
    """Instant from which on results are to be kept, and of a relation the rows that hold then; `START`: all are."""
    is_stream: bool = False
    """Whether the result is a stream."""
    too_late_windows: int = 0
    """Windows before the results that are kept in which elements changed; they were not evaluated again."""


@dataclass
class LiveEvaluation:
    """Evaluation of a tree at a version of its source.

    Parameters
    ----------
    tree
        Tree of the query.
    source
        Where elements come from.
    record
        What is kept.
    start_ns
        Start of the stretch: earlier elements are not part of it.
    static
        Relations that never change.
    """

    tree: Operator
    source: VersionedSource
    record: LiveRecord
    start_ns: int
    static: frozenset[str] = frozenset()
    firsts: Mapping[str, int] | None = None
    """First instant of each input that had an element, for a state that is lost; None: not known."""
    keep_ns: int | None = None
    """How long results are kept, at least [ns]; None: always."""

    def __post_init__(self) -> None:
        self._horizon_ns = find_horizon(self.tree, self.static)
        self._engine: ContinuousEngine | None = None
        # Instant from which on results are kept, as the step at hand began.
        self._kept_ns = START

    def list_firsts(self) -> dict[str, int]:
        """Return the first instant of each input that had an element, once a step is done."""
        return {} if self._engine is None else self._engine.firsts

    def advance(self, old: str | None, new: str, heartbeat_ns: int) -> LiveStep:
        """Go on to a version and a heartbeat.

        Parameters
        ----------
        old
            Version of the step before; None if this is the first.
        new
            Version to read.
        heartbeat_ns
            Instant before which results are given now; an earlier one than before counts as that before.

        Raises
        ------
        InvalidQuery
            The state is lost, and so are elements on which it depends.
        """
        try:
            return self._advance(old, new, heartbeat_ns, is_trusted=True)
        except RowNotHeld:
            given_ns = self.record.find_heartbeat()
            if given_ns is None or given_ns <= self.start_ns:
                raise
            # A state may hold values that a numerical library of another version gives in other bits now.
            self.forget()
            return self._advance(old, new, heartbeat_ns, is_trusted=False)

    def _advance(self, old: str | None, new: str, heartbeat_ns: int, *, is_trusted: bool) -> LiveStep:
        """Go on; without trust in the states, all is evaluated again."""
        given_ns, held = self.record.find_heartbeat(), self.record.list_states()
        kept_ns = self._kept_ns = self.record.find_kept()
        # What is there from the start may differ until the first result, so states before that are of no use.
        known = sorted(each for each in held if given_ns is not None and self.start_ns < each <= given_ns)
        engine = self._find_engine(new, given_ns) if is_trusted else None
        reached = given_ns if engine is None else engine.heartbeat
        assert reached is not None
        before = max(reached, self.start_ns)
        stop = max(heartbeat_ns, before)
        newest = stop if stop > before else reached
        marks = self._list_marks(before, stop)
        still_kept_ns = self._find_kept({*known, *marks}, newest, kept_ns)
        left = {*self._thin({*known, *marks, newest}, still_kept_ns), *(set(held) - set(known) - {newest})}
        dropped = tuple(sorted(left))
        redone_ns = None
        if engine is None:
            # Results after the newest state that can be read are given again: what differs is corrected.
            base = self._find_readable(known) if is_trusted else None
            redone_ns = START if base is None else base.heartbeat
        windows: list[Window] | None = []
        too_late = 0
        if old is not None and old != new and before > self.start_ns and redone_ns != START:
            changed = self.source.list_changed(old, new, Window(self.start_ns, before), kept_ns)
            windows = None if changed is None else list(changed)
        if windows is None:
            windows = [Window(START, before)]
        elif kept_ns > self.start_ns:
            too_late = sum(each.start_ns < kept_ns for each in windows)
            kept = Window(kept_ns, before)
            windows = [part for each in windows if (part := each.intersect(kept)) is not None]
        late = len(windows)
        if redone_ns is not None:
            windows.append(Window(redone_ns, before))
        given: list[LiveElement] = []
        states: dict[int, bytes] = {}
        if windows:
            whole = Window(min(each.start_ns for each in windows), max(each.stop_ns for each in windows))
            # States are large, so those that will not be kept are not written either.
            stale = [each for each in known if each < newest and each not in left]
            given, states, engine = self._correct(engine, new, whole, before, stale)
        assert engine is not None
        for mark in (*marks, stop):
            given += [LiveElement(*row) for rows, _ in self._run(engine, new, mark) for row in rows]
            if mark in marks and mark not in left:
                states[mark] = engine.save()
        self._engine = engine
        states[newest] = engine.save()
        return LiveStep(tuple(given), states, dropped, late, still_kept_ns, self.tree.is_stream, too_late)

    def _list_marks(self, before_ns: int, stop_ns: int) -> list[int]:
        """Return the instants of states on the way to another, of which one will be the past of what is kept."""
        if self.keep_ns is None:
            return []
        part_ns = self._part_ns(self.keep_ns)
        first = max(before_ns, stop_ns - self.keep_ns - part_ns)
        return list(range((first // part_ns + 1) * part_ns, stop_ns, part_ns))

    @staticmethod
    def _part_ns(keep_ns: int) -> int:
        return max(keep_ns // KEPT_PARTS, 1)

    def _find_kept(self, heartbeats: set[int], newest_ns: int, kept_ns: int) -> int:
        """Return the instant from which on results are to be kept: the greatest heartbeat that is old enough."""
        if self.keep_ns is None:
            return kept_ns
        return max(kept_ns, *(each for each in heartbeats if each <= newest_ns - self.keep_ns), START)

    def _thin(self, heartbeats: set[int], kept_ns: int) -> tuple[int, ...]:
        """Return the heartbeats of states that need not be kept.

        Fewer are kept of older ones, none if reach is bounded; but for those of which one is or will be the past.
        """
        newest = max(heartbeats)
        kept: dict[int, int] = {0: newest}
        if self._horizon_ns is None:
            for heartbeat in sorted(heartbeats, reverse=True):
                # The oldest of each age, ages by powers of four.
                kept[((newest - heartbeat).bit_length() + 1) // 2] = heartbeat
        held = {*kept.values(), kept_ns}
        if self.keep_ns is not None:
            part_ns = self._part_ns(self.keep_ns)
            held |= {each for each in heartbeats if each % part_ns == 0}
        return tuple(sorted(each for each in heartbeats if each not in held or each < kept_ns))

    def _find_engine(self, version: str, given_ns: int | None) -> ContinuousEngine | None:
        """Return the engine of the step before, or one that begins; None if the state of that step cannot be read."""
        if given_ns is None or given_ns <= self.start_ns:
            # Nothing was given yet, so what is there from the start may differ.
            self._engine = self._begin(version)
        elif self._engine is None or self._engine.heartbeat != given_ns:
            self._engine = self._read_state(given_ns)
        return self._engine

    def _read_state(self, heartbeat_ns: int) -> ContinuousEngine | None:
        """Return the engine of a state that was kept; None if it is damaged, or that of another program."""
        kept = self.record.find_state(heartbeat_ns)
        if kept is None or kept[0] != heartbeat_ns:
            return None
        try:
            engine = ContinuousEngine.restore(self.tree, kept[1])
        except InvalidQuery:
            return None
        return engine if engine.heartbeat == heartbeat_ns else None

    def _find_readable(self, known: Sequence[int]) -> ContinuousEngine | None:
        """Return the engine of the newest of some states that can be read, and after which elements can be."""
        for heartbeat in sorted(known, reverse=True):
            if heartbeat < self.source.floor_ns:
                break
            engine = self._read_state(heartbeat)
            if engine is not None:
                return engine
        return None

    def forget(self) -> None:
        """Let the next step begin with the state that was kept, as after a step that was not."""
        self._engine = None

    def _begin(self, version: str) -> ContinuousEngine:
        engine = ContinuousEngine(self.tree)
        for name, batch in self.source.begin(version, engine.texts).items():
            engine.push(name, batch)
        return engine

    def _run(
        self, engine: ContinuousEngine, version: str, stop_ns: int
    ) -> Iterator[tuple[list[tuple[int, int, Row]], int]]:
        """Process the elements of a version from the heartbeat of an engine on; yields results up to instants."""
        start = max(engine.heartbeat, self.start_ns)
        if start < stop_ns:
            for batches, heartbeat in self.source.read(version, Window(start, stop_ns), engine.texts):
                for name, batch in batches.items():
                    engine.push(name, batch)
                engine.advance(heartbeat)
                yield self._take(engine), heartbeat
            engine.advance(stop_ns)
        yield self._take(engine), max(start, stop_ns)

    def _take(self, engine: ContinuousEngine) -> list[tuple[int, int, Row]]:
        batches: list[ChangeBatch] = engine.results()
        return [row for batch in batches for row in rows_of(batch, self.tree.attributes, engine.texts)]

    def _correct(
        self,
        live: ContinuousEngine | None,
        version: str,
        changed: Window,
        before_ns: int,
        held: Sequence[int],
    ) -> tuple[list[LiveElement], dict[int, bytes], ContinuousEngine]:
        """Evaluate again what elements of a window reach.

        Returns the corrections, the states that change of those at `held`, and the engine to go on with.

        Parameters
        ----------
        live
            Engine that gave all results before `before_ns`; None if its state is lost.
        changed
            Window of the elements; it begins with `START` where rows of the start differ.
        """
        stop, first, kept_ns = before_ns, changed.start_ns, self._kept_ns
        if live is None:
            engine, first = self._begin_again(version, first)
        else:
            engine, first = self._find_base(live, version, first)
            if self._horizon_ns is not None and first != START and live.covers(first):
                stop = min(stop, changed.stop_ns + self._horizon_ns + 1)
        # All is evaluated again where the past of what is kept is, too: the rows that hold at its end are compared.
        is_past_compared = first < kept_ns and engine.heartbeat < kept_ns and not self.tree.is_stream
        stale = [each for each in held if max(min(first, changed.start_ns), engine.heartbeat - 1) < each <= stop]
        first = compared = max(first, self.start_ns, kept_ns)
        differing = Counter[tuple[int, Row]]()
        if is_past_compared:
            for (_, row), count in self.record.count_given(Window(START, kept_ns)).items():
                differing[kept_ns, row] -= count
        states: dict[int, bytes] = {}
        for heartbeat in dict.fromkeys((*stale, stop)):
            # By parts, so that only what differs is held.
            for rows, upto in self._run(engine, version, heartbeat):
                counts = Counter[tuple[int, Row]]()
                for tau, sign, row in rows:
                    if first <= tau:
                        counts[tau, row] += sign
                    elif is_past_compared:
                        counts[kept_ns, row] += sign
                if upto > compared:
                    counts.subtract(self.record.count_given(Window(compared, upto)))
                    compared = upto
                for key, count in counts.items():
                    if count:
                        differing[key] += count
            if heartbeat in stale:
                states[heartbeat] = engine.save()
        corrections = [
            LiveElement(tau, 1 if count > 0 else -1, row, is_correction=True)
            for (tau, row), count in differing.items()
            for _ in range(abs(count))
        ]
        corrections.sort(key=lambda element: (element.tau, element.sign))
        return corrections, states, live if live is not None and stop < before_ns else engine

    def _begin_again(self, version: str, first_ns: int) -> tuple[ContinuousEngine, int]:
        """Return an engine to correct from `first_ns` on without a live one, and from when on its results are right.

        Raises
        ------
        InvalidQuery
            Results depend on elements that cannot be read any more.
        """
        base = self._find_readable(self._list_states(first_ns))
        if base is not None:
            return base, first_ns
        engine, floor_ns = self._begin(version), self.source.floor_ns
        if floor_ns <= self.start_ns:
            return engine, self._find_first(first_ns)
        if self._horizon_ns is None or self.firsts is None:
            raise InvalidQuery(
                "the state of the query is damaged, or was written by another program version, and results depend on "
                "readings that are not in the tap any more; remove the query, and add it again"
            )
        engine.begin_at(floor_ns, self.firsts)
        return engine, floor_ns + self._horizon_ns + 1

    def _list_states(self, upto_ns: int) -> list[int]:
        """Return the heartbeats of the states after the start, up to an instant."""
        return [each for each in self.record.list_states() if self.start_ns < each <= upto_ns]

    def _find_base(self, live: ContinuousEngine, version: str, first_ns: int) -> tuple[ContinuousEngine, int]:
        """Return an engine to correct from `first_ns` on, and from when on its results are right.

        Its heartbeat is not after the first change, and its state is that of any evaluation.
        """
        known = self._list_states(first_ns)
        warm_ns = None if self._horizon_ns is None or first_ns == START else first_ns - self._horizon_ns - 1
        if warm_ns is not None and warm_ns > self.start_ns and max(known, default=START) < warm_ns:
            engine = self._begin(version)
            engine.begin_at(warm_ns, live.firsts)
            return engine, first_ns
        base = self._find_readable(known)
        if base is not None:
            return base, first_ns
        return self._begin(version), self._find_first(first_ns)

    def _find_first(self, first_ns: int) -> int:
        """Return from when on results are right that are evaluated from the start, of which `first_ns` changed.

        Without the state that is the past of what is kept, there is another past, and all is compared.
        """
        return first_ns if self._kept_ns == START else START
