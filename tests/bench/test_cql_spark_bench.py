"""The benchmark of back-tests on Spark, on few readings: each way writes the file of one process."""

from tests.bench.cql_spark import measure_spark, spark_table


def test_each_way_writes_the_same_file() -> None:
    # Queries split by time are compared in `tests/ingest/spark/test_backtest.py`, in one session of Spark.
    measured = measure_spark(4, 3, cores=(2,), with_cluster=False, splits=["by station"])
    assert measured["readings"] == 4 * 144 * 3
    assert [run["split"] for run in measured["runs"]] == ["by station"] * 2
    assert all(run["rows"] > 0 for run in measured["runs"])
    assert any(run["tasks"] > 1 for run in measured["runs"])
    _, columns, rows = spark_table(measured)
    assert all(len(row) == len(columns) for row in rows)
