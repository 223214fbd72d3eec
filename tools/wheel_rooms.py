"""Puts the rooms of a wheel under one name: what is `ingest` in a checkout is `hypergrid.ingest` where it is installed.

The top level of a checkout has packages of everyday names (`ingest`, `queries`, `viz`, `station_data`). Beside others'
packages these would overwrite theirs, or be hidden by them. So a wheel has one package, `hypergrid`, with the rooms in
it, and whatever names a room in the code, imports and modules that are named by a string, is written anew. An editable
installation is the checkout itself.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE: Final = "hypergrid"
ROOMS: Final = ("ingest", "queries", "viz", "station_data")
ATLAS: Final = "viz/atlas"
"""Folder of the maps' coast and borders, which is in no repository."""
_NAME: Final = re.compile(rf"(?<![\w./-])(?:{'|'.join(ROOMS)})(?:\.\w+)+(?![\w/-])")


class WheelRooms(BuildHookInterface):  # type: ignore[type-arg]
    """Adds every file of the package and its rooms to a wheel, in its place there."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - those of a hook
        super().__init__(*arguments, **options)
        # It goes with this object, after the wheel is written.
        self._folder = TemporaryDirectory()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files into a folder of the build, and name them."""
        if version == "editable":
            return
        root, built = Path(self.root), Path(self._folder.name)
        if not (root / ATLAS).is_dir():
            self.app.display_warning("without coast and borders, which 'make atlas' fetches")
        files = sorted(iterate_files(root))
        modules = {module_of(path.relative_to(root)) for path in files if path.suffix == ".py"}
        for path in files:
            inside = path.relative_to(root)
            target = inside if inside.parts[0] == PACKAGE else PACKAGE / inside
            source = path
            if path.suffix == ".py":
                source = built / target
                source.parent.mkdir(parents=True, exist_ok=True)
                source.write_text(rename_rooms(path.read_text(encoding="utf-8"), modules), encoding="utf-8")
            build_data["force_include"][str(source)] = str(target)


def iterate_files(root: Path) -> Iterator[Path]:
    """Yield the files of the package and its rooms, without what Python keeps of them."""
    for name in (PACKAGE, *ROOMS):
        for path in (root / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def module_of(inside: Path) -> str:
    """Return the name of the module that a file, as seen from the root, holds."""
    return ".".join(inside.with_suffix("").parts).removesuffix(".__init__")


def rename_rooms(code: str, modules: set[str]) -> str:
    """Return a module's code with each room by its name in a wheel; `modules` are those of the checkout.

    Raises
    ------
    ValueError
        A room is imported under its bare name, which would have to be changed wherever it is used.
    """
    lines = code.split("\n")
    starts: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and is_room(node.module or ""):
            starts.add((node.lineno, node.col_offset + len("from ")))
        elif isinstance(node, ast.Import) and any(is_room(alias.name) and not alias.asname for alias in node.names):
            raise ValueError(f"line {node.lineno}: import names from a room, or rename it: {ast.unparse(node)}")
        elif isinstance(node, ast.Import):
            starts |= {(alias.lineno, alias.col_offset) for alias in node.names if is_room(alias.name)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            starts |= set(iterate_names(lines, node, modules))
    # Each line from its end, so that the columns of what comes before stay as they are; these count bytes.
    for number, column in sorted(starts, reverse=True):
        line = lines[number - 1].encode()
        lines[number - 1] = (line[:column] + f"{PACKAGE}.".encode() + line[column:]).decode()
    return "\n".join(lines)


def iterate_names(lines: list[str], text: ast.Constant, modules: set[str]) -> Iterator[tuple[int, int]]:
    """Yield where a text names a module of a room, to be imported, or in a docstring; a room alone is a word."""
    for number in range(text.lineno, (text.end_lineno or text.lineno) + 1):
        line = lines[number - 1].encode()
        first = text.col_offset if number == text.lineno else 0
        last = text.end_col_offset if number == text.end_lineno else len(line)
        for match in _NAME.finditer(line[:last].decode(), len(line[:first].decode())):
            if any(match[0] == name or match[0].startswith(f"{name}.") for name in modules if "." in name):
                yield number, len(match.string[: match.start()].encode())


def is_room(name: str) -> bool:
    """Return whether a module is, or lies in, a room."""
    return name.split(".")[0] in ROOMS
