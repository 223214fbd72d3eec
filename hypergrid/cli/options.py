"""Options and exit statuses shared by several commands."""

from pathlib import Path
from typing import Annotated, Final

import typer

from hypergrid.core.errors import InvalidQuery

ArchiveOption = Annotated[Path, typer.Option("--archive", envvar="HYPERGRID_ARCHIVE", help="Folder of the archive.")]
ArchivePlace = Annotated[Path | None, typer.Argument(metavar="ARCHIVE", help="Folder of the archive.")]
ArchivePlaceOption = Annotated[
    Path | None, typer.Option("--archive", envvar="HYPERGRID_ARCHIVE", help="The same, as other commands take it.")
]
SnapshotOption = Annotated[str | None, typer.Option("--snapshot", help="Snapshot to read; the newest where absent.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and no progress.")]


def choose_archive(archive_argument: Path | None, option: Path | None) -> Path:
    """Return the archive's folder, given as ARCHIVE or as --archive.

    Raises
    ------
    InvalidQuery
        Neither is given.
    """
    chosen = archive_argument or option
    if chosen is None:
        raise InvalidQuery("this command needs ARCHIVE, the folder of an archive; give it, or set HYPERGRID_ARCHIVE")
    return chosen


FAILED: Final = 1
USED_WRONGLY: Final = 2
INTERRUPTED: Final = 130
