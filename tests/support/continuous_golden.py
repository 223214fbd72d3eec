"""Golden files of continuous queries: `tests/golden/cql/NAME.sql` with what it is explained as and what it results in.

A file is added without Python: statements that register its streams and relations, then one query. Its input is in
`inputs/PREFIX/STREAM.csv`, where PREFIX is the name up to its first "_": a column `tau` [s], of relations that change
also `sign`, and the attributes; a file that is missing is an empty input. `HYPERGRID_WRITE_GOLDEN=1` writes
`NAME.explain` and `NAME.result.csv` anew.
"""

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hypergrid.continuous.algebra import Operator
from hypergrid.continuous.expressions import Attribute, Attributes
from hypergrid.continuous.language import Script, parse_script
from hypergrid.continuous.records import StreamCatalogue
from tests.support.continuous_oracle import START, Change, Relations, Streams
from tests.support.continuous_scalars import Row, Value

FOLDER: Final = Path(__file__).parents[1] / "golden" / "cql"
NAMES: Final = tuple(sorted(path.stem for path in FOLDER.glob("*.sql")))
IS_WRITTEN: Final = os.environ.get("HYPERGRID_WRITE_GOLDEN") == "1"
"""Whether the files are written instead of compared."""

_SECOND_NS: Final = 1_000_000_000


def read_script(name: str) -> Script:
    """Parse a golden file."""
    return parse_script((FOLDER / f"{name}.sql").read_text(), StreamCatalogue())


def read_inputs(name: str, catalogue: StreamCatalogue) -> tuple[Streams, Relations]:
    """Return the streams and relations of a golden file."""
    folder = FOLDER / "inputs" / name.partition("_")[0]
    streams = {
        stream: [(int(row["tau"]) * _SECOND_NS, _read_row(row, attributes)) for row in _read_csv(folder, stream)]
        for stream, attributes in catalogue.streams.items()
    }
    relations = {
        relation: [
            (
                int(row["tau"]) * _SECOND_NS if row.get("tau") else START,
                int(row.get("sign") or 1),
                _read_row(row, attributes),
            )
            for row in _read_csv(folder, relation)
        ]
        for relation, attributes in catalogue.relations.items()
    }
    return streams, relations


def _read_csv(folder: Path, name: str) -> list[dict[str, str]]:
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _read_row(row: dict[str, str], attributes: Attributes) -> Row:
    return tuple(_read_value(row[attribute.name], attribute) for attribute in attributes)


def _read_value(text: str, attribute: Attribute) -> Value:
    if text == "":
        return None
    if attribute.kind == "text":
        return text
    return float(text) if attribute.kind == "number" else int(text)


def result_text(tree: Operator, changes: Iterable[Change]) -> str:
    """Return changes of the result of a tree as lines of CSV; rows of one instant and sign are in order of text."""
    names = [attribute.name for attribute in tree.attributes]
    lines = [",".join(["tau", "sign", *names])]
    lines += [
        ",".join([_write_instant(tau), f"{sign:+d}", *map(_write_value, row)])
        for tau, sign, row in sorted(changes, key=_order)
    ]
    return "\n".join(lines) + "\n"


def _order(change: Change) -> tuple[int, int, tuple[str, ...]]:
    tau, sign, row = change
    return tau, sign, tuple(map(_write_value, row))


def _write_instant(tau: int) -> str:
    if tau == START:
        return "start"
    return f"{tau / _SECOND_NS:.9f}".rstrip("0").rstrip(".")


def _write_value(value: Value) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
