"""Commands of `hypergrid layers …`."""

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hypergrid.cli.console import show_json, show_message, show_table
from hypergrid.cli.options import ArchiveOption, JsonOption, SnapshotOption
from hypergrid.core.errors import InvalidUnit
from hypergrid.query import open_archive

layers_app = typer.Typer(
    help="Fields that do not change with time, such as elevation, for the methods that use them.", no_args_is_help=True
)


@layers_app.command("add")
def add_layer(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A raster: GeoTIFF, or what else GDAL reads.")],
    archive: ArchiveOption,
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


@layers_app.command("list")
def list_layers(archive: ArchiveOption, *, snapshot: SnapshotOption = None, as_json: JsonOption = False) -> None:
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


@layers_app.command("remove")
def remove_layer(name: Annotated[str, typer.Argument(help="Name of the layer.")], archive: ArchiveOption) -> None:
    """Remove a layer, in one commit; older snapshots keep it."""
    removed = open_archive(archive).store.remove_layer(name, now_ns=time.time_ns())
    show_message(f"layer {name!r} is removed: it was from {removed.description}; older snapshots keep it")
