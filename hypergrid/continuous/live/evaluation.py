"""Evaluation that follows a source whose past changes: new results, and corrections of those that were given.

A version of a source is a fixed set of elements; from one to the next, elements are added, replaced and removed.
Results below the heartbeat were given. Where elements below it change, the part that they reach is evaluated again
from the source at its new version, and what differs from the results given is given as corrections: all results
together are at all times those of one evaluation of the newest version up to the heartbeat.
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
from hypergrid.core.times import Window

START: Final = NULL_INTEGER
"""Instant of rows that are there from the start."""


class LiveElement(NamedTuple):
    """Element of a result."""

    tau: int
    """[ns since 1970 UTC]"""
    sign: int
    row: Row
    is_correction: bool = False


class VersionedSource(Protocol):
    """Elements of the inputs of a tree, at any version."""

    def begin(self, version: str, texts: Texts) -> Mapping[str, ElementBatch]:
        """Return the rows of relations that are there from the start."""

    def read(self, version: str, window: Window, texts: Texts) -> Iterator[tuple[Mapping[str, ElementBatch], int]]:
        """Yield the elements of a window in canonical order, in parts, each with the heartbeat at its end."""

    def list_changed(self, old: str, new: str, window: Window) -> Sequence[Window] | None:
        """Return windows that hold all elements of a window that differ; None if rows of the start do."""


class LiveRecord(Protocol):
    """What is kept of an evaluation: states by heartbeat, and the results given."""

    def find_state(self, at_ns: int) -> tuple[int, bytes] | None:
        """Return the state with the greatest heartbeat up to an instant."""

    def list_states(self) -> Sequence[int]:
        """Return the heartbeats of all states."""

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

    def __post_init__(self) -> None:
        self._horizon_ns = find_horizon(self.tree, self.static)
        self._engine: ContinuousEngine | None = None

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
        """
        engine = self._restore(new)
        before = max(engine.heartbeat, self.start_ns)
        stop = max(heartbeat_ns, before)
        newest = stop if stop > before else engine.heartbeat
        known = self.record.list_states()
        dropped = self._thin({*known, newest})
        given: list[LiveElement] = []
        states: dict[int, bytes] = {}
        changed: Sequence[Window] | None = ()
        if old is not None and old != new and before > self.start_ns:
            changed = self.source.list_changed(old, new, Window(self.start_ns, before))
            if changed is None or changed:
                first = START if changed is None else min(window.start_ns for window in changed)
                last = before if changed is None else max(window.stop_ns for window in changed)
                # States are large, so those that will not be kept are not written either.
                stale = sorted(each for each in known if first < each < newest and each not in dropped)
                corrections, states, engine = self._correct(engine, new, first, last, stale)
                given += corrections
        given += [LiveElement(*row) for row in self._run(engine, new, stop)]
        self._engine = engine
        states[newest] = engine.save()
        return LiveStep(tuple(given), states, dropped, 1 if changed is None else len(changed))

    def _thin(self, heartbeats: set[int]) -> tuple[int, ...]:
        """Return the heartbeats of states that need not be kept: fewer are of older ones, none if reach is bounded."""
        newest = max(heartbeats)
        if self._horizon_ns is not None:
            return tuple(sorted(heartbeats - {newest}))
        kept: dict[int, int] = {}
        for heartbeat in sorted(heartbeats, reverse=True):
            # The oldest of each age, ages by powers of four.
            kept[((newest - heartbeat).bit_length() + 1) // 2] = heartbeat
        return tuple(sorted(heartbeats - set(kept.values())))

    def _restore(self, version: str) -> ContinuousEngine:
        """Return the engine of the step before, or one that begins."""
        if self._engine is None:
            known = self.record.find_state(2**63 - 1)
            self._engine = None if known is None else self._load(known[1])
        if self._engine is None or self._engine.heartbeat <= self.start_ns:
            # Nothing was given yet, so what is there from the start may differ.
            self._engine = self._begin(version)
        return self._engine

    def _load(self, saved: bytes) -> ContinuousEngine:
        return ContinuousEngine.restore(self.tree, saved, is_ordered=False)

    def forget(self) -> None:
        """Let the next step begin with the state that was kept, as after a step that was not."""
        self._engine = None

    def _begin(self, version: str) -> ContinuousEngine:
        engine = ContinuousEngine(self.tree, is_ordered=False)
        for name, batch in self.source.begin(version, engine.texts).items():
            engine.push(name, batch)
        return engine

    def _run(self, engine: ContinuousEngine, version: str, stop_ns: int) -> Iterator[tuple[int, int, Row]]:
        """Process the elements of a version from the heartbeat of an engine on; yields the results."""
        start = max(engine.heartbeat, self.start_ns)
        if start < stop_ns:
            for batches, heartbeat in self.source.read(version, Window(start, stop_ns), engine.texts):
                for name, batch in batches.items():
                    engine.push(name, batch)
                engine.advance(heartbeat)
                yield from self._take(engine)
            engine.advance(stop_ns)
        yield from self._take(engine)

    def _take(self, engine: ContinuousEngine) -> Iterator[tuple[int, int, Row]]:
        batches: list[ChangeBatch] = engine.results()
        for batch in batches:
            yield from rows_of(batch, self.tree.attributes, engine.texts)

    def _correct(
        self, live: ContinuousEngine, version: str, first_ns: int, last_ns: int, stale: Sequence[int]
    ) -> tuple[list[LiveElement], dict[int, bytes], ContinuousEngine]:
        """Evaluate again what elements from `first_ns` up to `last_ns`, excluded, reach.

        Returns the corrections, the states that change of those at `stale`, and the engine to go on with.
        """
        stop = live.heartbeat
        engine = self._find_base(live, version, first_ns)
        if self._horizon_ns is not None and live.covers(first_ns):
            stop = min(stop, last_ns + self._horizon_ns + 1)
        first = max(first_ns, self.start_ns)
        results = Counter[tuple[int, Row]]()
        states: dict[int, bytes] = {}
        for heartbeat in dict.fromkeys((*(each for each in stale if each <= stop), stop)):
            for tau, sign, row in self._run(engine, version, heartbeat):
                if first <= tau:
                    results[tau, row] += sign
            if heartbeat in stale:
                states[heartbeat] = engine.save()
        results.subtract(self.record.count_given(Window(first, stop)))
        corrections = [
            LiveElement(tau, 1 if count > 0 else -1, row, is_correction=True)
            for (tau, row), count in results.items()
            for _ in range(abs(count))
        ]
        corrections.sort(key=lambda element: (element.tau, element.sign))
        return corrections, states, live if stop < live.heartbeat else engine

    def _find_base(self, live: ContinuousEngine, version: str, first_ns: int) -> ContinuousEngine:
        """Return an engine whose heartbeat is not after the first change, and whose state is that of any evaluation."""
        known = self.record.find_state(first_ns) if first_ns > START else None
        warm_ns = None
        if self._horizon_ns is not None and live.covers(first_ns):
            warm_ns = first_ns - self._horizon_ns - 1
        if warm_ns is not None and warm_ns > self.start_ns and (known is None or known[0] < warm_ns):
            engine = self._begin(version)
            engine.begin_at(warm_ns, like=live)
            return engine
        return self._begin(version) if known is None else self._load(known[1])
