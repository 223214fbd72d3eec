"""Version of the installed package."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _read_version() -> str:
    try:
        return version("hypergrid-stations")
    except PackageNotFoundError:
        return "0+unknown"


VERSION: Final = _read_version()
"""Version of this installation, "0+unknown" if it is not installed."""
