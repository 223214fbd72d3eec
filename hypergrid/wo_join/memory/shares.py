"""Shared memory of several joins: admission and division by the cost model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.wo_join.memory.cost import admit, split_memory


class Holder(Protocol):
    """An object that holds memory: `WoJoin` or `Pipeline`."""

    @property
    def min_bytes(self) -> int:
        """Minimum bytes: one tuple of each stream."""

    @property
    def needed_bytes(self) -> float:
        """Bytes that equation 3.8 holds; the minimum while parameters are unknown."""

    @property
    def held_bytes(self) -> int:
        """Bytes held now."""

    def allow(self, allowed_bytes: int) -> None:
        """Change the memory limit [bytes]."""


@dataclass(frozen=True)
class JoinShare:
    """Share of one join in the memory, now [bytes]."""

    minimum: int
    needed: float
    held: int
    allowed: int


@dataclass(frozen=True)
class MemoryShares:
    """Shared memory and all its shares, now."""

    allowed_bytes: int
    held_bytes: int
    joins: dict[str, JoinShare]
    """Shares by the names of the joins."""


class SharedMemory:
    """A memory limit shared by several joins.

    Parameters
    ----------
    allowed_bytes
        Limit of all joins together.

    Notes
    -----
    Shares follow the need. Call `share` from time to time, and before pushing on after a `BufferFull`, so that the join
    gets what others can spare.

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
        """Add a join and divide the memory again.

        Raises
        ------
        TooLarge
            It does not fit beside the others, by equation 3.8 or by what they hold; both numbers are given.
        InvalidQuery
            The name is taken.
        """
        if name in self._joins:
            raise InvalidQuery(
                f"joins that share memory need names of their own; {name!r} is admitted already: release it first"
            )
        others = sum(max(join.needed_bytes, join.held_bytes, join.min_bytes) for join in self._joins.values())
        needed = max(join.needed_bytes, join.held_bytes, join.min_bytes)
        label = f"{name!r} beside {len(self._joins)} joins that need {others:,.0f} bytes"
        admit(label, needed + others, self._allowed_bytes)
        self._joins[name] = join
        self.share()

    def hold(self, joins: Mapping[str, Holder]) -> None:
        """Add running joins without admission; `share` or `allow` then sets their limits."""
        self._joins |= joins
        self._parts |= dict.fromkeys(joins, 0)

    def release(self, name: str) -> None:
        """Remove a join, whose share goes to the others.

        Raises
        ------
        NotFound
            No join has this name.
        """
        if name not in self._joins:
            kind = "join"
            raise NotFound.among(kind, name, self._joins)
        del self._joins[name]
        self.share()

    def allow(self, allowed_bytes: int) -> None:
        """Change the common limit and divide it again.

        Raises
        ------
        TooLarge
            The joins already hold more.
        """
        before, self._allowed_bytes = self._allowed_bytes, allowed_bytes
        try:
            self.share()
        except TooLarge:
            self._allowed_bytes = before
            raise

    def share(self) -> None:
        """Divide the memory: held bytes first, then by need, any surplus equally.

        Raises
        ------
        TooLarge
            The joins already hold more than is allowed.
        """
        if not self._joins:
            return
        joins = list(self._joins.values())
        # Memory already in use cannot be taken back.
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
        """Return the memory held, needed and allowed of each join."""
        each = {
            name: JoinShare(join.min_bytes, join.needed_bytes, join.held_bytes, self._parts[name])
            for name, join in self._joins.items()
        }
        return MemoryShares(self._allowed_bytes, sum(join.held for join in each.values()), each)
