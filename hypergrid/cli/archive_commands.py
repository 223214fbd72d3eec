"""Commands for a whole archive: snapshots, export of readings, maintenance."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hypergrid.archive import DEFAULT_RETENTION, Archive, Change, compare_snapshots, diff_from_log
from hypergrid.cli.console import show_json, show_message, show_stages, show_table
from hypergrid.cli.options import ArchivePlace, ArchivePlaceOption, JsonOption, SnapshotOption, choose_archive
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.readings import Series
from hypergrid.core.times import (
    SECOND_NS,
    Window,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)

MAX_SHOWN: Final = 4
"""Runs and series of a change that a table lists; --json lists all."""


def snapshots(
    archive_argument: ArchivePlace = None,
    *,
    archive: ArchivePlaceOption = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="OLDER NEWER", help="Say what changed between two snapshots, by their ids."),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="With --diff: compare the readings, not what the commits tell.")
    ] = False,
    cite: Annotated[str | None, typer.Option(metavar="ID", help="Let a snapshot stay; others expire.")] = None,
    release: Annotated[str | None, typer.Option(metavar="ID", help="Let a snapshot that was cited expire.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the committed versions, newest first; or say which slices and series changed between two of them."""
    folder = choose_archive(archive_argument, archive)
    if cite is not None:
        Archive.open(folder, snapshot=cite).cite()
    if release is not None:
        Archive.open(folder).release(release)
    if diff is None:
        if exact:
            raise InvalidQuery("--exact goes with --diff OLDER NEWER, the snapshots that are to be compared")
        opened = Archive.open(folder)
        _show_snapshots(opened, as_json=as_json)
        return
    with show_stages(quiet=as_json) as on_progress:
        older, newer = (Archive.open(folder, snapshot=snapshot_id) for snapshot_id in diff)
        changes = (
            compare_snapshots(older, newer, progress=on_progress) if exact else diff_from_log(newer, older.snapshot)
        )
    if as_json:
        show_json([_change_json(change) for change in changes])
        return
    columns = ("variable", "how", "readings", "series", "slices")
    rows = [
        (
            c.variable,
            c.kind,
            _format_count(c),
            _format_list(c.series, _format_series),
            _format_list(c.runs, _format_span),
        )
        for c in changes
    ]
    show_table(f"From {diff[0]} to {diff[1]}", columns, rows)


def _show_snapshots(opened: Archive, *, as_json: bool) -> None:
    cited_by = opened.cited_by
    rows = [
        (s.id, format_instant(s.time_ns), s.message, s.id in cited_by, cited_by.get(s.id, "")) for s in opened.snapshots
    ]
    columns = ("snapshot", "committed", "what", "cited", "by")
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(f"Snapshots of {opened.name}", columns, rows)


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "variable": change.variable,
        "how": change.kind,
        "readings": change.readings,
        "slices": [{"from": format_instant(run.start_ns), "to": format_instant(run.stop_ns)} for run in change.runs],
        "series": [
            {key: value for key, value in asdict(series_change).items() if key != "variable"}
            for series_change in change.series
        ],
    }


def _format_count(change: Change) -> object:
    return "not told" if change.readings is None else change.readings


def _format_series(series: Series) -> str:
    height = "" if series.height_m is None else f" {series.height_m:g} m"
    return f"{series.station}{height}"


def _format_span(window: Window) -> str:
    return f"{format_instant(window.start_ns)} to {format_instant(window.stop_ns)}"


def _format_list(listed: Sequence[Any], text: Callable[[Any], str]) -> str:
    shown = ", ".join(text(entry) for entry in listed[:MAX_SHOWN])
    more = f" and {len(listed) - MAX_SHOWN:,} more" if len(listed) > MAX_SHOWN else ""
    return f"{len(listed):,}: {shown}{more}" if listed else "not told"


