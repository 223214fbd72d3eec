"""Pipelines of joins that feed further joins (thesis 3.4), as in its queries 1 to 3 (section 3.6)."""

import datetime
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.moved_modules import FormerNames
from hypergrid.wo_join import state
from hypergrid.wo_join.batches import make_batch, make_ticks, parse_keys
from hypergrid.wo_join.config import KnownParameters, Policy
from hypergrid.wo_join.hash_table import number_rows
from hypergrid.wo_join.join import WoJoin
from hypergrid.wo_join.memory import (
    MemoryShares,
    SharedMemory,
    StreamParameters,
    admit,
    combine_parameters,
    convert_to_key,
)
from hypergrid.wo_join.monitors import DependentMonitor
from hypergrid.wo_join.results import BufferFull, KeysDoNotGrow, LateTuples, Matches, join_late
from hypergrid.wo_join.state_layout import Floats, Ints

MAGIC = b"HyperGrid pipeline\x00"


@dataclass(frozen=True)
class Stage:
    """One join of a pipeline."""

    output: str
    """Name of its result stream."""
    inputs: tuple[str, ...]
    """Names of its input streams: outputs of earlier stages, or pushed streams."""
    key_of: tuple[str, ...] | None = None
    """Pushed stream whose other key is joined on, for each input; None: join on the key of the pushed streams."""


QUERY_1 = (Stage("results", ("S1", "S2", "S3")),)
"""One join of three streams (figure 3.6)."""
QUERY_2 = (
    Stage("S7", ("S1", "S2", "S3")),
    Stage("S8", ("S4", "S5", "S6")),
    Stage("results", ("S7", "S8")),
)
"""Two joins of three streams, and a join of their results, all on one key."""
QUERY_3 = (*QUERY_2[:2], Stage("results", ("S7", "S8"), key_of=("S1", "S4")))
"""Query 2 with the last join on another key."""


class _Tuples(NamedTuple):
    """Tuples of one stream of a pipeline, composed of tuples of pushed streams (leaves)."""

    at: Ints
    """Number of the arrival that caused each tuple, shape (m,)."""
    arrival: Ints
    key: Ints
    rows: Ints
    """Row of each leaf, shape (m, leaves)."""
    payloads: Floats
    others: Ints
    """Other key of each leaf, shape (m, leaves)."""


class _LeafColumns(NamedTuple):
    """Components of tuples: rows, payloads and other keys of each leaf, shape (m, leaves) each."""

    rows: Ints
    payloads: Floats
    others: Ints


class _FedTuples(NamedTuple):
    """Tuples to be pushed into a join, in order of arrival, each column of shape (m,)."""

    stream: NDArray[np.int32]
    key: Ints
    at: Ints
    arrival: Ints

    @classmethod
    def of(cls, parts: Sequence["_FedTuples"]) -> "_FedTuples":
        return cls._make(np.concatenate(columns) for columns in zip(*parts, strict=True))


_Columns = TypeVar("_Columns", _Tuples, _LeafColumns, _FedTuples)


def _take_rows(columns: _Columns, chosen: NDArray[np.intp] | Ints | slice) -> _Columns:
    return type(columns)._make(column[chosen] for column in columns)


_NO_TUPLES = _FedTuples(np.zeros(0, np.int32), *(np.zeros(0, np.int64),) * 3)


class _InputTuples:
    """Components of an input's tuples, retained as long as the join holds them."""

    def __init__(self, leaves: int) -> None:
        several = np.zeros((0, leaves), np.int64)
        self.parts = _LeafColumns(several, several.astype(np.float64), several)
        self.first = 0

    @property
    def end(self) -> int:
        return self.first + len(self.parts.rows)

    @property
    def size_bytes(self) -> int:
        return sum(column.nbytes for column in self.parts)

    def add(self, tuples: _Tuples) -> None:
        new = (tuples.rows, tuples.payloads, tuples.others)
        self.parts = _LeafColumns._make(map(np.concatenate, zip(self.parts, new, strict=True)))

    def get_columns(self, rows: Ints) -> _LeafColumns:
        return _take_rows(self.parts, rows - self.first)

    def forget(self, below: int) -> None:
        # Copied, because a view would keep the memory of the whole array.
        self.parts = _LeafColumns._make(column[below - self.first :].copy() for column in self.parts)
        self.first = below


