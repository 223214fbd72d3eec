"""What a user holds: continuous queries over an archive, or over tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hypergrid.continuous.algebra import Operator, StreamInput, list_leaves
from hypergrid.continuous.archive_query import ArchiveQuery, ContinuousArchive, open_inputs, read_instant
from hypergrid.continuous.columns import instants_of
from hypergrid.continuous.engine import ContinuousEngine
from hypergrid.continuous.expressions import GREATEST_INTEGER
from hypergrid.continuous.frames import FrameSource, batch_of, frame_of, read_frames, rows_of
from hypergrid.continuous.language import explain_query, parse_query
from hypergrid.continuous.limits import ALLOWED_BYTES, find_free_share, require_share
from hypergrid.continuous.live import (
    AtOnceQuery,
    LiveEntry,
    LiveOptions,
    LiveQuery,
    add_query,
    find_start,
    has_store,
    open_store,
)
from hypergrid.continuous.properties import emptied_after_ns
from hypergrid.continuous.records import TAU, BoundQuery
from hypergrid.continuous.rewrite import Rewritten, rewrite
from hypergrid.core.errors import InvalidQuery
from hypergrid.query import OpenArchive, open_archive

if TYPE_CHECKING:
    import pandas


def continuous(
    source: "OpenArchive | str | Path | Mapping[str, pandas.DataFrame]",
    *,
    tables: "Mapping[str, pandas.DataFrame | str | Path] | None" = None,
    views: Mapping[str, str] | None = None,
) -> "LiveArchive | ContinuousTables":
    """Return streams and relations to ask continuous queries of.

    Parameters
    ----------
    source
        An open archive or the path of one: its streams are its variables, `readings`, `obs` and `rain`, its relations
        `stations` and `neighbours`. Or tables by name: with a column `tau` (datetime64, or integers in nanoseconds) a
        stream; with `tau` and `sign` (+1 or -1) a relation that changes; without `tau` a relation that does not. Units
        are ``frame.attrs["units"]``.
    tables
        Tables beside an archive, or the paths of CSV or Parquet files; one of the name of a relation of the archive
        stands for it.
    views
        Text of a query for each view.

    Raises
    ------
    InvalidQuery
        A table has a column of a type without a kind, instants that are missing, or a name that a view has, too.
    NotFound, NotAnArchive
        A file of a table does not exist, or the archive is none.

    Examples
    --------
    >>> import pandas as pd
    >>> import hypergrid as hg
    >>> readings = pd.DataFrame({"tau": [0, 5, 9], "station": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]})
    >>> source = hg.continuous({"S": readings})
    >>> source.query("Select station, value From S Where value > 1").run()
       tau  sign station  value
    0    5     1       b    2.0
    1    9     1       a    3.0
    """
    if isinstance(source, str | Path):
        source = open_archive(source)
    # An archive is a mapping, too: of its variables.
    if isinstance(source, OpenArchive):
        return LiveArchive(open_inputs(source, tables, views))
    if not isinstance(source, Mapping):
        raise InvalidQuery(
            "continuous queries need an archive, its path, or tables by name, {'S': DataFrame, …}; got "
            f"{type(source).__name__}"
        )
    if tables:
        raise InvalidQuery("tables beside an archive need one; got tables alone: give all of them as the source")
    return ContinuousTables(read_frames(source, views or {}))  # type: ignore[arg-type]


@dataclass(frozen=True, repr=False)
class LiveArchive(ContinuousArchive):
    """Streams and relations of an archive, and the live queries that are kept beside it."""

    def query(self, text: str) -> ArchiveQuery:
        """Return a query in CQL; with `EMIT NOW` it gives rows in order of arrival (`AtOnceQuery`).

        Raises
        ------
        InvalidQuery
            The text is not valid, and the message underlines where; or a table does not fit.
        """
        catalogue, tables, bound = self.inputs.choose(text)
        streams = {part.name for part in list_leaves(bound.tree) if isinstance(part, StreamInput)}
        # Tables arrive at their instants: nothing comes late.
        can_be_late = bool(streams - tables.frames.keys())
        maker = AtOnceQuery if bound.emit == "now" and can_be_late else ArchiveQuery
        return maker(self.inputs, catalogue, tables, bound)

    def live(
        self,
        text: str,
        *,
        name: str,
        start: object = None,
        idle_s: float = 3600.0,
        disorder_s: float | None = None,
        allowed_bytes: int = ALLOWED_BYTES,
        keep_s: float | None = None,
    ) -> LiveQuery:
        """Add a query that follows the archive; it is kept beside it with its state, results and tables.

        Parameters
        ----------
        name
            Name to find it by.
        start
            Start of the stretch (as in queries, or ns); by default the first reading that the archive holds now.
        idle_s
            A series without a reading for this long behind the newest of all is not waited for.
        disorder_s
            How far behind the newest reading of its series a reading may come and not be late; by default as far as
            the newest readings of each series did, by their arrivals.
        allowed_bytes
            Memory that its windows may take at the archive's rates [bytes].
        keep_s
            How long its results are kept, at least [s]; readings that are later change nothing. By default always.

        Raises
        ------
        InvalidQuery
            The text is not valid, the name is taken, the query cannot be live, or its windows need more memory.
        """
        if self.inputs.views:
            raise InvalidQuery("a live query needs its views in its text, Create View NAME As …; got views beside it")
        archive = self.inputs.archive
        options = LiveOptions(find_start(archive, start), float(idle_s), disorder_s)
        store = add_query(self.inputs, name, text, options, allowed_bytes=allowed_bytes, keep_s=keep_s)
        return LiveQuery(archive, store, name)

    def live_query(self, name: str) -> LiveQuery:
        """Return a live query of the archive.

        Raises
        ------
        NotFound
            There is none of this name.
        """
        return LiveQuery(self.inputs.archive, open_store(self.inputs.archive.path), name)

    def live_queries(self) -> list[LiveEntry]:
        """Return all live queries of the archive by name, and how far each is evaluated."""
        if not has_store(self.inputs.archive.path):
            return []
        store = open_store(self.inputs.archive.path)
        try:
            return store.list_entries()
        finally:
            store.close()


@dataclass(frozen=True, repr=False)
class ContinuousTables:
    """Streams and relations of tables."""

    source: FrameSource

    def __repr__(self) -> str:
        return f"ContinuousTables({self.source.catalogue.summary})"

    def query(self, text: str) -> "ContinuousQuery":
        """Return a query in CQL.

        Raises
        ------
        InvalidQuery
            The text is not valid; the message underlines where.
        """
        return ContinuousQuery(self.source, parse_query(text, self.source.catalogue))


@dataclass(frozen=True, repr=False)
class ContinuousQuery:
    """Query over the whole of its tables."""

    source: FrameSource
    bound: BoundQuery

    def __repr__(self) -> str:
        return f"ContinuousQuery({self.bound.summary})"

    @cached_property
    def rewritten(self) -> Rewritten:
        """The tree that is run, and the rules that made it."""
        return rewrite(self.bound.tree, self.source.catalogue.static)

    def explain(self) -> str:
        """Return defaults, windows, rewriting, the tree and projected memory as text."""
        return explain_query(
            self.bound, rewritten=self.rewritten, rates=self.source.catalogue.rates, groups=self.source.catalogue.groups
        )

    def run(self, until: object = None, *, allowed_bytes: int | None = None) -> "pandas.DataFrame":
        """Return all changes of the relation, or all elements of the stream, in order of time.

        Columns are `tau`, `sign` (+1: the row enters, -1: it leaves) and the select list. Rows that leave at an instant
        come before those that enter.

        Parameters
        ----------
        until
            Last instant (as in queries, or ns); by default all windows have emptied by then.
        allowed_bytes
            Memory that windows may take at mean rates [bytes]; half of what is free if absent.

        Raises
        ------
        InvalidQuery
            Windows need more memory.
        """
        self._check_memory(allowed_bytes)
        limit = None if until is None else read_instant(until)
        engine = self._evaluate(limit)
        return frame_of(
            engine.results(), self.bound.tree.attributes, engine.texts, has_datetimes=self.source.has_datetimes
        )

    def relation(self, tau: object, *, allowed_bytes: int | None = None) -> "pandas.DataFrame":
        """Return the rows of the relation at an instant.

        Parameters
        ----------
        allowed_bytes
            Memory that windows may take at mean rates [bytes]; half of what is free if absent.

        Raises
        ------
        InvalidQuery
            The query gives a stream, or windows need more memory.
        """
        if self.bound.tree.is_stream:
            raise InvalidQuery("only a query that gives a relation has rows at an instant; this one gives a stream")
        self._check_memory(allowed_bytes)
        engine = self._evaluate(read_instant(tau))
        return rows_of(engine.results(), self.bound.tree.attributes, engine.texts)

    def _check_memory(self, allowed_bytes: int | None) -> None:
        catalogue = self.source.catalogue
        allowed = find_free_share() if allowed_bytes is None else allowed_bytes
        require_share(self.rewritten.tree, catalogue.rates, allowed, catalogue.counts, catalogue.groups)

    def _evaluate(self, until: int | None) -> ContinuousEngine:
        """Return an engine that has processed all elements up to an instant."""
        tree = self.rewritten.tree
        engine = ContinuousEngine(tree)
        for part in list_leaves(tree):
            engine.push(part.name, batch_of(self.source, part.name, part.attributes, engine.texts))
        engine.advance(_find_end(self.bound.tree, self.source) if until is None else min(until + 1, GREATEST_INTEGER))
        engine.finish()
        return engine


def _find_end(tree: Operator, source: FrameSource) -> int:
    """Return an instant at which all windows of time have emptied [ns]."""
    lasts = [
        int(instants_of(name, frame[TAU]).max()) for name, frame in source.frames.items() if TAU in frame and len(frame)
    ]
    return min(max(lasts, default=0) + emptied_after_ns(tree) + 1, GREATEST_INTEGER)
