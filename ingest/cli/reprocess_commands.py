"""Commands that reprocess a whole archive."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hypergrid.archive import Archive
from hypergrid.cli.archive_argument import ArchiveArgument
from hypergrid.cli.archive_commands import find_variables, parse_window
from hypergrid.cli.console import show_json, show_message, show_stages, show_table
from hypergrid.cli.options import JsonOption
from hypergrid.core.errors import InvalidQuery

if TYPE_CHECKING:
    from ingest.job import Engine


def reprocess(  # noqa: PLR0913 - one option a line
    archive: ArchiveArgument,
    *,
    start: Annotated[
        str | None, typer.Option("--from", help="First instant, as 2007-10-01; the first there is.")
    ] = None,
    stop: Annotated[str | None, typer.Option("--to", help="First instant that is left out.")] = None,
    quality: Annotated[
        Path | None, typer.Option(help="Deployment file with other parameters of the tests, under [quality].")
    ] = None,
    variable: Annotated[list[str] | None, typer.Option(help="Judge only this one; may be given again.")] = None,
    queries: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A query as JSON to compute; may be given again.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Where its surface goes: .nc, .zarr, …; of several queries a folder."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="A Spark cluster, spark://HOST:PORT, that sees the archive under the same path.")
    ] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores to use; all where absent.")] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Remove what runs left that were begun and will not be ended.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Judge a whole archive once more, or compute surfaces of years, on Spark. Killed, the same command goes on.

    Without --queries, or with --quality, the tests run; main gets the flags in one commit. With --queries surfaces are
    computed, with these flags.
    """
    # Imported here, because queries need neither ingest nor Spark.
    from ingest.reprocess import job  # noqa: PLC0415

    if abandon:
        names = job.abandon(archive)
        if as_json:
            show_json({"abandoned": list(names)})
        else:
            show_message(f"abandoned: {', '.join(names)}" if names else "no reprocessing was begun and not ended")
        return
    judge = quality is not None or not queries
    if variable and not judge:
        raise InvalidQuery("--variable says what is judged: give --quality as well, or leave --queries out")
    if out is not None and not queries:
        raise InvalidQuery("-o OUT is where the surfaces of --queries go: give them as well")
    from ingest.spark.batch import executors  # noqa: PLC0415

    with show_stages(quiet=as_json) as on_progress:
        on_progress("start Spark", 0.0)
        with executors(master=master, cores=cores) as workers:
            on_progress("start Spark", 1.0)
            report = job.reprocess(
                archive,
                job.ReprocessRequest(
                    judge,
                    quality,
                    find_variables(Archive.open(archive), variable),
                    parse_window(start, stop),
                    tuple(queries or ()),
                    out,
                ),
                workers=workers,
                now_ns=time.time_ns(),
                progress=on_progress,
                on_wait=lambda: show_message("another reprocessing of this archive is at work; waiting"),
            )
    if as_json:
        show_json(report.to_dict())
        return
    if report.judged is not None:
        from ingest.cli.report_text import show_skipped  # noqa: PLC0415 - as above

        done = report.judged
        words = dict.fromkeys(word for counts in (*done.before.values(), *done.after.values()) for word in counts)
        rows = [
            (name, when, *(counts.get(name, {}).get(word, 0) for word in words))
            for name in done.after
            for when, counts in (("before", done.before), ("after", done.after))
        ]
        show_table("Readings by flag", ("variable", "when", *words), rows)
        went_on = f", {done.resumed} of {done.parts} parts by an earlier start" if done.resumed else ""
        show_message(
            f"{done.changed:,} of {done.readings:,} readings changed their flags, by {report.parameters}{went_on}; "
            + (f"snapshot {done.snapshot}" if done.snapshot else "nothing was committed")
        )
        show_skipped(done.skipped)
    for surface in report.surfaces:
        show_message(
            f"{surface.out}: {surface.cells:,} cells, {surface.missing:,} missing, of snapshot {surface.snapshot}"
        )
    for warning in report.warnings:
        show_message(f"warning: {warning}")


def remap(archive: Path, *, deployment: Path | None, engine: "Engine", as_json: bool) -> None:
    """Run `ingest --remap`: read the raw files of an archive again, and show what changed."""
    from ingest.batch.report import RunListener  # noqa: PLC0415
    from ingest.reprocess.remap import remap as run  # noqa: PLC0415

    with show_stages(quiet=as_json) as on_progress:
        report = run(
            archive,
            deployment=deployment,
            now_ns=time.time_ns(),
            engine=engine,
            listener=RunListener(on_progress, lambda text: None if as_json else show_message(f"warning: {text}")),
        )
    if as_json:
        show_json(report.to_dict())
        return
    columns = ("readings", "how many")
    counts = {
        "as before": report.same,
        "with another value": report.replaced,
        "that were not there": report.added,
        "withdrawn (a missing value is in their place)": report.withdrawn,
        "left alone, as others had replaced them": report.kept,
        "with another flag, beside these": report.revised,
    }
    show_table(f"{report.files:,} raw files of {report.archive} read again", columns, counts.items())
    show_message(
        f"what was replaced is retained; snapshot {report.snapshot}" if report.snapshot else "nothing was committed"
    )


COMMANDS: Final = (reprocess,)
