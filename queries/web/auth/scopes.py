"""Which scope each route needs: one table, looked up before a request reaches its route.

A path or a method that is not here is answered 404 or 405 whatever the routes say; `find_undeclared` names the routes
that were forgotten, and an application with one is not made.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from queries.web.auth.keys import SCOPES, Scope

Need = Scope | Literal["open"]
"""A scope, or "open": answered to everybody, for it tells nothing of the archive."""

API: Final = "/api/v1"

ROWS: Final[tuple[tuple[str, str, Need], ...]] = (
    # The page without its data, how to log in, what there is, and whether the server lives.
    ("GET", "/", "open"),
    ("GET", "/static/**", "open"),
    ("GET", "/bokeh/**", "open"),
    ("GET", "/figures/*", "open"),
    ("GET", "/health/live", "open"),
    ("GET", "/health/ready", "open"),
    ("GET", f"{API}/session", "open"),
    ("POST", f"{API}/session", "open"),
    ("DELETE", f"{API}/session", "open"),
    # The archive, and surfaces that its keeper saved.
    ("GET", "/openapi.json", "read"),
    ("GET", "/health", "read"),
    ("GET", f"{API}/variables", "read"),
    ("GET", f"{API}/stations", "read"),
    ("GET", f"{API}/layers", "read"),
    ("GET", f"{API}/snapshots", "read"),
    ("GET", f"{API}/functions", "read"),
    ("GET", f"{API}/saved", "read"),
    ("GET", f"{API}/surfaces", "read"),
    ("GET", f"{API}/latest", "read"),
    ("GET", f"{API}/series", "read"),
    ("GET", f"{API}/stations/health", "read"),
    ("GET", f"{API}/stations/quality", "read"),
    ("GET", "/edr", "read"),
    ("GET", "/edr/**", "read"),
    # For those who watch over the server and its network: what it does, what stands, and alerts.
    ("GET", "/metrics", "operate"),
    ("GET", f"{API}/engine", "operate"),
    ("GET", f"{API}/engine/stream", "operate"),
    ("GET", f"{API}/rejects", "operate"),
    ("GET", f"{API}/standing", "operate"),
    ("GET", f"{API}/standing/alerts", "operate"),
    ("GET", f"{API}/standing/alerts/events", "operate"),
    ("GET", f"{API}/standing/statistics", "operate"),
    ("GET", f"{API}/standing/*", "operate"),
    ("GET", f"{API}/standing/*/result", "operate"),
    # Queries of one's own, which cost memory and time.
    ("POST", f"{API}/engine/plan", "query"),
    ("POST", f"{API}/queries/explain", "query"),
    ("POST", f"{API}/queries/variogram", "query"),
    ("POST", f"{API}/queries", "query"),
    ("GET", f"{API}/queries", "query"),
    ("GET", f"{API}/queries/*", "query"),
    ("DELETE", f"{API}/queries/*", "query"),
    ("GET", f"{API}/queries/*/**", "query"),
    # What stays.
    ("POST", f"{API}/standing", "write"),
    ("POST", f"{API}/standing/*/*", "write"),
    ("DELETE", f"{API}/standing/*", "write"),
)
"""Method, path and need; "*" is one part of a path, "**" any number. The first row that fits counts."""

FILES: Final = ("/", "/static/**", "/bokeh/**")
"""Rows of files that are the same for everybody: they count for no rate and no number of open requests, for a page is
some thirty at once."""
PROBES: Final = ("/health", "/health/live", "/health/ready", "/metrics")
"""Rows for those who watch over the server: they have bounds of their own, so that streams of events hold up none."""


class Undeclared(RuntimeError):
    """A route was added without a row in `ROWS`; nobody could reach it."""


@dataclass(frozen=True)
class RouteRule:
    """What the table says of a request."""

    need: Need | None
    """None: no row has this path and method."""
    methods: tuple[str, ...] = ()
    """Methods that rows have for this path."""
    template: str = ""
    """Path of the row; of the first with this path, where none has the method."""


def _compile_template(template: str) -> re.Pattern[str]:
    parts = (".*" if part == "**" else "[^/]*" if part == "*" else re.escape(part) for part in template.split("/"))
    return re.compile("/".join(parts), re.DOTALL)


_TABLE: Final = tuple((_compile_template(template), template, method, need) for method, template, need in ROWS)


def find_rule(method: str, path: str) -> RouteRule:
    """Return what a request needs; HEAD needs what GET does."""
    asked = "GET" if method == "HEAD" else method
    rows = [row for row in _TABLE if row[0].fullmatch(path)]
    if not rows:
        return RouteRule(None)
    chosen = next((row for row in rows if row[2] == asked), None)
    methods = tuple(dict.fromkeys(row[2] for row in rows))
    return RouteRule(chosen[3] if chosen else None, methods, (chosen or rows[0])[1])


def is_allowed(scope: Scope | None, need: Need) -> bool:
    """Return whether somebody of a scope (None: of none) may have what needs another."""
    return need == "open" or (scope is not None and SCOPES.index(scope) >= SCOPES.index(need))


def find_undeclared(routes: Iterable[tuple[str, str]]) -> list[str]:
    """Return, of methods and path templates such as "/queries/{id}", those without a row."""
    sample_requests = ((method, re.sub(r"\{[^}]*\}", "x", path)) for method, path in routes)
    return [
        f"{method} {path}"
        for method, path in sample_requests
        if method not in ("HEAD", "OPTIONS") and find_rule(method, path).need is None
    ]
