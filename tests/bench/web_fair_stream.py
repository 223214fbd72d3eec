"""A stream of a thousand stations into the archive that is served: how soon readings are there, with ten large queries.

The lag of a reading is the time from its arrival until a version that holds it can be read.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.bench.ingest_stream import deployment_file, made, report_readings, watch
from tests.bench.kriging_figures import Tell
from tests.bench.standing_network import Network
from tests.bench.web_fair import ASKERS, SMALL_PER_S, large_queries, runs, small_requests, small_row
from tests.bench.web_load import serving, wait

STATIONS: Final = 1000
"""That stream."""
ASKED: Final = 24
"""Stations of the past days that the queries are of."""
NEWEST: Final = "/api/v1/latest?variable=air_temperature"
"""What small requests ask: each commit of the stream makes it anew."""
SLICE_S: Final = 10.0
PAST_S: Final = 330.0
"""What waits in the spool at the start [s]: of that long a join learns how stations come."""
BEGUN_S: Final = 420.0
"""How long the first readings are waited for [s]: Spark starts, and takes what waits."""
FRESH_S: Final = 3 * SLICE_S
"""Readings that waited no longer are no backlog [s]."""
SETTLED_S: Final = 45.0
"""How long the stream goes on after that before any lag counts [s]."""
IDLE_S: Final = 90.0
LOADED_S: Final = 300.0
"""So long that the step from the lag before to that with load is no growth [s]."""
LAG_GROWTH: Final = 0.02
"""What the lag may grow by, at most, in each second of the load."""
LAG_SHARE: Final = 1.5
"""What the median of the lag may be under load, of that without."""

Seen = tuple[float, NDArray[np.float64]]
"""When a version was seen [s on the monotonic clock], and the lags of its new readings [s], shape (n,)."""


@dataclass(frozen=True)
class Lag:
    """Lags of the readings that were seen within a span of time."""

    readings: int
    median_s: float
    p99_s: float
    growth: float
    """By how much the lag grew in each second, by least squares."""


def lag_of(seen: Sequence[Seen], begin_s: float, end_s: float) -> Lag:
    """Return the lags of what was seen within a span of time; of nothing the lags are not a number."""
    within = [(at_s, lag_s) for at_s, lag_s in seen if begin_s <= at_s <= end_s]
    if not within:
        return Lag(0, np.nan, np.nan, np.nan)
    lags_s = np.concatenate([lag_s for _, lag_s in within])
    at_s = np.repeat([at_s for at_s, _ in within], [len(lag_s) for _, lag_s in within]) - begin_s
    growth = float(np.polyfit(at_s, lags_s, 1)[0]) if len(within) > 1 else np.nan
    return Lag(len(lags_s), float(np.median(lags_s)), float(np.quantile(lags_s, 0.99)), growth)


def is_kept(idle: Lag, loaded: Lag) -> bool:
    """Return whether a stream keeps its lag: it does not grow, and its median is not much above that without load."""
    return loaded.growth <= LAG_GROWTH and loaded.median_s <= LAG_SHARE * idle.median_s


def fair_stream(notify: Tell, quick: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - as the other parts
    """Return the lag of a stream while the server has nothing to do, and with a large query of each of ten keys."""
    notify("fair-stream", 0.0)
    settled_s, idle_s, loaded_s = (5.0, 20.0, 30.0) if quick else (SETTLED_S, IDLE_S, LOADED_S)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        deployment = deployment_file(folder, slice_s=SLICE_S, idle_s=60.0, stations=ASKED + STATIONS)
        archive = made(folder, deployment)
        # What the queries are of. Others stream: two series of a station would have to be chosen from in each query.
        Network(archive).begin(2160)
        with serving(archive, folder / "state", keys=ASKERS + 1) as here, _streamed(archive, deployment) as seen:
            *keys, small = here.keys
            wait(lambda: bool(seen) and float(seen[-1][1].min()) < FRESH_S, "no reading was seen", seconds=BEGUN_S)
            time.sleep(settled_s)
            notify("fair-stream", 0.5)
            idle_at_s = time.monotonic()
            time.sleep(idle_s)
            notify("fair-stream", 0.7)
            with large_queries(here, keys) as large:
                loaded_at_s = time.monotonic()
                requests = round(loaded_s * SMALL_PER_S)
                answers = small_requests(here, requests, small, address=NEWEST)
                ended_at_s, advanced = time.monotonic(), large.advanced()
    idle = lag_of(seen, idle_at_s, idle_at_s + idle_s)
    loaded = lag_of(seen, loaded_at_s, ended_at_s)
    row = {
        "stations": STATIONS, **runs(large, advanced), **small_row(answers, requests),
        "readings a second, idle": idle.readings / idle_s, "lag idle, median s": idle.median_s,
        "lag idle, p99 s": idle.p99_s, "lag idle, growth s/s": idle.growth,
        "readings a second": loaded.readings / (ended_at_s - loaded_at_s), "lag, median s": loaded.median_s,
        "lag, p99 s": loaded.p99_s, "lag, growth s/s": loaded.growth,
        "lag / lag idle, medians": loaded.median_s / idle.median_s, "lag kept": is_kept(idle, loaded),
    }  # fmt: skip
    notify("fair-stream", 1.0)
    return [row]


@contextmanager
def _streamed(archive: Path, deployment: Path) -> Iterator[list[Seen]]:
    """Run `hypergrid stream` while stations report; yield what is seen of their readings, as it comes."""
    seen: list[Seen] = []
    stopping = threading.Event()
    command = [sys.executable, "-m", "hypergrid", "stream", str(archive), "--deployment", str(deployment)]
    stream = subprocess.Popen([*command, "--trigger", "1s", "--json"], stdout=subprocess.DEVNULL)
    with ThreadPoolExecutor(2) as pool:
        reporting = pool.submit(report_readings, archive, STATIONS, stopping, first=ASKED + 1, past_s=PAST_S)
        watching = pool.submit(watch, archive, lambda at_s, lag_s: seen.append((at_s, lag_s)), stopping)
        try:
            yield seen
            assert stream.poll() is None, "the stream ended by itself"
        finally:
            stopping.set()
            stream.terminate()
            stream.wait(120)
    reporting.result()
    watching.result()
