"""Records that the archive returns and accepts besides readings, and the change sets in commit metadata."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import icechunk
import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import Slices, split_consecutive, unique_numbers
from hypergrid.core.readings import Position, Series, Station

Json = dict[str, Any]


def node_name(variable: str) -> str:
    """Return the group name of a variable, escaped so that any text is valid.

    This includes names that Zarr reserves.

    Raises
    ------
    ValueError
        The name is empty.
    """
    if not variable:
        raise ValueError("a variable needs a name; got an empty one; name the column")
    name = quote(variable, safe="").replace(".", "%2E")
    return f"%5F{name[1:]}" if name.startswith("_") else name


def encode_series(series: Sequence[Series]) -> Json:
    # Shorter than a list of records, which repeats the field names for every series.
    return {name: [getattr(sensor_series, name) for sensor_series in series] for name in _SERIES_FIELDS}


def decode_series(variable: str, content: Json) -> tuple[Series, ...]:
    rows = zip(*(content[name] for name in _SERIES_FIELDS), strict=True)
    return tuple(Series(variable, *row) for row in rows)


_SERIES_FIELDS = tuple(field.name for field in fields(Series) if field.name != "variable")


def encode_station(station: Station) -> Json:
    return {"id": station.id, "name": station.name, "positions": [_encode_position(p) for p in station.positions]}


def decode_station(content: Json) -> Station:
    return Station(
        content["id"], content["name"], tuple(_decode_position(position) for position in content["positions"])
    )


def _encode_position(position: Position) -> Json:
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(position).items()
    }


def _decode_position(content: Json) -> Position:
    coordinates = {name: math.nan if value is None else value for name, value in content.items() if name != "from_ns"}
    return Position(from_ns=content["from_ns"], **coordinates)


def extend_stations(stored: Mapping[str, Json], given: Iterable[Station]) -> dict[str, Json]:
    """Merge the given stations into the stored ones; returns them as JSON by id.

    A position with a new first instant extends a station's history; one with an existing first instant corrects the
    coordinates that it knows and removes none. A name replaces the old one unless it is empty or equal to the id.
    """
    result = dict(stored)
    for station in given:
        new = encode_station(station)
        old = result.get(station.id, {"name": "", "positions": []})
        places: dict[int | None, Json] = {}
        for station_json in (*old["positions"], *new["positions"]):
            known = {name: value for name, value in station_json.items() if value is not None}
            places[station_json["from_ns"]] = {**places.get(station_json["from_ns"], station_json), **known}
        ordered = sorted(
            places.values(), key=lambda position: -math.inf if position["from_ns"] is None else position["from_ns"]
        )
        # A station declared without a name has its id as the name.
        name = old["name"] if new["name"] in ("", station.id) else new["name"]
        result[station.id] = {"id": station.id, "name": name or new["name"], "positions": ordered}
    return result


@dataclass(frozen=True)
class Snapshot:
    """A committed version of the archive."""

    id: str
    time_ns: int
    """Commit time, by the committer's clock [ns since 1970 UTC]."""
    message: str
    metadata: Mapping[str, Any]
    """"batch" (its id); "slices" (by touched variable: "first_ns" and "last_ns", the starts of the first and last
    touched slice [ns since 1970 UTC], "series", the number touched, and for each kind of `KINDS` that
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
        object.__setattr__(self, "text", self.text[:200])


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


KINDS: Final = ("new", "replaced", "flags")
"""Kinds of changes: new readings, replaced readings, changed flags."""
MAX_RUNS: Final = 48
"""Maximum number of runs of slices, and of series, recorded per kind; beyond it the nearest runs are joined."""

Runs = list[tuple[int, int]]
"""Ascending runs of whole numbers, each as its first and last number."""


@dataclass
class ChangeSet:
    """Changes of one kind to one variable in a commit."""

    readings: int = 0
    slices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Slice numbers, ascending."""
    series: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Series numbers, ascending."""

    def add(self, slices: NDArray[np.int64], series: NDArray[np.int32]) -> None:
        """Add n readings by their slices and series, each of shape (n,)."""
        self.add_all(len(slices), unique_numbers(slices), unique_numbers(series))

    def add_all(self, readings: int, slices: NDArray[np.int64], series: NDArray[np.int64] | NDArray[np.int32]) -> None:
        self.readings += readings
        self.slices = np.union1d(self.slices, slices)
        self.series = np.union1d(self.series, series)

    def to_record(self, slices: Slices) -> Json:
        runs = [[slices.start_ns(first), slices.start_ns(last)] for first, last in _make_runs(self.slices)]
        return {"readings": self.readings, "runs": runs, "series": [list(run) for run in _make_runs(self.series)]}


def make_record(touched: Mapping[str, ChangeSet], slices: Slices) -> Json:
    """Encode a variable's change sets for a commit's metadata: their hull and each kind."""
    every = np.concatenate([change_set.slices for change_set in touched.values()])
    series = np.unique(np.concatenate([change_set.series for change_set in touched.values()]))
    kinds = {kind: touched[kind].to_record(slices) for kind in KINDS if kind in touched}
    first_ns, last_ns = slices.start_ns(int(every.min())), slices.start_ns(int(every.max()))
    return {"first_ns": first_ns, "last_ns": last_ns, "series": len(series), **kinds}


def _make_runs(numbers: NDArray[np.int64]) -> Runs:
    runs = [(int(run[0]), int(run[-1])) for run in split_consecutive(numbers)]
    return _join_runs(runs) if len(runs) > MAX_RUNS else runs


def _join_runs(runs: Runs) -> Runs:
    """Reduce to at most `MAX_RUNS` runs by joining those with the narrowest gaps."""
    gaps = np.array([later[0] - earlier[1] for earlier, later in zip(runs[:-1], runs[1:], strict=True)])
    kept = np.sort(np.argsort(-gaps, kind="stable")[: MAX_RUNS - 1])
    edges = [0, *(kept + 1).tolist(), len(runs)]
    return [(runs[first][0], runs[stop - 1][1]) for first, stop in zip(edges[:-1], edges[1:], strict=True)]


def read_snapshot(info: icechunk.SnapshotInfo) -> Snapshot | None:
    """Decode the snapshot record of a commit; None for Icechunk's own initial snapshot."""
    metadata = _sort_content(info.metadata)
    # Icechunk creates its first snapshot before the archive writes its tables.
    if "time_ns" not in metadata:
        return None
    return Snapshot(info.id, int(metadata.pop("time_ns")), info.message, MappingProxyType(metadata))


def _sort_content(content: Any) -> Any:  # noqa: ANN401 - as of JSON
    # Icechunk returns the keys in an order that differs between processes.
    return {key: _sort_content(content[key]) for key in sorted(content)} if isinstance(content, Mapping) else content
