"""Commands for continuous queries: check a file of statements, explain what it would compute, run and follow it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypergrid.cli.archive_argument import ArchiveArgument, ArchiveCommand
from hypergrid.cli.console import show_json, show_message
from hypergrid.cli.cql_live import add_live, change_keep, list_live, remove_live, show_rows_of_live, step_live
from hypergrid.cli.cql_run import TablesOption, backtest_statements, parse_tables, read_statements, run_statements
from hypergrid.cli.options import JsonOption, SnapshotOption
from hypergrid.continuous.records import StreamCatalogue
from hypergrid.core.errors import InvalidQuery
from hypergrid.query import open_archive

if TYPE_CHECKING:
    from hypergrid.continuous.archive_query import ArchiveInputs
    from hypergrid.continuous.language import Script

StatementsArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Statements in CQL, separated by semicolons; - reads standard input.")
]

cql_app = typer.Typer(help="Continuous queries in CQL: check, explain, run and follow them.", no_args_is_help=True)
cql_app.command("run", cls=ArchiveCommand)(run_statements)
cql_app.command("backtest", cls=ArchiveCommand)(backtest_statements)
cql_app.command("add", cls=ArchiveCommand)(add_live)
cql_app.command("list", cls=ArchiveCommand)(list_live)
cql_app.command("keep", cls=ArchiveCommand)(change_keep)
cql_app.command("remove", cls=ArchiveCommand)(remove_live)
cql_app.command("step", cls=ArchiveCommand)(step_live)
cql_app.command("rows", cls=ArchiveCommand)(show_rows_of_live)


@cql_app.command("check")
def check_statements(
    file: StatementsArgument,
    *,
    archive: Annotated[
        Path | None, typer.Option("--archive", help="Archive whose streams and relations the statements may name.")
    ] = None,
    table: TablesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read statements in CQL, and say what each query gives; the first fault is underlined."""
    text = read_statements(file)
    script = _read_script(file, text, _list_inputs(archive, parse_tables(table), text))
    if as_json:
        show_json([_describe_query(script, number) for number in range(len(script.queries))])
        return
    for number, query in enumerate(script.queries, start=1):
        kind = "a stream" if query.tree.is_stream else "a relation"
        show_message(f"query {number} is valid: {kind} of {', '.join(part.name for part in query.tree.attributes)}")
        for warning in query.warnings:
            show_message(f"  {warning}")
    if not script.queries:
        catalogue = script.catalogue
        show_message(f"valid, without a query: {len(catalogue.names)} streams, relations and views")


@cql_app.command("explain", cls=ArchiveCommand)
def explain_statements(
    archive: ArchiveArgument,
    file: StatementsArgument,
    *,
    table: TablesOption = None,
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain the queries of a file: defaults, windows, rewriting, the tree, and projected memory."""
    from hypergrid.continuous.archive_query import open_inputs  # noqa: PLC0415 - numba and SQL
    from hypergrid.continuous.language import list_registered  # noqa: PLC0415 - as in `_read_script`

    inputs = open_inputs(open_archive(archive, snapshot=snapshot), parse_tables(table))
    text = read_statements(file)
    script = _read_script(file, text, inputs.list_inputs(text, list_registered(text)))
    if not script.queries:
        raise InvalidQuery(f"{file} needs a query to explain; got statements that only define names")
    if as_json:
        show_json([_describe_query(script, number, inputs) for number in range(len(script.queries))])
        return
    print("\n".join(_explain(script, number, inputs) for number in range(len(script.queries))), end="")


def _list_inputs(archive: Path | None, tables: Mapping[str, str], text: str) -> StreamCatalogue:
    """Return what statements may name before any of them, without tables that they register themselves."""
    if archive is None and not tables:
        return StreamCatalogue()
    from hypergrid.continuous.archive_query import open_inputs  # noqa: PLC0415 - numba and SQL
    from hypergrid.continuous.frames import read_frames  # noqa: PLC0415 - numba
    from hypergrid.continuous.language import list_registered  # noqa: PLC0415 - as in `_read_script`
    from hypergrid.continuous.sources import read_table  # noqa: PLC0415 - pandas

    registered = list_registered(text)
    if archive is None:
        frames = {name: read_table(name, Path(path)) for name, path in tables.items() if name not in registered}
        return read_frames(frames, {}).catalogue
    return open_inputs(open_archive(archive), tables).list_inputs(text, registered)


def _read_script(file: Path, text: str, catalogue: StreamCatalogue) -> Script:
    from hypergrid.continuous.language import parse_script  # noqa: PLC0415 - only these commands parse SQL

    script = parse_script(text, catalogue)
    if not script.queries and script.catalogue == catalogue:
        raise InvalidQuery(f"{'standard input' if str(file) == '-' else file} holds no statement; write one that asks")
    return script


def _explain(script: Script, number: int, inputs: ArchiveInputs | None = None) -> str:
    from hypergrid.continuous.archive_query import list_key_options  # noqa: PLC0415 - as in `_read_script`
    from hypergrid.continuous.language import explain_query  # noqa: PLC0415 - as in `_read_script`
    from hypergrid.continuous.partitioning import find_partitioning  # noqa: PLC0415
    from hypergrid.continuous.rewrite import rewrite  # noqa: PLC0415

    query = script.queries[number]
    rewritten = rewrite(query.tree, script.catalogue.static)
    partitions: tuple[str, ...] = ()
    if inputs is not None:
        options = list_key_options(script.catalogue, inputs.of_archive, inputs.tables)
        partitions = find_partitioning(rewritten.tree, script.catalogue.static, options).describe()
    known = script.catalogue
    return explain_query(
        query,
        rewritten=rewritten,
        rates=known.rates,
        groups=known.groups,
        partitions=partitions,
        origins=known.origins,
    )


def _describe_query(script: Script, number: int, inputs: ArchiveInputs | None = None) -> dict[str, object]:
    query = script.queries[number]
    columns = [{"name": each.name, "kind": each.kind, "unit": each.unit} for each in query.tree.attributes]
    return {
        "text": query.text,
        "result": "stream" if query.tree.is_stream else "relation",
        "columns": columns,
        "defaults": list(query.defaults),
        "warnings": list(query.warnings),
        "explain": _explain(script, number, inputs),
    }
