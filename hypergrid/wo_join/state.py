"""The state of a join: its arrays, how they grow, and how they are kept as bytes and made again."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hypergrid.core.seal import seal, unseal
from hypergrid.wo_join.hash_table import gather, hold_again, link_all
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
    Floats,
    Held,
    Ints,
    Monitored,
)

MAGIC = b"HyperGrid join\x00"
VERSION = 2
RECORDS = 1024
"""Running maxima of a stream that are remembered at first."""
SLOTS, KEYS = 1024, 512
"""Tuples and keys that there is room for at first."""
NOTHING: Mapping[str, np.ndarray] = {}


@dataclass
class State:
    """All that a join remembers."""

    whole: Ints
    steps: Floats
    seen: Monitored
    held: Held
    rows: Ints
    """Tuples that each stream has brought, shape (n,): the next ones' rows."""

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.whole, self.steps, self.rows, *self.seen, *self.held)
        return sum(array.nbytes for array in arrays)


def monitored(streams: int, ranks: int) -> Monitored:
    """Return monitors that have seen nothing; `ranks` is how many keys a sorted list has room for at first."""
    per = np.zeros((streams, COLUMNS), np.int64)
    per[:, [GREATEST, LINE, SWEPT, AWAY]] = FLOOR
    per[:, [OLDEST, NEWEST]] = NONE
    return Monitored(
        per=per,
        records=np.zeros((streams, RECORDS, 3), np.int64),
        rates=np.zeros((streams, RATED), np.int64),
        spread=np.zeros((streams, 2, BUCKETS), np.int32),
        ranks=np.zeros((streams, ranks), np.int64),
        reaches=np.zeros((streams, streams)),
    )


def empty(streams: int, *, ranks: int, scattered: bool, timed: bool, jump: int) -> State:
    """Return the state of a join that has seen nothing.

    Parameters
    ----------
    ranks
        Room for sorted keys of each stream, 0 where no lag is monitored.
    scattered
        Whether buckets are scattered; else they follow the keys.
    timed
        Whether the arrival of each tuple is kept.
    jump
        Key units that a clock may jump, 0 where that is judged by the keys.
    """
    whole = np.zeros(PLACES, np.int64)
    whole[[FREE_SLOT, FREE_ENTRY, LAST_STREAM]] = NONE
    whole[[GREATEST_ALL, SWEPT_ALL, TOP_SWEPT, LEAST_LINE, NEXT_LINE]] = FLOOR
    whole[DEADLINE] = CEILING
    whole[REACH] = jump or CEILING // 2
    whole[SHIFT] = -1 if scattered else 0

    held = Held(
        buckets=np.full(1, NONE, np.int32),
        keys=np.zeros(0, np.int64),
        heads=np.zeros((0, TAILS + streams), np.int32),
        links=np.zeros((0, 4), np.int32),
        rows=np.zeros(0, np.int64),
        payloads=np.zeros(0),
        arrivals=np.zeros(0 if timed else 1, np.int64),
        pending=np.zeros(0, np.int32),
    )
    state = State(whole, np.zeros(1), monitored(streams, ranks), held, np.zeros(streams, np.int64))
    grow_slots(state, SLOTS)
    grow_entries(state, KEYS)
    return state


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    longer = np.zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def grow_slots(state: State, size: int) -> None:
    """Make room for so many tuples."""
    held, before = state.held, len(state.held.rows)
    names = ["rows", "payloads", "links"]
    if len(held.arrivals) == before:
        names.append("arrivals")
    state.held = held._replace(**{name: _longer(getattr(held, name), size) for name in names})
    state.held.links[before:, NEXT] = np.arange(before + 1, size + 1)
    state.held.links[size - 1, NEXT] = state.whole[FREE_SLOT]
    state.whole[FREE_SLOT] = before


def grow_entries(state: State, size: int) -> None:
    """Make room for so many keys, in at least twice as many buckets."""
    held, before = state.held, len(state.held.keys)
    names = ["keys", "heads", "pending"]
    state.held = held._replace(
        **{name: _longer(getattr(held, name), size) for name in names},
        buckets=np.full(1 << (2 * size - 1).bit_length(), NONE, np.int32),
    )
    state.held.heads[before:, TAILS:] = NONE
    state.held.heads[before:, AFTER] = np.arange(before + 1, size + 1)
    state.held.heads[size - 1, AFTER] = state.whole[FREE_ENTRY]
    state.whole[FREE_ENTRY] = before
    link_all(*state.held[:3], state.whole)