class Pipeline(FormerNames):
    """A tree of joins, in which results are streams of further joins.

    Parameters
    ----------
    stages
        Ordered so that each follows the stages that it reads. The results of the last are those of the pipeline.
    policy, known, window, idle_s
        As in `WoJoin`; known parameters are keyed by the output of the stage.
    allowed_bytes
        Memory limit of all joins together, including results that wait for partners. It is divided among the joins in
        proportion to equation 3.8, again after each push and whenever a join is full while others have memory to spare.

    Raises
    ------
    InvalidQuery
        Stages that are not a tree.
    TooLarge
        The limit is below one tuple per stream, or below what known parameters ask for.

    Notes
    -----
    Pushed streams are numbered in the order in which the stages name them (`leaves`). Late results of inner stages are
    counted in the statistics of the stage for which they were late; `late` has the late tuples of pushed streams. There
    is no spilling strategy, because the components of inner results stay in memory anyway.

    Examples
    --------
    >>> pipeline = Pipeline(QUERY_2)
    >>> pipeline.push(stream=range(6), key=[1] * 6, payload=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).rows.tolist()
    [[0, 0, 0, 0, 0, 0]]
    """

    former_names = {
        "least_bytes": "min_bytes",
        "predicted_bounds": "predict_bounds",
        "predictions": "predict_parameters",
    }

    _allowed_bytes: int | None
    _memory: SharedMemory | None

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        policy: Policy = "progress",
        known: dict[str, KnownParameters] | None = None,
        window: int | datetime.timedelta | None = None,
        allowed_bytes: int | None = None,
        idle_s: float | None = None,
    ) -> None:
        self._set_up(stages)
        for name in known or {}:
            if name not in self._unfed_tuples:
                raise NotFound.among("output of a stage", name, self._unfed_tuples)
        for stage in self.stages:
            own = (known or {}).get(stage.output)
            self.joins[stage.output] = WoJoin(len(stage.inputs), policy=policy, known=own, window=window, idle_s=idle_s)
        if allowed_bytes is not None:
            self._memory = SharedMemory(allowed_bytes)
            for name, join in self.joins.items():
                self._memory.admit(name, join)
        self._allowed_bytes = allowed_bytes

    def _set_up(self, stages: Sequence[Stage]) -> None:
        self.stages = tuple(stages)
        outputs = [stage.output for stage in self.stages]
        self.leaves = tuple(name for stage in self.stages for name in stage.inputs if name not in outputs)
        """Names of the pushed streams."""
        self._check(outputs)
        self._leaves_below: dict[str, tuple[str, ...]] = {name: (name,) for name in self.leaves}
        for stage in self.stages:
            self._leaves_below[stage.output] = tuple(
                itertools.chain(*(self._leaves_below[name] for name in stage.inputs))
            )
        self.joins: dict[str, WoJoin] = {}
        """Join of each stage, by output."""
        self._inputs = {
            (stage.output, name): _InputTuples(len(self._leaves_below[name]))
            for stage in self.stages
            for name in stage.inputs
        }
        self._unfed_tuples = dict.fromkeys(outputs, _NO_TUPLES)
        keyed = {name for stage in self.stages for name in stage.key_of or ()}
        self._dependent = {name: DependentMonitor() for name in self.leaves if name in keyed}
        self._tuple_counts = np.zeros(len(self.leaves), np.int64)
        self._ticking: bool | None = None
        self._allowed_bytes, self._memory = None, None

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
            raise InvalidQuery(f"a pipeline needs {wrong}; got {', '.join(map(str, self.stages))}")

    def push(
        self,
        stream: ArrayLike,
        key: ArrayLike,
        payload: ArrayLike,
        arrival: ArrayLike | None = None,
        *,
        other_key: ArrayLike | None = None,
    ) -> Matches:
        """Push tuples in order of arrival; return the results of the last stage.

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
            As in `WoJoin.push`; or other keys are needed and were not given. Nothing was taken.
        KeysDoNotGrow
            As in `WoJoin.push`; everything was taken, and `matches` are the results.
        BufferFull
            The joins together need more than is allowed. Everything was taken; tuples that could not be joined wait,
            and are retried with the next push, for example after `allow`.
        """
        if other_key is None and self._dependent:
            raise InvalidQuery(f"joins on another key (of {', '.join(self._dependent)}) need other_key=")
        first = int(self._tuple_counts.sum())
        arrivals = make_ticks(first, np.size(stream)) if arrival is None else arrival
        batch = make_batch(len(self.leaves), stream, key, payload, arrivals, None)
        others = batch.key if other_key is None else parse_keys("other_key", other_key).astype(np.int64)
        if others.shape != batch.key.shape:
            raise InvalidQuery(
                f"a push needs columns of one length; got {batch.key.shape} and other_key of {others.shape}"
            )
        if len(others) and self._ticking not in (None, arrival is None):
            raise InvalidQuery("a pipeline needs arrivals with every push, or with none; got both")
        if len(others):
            self._ticking = arrival is None
        numbers = np.arange(first, first + len(others), dtype=np.int64)
        rows = number_rows(batch.stream, self._tuple_counts)
        columns = (rows[:, None], batch.payload[:, None], others[:, None])
        all_of = _Tuples(numbers, batch.arrival, batch.key, *columns)
        by_stream: dict[str, _Tuples] = {}
        for number, name in enumerate(self.leaves):
            by_stream[name] = _take_rows(all_of, np.flatnonzero(batch.stream == number))
            if name in self._dependent:
                self._dependent[name].observe(by_stream[name].key, by_stream[name].others[:, 0])
        late: list[LateTuples] = []
        still: list[KeysDoNotGrow] = []
        for stage in self.stages:
            by_stream[stage.output] = self._join(stage, by_stream, late, still)
        results = by_stream[self.stages[-1].output]
        order = [self._leaves_below[self.stages[-1].output].index(name) for name in self.leaves]
        matches = Matches(results.rows[:, order], results.payloads[:, order], results.key, results.at, join_late(late))
        self._share()
        unfed = any(len(fed.key) for fed in self._unfed_tuples.values())
        if self._allowed_bytes is not None and (unfed or self.held_bytes > self._allowed_bytes):
            # Once joined, each waiting tuple will take a slot and an entry.
            more = sum(len(self._unfed_tuples[name].key) * join.tuple_bytes for name, join in self.joins.items())
            needed = self.held_bytes + more
            raise BufferFull("a pipeline of joins", needed, self._allowed_bytes, matches, len(others))
        if still:
            raise KeysDoNotGrow(str(still[0]), matches)
        return matches

    def _join(
        self, stage: Stage, by_stream: dict[str, _Tuples], late: list[LateTuples], still: list[KeysDoNotGrow]
    ) -> _Tuples:
        """Push new input tuples and those still waiting into a stage's join; return its results."""
        join, inputs = self.joins[stage.output], []
        for number, name in enumerate(stage.inputs):
            tuples = by_stream[name]
            self._inputs[stage.output, name].add(tuples)
            column = None if stage.key_of is None else self._leaves_below[name].index(stage.key_of[number])
            keys = tuples.key if column is None else tuples.others[:, column]
            inputs.append(_FedTuples(np.full(len(keys), number, np.int32), keys, tuples.at, tuples.arrival))
        new = _FedTuples.of(inputs)
        fed = _FedTuples.of([self._unfed_tuples[stage.output], _take_rows(new, np.argsort(new.at, kind="stable"))])
        before = int(join.tuple_counts.sum())
        results, taken = self._feed(join, fed, still)
        self._unfed_tuples[stage.output] = _take_rows(fed, slice(taken, None))
        rows = np.concatenate([matches.rows for matches in results])
        brought_by = _take_rows(fed, np.concatenate([matches.at for matches in results]) - before)
        members, next_rows, min_rows = [], join.tuple_counts, join.list_min_rows()
        for number, name in enumerate(stage.inputs):
            kept = self._inputs[stage.output, name]
            members.append(kept.get_columns(rows[:, number]))
            if name in self.leaves:
                late += [_to_leaf(matches.late, number, self.leaves.index(name), kept) for matches in results]
            # Rows before those that the join holds or may still take are not needed any more.
            kept.forget(
                min(int(next_rows[number]), kept.end if min_rows[number] is None else int(min_rows[number] or 0))
            )
        columns = (np.concatenate(several, axis=1) for several in zip(*members, strict=True))
        # Results have the arrival that completed them, even if tuples that could only be joined now arrived later.
        keys = np.concatenate([matches.key for matches in results])
        return _Tuples(brought_by.at, brought_by.arrival, keys, *columns)

    def _feed(self, join: WoJoin, fed: _FedTuples, still: list[KeysDoNotGrow]) -> tuple[list[Matches], int]:
        """Push tuples into a join, lending it unused memory when full.

        Returns the results and the number of tuples taken.
        """
        results, start = [], 0
        while True:
            stream, key, _, arrival = _take_rows(fed, slice(start, None))
            try:
                # Payloads stay in `_inputs`, where they are looked up by row.
                results.append(join.push(stream, key, np.zeros(len(key)), arrival))
            except KeysDoNotGrow as error:
                results.append(error.matches)
                still.append(error)
            except BufferFull as error:
                results.append(error.matches)
                start += error.taken
                if self._lend_memory(join):
                    continue
                return results, start
            return results, len(fed.key)

    def _lend_memory(self, join: WoJoin) -> bool:
        """Give a join all memory that the others leave; return whether that is more than before."""
        if self._allowed_bytes is None:
            return False
        others = sum(max(other.held_bytes, other.min_bytes) for other in self.joins.values() if other is not join)
        room, before = self._allowed_bytes - self.kept_bytes - others, join.statistics().allowed_bytes or 0
        if room <= before:
            return False
        join.allow(room)
        return True

    def advance(self, clock_ns: int) -> None:
        """Advance the clock [ns] without an arrival, so that idle streams go to sleep."""
        for join in self.joins.values():
            join.advance(clock_ns)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the components of input tuples, and of tuples that could not be joined yet."""
        unfed = sum(column.nbytes for fed in self._unfed_tuples.values() for column in fed)
        return unfed + sum(kept.size_bytes for kept in self._inputs.values())

    @property
    def held_bytes(self) -> int:
        """Bytes counted against `allowed_bytes`."""
        return self.kept_bytes + sum(join.held_bytes for join in self.joins.values())

    @property
    def min_bytes(self) -> int:
        """Bytes of one tuple of each stream of each join."""
        return sum(join.min_bytes for join in self.joins.values())

    @property
    def needed_bytes(self) -> float:
        """Bytes that equation 3.8 holds in all joins; the minimum while parameters are unknown."""
        return float(sum(join.needed_bytes for join in self.joins.values()))

    def statistics(self) -> MemoryShares | None:
        """Return the memory held, needed and allowed of each join, by output; None without a limit."""
        return None if self._memory is None else self._memory.statistics()

    def allow(self, allowed_bytes: int) -> None:
        """Change the memory limit; tuples that wait are retried with the next push.

        Raises
        ------
        TooLarge
            It is below one tuple per stream.
        """
        admit("the joins of a pipeline with one tuple a stream", self.min_bytes, allowed_bytes)
        self._allowed_bytes = allowed_bytes
        if self._memory is None:
            self._memory = SharedMemory(allowed_bytes)
            self._memory.hold(self.joins)
        self._share()

    def predict_parameters(self) -> dict[str, StreamParameters]:
        """Predict the parameters of each stream that a stage reads by theorems 3.4.1 and 3.4.2.

        Parameters of pushed streams are the monitored ones; those of a stream joined on another key refer to that key.
        """
        parameters: dict[str, StreamParameters] = {}
        for stage in self.stages:
            stream_statistics = self.joins[stage.output].statistics().streams
            for number, name in enumerate(stage.inputs):
                if name in self.leaves:
                    stream = stream_statistics[number]
                    parameters[name] = StreamParameters(
                        stream.scrambling_factor, stream.rate_hz, max(1, stream.multiplicity)
                    )
                elif stage.key_of is not None:
                    parameters[name] = convert_to_key(
                        parameters[name],
                        self._dependent[stage.key_of[number]].scrambling_factor,
                        max(1, stream_statistics[number].multiplicity),
                    )
            parameters[stage.output] = combine_parameters([parameters[name] for name in stage.inputs])
        return parameters

    def predict_bounds(self) -> dict[str, NDArray[np.float64]]:
        """Predict the tuples of each input that equation 3.8 holds, from `predict_parameters` and the current lags."""
        predictions = self.predict_parameters()
        bounds = {}
        for stage in self.stages:
            inputs = [predictions[name] for name in stage.inputs]
            factors, rates = [stream.scrambling_factor for stream in inputs], [stream.rate_hz for stream in inputs]
            bounds[stage.output] = self.joins[stage.output].bounds(factors, rates)
        return bounds

    def _share(self) -> None:
        if self._memory is None or self._allowed_bytes is None:
            return
        # Memory already in use cannot be taken back.
        held = sum(max(join.held_bytes, join.min_bytes) for join in self.joins.values())
        self._memory.allow(max(self._allowed_bytes - self.kept_bytes, held))

    def snapshot(self) -> bytes:
        """Serialise the pipeline; `resume` continues from the bytes with bit-identical results."""
        header: dict[str, object] = {
            "stages": [[stage.output, stage.inputs, stage.key_of] for stage in self.stages],
            "allowed_bytes": self._allowed_bytes,
            "ticking": self._ticking,
            "first": [kept.first for kept in self._inputs.values()],
        }
        columns = {"brought": self._tuple_counts}
        for name, join in self.joins.items():
            columns[f"{name}/join"] = np.frombuffer(join.snapshot(), np.uint8)
            columns |= {f"{name}/{column}": values for column, values in self._unfed_tuples[name]._asdict().items()}
        for (output, name), kept in self._inputs.items():
            columns |= {f"{output}/{name}/{column}": values for column, values in kept.parts._asdict().items()}
        for name, monitor in self._dependent.items():
            columns |= {f"{name}/{column}": values for column, values in monitor.columns().items()}
        return state.pack(MAGIC, header, columns)

    @classmethod
    def resume(cls, data: bytes) -> Self:
        """Restore a pipeline from a `snapshot`.

        Raises
        ------
        InvalidQuery
            The bytes are not a snapshot of a pipeline, were damaged, or were made by another version.
        """
        header_fields, packed = state.header_of(data, MAGIC, "a pipeline")
        header: dict[str, Any] = dict(header_fields)
        columns = state.columns_of(header, packed)
        pipeline = cls.__new__(cls)
        pipeline._set_up(
            [
                Stage(output, tuple(inputs), None if key_of is None else tuple(key_of))
                for output, inputs, key_of in header["stages"]
            ]
        )
        pipeline._ticking, pipeline._tuple_counts = header["ticking"], columns["brought"]
        for stage in pipeline.stages:
            name = stage.output
            pipeline.joins[name] = WoJoin.resume(columns[f"{name}/join"].tobytes())
            pipeline._unfed_tuples[name] = _FedTuples._make(
                columns[f"{name}/{column}"] for column in _FedTuples._fields
            )
        for ((output, name), kept), first in zip(pipeline._inputs.items(), header["first"], strict=True):
            kept.parts = _LeafColumns._make(columns[f"{output}/{name}/{column}"] for column in _LeafColumns._fields)
            kept.first = first
        for name, monitor in pipeline._dependent.items():
            monitor.restore({column: columns[f"{name}/{column}"] for column in monitor.columns()})
        if header["allowed_bytes"] is not None:
            pipeline._allowed_bytes = header["allowed_bytes"]
            pipeline._memory = SharedMemory(header["allowed_bytes"])
            pipeline._memory.hold(pipeline.joins)
            pipeline._share()
        return pipeline


def _to_leaf(late: LateTuples, input_number: int, leaf: int, kept: _InputTuples) -> LateTuples:
    mask = late.stream == input_number
    rows = late.row[mask]
    payload = kept.get_columns(rows).payloads[:, 0]
    return LateTuples(np.full(len(rows), leaf, np.int64), rows, late.key[mask], payload, late.reason[mask])
