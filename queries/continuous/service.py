"""Continuous queries of one archive: what they may name, explanations, and back-tests in turns with the queries."""

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hypergrid.continuous.algebra import StreamInput, walk_operators
from hypergrid.continuous.limits import find_free_share, project_bytes, suggest_fitting
from hypergrid.continuous.sources import Stretch
from hypergrid.continuous.surface_catalogue import SLICE_S
from hypergrid.core.errors import Cancelled, InvalidQuery, NotFound, TooLarge
from hypergrid.core.lazy_libraries import pd
from hypergrid.core.pacing import give_way
from hypergrid.core.times import DAY_NS, SECOND_NS, Window
from hypergrid.execution.planning.explain import projected_s
from hypergrid.query import OpenArchive
from queries.continuous.catalogue import describe_catalogue
from queries.continuous.explanation import describe_query, list_keys
from queries.continuous.records import REMEDY, Backtest, BacktestLimits, BacktestQuestion, BacktestRows
from queries.jobs.admission import Asker, TooManyQueries, current_asker
from queries.jobs.records import NotReady, QueueFull, ResultGone
from queries.jobs.runner import Runner

if TYPE_CHECKING:
    from hypergrid.continuous.archive_query import ArchiveQuery, ContinuousArchive


@dataclass(eq=False)
class _Run:
    """A back-test with what it needs until it ends; guarded by the lock of its owner, but for the events."""

    backtest: Backtest
    query: "ArchiveQuery | None"
    asker: Asker
    frame: "pd.DataFrame | None" = None
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def held_bytes(self) -> int:
        return 0 if self.frame is None else int(self.frame.memory_usage(deep=True).sum())


