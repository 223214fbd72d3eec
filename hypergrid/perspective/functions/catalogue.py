"""What there is: every function and method that a query may name, as rows for people.

`python -m hypergrid.perspective.functions.catalogue` writes the tables of this folder's README anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypergrid.core.parameters import Parameter
from hypergrid.interpolation import METHODS
from hypergrid.perspective.functions.aggregates import AGGREGATES, AggregateRow
from hypergrid.perspective.functions.merges import MERGES, MergeRow
from hypergrid.perspective.functions.rows import CONVERTS
from hypergrid.perspective.functions.user_function_identity import FUNCTION_IDENTITIES

TABLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "convert": CONVERTS, "aggregate": AGGREGATES, "merge": MERGES, "interpolate": METHODS,
}  # fmt: skip
"""Rows by the step that names them."""

BEGIN: Final = "<!-- functions: python -m hypergrid.perspective.functions.catalogue -->\n"
END: Final = "<!-- end of functions -->\n"
"""Between these the README holds what `markdown` gives."""


@dataclass(frozen=True)
class CatalogueEntry:
    """One function or method."""

    step: str
    """The step that names it: convert, aggregate, merge or interpolate."""
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    of: tuple[str, ...] = ()
    """What the sources of a merge are, in order, with their units."""
    min_coverage: float | None = None
    """Share of the possible readings that an aggregate needs, where a query does not say otherwise."""
    is_added: bool = False
    """Whether a user, or another package, added it."""

    @property
    def signature(self) -> str:
        """Its parameters in a line: `q`, `side=above`, those that may be left out in brackets."""
        return ", ".join(called(parameter) for parameter in self.parameters)

    @property
    def needs(self) -> str:
        """What it needs, in words: the sources of a merge, the coverage of an aggregate; else empty."""
        if self.min_coverage is not None:
            return f"{100 * self.min_coverage:g} % of the readings" if self.min_coverage else "any reading"
        return ", ".join(self.of)


def called(parameter: Parameter) -> str:
    """Return a parameter as a query would give it: in brackets, with its default, where it may be left out."""
    if parameter.required:
        return parameter.name
    default = parameter.default
    listed = default if isinstance(default, tuple) else (default,)
    words = ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in listed)
    return f"[{parameter.name}]" if default is None else f"[{parameter.name}={words}]"


def list_catalogue() -> list[CatalogueEntry]:
    """Return every function and method, those of each step in the order of its table, users' own among them."""
    return [_make_entry(step, name, row) for step, table in TABLES.items() for name, row in table.items()]


def _make_entry(step: str, name: str, row: Any) -> CatalogueEntry:  # noqa: ANN401 - rows of four tables
    of: tuple[str, ...] = ()
    if isinstance(row, MergeRow):
        of = row.roles
        if row.takes:
            of = tuple(f"{role} [{unit}]" for role, unit in zip(of, row.takes, strict=True))
    coverage = row.min_coverage if isinstance(row, AggregateRow) else None
    return CatalogueEntry(
        step, name, row.summary, row.parameters, of, coverage, any(key == (step, name) for key in FUNCTION_IDENTITIES)
    )


def format_tables(entries: Iterable[CatalogueEntry]) -> str:
    """Return a table a step."""
    listed, parts = list(entries), []
    for step in TABLES:
        needs = {"aggregate": " needs by default |", "merge": " of |"}.get(step, "")
        parts.append(f"| {step} | what it is |{needs} parameters |\n|---|---|{'---|' if needs else ''}---|\n")
        for entry in listed:
            if entry.step == step:
                own = f" {entry.needs} |" if needs else ""
                parts.append(f"| `{entry.name}` | {entry.summary} |{own} {entry.signature} |\n")
        parts.append("\n")
    return "".join(parts)


def replace_tables(readme: str) -> str:
    """Return the README's text with its tables as they are to be: of what HyperGrid itself brings."""
    before, rest = readme.split(BEGIN)
    own = format_tables(entry for entry in list_catalogue() if not entry.is_added)
    return f"{before}{BEGIN}\n{own}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    _path = Path(__file__).parents[1] / "README.md"
    _path.write_text(replace_tables(_path.read_text()))
