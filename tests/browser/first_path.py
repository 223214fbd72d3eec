"""The way of somebody who has never seen the pages, action by action, from their address to two files.

`python -m tests.browser.first_path ADDRESS FOLDER` walks it at a server and keeps a picture after each action: those of
`viz/FIRST_PATH.md`, from the archive of `make demo`.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.pages import box_of
from tests.chromium import OPTIONS, chromium_path

SIZE = {"width": 1280, "height": 800}


@dataclass(frozen=True)
class Action:
    """Something that the user does."""

    name: str
    """Of the picture after it; empty: nothing new is to be seen."""
    words: str
    act: Callable[[Page], None]


def walk(page: Page, address: str, downloads: Path, span: str = "The newest week") -> Iterator[Action]:
    """Do one action after the other, yielding each when it is done."""
    for action in actions(address, downloads, span):
        action.act(page)
        yield action


def actions(address: str, downloads: Path, span: str = "The newest week") -> list[Action]:
    """Return what the user does; files that the browser gets go to `downloads`, and `span` is of a list."""

    def keep(page: Page, press: Callable[[], None]) -> None:
        with page.expect_download() as downloading:
            press()
        downloading.value.save_as(downloads / downloading.value.suggested_filename)

    return [
        Action("open", "Open the address that `make demo` prints; press Explore.", lambda page: _open(page, address)),
        Action("", f"Time: choose “{span}”.", lambda page: _choose(page, span)),
        Action("", "Press Place.", lambda page: page.locator("#place-part-button").click()),
        Action("question", "Drag over the map of the stations, around the catchment.", _drag),
        Action("answer", "Beside it: choose “Its uncertainty”.", _choose_uncertainty),
        Action(
            "", "Press NetCDF.",
            lambda page: keep(page, lambda: page.get_by_role("link", name="NetCDF", exact=True).click()),
        ),
        Action(
            "", "Press Save PNG.",
            lambda page: keep(page, lambda: page.get_by_role("button", name="Save PNG").first.click()),
        ),
    ]  # fmt: skip


def _open(page: Page, address: str) -> None:
    page.goto(f"{address}#explore")
    page.wait_for_selector("body[data-ready=yes]", timeout=30_000)
    expect(page.locator("#status")).to_contain_text("Done", timeout=120_000)
    page.wait_for_timeout(1000)


def _choose(page: Page, span: str) -> None:
    # The span ends with the newest reading, which the page asks for.
    with page.expect_response(lambda response: "/latest?" in response.url):
        page.get_by_label("Time", exact=True).select_option(label=span)
    page.wait_for_timeout(200)


def _drag(page: Page) -> None:
    box = box_of(page, "#region-map")
    before = page.get_by_label("Query (JSON)").input_value()
    page.mouse.move(box["x"] + box["width"] * 0.42, box["y"] + box["height"] * 0.32)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.62, box["y"] + box["height"] * 0.62, steps=8)
    page.mouse.up()
    expect(page.get_by_label("Query (JSON)")).not_to_have_value(before)


def _choose_uncertainty(page: Page) -> None:
    # A press first, as a user makes it: it closes the map of the stations.
    page.get_by_label("Beside it").dispatch_event("pointerdown")
    page.get_by_label("Beside it").select_option("deviation")
    expect(page.locator("#status")).to_contain_text("Done", timeout=120_000)
    expect(page.locator("#caption-second")).to_contain_text("100 % computed", timeout=30_000)
    page.wait_for_timeout(1000)


def main(address: str, folder: Path) -> None:
    """Walk it, and keep the pictures and what was downloaded."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(OPTIONS))
        page = browser.new_page(viewport=SIZE)
        for number, action in enumerate(walk(page, address, folder), 2):
            print(f"{number}. {action.words}")
            if action.name:
                page.screenshot(path=folder / f"{action.name}.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
