"""A mail server of one connection, which keeps the lines that it gets."""

import socket
import ssl
import threading
from contextlib import suppress


class MailServer:
    """Takes one mail by SMTP, on a free port.

    Parameters
    ----------
    tls
        Its certificate, which it offers by STARTTLS; without one it offers neither that nor a login.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def read_lines(self) -> str:
        """Return what came, once the connection is closed."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return "".join(f"{line}\n" for line in self._lines)

    def _serve(self) -> None:
        with self._listening:
            connection, _ = self._listening.accept()
        # A client that does not trust the certificate hangs up.
        with suppress(OSError), connection:
            self._talk(connection, "220 ready")

    def _talk(self, connection: socket.socket, greeting: str) -> None:
        offers = "250 fine"
        if self._tls is not None:
            offers = "250-fine\r\n250 " + ("AUTH PLAIN" if isinstance(connection, ssl.SSLSocket) else "STARTTLS")
        answers = {
            "EHLO": offers,
            "STARTTLS": "220 go on",
            "AUTH": "235 welcome",
            "DATA": "354 go on",
            "QUIT": "221 bye",
        }
        with connection.makefile("rwb") as lines:

            def send(text: str) -> None:
                lines.write(text.encode() + b"\r\n")
                lines.flush()

            if greeting:
                send(greeting)
            while line := lines.readline().decode().rstrip("\r\n"):
                self._lines.append(line)
                command = line.split(" ")[0].upper()
                send(answers.get(command, "250 fine"))
                if command == "DATA":
                    while (text := lines.readline().decode().rstrip("\r\n")) != ".":
                        self._lines.append(text)
                    send("250 accepted")
                if command == "STARTTLS" and self._tls is not None:
                    break
            else:
                return
        with self._tls.wrap_socket(connection, server_side=True) as secured:
            self._talk(secured, "")
