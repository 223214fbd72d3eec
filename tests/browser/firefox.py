"""A user of Debian's own Firefox, by mouse or by keyboard, through WebDriver BiDi; whatever is done is counted.

Playwright drives a Firefox that it has changed itself; this one is as people have it, and speaks the protocol that all
browsers share (https://w3c.github.io/webdriver-bidi). An action is what `tests/browser/users.py` counts as one.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from websockets.sync.client import ClientConnection, connect

Way = Literal["mouse", "keyboard"]
COMMANDS: Final = ("firefox-esr", "firefox")
LONGEST_S: Final = 90.0
"""How long a page may take to show what is expected, on a machine that is busy with other things [s]."""
PREFERENCES: Final = {
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "browser.aboutwelcome.enabled": False,
    "browser.download.alwaysOpenPanel": False,
    "browser.download.folderList": 2,
    "browser.download.useDownloadDir": True,
    "browser.newtabpage.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "browser.startup.page": 0,
    "datareporting.healthreport.uploadEnabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False,
    "toolkit.telemetry.enabled": False,
    "toolkit.telemetry.unified": False,
    # No request leaves the machine: hosts that are not local are asked of a proxy that refuses.
    "network.proxy.type": 1,
    "network.proxy.socks": "127.0.0.1",
    "network.proxy.socks_port": 9,
    "network.proxy.socks_remote_dns": True,
}
"""What a profile says: no first pages, no updates, no telemetry, files saved without asking, nothing from outside."""
KEYS: Final = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Control": "\ue009",
    "End": "\ue010",
    "Home": "\ue011",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}
"""Keys that are not letters, as the protocol writes them."""
CENTRE: Final = """((element) => {
  if (!element || element.disabled) return null;
  // In the middle, where nothing that stays at an edge of the window covers it.
  element.scrollIntoView({ block: "center", behavior: "instant" });
  const { x, y, width, height } = element.getBoundingClientRect();
  let top = document.elementFromPoint(x + width / 2, y + height / 2);
  while (top?.shadowRoot) {
    const inner = top.shadowRoot.elementFromPoint(x + width / 2, y + height / 2);
    if (!inner || inner === top) break;
    top = inner;
  }
  let holds = false;
  for (let node = top; node && !holds; node = node.parentNode ?? node.host) holds = node === element;
  return width && height && (holds || %s) ? [x, y, width, height] : null;
})(%s)"""
"""Box of an element in view, null where it is disabled, empty, or covered by another."""
CANVAS: Final = """((root) => {
  const first = (node) => {
    if (node instanceof HTMLCanvasElement) return node;
    for (const inner of [...(node?.shadowRoot?.children ?? []), ...(node?.children ?? [])]) {
      const met = first(inner);
      if (met) return met;
    }
    return null;
  };
  return first(root);
})(document.getElementById(%s))"""
"""First canvas below an element, through shadow roots."""
NAMED: Final = """[...document.querySelectorAll("a, button")].find((element) =>
  (element.ariaLabel || element.textContent).trim() === %s && element.checkVisibility())"""
"""Link or button that is shown, by the name that people read."""


def firefox_path() -> str | None:
    """Return the path of a Firefox, if there is one."""
    return next((path for path in map(shutil.which, COMMANDS) if path), None)


class Firefox:
    """A connection to a browser."""

    def __init__(self, connection: ClientConnection, downloads: Path) -> None:
        self._connection, self._numbers = connection, itertools.count(1)
        self._heard: list[dict[str, Any]] = []
        self.downloads = downloads
        """Folder of the files that pages save."""
        # A page that asks for files is answered by `input.setFiles`, and opens no window for it.
        capabilities = {"alwaysMatch": {"unhandledPromptBehavior": {"file": "ignore", "default": "ignore"}}}
        self.send("session.new", capabilities=capabilities)
        self.send("session.subscribe", events=["log.entryAdded", "input.fileDialogOpened"])

    def send(self, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Send a command, and return its result; events that arrive meanwhile are kept."""
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = self._receive(LONGEST_S)
            if message.get("id") == number:
                assert message["type"] == "success", f"{method}: {message}"
                return dict(message["result"])

    def _receive(self, seconds: float) -> dict[str, Any]:
        message = dict(json.loads(self._connection.recv(seconds)))
        if message["type"] == "event":
            self._heard.append(message)
        return message

    def events(self, method: str, context: str) -> list[dict[str, Any]]:
        """Return what has been heard of an event in a tab."""
        return [
            event["params"]
            for event in self._heard
            if event["method"] == method
            and context in (event["params"].get("context"), event["params"].get("source", {}).get("context"))
        ]

    def wait_for_event(self, method: str, context: str) -> dict[str, Any]:
        """Wait for an event in a tab, and return its last."""
        ends = time.monotonic() + LONGEST_S
        while not (events := self.events(method, context)):
            self._receive(max(0.0, ends - time.monotonic()))
        return events[-1]


