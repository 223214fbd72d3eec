"""Commands that check, repair and upgrade an archive."""

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hypergrid.archive import LAYOUT, MARKER, Archive, Defect, check_files, read_layout
from hypergrid.archive.state_backup import check_state
from hypergrid.cli.archive_argument import ArchiveArgument
from hypergrid.cli.console import OnProgress, show_json, show_message, show_stages, show_table
from hypergrid.cli.options import JsonOption, SnapshotOption
from hypergrid.core.errors import DamagedArchive, InvalidQuery, NotAnArchive, UnknownLayout

if TYPE_CHECKING:
    from ingest.repair.restore_values import RepairReport, UpgradeReport
    from ingest.repair.verify_values import RawComparisonReport as Comparison


_NAMED: Final = 3
"""Number of places listed per kind of defect; the JSON has all."""


def check(
    archive: ArchiveArgument,
    *,
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
    if repair and snapshot is not None:
        raise InvalidQuery("check --repair mends the newest snapshot; leave --snapshot away")
    with show_stages(quiet=as_json) as on_progress:
        mended = _run_repair(archive, on_progress, deep=deep) if repair else None
        defects, examined = _examine_archive(archive, snapshot, on_progress, deep=deep)
        verified = _run_verification(archive, examined, on_progress) if deep else None
    if verified is not None:
        defects += verified.defects()
    if as_json:
        sections: dict[str, Any] = {} if mended is None else {"repair": mended.to_dict()}
        sections |= {} if verified is None else {"values": verified.to_json()}
        defects_json = [defect.to_json() for defect in defects]
        show_json({"archive": str(archive), "snapshot": examined, "defects": defects_json, **sections})
    else:
        if mended is not None:
            _show_repair(mended)
        if verified is not None:
            _show_verified(verified)
        if defects:
            rows = _group_alike(defects)
            show_table(f"Defects of {archive}", ("kind", "where", "what is wrong", "what to do"), rows)
        else:
            is_complete = verified is None or verified.is_complete
            rest = "" if is_complete else "; not all values were compared, as was said above"
            show_message(f"{archive} is whole: nothing is wrong with snapshot {examined}{rest}")
        if (layout := read_layout(archive)) not in (None, LAYOUT):
            show_message(
                f"its layout ({layout}) has no checksums, so that a byte that was flipped on the disk can pass: "
                f"'hypergrid upgrade {archive}' gives it some"
            )
    if defects:
        sys.exit(1)


def upgrade(
    archive: ArchiveArgument,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Upgrade though values are others than in raw copies, and store these.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Give an archive of an older layout today's, once its values are those of raw copies; one that ended goes on."""
    from ingest.repair.restore_values import upgrade_compared  # noqa: PLC0415 - once in the life of an archive

    waiting = partial(show_message, "a commit is at work; waiting")
    with show_stages(quiet=as_json) as notify:
        report = upgrade_compared(archive, now_ns=time.time_ns(), mend=repair, progress=notify, on_wait=waiting)
    done = report.upgraded
    if as_json:
        show_json(report.to_dict())
        return
    if not done.changed:
        show_message(f"{done.archive} has layout {done.layout} already; nothing was changed")
    else:
        went_on = ", after one that was interrupted" if done.resumed else ""
        show_message(
            f"{done.archive} has layout {done.layout}, and had {done.layout_before}{went_on}; older snapshots stay"
        )
        _show_compared(report)
    if report.repaired is not None:
        _show_repair(report.repaired)


def _show_compared(report: "UpgradeReport") -> None:
    if report.values is None:
        show_message(f"its values were not compared again: 'hypergrid check {report.upgraded.archive} --deep' does")
        return
    for item in report.values.failed:
        show_message(f"warning: {item.where}: {item.what}; it was upgraded as it was")
    _show_verified(report.values)
    show_message(
        "flags and the tests that set them are in no raw copy, so that nothing tells whether a bit of them was "
        "flipped before: 'hypergrid reprocess' judges all readings anew"
    )


def _group_alike(defects: Sequence[Defect]) -> list[tuple[str, str, str, str]]:
    """Group equal defects into table rows, which list the first places and count the rest."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for defect in defects:
        places.setdefault((defect.kind, defect.what, defect.remedy), []).append(defect.where)
    rows = []
    for (kind, what, remedy), where in places.items():
        rest = f", and {len(where) - _NAMED:,} more (--json names all)" if len(where) > _NAMED else ""
        rows.append((kind, ", ".join(where[:_NAMED]) + rest, what, remedy))
    return rows


def _run_repair(folder: Path, notify: OnProgress, *, deep: bool) -> "RepairReport":
    from ingest.repair.restore_values import repair  # noqa: PLC0415 - few archives are damaged

    return repair(folder, now_ns=time.time_ns(), deep=deep, progress=notify)


def _run_verification(folder: Path, snapshot: str | None, notify: OnProgress) -> "Comparison | None":
    from ingest.repair.verify_values import RawComparisonReport, verify  # noqa: PLC0415 - only --deep needs the parsers

    if snapshot is None:
        return None
    try:
        return verify(Archive.open(folder, snapshot=snapshot), progress=notify)
    except DamagedArchive as error:
        return RawComparisonReport.nothing(str(error))


def _examine_archive(
    folder: Path, snapshot: str | None, notify: OnProgress, *, deep: bool
) -> tuple[list[Defect], str | None]:
    from ingest.repair.verify_values import check_parts  # noqa: PLC0415 - it imports most of ingest

    try:
        opened = Archive.open(folder, snapshot=snapshot)
        result = list(opened.check(deep=deep, progress=notify))
    except NotAnArchive as error:
        # An archive of an unsupported layout cannot be examined; the message says what to do.
        if isinstance(error, UnknownLayout) or not (folder / MARKER).is_file():
            raise
        remedy = (
            "'--repair' mends what can be mended; else restore the archive from a copy, or ingest its raw files anew"
        )
        unreadable = Defect("unreadable", str(folder), str(error), remedy)
        return [
            unreadable,
            *check_files(folder, notify),
            *check_state(folder),
            *check_parts(folder, None, notify),
        ], None
    return [*result, *check_parts(folder, opened, notify)], opened.snapshot


def _show_verified(verified: "Comparison") -> None:
    for warning in verified.warnings:
        show_message(f"warning: {warning}")
    show_message(f"{verified.readings:,} readings in force are what raw copies say")
    if verified.other:
        show_message(
            f"{verified.other:,} readings in force were not found in raw copies: amended since, withdrawn, written "
            "from Python, not compared, or the copy is gone"
        )
    if verified.other_arrivals:
        show_message(
            f"{verified.other_arrivals:,} of those that are what raw copies say arrived at another instant than these "
            "tell: read anew, repaired where no arrival could be read, or changed on a disk without checksums"
        )
    if verified.gave_way:
        show_message(
            f"of files that were read anew {verified.gave_way:,} readings gave way to others that were in force, or "
            "were changed since"
        )
    if verified.waiting_from is not None:
        show_message(
            f"records of streams from {verified.waiting_from:,} on were not compared, as rows of them may wait still"
        )


def _show_repair(report: "RepairReport") -> None:
    for warning in report.warnings:
        show_message(f"warning: {warning}")
    if not report.mended:
        show_message("nothing was to be mended")
        return
    rows = [(outcome.where, outcome.what, "lost" if outcome.lost else "mended") for outcome in report.mended]
    show_table(f"Repair of {report.archive}", ("where", "what", ""), rows)
    if report.lost_readings:
        gone = [lost_reading.to_json() for lost_reading in report.lost_readings]
        columns = ("variable", "station", "source", "from", "to", "count")
        cells = [[item[name] for name in columns] for item in gone]
        show_table(f"Readings that are gone from {report.archive} (empty: not known)", columns, cells)
        if report.lost_unlisted:
            show_message(f"and {report.lost_unlisted:,} more series and times")
    if report.snapshot is not None:
        show_message(
            f"{report.restored:,} readings came back from raw files, {report.kept:,} from what could still be read; "
            f"{report.lost:,} of damaged chunks are lost, and {report.superseded_lost:,} that others had replaced"
        )
    if any(outcome.lost for outcome in report.mended) and not report.lost:
        show_message(
            "whether commits that are named as lost above held more than came back, nothing tells: amendments and what "
            "was committed from Python are in no raw copy"
        )


COMMANDS: Final = (check, upgrade)
