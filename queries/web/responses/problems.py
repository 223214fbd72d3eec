"""Conversion of errors to HTTP answers: problem documents (RFC 9457).

An unknown name is 404 in a URL and 422 in a posted query, whose URL is valid but whose content is not. Likewise an
unreadable unit or time is 422 in a posted query and 400 in a URL.
"""

import errno
import logging
import math
import re
from collections.abc import Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from hypergrid.continuous.language import InvalidCql
from hypergrid.continuous.records import NoLongerKept
from hypergrid.core.errors import (
    ArchiveConflict,
    Cancelled,
    HyperGridError,
    InvalidDeployment,
    InvalidQuery,
    InvalidTime,
    InvalidUnit,
    NotFound,
    SingularSystem,
    StoreUnavailable,
    TooLarge,
)
from hypergrid.core.importing import ImportBusy, ImportTooLarge, ImportUnreadable
from queries.boards.repository import BoardConflict, BoardsDamaged
from queries.jobs.admission import TooManyQueries
from queries.jobs.records import NotReady, QueueFull, ResultGone
from queries.standing.definition import Conflict
from queries.web.auth.access import Forbidden, TooManyRequests, Unauthorized
from queries.web.auth.keys import BadKey, KeysDamaged
from queries.web.responses.files import RangeNotSatisfiable
from queries.web.responses.waiting import TookTooLong

