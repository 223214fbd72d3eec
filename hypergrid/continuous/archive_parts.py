"""Back-tests in parts: how they are cut, what a part writes, and the results of all parts merged in order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from hypergrid.continuous.archive_query import ArchiveQuery, QueryPart
from hypergrid.continuous.engine import ChangeBatch, Texts
from hypergrid.continuous.engine.batch import PHYSICAL, Column
from hypergrid.continuous.expressions import GREATEST_INTEGER
from hypergrid.continuous.records import SIGN, TAU
from hypergrid.continuous.result_order import sort_changes
from hypergrid.continuous.sources import Stretch

if TYPE_CHECKING:
    import pandas

WARM_SHARE: Final = 0.25
"""Longest time that a stretch is warmed up for, as a share of the stretch."""
MERGED_ROWS: Final = 65_536
"""Rows of a part that are held at once while parts are merged; an instant is always whole."""


@dataclass(frozen=True)
class PartPlan:
    """Parts of a back-test."""

    parts: tuple[QueryPart, ...]
    is_by_key: bool
    reason: str
    """Sentence: by what it is split, or why not."""


def plan_parts(query: ArchiveQuery, stretch: Stretch, count: int) -> PartPlan:
    """Cut a back-test into parts, by time where stretches are long beside what they need before, else by key.

    Parameters
    ----------
    stretch
        The whole, with its bounds.
    count
        Parts that are wanted, at most.
    """
    start, end = stretch.start_ns, stretch.end_ns
    if start is None or end is None:
        raise ValueError("a stretch is cut between its bounds")
    how = query.partitioning
    warm = None if how.horizon_ns is None or stretch.order == "arrival" else how.horizon_ns + 1
    stretches = 0 if warm is None else min(count, int((end - start) * WARM_SHARE // warm))
    is_by_time = stretches > 1 and not (how.keys and stretches < count)
    if not is_by_time and not how.keys:
        why = "; ".join(how.describe()[:2])
        if stretch.order == "arrival" and how.horizon_ns is not None:
            why = f"not by key: {how.why_no_key}; not by time: in order of arrival any reading can be in any stretch"
        elif warm is not None:
            why = f"not by key: {how.why_no_key}; not by time: the stretch is short beside what results reach back"
        return PartPlan((QueryPart(stretch, start),), is_by_key=False, reason=f"it runs in one task, {why}")
    firsts = query.find_firsts(stretch) if how.shows_from_start else {}
    if how.shows_from_start and not firsts:
        return PartPlan((QueryPart(stretch, start),), is_by_key=False, reason="it runs in one task: no input has a row")
    if not is_by_time:
        parts = tuple(QueryPart(stretch, start, firsts, how.keys, number, count) for number in range(count))
        return PartPlan(parts, is_by_key=True, reason=how.describe()[0])
    bounds = [start + (end - start) * number // stretches for number in range(stretches + 1)]
    assert warm is not None
    cuts = zip(bounds[:-1], bounds[1:], strict=True)
    parts = tuple(QueryPart(Stretch(max(start, first - warm), last), first, firsts) for first, last in cuts)
    return PartPlan(parts, is_by_key=False, reason=how.describe()[1])


def write_part(query: ArchiveQuery, part: QueryPart, path: Path) -> int:
    """Write the results of a part; returns how many."""
    texts, rows = Texts(), 0
    attributes = query.bound.tree.attributes
    kinds = [pa.string() if each.kind == "text" else pa.from_numpy_dtype(PHYSICAL[each.kind]) for each in attributes]
    names = [TAU, SIGN, *(f"c{position}" for position in range(len(attributes)))]
    schema = pa.schema(list(zip(names, [pa.int64(), pa.int8(), *kinds], strict=True)))
    with pa.ipc.new_file(path, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as sink:
        for changes, _ in query.iterate_changes(texts, part):
            for batch in (sort_changes(each, attributes, texts) for each in changes):
                columns = [
                    pa.array(texts.decode(column), pa.string()) if each.kind == "text" else pa.array(column)
                    for column, each in zip(batch.columns, attributes, strict=True)
                ]
                whole = pa.table([pa.array(batch.tau), pa.array(batch.sign), *columns], schema=schema)
                sink.write_table(whole, max_chunksize=MERGED_ROWS)
                rows += len(batch.tau)
    return rows


def merge_parts(query: ArchiveQuery, paths: Sequence[Path], *, is_by_key: bool) -> "Iterator[pandas.DataFrame]":
    """Yield the results of all parts in canonical order, as tables of bounded size."""
    texts, count = Texts(), 0
    feeds = [_PartFeed(query, path, texts) for path in paths]
    for group in [feeds] if is_by_key else [[feed] for feed in feeds]:
        while any(not feed.is_done for feed in group):
            # All parts are read past this instant, so the rows before it are there.
            limit = min((feed.fill() for feed in group), default=GREATEST_INTEGER)
            taken = [feed.take(limit) for feed in group]
            tau, sign = (np.concatenate([getattr(each, name) for each in taken]) for name in ("tau", "sign"))
            columns = tuple(np.concatenate(column) for column in zip(*(each.columns for each in taken), strict=True))
            batch = ChangeBatch(tau, sign, columns)
            count += len(tau)
            if len(tau):
                yield query.tabulate([sort_changes(batch, query.bound.tree.attributes, texts)], texts)
    if not count:
        yield query.tabulate([])


class _PartFeed:
    """Results of one part, read a batch after another."""

    def __init__(self, query: ArchiveQuery, path: Path, texts: Texts) -> None:
        self._attributes, self._texts = query.bound.tree.attributes, texts
        self._file = pa.ipc.open_file(path)
        self._next = 0
        self._held: list[ChangeBatch] = []

    @property
    def is_done(self) -> bool:
        return self._next == self._file.num_record_batches and not self._held

    def fill(self) -> int:
        """Read until an instant is whole; returns the instant before which all rows are read [ns]."""
        while self._next < self._file.num_record_batches:
            if self._held and self._held[-1].tau[-1] > self._held[0].tau[0]:
                return int(self._held[-1].tau[-1])
            batch = self._decode(self._file.get_batch(self._next))
            self._next += 1
            self._held += [batch] if len(batch.tau) else []
        return GREATEST_INTEGER

    def take(self, limit: int) -> ChangeBatch:
        """Return the rows before an instant, and forget them."""
        empty = [
            np.empty(0, np.int64),
            np.empty(0, np.int8),
            *(np.empty(0, PHYSICAL[p.kind]) for p in self._attributes),
        ]
        whole = [np.concatenate(each) for each in zip(empty, *map(_list_arrays, self._held), strict=True)]
        count = len(whole[0]) if limit == GREATEST_INTEGER else int(np.searchsorted(whole[0], limit))
        rest = [each[count:] for each in whole]
        self._held = [ChangeBatch(rest[0], rest[1], tuple(rest[2:]))] if len(rest[0]) else []
        return ChangeBatch(whole[0][:count], whole[1][:count], tuple(each[:count] for each in whole[2:]))

    def _decode(self, batch: pa.RecordBatch) -> ChangeBatch:
        columns: list[Column] = []
        for column, part in zip(batch.columns[2:], self._attributes, strict=True):
            if part.kind == "text":
                coded = column.dictionary_encode()
                codes = self._texts.encode([*coded.dictionary.to_pylist(), None])
                columns.append(codes[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
            else:
                columns.append(column.to_numpy(zero_copy_only=False))
        return ChangeBatch(batch.column(0).to_numpy(), batch.column(1).to_numpy(), tuple(columns))


def _list_arrays(batch: ChangeBatch) -> list[Column]:
    return [batch.tau, batch.sign, *batch.columns]
