"""Tap of a stream: readings of the spool as they arrive, before slices are assembled.

They are parsed as the stream parses them, in the units of the archive, and flagged by the tests of single readings;
tests that need readings before or beside them are left to the archive. The numbers of records are positions. Records
that the stream has committed and removed from the spool are read from their raw copies.
"""

import tempfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.archive.disk.raw_copies import RAW, read_back
from hypergrid.core.errors import NotFound
from hypergrid.core.readings import Readings, concatenate, share_series
from hypergrid.core.units import Variable
from ingest.deployment.deployment_file import Deployment, DeploymentVersion, read_versions, split_by_version
from ingest.deployment.quality_settings import VariableTests
from ingest.quality.flagging import places_of
from ingest.quality.run_tests import judge
from ingest.sources.spool import durable, put_segment, reach, segments
from ingest.streaming.spool_decoder import parse_span
from ingest.streaming.stream_commit import DEPLOYMENTS, SPOOL, STREAM, kept_segments, readings_by_variable

BATCH_BYTES: Final = 8 << 20
"""Size of the records of a batch, about [bytes]."""
_KEPT_READINGS: Final = 200_000
"""Readings of batches that are kept for queries that read them later than others."""


class TappedReadings(NamedTuple):
    """Readings of the records with after < number <= upto, in order of arrival."""

    after: int
    upto: int
    clock_ns: int
    """When the last of these records arrived [ns since 1970 UTC]; 0 if none has a time."""
    readings: Mapping[str, tuple[Readings, NDArray[np.int64]]]
    """Readings by variable, in the archive's unit, each with the number of its record."""
    rejected: int
    """Readings that could not be read; the stream lists them with reasons."""


class Tap:
    """Reader of the readings that arrive at an archive's stream.

    Parameters
    ----------
    archive
        The archive that they will come to; only readings of its variables are given.

    Raises
    ------
    NotFound
        The archive has no stream.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._spool = archive.path / SPOOL
        self._deployments = archive.path / STREAM / DEPLOYMENTS
        if not read_versions(self._deployments):
            raise NotFound(
                f"{archive.path} has no stream yet; begin with 'hypergrid stream {archive.path} --deployment FILE'"
            )
        # By the record that they begin after, in the order in which they were read.
        self._batches: OrderedDict[int, TappedReadings] = OrderedDict()

    @property
    def newest(self) -> int:
        """Number of the last record that arrived; 0 if there is none."""
        return durable(self._spool)

    def read(self, after: int, upto: int) -> TappedReadings:
        """Return the readings of the records with after < number <= upto, or of those at the beginning of many.

        Raises
        ------
        NotFound
            Records are neither in the spool nor in raw copies.
        """
        kept = self._list_kept(after, upto)
        if kept:
            return _join_batches(kept)
        try:
            batch = self._read_from(self._spool, after, upto)
        except (NotFound, FileNotFoundError):
            # Also if segments were removed while they were read.
            batch = self._read_copies(after, upto)
        self._batches[after] = batch
        self._batches.move_to_end(after)
        while len(self._batches) > 1 and sum(map(_count_readings, self._batches.values())) > _KEPT_READINGS:
            self._batches.popitem(last=False)
        return batch

    def _list_kept(self, after: int, upto: int) -> list[TappedReadings]:
        """Return the batches in memory that follow each other from a record on, up to another at most."""
        listed: list[TappedReadings] = []
        while (batch := self._batches.get(after)) is not None and after < batch.upto <= upto:
            listed.append(batch)
            after = batch.upto
        return listed

    def _read_from(self, spool: Path, after: int, upto: int) -> TappedReadings:
        upto = min(upto, reach(spool, after, most_bytes=BATCH_BYTES))
        versions = read_versions(self._deployments)
        return self._parse(spool, after, upto, versions)

    def _read_copies(self, after: int, upto: int) -> TappedReadings:
        """Read records from raw copies of segments, up to the end of one of them."""
        kept = kept_segments(self._archive.latest().files())
        first = max((number for number in kept if number <= after + 1), default=0)
        there = segments(self._spool)
        if not first or (there and first >= there[0][0]):
            begins = there[0][0] if there else self.newest + 1
            raise NotFound(
                f"records from {after + 1} on are neither in {self._spool}, which begins with {begins}, nor in raw "
                "copies; remove the live query, and add it again"
            )
        with tempfile.TemporaryDirectory(prefix="hypergrid-") as scratch:
            put_segment(Path(scratch), first, read_back(self._archive.path / RAW, kept[first]))
            return self._read_from(Path(scratch), after, min(upto, durable(Path(scratch))))

    def _parse(self, spool: Path, after: int, upto: int, versions: list[DeploymentVersion]) -> TappedReadings:
        parts: dict[str, list[tuple[Readings, NDArray[np.int64]]]] = {}
        clock_ns, rejected = 0, 0
        for start, stop, deployment in split_by_version(versions, after, upto):
            for piece in parse_span(spool, start, stop, deployment):
                rejected += piece.rejected
                if len(piece.clock.clock_ns):
                    clock_ns = max(clock_ns, int(piece.clock.clock_ns.max()))
                if not len(piece.rows):
                    continue
                clock_ns = max(clock_ns, int(piece.rows.came_ns.max()))
                # The number of the record instead of its arrival.
                rows = replace(piece.rows, came_ns=piece.rows.seq)
                for name, (readings, records) in readings_by_variable(rows, self._archive.variables).items():
                    flagged = self._flag(readings, self._archive.variables[name], deployment)
                    parts.setdefault(name, []).append((flagged, records))
        return TappedReadings(after, upto, clock_ns, {name: _join(listed) for name, listed in parts.items()}, rejected)

    def _flag(self, readings: Readings, variable: Variable, deployment: Deployment) -> Readings:
        """Return readings with the flags of the tests that need no other readings."""
        tests = deployment.quality.tests(variable)
        tests = VariableTests(gross_range=tests.gross_range, climatology=tests.climatology)
        if not tests:
            return readings
        order = np.lexsort((readings.time_ns, readings.index))
        stations = {**self._archive.stations, **{station.id: station for station in deployment.stations}}
        judged = judge(readings.take_rows(order), tests, places_of(readings.series, stations), {})
        flag = np.empty_like(readings.flag)
        flag[order] = judged.flag
        return replace(readings, flag=flag)


def _count_readings(batch: TappedReadings) -> int:
    return sum(len(readings) for readings, _ in batch.readings.values())


def _join_batches(batches: Sequence[TappedReadings]) -> TappedReadings:
    """Return the readings of batches that follow each other as one batch."""
    if len(batches) == 1:
        return batches[0]
    names = dict.fromkeys(name for batch in batches for name in batch.readings)
    joined = {name: _join([batch.readings[name] for batch in batches if name in batch.readings]) for name in names}
    clock_ns = max(batch.clock_ns for batch in batches)
    return TappedReadings(
        batches[0].after, batches[-1].upto, clock_ns, joined, sum(batch.rejected for batch in batches)
    )


def _join(parts: Sequence[tuple[Readings, NDArray[np.int64]]]) -> tuple[Readings, NDArray[np.int64]]:
    """Return the readings of several parts in the order of their records."""
    if len(parts) == 1:
        return parts[0]
    readings = concatenate(share_series(*(part for part, _ in parts)))
    records = np.concatenate([numbers for _, numbers in parts])
    order = np.argsort(records, kind="stable")
    return readings.take_rows(order), records[order]
