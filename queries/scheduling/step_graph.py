"""The shared graph of the steps of standing queries, and the job trees that a slice makes of it (thesis 4.4 to 4.6).

Equal steps have equal tokens and stand once, whichever queries need them. What each costs is learnt while it runs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from queries.scheduling.job_tree import InvalidWork, JobTree, Shape

SMOOTHING = 0.2
"""What the newest cost counts in the mean: half of it is forgotten after three runs."""
ENOUGH = 8
"""Runs after which the spread of costs tells whether a step is predictable."""
MOST_SPREAD = 1.0
"""Standard deviation of the costs of a predictable step, in units of their mean."""
UNKNOWN_S = 0.01
"""What a step is taken to cost that never ran and whose plan tells nothing [s]."""
LEAST_S = 1e-6
"""What a step costs at least [s]."""


@dataclass(frozen=True)
class GraphStep:
    """One perspective of a query: what it is, and which it reads."""

    token: str
    sources: tuple[str, ...] = ()
    """Tokens of the steps that it reads; none where it reads the base."""
    projected_s: float = UNKNOWN_S
    """What its plan says that it costs [s], until it has run."""
    predictable: bool = True
    """Whether it delivers within a time that does not depend on other input (POD, definition 4.5.1): a step that waits
    for a second base does not."""


class MeasuredCost:
    """What a step costs, from its runs: the recent mean, or of one without predictable delivery the mean of all."""

    def __init__(self, step: GraphStep) -> None:
        self._declared = step.predictable
        self._projected_s = step.projected_s
        self._recent_s = self._total_s = self._variance = 0.0
        self.runs = 0

    def add(self, seconds: float) -> None:
        """Learn what one more run took [s]."""
        if not 0 <= seconds < math.inf:
            message = f"a step's cost needs to be 0 s or more; got {seconds}; was a clock set back that measured it?"
            raise InvalidWork(message)
        self.runs += 1
        self._total_s += seconds
        if self.runs == 1:
            self._recent_s = seconds
            return
        change = seconds - self._recent_s
        self._recent_s += SMOOTHING * change
        self._variance = (1 - SMOOTHING) * (self._variance + SMOOTHING * change**2)

    @property
    def predictable(self) -> bool:
        """Whether it is declared so and its costs do not say otherwise (4.5)."""
        return self._declared and (
            self.runs < ENOUGH or math.sqrt(self._variance) <= MOST_SPREAD * self._total_s / self.runs
        )

    @property
    def seconds(self) -> float:
        """What one run is expected to take [s], above 0."""
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
    """What equal steps save."""

    queries: int
    steps: int
    """Distinct steps."""
    steps_apart: int
    """Steps, were none shared."""
    seconds: float
    """What all cost once [s]."""
    seconds_apart: float
    """What they would cost, were none shared [s]."""


class StepGraph:
    """All steps that standing queries on one base need, by token. Not safe between threads.

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
        """All tokens, sources first; None until it is asked for."""

    def add(self, query: str, steps: Sequence[GraphStep], *, weight: float, validity_s: float) -> None:
        """Let a query stand, instead of what stood under its name; what was learnt of steps that stay is kept.

        Parameters
        ----------
        query
            Its name.
        steps
            All its steps; the last is its surface. Each source is among them, or stands here already.
        weight
            How important it is, above 0.
        validity_s
            How long after a slice its answer is of use [s], above 0.

        Raises
        ------
        InvalidWork
            Weight or validity is not positive, steps read one another in a circle, a source is missing, or a token
            stands for two things. Nothing has changed then.
        """
        for what, value in (("weight", weight), ("validity", validity_s)):
            if not 0 < value < math.inf:
                message = f"standing query {query!r} needs a {what} above 0; got {value}"
                raise InvalidWork(message)
        if not steps:
            message = f"standing query {query!r} needs at least one step; got none"
            raise InvalidWork(message)
        known: dict[str, tuple[str, ...]] = {}
        for step in steps:
            others = self._find_others(step.token, query)
            elsewhere = self._sources[step.token] if others else step.sources
            if known.setdefault(step.token, elsewhere) != step.sources:
                message = f"step {step.token!r} of {query!r} reads {step.sources}, but elsewhere {known[step.token]}"
                raise InvalidWork(message)
        # What stands here already ends at the base: a circle can only be among what is new, and what that reads.
        open_ = [source for sources in known.values() for source in sources]
        while open_:
            token = open_.pop()
            if token not in known and self._find_others(token, query):
                known[token] = self._sources[token]
                open_ += known[token]
        ordered = _order_steps(query, known)
        needed = _collect_sources((steps[-1].token,), known)
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
        """Return the queries that need a step, besides one."""
        return self._needed_by.get(token, set()) - {query}

    def remove(self, query: str) -> None:
        """Forget a query, and the steps that no other needs; one that does not stand here is none."""
        gone = self._queries.pop(query, None)
        for token in gone.steps if gone else ():
            self._needed_by[token].discard(query)
            if not self._needed_by[token]:
                del self._needed_by[token], self._sources[token], self._costs[token]
        self._ordered = None

    def record_run(self, token: str, seconds: float) -> None:
        """Learn what a run of a step took [s]; of one that nobody needs any more nothing is learnt."""
        cost = self._costs.get(token)
        if cost is not None:
            cost.add(seconds)

    def cost(self, token: str) -> MeasuredCost:
        """Return what is known of a step's cost."""
        return self._costs[token]

    def sharing(self) -> Sharing:
        """Return what equal steps save, each run once a slice."""
        unshared_tokens = [token for query in self._queries.values() for token in query.steps]
        return Sharing(
            queries=len(self._queries),
            steps=len(self._sources),
            steps_apart=len(unshared_tokens),
            seconds=sum(cost.seconds for cost in self._costs.values()),
            seconds_apart=sum(self._costs[token].seconds for token in unshared_tokens),
        )

    def tree(self, profits: Mapping[str, float] | None = None, *, now_s: float, size: float = 1.0) -> JobTree:
        """Return the input job tree of what these queries need after a new slice.

        A step that reads several others waits for all of them: they are put in a row, one after the other, so that the
        graph becomes a tree whose every schedule is one of the graph.

        Parameters
        ----------
        profits
            What each stale query earns when it is answered, such as its saved tokens; the weights of all where absent.
        now_s
            When the slice was there [s].
        size
            Units of input.

        Raises
        ------
        InvalidWork
            No query is given, one does not stand here, or a profit is not positive.
        """
        earned = {name: query.weight for name, query in self._queries.items()} if profits is None else dict(profits)
        for name, profit in earned.items():
            if name not in self._queries or not 0 < profit < math.inf:
                message = f"a tree of jobs needs standing queries with profits above 0; got {name!r} with {profit}"
                raise InvalidWork(message)
        if not earned:
            message = "a tree of jobs needs at least one standing query; got none"
            raise InvalidWork(message)
        surfaces: dict[str, list[str]] = {}
        for name in earned:
            surfaces.setdefault(self._queries[name].steps[-1], []).append(name)
        needed = _collect_sources(surfaces, self._sources)
        if self._ordered is None:
            self._ordered = _order_steps("", self._sources)
        parents = _linearize_steps({token: self._sources[token] for token in self._ordered if token in needed})
        positions = {token: number for number, token in enumerate(parents)}
        positions[""] = -1
        earliest_s = min(self._queries[name].validity_s for name in earned)
        profit_of = {token: sum(earned[name] for name in names) for token, names in surfaces.items()}
        slack_of = {
            token: min(self._queries[name].validity_s for name in names) - earliest_s
            for token, names in surfaces.items()
        }
        shape = Shape(
            tuple(parents),
            tuple(positions[parent] for parent in parents.values()),
            tuple(self._costs[token].seconds for token in parents),
            tuple(profit_of.get(token, 0.0) for token in parents),
            tuple(slack_of.get(token, 0.0) for token in parents),
        )
        return JobTree(shape, now_s, now_s + earliest_s, size)


