"""Streaming query: parse the spool in tasks, assemble groups of stations, commit batches."""

import contextlib
import hashlib
import pickle
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState

from hypergrid.core.errors import HyperGridError
from hypergrid.core.freed_memory import give_back
from ingest.deployment.deployment_file import Deployment, read_versions, version_at
from ingest.sources.spool import segments
from ingest.spark.session import abandon, session, stop
from ingest.spark.source import NAME, SCHEMA, SpoolSource
from ingest.streaming import saved_state
from ingest.streaming.assembler import Assembler, MicroBatch, StreamBatch, assemble_batch
from ingest.streaming.memory_shares import memory_of
from ingest.streaming.process_memory import keep_small
from ingest.streaming.spool_decoder import DecodedPiece, expected_origins, groups_of, merge_pieces
from ingest.streaming.stream_commit import CHECKPOINT, DEPLOYMENTS, HELD, SPOOL, STREAM, stream_id

LIVE_BYTES: Final = 64 << 20
"""Size of rows up to which a process keeps an assembler without a limit of memory for its next batch [bytes]."""
_live_assemblers: dict[str, tuple[int, Assembler]] = {}
"""Small assemblers of this process by group, with the checksum of their last saved state."""


def held_folder(stream: Path, group: str) -> Path:
    """Return the folder of a group's rows that wait on disk."""
    # Names of groups are arbitrary text.
    return stream / HELD / hashlib.sha256(group.encode()).hexdigest()[:16]


