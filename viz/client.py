"""Python clients of a server: they build queries like a local archive and return xarray.

::

    from viz.client import AsyncClient, Client
    archive = Client("http://127.0.0.1:8765", key="…")
    hourly = archive["air_temperature"].aggregate("mean", time="1h").compute()

    async with AsyncClient("http://127.0.0.1:8765", key="…") as archive:
        hourly = await archive["air_temperature"].aggregate("mean", time="1h").compute()

Each request is written once, in the asynchronous classes; the others run their coroutines to the end.
"""

import io
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, Self, TypeVar

import httpx
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from hypergrid.core.encoded_arrays import decode
from hypergrid.core.errors import Cancelled, HyperGridError, NotFound
from hypergrid.interpolation import CrossValidation
from hypergrid.interpolation.validation.cross_validate import write_parameters
from hypergrid.interpolation.validation.transfer import read_validation
from hypergrid.perspective.spec.fluent import Fluent
from hypergrid.perspective.spec.names import MethodName, RefinementOrder
from hypergrid.perspective.spec.query_spec import QuerySpec, question_from_json
from viz.connection import ServerConnection, ServerProblem, drive, error_of

__all__ = [
    "AsyncClient", "AsyncRemoteQuery", "AsyncRemoteRefinement", "Client", "RemoteArchive", "RemoteFrame",
    "RemoteQuery", "RemoteRefinement", "ServerProblem",
]  # fmt: skip

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

Document = dict[str, Any]
Progress = Callable[[float], None]

_SHORTEST_S: Final = 0.02
_LONGEST_S: Final = 1.0
"""Bounds of the polling interval for a running query [s], which grows by half each time."""
# Such an answer comes when all is computed: a server allows 120 s, and more time passes while others have their turns.
_VALIDATION: Final = httpx.Timeout(60.0, read=600.0)
"""Timeout of a cross-validation [s]."""
_ENDED: Final = ("done", "failed", "cancelled")


class _Blocking(ABC, Generic[A]):
    """The blocking form of a class whose methods are coroutines."""

    @property
    @abstractmethod
    def asynchronous(self) -> A:
        """The same with coroutines, over the same blocking connection."""


def _blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[A], P], T]:
    """Make the blocking form of a method."""

    @wraps(method)
    def call(self: _Blocking[A], /, *args: P.args, **options: P.kwargs) -> T:
        return drive(method(self.asynchronous, *args, **options))

    return call


