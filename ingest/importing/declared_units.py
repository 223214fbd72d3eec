"""Units that an uploaded deployment declares, made explicit before its variables take those of the archive."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypergrid.archive import Archive
from hypergrid.core.errors import ArchiveConflict, InvalidUnit
from hypergrid.core.units import DIMENSIONLESS_TEXT, Variable, convert
from ingest.batch.dry_run import SourceSummary
from ingest.deployment.deployment_file import FILE_NAME, UNKNOWN_UNIT, Column, Deployment


def keep_declared_units(
    document: dict[str, Any], deployment: Deployment, sources: Sequence[Sequence[SourceSummary]], archive: Archive
) -> None:
    """Write units of variables into columns without one, where the archive keeps other units.

    A column without a unit has that of its variable, so that values would be stored unconverted once the document
    declares the variable in the unit of the archive. What a counter declares in its unit is converted.

    Parameters
    ----------
    document
        Document of the deployment; changed.
    sources
        Sources of each feed of the document.

    Raises
    ------
    ArchiveConflict
        A unit does not convert to that of the archive, or cannot be written into the columns.
    """
    mapped = [column.variable for feed in deployment.feeds for column in feed.columns]
    differing: dict[str, tuple[Variable, Variable]] = {}
    for name in dict.fromkeys([*mapped, *(variable.name for variable in deployment.variables)]):
        declared, held = deployment.variable(name), archive.variables.get(name)
        if held is not None and held.unit != declared.unit:
            _check_convertible(declared, held)
            differing[name] = declared, held
    if not differing:
        return
    for name in document.get("quality", {}):
        if name in differing:
            _refuse(*differing[name], f"as do the limits in [quality.{name}]")
    for feed, group in zip(document["feed"], sources, strict=True):
        columns = deployment.feeds_by_name[feed["name"]].columns
        for column in columns:
            if column.variable in differing and column.unit == UNKNOWN_UNIT:
                _keep_unit(feed, column, columns, group, differing[column.variable])
        if not columns and not feed.get("columns"):
            _check_stated(feed["name"], group, differing)
    for entry in document.get("variable", ()):
        for key in {"resolution", "rollover"} & entry.keys() if entry["name"] in differing else ():
            declared, held = differing[entry["name"]]
            entry[key] = float(convert(entry[key], declared.unit, held.unit))


def _keep_unit(
    feed: dict[str, Any],
    column: Column,
    columns: Sequence[Column],
    group: Sequence[SourceSummary],
    units: tuple[Variable, Variable],
) -> None:
    declared, held = units
    in_files = {seen.column.unit for source in group for seen in source.columns() if seen.name == column.name}
    if in_files and UNKNOWN_UNIT not in in_files:
        # The files state it, which precedes that of the variable.
        return
    if in_files - {UNKNOWN_UNIT, declared.unit}:
        _refuse(declared, held, f"and only some files of feed {feed['name']!r} state the unit of {column.name!r}")
    # A format with columns of its own may have no table of them.
    entries = feed.setdefault("columns", {each.name: each.variable for each in columns})
    entry = entries[column.name]
    entries[column.name] = {**({"variable": entry} if isinstance(entry, str) else entry), "unit": declared.unit}


def _check_stated(
    feed: str, group: Sequence[SourceSummary], differing: Mapping[str, tuple[Variable, Variable]]
) -> None:
    """Refuse a feed without columns unless its files state their units."""
    columns = [seen.column for source in group for seen in source.columns()]
    unstated = [column.variable for column in columns if column.unit == UNKNOWN_UNIT]
    # Without files, any of the variables may come.
    for name in unstated if group else differing:
        if name in differing:
            _refuse(*differing[name], f"and feed {feed!r} has no [feed.columns] in which that can be said")


def _check_convertible(declared: Variable, held: Variable) -> None:
    try:
        convert(0.0, declared.unit, held.unit)
    except InvalidUnit:
        _refuse(declared, held, "which does not convert to it")
    if (declared.unit in DIMENSIONLESS_TEXT) != (held.unit in DIMENSIONLESS_TEXT):
        _refuse(declared, held, "which does not convert to it")


def _refuse(declared: Variable, held: Variable, reason: str) -> None:
    raise ArchiveConflict(
        f"the archive keeps {held.name!r} in {held.unit!r}; {FILE_NAME} declares it in {declared.unit!r}, {reason}; "
        f"declare {held.unit!r}, with the unit of the files in each of its columns, or make another archive"
    )
