"""Kept continuous queries of an archive: evaluation in pieces as commits come, and their results.

`KeptQueries` is driven by the runner of standing queries: `poll` with each look at the archive, `work` in turns with
the steps of surfaces. A piece is a step of the library's `LiveQuery`, kept in one transaction with its results, so a
stop between two pieces loses and repeats nothing.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from hypergrid.continuous.expressions import NULL_INTEGER
from hypergrid.continuous.records import LIVE_FILE
from hypergrid.continuous.tap_status import find_query_error
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.times import SECOND_NS, Window, format_timestamp
from hypergrid.query import OpenArchive

if TYPE_CHECKING:
    from hypergrid.continuous.expressions import Attributes
    from hypergrid.continuous.live import GivenElement, LiveEntry, LiveQuery, LiveStore
    from hypergrid.continuous.live.rows import Row

_LOG: Final = logging.getLogger(__name__)

PIECE_S: Final = 0.25
"""Time that a piece of an evaluation is meant to take [s]: others wait for its end."""
FIRST_PIECE_NS: Final = 6 * 3600 * SECOND_NS
"""Stretch of the first piece [ns]; the next ones follow from how long it took."""
REREAD_S: Final = 2.0
"""Interval at which the catalogue is read again for changes of other programs [s]."""
FIRST_PAUSE_S: Final = 1.0
"""Pause after the first failure of a query, doubled after each further one [s]."""
LONGEST_PAUSE_S: Final = 600.0
"""Upper limit of that pause [s]."""
PAGE: Final = 10_000
"""Elements read at once."""
NO_INSTANT: Final = NULL_INTEGER
"""Instant of elements that are there from the start."""


class ResultForm(NamedTuple):
    """Form of the result of a continuous query."""

    is_stream: bool
    attributes: Attributes
    keys: tuple[int, ...]
    """Positions of the attributes that tell its episodes apart."""

    def to_json(self, row: Row) -> list[float | int | str | bool | None]:
        """Return the values of a row as JSON has them: instants as text, infinite numbers as null."""
        return [
            None
            if value is None or value in (math.inf, -math.inf)
            else format_timestamp(int(value))
            if part.kind == "time"
            else value
            for value, part in zip(row, self.attributes, strict=True)
        ]


class PieceResult(NamedTuple):
    """Outcome of a piece of an evaluation."""

    name: str
    snapshot: str
    elements: int
    error: str = ""


@dataclass(eq=False)
class _Evaluation:
    """Evaluation of a kept query in this process."""

    entry: LiveEntry
    query: LiveQuery | None = None
    piece_ns: int = FIRST_PIECE_NS
    complete_at: frozenset[str | None] = frozenset()
    """Snapshots at which it has gone as far as they let it."""
    steps: int = 0
    failures: int = 0
    error: str = ""
    failing_since_s: float = 0.0
    retry_s: float = 0.0


class KeptQueries:
    """Kept continuous queries of one archive; thread-safe, but for `poll` and `work`, which one thread calls.

    The file of live queries is created with the first query, and the engine is loaded with it.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    """

    def __init__(self, archive: OpenArchive) -> None:
        self._archive = archive
        self._lock = threading.RLock()
        self._store: LiveStore | None = None
        self._evaluations: dict[str, _Evaluation] = {}
        # Queries over the tap with the positions at hand: another program evaluates them.
        self._tapped: dict[str, str | None] = {}
        self._tapped_steps = 0
        self._forms: dict[tuple[str, ...], ResultForm] = {}
        self._read_at_s = float("-inf")
        self.trouble = ""

    # What the catalogue holds.

    def add(
        self,
        name: str,
        text: str,
        *,
        start: str | None = None,
        idle_s: float = 3600.0,
        disorder_s: float | None = None,
        keep_s: float | None = None,
        maximum: int | None = None,
    ) -> LiveEntry:
        """Keep a query, with the options of `add_query`; it is durable on return.

        Raises
        ------
        InvalidQuery
            The text is no valid query (`InvalidCql`) or cannot follow an archive, the name is taken, or there are
            `maximum` already.
        InvalidTime
            The start is no instant.
        """
        from hypergrid.continuous.archive_query import open_inputs  # noqa: PLC0415 - loads numba
        from hypergrid.continuous.live import LiveOptions, add_query, find_start  # noqa: PLC0415 - as above

        with self._lock:
            known = self.entries()
            if maximum is not None and len(known) >= maximum:
                raise InvalidQuery(
                    f"there are {len(known):,} kept continuous queries, and the setting 'standing' allows {maximum:,}; "
                    "remove one that is not needed any more"
                )
            archive = self._archive.latest()
            options = LiveOptions(find_start(archive, start), idle_s, disorder_s)
            add_query(open_inputs(archive), name, text, options, keep_s=keep_s).close()
            self._read_at_s = float("-inf")
            return self.entry(name)

    def change_keep(self, name: str, keep_s: float | None) -> None:
        """Change how long the results of a query are kept, at least [s]; None: always, from now on."""
        self._open().change_keep(name, keep_s)

    def remove(self, name: str) -> None:
        """Forget a query and its results.

        Raises
        ------
        NotFound
            There is none with this name.
        """
        with self._lock:
            self.entry(name)
            self._evaluations.pop(name, None)
            self._open().remove(name)

    def entry(self, name: str) -> LiveEntry:
        """Return a query, and how far it is evaluated.

        Raises
        ------
        NotFound
            There is none with this name.
        """
        entry = self._open().find_entry(name) if self._exists else None
        if entry is None:
            raise NotFound.among("kept continuous query", name, (each.name for each in self.entries()))
        return entry

    def entries(self) -> list[LiveEntry]:
        """List the queries by name."""
        return self._open().list_entries() if self._exists else []

    def form(self, entry: LiveEntry) -> ResultForm:
        """Return the form of a query's result.

        Raises
        ------
        InvalidQuery
            The text does not fit the archive any more.
        """
        archive = self._archive.latest()
        surfaces = json.dumps(entry.options.surfaces, sort_keys=True)
        key = (entry.text, *sorted(entry.options.tables.values()), surfaces, *archive.variables)
        if key not in self._forms:
            from hypergrid.continuous.archive_query import ContinuousArchive  # noqa: PLC0415 - numba
            from hypergrid.continuous.live.tables import open_kept_inputs  # noqa: PLC0415 - numba
            from queries.continuous.explanation import list_keys  # noqa: PLC0415 - parses SQL

            inputs = open_kept_inputs(archive, self._open(), entry)
            tree = ContinuousArchive(inputs).query(entry.text).bound.tree
            self._forms[key] = ResultForm(tree.is_stream, tree.attributes, tuple(list_keys(tree)))
        return self._forms[key]

    # Results.

    def list_elements(self, name: str, after: int, limit: int, *, newest: bool = False) -> list[GivenElement]:
        """Return at most `limit` elements of a result with numbers above `after`, in their order; 0 for all.

        With `newest` they are the last ones where there are more.

        Raises
        ------
        NoLongerKept
            Some of them are not kept any more.
        """
        return self._open().list_elements(name, after, limit, newest=newest)

    def iterate_elements(self, name: str, after: int) -> Iterator[GivenElement]:
        """Yield all elements of a result with numbers above `after`, in their order."""
        while page := self.list_elements(name, after, PAGE):
            yield from page
            after = page[-1].number

    def count_rows(self, name: str) -> Counter[Row]:
        """Return the rows that a relation holds, each with how often it does."""
        return self._open().count_rows(name)

    def count_given(self, name: str, window: Window, *, upto: int) -> Counter[tuple[int, Row]]:
        """Return how many more of each row entered than left at each instant of a window, by elements up to a number.

        Corrections are included.
        """
        return self._open().count_given(name, window, upto=upto)

    def error(self, name: str) -> str:
        """Return why a query cannot be evaluated now; it is tried again. Empty: no error."""
        if name in self._tapped:
            return find_query_error(self._archive.path, name)
        evaluation = self._evaluations.get(name)
        return "" if evaluation is None else evaluation.error

    def steps(self, name: str) -> int:
        """Return how many pieces this process evaluated; it changes with each."""
        if name in self._tapped:
            return self._tapped_steps
        evaluation = self._evaluations.get(name)
        return 0 if evaluation is None else evaluation.steps

    def is_complete(self, name: str) -> bool:
        """Return whether the evaluation has come as far as the newest snapshot lets it."""
        if name in self._tapped:
            return True
        evaluation = self._evaluations.get(name)
        return evaluation is not None and self._archive.snapshot in evaluation.complete_at

    def failing(self) -> tuple[str, ...]:
        """Return the names of the queries whose last piece failed."""
        with self._lock:
            return tuple(name for name, evaluation in self._evaluations.items() if evaluation.error)

    def failing_since_s(self, name: str) -> float | None:
        """Return since when all pieces of a query failed, by the clock of `work` [s]; None: the last did not."""
        evaluation = self._evaluations.get(name)
        return evaluation.failing_since_s if evaluation is not None and evaluation.error else None

    # Evaluation.

    def poll(self, archive: OpenArchive, now_s: float) -> None:
        """Take note of a snapshot, and of changes of the catalogue."""
        is_new = archive.snapshot != self._archive.snapshot
        self._archive = archive
        # Results of queries over the tap come at any time.
        if not is_new and not self._tapped and now_s - self._read_at_s < REREAD_S:
            return
        with self._lock:
            self._read_at_s = now_s
            try:
                entries = {entry.name: entry for entry in self.entries()}
            except HyperGridError as error:
                # Standing queries go on without a catalogue that is damaged or in use; it is read again.
                if str(error) != self.trouble:
                    _LOG.error("kept continuous queries cannot be evaluated: %s", error)
                self.trouble = str(error)
                return
            self.trouble = ""
            tapped = {name: entry.snapshot for name, entry in entries.items() if entry.options.source == "tap"}
            self._tapped_steps += tapped != self._tapped
            self._tapped = tapped
            entries = {name: entry for name, entry in entries.items() if name not in tapped}
            for name in set(self._evaluations) - set(entries):
                del self._evaluations[name]
            for name, entry in entries.items():
                known = self._evaluations.get(name)
                # Another program went on with it, or it was removed and added again.
                if known is None or known.entry != entry:
                    self._evaluations[name] = _Evaluation(entry)

    def work(self, clock: Callable[[], float]) -> PieceResult | None:
        """Evaluate a piece of the query that waits longest; return its outcome, None if none waits.

        Parameters
        ----------
        clock
            Monotonic clock [s].
        """
        now_s = clock()
        with self._lock:
            waiting = (
                (name, each)
                for name, each in self._evaluations.items()
                if each.retry_s <= now_s and self._archive.snapshot not in each.complete_at
            )
            name, evaluation = next(waiting, ("", None))
            if evaluation is None:
                return None
            # The last in turn from now on.
            self._evaluations[name] = self._evaluations.pop(name)
        from hypergrid.continuous.live import StepTaken  # noqa: PLC0415 - loads numba

        try:
            count = self._step(name, evaluation, clock)
        except StepTaken:
            # Another program went on with it, or it was removed: the catalogue says which.
            self._read_at_s = float("-inf")
            return None
        except Exception as error:  # noqa: BLE001 - one query that fails must not stop the others
            with self._lock:
                if self._evaluations.get(name) is not evaluation:
                    # It was removed meanwhile.
                    return PieceResult(name, self._archive.snapshot, 0)
                self._record_failure(name, evaluation, error, clock())
            return PieceResult(name, self._archive.snapshot, 0, evaluation.error)
        return PieceResult(name, evaluation.entry.snapshot or self._archive.snapshot, count)

    def close(self) -> None:
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None

    def _step(self, name: str, evaluation: _Evaluation, clock: Callable[[], float]) -> int:
        from hypergrid.continuous.live import LiveQuery  # noqa: PLC0415 - loads numba

        if evaluation.query is None:
            evaluation.query = LiveQuery(self._archive, self._open(), name)
        begun_s = clock()
        before = evaluation.entry
        count = evaluation.query.step(longest_ns=evaluation.piece_ns)
        took_s = max(clock() - begun_s, 1e-3)
        evaluation.entry = evaluation.query.entry
        is_complete = evaluation.query.is_complete()
        evaluation.complete_at = frozenset((self._archive.snapshot, evaluation.entry.snapshot) if is_complete else ())
        if not is_complete and before.snapshot == evaluation.entry.snapshot:
            # Corrections of a new snapshot say nothing about the time that a stretch takes.
            evaluation.piece_ns = round(evaluation.piece_ns * min(max(PIECE_S / took_s, 0.25), 4.0))
        evaluation.steps += 1
        evaluation.failures, evaluation.error = 0, ""
        return count

    def _record_failure(self, name: str, evaluation: _Evaluation, error: Exception, now_s: float) -> None:
        text = str(error) if isinstance(error, HyperGridError) else f"{type(error).__name__}: {error}"
        if text != evaluation.error:
            _LOG.warning("continuous query %s cannot be evaluated: %s", name, text)
        if not evaluation.failures:
            evaluation.failing_since_s = now_s
        evaluation.failures += 1
        evaluation.error = text
        evaluation.retry_s = now_s + min(FIRST_PAUSE_S * 2.0 ** min(evaluation.failures - 1, 20), LONGEST_PAUSE_S)
        # What was not kept is evaluated again, from the state before.
        evaluation.query = None

    @property
    def _exists(self) -> bool:
        return self._store is not None or (self._archive.path / LIVE_FILE).exists()

    def _open(self) -> LiveStore:
        with self._lock:
            if self._store is None:
                from hypergrid.continuous.live import open_store  # noqa: PLC0415 - loads numba

                self._store = open_store(self._archive.path)
            return self._store
