"""Identifiers are nouns of the glossary or verbs with their noun; a class name stands for one thing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
ROOMS: Final = ("hypergrid", "ingest", "queries", "viz", "station_data")
REJECTED: Final = frozenset(
    "apart begun came far found heard here least mine most one place said so_many some stands tell told whence which "
    "who".split()
)
"""Bare adverbs, pronouns and participles that named values, and words that named several things each."""
ALLOWED: Final[Mapping[str, Mapping[str, str]]] = {
    "came": {
        "ingest/streaming/metrics.py": "reads the field of the ledger",
        "ingest/streaming_service.py": "reads the field of the ledger",
        "ingest/streaming/stream_commit.py": "a field of the ledger that archives hold",
    },
    "least": {
        "ingest/deployment/quality_overrides.py": "a key of deployment files, hashed in tokens",
        "ingest/deployment/quality_settings.py": "a key of deployment files, hashed in tokens",
        "ingest/quality/run_tests.py": "reads that key",
        "ingest/quality/temporal.py": "reads that key",
    },
    "most": {
        "ingest/deployment/quality_overrides.py": "a key of deployment files, hashed in tokens",
        "ingest/deployment/quality_settings.py": "a key of deployment files, hashed in tokens",
        "ingest/quality/run_tests.py": "reads that key",
    },
    "one": {"queries/web/routes/standing.py": "names an operation in the API's description"},
    "place": {
        "queries/standing/alert_evaluation.py": "reads the field of an episode",
        "queries/standing/conditions.py": "a field of episodes that the catalogue holds as JSON",
        "queries/standing/liveness.py": "reads the field of an episode",
        "queries/standing/row_alerts.py": "reads the field of an episode",
    },
    "tell": {
        "hypergrid/archive/arrays/stream_log.py": "Python's own method of files",
        "ingest/formats/messages.py": "Python's own method of files",
    },
    "which": {"ingest/spark/session.py": "shutil's own function"},
    "who": {"queries/web/routes/login.py": "names an operation in the API's description"},
}
"""Rejected identifiers that stay, by file, with the reason: what users, files or other programs hold."""
SEVERAL: Final[Mapping[str, str]] = {
    "Fault": "an error of a user's function, and a planted fault of the sample network, which imports nothing of ours",
    "Station": "the domain record, and that of the sample network, which imports nothing of ours",
}
"""Class names that stand for two things, at most five, with the reason."""


def product_files() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


@dataclass
class Names:
    """Names of a file."""

    identifiers: list[tuple[str, int]]
    """All of them, each with its line."""
    classes: list[str]
    defined: set[str]
    """Classes, functions and variables."""


# Parsing all files takes two seconds.
@cache
def read_names(path: Path) -> Names:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    defined |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return Names(list(identifiers(nodes)), classes, defined | set(classes))


def identifiers(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def test_no_identifier_is_rejected() -> None:
    met: dict[str, list[str]] = defaultdict(list)
    for path in product_files():
        file = path.relative_to(ROOT).as_posix()
        for name, line in read_names(path).identifiers:
            bare = name.strip("_")
            if bare in REJECTED and file not in ALLOWED.get(bare, {}):
                met[name].append(f"{file}:{line}")
    assert not met


def test_what_is_allowed_is_there() -> None:
    unused = [
        (name, file)
        for name, files in ALLOWED.items()
        for file in files
        if name not in {bare.strip("_") for bare, _ in read_names(ROOT / file).identifiers}
    ]
    assert not unused


def test_a_class_name_stands_for_one_thing() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in product_files():
        for name in read_names(path).classes:
            homes[name].append(path.relative_to(ROOT).as_posix())
    assert len(SEVERAL) <= 5
    assert {name: files for name, files in homes.items() if len(files) > 1 and name not in SEVERAL} == {}


@pytest.mark.parametrize("source", ["told = 1", "def f(here): ...", "class _Told: ...", "x.told", "f(who=1)"])
def test_a_rejected_name_is_met(source: str) -> None:
    assert {name.strip("_").lower() for name, _ in identifiers(ast.walk(ast.parse(source)))} & REJECTED


def test_the_glossary_names_what_there_is() -> None:
    rows = re.findall(r"^\|(.+)\|(.+)\|(.+)\|$", (ROOT / "GLOSSARY.md").read_text(encoding="utf-8"), re.MULTILINE)
    terms = [term.strip() for term, *_ in rows if term.strip() not in ("term", "---")]
    assert len(terms) == len(set(terms)) > 40
    defined = {path.relative_to(ROOT).as_posix() for path in product_files()}
    defined.update(*(read_names(path).defined for path in product_files()))
    assert {name for *_, where in rows for name in re.findall(r"`([^`]+)`", where)} - defined == set()


def test_readmes_and_docstrings_name_files_that_exist() -> None:
    # A path is seen from the folder of the README or module, or from one above it.
    readmes = [ROOT / "README.md", *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.md")))]
    named = [
        (readme, name)
        for readme in readmes
        for name in re.findall(r"`([\w./-]+\.py)`", readme.read_text(encoding="utf-8"))
    ]
    assert len(named) > 200
    named += [
        (path, name)
        for path in product_files()
        for name in re.findall(r"`([\w.-]+/[\w./-]+\.py)`", path.read_text(encoding="utf-8"))
    ]
    lost = [
        f"{readme.relative_to(ROOT)}: {name}"
        for readme, name in named
        if not any((folder / name).is_file() for folder in readme.parents if folder.is_relative_to(ROOT))
    ]
    assert lost == []
