"""MQTT source at QoS 1: each message is acknowledged once it is on disk, in the spool.

The broker keeps a persistent session (stable client id, no clean start), so that messages sent while we are
disconnected are delivered later. A redelivered message, whose acknowledgement was lost, is recognised by its packet
identifier, topic and payload, and is not stored twice. Retained messages, which a broker sends to every new subscriber,
are ignored.
"""

import select
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from paho.mqtt.client import Client, MQTTMessage, error_string
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.times import floor_to_microsecond
from ingest.deployment.topics import PASSWORD_KEY, USER_KEY, Broker, Topic
from ingest.formats.csv_lines import show
from ingest.sources.spool import REFUSED, NotWritten, Spool, SpoolRecord

MESSAGE_MOST_BYTES: Final = 1 << 20
"""Maximum length of a message [bytes]; a longer one is refused, and its beginning is reported."""
UNNUMBERED: Final = 1 << 16
"""Replaces the packet identifier of a message that needs no acknowledgement."""
WINDOW: Final = 2_000
"""Maximum number of unacknowledged messages with MQTT 5; older brokers have their own limit."""
ANSWER_S: Final = 10.0
"""Timeout of the connection handshake [s]."""
BACKOFF_S: Final = (0.5, 30.0)
"""First and longest delay before another attempt [s]."""
_POLL_S: Final = 0.2


@dataclass(frozen=True)
class MqttStatistics:
    """Counters of received messages."""

    messages: int = 0
    """Stored in the spool."""
    duplicates: int = 0
    """Redelivered by the broker, and recognised."""
    retained: int = 0
    """Retained messages, which are ignored."""
    refused: int = 0
    """Too long, or without a feed."""
    connected: bool = False
    last_s: float = 0.0
    """Time of the last message, or of the connection, by the monotonic clock [s]."""


@dataclass(frozen=True)
class MqttSession:
    """Persistent session with the broker."""

    client_id: str
    recent: Iterable[tuple[int, str, bytes]] = ()
    """Packet identifier, topic and payload of the last `UNNUMBERED` messages in the spool, in the order of arrival."""
    filters: Iterable[str] = ()
    """Filters that an earlier run subscribed to; those without a feed are unsubscribed."""


class _Refused(ConnectionError):
    """The broker answered, and refused the connection."""