class ContinuousQueries:
    """Continuous queries of one archive; thread-safe.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns; each query reads its newest snapshot.
    runner
        Gives back-tests their turns among the queries.
    limits
        How much they compute and keep.
    clock
        Returns the time [ns since 1970 UTC].
    """

    def __init__(
        self,
        archive: OpenArchive,
        runner: Runner,
        limits: BacktestLimits | None = None,
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._archive, self._runner, self._clock = archive, runner, clock
        self._limits = limits or BacktestLimits()
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._is_stopped = False

    def catalogue(self) -> dict[str, Any]:
        """Describe the names that queries may use, and examples that the archive can answer."""
        return describe_catalogue(_open_streams(self._archive.latest()))

    def explain(self, text: str) -> dict[str, Any]:
        """Explain a query without running it.

        Raises
        ------
        InvalidCql
            The text is no valid query.
        """
        return describe_query(_open_streams(self._archive.latest()).query(text))

    def submit(self, question: BacktestQuestion) -> Backtest:
        """Submit a back-test without waiting for it.

        Raises
        ------
        InvalidQuery
            The text is no valid query (`InvalidCql`), or the stretch has no end after its start.
        TooLarge
            It projects more than is allowed; the message has both numbers.
        TooManyQueries, QueueFull
            Too many wait or run, of the caller or of all.
        """
        archive, asker = self._archive.latest(), current_asker()
        query = _open_streams(archive).query(question.text)
        window = _choose_window(archive, question)
        self._check_size(query, Stretch(window.start_ns, window.stop_ns, question.order), asker)
        tree = query.bound.tree
        backtest = Backtest(
            id=uuid.uuid4().hex,
            question=question,
            window=window,
            snapshot=archive.snapshot,
            is_stream=tree.is_stream,
            attributes=tree.attributes,
            keys=tuple(list_keys(tree)),
            owner=asker.owner,
            created_ns=self._clock(),
        )
        run = _Run(backtest, query, asker)
        with self._lock:
            self._check_room(asker)
            self._runs[backtest.id] = run
            self._forget()
        # Daemons, so that a thread deep in a part does not keep a terminating process alive.
        threading.Thread(target=self._work, args=(run,), name=f"backtest-{backtest.id[:8]}", daemon=True).start()
        return backtest

    def backtest(self, number: str) -> Backtest:
        """Return the current state of a back-test.

        Raises
        ------
        NotFound
            It is unknown.
        """
        with self._lock:
            return self._find(number).backtest

    def wait(self, number: str, seconds: float) -> Backtest:
        """Return a back-test once it has ended, or after a time [s]."""
        with self._lock:
            run = self._find(number)
        run.ended.wait(seconds)
        return run.backtest

    def cancel(self, number: str) -> Backtest:
        """Stop a back-test after the part that is being read; one that has ended stays as it is."""
        with self._lock:
            run = self._find(number)
            if not run.backtest.has_ended:
                run.stop.set()
                self._end(run, replace(run.backtest, state="cancelled"))
        self._runner.wake()
        return run.backtest

    def rows(self, number: str) -> BacktestRows:
        """Return the result of a back-test.

        Raises
        ------
        NotFound, NotReady, ResultGone
            It is unknown; it is not done; its result was dropped.
        """
        with self._lock:
            run = self._find(number)
            backtest = run.backtest
            if backtest.error is not None:
                raise backtest.error
            if backtest.state != "done":
                raise NotReady(f"back-test {number} is {backtest.state} and has no rows; follow its state")
            if run.frame is None:
                raise ResultGone(
                    f"the rows of back-test {number} were dropped to make room for later ones; post it again"
                )
            return BacktestRows(backtest, run.frame)

    def stop(self) -> None:
        """Cancel all back-tests, and accept no more."""
        with self._lock:
            self._is_stopped = True
            open_runs = [number for number, run in self._runs.items() if not run.backtest.has_ended]
        for number in open_runs:
            self.cancel(number)

    def _work(self, run: _Run) -> None:
        """Compute a back-test in its turns, and record its outcome, without raising."""

        def begin() -> None:
            with self._lock:
                run.backtest = replace(run.backtest, state="running", started_ns=self._clock())

        try:
            with self._runner.turn(owner=run.backtest.owner, stop=run.stop, on_begin=begin):
                frame = self._compute(run)
        except Cancelled:
            outcome = replace(run.backtest, state="cancelled")
        except Exception as error:  # noqa: BLE001 - recorded in the back-test, whose reader gets it
            outcome = replace(run.backtest, state="failed", error=error)
        else:
            run.frame = frame
            outcome = replace(run.backtest, state="done", fraction=1.0, rows=len(frame))
        with self._lock:
            if not run.backtest.has_ended:
                self._end(run, outcome)
            if run.backtest.state != "done":
                run.frame = None
            self._forget()

    def _compute(self, run: _Run) -> "pd.DataFrame":
        backtest, query, limits = run.backtest, run.query, self._limits
        if query is None:
            raise RuntimeError("a back-test that has ended is not computed again")
        allowed_s = self._allowed_s(run.asker)
        parts, count, worked_s = [], 0, 0.0
        began_s = time.monotonic()
        window, allowed_bytes = backtest.window, _find_allowed_bytes(run.asker)
        for frame, fraction in query.iterate(
            window.start_ns, window.stop_ns, order=backtest.question.order, allowed_bytes=allowed_bytes
        ):
            parts.append(frame)
            count += len(frame)
            worked_s += time.monotonic() - began_s
            if count > limits.rows:
                raise TooLarge("the back-test", "rows or more", count, limits.rows, REMEDY)
            # A part in, it is known how long the whole takes.
            if fraction < 1.0 and worked_s > allowed_s:
                raise TooLarge("the back-test", "s", worked_s / max(fraction, 1e-9), allowed_s, REMEDY)
            with self._lock:
                if not run.backtest.has_ended:
                    run.backtest = replace(run.backtest, fraction=fraction, rows=count)
            give_way()
            if run.stop.is_set():
                raise Cancelled("the back-test was stopped")
            began_s = time.monotonic()
        return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]

    def _allowed_s(self, asker: Asker) -> float:
        return self._limits.seconds if asker.limits.seconds is None else asker.limits.seconds

    def _end(self, run: _Run, outcome: Backtest) -> None:
        run.backtest = replace(outcome, ended_ns=self._clock())
        run.query = None
        run.ended.set()

    def _check_size(self, query: "ArchiveQuery", stretch: Stretch, asker: Asker) -> None:
        """Raise `TooLarge` for a stretch, elements, surfaces or windows above a limit."""
        limits, rates, tree = self._limits, query.catalogue.rates, query.rewritten.tree
        length_ns = (stretch.end_ns or 0) - (stretch.start_ns or 0)
        if length_ns > limits.stretch_ns:
            raise TooLarge("the back-test", "days", length_ns / DAY_NS, limits.stretch_ns / DAY_NS, REMEDY)
        names = {part.name for part in walk_operators(tree) if isinstance(part, StreamInput)}
        elements = sum(rates.get(name, 0.0) for name in names) * length_ns / SECOND_NS
        if elements > limits.elements:
            raise TooLarge("the back-test", "elements to read", elements, limits.elements, REMEDY)
        window = Window(stretch.start_ns or 0, stretch.end_ns or 0)
        # Surfaces are computed like queries, so the same limits apply: to each, and to the time of all of them.
        limits_of_queries, seconds = replace(asker.limits, seconds=self._allowed_s(asker)), 0.0
        for name in query.surfaces:
            surface = query.inputs.surfaces[name]
            if chosen := surface.select(window):
                plan = surface.restrict(chosen).resolve().plan()
                limits_of_queries.check(plan, f"{name} over the stretch")
                seconds += projected_s(plan) + (0.0 if surface.bond else SLICE_S * len(chosen))
        if seconds > self._allowed_s(asker):
            raise TooLarge("the surfaces of the back-test", "s", seconds, self._allowed_s(asker), REMEDY)
        counts, allowed = query.count_elements(stretch), _find_allowed_bytes(asker)
        groups = query.catalogue.groups
        held = project_bytes(tree, rates, counts, groups)
        if held > allowed:
            remedy = suggest_fitting(tree, rates, allowed, counts, groups)
            raise TooLarge("the back-test", "bytes of memory", held, allowed, remedy)

    def _check_room(self, asker: Asker) -> None:
        if self._is_stopped:
            raise QueueFull("the server is stopping; ask again once it is back")
        running = [run.backtest for run in self._runs.values() if not run.backtest.has_ended]
        own, allowed = sum(each.owner == asker.owner for each in running), asker.limits.queries
        if allowed is not None and own >= allowed:
            raise TooManyQueries(
                f"{own} of your back-tests wait or run, and {allowed} may; wait for one to end, or stop one"
            )
        if len(running) >= self._limits.open:
            raise QueueFull(
                f"{len(running)} back-tests wait or run, and {self._limits.open} may; ask again later, or stop one"
            )

    def _forget(self) -> None:
        """Forget the oldest ended back-tests above the limits, and the oldest rows of the others."""
        ended = [number for number, run in self._runs.items() if run.backtest.has_ended]
        for number in ended[: max(0, len(ended) - self._limits.remembered)]:
            del self._runs[number]
        kept = [run for run in self._runs.values() if run.frame is not None]
        held = sum(run.held_bytes for run in kept)
        # The newest is kept even if it is too large alone, as its reader is waiting.
        for run in kept[:-1]:
            if held <= self._limits.kept_bytes:
                break
            held -= run.held_bytes
            run.frame = None

    def _find(self, number: str) -> _Run:
        run = self._runs.get(number)
        if run is None:
            raise NotFound(f"no back-test {number!r} is known here; it was never asked, or is forgotten; post it again")
        return run


