"""How fresh queries are that merely get stale: the tokens of thesis 5.11, where no deadline is missed for good."""

from collections.abc import Iterable, Mapping

DECAY = 0.9
"""lambda: what a saved token keeps at each update of the base."""


class Tokens:
    """What each query would earn if it were answered now: P <- T + 0.9 P at each update of the base that concerns it.

    T is the query's weight. Nothing is lost while a query waits, but the longer it does the less each update adds: a
    saved token stays below T / (1 - 0.9).

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
        """Let a query take part, or change its weight; what it saved stays."""
        self._weights[query] = weight

    def forget(self, query: str) -> None:
        """Let a query take part no longer."""
        self._weights.pop(query, None)
        self._saved.pop(query, None)

    def offer(self, queries: Iterable[str]) -> None:
        """Learn that the base was updated where these queries read it."""
        for query in queries:
            weight = self._weights[query]
            self._saved[query] = weight + self._decay * self._saved.get(query, 0.0)
            self._offered += weight

    def credit(self, query: str) -> float:
        """Learn that a query was answered; return what that earned, 0 where it was fresh."""
        earned = self._saved.pop(query, 0.0)
        self._credited += earned
        return earned

    def withdraw(self, query: str) -> None:
        """Learn that nothing was asked of a query after all: what it reads had not changed."""
        self._offered -= self._weights[query] if query in self._saved else 0.0
        self._saved.pop(query, None)

    def saved_tokens(self, query: str) -> float:
        """Return what a query would earn now; 0 where it is fresh."""
        return self._saved.get(query, 0.0)

    def stale_queries(self) -> dict[str, float]:
        """Return the queries that are not fresh, and what each would earn."""
        return dict(self._saved)

    @property
    def score(self) -> float:
        """Share that was earned of all that was offered, 0 to 1; 1 where nothing was."""
        return self._credited / self._offered if self._offered else 1.0
