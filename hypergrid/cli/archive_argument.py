"""The archive as the first argument of a command, or as --archive DIR or HYPERGRID_ARCHIVE in its place."""

import os
from collections import deque
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand

from hypergrid.archive.disk.folder import MARKER
from hypergrid.core.errors import InvalidQuery

OPTION: Final = "--archive"
VARIABLE: Final = "HYPERGRID_ARCHIVE"
"""Environment variable that names the archive of all commands that are given none."""

ArchiveArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ARCHIVE", help=f"Folder of the archive; or {OPTION} DIR, or {VARIABLE} in the environment."
    ),
]


def is_archive(path: str | Path) -> bool:
    return (Path(path) / MARKER).is_file()


def _has_files(path: str) -> bool:
    given = Path(path)
    return given.is_file() or (given.is_dir() and any(given.iterdir()))


class ArchiveCommand(TyperCommand):
    """Command whose first argument is the archive; `--archive DIR` anywhere stands for it.

    `HYPERGRID_ARCHIVE` stands for it as well if neither is given.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - the context of Typer's own Click
        if not ctx.resilient_parsing and "--help" not in args:
            args = self._place_archive(args, ctx.command_path)
        return super().parse_args(ctx, args)

    def _place_archive(self, args: list[str], name: str) -> list[str]:
        line = _split_line(self.params, args)
        arguments: list[Any] = [param for param in self.params if param.param_type_name == "argument"]
        first, is_bounded = next(iter(line.words), None), all(param.nargs != -1 for param in arguments)
        is_first = first is not None and (is_archive(first) or (is_bounded and len(line.words) >= len(arguments)))
        if is_first and line.option is not None and Path(line.option).resolve() != Path(str(first)).resolve():
            raise InvalidQuery(
                f"'{name}' needs one archive; got {first} as the first argument, and {OPTION} {line.option}; leave one "
                "of them away"
            )
        elsewhere = None if is_first else line.option or os.environ.get(VARIABLE)
        if arguments[0].required and elsewhere is None and first is not None and Path(first).is_file():
            raise InvalidQuery(
                f"'{name}' needs the folder of an archive as its first argument; got the file {first}: '{name} ARCHIVE "
                f"{first}'"
            )
        if (
            elsewhere is not None
            and line.option is None
            and not is_bounded
            and first is not None
            and not _has_files(first)
        ):
            raise InvalidQuery(
                f"'{name}' would use the archive {elsewhere}, which {VARIABLE} names, and {first} is no file or folder "
                f"with files; give {OPTION} DIR to say which archive is meant"
            )
        return line.rest if elsewhere is None else [elsewhere, *line.rest]


class _Line(NamedTuple):
    rest: list[str]
    """The line without --archive and its value."""
    words: list[str]
    """Arguments, in their order."""
    option: str | None
    """Value of --archive."""


def _split_line(params: list[Any], args: list[str]) -> _Line:
    """Find the arguments of a command line, and take --archive out of it."""
    sizes = {
        name: 0 if param.is_flag or param.count else param.nargs
        for param in params
        if param.param_type_name == "option"
        for name in (*param.opts, *param.secondary_opts)
    }
    rest, words, option, queue = list[str](), list[str](), None, deque(args)
    while queue:
        word = queue.popleft()
        name, equals, value = word.partition("=")
        if name == OPTION:
            if not equals and not queue:
                raise InvalidQuery(f"{OPTION} needs the folder of an archive; got nothing after it")
            option = value if equals else queue.popleft()
            continue
        rest.append(word)
        if word == "--":
            words += queue
            rest += queue
            break
        if word == "-" or not word.startswith("-"):
            words.append(word)
        else:
            rest += [queue.popleft() for _ in range(min(sizes.get(word, 0), len(queue)))]
    return _Line(rest, words, option)
