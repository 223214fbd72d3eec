"""The workloads of `bench_cql` by Pathway: a table of pandas, for the sliding mean joined with itself over an hour."""

import numpy as np
import pandas as pd
import pathway as pw

from tests.bench.cql_peer_program import HOUR_NS, Columns, Job, serve


def run(job: Job, columns: Columns) -> Columns:
    """Return the rows of a workload."""
    pw.internals.parse_graph.G.clear()
    table = pw.debug.table_from_pandas(pd.DataFrame(columns))
    if job.workload == "filter":
        result = table.filter((table["A"] > 10) & (table["B"] < 20) & (table["C"] > 40)).select(pw.this.tau)
    elif job.workload == "hourly_mean":
        hours = table.windowby(table.tau, window=pw.temporal.tumbling(duration=HOUR_NS), instance=table.station)
        result = hours.reduce(
            tau=pw.this._pw_window_end, station=pw.this._pw_instance, mean=pw.reducers.avg(pw.this.value)
        )
    else:
        other = table.copy()
        hour = pw.temporal.interval(-HOUR_NS + 1, 0)
        pairs = table.interval_join(other, table.tau, other.tau, hour, table.station == other.station)
        pairs = pairs.select(table.tau, table.station, value=other.value)
        result = pairs.groupby(pw.this.tau, pw.this.station).reduce(
            pw.this.tau, pw.this.station, mean=pw.reducers.avg(pw.this.value)
        )
    frame = pw.debug.table_to_pandas(result, include_id=False)
    return {name: np.asarray(frame[name]) for name in frame}


if __name__ == "__main__":
    serve(run)
