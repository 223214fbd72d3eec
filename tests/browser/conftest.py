"""A headless Chromium that must not leave the machine."""

import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, Route, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)


def on_this_machine(address: str) -> bool:
    """Tell whether a request to `address` stays here."""
    parts = urlsplit(address)
    return parts.scheme in ("data", "blob", "about") or parts.hostname in ("127.0.0.1", "localhost", "::1")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Give the path of a Chromium, or skip."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip(f"no Chromium on the PATH ({', '.join(NAMES)}): install the package chromium")
    return found


# Playwright keeps an event loop running in this thread as long as it lives, which forbids asyncio.run to tests of other
# folders: so it ends with the module.
@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Give a headless Chromium."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, headless=True, args=list(OPTIONS))
        yield running
        running.close()


@pytest.fixture
def outside_requests() -> list[str]:
    """Addresses on other machines that the page asked for; the test fails if there is one."""
    return []


@pytest.fixture
def page(browser: Browser, outside_requests: list[str]) -> Iterator[Page]:
    """Give an empty page whose requests to other machines are stopped, recorded, and fail the test."""
    context = browser.new_context()

    def watch(route: Route, request: Request) -> None:
        if on_this_machine(request.url):
            route.continue_()
        else:
            outside_requests.append(request.url)
            route.abort()

    context.route("**/*", watch)
    yield context.new_page()
    context.close()
    assert outside_requests == [], "requests left the machine"
