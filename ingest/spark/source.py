"""Spark data source of the spool: offsets are record numbers, tasks parse spans of records."""

import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from hypergrid.core.freed_memory import give_back
from ingest.sources.spool import durable, reach, segments, spans

SCHEMA = "grp string, content binary"
"""A group of stations, and its pickled `DecodedPiece` or `MicroBatch`."""
NAME = "hypergrid_spool"


class SpoolSpan(InputPartition):
    """Partition of the records with after < seq <= upto."""

    def __init__(self, after: int, upto: int) -> None:
        super().__init__((after, upto))
        self.after, self.upto = after, upto


class SpoolReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches of at most `most_bytes`, and parses their records."""

    def __init__(self, spool: Path, deployed: Path, most_bytes: int, tasks: int) -> None:
        self._spool, self._deployed = spool, deployed
        self._most_bytes, self._tasks = most_bytes, tasks
        self._end: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: D102, N802 - Spark's names
        listed = segments(self._spool)
        return {"seq": listed[0][0] - 1 if listed else 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: D102, N802
        return ReadMaxBytes(self._most_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: D102, N802
        self._end = durable(self._spool)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: D102, N802
        end = durable(self._spool) if self._end is None else self._end
        after = int(start["seq"])
        if end <= after:
            return {"seq": after}
        if isinstance(limit, ReadAllAvailable):
            return {"seq": end}
        most_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._most_bytes
        return {"seq": min(end, reach(self._spool, after, most_bytes=most_bytes))}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: D102, N802
        return {"seq": durable(self._spool)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: D102
        return [SpoolSpan(*span) for span in spans(self._spool, int(start["seq"]), int(end["seq"]), self._tasks)]

    def stop(self) -> None:
        """End the process if Spark has closed its connection, as it does when a stream ends."""
        # pyspark would take that for an error, and report it to the connection: if Spark was faster, with a traceback.
        if isinstance(sys.exc_info()[1], EOFError):
            os._exit(0)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Parse the records of a span into pickled pieces for each group of stations."""
        # Two processes of Spark, one after the other, import this module only to plan: each would take a second longer.
        from ingest.deployment.deployment_file import read_versions  # noqa: PLC0415
        from ingest.streaming.process_memory import keep_small  # noqa: PLC0415
        from ingest.streaming.spool_decoder import parse_by_version  # noqa: PLC0415

        assert isinstance(partition, SpoolSpan)
        # Tasks already share the cores; threads within each would only compete.
        pa.set_cpu_count(1)
        versions = read_versions(self._deployed)
        limited = versions[-1].deployment.stream.memory is not None
        if limited:
            keep_small()
        for pieces in parse_by_version(self._spool, partition.after, partition.upto, versions):
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([piece.group for piece in pieces], pa.string()),
                    pa.array([pickle.dumps(piece, protocol=5) for piece in pieces], pa.binary()),
                ],
                names=["grp", "content"],
            )
        if limited:
            # The next batch may be parsed by another process of Spark, while this one keeps what it freed.
            give_back()


class SpoolSource(DataSource):
    """Data source of an archive's spool; options `spool`, `deployed`, `bytes` and `tasks`."""

    @classmethod
    def name(cls) -> str:  # noqa: D102
        return NAME

    def schema(self) -> str:  # noqa: D102
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: D102, N802
        options = self.options
        return SpoolReader(
            Path(options["spool"]), Path(options["deployed"]), int(options["bytes"]), int(options["tasks"])
        )
