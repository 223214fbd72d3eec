"""The version, as installed."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _installed() -> str:
    try:
        return version("hypergrid")
    except PackageNotFoundError:
        return "0+unknown"


VERSION: Final = _installed()
"""Version of this installation."""
