"""The workloads of `bench_cql` by LaminarDB: batches of Arrow into a source, and a subscription to its stream."""

import time

import laminardb
import numpy as np
import pyarrow as pa

from tests.bench.cql_peer_program import HOUR_NS, Columns, Job, serve

SOURCES = {
    "filter": "given (tau BIGINT, a DOUBLE, b DOUBLE, c DOUBLE)",
    "sliding_mean": "given (tau BIGINT, station BIGINT, value DOUBLE)",
}
QUERIES = {
    "filter": "SELECT tau FROM given WHERE a > 10 AND b < 20 AND c > 40",
    "sliding_mean": f"""SELECT tau, station, AVG(value) OVER (PARTITION BY station ORDER BY tau
        RANGE BETWEEN {HOUR_NS - 1} PRECEDING AND CURRENT ROW) AS mean FROM given""",
}
SILENCE_MS = 2000
"""Results have ended once none came for so long; waiting takes no processor time."""
PAUSE_S = 0.1


def run(job: Job, columns: Columns) -> Columns:
    """Return the rows of a workload."""
    parts: list[pa.Table] = []
    with laminardb.open(":memory:") as database:
        database.execute(f"CREATE SOURCE {SOURCES[job.workload]}")
        database.execute(f"CREATE STREAM result AS {QUERIES[job.workload]}")
        database.start()
        results = database.subscribe_stream("result")
        with database.writer("given") as writer:
            for batch in pa.table({name.lower(): values for name, values in columns.items()}).to_batches(job.batch):
                writer.insert(batch)
                writer.flush()
                if job.is_checked:
                    # Batches that wait are taken as one, which hides what is not kept from one to the next.
                    time.sleep(PAUSE_S)
        while True:
            try:
                part = results.next_timeout(SILENCE_MS)
            except laminardb.SubscriptionError:
                break
            if part is None:
                break
            parts.append(part.arrow())
    if not parts:
        raise RuntimeError("no row of the stream was received")
    rows = pa.concat_tables(parts)
    return {name: np.asarray(rows[name]) for name in rows.column_names}


if __name__ == "__main__":
    serve(run)
