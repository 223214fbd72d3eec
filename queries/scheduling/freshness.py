"""Freshness of queries that become stale but miss no deadline: the tokens of thesis 5.11."""

from collections.abc import Iterable, Mapping

DECAY = 0.9
"""lambda: decay factor of a saved token at each update of the base."""


class Tokens:
    """Tokens that each query would earn if it were answered now.

    P <- T + 0.9 P at each update of the base that concerns it; T is the query's weight. Nothing is lost while a query
    waits, but each update adds less the longer it waits: a saved token stays below T / (1 - 0.9).

    Examples
    --------
    >>> tokens = Tokens({"frost": 10.0, "map": 1.0})
    >>> tokens.offer(["frost", "map"]), tokens.offer(["frost", "map"])
    (None, None)
    >>> tokens.credit("frost"), tokens.saved_tokens("map"), round(tokens.score, 3)
    (19.0, 1.9, 0.864)
    """

    def __init__(self, weights: Mapping[str, float] | None = None, *, decay: float = DECAY) -> None:
        self._weights = dict(weights or {})
        self._decay = decay
        self._saved: dict[str, float] = {}
        self._offered = self._credited = 0.0

    def set_weight(self, query: str, weight: float) -> None:
        """Add a query or change its weight; its saved tokens are kept."""
        self._weights[query] = weight

    def forget(self, query: str) -> None:
        self._weights.pop(query, None)
        self._saved.pop(query, None)

    def offer(self, queries: Iterable[str]) -> None:
        """Record an update of the base that affects these queries."""
        for query in queries:
            weight = self._weights[query]
            self._saved[query] = weight + self._decay * self._saved.get(query, 0.0)
            self._offered += weight

    def credit(self, query: str) -> float:
        """Record that a query was answered; return what it earned, 0 if it was fresh."""
        earned = self._saved.pop(query, 0.0)
        self._credited += earned
        return earned

    def withdraw(self, query: str) -> None:
        """Undo an offer: what the query reads had not changed after all."""
        self._offered -= self._weights[query] if query in self._saved else 0.0
        self._saved.pop(query, None)

    def saved_tokens(self, query: str) -> float:
        """Return what a query would earn now; 0 if fresh."""
        return self._saved.get(query, 0.0)

    def stale_queries(self) -> dict[str, float]:
        """Return the stale queries, with what each would earn."""
        return dict(self._saved)

    @property
    def score(self) -> float:
        """Share of the offered tokens that was earned, 0 to 1; 1 without offers."""
        return self._credited / self._offered if self._offered else 1.0
