"""Version and extras of the installed package."""

import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

DISTRIBUTION: Final = "hypergrid-stations"
_REQUIRED_BY: Final = {"py4j": "pyspark"}
"""Package of an extra that requires a module which this program imports as well."""


def _read_version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0+unknown"


VERSION: Final = _read_version()
"""Version of this installation, "0+unknown" if it is not installed."""


def explain_missing(error: ModuleNotFoundError) -> str | None:
    """Explain an import that failed because an extra is not installed; None for other imports."""
    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return None
    module = (error.name or "").partition(".")[0]
    module = _REQUIRED_BY.get(module, module)
    extras = set[str]()
    for requirement in requirements:
        package, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == ['\"](\w+)", requirement)
        # The module of paho-mqtt is paho, that of sse-starlette sse_starlette.
        if package and extra and module in (package[0].replace("-", "_"), package[0].partition("-")[0]):
            extras.add(f"{DISTRIBUTION}[{extra[1]}]")
    return f"{module} is not installed: install {' or '.join(sorted(extras))}" if extras else None
