"""What `hypergrid stream` holds in both orders of slices, beside windows and watermarks: table 5.4 as it is deployed.

The assembler that the stream keeps is fed the tuples of `wo_join_orders` in batches of a slice, and what it holds
between batches is counted. A watermark beside it moves after each such batch.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from hypergrid.core.times import SECOND_NS
from ingest.deployment.deployment_file import SliceOrder
from ingest.streaming.assembler import Assembler
from tests.bench.bench_wo_join import SHOWN, show_rows
from tests.bench.ingest_watermark import EPOCH_S, arrived
from tests.bench.kriging_figures import Tell
from tests.bench.wo_join_cases import Sizes
from tests.bench.wo_join_orders import LAGS, Case, Held, Side
from tests.bench.wo_join_orders import measure as measure_orders
from tests.support.no_clock import no_ticks
from tests.support.streams.slice_windows import Slices

SIZES = replace(Sizes(), order_slices=1500, real_days=2)
"""Slices and days: the stream takes a batch for each slice, which takes as long as many tuples of the join."""


def measure(sizes: Sizes, notify: Tell) -> dict[str, Any]:
    """Return the rows of `wo_join_orders.measure`, where the stream holds the tuples."""
    return measure_orders(sizes, notify, Side(hold, lambda case: case.arrivals.streams, LAGS[:2]))


def hold(case: Case, slices: Slices, _: Sizes, in_order: bool) -> Held:  # noqa: FBT001 - as of a `Side`
    """Return what the stream's assembler holds after each batch."""
    load, order = case.arrivals, cast("SliceOrder", "time" if in_order else "whole")
    rows = arrived(load, case.time_ns)
    assembler = Assembler(case.slice_ns / SECOND_NS, case.idle_s, order=order, expected=rows.origins)
    held, at, emitted = [], [], []
    for part in np.array_split(np.arange(len(load)), max(1, len(load) // load.streams)):
        emitted.append(assembler.process(rows.take(part), no_ticks()))
        held.append(len(assembler))
        at.append(int(part[-1]))
    late = np.concatenate([part.late for part in emitted])
    time_ns = np.concatenate([part.rows.time_ns for part in emitted])
    closed_ns = np.concatenate([part.closed_ns for part in emitted]) - EPOCH_S * SECOND_NS
    # Keys count from where the times of a case do.
    key = (time_ns - EPOCH_S * SECOND_NS) // case.slice_ns
    waited_ns = (closed_ns - load.arrival_ns[slices.last[np.searchsorted(slices.keys, key)]])[~late]
    whole = ~np.isin(slices.keys, key[late])
    return Held(np.array(at), np.array(held), whole, float(np.maximum(waited_ns, 0).mean()) / SECOND_NS)


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows."""
    title = f"Table 5.4 as the stream holds it, in batches of a slice, {measured['seeds']} loads"
    return [show_rows("; ".join([title, *measured["absent"]]), measured["rows"], SHOWN["orders"])]