class FirefoxUser:
    """A user at a tab; controls are named by their ids."""

    def __init__(self, firefox: Firefox, context: str, way: Way) -> None:
        self.way, self.actions = way, list[str]()
        self._firefox, self._context = firefox, context

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - JSON
        """Return the value of an expression in the page."""
        result = self._firefox.send(
            "script.evaluate",
            expression=f"JSON.stringify({expression})",
            target={"context": self._context},
            awaitPromise=True,
        )
        assert result["type"] == "success", f"{expression}: {result['exceptionDetails']['text']}"
        return json.loads(result["result"]["value"]) if "value" in result["result"] else None

    def wait_for(self, expression: str) -> Any:  # noqa: ANN401 - JSON
        """Wait until an expression holds in the page, and return its value."""
        ends = time.monotonic() + LONGEST_S
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < ends, f"never: {expression}\nafter {self.actions}; {self.complaints()}"
            time.sleep(0.1)
        return value

    def complaints(self) -> list[str]:
        """Return the errors and warnings of the page's console and scripts."""
        entries = self._firefox.events("log.entryAdded", self._context)
        return [str(entry["text"]) for entry in entries if entry["level"] in ("error", "warn")]

    def go(self, address: str) -> None:
        """Go to an address, uncounted, and wait until the page is ready."""
        self._firefox.send("browsingContext.navigate", context=self._context, url=address, wait="complete")
        self.wait_for("document.body?.dataset.ready === 'yes'")

    def open(self, address: str) -> None:
        """Open an address, as a link or a bookmark does."""
        self.actions.append("open")
        self.go(address)

    def press(self, control: str) -> None:
        """Press a button or a link."""
        self.actions.append(f"press {control}")
        self._press(f"document.getElementById({json.dumps(control)})")

    def _press(self, element: str) -> None:
        if self.way == "keyboard":
            self._reach(element)
            self.keys("Enter")
        else:
            left, top, width, height = self._box(element)
            self._point((left + width / 2, top + height / 2))

    def choose(self, control: str, value: str) -> None:
        """Choose from a list by arrows, each of which chooses while the list is closed."""
        self.actions.append(f"choose {value} of {control}")
        element = f"document.getElementById({json.dumps(control)})"
        self.wait_for(f"[...{element}.options].some((option) => option.value === {json.dumps(value)})")
        if self.way == "keyboard":
            self._reach(element)
        else:
            # A list that a press opens is a window of the browser's, which hears no keys without a screen: the press is
            # announced to the page, which closes what is open over it, and the list gets the focus.
            self._box(element)
            self.evaluate(f"{element}.dispatchEvent(new PointerEvent('pointerdown', {{ bubbles: true }}))")
            self.evaluate(f"{element}.focus()")
        self.keys("Home")
        for _ in range(150):
            if self.evaluate(f"{element}.value") == value:
                return
            self.keys("ArrowDown")
        message = f"no arrow made {control} {value}"
        raise AssertionError(message)

    def type(self, control: str, text: str) -> None:
        """Type into a field, over what stands there."""
        self.actions.append(f"type {text} into {control}")
        element = f"document.getElementById({json.dumps(control)})"
        if self.way == "keyboard":
            self._reach(element)
        else:
            self._press(element)
        self._send_keys(["Control", "a"], held=True)
        self.keys(*text, "Tab")

    def drag(self, figure: str, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag over a map, between two points in shares of its width and height."""
        self.actions.append(f"drag over {figure}")
        left, top, width, height = self._box(CANVAS % json.dumps(figure), covered=True)
        points = [(left + width * across, top + height * down) for across, down in (start, end)]
        self._point(*points)

    def steer(self, figure: str, *keys: str) -> None:
        """Move a map by keys."""
        self.actions.append(f"steer {figure}")
        self._reach(f"document.getElementById({json.dumps(figure)})")
        self.keys(*keys)

    def point(self, figure: str) -> None:
        """Press the middle of a map."""
        self.actions.append(f"press the middle of {figure}")
        if self.way == "keyboard":
            self._reach(f"document.getElementById({json.dumps(figure)})")
            self.keys("Enter")
            return
        left, top, width, height = self._box(CANVAS % json.dumps(figure), covered=True)
        self._point((left + width / 2, top + height / 2))

    def save_link(self, name: str) -> Path:
        """Press a link or a button, which is named as people read it, that saves a file; return it."""
        self.actions.append(f"press {name}")
        folder = self._firefox.downloads
        before = set(folder.iterdir())
        self._press(f"({NAMED % json.dumps(name)})")
        ends = time.monotonic() + LONGEST_S
        while True:
            files = set(folder.iterdir()) - before
            # A file that is being saved stands there empty, beside its part.
            if files and all(path.suffix != ".part" and path.stat().st_size for path in files):
                (file,) = files
                return file
            assert time.monotonic() < ends, f"{name} saved no file; {self.complaints()}"
            time.sleep(0.1)

    def send_files(self, control: str, files: list[Path]) -> None:
        """Press what asks for files, and choose some."""
        self.press(control)
        element = self._firefox.wait_for_event("input.fileDialogOpened", self._context)["element"]
        names = [str(path) for path in files]
        self._firefox.send("input.setFiles", context=self._context, element=element, files=names)

    def keys(self, *keys: str) -> None:
        """Press keys, each after the one before."""
        self._send_keys(list(keys), held=False)

    def _send_keys(self, keys: list[str], *, held: bool) -> None:
        values = [KEYS.get(key, key) for key in keys]
        down = [{"type": "keyDown", "value": value} for value in values]
        up = [{"type": "keyUp", "value": value} for value in values]
        pairs = [event for pair in zip(down, up, strict=True) for event in pair]
        self._perform({"type": "key", "id": "keys", "actions": [*down, *reversed(up)] if held else pairs})

    def _point(self, start: tuple[float, float], *further: tuple[float, float]) -> None:
        """Press the mouse at a point, move to others in steps, and let it go."""

        def move(at: tuple[float, float]) -> dict[str, Any]:
            return {"type": "pointerMove", "x": round(at[0]), "y": round(at[1]), "duration": 20}

        actions = [move(start), {"type": "pointerDown", "button": 0}]
        for begin, end in itertools.pairwise((start, *further)):
            for step in range(1, 9):
                across, down = (a + (b - a) * step / 8 for a, b in zip(begin, end, strict=True))
                actions.append(move((across, down)))
        actions.append({"type": "pointerUp", "button": 0})
        self._perform({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions})

    def _perform(self, source: dict[str, Any]) -> None:
        self._firefox.send("input.performActions", context=self._context, actions=[source])

    def _box(self, element: str, *, covered: bool = False) -> list[float]:
        """Wait until an element stays where it lies, and can be pressed there; return its box."""
        # Bokeh lays what hears the mouse over the canvas.
        expression = CENTRE % (json.dumps(covered), element)
        box = self.wait_for(expression)
        while (again := self.wait_for(expression)) != box:
            box = again
            time.sleep(0.1)
        return list(box)

    def _reach(self, element: str) -> None:
        """Go to an element by keys, if it does not have the focus."""
        self.wait_for(f"!!{element}")
        for _ in range(150):
            if self.evaluate(f"document.activeElement === {element}"):
                return
            self.keys("Tab")
        message = f"Tab never reached {element}"
        raise AssertionError(message)


@contextmanager
def firefox(path: str) -> Iterator[Firefox]:
    """Give a headless Firefox with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile, downloads = Path(folder) / "profile", Path(folder) / "downloads"
        profile.mkdir()
        downloads.mkdir()
        preferences = PREFERENCES | {"browser.download.dir": str(downloads)}
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences.items()]
        (profile / "user.js").write_text("".join(lines), "utf-8")
        options = ["--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0"]
        with (Path(folder) / "log").open("wb") as log:
            # Not a pipe, which would fill: Firefox goes on to complain. In a session of its own: a script starts it.
            process = subprocess.Popen([path, *options], stdout=log, stderr=log, start_new_session=True)
        try:
            address = _address(Path(folder) / "log", process)
            with connect(f"{address}/session", max_size=None) as connection:
                yield Firefox(connection, downloads)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait until a browser says where it listens."""
    ends = time.monotonic() + LONGEST_S
    while time.monotonic() < ends and process.poll() is None:
        for line in log.read_text("utf-8", "replace").splitlines(keepends=True):
            if line.startswith("WebDriver BiDi listening on ") and line.endswith("\n"):
                return line.split()[-1]
        time.sleep(0.1)
    message = f"Firefox does not listen:\n{log.read_text('utf-8', 'replace')}"
    raise AssertionError(message)


@contextmanager
def firefox_user(browser: Firefox, way: Way) -> Iterator[FirefoxUser]:
    """Give a user with a tab of their own, which shares nothing with others."""
    own = browser.send("browser.createUserContext")["userContext"]
    try:
        context = browser.send("browsingContext.create", type="tab", userContext=own)["context"]
        browser.send("browsingContext.setViewport", context=context, viewport={"width": 1280, "height": 800})
        browser.send("browsingContext.activate", context=context)
        yield FirefoxUser(browser, context, way)
    finally:
        browser.send("browser.removeUserContext", userContext=own)
