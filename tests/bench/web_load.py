"""Requests that come at their times whether others were answered or not (open loop), and a server to send them to."""

import asyncio
import json
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import psutil

from queries.web.auth.keys import FILE, KeyStore, Scope
from tests.bench.standing_network import Network, documents, feed

PERIOD_S: Final = 2.0
"""From slice to slice: the sample network at 60 times real time."""
SLICES: Final = 2160
"""Slices that are there before: three days."""
STANDING: Final = 20
READY_S: Final = 120.0
"""How long a server may take to become ready [s]."""
QUERIES_FOLDER: Final = Path(__file__).parents[2] / "station_data" / "queries"

_PROGRAM: Final = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from hypergrid.core.settings import Settings
    from queries.web.serving import Pages, serve_archive
    from viz.site import site

    serve_archive(
        Path(sys.argv[1]), Settings(port=0, state=sys.argv[2]), pages=Pages(site()), saved=Path(sys.argv[3]),
        on_ready=lambda address: print(address, flush=True),
    )
    """
)


@dataclass
class Answers:
    """What came of requests."""

    seconds: list[float] = field(default_factory=list)
    """From the time that each was due until its answer was there, in the order of the answers [s]."""
    statuses: Counter[int] = field(default_factory=Counter)
    """0: none, the connection failed."""
    bodies: list[bytes] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Return a quantile of the times [s]."""
        return float(np.quantile(self.seconds, share))

    @property
    def errors(self) -> int:
        """Answers other than 200, 202 and 429."""
        return sum(count for status, count in self.statuses.items() if status not in (200, 202, 429))


class Connections:
    """Connections that are kept open; as many are made as requests wait at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer to a request; one that an idle connection loses is sent once more."""
        while self._idle:
            pair = self._idle.pop()
            with suppress(OSError, asyncio.IncompleteReadError):
                return await self._over(pair, request)
        return await self._over(await asyncio.open_connection(self._host, self._port), request)

    async def _over(self, pair: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes) -> tuple[int, bytes]:
        reader, writer = pair
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
        body = await reader.readexactly(length)
        self._idle.append(pair)
        return int(lines[0].split()[1]), body

    def close(self) -> None:
        """Close those that are idle."""
        for _, writer in self._idle:
            writer.close()


async def open_loop(
    host: str,
    port: int,
    requests: list[bytes],
    *,
    per_s: float,
    timeout_s: float = 30.0,
    stop: threading.Event | None = None,
) -> Answers:
    """Send requests at a rate, each when it is due, none any more once `stop` is set; return what came of them."""
    connections, answers = Connections(host, port), Answers()
    begun = time.perf_counter()

    async def one(number: int) -> None:
        due = begun + number / per_s
        try:
            status, body = await asyncio.wait_for(connections.ask(requests[number]), timeout_s)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            status, body = 0, b""
        answers.seconds.append(time.perf_counter() - due)
        answers.statuses[status] += 1
        answers.bodies.append(body)

    tasks = []
    for number in range(len(requests)):
        wait_s = begun + number / per_s - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if stop is not None and stop.is_set():
            break
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.gather(*tasks)
    connections.close()
    return answers


