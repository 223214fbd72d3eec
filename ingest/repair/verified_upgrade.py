"""Upgrade an archive of an older layout after comparing its values with its raw copies.

Chunks of an older layout have no checksums, so only raw copies can show whether a value has changed. Flags, and the
tests that set them, are in no raw copy; nor are readings that were written from Python, amended or withdrawn.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hypergrid.archive import Archive, Defect
from hypergrid.archive.durability.upgrade import LayoutUpgrade, upgrade
from ingest.repair.restore_values import RepairReport, repair
from ingest.repair.verify_values import RawComparisonReport, verify


@dataclass(frozen=True)
class UpgradeReport:
    """Result of an upgrade, and of the comparison of its values."""

    upgraded: LayoutUpgrade
    values: RawComparisonReport | None
    """Comparison with raw copies; None: this run compared nothing, because main had already moved."""
    repaired: RepairReport | None = None
    """Readings restored from raw copies; None: not requested, or not needed."""

    def to_dict(self) -> dict[str, Any]:
        metadata: dict[str, Any] = asdict(self.upgraded)
        if self.values is not None:
            metadata["values"] = {**self.values.to_json(), "failed": [item.to_json() for item in self.values.failed]}
        return metadata if self.repaired is None else {**metadata, "repair": self.repaired.to_dict()}


def upgrade_compared(
    path: Path,
    *,
    now_ns: int,
    mend: bool = False,
    progress: Callable[[str, float], None] = lambda _what, _done: None,
    on_wait: Callable[[], None] = lambda: None,
) -> UpgradeReport:
    """Upgrade an archive to the current layout, unless its values differ from its raw copies.

    Parameters
    ----------
    mend
        Upgrade it anyway, then store the values of raw copies; other values are superseded.

    Raises
    ------
    hypergrid.core.errors.DamagedArchive
        Values differ, or the archive is partly unreadable; nothing was changed.
    hypergrid.core.errors.NotAnArchive, hypergrid.core.errors.ArchiveConflict
        As in `hypergrid.archive.durability.upgrade.upgrade`.
    """
    compared: list[RawComparisonReport] = []

    def compare(copy: Archive, notify: Callable[[str, float], None]) -> Iterable[Defect]:
        values = verify(copy, progress=notify)
        compared.append(values)
        remedy = f"'hypergrid upgrade {copy.path} --repair' upgrades it and stores what raw copies say"
        # Parts that could not be compared do not prevent an upgrade; they are in the report.
        lost = replace(values, failed=[]).defects()
        return [] if mend else [replace(item, remedy=remedy) for item in lost]

    done = upgrade(path, now_ns=now_ns, compare=compare, progress=progress, on_wait=on_wait)
    values = compared[0] if compared else None
    # Also if main had already moved: a killed run may have done that without storing anything.
    needs_repair = mend and (values is None or bool(values.lost))
    repaired = repair(path, now_ns=now_ns, deep=True, progress=progress) if needs_repair else None
    return UpgradeReport(done, values, repaired)
