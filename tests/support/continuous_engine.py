"""Results of the engine in the form of the oracle, with input that is cut at random."""

from collections.abc import Sequence

import numpy as np

from hypergrid.continuous.algebra import Operator, RelationInput, StreamInput, walk_operators
from hypergrid.continuous.engine import ContinuousEngine, ElementBatch, Texts
from hypergrid.continuous.engine.batch import PHYSICAL, Column
from hypergrid.continuous.expressions import Attributes, Kind, null_of
from tests.support.continuous_oracle import Change, Relations, Streams
from tests.support.continuous_scalars import Row, Value


def encode(values: Sequence[Value], kind: Kind, texts: Texts) -> Column:
    """Return values of a kind as the engine holds them."""
    if kind == "text":
        return texts.encode([None if value is None else str(value) for value in values])
    return np.array([null_of(kind) if value is None else value for value in values], PHYSICAL[kind])


def decode(column: Column, kind: Kind, texts: Texts) -> list[Value]:
    """Return values as the oracle has them."""
    if kind == "number":
        return [None if np.isnan(value) else float(value) for value in column]
    if kind == "text":
        return list(texts.decode(column))
    held = [None if value == null_of(kind) else int(value) for value in column]
    return [None if value is None else bool(value) for value in held] if kind == "boolean" else list(held)


def make_batch(changes: Sequence[Change], attributes: Attributes, texts: Texts, first: int = 0) -> ElementBatch:
    """Return a batch of changes, numbered from `first` on."""
    rows = [row for _, _, row in changes]
    return ElementBatch(
        np.array([tau for tau, _, _ in changes], np.int64),
        tuple(encode([row[at] for row in rows], part.kind, texts) for at, part in enumerate(attributes)),
        np.array([sign for _, sign, _ in changes], np.int8),
        number=np.arange(first, first + len(changes)),
    )


def engine_result(
    tree: Operator,
    streams: Streams,
    relations: Relations,
    rng: np.random.Generator,
    *,
    until: int | None = None,
    is_shuffled: bool = False,
) -> list[Change]:
    """Return what `oracle_result` does, from an engine that is given its input in pieces of random sizes.

    Parameters
    ----------
    is_shuffled
        Whether elements arrive in any order, and nothing is said of heartbeats until all are there.
    """
    engine = ContinuousEngine(tree)
    inputs = {part.name: part for part in walk_operators(tree) if isinstance(part, StreamInput | RelationInput)}
    given = {name: [(tau, 1, row) for tau, row in rows] for name, rows in streams.items()} | {
        name: list(rows) for name, rows in relations.items()
    }
    given = {name: [change for change in rows if until is None or change[0] <= until] for name, rows in given.items()}
    given = {name: rows for name, rows in given.items() if name in inputs}
    changes: list[Change] = []
    if is_shuffled:
        for name, rows in given.items():
            for position in rng.permutation(len(rows)):
                engine.push(name, make_batch([rows[position]], inputs[name].attributes, engine.texts, int(position)))
    else:
        stamps = sorted({tau for rows in given.values() for tau, _, _ in rows if tau > -(2**63)})
        done = dict.fromkeys(given, 0)
        beats = [tau + int(rng.integers(0, 3)) for tau in stamps if rng.random() < rng.choice([0.1, 0.5, 0.9])]
        for beat in sorted(beats):
            if beat < engine.heartbeat:
                continue
            for name, rows in given.items():
                first = done[name]
                while done[name] < len(rows) and rows[done[name]][0] < beat:
                    done[name] += 1
                engine.push(name, make_batch(rows[first : done[name]], inputs[name].attributes, engine.texts, first))
            engine.advance(beat)
            changes += collect(engine)
        for name, rows in given.items():
            engine.push(name, make_batch(rows[done[name] :], inputs[name].attributes, engine.texts, done[name]))
    last = max([tau for rows in given.values() for tau, _, _ in rows if tau > -(2**63)], default=0)
    engine.advance(max(last + 1, engine.heartbeat))
    engine.advance(max(until + 1 if until is not None else last + 10**6, engine.heartbeat))
    engine.finish()
    return changes + collect(engine)


def collect(engine: ContinuousEngine) -> list[Change]:
    """Return the new results of an engine."""
    changes: list[Change] = []
    for batch in engine.results():
        columns = [
            decode(column, attribute.kind, engine.texts)
            for column, attribute in zip(batch.columns, engine.tree.attributes, strict=True)
        ]
        rows: list[Row] = list(zip(*columns, strict=True)) if columns else [()] * len(batch.tau)
        changes += [(int(tau), int(sign), row) for tau, sign, row in zip(batch.tau, batch.sign, rows, strict=True)]
    return changes
