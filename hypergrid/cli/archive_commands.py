"""Commands for a whole archive: snapshots, export of readings, layers, maintenance."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hypergrid.archive import DEFAULT_RETENTION, Archive, Change, compare_snapshots, diff_from_log
from hypergrid.cli.archive_argument import ArchiveArgument, ArchiveCommand
from hypergrid.cli.console import show_json, show_message, show_rows, show_stages, show_table
from hypergrid.cli.options import JsonOption, SnapshotOption
from hypergrid.core.errors import InvalidQuery, InvalidUnit
from hypergrid.core.names import find_name
from hypergrid.core.readings import Series
from hypergrid.core.times import (
    SECOND_NS,
    Window,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)
from hypergrid.query import open_archive

MAX_SHOWN: Final = 4
"""Runs and series of a change that a table lists; --json lists all."""


def snapshots(
    archive: ArchiveArgument,
    *,
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
    if cite is not None:
        Archive.open(archive, snapshot=cite).cite()
    if release is not None:
        Archive.open(archive).release(release)
    if diff is None:
        if exact:
            raise InvalidQuery("--exact goes with --diff OLDER NEWER, the snapshots that are to be compared")
        opened = Archive.open(archive)
        cited_by = opened.cited_by
        listed = [
            (
                s.id,
                format_instant(s.time_ns if as_json else s.time_ns // SECOND_NS * SECOND_NS),
                s.message,
                s.id in cited_by,
                cited_by.get(s.id, ""),
            )
            for s in opened.snapshots
        ]
        columns = ("snapshot", "committed", "what", "cited", "by")
        show_rows(f"Snapshots of {opened.name}", columns, listed, as_json=as_json)
        return
    with show_stages(quiet=as_json) as on_progress:
        older, newer = (Archive.open(archive, snapshot=snapshot_id) for snapshot_id in diff)
        changes = (
            compare_snapshots(older, newer, progress=on_progress) if exact else diff_from_log(newer, older.snapshot)
        )
    if as_json:
        show_json([_change_json(change) for change in changes])
        return
    rows = [
        (
            c.variable,
            c.kind,
            "not told" if c.readings is None else c.readings,
            _format_list(c.series, _format_series),
            _format_list(c.runs, _format_span),
        )
        for c in changes
    ]
    show_table(f"From {diff[0]} to {diff[1]}", ("variable", "how", "readings", "series", "slices"), rows)


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
    archive: ArchiveArgument,
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write: .csv, .parquet, .nc or .smet.")],
    variable: Annotated[
        list[str] | None, typer.Option(help="Only this variable (name or title); may be given again.")
    ] = None,
    station: Annotated[
        list[str] | None, typer.Option(help="Only this station (id or name); may be given again.")
    ] = None,
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
    opened = Archive.open(archive, snapshot=snapshot, as_of_ns=until)
    stations = {name: station_record.name for name, station_record in opened.stations.items()}
    chosen = Selection(
        find_variables(opened, variable), tuple(find_name(name, stations) for name in station or ()),
        parse_window(start, stop), tuple(flag or ()),
    )  # fmt: skip
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


def find_variables(archive: Archive, given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the variables that are meant by their names or titles; unknown ones as they were given."""
    titles = {name: variable.long_name for name, variable in archive.variables.items()}
    return tuple(find_name(name, titles) for name in given or ())


def parse_window(start: str | None, stop: str | None) -> Window | None:
    """Parse --from and --to into a window; None if neither is given."""
    if start is None and stop is None:
        return None
    # By default the range of instants in an archive.
    return Window.parse("1900-01-01" if start is None else start, "2261-12-31" if stop is None else stop)


def maintain(
    archive: ArchiveArgument,
    *,
    keep: Annotated[
        str, typer.Option(help="How long a snapshot can be read after another became the newest.")
    ] = format_duration(round(DEFAULT_RETENTION.keep_s * SECOND_NS)),
    as_json: JsonOption = False,
) -> None:
    """Let old snapshots expire, but for cited ones, and remove what none uses; committers do so by themselves."""
    opened = Archive.open(archive)
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


