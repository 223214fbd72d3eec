"""Shared step graph of standing queries, and its job trees (thesis 4.4 to 4.6).

Equal steps have equal tokens and exist once, whichever queries need them. Costs are learned at run time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from queries.scheduling.job_tree import InvalidWork, JobTree, Shape

SMOOTHING = 0.2
"""Weight of the newest cost in the mean: half of it is forgotten after three runs."""
ENOUGH = 8
"""Runs after which the spread of costs decides whether a step is predictable."""
MOST_SPREAD = 1.0
"""Largest standard deviation of the costs of a predictable step, in units of their mean."""
UNKNOWN_S = 0.01
"""Assumed cost of a step that never ran and has no projection [s]."""
LEAST_S = 1e-6
"""Lower bound of a step's cost [s]."""


@dataclass(frozen=True)
class GraphStep:
    """One perspective of a query, with its sources."""

    token: str
    sources: tuple[str, ...] = ()
    """Tokens of its source steps; empty if it reads the base."""
    projected_s: float = UNKNOWN_S
    """Cost projected by its plan [s], used until it has run."""
    predictable: bool = True
    """Predictable output delivery (POD, definition 4.5.1): its delay does not depend on other input, as that of a step
    that waits for a second base does.
    """


class MeasuredCost:
    """Measured cost of a step: the recent mean, or the overall one if unpredictable."""

    def __init__(self, step: GraphStep) -> None:
        self._declared = step.predictable
        self._projected_s = step.projected_s
        self._recent_s = self._total_s = self._variance = 0.0
        self.runs = 0

    def add(self, seconds: float) -> None:
        """Add the duration of a run [s]."""
        if not 0 <= seconds < math.inf:
            raise InvalidWork(
                f"a step's cost needs to be 0 s or more; got {seconds}; was a clock set back that measured it?"
            )
        self.runs += 1
        self._total_s += seconds
        # The first run is the mean; there is no spread yet.
        if self.runs == 1:
            self._recent_s = seconds
            return
        change = seconds - self._recent_s
        self._recent_s += SMOOTHING * change
        # Exponentially weighted variance, updated with the mean.
        self._variance = (1 - SMOOTHING) * (self._variance + SMOOTHING * change**2)

    @property
    def predictable(self) -> bool:
        """Whether it is declared predictable and its costs do not contradict that (4.5)."""
        return self._declared and (
            self.runs < ENOUGH or math.sqrt(self._variance) <= MOST_SPREAD * self._total_s / self.runs
        )

    @property
    def seconds(self) -> float:
        """Expected cost of one run [s], above 0."""
        if not self.runs:
            return max(self._projected_s, LEAST_S)
        return max(self._recent_s if self.predictable else self._total_s / self.runs, LEAST_S)


@dataclass(frozen=True)
class _RegisteredQuery:
    steps: tuple[str, ...]
    """Tokens of all its steps; the last is its surface."""
    weight: float
    validity_s: float


@dataclass(frozen=True)
class Sharing:
    """Savings from sharing equal steps."""

    queries: int
    steps: int
    """Distinct steps."""
    steps_apart: int
    """Number of steps without sharing."""
    seconds: float
    """Cost of running each step once [s]."""
    seconds_apart: float
    """Cost without sharing [s]."""


