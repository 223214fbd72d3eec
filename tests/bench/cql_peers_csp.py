"""The workloads of `bench_cql` by csp: curves of numpy, its own statistics over time, and results in numpy."""

from datetime import UTC, datetime, timedelta

import csp
import csp.stats
import numpy as np

from tests.bench.cql_peer_program import Columns, Job, serve

START = datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None)
START_NS = np.datetime64(START, "ns")


def run(job: Job, columns: Columns) -> Columns:
    """Return the rows of a workload."""
    times = START_NS + columns["tau"].astype("timedelta64[ns]")
    span = {"starttime": START, "endtime": timedelta(microseconds=int(columns["tau"][-1]) // 1000 + 1)}
    if job.workload == "filter":

        def choose() -> None:
            a, b, c = (csp.curve(float, (times, columns[name])) for name in ("A", "B", "C"))
            csp.add_graph_output("A", csp.filter(csp.and_(a > 10.0, b < 20.0, c > 40.0), a))

        rows = csp.run(csp.graph(choose), **span, output_numpy=True)["A"]
        return {"tau": (rows[0] - START_NS).astype(np.int64)}
    stations = np.unique(columns["station"]).tolist()
    hour = timedelta(hours=1)

    def average() -> None:
        at_ends = {"trigger": csp.timer(hour, value=True)} if job.workload == "hourly_mean" else {}
        station = csp.curve(int, (times, columns["station"]))
        value = csp.curve(float, (times, columns["value"]))
        parts = csp.demultiplex(value, station, stations)
        for number in stations:
            mean = csp.stats.mean(parts[number], interval=hour, min_window=timedelta(0), **at_ends)
            csp.add_graph_output(str(number), mean)

    results = csp.run(csp.graph(average), **span, output_numpy=True)
    return {
        "tau": np.concatenate([(rows[0] - START_NS).astype(np.int64) for rows in results.values()]),
        "station": np.concatenate([np.full(len(rows[0]), int(number)) for number, rows in results.items()]),
        "mean": np.concatenate([rows[1] for rows in results.values()]),
    }


if __name__ == "__main__":
    serve(run)