MEDIA_TYPE: Final = "application/problem+json"
POSTED: Final = ("POST", "PUT")
"""Methods whose errors concern the body rather than the URL."""
RETRY_S: Final = 2
"""Default of Retry-After [s]."""
REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""Id of the current request, under which its errors are logged."""
FOLDERS: Final[ContextVar[tuple[str, ...]]] = ContextVar("folders", default=())
"""Folders of the server, longest path first; answers name files relative to them."""

_NOBODY: Final = "nobody is let in until they can be read"
_FULL: Final = (
    "the server's disk is full, and this needs room on it; make room there, or ask for less: what is small is answered"
)
_LOG: Final = logging.getLogger(__name__)


class InvalidBody(HyperGridError, ValueError):
    """A request body is not valid JSON, or nested too deeply."""


class BodyTooLarge(HyperGridError, ValueError):
    """A request body exceeds the limit; the message has the limit."""


class NotJson(HyperGridError, TypeError):
    """A body has another media type than JSON."""


class SlowRequest(HyperGridError, TimeoutError):
    """A body was not received in time."""


class Busy(HyperGridError, RuntimeError):
    """The limit of open requests is reached."""


class NotReadyYet(HyperGridError, RuntimeError):
    """The server cannot answer queries now; the message says why."""


class NoSuchPage(HyperGridError, LookupError):
    """There is nothing at this path."""


class MethodNotAllowed(HyperGridError, RuntimeError):
    """The path does not support the method."""

    def __init__(self, method: str, methods: tuple[str, ...]) -> None:
        super().__init__(f"{method} is not for this path, which takes {', '.join(methods)}")
        self.methods = methods


# Class, status for a URL, status for a posted query, title. The first match counts, so subclasses precede their bases.
_ROWS: Final[tuple[tuple[type[Exception], int, int, str], ...]] = (
    (BadKey, 401, 401, "The access key opens nothing"),
    (Unauthorized, 401, 401, "An access key is needed"),
    (Forbidden, 403, 403, "This is not allowed"),
    (TooManyRequests, 429, 429, "Too many requests"),
    (NotReadyYet, 503, 503, "The server is not ready"),
    (KeysDamaged, 503, 503, "The access keys cannot be read"),
    (BoardsDamaged, 503, 503, "The boards and links cannot be read"),
    (Busy, 503, 503, "Too many requests are open"),
    (TookTooLong, 503, 503, "It took too long"),
    (NoSuchPage, 404, 404, "There is nothing here"),
    (MethodNotAllowed, 405, 405, "Another method is needed"),
    (ResultGone, 410, 410, "The result is no longer kept"),
    (NoLongerKept, 410, 410, "These rows are no longer kept"),
    (NotReady, 409, 409, "There is no result yet"),
    (QueueFull, 429, 429, "Too many queries wait"),
    (TooManyQueries, 429, 429, "Too many queries of one caller"),
    (BodyTooLarge, 413, 413, "The request is too large"),
    (RangeNotSatisfiable, 416, 416, "The file ends before that part"),
    (SlowRequest, 408, 408, "The request came too slowly"),
    (NotJson, 415, 415, "The request is not JSON"),
    (InvalidBody, 400, 400, "The request cannot be read"),
    (Conflict, 409, 409, "It is there already"),
    (BoardConflict, 409, 409, "It was changed meanwhile, or is there already"),
    (ImportBusy, 409, 409, "An import is running"),
    (ImportTooLarge, 413, 413, "The import is larger than is allowed"),
    (ImportUnreadable, 422, 422, "The files cannot be looked at"),
    (InvalidDeployment, 422, 422, "The description cannot be used"),
    (ArchiveConflict, 409, 409, "It does not fit the archive"),
    (NotFound, 404, 422, "It does not exist"),
    (InvalidQuery, 400, 422, "The query cannot be answered"),
    (InvalidUnit, 400, 422, "A unit cannot be used"),
    (InvalidTime, 400, 422, "A time cannot be read"),
    (TooLarge, 413, 413, "The query needs more than is allowed"),
    (SingularSystem, 422, 422, "The stations cannot be told apart"),
    (Cancelled, 409, 409, "The query was stopped"),
    (StoreUnavailable, 503, 503, "The archive cannot be reached"),
)
_RETRY: Final = (TooManyRequests, Busy, NotReadyYet, KeysDamaged, NotReady, QueueFull, TooManyQueries, StoreUnavailable)
"""Errors that may not occur again later."""
_UNLOGGED: Final = (NotReadyYet, Busy, TookTooLong)
"""Errors of status 503 that indicate load, or repeat what `health` logs."""
_RECORD: Final = "log_record"
"""Attribute of a logged error: the id of its log record."""
_PATH: Final = re.compile(r"(?<![\w.:/])/\w")
"""Start of an absolute path."""
UNEXPECTED: Final = "something unexpected happened"


def problem_of(error: Exception, *, posted: bool, is_answer: bool = True) -> dict[str, Any]:
    """Make the problem document of an error, logging errors of status 500 and damage (503).

    Parameters
    ----------
    error
        What was raised. Errors outside HyperGrid's hierarchy become 500 without their text, which may contain paths.
    posted
        Whether it concerns a posted query rather than a URL.
    is_answer
        Whether the document is the whole answer, which gets its own log record; as part of another answer, the error is
        logged only if it was not before.
    """
    problem = _describe_error(error, posted=posted)
    if problem["status"] < 500 or isinstance(error, _UNLOGGED):
        return problem | {"detail": _strip_folders(problem["detail"])}
    reference = _log_error(error, is_answer=is_answer)
    return problem | {"detail": f"{strip_paths(problem['detail'])}; the server's log has it under {reference}"}


def strip_paths(text: str) -> str:
    """Make paths in a text relative to the server's folders; hide other paths."""
    text = _strip_folders(text)
    return UNEXPECTED if _PATH.search(text) else text


def _strip_folders(text: str) -> str:
    for folder in FOLDERS.get():
        text = text.replace(f"{folder}/", "").replace(folder, "the archive")
    return text


