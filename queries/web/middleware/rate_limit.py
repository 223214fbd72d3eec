"""How often somebody may ask: a bucket of tokens each, filled at a rate."""

from collections import OrderedDict
from typing import Final

MAX_ASKERS: Final = 10_000
"""Askers that are remembered; the longest silent one is forgotten first."""


class RateLimiter:
    """Token buckets by asker; time is an argument. Each holds two seconds' worth, and at least five."""

    def __init__(self, maximum: int = MAX_ASKERS) -> None:
        self._max_askers = maximum
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, asker: str, per_s: float, now_s: float) -> float:
        """Take a token; return 0, or where there is none how long to wait for one [s].

        Parameters
        ----------
        asker
            Whose bucket.
        per_s
            Tokens that it gets a second.
        now_s
            The time [s], of a clock that never goes back.
        """
        full = max(2 * per_s, 5.0)
        left, since_s = self._left.pop(asker, (full, now_s))
        left = min(full, left + (now_s - since_s) * per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / per_s
        self._left[asker] = (left if wait_s else left - 1, now_s)
        while len(self._left) > self._max_askers:
            self._left.popitem(last=False)
        return wait_s