def export(
    archive_argument: ArchivePlace = None,
    *,
    archive: ArchivePlaceOption = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write: .csv, .parquet, .nc or .smet.")],
    variable: Annotated[list[str] | None, typer.Option(help="Only this variable; may be given again.")] = None,
    station: Annotated[list[str] | None, typer.Option(help="Only this station; may be given again.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="First instant, as 2007-10-01.")] = None,
    stop: Annotated[str | None, typer.Option("--to", help="First instant that is left out.")] = None,
    flag: Annotated[list[int] | None, typer.Option(help="Only this flag of QARTOD; may be given again.")] = None,
    snapshot: SnapshotOption = None,
    as_of: Annotated[str | None, typer.Option(help="Only what had arrived by this instant, as it was then.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write readings, not surfaces, to files that others read, and that ingest reads back."""
    from hypergrid.formats.readings import Selection, export_readings  # noqa: PLC0415 - only this command needs it

    until = None if as_of is None else parse_instant(as_of)
    opened = Archive.open(choose_archive(archive_argument, archive), snapshot=snapshot, as_of_ns=until)
    chosen = Selection(tuple(variable or ()), tuple(station or ()), parse_window(start, stop), tuple(flag or ()))
    started_s = time.monotonic()
    try:
        # Cited before reading, so that the snapshot neither expires during the export nor afterwards.
        opened.cite(on_wait=lambda: show_message("a commit is at work; waiting to cite the snapshot"))
    except OSError as error:
        show_message(f"warning: the snapshot cannot be cited, and will expire: {error}")
    with show_stages(quiet=as_json) as on_progress:
        done = export_readings(opened, out, chosen, progress=lambda fraction: on_progress("export", fraction))
    summary = {
        "files": [str(path) for path in done.files], "readings": done.readings, "snapshot": done.snapshot,
        "seconds": round(time.monotonic() - started_s, 3),
    }  # fmt: skip
    if as_json:
        show_json(summary)
        return
    listed = ", ".join(str(path) for path in done.files[:MAX_SHOWN])
    more = f" and {len(done.files) - MAX_SHOWN} more" if len(done.files) > MAX_SHOWN else ""
    show_message(f"{listed}{more}: {done.readings:,} readings of snapshot {done.snapshot}, {summary['seconds']} s")


def parse_window(start: str | None, stop: str | None) -> Window | None:
    """Parse --from and --to into a window; None if neither is given."""
    if start is None and stop is None:
        return None
    first, last = (FIRST_INSTANT if start is None else start), (LAST_INSTANT if stop is None else stop)
    return Window.parse(first, last)


FIRST_INSTANT, LAST_INSTANT = "1900-01-01", "2261-12-31"
"""Default start and end of an export: the range of instants in an archive."""


def maintain(
    archive_argument: ArchivePlace = None,
    *,
    archive: ArchivePlaceOption = None,
    keep: Annotated[
        str, typer.Option(help="How long a snapshot can be read after another became the newest.")
    ] = format_duration(round(DEFAULT_RETENTION.keep_s * SECOND_NS)),
    as_json: JsonOption = False,
) -> None:
    """Let old snapshots expire, but for cited ones, and remove what none uses; committers do so by themselves."""
    opened = Archive.open(choose_archive(archive_argument, archive))
    done = opened.maintain(replace(DEFAULT_RETENTION, keep_s=parse_duration(keep) / SECOND_NS))
    if as_json:
        show_json(asdict(done))
        return
    show_message(
        f"{done.snapshots_expired:,} snapshots expired; {done.objects_removed:,} objects ({done.bytes_removed:,} bytes)"
        f" were removed in {done.seconds:.2f} s; {done.snapshots_left:,} snapshots are left, {len(opened.cited)} cited"
    )
    if done.held_by:
        show_message(
            f"nothing expired while a reprocessing or a backup is at work (branches: {', '.join(done.held_by)})"
        )


COMMANDS: Final = (snapshots, export, maintain)
"""Functions that the command line registers as commands."""
