"""Python client of a server: builds queries like a local archive and returns xarray.

::

    from viz.client import Client
    archive = Client("http://127.0.0.1:8765", key="…")
    hourly = archive["air_temperature"].aggregate("mean", time="1h").compute()
"""

import io
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self

import httpx
import pandas as pd
import xarray as xr

from hypergrid.core import errors
from hypergrid.core.errors import Cancelled, HyperGridError, NotFound
from hypergrid.perspective.spec.fluent import Fluent
from hypergrid.perspective.spec.query_spec import QuerySpec, question_from_json

PREFIX: Final = "/api/v1"
_SHORTEST_S: Final = 0.02
_LONGEST_S: Final = 1.0
"""Bounds of the polling interval for a running query [s], which grows by half each time."""
_PAUSE_S: Final = 1.0
"""Pause before retrying a request that got no answer [s]."""
_LONGEST_PAUSE_S: Final = 10.0
"""Upper limit of the pause for `Retry-After` [s]."""
_ENDED: Final = ("done", "failed", "cancelled")
_RAISED: Final = {
    "not-found": errors.NotFound, "invalid-query": errors.InvalidQuery, "invalid-function": errors.InvalidFunction,
    "invalid-unit": errors.InvalidUnit, "invalid-time": errors.InvalidTime, "singular-system": errors.SingularSystem,
    "cancelled": errors.Cancelled, "store-unavailable": errors.StoreUnavailable,
}  # fmt: skip
"""Error classes of local queries, by the last part of a problem's type."""