class StepGraph:
    """All steps of the standing queries on one base, by token. Not thread-safe.

    Examples
    --------
    >>> graph = StepGraph()
    >>> graph.add("frost", [GraphStep("clean"), GraphStep("minimum", ("clean",))], weight=10.0, validity_s=60.0)
    >>> graph.add("map", [GraphStep("clean"), GraphStep("kriged", ("clean",))], weight=2.0, validity_s=300.0)
    >>> graph.record_run("clean", 0.5)
    >>> graph.tree(now_s=100.0).shape.names
    ('clean', 'minimum', 'kriged')
    """

    def __init__(self) -> None:
        self._queries: dict[str, _RegisteredQuery] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        self._costs: dict[str, MeasuredCost] = {}
        self._needed_by: dict[str, set[str]] = {}
        self._ordered: list[str] | None = None
        """All tokens, sources first; computed on demand."""

    def add(self, query: str, steps: Sequence[GraphStep], *, weight: float, validity_s: float) -> None:
        """Add or replace a query; learned costs of the steps that remain are kept.

        Parameters
        ----------
        query
            Its name.
        steps
            All its steps; the last is its surface. Each source is among them, or already in the graph.
        weight
            Importance, above 0.
        validity_s
            How long after a slice its answer is useful [s], above 0.

        Raises
        ------
        InvalidWork
            Weight or validity is not positive, steps form a cycle, a source is missing, or a token has different
            sources elsewhere. The graph is unchanged then.
        """
        for what, value in (("weight", weight), ("validity", validity_s)):
            if not 0 < value < math.inf:
                raise InvalidWork(f"standing query {query!r} needs a {what} above 0; got {value}")
        if not steps:
            raise InvalidWork(f"standing query {query!r} needs at least one step; got none")
        known: dict[str, tuple[str, ...]] = {}
        for step in steps:
            others = self._find_others(step.token, query)
            # A token that only this query uses may change its sources.
            elsewhere = self._sources[step.token] if others else step.sources
            if known.setdefault(step.token, elsewhere) != step.sources:
                raise InvalidWork(
                    f"step {step.token!r} of {query!r} reads {step.sources}, but elsewhere {known[step.token]}"
                )
        # Existing steps already end at the base: a cycle can only be among the new ones and what they read.
        open_ = [source for sources in known.values() for source in sources]
        while open_:
            token = open_.pop()
            if token not in known and self._find_others(token, query):
                known[token] = self._sources[token]
                open_ += known[token]
        ordered = _order_steps(query, known)
        needed = _collect_sources((steps[-1].token,), known)
        # remove() forgets costs of steps that only the old definition needed.
        learnt = dict(self._costs)
        self.remove(query)
        for step in steps:
            if step.token in needed:
                self._costs.setdefault(step.token, learnt.get(step.token) or MeasuredCost(step))
        for token in ordered:
            if token in needed:
                self._sources[token] = known[token]
                self._needed_by.setdefault(token, set()).add(query)
        self._ordered = None
        self._queries[query] = _RegisteredQuery((*(needed - {steps[-1].token}), steps[-1].token), weight, validity_s)

    def _find_others(self, token: str, query: str) -> set[str]:
        return self._needed_by.get(token, set()) - {query}

    def remove(self, query: str) -> None:
        """Remove a query and the steps that no other needs; unknown names are ignored."""
        gone = self._queries.pop(query, None)
        for token in gone.steps if gone else ():
            self._needed_by[token].discard(query)
            if not self._needed_by[token]:
                del self._needed_by[token], self._sources[token], self._costs[token]
        self._ordered = None

    def record_run(self, token: str, seconds: float) -> None:
        """Record the duration of a step's run [s]; ignored if no query needs it."""
        cost = self._costs.get(token)
        if cost is not None:
            cost.add(seconds)

    def cost(self, token: str) -> MeasuredCost:
        return self._costs[token]

    def sharing(self) -> Sharing:
        """Compute what sharing saves, if each step runs once per slice."""
        unshared_tokens = [token for query in self._queries.values() for token in query.steps]
        return Sharing(
            queries=len(self._queries),
            steps=len(self._sources),
            steps_apart=len(unshared_tokens),
            seconds=sum(cost.seconds for cost in self._costs.values()),
            seconds_apart=sum(self._costs[token].seconds for token in unshared_tokens),
        )

    def tree(
        self,
        profits: Mapping[str, float] | None = None,
        *,
        now_s: float,
        since_s: Mapping[str, float] | None = None,
        size: float = 1.0,
    ) -> JobTree:
        """Build the input job tree of these queries after a new slice.

        A step with several sources waits for all of them: they are put in sequence, which turns the graph into a tree
        whose every schedule is valid for the graph.

        Parameters
        ----------
        profits
            What each stale query earns when answered, such as its saved tokens; default: the weights of all queries.
        now_s
            When the slice arrived [s].
        since_s
            When the oldest slice arrived that each query lacks [s], from which its validity counts: of all inputs that
            contribute to an answer the one that expires first (thesis, equation 4.1); default `now_s`.
        size
            Units of input.

        Raises
        ------
        InvalidWork
            No query is given, one is not in the graph, or a profit is not positive.
        """
        earned = {name: query.weight for name, query in self._queries.items()} if profits is None else dict(profits)
        for name, profit in earned.items():
            if name not in self._queries or not 0 < profit < math.inf:
                raise InvalidWork(
                    f"a tree of jobs needs standing queries with profits above 0; got {name!r} with {profit}"
                )
        if not earned:
            raise InvalidWork("a tree of jobs needs at least one standing query; got none")
        surfaces: dict[str, list[str]] = {}
        for name in earned:
            surfaces.setdefault(self._queries[name].steps[-1], []).append(name)
        needed = _collect_sources(surfaces, self._sources)
        if self._ordered is None:
            self._ordered = _order_steps("", self._sources)
        parents = _linearize_steps({token: self._sources[token] for token in self._ordered if token in needed})
        positions = {token: number for number, token in enumerate(parents)}
        positions[""] = -1
        # The tree's deadline is that of its most urgent query; the others have slack.
        arrived_s = since_s or {}
        due_s = {name: arrived_s.get(name, now_s) + self._queries[name].validity_s for name in earned}
        earliest_s = min(due_s.values())
        profit_of = {token: sum(earned[name] for name in names) for token, names in surfaces.items()}
        slack_of = {token: min(due_s[name] for name in names) - earliest_s for token, names in surfaces.items()}
        shape = Shape(
            tuple(parents),
            tuple(positions[parent] for parent in parents.values()),
            tuple(self._costs[token].seconds for token in parents),
            tuple(profit_of.get(token, 0.0) for token in parents),
            tuple(slack_of.get(token, 0.0) for token in parents),
        )
        return JobTree(shape, now_s, earliest_s, size)


