"""Scope required by each route: one table, checked before a request reaches its route.

Paths and methods not in the table are answered with 404 or 405, whatever the routes define. `find_undeclared` lists the
routes missing from it; an application with one is not created.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from queries.web.auth.keys import SCOPES, Scope

# Open routes reveal nothing of the archive.
Need = Scope | Literal["open"]
"""A scope, or "open": answered for every caller."""

API: Final = "/api/v1"

ROWS: Final[tuple[tuple[str, str, Need], ...]] = (
    # The page without its data, login, capabilities, and liveness.
    ("GET", "/", "open"),
    ("GET", "/static/**", "open"),
    ("GET", "/bokeh/**", "open"),
    ("GET", "/figures/*", "open"),
    ("GET", "/docs", "open"),
    ("GET", "/docs/**", "open"),
    ("GET", "/health/live", "open"),
    ("GET", "/health/ready", "open"),
    ("GET", f"{API}/session", "open"),
    ("POST", f"{API}/session", "open"),
    ("DELETE", f"{API}/session", "open"),
    # Short links: without a key the card says nothing, and the page asks for one. The first row that fits counts.
    ("GET", "/l/*.png", "read"),
    ("GET", "/l/*", "open"),
    ("GET", "/embed/*", "open"),
    # The archive, and surfaces saved by its operator.
    ("GET", "/openapi.json", "read"),
    ("GET", "/health", "read"),
    ("GET", f"{API}/variables", "read"),
    ("GET", f"{API}/publication", "read"),
    ("GET", f"{API}/stations", "read"),
    ("GET", f"{API}/layers", "read"),
    ("GET", f"{API}/ground", "read"),
    ("GET", f"{API}/snapshots", "read"),
    ("GET", f"{API}/snapshots/newest", "read"),
    ("GET", f"{API}/functions", "read"),
    ("GET", f"{API}/boards", "read"),
    ("GET", f"{API}/boards/*", "read"),
    ("GET", f"{API}/links/*", "read"),
    ("GET", f"{API}/continuous/catalogue", "read"),
    ("GET", f"{API}/saved", "read"),
    ("GET", f"{API}/suggestion", "read"),
    ("POST", f"{API}/suggestion", "read"),
    ("GET", f"{API}/surfaces", "read"),
    ("GET", f"{API}/latest", "read"),
    ("GET", f"{API}/series", "read"),
    ("GET", f"{API}/stations/health", "read"),
    ("GET", f"{API}/stations/quality", "read"),
    ("GET", "/edr", "read"),
    ("GET", "/edr/**", "read"),
    # For operators of the server and its network: metrics, standing queries, and alerts.
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
    ("GET", f"{API}/continuous", "operate"),
    ("GET", f"{API}/continuous/*", "operate"),
    ("GET", f"{API}/continuous/*/rows", "operate"),
    ("GET", f"{API}/continuous/*/relation", "operate"),
    ("GET", f"{API}/continuous/*/events", "operate"),
    # The caller's own queries, which cost memory and time.
    ("POST", f"{API}/engine/plan", "query"),
    ("POST", f"{API}/queries/explain", "query"),
    ("POST", f"{API}/queries/variogram", "query"),
    ("POST", f"{API}/queries/cross-validation", "query"),
    ("POST", f"{API}/queries", "query"),
    ("GET", f"{API}/queries", "query"),
    ("GET", f"{API}/queries/*", "query"),
    ("DELETE", f"{API}/queries/*", "query"),
    ("GET", f"{API}/queries/*/**", "query"),
    ("POST", f"{API}/standing/preview", "query"),
    ("POST", f"{API}/continuous/explain", "query"),
    ("POST", f"{API}/continuous/backtest", "query"),
    ("GET", f"{API}/continuous/backtest/*", "query"),
    ("DELETE", f"{API}/continuous/backtest/*", "query"),
    ("GET", f"{API}/continuous/backtest/*/rows", "query"),
    # Remarks of operators on alerts.
    ("POST", f"{API}/standing/alerts/*/*", "operate"),
    # Persistent changes.
    ("POST", f"{API}/standing", "write"),
    ("POST", f"{API}/standing/*/*", "write"),
    ("DELETE", f"{API}/standing/*", "write"),
    ("POST", f"{API}/continuous", "write"),
    ("POST", f"{API}/continuous/*/keep", "write"),
    ("DELETE", f"{API}/continuous/*", "write"),
    ("POST", f"{API}/boards", "write"),
    ("PUT", f"{API}/boards/*", "write"),
    ("DELETE", f"{API}/boards/*", "write"),
    ("POST", f"{API}/links", "write"),
    ("DELETE", f"{API}/links/*", "write"),
    ("GET", f"{API}/imports", "write"),
    ("POST", f"{API}/imports", "write"),
    ("GET", f"{API}/imports/*", "write"),
    ("DELETE", f"{API}/imports/*", "write"),
    ("GET", f"{API}/imports/*/proposal", "write"),
    ("GET", f"{API}/imports/*/deployment", "write"),
    ("PUT", f"{API}/imports/*/deployment", "write"),
    ("PUT", f"{API}/imports/*/files/*", "write"),
    ("DELETE", f"{API}/imports/*/files/*", "write"),
    ("POST", f"{API}/imports/*/run", "write"),
    ("POST", f"{API}/imports/*/stop", "write"),
)
"""Method, path and need; "*" matches a path segment or a part of it, "**" any number of them.

