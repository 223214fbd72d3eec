"""The workloads of `bench_cql` by pyclink: Parquet in a file, as it takes no columns in memory, and rows collected."""

import atexit
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyclink

from tests.bench.cql_peer_program import Columns, Job, serve

TABLES = {
    "filter": ("tau BIGINT, a DOUBLE, b DOUBLE, c DOUBLE", "tau BIGINT"),
    "sliding_mean": (
        "tau BIGINT, station BIGINT, value DOUBLE",
        "tau BIGINT, station BIGINT, value DOUBLE, mean DOUBLE",
    ),
    "hourly_mean": ("tau BIGINT, station BIGINT, value DOUBLE", "tau BIGINT, station BIGINT, mean DOUBLE"),
}
QUERIES = {
    "filter": "SELECT tau FROM given WHERE a > 10 AND b < 20 AND c > 40",
    # Instants are milliseconds there.
    "sliding_mean": """SELECT *, AVG(value) OVER (PARTITION BY station ORDER BY tau
        RANGE BETWEEN 3599999 PRECEDING AND CURRENT ROW) AS mean FROM given""",
    "hourly_mean": """SELECT window_end AS tau, station, AVG(value) AS mean FROM given
        GROUP BY TUMBLE(tau, INTERVAL '1' HOUR), station""",
}
FOLDER = tempfile.TemporaryDirectory()
atexit.register(FOLDER.cleanup)


def write_input(job: Job, columns: Columns) -> Path:
    """Return a file with the rows of a workload."""
    path = Path(FOLDER.name, "given.parquet")
    table = {name.lower(): values for name, values in columns.items()}
    if job.workload != "filter":
        table["tau"] = table["tau"] // 1_000_000
    pq.write_table(pa.table(table), path, compression="none", use_dictionary=False)
    return path


def run(job: Job, path: Path) -> Columns:
    """Return the rows of a workload."""
    given, result = TABLES[job.workload]
    time = ", event_time_column='tau'" if job.workload != "filter" else ""
    with pyclink.Engine() as engine:
        engine.execute(
            f"CREATE TABLE given ({given}) WITH (connector='parquet', format='parquet', path='{path}'{time});"
            f"CREATE TABLE result ({result}) WITH (connector='collect', format='json');"
            f"INSERT INTO result {QUERIES[job.workload]}"
        )
        rows = engine.collect("result").read_all()
        engine.await_all()
    columns = {name: np.asarray(rows[name]) for name in rows.column_names}
    if job.workload != "filter":
        columns["tau"] = columns["tau"] * 1_000_000
    return columns


if __name__ == "__main__":
    serve(run, write_input)
