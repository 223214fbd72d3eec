"""What a standing query is: a query document, its weight and validity, a condition, and where its results go."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from hypergrid.core.errors import InvalidQuery, InvalidTime, NotFound
from hypergrid.core.settings import Settings
from hypergrid.core.times import DAY_NS, format_duration, parse_duration
from queries.standing.conditions import Condition, condition_from_json

Kind = Literal["alert", "user", "archive"]
WEIGHTS: Final[Mapping[Kind, float]] = {"alert": 10.0, "user": 3.0, "archive": 1.0}
"""Weight of each class where none is given; a user's lies between 2 and 5 (thesis 5.11)."""

DEFAULT_VALIDITY: Final = "10min"
"""How long a result counts as fresh where nothing is said."""

Channel = Literal["events", "archive", "email", "webhook"]
CHANNELS: Final = ("events", "archive", "email", "webhook")

RESERVED: Final = ("alerts", "statistics")
"""Names that no standing query may have: in the addresses of the web API they are pages."""
LONGEST_NS: Final = 36_525 * DAY_NS
"""Longest validity and window: a hundred years [ns]."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_ADDRESS: Final = re.compile(r"[^@\s,;<>]{1,64}@[A-Za-z0-9.-]{1,255}")
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_DEFAULTS: Final = Settings()
_KEYS: Final = ("name", "query", "class", "weight", "validity", "window", "condition", "to")


class Conflict(InvalidQuery):
    """A standing query of this name is there already."""


@dataclass(frozen=True)
class DeliveryTarget:
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
    """How long after a slice its result counts as fresh [ns]; the server's OptProfit breaks ties by it, and no more."""
    window_ns: int | None = None
    """Length of the window that ends with the newest slice [ns]; None: all slices that come."""
    condition: Condition | None = None
    """What raises an alert; None: none is raised."""
    to: tuple[DeliveryTarget, ...] = (DeliveryTarget("events"),)

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


