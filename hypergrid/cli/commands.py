"""Commands of the command line; the only module of the package that combines ingest, queries and viz."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import station_data as sample_network
from hypergrid.analysis.geostatistics import compare_methods as compare
from hypergrid.analysis.lineage import lineage as find_lineage
from hypergrid.analysis.reproduce import again as compute_again
from hypergrid.analysis.reproduce import second_opinion as ask_second_opinion
from hypergrid.analysis.suggestion import suggest_document
from hypergrid.archive import Archive
from hypergrid.cli.archive_argument import ArchiveArgument, ArchiveCommand, is_archive
from hypergrid.cli.archive_commands import COMMANDS, find_variables, layers_app
from hypergrid.cli.console import (
    Footnotes,
    OnProgress,
    escape_invisible,
    show_error,
    show_json,
    show_line,
    show_message,
    show_rows,
    show_stages,
    show_table,
)
from hypergrid.cli.cql_commands import cql_app
from hypergrid.cli.options import FAILED, JsonOption, SnapshotOption
from hypergrid.core.errors import (
    HyperGridError,
    InvalidQuery,
    NotAnArchive,
    NotFound,
)
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import find_names, value_of
from hypergrid.core.settings import Settings, import_limits, read_settings
from hypergrid.core.times import SECOND_NS, format_instant
from hypergrid.execution import split_notes
from hypergrid.formats.cf_timeseries import Box, read_timeseries
from hypergrid.formats.results import check_path, write
from hypergrid.interpolation import Comparison, Comparisons
from hypergrid.layers.layer import Layer
from hypergrid.perspective.functions.catalogue import called, list_catalogue
from hypergrid.query import OpenArchive, Query, base, open_archive, read_document
from ingest.cli.check_commands import COMMANDS as CHECK_COMMANDS
from ingest.cli.reprocess_commands import COMMANDS as REPROCESS_COMMANDS
from ingest.cli.reprocess_commands import remap as remap_archive
from ingest.cli.stream_commands import COMMANDS as INGEST_COMMANDS
from ingest.cli.watch_commands import watch_tap
from queries.backup_commands import COMMANDS as BACKUP_COMMANDS
from queries.standing.commands import standing_app
from queries.web.commands import keys_app

PROJECT = Path(__file__).resolve().parents[2]
"""Root of the checkout, which contains the benchmarks."""

DEMO_FOLDER = Path("build/demo")

SAVED_QUERIES = Path(sample_network.__file__).parent / "queries"
"""Folder of the reference queries."""

Engine = Literal["auto", "spark", "inprocess"]

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
"""All commands with their parameters; `hypergrid.cli.main` loads one on use."""


app.add_typer(layers_app, name="layers")
cql_app.command("watch", cls=ArchiveCommand)(watch_tap)
app.add_typer(cql_app, name="cql")
app.add_typer(standing_app, name="standing")
app.add_typer(keys_app, name="keys")
for command in (*COMMANDS, *BACKUP_COMMANDS, *CHECK_COMMANDS, *INGEST_COMMANDS, *REPROCESS_COMMANDS):
    app.command(cls=ArchiveCommand)(command)

QueryArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The query as JSON.")]


@app.command(cls=ArchiveCommand)
def ingest(
    archive: Annotated[
        Path | None,
        typer.Argument(metavar="ARCHIVE", help="Folder of the archive, which is made; a dry run needs none."),
    ] = None,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATHS", help="Files, and folders with all that is in them.")
    ] = None,
    *,
    remap: Annotated[
        bool, typer.Option("--remap", help="Instead of PATHS: read the archive's raw files again, and amend it.")
    ] = False,
    deployment: Annotated[
        Path | None, typer.Option(help="Deployment file (TOML); a deployment.toml in the folder is found by itself.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Where to parse; auto takes Spark, which needs Java, from 32 MiB on.")
    ] = "auto",
    strict: Annotated[bool, typer.Option("--strict", help="Commit nothing if any row cannot be read.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be read, and why; keep nothing.")] = False,
    write_deployment: Annotated[
        Path | None, typer.Option(help="With --dry-run: write a deployment file to start from.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring station files into an archive, in one commit; or, after a mistake in their description, once more."""
    sources = list(paths or [])
    if remap:
        if archive is None or sources or dry_run or strict:
            raise InvalidQuery(
                "ingest ARCHIVE --remap reads the raw files of the archive: leave PATHS, --dry-run and --strict away"
            )
        remap_archive(archive, deployment=deployment, engine=engine, as_json=as_json)
        return
    if dry_run:
        if archive is not None and not is_archive(archive) and (archive.exists() or not sources):
            sources.insert(0, archive)
        if not sources:
            raise InvalidQuery("ingest --dry-run needs PATHS, files or folders to look at")
        _dry_run(sources, deployment, write_deployment, as_json=as_json)
        return
    if archive is None or not sources:
        given = "neither" if archive is None else f"only {archive}"
        raise InvalidQuery(
            f"ingest needs ARCHIVE and PATHS, the files or folders to bring in; got {given}: 'hypergrid ingest ARCHIVE "
            "PATHS…'; with --dry-run it shows what would be read, and keeps nothing"
        )
    if archive.is_file():
        raise InvalidQuery(
            f"ingest needs the folder of an archive as its first argument; got the file {archive}: 'hypergrid ingest "
            f"ARCHIVE {archive}'"
        )
    if write_deployment is not None:
        raise InvalidQuery("ingest needs --dry-run for --write-deployment, which writes what the dry run proposes")
    report = _ingest(sources, archive, deployment=deployment, engine=engine, strict=strict, quiet=as_json)
    if as_json:
        show_json(report)
    else:
        importlib.import_module("ingest.cli.report_text").show_report(report)
    if report["files"] and not report["stored"] + report["superseded"] + report["duplicates"]:
        rejects = sum(report["rejects"].values())
        show_error(f"nothing was brought in: new files {report['files']:,}, rejects {rejects:,}, readings 0")
        show_message(
            "describe the files in a deployment file; 'hypergrid ingest --dry-run' shows how they were understood"
        )
        sys.exit(FAILED)


