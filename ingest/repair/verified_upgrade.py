"""An archive of an older layout becomes one of today's when its values are those of its raw copies.

Chunks of an older layout carry no checksums, so that raw copies alone can tell whether a value is what it was. Flags,
and the tests that set them, are in no raw copy; nor are readings that were written from Python, amended or withdrawn.
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
    """What an upgrade did, and how far its values were compared."""

    upgraded: LayoutUpgrade
    values: RawComparisonReport | None
    """What was compared with raw copies; None: this run compared nothing, as main had moved before."""
    repaired: RepairReport | None = None
    """What was stored from raw copies; None: nothing was asked for, or needed."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
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
    """Give an archive today's layout, unless it has other values than its raw copies.

    Parameters
    ----------
    mend
        Upgrade it all the same, then store what raw copies say; a value that is another is superseded.

    Raises
    ------
    hypergrid.core.errors.DamagedArchive
        Values are others, or it cannot be read as a whole; nothing was changed.
    hypergrid.core.errors.NotAnArchive, hypergrid.core.errors.ArchiveConflict
        As of `hypergrid.archive.durability.upgrade.upgrade`.
    """
    compared: list[RawComparisonReport] = []

    def compare(copy: Archive, notify: Callable[[str, float], None]) -> Iterable[Defect]:
        values = verify(copy, progress=notify)
        compared.append(values)
        remedy = f"'hypergrid upgrade {copy.path} --repair' upgrades it and stores what raw copies say"
        lost = replace(values, failed=[]).defects()
        return [] if mend else [replace(item, remedy=remedy) for item in lost]

    done = upgrade(path, now_ns=now_ns, compare=compare, progress=progress, on_wait=on_wait)
    values = compared[0] if compared else None
    # Also where main had moved already: a run that was killed may have done that, and then stored nothing.
    needs_repair = mend and (values is None or bool(values.lost))
    repaired = repair(path, now_ns=now_ns, deep=True, progress=progress) if needs_repair else None
    return UpgradeReport(done, values, repaired)
