"""Topics and brokers in a deployment file."""

import itertools
import random
from pathlib import Path

import pytest

from hypergrid.core.errors import InvalidDeployment
from ingest.deployment.deployment_file import Deployment, Feed, from_mapping
from ingest.deployment.topics import Topic, address
from ingest.formats import ReadOptions


def deployment(*topics: str, mqtt: object = None, path: Path | None = None, **feed: object) -> Deployment:
    feeds = [{"name": f"f{n}", "format": "messages", "topic": topic, **feed} for n, topic in enumerate(topics)]
    content: dict[str, object] = {"network": {"name": "n"}, "feed": feeds}
    return from_mapping(content if mqtt is None else {**content, "mqtt": mqtt}, path=path)


@pytest.mark.parametrize(
    ("pattern", "asked", "topic", "station"),
    [
        ("net/{station}/up", "net/+/up", "net/7/up", "7"),
        ("net/{station}/up", "net/+/up", "net/7/down", None),
        ("net/{station}/up", "net/+/up", "net/7/8/up", None),
        ("v3/{app}/devices/{station}/up", "v3/+/devices/+/up", "v3/a@ttn/devices/ä-1/up", "ä-1"),
        ("net/{station}/#", "net/+/#", "net/7", "7"),
        ("net/{station}/#", "net/+/#", "net/7/a/b", "7"),
        ("net/{station}/#", "net/+/#", "other/7/a", None),
        ("a.b/+", "a.b/+", "a.b/x", ""),
        ("a.b/+", "a.b/+", "axb/x", None),
        ("#", "#", "what/ever", ""),
        ("#", "#", "$SYS/uptime", None),
    ],
)
def test_a_topic_tells_its_station(pattern: str, asked: str, topic: str, station: str | None) -> None:
    form = Topic(pattern)
    assert form.filter == asked
    assert form.matches(topic) == (station is not None)
    assert form.station(topic) == (station or "")


def test_patterns_overlap_where_some_topic_has_both_forms() -> None:
    # All patterns of up to three levels, against all topics of up to four.
    topics = ["/".join(levels) for n in range(1, 5) for levels in itertools.product("ab", repeat=n)]
    patterns = ["/".join(levels) for n in range(1, 4) for levels in itertools.product("ab+", repeat=n)]
    patterns += [f"{pattern}/#" for pattern in patterns if pattern.count("/") < 2] + ["#"]
    dice = random.Random(1)
    for _ in range(2000):
        one, other = Topic(dice.choice(patterns)), Topic(dice.choice(patterns))
        both = any(one.matches(topic) and other.matches(topic) for topic in topics)
        assert one.overlaps(other) == other.overlaps(one) == both, (one, other)


def test_feeds_have_topics_and_perhaps_files() -> None:
    (feed,) = deployment("net/{station}/up").feeds
    assert (feed.topic, feed.files) == (Topic("net/{station}/up"), "")
    (feed,) = deployment("net/{station}/up", files="*.jsonl").feeds
    assert feed.files == "*.jsonl"


def test_a_feed_without_a_topic_has_the_token_that_it_had() -> None:
    plain = Feed("a", "*.csv", "csv", ReadOptions())
    assert plain.token() == "c77911ee0b77694e3153809f00de909d"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("net/{station}x/up", "for one whole level"),
        ("net/#/up", "for one whole level"),
        ("net/a+/up", "for one whole level"),
        ("{a}/{a}", "names a level twice"),
        ("x" * 70_000, "longer than MQTT allows"),
        ("", "needs text"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidDeployment, match=reason):
        deployment(pattern)


def test_overlapping_topics_are_refused_by_name() -> None:
    with pytest.raises(InvalidDeployment, match=r"feeds 'f0' \(net/\{station\}/up\) and 'f1' \(net/7/\+\) overlap"):
        deployment("net/{station}/up", "net/7/+")


def test_a_document_cannot_be_a_message() -> None:
    with pytest.raises(InvalidDeployment, match=r"feed\[0\].topic needs a format that a message can have"):
        deployment("net/{station}", format="netcdf", files="*.nc")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mqtt://host", ("host", 1883, False)),
        ("mqtts://host", ("host", 8883, True)),
        ("mqtt://127.0.0.1:1234/", ("127.0.0.1", 1234, False)),
        ("mqtts://[::1]:99", ("::1", 99, True)),
    ],
)
def test_addresses_of_brokers(url: str, expected: tuple[str, int, bool]) -> None:
    assert address(url) == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://host", "no address of a broker"),
        ("host:1883", "no address of a broker"),
        ("mqtt://", "no address of a broker"),
        ("mqtt://host/topic", "no address of a broker"),
        ("mqtt://host:port", "no address of a broker"),
        ("mqtt://me:secret@host", "has no user or password in it"),
    ],
)
def test_what_is_no_address_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(InvalidDeployment, match=reason) as error:
        address(url)
    assert "secret" not in str(error.value)


def test_the_table_of_a_broker(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    (tmp_path / "secret").write_text("x")
    broker = deployment(
        "a",
        path=tmp_path / "deployment.toml",
        mqtt={"url": "mqtts://host", "ca_file": "ca.pem", "user": "me", "password_file": "secret", "client_id": "us"},
    ).broker
    assert broker is not None
    assert (broker.url, broker.user, broker.client_id) == ("mqtts://host:8883", "me", "us")
    assert (broker.ca_file, broker.password_file) == (tmp_path / "ca.pem", tmp_path / "secret")
    broker.check_files()
    (tmp_path / "secret").unlink()
    with pytest.raises(InvalidDeployment, match="mqtt.password_file is '.*/secret', which is no file"):
        broker.check_files()
    assert deployment("a").broker is None


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({}, "mqtt.url is missing"),
        ({"url": "mqtt://a@host"}, "mqtt.url cannot be used: a broker's address has no user"),
        ({"url": "mqtt://host", "password": "x"}, "mqtt.password does not belong here"),
        ({"url": "mqtts://host", "key": "/dev/../etc/passwd"}, "mqtt.key needs a certificate"),
        ({"url": "mqtt://host", "ca_file": "/etc/passwd"}, "which uses no TLS"),
        ({"url": "mqtt://host", "topics": "a"}, "mqtt.topics is an unknown key"),
    ],
)
def test_what_a_broker_cannot_be(table: object, reason: str) -> None:
    with pytest.raises(InvalidDeployment, match=reason):
        deployment("a", mqtt=table)
