"""Kept continuous queries as users see them: a query with its result, and the alert that follows it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hypergrid.continuous.names import check_live_name, parse_keep
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.times import format_timestamp, parse_wait
from queries.continuous.kept import NO_INSTANT, KeptQueries, ResultForm
from queries.standing.definition import FOLLOWED, Conflict
from queries.standing.service import StandingQueries

if TYPE_CHECKING:
    from hypergrid.continuous.live.store import ResultRetention

_KEYS: Final = ("name", "text", "start", "idle", "disorder", "keep", "alert")
_ALERT_KEYS: Final = ("to", "quiet", "title")


class ContinuousAlerts:
    """Kept continuous queries of an archive, each with an alert where one is wanted.

    The alert of a query is a standing query of its name, with the condition "continuous": it is paused, muted, tested
    and delivered as the others are.

    Parameters
    ----------
    standing
        The standing queries of the archive, which evaluate the kept ones in turns; as many queries may be kept as
        there may be standing ones.
    """

    def __init__(self, standing: StandingQueries) -> None:
        self._standing = standing

    @property
    def kept(self) -> KeptQueries:
        return self._standing.kept

    def add(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a query; it is durable on return.

        ::

            {"name": "warm", "text": "Select station, value From air_temperature Where value > 30",
             "start": "2007-10-01", "alert": {"to": ["events", "email:warden@example.org"], "quiet": "1h"}}

        Parameters
        ----------
        document
            Required keys: "name" and "text". Optional: "start" (where its stretch begins; by default at the first
            reading), "idle" ("1h": a series this long behind the newest reading is not waited for), "disorder" (how far
            behind the newest of its series a reading may come and not be late; by default as late as the newest
            arrived), "keep" (how long results are kept, such as "90d"; readings that are later change nothing;
            by default "always") and "alert" (none where it is absent or null): an object with, all optional, "to" (as
            of a standing query, by default "events"), "quiet" (how long no element of a key may come until the next one
            is a new episode, for streams; "10min") and "title".

        Raises
        ------
        Conflict
            The name is taken, by a kept query or a standing one.
        HyperGridError
            A key is missing, unknown or invalid; the text is no valid query (`InvalidCql`).
        """
        NotFound.refuse_unknown("key of a kept continuous query", document, _KEYS)
        name, text, start = (document.get(key) for key in ("name", "text", "start"))
        check_live_name(name)
        if not isinstance(text, str) or not text.strip():
            raise InvalidQuery(f"a continuous query needs text, its CQL; got {str(text)[:80]!r}")
        if start is not None and not isinstance(start, str):
            raise InvalidQuery(f"start needs an instant, such as 2007-10-01T00:00Z; got {str(start)[:80]!r}")
        if any(entry.name == name for entry in self.kept.entries()):
            raise Conflict(f"a continuous query {name!r} is kept already; remove it first, or choose another name")
        alert = None if document.get("alert") is None else _alert_document(str(name), document["alert"])
        if alert is not None:
            # Before anything is stored, as receivers may be refused.
            self._standing.check(alert)
        options = {
            f"{key}_s": parse_wait(
                document[key], f"{key!r} of the continuous query {name!r}", may_be_zero=key == "disorder"
            )
            for key in ("idle", "disorder")
            if document.get(key) is not None
        }
        keep_s = parse_keep(document.get("keep"), f"'keep' of the continuous query {name!r}")
        self.kept.add(str(name), text, start=start, maximum=self._standing.maximum, keep_s=keep_s, **options)
        if alert is not None:
            try:
                self._standing.add(alert)
            except HyperGridError:
                self.kept.remove(str(name))
                raise
        return self.show(str(name))

    def change_keep(self, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Change how long the results of a query are kept; older ones are dropped as it goes on.

        Parameters
        ----------
        document
            "keep": a duration such as "90days", a day or longer, or "always".

        Raises
        ------
        NotFound
            There is none with this name.
        HyperGridError
            The key is missing or invalid, or there is another one.
        """
        NotFound.refuse_unknown("key of how long results are kept", document, ("keep",))
        if document.get("keep") is None:
            raise InvalidQuery(f"how long results of {name!r} are kept needs 'keep', such as '90days', or 'always'")
        self.kept.entry(name)
        self.kept.change_keep(name, parse_keep(document["keep"], f"'keep' of the continuous query {name!r}"))
        return self.show(name)

    def remove(self, name: str) -> None:
        """Forget a query, its results, and the standing queries that follow it; alerts stay.

        Raises
        ------
        NotFound
            There is none with this name.
        """
        self.kept.entry(name)
        for follower in self._followers(name):
            self._standing.remove(follower)
        self.kept.remove(name)

    def show(self, name: str) -> dict[str, Any]:
        """Describe a query: its text, how far it is evaluated, and why it cannot be where that is so.

        Raises
        ------
        NotFound
            There is none with this name.
        """
        entry = self.kept.entry(name)
        error = self.kept.error(name) or self.kept.trouble
        form: ResultForm | None = None
        try:
            form = self.kept.form(entry)
        except HyperGridError as problem:
            error = error or str(problem)
        return {
            "name": entry.name,
            "text": entry.text,
            "start": format_timestamp(entry.options.start_ns),
            "snapshot": entry.snapshot,
            "heartbeat": None if entry.heartbeat_ns is None else format_timestamp(entry.heartbeat_ns),
            "complete": self.kept.is_complete(name),
            "late_windows": entry.late,
            **describe_retention(entry.retention),
            "error": error,
            "result": None if form is None else "stream" if form.is_stream else "relation",
            "columns": None if form is None else describe_columns(form),
            "keys": None if form is None else list(form.keys),
            "alerts": [self._standing.show(follower) for follower in self._followers(name)],
        }

    def listing(self) -> list[dict[str, Any]]:
        """Describe all kept queries, by name."""
        return [self.show(entry.name) for entry in self.kept.entries()]

    def _followers(self, name: str) -> list[str]:
        """Return the names of the standing queries that follow a kept one."""
        entries = self._standing.store.entries()
        return [entry.name for entry in entries if entry.definition.query.get(FOLLOWED) == name]


def describe_retention(retention: "ResultRetention") -> dict[str, Any]:
    """Describe for how long results are kept, from when on they are, and how often readings arrived too late."""
    return {
        "keep_s": retention.keep_s,
        "kept_from": None if retention.kept_ns == NO_INSTANT else format_timestamp(retention.kept_ns),
        "too_late_windows": retention.too_late,
    }


def describe_columns(form: ResultForm) -> list[dict[str, str | None]]:
    """Describe the select list of a result."""
    return [{"name": part.name, "kind": part.kind, "unit": part.unit} for part in form.attributes]


def _alert_document(name: str, alert: object) -> dict[str, Any]:
    """Return the standing query of an alert as a document."""
    if not isinstance(alert, Mapping):
        raise InvalidQuery(
            f"the alert of the continuous query {name!r} is an object such as {{'to': ['events']}}; got "
            f"{str(alert)[:80]!r}"
        )
    NotFound.refuse_unknown(f"key of the alert of the continuous query {name!r}", alert, _ALERT_KEYS)
    condition = {"kind": "continuous"} | ({"quiet": alert["quiet"]} if alert.get("quiet") is not None else {})
    document = {"name": name, "query": {FOLLOWED: name}, "condition": condition, "to": alert.get("to", ["events"])}
    return document | ({"title": alert["title"]} if alert.get("title") else {})
