"""The stream on Spark: the spool parsed by tasks, assembled by groups of stations, committed batch by batch."""

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState

from ingest.assembler import Assembler
from ingest.deployed import deployments, reading
from ingest.grouped import GroupBatch, advance
from ingest.sources.spool import segments
from ingest.spark.source import NAME, SCHEMA, SpoolSource
from ingest.spooled import Piece, merged

BATCH_BYTES: Final = 64 << 20
"""Of a batch at most: what is not yet read waits in the spool [bytes]."""
_STATE: Final = "taken long, content binary"

_alive: dict[str, tuple[int, Assembler]] = {}
"""Assemblers of this process by group, with the check sum of their state as it was kept last."""


def assembling(spool: Path, deployed: Path) -> Callable[..., Iterator[pd.DataFrame]]:
    """Return what takes the pieces of a batch of one group, with the state of the group."""

    def take(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        pa.set_cpu_count(1)
        piece = merged([Piece.from_bytes(content) for frame in frames for content in frame["content"]])
        assembler = _assembler(key[0], state, lambda: _new(deployed, piece))
        batch = advance(assembler, piece, [first for first, _ in segments(spool)])
        kept = assembler.to_bytes()
        state.update((assembler.version, kept))
        _alive[key[0]] = (zlib.crc32(kept), assembler)
        yield pd.DataFrame({"grp": [key[0]], "content": [batch.to_bytes()]})

    return take


def _new(deployed: Path, piece: Piece) -> Assembler:
    deployment = reading(deployments(deployed), piece.upto)
    return Assembler(deployment.slice_s, deployment.stream.idle_s)


def _assembler(group: str, state: GroupState, new: Callable[[], Assembler]) -> Assembler:
    """Return the assembler of a group: the one that this process has, if it is as the state says."""
    check, alive = _alive.pop(group, (0, None))
    if not state.exists:
        return new()
    taken, content = state.get
    if alive is not None and (alive.version, check) == (taken, zlib.crc32(content)):
        return alive
    return Assembler.from_bytes(bytes(content))


def follow(
    spark: SparkSession,
    folder: Path,
    commit: Callable[[str, int, list[GroupBatch]], Any],
    *,
    trigger_s: float | None,
    batch_bytes: int = BATCH_BYTES,
) -> StreamingQuery:
    """Follow the spool of an archive, and hand each batch to `commit`, in order; what it took is not handed on again.

    A batch may come again after a restart, equal to what it was: `commit` knows it by the id of the stream and its
    number.

    Parameters
    ----------
    folder
        The archive's.
    trigger_s
        How often a batch begins [s]; None: until all that is in the spool now is done.
    """
    spool, deployed, checkpoint = folder / "spool", folder / "stream" / "deployments", folder / "stream" / "checkpoint"
    tasks = spark.sparkContext.defaultParallelism
    spark.dataSource.register(SpoolSource)
    options = {"spool": spool, "deployed": deployed, "bytes": batch_bytes, "tasks": tasks}
    pieces = spark.readStream.format(NAME).options(**{key: str(value) for key, value in options.items()}).load()
    # The groups are few: one partition each would be too many for most networks.
    batches = pieces.groupBy("grp").applyInPandasWithState(
        assembling(spool, deployed), SCHEMA, _STATE, "append", "NoTimeout"
    )

    def hand_on(frame: DataFrame, number: int) -> None:
        found = frame.toArrow().column("content").to_pylist()
        groups = sorted((GroupBatch.from_bytes(content) for content in found), key=lambda one: one.group)
        if groups:
            commit(stream_id(checkpoint), number, groups)

    writer = batches.writeStream.foreachBatch(hand_on).option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True) if trigger_s is None else writer.trigger(processingTime=f"{trigger_s} s")
    return writer.start()


def stream_id(checkpoint: Path) -> str:
    """Return the id of a stream, which lives as long as its checkpoint."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


SETTINGS: Final = {
    "spark.sql.streaming.minBatchesToRetain": "4",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""Of Spark, for streams of few and large rows."""
