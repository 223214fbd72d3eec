"""State of an engine as bytes: what its operators hold, with a version and a checksum.

Each class names the attributes that make up its state. Indexes are not saved: they are filled again from the rows.
"""

import hashlib
import json
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa

from hypergrid.continuous.engine.batch import ElementBatch
from hypergrid.core.errors import InvalidQuery

State: TypeAlias = Any
"""None, numbers, texts, arrays, and lists and mappings by text of these."""

MAGIC: Final = b"HGCQ"
VERSION: Final = 4
"""Changes when earlier states can no longer be read."""
_HEAD: Final = struct.Struct("<4sIQ16s")
_CODEC: Final = "zstd"


class Stateful:
    """What holds state in attributes."""

    STATE: ClassVar[tuple[str, ...]] = ()
    """Attributes of the state; others follow from how the object was made."""

    def save(self) -> State:
        """Return the state; its arrays are those of the object."""
        return {name: _save(getattr(self, name)) for name in self.STATE}

    def load(self, state: State) -> None:
        """Take the state of an object that was made in the same way."""
        for name in self.STATE:
            setattr(self, name, _load(getattr(self, name), state[name]))


def _save(value: Any) -> State:  # noqa: ANN401
    if isinstance(value, Stateful):
        return value.save()
    if isinstance(value, dict):
        return {str(key): _save(part) for key, part in value.items()}
    if isinstance(value, list | tuple | deque):
        return [_save(part) for part in value]
    return value


def _load(current: Any, state: State) -> Any:  # noqa: ANN401
    """Return the value of a state in the form of the current value."""
    if isinstance(current, Stateful):
        current.load(state)
        return current
    if isinstance(current, dict):
        return {key: _load(part, state[str(key)]) for key, part in current.items()}
    if isinstance(current, tuple) and hasattr(current, "_fields"):
        return type(current)(*state)
    return deque(state) if isinstance(current, deque) else state


def save_batches(batches: Sequence[ElementBatch]) -> State:
    """Return batches as a state."""
    return [
        [batch.tau, list(batch.columns), batch.sign, batch.arrival, batch.series, batch.number] for batch in batches
    ]


def batches_of(state: State) -> list[ElementBatch]:
    """Return saved batches."""
    return [ElementBatch(tau, tuple(columns), *order) for tau, columns, *order in state]


def pack_state(state: State, version: int = VERSION) -> bytes:
    """Return a state as bytes, which only `unpack_state` of the same version reads."""
    arrays: list[np.ndarray[Any, Any]] = []

    def describe(value: State) -> State:
        if isinstance(value, np.ndarray):
            arrays.append(np.ascontiguousarray(value))
            return {"array": [value.dtype.str, list(value.shape)]}
        if isinstance(value, Mapping):
            return {"map": {name: describe(part) for name, part in value.items()}}
        if isinstance(value, list):
            return [describe(part) for part in value]
        return value.item() if isinstance(value, np.generic) else value

    header = json.dumps(describe(state), separators=(",", ":")).encode()
    content = b"".join([struct.pack("<Q", len(header)), header, *(array.tobytes() for array in arrays)])
    body: bytes = pa.compress(content, codec=_CODEC, asbytes=True)
    digest = _digest(len(content), body)
    return _HEAD.pack(MAGIC, version, len(content), digest) + body


def _digest(size: int, body: bytes) -> bytes:
    return hashlib.blake2b(struct.pack("<Q", size) + body, digest_size=16).digest()


def unpack_state(saved: bytes, version: int = VERSION) -> State:
    """Return the state of bytes; arrays can be written to.

    Raises
    ------
    InvalidQuery
        The bytes are damaged, or of another version.
    """
    if len(saved) < _HEAD.size or not saved.startswith(MAGIC):
        raise InvalidQuery("the state of a continuous query is damaged: it does not begin as one; evaluate it again")
    _, written_by, size, digest = _HEAD.unpack_from(saved)
    if written_by != version:
        raise InvalidQuery(
            f"the state of a continuous query has version {written_by}, and this program reads {version}; "
            "evaluate it again"
        )
    body = saved[_HEAD.size :]
    if _digest(size, body) != digest:
        raise InvalidQuery("the state of a continuous query is damaged: its checksum differs; evaluate it again")
    content = memoryview(pa.decompress(body, decompressed_size=size, codec=_CODEC, asbytes=True))
    (length,) = struct.unpack_from("<Q", content)
    at = 8 + length

    def build(value: State) -> State:
        nonlocal at
        if isinstance(value, list):
            return [build(part) for part in value]
        if not isinstance(value, dict):
            return value
        if "map" in value:
            return {name: build(part) for name, part in value["map"].items()}
        dtype, shape = value["array"]
        count = int(np.prod(shape))
        array = np.frombuffer(content, dtype, count, at).reshape(shape).copy()
        at += array.nbytes
        return array

    return build(json.loads(bytes(content[8:at])))