def retune(state: State) -> None:
    """Cut the buckets anew, so that a bucket spans about one key."""
    whole, held = state.whole, state.held
    keys = np.sort(held.keys[held.heads[:, SIZE] != 0])
    if len(keys) > 16:
        spacing = float(np.median(np.diff(keys)))
    else:
        spacing = float(whole[GREATEST_ALL] - whole[FIRST_KEY]) / max(1, int(whole[CREATED]))
    whole[SHIFT] = max(0, int(max(1.0, spacing)).bit_length() - 1)
    whole[[VISITS, DROPS, CREATED]] = 0
    whole[FIRST_KEY] = whole[GREATEST_ALL]
    link_all(*state.held[:3], state.whole)


def grow_records(state: State, size: int) -> None:
    """Remember so many running maxima of each stream."""
    seen = state.seen
    before = seen.records.shape[1]
    records = np.zeros((len(seen.per), size, 3), np.int64)
    for stream, row in enumerate(seen.per):
        places = np.arange(row[FIRST_RECORD], row[END_RECORD])
        records[stream, places & (size - 1)] = seen.records[stream, places & (before - 1)]
    seen.per[:, SHORT] = 0
    state.seen = seen._replace(records=records)


def grow_ranks(state: State, size: int) -> None:
    """Make room for so many sorted keys of each stream."""
    seen = state.seen
    ranks = np.zeros((len(seen.per), size), np.int64)
    ranks[:, : seen.ranks.shape[1]] = seen.ranks
    state.seen = seen._replace(ranks=ranks)


def widen(state: State, streams: int) -> None:
    """Make room for further streams: so many in all. The new ones are asleep until they bring something."""
    seen, held, more = state.seen, state.held, streams - len(state.seen.per)
    fresh = monitored(more, seen.ranks.shape[1])
    fresh.per[:, ASLEEP] = 1
    fresh = fresh._replace(records=np.zeros((more, *seen.records.shape[1:]), np.int64))
    reaches = np.zeros((streams, streams))
    reaches[:-more, :-more] = seen.reaches
    grown = [name for name in Monitored._fields if name != "reaches"]
    joined = {name: np.concatenate([getattr(seen, name), getattr(fresh, name)]) for name in grown}
    state.seen = Monitored(**joined, reaches=reaches)
    absent = np.full((len(held.heads), more), NONE, np.int32)
    state.held = held._replace(heads=np.concatenate([held.heads, absent], axis=1))
    state.rows = np.concatenate([state.rows, np.zeros(more, np.int64)])


def packed(magic: bytes, header: Mapping[str, object], columns: Mapping[str, np.ndarray]) -> bytes:
    """Return a header and columns as bytes: magic, version, check sum, and all of it compressed."""
    listed = [[name, str(column.dtype), list(column.shape)] for name, column in columns.items()]
    text = json.dumps({**header, "columns": listed}, default=int).encode()
    body = b"".join(_packed(column) for column in columns.values())
    return seal(magic, VERSION, zlib.compress(len(text).to_bytes(4, "little") + text + body, 1))


def to_bytes(state: State, description: dict[str, object], more: Mapping[str, np.ndarray] = NOTHING) -> bytes:
    """Return a state as bytes: columns of what is held and of what monitors remember.

    `more` are further columns, which `columns_of` returns.
    """
    held, seen, streams = state.held, state.seen, len(state.seen.per)
    queued = int(state.whole[SHIFT]) < 0
    slots, owners = gather(held.heads, held.links, int(state.whole[HELD_ALL]))
    # By row within each stream: the order of its queue and of each key's ring.
    order = np.lexsort((held.rows[slots], owners))
    slots, owners = slots[order], owners[order]
    rings = [_unrolled(seen, stream) for stream in range(streams)]
    marks = np.nonzero(seen.spread)
    # Which slot holds what is of this process only.
    whole, per = state.whole.copy(), seen.per.copy()
    whole[[FREE_SLOT, FREE_ENTRY]] = NONE
    per[:, [OLDEST, NEWEST]] = NONE
    columns = {
        "whole": whole,
        "steps": state.steps,
        "rows": state.rows,
        "per": per,
        "rates": seen.rates,
        "records": np.concatenate(rings),
        "marks": np.ravel_multi_index(marks, seen.spread.shape),
        "spread": seen.spread[marks],
        "ranks": np.concatenate([seen.ranks[stream, : seen.per[stream, RANKED]] for stream in range(streams)]),
        "reaches": seen.reaches,
        "owner": owners,
        "row": held.rows[slots],
        "key": held.keys[held.links[slots, OWNER]],
        "payload": held.payloads[slots],
        "ordinal": held.links[slots, ORDINAL],
        "whole_keys": held.keys[held.heads[:, SIZE] == WHOLE],
        "arrival": held.arrivals[slots] if len(held.arrivals) > 1 else np.zeros(0, np.int64),
        **more,
    }
    header = {
        "description": description,
        "queued": queued,
        "records": seen.records.shape[1],
        "ranks": seen.ranks.shape[1],
    }
    return packed(MAGIC, header, columns)


