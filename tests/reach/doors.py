"""What users call in Python: names of `hypergrid` and of modules that code of the documents uses, and their methods."""

import ast
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final

from tests.reach.functions import ROOMS, ROOT

ENTRIES: Final = (
    # What the installed command calls.
    ("hypergrid.cli.main", "main"),
    # The kind of data set that queries return.
    ("hypergrid.core.result_dataset", "ResultDataset"),
    # What the package `hypergrid.continuous` is when it is called.
    ("hypergrid.continuous.query", "continuous"),
    # What a query with `Emit Now` over an archive is.
    ("hypergrid.continuous.live", "AtOnceQuery"),
    # What completion asks.
    ("hypergrid", "__dir__"),
    # The README names it: what `hypergrid ingest` calls with a user's files.
    ("ingest.job", "ingest"),
)
"""What users call, or hold, besides."""
INNER: Final = (
    "hypergrid.archive.archive",
    "hypergrid.continuous.engine",
    "hypergrid.continuous.sources",
    "hypergrid.perspective.tree",
)
"""Modules whose classes public objects also give: what `OpenArchive.store` holds is the engine's, not a user's."""
_CODE: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _documented_names() -> Iterator[tuple[str, str]]:
    """Yield modules and names that the code of READMEs and of the guide imports, and all that these modules offer."""
    documents = [ROOT / "README.md", *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.md")))]
    for block in (block for path in documents for block in _CODE.findall(path.read_text("utf-8"))):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ROOMS:
                offered = getattr(importlib.import_module(node.module or ""), "__all__", ())
                yield from ((node.module or "", name) for name in (*offered, *(alias.name for alias in node.names)))


def find_doors() -> set[tuple[str, str]]:
    """Return file and qualified name of each function that users call, of public methods, and of what these return."""
    public = [("hypergrid", name) for name in importlib.import_module("hypergrid").__all__]
    doors: set[tuple[str, str]] = set()
    seen: set[type] = set()
    for module, name in (*ENTRIES, *public, *_documented_names()):
        _add(getattr(importlib.import_module(module), name), doors, seen)
    return doors


def _add(item: Any, doors: set[tuple[str, str]], seen: set[type]) -> None:  # noqa: ANN401 - whatever a module holds
    if isinstance(item, ModuleType):
        # A package that can be called, as `hypergrid.continuous`.
        functions = [vars(type(item)).get("__call__")]
    elif isinstance(item, property):
        functions = [item.fget]
    else:
        functions = [getattr(item, "__func__", getattr(item, "func", item))]
    if isinstance(item, type):
        if item in seen or item.__module__.partition(".")[0] not in ROOMS or item.__module__.startswith(INNER):
            return
        seen.add(item)
        for parent in item.__mro__:
            for name, member in vars(parent).items():
                # Methods that notebooks and completion call are named `_repr_html_` and the like.
                if not name.startswith("_") or name.endswith("_"):
                    _add(member, doors, seen)
        return
    for function in map(inspect.unwrap, filter(callable, functions)):
        if not isinstance(function, FunctionType):
            continue
        file = Path(function.__code__.co_filename)
        if not file.is_relative_to(ROOT):
            continue
        doors.add((file.relative_to(ROOT).as_posix(), function.__qualname__))
        for kind in _returned(function):
            _add(kind, doors, seen)


def _returned(function: FunctionType) -> Iterator[type]:
    # Not the hints of arguments: a type among them that is imported for mypy only would hide what is returned.
    returned = SimpleNamespace(__annotations__={"return": function.__annotations__.get("return")})
    try:
        waiting = [typing.get_type_hints(returned, function.__globals__)["return"]]
    except (NameError, TypeError):
        return
    while waiting:
        hint = waiting.pop()
        if isinstance(hint, type):
            yield hint
        waiting += typing.get_args(hint)
