"""What the archive hands out and takes in besides readings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LONGEST_TEXT: Final = 200
"""Characters of a rejected text that are kept."""


@dataclass(frozen=True)
class Snapshot:
    """A committed version of the archive."""

    id: str
    time_ns: int
    """When it was committed, by the committer's clock [ns since 1970 UTC]."""
    message: str
    metadata: Mapping[str, Any]
    """"batch" (its id), "slices" (by variable touched: "first_ns" and "last_ns", the starts of the first and last slice
    touched [ns since 1970 UTC], "series", how many were touched, and for each kind of `touched.KINDS` that there was
    "readings", "runs" of slices [ns since 1970 UTC] and of the numbers of "series"), "counts" (the fields of
    `Conservation`, "rejects" and "files"), where layers were added, replaced or removed "layers" (their names), and
    where stored readings were given other flags "flags" (how many)."""


@dataclass(frozen=True)
class Conservation:
    """What became of readings given to the archive: ``readings == stored + side + superseded + duplicates``.

    `stored`, `side` and `superseded` are what the call added to each place of the archive. So a sum over all calls
    tells what is in the archive, and a reading that replaces another adds one to `superseded` and none to the place
    that it takes.
    """

    readings: int = 0
    """Readings given."""
    stored: int = 0
    """Cells that were empty and now hold one."""
    side: int = 0
    """Readings beyond the first in a cell."""
    superseded: int = 0
    """Readings that are retained, but that another with the same stamp replaced; of this call or an earlier one."""
    duplicates: int = 0
    """Readings that were there already, with the same value and flag; dropped."""

    def __add__(self, other: "Conservation") -> "Conservation":
        """Return the sums."""
        return Conservation(
            self.readings + other.readings,
            self.stored + other.stored,
            self.side + other.side,
            self.superseded + other.superseded,
            self.duplicates + other.duplicates,
        )

    @property
    def changed(self) -> int:
        """Readings that changed the archive."""
        return self.readings - self.duplicates


@dataclass(frozen=True)
class Reject:
    """A row, or a part of one, that could not be read."""

    file: str
    line: int
    """Line of the file, from 1; 0 where the whole file is meant."""
    column: str
    """Name of the column, empty where the whole row is meant."""
    text: str
    """What stood there, cut at 200 characters."""
    reason: str

    def __post_init__(self) -> None:
        """Cut the text."""
        object.__setattr__(self, "text", self.text[:LONGEST_TEXT])


@dataclass(frozen=True)
class FileEntry:
    """A file that was ingested; its content is what it is recognised by."""

    name: str
    sha256: str
    size_bytes: int
    rows: int
    readings: int
    rejects: int
    ingested_ns: int
    """When it was ingested [ns since 1970 UTC]."""
    mapping: str
    """Token of how it was read: one that gave no reading is worth another attempt with another mapping."""


@dataclass
class LostRecords:
    """What commits had told that main no longer has, as their snapshots are not whole."""

    is_any: bool = False
    """Whether main went back behind a commit."""
    files: list[FileEntry] = field(default_factory=list)
    """Of the ledger, those that it lacks now, as far as it could be read."""
    described_by: dict[str, str] = field(default_factory=dict)
    """Names, by SHA-256, of raw copies that tell how files are read."""


@dataclass(frozen=True)
class Repair:
    """Something that was mended, or could not be."""

    where: str
    what: str
    lost: bool = False
    """Whether something is gone."""
