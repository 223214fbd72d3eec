"""Records that the archive returns and accepts besides readings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LONGEST_TEXT: Final = 200
"""Maximum length of a stored rejected text [characters]."""


@dataclass(frozen=True)
class Snapshot:
    """A committed version of the archive."""

    id: str
    time_ns: int
    """Commit time, by the committer's clock [ns since 1970 UTC]."""
    message: str
    metadata: Mapping[str, Any]
    """"batch" (its id); "slices" (by touched variable: "first_ns" and "last_ns", the starts of the first and last
    touched slice [ns since 1970 UTC], "series", the number touched, and for each kind of `change_set.KINDS` that
    occurred "readings", "runs" of slices [ns since 1970 UTC] and runs of "series" numbers); "counts" (the fields
    of `Conservation`, "rejects" and "files"); if layers were added, replaced or removed, "layers" (their names);
    and if flags of stored readings changed, "flags" (their number).
    """


@dataclass(frozen=True)
class Conservation:
    """Balance of readings: ``readings == stored + side + superseded + duplicates``.

    `stored`, `side` and `superseded` are what the call added to each place of the archive. The sum over all calls
    therefore equals the archive's content; a reading that replaces another adds one to `superseded` and none to the
    place that it takes.
    """

    readings: int = 0
    """Readings given."""
    stored: int = 0
    """Empty cells that were filled."""
    side: int = 0
    """Readings beyond the first in a cell."""
    superseded: int = 0
    """Readings, of this call or an earlier one, that were replaced by one with the same stamp; retained."""
    duplicates: int = 0
    """Dropped readings that were stored already with the same value and flag."""

    def __add__(self, other: "Conservation") -> "Conservation":
        return Conservation(
            self.readings + other.readings,
            self.stored + other.stored,
            self.side + other.side,
            self.superseded + other.superseded,
            self.duplicates + other.duplicates,
        )

    @property
    def changed(self) -> int:
        """Number of readings that changed the archive."""
        return self.readings - self.duplicates


@dataclass(frozen=True)
class Reject:
    """A row, or part of a row, that could not be read."""

    file: str
    line: int
    """Line of the file, from 1; 0 for the whole file."""
    column: str
    """Column name; empty for the whole row."""
    text: str
    """The rejected text, truncated to 200 characters."""
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text[:LONGEST_TEXT])


@dataclass(frozen=True)
class FileEntry:
    """An ingested file, identified by its content."""

    name: str
    sha256: str
    size_bytes: int
    rows: int
    readings: int
    rejects: int
    ingested_ns: int
    """Time of ingestion [ns since 1970 UTC]."""
    mapping: str
    """Token of the mapping used; a file that gave no readings is retried with another mapping."""


@dataclass
class LostRecords:
    """Records of commits that main lost because their snapshots are not whole."""

    is_any: bool = False
    """Whether main was rolled back past a commit."""
    files: list[FileEntry] = field(default_factory=list)
    """Ledger entries that main now lacks, as far as they could be read."""
    described_by: dict[str, str] = field(default_factory=dict)
    """Names, by SHA-256, of raw copies that describe how files are read."""


@dataclass(frozen=True)
class Repair:
    """A repair that was made, or a damage that could not be repaired."""

    where: str
    what: str
    lost: bool = False
    """Whether data were lost."""
