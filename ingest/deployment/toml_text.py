"""Text of a deployment file from its document."""

import json
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any

from hypergrid.core.errors import InvalidDeployment


def write_toml(document: Mapping[str, Any]) -> str:
    """Return a document as TOML: a table for each mapping at its top or below, and inline ones within these.

    Raises
    ------
    InvalidDeployment
        A value that TOML cannot express, such as null; the message has its key.

    Examples
    --------
    >>> print(write_toml({"network": {"name": "pass"}, "station": [{"id": "1", "lon": 7.17}]}), end="")
    [network]
    name = "pass"
    <BLANKLINE>
    [[station]]
    id = "1"
    lon = 7.17
    """
    blocks = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            blocks += _tables(f"[{_key(key)}]", _key(key), value, key)
        elif _is_array_of_tables(value):
            for index, item in enumerate(value):
                blocks += _tables(f"[[{_key(key)}]]", _key(key), item, f"{key}[{index}]")
        else:
            # Before any table: below one, it would belong to it.
            blocks.insert(0, f"{_key(key)} = {_inline(value, key)}")
    return "\n\n".join(blocks) + "\n"


def _is_array_of_tables(value: object) -> bool:
    return (
        isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(item, Mapping) for item in value)
    )


def _tables(head: str, name: str, table: Mapping[str, Any], path: str) -> list[str]:
    """Return the block of a table, and those of the tables in it."""
    own = [
        f"{_key(key)} = {_inline(value, f'{path}.{key}')}"
        for key, value in table.items()
        if not isinstance(value, Mapping)
    ]
    inner = [
        "\n".join(
            [f"[{name}.{_key(key)}]", *(f"{_key(n)} = {_inline(v, f'{path}.{key}.{n}')}" for n, v in value.items())]
        )
        for key, value in table.items()
        if isinstance(value, Mapping)
    ]
    return ["\n".join([head, *own]), *inner]


def _key(key: str) -> str:
    is_bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if is_bare else _text(key)


def _text(text: str) -> str:
    # A string of JSON is one of TOML, apart from DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _inline(value: object, path: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case date() | time():
            return value.isoformat()
        case Mapping():
            pairs = (f"{_key(key)} = {_inline(item, f'{path}.{key}')}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case [*items]:
            return f"[{', '.join(_inline(item, f'{path}[{index}]') for index, item in enumerate(items))}]"
    error = InvalidDeployment(
        f"deployment.toml: {path} needs text, a number, true or false, a list or a table; got null"
    )
    error.key = path
    raise error
