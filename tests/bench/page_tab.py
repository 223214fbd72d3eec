"""A tab of a real Chromium, and a watch in it: when Run was pressed, and when a map was on the screen."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.pages import unasked, write
from tests.chromium import OPTIONS, WINDOWED, chromium_path

WATCH: Final = """(() => {
  const told = { pressed: null, paints: [] };
  window.watched = told;
  addEventListener("pointerdown", (event) => {
    if (event.target.id === "run") Object.assign(told, { pressed: event.timeStamp, paints: [] });
  }, true);
  const { drawImage } = CanvasRenderingContext2D.prototype;
  let shown = null;
  let waits = false;
  CanvasRenderingContext2D.prototype.drawImage = function (image, ...others) {
    const data = document.getElementById("picture")?.figure?.find("surface")?.data.image[0];
    const isNew = told.pressed !== null && !waits && data && data !== shown;
    if (isNew && image.width === data.shape[1] && image.height === data.shape[0] && data.some(Number.isFinite)) {
      waits = true;
      shown = data;
      const veil = document.getElementById("picture").figure.find("veil");
      const complete = veil.data.image[0].every(Number.isNaN);
      // The frame that shows what is drawn here has been made once a task runs after it.
      requestAnimationFrame(() => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => {
          waits = false;
          told.paints.push({ at: performance.now(), complete });
        };
        port2.postMessage(null);
      });
    }
    return drawImage.call(this, image, ...others);
  };
})();"""
"""Each picture of `#picture` is counted once, however often it is drawn: by its array, as large as the image."""

REQUESTS: Final = """() => performance.getEntriesByType("resource")
  .filter((one) => one.startTime >= watched.pressed)
  .map((one) => [new URL(one.name).pathname, one.startTime - watched.pressed, one.responseEnd - watched.pressed])"""


@dataclass(frozen=True)
class Run:
    """What was seen after a press of Run."""

    paints_s: tuple[float, ...]
    """When each picture was on the screen, after the press [s]."""
    complete: tuple[bool, ...]
    """Whether it had no estimated cells."""
    requests: tuple[tuple[str, float, float], ...]
    """What was asked meanwhile: address, start and end after the press [s]."""

    @property
    def total_s(self) -> float:
        """Until the first complete picture [s]."""
        return self.paints_s[self.complete.index(True)]

    @property
    def before_complete(self) -> int:
        """Pictures before the first complete one."""
        return self.complete.index(True)


def a_chromium() -> str:
    """Return the path of a Chromium, which there must be: one with windows, as people have, if there is one."""
    path = chromium_path(windowed=True)
    if path is None:
        message = (
            f"the benchmark of the pages needs a Chromium on the PATH ({', '.join(WINDOWED)}); see 'make chromium'"
        )
        raise FileNotFoundError(message)
    return path


@contextmanager
def chromium() -> Iterator[Browser]:
    """Give a headless Chromium."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=a_chromium(), headless=True, args=list(OPTIONS))
        yield running
        running.close()


def ready(page: Page, address: str, name: str = "explore") -> None:
    """Open one of the pages, and wait until it is there; Explore with a question that has not been asked."""
    page.goto(unasked(address) if name == "explore" else f"{address}#{name}")
    page.wait_for_selector("body[data-ready=yes]")


def press_run(browser: Browser, address: str, document: Mapping[str, Any], *, calm_s: float = 1.5) -> Run:
    """Open Explore in a new tab, with nothing kept, ask a question, and return what was seen until all was computed.

    Parameters
    ----------
    browser, address
        Where, and whose pages.
    document
        The question, in its JSON form; it must answer with a map.
    calm_s
        How long a reader looks at the question before they press Run [s].
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        page.add_init_script(WATCH)
        ready(page, address)
        write(page, dict(document))
        page.wait_for_timeout(1000 * calm_s)
        page.locator("#run").click()
        # By default it would look at each frame of the screen, and have the tab make 60 of them a second.
        page.wait_for_function("() => watched.paints.some((one) => one.complete)", timeout=120_000, polling=50)
        pressed, paints = page.evaluate("() => [watched.pressed, watched.paints]")
        asked = page.evaluate(REQUESTS)
    finally:
        context.close()
    at = tuple((one["at"] - pressed) / 1000 for one in paints)
    requests = tuple((name, start / 1000, end / 1000) for name, start, end in asked)
    return Run(at, tuple(one["complete"] for one in paints), requests)
