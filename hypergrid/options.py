"""Arguments of the command line that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

ArchiveOption = Annotated[Path, typer.Option("--archive", envvar="HYPERGRID_ARCHIVE", help="Folder of the archive.")]
SnapshotOption = Annotated[str | None, typer.Option("--snapshot", help="Snapshot to read; the newest where absent.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and no progress.")]
