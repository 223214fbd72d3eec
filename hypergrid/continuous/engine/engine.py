"""Engine of one query: batches of elements in, netted changes out, the same however the input is cut."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from hypergrid.continuous.algebra import Operator
from hypergrid.continuous.engine.batch import Column, ElementBatch, Elements, Integers, Signs
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.operators.bags import Netting
from hypergrid.continuous.engine.plan import EnginePlanner, EngineStep
from hypergrid.continuous.engine.state import State, pack_state, unpack_state
from hypergrid.continuous.engine.texts import Texts
from hypergrid.continuous.expressions import GREATEST_INTEGER, NULL_INTEGER
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.freed_memory import keep_freed_blocks
from hypergrid.core.pacing import give_way

ROUND: Final = 16384
"""About how many elements a round has, so that caches hold them; more where a single instant holds most of them."""
STATELESS_ROUND: Final = 65536
"""The same for plans that hold no rows: nothing else fills the caches."""
_MARKS: Final = 8
"""Candidate ends of rounds per input in each round's worth of elements."""


class ChangeBatch(NamedTuple):
    """Changes of a relation, rows that leave first at each instant, or elements of a stream."""

    tau: Integers
    sign: Signs
    columns: tuple[Column, ...]


class ContinuousEngine:
    """Evaluation of a tree over batches of elements.

    Elements are processed once a heartbeat is past their instant, so results are final. The process keeps freed memory
    for the next batch from then on (`keep_freed_blocks`).

    Parameters
    ----------
    tree
        Tree of the query.
    texts
        Texts to share with other engines.
    is_closed
        Whether windows of time hold their older edge, too: (t - range, t] is the definition.
    """

    def __init__(self, tree: Operator, texts: Texts | None = None, *, is_closed: bool = False) -> None:
        keep_freed_blocks()
        self.tree = tree
        self._is_stream, self._positions = tree.is_stream, range(len(tree.attributes))
        self.texts = Texts() if texts is None else texts
        self._evaluator = ExpressionEvaluator(self.texts)
        self._plan = EnginePlanner(self._evaluator, is_closed=is_closed).plan(tree)
        self._sources = tuple(self._plan.sources.values())
        self._round_size = ROUND if self._plan.holds_rows else STATELESS_ROUND
        # Steps below which no source has had an element yet.
        self._not_begun: Sequence[EngineStep] = self._plan.steps
        self._heartbeat = NULL_INTEGER
        self._processed = NULL_INTEGER
        self._is_started = False
        self._first_tau: int | None = None
        self._held: list[Elements] = []
        self._results: list[ChangeBatch] = []
        self._netting = Netting(len(tree.attributes))
        # Of inputs with elements before the engine began.
        self._firsts: dict[str, int] = {}
        self._token = hashlib.blake2b(f"{tree!r} {is_closed}".encode(), digest_size=16).hexdigest()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the streams and relations that the tree reads."""
        return tuple(self._plan.sources)

    @property
    def heartbeat(self) -> int:
        """Instant before which all elements were given [ns]."""
        return self._heartbeat

    def push(self, name: str, batch: ElementBatch) -> None:
        """Take elements of an input; those of relations that are there from the start have the instant NULL.

        Raises
        ------
        NotFound
            The tree has no such input.
        InvalidQuery
            Columns do not fit, or an instant is before the heartbeat.
        """
        sources = self._plan.sources
        if name not in sources:
            NotFound.refuse_unknown("input", [name], sources)
        sources[name].push(batch, self._processed)

    def advance(self, heartbeat_ns: int) -> None:
        """Process all elements before an instant; there are none before it to come [ns]."""
        if heartbeat_ns < self._heartbeat:
            raise InvalidQuery(f"heartbeats do not go back: got {heartbeat_ns} ns after {self._heartbeat}")
        if heartbeat_ns > GREATEST_INTEGER:
            raise InvalidQuery(f"a heartbeat is at most {GREATEST_INTEGER} ns; got {heartbeat_ns}")
        self._heartbeat = heartbeat_ns
        sources = self._sources
        counts = [source.count_before(heartbeat_ns) for source in sources]
        if sum(counts) > self._round_size:
            for limit in cut_rounds([source.waiting_taus(heartbeat_ns) for source in sources], self._round_size):
                self._run_round(limit, [source.count_before(limit) for source in sources])
            counts = [source.count_before(heartbeat_ns) for source in sources]
        if heartbeat_ns > self._processed:
            self._run_round(heartbeat_ns, counts)

    def _run_round(self, heartbeat: int, counts: Sequence[int]) -> None:
        """Process the elements before an instant.

        Parameters
        ----------
        counts
            Number of waiting elements of each source to take.
        """
        # Among other work, such as the queries of a server.
        give_way()
        for source, count in zip(self._sources, counts, strict=True):
            source.begin_round(count)
        elements: list[Elements] = []
        if self._not_begun:
            self._find_firsts()
        for operator, numbers in self._plan.steps:
            elements.append(operator.process([*map(elements.__getitem__, numbers)], heartbeat))
        self._processed = heartbeat
        self._emit(elements)

    def _find_firsts(self) -> None:
        """Note the first instant of any source below each operator that had none so far."""
        for operator, numbers in self._not_begun:
            if operator.first_tau is None:
                below = (self._plan.steps[number].operator.first_tau for number in numbers)
                operator.first_tau = min((first for first in below if first is not None), default=None)
        self._not_begun = [step for step in self._not_begun if step.operator.first_tau is None]

    def _emit(self, elements: list[Elements]) -> None:
        result = elements[-1]
        if self._is_stream:
            if len(result):
                self._results.append(ChangeBatch(result.tau, result.signs(), _columns_of(result)))
            return
        is_net = self._plan.steps[-1].operator.unique is not None
        if self._first_tau is None:
            # Rows that are there from the start show at the first instant of any input.
            self._first_tau = self._plan.steps[-1].operator.first_tau
            if self._first_tau is None:
                self._held.append(_materialise(result))
                return
        if not self._is_started:
            self._is_started = True
            result = _join_held([*self._held, _materialise(result)], self._first_tau)
            self._held = []
            is_net = False
        if not is_net:
            result = self._netting.apply(result, self._positions)
        if len(result):
            self._results.append(ChangeBatch(result.tau, result.signs(), _columns_of(result)))

    def finish(self) -> None:
        """Show rows that are there from the start though no instant followed; their instant is NULL."""
        if self._first_tau is None and self._held and not self._is_stream:
            result = self._netting.apply(_join_held(self._held, NULL_INTEGER), self._positions)
            self._held = []
            self._results.append(ChangeBatch(result.tau, result.signs(), _columns_of(result)))

    def results(self) -> list[ChangeBatch]:
        """Return the changes since the last call; all of them are final."""
        results, self._results = self._results, []
        return results

    def covers(self, tau: int) -> bool:
        """Return whether each stream had an element before an instant, and so begins before it in any case."""
        firsts = self.firsts
        return all(firsts.get(name, tau) < tau for name, source in self._plan.sources.items() if source.is_stream)

    @property
    def firsts(self) -> dict[str, int]:
        """First instant of each input that had an element with one, also before the engine began [ns]."""
        own = {name: each.first_tau for name, each in self._plan.sources.items() if each.first_tau is not None}
        return own | {name: min(first, own.get(name, first)) for name, first in self._firsts.items()}

    def begin_at(self, tau: int, firsts: Mapping[str, int]) -> None:
        """Begin at an instant as if all elements before it had been given.

        Parameters
        ----------
        firsts
            First instant of each input that had an element, as `firsts` of an engine that was given them.
        """
        for name, source in self._plan.sources.items():
            if firsts.get(name, tau) < tau:
                self._firsts[name] = firsts[name]
                source.first_tau = tau
        self.advance(tau)

    def save(self) -> bytes:
        """Return all that the engine holds, results not taken yet included, with a checksum."""
        state = {
            "tree": self._token,
            "texts": self.texts.all_texts,
            "heartbeat": self._heartbeat,
            "processed": self._processed,
            "is_started": self._is_started,
            "first_tau": self._first_tau,
            "firsts": self._firsts,
            "held": [[part.tau, part.signs(), list(_columns_of(part))] for part in self._held],
            "results": [[part.tau, part.sign, list(part.columns)] for part in self._results],
            "steps": [step.operator.save() for step in self._plan.steps],
        }
        return pack_state(state)

    @classmethod
    def restore(cls, tree: Operator, saved: bytes, *, is_closed: bool = False) -> "ContinuousEngine":
        """Return an engine that goes on as the saved one would, to the last bit; its texts are its own.

        Raises
        ------
        InvalidQuery
            The state is damaged, of another version, or that of another tree.
        """
        state = unpack_state(saved)
        texts = Texts()
        texts.encode(state["texts"])
        engine = cls(tree, texts, is_closed=is_closed)
        other = "the state belongs to another continuous query, or another program; evaluate it again"
        if state["tree"] != engine._token:  # noqa: SLF001
            raise InvalidQuery(other)
        try:
            engine._load(state)  # noqa: SLF001
        except InvalidQuery:
            raise
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidQuery(other) from error
        return engine

    def _load(self, state: State) -> None:
        self._heartbeat, self._processed = state["heartbeat"], state["processed"]
        self._is_started, self._first_tau = state["is_started"], state["first_tau"]
        # States of earlier programs have none.
        self._firsts = dict(state.get("firsts", {}))
        self._held = [Elements(tau, sign, len(columns), columns.__getitem__) for tau, sign, columns in state["held"]]
        self._results = [ChangeBatch(tau, sign, tuple(columns)) for tau, sign, columns in state["results"]]
        for step, held in zip(self._plan.steps, state["steps"], strict=True):
            step.operator.load(held)


def cut_rounds(taus: Sequence[Integers], size: int) -> Iterator[int]:
    """Yield the instants at which rounds end, except the last.

    Parameters
    ----------
    taus
        Instants of the elements of each input, in order.
    size
        About how many elements a round has; more where a single instant holds most of them.
    """
    # Ranks are counted at some instants only, which is faster than to sort all.
    step = max(size // (_MARKS * len(taus)), 1)
    marks = np.unique(np.concatenate([tau[::step] for tau in taus]))
    ranks = np.sum([np.searchsorted(tau, marks) for tau in taus], axis=0)
    done, total = 0, sum(map(len, taus))
    while total - done > size:
        at = int(np.searchsorted(ranks, done + size, side="right")) - 1
        if at < 0 or ranks[at] <= done:
            at = int(np.searchsorted(ranks, done, side="right"))
            if at == len(marks):
                return
        yield int(marks[at])
        done = int(ranks[at])


def _columns_of(elements: Elements) -> tuple[Column, ...]:
    return tuple(map(elements.column, range(elements.width)))


def _materialise(elements: Elements) -> Elements:
    """Return elements with their columns gathered, so that they outlive the round."""
    return Elements(elements.tau, elements.sign, elements.width, _columns_of(elements).__getitem__)


def _join_held(parts: list[Elements], first_tau: int) -> Elements:
    """Return elements of which those of the start have the first instant."""
    columns = [np.concatenate([part.column(position) for part in parts]) for position in range(parts[0].width)]
    tau = np.concatenate([part.tau for part in parts])
    tau = np.where(tau == NULL_INTEGER, first_tau, tau)
    return Elements(tau, np.concatenate([part.signs() for part in parts]), parts[0].width, columns.__getitem__)
