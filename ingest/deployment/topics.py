"""MQTT settings of a deployment: the topics of a feed's messages, and the broker."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

from hypergrid.core.errors import InvalidDeployment
from ingest.deployment.toml_table import TomlTable

STATION: Final = "station"
"""Named level of a topic that is the station, if the message itself does not name one."""
USER_KEY: Final = "HYPERGRID_MQTT_USER"
PASSWORD_KEY: Final = "HYPERGRID_MQTT_PASSWORD"  # noqa: S105 - a variable name, not a password
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_NAMED: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Topic:
    """Topic pattern: `{name}` and `+` match one level, a final `#` all levels below.

    Examples
    --------
    >>> topic = Topic("net/{station}/up")
    >>> topic.filter, topic.station("net/7/up"), topic.matches("net/7/down")
    ('net/+/up', '7', False)
    """

    token_name: ClassVar[str] = "Topic"

    pattern: str

    @cached_property
    def filter(self) -> str:
        return _NAMED.sub("+", self.pattern)

    @cached_property
    def _form(self) -> re.Pattern[str]:
        levels = []
        for level in self.pattern.split("/"):
            named = _NAMED.fullmatch(level)
            levels.append(f"(?P<{named[1]}>[^/]*)" if named else "[^/]*" if level == "+" else re.escape(level))
        text = "/".join(levels)
        # In MQTT, "#" alone does not match topics that begin with "$".
        if self.pattern.split("/")[-1] == "#":
            text = f"{text.removesuffix(re.escape('#')).removesuffix('/')}(?:/.*)?" if len(levels) > 1 else "(?!\\$).*"
        return re.compile(text, re.DOTALL)

    def matches(self, topic: str) -> bool:
        return self._form.fullmatch(topic) is not None

    def station(self, topic: str) -> str:
        """Return the station in a topic; empty if it has none."""
        match = self._form.fullmatch(topic)
        return match[STATION] if match and STATION in self._form.groupindex else ""

    def overlaps(self, other: "Topic") -> bool:
        return _overlap(self.filter.split("/"), other.filter.split("/"))


def _overlap(levels: Sequence[str], other: Sequence[str]) -> bool:
    if levels[:1] == ["#"] or other[:1] == ["#"]:
        return True
    if not levels or not other:
        # "a/#" also matches "a" itself.
        return levels[:1] in ([], ["#"]) and other[:1] in ([], ["#"])
    return (levels[0] == other[0] or "+" in (levels[0], other[0])) and _overlap(levels[1:], other[1:])


def read_topic(table: TomlTable) -> Topic:
    """Read the topic of a feed.

    Raises
    ------
    InvalidDeployment
        It is not a valid topic pattern.
    """
    pattern = table.text("topic")
    levels = pattern.split("/")
    names = [named[1] for level in levels if (named := _NAMED.fullmatch(level))]
    for index, level in enumerate(levels):
        plain = _NAMED.fullmatch(level) or level == "+" or (level == "#" and index == len(levels) - 1)
        if not plain and (set(level) & set("{}+#\0")):
            table.refuse("topic", f"is {pattern!r}; {{name}} and + stand for one whole level, # for all at the end")
    if len(set(names)) < len(names):
        table.refuse("topic", f"is {pattern!r}, which names a level twice; give each a name of its own")
    if len(pattern.encode()) > 65_535:
        table.refuse("topic", "is longer than MQTT allows, 65,535 bytes")
    return Topic(pattern)


def check_no_overlap(topics: Sequence[tuple[str, Topic]], *, file: str) -> None:
    """Raise `InvalidDeployment` if a message could match two of the feeds (name, topic)."""
    for index, (name, topic) in enumerate(topics):
        for before, earlier in topics[:index]:
            if topic.overlaps(earlier):
                raise InvalidDeployment(
                    f"{file}: the topics of feeds {before!r} ({earlier.pattern}) and {name!r} ({topic.pattern}) "
                    "overlap: a message could be of both; make them differ in a level that is no wildcard"
                )


@dataclass(frozen=True)
class Broker:
    """Source of messages. The password is only in a file or in the environment."""

    host: str
    port: int = 1883
    tls: bool = False
    ca_file: Path | None = None
    """Certificates that must have signed the broker's; None: those that the system trusts."""
    certificate: Path | None = None
    """Client certificate, if the broker requires one."""
    key: Path | None = None
    user: str = ""
    password_file: Path | None = None
    """File whose first line is the password."""
    client_id: str = ""
    """Client id of the persistent session; empty: generated for the archive and stored with it."""

    @property
    def url(self) -> str:
        scheme = "mqtts" if self.tls else "mqtt"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    def check_files(self) -> None:
        """Raise `InvalidDeployment` if a file that it names is missing."""
        for key in ("ca_file", "certificate", "key", "password_file"):
            path: Path | None = getattr(self, key)
            if path is not None and not path.is_file():
                raise InvalidDeployment(
                    f"mqtt.{key} is {str(path)!r}, which is no file; paths begin where the deployment file is"
                )


def address(url: str) -> tuple[str, int, bool]:
    """Parse mqtt://HOST[:PORT] or mqtts://HOST[:PORT] into host, port, and whether TLS is used.

    Raises
    ------
    InvalidDeployment
        The URL has another form, or contains a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidDeployment(
            f"no address of a broker: {error}; write mqtt://HOST:1883 or mqtts://HOST:8883"
        ) from error
    if parts.username is not None or parts.password is not None:
        raise InvalidDeployment(
            "a broker's address has no user or password in it, where others could see them; set `user` and "
            f"`password_file` under [mqtt], or {USER_KEY} and {PASSWORD_KEY} in the environment"
        )
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise InvalidDeployment(
            f"{url!r} is no address of a broker; write mqtt://HOST:1883, or mqtts://HOST:8883 for TLS"
        )
    return parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "mqtts"


def read_broker(table: TomlTable, *, folder: Path | None) -> Broker:
    """Read the table [mqtt]; paths are relative to `folder` and not checked yet.

    Raises
    ------
    InvalidDeployment
        A key is invalid.
    """
    host, port, tls = table.run_check("url", lambda: address(table.text("url")))
    if table.has("password"):
        table.refuse("password", f"does not belong here; name a `password_file`, or set {PASSWORD_KEY}")

    def file(key: str) -> Path | None:
        return (folder or Path()) / table.text(key) if table.has(key) else None

    broker = Broker(
        host,
        port,
        tls,
        file("ca_file"),
        file("certificate"),
        file("key"),
        table.optional_text("user") or "",
        file("password_file"),
        table.optional_text("client_id") or "",
    )
    if not tls and (broker.ca_file or broker.certificate or broker.key):
        table.refuse("url", f"is {broker.url}, which uses no TLS, but there are files for it; write mqtts://")
    if broker.key and not broker.certificate:
        table.refuse("key", "needs a certificate")
    return table.finish(broker)
