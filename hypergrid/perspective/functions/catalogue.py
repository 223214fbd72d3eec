"""Catalogue of every function and method that a query may name, as displayable rows.

`python -m hypergrid.perspective.functions.catalogue` rewrites the tables in this folder's README.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypergrid.core.parameters import Parameter
from hypergrid.interpolation import METHODS
from hypergrid.perspective.functions.aggregates import AGGREGATES, AggregateRow
from hypergrid.perspective.functions.rows import CONVERTS, MERGES, MergeRow
from hypergrid.perspective.functions.user_function_calls import FUNCTION_IDENTITIES

TABLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "convert": CONVERTS, "aggregate": AGGREGATES, "merge": MERGES, "interpolate": METHODS,
}  # fmt: skip
"""Tables of rows by step."""

BEGIN: Final = "<!-- functions: python -m hypergrid.perspective.functions.catalogue -->\n"
END: Final = "<!-- end of functions -->\n"
"""The README holds the output of `format_tables` between `BEGIN` and `END`."""


@dataclass(frozen=True)
class CatalogueEntry:
    """Description of one function or method."""

    step: str
    """Step that uses it: convert, aggregate, merge or interpolate."""
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    of: tuple[str, ...] = ()
    """Sources of a merge in order, with their units."""
    min_coverage: float | None = None
    """Default share of possible readings that an aggregate needs."""
    is_added: bool = False
    """Whether it comes from a user or another package."""

    @property
    def signature(self) -> str:
        """Parameters in one line, optional ones in brackets: `q`, `[side=above]`."""
        return ", ".join(called(parameter) for parameter in self.parameters)

    @property
    def needs(self) -> str:
        """Sources of a merge or coverage of an aggregate, in words; else empty."""
        if self.min_coverage is not None:
            return f"{100 * self.min_coverage:g} % of the readings" if self.min_coverage else "any reading"
        return ", ".join(self.of)


def called(parameter: Parameter) -> str:
    """Format a parameter; an optional one in brackets with its default."""
    if parameter.required:
        return parameter.name
    default = parameter.default
    listed = default if isinstance(default, tuple) else (default,)
    words = ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in listed)
    return f"[{parameter.name}]" if default is None else f"[{parameter.name}={words}]"


def list_catalogue() -> list[CatalogueEntry]:
    """Return every function and method in table order, including user functions."""
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
    """Format entries as one Markdown table per step."""
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
    """Regenerate the tables in the README text; user functions are left out."""
    before, rest = readme.split(BEGIN)
    own = format_tables(entry for entry in list_catalogue() if not entry.is_added)
    return f"{before}{BEGIN}\n{own}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    _path = Path(__file__).parents[1] / "README.md"
    _path.write_text(replace_tables(_path.read_text()))
