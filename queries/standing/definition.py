"""What a standing query is: a query document, its weight and validity, a condition, and where its results go."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from hypergrid.errors import InvalidQuery, NotFound
from hypergrid.times import format_duration, parse_duration
from queries.standing.conditions import Condition, condition_from_json

Kind = Literal["alert", "user", "archive"]
WEIGHTS: Final[Mapping[Kind, float]] = {"alert": 10.0, "user": 3.0, "archive": 1.0}
"""Weight of each class where none is given; a user's lies between 2 and 5 (thesis 5.11)."""

DEFAULT_VALIDITY: Final = "10min"
"""How long a result counts as fresh where nothing is said."""

Channel = Literal["events", "archive", "email", "webhook"]
CHANNELS: Final = ("events", "archive", "email", "webhook")

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_ADDRESS: Final = re.compile(r"[^@\s,;<>]{1,64}@[A-Za-z0-9.-]{1,255}")
_KEYS: Final = ("name", "query", "class", "weight", "validity", "window", "condition", "to")


class Conflict(InvalidQuery):
    """A standing query of this name is there already."""


@dataclass(frozen=True)
class Target:
    """Where results or alerts go."""

    channel: Channel
    address: str = ""
    """The mail address, or the URL of the webhook; empty for the others."""

    def __str__(self) -> str:
        """Return "events", "archive", "email:ADDRESS" or "webhook:URL"."""
        return f"{self.channel}:{self.address}" if self.address else self.channel


@dataclass(frozen=True)
class Definition:
    """A standing query as it was asked for; what is known of its runs is kept elsewhere."""

    name: str
    query: Mapping[str, Any]
    """The query document; without a snapshot: it reads the newest."""
    kind: Kind
    weight: float
    validity_ns: int
    """How long after a slice its result counts as fresh [ns]."""
    window_ns: int | None = None
    """Length of the window that ends with the newest slice [ns]; None: all slices that come."""
    condition: Condition | None = None
    """What raises an alert; None: none is raised."""
    to: tuple[Target, ...] = (Target("events"),)

    def to_json(self) -> dict[str, Any]:
        """Return the document that `definition_from_json` reads."""
        document: dict[str, Any] = {
            "name": self.name, "class": self.kind, "weight": self.weight, "validity": format_duration(self.validity_ns),
            "query": dict(self.query), "to": [str(target) for target in self.to],
        }  # fmt: skip
        if self.window_ns is not None:
            document["window"] = format_duration(self.window_ns)
        if self.condition is not None:
            document["condition"] = self.condition.to_json()
        return document


def definition_from_json(document: object, *, allowed_hosts: tuple[str, ...] | None = ()) -> Definition:
    """Return the standing query that a document says.

    ::

        {"name": "frost", "class": "alert", "query": {"variable": "air_temperature", "steps": […]},
         "condition": {"kind": "threshold", "below": 0, "clear": 1}, "to": ["events", "email:warden@example.org"]}

    Parameters
    ----------
    document
        Keys "name" and "query"; and perhaps "class" (alert, user, archive; alert where there is a condition, else
        user), "weight" (that of the class where absent), "validity" ("10min"), "window" ("1h": the query is of the last
        hour, which ends with the newest slice), "condition", and "to": a list of "events", "archive",
        "email:ADDRESS", "webhook:URL".
    allowed_hosts
        Hosts that a webhook may go to, each "name" or "name:port"; None: hosts are not looked at.

    Raises
    ------
    InvalidQuery, NotFound, InvalidTime, InvalidUnit
        A key that is missing, unknown or does not fit; the message names it.
    """
    given = _mapping(document)
    name = given["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = (
            "the name of a standing query needs 1 to 63 lower-case letters, digits, '-' or '_', the first a letter or "
            f"digit; got {name!r}"
        )
        raise InvalidQuery(message)
    who = f"standing query {name!r}"
    query = given["query"]
    if not isinstance(query, Mapping):
        message = f"{who} needs 'query', a query as a JSON object; got {type(query).__name__}"
        raise InvalidQuery(message)
    if query.get("snapshot") is not None or query.get("as_of") is not None:
        message = f"{who} reads the newest snapshot each time; remove 'snapshot' and 'as_of' from its query"
        raise InvalidQuery(message)
    condition = None if given.get("condition") is None else condition_from_json(given["condition"], who=who)
    kind = given.get("class", "user" if condition is None else "alert")
    if kind not in WEIGHTS:
        raise NotFound.among(kind=f"class of {who}", given=kind, existing=WEIGHTS)
    if kind == "alert" and condition is None:
        message = f"{who} is an alert and has no 'condition'; give one, or the class user or archive"
        raise InvalidQuery(message)
    window = given.get("window")
    if window is not None and "time" in query.get("clip", {}):
        message = f"{who} has a window of {window}, and a clip in time; keep one of the two"
        raise InvalidQuery(message)
    return Definition(
        name=name,
        query={key: value for key, value in query.items() if key != "snapshot"},
        kind=kind,
        weight=_positive(given.get("weight", WEIGHTS[kind]), f"the weight of {who}"),
        validity_ns=_duration(given.get("validity", DEFAULT_VALIDITY), f"the validity of {who}"),
        window_ns=None if window is None else _duration(window, f"the window of {who}"),
        condition=condition,
        to=_targets(given.get("to", ["events"]), who, allowed_hosts),
    )