class RemoteArchive:
    """The requests to an archive behind the web API, by coroutines.

    Parameters
    ----------
    connection
        Connection to the server; with a blocking one the coroutines never suspend.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self._variables: dict[str, Document] | None = None

    def __repr__(self) -> str:
        """Show the address, but never the key."""
        return f"{type(self).__name__}({self.connection.url!r})"

    async def close(self) -> None:
        await self.connection.close()

    def __getitem__(self, variable: str) -> "AsyncRemoteQuery":
        """Start a query about a variable; if it does not exist, the server says so."""
        return AsyncRemoteQuery(QuerySpec(variable), self)

    async def variables(self) -> dict[str, Document]:
        """Read the variables by name, with their units; cached at the first request."""
        if self._variables is None:
            self._variables = {row["name"]: row for row in (await self.get("variables")).json()}
        return self._variables

    async def stations(self) -> Document:
        """Read the stations as GeoJSON."""
        features: Document = (await self.get("stations")).json()
        return features

    async def snapshots(self) -> list[Document]:
        """Read the snapshots of the archive, newest first."""
        versions: list[Document] = (await self.get("snapshots")).json()
        return versions

    async def boards(self) -> list[Document]:
        """Read the boards with their panels, by title."""
        boards: list[Document] = (await self.get("boards")).json()
        return boards

    async def saved(self) -> "dict[str, AsyncRemoteQuery]":
        """Read the saved queries by name."""
        return {name: self.query(document) for name, document in (await self.get("saved")).json().items()}

    async def suggest(self, variable: str | None = None) -> "AsyncRemoteQuery":
        """Build a first query of a variable as `hypergrid.suggest` does; default: a variable that varies."""
        params = {} if variable is None else {"variable": variable}
        return self.query((await self.get("suggestion", params=params)).json()["query"])

    def query(self, document: Mapping[str, Any]) -> "AsyncRemoteQuery":
        """Parse a query from its JSON form."""
        return AsyncRemoteQuery(question_from_json(document), self)

    async def latest(self, *variables: str) -> pd.DataFrame:
        """Read the newest reading of each series of some variables; default: all variables."""
        params = {"f": "csv", **({"variable": ",".join(variables)} if variables else {})}
        content = (await self.get("latest", params=params)).content
        # Station ids may look like numbers.
        frame = pd.read_csv(io.BytesIO(content), dtype={"station": str})
        return frame.assign(**{name: pd.to_datetime(frame[name], utc=True) for name in ("start", "end")})

    async def series(self, **words: object) -> pd.DataFrame:
        """Read readings, one per row, filtered by `station`, `variable`, `start`, `stop`, `flags`, `snapshot`, `as_of`.

        Several stations, variables or flags are given as lists.
        """
        params: Document = {}
        for name, word in words.items():
            listed = [str(part) for part in word] if isinstance(word, list | tuple) else [str(word)]
            params[name] = ",".join(listed) if name == "flags" else listed
        return pd.read_parquet(io.BytesIO((await self.get("series", params={**params, "f": "parquet"})).content))

    async def get(self, what: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - those of httpx
        """Send a GET request below `/api/v1`."""
        return await self.send("GET", what, **options)

    async def send(self, method: str, what: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - those of httpx
        """Send a request below `/api/v1`, with retries.

        Raises
        ------
        HyperGridError
            The server refuses the request, or does not answer.
        """
        return await self.connection.send(method, what, **options)


class AsyncClient(RemoteArchive):
    """An archive behind the web API, for programs with an event loop.

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
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_s: float = 60.0,
        tries: int = 5,
    ) -> None:
        http = httpx.AsyncClient(**_http_options(url, key, timeout_s), transport=transport)
        super().__init__(ServerConnection(http, tries=tries))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Client(_Blocking[RemoteArchive]):
    """An archive behind the web API; parameters and errors as of `AsyncClient`."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = 60.0,
        tries: int = 5,
    ) -> None:
        http = httpx.Client(**_http_options(url, key, timeout_s), transport=transport)
        self._asynchronous = RemoteArchive(ServerConnection(http, tries=tries))

    @property
    def asynchronous(self) -> RemoteArchive:
        return self._asynchronous

    def __repr__(self) -> str:
        """Show the address, but never the key."""
        return f"Client({self.asynchronous.connection.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, variable: str) -> "RemoteQuery":
        """Start a query about a variable; raises `NotFound` if it does not exist."""
        if variable not in self.variables:
            raise NotFound.among(kind="variable", given=variable, existing=self.variables)
        return RemoteQuery(QuerySpec(variable), self)

    def __contains__(self, variable: object) -> bool:
        return variable in self.variables

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.variables)

    @property
    def saved(self) -> "dict[str, RemoteQuery]":
        """The saved queries by name."""
        saved = drive(self.asynchronous.saved())
        return {name: RemoteQuery(query.question, self) for name, query in saved.items()}

    def suggest(self, variable: str | None = None) -> "RemoteQuery":
        """Build a first query of a variable as `hypergrid.suggest` does; default: a variable that varies."""
        return RemoteQuery(drive(self.asynchronous.suggest(variable)).question, self)

    def query(self, document: Mapping[str, Any]) -> "RemoteQuery":
        """Parse a query from its JSON form."""
        return RemoteQuery(question_from_json(document), self)

    variables = property(_blocking(RemoteArchive.variables))
    stations = property(_blocking(RemoteArchive.stations))
    snapshots = property(_blocking(RemoteArchive.snapshots))
    boards = property(_blocking(RemoteArchive.boards))
    latest = _blocking(RemoteArchive.latest)
    series = _blocking(RemoteArchive.series)
    get = _blocking(RemoteArchive.get)
    send = _blocking(RemoteArchive.send)
    close = _blocking(RemoteArchive.close)


@dataclass(frozen=True, eq=False)
class AsyncRemoteQuery(Fluent):
    """A query computed by a server; immutable and fluent like a local one, computed by coroutines."""

    question: QuerySpec
    client: RemoteArchive = field(repr=False)

    def __repr__(self) -> str:
        """Show the variable and the steps in a line."""
        return f"{type(self).__name__}({self.question.summary})"

    async def explain(self) -> str:
        """Explain the chain, the rewriting and the plan in words."""
        answer = await self.client.send("POST", "queries/explain", json=self.to_json())
        return str(answer.json()["explanation"])

    async def compute(
        self,
        *,
        progress: Progress | None = None,
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
        job = await self.submit(**params)
        try:
            job = await self._wait_for_end(job, progress, timeout_s)
        except BaseException:
            # Cancel it, also after Ctrl-C: its result would not be fetched.
            await self._cancel(job)
            raise
        _check_end(job)
        return await _download(self.client, job["id"])

    async def refine(
        self, *, order: RefinementOrder | str = "coarse_to_fine"
    ) -> "AsyncGenerator[AsyncRemoteRefinement, None]":
        """Compute the surface on the server, and yield its state after blocks: at most ten a second, and the last.

        Parameters
        ----------
        order
            Order of the cells, as for a local query.

        Returns
        -------
        An iterator; closing it cancels the query. A connection that breaks off is resumed.

        Raises
        ------
        HyperGridError
            The query cannot be answered, or failed; or the server does not answer any more.
        Cancelled
            It was cancelled on the server.
        """
        # Tied: a job whose client is gone ends by itself.
        async with aclosing(self.follow(await self.submit(order=order, tied=True))) as refinements:
            async for refinement in refinements:
                yield refinement

    async def submit(self, **params: object) -> Document:
        """Submit the query; return its job."""
        job: Document = (await self.client.send("POST", "queries", json=self.to_json(), params=params)).json()
        return job

    async def follow(self, job: Document) -> "AsyncGenerator[AsyncRemoteRefinement, None]":
        """Yield the refinements of a submitted query, as `refine`."""
        frames, has_ended = 0, False
        try:
            async with aclosing(self.client.connection.events(job["id"])) as events:
                async for name, content in events:
                    match name:
                        case "plan":
                            frames = len(content["surface"]["times"])
                        # What is complete comes with the end.
                        case "progress" if 0 < content["cells"] < content["total"]:
                            yield AsyncRemoteRefinement.of(self.client, job["id"], frames, content)
                        case "done" | "cancelled":
                            has_ended = True
                            _check_end(content)
                            yield AsyncRemoteRefinement.of(self.client, job["id"], frames, content)
                        case "error":
                            has_ended = True
                            raise error_of(content)
        finally:
            if not has_ended:
                await self._cancel(job)

    async def cross_validate(
        self,
        method: MethodName | str,
        *,
        by: str = "station",
        parameters: Mapping[str, object] | None = None,
        model: str = "exponential",
    ) -> CrossValidation:
        """Cross-validate a method on the server, as `hypergrid.cross_validate` does.

        `to_dataset` of the result has the value and the estimate at each station.

        Parameters
        ----------
        method, by, parameters, model
            As for `hypergrid.cross_validate`.

        Raises
        ------
        HyperGridError
            As for `hypergrid.cross_validate`, or the server refuses it.
        """
        written = write_parameters(parameters or {})
        document = {"query": self.to_json(), "method": method, "by": by, "parameters": written, "model": model}
        answer = await self.client.send("POST", "queries/cross-validation", json=document, timeout=_VALIDATION)
        return read_validation(answer.json())

    async def _wait_for_end(self, job: Document, progress: Progress | None, timeout_s: float | None) -> Document:
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
            await self.client.connection.sleep(pause_s)
            # Short queries are noticed early, long ones polled rarely.
            pause_s = min(1.5 * pause_s, _LONGEST_S)
            job = (await self.client.get(f"queries/{job['id']}")).json()

    async def _cancel(self, job: Document) -> None:
        with suppress(HyperGridError):
            await self.client.send("DELETE", f"queries/{job['id']}")

    def _replace_question(self, question: QuerySpec) -> Self:
        return replace(self, question=question)


@dataclass(frozen=True, eq=False)
class RemoteQuery(Fluent, _Blocking[AsyncRemoteQuery]):
    """A query computed by a server; immutable and fluent like a local one."""

    question: QuerySpec
    client: Client = field(repr=False)

    def __repr__(self) -> str:
        """Show the variable and the steps in a line."""
        return f"RemoteQuery({self.question.summary})"

    @property
    def asynchronous(self) -> AsyncRemoteQuery:
        return AsyncRemoteQuery(self.question, self.client.asynchronous)

    def refine(self, *, order: RefinementOrder | str = "coarse_to_fine") -> "Iterator[RemoteRefinement]":
        """Compute the surface on the server, and yield its state after blocks; errors of the query come at once.

        Parameters, result and errors as of `AsyncRemoteQuery.refine`.
        """
        return self._follow(drive(self.asynchronous.submit(order=order, tied=True)))

    explain = _blocking(AsyncRemoteQuery.explain)
    compute = _blocking(AsyncRemoteQuery.compute)
    cross_validate = _blocking(AsyncRemoteQuery.cross_validate)

    def _follow(self, job: Document) -> "Iterator[RemoteRefinement]":
        refinements = self.asynchronous.follow(job)
        try:
            while True:
                yield RemoteRefinement(drive(refinements.__anext__()))
        except StopAsyncIteration:
            return
        finally:
            drive(refinements.aclose())

    def _replace_question(self, question: QuerySpec) -> Self:
        return replace(self, question=question)


@dataclass(frozen=True, eq=False)
class RemoteFrame:
    """One time cell of a map in its current state; arrays of shape (rows, columns)."""

    values: NDArray[np.float64]
    """NaN where missing or not yet computed."""
    computed: NDArray[np.bool_]
    """Mask of the computed cells."""
    estimate: NDArray[np.float64]
    """Values, with estimates from the surrounding cells where a cell is not computed yet."""
    error: float
    """Root mean square error of the estimates, by cross-validation on computed cells; NaN if unknown."""


@dataclass(frozen=True)
class AsyncRemoteRefinement:
    """The state of a query on a server; frames and dataset are those at the time of the request."""

    client: RemoteArchive = field(repr=False)
    job_id: str
    frames: int
    """Number of time cells of the surface."""
    fraction: float
    """Share of the cells that is computed, 0 to 1."""
    cells: int
    """Number of computed cells."""
    total: int
    """Number of all cells."""
    seconds: float
    """Time since the run began [s]."""

    @classmethod
    def of(cls, client: RemoteArchive, job_id: str, frames: int, state: Document) -> Self:
        return cls(client, job_id, frames, *(state[name] for name in ("fraction", "cells", "total", "seconds")))

    @property
    def complete(self) -> bool:
        return self.cells == self.total

    async def frame(self, number: int = 0, level: int = 0, part: Literal["value", "variance"] = "value") -> RemoteFrame:
        """Read one time cell of a map, on one level.

        Raises
        ------
        HyperGridError
            The surface has no such frame, or the query was cancelled.
        """
        params = {"time": number, "level": level, "part": part}
        body = (await self.client.get(f"queries/{self.job_id}/frame", params=params)).json()
        arrays = {name: decode(body[name], dtype, body["shape"]) for name, dtype in _FRAME_TYPES.items()}
        error = np.nan if body["error"] is None else body["error"]
        return RemoteFrame(arrays["values"], arrays["computed"].astype(np.bool_), arrays["estimate"], error)

    async def dataset(self) -> xr.Dataset:
        """Download the result as computed so far; `hypergrid_fraction` is the computed share."""
        return await _download(self.client, self.job_id, partial=True)


@dataclass(frozen=True)
class RemoteRefinement(_Blocking[AsyncRemoteRefinement]):
    """A partial answer of a server after some blocks."""

    state: AsyncRemoteRefinement

    @property
    def asynchronous(self) -> AsyncRemoteRefinement:
        return self.state

    def __repr__(self) -> str:
        return f"RemoteRefinement({self.cells:,} of {self.total:,} cells)"

    @property
    def fraction(self) -> float:
        """Share of the cells that is computed, 0 to 1."""
        return self.state.fraction

    @property
    def cells(self) -> int:
        """Number of computed cells."""
        return self.state.cells

    @property
    def total(self) -> int:
        """Number of all cells."""
        return self.state.total

    @property
    def seconds(self) -> float:
        """Time since the run began [s]."""
        return self.state.seconds

    @property
    def complete(self) -> bool:
        return self.state.complete

    @property
    def frames(self) -> int:
        """Number of time cells of the surface."""
        return self.state.frames

    frame = _blocking(AsyncRemoteRefinement.frame)
    dataset = _blocking(AsyncRemoteRefinement.dataset)


_FRAME_TYPES: Final = {"values": "<f8", "computed": "u1", "estimate": "<f8"}


def _http_options(url: str, key: str | None, timeout_s: float) -> Document:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return {"base_url": url.rstrip("/"), "headers": headers, "timeout": timeout_s}


def _check_end(job: Document) -> None:
    """Raise the error of a job that did not get done."""
    if job["state"] == "failed":
        raise error_of(job["error"])
    if job["state"] == "cancelled":
        raise Cancelled(f"query {job['id']} was stopped on the server; ask again")


async def _download(client: RemoteArchive, job_id: str, *, partial: bool = False) -> xr.Dataset:
    params: Document = {"f": "netcdf", **({"partial": True} if partial else {})}
    content = (await client.get(f"queries/{job_id}/result", params=params)).content
    from hypergrid.core.result_dataset import restore  # noqa: PLC0415 - loads xarray

    with xr.open_dataset(io.BytesIO(content), engine="h5netcdf") as opened:
        return restore(opened.load())
