"""Names in URLs, and the addresses of what a request creates."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request, Response

from hypergrid.core.errors import NotFound
from queries.web.auth.scopes import API
from queries.web.responses.problems import NoSuchPage


def root_of(request: Request) -> str:
    """Return the prefix that a proxy puts before all paths."""
    return str(request.scope.get("root_path", ""))


@contextmanager
def resolve_name(request: Request, name: str) -> Iterator[None]:
    """Record the name in a URL for the audit log; answer 404 if there is none.

    Raises
    ------
    NoSuchPage
        The body of the context raised `NotFound`.
    """
    request.state.about = name
    try:
        yield
    except NotFound as error:
        raise NoSuchPage(str(error)) from error


def announce_created(request: Request, response: Response, path: str) -> None:
    """Record a new resource for the audit log, and set its address in `Location`.

    Parameters
    ----------
    request, response
        The request that created it, and its answer.
    path
        Path below the API, such as "boards/frost"; its last part is the name.
    """
    request.state.about = path.rpartition("/")[2]
    response.headers["Location"] = f"{root_of(request)}{API}/{path}"
