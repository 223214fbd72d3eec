"""The benchmark of a server's first seconds in small: that it counts what it says. No time is tested."""

from tests.bench import bench_cold_start


def test_a_server_that_has_just_started_answers_every_request() -> None:
    measured = bench_cold_start.measure(quick=True, slices=90)
    (row,) = measured["rows"]
    assert (row["requests"], row["without an answer"], row["not 200"]) == (200, 0, 0)
    assert row["median s"] <= row["p99 s"] <= row["longest s"]
    ((_, columns, shown),) = bench_cold_start.tables(measured)
    assert columns == ("figure", "server 1")
    assert {name for name, _ in shown} == set(row)
