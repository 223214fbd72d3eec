"""Definition of a standing query: query document, weight, validity, condition and delivery targets."""

import ipaddress
import re
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal

from hypergrid.core.errors import InvalidQuery, InvalidTime, NotFound
from hypergrid.core.names import LONGEST_NAME, check_name, make_slug
from hypergrid.core.settings import Settings
from hypergrid.core.times import DAY_NS, format_duration, parse_duration
from hypergrid.perspective.spec.document_time import is_clipped_in_time
from queries.standing.conditions import Condition, InResult, condition_from_json

Kind = Literal["alert", "user", "archive"]
WEIGHTS: Final[Mapping[Kind, float]] = {"alert": 10.0, "user": 3.0, "archive": 1.0}
"""Default weight of each class; a user's weight lies between 2 and 5 (thesis 5.11)."""

DEFAULT_VALIDITY: Final = "10min"
"""How long a result counts as fresh, by default."""

Channel = Literal["events", "archive", "email", "webhook"]
CHANNELS: Final = ("events", "archive", "email", "webhook")

# The web API uses these paths for its own pages.
RESERVED: Final = ("alerts", "preview", "statistics")
"""Names that no standing query may have."""
FOLLOWED: Final = "continuous"
"""Key of a query that names a kept continuous query."""
LONGEST_NS: Final = 36_525 * DAY_NS
"""Longest validity and window: a hundred years [ns]."""

UNTITLED: Final = "query"
"""Name of a standing query whose title has no letter of a name."""
LONGEST_TITLE: Final = 200
"""Longest title [characters]."""

_ADDRESS: Final = re.compile(r"[^@\s,;<>]{1,64}@[A-Za-z0-9.-]{1,255}")
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_DEFAULTS: Final = Settings()
_KEYS: Final = ("name", "title", "query", "class", "weight", "validity", "window", "condition", "to")


class Conflict(InvalidQuery):
    """A standing query with this name already exists."""


@dataclass(frozen=True)
class DeliveryTarget:
    """Where results or alerts are delivered."""

    channel: Channel
    address: str = ""
    """Mail address or webhook URL; empty for the other channels."""

    def __str__(self) -> str:
        return f"{self.channel}:{self.address}" if self.address else self.channel


@dataclass(frozen=True)
class Definition:
    """A standing query as the user defined it, without its evaluation state."""

    name: str
    query: Mapping[str, Any]
    """Query document without a snapshot: it always reads the newest."""
    kind: Kind
    weight: float
    validity_ns: int
    """How long a result stays fresh after its slice [ns]; the server's OptProfit uses it only to break ties."""
    window_ns: int | None = None
    """Length of the window that ends with the newest slice [ns]; None: every new slice."""
    condition: Condition | None = None
    """What raises an alert; None: no alerts."""
    to: tuple[DeliveryTarget, ...] = (DeliveryTarget("events"),)
    title: str = ""
    """Title for display; empty: the name."""

    def to_json(self) -> dict[str, Any]:
        """Convert to the document that `definition_from_json` reads."""
        document: dict[str, Any] = {
            "name": self.name, "class": self.kind, "weight": self.weight, "validity": format_duration(self.validity_ns),
            "query": dict(self.query), "to": [str(target) for target in self.to],
        }  # fmt: skip
        if self.title:
            document["title"] = self.title
        if self.window_ns is not None:
            document["window"] = format_duration(self.window_ns)
        if self.condition is not None:
            document["condition"] = self.condition.to_json()
        return document


