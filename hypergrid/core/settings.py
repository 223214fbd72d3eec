"""Settings: what the command line, the environment (HYPERGRID_…) and a TOML file may say, in that order of weight."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from hypergrid.core.errors import InvalidDeployment


@dataclass(frozen=True)
class Settings:
    """How a server runs."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8765
    """Port to listen on."""
    allowed_bytes: int | None = None
    """Memory that one query may take [bytes]; half of what is free where absent."""
    kept_bytes: int = 512 * 2**20
    """Memory that finished results may take [bytes]; the oldest go first."""
    queue: int = 256
    """Queries that may wait."""
    workers: int | None = None
    """Queries that compute at a time; as many as there are processors where absent."""
    state: str = ""
    """Folder where the server keeps access keys, jobs and the audit log; ARCHIVE/server where empty."""
    standing_folder: str = ""
    """Folder of standing queries, their alerts and results; ARCHIVE/standing where empty."""
    read_only: bool = False
    """Whether nothing is written: no standing queries, and nothing is kept of queries. Several may serve an archive so,
    beside one that does not."""
    names: tuple[str, ...] = ()
    """Host names that the server answers to, besides those of loopback and its own address."""
    origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may ask, with an access key, each as "https://host"; none where empty."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed."""
    root_path: str = ""
    """Path that a proxy puts before all others, such as "/stations"."""
    anonymous_read: bool = False
    """Whether those without an access key may read."""
    session_s: int = 12 * 3600
    """How long a browser stays logged in [s]."""
    requests_per_s: int = 100
    """Requests a second of one access key."""
    streams: int = 100
    """Requests of one access key that may be open at a time, such as streams of events."""
    queries: int = 64
    """Queries of one access key that may wait or run."""
    cells: int | None = None
    """Cells that the surface of one query may have."""
    seconds: int = 900
    """Time that one query may project [s], unless its access key says otherwise."""
    anonymous_requests_per_s: int = 10
    """The same for each address without an access key."""
    anonymous_streams: int = 10
    anonymous_queries: int = 2
    anonymous_cells: int | None = 1_000_000
    anonymous_bytes: int | None = 256 * 2**20
    """Memory that one query of somebody without an access key may take [bytes]."""
    anonymous_seconds: int | None = 10
    requests_log: str = ""
    """Where a line of JSON for each request goes: a file, or "-" for standard error; nowhere where empty."""
    webhook_hosts: tuple[str, ...] = ()
    """Hosts that alerts may be posted to, each "name" or "name:port"; of names that lead to private addresses also the
    address, or its network, "10.1.0.0/16"."""
    mail_server: str = ""
    """Server that takes mails with alerts, "host" or "host:port"; none where empty."""
    mail_from: str = "hypergrid@localhost"
    """Sender of mails with alerts."""
    mail_to: tuple[str, ...] = ()
    """Addresses that alerts may be mailed to, "name@host", or "@host" for all of a host; any where empty."""
    standing: int = 1000
    """Standing queries that may be there."""


_BOUNDS: Final[Mapping[str, tuple[int, int | None]]] = {
    "port": (0, 65535),
    "allowed_bytes": (1, None),
    "kept_bytes": (1, None),
    "queue": (1, None),
    "workers": (1, None),
    "session_s": (60, 30 * 86400),
    "requests_per_s": (1, None),
    "streams": (1, None),
    "queries": (1, None),
    "cells": (1, None),
    "seconds": (1, None),
    "anonymous_requests_per_s": (1, None),
    "anonymous_streams": (1, None),
    "anonymous_queries": (1, None),
    "anonymous_cells": (1, None),
    "anonymous_bytes": (1, None),
    "anonymous_seconds": (1, None),
    "standing": (1, None),
}
"""Least and greatest of each setting that is a number."""

_TEXTS: Final[Mapping[str, str]] = {
    "host": "an address",
    "mail_server": "a host, or host:port,",
    "mail_from": "a mail address",
    "state": "a folder",
    "standing_folder": "a folder",
    "root_path": "a path such as /stations",
    "requests_log": "a file, or '-',",
}
"""Settings that are text, and what each is."""

_LISTS: Final = ("webhook_hosts", "mail_to", "names", "origins", "trusted_proxies")
"""Settings that are lists of text; in the environment parted by commas."""

_SWITCHES: Final = ("anonymous_read", "read_only")
"""Settings that are true or false."""


def read_settings(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a TOML file and the environment; the environment weighs more.

    Raises
    ------
    InvalidDeployment
        The file cannot be read or is no TOML, a key does not exist, or a value does not fit.
    """
    environment = os.environ if environment is None else environment
    known = [item.name for item in fields(Settings)]
    values = (
        {}
        if path is None
        else {name: _parse_setting(name, value, str(path)) for name, value in _read_content(path).items()}
    )
    for name in known:
        key = f"HYPERGRID_{name.upper()}"
        if key in environment:
            values[name] = _parse_setting(name, environment[key], key)
    return Settings(**values)  # type: ignore[arg-type]


def _read_content(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        message = f"the settings file {path} cannot be read: {error.strerror}; check the path"
        raise InvalidDeployment(message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"the settings file {path} is no TOML: {error}"
        raise InvalidDeployment(message) from error


def _parse_setting(name: str, value: object, where: str) -> bool | int | str | tuple[str, ...]:
    """Return a setting's value as its type; `where` it was given is for the message."""
    if name in _TEXTS:
        if not isinstance(value, str) or not value:
            message = f"{where}: setting {name!r} needs {_TEXTS[name]} as text; got {value!r}"
            raise InvalidDeployment(message)
        return value
    if name in _LISTS:
        listed = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(entry, str) and entry for entry in listed):
            message = f"{where}: setting {name!r} needs a list of names such as ['host', 'host:8443']; got {value!r}"
            raise InvalidDeployment(message)
        return tuple(listed)
    if name in _SWITCHES:
        switch = {"true": True, "false": False}.get(str(value).lower())
        if switch is None:
            message = f"{where}: setting {name!r} needs true or false; got {value!r}"
            raise InvalidDeployment(message)
        return switch
    if name not in _BOUNDS:
        known = sorted([*_TEXTS, *_LISTS, *_SWITCHES, *_BOUNDS])
        message = f"{where}: unknown setting {name!r}; there are: {', '.join(known)}"
        raise InvalidDeployment(message)
    lower_bound, upper_bound = _BOUNDS[name]
    try:
        number = int(str(value))
    except ValueError:
        number = lower_bound - 1
    if number < lower_bound or (upper_bound is not None and number > upper_bound):
        bounds = f"of at least {lower_bound}" if upper_bound is None else f"from {lower_bound} to {upper_bound}"
        message = f"{where}: setting {name!r} needs a whole number {bounds}; got {value!r}"
        raise InvalidDeployment(message)
    return number
