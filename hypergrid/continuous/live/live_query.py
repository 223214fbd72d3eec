"""A live query: it follows the commits of an archive, step by step."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from hypergrid.continuous.archive_catalogue import NEIGHBOURS, STATIONS
from hypergrid.continuous.archive_query import ArchiveInputs, ArchiveQuery, read_instant
from hypergrid.continuous.language import project_windows
from hypergrid.continuous.limits import ALLOWED_BYTES, require_share
from hypergrid.continuous.live.archive_versions import ArchiveVersions
from hypergrid.continuous.live.evaluation import LiveEvaluation
from hypergrid.continuous.live.store import (
    GivenElement,
    LiveEntry,
    LiveOptions,
    LiveStore,
    StepTaken,
    check_keep,
    open_store,
)
from hypergrid.continuous.live.tables import open_kept_inputs, pack_tables, tabulate_elements, tabulate_rows
from hypergrid.continuous.names import check_live_name
from hypergrid.continuous.surface_catalogue import describe_surface
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive

if TYPE_CHECKING:
    import pandas


class LiveQuery:
    """Evaluation of a live query of an archive; one program at a time goes on with it.

    Parameters
    ----------
    archive
        The archive, at any snapshot.
    store
        Its live queries.
    name
        Name of the query.

    Raises
    ------
    NotFound
        There is no live query of this name.
    InvalidQuery
        The text does not fit the archive any more, or the query cannot be live; what is kept of it stays.

    Examples
    --------
    Rows that enter (+1) and leave (-1) as commits come; `after` resumes behind a number that was seen::

        warm = hg.continuous("build/demo/archive").live("Select station From air_temperature [Now]", name="warm")
        for element in warm.follow(after=0):
            print(element.number, element.tau_ns, element.sign, element.row, element.corrects)
    """

    def __init__(self, archive: OpenArchive, store: LiveStore, name: str) -> None:
        self._archive, self._store, self._name = archive, store, name
        entry = store.find(name)
        try:
            query = _read_query(open_kept_inputs(archive, store, entry), entry.text)
        except InvalidQuery as error:
            raise InvalidQuery(
                f"live query {name!r} does not fit the archive any more, and stands where it is: {error}"
            ) from error
        self._tree, self._query, self._identity = query.bound.tree, query, entry.identity
        # Position that the engine in memory stands at.
        self._position: tuple[str | None, int | None] | None = None
        # Snapshot at which nothing is left to do.
        self._completed: str | None = None
        self._at_once = query.bound.emit == "now"
        self._versions = ArchiveVersions(
            query, entry.options.start_ns, idle_s=entry.options.idle_s, disorder_s=entry.options.disorder_s
        )
        self._evaluation = LiveEvaluation(
            self._versions.tree, self._versions, store.record(name), entry.options.start_ns, query.catalogue.static
        )

    def __repr__(self) -> str:
        return f"LiveQuery({self._name}: {self._query.bound.summary})"

    @property
    def entry(self) -> LiveEntry:
        """The query, and how far it is evaluated."""
        return self._store.find(self._name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the select list."""
        return tuple(part.name for part in self._tree.attributes)

    def projected_bytes(self) -> float | None:
        """Return the memory that windows hold at the archive's rates [bytes]; None if that of any is unknown."""
        known = self._query.catalogue
        parts = project_windows(self._query.rewritten.tree, known.rates, groups=known.groups)
        sizes = [each.projected_bytes for each in parts]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def step(self, until_ns: int | None = None, *, longest_ns: int | None = None) -> int:
        """Go on to the newest snapshot, and keep what it gives in one transaction.

        Returns the number of elements, corrections included.

        Parameters
        ----------
        until_ns
            Instant before which no element is to come [ns since 1970 UTC], for an archive that is complete; by default
            it follows from the readings.
        longest_ns
            How far to go on at most [ns], where others wait for their turn; the rest is left to later steps.

        Raises
        ------
        StepTaken
            Another program did this step.
        NotFound
            The query was removed; another of its name may have been added.
        InvalidQuery
            The query follows readings as they arrive, and not commits.
        """
        entry, newest = self.entry, self._archive.store.latest().snapshot
        if entry.identity != self._identity:
            raise NotFound(f"live query {self._name!r} was removed, and another of this name was added; open that one")
        if entry.options.source != "archive":
            raise InvalidQuery(f"live query {self._name!r} follows the tap; 'hypergrid cql watch' evaluates it")
        if newest == entry.snapshot == self._completed and until_ns is None:
            return 0
        if self._position != (entry.snapshot, entry.heartbeat_ns):
            # Another program went on with the query.
            self._evaluation.forget()
        heartbeat = self._versions.find_heartbeat(newest, at_once=self._at_once) if until_ns is None else until_ns
        if heartbeat is None:
            return 0
        if newest == entry.snapshot and entry.heartbeat_ns is not None and heartbeat <= entry.heartbeat_ns:
            self._completed = newest
            return 0
        if longest_ns is not None:
            start_ns = entry.options.start_ns
            given_ns = start_ns if entry.heartbeat_ns is None else max(entry.heartbeat_ns, start_ns)
            heartbeat = min(heartbeat, given_ns + longest_ns)
        self._evaluation.keep_ns = entry.retention.keep_ns
        try:
            step = self._evaluation.advance(entry.snapshot, newest, max(heartbeat, entry.options.start_ns))
            self._store.keep(entry, newest, step, disorder_s=self._versions.longest_disorder_ns / SECOND_NS)
            self._position = (newest, max(step.states))
        except BaseException:
            # What was not kept was not given.
            self._evaluation.forget()
            raise
        return len(step.elements)

    def is_complete(self) -> bool:
        """Return whether no step is left to do at the newest snapshot."""
        entry, newest = self.entry, self._archive.store.latest().snapshot
        heartbeat = self._versions.find_heartbeat(newest, at_once=self._at_once)
        if heartbeat is None or entry.heartbeat_ns is None:
            return heartbeat is None
        return newest == entry.snapshot and heartbeat <= entry.heartbeat_ns

    def rows(self, after: int = 0, limit: int | None = None) -> "pandas.DataFrame":
        """Return what was given after a number: corrections and new elements in the order of the steps.

        Columns are `number`, `tau` (UTC), `sign` (+1: the row enters, -1: it leaves), the select list, `corrects` (the
        snapshot with which the results so far were right; None for new results) and `snapshot`.

        Parameters
        ----------
        after
            Number after which to go on; 0 for all that are kept.
        limit
            Rows at most; None for all.

        Raises
        ------
        NoLongerKept
            Some of them were dropped (`add_query` with `keep_s`).
        """
        elements = self._store.list_elements(self._name, after, -1 if limit is None else limit)
        return tabulate_elements(elements, self._tree.attributes)

    def relation(self) -> "pandas.DataFrame":
        """Return the rows that hold at the heartbeat, corrections included.

        Raises
        ------
        InvalidQuery
            The query gives a stream.
        """
        if self._tree.is_stream:
            raise InvalidQuery(
                f"only a query that gives a relation has rows that hold now; {self._name!r} gives a stream: read rows()"
            )
        return tabulate_rows(list(self._store.count_rows(self._name).elements()), self._tree.attributes)

    def change_keep(self, keep_s: float | None) -> None:
        """Change how long results are kept, at least [s]; None: always, from now on.

        Raises
        ------
        InvalidQuery
            It is less than a day.
        """
        self._store.change_keep(self._name, keep_s)

    def remove(self) -> None:
        """Remove the query from the archive, with its state and results."""
        self._store.remove(self._name)

    def follow(
        self, after: int = 0, *, poll_s: float = 1.0, is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[GivenElement]:
        """Yield elements as commits come, from the step at hand on, until `is_over`.

        Another program may go on with the query meanwhile; its steps are yielded as well.

        Parameters
        ----------
        after
            Number of the last element that is known; 0 for none.
        poll_s
            How often to look for a commit [s].

        Raises
        ------
        NoLongerKept
            Some elements after it were dropped (`add_query` with `keep_s`).
        """
        of_archive = self.entry.options.source == "archive"
        while not is_over():
            # The other program kept the step, so its elements are read below.
            with suppress(StepTaken):
                if of_archive:
                    self.step()
            while rows := self._store.list_elements(self._name, after):
                yield from rows
                after = rows[-1].number
            time.sleep(poll_s)


def _read_query(inputs: ArchiveInputs, text: str) -> ArchiveQuery:
    query = ArchiveQuery(inputs, *inputs.choose(text))
    # Stations may move with any commit.
    own = {STATIONS, NEIGHBOURS} - query.tables.frames.keys()
    return replace(query, catalogue=replace(query.catalogue, static=query.catalogue.static - own))


def find_start(archive: OpenArchive, start: object = None) -> int:
    """Return where the stretch of a live query begins [ns]: an instant as in queries, or the first reading."""
    if start is not None:
        return read_instant(start)
    extents = [extent for name in archive.store.variables if (extent := archive.store.extent(name)) is not None]
    return min((extent.start_ns for extent in extents), default=0)


def add_query(  # noqa: PLR0913 - a query and what is allowed of it
    inputs: ArchiveInputs,
    name: str,
    text: str,
    options: LiveOptions,
    *,
    allowed_bytes: int = ALLOWED_BYTES,
    keep_s: float | None = None,
) -> LiveStore:
    """Add a live query to an archive, and return the archive's live queries.

    Parameters
    ----------
    inputs
        The archive, and tables without instants; those that the text names are kept with the query as they are now, and
        so are the standing queries of surfaces.
    options
        Where it begins, and what is waited for.
    allowed_bytes
        Memory that the windows may take at the archive's rates [bytes].
    keep_s
        How long results are kept, at least [s]; readings that are later change nothing. None: always.

    Raises
    ------
    InvalidQuery
        The text or the name is not valid, the name is taken, the query cannot be live, or its windows need more memory.
    """
    check_live_name(name)
    options.check()
    check_keep(keep_s)
    query = _read_query(inputs, text)
    require_share(query.rewritten.tree, query.catalogue.rates, allowed_bytes, groups=query.catalogue.groups)
    ArchiveVersions(query, options.start_ns, idle_s=options.idle_s, disorder_s=options.disorder_s)
    store = open_store(inputs.archive.path)
    surfaces = {each: describe_surface(inputs.surfaces[each]) for each in query.surfaces}
    store.add(name, text, replace(options, surfaces=surfaces), pack_tables(query), keep_s=keep_s)
    return store
