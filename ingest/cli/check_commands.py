"""The commands that examine an archive and mend it, and that give it today's layout."""

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hypergrid.archive import LAYOUT, MARKER, Archive, Defect, check_files, read_layout
from hypergrid.archive.state_backup import check_state
from hypergrid.cli.console import Stage, say, show_json, show_table, stages
from hypergrid.cli.options import ArchivePlace, ArchivePlaceOption, JsonOption, SnapshotOption, placed
from hypergrid.core.errors import DamagedArchive, InvalidQuery, NotAnArchive

if TYPE_CHECKING:
    from ingest.repair.restore_values import RepairReport
    from ingest.repair.verified_upgrade import UpgradeReport
    from ingest.repair.verify_values import Verified as Comparison


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


def upgrade(
    place: ArchivePlace = None,
    *,
    archive: ArchivePlaceOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Upgrade though values are others than in raw copies, and store these.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Give an archive of an older layout today's, once its values are those of raw copies; one that ended goes on."""
    from ingest.repair.verified_upgrade import upgrade_compared  # noqa: PLC0415 - once in the life of an archive

    waiting = partial(say, "a commit is at work; waiting")
    with stages(quiet=as_json) as tell:
        report = upgrade_compared(
            placed(place, archive), now_ns=time.time_ns(), mend=repair, progress=tell, on_wait=waiting
        )
    done = report.upgraded
    if as_json:
        show_json(report.to_dict())
        return
    if not done.changed:
        say(f"{done.archive} has layout {done.layout} already; nothing was changed")
    else:
        went_on = ", after one that was interrupted" if done.resumed else ""
        say(f"{done.archive} has layout {done.layout}, and had {done.layout_before}{went_on}; older snapshots stay")
        _show_compared(report)
    if report.repaired is not None:
        _show_repair(report.repaired)


def _show_compared(report: "UpgradeReport") -> None:
    if report.values is None:
        say(f"its values were not compared again: 'hypergrid check {report.upgraded.archive} --deep' does")
        return
    for one in report.values.failed:
        say(f"warning: {one.where}: {one.what}; it was upgraded as it was")
    _show_verified(report.values)
    say(
        "flags and the tests that set them are in no raw copy, so that nothing tells whether a bit of them was "
        "flipped before: 'hypergrid reprocess' judges all readings anew"
    )


def _repaired(folder: Path, tell: Stage, *, deep: bool) -> "RepairReport":
    from ingest.repair.restore_values import repair  # noqa: PLC0415 - few archives are damaged

    return repair(folder, now_ns=time.time_ns(), deep=deep, progress=tell)


def _verified(folder: Path, snapshot: str | None, tell: Stage) -> "Comparison | None":
    from ingest.repair.verify_values import Verified, verify  # noqa: PLC0415 - only who asks for it needs the parsers

    if snapshot is None:
        return None
    try:
        return verify(Archive.open(folder, snapshot=snapshot), progress=tell)
    except DamagedArchive as error:
        return Verified.nothing(str(error))


def _examined(folder: Path, snapshot: str | None, tell: Stage, *, deep: bool) -> tuple[list[Defect], str | None]:
    from ingest.repair.examiners import check_parts  # noqa: PLC0415 - it knows all that ingest keeps

    try:
        opened = Archive.open(folder, snapshot=snapshot)
        found = list(opened.check(deep=deep, progress=tell))
    except NotAnArchive as error:
        if not (folder / MARKER).is_file():
            raise
        remedy = (
            "'--repair' mends what can be mended; else restore the archive from a copy, or ingest its raw files anew"
        )
        unreadable = Defect("unreadable", str(folder), str(error), remedy)
        return [unreadable, *check_files(folder, tell), *check_state(folder), *check_parts(folder, None, tell)], None
    return [*found, *check_parts(folder, opened, tell)], opened.snapshot


def _show_verified(verified: "Comparison") -> None:
    for warning in verified.warnings:
        say(f"warning: {warning}")
    say(f"{verified.readings:,} readings in force are what raw copies say")
    if verified.other:
        say(
            f"{verified.other:,} readings in force were not found in raw copies: amended since, withdrawn, written "
            "from Python, not compared, or the copy is gone"
        )
    if verified.other_arrivals:
        say(
            f"{verified.other_arrivals:,} of those that are what raw copies say arrived at another instant than these "
            "tell: read anew, repaired where no arrival could be read, or changed on a disk without checksums"
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
    if report.lost_readings:
        gone = [one.to_json() for one in report.lost_readings]
        columns = ("variable", "station", "source", "from", "to", "count")
        cells = [[one[name] for name in columns] for one in gone]
        show_table(f"Readings that are gone from {report.archive} (empty: not known)", columns, cells)
        if report.lost_unlisted:
            say(f"and {report.lost_unlisted:,} more series and times")
    if report.snapshot is not None:
        say(
            f"{report.restored:,} readings came back from raw files, {report.kept:,} from what could still be read; "
            f"{report.lost:,} are lost, and {report.superseded_lost:,} that others had replaced"
        )


COMMANDS: Final = (check, upgrade)
"""What the command line registers."""
