"""Which Chromium the tests and the benchmark of the pages start, and how."""

import shutil
from typing import Final

SHELL: Final = "chromium-headless-shell"
"""Chromium without windows: its pages are the same, and each opens in half the time that a headless window takes."""
WINDOWED: Final = ("chromium", "chromium-browser", "google-chrome")
OPTIONS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
LOCAL_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
"""Hosts that are this machine."""
_EXCLUDED: Final = ", ".join(f"EXCLUDE {f'[{host}]' if ':' in host else host}" for host in LOCAL_HOSTS)
NO_OTHER_HOST: Final = f"--host-resolver-rules=MAP * ~NOTFOUND, {_EXCLUDED}"
"""Option of tests alone, as benchmarks start Chromium as users do: a request to another machine fails."""


def chromium_path(*, windowed: bool = False) -> str | None:
    """Return the path of a Chromium, if there is one: of the shell, or of one with windows where that is better."""
    names = (*WINDOWED, SHELL) if windowed else (SHELL, *WINDOWED)
    return next((path for path in map(shutil.which, names) if path), None)