def _collect_sources(tokens: Iterable[str], sources: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Collect steps with all their direct and indirect sources."""
    closure: set[str] = set()
    open_ = list(tokens)
    while open_:
        token = open_.pop()
        if token not in closure:
            closure.add(token)
            open_ += sources[token]
    return closure


def _order_steps(query: str, sources: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Sort the steps topologically, sources first; reject a cycle, naming its steps."""
    ordered: list[str] = []
    placed: set[str] = set()
    for wanted in sources:
        path: list[tuple[str, int]] = [(wanted, 0)]
        on_path = {wanted}
        while path:
            token, number = path.pop()
            if token in placed:
                on_path.discard(token)
                continue
            if token not in sources:
                raise InvalidWork(
                    f"standing query {query!r} has a step that reads {token!r}, which is no step of it; add it"
                )
            if number == len(sources[token]):
                placed.add(token)
                on_path.discard(token)
                ordered.append(token)
                continue
            path.append((token, number + 1))
            source = sources[token][number]
            if source in on_path:
                circle = [step for step, _ in path]
                circle = [*circle[circle.index(source) :], source]
                raise InvalidWork(
                    f"standing query {query!r} needs steps that end at the base; got a circle, each reading the next: "
                    f"{' -> '.join(circle)}; break it"
                )
            if source not in placed:
                path.append((source, 0))
                on_path.add(source)
    return ordered


def _linearize_steps(sources: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Linearise the graph into a tree: the predecessor of each step, "" for none.

    Parameters
    ----------
    sources
        Sources of each step, each after its own sources.

    Returns
    -------
    The steps, each after its predecessor.
    """
    parents: dict[str, str] = {}
    for token, read in sources.items():
        last = read[0] if read else ""
        for source in read[1:]:
            above, other = _find_path(last, parents), _find_path(source, parents)
            if last in other:
                last = source
            elif source not in above:
                # Attach the first unshared step of the other path below the end of this one.
                parents[next(step for step in other if step not in above)] = last
                last = source
        parents[token] = last
    ordered: dict[str, str] = {}
    for token in parents:
        for step in _find_path(token, parents):
            ordered.setdefault(step, parents[step])
    return ordered


def _find_path(token: str, parents: Mapping[str, str]) -> list[str]:
    """Return the path from the root to a step."""
    line = []
    while token:
        line.append(token)
        token = parents[token]
    return line[::-1]


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
    >>> tokens.credit("frost"), tokens.profit("map"), round(tokens.score, 3)
    (19.0, 1.9, 0.864)
    """

    def __init__(self, weights: Mapping[str, float] | None = None, *, decay: float = DECAY) -> None:
        self._weights = dict(weights or {})
        self._decay = decay
        self._saved: dict[str, float] = {}
        self._pending: dict[str, float] = {}
        """Tokens that were offered to each query since its last answer, not decayed."""
        self._offered = self._credited = 0.0

    def set_weight(self, query: str, weight: float) -> None:
        self._weights[query] = weight

    def forget(self, query: str) -> None:
        self._weights.pop(query, None)
        self._saved.pop(query, None)
        self._pending.pop(query, None)

    def offer(self, queries: Iterable[str]) -> None:
        """Record an update of the base that affects these queries."""
        for query in queries:
            weight = self._weights[query]
            self._saved[query] = weight + self._decay * self._saved.get(query, 0.0)
            self._pending[query] = weight + self._pending.get(query, 0.0)
            self._offered += weight

    def credit(self, query: str) -> float:
        """Record that a query was answered; return what it earned, 0 if it was fresh."""
        earned = self._saved.pop(query, 0.0)
        self._pending.pop(query, None)
        self._credited += earned
        return earned

    def withdraw(self, query: str) -> None:
        """Undo the offers since its last answer: what the query reads had not changed after all."""
        self._offered -= self._pending.pop(query, 0.0)
        self._saved.pop(query, None)

    def profit(self, query: str) -> float:
        """Return what a stale query earns when it is answered: its saved tokens, or its weight if it saved none."""
        # Answered meanwhile for an older snapshot, it earned all its tokens and is stale all the same.
        return self._saved.get(query) or self._weights[query]

    @property
    def score(self) -> float:
        """Share of the offered tokens that was earned, 0 to 1; 1 without offers."""
        return self._credited / self._offered if self._offered else 1.0
