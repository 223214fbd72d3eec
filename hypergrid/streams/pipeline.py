"""Pipelines of joins: results of joins are the streams of others (thesis 3.4), as in queries 1 to 3 of section 3.6."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.errors import InvalidQuery
from hypergrid.streams.batches import TICK_NS
from hypergrid.streams.cost import StreamParameters, admit, buffer_bounds, joined, on_another_key, shares
from hypergrid.streams.join import WoJoin
from hypergrid.streams.matches import Late, Matches
from hypergrid.streams.monitors import DependentMonitor
from hypergrid.streams.parameters import Known, Policy
from hypergrid.streams.table import number_rows

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """One join of a pipeline."""

    output: str
    """Name of the stream of its results."""
    inputs: tuple[str, ...]
    """Names of its streams: outputs of earlier stages, or streams that are pushed."""
    key_of: tuple[str, ...] | None = None
    """None: the key is that of the streams pushed. Else, for each input, the pushed stream whose other key is taken."""


QUERY_1 = (Stage("results", ("S1", "S2", "S3")),)
"""One join of three streams (figure 3.6)."""
QUERY_2 = (
    Stage("S7", ("S1", "S2", "S3")),
    Stage("S8", ("S4", "S5", "S6")),
    Stage("results", ("S7", "S8")),
)
"""Two joins of three, and one of their results, all on one key."""
QUERY_3 = (*QUERY_2[:2], Stage("results", ("S7", "S8"), key_of=("S1", "S4")))
"""The same, with the last join on another key."""


@dataclass(frozen=True)
class _Tuples:
    """Tuples of one stream of a pipeline, each made of tuples of the streams pushed (its leaves)."""

    at: Ints
    """Number of the arrival that brought each about, shape (m,)."""
    arrival: Ints
    key: Ints
    rows: Ints
    """Of each leaf, shape (m, leaves)."""
    payloads: Floats
    others: Ints
    """Their other keys, shape (m, leaves)."""

    def take(self, chosen: NDArray[np.intp] | Ints | slice) -> "_Tuples":
        return _Tuples(*(getattr(self, name)[chosen] for name in _COLUMNS))

    @classmethod
    def of(cls, parts: Sequence["_Tuples"]) -> "_Tuples":
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))


_COLUMNS = ("at", "arrival", "key", "rows", "payloads", "others")


class _Kept:
    """What a join's input is made of, for as long as the join holds it."""

    def __init__(self, leaves: int) -> None:
        integers, several = np.zeros(0, np.int64), np.zeros((0, leaves), np.int64)
        self.tuples = _Tuples(integers, integers, integers, several, several.astype(np.float64), several)
        self.first = 0

    def add(self, tuples: _Tuples) -> None:
        self.tuples = _Tuples.of((self.tuples, tuples))

    def forget(self, below: int) -> None:
        self.tuples = self.tuples.take(slice(below - self.first, None))
        self.first = below