def definition_from_json(document: object, settings: Settings | None = _DEFAULTS) -> Definition:
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
    settings
        What says whom alerts may be sent to; None: the document is one that was made before, and whether it may be
        made is not looked at.

    Raises
    ------
    InvalidQuery, NotFound, InvalidTime, InvalidUnit
        A key that is missing, unknown or does not fit; the message names it.
    """
    given = _check_document(document)
    name = given["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = (
            "the name of a standing query needs 1 to 63 lower-case letters, digits, '-' or '_', the first a letter or "
            f"digit; got {name!r}"
        )
        raise InvalidQuery(message)
    label = f"standing query {name!r}"
    query = given["query"]
    if not isinstance(query, Mapping):
        message = f"{label} needs 'query', a query as a JSON object; got {type(query).__name__}"
        raise InvalidQuery(message)
    if query.get("snapshot") is not None or query.get("as_of") is not None:
        message = f"{label} reads the newest snapshot each time; remove 'snapshot' and 'as_of' from its query"
        raise InvalidQuery(message)
    condition = None if given.get("condition") is None else condition_from_json(given["condition"], label=label)
    kind = given.get("class", "user" if condition is None else "alert")
    if kind not in tuple(WEIGHTS):
        raise NotFound.among(kind=f"class of {label}", given=kind, existing=WEIGHTS)
    if kind == "alert" and condition is None:
        message = f"{label} is an alert and has no 'condition'; give one, or the class user or archive"
        raise InvalidQuery(message)
    window, clip = given.get("window"), query.get("clip")
    if window is not None and isinstance(clip, Mapping) and "time" in clip:
        message = f"{label} has a window of {window}, and a clip in time; keep one of the two"
        raise InvalidQuery(message)
    definition = Definition(
        name=name,
        query={key: value for key, value in query.items() if key != "snapshot" and (key, value) != ("clip", None)},
        kind=kind,
        weight=_parse_positive(given.get("weight", WEIGHTS[kind]), f"the weight of {label}"),
        validity_ns=_parse_duration(given.get("validity", DEFAULT_VALIDITY), f"the validity of {label}"),
        window_ns=None if window is None else _parse_duration(window, f"the window of {label}"),
        condition=condition,
        to=_parse_targets(given.get("to", ["events"]), label),
    )
    if settings is not None:
        _check_new(definition, settings, label)
    return definition


def _check_new(definition: Definition, settings: Settings, label: str) -> None:
    """Refuse what may not be made; one that an earlier program made stands."""
    if definition.name in RESERVED:
        message = f"a standing query cannot have the name {definition.name!r}, which pages have; choose another"
        raise InvalidQuery(message)
    for what, length_ns in (("validity", definition.validity_ns), ("window", definition.window_ns or 0)):
        if length_ns > LONGEST_NS:
            message = (
                f"the {what} of {label} needs at most {format_duration(LONGEST_NS)}; got {format_duration(length_ns)}"
            )
            raise InvalidTime(message)
    for target in definition.to:
        if target.channel == "webhook":
            check_webhook(target.address, settings.webhook_hosts, label)
        if target.channel == "email":
            check_mail(target.address, settings.mail_to, label)


def _check_document(document: object) -> Mapping[str, Any]:
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


def _parse_positive(value: object, what: str) -> float:
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")
    except OverflowError:
        number = float("inf")
    if not 0 < number < float("inf"):
        text = repr(value) if number != float("inf") else "one beyond all numbers"
        message = f"{what} needs a number above zero; got {text}; alerts have 10, users 2 to 5, archives 1"
        raise InvalidQuery(message)
    return number


def _parse_duration(value: object, what: str) -> int:
    return _prefix_errors(lambda: parse_duration(value), what)


def _prefix_errors(parse: Callable[[], int], what: str) -> int:
    try:
        return parse()
    except ValueError as error:
        message = f"{what}: {error}"
        raise type(error)(message) from error


def _parse_targets(value: object, label: str) -> tuple[DeliveryTarget, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        message = f"'to' of {label} needs a list such as ['events', 'webhook:https://…']; got {value!r}"
        raise InvalidQuery(message)
    return tuple(dict.fromkeys(_parse_target(text, label) for text in value))


def _parse_target(text: str, label: str) -> DeliveryTarget:
    channel, _, address = text.partition(":")
    if channel not in CHANNELS:
        raise NotFound.among(kind=f"place that results of {label} go to", given=channel, existing=CHANNELS)
    if channel in ("events", "archive"):
        if address:
            message = f"{label}: {channel!r} takes no address; got {text!r}"
            raise InvalidQuery(message)
    elif channel == "email":
        if not (_ADDRESS.fullmatch(address) and address.isprintable()):
            message = f"{label} needs one mail address, 'email:warden@example.org'; got {text!r}"
            raise InvalidQuery(message)
    return DeliveryTarget(channel, address)  # type: ignore[arg-type]


def _host_of(allowed: str) -> tuple[str, int | None]:
    """Return the host and the port of what the settings allow; no port: any."""
    import httpx  # noqa: PLC0415 - it takes 0.3 s to load, and few alerts go to webhooks

    try:
        # An IPv6 address is written with or without its brackets.
        is_bare = allowed.count(":") > 1 and "[" not in allowed
        site = httpx.URL(f"any://[{allowed}]" if is_bare else f"any://{allowed}")
    except httpx.InvalidURL:
        return "", None
    return site.host, site.port


def check_webhook(url: str, allowed_hosts: tuple[str, ...], label: str) -> None:
    """Refuse a webhook whose host is not allowed.

    Raises
    ------
    InvalidQuery
        It is no http or https address that can be sent to, carries a user or password, or its host is not in the list.
    """
    import httpx  # noqa: PLC0415 - as above

    # Read by the library that sends: two readers could differ on where an address leads.
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        parts = httpx.URL("")
    port = parts.port or _PORTS.get(parts.scheme, 0)
    if parts.scheme not in _PORTS or not parts.host or not 0 < port < 2**16 or parts.userinfo or not url.isprintable():
        message = f"{label} needs a webhook such as https://host/path, without user or password; got {url!r}"
        raise InvalidQuery(message)
    allowed = [_host_of(allowed_host) for allowed_host in allowed_hosts]
    if (parts.host, None) not in allowed and (parts.host, port) not in allowed:
        host = parts.host
        listed = ", ".join(allowed_hosts) if allowed_hosts else "none"
        message = (
            f"{label}: the webhook goes to {host!r}, which is not allowed; allowed hosts are: {listed}; add it to the "
            "setting 'webhook_hosts' of the server"
        )
        raise InvalidQuery(message)


def check_address(address: str, allowed_hosts: tuple[str, ...], label: str) -> None:
    """Refuse a webhook whose host's name leads to an address that is not public, unless the address itself is allowed.

    So nobody who may choose where a name leads can have alerts sent to a service within the network.

    Parameters
    ----------
    address
        What the name was found to mean, before anything is sent.
    allowed_hosts
        Names, addresses, and networks such as "10.1.0.0/16".

    Raises
    ------
    InvalidQuery
        It is of a private network, link-local or of this machine, and neither it nor its network is in the list.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    reached = getattr(ip, "ipv4_mapped", None) or ip
    if reached.is_global and not reached.is_multicast:
        return
    if any(reached in network for allowed_host in allowed_hosts for network in _networks_of(allowed_host)):
        return
    message = (
        f"{label}: the webhook's host leads to {reached}, which is not a public address; where that is meant, add the "
        "address or its network to the setting 'webhook_hosts' of the server"
    )
    raise InvalidQuery(message)


def _networks_of(allowed: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return the networks that what the settings allow names: none, for the name of a host that is not this machine."""
    host = _host_of(allowed)[0]
    names = {"localhost": ("127.0.0.0/8", "::1")}.get(host, (allowed if "/" in allowed else host,))
    with suppress(ValueError):
        return tuple(ipaddress.ip_network(name, strict=False) for name in names)
    return ()


def check_mail(address: str, allowed: tuple[str, ...], label: str) -> None:
    """Refuse a mail address that alerts may not go to: where some are allowed, it needs to be one, or of one's host.

    Raises
    ------
    InvalidQuery
        It is none of them.
    """
    wanted, host = address.lower(), address.lower().rpartition("@")[2]
    if allowed and not {wanted, f"@{host}"} & {entry.lower() for entry in allowed}:
        message = (
            f"{label}: mails to {address!r} are not allowed; allowed are: {', '.join(allowed)}; add it to the setting "
            "'mail_to' of the server"
        )
        raise InvalidQuery(message)
