"""Commands of live continuous queries: add, list and remove them, go on with them, and read what they gave."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hypergrid.cli.archive_argument import ArchiveArgument
from hypergrid.cli.console import show_error, show_json, show_message, show_table
from hypergrid.cli.cql_run import QueryFile, TablesOption, open_sink, parse_tables, read_statements
from hypergrid.cli.options import FAILED, JsonOption
from hypergrid.continuous.names import parse_keep
from hypergrid.core.errors import HyperGridError, InvalidQuery
from hypergrid.core.times import format_instant, parse_wait
from hypergrid.query import OpenArchive, open_archive

if TYPE_CHECKING:
    from hypergrid.continuous.live import GivenElement, LiveEntry, LiveQuery, LiveStore

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the live query.")]
PollOption = Annotated[str, typer.Option("--every", help="How often to look for a commit.")]

KeepOption = Annotated[
    str | None,
    typer.Option("--keep", help="How long results are kept, such as 90d, a day or longer; always where absent."),
]

_AT_ONCE: Final = 10_000
"""Rows that are read at once."""


def add_live(  # noqa: PLR0913 - options of a command
    archive: ArchiveArgument,
    file: QueryFile,
    *,
    name: Annotated[str, typer.Option("--name", help="Name to find the query by.")],
    start: Annotated[
        str | None, typer.Option("--start", help="First instant; the first reading of the archive where absent.")
    ] = None,
    idle: Annotated[str, typer.Option("--idle", help="A series that long without a reading is not waited for.")] = "1h",
    disorder: Annotated[
        str | None,
        typer.Option(
            "--disorder", help="How far a reading may come behind its series and not be late; by arrivals where absent."
        ),
    ] = None,
    memory: Annotated[
        int | None, typer.Option("--memory", help="Memory that its windows may take [bytes]; 256 MiB where absent.")
    ] = None,
    table: TablesOption = None,
    keep: KeepOption = None,
) -> None:
    """Add a query that follows the archive; it is kept beside it with the tables and surfaces that it names."""
    from hypergrid.continuous.archive_query import open_inputs  # noqa: PLC0415 - numba and SQL
    from hypergrid.continuous.limits import ALLOWED_BYTES  # noqa: PLC0415 - as above
    from hypergrid.continuous.live import LiveOptions, add_query, find_start  # noqa: PLC0415 - as above

    inputs = open_inputs(open_archive(archive), parse_tables(table))
    options = LiveOptions(
        find_start(inputs.archive, start),
        parse_wait(idle, "--idle"),
        None if disorder is None else parse_wait(disorder, "--disorder", may_be_zero=True),
    )
    allowed_bytes = ALLOWED_BYTES if memory is None else memory
    keep_s = parse_keep(keep, "--keep")
    store = add_query(inputs, name, read_statements(file), options, allowed_bytes=allowed_bytes, keep_s=keep_s)
    entry = store.find(name)
    kept = ", ".join([*entry.options.tables, *entry.options.surfaces])
    beside = f"; kept with it as they are now: {kept}" if kept else ""
    show_message(
        f"live query {name!r} begins at {format_instant(entry.options.start_ns)}{beside}; 'hypergrid cql step "
        f"{archive} --follow' or a server goes on with it"
    )


def change_keep(
    archive: ArchiveArgument,
    name: NameArgument,
    keep: Annotated[str, typer.Argument(metavar="DURATION", help="Such as 90d, a day or longer; or always.")],
) -> None:
    """Change how long the results of a live query are kept; older ones are dropped as it goes on."""
    keep_s = parse_keep(keep, "DURATION")
    _open_store(open_archive(archive)).change_keep(name, keep_s)
    show_message(f"results of {name!r} are kept {'always' if keep_s is None else f'for {keep}'}")


def list_live(archive: ArchiveArgument, *, as_json: JsonOption = False) -> None:
    """List the live queries of an archive: how far each is, late windows, what is kept, and projected memory."""
    from hypergrid.continuous.live import has_store, open_store  # noqa: PLC0415 - numba and SQL

    opened = open_archive(archive)
    store = open_store(opened.path) if has_store(opened.path) else None
    rows = [] if store is None else [_describe(opened, store, entry) for entry in store.list_entries()]
    if as_json:
        show_json(rows)
        return
    columns = (
        "name",
        "start",
        "evaluated to",
        "snapshot",
        "disorder [s]",
        "late windows",
        "kept from",
        "too late",
        "memory [bytes]",
        "tables",
        "surfaces",
        "state",
    )
    show_table(
        f"live queries of {archive}",
        columns,
        [
            (
                row["name"], row["start"], row["heartbeat"] or "", row["snapshot"] or "",
                f"{row['disorder_s'] or 0:g} ({row['disorder_from']})", row["late_windows"],
                row["kept_from"] or "start", row["too_late_windows"],
                "unknown" if row["projected_bytes"] is None else row["projected_bytes"], ", ".join(row["tables"]),
                ", ".join(row["surfaces"]), row["problem"] or row["state"],
            )
            for row in rows
        ],
    )  # fmt: skip


def _describe(archive: OpenArchive, store: LiveStore, entry: LiveEntry) -> dict[str, Any]:
    from hypergrid.continuous.live import LiveQuery  # noqa: PLC0415 - as above
    from hypergrid.continuous.live.evaluation import START  # noqa: PLC0415 - as above

    problem, projected = None, None
    try:
        projected = LiveQuery(archive, store, entry.name).projected_bytes()
    except HyperGridError as error:
        problem = str(error)
    options = asdict(entry.options)
    return {
        "name": entry.name,
        "text": entry.text,
        "start": format_instant(entry.options.start_ns),
        "snapshot": entry.snapshot,
        "heartbeat": None if entry.heartbeat_ns is None else format_instant(entry.heartbeat_ns),
        "source": options["source"],
        "is_newest": entry.options.source == "tap" or entry.snapshot == archive.snapshot,
        "late_windows": entry.late,
        "keep_s": entry.retention.keep_s,
        "kept_from": None if entry.retention.kept_ns == START else format_instant(entry.retention.kept_ns),
        "too_late_windows": entry.retention.too_late,
        "projected_bytes": projected,
        "idle_s": options["idle_s"],
        "disorder_s": options["disorder_s"] if entry.disorder_s is None else entry.disorder_s,
        "disorder_from": "arrivals" if options["disorder_s"] is None else "given",
        "tables": options["tables"],
        "surfaces": {name: each["title"] for name, each in entry.options.surfaces.items()},
        "problem": problem,
        "state": _name_state(archive, entry),
    }


def _name_state(archive: OpenArchive, entry: LiveEntry) -> str:
    if entry.options.source == "tap":
        return "over the tap"
    return "complete" if entry.snapshot == archive.snapshot else "commits wait"


def remove_live(archive: ArchiveArgument, name: NameArgument) -> None:
    """Remove a live query with its state and results."""
    _open_store(open_archive(archive)).remove(name)
    show_message(f"live query {name!r} is removed")


def _open_store(archive: OpenArchive) -> LiveStore:
    from hypergrid.continuous.live import has_store, open_store  # noqa: PLC0415 - as above

    if not has_store(archive.path):
        raise InvalidQuery(f"{archive.path} has no live query; add one: 'hypergrid cql add ARCHIVE FILE --name NAME'")
    return open_store(archive.path)


def step_live(
    archive: ArchiveArgument,
    *,
    name: Annotated[list[str] | None, typer.Option("--name", help="Live query; all where absent.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as commits come, until interrupted.")] = False,
    every: PollOption = "1s",
) -> None:
    """Go on with live queries to the newest commit; one that fails stands where it is, and others go on."""
    opened = open_archive(archive)
    store, poll_s = _open_store(opened), parse_wait(every, "--every")
    for each in name or ():
        if store.find(each).options.source != "archive":
            raise InvalidQuery(f"live query {each!r} follows readings as they arrive; go on with 'hypergrid cql watch'")
    queries: dict[str, LiveQuery] = {}
    problems: dict[str, str] = {}
    while True:
        for entry in store.list_entries():
            if entry.options.source != "archive" or (name and entry.name not in name):
                continue
            try:
                _step(opened, store, queries, entry.name)
                problems.pop(entry.name, None)
            except HyperGridError as error:
                queries.pop(entry.name, None)
                if problems.get(entry.name) != str(error):
                    # Once, and not at each commit.
                    show_error(f"{entry.name}: {error}")
                problems[entry.name] = str(error)
        if not follow:
            break
        time.sleep(poll_s)
    if problems:
        raise typer.Exit(FAILED)


def _step(archive: OpenArchive, store: LiveStore, queries: dict[str, LiveQuery], name: str) -> None:
    from hypergrid.continuous.live import LiveQuery, StepTaken  # noqa: PLC0415 - as above

    if name not in queries:
        queries[name] = LiveQuery(archive, store, name)
    try:
        count = queries[name].step()
    except StepTaken:
        # By a server, or another such command.
        return
    if count:
        entry = queries[name].entry
        show_message(f"{name}: {count:,} elements up to {format_instant(entry.heartbeat_ns or 0)}")


def show_rows_of_live(  # noqa: PLR0913 - options of a command
    archive: ArchiveArgument,
    name: NameArgument,
    *,
    after: Annotated[int, typer.Option("--after", help="Number after which to go on.")] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", help="Evaluate as commits come, and print JSON lines, until interrupted.")
    ] = False,
    every: PollOption = "1s",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write: .csv or .parquet.")] = None,
) -> None:
    """Print what a live query gave after a number, corrections included, as CSV; or follow it."""
    from hypergrid.continuous.live import LiveQuery  # noqa: PLC0415 - as above

    opened = open_archive(archive)
    query = LiveQuery(opened, _open_store(opened), name)
    if follow:
        if out is not None:
            raise InvalidQuery("--follow prints rows as they come; -o needs a result that ends: leave one of them away")
        for element in query.follow(after, poll_s=parse_wait(every, "--every")):
            _print_element(element, query.columns)
        return
    count = 0
    with open_sink(out) as add:
        part = query.rows(after, _AT_ONCE)
        while len(part) or not count:
            add(part)
            count += len(part)
            if len(part) < _AT_ONCE:
                break
            part = query.rows(int(part["number"].iloc[-1]), _AT_ONCE)
    entry = query.entry
    is_behind = _name_state(opened, entry) == "commits wait"
    waits = "; commits wait: 'hypergrid cql step' goes on" if is_behind else ""
    heartbeat = "nothing yet" if entry.heartbeat_ns is None else format_instant(entry.heartbeat_ns)
    show_message(f"{out or name}: {count:,} elements; evaluated up to {heartbeat}{waits}")


def _print_element(element: GivenElement, columns: tuple[str, ...]) -> None:
    line = {
        "number": element.number,
        "tau": format_instant(element.tau_ns),
        "sign": element.sign,
        "row": dict(zip(columns, element.row, strict=True)),
        "corrects": element.corrects,
        "snapshot": element.snapshot,
    }
    try:
        print(json.dumps(line, ensure_ascii=False), flush=True)
    except BrokenPipeError:
        # As with `head`: the reader has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