def _find_allowed_bytes(asker: Asker) -> int:
    """Return the memory that the windows of a back-test may take: the limit of the key, or half of what is free."""
    return find_free_share() if asker.limits.bytes is None else int(asker.limits.bytes)


def _open_streams(archive: OpenArchive) -> "ContinuousArchive":
    from hypergrid.continuous.archive_query import ContinuousArchive, open_inputs  # noqa: PLC0415 - loads numba

    return ContinuousArchive(open_inputs(archive))


def _choose_window(archive: OpenArchive, question: BacktestQuestion) -> Window:
    """Return the stretch of a question, of all readings where it has no bounds."""
    start, end = question.start_ns, question.end_ns
    # Raises if it ends before it begins.
    Stretch(start, end, question.order)
    if start is None or end is None:
        known = [extent for name in archive.variables if (extent := archive.store.extent(name)) is not None]
        if not known:
            raise InvalidQuery("a back-test without bounds needs readings; the archive has none")
        start = min(extent.start_ns for extent in known) if start is None else start
        # Arrivals and the ends of intervals are later than stamps.
        end = max(extent.stop_ns for extent in known) + DAY_NS if end is None else end
    if end <= start:
        raise InvalidQuery("the stretch is empty: it begins after the last reading, or ends before the first")
    return Window(start, end)