class Pipeline:
    """Joins whose results are the streams of others.

    Parameters
    ----------
    stages
        In an order in which each comes after those that it reads. The last one's results are the pipeline's.
    policy, known
        As in `WoJoin`; known parameters by the output of the stage.
    allowed_bytes
        Limit of what all joins hold together, shared among them after each push by what equation 3.8 asks for.

    Raises
    ------
    InvalidQuery
        Stages that do not make a tree.
    TooLarge
        The limit is below one tuple a stream.

    Notes
    -----
    The streams that are pushed are numbered in the order in which the stages name them (`leaves`). Late results of
    inner stages are counted in the statistics of the stage that they came late for; `late` has those of the streams
    pushed.

    Examples
    --------
    >>> pipeline = Pipeline(QUERY_2)
    >>> pipeline.push(stream=range(6), key=[1] * 6, payload=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).rows.tolist()
    [[0, 0, 0, 0, 0, 0]]
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        policy: Policy = "progress",
        known: dict[str, Known] | None = None,
        allowed_bytes: int | None = None,
        idle_s: float | None = None,
    ) -> None:
        self.stages = tuple(stages)
        outputs = [stage.output for stage in self.stages]
        self.leaves = tuple(name for stage in self.stages for name in stage.inputs if name not in outputs)
        """Names of the streams that are pushed."""
        self._check(outputs)
        self._below: dict[str, tuple[str, ...]] = {name: (name,) for name in self.leaves}
        for stage in self.stages:
            self._below[stage.output] = tuple(itertools.chain(*(self._below[name] for name in stage.inputs)))
        self.joins = {
            stage.output: WoJoin(len(stage.inputs), policy=policy, known=(known or {}).get(stage.output), idle_s=idle_s)
            for stage in self.stages
        }
        """The join of each stage, by its output."""
        self._kept = {
            (stage.output, name): _Kept(len(self._below[name])) for stage in self.stages for name in stage.inputs
        }
        keyed = {name for stage in self.stages for name in stage.key_of or ()}
        self._dependent = {name: DependentMonitor() for name in self.leaves if name in keyed}
        self._brought = np.zeros(len(self.leaves), np.int64)
        self._allowed_bytes = allowed_bytes
        self._share()

    def _check(self, outputs: list[str]) -> None:
        read = [name for stage in self.stages for name in stage.inputs]
        known = set(self.leaves)
        wrong = ""
        if not self.stages or len(set(outputs)) < len(outputs) or len(set(read)) < len(read):
            wrong = "that each stream is written once and read once"
        for stage in self.stages:
            if not set(stage.inputs) <= known:
                wrong = f"that {stage.output!r} comes after all that it reads"
            if stage.key_of is not None and (
                len(stage.key_of) != len(stage.inputs) or not set(stage.key_of) <= set(self.leaves)
            ):
                wrong = f"one pushed stream for each input in key_of of {stage.output!r}"
            known.add(stage.output)
        if not wrong and set(outputs[:-1]) - set(read):
            wrong = "that every stage but the last is read"
        if wrong:
            message = f"a pipeline needs {wrong}; got {', '.join(map(str, self.stages))}"
            raise InvalidQuery(message)

    def push(
        self,
        stream: ArrayLike,
        key: ArrayLike,
        payload: ArrayLike,
        arrival: ArrayLike | None = None,
        *,
        other_key: ArrayLike | None = None,
    ) -> Matches:
        """Take tuples in order of arrival; return the results of the last stage.

        Parameters
        ----------
        stream
            Number of each tuple's stream among `leaves`, shape (m,).
        key, payload, arrival
            As in `WoJoin.push`.
        other_key
            The key that stages with `key_of` join on, shape (m,).

        Raises
        ------
        InvalidQuery
            As in `WoJoin.push`; or other keys are needed and were not given.
        """
        streams = np.array(stream, np.int32)
        keys, payloads = np.array(key, np.int64), np.array(payload, np.float64)
        if other_key is None and self._dependent:
            message = f"joins on another key (of {', '.join(self._dependent)}) need other_key="
            raise InvalidQuery(message)
        others = keys if other_key is None else np.array(other_key, np.int64)
        first = int(self._brought.sum())
        numbers = np.arange(first, first + len(streams), dtype=np.int64)
        arrivals = numbers * TICK_NS if arrival is None else np.array(arrival, np.int64)
        if not streams.shape == keys.shape == payloads.shape == others.shape == arrivals.shape == numbers.shape:
            message = f"a push needs columns of one length; got {streams.shape}, {keys.shape} and {payloads.shape}"
            raise InvalidQuery(message)
        if len(streams) and not 0 <= int(streams.min()) <= int(streams.max()) < len(self.leaves):
            message = f"a pipeline of {len(self.leaves)} streams got streams {streams.min()} to {streams.max()}"
            raise InvalidQuery(message)
        rows = number_rows(streams, self._brought)
        all_of = _Tuples(numbers, arrivals, keys, rows[:, None], payloads[:, None], others[:, None])
        here: dict[str, _Tuples] = {}
        for number, name in enumerate(self.leaves):
            here[name] = all_of.take(np.flatnonzero(streams == number))
            if name in self._dependent:
                self._dependent[name].observe(here[name].key, here[name].others[:, 0])
        late: list[Late] = []
        for stage in self.stages:
            here[stage.output] = self._join(stage, here, late)
        self._share()
        found = here[self.stages[-1].output]
        order = [self._below[self.stages[-1].output].index(name) for name in self.leaves]
        return Matches(found.rows[:, order], found.payloads[:, order], found.key, found.at, _together(late))

    def _join(self, stage: Stage, here: dict[str, _Tuples], late: list[Late]) -> _Tuples:
        """Push what came into a stage's join; return its results."""
        join, parts = self.joins[stage.output], []
        for number, name in enumerate(stage.inputs):
            tuples = here[name]
            self._kept[stage.output, name].add(tuples)
            column = None if stage.key_of is None else self._below[name].index(stage.key_of[number])
            keys = tuples.key if column is None else tuples.others[:, column]
            parts.append((np.full(len(keys), number, np.int32), keys, tuples.at, tuples.arrival))
        streams, keys, at, arrival = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(at, kind="stable")
        before = join.statistics().arrived
        matches = join.push(streams[order], keys[order], np.zeros(len(order)), arrival[order])
        bringing = order[matches.at - before]
        members = []
        for number, name in enumerate(stage.inputs):
            kept = self._kept[stage.output, name]
            members.append(kept.tuples.take(matches.rows[:, number] - kept.first))
            if name in self.leaves:
                mine = matches.late.stream == number
                late.append(_of_leaf(matches.late, mine, self.leaves.index(name), kept))
            least = join.least_row(number)
            kept.forget(kept.first + len(kept.tuples.at) if least is None else least)
        columns = (np.concatenate([getattr(m, name) for m in members], axis=1) for name in _COLUMNS[3:])
        return _Tuples(at[bringing], arrival[bringing], matches.key, *columns)

    def predictions(self) -> dict[str, StreamParameters]:
        """Return what theorems 3.4.1 and 3.4.2 say of each stream that a stage reads, from the streams pushed.

        Parameters of the streams pushed are the monitored ones; of a stream that is joined on another key, those on it.
        """
        found: dict[str, StreamParameters] = {}
        for stage in self.stages:
            told = self.joins[stage.output].statistics().streams
            for number, name in enumerate(stage.inputs):
                if name in self.leaves:
                    one = told[number]
                    found[name] = StreamParameters(one.scrambling_factor, one.rate_hz, max(1, one.multiplicity))
                elif stage.key_of is not None:
                    found[name] = on_another_key(
                        found[name],
                        self._dependent[stage.key_of[number]].scrambling_factor,
                        max(1, told[number].multiplicity),
                    )
            found[stage.output] = joined([found[name] for name in stage.inputs])
        return found

    def predicted_bounds(self) -> dict[str, NDArray[np.float64]]:
        """Return the tuples of each input that equation 3.8 asks a stage to hold, by `predictions` and the lags."""
        found = self.predictions()
        bounds = {}
        for stage in self.stages:
            inputs = [found[name] for name in stage.inputs]
            factors, rates = [one.scrambling_factor for one in inputs], [one.rate_hz for one in inputs]
            bounds[stage.output] = buffer_bounds(factors, rates, self.joins[stage.output].lags())
        return bounds

    def _share(self) -> None:
        """Give each join its part of the memory."""
        if self._allowed_bytes is None:
            return
        told = [join.statistics() for join in self.joins.values()]
        least = [float(join.least_bytes) for join in self.joins.values()]
        admit("the joins of a pipeline with one tuple a stream", sum(least), self._allowed_bytes)
        # What is held already cannot be taken back.
        least = [max(one, float(statistics.held_bytes)) for one, statistics in zip(least, told, strict=True)]
        needed = [max(one, min(s.bound_bytes, self._allowed_bytes)) for one, s in zip(least, told, strict=True)]
        spare = (self._allowed_bytes - min(self._allowed_bytes, sum(needed))) / len(needed)
        parts = shares(needed, least, max(self._allowed_bytes, sum(least)))
        for join, part in zip(self.joins.values(), parts, strict=True):
            join.allow(int(part + spare))


def _of_leaf(late: Late, mine: NDArray[np.bool_], number: int, kept: _Kept) -> Late:
    rows = late.row[mine]
    payload = kept.tuples.payloads[rows - kept.first, 0]
    return Late(np.full(len(rows), number, np.int64), rows, late.key[mine], payload, late.reason[mine])


def _together(parts: Sequence[Late]) -> Late:
    names = ("stream", "row", "key", "payload", "reason")
    return Late(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
