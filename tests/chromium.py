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
ON_THIS_MACHINE: Final = (
    # No name and no address leads elsewhere: what a page asks of another machine fails, and is told by the browser.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE [::1]",
)
"""Of tests alone: benchmarks start Chromium as users do."""


def chromium_path(*, windowed: bool = False) -> str | None:
    """Return the path of a Chromium, if there is one: of the shell, or of one with windows where that is better."""
    names = (*WINDOWED, SHELL) if windowed else (SHELL, *WINDOWED)
    return next((path for path in map(shutil.which, names) if path), None)
