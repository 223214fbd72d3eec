"""Text output of ingests and dry runs on the command line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypergrid.cli.console import show_line, show_message, show_table
from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.times import format_instant
from hypergrid.core.units import counter_words
from ingest.batch.dry_run import DryRun, SourceSummary, declared_variable
from ingest.batch.proposal import propose_deployment
from ingest.deployment.deployment_file import Deployment
from ingest.formats import FORMATS
from ingest.job import SPARK_FROM_BYTES
from ingest.quality.flagging import COLUMNS, ISOLATED, NO_ELEVATION, NO_POSITION, table_of

_COUNTS = (
    ("stations", "stations"),
    ("files", "files"),
    ("files_skipped", "files skipped (known)"),
    ("files_ignored", "files ignored"),
    ("rows", "rows"),
    ("readings", "readings"),
    ("values", "values"),
    ("missing", "missing (reported without a value)"),
    ("rows_rejected", "rows rejected"),
    ("cells_rejected", "cells rejected (the rest of their rows was read)"),
    ("duplicates", "duplicates"),
    ("superseded", "superseded"),
    ("slices", "slices"),
    ("revised", "readings of before with another flag"),
)
_REASONS = {
    ISOLATED: "with too few neighbours",
    NO_POSITION: "without a known position",
    NO_ELEVATION: "without a known elevation",
}


def show_report(report: dict[str, Any]) -> None:
    """Print the report of an ingest."""
    if report["snapshot"] is None:
        known = report["files_skipped"]
        show_message(
            f"nothing new: {known} files are in the archive, or were tried in this way before; nothing was committed"
        )
        return
    rows = [(label, report[name]) for name, label in _COUNTS]
    rows += [(f"rejects: {reason}", count) for reason, count in report["rejects"].items()]
    show_table(f"Ingested into {report['archive']}", ("what", "count"), rows)
    show_line(engine_text(report["engine"], report["size_bytes"]))
    show_line(ledger(report))
    show_quality("Quality", report["quality"])
    show_skipped(report["skipped"])
    rejected = sum(report["rejects"].values())
    if rejected:
        show_message(
            f"warning: {rejected} rows or files could not be read; `hypergrid rejects` lists them with their reasons"
        )


def engine_text(engine: str, size_bytes: int) -> str:
    """Say where files were parsed, and from which size on Spark parses them."""
    where = "on Spark" if engine == "spark" else "in one process, without Spark"
    return (
        f"parsed {where}: {size_bytes / 2**20:,.1f} MiB of new files (--engine auto takes Spark from "
        f"{SPARK_FROM_BYTES >> 20} MiB on)"
    )


def ledger(report: Mapping[str, Any]) -> str:
    """Format the conservation of a run's readings, which an ingest checks before committing."""
    went = [
        (report["stored"], "in the archive"),
        (report["superseded"], "superseded (retained)"),
        (report["readings_rejected"], "rejected"),
        (report["duplicates"], "exact duplicates"),
    ]
    parts = " + ".join(f"{count} {where}" for count, where in went)
    return f"ledger: {report['readings'] + report['readings_rejected']} readings in = {parts}"


def show_quality(title: str, by_station: Mapping[str, Mapping[str, int]]) -> None:
    """Print the number of readings by station, test and flag."""
    if rows := table_of(by_station):
        show_table(f"{title}: {len(rows)} of {len(by_station)} stations, the most doubtful first", COLUMNS, rows)


def skipped_text(skipped: Mapping[str, Mapping[str, int]]) -> str:
    """List in a line the variables whose stations could not be tested against neighbours, and why."""
    parts = []
    for variable, reasons in skipped.items():
        why = ", ".join(f"{reasons[reason]} {text}" for reason, text in _REASONS.items() if reasons.get(reason))
        parts.append(f"{variable} at {sum(reasons.values())} stations ({why})")
    return f"not tested by neighbours: {'; '.join(parts)}" if parts else ""


def show_skipped(skipped: Mapping[str, Mapping[str, int]]) -> None:
    if line := skipped_text(skipped):
        show_line(line)


def show_dry_run(run: DryRun) -> None:
    """Print what an ingest would read, and why."""
    for source in run.sources:
        _show_source(source, run.deployment)
    for name, reason in run.unreadable.items():
        show_line(f"cannot be read: {name}: {reason}")
    for name, question in run.questions.items():
        show_line(f"to be answered: {name}: {question}")
    if run.unknown:
        what = "no feed reads" if run.deployment.declared else "in no known format"
        show_line(f"{what}: {', '.join(run.unknown)}")
        show_line(f"known formats: {', '.join(sorted(FORMATS))}")
    if run.companions:
        show_line(f"files that go with the data, and are not read: {', '.join(run.companions)}")
    if not run.sources and not run.unreadable:
        show_line("nothing to read")
    if not run.deployment.declared and run.sources:
        show_message(
            "names and units that only a column's name tells are proposals: --write-deployment FILE writes them down"
        )
    show_message("a dry run: nothing was kept")


def _show_source(source: SourceSummary, deployment: Deployment) -> None:
    declared = deployment.declared
    counters: dict[str, str] = {}
    several = f" and {len(source.files) - 1} more files" if len(source.files) > 1 else ""
    rows: list[tuple[str, ...]] = []
    for seen in source.columns():
        column = seen.column
        as_is = declared or seen.why == "the file tells"
        variable = column.variable if as_is else seen.guess.variable.name
        unit = (column.unit if column.unit != "unknown" else None) or (None if declared else seen.guess.unit)
        statistic = column.statistic if as_is else seen.guess.statistic or column.statistic
        extent = f"{seen.low:g} to {seen.high:g}" if seen.low == seen.low else "no value"
        if words := counter_words(declared_variable(deployment, variable)):
            counters[variable] = words
        rows.append((seen.name, variable, unit or "unknown", statistic, extent, seen.why))
    rows += [(name, "left out", "", "", "", "nothing maps it, or it holds text") for name in source.layout.ignored]
    title = f"{source.files[0]}{several}: {source.feed.format} ({source.why})"
    show_table(title, ("column", "variable", "unit", "statistic", "values", "why"), rows)
    for note in source.layout.notes:
        show_line(f"  {note}")
    for variable, words in counters.items():
        show_line(f"  {variable}: {words}")
    zone, zone_origin = source.zone()
    columns = " and ".join(source.layout.options.text.time_columns)
    show_line(f"  time: {columns + ', ' if columns else ''}zone {zone} ({zone_origin})")
    if source.first_ns is not None and source.last_ns is not None:
        shown = ", ".join(list(source.stations)[:8]) + (" …" if len(source.stations) > 8 else "")
        show_line(
            f"  {source.rows} rows of {len(source.stations)} stations ({shown}), {format_instant(source.first_ns)} to "
            f"{format_instant(source.last_ns)}, every {source.interval_s:g} s"
        )
    else:
        show_line("  no row can be read")
    for kind, count in source.problems.most_common():
        show_line(f"  {count} rows rejected, {kind}; the first: {source.examples[kind]}")


def write_template(run: DryRun, path: Path) -> None:
    """Write a deployment file to start from; an existing file is not overwritten.

    Raises
    ------
    InvalidDeployment
        The file exists, or there is nothing to describe: the message has the questions to answer.
    """
    if path.exists():
        raise InvalidDeployment(f"{path} is there already and stays as it is; name another file, or remove it")
    path.write_text(propose_deployment(run, path), encoding="utf-8")
    show_message(f"{path}: a deployment file to start from; check its units and zones")
