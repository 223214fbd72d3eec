"""Functions of the product as its source defines them, and statements in them that mark what is called."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = ("hypergrid", "ingest", "queries", "viz", "station_data")
Kind = Literal["python", "compiled", "empty"]
Definition = ast.FunctionDef | ast.AsyncFunctionDef
_COMPILED: Final = re.compile(r"(numba\.)?(extending\.)?(n?jit\w*|overload|intrinsic)\b")
"""Decorators of functions that numba compiles: no statement of Python runs in them."""


@dataclass(frozen=True)
class Function:
    """A function of the product."""

    file: str
    """Relative to the project's folder."""
    name: str
    """Qualified, as `__qualname__`; the second of a name in its file ends in `#2`."""
    line: int
    kind: Kind
    """Whether Python runs it, numba compiles it, or there is nothing to run."""
    names: frozenset[str]
    """Identifiers in its body, by which it may call compiled functions."""

    @property
    def key(self) -> str:
        return f"{self.file}: {self.name}"


def find_definitions(tree: ast.Module) -> Iterator[tuple[Definition, str, Kind]]:
    """Yield the functions of a module in the order of their lines, with their qualified names and kinds."""
    seen: dict[str, int] = {}

    def walk(nodes: Iterable[ast.AST], prefix: str, kind: Kind) -> Iterator[tuple[Definition, str, Kind]]:
        for node in nodes:
            if isinstance(node, Definition):
                name = prefix + node.name
                seen[name] = seen.get(name, 0) + 1
                own = kind if kind != "python" else _kind_of(node)
                yield node, name if seen[name] == 1 else f"{name}#{seen[name]}", own
                yield from walk(node.body, f"{name}.<locals>.", "compiled" if own == "compiled" else "python")
            elif isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.", kind)
            else:
                typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
                yield from walk(ast.iter_child_nodes(node), prefix, "empty" if typing else kind)

    yield from walk(tree.body, "", "python")


def _kind_of(node: Definition) -> Kind:
    # Declarations of protocols, of overloads and of abstract classes; a text for people who look at a value.
    if node.name == "__repr__" or all(map(_does_nothing, node.body)):
        return "empty"
    return "compiled" if any(_COMPILED.match(ast.unparse(each)) for each in node.decorator_list) else "python"


def _does_nothing(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError"))):
            return True
    return False


def list_functions(root: Path = ROOT) -> list[Function]:
    """List all functions of the product, file by file in the order of their lines."""
    functions = []
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            for node, name, kind in find_definitions(ast.parse(path.read_bytes())):
                inner = list(ast.walk(node))
                names = {item.id for item in inner if isinstance(item, ast.Name)}
                names |= {item.attr for item in inner if isinstance(item, ast.Attribute)}
                functions.append(Function(file, name, node.lineno, kind, frozenset(names)))
    return functions


def instrument(source: bytes, first: int) -> ast.Module:
    """Return a module whose functions of kind "python" each begin by marking their number, from `first` on."""
    tree = ast.parse(source)
    for number, (node, _, kind) in enumerate(list(find_definitions(tree)), first):
        if kind != "python":
            continue
        marking = ast.parse(f"__reached__[{number}] or __reach__({number})").body[0]
        start = int(ast.get_docstring(node, clean=False) is not None)
        for item in ast.walk(marking):
            ast.copy_location(item, node.body[start])
        node.body.insert(start, marking)
    return tree


def add_compiled(functions: Iterable[Function], reached: set[str]) -> set[str]:
    """Add to the names of what was reached the compiled functions that it calls, and those that these call."""
    by_name: dict[str, list[Function]] = {}
    for function in functions:
        if function.kind == "compiled":
            by_name.setdefault(function.name.rpartition(".")[2], []).append(function)
    by_key: Mapping[str, Function] = {function.key: function for function in functions}
    every, waiting = set(reached), [by_key[key] for key in reached if key in by_key]
    while waiting:
        caller = waiting.pop()
        called = {function.key: function for name in caller.names for function in by_name.get(name, ())}
        called |= {
            function.key: function
            for function in functions
            if function.kind == "compiled"
            and function.file == caller.file
            and function.name.startswith(f"{caller.name}.<locals>.")
        }
        waiting += [function for key, function in called.items() if key not in every]
        every |= set(called)
    return every
