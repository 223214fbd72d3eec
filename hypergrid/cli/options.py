"""Options and exit statuses shared by several commands."""

from typing import Annotated, Final

import typer

SnapshotOption = Annotated[str | None, typer.Option("--snapshot", help="Snapshot to read; the newest where absent.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and no progress.")]

FAILED: Final = 1
USED_WRONGLY: Final = 2
INTERRUPTED: Final = 130