def _log_error(error: Exception, *, is_answer: bool) -> str:
    """Log an error and return the id of its log record."""
    known = str(vars(error).get(_RECORD, ""))
    # Logged before: refer to that record.
    if known and not is_answer:
        return known
    reference = vars(error)[_RECORD] = REQUEST_ID.get() or uuid4().hex[:8]
    # Messages of HyperGrid errors are actionable; tracebacks for each request would bury them.
    trace = None if isinstance(error, HyperGridError) or _is_full_disk(error) or known else error
    _LOG.error("request %s: %s: %s", reference, type(error).__name__, " ".join(str(error).split()), exc_info=trace)
    return reference


def _is_full_disk(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _describe_error(error: Exception, *, posted: bool) -> dict[str, Any]:
    for kind, in_address, in_query, title in _ROWS:
        if isinstance(error, kind):
            detail = _NOBODY if isinstance(error, KeysDamaged) else str(error)
            body = _body(in_query if posted else in_address, title, detail, _slug(type(error).__name__))
            if isinstance(error, TooLarge):
                body |= {"projected": error.projected, "allowed": error.allowed}
            if isinstance(error, InvalidDeployment):
                body |= {"key": error.key}
            if isinstance(error, InvalidCql):
                body |= {
                    "line": error.line, "column": error.column, "length": error.length,
                    "problem": error.problem or str(error), "suggestion": error.suggestion or None,
                }  # fmt: skip
            if isinstance(error, MethodNotAllowed):
                body |= {"allow": list(error.methods)}
            if isinstance(error, RangeNotSatisfiable):
                body |= {"size": error.size}
            if isinstance(error, _RETRY):
                # Retry-After has whole seconds.
                body |= {"retry_after_s": max(1, math.ceil(getattr(error, "retry_s", RETRY_S)))}
            return body
    if isinstance(error, MemoryError):
        # Not foreseen by any plan. The process survives, as nothing was allocated.
        detail = (
            "it needs more memory than there is; ask for fewer cells (a coarser step, a smaller grid, a shorter time)"
        )
        return _body(413, "The query needs more than is allowed", detail, "too-large")
    if _is_full_disk(error):
        return _body(503, "The disk is full", _FULL, "disk-full") | {"retry_after_s": RETRY_S}
    if isinstance(error, HyperGridError):
        return _body(500, "It did not work", str(error), _slug(type(error).__name__))
    return _body(500, "An error of the server", UNEXPECTED, "unexpected")


def response_of(problem: Mapping[str, Any]) -> JSONResponse:
    """Build the response of a problem document, with Retry-After and Allow where it has them."""
    headers = {}
    if "retry_after_s" in problem:
        headers["Retry-After"] = str(problem["retry_after_s"])
    if "allow" in problem:
        headers["Allow"] = ", ".join(problem["allow"])
    if problem["status"] == 416:
        headers["Content-Range"] = f"bytes */{problem['size']}"
    if problem["status"] == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="hypergrid"'
    return JSONResponse(problem, problem["status"], headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    app.add_exception_handler(HyperGridError, _answer)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(RequestValidationError, _answer_validation)


async def _answer(request: Request, error: Exception) -> JSONResponse:
    return response_of(problem_of(error, posted=request.method in POSTED))


async def _answer_http(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    title = HTTPStatus(status).phrase
    detail = f"{request.method} {request.url.path}: {title.lower()}; /openapi.json lists what there is"
    response = response_of(_body(status, title, detail, _slug(title.title().replace(" ", ""))))
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response


async def _answer_validation(_request: Request, error: Exception) -> JSONResponse:
    errors = error.errors() if isinstance(error, RequestValidationError) else []
    faults = [{"where": "/".join(map(str, item["loc"])), "what": item["msg"]} for item in errors]
    detail = "; ".join(f"{item['where']}: {item['what']}" for item in faults)
    return response_of(_body(422, "A parameter cannot be used", detail, "invalid-parameter") | {"errors": faults})


def _body(status: int, title: str, detail: str, slug: str) -> dict[str, Any]:
    return {"type": f"urn:hypergrid:problem:{slug}", "title": title, "status": status, "detail": detail}


def _slug(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")