def stateful_assembler(spool: Path, deployed: Path) -> Callable[..., Iterator[pd.DataFrame]]:
    """Return the stateful function that assembles the pieces of a batch for one group."""

    def take(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        pa.set_cpu_count(1)
        versions = read_versions(deployed)
        if versions[-1].deployment.stream.memory is not None:
            keep_small()
        piece = merge_pieces([pickle.loads(content) for frame in frames for content in frame["content"]])
        assembler = _assembler(piece, state, version_at(versions, piece.upto), deployed)
        batch = assemble_batch(assembler, piece, [first for first, _ in segments(spool)])
        folder = held_folder(deployed.parent, key[0])
        kept = saved_state.save(folder, assembler.version, assembler.to_chunks())
        state.update((assembler.version, kept))
        content = pickle.dumps(batch, protocol=5)
        if saved_state.is_inline(kept) or (assembler.memory is None and assembler.held_bytes <= LIVE_BYTES):
            _live_assemblers[key[0]] = (zlib.crc32(kept), assembler)
        else:
            # The next batch may come to another process of Spark: two with an assembler would take twice the memory.
            del piece, assembler, batch
            give_back()
        yield pd.DataFrame({"grp": [key[0]], "content": [content]})

    return take


def _unpack_batches(frame: DataFrame) -> list[MicroBatch]:
    """Return the batches of all groups, by name."""
    contents = frame.toArrow().column("content").to_pylist()
    groups: list[MicroBatch] = sorted(map(pickle.loads, contents), key=lambda batch: batch.group)
    return groups


def _assembler(piece: DecodedPiece, state: GroupState, deployment: Deployment, deployed: Path) -> Assembler:
    """Return the cached assembler of a piece's group if it matches the state, else a restored one."""
    # Removed while in use, so that a failed task cannot leave a changed assembler in the cache.
    check, alive = _live_assemblers.pop(piece.group, (0, None))
    how, folder, memory = deployment.stream, held_folder(deployed.parent, piece.group), None
    if how.memory is not None:
        # The limit of the batch's own deployment, so that a repeated batch gives the same rows.
        memory = memory_of(deployed.parent, how.memory, piece.group, groups_of(deployment), piece.after + 1)
    if not state.exists:
        expected = expected_origins(deployment)
        return Assembler(
            deployment.slice_s, how.idle_s, order=how.order, expected=expected, memory=memory, folder=folder
        )
    taken, content = state.get
    is_same = alive is not None and (alive.version, check) == (taken, zlib.crc32(content))
    if is_same and alive is not None:
        assembler = alive
    else:
        assembler = Assembler.from_bytes(saved_state.load(folder, bytes(content)), folder)
    assembler.memory = memory
    return assembler


SETTINGS: Final = {
    "spark.sql.streaming.minBatchesToRetain": "4",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""Spark settings for streams of few and large rows."""


class SparkLost(HyperGridError):
    """Spark's process ended, or cannot be reached any more."""


class QueryFailed(HyperGridError):
    """The query failed with an error of Spark or of a task."""


class StreamingJob:
    """A Spark session with the query that follows a spool.

    Every method raises `SparkLost` once the session's process is gone; `end` then cleans up.
    """

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None

    @property
    def pid(self) -> int | None:
        """Process id of Spark's JVM."""
        process = getattr(SparkContext._gateway, "proc", None)
        return None if process is None else int(process.pid)

    def connect(self) -> None:
        """Start the session, unless it runs already."""
        with _translate_failure():
            if self._spark is None:
                self._spark = session()
                for key, value in SETTINGS.items():
                    self._spark.conf.set(key, value)

    def start(
        self,
        folder: Path,
        commit: Callable[[StreamBatch], Any],
        *,
        trigger_s: float | None,
        batch_bytes: int,
        limited: bool = False,
    ) -> None:
        """Follow the spool of an archive once connected, and pass each batch to `commit`, in order.

        Batches that Spark has marked as done are not passed again. After a restart a batch may be replayed unchanged:
        `commit` recognises it by the id of the stream and its number.

        Parameters
        ----------
        folder
            Folder of the archive.
        trigger_s
            Interval between batches [s]; None: process what is in the spool now, then stop.
        batch_bytes
            Maximum size of a batch; further records wait in the spool [bytes].
        limited
            Whether the deployment limits memory: this process then returns what it freed after each batch.
        """
        assert self._spark is not None
        if limited:
            keep_small()
        with _translate_failure():
            spool, deployed, checkpoint = folder / SPOOL, folder / STREAM / DEPLOYMENTS, folder / STREAM / CHECKPOINT
            tasks = self._spark.sparkContext.defaultParallelism
            self._spark.dataSource.register(SpoolSource)
            options = {"spool": spool, "deployed": deployed, "bytes": batch_bytes, "tasks": tasks}
            pieces = (
                self._spark.readStream.format(NAME)
                .options(**{key: str(value) for key, value in options.items()})
                .load()
            )
            # There are few groups: a partition for each would be too many for most networks.
            batches = pieces.groupBy("grp").applyInPandasWithState(
                stateful_assembler(spool, deployed), SCHEMA, "taken long, content binary", "append", "NoTimeout"
            )

            def hand_on(frame: DataFrame, number: int) -> None:
                groups = _unpack_batches(frame)
                if groups:
                    commit(StreamBatch(stream_id(checkpoint), number, groups))
                if limited:
                    # Not before: the commit holds its rows to the end.
                    del groups
                    give_back()

            writer = batches.writeStream.foreachBatch(hand_on).option("checkpointLocation", str(checkpoint))
            writer = (
                writer.trigger(availableNow=True)
                if trigger_s is None
                else writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
            )
            self._query = writer.start()

    def is_active(self) -> bool:
        """Return whether the query is running.

        Raises
        ------
        QueryFailed
            It failed; it can be restarted.
        """
        assert self._query is not None
        process = getattr(SparkContext._gateway, "proc", None)
        if process is not None and process.poll() is not None:
            raise SparkLost(f"Spark's process ended with status {process.returncode}")
        with _translate_failure():
            if self._query.isActive:
                return True
            failure = self._query.exception()
        if failure is not None:
            raise QueryFailed(f"the stream failed: {_first_line(failure)}")
        return False

    def is_waiting(self) -> bool:
        """Return whether the query waits for its next trigger, and no batch is in progress."""
        assert self._query is not None
        with _translate_failure():
            return not self._query.status["isTriggerActive"]

    def stop(self) -> None:
        """Stop the query; a batch in progress will be replayed."""
        with _translate_failure():
            if self._query is not None:
                self._query.stop()
        self._query = None

    def end(self) -> None:
        """Stop the session, whatever its condition."""
        spark, self._spark, self._query = self._spark, None, None
        process = getattr(SparkContext._gateway, "proc", None)
        if spark is None:
            return
        if process is None or process.poll() is not None:
            abandon()
            return
        try:
            stop(spark)
        except (Py4JError, OSError, PySparkException):
            abandon()


_NAMED_ERROR: Final = re.compile(r"[\w.]+(Error|Exception|Found|Conflict|Damaged|Query|Unusable): ")


def _first_line(failure: BaseException) -> str:
    """Return the line of an error that names the failure."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    named = [line for line in lines if _NAMED_ERROR.match(line)]
    # The last line of a Python worker's traceback names the error of this program.
    ours = [line for line in named if line.startswith(("hypergrid.", "ingest."))]
    return (ours[-1:] or named or lines or ["?"])[0]


@contextlib.contextmanager
def _translate_failure() -> Iterator[None]:
    """Translate errors of a process that is gone into `SparkLost`."""
    try:
        yield
    except (Py4JError, ConnectionError, EOFError) as error:
        if isinstance(error, Py4JJavaError):
            raise
        raise SparkLost("Spark's process cannot be reached any more") from error
