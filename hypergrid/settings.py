"""Settings: what the command line, the environment (HYPERGRID_…) and a TOML file may say, in that order of weight."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from hypergrid.errors import InvalidDeployment


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
    queue: int = 32
    """Queries that may wait."""
    webhook_hosts: tuple[str, ...] = ()
    """Hosts that alerts may be posted to, each "name" or "name:port"."""
    mail_server: str = ""
    """Server that takes mails with alerts, "host" or "host:port"; none where empty."""
    mail_from: str = "hypergrid@localhost"
    """Sender of mails with alerts."""


_BOUNDS: Final[Mapping[str, tuple[int, int | None]]] = {
    "port": (0, 65535),
    "allowed_bytes": (1, None),
    "kept_bytes": (1, None),
    "queue": (1, None),
}
"""Least and greatest of each setting that is a number."""

_TEXTS: Final[Mapping[str, str]] = {
    "host": "an address",
    "mail_server": "a host, or host:port,",
    "mail_from": "a mail address",
}
"""Settings that are text, and what each is."""

_LISTS: Final = ("webhook_hosts",)
"""Settings that are lists of text; in the environment parted by commas."""


def read_settings(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a TOML file and the environment; the environment weighs more.

    Raises
    ------
    InvalidDeployment
        The file cannot be read or is no TOML, a key does not exist, or a value does not fit.
    """
    environment = os.environ if environment is None else environment
    known = [item.name for item in fields(Settings)]
    values = {} if path is None else {name: _checked(name, value, str(path)) for name, value in _content(path).items()}
    for name in known:
        key = f"HYPERGRID_{name.upper()}"
        if key in environment:
            values[name] = _checked(name, environment[key], key)
    return Settings(**values)  # type: ignore[arg-type]


def _content(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        message = f"the settings file {path} cannot be read: {error.strerror}; check the path"
        raise InvalidDeployment(message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"the settings file {path} is no TOML: {error}"
        raise InvalidDeployment(message) from error


def _checked(name: str, value: object, where: str) -> int | str | tuple[str, ...]:
    """Return a setting's value as its type; `where` it was given is for the message."""
    if name in _TEXTS:
        if not isinstance(value, str) or not value:
            message = f"{where}: setting {name!r} needs {_TEXTS[name]} as text; got {value!r}"
            raise InvalidDeployment(message)
        return value
    if name in _LISTS:
        listed = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(one, str) and one for one in listed):
            message = f"{where}: setting {name!r} needs a list of names such as ['host', 'host:8443']; got {value!r}"
            raise InvalidDeployment(message)
        return tuple(listed)
    if name not in _BOUNDS:
        message = f"{where}: unknown setting {name!r}; there are: {', '.join(sorted([*_TEXTS, *_LISTS, *_BOUNDS]))}"
        raise InvalidDeployment(message)
    least, most = _BOUNDS[name]
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if number < least or (most is not None and number > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        message = f"{where}: setting {name!r} needs a whole number {bounds}; got {value!r}"
        raise InvalidDeployment(message)
    return number