def _mapping(document: object) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        message = f"a standing query is a JSON object with a name and a query; got {type(document).__name__}"
        raise InvalidQuery(message)
    for key in document:
        if key not in _KEYS:
            raise NotFound.among(kind="key of a standing query", given=key, existing=_KEYS)
    for key in ("name", "query"):
        if key not in document:
            message = f"a standing query needs the key {key!r}; got {sorted(map(str, document))}"
            raise InvalidQuery(message)
    return document


def _positive(value: object, what: str) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")
    if not 0 < number < float("inf"):
        message = f"{what} needs a number above zero; got {value!r}; alerts have 10, users 2 to 5, archives 1"
        raise InvalidQuery(message)
    return number


def _duration(value: object, what: str) -> int:
    return _explained(lambda: parse_duration(value), what)


def _explained(parse: Callable[[], int], what: str) -> int:
    try:
        return parse()
    except ValueError as error:
        message = f"{what}: {error}"
        raise type(error)(message) from error


def _targets(value: object, who: str, allowed_hosts: tuple[str, ...] | None) -> tuple[Target, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        message = f"'to' of {who} needs a list such as ['events', 'webhook:https://…']; got {value!r}"
        raise InvalidQuery(message)
    return tuple(dict.fromkeys(_target(one, who, allowed_hosts) for one in value))


def _target(text: str, who: str, allowed_hosts: tuple[str, ...] | None) -> Target:
    channel, _, address = text.partition(":")
    if channel not in CHANNELS:
        raise NotFound.among(kind=f"place that results of {who} go to", given=channel, existing=CHANNELS)
    if channel in ("events", "archive"):
        if address:
            message = f"{who}: {channel!r} takes no address; got {text!r}"
            raise InvalidQuery(message)
    elif channel == "email":
        if not _ADDRESS.fullmatch(address):
            message = f"{who} needs one mail address, 'email:warden@example.org'; got {text!r}"
            raise InvalidQuery(message)
    else:
        check_webhook(address, allowed_hosts, who)
    return Target(channel, address)  # type: ignore[arg-type]


def check_webhook(url: str, allowed_hosts: tuple[str, ...] | None, who: str) -> None:
    """Refuse a webhook whose host is not allowed.

    Raises
    ------
    InvalidQuery
        It is no http or https address, carries a user or password, or its host is not in the list.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.password is not None:
        message = f"{who} needs a webhook such as https://host/path, without user or password; got {url!r}"
        raise InvalidQuery(message)
    if allowed_hosts is not None and not {host, f"{host}:{port}"} & set(allowed_hosts):
        listed = ", ".join(allowed_hosts) if allowed_hosts else "none"
        message = (
            f"{who}: the webhook goes to {host!r}, which is not allowed; allowed hosts are: {listed}; add it to the "
            "setting 'webhook_hosts' of the server"
        )
        raise InvalidQuery(message)
