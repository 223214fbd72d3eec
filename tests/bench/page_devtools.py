"""A Chromium that is asked by its own protocol alone (Chrome DevTools Protocol).

Playwright has the browser remember the body of every answer for it, up to 100 MB a tab: what a tab holds after half an
hour cannot be told through it.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psutil
from websockets.sync.client import ClientConnection, connect

from tests.bench.page_tab import a_chromium
from tests.chromium import OPTIONS

_OPEN_TABS: Final = (
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
)
"""Tabs behind others work as the one in front does."""


class Devtools:
    """A connection to a browser."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self.complaints: list[str] = []
        """Errors and warnings of all consoles."""

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Send a command, and return its result; what is told meanwhile is looked through for complaints."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        self._connection.send(json.dumps(message if session is None else message | {"sessionId": session}))
        while True:
            told = json.loads(self._connection.recv(60))
            if told.get("id") == self._number:
                assert "error" not in told, f"{method}: {told.get('error')}"
                return dict(told["result"])
            self._hear(told)

    def _hear(self, told: dict[str, Any]) -> None:
        params = told.get("params", {})
        match told.get("method"):
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.complaints.append(str([one.get("value", one.get("description")) for one in params["args"]]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def renderers_bytes(self) -> int:
        """Return what the processes of all tabs hold of their own [bytes]."""
        told = self.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(psutil.Process(one["id"]).memory_full_info().uss for one in told if one["type"] == "renderer")


class Tab:
    """A tab that is open."""

    def __init__(self, devtools: Devtools, address: str) -> None:
        self._devtools = devtools
        target = devtools.send("Target.createTarget", url="about:blank", width=1280, height=900, newWindow=True)
        attached = devtools.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Log", "HeapProfiler"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)
        self.send("Page.navigate", url=address)

    def send(self, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Send a command to this tab."""
        return self._devtools.send(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - JSON
        """Return the value of an expression in the page."""
        return self.send("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression: str, *, seconds: float = 60.0) -> None:
        """Wait until an expression holds in the page."""
        ends = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < ends, f"never: {expression}"
            time.sleep(0.1)


@contextmanager
def devtools() -> Iterator[Devtools]:
    """Give a headless Chromium of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        ports = ("--headless", "--remote-debugging-port=0", f"--user-data-dir={profile}")
        command = [a_chromium(), *OPTIONS, *_OPEN_TABS, *ports, "about:blank"]
        # A session of its own: some distributions start it by a script, which would end alone.
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            assert process.stderr is not None
            line = next(one for one in process.stderr if one.startswith("DevTools listening on "))
            with connect(line.split()[-1], max_size=None) as connection:
                yield Devtools(connection)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
