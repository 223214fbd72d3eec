"""At-least-once delivery of alerts by mail and webhook, on separate worker threads.

A message is marked as being sent before the attempt, and as sent after it. If the process dies in between, the message
may have arrived: it is sent again with the same id, marked as a possible repeat.
"""

import base64
import hmac
import json
import logging
import os
import re
import secrets
import smtplib
import socket
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final, TypeVar

from hypergrid.archive.disk.row_checksums import DamagedState
from hypergrid.core.errors import HyperGridError
from hypergrid.core.settings import Settings
from queries.standing.definition import check_address, check_mail, check_webhook
from queries.standing.repository import MessageState, OutboxMessage, StandingStore

TIMEOUT_S: Final = 10.0
"""Timeout of an attempt, from name resolution to the answer [s]."""
RETRY_STATUSES: Final = (408, 425, 429)
"""4xx statuses that are retried; the others refuse the alert for good."""
FIRST_PAUSE_S: Final = 2.0
"""Pause of a target after its first failure, doubled after each further one [s]."""
LONGEST_PAUSE_S: Final = 900.0
"""Upper limit of that pause [s]."""
# At most one per target, so that a target that hangs blocks only itself.
WORKERS: Final = 4
"""Concurrent deliveries."""
IDLE_S: Final = 0.5
SECRET: Final = "webhooks.secret"
"""File beside the catalogue that holds the signing key of webhooks."""
_PREFIX: Final = "whsec_"
_LOG: Final = logging.getLogger(__name__)


class Undelivered(HyperGridError, RuntimeError):
    """A message was not delivered; the message says why. It is retried unless `for_good`."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(message)
        self.for_good = for_good


Send = Callable[[OutboxMessage, Mapping[str, Any]], None]
"""Sends a message; raises Undelivered."""
Answer = TypeVar("Answer")
Note = Callable[[socket.socket], None]
"""Called with each connection that an attempt opens."""


@dataclass
class _RetryPause:
    failures: int = 0
    until_s: float = 0.0


class NotificationWorkers:
    """Worker threads that deliver the outbox of the catalogue.

    Parameters
    ----------
    store
        The catalogue.
    catalogue
        Prefix of every alert's id.
    send
        Sender of each channel.
    monotonic
        Monotonic clock [s].
    """

    def __init__(
        self,
        store: StandingStore,
        catalogue: str,
        send: Mapping[str, Send],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._catalogue, self._send, self._monotonic = store, catalogue, send, monotonic
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._rests: dict[str, _RetryPause] = {}
        self._unsaved_states: dict[int, tuple[MessageState, str]] = {}
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._threads: list[threading.Thread] = []
        self.delivered = self.failures = 0

    def start(self) -> None:
        """Requeue what an earlier process left, and start the workers."""
        self._store.recover()
        for number in range(WORKERS):
            # Daemons, so that a worker waiting for a host that hangs does not keep the process alive.
            thread = threading.Thread(target=self._work, name=f"letters-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stop; messages in transit may arrive, and are sent again after the next start."""
        self._stop.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(timeout_s)

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                is_busy = self.deliver_next()
            except (sqlite3.Error, HyperGridError):
                # For example a full disk.
                is_busy = False
            if not is_busy:
                self._wake.wait(IDLE_S)
                self._wake.clear()

    def deliver_next(self) -> bool:
        """Deliver one message; return whether any was due."""
        with self._lock:
            self._save_states()
            now_s = self._monotonic()
            resting = [target for target, rest in self._rests.items() if rest.until_s > now_s]
            waiting = self._store.list_waiting(excluded=[*self._busy, *resting], limit=1)
            if not waiting:
                return False
            number, target = waiting[0]
            self._busy.add(str(target))
        try:
            letter = self._store.mark_sending(number)
            if letter is not None:
                self._deliver(letter)
        finally:
            with self._lock:
                self._busy.discard(str(target))
        return True

    def _deliver(self, letter: OutboxMessage) -> None:
        target = str(letter.target)
        body = {**letter.alert.to_json(self._catalogue), "possible_repeat": letter.repeat, "attempt": letter.attempts}
        state: MessageState = "sent"
        error_text = ""
        try:
            self._send[letter.target.channel](letter, body)
        except Exception as error:  # noqa: BLE001 - one message must not end the worker thread
            error_text = str(error) if isinstance(error, Undelivered) else f"{type(error).__name__}: {error}"
            state = "refused" if isinstance(error, Undelivered) and error.for_good else "waiting"
        with self._lock:
            if state == "waiting":
                rest = self._rests.setdefault(target, _RetryPause())
                rest.failures += 1
                pause_s = min(FIRST_PAUSE_S * 2 ** min(rest.failures - 1, 20), LONGEST_PAUSE_S)
                rest.until_s = self._monotonic() + pause_s
            else:
                self._rests.pop(target, None)
            self.delivered += state == "sent"
            self.failures += state != "sent"
            # Kept in memory until it can be stored, as the disk may be full.
            self._unsaved_states[letter.id] = (state, error_text)
            self._save_states()
        if state == "refused":
            _LOG.warning("alert %s of %s is not sent: %s", body["id"], letter.alert.name, error_text)

    def _save_states(self) -> None:
        """Store the outcome of deliveries, under the lock; on failure, retry before the next delivery."""
        for letter, (state, error_text) in list(self._unsaved_states.items()):
            self._store.mark_sent(letter, state, error_text)
            del self._unsaved_states[letter]


