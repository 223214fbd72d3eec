"""What a stream holds until its slices close, beside Spark's own windows with a watermark, on the same rows.

Ours is the assembler that `hypergrid stream` keeps in Spark's state. The peer collects the rows of each slice,
`groupBy(window).agg(collect_list)`, behind the least watermark by which as many slices are whole when they first close,
found with hindsight. It is run in large batches, one after the other; its state is counted between two of them. In
batches of a slice it is reckoned, as if Spark ran an empty batch after each, which lets go what the newest watermark
has passed and makes late what came a batch later.

Spark closes slices in order of time; `hypergrid stream` does not by default: a slice goes once it is whole, before
older ones that are not. Part of what it saves is bought by that. So the stream's order "time" is run as well, in
batches of a slice, beside the watermark by which as many slices are whole as with it: savings at equal order.
`ingest_orders` has that comparison without Spark, over several loads, and beside windows.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hypergrid.core.times import SECOND_NS
from ingest.deployment.deployment_file import SliceOrder
from ingest.streaming.assembler import Assembler, EmittedRows
from ingest.streaming.spool_decoder import RowBatch
from tests.bench.kriging_figures import Tell
from tests.bench.wo_join_spark import STATE_IN_HEAP, bench_session
from tests.support.no_clock import no_ticks
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.loads import SETTINGS, station_load

Integers = NDArray[np.int64]

EPOCH_S = 1_700_000_040
"""When slice 0 of a generated load begins: Spark's watermark begins in 1970; a multiple of the slice [s]."""
SLICE_S = 120.0


@dataclass(frozen=True)
class Held:
    """What was held between batches, and what became of the slices."""

    rows: Integers
    """Rows held after each batch, shape (b,)."""
    size_bytes: float
    """Of the state, mean; 0 where it was not looked at."""
    whole: float
    """Share of the slices that closed which were whole at first."""
    slices: int
    """That closed."""
    behind: float = 0.0
    """Share of them that closed in a batch after one in which a later slice did."""
    latency_s: float = 0.0
    """Mean time from a slice's end to its closing [s]."""


