"""Content tokens: equal content gives equal tokens; unstable content is refused (after dask's `tokenize`)."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

Jsonable = None | bool | int | float | str | list["Jsonable"] | dict[str, "Jsonable"]


def token(*content: object) -> str:
    """Return 32 hexadecimal digits that depend only on the content.

    A record enters by its `token_name` and a renamed field by the `token_name` in its metadata, so that renaming code
    changes no token. A user's own record enters by its class name.

    Parameters
    ----------
    content
        Text, numbers, None, arrays, mappings with text keys, sequences and dataclasses of these.

    Raises
    ------
    TypeError
        Content without a stable form (a function, an open file, an object).

    Examples
    --------
    >>> token({"b": 1, "a": 2}) == token({"a": 2, "b": 1})
    True
    """
    text = json.dumps(_to_plain(content), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _to_plain(value: object) -> Jsonable:  # noqa: PLR0911 - one return per kind is easiest to read
    kind = type(value)
    # Most values are of these kinds, which need no look at their base classes.
    if value is None or kind is str or kind is int or kind is bool:
        return value  # type: ignore[return-value]
    # Hexadecimal text is exact, and distinct from an equal integer.
    if kind is float:
        return {"float": value.hex()}  # type: ignore[attr-defined]
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return {"float": float(value).hex()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufM":
        # Contiguous, so that the memory order of an array does not count.
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"array": digest, "dtype": str(value.dtype), "shape": [int(n) for n in value.shape]}
    if isinstance(value, np.datetime64):
        return {"instant": str(value)}
    if isinstance(value, Mapping):
        return {"map": {_key(key): _to_plain(item) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.token_name: _to_plain(getattr(value, field.name))
            for field in _fields(type(value))
            if not (field.omits_default and getattr(value, field.name) == field.default)
        }
        return {"record": getattr(type(value), "token_name", type(value).__name__), "fields": fields}
    raise TypeError(f"a token needs plain content; got {type(value).__name__}, whose content is not stable")


class _RecordField(NamedTuple):
    """Field of a record as it enters tokens."""

    name: str
    token_name: str
    omits_default: bool
    default: object


@cache
def _fields(record: type) -> tuple[_RecordField, ...]:
    return tuple(
        _RecordField(
            field.name,
            field.metadata.get("token_name", field.name),
            bool(field.metadata.get("omit_default")),
            field.default,
        )
        for field in dataclasses.fields(record)
    )


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a token needs mappings with text keys; got the key {key!r}")
    return key