def _collect_sources(tokens: Iterable[str], sources: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Return these steps and all that they read, directly or not."""
    closure: set[str] = set()
    open_ = list(tokens)
    while open_:
        token = open_.pop()
        if token not in closure:
            closure.add(token)
            open_ += sources[token]
    return closure


def _order_steps(query: str, sources: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return all steps, each after those that it reads; refuse a circle, naming its steps."""
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
                message = f"standing query {query!r} has a step that reads {token!r}, which is no step of it; add it"
                raise InvalidWork(message)
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
                message = (
                    f"standing query {query!r} needs steps that end at the base; got a circle, each reading the next: "
                    f"{' -> '.join(circle)}; break it"
                )
                raise InvalidWork(message)
            if source not in placed:
                path.append((source, 0))
                on_path.add(source)
    return ordered


def _linearize_steps(sources: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the one step that each waits for in a tree, "" for none; each stands after the one that it waits for.

    Parameters
    ----------
    sources
        What each step reads, each after its sources.
    """
    parents: dict[str, str] = {}
    for token, read in sources.items():
        last = read[0] if read else ""
        for source in read[1:]:
            above, other = _find_path(last, parents), _find_path(source, parents)
            if last in other:
                last = source
            elif source not in above:
                # The first step on the other's line that the two do not share goes below the end of the one.
                parents[next(step for step in other if step not in above)] = last
                last = source
        parents[token] = last
    ordered: dict[str, str] = {}
    for token in parents:
        for step in _find_path(token, parents):
            ordered.setdefault(step, parents[step])
    return ordered


def _find_path(token: str, parents: Mapping[str, str]) -> list[str]:
    """Return the steps from a root to this one."""
    line = []
    while token:
        line.append(token)
        token = parents[token]
    return line[::-1]