def _packed(column: np.ndarray) -> bytes:
    """Return a column as bytes, integers as differences along the first axis, byte planes apart: these compress."""
    if column.dtype.kind == "i" and len(column) > 1:
        column = np.diff(column, axis=0, prepend=np.zeros_like(column[:1]))
    flat = np.ascontiguousarray(column)
    return flat.view(np.uint8).reshape(-1, column.dtype.itemsize).T.tobytes() if flat.size else b""


def _unpacked(data: bytes, dtype: str, shape: list[int]) -> np.ndarray:
    kind = np.dtype(dtype)
    if not data:
        return np.zeros(shape, kind)
    planes = np.frombuffer(data, np.uint8).reshape(kind.itemsize, -1)
    column = np.array(planes.T, order="C").view(kind).reshape(shape)
    return np.cumsum(column, axis=0, dtype=kind) if kind.kind == "i" and len(column) > 1 else column


def _unrolled(seen: Monitored, stream: int) -> Ints:
    first, end = seen.per[stream, FIRST_RECORD], seen.per[stream, END_RECORD]
    ring: Ints = seen.records[stream, np.arange(first, end) & (seen.records.shape[1] - 1)]
    return ring


def header_of(data: bytes, magic: bytes = MAGIC, who: str = "a join") -> tuple[dict[str, object], bytes]:
    """Return the header that `packed` was given, and its columns as they are.

    Raises
    ------
    InvalidQuery
        The bytes are of something else, were damaged, or are of another version.
    """
    plain = zlib.decompress(unseal(data, magic, VERSION, who=who))
    length = int.from_bytes(plain[:4], "little")
    return json.loads(plain[4 : 4 + length]), plain[4 + length :]


def columns_of(header: dict[str, object], body: bytes) -> dict[str, np.ndarray]:
    """Return the columns that `header_of` left as they were."""
    columns: dict[str, np.ndarray] = {}
    place = 0
    for name, dtype, shape in header["columns"]:  # type: ignore[attr-defined]
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        columns[name] = _unpacked(body[place : place + size], dtype, shape)
        place += size
    return columns


def from_columns(header: dict[str, object], columns: dict[str, np.ndarray]) -> State:
    """Return the state that was kept; it goes on exactly as that one would have."""
    whole, per = columns["whole"], columns["per"]
    streams, queued = len(per), bool(header["queued"])
    timed = len(columns["arrival"]) > 0 or bool(header["description"]["timed"])  # type: ignore[index]
    state = empty(streams, ranks=int(header["ranks"]), scattered=queued, timed=timed, jump=0)  # type: ignore[call-overload]
    state.seen.spread.reshape(-1)[columns["marks"]] = columns["spread"]
    records = np.zeros((streams, int(header["records"]), 3), np.int64)  # type: ignore[call-overload]
    sizes = per[:, END_RECORD] - per[:, FIRST_RECORD]
    for stream, ring in enumerate(np.split(columns["records"], np.cumsum(sizes)[:-1])):
        places = np.arange(per[stream, FIRST_RECORD], per[stream, END_RECORD])
        records[stream, places & (records.shape[1] - 1)] = ring
    for stream, keys in enumerate(np.split(columns["ranks"], np.cumsum(per[:, RANKED])[:-1])):
        state.seen.ranks[stream, : len(keys)] = keys
    state.seen = state.seen._replace(records=records, rates=columns["rates"], reaches=columns["reaches"])
    state.rows, state.steps = columns["rows"], columns["steps"]
    state.whole[SHIFT] = whole[SHIFT]
    _hold_again(state, columns, queued=queued)
    # What inserting counted is put right.
    free_slot, free_entry, entries = state.whole[[FREE_SLOT, FREE_ENTRY, ENTRIES]]
    oldest, newest = state.seen.per[:, OLDEST].copy(), state.seen.per[:, NEWEST].copy()
    state.seen.per[:], state.whole = per, whole
    state.whole[[FREE_SLOT, FREE_ENTRY, ENTRIES]] = free_slot, free_entry, entries
    state.seen.per[:, OLDEST], state.seen.per[:, NEWEST] = oldest, newest
    return state


def _hold_again(state: State, columns: dict[str, np.ndarray], *, queued: bool) -> None:
    count = len(columns["row"])
    if count >= SLOTS:
        grow_slots(state, count + 1)
    keys = len(np.unique(columns["key"])) + len(columns["whole_keys"])
    if keys >= KEYS:
        grow_entries(state, keys + 1)
    hold_again(
        *state.held[:7], state.whole, state.seen.per, queued,
        *(columns[name] for name in ("owner", "key", "row", "payload", "ordinal", "arrival", "whole_keys")),
    )  # fmt: skip


def tuples(value: object) -> Any:  # noqa: ANN401 - lists of JSON, at any depth
    """Return tuples for the lists that JSON made of them."""
    return tuple(tuples(item) for item in value) if isinstance(value, list) else value
