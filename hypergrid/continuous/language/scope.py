"""Names of columns that an expression may use, with their positions in the input row."""

from dataclasses import dataclass

from sqlglot import exp

from hypergrid.continuous.expressions import Attributes, Expression, Reference
from hypergrid.continuous.language.errors import Refusal, suggest_name
from hypergrid.continuous.language.syntax import span_of


@dataclass(frozen=True)
class ScopedSource:
    """Source of a From clause with its attributes."""

    alias: str
    """Name by which its columns are qualified; empty for a query without name."""
    name: str
    """Name of the stream or relation, which an alias hides; empty for a query."""
    attributes: Attributes


@dataclass(frozen=True)
class Scope:
    """Sources whose rows, one after the other, make the input row."""

    sources: tuple[ScopedSource, ...]
    equal: tuple[frozenset[int], ...] = ()
    """Positions whose values are equal in each row that counts, so that a name may mean any of them."""

    @property
    def attributes(self) -> Attributes:
        return tuple(attribute for source in self.sources for attribute in source.attributes)

    def first_position(self, source: ScopedSource) -> int:
        """Return the position of a source's first attribute."""
        index = next(index for index, other in enumerate(self.sources) if other is source)
        return sum(len(other.attributes) for other in self.sources[:index])

    def references(self, source: ScopedSource) -> tuple[Reference, ...]:
        """Return the attributes of a source."""
        start = self.first_position(source)
        return tuple(Reference(start + index, attribute) for index, attribute in enumerate(source.attributes))

    def all_references(self) -> tuple[Reference, ...]:
        """Return the attributes of all sources: what ``*`` means."""
        return tuple(Reference(index, attribute) for index, attribute in enumerate(self.attributes))

    def find_source(self, node: exp.Expr, qualifier: str) -> ScopedSource:
        """Return the source that a qualifier names.

        Raises
        ------
        Refusal
            None does.
        """
        source = self.source_named(qualifier)
        if source is not None:
            return source
        span = span_of(node)
        for other in self.sources:
            if other.name.lower() == qualifier.lower() and other.alias:
                raise Refusal(span, f"{other.name!r} has the name {other.alias!r} in this query; write {other.alias}.…")
        names = [other.alias for other in self.sources if other.alias]
        raise Refusal(span, f"unknown source {qualifier!r}{suggest_name(qualifier, names)}")

    def source_named(self, qualifier: str) -> ScopedSource | None:
        """Return the source of a name, or None."""
        exact = [source for source in self.sources if source.alias == qualifier]
        alike = [source for source in self.sources if source.alias and source.alias.lower() == qualifier.lower()]
        sources = exact or alike
        return sources[0] if sources else None

    def resolve(self, node: exp.Column) -> Expression:
        """Return the attribute that a column names.

        Raises
        ------
        Refusal
            No source has it, or more than one.
        """
        span = span_of(node)
        if node.args.get("db") is not None:
            raise Refusal(span, "a column has one qualifier at most: its source")
        if node.table:
            source = self.find_source(node, node.table)
            position = _position(source.attributes, node.name)
            if position is None:
                names = [attribute.name for attribute in source.attributes]
                of = f" of {source.alias}" if source.alias else ""
                raise Refusal(span, f"unknown column {node.name!r}{of}{suggest_name(node.name, names)}")
            return Reference(self.first_position(source) + position, source.attributes[position])
        matches = [(source, position) for source in self.sources
                   if (position := _position(source.attributes, node.name)) is not None]  # fmt: skip
        exact = [(source, position) for source, position in matches if source.attributes[position].name == node.name]
        matches = exact or matches
        places = {self.first_position(source) + position for source, position in matches}
        if len(matches) > 1 and not any(places <= positions for positions in self.equal):
            choices = ", ".join(f"{source.alias}.{node.name}" for source, _ in matches if source.alias)
            raise Refusal(span, f"column {node.name!r} is in more than one source; write one of {choices}")
        if not matches:
            names = [attribute.name for attribute in self.attributes]
            raise Refusal(span, f"unknown column {node.name!r}{suggest_name(node.name, names)}")
        source, position = matches[0]
        return Reference(self.first_position(source) + position, source.attributes[position])


def _position(attributes: Attributes, name: str) -> int | None:
    """Return the position of a name; one in another case counts if no other column has it exactly."""
    names = [attribute.name for attribute in attributes]
    if name in names:
        return names.index(name)
    lowered = [each.lower() for each in names]
    return lowered.index(name.lower()) if name.lower() in lowered else None


def distinct_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names that differ: the second A becomes A_2.

    Examples
    --------
    >>> distinct_names(("A", "A", "B", "A"))
    ('A', 'A_2', 'B', 'A_3')
    """
    taken, given = set(names), []
    seen: set[str] = set()
    for name in names:
        candidate, number = name, 2
        while candidate in seen or (candidate != name and candidate in taken):
            candidate, number = f"{name}_{number}", number + 1
        seen.add(candidate)
        given.append(candidate)
    return tuple(given)
