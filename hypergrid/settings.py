"""Settings: what the command line, the environment (HYPERGRID_…) and a TOML file may say, in that order of weight."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

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


def read_settings(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a TOML file and the environment; the environment weighs more.

    Raises
    ------
    InvalidDeployment
        A key that does not exist, or a value that does not fit.
    """
    given: dict[str, object] = {}
    if path is not None:
        with path.open("rb") as file:
            given = dict(tomllib.load(file))
    known = {item.name: item for item in fields(Settings)}
    environment = os.environ if environment is None else environment
    given |= {name: environment[key] for name in known if (key := f"HYPERGRID_{name.upper()}") in environment}
    values: dict[str, object] = {}
    for name, value in given.items():
        if name not in known:
            message = f"unknown setting {name!r}; there are: {', '.join(sorted(known))}"
            raise InvalidDeployment(message)
        try:
            values[name] = str(value) if name == "host" else int(str(value))
        except ValueError as error:
            message = f"setting {name!r} needs a whole number; got {value!r}"
            raise InvalidDeployment(message) from error
    return Settings(**values)  # type: ignore[arg-type]
