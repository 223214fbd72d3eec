"""The receiver as a process of its own: whatever is killed, everything that was sent is in the spool, once."""

import errno
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from hypergrid.archive.disk.lock import is_free
from hypergrid.core.errors import InvalidDeployment
from ingest.deployment.deployment_file import deploy, load
from ingest.sources.receiver import SPOOL, TICK_S, Receiver, client_id, command, main, resolve_sources
from ingest.sources.spool import END, HEADER, MESSAGE, STATE, TICK, Spool, SpoolRecord, durable, frames, segments
from tests.ingest.brokers import RunningBroker, publish, wait_until
from tests.ingest.forked import FORKED

DEPLOYMENT = """
[network]
name = "net"

[[feed]]
name = "up"
format = "messages"
topic = "net/{station}/up"

[[feed]]
name = "text"
format = "csv"
files = "*.csv"
columns = {wind_speed = "wind_speed"}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    (tmp_path / "data").mkdir()
    return tmp_path


def received(words: tuple[str, ...], told: Path) -> None:
    """Be a receiver that tells a file what it would tell people."""
    with told.open("a", buffering=1) as sys.stderr:
        sys.exit(main(words))


class Running:
    """A receiver of the folder's deployment."""

    def __init__(self, here: Path, *, mqtt: str | None = None, watch: bool = True, until_idle: bool = False) -> None:
        data = here / "data" if watch else None
        words = command(here / "archive", here / "deployment.toml", watch=data, mqtt=mqtt, until_idle=until_idle)
        self._told = here / f"told-{time.time_ns()}"
        self._told.touch()
        # Without the options of the interpreter, and without the parent: that is the forking process.
        self.process = FORKED.Process(target=received, args=(words[3:-2], self._told))
        self.process.start()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self._told.read_text())

    def end(self, number: signal.Signals = signal.SIGTERM) -> str:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        return self.told()

    def told(self) -> str:
        self.process.join(60)
        return self._told.read_text()


def is_free_at(here: Path) -> bool:
    return is_free(here / "archive" / SPOOL / "lock")


def rows(here: Path) -> list[tuple[int, str, int, bytes]]:
    folder = here / "archive" / SPOOL
    return [
        (row["kind"], row["origin"], row["place"], row["payload"])
        for batch in frames(folder, 0, durable(folder))
        for row in batch.to_pylist()
    ]


def messages(here: Path) -> list[bytes]:
    return [payload for kind, _, place, payload in rows(here) if kind == MESSAGE and place < 0]


def lines(here: Path, name: str) -> bytes:
    return b"".join(payload for kind, origin, _, payload in rows(here) if kind == MESSAGE and origin == name)


def ticks(here: Path) -> int:
    return sum(kind == TICK for kind, *_ in rows(here))


def table(start: int, stop: int) -> bytes:
    return b"".join(b"7,%d,%d\n" % (1191196800 + n, n) for n in range(start, stop))


TOP = b"station,time,wind_speed\n"


@pytest.mark.usefixtures("default_hangup")
def test_it_ends_when_told_and_goes_on_where_it_was(here: Path) -> None:
    (here / "data" / "a.csv").write_bytes(TOP + table(0, 10))
    begun = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        running = Running(here)
        wait_until(lambda: not is_free_at(here) and lines(here, "a.csv") == table(0, 10))
        before = ticks(here)
        wait_until(lambda before=before: ticks(here) > before)  # type: ignore[misc]
        assert running.end(number) == ""
        assert running.process.exitcode == 0
    kinds = Counter(kind for kind, *_ in rows(here))
    assert (kinds[MESSAGE], kinds[HEADER], kinds[STATE]) == (1, 1, 4)
    # At most one a second, besides the first of each run.
    assert 3 <= kinds[TICK] <= 3 + (time.monotonic() - begun) / TICK_S
    with (here / "data" / "a.csv").open("ab") as stream:
        stream.write(table(10, 12))
    running = Running(here)
    wait_until(lambda: lines(here, "a.csv") == table(0, 12))
    running.end()


def test_it_ends_once_nothing_more_comes(here: Path) -> None:
    (here / "data" / "a.csv").write_bytes(TOP + table(0, 10).rstrip())
    running = Running(here, until_idle=True)
    assert running.told() == ""
    assert running.process.exitcode == 0
    assert lines(here, "a.csv") == table(0, 10).rstrip()
    assert END not in {kind for kind, *_ in rows(here)}


