"""Entry point of the command line: lists the commands and loads one on use.

Commands import the engine, which takes a second; `hypergrid --help` needs only their names and first lines.
"""

import importlib
import sys
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from hypergrid.cli.console import explain_error, show_error, show_message
from hypergrid.cli.options import FAILED, INTERRUPTED, USED_WRONGLY
from hypergrid.core.errors import (
    CannotBackUp,
    HyperGridError,
    InvalidDeployment,
    InvalidLayer,
    InvalidQuery,
    InvalidTime,
    InvalidUnit,
    NotAnArchive,
    NotFound,
)
from hypergrid.core.version import VERSION, explain_missing

WRONG_USE: Final = (
    InvalidQuery,
    InvalidUnit,
    InvalidTime,
    InvalidDeployment,
    InvalidLayer,
    NotAnArchive,
    NotFound,
    CannotBackUp,
)
"""Errors that the user can fix with another command line or another query."""

PANELS: Final[Mapping[str, Mapping[str, str]]] = {
    "Bring readings in": {
        "demo": "Do the main job once on the sample network: generate, ingest, query, compare with the truth, serve.",
        "ingest": "Bring station files into an archive, in one commit; or, after a mistake in their description, "
        "once more.",
        "stream": "Follow files and messages into an archive as they come; Ctrl-C or SIGTERM ends it, and the next "
        "start goes on.",
        "rejects": "List what could not be read, with file, line, column and reason.",
    },
    "See what there is": {
        "stations": "List the stations.",
        "variables": "List the variables with their units and how much of each there is.",
        "layers": "Fields that do not change with time, such as elevation, for the methods that use them.",
        "snapshots": "List the committed versions, newest first; or say which slices and series changed between two "
        "of them.",
    },
    "Ask": {
        "suggest": "Write a first query of an archive: a map of the newest day that has readings.",
        "functions": "List the functions and methods that a query may name.",
        "explain": "Say how a query would be computed: the chain, the rewriting, the plan with its bytes.",
        "query": "Answer a query into a file, or check that a result can be computed again.",
        "cql": "Continuous queries in CQL: check, explain, run and follow them.",
        "lineage": "Say which readings made a cell of a result, and what changed since.",
        "compare-methods": "Cross-validate every interpolation method on the stations of a query (without its "
        "interpolate step).",
        "export": "Write readings, not surfaces, to files that others read, and that ingest reads back.",
    },
    "Serve": {
        "serve": "Serve the web API and the page, and run the standing queries, until Ctrl-C.",
        "standing": "Queries that stand: evaluated when slices come, with alerts.",
        "keys": "Access keys of `hypergrid serve`: made once, kept as a hash.",
    },
    "Look after an archive": {
        "quality": "Run the quality tests over an archive once more: other flags, the same values, in one commit.",
        "reprocess": "Judge a whole archive once more, or compute surfaces of years, on Spark.",
        "check": "Examine an archive; name everything that is wrong, and what to do.",
        "backup": "Copy an archive while others commit to it; again into the same folder, only what is new.",
        "restore": "Make an archive of a backup; every file is compared with its checksum.",
        "maintain": "Let old snapshots expire, but for cited ones, and remove what none uses; committers do so by "
        "themselves.",
        "upgrade": "Give an archive of an older layout today's, once its values are those of raw copies; one that "
        "ended goes on.",
    },
    "Develop": {
        "bench": "Time this program beside its peers (in a checkout, with the development packages).",
    },
}
"""Help panels in the order of use, each with its commands and their first help lines; a test compares the lines."""

COMMANDS: Final[Mapping[str, str]] = {name: line for panel in PANELS.values() for name, line in panel.items()}


class LazyCommand(TyperCommand):
    """Command that is loaded on use."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: object = None, **extra: object
    ) -> typer.Context:
        loaded = load_command(str(self.name))
        return cast(typer.Context, loaded.make_context(info_name, args, parent, **extra))  # type: ignore[arg-type]


class LazyGroup(TyperGroup):
    """All commands by name, with their first help line."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - settings of Typer
        super().__init__(**settings)
        self.commands = {
            name: LazyCommand(name, help=line, rich_help_panel=panel)
            for panel, lines in PANELS.items()
            for name, line in lines.items()
        }


def load_command(name: str) -> TyperCommand:
    return cast(TyperCommand, _load_commands().commands[name])


@cache
def _load_commands() -> TyperGroup:
    return cast(TyperGroup, typer.main.get_command(importlib.import_module("hypergrid.cli.commands").app))


app = typer.Typer(
    cls=LazyGroup,
    help="Readings of station networks, asked on grids in space and time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _say_version(*, asked: bool) -> None:
    if asked:
        archive = importlib.import_module("hypergrid.archive")
        print(
            f"hypergrid {VERSION}, which writes archives of layout {archive.LAYOUT} and reads "
            f"{archive.describe_readable_layouts()}"
        )
        raise typer.Exit


@app.callback()
def _about(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda asked: _say_version(asked=asked),
            help="Print the version, and the layouts of archives that it reads.",
        ),
    ] = False,
) -> None:
    """Take options that are of no command."""


def main() -> None:
    """Run the command line: exit status 0 done, 1 failed, 2 used wrongly, 130 interrupted."""
    try:
        app()
    except HyperGridError as error:
        show_error(str(error))
        sys.exit(USED_WRONGLY if isinstance(error, WRONG_USE) else FAILED)
    except ModuleNotFoundError as error:
        if (missing := explain_missing(error)) is None:
            raise
        show_error(missing)
        sys.exit(USED_WRONGLY)
    except OSError as error:
        show_error(explain_error(error))
        sys.exit(FAILED)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            show_message("hypergrid: interrupted; what was not finished was not written")
        raise
    except Exception as error:
        # A store error can only occur in a command that has loaded the archive.
        archive = sys.modules.get("hypergrid.archive")
        if archive is None or not isinstance(error, archive.StoreError):
            raise
        show_error(explain_error(error))
        sys.exit(FAILED)