class MqttSource:
    """Thread that receives the messages of some topics into a spool until it is stopped.

    Parameters
    ----------
    feeds
        Name and topic of each feed.
    notify
        Receives messages for the user, of one sentence each.
    environment
        Environment variables with the user and the password.
    """

    def __init__(
        self,
        broker: Broker,
        feeds: Sequence[tuple[str, Topic]],
        spool: Spool,
        session: MqttSession,
        *,
        notify: Callable[[str], None],
        environment: Mapping[str, str],
    ) -> None:
        self._broker, self._spool, self._notify = broker, spool, notify
        self._client_id, self._environment = session.client_id, environment
        self._feeds = tuple(feeds)
        self._requested_filters = frozenset(session.filters)
        # Bounded, for brokers with many topics.
        self._feed_of = lru_cache(maxsize=100_000)(self._find_feed)
        # Hashes, because the payloads of all recent messages would need much memory.
        self._recent = {number: hash((topic, payload)) for number, topic, payload in session.recent}
        self._pending: list[SpoolRecord] = []
        self._pending_bytes = 0
        self._answered: list[int] = []
        self._received = MqttStatistics()
        self._last_message = ""
        self._protocol = MQTTProtocolVersion.MQTTv5
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqtt", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after received messages are on disk and acknowledged."""
        self._stop.set()
        self._thread.join()

    def statistics(self) -> MqttStatistics:
        return self._received

    @property
    def filters(self) -> tuple[str, ...]:
        """Topic filters that are subscribed to, or were by an earlier run."""
        return tuple(sorted(self._requested_filters | {topic.filter for _, topic in self._feeds}))

    # The methods below run only in the thread.

    def _run(self) -> None:
        wait = BACKOFF_S[0]
        while not self._stop.is_set():
            client = self._client()
            try:
                self._connect(client)
                wait = BACKOFF_S[0]
                self._receive(client)
                client.disconnect()
            except NotWritten:
                # Already reported; messages that were not acknowledged are redelivered.
                return
            except (OSError, ValueError, InvalidDeployment) as error:
                self._received = replace(self._received, connected=False)
                self._notify_lost(error)
                self._stop.wait(wait)
                wait = min(2 * wait, BACKOFF_S[1])
            finally:
                if (socket := client.socket()) is not None:
                    socket.close()

    def _notify_lost(self, error: Exception) -> None:
        if isinstance(error, _Refused):
            text = f"the broker {self._broker.url} refuses us: {error}"
        elif isinstance(error, ssl.SSLError):
            reason = getattr(error, "verify_message", "") or error.reason or error
            remedy = "see ca_file and certificate under [mqtt]"
            text = f"no trust between us and the broker {self._broker.url}: {reason}; {remedy}"
        else:
            reason = getattr(error, "strerror", None) or error
            text = f"the broker {self._broker.url} cannot be reached: {reason}"
        if text != self._last_message:
            self._last_message = text
            self._notify(f"{text}; we try again until it works")

    def _client(self) -> Client:
        newer = self._protocol is MQTTProtocolVersion.MQTTv5
        client = Client(
            CallbackAPIVersion.VERSION2,
            self._client_id,
            clean_session=None if newer else False,
            protocol=self._protocol,
            # Messages are acknowledged in `_keep`, once they are on disk.
            manual_ack=True,
            reconnect_on_failure=False,
        )
        client.connect_timeout = ANSWER_S
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        return client

    def _connect(self, client: Client) -> None:
        """Connect, wait for the broker's answer, and subscribe.

        Raises
        ------
        OSError
            There is no connection, or the broker refuses it.
        """
        user, password = self._credentials()
        if user:
            client.username_pw_set(user, password)
        if self._broker.tls:
            client.tls_set_context(_context(self._broker))
        answer: list[ReasonCode] = []
        client.on_connect = lambda _client, _userdata, _flags, code, _properties: answer.append(code)
        self._pending, self._pending_bytes, self._answered = [], 0, []
        options: dict[str, Any] = {}
        if self._protocol is MQTTProtocolVersion.MQTTv5:
            options = {"clean_start": False, "properties": Properties(PacketTypes.CONNECT)}
            # The session never expires.
            options["properties"].SessionExpiryInterval = 0xFFFFFFFF
            options["properties"].ReceiveMaximum = WINDOW
        client.connect(self._broker.host, self._broker.port, keepalive=60, **options)
        until = time.monotonic() + ANSWER_S
        while not answer:
            code = client.loop(_POLL_S)
            if not answer and (code != MQTTErrorCode.MQTT_ERR_SUCCESS or time.monotonic() > until):
                # A broker without MQTT 5 may close the connection or not answer.
                self._try_other_protocol()
                raise ConnectionError(
                    "it does not answer" if code == MQTTErrorCode.MQTT_ERR_SUCCESS else error_string(code)
                )
        if answer[0].is_failure:
            if answer[0].getName() == "Unsupported protocol version":
                self._try_other_protocol()
            account = f"user {user!r}" if user else "without a user"
            remedy = f"set `user` and `password_file` under [mqtt], or {USER_KEY} and {PASSWORD_KEY}"
            raise _Refused(f"{answer[0].getName()} ({account}); {remedy}")
        self._subscribe(client)
        self._last_message = ""
        self._received = replace(self._received, connected=True, last_s=time.monotonic())
        self._notify(f"the broker {self._broker.url} is there; we listen to {', '.join(self.filters) or 'no topic'}")

    def _try_other_protocol(self) -> None:
        newer = self._protocol is MQTTProtocolVersion.MQTTv5
        self._protocol = MQTTProtocolVersion.MQTTv311 if newer else MQTTProtocolVersion.MQTTv5

    def _credentials(self) -> tuple[str, str | None]:
        user = self._environment.get(USER_KEY) or self._broker.user
        password = self._environment.get(PASSWORD_KEY)
        if password is None and self._broker.password_file is not None:
            try:
                password = self._broker.password_file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidDeployment(
                    f"the password file {self._broker.password_file} cannot be read: {error}"
                ) from error
        return user, password

    def _subscribe(self, client: Client) -> None:
        wanted = frozenset(topic.filter for _, topic in self._feeds)
        if wanted:
            client.subscribe([(topic_filter, 1) for topic_filter in sorted(wanted)])
        if gone := sorted(self._requested_filters - wanted):
            client.unsubscribe(gone)
        self._requested_filters = wanted

    def _on_subscribe(
        self, client: Client, _: object, number: int, codes: Sequence[ReasonCode], properties: object
    ) -> None:
        refused = [code.getName() for code in codes if code.is_failure]
        if refused:
            self._notify(f"the broker {self._broker.url} refuses {len(refused)} of our topics: {refused[0]}")

    def _receive(self, client: Client) -> None:
        while not self._stop.is_set():
            socket = client.socket()
            if socket is None:
                raise ConnectionError("the connection was lost")
            # Bytes that TLS has already decrypted do not wake select.
            buffered = isinstance(socket, ssl.SSLSocket) and socket.pending()
            select.select([socket], [socket] if client.want_write() else [], [], 0 if buffered else _POLL_S)
            if client.want_write():
                client.loop_write()
            lost = self._read(client)
            self._keep(client)
            if lost != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise ConnectionError(error_string(lost))
            client.loop_misc()

    def _read(self, client: Client) -> MQTTErrorCode:
        """Read all available messages, at most some 5,000 and 8 MB, which are written to disk together."""
        before = -1
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        while before < len(self._answered) < 5_000 and self._pending_bytes < 8 << 20:
            before = len(self._answered)
            code = client.loop_read()
            if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
                break
        return code

    def _on_message(self, client: Client, _: object, message: MQTTMessage) -> None:
        self._answered.append(message.mid if message.qos else 0)
        if message.retain:
            self._received = replace(self._received, retained=self._received.retained + 1)
            return
        record = self._record(message)
        if message.qos:
            known = hash((record.origin, record.payload))
            if message.dup and self._recent.get(message.mid) == known:
                self._received = replace(self._received, duplicates=self._received.duplicates + 1)
                return
        self._pending.append(record)
        self._pending_bytes += len(record.payload)

    def _record(self, message: MQTTMessage) -> SpoolRecord:
        payload, position, wrong = bytes(message.payload), -(message.mid if message.qos else UNNUMBERED), ""
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic, wrong = show(bytes(message._topic)), "the topic is no UTF-8"
        feed = None if wrong else self._feed_of(topic)
        if feed is None:
            wrong = wrong or "no feed of the deployment has this topic"
        elif len(payload) > MESSAGE_MOST_BYTES:
            wrong = f"too long: {len(payload)} bytes in one message, of at most {MESSAGE_MOST_BYTES}"
        if wrong:
            text = f"{wrong}\n{show(payload[:1000])}".encode()
            return SpoolRecord(floor_to_microsecond(time.time_ns()), feed or "", topic, text, position, REFUSED)
        return SpoolRecord(floor_to_microsecond(time.time_ns()), feed or "", topic, payload, position)

    def _find_feed(self, topic: str) -> str | None:
        return next((name for name, pattern in self._feeds if pattern.matches(topic)), None)

    def _keep(self, client: Client) -> None:
        """Write received messages to disk, then acknowledge them; wait for space if the disk is full."""
        if not self._answered:
            return
        # Only the receiver's thread starts segments, because the state that begins them changes there.
        self._spool.append(self._pending, may_roll=False)
        for record in self._pending:
            # Only once they are in the spool, because a redelivery of a known message is acknowledged and dropped.
            if record.position > -UNNUMBERED:
                self._recent[-record.position] = hash((record.origin, record.payload))
        refused = sum(record.kind == REFUSED for record in self._pending)
        full = False
        while True:
            try:
                self._spool.flush()
                break
            except NotWritten as error:
                if not full:
                    self._notify(str(error))
                full = True
                client.loop_misc()
                if self._stop.wait(1.0):
                    raise
        if full:
            self._notify("the spool can be written again")
        for number in self._answered:
            if number:
                client.ack(number, 1)
        now = self._received
        self._received = replace(
            now,
            messages=now.messages + len(self._pending) - refused,
            refused=now.refused + refused,
            last_s=time.monotonic(),
        )
        self._pending, self._pending_bytes, self._answered = [], 0, []


def _context(broker: Broker) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(broker.ca_file) if broker.ca_file else None)
        if broker.certificate is not None:
            context.load_cert_chain(broker.certificate, broker.key)
    except ssl.SSLError as error:
        raise InvalidDeployment(f"a certificate or key for {broker.url} cannot be used: {error}; see [mqtt]") from error
    return context
