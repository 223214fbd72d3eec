"""The benchmark of a server's first seconds in small: that it counts what it says. No time is tested."""

from tests.bench import bench_cold_start


def test_a_server_that_has_just_started_answers_every_request() -> None:
    measured = bench_cold_start.measure(quick=True, slices=90)
    assert {name: part["stations"] for name, part in measured["parts"].items()} == {"sample": 24, "larger": 400}
    tables = bench_cold_start.tables(measured)
    for part, (title, columns, shown) in zip(measured["parts"].values(), tables, strict=True):
        (row,) = part["rows"]
        assert (row["requests"], row["without an answer"], row["not 200"]) == (200, 0, 0)
        assert row["values"] == part["stations"]
        assert row["median s"] <= row["p99 s"] <= row["longest s"]
        assert row["kept"] == (row["p99 s"] <= bench_cold_start.P99_S)
        assert f" {part['stations']} stations" in title
        assert columns == ("figure", "server 1")
        assert {name for name, _ in shown} == set(row)
