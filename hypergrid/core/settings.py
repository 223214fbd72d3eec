"""Server settings, in order of precedence: command line, environment (HYPERGRID_…), TOML file."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.importing import ImportLimits


@dataclass(frozen=True)
class Settings:
    """Settings of a server."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8765
    """Port to listen on."""
    allowed_bytes: int | None = None
    """Memory that one query may take [bytes]; half of the free memory if absent."""
    kept_bytes: int = 512 * 2**20
    """Memory of finished results [bytes]; the oldest are evicted first."""
    queue: int = 256
    """Maximum number of waiting queries."""
    workers: int | None = None
    """Queries that compute at a time; the number of processors if absent."""
    state: str = ""
    """Folder of access keys, jobs, boards and the audit log; ARCHIVE/server if empty."""
    standing_folder: str = ""
    """Folder of standing queries, their alerts and results; ARCHIVE/standing if empty."""
    read_only: bool = False
    """Whether the server writes nothing: no standing queries, and no results are stored. Several read-only servers may
    serve an archive beside one that writes."""
    names: tuple[str, ...] = ()
    """Host names that the server answers to, besides loopback and its own address."""
    origins: tuple[str, ...] = ()
    """Cross-origin sites whose pages may send requests with an access key, each as "https://host"; none if empty."""
    embed_origins: tuple[str, ...] = ()
    """Sites whose pages may show panels and boards in a frame (`/embed/NAME`), each as "https://host"; none but the
    server itself if empty."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted."""
    root_path: str = ""
    """Path prefix that a proxy adds, such as "/stations"."""
    anonymous_read: bool = False
    """Whether clients without an access key may read."""
    session_s: int = 12 * 3600
    """Lifetime of a browser's login [s]."""
    requests_per_s: int = 100
    """Requests per second of one access key."""
    streams: int = 100
    """Concurrent requests of one access key, such as event streams."""
    queries: int = 64
    """Waiting or running queries of one access key."""
    cells: int | None = None
    """Maximum number of cells in the surface of one query."""
    seconds: int = 900
    """Maximum projected time of one query [s], unless its access key has its own limit."""
    anonymous_requests_per_s: int = 10
    """Requests per second of one address without an access key."""
    anonymous_streams: int = 10
    """Concurrent requests of one such address."""
    anonymous_queries: int = 2
    """Waiting or running queries of one such address."""
    anonymous_cells: int | None = 1_000_000
    """Maximum number of cells in the surface of one query without an access key."""
    anonymous_bytes: int | None = 256 * 2**20
    """Memory of one query without an access key [bytes]."""
    anonymous_seconds: int | None = 10
    """Maximum projected time of one query without an access key [s]."""
    requests_log: str = ""
    """Destination of the request log, one JSON line per request: a file, or "-" for standard error; none if empty."""
    webhook_hosts: tuple[str, ...] = ()
    """Hosts that alerts may be posted to, each "name" or "name:port". For names that resolve to private addresses also
    the address, or its network, "10.1.0.0/16"."""
    heartbeat_url: str = ""
    """Address that is posted to every minute while alerts are raised and delivered, and that warns when it hears
    nothing (a dead-man's switch); its host must be in `webhook_hosts`. None if empty."""
    mail_server: str = ""
    """Mail server for alerts, "host" or "host:port"; none if empty."""
    smtp_starttls: bool = False
    """Whether mails are sent over TLS, which the mail server has to offer (STARTTLS, usually on port 587), with a
    certificate for its name."""
    smtp_user: str = ""
    """User name at the mail server, which needs TLS; mails are sent without login if empty."""
    smtp_password_file: str = ""
    """File with the password of that user, read at each delivery."""
    mail_from: str = "hypergrid@localhost"
    """Sender of alert mails."""
    mail_to: tuple[str, ...] = ()
    """Addresses that alerts may be mailed to, "name@host", or "@host" for all of a host; any if empty."""
    standing: int = 1000
    """Maximum number of standing queries."""
    imports: bool = False
    """Whether callers of scope "write" may import files on the page; the limits below hold for all of them together."""
    import_file_bytes: int = 256 * 2**20
    """Size of an uploaded file [bytes]."""
    import_files: int = 1000
    """Number of files of an import."""
    import_bytes: int = 4 * 2**30
    """Size of the uploaded files of all imports [bytes]."""
    import_seconds: int = 3600
    """Duration of a run of an import [s]."""


