"""Users who have never seen the pages, by mouse, by keyboard and on a phone; whatever they do is counted.

An action is opening an address, a press of a control, a choice of a list, a field that is typed, or a gesture on a map.
By keyboard the way to a control counts with what is pressed there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import Browser, Locator, Page

from tests.browser.pages import box_of, choose_by_arrows, press_until

Way = Literal["mouse", "keyboard", "touch"]
WINDOWS: Final[dict[Way, dict[str, Any]]] = {
    "mouse": {"viewport": {"width": 1280, "height": 800}},
    "keyboard": {"viewport": {"width": 1280, "height": 800}},
    "touch": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}


class User:
    """Somebody at a page; controls are named by their ids."""

    def __init__(self, page: Page, way: Way) -> None:
        self.page, self.way, self.actions = page, way, list[str]()

    def open(self, address: str) -> None:
        """Open an address, as a link or a bookmark does."""
        self.actions.append("open")
        self.page.goto(address)
        self.page.wait_for_selector("body[data-ready=yes]")

    def press(self, control: str) -> None:
        """Press a button or a link."""
        self.actions.append(f"press {control}")
        self._press(self.page.locator(f"#{control}"), lambda: self._reach(control))

    def _press(self, element: Locator, reach: Callable[[], None]) -> None:
        if self.way == "keyboard":
            reach()
            self.page.keyboard.press("Enter")
        elif self.way == "touch":
            element.tap()
        else:
            element.click()

    def _reach(self, control: str) -> None:
        """Go to a control by keys, if it does not have the focus."""
        if self.page.evaluate("() => document.activeElement.id") != control:
            press_until(self.page, control)

    def choose(self, control: str, value: str) -> None:
        """Choose from a list."""
        self.actions.append(f"choose {value} of {control}")
        if self.way == "keyboard":
            self._reach(control)
            choose_by_arrows(self.page, control, value)
            return
        element = self.page.locator(f"#{control}")
        # Playwright chooses without the press that opens a list, which closes what is open over the page.
        element.dispatch_event("pointerdown")
        element.select_option(value)

    def type(self, control: str, text: str) -> None:
        """Type into a field, over what stands there."""
        self.actions.append(f"type {text} into {control}")
        if self.way == "keyboard":
            self._reach(control)
        else:
            self.page.locator(f"#{control}").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Tab")

    def drag(self, figure: str, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag over a map, between two points in shares of its width and height."""
        self.actions.append(f"drag over {figure}")
        box = box_of(self.page, f"#{figure}")
        points = [(box["x"] + box["width"] * across, box["y"] + box["height"] * down) for across, down in (start, end)]
        if self.way == "touch":
            _swipe(self.page, *points)
            return
        self.page.mouse.move(*points[0])
        self.page.mouse.down()
        self.page.mouse.move(*points[1], steps=8)
        self.page.mouse.up()

    def steer(self, figure: str, *keys: str) -> None:
        """Move a map by keys."""
        self.actions.append(f"steer {figure}")
        self._reach(figure)
        for key in keys:
            self.page.keyboard.press(key)

    def point(self, figure: str) -> None:
        """Press the middle of a map."""
        self.actions.append(f"press the middle of {figure}")
        if self.way == "keyboard":
            self._reach(figure)
            self.page.keyboard.press("Enter")
            return
        box = box_of(self.page, f"#{figure}")
        at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        if self.way == "touch":
            self.page.touchscreen.tap(*at)
        else:
            self.page.mouse.click(*at)

    def save_link(self, name: str, folder: Path) -> Path:
        """Press a link or a button, which is named as people read it, that saves a file; return it."""
        self.actions.append(f"press {name}")
        links = self.page.get_by_role("link", name=name, exact=True).or_(
            self.page.get_by_role("button", name=name, exact=True)
        )
        with self.page.expect_download() as downloading:
            self._press(links.locator("visible=true").first, lambda: self._tab_to(name))
        path = folder / downloading.value.suggested_filename
        downloading.value.save_as(path)
        return path

    def _tab_to(self, name: str) -> None:
        for _ in range(150):
            self.page.keyboard.press("Tab")
            label = self.page.evaluate(
                "() => document.activeElement.ariaLabel || document.activeElement.textContent || ''"
            )
            if str(label).strip() == name:
                return
        message = f"Tab never reached {name}"
        raise AssertionError(message)

    def send(self, control: str, files: list[Path]) -> None:
        """Press what asks for files, and choose some."""
        with self.page.expect_file_chooser() as choosing:
            self.press(control)
        choosing.value.set_files(files)


def _swipe(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Move a finger over the screen, in steps as it sends them."""
    session = page.context.new_cdp_session(page)

    def send(kind: str, *points: tuple[float, float]) -> None:
        touched = [{"x": x, "y": y} for x, y in points]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched})

    send("touchStart", start)
    for share in range(1, 9):
        at = [one + (other - one) * share / 8 for one, other in zip(start, end, strict=True)]
        send("touchMove", (at[0], at[1]))
        page.wait_for_timeout(20)
    send("touchEnd")
    session.detach()


@contextmanager
def user(browser: Browser, way: Way) -> Iterator[User]:
    """Give a user with a window of their own, that of their device."""
    context = browser.new_context(**WINDOWS[way])
    try:
        yield User(context.new_page(), way)
    finally:
        context.close()
