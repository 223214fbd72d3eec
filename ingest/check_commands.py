"""The command that examines an archive, and mends it."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hypergrid.console import Stage, say, show_json, show_table, stages
from hypergrid.errors import DamagedArchive, InvalidQuery, NotAnArchive
from hypergrid.options import ArchivePlace, ArchivePlaceOption, JsonOption, SnapshotOption, placed
from hypergrid.store import LAYOUT, MARKER, Archive, Defect, check_files, read_layout
from hypergrid.store.state_backup import check_state

if TYPE_CHECKING:
    from ingest.restoring import RepairReport
    from ingest.verifying import Verified as Comparison


def check(
    place: ArchivePlace = None,
    *,
    archive: ArchivePlaceOption = None,
    snapshot: SnapshotOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read all raw copies too: compare their hashes and all values.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="First mend what is damaged, from raw copies and whole snapshots.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Examine an archive; name everything that is wrong, and what to do. Exit status 1 where something is."""
    folder = placed(place, archive)
    if repair and snapshot is not None:
        message = "check --repair mends the newest snapshot; leave --snapshot away"
        raise InvalidQuery(message)
    with stages(quiet=as_json) as tell:
        mended = _repaired(folder, tell, deep=deep) if repair else None
        defects, examined = _examined(folder, snapshot, tell, deep=deep)
        verified = _verified(folder, examined, tell) if deep else None
    if verified is not None:
        defects += verified.defects()
    if as_json:
        told: dict[str, Any] = {} if mended is None else {"repair": mended.to_dict()}
        told |= {} if verified is None else {"values": verified.to_json()}
        found = [one.to_json() for one in defects]
        show_json({"archive": str(folder), "snapshot": examined, "defects": found, **told})
        if defects:
            sys.exit(1)
        return
    if mended is not None:
        _show_repair(mended)
    if verified is not None:
        _show_verified(verified)
    if defects:
        rows = [(one.kind, one.where, one.what, one.remedy) for one in defects]
        show_table(f"Defects of {folder}", ("kind", "where", "what is wrong", "what to do"), rows)
    else:
        rest = "" if verified is None or verified.is_complete else "; not all values were compared, as was said above"
        say(f"{folder} is whole: nothing is wrong with snapshot {examined}{rest}")
    if (layout := read_layout(folder)) not in (None, LAYOUT):
        say(
            f"its layout ({layout}) has no checksums, so that a byte that was flipped on the disk can pass: "
            f"'hypergrid upgrade {folder}' gives it some"
        )
    if defects:
        sys.exit(1)


def _repaired(folder: Path, tell: Stage, *, deep: bool) -> "RepairReport":
    from ingest.restoring import repair  # noqa: PLC0415 - few archives are damaged

    return repair(folder, now_ns=time.time_ns(), deep=deep, progress=tell)


def _verified(folder: Path, snapshot: str | None, tell: Stage) -> "Comparison | None":
    from ingest.verifying import Verified, verify  # noqa: PLC0415 - only who asks for it needs the parsers

    if snapshot is None:
        return None
    try:
        return verify(Archive.open(folder, snapshot=snapshot), progress=tell)
    except DamagedArchive as error:
        return Verified.nothing(str(error))


def _examined(folder: Path, snapshot: str | None, tell: Stage, *, deep: bool) -> tuple[list[Defect], str | None]:
    from ingest.examining import check_parts  # noqa: PLC0415 - it knows all that ingest keeps

    try:
        opened = Archive.open(folder, snapshot=snapshot)
    except NotAnArchive as error:
        if not (folder / MARKER).is_file():
            raise
        remedy = "restore the archive from a copy, or ingest its raw files into a new one"
        unreadable = Defect("unreadable", str(folder), str(error), remedy)
        return [unreadable, *check_files(folder, tell), *check_state(folder), *check_parts(folder, None, tell)], None
    return [*opened.check(deep=deep, progress=tell), *check_parts(folder, opened, tell)], opened.snapshot


def _show_verified(verified: "Comparison") -> None:
    for warning in verified.warnings:
        say(f"warning: {warning}")
    say(f"{verified.readings:,} readings in force are what raw copies say")
    if verified.other:
        say(
            f"{verified.other:,} readings in force were not found in raw copies: amended since, withdrawn, written "
            "from Python, not compared, or the copy is gone"
        )
    if verified.gave_way:
        say(
            f"of files that were read anew {verified.gave_way:,} readings gave way to others that were in force, or "
            "were changed since"
        )
    if verified.waiting_from is not None:
        say(f"records of streams from {verified.waiting_from:,} on were not compared, as rows of them may wait still")


def _show_repair(report: "RepairReport") -> None:
    for warning in report.warnings:
        say(f"warning: {warning}")
    if not report.mended:
        say("nothing was to be mended")
        return
    rows = [(one.where, one.what, "lost" if one.lost else "mended") for one in report.mended]
    show_table(f"Repair of {report.archive}", ("where", "what", ""), rows)
    if report.snapshot is not None:
        say(
            f"{report.restored:,} readings came back from raw files, {report.kept:,} from what could still be read; "
            f"{report.lost:,} are lost, and {report.superseded_lost:,} that others had replaced"
        )


COMMANDS: Final = (check,)
"""What the command line registers."""
