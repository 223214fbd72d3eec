"""A server of webhooks for tests."""

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO


class Hook:
    """A server of webhooks that notes what it gets, and hangs, redirects or fails as its paths say.

    `/answers/N` answers N to the first alert that it gets, and takes the others; `/drip` answers a byte now and then.
    """

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.raw: list[tuple[Mapping[str, str], bytes]] = []
        """Headers and body of each letter, as they came."""
        self.failures = 0
        self.gate = threading.Event()
        self.hung_up = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                hook.raw.append((dict(self.headers), content))
                hook.got.append((self.path, json.loads(content)))
                if self.path == "/hang":
                    hook.gate.wait(30)
                status = {"/away": 302}.get(self.path, 200)
                if self.path.startswith("/answers/") and [path for path, _ in hook.got].count(self.path) == 1:
                    status = int(self.path.rpartition("/")[2])
                if self.path == "/drip":
                    hook.drip(self.wfile)
                if hook.failures:
                    hook.failures -= 1
                    status = 500
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def drip(self, line: BinaryIO) -> None:
        """Send bytes of a header until the gate opens, or the other end hangs up."""
        with suppress(OSError):
            line.write(b"HTTP/1.1 200 OK\r\nX-A: ")
            while not self.gate.wait(0.1):
                line.write(b"a")
        self.hung_up.set()

    def url(self, path: str) -> str:
        return f"webhook:http://{self.host}{path}"