def _dry_run(paths: list[Path], deployment: Path | None, out: Path | None, *, as_json: bool) -> None:
    from ingest.batch.dry_run import dry_run as run  # noqa: PLC0415 - queries do not need ingest

    shown = importlib.import_module("ingest.cli.report_text")
    with show_stages(quiet=as_json) as notify:
        result = run(paths, deployment=deployment, progress=notify)
    if as_json:
        show_json(result.to_dict())
    else:
        shown.show_dry_run(result)
    if out is not None:
        shown.write_template(result, out)


def _ingest(
    paths: list[Path], archive: Path, *, deployment: Path | None, engine: Engine, strict: bool, quiet: bool
) -> dict[str, Any]:
    from ingest.batch.report import RunListener  # noqa: PLC0415 - queries do not need ingest
    from ingest.job import ingest as run  # noqa: PLC0415 - queries do not need ingest

    with show_stages(quiet=quiet) as notify:
        report = run(
            paths,
            archive,
            deployment=deployment,
            engine=engine,
            strict=strict,
            now_ns=time.time_ns(),
            listener=RunListener(notify, lambda text: None if quiet else show_message(f"warning: {text}")),
        )
    return report.to_dict()


@app.command(cls=ArchiveCommand)
def query(
    archive: ArchiveArgument,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The query as JSON.")] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="Result: .nc, .csv, .parquet, .covjson, .tif, .png, .zarr, or .zip of several."
        ),
    ] = None,
    again: Annotated[
        Path | None, typer.Option(help="Instead of FILE: a result, .nc or .zarr, to compute once more and compare.")
    ] = None,
    allowed_bytes: Annotated[int | None, typer.Option(min=1, help="Memory that the query may take, in bytes.")] = None,
    second_opinion: Annotated[
        int | None, typer.Option(min=1, metavar="CELLS", help="Random cells to compare with PyKrige's kriging.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a query into a file, or check that a result can be computed again."""
    if again is not None:
        if file is not None or out is not None:
            raise InvalidQuery(
                "query --again RESULT reads the query from the result and writes nothing: leave FILE and -o away"
            )
        _check_again(again, archive, allowed_bytes, second_opinion, as_json=as_json)
        return
    if file is None or out is None:
        raise InvalidQuery(
            "query needs ARCHIVE, FILE, the query as JSON, and -o OUT, where the result goes; or ARCHIVE and --again "
            "RESULT"
        )
    check_path(out)
    asked = _read_query(file, open_archive(archive))
    started_s = time.monotonic()
    # CSV rows do not name a snapshot.
    cited = out.suffix != ".csv" and _cite_snapshots(asked)
    with show_stages(quiet=as_json) as notify:
        result, missing = _answer_query(asked, out, allowed_bytes, second_opinion, notify)
    summary = {
        "out": str(out), "cells": value_of(result).size, "missing": missing,
        "units": value_of(result).attrs["units"], "snapshot": result.attrs["hypergrid_snapshot"],
        "cited": cited, "token": result.attrs["hypergrid_token"], "notes": split_notes(result.attrs.get("comment", "")),
        "seconds": round(time.monotonic() - started_s, 3),
    }  # fmt: skip
    for note in summary["notes"]:
        show_message(f"note: {note}")
    if summary["missing"] == summary["cells"]:
        show_message("warning: every cell is missing; the notes say why (see count and count_possible as well)")
    if out.suffix == ".png":
        if shown := importlib.import_module("hypergrid.plots").part_shown(result):
            show_message(f"the picture shows {shown}; .nc and .zarr hold all")
        if "variance" in find_names(result):
            show_message("the picture does not show the variance; .nc and .zarr hold it")
    if as_json:
        show_json(summary)
    else:
        show_message(f"{out}: {summary['cells']:,} cells, {summary['missing']:,} missing, {summary['seconds']} s")


@app.command(cls=ArchiveCommand)
def lineage(
    archive: ArchiveArgument,
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A result, .nc or .zarr, of this archive.")],
    cell: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="The cell: time=2007-10-01T12:00 lat=45.87 lon=7.18, say."),
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="CSV file for all its readings.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which readings made a cell of a result, and what changed since."""
    if out is not None and out.suffix != ".csv":
        raise InvalidQuery(f"lineage -o writes readings as CSV; got {out.name!r}; give a name that ends in .csv")
    made = find_lineage(result, dict(map(_split_coordinate, cell or ())), open_archive(archive))
    if out is not None:
        made.readings.to_csv(out, index=False, date_format="%Y-%m-%dT%H:%M:%S.%fZ")
    if as_json:
        show_json(made.to_json())
        return
    show_line(made.describe())
    if out is not None:
        show_message(f"wrote {out}: {len(made.readings):,} readings")


def _split_coordinate(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidQuery(f"a cell is given as NAME=VALUE, such as time=2007-10-01T12:00 or station=7; got {text!r}")
    return name.strip(), value.strip()


@app.command(cls=ArchiveCommand)
def suggest(
    archive: ArchiveArgument,
    variable: Annotated[
        str | None, typer.Argument(metavar="VARIABLE", help="Its variable; absent: one that varies.")
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for the query; absent: standard output.")
    ] = None,
) -> None:
    """Write a first query of an archive: a map of the newest day that has readings."""
    opened = open_archive(archive)
    chosen = None if variable is None else find_variables(opened.store, [variable])[0]
    suggestion = suggest_document(opened, chosen)
    for note in suggestion.notes:
        show_message(note)
    text = json.dumps(suggestion.query, indent=2, ensure_ascii=False)
    if out is None:
        print(escape_invisible(text))
        return
    out.write_text(f"{text}\n", "utf-8")
    show_message(f"wrote {out}; answer it with: hypergrid query {archive} {out} -o map.png")


def _cite_snapshots(asked: Query) -> bool:
    """Cite the snapshots that a result will name; return whether all were cited."""
    # Called before computing, so that none expires meanwhile.
    try:
        for archive in asked.archives():
            archive.cite(
                for_result=True, on_wait=lambda: show_message("a commit is at work; waiting to cite the snapshot")
            )
    except (OSError, HyperGridError) as error:
        show_message(
            f"note: the snapshot cannot be cited: {error}; once it has expired, --again answers as of its commit, and "
            "not from the snapshot itself"
        )
        return False
    return True


def _check_again(result: Path, archive: Path, allowed_bytes: int | None, cells: int | None, *, as_json: bool) -> None:
    """Recompute a result and print the differences; exit with status 1 if any exceeds rounding."""
    opened = open_archive(archive)
    with show_stages(quiet=as_json) as notify:
        compared = compute_again(
            result, opened, allowed_bytes=allowed_bytes, progress=lambda done: notify("compute", done)
        )
    opinion = None if cells is None else ask_second_opinion(result, opened, cells=cells)
    if as_json:
        show_json(compared.to_json() | ({} if opinion is None else {"second_opinion": opinion.to_json()}))
    else:
        show_line(compared.describe() + ("" if opinion is None else f"\n{opinion.describe()}"))
    if not compared.confirmed or (opinion is not None and opinion.differs):
        sys.exit(FAILED)


def _answer_query(
    asked: Query, out: Path, allowed_bytes: int | None, second_opinion: int | None, notify: OnProgress
) -> tuple[xr.Dataset, int]:
    """Write the answer of a query to a file; return it and the number of its missing cells."""
    history = f"{format_instant(time.time_ns() // SECOND_NS * SECOND_NS)} hypergrid query"
    if out.suffix == ".zarr":
        progress = partial(notify, "compute")
        missing = asked.to_zarr(
            out, allowed_bytes=allowed_bytes, progress=progress, history=history, second_opinion=second_opinion
        )
        # Opened lazily, because it can exceed the memory.
        return xr.open_zarr(out, consolidated=False, chunks=None), missing
    result = asked.compute(
        allowed_bytes=allowed_bytes, progress=partial(notify, "compute"), second_opinion=second_opinion
    )
    notify("write", 0.0)
    write(result.assign_attrs(history=history), out)
    notify("write", 1.0)
    return result, int(value_of(result).isnull().sum())


def _read_query(file: Path, archive: OpenArchive) -> Query:
    return archive.query(read_document(file))  # type: ignore[arg-type]


@app.command(cls=ArchiveCommand)
def compare_methods(
    archive: Annotated[
        Path | None, typer.Argument(metavar="ARCHIVE", help="Folder of the archive; a NetCDF file needs none.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The query as JSON, or a CF time series of stations as NetCDF (.nc)."),
    ] = None,
    *,
    variable: Annotated[str | None, typer.Option(help="Which variable of a NetCDF file.")] = None,
    within: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(help="Stations of a NetCDF file that are wanted: west south east north [degree]."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Station of a NetCDF file that is not wanted; may be given again.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the best method's map with its uncertainty beside it, as .png.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="Time cell of the picture, as 2022-12-31T12:00.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Cross-validate every interpolation method on the stations of a query (without its interpolate step)."""
    if picture is not None and picture.suffix != ".png":
        raise InvalidQuery(f"--picture needs a file name that ends in .png; got {picture}")
    if file is None:
        # A lone argument is the file.
        archive, file = None, archive
    if file is None:
        raise InvalidQuery("compare-methods needs ARCHIVE and FILE, the query as JSON; or FILE alone, a NetCDF file")
    asked = _station_query(file, archive, variable, within, without or [])
    compared = compare(asked)
    if as_json:
        show_json([each.to_json() for each in compared])
    else:
        _show_comparison(compared)
    if picture is not None:
        # After the table, which is printed even if the best method cannot be drawn.
        pictures = importlib.import_module("hypergrid.analysis.best_map")
        pictures.plot_comparison(pictures.map_of_best(asked, compared, time=time)).savefig(picture)
        show_message(f"written: {picture}")


def _show_comparison(compared: Comparisons) -> None:
    footnotes = Footnotes()
    rows = [
        (each.label, *_format_scores(each), footnotes.number([each.problem] if each.problem else each.notes))
        for each in compared
    ]
    unit = f" [{compared.unit}]" if compared.unit else ""
    columns = (
        "method", f"RMSE{unit}", f"bias{unit}", "in 95 % interval", f"RMSE of all that it estimates{unit}", "misses",
        "note",
    )  # fmt: skip
    show_table("Leave-one-out by station, best first", columns, rows)
    if compared and compared[0].scored_on:
        show_line(compared[0].scored_on)
    footnotes.show()


def _station_query(
    file: Path, archive: Path | None, variable: str | None, within: Box | None, without: list[str]
) -> Query:
    if file.suffix == ".nc":
        if variable is None:
            raise InvalidQuery(f"{file.name} needs --variable NAME, the variable to compare methods on")
        return base(read_timeseries(file, variable, within=within, without=without))
    if archive is None or variable is not None or within is not None or without:
        raise InvalidQuery(
            "a query as JSON needs ARCHIVE before it, and says itself which variable and stations it reads"
        )
    return _read_query(file, open_archive(archive))


def _format_scores(compared: Comparison) -> tuple[str, ...]:
    """Format the scores on the values that every method estimates, and on all that this one does."""
    score = compared.common
    if score is None or compared.validation is None:
        return ("",) * 5
    covered = f"{score.coverage_95:.1%}" if math.isfinite(score.coverage_95) else ""
    own = compared.validation.score
    return f"{score.rmse:.4g}", f"{score.bias:+.3g}", covered, f"{own.rmse:.4g}", f"{own.missed:,}"


@app.command(cls=ArchiveCommand)
def explain(archive: ArchiveArgument, file: QueryArgument) -> None:
    """Say how a query would be computed: the chain, the rewriting, the plan with its bytes."""
    print(escape_invisible(_read_query(file, open_archive(archive)).explain()))


@app.command()
def functions(
    name: Annotated[str | None, typer.Argument(help="Function or method of which to say more.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """List the functions and methods that a query may name."""
    results = [entry for entry in list_catalogue() if name in (None, entry.name)]
    if name is not None and not results:
        raise NotFound.among(kind="function or method", given=name, existing=[entry.name for entry in list_catalogue()])
    if as_json:
        show_json([asdict(entry) for entry in results])
    elif name is None:
        for step in dict.fromkeys(entry.step for entry in results):
            rows = [
                (entry.name, f"{entry.summary} Needs {entry.needs}." if entry.needs else entry.summary, entry.signature)
                for entry in results
                if entry.step == step
            ]
            show_table(f"\n{step}", ("name", "what it is", "parameters"), rows)
        show_line("'hypergrid functions NAME' describes one with its parameters")
    else:
        for entry in results:
            show_line(f"{entry.step} {entry.name}: {entry.summary}")
            if entry.needs:
                show_line(f"needs {entry.needs}")
            if entry.parameters:
                metadata = ((called(parameter), parameter.summary, parameter.unit) for parameter in entry.parameters)
                show_table(
                    "Parameters; those in brackets may be left out", ("parameter", "what it is", "unit"), metadata
                )


@app.command(cls=ArchiveCommand)
def stations(archive: ArchiveArgument, *, snapshot: SnapshotOption = None, as_json: JsonOption = False) -> None:
    """List the stations."""
    opened = open_archive(archive, snapshot=snapshot)
    rows = [
        (s.id, s.name, float(s.position.lon), float(s.position.lat), float(s.position.elevation_m))
        for s in opened.stations.values()
    ]
    show_rows(f"Stations of {opened.name}", ("station", "name", "lon", "lat", "elevation_m"), rows, as_json=as_json)


@app.command(cls=ArchiveCommand)
def variables(archive: ArchiveArgument, *, snapshot: SnapshotOption = None, as_json: JsonOption = False) -> None:
    """List the variables with their units and how much of each there is."""
    opened = open_archive(archive, snapshot=snapshot)
    rows = []
    for name, variable in opened.variables.items():
        extent = opened.store.extent(name)
        period = (format_instant(extent.start_ns), format_instant(extent.stop_ns)) if extent else ("", "")
        rows.append((name, variable.unit, len(opened.store.list_series(name)), *period))
    show_rows(f"Variables of {opened.name}", ("variable", "unit", "series", "from", "to"), rows, as_json=as_json)


@app.command(cls=ArchiveCommand)
def rejects(archive: ArchiveArgument, *, as_json: JsonOption = False) -> None:
    """List what could not be read, with file, line, column and reason."""
    opened = open_archive(archive)
    rows = [(r.file, r.line, r.column, r.reason, r.text) for r in opened.store.rejects()]
    show_rows(f"Rejects of {opened.name}", ("file", "line", "column", "reason", "text"), rows, as_json=as_json)


@app.command(cls=ArchiveCommand)
def quality(
    archive: ArchiveArgument,
    *,
    deployment: Annotated[
        Path | None,
        typer.Option(help="Deployment file with other parameters, under [quality]."),
    ] = None,
    variable: Annotated[list[str] | None, typer.Option(help="Only this variable; may be given again.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the quality tests over an archive once more: other flags, the same values, in one commit."""
    from ingest.reprocess.reflag import run_quality  # noqa: PLC0415 - queries do not need ingest

    chosen = find_variables(Archive.open(archive), variable)
    with show_stages(quiet=as_json) as notify:
        report = run_quality(archive, deployment=deployment, variables=chosen, now_ns=time.time_ns(), progress=notify)
    if as_json:
        show_json(report.to_dict())
    else:
        shown = importlib.import_module("ingest.cli.report_text")
        shown.show_quality("Before", report.before)
        shown.show_quality("After", report.after)
        shown.show_skipped(report.skipped)
        for warning in report.warnings:
            show_message(f"warning: {warning}")
        show_message(f"{report.changed:,} of {report.readings:,} readings changed their flags, by {report.parameters}")


@app.command(cls=ArchiveCommand)
def serve(
    archive: Annotated[
        Path | None, typer.Argument(metavar="ARCHIVE", help="Folder of the archive; the demo's where absent.")
    ] = None,
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on; others than loopback need keys.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on.")] = None,
    root_path: Annotated[str | None, typer.Option(help="Path that a proxy puts before all others.")] = None,
    settings: Annotated[Path | None, typer.Option(help="Settings file (TOML).")] = None,
    saved: Annotated[
        Path | None, typer.Option(help="Folder of saved queries; the reference queries where absent.")
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Write nothing, and run no standing queries; several may serve so.")
    ] = False,
    imports: Annotated[
        bool, typer.Option("--import", help="Let files be imported on the page, by callers that may write.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Say what would be served, and whether it can be.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve the web API and the page, and run the standing queries, until Ctrl-C."""
    chosen = archive or DEMO_FOLDER / "archive"
    if chosen == DEMO_FOLDER / "archive" and not chosen.is_dir():
        raise NotAnArchive("serve needs an archive: give ARCHIVE, its folder, or make the sample's with `make demo`")
    given = read_settings(settings)
    port = given.port if port is None else port
    given = replace(
        given, host=host or given.host, port=port, root_path=root_path or given.root_path,
        read_only=read_only or given.read_only, imports=imports or given.imports,
    )  # fmt: skip
    if given.imports and given.read_only:
        raise InvalidQuery("a server that writes nothing takes no imports: leave --read-only or --import away")
    if given.imports and not check:
        _create_if_vacant(chosen)
    (partial(_check_serving, as_json=as_json) if check else _serve)(chosen, given, saved or SAVED_QUERIES)


def _create_if_vacant(archive: Path) -> None:
    """Create an archive without variables, to import into, in a folder that is missing or empty."""
    from ingest.batch.archive_session import open_if_exists  # noqa: PLC0415 - only imports need ingest
    from ingest.deployment.deployment_file import DEFAULT_SLICE_S  # noqa: PLC0415

    if open_if_exists(archive) is None:
        Archive.create(
            archive, name=archive.resolve().name, slice_s=DEFAULT_SLICE_S, variables=(), now_ns=time.time_ns()
        )


def _check_serving(archive: Path, given: Settings, saved: Path, *, as_json: bool) -> None:
    check = importlib.import_module("queries.web.serving").check(archive, given, saved, now_ns=time.time_ns())
    rows = [(item.what, "fine" if item.is_fine else "wrong", item.message) for item in check]
    show_rows(f"Serving {archive}", ("what", "state", "found"), rows, as_json=as_json)
    if not all(item.is_fine for item in check):
        sys.exit(FAILED)


def _serve(archive: Path, given: Settings, saved: Path) -> None:
    from queries.web.middleware.request_limits import log_to_stderr  # noqa: PLC0415 - only a server needs the web libraries
    from queries.web.serving import Pages, serve_archive  # noqa: PLC0415
    from viz.site import load_figures, site  # noqa: PLC0415

    log_to_stderr()
    with ExitStack() as stack:
        importer = None
        if given.imports:
            from ingest.importing.importer import FolderImporter  # noqa: PLC0415 - only imports need ingest

            importer = stack.enter_context(closing(FolderImporter(archive, import_limits(given))))
        serve_archive(
            archive, given, pages=Pages(site(), load_figures), saved=saved, importer=importer,
            on_ready=lambda address: show_message(f"serving {archive} at {address} (Ctrl-C ends)"),
        )  # fmt: skip


@app.command()
def demo(
    *,
    folder: Annotated[Path, typer.Option(help="Where everything goes.")] = DEMO_FOLDER,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="End instead of serving the page.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the sample network.")] = 2007,
    as_json: JsonOption = False,
) -> None:
    """Do the main job once on the sample network: generate, ingest, query, compare with the truth, serve."""
    from hypergrid.cli.demo import DemoSteps, run_demo  # noqa: PLC0415 - only the demo plots and generates
    from hypergrid.layers.raster_reader import read_raster  # noqa: PLC0415
    from station_data.generate import generate  # noqa: PLC0415
    from station_data.terrain import write_terrain  # noqa: PLC0415
    from station_data.truth import truth_mean  # noqa: PLC0415

    def make(out: Path, notify: Any) -> None:  # noqa: ANN401 - a callback of the demo
        generate(out, seed=seed, formats=("sensorscope",), progress=lambda done, total: notify("", done / total))

    def bring(source: Path, archive: Path, notify: Any) -> dict[str, Any]:  # noqa: ANN401
        from ingest.batch.report import RunListener  # noqa: PLC0415
        from ingest.job import ingest as run  # noqa: PLC0415

        listener = RunListener(lambda stage, part: notify(f"  {stage}", part))
        report = run([source], archive, now_ns=time.time_ns(), listener=listener)
        return report.to_dict()

    def terrain(out: Path) -> Layer:
        return read_raster(write_terrain(out), name="elevation")

    target = folder if seed == 2007 else folder.with_name(f"{folder.name}-{seed}")
    rooms = DemoSteps(make, bring, terrain, truth_mean, SAVED_QUERIES)
    with show_stages(quiet=as_json) as notify:
        summary = run_demo(target, rooms, notify)
    if as_json:
        show_json(summary)
    else:
        _show_demo(summary)
    if not no_serve:
        _serve(target / "archive", read_settings(), SAVED_QUERIES)


def _show_demo(summary: dict[str, Any]) -> None:
    importlib.import_module("ingest.cli.report_text").show_report(summary["ingest"])
    show_table("Seconds", ("stage", "s"), [(name, float(s)) for name, s in summary["seconds"].items()])
    error, plain = summary["q1"]["rmse_K"], summary["q1"]["rmse_plain_mean_K"]
    show_message(
        f"Q1 against the truth: root-mean-square error {error:.3f} K; plain mean of the stations {plain:.3f} K"
    )
    show_message("written: " + ", ".join(summary["outputs"]))


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="Which benchmark: a file of tests/bench.")],
    *,
    case: Annotated[str, typer.Option(help="Which of its cases.")] = "all",
    pairs: Annotated[int, typer.Option(min=1, help="Pairs that a median is of.")] = 5,
    values: Annotated[int | None, typer.Option(min=1, help="Values that the benchmark ingest brings in.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="How long pages are left open.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute's version (scheduling).")] = False,
    as_json: JsonOption = False,
) -> None:
    """Time this program beside its peers (in a checkout, with the development packages)."""
    folder = PROJECT / "tests" / "bench"
    if not folder.is_dir():
        raise NotFound("bench needs a checkout of the project, with tests/bench; this is an installation without it")
    names = sorted(path.stem.removeprefix("bench_").replace("_", "-") for path in folder.glob("bench_*.py"))
    NotFound.refuse_unknown("benchmark", [name], names)
    # Benchmarks import one another from the root of the checkout, which an entry point does not add to the path.
    sys.path.insert(0, str(PROJECT))
    chosen = importlib.import_module(f"tests.bench.bench_{name.replace('-', '_')}")
    NotFound.refuse_unknown(f"case of the benchmark {name}", [case], chosen.CASES)
    given: dict[str, float | None] = {"values": values, "minutes": minutes, "quick": quick or None}
    sizes: dict[str, Any] = {option: value for option, value in given.items() if value is not None}
    for option in sizes.keys() - inspect.signature(chosen.measure).parameters.keys():
        raise InvalidQuery(f"--{option} is not for the benchmark {name}, which has sizes of its own; leave it away")
    with show_stages(quiet=as_json) as notify:
        measured = chosen.measure(case, pairs=pairs, notify=notify, **sizes)
    if as_json:
        show_json(measured)
    else:
        for title, columns, rows in chosen.tables(measured):
            show_table(title, columns, rows)
