"""Inputs whose versions differ anywhere, for live evaluations, and a record of them in memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hypergrid.continuous.algebra import Operator, RelationInput, StreamInput, walk_operators
from hypergrid.continuous.engine import ElementBatch, Texts
from hypergrid.continuous.live.evaluation import LiveElement, LiveStep
from hypergrid.continuous.live.rows import Row
from hypergrid.continuous.live.store import LiveStore
from hypergrid.core.times import Window
from tests.support.continuous_engine import make_batch
from tests.support.continuous_oracle import START, Change
from tests.support.continuous_random import Case

Inputs = dict[str, list[Change]]
"""Changes by input, in order of time and then as numbered."""


@dataclass
class ListedVersions:
    """Versions of inputs; a version is a position in the list."""

    tree: Operator
    versions: list[Inputs]
    reads: list[Window] = field(default_factory=list)
    """Windows that were read, parts of equal windows apart."""
    floor_ns: int = START

    def _leaves(self) -> dict[str, StreamInput | RelationInput]:
        return {p.name: p for p in walk_operators(self.tree) if isinstance(p, StreamInput | RelationInput)}

    def begin(self, version: str, texts: Texts) -> Mapping[str, ElementBatch]:
        return self._make(version, Window(START, START + 1), texts)

    def read(self, version: str, window: Window, texts: Texts) -> Iterator[tuple[Mapping[str, ElementBatch], int]]:
        self.reads.append(window)
        middle = window.start_ns + (window.stop_ns - window.start_ns) // 3
        for start, stop in ((window.start_ns, middle), (middle, window.stop_ns)):
            if start < stop:
                yield self._make(version, Window(start, stop), texts), stop

    def _make(self, version: str, window: Window, texts: Texts) -> dict[str, ElementBatch]:
        batches = {}
        for name, leaf in self._leaves().items():
            rows = [change for change in self.versions[int(version)][name] if holds(window, change[0])]
            batch = make_batch(rows, leaf.attributes, texts)
            batches[name] = ElementBatch(batch.tau, batch.columns, batch.sign)
        return batches

    def list_changed(self, old: str, new: str, window: Window, past_ns: int) -> Sequence[Window] | None:
        changed: set[int] = set()
        for name, leaf in self._leaves().items():
            before, after = ([c for c in self.versions[int(v)][name] if c[0] < window.stop_ns] for v in (old, new))
            for tau in {change[0] for change in (*before, *after)}:
                # Order counts among elements of one instant.
                if [c for c in before if c[0] == tau] != [c for c in after if c[0] == tau]:
                    changed.add(tau)
                    if tau < past_ns and isinstance(leaf, RelationInput):
                        return None
        if START in changed:
            return None
        return [Window(tau, tau + 1) for tau in sorted(changed)]


def holds(window: Window, tau: int) -> bool:
    return window.start_ns <= tau < window.stop_ns


@dataclass
class ListedRecord:
    """What is kept of an evaluation, in memory."""

    elements: list[LiveElement] = field(default_factory=list)
    states: dict[int, bytes] = field(default_factory=dict)
    heartbeat: int | None = None
    kept_ns: int = START

    def find_heartbeat(self) -> int | None:
        return self.heartbeat

    def find_kept(self) -> int:
        return self.kept_ns

    def find_state(self, at_ns: int) -> tuple[int, bytes] | None:
        known = [heartbeat for heartbeat in self.states if heartbeat <= at_ns]
        return (max(known), self.states[max(known)]) if known else None

    def list_states(self) -> Sequence[int]:
        return list(self.states)

    def count_given(self, window: Window) -> Counter[tuple[int, Row]]:
        counts = Counter[tuple[int, Row]]()
        for element in self.elements:
            if holds(window, element.tau):
                counts[element.tau, element.row] += element.sign
        return counts

    def keep(self, step: LiveStep) -> None:
        self.elements += step.elements
        self.states |= step.states
        self.heartbeat = max(step.states)
        for heartbeat in step.dropped:
            self.states.pop(heartbeat, None)
        if step.kept_ns > self.kept_ns:
            self.kept_ns = step.kept_ns
            past = Counter[Row]()
            for element in self.elements:
                past[element.row] += element.sign * (element.tau < self.kept_ns and not step.is_stream)
            # What holds is as if it had entered at some instant before.
            held = [LiveElement(self.kept_ns - 1, 1, row) for row, count in past.items() for _ in range(count)]
            self.elements = held + [element for element in self.elements if element.tau >= self.kept_ns]


@dataclass
class StoredRun:
    """What is kept of an evaluation, in a file of live queries."""

    store: LiveStore

    @property
    def states(self) -> dict[int, bytes]:
        return dict.fromkeys(self.store.list_states("q"), b"")

    @property
    def kept_ns(self) -> int:
        return self.find_kept()

    def find_heartbeat(self) -> int | None:
        return self.store.record("q").find_heartbeat()

    def find_kept(self) -> int:
        return self.store.record("q").find_kept()

    def find_state(self, at_ns: int) -> tuple[int, bytes] | None:
        return self.store.find_state("q", at_ns)

    def list_states(self) -> Sequence[int]:
        return self.store.list_states("q")

    def count_given(self, window: Window) -> Counter[tuple[int, Row]]:
        return self.store.count_given("q", window)

    def keep(self, step: LiveStep) -> None:
        self.store.keep(self.store.find("q"), "s", step)


def random_versions(case: Case, rng: np.random.Generator, count: int) -> list[Inputs]:
    """Return versions of the inputs of a case; the last holds all elements, each as it is in the case.

    Elements arrive late by random times; some are there before with other values of a row of the same input, and some
    that are withdrawn later are there, too.
    """
    inputs: Inputs = {name: [(tau, 1, row) for tau, row in rows] for name, rows in case.streams.items()}
    inputs |= {name: list(rows) for name, rows in case.relations.items()}
    stamps = sorted({tau for rows in inputs.values() for tau, _, _ in rows if tau != START})
    first, last = (stamps[0], stamps[-1]) if stamps else (0, 1)
    span = max(last - first, 1)
    versions: list[Inputs] = [{name: [] for name in inputs} for _ in range(count)]
    for name, rows in inputs.items():
        is_stream = name in case.streams
        disorder = rng.choice([0.0, 0.1, 0.7])
        known = 0
        for tau, sign, row in rows:
            position = 0.0 if tau == START else (tau - first) / span + disorder * rng.random() * (rng.random() < 0.5)
            number = min(int(position * count), count - 1)
            if not is_stream:
                # Changes of relations come in order, so that no row is removed before it is added.
                number = known = max(known, number)
            amended = int(rng.integers(number, count)) if is_stream and rng.random() < 0.2 else number
            other = rows[int(rng.integers(len(rows)))][2]
            for version in range(number, count):
                versions[version][name].append((tau, sign, row if version >= amended else other))
            if is_stream and rng.random() < 0.1 and number < count - 1:
                versions[number][name].append((tau, sign, other))
    return versions