def definition_from_json(document: object, settings: Settings | None = _DEFAULTS) -> Definition:
    """Parse and validate a standing-query document.

    ::

        {"name": "frost", "class": "alert", "query": {"variable": "air_temperature", "steps": […]},
         "condition": {"kind": "threshold", "below": 0, "clear": 1}, "to": ["events", "email:warden@example.org"]}

    Parameters
    ----------
    document
        Required keys: "name" and "query". Optional keys: "title" (for display), "class" (alert, user, archive; default
        alert with a condition, else user), "weight" (default: that of the class), "validity" ("10min"), "window" ("1h":
        the query covers the last hour, which ends with the newest slice), "condition", and "to": a list of "events",
        "archive", "email:ADDRESS", "webhook:URL".
    settings
        Allowed alert recipients; None: trust the document, as it was validated when it was created.

    Raises
    ------
    InvalidQuery, NotFound, InvalidTime, InvalidUnit
        A key is missing, unknown or invalid; the message names it.
    """
    given = _check_document(document)
    name = given["name"]
    check_name(name, "standing query")
    label = f"standing query {name!r}"
    title = given.get("title", "")
    if not isinstance(title, str) or len(title) > LONGEST_TITLE or not title.isprintable():
        raise InvalidQuery(f"the title of {label} needs a line of at most {LONGEST_TITLE} letters; got {title!r}")
    query = given["query"]
    if not isinstance(query, Mapping):
        raise InvalidQuery(f"{label} needs 'query', a query as a JSON object; got {type(query).__name__}")
    if query.get("snapshot") is not None or query.get("as_of") is not None:
        raise InvalidQuery(f"{label} reads the newest snapshot each time; remove 'snapshot' and 'as_of' from its query")
    condition = None if given.get("condition") is None else condition_from_json(given["condition"], label=label)
    _check_followed(query, condition, label)
    kind = given.get("class", "user" if condition is None else "alert")
    if kind not in tuple(WEIGHTS):
        raise NotFound.among(kind=f"class of {label}", given=kind, existing=WEIGHTS)
    if kind == "alert" and condition is None:
        raise InvalidQuery(f"{label} is an alert and has no 'condition'; give one, or the class user or archive")
    window = given.get("window")
    if window is not None and is_clipped_in_time(query):
        raise InvalidQuery(f"{label} has a window of {window}, and a clip in time; keep one of the two")
    definition = Definition(
        name=name,
        # A null snapshot or clip means the same as none.
        query={key: value for key, value in query.items() if key != "snapshot" and (key, value) != ("clip", None)},
        kind=kind,
        weight=_parse_positive(given.get("weight", WEIGHTS[kind]), f"the weight of {label}"),
        validity_ns=_parse_duration(given.get("validity", DEFAULT_VALIDITY), f"the validity of {label}"),
        window_ns=None if window is None else _parse_duration(window, f"the window of {label}"),
        condition=condition,
        to=_parse_targets(given.get("to", ["events"]), label),
        title=title,
    )
    if isinstance(condition, InResult) and (
        window is not None or any(target.channel == "archive" for target in definition.to)
    ):
        raise InvalidQuery(
            f"{label} follows a continuous query, whose results are kept with it; leave out 'window', and 'archive' in "
            "'to'"
        )
    # A definition from the catalogue is trusted: stricter settings must not make it unreadable.
    if settings is not None:
        _check_new(definition, settings, label)
    return definition


def _check_followed(query: Mapping[str, Any], condition: Condition | None, label: str) -> None:
    """Reject a condition on a continuous query without its name, and such a name without the condition."""
    if isinstance(condition, InResult):
        if set(query) != {FOLLOWED} or not isinstance(query[FOLLOWED], str):
            raise InvalidQuery(
                f"{label}: the condition {condition.kind!r} needs the query {{{FOLLOWED!r}: NAME}}, a kept continuous "
                f"query; got the keys {sorted(map(str, query))}"
            )
    elif FOLLOWED in query:
        raise InvalidQuery(
            f"{label} has the continuous query {query[FOLLOWED]!r}; give it the condition {{'kind': 'continuous'}}"
        )


def name_document(document: Mapping[str, Any], taken: Container[str]) -> Mapping[str, Any]:
    """Name a standing-query document by its title, if it has no name; number the name if it is taken."""
    title = document.get("title")
    if "name" in document or not isinstance(title, str) or not title.strip():
        return document
    # Letters of other scripts leave nothing of a title; a number is left free at the end.
    slug = make_slug(title)[: LONGEST_NAME - 4].strip("-_") or UNTITLED
    numbered = (f"{slug}-{number}" if number > 1 else slug for number in count(1))
    return {**document, "name": next(name for name in numbered if name not in taken and name not in RESERVED)}


def _check_new(definition: Definition, settings: Settings, label: str) -> None:
    """Apply the checks for new definitions only; those created by earlier versions stay valid."""
    if definition.name in RESERVED:
        raise InvalidQuery(
            f"a standing query cannot have the name {definition.name!r}, which pages have; choose another"
        )
    for what, length_ns in (("validity", definition.validity_ns), ("window", definition.window_ns or 0)):
        if length_ns > LONGEST_NS:
            raise InvalidTime(
                f"the {what} of {label} needs at most {format_duration(LONGEST_NS)}; got {format_duration(length_ns)}"
            )
    for target in definition.to:
        if target.channel == "webhook":
            check_webhook(target.address, settings.webhook_hosts, label)
        if target.channel == "email":
            check_mail(target.address, settings.mail_to, label)


def _check_document(document: object) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise InvalidQuery(f"a standing query is a JSON object with a name and a query; got {type(document).__name__}")
    for key in document:
        if key not in _KEYS:
            raise NotFound.among(kind="key of a standing query", given=key, existing=_KEYS)
    for key in ("name", "query"):
        if key not in document:
            instead = ", or a 'title'" if key == "name" else ""
            raise InvalidQuery(f"a standing query needs the key {key!r}{instead}; got {sorted(map(str, document))}")
    return document


def _parse_positive(value: object, what: str) -> float:
    try:
        # JSON integers can exceed the range of float.
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")
    except OverflowError:
        number = float("inf")
    if not 0 < number < float("inf"):
        text = repr(value) if number != float("inf") else "one beyond all numbers"
        raise InvalidQuery(f"{what} needs a number above zero; got {text}; alerts have 10, users 2 to 5, archives 1")
    return number