def test_it_ends_with_its_parent(here: Path) -> None:
    script = (
        "import subprocess, sys; from pathlib import Path; from ingest.sources.receiver import command\n"
        "here = Path(sys.argv[1])\n"
        "subprocess.Popen(command(here / 'archive', here / 'deployment.toml', watch=here / 'data'))\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(here)], stdin=subprocess.PIPE)
    wait_until(lambda: not is_free_at(here))
    parent.kill()
    parent.communicate()
    wait_until(lambda: is_free_at(here))


def test_a_second_one_waits_until_the_first_has_ended(here: Path) -> None:
    first = Running(here)
    wait_until(lambda: not is_free_at(here))
    second = Running(here)
    time.sleep(1.0)
    assert second.process.is_alive()
    first.end()
    (here / "data" / "a.csv").write_bytes(TOP + table(0, 10))
    wait_until(lambda: lines(here, "a.csv") == table(0, 10))
    second.end()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"watch": False}, "nothing to receive: name a folder (--watch), a broker (--mqtt)"),
        ({"mqtt": "mqtt://me:secret@host"}, "a broker's address has no user or password in it"),
        ({"mqtt": "http://host"}, "'http://host' is no address of a broker"),
    ],
)
def test_what_cannot_be_received_is_told(here: Path, options: dict[str, object], reason: str) -> None:
    running = Running(here, **options)  # type: ignore[arg-type]
    told = running.told()
    assert reason in told
    assert "secret" not in told
    assert "Traceback" not in told
    assert running.process.exitcode == 2


def test_sources_need_feeds_that_want_them(here: Path) -> None:
    both = load(here / "deployment.toml")
    (here / "deployment.toml").write_text(DEPLOYMENT.replace('topic = "net/{station}/up"', 'files = "*.jsonl"'))
    files = load(here / "deployment.toml")
    (here / "deployment.toml").write_text(DEPLOYMENT.replace('files = "*.csv"', 'topic = "csv/#"'))
    topics = load(here / "deployment.toml")
    assert resolve_sources(both, watch=here, mqtt="mqtts://host").broker is not None
    with pytest.raises(InvalidDeployment, match=r"no feed has a topic, so nothing is asked of mqtt://host:1883"):
        resolve_sources(files, watch=here, mqtt="mqtt://host")
    with pytest.raises(InvalidDeployment, match=r"no feed has files, so nothing is read"):
        resolve_sources(topics, watch=here, mqtt=None)
    (here / "deployment.toml").write_text(DEPLOYMENT + '\n[mqtt]\nurl = "mqtt://one:1"\nuser = "me"\n')
    described = load(here / "deployment.toml")
    assert resolve_sources(described, watch=None, mqtt=None).broker == described.broker
    other = resolve_sources(described, watch=None, mqtt="mqtts://two").broker
    assert other is not None
    assert (other.url, other.user) == ("mqtts://two:8883", "me")


def test_the_name_that_brokers_know_is_kept(tmp_path: Path) -> None:
    name = client_id(tmp_path)
    assert name.startswith("hypergrid-")
    assert client_id(tmp_path) == name


def test_a_spool_that_another_ended_keeps_the_state(here: Path) -> None:
    (here / "data" / "a.csv").write_bytes(TOP + table(0, 10))
    Running(here, until_idle=True).told()
    # As who only knows how to end the input: no segment begins without the state.
    for _ in range(3):
        with Spool.open(here / "archive" / SPOOL, segment_bytes=1) as spool:
            spool.append([SpoolRecord(0, kind=END)])
    assert len(segments(here / "archive" / SPOOL)) == 1
    Running(here, until_idle=True).told()
    assert lines(here, "a.csv") == table(0, 10)


