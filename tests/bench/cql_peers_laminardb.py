"""The workloads of `bench_cql` by LaminarDB: batches of Arrow into a source, and a subscription to its stream."""

import time

import laminardb
import numpy as np
import pyarrow as pa

from tests.bench.cql_peer_program import HOUR_NS, Columns, Job, serve

SOURCES = {
    "filter": "given (tau BIGINT, a DOUBLE, b DOUBLE, c DOUBLE)",
    "sliding_mean": "given (tau BIGINT, station BIGINT, value DOUBLE)",
    # Rows behind the watermark are dropped, even within one batch, which may span two hours.
    "hourly_mean": """given (tau TIMESTAMP, station BIGINT, value DOUBLE,
        WATERMARK FOR tau AS tau - INTERVAL '3' HOUR)""",
}
QUERIES = {
    "filter": "SELECT tau FROM given WHERE a > 10 AND b < 20 AND c > 40",
    "sliding_mean": f"""SELECT tau, station, AVG(value) OVER (PARTITION BY station ORDER BY tau
        RANGE BETWEEN {HOUR_NS - 1} PRECEDING AND CURRENT ROW) AS mean FROM given""",
    "hourly_mean": """SELECT TUMBLE(tau, INTERVAL '1' HOUR) AS tau, station, AVG(value) AS mean FROM given
        GROUP BY station, TUMBLE(tau, INTERVAL '1' HOUR) EMIT ON WINDOW CLOSE""",
}
SILENCE_MS = 2000
"""Results have ended once none came for so long; waiting takes no processor time."""
PAUSE_S = 0.1


def make_table(job: Job, columns: Columns) -> pa.Table:
    """Return rows as LaminarDB takes them."""
    table = {name.lower(): values for name, values in columns.items()}
    if job.workload == "hourly_mean":
        table["tau"] = (table["tau"] // 1_000_000).astype("datetime64[ms]")
    return pa.table(table)


def run(job: Job, table: pa.Table) -> Columns:
    """Return the rows of a workload."""
    parts: list[pa.Table] = []
    with laminardb.open(":memory:") as database:
        database.execute(f"CREATE SOURCE {SOURCES[job.workload]}")
        database.execute(f"CREATE STREAM result AS {QUERIES[job.workload]}")
        database.start()
        results = database.subscribe_stream("result")
        with database.writer("given") as writer:
            for batch in table.to_batches(job.batch):
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
    result = {name: np.asarray(rows[name]) for name in rows.column_names}
    if job.workload == "hourly_mean":
        # It gives the start of an hour.
        result["tau"] = result["tau"].astype("datetime64[ns]").astype(np.int64) + HOUR_NS
    return result


if __name__ == "__main__":
    serve(run, make_table)
