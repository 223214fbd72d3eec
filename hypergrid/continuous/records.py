"""Records between the parts of the room: what a query may name, and what the language made of its text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from hypergrid.continuous.algebra import Operator
from hypergrid.continuous.expressions import Attributes
from hypergrid.core.errors import HyperGridError

TAU: Final = "tau"
"""Column of instants, of tables and of results."""
SIGN: Final = "sign"
"""Column of signs, of relations that change and of results: +1 for a row that enters, -1 for one that leaves."""

LIVE_FILE: Final = "continuous/continuous.sqlite"
"""File of an archive's live queries, in its folder; named here, as other modules of them load the engine."""

Order: TypeAlias = Literal["time", "arrival"]
"""Whether the instant of an element is when it was complete, or when it arrived."""

ORDERS: Final[tuple[Order, ...]] = ("time", "arrival")

Emit: TypeAlias = Literal["final", "now"]
"""When rows are given: after the heartbeat in order of time, or at once in order of arrival with corrections."""

Explanation: TypeAlias = Literal["none", "plan", "measured"]
"""Prefix of a query: nothing, ``EXPLAIN``, or ``EXPLAIN ANALYZE``."""


Groups: TypeAlias = Mapping[str, Mapping[str, float]]
"""Distinct values that columns of streams have, at most, where it is known: by stream and column.

Each is that of a property of series: where the number of these is known, no combination of columns has more values.
"""


class RowNotHeld(HyperGridError, RuntimeError):
    """A relation removed a row that it did not hold: what it is read from changed without being noticed."""


class NoLongerKept(HyperGridError, LookupError):
    """Results of a live query after a number, of which some are not kept any more; the message says how to go on."""


@dataclass(frozen=True)
class StreamCatalogue:
    """Names that queries may use; a name is in one of the first three mappings only.

    Examples
    --------
    >>> from hypergrid.continuous.expressions import Attribute
    >>> catalogue = StreamCatalogue({"S": (Attribute("A", "integer"), Attribute("speed", "number", "km/h"))})
    >>> catalogue.names
    ('S',)
    """

    streams: Mapping[str, Attributes] = field(default_factory=dict)
    relations: Mapping[str, Attributes] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    """Text of the query that each view stands for."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """Definition of each function of the user: "(x, y) AS expression of x and y"."""
    static: frozenset[str] = frozenset()
    """Relations whose rows never change."""
    flagged: frozenset[str] = frozenset()
    """Streams whose attribute `flag` is a quality flag: by default queries take those that pass (R8)."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Mean rate of streams [rows/s], for projections of memory; streams without one are not projected."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Elements that streams have, at most, where it is known."""
    groups: Groups = field(default_factory=dict)
    """Stations, variables and series of streams, for windows by group."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where relations come from that are computed when they are read, as sentences."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all streams, relations and views, in alphabetical order."""
        return tuple(sorted((*self.streams, *self.relations, *self.views)))

    @property
    def summary(self) -> str:
        """Names of streams, relations and views, as far as there are any, in one line."""
        kinds = {"streams": self.streams, "relations": self.relations, "views": self.views}
        return "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)


@dataclass(frozen=True)
class BoundQuery:
    """Query whose names, types and units are resolved."""

    text: str
    """The query as it was written, without the statements before it."""
    tree: Operator
    defaults: tuple[str, ...] = ()
    """Sentences: what the text leaves open, and what was taken."""
    emit: Emit = "final"
    warnings: tuple[str, ...] = ()
    """Sentences: what is likely to surprise."""
    explanation: Explanation = "none"
    """Whether the text asks to be explained instead of run."""

    @property
    def summary(self) -> str:
        """What the query gives, and its text, in one line."""
        form = "stream" if self.tree.is_stream else "relation"
        columns = ", ".join(attribute.name for attribute in self.tree.attributes)
        return f"{form} of {columns}: {' '.join(self.text.split())}"