def get(path: str, *, key: str = "") -> bytes:
    """Return a GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{_shown(key)}\r\n".encode()


def post(path: str, document: dict[str, Any], *, key: str = "") -> bytes:
    """Return a POST request of a JSON document."""
    body = json.dumps(document).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"{_shown(key)}"
    )
    return head.encode() + b"\r\n" + body


def _shown(key: str) -> str:
    return f"X-API-Key: {key}\r\n" if key else ""


def q1_like(number: int, *, cells: int = 23, step: str = "1arcsec", time: str = "10min") -> dict[str, Any]:
    """Return Q1 on a grid and with a variogram of its own, so that no two share a run; `cells` a side, of `time`."""
    variogram = {"model": "exponential", "psill": 1.2, "range_m": 250.0 + number, "nugget": 0.05}
    grid = {"lon": f"7:10:{37 + number % 8}", "lat": "45:52:01", "step": step, "shape": [cells, cells]}
    params = {"neighbours": 20, "variogram": variogram}
    return {
        "variable": "air_temperature",
        "steps": [
            {"op": "convert", "function": "valid_range", "params": {"low": -40.0, "high": 50.0}},
            {"op": "aggregate", "function": "mean", "time": time},
            {"op": "interpolate", "method": "ordinary_kriging", "grid": grid, "params": params},
            {"op": "aggregate", "function": "mean", "time": "all"},
        ],
        "clip": {"time": ["2007-10-01T00:00Z", "2007-10-04T00:00Z"]},
    }


@dataclass(frozen=True)
class Served:
    """A server in a process of its own, with a network that grows."""

    host: str
    port: int
    process: psutil.Process
    client: httpx.Client
    keys: tuple[str, ...] = ()
    """Access keys of different askers, of scope "query"."""

    @property
    def address(self) -> str:
        """Where its pages are."""
        return f"http://{self.host}:{self.port}/"

    def peak_bytes(self) -> int:
        """Return the most memory that the process ever had [bytes]."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def standing(self) -> dict[str, Any]:
        """Return what the standing queries tell."""
        return dict(self.client.get("/api/v1/standing/statistics").json())


@contextmanager
def serving(archive: Path, state: Path, *, keys: int = 0) -> Iterator[Served]:
    """Serve an archive and its pages in a process of its own, at a port that is free; `keys`: for so many askers."""
    made = _made_keys(state, keys)
    command = [sys.executable, "-c", _PROGRAM, str(archive), str(state), str(QUERIES_FOLDER)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        headers = {"X-API-Key": made[0]} if made else {}
        with httpx.Client(base_url=address, timeout=60, headers=headers) as client:
            port = int(httpx.URL(address).port or 0)
            ends_s = time.monotonic() + READY_S
            while client.get("/health/ready").status_code != 200:
                assert time.monotonic() < ends_s, "the server did not become ready"
                time.sleep(0.05)
            yield Served("127.0.0.1", port, psutil.Process(process.pid), client, tuple(made[1:]))
    finally:
        process.terminate()
        process.wait(30)


def _made_keys(state: Path, count: int) -> list[str]:
    """Return a key of scope "admin", and so many of scope "query"; none where none are wanted."""
    if not count:
        return []
    store = KeyStore(state / FILE)
    scopes: list[Scope] = ["admin", *["query"] * count]
    return [store.create(f"key-{number}", scope, now_ns=time.time_ns())[1] for number, scope in enumerate(scopes)]


@contextmanager
def served(*, slices: int = SLICES, standing: int = STANDING, fed_s: float = 600.0, keys: int = 0) -> Iterator[Served]:
    """Serve a network to which a slice comes every two seconds, with standing queries that are fresh at the start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        network = Network(folder / "archive")
        network.create(slices)
        feeding = None
        with serving(folder / "archive", folder / "state", keys=keys) as here:
            try:
                for document in documents(standing, templates=standing, side=6):
                    here.client.post("/api/v1/standing", json=document).raise_for_status()
                settle(here)
                before = here.standing()["evaluations"]
                feeding = feed(folder / "archive", network.slices, round(fed_s / PERIOD_S), PERIOD_S)
                wait(lambda: here.standing()["evaluations"] > before, "no slice came")
                yield here
            finally:
                if feeding is not None:
                    feeding.kill()
                    feeding.wait()


def settle(here: Served) -> None:
    """Wait until no standing query has waited for a while."""
    calm = 0

    def is_calm() -> bool:
        nonlocal calm
        calm = calm + 1 if here.standing()["queue"] == 0 else 0
        return calm == 5

    wait(is_calm, "the standing queries were never fresh")


def wait(happened: Callable[[], bool], otherwise: str, *, seconds: float = 300.0) -> None:
    """Return once it happened; fail with `otherwise` where it does not within so many seconds."""
    ends = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < ends, otherwise
        time.sleep(0.3)