def webhook_secret(folder: Path) -> str:
    """Return the signing key of webhooks in Standard Webhooks format, creating it if missing.

    Raises
    ------
    DamagedState
        The file holds no valid key.
    """
    path = folder / SECRET
    if not path.exists():
        scratch = path.with_name(f".{SECRET}.{secrets.token_hex(6)}")
        # Readable only by its owner from the start, and linked into place as a whole.
        with open(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{_PREFIX}{base64.b64encode(secrets.token_bytes(32)).decode()}\n")
        with suppress(FileExistsError):
            # Another process created it first.
            os.link(scratch, path)
        scratch.unlink()
    text = path.read_text("ascii", errors="replace").strip()
    if not re.fullmatch(rf"{_PREFIX}[A-Za-z0-9+/]{{32,}}={{0,2}}", text):
        raise DamagedState(
            f"{path} holds no secret of webhooks; remove it, and tell the receivers of alerts the new one"
        )
    return text


def sign_message(secret: str, letter: str, seconds: str, content: str) -> str:
    """Sign a message by Standard Webhooks 1.0.0: HMAC-SHA256 of id, time and body."""
    signed = f"{letter}.{seconds}.{content}".encode()
    digest = hmac.digest(base64.b64decode(secret.removeprefix(_PREFIX)), signed, "sha256")
    return f"v1,{base64.b64encode(digest).decode()}"


def make_senders(settings: Settings, folder: Path) -> dict[str, Send]:
    """Make the sender of each channel from the server's settings; `folder` holds the signing key."""
    hosts = settings.webhook_hosts
    return {
        "webhook": lambda letter, body: send_webhook(letter.target.address, body, hosts, webhook_secret(folder)),
        "email": lambda letter, body: send_mail(letter.target.address, body, settings),
    }


def send_webhook(url: str, body: Mapping[str, Any], allowed_hosts: tuple[str, ...], secret: str) -> None:
    """Post a signed alert to a webhook, without following redirects; only the status is read.

    Raises
    ------
    Undelivered
        The host is not allowed (any more), resolves to a forbidden network, did not answer in time, or answered with
        another status than 2xx.
    """
    import httpx  # noqa: PLC0415 - it takes 0.3 s to load, and few alerts go to webhooks

    with _refuse_permanently():
        check_webhook(url, allowed_hosts, "this alert")
    # Paths of webhooks are often secrets, and this text is logged.
    host = f"the webhook at {httpx.URL(url).host}"
    content, seconds = json.dumps(body), str(int(time.time()))
    headers = {
        "Content-Type": "application/json", "Idempotency-Key": str(body["id"]),
        "webhook-id": str(body["id"]), "webhook-timestamp": seconds,
        "webhook-signature": sign_message(secret, str(body["id"]), seconds, content),
        "X-HyperGrid-Possible-Repeat": "yes" if body["possible_repeat"] else "no",
    }  # fmt: skip

    def post(note: Note) -> int:
        def trace(event: str, info: Mapping[str, Any]) -> None:
            if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
                connection = info["return_value"].get_extra_info("socket")
                note(connection)
                with _refuse_permanently():
                    # Checked on the open connection: a second name lookup could give another address.
                    check_address(connection.getpeername()[0], allowed_hosts, "this alert")

        with (
            httpx.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client,
            client.stream("POST", url, content=content, headers=headers, extensions={"trace": trace}) as answer,
        ):
            return answer.status_code

    try:
        status = _run_in_time(post)
    except httpx.HTTPError as error:
        raise Undelivered(f"{host} did not take the alert: {type(error).__name__}: {error}") from error
    except TimeoutError as error:
        raise Undelivered(f"{host} did not take the alert: it was given {TIMEOUT_S:g} s in all") from error
    if not 200 <= status < 300:
        redirected = "; redirects are not followed" if 300 <= status < 400 else ""
        raise Undelivered(
            f"{host} answered {status}, 2xx was needed{redirected}",
            for_good=400 <= status < 500 and status not in RETRY_STATUSES,
        )


def send_mail(address: str, body: Mapping[str, Any], settings: Settings) -> None:
    """Send an alert through the mail server of the settings.

    Raises
    ------
    Undelivered
        No server is set, it did not accept the mail, or the address is not allowed (any more).
    """
    with _refuse_permanently():
        check_mail(address, settings.mail_to, "this alert")
    if not settings.mail_server:
        raise Undelivered("no mail server is set; give the setting 'mail_server', host or host:port")
    mail = EmailMessage()
    repeat = " (possible repeat)" if body["possible_repeat"] else ""
    # A line break in a place name would make the header invalid, and every message to this address fail.
    place_name = " ".join(str(body["place"]).split())
    mail["Subject"] = f"{body['query']}: {body['happening']} at {place_name}{repeat}"
    mail["From"], mail["To"] = settings.mail_from, address
    mail["Message-ID"] = f"<{body['id']}@hypergrid>"
    mail.set_content(f"{body['text']}\n\n{json.dumps(body, indent=1)}\n")
    host, _, port = settings.mail_server.partition(":")
    password = _read_password(settings)

    def post(note: Note) -> None:
        with (
            socket.create_connection((host, int(port or 25)), TIMEOUT_S) as connection,
            _MailServer(host) as server,
        ):
            note(connection)
            server.sock = connection
            code, words = server.getreply()
            if code != 220:
                raise smtplib.SMTPConnectError(code, words)
            if settings.smtp_starttls:
                server.starttls(context=ssl.create_default_context())
                note(server.sock)
            if settings.smtp_user:
                server.login(settings.smtp_user, password)
            server.send_message(mail)

    try:
        _run_in_time(post)
    except TimeoutError as error:
        raise Undelivered(
            f"the mail server {settings.mail_server} did not take the alert: it was given {TIMEOUT_S:g} s in all"
        ) from error
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise Undelivered(f"the mail server {settings.mail_server} did not take the alert: {error}") from error


class _MailServer(smtplib.SMTP):
    """A mail server whose connection is opened elsewhere; its certificate has to be for `host`."""

    def __init__(self, host: str) -> None:
        super().__init__()
        # starttls() takes the name of the certificate from here; only connect() sets it otherwise.
        self._host = host


def _read_password(settings: Settings) -> str:
    if not settings.smtp_user:
        return ""
    try:
        return Path(settings.smtp_password_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Undelivered(
            f"the setting 'smtp_password_file', {settings.smtp_password_file}, cannot be read: {error}"
        ) from error


@contextmanager
def _refuse_permanently() -> Iterator[None]:
    """Turn errors of the checks within into permanent refusals, which are not retried."""
    try:
        yield
    except HyperGridError as error:
        raise Undelivered(str(error), for_good=True) from error


def _run_in_time(attempt: Callable[[Note], Answer]) -> Answer:
    """Run an attempt in a thread; raise TimeoutError if it takes longer than `TIMEOUT_S`.

    On timeout its connections are shut down, so that the abandoned thread ends.
    """
    # A timeout per wait is not enough: a host that sends a byte now and then, or slow name resolution, outlasts all of
    # them.
    opened: list[socket.socket] = []
    ended: Future[Answer] = Future()
    is_late = threading.Event()

    def note(connection: socket.socket) -> None:
        opened.append(connection)
        # Opened after the timeout: the abandoned attempt must end too.
        if is_late.is_set():
            _shut_down(connection)

    def run() -> None:
        try:
            ended.set_result(attempt(note))
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            ended.set_exception(error)

    threading.Thread(target=run, name="letter", daemon=True).start()
    wait([ended], TIMEOUT_S)
    if ended.done():
        return ended.result()
    is_late.set()
    for connection in list(opened):
        _shut_down(connection)
    raise TimeoutError


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        # The raw socket also of TLS connections, as another thread reads from it.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
