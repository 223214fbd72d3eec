"""Sealed bytes: magic, version, CRC-32 checksum, content.

State that one process keeps for the next is plain data; reading it never executes code.
"""

import zlib
from typing import Final

from hypergrid.core.errors import InvalidQuery

_VERSION_BYTES: Final = 2
_CHECKSUM_BYTES: Final = 4


def seal(magic: bytes, version: int, content: bytes) -> bytes:
    """Prefix content with a magic, a version and a checksum."""
    numbers = version.to_bytes(_VERSION_BYTES, "little") + zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")
    return magic + numbers + content


def unseal(data: bytes, magic: bytes, version: int, *, label: str) -> bytes:
    """Return the content of bytes made by `seal`.

    Parameters
    ----------
    label
        Name of the component that resumes, as in "a join".

    Raises
    ------
    InvalidQuery
        The bytes have another magic or version, or are damaged.
    """
    what = f"{label} can be resumed only from the bytes of its snapshot"
    size = len(magic)
    body = size + _VERSION_BYTES + _CHECKSUM_BYTES
    if data[:size] != magic:
        raise InvalidQuery(f"{what}; got {len(data)} bytes that begin with {data[:size]!r}")
    numbers, content = data[size:body], data[body:]
    made = int.from_bytes(numbers[:_VERSION_BYTES], "little")
    if made != version:
        raise InvalidQuery(f"{what} of version {version}; got version {made}: resume it by the release that made it")
    if zlib.crc32(content) != int.from_bytes(numbers[_VERSION_BYTES:], "little"):
        raise InvalidQuery(f"{what}, whole and unchanged; their check sum differs: take an earlier snapshot")
    return content
