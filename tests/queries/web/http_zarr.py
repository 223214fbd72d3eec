"""A read-only Zarr store over HTTP, as zarr-python sees one: what `xarray.open_zarr("http://…")` does by aiohttp."""

from collections.abc import AsyncIterator, Iterable

import httpx
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype


class HttpStore(Store):
    """The files below an address; none can be listed, and none is written."""

    supports_writes = False
    supports_deletes = False
    supports_listing = False

    def __init__(self, address: str) -> None:
        super().__init__(read_only=True)
        self.address = address.rstrip("/")
        self.asked: list[str] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HttpStore) and other.address == self.address

    def __hash__(self) -> int:
        return hash(self.address)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        assert byte_range is None
        self.asked.append(key)
        async with httpx.AsyncClient(timeout=20) as client:
            answer = await client.get(f"{self.address}/{key}")
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        return prototype.buffer.from_bytes(answer.content)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        async with httpx.AsyncClient(timeout=20) as client:
            return (await client.head(f"{self.address}/{key}")).status_code == 200

    async def set(self, key: str, value: Buffer) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError

    async def list(self) -> AsyncIterator[str]:
        raise NotImplementedError
        yield ""

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError
        yield prefix

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError
        yield prefix