class ServerProblem(HyperGridError, RuntimeError):
    """The server cannot fulfil the request.

    Parameters
    ----------
    problem
        Its problem document (RFC 9457).
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{problem.get('title', 'It did not work')}: {problem.get('detail', 'no reason was given')}")
        self.problem = dict(problem)
        self.status = int(problem.get("status", 0))


class Client:
    """An archive behind the web API.

    Parameters
    ----------
    url
        Address of the server, including any path prefix.
    key
        An access key, if the server requires one.
    transport
        Transport of the requests; default: the network.
    timeout_s
        Timeout of a single answer [s]; a query may take longer.
    tries
        Attempts per request, if the server allows a retry or a GET gets no answer.

    Raises
    ------
    NotFound, InvalidQuery, ServerProblem, …
        The server's error, as the class that a local query would raise if there is one.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = 60.0,
        tries: int = 5,
    ) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._tries = max(tries, 1)
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, transport=transport, timeout=timeout_s)

    def __repr__(self) -> str:
        """Show the address, but never the key."""
        return f"Client({str(self._http.base_url)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def __getitem__(self, variable: str) -> "RemoteQuery":
        """Start a query about a variable; raises `NotFound` if it does not exist."""
        if variable not in self.variables:
            raise NotFound.among(kind="variable", given=variable, existing=self.variables)
        return RemoteQuery(QuerySpec(variable), self)

    def __contains__(self, variable: object) -> bool:
        return variable in self.variables

    @cached_property
    def variables(self) -> dict[str, dict[str, Any]]:
        """Variables by name, with their units, cached at the first access."""
        return {row["name"]: row for row in self.get("variables").json()}

    @property
    def stations(self) -> dict[str, Any]:
        """The stations as GeoJSON."""
        features: dict[str, Any] = self.get("stations").json()
        return features

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """Snapshots of the archive, newest first."""
        versions: list[dict[str, Any]] = self.get("snapshots").json()
        return versions

    @property
    def saved(self) -> "dict[str, RemoteQuery]":
        """The saved queries by name."""
        return {name: self.query(document) for name, document in self.get("saved").json().items()}

    def suggest(self, variable: str | None = None) -> "RemoteQuery":
        """Build a first query of a variable as `hypergrid.suggest` does; default: a variable that varies."""
        params = {} if variable is None else {"variable": variable}
        return self.query(self.get("suggestion", params=params).json()["query"])

    def query(self, document: Mapping[str, Any]) -> "RemoteQuery":
        """Parse a query from its JSON form."""
        return RemoteQuery(question_from_json(document), self)

    def latest(self, *variables: str) -> pd.DataFrame:
        """Read the newest reading of each series of some variables; default: all variables."""
        params = {"f": "csv", **({"variable": ",".join(variables)} if variables else {})}
        # Station ids may look like numbers.
        frame = pd.read_csv(io.BytesIO(self.get("latest", params=params).content), dtype={"station": str})
        return frame.assign(**{name: pd.to_datetime(frame[name], utc=True) for name in ("start", "end")})

    def series(self, **words: object) -> pd.DataFrame:
        """Read readings, one per row, filtered by `station`, `variable`, `start`, `stop`, `flags`, `snapshot`, `as_of`.

        Several stations, variables or flags are given as lists.
        """
        params: dict[str, Any] = {}
        for name, word in words.items():
            listed = [str(part) for part in word] if isinstance(word, list | tuple) else [str(word)]
            params[name] = ",".join(listed) if name == "flags" else listed
        return pd.read_parquet(io.BytesIO(self.get("series", params={**params, "f": "parquet"}).content))

    def get(self, what: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - those of httpx
        """Send a GET request below `/api/v1`."""
        return self.send("GET", what, **options)

    def send(self, method: str, what: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - those of httpx
        """Send a request below `/api/v1`, with retries.

        Raises
        ------
        HyperGridError
            The server refuses the request, or does not answer.
        """
        for left in reversed(range(self._tries)):
            try:
                answer = self._http.request(method, f"{PREFIX}/{what}", **options)
            except httpx.TransportError as error:
                # Other methods may have taken effect and are not retried.
                if left and method == "GET":
                    time.sleep(_PAUSE_S)
                    continue
                raise ServerProblem(
                    {
                        "title": "The server does not answer",
                        "detail": f"{self._http.base_url}: {error or 'no reason'}",
                    }
                ) from error
            if answer.is_success:
                return answer
            if not left or "retry-after" not in answer.headers:
                break
            time.sleep(min(_seconds(answer.headers["retry-after"]), _LONGEST_PAUSE_S))
        raise _error_of(_problem(answer))


@dataclass(frozen=True, eq=False)
class RemoteQuery(Fluent):
    """A query computed by a server; immutable and fluent like a local one."""

    question: QuerySpec
    client: Client = field(repr=False)

    def __repr__(self) -> str:
        """Show the variable and the steps in a line."""
        return f"RemoteQuery({self.question.summary})"

    def explain(self) -> str:
        """Explain the chain, the rewriting and the plan in words."""
        return str(self.client.send("POST", "queries/explain", json=self.to_json()).json()["explanation"])

    def compute(
        self,
        *,
        progress: Callable[[float], None] | None = None,
        timeout_s: float | None = None,
        second_opinion: int | None = None,
    ) -> xr.Dataset:
        """Compute the surface on the server and download it.

        Parameters
        ----------
        progress
            Called with the computed fraction whenever it has grown.
        timeout_s
            Timeout [s], after which the query is cancelled. None: no timeout.
        second_opinion
            Number of random cells that PyKrige recomputes, as for a local query.

        Raises
        ------
        HyperGridError
            The query cannot be answered, or failed.
        Cancelled
            It was cancelled on the server, or the time was up.
        """
        params = {} if second_opinion is None else {"second_opinion": second_opinion}
        job = self.client.send("POST", "queries", json=self.to_json(), params=params).json()
        try:
            job = self._wait_for_end(job, progress, timeout_s)
        except BaseException:
            # Cancel it, also after Ctrl-C: its result would not be fetched.
            with suppress(HyperGridError):
                self.client.send("DELETE", f"queries/{job['id']}")
            raise
        if job["state"] == "failed":
            raise _error_of(job["error"])
        if job["state"] == "cancelled":
            raise Cancelled(f"query {job['id']} was stopped on the server; ask again")
        content = self.client.get(f"queries/{job['id']}/result", params={"f": "netcdf"}).content
        with xr.open_dataset(io.BytesIO(content), engine="h5netcdf") as opened:
            return opened.load()

    def _wait_for_end(
        self, job: dict[str, Any], progress: Callable[[float], None] | None, timeout_s: float | None
    ) -> dict[str, Any]:
        started_s, pause_s, last_fraction = time.monotonic(), _SHORTEST_S, -1.0
        while True:
            if progress is not None and job["fraction"] > last_fraction:
                last_fraction = job["fraction"]
                progress(last_fraction)
            if job["state"] in _ENDED:
                return job
            if timeout_s is not None and time.monotonic() - started_s > timeout_s:
                raise Cancelled(
                    f"query {job['id']} took longer than {timeout_s:g} s; give it more time, or ask for less"
                )
            time.sleep(pause_s)
            # Short queries are noticed early, long ones polled rarely.
            pause_s = min(1.5 * pause_s, _LONGEST_S)
            job = self.client.get(f"queries/{job['id']}").json()

    def _replace_question(self, question: QuerySpec) -> Self:
        return replace(self, question=question)


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() and len(text) < 9 else _PAUSE_S


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        document = None
    if isinstance(document, dict) and "title" in document:
        return document
    return {
        "title": f"The server answered {answer.status_code}",
        "detail": answer.text[:200],
        "status": answer.status_code,
    }


def _error_of(problem: Mapping[str, Any]) -> HyperGridError:
    """Make the error that a local query would raise, else a `ServerProblem`."""
    kind = _RAISED.get(str(problem.get("type", "")).rpartition(":")[2])
    return ServerProblem(problem) if kind is None else kind(str(problem.get("detail", "")))
