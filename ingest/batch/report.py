"""Report of an ingest run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from hypergrid.core.errors import HyperGridError


@dataclass(frozen=True)
class IngestReport:
    """Result of `ingest.job.ingest`. A reading is one column of one row, with or without a value."""

    archive: str
    engine: str
    """"inprocess" or "spark"; empty if there was nothing new."""
    size_bytes: int
    """Size of the files that were parsed, by which the engine is chosen [bytes]."""
    stations: int
    files: int
    """Files ingested by this run."""
    files_skipped: int
    """Files already in the archive, repeated within this run, or known to be unreadable with this mapping."""
    files_ignored: int
    """Files without a feed."""
    rows: int
    rows_rejected: int
    """Unreadable rows, without those of unreadable files."""
    cells_rejected: int
    """Unreadable cells of rows whose other cells were read."""
    readings: int
    """Readings of the rows: values and missing."""
    values: int
    missing: int
    """Reported without a value; stored with their time."""
    readings_rejected: int
    """Readings that the rejected rows and cells would have given."""
    rejects: Mapping[str, int]
    """Rejects by kind of reason, including whole files."""
    stored: int
    """Readings added to the archive."""
    duplicates: int
    """Readings that were already in the archive."""
    superseded: int
    """Readings replaced by another with the same series and time; retained."""
    slices: int
    """Number of slices with rows."""
    seconds: Mapping[str, float]
    """Duration of each stage [s]."""
    snapshot: str | None
    """Committed snapshot; None if nothing changed."""
    quality: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts by station: readings by flag (as a word) and by failed test, and gaps."""
    skipped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Number of stations that no neighbour test could evaluate, by variable and reason."""
    revised: int = 0
    """Stored readings whose flag changed."""
    reject_examples: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The first rejects of each kind, with file, line, column, text and reason."""
    far_off: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "far_off": list(self.far_off), "warnings": list(self.warnings)}


def check_conservation(
    *, rows_in: Mapping[int, tuple[int, int]], rejected: int, stored: int, superseded: int, duplicates: int
) -> None:
    """Check that rows x columns in == stored + superseded + rejected + duplicates.

    Parameters
    ----------
    rows_in
        Rows (including rejected ones) and columns of each file, by file index.

    Raises
    ------
    HyperGridError
        A reading is lost or counted twice: an internal error; nothing may be committed.
    """
    reading_count = sum(rows * columns for rows, columns in rows_in.values())
    went = stored + superseded + rejected + duplicates
    if reading_count != went:
        raise HyperGridError(
            f"{reading_count} readings came and {went} were accounted for ({stored} stored, {superseded} "
            f"superseded, {rejected} "
            f"rejected, {duplicates} duplicates); nothing was committed; please report this with the files"
        )


@dataclass(frozen=True)
class RunListener:
    """What a run calls as it goes on: with its stage and the fraction of it that is done, and with each warning."""

    on_progress: Callable[[str, float], None] | None = None
    on_warning: Callable[[str], None] = lambda _text: None


@dataclass
class Stages:
    """Durations of the stages of a run, and progress for a listener.

    `clock` returns seconds from any origin.
    """

    clock: Callable[[], float]
    listener: Callable[[str, float], None] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[float], None]]:
        """Time a stage; yield a function that reports the fraction done, from 0 to 1."""
        start = self.clock()
        self.report_progress(name, 0.0)
        yield lambda fraction: self.report_progress(name, fraction)
        self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - start
        self.report_progress(name, 1.0)

    def report_progress(self, name: str, fraction: float) -> None:
        if self.listener is not None:
            self.listener(name, fraction)
