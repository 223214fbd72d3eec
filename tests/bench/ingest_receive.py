"""How fast messages are received: from a real broker to the disk, each acknowledged after it is there."""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ingest.deployment.topics import Broker, Topic
from ingest.sources.mqtt import MqttSession, MqttSource
from ingest.sources.spool import Spool, durable, frames
from tests.ingest.brokers import RunningBroker, publish, wait_until

FEEDS = (("net", Topic("net/{station}/up")),)


def message(number: int) -> tuple[str, bytes]:
    """Return a message as a station sends it, some 150 bytes."""
    content = {
        "station": str(number % 24),
        "time": f"2007-10-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z",
        "counter": number,
        "air_temperature": 3.25,
        "relative_humidity": 81.5,
        "wind_speed": 4.5,
    }
    return f"net/{number % 24}/up", json.dumps(content).encode()


def measure(count: int, notify: Callable[[str], None]) -> dict[str, object]:
    """Return messages a second received and synchronised, and bytes a message in the spool.

    The messages wait at the broker, so that neither it nor the publisher is what is measured.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running = RunningBroker(folder / "broker").start()
        try:
            with Spool.open(folder / "spool") as spool:
                _receive(running, spool, lambda source: None)
                publish(running, (message(number) for number in range(count)))
                began, worked = time.perf_counter(), time.process_time()
                _receive(running, spool, lambda _: wait_until(lambda: spool.durable >= count, within_s=600))
                seconds, worked = time.perf_counter() - began, time.process_time() - worked
            size = sum(path.stat().st_size for path in (folder / "spool").glob("segment-*"))
            groups = sum(1 for _ in frames(folder / "spool", 0, count, batch_bytes=1))
            assert durable(folder / "spool") == count
        finally:
            running.stop()
    result = {
        "messages": count,
        "messages_per_s": round(count / seconds),
        "messages_per_cpu_s": round(count / worked),
        "groups": groups,
        "bytes_a_message": round(size / count, 1),
    }
    notify(f"{result['messages_per_s']:,} messages a second received and synchronised, in {groups} groups")
    return result


def _receive(running: RunningBroker, spool: Spool, until: Callable[[MqttSource], None]) -> None:
    broker = Broker("127.0.0.1", running.port)
    source = MqttSource(broker, FEEDS, spool, MqttSession("bench"), notify=lambda _: None, environment={})
    source.start()
    wait_until(lambda: source.statistics().connected)
    time.sleep(0.2)
    until(source)
    source.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    print(json.dumps(measure(parser.parse_args().messages, print)))
