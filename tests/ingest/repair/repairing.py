"""Repairs as users ask for them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ingest.cli import check_commands
from ingest.repair.restore_values import RepairReport
from tests.hypergrid.cli.test_archive_commands import run


def repair(folder: Path, *, now_ns: int, deep: bool = False) -> RepairReport:
    """Repair an archive by the command, at an instant of the clock; return the report that the command shows."""
    reports: list[RepairReport] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_commands, "time", SimpleNamespace(time_ns=lambda: now_ns))
        patch.setattr(check_commands, "_show_repair", reports.append)
        # A second chunk that is gone, or an old one, is a defect that the command names afterwards.
        status, _, shown = run("check", folder, "--repair", *(["--deep"] if deep else []))
    assert status in (0, 1), shown
    (report,) = reports
    return report
