"""The command `hypergrid cql watch`."""

import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from hypergrid.cli.archive_argument import ArchiveArgument
from hypergrid.cli.console import show_message
from hypergrid.cli.cql_live import KeepOption
from hypergrid.cli.cql_run import TablesOption, parse_tables
from hypergrid.continuous.names import parse_keep
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.names import make_slug
from hypergrid.core.stop_signals import stop_at_signals
from hypergrid.core.times import parse_wait
from hypergrid.query import open_archive


def watch_tap(
    archive: ArchiveArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Queries to add, one a file, each named by its file; those added stay."),
    ] = None,
    *,
    idle: Annotated[str, typer.Option(help="Stations that are silent for this long are not waited for.")] = "60s",
    disorder: Annotated[
        str | None,
        typer.Option(help="How long readings are waited for at least; more where readings come out of order."),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            min=1, help="Memory that the windows of each query of a FILE may take [bytes]; 256 MiB where absent."
        ),
    ] = None,
    table: TablesOption = None,
    keep: KeepOption = None,
    only_add: Annotated[bool, typer.Option("--only-add", help="Add the queries, and end.")] = False,
) -> None:
    """Evaluate queries over readings as they arrive, before slices are assembled, until Ctrl-C or SIGTERM.

    `hypergrid stream` receives the readings, and `hypergrid serve` delivers the alerts.
    """
    from hypergrid.continuous.limits import ALLOWED_BYTES  # noqa: PLC0415 - as below
    from hypergrid.continuous.live import LiveOptions, add_tap_query  # noqa: PLC0415 - loads numba
    from ingest.streaming.tap import Tap  # noqa: PLC0415 - as above
    from ingest.tap_service import TapService  # noqa: PLC0415 - as above

    opened = open_archive(archive)
    tap = Tap(opened.store)
    for file in files or []:
        name = make_slug(file.stem)
        if not name:
            raise InvalidQuery(f"the query in {file} is named by its file, which needs a letter or a digit")
        add_tap_query(
            opened,
            name,
            file.read_text(encoding="utf-8"),
            LiveOptions(
                time.time_ns(),
                parse_wait(idle, "--idle"),
                0.0 if disorder is None else parse_wait(disorder, "--disorder", may_be_zero=True),
                after_record=tap.newest,
            ),
            tables=parse_tables(table),
            allowed_bytes=ALLOWED_BYTES if memory is None else memory,
            keep_s=parse_keep(keep, "--keep"),
        ).close()
        show_message(f"{name} is added; it begins now")
    if only_add:
        return
    with stop_at_signals(signal.SIGTERM, signal.SIGINT) as stopping:
        show_message(f"{archive}: queries over the tap are evaluated; 'hypergrid serve' delivers their alerts")
        TapService(opened, notify=lambda text: show_message(f"warning: {text}")).run(stopping)
