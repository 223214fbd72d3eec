"""Memory cost model: buffers of single (thesis 3.3) and pipelined joins (3.4), and memory shared by joins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge


@dataclass(frozen=True)
class StreamParameters:
    """Parameters of a stream in the cost model."""

    scrambling_factor: float
    """[tuples]"""
    rate_hz: float
    multiplicity: float = 1.0
    """Most tuples with one key."""


def buffer_bounds(scrambling_factor: ArrayLike, rate_hz: ArrayLike, lag: ArrayLike) -> NDArray[np.float64]:
    """Return the tuples that a join may hold per stream (equations 3.6 to 3.8), shape (n,).

    Parameters
    ----------
    scrambling_factor, rate_hz
        Of each stream [tuples], [Hz], shape (n,). If a rate is NaN (unknown) and another stream is out of order, the
        bound is inf, because the duration of that disorder is unknown.
    lag
        From each stream (row) to each other (column) [tuples], shape (n, n); 0 to 1 if they are synchronised.

    Examples
    --------
    >>> buffer_bounds([4, 10], [1.0, 2.0], [[0, 3], [-50, 0]]).tolist()
    [12.0, 1.0]
    """
    k, r = np.asarray(scrambling_factor, np.float64), np.asarray(rate_hz, np.float64)
    lags = np.asarray(lag, np.float64)
    with np.errstate(invalid="ignore"):
        during = np.where(k[None, :] > 0, r[:, None] * k[None, :] / r[None, :], 0.0)
    pairs = k[:, None] + np.where(np.isnan(during), np.inf, during) + lags
    np.fill_diagonal(pairs, -np.inf)
    # The 1e-9 keeps rounding errors from adding a tuple.
    bounds: NDArray[np.float64] = np.maximum(1.0, np.ceil(pairs.max(axis=1) - 1e-9))
    return bounds


def combine_parameters(inputs: Sequence[StreamParameters]) -> StreamParameters:
    """Return bounds of the parameters of a join's results on the join key (theorem 3.4.1).

    Rate and scrambling factor follow equations 3.9 and 3.10; a key has at most as many results as the product of the
    multiplicities.
    """
    multiplicities = np.array([stream.multiplicity for stream in inputs])
    partners = multiplicities.prod() / multiplicities
    return StreamParameters(
        scrambling_factor=float(sum(stream.scrambling_factor * p for stream, p in zip(inputs, partners, strict=True))),
        rate_hz=float(sum(stream.rate_hz * p for stream, p in zip(inputs, partners, strict=True))),
        multiplicity=float(multiplicities.prod()),
    )


def convert_to_key(
    parameters: StreamParameters, dependent: float, multiplicity: float | None = None
) -> StreamParameters:
    """Return bounds of a stream's parameters on another key (theorem 3.4.2).

    Parameters
    ----------
    dependent
        Dependent scrambling factor from the first key to the other [tuples].
    multiplicity
        On the other key; None: the same as on the first.
    """
    repeated = parameters.multiplicity if multiplicity is None else multiplicity
    return StreamParameters(2.0 * parameters.scrambling_factor + dependent, parameters.rate_hz, repeated)


def admit(label: str, needed_bytes: float, allowed_bytes: float) -> None:
    """Refuse a join that does not fit.

    Raises
    ------
    TooLarge
        Names both numbers.
    """
    if needed_bytes > allowed_bytes:
        raise TooLarge(
            label, "bytes", needed_bytes, allowed_bytes, "allow more, or join fewer or better ordered streams"
        )


def split_memory(needed_bytes: Sequence[float], least_bytes: Sequence[float], allowed_bytes: float) -> list[int]:
    """Divide memory among joins in proportion to their need.

    Parameters
    ----------
    needed_bytes
        Bytes that each join needs by `buffer_bounds`.
    least_bytes
        Minimum bytes of each join.

    Returns
    -------
    list of int
        Bytes for each, together at most `allowed_bytes`: what each needs if that fits, otherwise its minimum plus a
        part of the rest in proportion to its need beyond the minimum.

    Raises
    ------
    TooLarge
        Not even the minimum fits.

    Examples
    --------
    >>> split_memory([100.0, 300.0], [10.0, 10.0], 220.0)
    [57, 162]
    """
    admit(f"{len(needed_bytes)} joins together", sum(least_bytes), allowed_bytes)
    beyond = [max(0.0, need - least_part) for need, least_part in zip(needed_bytes, least_bytes, strict=True)]
    spare = allowed_bytes - sum(least_bytes)
    part = min(1.0, spare / sum(beyond)) if sum(beyond) > 0 else 0.0
    return [int(least_part + part * more) for least_part, more in zip(least_bytes, beyond, strict=True)]


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
            raise NotFound.among("join", name, self._joins)
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