def import_limits(settings: Settings) -> ImportLimits:
    """Return the limits of imports."""
    return ImportLimits(
        settings.import_file_bytes, settings.import_files, settings.import_bytes, settings.import_seconds
    )


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
    "import_file_bytes": (1, None),
    "import_files": (1, 100_000),
    "import_bytes": (1, None),
    "import_seconds": (1, 7 * 86400),
}
"""Minimum and maximum of each numeric setting."""

_TEXTS: Final[Mapping[str, str]] = {
    "host": "an address",
    "heartbeat_url": "an address such as https://host/path",
    "mail_server": "a host, or host:port,",
    "smtp_user": "a user name",
    "smtp_password_file": "a file",
    "mail_from": "a mail address",
    "state": "a folder",
    "standing_folder": "a folder",
    "root_path": "a path such as /stations",
    "requests_log": "a file, or '-',",
}
"""Text settings, with the kind of text for error messages."""

_LISTS: Final = ("webhook_hosts", "mail_to", "names", "origins", "embed_origins", "trusted_proxies")
"""Settings that are lists of text; comma-separated in the environment."""

_SWITCHES: Final = ("anonymous_read", "read_only", "imports", "smtp_starttls")
"""Boolean settings."""


def read_settings(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of a TOML file and the environment, which takes precedence.

    Raises
    ------
    InvalidDeployment
        The file cannot be read or parsed as TOML, a key does not exist, a value is invalid, or a login at the mail
        server lacks its password file or TLS.
    """
    environment = os.environ if environment is None else environment
    values = (
        {}
        if path is None
        else {name: _parse_setting(name, value, str(path)) for name, value in _read_content(path).items()}
    )
    for setting in fields(Settings):
        key = f"HYPERGRID_{setting.name.upper()}"
        if key in environment:
            values[setting.name] = _parse_setting(setting.name, environment[key], key)
    settings = Settings(**values)  # type: ignore[arg-type]
    if settings.smtp_user and not (settings.smtp_starttls and settings.smtp_password_file):
        raise InvalidDeployment(
            f"a login at the mail server as {settings.smtp_user!r} needs a password, which is sent over TLS alone: "
            "give the settings 'smtp_password_file' and 'smtp_starttls = true', or omit 'smtp_user'"
        )
    return settings


def _read_content(path: Path) -> dict[str, object]:
    try:
        # utf-8-sig also accepts a byte order mark.
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidDeployment(f"the settings file {path} cannot be read: {error.strerror}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidDeployment(f"the settings file {path} is no TOML: {error}") from error


def _parse_setting(name: str, value: object, where: str) -> bool | int | str | tuple[str, ...]:
    """Parse the value of a setting; `where` names its origin in errors."""
    if name in _TEXTS:
        if not isinstance(value, str) or not value:
            raise InvalidDeployment(f"{where}: setting {name!r} needs {_TEXTS[name]} as text; got {value!r}")
        return value
    if name in _LISTS:
        listed = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(entry, str) and entry for entry in listed):
            raise InvalidDeployment(
                f"{where}: setting {name!r} needs a list of names such as ['host', 'host:8443']; got {value!r}"
            )
        return tuple(listed)
    if name in _SWITCHES:
        switch = {"true": True, "false": False}.get(str(value).lower())
        if switch is None:
            raise InvalidDeployment(f"{where}: setting {name!r} needs true or false; got {value!r}")
        return switch
    if name not in _BOUNDS:
        known = sorted([*_TEXTS, *_LISTS, *_SWITCHES, *_BOUNDS])
        raise InvalidDeployment(f"{where}: unknown setting {name!r}; there are: {', '.join(known)}")
    lower_bound, upper_bound = _BOUNDS[name]
    try:
        # Converted through text: TOML's true must not become 1, nor 1.5 become 1.
        number = int(str(value))
    except ValueError:
        number = lower_bound - 1
    if number < lower_bound or (upper_bound is not None and number > upper_bound):
        bounds = f"of at least {lower_bound}" if upper_bound is None else f"from {lower_bound} to {upper_bound}"
        raise InvalidDeployment(f"{where}: setting {name!r} needs a whole number {bounds}; got {value!r}")
    return number
