"""The workloads of `bench_cql` by Flink SQL in one JVM: columns of Arrow as input, rows in order of time, one task."""

from functools import cache
from typing import Any

import pandas as pd
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import DataTypes, EnvironmentSettings, Schema, StreamTableEnvironment

from tests.bench.cql_peer_program import Columns, Job, serve

QUERIES = {
    "filter": "SELECT tau FROM given WHERE A > 10 AND B < 20 AND C > 40",
    "sliding_mean": """SELECT tau, station, AVG(`value`) OVER (PARTITION BY station ORDER BY instant
        RANGE BETWEEN INTERVAL '59:59.999' MINUTE TO SECOND(3) PRECEDING AND CURRENT ROW) AS mean FROM given""",
    "hourly_mean": """SELECT
        CAST(TIMESTAMPDIFF(HOUR, TIMESTAMP '1970-01-01 00:00:00', window_end) AS BIGINT) * 3600000000000 AS tau,
        station, AVG(`value`) AS mean FROM TABLE(TUMBLE(TABLE given, DESCRIPTOR(instant), INTERVAL '1' HOUR))
        GROUP BY window_start, window_end, station""",
}


@cache
def environment() -> StreamTableEnvironment:
    """Return the one environment of this process, whose JVM stays."""
    settings = Configuration()
    settings.set_string("parallelism.default", "1")
    settings.set_string("table.local-time-zone", "UTC")
    stream = StreamExecutionEnvironment.get_execution_environment(settings)
    stream.set_parallelism(1)
    return StreamTableEnvironment.create(stream, EnvironmentSettings.in_streaming_mode())


def run(job: Job, columns: Columns) -> Columns:
    """Return the rows of a workload, or send them to Flink's own sink that drops them."""
    tables = environment()
    types: list[Any] = [
        DataTypes.BIGINT() if values.dtype.kind == "i" else DataTypes.DOUBLE() for values in columns.values()
    ]
    kinds = DataTypes.ROW([DataTypes.FIELD(name, kind) for name, kind in zip(columns, types, strict=True)])
    table = tables.from_pandas(pd.DataFrame(columns), kinds)
    if job.workload != "filter":
        # Flink's instants have milliseconds where time is event time.
        timed = Schema.new_builder()
        for name, kind in zip(columns, types, strict=True):
            timed.column(name, kind)
        timed.column_by_expression("instant", "TO_TIMESTAMP_LTZ(tau / 1000000, 3)")
        timed.watermark("instant", "instant")
        table = tables.from_data_stream(tables.to_data_stream(table), timed.build())
    tables.create_temporary_view("given", table)
    result = tables.sql_query(QUERIES[job.workload])
    if job.is_checked:
        frame = result.to_pandas()
        tables.drop_temporary_view("given")
        return {name: frame[name].to_numpy() for name in frame}
    names = ", ".join(
        f"{name} {'DOUBLE' if name == 'mean' else 'BIGINT'}" for name in result.get_schema().get_field_names()
    )
    tables.execute_sql(f"CREATE TEMPORARY TABLE IF NOT EXISTS dropped ({names}) WITH ('connector' = 'blackhole')")
    result.execute_insert("dropped").wait()
    tables.drop_temporary_view("given")
    return {}


if __name__ == "__main__":
    serve(run)