def test_a_full_disk_is_waited_for_and_told_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, told, stopping = os.pwrite, list[str](), threading.Event()

    def full(file: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    what = resolve_sources(load(here / "deployment.toml"), watch=here / "data", mqtt=None)
    receiver = Receiver(here / "archive", what, notify=told.append, environment={}, stopping=stopping)
    running = threading.Thread(target=receiver.run)
    running.start()
    wait_until(lambda: durable(here / "archive" / SPOOL) > 0)
    monkeypatch.setattr("ingest.sources.spool.os.pwrite", full)
    (here / "data" / "a.csv").write_bytes(TOP + table(0, 10))
    wait_until(lambda: bool(told))
    time.sleep(1.5)
    before = durable(here / "archive" / SPOOL)
    monkeypatch.setattr("ingest.sources.spool.os.pwrite", real)
    wait_until(lambda: lines(here, "a.csv") == table(0, 10))
    stopping.set()
    running.join()
    receiver.close()
    assert before < durable(here / "archive" / SPOOL)
    # How many records wait at first is a matter of the moment.
    assert [re.sub(r"\d+ records", "N records", text.partition(":")[2] or text) for text in told] == [
        " No space left on device; N records wait, make room on the disk",
        "the spool can be written again",
    ]


def chaos(here: Path, broker: RunningBroker, *, count: int, kills: int, restarts: int) -> None:
    """Publish messages and let files grow while the receiver is killed and the broker started anew."""
    dice, sent = random.Random(count), 0

    def publishing() -> None:
        nonlocal sent
        while sent < count:
            with suppress(OSError):
                size = min(dice.randrange(20, 80), count - sent)
                with lock:
                    publish(broker, [(f"net/{n % 7}/up", b"message %d" % n) for n in range(sent, sent + size)])
                    sent += size
                    with (here / "data" / "a.csv").open("ab") as stream:
                        stream.write(table(sent - size, sent))
            time.sleep(0.02)

    lock = threading.Lock()
    (here / "data" / "a.csv").write_bytes(TOP)
    running = Running(here, mqtt=broker.url)
    running.wait_for("is there")
    time.sleep(0.2)
    thread = threading.Thread(target=publishing)
    thread.start()
    events = ["kill"] * kills + ["restart"] * restarts
    dice.shuffle(events)
    for event in events:
        time.sleep(dice.random() * 0.8)
        if event == "kill":
            running.end(signal.SIGKILL)
            running = Running(here, mqtt=broker.url)
        else:
            # What it has acknowledged to a publisher it has to keep, which it does only when it is told to end.
            with lock:
                broker.stop()
                broker.start()
    thread.join()
    wait_until(lambda: len(messages(here)) >= count and lines(here, "a.csv").endswith(table(count - 1, count)))
    running.end()
    assert lines(here, "a.csv") == table(0, count)
    assert Counter(messages(here)) == Counter(b"message %d" % n for n in range(count))


@pytest.mark.broker
def test_nothing_is_lost_or_kept_twice_whatever_is_killed(here: Path, broker: RunningBroker) -> None:
    chaos(here, broker, count=2000, kills=3, restarts=1)


@pytest.mark.broker
@pytest.mark.soak
def test_nothing_is_lost_or_kept_twice_whatever_is_killed_often(here: Path, broker: RunningBroker) -> None:
    chaos(here, broker, count=40_000, kills=50, restarts=10)


@pytest.mark.broker
def test_messages_are_awaited_until_none_comes_any_more(here: Path, broker: RunningBroker) -> None:
    running = Running(here, mqtt=broker.url, watch=False, until_idle=True)
    running.wait_for("is there")
    time.sleep(0.2)
    publish(broker, [("net/1/up", b"one"), ("net/2/up", b"two")])
    told = running.told()
    assert running.process.exitcode == 0
    assert f"the broker {broker.url} is there; we listen to net/+/up" in told
    assert messages(here) == [b"one", b"two"]


def test_of_a_stream_the_last_deployment_is_received_whatever_became_of_its_file(here: Path) -> None:
    journal = here / "archive" / "stream" / "deployments"
    deploy(journal, here / "deployment.toml", first=1)
    (here / "deployment.toml").unlink()
    (here / "data" / "a.csv").write_text("station,time,wind_speed\n" + "A,2007-10-01T00:00Z,1\n" * 4)
    words = command(here / "archive", journal, watch=here / "data", until_idle=True)
    assert main(words[3:-2]) == 0
    spool = here / "archive" / SPOOL
    feeds = {feed for frame in frames(spool, 0, durable(spool)) for feed in frame["feed"].to_pylist()}
    assert "text" in feeds