def compare(rows: RowBatch, new: Callable[[SliceOrder], Assembler], *, batches: int, at_once: int) -> dict[str, Any]:
    """Hold the same rows both ways, in order of arrival.

    Parameters
    ----------
    new
        Makes an assembler with an order of slices.
    batches
        How many there are where Spark runs.
    at_once
        Rows of a batch where it is reckoned.
    """
    parts = np.array_split(np.arange(len(rows)), batches)
    of = _numbers(parts)
    assembler = new("whole")
    ours, slice_ns = _ours(rows, assembler, parts), assembler.slice_ns
    delay_s = least_delay_s(rows.time_ns, of, slice_ns, ours.whole)
    spark = _spark(rows.time_ns, of, slice_ns, delay_s)
    few = np.array_split(np.arange(len(rows)), max(1, len(rows) // at_once))
    return {
        "rows": len(rows),
        "whole at first closing": ours.whole,
        "rows held": float(ours.rows.mean()),
        "rows held, peak": int(ours.rows.max()),
        "state [bytes]": ours.size_bytes,
        "Spark's delay [s]": delay_s,
        "Spark's whole": spark.whole,
        "Spark's rows": float(spark.rows.mean()),
        "Spark's rows, peak": int(spark.rows.max()),
        "Spark's state [bytes]": spark.size_bytes,
        "saved": 1 - float(ours.rows.mean() / spark.rows.mean()),
        **by_slice(rows, new, few),
    }


def by_slice(
    rows: RowBatch, new: Callable[[SliceOrder], Assembler], parts: Sequence[NDArray[np.intp]]
) -> dict[str, Any]:
    """Hold rows in small batches, as the stream does and in order of time, beside the watermark for either.

    Each watermark is the least by which as many slices are whole as with the join that it stands beside.
    """
    found: dict[str, Any] = {}
    orders: tuple[tuple[str, SliceOrder], ...] = (("by slice", "whole"), ("in order", "time"))
    for name, order in orders:
        assembler = new(order)
        held, of = _ours(rows, assembler, parts, sized=False), _numbers(parts)
        delay_s = least_delay_s(rows.time_ns, of, assembler.slice_ns, held.whole, waiting=False)
        reckoned = not_passed(rows.time_ns, of, assembler.slice_ns, delay_s)
        found |= {
            f"{name}: whole": held.whole,
            f"{name}: closed behind a later one": held.behind,
            f"{name}: rows held": float(held.rows.mean()),
            f"{name}: latency [s]": held.latency_s,
            f"{name}: delay [s]": delay_s,
            f"{name}: watermark's rows": float(reckoned.mean()),
            f"{name}: saved": 1 - float(held.rows.mean() / reckoned.mean()),
        }
    return found


def _numbers(parts: Sequence[NDArray[np.intp]]) -> Integers:
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def arrived(load: Arrivals, time_ns: Integers | None = None) -> RowBatch:
    """Return the tuples of a load as rows of stations, one reading each; a key is the number of a slice.

    Times are those of the slices, unless given since `EPOCH_S` [ns].
    """
    count = len(load)
    numbers, ones = np.arange(1, count + 1), np.full(count, -1)
    came_ns = EPOCH_S * SECOND_NS + load.arrival_ns
    origins = tuple(("net", str(stream)) for stream in range(load.streams))
    since_ns = load.key * round(SLICE_S * SECOND_NS) if time_ns is None else time_ns
    return replace(
        RowBatch.empty(origins), seq=numbers, came_ns=came_ns, arrival_ns=came_ns,
        time_ns=EPOCH_S * SECOND_NS + since_ns,
        origin=load.stream.astype(np.int32), counter=ones, stops=numbers, column=np.zeros(count, np.int32),
        value=np.zeros(count), flag=np.ones(count, np.uint8),
    )  # fmt: skip


def settings(slices: int, batches: int, notify: Tell) -> list[dict[str, Any]]:
    """Return a row for each setting of table 5.4, static and moving lags, of 23 stations."""
    rows = []
    for done, (about, load) in _loads(slices):
        notify("table 5.4 beside Spark's watermark", done)
        given = arrived(load)
        rows.append({**about, **compare(given, partial(_new, given), batches=batches, at_once=load.streams)})
    return rows


def _loads(slices: int) -> Iterator[tuple[float, tuple[dict[str, str], Arrivals]]]:
    """Yield the share that is done, and setting, kind of lag and tuples of each setting of table 5.4."""
    cases = [(name, moving) for name in SETTINGS for moving in (False, True) if SETTINGS[name][1] > 0 or not moving]
    for place, (name, moving) in enumerate(cases):
        lag = "moving" if moving else "static" if SETTINGS[name][1] > 0 else "none"
        load = station_load(name, moving=moving, keys=slices).arrivals()
        yield place / len(cases), ({"setting": name, "lag": lag}, load)


def _new(given: RowBatch, order: SliceOrder) -> Assembler:
    return Assembler(SLICE_S, order=order, expected=given.origins)


def _ours(rows: RowBatch, assembler: Assembler, parts: Sequence[NDArray[np.intp]], *, sized: bool = True) -> Held:
    held, size, took = [], [], []
    for part in parts:
        took.append(assembler.process(rows.take(part), no_ticks()))
        held.append(len(assembler))
        size.append(len(assembler.to_bytes()) if sized else 0)
    closed, whole, _ = closed_slices(rows, took, assembler.slice_ns)
    count = int(closed.sum())
    return Held(
        np.array(held), float(np.mean(size)), float(whole.sum() / count), count, _behind(took, assembler) / count,
        _latency_s(took, assembler),
    )  # fmt: skip


def _behind(took: Sequence[EmittedRows], assembler: Assembler) -> int:
    """Return how many slices closed in a batch after one in which a later slice did."""
    greatest, behind = -(2**62), 0
    for part in took:
        closed = np.unique(part.rows.time_ns[~part.late] // assembler.slice_ns)
        behind += int((closed < greatest).sum())
        greatest = max(greatest, int(closed.max(initial=greatest)))
    return behind


def _latency_s(took: Sequence[EmittedRows], assembler: Assembler) -> float:
    """Return the mean time from the end of a slice to its closing [s]."""
    key = np.concatenate([part.rows.time_ns[~part.late] // assembler.slice_ns for part in took])
    closed_ns = np.concatenate([part.closed_ns[~part.late] for part in took])
    slices, first = np.unique(key, return_index=True)
    return float(np.mean(closed_ns[first] - (slices + 1) * assembler.slice_ns) / SECOND_NS)


def closed_slices(
    rows: RowBatch, took: Sequence[EmittedRows], slice_ns: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.intp]]:
    """Return which slices closed, and were whole at first, shape (k,), and which of them what is let go is of, (e,).

    Parameters
    ----------
    rows
        All that came, each in a record of its own, in order.
    """
    keys, which = np.unique(rows.time_ns // slice_ns, return_inverse=True)
    of = which[np.searchsorted(rows.seq, np.concatenate([part.rows.seq for part in took]))]
    late = np.concatenate([part.late for part in took])
    closed = np.zeros(len(keys), np.bool_)
    closed[of[~late]] = True
    whole = closed.copy()
    whole[of[late]] = False
    return closed, whole, of


def least_delay_s(time_ns: Integers, batch: Integers, slice_ns: int, share: float, *, waiting: bool = True) -> int:
    """Return the least delay of a watermark by which that share of slices is whole when Spark first closes them [s].

    Where data are waiting, batch e closes what the greatest time stamp of the batches before it, less the delay, has
    passed, and a row is too late in a batch after that one; else an empty batch closes it before batch e.
    """
    greatest = _greatest(time_ns, batch)
    keys, which = np.unique(time_ns // slice_ns, return_inverse=True)
    last = np.zeros(len(keys), np.int64)
    np.maximum.at(last, which, batch)
    ends = (keys + 1) * slice_ns
    before = last - (2 if waiting else 1)
    # A slice that ends at the watermark is passed.
    needed = np.where(before >= 0, greatest[np.maximum(before, 0)] - ends, -1) // SECOND_NS + 1
    return max(0, int(np.quantile(needed, share, method="higher")))


def not_passed(time_ns: Integers, batch: Integers, slice_ns: int, delay_s: int) -> Integers:
    """Return the rows so far whose slice the newest watermark has not passed, after each batch, shape (b,).

    Rows that came too late were never held.
    """
    ends = (time_ns // slice_ns + 1) * slice_ns
    marks = _greatest(time_ns, batch) - delay_s * SECOND_NS
    # The marks rise: a row is held from its batch to the first whose mark has passed its slice.
    until = np.searchsorted(marks, ends)
    change = np.zeros(len(marks) + 1, np.int64)
    held = until > batch
    np.add.at(change, batch[held], 1)
    np.add.at(change, until[held], -1)
    return np.cumsum(change)[:-1]


def _greatest(time_ns: Integers, batch: Integers) -> Integers:
    """Return the greatest time stamp up to each batch [ns], shape (b,)."""
    found = np.full(int(batch.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(found, batch, time_ns)
    return np.maximum.accumulate(found)


def _spark(time_ns: Integers, batch: Integers, slice_ns: int, delay_s: int) -> Held:
    with bench_session() as spark, tempfile.TemporaryDirectory() as scratch:
        closed, size = _collected(spark, time_ns, batch, slice_ns, delay_s, Path(scratch))
    slices, count = time_ns // slice_ns, int(batch.max()) + 1
    gone = np.full(len(time_ns), count)
    for number, rows in closed:
        gone[rows] = number
    shut = np.unique(slices[gone < count])
    # A row that its slice went without was never held.
    dropped = (gone == count) & np.isin(slices, shut)
    held = np.array([int(((batch <= now) & (gone > now) & ~dropped).sum()) for now in range(count)])
    whole = len(shut) - len(np.unique(slices[dropped]))
    return Held(held, size, whole / len(shut), len(shut))


def _collected(
    spark: Any,  # noqa: ANN401 - pyspark is heavy
    time_ns: Integers,
    batch: Integers,
    slice_ns: int,
    delay_s: int,
    folder: Path,
) -> tuple[list[tuple[int, list[int]]], float]:
    """Return batches and the rows that went with them, and the mean bytes of the state."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    (folder / "rows").mkdir()
    for number in range(int(batch.max()) + 1):
        own = np.flatnonzero(batch == number)
        table = pa.table({"time": pa.array(time_ns[own] // 1000, pa.timestamp("us", tz="UTC")), "row": pa.array(own)})
        path = folder / "rows" / f"{number:06d}.parquet"
        pq.write_table(table, path)
        # Spark takes files in the order of their times.
        os.utime(path, (EPOCH_S + number, EPOCH_S + number))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_IN_HEAP)
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(int(batch.max()) + 10))
    source = (
        spark.readStream.schema("time timestamp, row long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "rows"))
    )
    slices = f.window("time", f"{slice_ns // 10**6} milliseconds")
    collected = (
        source.withWatermark("time", f"{delay_s} seconds").groupBy(slices).agg(f.collect_list("row").alias("rows"))
    )
    closed: list[tuple[int, list[int]]] = []

    def take(frame: Any, number: int) -> None:  # noqa: ANN401
        closed.extend((number, row.rows) for row in frame.select("rows").collect())

    query = (
        collected.writeStream.outputMode("append")
        .foreachBatch(take)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = [one for one in query.recentProgress if one.numInputRows]
    size = float(np.mean([one.stateOperators[0].memoryUsedBytes for one in told]))
    return closed, size
