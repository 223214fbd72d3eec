"""State of a join: its arrays, their growth, and their serialisation."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hypergrid.core.files import seal, unseal
from hypergrid.wo_join.hash_table import gather_slots, link_all, reinsert
from hypergrid.wo_join.state_layout import (
    AFTER,
    ASLEEP,
    AWAY,
    BUCKETS,
    CEILING,
    COLUMNS,
    CREATED,
    DEADLINE,
    DROPS,
    END_RECORD,
    ENTRIES,
    FIRST_KEY,
    FIRST_RECORD,
    FLOOR,
    FREE_ENTRY,
    FREE_SLOT,
    GREATEST,
    GREATEST_ALL,
    HELD_ALL,
    IDLE,
    LAST,
    LAST_STREAM,
    LEAST_LINE,
    LINE,
    NEWEST,
    NEXT,
    NEXT_LINE,
    NONE,
    OLDEST,
    ORDINAL,
    OWNER,
    PLACES,
    RANKED,
    RATED,
    REACH,
    SHIFT,
    SHORT,
    SIZE,
    SWEPT,
    SWEPT_ALL,
    TAILS,
    TOP_SWEPT,
    VISITS,
    WHOLE,
    Batch,
    HeldTuples,
    Ints,
    JoinState,
    MonitorState,
)

MAGIC = b"HyperGrid join\x00"
VERSION = 2
RECORDS = 1024
"""Initial capacity for running maxima of a stream."""
SLOTS, KEYS = 1024, 512
"""Initial capacity for tuples and for keys."""
NOTHING: Mapping[str, np.ndarray] = {}


def make_monitors(streams: int, ranks: int) -> MonitorState:
    """Create empty monitors; `ranks` is the initial capacity of sorted keys."""
    stream_state = np.zeros((streams, COLUMNS), np.int64)
    stream_state[:, [GREATEST, LINE, SWEPT, AWAY]] = FLOOR
    stream_state[:, [OLDEST, NEWEST]] = NONE
    return MonitorState(
        per=stream_state,
        records=np.zeros((streams, RECORDS, 3), np.int64),
        rates=np.zeros((streams, RATED), np.int64),
        spread=np.zeros((streams, 2, BUCKETS), np.int32),
        ranks=np.zeros((streams, ranks), np.int64),
        reaches=np.zeros((streams, streams)),
    )


def make_state(streams: int, *, ranks: int, scattered: bool, timed: bool, jump: int) -> JoinState:
    """Create the state of an empty join.

    Parameters
    ----------
    ranks
        Capacity for sorted keys of each stream, 0 if lags are not monitored.
    scattered
        Whether buckets are scattered; otherwise they follow the order of keys.
    timed
        Whether the arrival of each tuple is kept.
    jump
        Key units that a clock may jump, 0 if judged by the keys.
    """
    join_state = np.zeros(PLACES, np.int64)
    join_state[[FREE_SLOT, FREE_ENTRY, LAST_STREAM]] = NONE
    join_state[[GREATEST_ALL, SWEPT_ALL, TOP_SWEPT, LEAST_LINE, NEXT_LINE]] = FLOOR
    join_state[DEADLINE] = CEILING
    # No distance is a jump until enough steps are known.
    join_state[REACH] = jump or CEILING // 2
    join_state[SHIFT] = -1 if scattered else 0

    held = HeldTuples(
        buckets=np.full(1, NONE, np.int32),
        keys=np.zeros(0, np.int64),
        heads=np.zeros((0, TAILS + streams), np.int32),
        links=np.zeros((0, 4), np.int32),
        rows=np.zeros(0, np.int64),
        payloads=np.zeros(0),
        arrivals=np.zeros(0 if timed else 1, np.int64),
        pending=np.zeros(0, np.int32),
    )
    state = JoinState(join_state, np.zeros(1), make_monitors(streams, ranks), held, np.zeros(streams, np.int64))
    return grow_entries(grow_slots(state, SLOTS), KEYS)


def _lengthen(array: np.ndarray, size: int) -> np.ndarray:
    longer = np.zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def grow_slots(state: JoinState, size: int) -> JoinState:
    """Grow the capacity for tuples to `size`."""
    held, before = state.held, len(state.held.rows)
    names = ["rows", "payloads", "links"]
    if len(held.arrivals) == before:
        names.append("arrivals")
    held = held._replace(**{name: _lengthen(getattr(held, name), size) for name in names})
    held.links[before:, NEXT] = np.arange(before + 1, size + 1)
    held.links[size - 1, NEXT] = state.join_state[FREE_SLOT]
    state.join_state[FREE_SLOT] = before
    return state._replace(held=held)


def grow_entries(state: JoinState, size: int) -> JoinState:
    """Grow the capacity for keys to `size`, with at least twice as many buckets."""
    held, before = state.held, len(state.held.keys)
    held = held._replace(
        **{name: _lengthen(getattr(held, name), size) for name in ("keys", "heads", "pending")},
        buckets=np.full(1 << (2 * size - 1).bit_length(), NONE, np.int32),
    )
    held.heads[before:, TAILS:] = NONE
    held.heads[before:, AFTER] = np.arange(before + 1, size + 1)
    held.heads[size - 1, AFTER] = state.join_state[FREE_ENTRY]
    state.join_state[FREE_ENTRY] = before
    state = state._replace(held=held)
    link_all(state)
    return state


def retune(state: JoinState) -> None:
    """Resize the buckets so that one spans about one key, and rebuild them."""
    join_state, held = state.join_state, state.held
    keys = np.sort(held.keys[held.heads[:, SIZE] != 0])
    if len(keys) > 16:
        spacing = float(np.median(np.diff(keys)))
    else:
        # Too few held keys: the mean distance of all keys since the last resizing.
        spacing = float(join_state[GREATEST_ALL] - join_state[FIRST_KEY]) / max(1, int(join_state[CREATED]))
    join_state[SHIFT] = max(0, int(max(1.0, spacing)).bit_length() - 1)
    join_state[[VISITS, DROPS, CREATED]] = 0
    join_state[FIRST_KEY] = join_state[GREATEST_ALL]
    link_all(state)


def grow_records(monitors: MonitorState) -> MonitorState:
    """Double the capacity for running maxima of each stream."""
    before = monitors.records.shape[1]
    size = 2 * before
    records = np.zeros((len(monitors.per), size, 3), np.int64)
    for stream, row in enumerate(monitors.per):
        # Positions in a ring depend on its capacity.
        places = np.arange(row[FIRST_RECORD], row[END_RECORD])
        records[stream, places & (size - 1)] = monitors.records[stream, places & (before - 1)]
    monitors.per[:, SHORT] = 0
    return monitors._replace(records=records)


def grow_ranks(monitors: MonitorState) -> MonitorState:
    """Double the capacity for sorted keys of each stream."""
    return monitors._replace(ranks=np.concatenate([monitors.ranks, np.zeros_like(monitors.ranks)], axis=1))


def start_idle_clock(state: JoinState, batch: Batch) -> None:
    """Start the idle time of streams that have brought nothing yet at the first arrival."""
    if state.join_state[DEADLINE] == CEILING and state.join_state[IDLE] < CEILING:
        state.monitors.per[:, LAST] = batch.arrival[0]
        state.join_state[DEADLINE] = batch.arrival[0] + state.join_state[IDLE]


def widen(state: JoinState, streams: int) -> JoinState:
    """Add streams up to a total of `streams`; new ones are asleep until their first tuple."""
    monitors, held, more = state.monitors, state.held, streams - len(state.monitors.per)
    fresh = make_monitors(more, monitors.ranks.shape[1])
    fresh.per[:, ASLEEP] = 1
    fresh = fresh._replace(records=np.zeros((more, *monitors.records.shape[1:]), np.int64))
    reaches = np.zeros((streams, streams))
    reaches[:-more, :-more] = monitors.reaches
    grown = [name for name in MonitorState._fields if name != "reaches"]
    joined = {name: np.concatenate([getattr(monitors, name), getattr(fresh, name)]) for name in grown}
    absent = np.full((len(held.heads), more), NONE, np.int32)
    return state._replace(
        monitors=MonitorState(**joined, reaches=reaches),
        held=held._replace(heads=np.concatenate([held.heads, absent], axis=1)),
        rows=np.concatenate([state.rows, np.zeros(more, np.int64)]),
    )


@dataclass(frozen=True)
class _Chosen:
    """A column of elements of an array by their indices, made when it is packed."""

    array: np.ndarray
    indices: Ints

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.indices.shape


def pack(magic: bytes, header: Mapping[str, object], columns: Mapping[str, np.ndarray | _Chosen]) -> bytes:
    """Serialise a header and columns: magic, version, checksum, and compressed content."""
    listed = [[name, str(column.dtype), list(column.shape)] for name, column in columns.items()]
    text = json.dumps({**header, "columns": listed}, default=int).encode()
    compressor = zlib.compressobj(1)
    chunks = [compressor.compress(len(text).to_bytes(4, "little") + text)]
    # Column by column: beside a large join there is room for one of them.
    chunks += [compressor.compress(_pack_column(column)) for column in columns.values()]
    return seal(magic, VERSION, b"".join([*chunks, compressor.flush()]))


def to_bytes(state: JoinState, description: dict[str, object], more: Mapping[str, np.ndarray] = NOTHING) -> bytes:
    """Serialise a state: held tuples and monitors in columns.

    `more` are further columns, which `columns_of` returns.
    """
    held, monitors, streams = state.held, state.monitors, len(state.monitors.per)
    queued = int(state.join_state[SHIFT]) < 0
    slots, owners = gather_slots(held.heads, held.links, int(state.join_state[HELD_ALL]))
    # By row within each stream, which is the order of its queue and of each key's ring.
    order = np.lexsort((held.rows[slots], owners))
    slots, owners = slots[order], owners[order]
    rings = [unroll_ring(monitors, stream) for stream in range(streams)]
    marks = np.nonzero(monitors.spread)
    # Slot numbers are local to this process.
    join_state, stream_state = state.join_state.copy(), monitors.per.copy()
    join_state[[FREE_SLOT, FREE_ENTRY]] = NONE
    stream_state[:, [OLDEST, NEWEST]] = NONE
    columns: dict[str, np.ndarray | _Chosen] = {
        "whole": join_state,
        "steps": state.steps,
        "rows": state.rows,
        "per": stream_state,
        "rates": monitors.rates,
        "records": np.concatenate(rings),
        "marks": np.ravel_multi_index(marks, monitors.spread.shape),
        "spread": monitors.spread[marks],
        "ranks": np.concatenate([monitors.ranks[stream, : monitors.per[stream, RANKED]] for stream in range(streams)]),
        "reaches": monitors.reaches,
        "owner": owners,
        "row": _Chosen(held.rows, slots),
        "key": _Chosen(held.keys, held.links[slots, OWNER]),
        "payload": _Chosen(held.payloads, slots),
        "ordinal": _Chosen(held.links[:, ORDINAL], slots),
        "whole_keys": held.keys[held.heads[:, SIZE] == WHOLE],
        "arrival": _Chosen(held.arrivals, slots) if len(held.arrivals) > 1 else np.zeros(0, np.int64),
        **more,
    }
    header = {
        "description": description,
        "queued": queued,
        "records": monitors.records.shape[1],
        "ranks": monitors.ranks.shape[1],
    }
    return pack(MAGIC, header, columns)


def _pack_column(column: np.ndarray | _Chosen) -> bytes:
    """Encode a column: integers as differences along the first axis, byte planes separated, which compresses well."""
    if isinstance(column, _Chosen):
        column = column.array[column.indices]
    if column.dtype.kind == "i" and len(column) > 1:
        column = np.diff(column, axis=0, prepend=np.zeros_like(column[:1]))
    flat = np.ascontiguousarray(column)
    return flat.view(np.uint8).reshape(-1, column.dtype.itemsize).T.tobytes() if flat.size else b""


class PackedColumns:
    """Compressed content that is read from its beginning to its end: all of it at once would take as much as a join."""

    def __init__(self, content: bytes) -> None:
        self._inflater, self._rest = zlib.decompressobj(), content

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        parts, lacking = [], size
        # Without a size, all would be inflated.
        while lacking and (part := self._inflater.decompress(self._rest, lacking)):
            self._rest, lacking = self._inflater.unconsumed_tail, lacking - len(part)
            parts.append(part)
        return b"".join(parts)


def _unpack_column(data: bytes, dtype: str, shape: list[int]) -> np.ndarray:
    kind = np.dtype(dtype)
    if not data:
        return np.zeros(shape, kind)
    planes = np.frombuffer(data, np.uint8).reshape(kind.itemsize, -1)
    column = np.array(planes.T, order="C").view(kind).reshape(shape)
    return np.cumsum(column, axis=0, dtype=kind) if kind.kind == "i" and len(column) > 1 else column


def unroll_ring(monitors: MonitorState, stream: int) -> Ints:
    """Return the retained running maxima of a stream: number, key and arrival [ns] of each."""
    first, end = monitors.per[stream, FIRST_RECORD], monitors.per[stream, END_RECORD]
    ring: Ints = monitors.records[stream, np.arange(first, end) & (monitors.records.shape[1] - 1)]
    return ring


def header_of(data: bytes, magic: bytes = MAGIC, label: str = "a join") -> tuple[dict[str, object], "PackedColumns"]:
    """Return the header given to `pack`, and the columns, still packed.

    Raises
    ------
    InvalidQuery
        The bytes are of another kind, were damaged, or are of another version.
    """
    packed = PackedColumns(unseal(data, magic, VERSION, label=label))
    return json.loads(packed.read(int.from_bytes(packed.read(4), "little"))), packed


def columns_of(header: dict[str, object], packed: PackedColumns) -> dict[str, np.ndarray]:
    """Decode the columns left packed by `header_of`, which can be read once."""
    return {
        name: _unpack_column(packed.read(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype, shape)
        for name, dtype, shape in header["columns"]  # type: ignore[attr-defined]
    }


def from_columns(header: dict[str, object], columns: dict[str, np.ndarray]) -> JoinState:
    """Restore a serialised state, which continues exactly as the original would have."""
    join_state, stream_state = columns["whole"], columns["per"]
    streams, queued = len(stream_state), bool(header["queued"])
    timed = len(columns["arrival"]) > 0 or bool(header["description"]["timed"])  # type: ignore[index]
    state = make_state(streams, ranks=int(header["ranks"]), scattered=queued, timed=timed, jump=0)  # type: ignore[call-overload]
    state.monitors.spread.reshape(-1)[columns["marks"]] = columns["spread"]
    records = np.zeros((streams, int(header["records"]), 3), np.int64)  # type: ignore[call-overload]
    sizes = stream_state[:, END_RECORD] - stream_state[:, FIRST_RECORD]
    for stream, ring in enumerate(np.split(columns["records"], np.cumsum(sizes)[:-1])):
        places = np.arange(stream_state[stream, FIRST_RECORD], stream_state[stream, END_RECORD])
        records[stream, places & (records.shape[1] - 1)] = ring
    for stream, keys in enumerate(np.split(columns["ranks"], np.cumsum(stream_state[:, RANKED])[:-1])):
        state.monitors.ranks[stream, : len(keys)] = keys
    monitors = state.monitors._replace(records=records, rates=columns["rates"], reaches=columns["reaches"])
    state = state._replace(monitors=monitors, rows=columns["rows"], steps=columns["steps"])
    state.join_state[SHIFT] = join_state[SHIFT]
    state = _reinsert(state, columns)
    # Insertion changed the counters; the saved ones replace them, except for places that are local to this process.
    join_state[[FREE_SLOT, FREE_ENTRY, ENTRIES]] = state.join_state[[FREE_SLOT, FREE_ENTRY, ENTRIES]]
    stream_state[:, [OLDEST, NEWEST]] = monitors.per[:, [OLDEST, NEWEST]]
    return state._replace(join_state=join_state, monitors=monitors._replace(per=stream_state))


def _reinsert(state: JoinState, columns: dict[str, np.ndarray]) -> JoinState:
    count = len(columns["row"])
    if count >= SLOTS:
        state = grow_slots(state, count + 1)
    keys = len(np.unique(columns["key"])) + len(columns["whole_keys"])
    if keys >= KEYS:
        state = grow_entries(state, keys + 1)
    batch = Batch(*(columns[name] for name in ("owner", "row", "key", "payload", "arrival")))
    reinsert(state, batch, columns["ordinal"], columns["whole_keys"])
    return state


def to_tuples(value: object) -> Any:  # noqa: ANN401 - lists of JSON, at any depth
    """Convert the lists that JSON made of tuples back into tuples."""
    return tuple(to_tuples(item) for item in value) if isinstance(value, list) else value