def _parse_duration(value: object, what: str) -> int:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise type(error)(f"{what}: {error}") from error


def _parse_targets(value: object, label: str) -> tuple[DeliveryTarget, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise InvalidQuery(f"'to' of {label} needs a list such as ['events', 'webhook:https://…']; got {value!r}")
    # A target that is listed twice would get every alert twice.
    return tuple(dict.fromkeys(_parse_target(text, label) for text in value))


def _parse_target(text: str, label: str) -> DeliveryTarget:
    channel, _, address = text.partition(":")
    if channel not in CHANNELS:
        raise NotFound.among(kind=f"place that results of {label} go to", given=channel, existing=CHANNELS)
    if channel in ("events", "archive"):
        if address:
            raise InvalidQuery(f"{label}: {channel!r} takes no address; got {text!r}")
    elif channel == "email":
        if not (_ADDRESS.fullmatch(address) and address.isprintable()):
            raise InvalidQuery(f"{label} needs one mail address, 'email:warden@example.org'; got {text!r}")
    return DeliveryTarget(channel, address)  # type: ignore[arg-type]


def _host_of(allowed: str) -> tuple[str, int | None]:
    """Parse the host and port of an allowed entry; port None allows any port."""
    import httpx  # noqa: PLC0415 - it takes 0.3 s to load, and few alerts go to webhooks

    try:
        # The settings allow IPv6 addresses with or without brackets.
        is_bare = allowed.count(":") > 1 and "[" not in allowed
        site = httpx.URL(f"any://[{allowed}]" if is_bare else f"any://{allowed}")
    except httpx.InvalidURL:
        return "", None
    return site.host, site.port


def check_webhook(url: str, allowed_hosts: tuple[str, ...], label: str) -> None:
    """Reject a webhook whose host is not allowed.

    Raises
    ------
    InvalidQuery
        The URL is not a valid http or https address, carries a user or password, or its host is not in the list.
    """
    import httpx  # noqa: PLC0415 - as above

    # Parsed by the library that sends it: two parsers could disagree on where a URL leads.
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        parts = httpx.URL("")
    port = parts.port or _PORTS.get(parts.scheme, 0)
    if parts.scheme not in _PORTS or not parts.host or not 0 < port < 2**16 or parts.userinfo or not url.isprintable():
        raise InvalidQuery(f"{label} needs a webhook such as https://host/path, without user or password; got {url!r}")
    allowed = [_host_of(allowed_host) for allowed_host in allowed_hosts]
    if (parts.host, None) not in allowed and (parts.host, port) not in allowed:
        host = parts.host
        listed = ", ".join(allowed_hosts) if allowed_hosts else "none"
        raise InvalidQuery(
            f"{label}: the webhook goes to {host!r}, which is not allowed; allowed hosts are: {listed}; add it to the "
            "setting 'webhook_hosts' of the server"
        )


def check_address(address: str, allowed_hosts: tuple[str, ...], label: str) -> None:
    """Reject a webhook that resolves to a non-public address, unless that address is allowed.

    Parameters
    ----------
    address
        The address that the host resolved to, before anything is sent.
    allowed_hosts
        Names, addresses, and networks such as "10.1.0.0/16".

    Raises
    ------
    InvalidQuery
        The address is private, link-local or of this machine, and neither it nor its network is in the list.
    """
    # The owner of a DNS name could otherwise have alerts sent to a service inside the network.
    # A link-local address may carry a zone, such as "%eth0".
    ip = ipaddress.ip_address(address.partition("%")[0])
    # An IPv4 address mapped into IPv6 is judged by its IPv4 range.
    reached = getattr(ip, "ipv4_mapped", None) or ip
    if reached.is_global and not reached.is_multicast:
        return
    if any(reached in network for allowed_host in allowed_hosts for network in _networks_of(allowed_host)):
        return
    raise InvalidQuery(
        f"{label}: the webhook's host leads to {reached}, which is not a public address; where that is meant, add the "
        "address or its network to the setting 'webhook_hosts' of the server"
    )


def _networks_of(allowed: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """List the networks of an allowed entry; none for host names except "localhost"."""
    host = _host_of(allowed)[0]
    names = {"localhost": ("127.0.0.0/8", "::1")}.get(host, (allowed if "/" in allowed else host,))
    with suppress(ValueError):
        return tuple(ipaddress.ip_network(name, strict=False) for name in names)
    return ()


def check_mail(address: str, allowed: tuple[str, ...], label: str) -> None:
    """Reject a mail address that is not allowed.

    Entries are addresses or "@host"; an empty list allows all.

    Raises
    ------
    InvalidQuery
        The address is not allowed.
    """
    wanted, host = address.lower(), address.lower().rpartition("@")[2]
    if allowed and not {wanted, f"@{host}"} & {entry.lower() for entry in allowed}:
        raise InvalidQuery(
            f"{label}: mails to {address!r} are not allowed; allowed are: {', '.join(allowed)}; add it to the setting "
            "'mail_to' of the server"
        )
