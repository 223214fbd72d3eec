"""Mark which functions of the product users reach, in each Python process that `python -m tests.reach` starts.

A call counts if a user could have caused it: no file of the tests is on its stack, as in a server, a worker of Spark or
a command of its own; a test runs a command in its own process (`CliRunner`); or what the innermost of them called is
public (`tests/reach/doors.py`). Marks are bytes of a file that all processes map, so that none is lost with a process
that is killed.
"""

import builtins
import importlib.machinery
import json
import mmap
import os
import sys
from types import CodeType, ModuleType

STATE = os.environ.get("HYPERGRID_REACH", "")
REJECTED_BEFORE_SKIPS = 20
"""Calls of a function by a test alone after which only some of its calls are looked at: looking takes microseconds.

In processes that tests start, by all that the process does.
"""


def _install() -> None:
    with open(os.path.join(STATE, "table.json"), encoding="utf-8") as file:
        table = json.load(file)
    with open(os.path.join(STATE, "marks"), "r+b") as file:
        marks = mmap.mmap(file.fileno(), 0)
    root: str = table["root"] + os.sep
    first: dict[str, int] = {os.path.join(root, name): number for name, number in table["first"].items()}
    doors = {(os.path.join(root, file), name) for file, name in table["doors"]}
    tests = (root + "tests" + os.sep, root + "tools" + os.sep)
    served = {os.path.join(root, name) for name in table["servers"]}
    kinds: dict[str, str] = {}
    rejected: dict[int, int] = {}

    def kind_of(file: str) -> str:
        if file in first:
            return "product"
        if file == "<string>":
            return "script"
        if file.endswith(".md") or file.startswith("block at line"):
            return "document"
        if file.endswith((os.path.join("typer", "testing.py"), os.path.join("click", "testing.py"))):
            return "command"
        # A script that is started by a relative path.
        path = os.path.abspath(file)
        return "test" if path.startswith(tests) and path not in served else ""

    def is_of_a_user() -> bool:
        frame = sys._getframe(2)
        entry: CodeType | None = None
        was_product = False
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(code.co_filename)
            if kind is None:
                kind = kinds[code.co_filename] = kind_of(code.co_filename)
            if kind in ("document", "command"):
                return True
            # Methods that dataclasses make lie in "<string>" too; what starts workers calls no product itself.
            if kind == "test" or (kind == "script" and was_product and not code.co_name.startswith("__")):
                break
            was_product = kind == "product"
            if was_product:
                entry = code
            frame = frame.f_back
        if frame is None or entry is None or entry.co_name == "<module>":
            return True
        return (entry.co_filename, entry.co_qualname.partition(".<locals>")[0]) in doors

    def reach(number: int) -> None:
        count = rejected.get(number, 0)
        if count > REJECTED_BEFORE_SKIPS and count % 64:
            rejected[number] = count + 1
        elif is_of_a_user():
            marks[number] = 1
        else:
            rejected[number] = count + 1

    class Loader(importlib.machinery.SourceFileLoader):
        def source_to_code(self, data, path, *, _optimization=-1):  # type: ignore[no-untyped-def,override]  # noqa: ANN001, ANN201, ANN202
            from tests.reach.functions import instrument  # noqa: PLC0415 - processes whose bytecode is kept need none

            tree = instrument(bytes(data), first[str(path)])
            return compile(tree, path, "exec", dont_inherit=True, optimize=_optimization)

    class Finder:
        def find_spec(
            self, name: str, path: object = None, target: ModuleType | None = None
        ) -> importlib.machinery.ModuleSpec | None:
            if name.partition(".")[0] not in table["rooms"]:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)  # type: ignore[arg-type]
            # A folder of the checkout may be a link elsewhere.
            origin = "" if spec is None else os.path.realpath(spec.origin or "")
            if spec is not None and origin in first:
                spec.loader = Loader(name, origin)
            return spec

    # Marks are numbers in the bytecode, which is kept apart from that of processes without marks.
    sys.pycache_prefix = table["bytecode"]
    builtins.__reached__ = marks  # type: ignore[attr-defined]
    builtins.__reach__ = reach  # type: ignore[attr-defined]
    builtins.__reach_anew__ = rejected.clear  # type: ignore[attr-defined]
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]


if STATE:
    _install()