The first matching row counts.
"""

# Equal for all callers, and a page loads some thirty of them together.
FILES: Final = ("/", "/static/**", "/bokeh/**", "/docs/**")
"""Routes of static files, exempt from rates and open-request limits."""
UPLOADS: Final = (f"{API}/imports/*/files/*",)
"""Routes whose bodies are files, written to disk as they arrive: they have limits of their own."""
# Event streams must not block the monitoring.
PROBES: Final = ("/health", "/health/live", "/health/ready", "/metrics")
"""Routes for monitoring, with limits of their own."""


class Undeclared(RuntimeError):
    """A route has no row in `ROWS`, so no caller could reach it."""


@dataclass(frozen=True)
class RouteRule:
    """Table entry of a request."""

    need: Need | None
    """None: no row matches path and method."""
    methods: tuple[str, ...] = ()
    """Methods of all rows with this path."""
    template: str = ""
    """Path of the matching row; of the first row with this path if none has the method."""


def _compile_template(template: str) -> re.Pattern[str]:
    parts = (".*" if part == "**" else "[^/]*".join(map(re.escape, part.split("*"))) for part in template.split("/"))
    # DOTALL, as an encoded path may contain line breaks.
    return re.compile("/".join(parts), re.DOTALL)


_TABLE: Final = tuple((_compile_template(template), template, method, need) for method, template, need in ROWS)


def find_rule(method: str, path: str) -> RouteRule:
    """Look up what a request needs; HEAD needs what GET does."""
    asked = "GET" if method == "HEAD" else method
    rows = [row for row in _TABLE if row[0].fullmatch(path)]
    if not rows:
        return RouteRule(None)
    chosen = next((row for row in rows if row[2] == asked), None)
    methods = tuple(dict.fromkeys(row[2] for row in rows))
    return RouteRule(chosen[3] if chosen else None, methods, (chosen or rows[0])[1])


def is_allowed(scope: Scope | None, need: Need) -> bool:
    return need == "open" or (scope is not None and SCOPES.index(scope) >= SCOPES.index(need))


def find_undeclared(routes: Iterable[tuple[str, str]]) -> list[str]:
    """List the methods and path templates, such as "/queries/{id}", without a row."""
    sample_requests = ((method, re.sub(r"\{[^}]*\}", "x", path)) for method, path in routes)
    return [
        f"{method} {path}"
        for method, path in sample_requests
        if method not in ("HEAD", "OPTIONS") and find_rule(method, path).need is None
    ]
