"""Messages from a broker, by MQTT at QoS 1: each is acknowledged once it is on the disk, in the spool.

The broker keeps a session for us (a stable client id, no clean start), so that what comes while we are away comes
later. What it sends again, because an acknowledgement was lost, is recognised by the number, topic and payload that it
had before, and is not kept twice. Retained messages, which a broker repeats to whoever asks, are passed over.
"""

import select
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from paho.mqtt.client import Client, ConnectFlags, MQTTMessage, error_string
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from hypergrid.core.errors import InvalidDeployment
from ingest.deployment.topics import PASSWORD_KEY, USER_KEY, Broker, Topic
from ingest.formats.csv_lines import show
from ingest.sources.spool import REFUSED, NotWritten, Spool, SpoolRecord

MESSAGE_MOST_BYTES: Final = 1 << 20
"""A longer message is refused, and told with its beginning [bytes]."""
GROUP_MOST: Final = 5_000
"""Messages that are brought to the disk together at most."""
GROUP_MOST_BYTES: Final = 8 << 20
UNNUMBERED: Final = 1 << 16
"""In place of the number of a message that is not to be acknowledged."""
WINDOW: Final = 2_000
"""Messages that a broker of MQTT 5 may send before the first is acknowledged; older ones have a number of their own."""
KEEP_ALIVE_S: Final = 60
ANSWER_S: Final = 10.0
"""So long is an answer to the first words waited for [s]."""
BACKOFF_S: Final = (0.5, 30.0)
"""First and longest wait before another attempt [s]."""
_POLL_S: Final = 0.2
_FOREVER: Final = 0xFFFFFFFF
_UNSUPPORTED: Final = "Unsupported protocol version"


@dataclass(frozen=True)
class MqttStatistics:
    """What has come so far."""

    messages: int = 0
    """Kept."""
    duplicates: int = 0
    """Sent again by the broker, and recognised."""
    retained: int = 0
    """Passed over."""
    refused: int = 0
    """Too long, or of no feed."""
    connected: bool = False
    last_s: float = 0.0
    """When the last one came, or the connection began, by the monotonic clock [s]."""


class _Refused(ConnectionError):
    """The broker answered, and does not want us."""


class MqttSource:
    """A thread that receives the messages of some topics into a spool until it is stopped.

    Parameters
    ----------
    feeds
        Name and topic of each feed.
    tell
        Is told what people should know, in one sentence.
    recent
        Number, topic and payload of messages that are in the spool, in the order in which they came: the last
        `UNNUMBERED` of them.
    before
        Filters that an earlier run asked the broker for; those that no feed has any more are given up.
    environment
        Where the user and the password are looked for.
    """

    def __init__(
        self,
        broker: Broker,
        feeds: Sequence[tuple[str, Topic]],
        spool: Spool,
        *,
        client_id: str,
        notify: Callable[[str], None],
        recent: Iterable[tuple[int, str, bytes]] = (),
        before: Iterable[str] = (),
        environment: Mapping[str, str],
    ) -> None:
        self._broker, self._spool, self._notify = broker, spool, notify
        self._client_id, self._environment = client_id, environment
        self._feeds = tuple(feeds)
        self._requested_filters = frozenset(before)
        self._feed_by_topic: dict[str, str | None] = {}
        self._recent = {number: hash((topic, payload)) for number, topic, payload in recent}
        self._pending: list[SpoolRecord] = []
        self._pending_bytes = 0
        self._answered: list[int] = []
        self._received = MqttStatistics()
        self._last_message = ""
        self._protocol = MQTTProtocolVersion.MQTTv5
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqtt", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, once what came is on the disk and acknowledged."""
        self._stop.set()
        self._thread.join()

    def statistics(self) -> MqttStatistics:
        """Return what has come so far."""
        return self._received

    @property
    def filters(self) -> tuple[str, ...]:
        """What the broker is asked for, or was by an earlier run."""
        return tuple(sorted(self._requested_filters | {topic.filter for _, topic in self._feeds}))

    # Only the thread runs what follows.

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
                # Told already; what was not acknowledged comes again.
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
            manual_ack=True,
            reconnect_on_failure=False,
        )
        client.connect_timeout = ANSWER_S
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        return client

    def _connect(self, client: Client) -> None:
        """Connect, wait until the broker welcomes us, and ask for our topics.

        Raises
        ------
        OSError
            There is no connection, or the broker does not want us.
        """
        user, password = self._credentials()
        if user:
            client.username_pw_set(user, password)
        if self._broker.tls:
            client.tls_set_context(_context(self._broker))
        answer: list[ReasonCode] = []

        def on_connect(_: Client, __: object, flags: ConnectFlags, code: ReasonCode, properties: object) -> None:
            answer.append(code)

        client.on_connect = on_connect
        self._pending, self._pending_bytes, self._answered = [], 0, []
        options: dict[str, Any] = {}
        if self._protocol is MQTTProtocolVersion.MQTTv5:
            options = {"clean_start": False, "properties": Properties(PacketTypes.CONNECT)}
            options["properties"].SessionExpiryInterval = _FOREVER
            options["properties"].ReceiveMaximum = WINDOW
        client.connect(self._broker.host, self._broker.port, KEEP_ALIVE_S, **options)
        until = time.monotonic() + ANSWER_S
        while not answer:
            code = client.loop(_POLL_S)
            if not answer and (code != MQTTErrorCode.MQTT_ERR_SUCCESS or time.monotonic() > until):
                self._try_other_protocol()
                message = "it does not answer" if code == MQTTErrorCode.MQTT_ERR_SUCCESS else error_string(code)
                raise ConnectionError(message)
        if answer[0].is_failure:
            if answer[0].getName() == _UNSUPPORTED:
                self._try_other_protocol()
            account = f"user {user!r}" if user else "without a user"
            remedy = f"set `user` and `password_file` under [mqtt], or {USER_KEY} and {PASSWORD_KEY}"
            message = f"{answer[0].getName()} ({account}); {remedy}"
            raise _Refused(message)
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
                message = f"the password file {self._broker.password_file} cannot be read: {error}"
                raise InvalidDeployment(message) from error
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
                message = "the connection was lost"
                raise ConnectionError(message)
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
        """Take all messages that are there, up to a group."""
        before = -1
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        while before < len(self._answered) < GROUP_MOST and self._pending_bytes < GROUP_MOST_BYTES:
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
            return SpoolRecord(time.time_ns(), feed or "", topic, text, position, REFUSED)
        return SpoolRecord(time.time_ns(), feed or "", topic, payload, position)

    def _feed_of(self, topic: str) -> str | None:
        if topic not in self._feed_by_topic:
            if len(self._feed_by_topic) > 100_000:
                self._feed_by_topic.clear()
            self._feed_by_topic[topic] = next((name for name, pattern in self._feeds if pattern.matches(topic)), None)
        return self._feed_by_topic[topic]

    def _keep(self, client: Client) -> None:
        """Bring what came to the disk, then acknowledge it; where the disk is full, wait for room."""
        if not self._answered:
            return
        self._spool.append(self._pending, may_roll=False)
        for record in self._pending:
            # Not before it is in the spool: what is known is acknowledged when it comes again.
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
        message = f"a certificate or key for {broker.url} cannot be used: {error}; see [mqtt]"
        raise InvalidDeployment(message) from error
    return context
