"""Memory that several joins share: by the cost model it is decided who is admitted, and how much each may hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.wo_join.memory.cost import admit, split_memory


class Holder(Protocol):
    """What holds memory: `WoJoin`, and `Pipeline`."""

    @property
    def min_bytes(self) -> int:
        """Bytes that it cannot do without: one tuple of each stream."""

    @property
    def needed_bytes(self) -> float:
        """Bytes that equation 3.8 asks for; the least as long as nothing is known."""

    @property
    def held_bytes(self) -> int:
        """Bytes that it holds."""

    def allow(self, allowed_bytes: int) -> None:
        """Change the limit of what it holds."""


@dataclass(frozen=True)
class JoinShare:
    """One of those that share memory, now [bytes]."""

    minimum: int
    needed: float
    held: int
    allowed: int


@dataclass(frozen=True)
class MemoryShares:
    """Memory that is shared, now."""

    allowed_bytes: int
    held_bytes: int
    joins: dict[str, JoinShare]
    """By the names they were admitted under."""


class SharedMemory:
    """Memory that several joins share.

    Parameters
    ----------
    allowed_bytes
        What all of them may hold together.

    Notes
    -----
    Parts follow the need, so `share` is to be called from time to time, and before what raised `BufferFull` is pushed
    on: then what others have to spare is there for it.

    Examples
    --------
    >>> from hypergrid.wo_join import WoJoin
    >>> memory, join = SharedMemory(10_000), WoJoin(2)
    >>> memory.admit("temperature", join)
    >>> memory.admit("rain", WoJoin(2))
    >>> memory.statistics().joins["temperature"].allowed, join.statistics().allowed_bytes
    (5000, 5000)
    """

    def __init__(self, allowed_bytes: int) -> None:
        self._allowed_bytes = allowed_bytes
        self._joins: dict[str, Holder] = {}
        self._parts: dict[str, int] = {}

    def admit(self, name: str, join: Holder) -> None:
        """Let a join have its share.

        Raises
        ------
        TooLarge
            It does not fit beside the others, by what equation 3.8 asks for, or by what they hold: both numbers.
        InvalidQuery
            The name is taken.
        """
        if name in self._joins:
            message = f"joins that share memory need names of their own; {name!r} is admitted already: release it first"
            raise InvalidQuery(message)
        others = sum(max(join.needed_bytes, join.held_bytes, join.min_bytes) for join in self._joins.values())
        needed = max(join.needed_bytes, join.held_bytes, join.min_bytes)
        label = f"{name!r} beside {len(self._joins)} joins that need {others:,.0f} bytes"
        admit(label, needed + others, self._allowed_bytes)
        self._joins[name] = join
        self.share()

    def hold(self, joins: Mapping[str, Holder]) -> None:
        """Let joins that run already share what there is; `share` or `allow` gives them their parts."""
        self._joins |= joins
        self._parts |= dict.fromkeys(joins, 0)

    def release(self, name: str) -> None:
        """Let a join go; its share is the others'.

        Raises
        ------
        NotFound
            There is none of this name.
        """
        if name not in self._joins:
            kind = "join"
            raise NotFound.among(kind, name, self._joins)
        del self._joins[name]
        self.share()

    def allow(self, allowed_bytes: int) -> None:
        """Change what all may hold together, and share it anew.

        Raises
        ------
        TooLarge
            They hold more already.
        """
        before, self._allowed_bytes = self._allowed_bytes, allowed_bytes
        try:
            self.share()
        except TooLarge:
            self._allowed_bytes = before
            raise

    def share(self) -> None:
        """Give each its part: what it holds and, of the rest, by its need; what nobody needs in equal parts.

        Raises
        ------
        TooLarge
            They hold more already than is allowed.
        """
        if not self._joins:
            return
        joins = list(self._joins.values())
        # What is held already cannot be taken back.
        min_bytes = [float(max(join.min_bytes, join.held_bytes)) for join in joins]
        needed = [
            max(lower_bound, min(join.needed_bytes, self._allowed_bytes))
            for lower_bound, join in zip(min_bytes, joins, strict=True)
        ]
        parts = split_memory(needed, min_bytes, self._allowed_bytes)
        spare = (self._allowed_bytes - sum(parts)) // len(parts)
        self._parts = {name: part + spare for name, part in zip(self._joins, parts, strict=True)}
        for name, part in self._parts.items():
            self._joins[name].allow(part)

    def statistics(self) -> MemoryShares:
        """Return who holds, needs and may hold how much."""
        each = {
            name: JoinShare(join.min_bytes, join.needed_bytes, join.held_bytes, self._parts[name])
            for name, join in self._joins.items()
        }
        return MemoryShares(self._allowed_bytes, sum(join.held for join in each.values()), each)
