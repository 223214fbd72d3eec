"""What an ingest did, in numbers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from hypergrid.core.errors import HyperGridError


@dataclass(frozen=True)
class IngestReport:
    """The result of `ingest.job.ingest`. A reading is one column of one row, with or without a value."""

    archive: str
    """Folder of the archive."""
    engine: str
    """"inprocess" or "spark"; empty where nothing was new."""
    stations: int
    """Stations that the rows came from."""
    files: int
    """Files ingested now."""
    files_skipped: int
    """Files whose content the archive, or an earlier file of this run, had already, or could not read in this way."""
    files_ignored: int
    """Files that no feed reads."""
    rows: int
    """Rows read."""
    rows_rejected: int
    """Rows that could not be read; whole files not counted."""
    readings: int
    """Readings of the rows read: values and missing."""
    values: int
    missing: int
    """Reported without a value; stored with their time."""
    readings_rejected: int
    """Readings that the rejected rows would have been."""
    rejects: Mapping[str, int]
    """Rejects by kind of reason, whole files included."""
    stored: int
    """Readings that came to be in the archive."""
    duplicates: int
    """Readings that the archive had already."""
    superseded: int
    """Readings that another with their series and time replaced; retained."""
    slices: int
    """Slices that the rows fall into."""
    seconds: Mapping[str, float]
    """Duration of each stage [s]."""
    snapshot: str | None
    """Snapshot that was committed; None where nothing changed."""
    quality: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By station, the readings of each flag, by its word; those that each test found something against; and gaps."""
    skipped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By variable, how many stations no test by neighbours could evaluate, by the reason."""
    revised: int = 0
    """Readings that the archive had before, and that have another flag now."""
    far_off: tuple[str, ...] = ()
    """Stations that lie far off the others."""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "far_off": list(self.far_off), "warnings": list(self.warnings)}


def check_conservation(
    *, rows_in: Mapping[int, tuple[int, int]], rejected: int, stored: int, superseded: int, duplicates: int
) -> None:
    """Check that every reading went somewhere: rows x columns in == stored + superseded + rejected + duplicates.

    Parameters
    ----------
    rows_in
        For each file, by its place, its rows (the rejected ones included) and its columns.

    Raises
    ------
    HyperGridError
        A reading is lost, or counted twice: a defect of this program; nothing may be committed.
    """
    reading_count = sum(rows * columns for rows, columns in rows_in.values())
    went = stored + superseded + rejected + duplicates
    if reading_count != went:
        message = (
            f"{reading_count} readings came and {went} were accounted for ({stored} stored, {superseded} "
            f"superseded, {rejected} "
            f"rejected, {duplicates} duplicates); nothing was committed; please report this with the files"
        )
        raise HyperGridError(message)


@dataclass
class Stages:
    """Durations of the stages of a run, and how far each is, told to whoever listens.

    `clock` returns seconds from any origin.
    """

    clock: Callable[[], float]
    listener: Callable[[str, float], None] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[float], None]]:
        """Time a stage; yields what tells the fraction done, from 0 to 1."""
        start = self.clock()
        self.report_progress(name, 0.0)
        yield lambda fraction: self.report_progress(name, fraction)
        self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - start
        self.report_progress(name, 1.0)

    def report_progress(self, name: str, fraction: float) -> None:
        """Tell the listener, if there is one."""
        if self.listener is not None:
            self.listener(name, fraction)