layers_app = typer.Typer(
    help="Fields that do not change with time, such as elevation, for the methods that use them.", no_args_is_help=True
)


@layers_app.command("add", cls=ArchiveCommand)
def add_layer(
    archive: ArchiveArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A raster: GeoTIFF, or what else GDAL reads.")],
    *,
    name: Annotated[str, typer.Option(help="Its name in queries; one that has it is replaced.")] = "elevation",
    unit: Annotated[str | None, typer.Option(help="Unit of the values; what the raster states where absent.")] = None,
    band: Annotated[int | None, typer.Option(min=1, help="Which band, where there are several.")] = None,
    bounds: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(metavar="WEST SOUTH EAST NORTH", help="Part to take, in degrees; all where absent."),
    ] = None,
    crs: Annotated[str | None, typer.Option(help="Coordinate reference system, where the raster states none.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a raster into the archive, in longitude and latitude, in one commit."""
    from hypergrid.layers.raster_reader import read_raster  # noqa: PLC0415 - only this command reads rasters

    opened = open_archive(archive)
    try:
        layer = read_raster(file, name=name, unit=unit, band=band, bounds=bounds, crs=crs)
    except InvalidUnit as error:
        given = f"--unit {unit}" if unit else "the unit that the raster states"
        remedy = "; 'elevation' is kept in metres, another layer takes --name" if name == "elevation" else ""
        raise InvalidUnit(
            f"layer {name!r} with {given}: {error}; give the unit of its values with --unit{remedy}"
        ) from error
    change = opened.store.add_layer(layer, now_ns=time.time_ns())
    entry, replaced = change.entry, change.replaced
    if as_json:
        show_json({**asdict(entry), "changed": change.changed, "replaced": replaced and asdict(replaced)})
        return
    if not change.changed:
        show_message(f"nothing new: the archive has this layer as {name!r}; nothing was committed")
        return
    show_message(f"layer {name!r} [{entry.unit}]: {entry.rows} x {entry.columns} cells from {entry.description}")
    if replaced is not None:
        show_message(f"it replaces {replaced.rows} x {replaced.columns} cells from {replaced.description}")
    if entry.unit == "unknown":
        show_message("warning: its unit is unknown; state it with --unit")
    outside = [
        s.id for s in opened.stations.values() if math.isnan(layer.sample([(s.position.lon, s.position.lat)])[0])
    ]
    if outside:
        show_message(
            f"warning: {len(outside)} of {len(opened.stations)} stations have no value of it: {', '.join(outside[:20])}"
        )


@layers_app.command("list", cls=ArchiveCommand)
def list_layers(archive: ArchiveArgument, *, snapshot: SnapshotOption = None, as_json: JsonOption = False) -> None:
    """List the layers with their units, extents and sources."""
    opened = open_archive(archive, snapshot=snapshot)
    entries = opened.layers.entries.values()
    if as_json:
        show_json([asdict(entry) for entry in entries])
        return
    rows = [
        (
            entry.name,
            entry.unit,
            entry.rows,
            entry.columns,
            f"{entry.west:.6g} {entry.south:.6g} {entry.east:.6g} {entry.north:.6g}",
            entry.description,
        )
        for entry in entries
    ]
    columns = ("layer", "unit", "rows", "columns", "west south east north", "description")
    show_table(f"Layers of {opened.name}", columns, rows)


@layers_app.command("remove", cls=ArchiveCommand)
def remove_layer(
    archive: ArchiveArgument, name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the layer.")]
) -> None:
    """Remove a layer, in one commit; older snapshots keep it."""
    opened = open_archive(archive)
    name = find_name(name, dict.fromkeys(opened.layers.entries, ""))
    removed = opened.store.remove_layer(name, now_ns=time.time_ns())
    show_message(f"layer {name!r} is removed: it was from {removed.description}; older snapshots keep it")
