"""What is wrong with a standing query is said when it is made, in clear words."""

from collections.abc import Callable
from typing import Any

import pytest

from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, InvalidUnit, NotFound
from hypergrid.core.settings import Settings
from queries.standing.definition import RESERVED, Conflict, check_address, definition_from_json
from queries.standing.repository import CatalogueDamaged, EvaluationProgress, StandingStore, TooManyStanding
from queries.standing.service import StandingQueries
from queries.web.routes.standing import router
from tests.queries.standing.live import Clock, Live
from tests.support.standing_runner import settle

AIR = {"variable": "air_temperature", "steps": []}
HOT = {"kind": "threshold", "above": 20}


@pytest.mark.parametrize(
    ("document", "error", "words"),
    [
        ({"query": AIR}, InvalidQuery, "needs the key 'name'"),
        ({"name": "x"}, InvalidQuery, "needs the key 'query'"),
        ([], InvalidQuery, "a JSON object with a name and a query; got list"),
        ({"name": "A b", "query": AIR}, InvalidQuery, "lower-case letters, digits"),
        ({"name": "../x", "query": AIR}, InvalidQuery, "lower-case letters, digits"),
        ({"name": "x", "query": AIR, "wait": 1}, NotFound, "did you mean 'weight'|There are"),
        ({"name": "x", "query": AIR, "weight": 0}, InvalidQuery, "weight of standing query 'x' .* above zero; got 0"),
        ({"name": "x", "query": AIR, "weight": -1}, InvalidQuery, "above zero; got -1"),
        ({"name": "x", "query": AIR, "weight": "3"}, InvalidQuery, "above zero; got '3'"),
        ({"name": "x", "query": AIR, "weight": float("nan")}, InvalidQuery, "above zero; got nan"),
        ({"name": "x", "query": AIR, "weight": 10**400}, InvalidQuery, "above zero; got one beyond all numbers"),
        ({"name": "x", "query": AIR, "validity": "36526day"}, InvalidTime, "validity of standing query 'x' .*36525day"),
        ({"name": "x", "query": AIR, "window": "180000day"}, InvalidTime, "window of .* at most 36525day; got 180"),
        ({"name": "x", "query": AIR, "class": []}, NotFound, r"class of standing query 'x' '\[\]'"),
        ({"name": "x", "query": AIR, "condition": {"kind": []}}, NotFound, r"kind of condition .* '\[\]'"),
        ({"name": "alerts", "query": AIR}, InvalidQuery, "cannot have the name 'alerts', which pages have"),
        ({"name": "x", "query": AIR, "validity": "0s"}, InvalidTime, "validity of standing query 'x': .*above zero"),
        ({"name": "x", "query": AIR, "validity": "-5min"}, InvalidTime, "validity of .*above zero"),
        ({"name": "x", "query": AIR, "validity": 5}, InvalidTime, "validity of .*a number and a unit"),
        ({"name": "x", "query": AIR, "class": "alarm"}, NotFound, "did you mean 'alert'"),
        ({"name": "x", "query": AIR, "class": "alert"}, InvalidQuery, "is an alert and has no 'condition'"),
        ({"name": "x", "query": {**AIR, "snapshot": "A"}}, InvalidQuery, "reads the newest snapshot"),
        (
            {"name": "x", "query": {**AIR, "clip": {"time": ["2007", "2008"]}}, "window": "1h"},
            InvalidQuery, "keep one of the two",
        ),
        ({"name": "x", "query": AIR, "to": "events"}, InvalidQuery, "needs a list"),
        ({"name": "x", "query": AIR, "to": ["pigeon"]}, NotFound, "unknown place that results"),
        ({"name": "x", "query": AIR, "to": ["events:x"]}, InvalidQuery, "takes no address"),
        ({"name": "x", "query": AIR, "to": ["email:a@b.org,c@d.org"]}, InvalidQuery, "one mail address"),
        ({"name": "x", "query": AIR, "to": ["email:a@b.org\nBcc: c@d.org"]}, InvalidQuery, "one mail address"),
        ({"name": "x", "query": AIR, "to": ["webhook:https://evil.org/x"]}, InvalidQuery, "'evil.org', which is not"),
        ({"name": "x", "query": AIR, "to": ["webhook:https://good.org@evil.org/x"]}, InvalidQuery, "without user"),
        ({"name": "x", "query": AIR, "to": ["webhook:file:///etc/passwd"]}, InvalidQuery, "such as https"),
        ({"name": "x", "query": AIR, "to": ["email:a\0@b.org"]}, InvalidQuery, "one mail address"),
        ({"name": "x", "query": AIR, "to": ["webhook:https://good.org:99/x"]}, InvalidQuery, "not allowed"),
        ({"name": "x", "query": AIR, "to": ["webhook:https://good.org/x"]}, InvalidQuery, "not allowed"),
        ({"name": "x", "query": AIR, "to": ["webhook:https://good.org:8443/a\nb"]}, InvalidQuery, "such as https"),
        ({"name": "x", "query": AIR, "to": ["webhook:https://good.org:84430/x"]}, InvalidQuery, "such as https"),
        ({"name": "x", "query": AIR, "to": ["webhook:ftp://good.org:8443/x"]}, InvalidQuery, "such as https"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(document: Any, error: type[HyperGridError], words: str) -> None:  # noqa: ANN401
    with pytest.raises(error, match=words):
        definition_from_json(document, Settings(webhook_hosts=("good.org:8443",)))


def test_defaults_are_those_of_the_class() -> None:
    alert = definition_from_json({"name": "hot", "query": AIR, "condition": HOT})
    assert (alert.kind, alert.weight, alert.to_json()["validity"]) == ("alert", 10.0, "10min")
    kept = definition_from_json({"name": "kept", "query": AIR, "class": "archive", "to": ["archive", "archive"]})
    assert (kept.weight, kept.to_json()["to"]) == (1.0, ["archive"])
    hooked = {"name": "x", "query": AIR, "to": ["webhook:https://good.org:8443/x", "email:a@b.org"]}
    known = definition_from_json(hooked, Settings(webhook_hosts=("good.org:8443",)))
    assert definition_from_json(known.to_json(), settings=None) == known


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("good.org", "https://good.org/x"), ("good.org", "http://GOOD.org:8080/x"), ("Good.ORG", "https://good.org/x"),
        ("good.org:443", "https://good.org/x"), ("good.org:80", "http://Good.org:80/x"),
        ("münchen.de", "https://xn--mnchen-3ya.de/x"), ("::1", "http://[::1]:90/"), ("[::1]:90", "http://[::1]:90/"),
    ],
)  # fmt: skip
def test_a_host_is_the_same_in_whatever_case_and_with_its_usual_port(allowed: str, url: str) -> None:
    document = {"name": "x", "query": AIR, "to": [f"webhook:{url}"]}
    assert definition_from_json(document, Settings(webhook_hosts=(allowed,))).to_json()["to"] == [f"webhook:{url}"]
    for other in ("good.org:81", "better.org", "x y", ""):
        with pytest.raises(InvalidQuery, match="not allowed"):
            definition_from_json(document, Settings(webhook_hosts=(other,)))


@pytest.mark.parametrize("allowed", [(), ("warden@example.org",), ("x@y.org", "@Example.ORG")])
def test_mails_go_where_they_are_allowed(allowed: tuple[str, ...]) -> None:
    document = {"name": "x", "query": AIR, "to": ["email:Warden@example.org"]}
    assert definition_from_json(document, Settings(mail_to=allowed)).to_json()["to"] == ["email:Warden@example.org"]


@pytest.mark.parametrize("allowed", ["@ample.org", "den@example.org", "example.org", "@www.example.org"])
def test_mails_go_nowhere_else(allowed: str) -> None:
    document = {"name": "x", "query": AIR, "to": ["email:warden@example.org"]}
    with pytest.raises(InvalidQuery, match=f"'warden@example.org' are not allowed; allowed are: {allowed}; .*mail_to"):
        definition_from_json(document, Settings(mail_to=(allowed,)))


def test_no_more_are_kept_than_may_be(make_standing: Callable[..., StandingQueries]) -> None:
    standing = make_standing(standing=2)
    for name in ("a", "b"):
        standing.add({"name": name, "query": AIR})
    with pytest.raises(TooManyStanding, match="there are 2 standing queries, and the setting 'standing' allows 2"):
        standing.add({"name": "c", "query": AIR})
    with pytest.raises(Conflict):
        standing.add({"name": "a", "query": AIR})
    standing.remove("a")
    standing.add({"name": "c", "query": AIR})


def test_names_that_are_pages_are_reserved() -> None:
    paths = [route.path.split("/") for route in router(None).routes]  # type: ignore[arg-type, attr-defined]
    pages = {path[2] for path in paths if len(path) > 2 and not path[2].startswith("{")}
    assert pages == set(RESERVED)


def test_what_an_earlier_program_took_stands_and_can_be_removed(standing: StandingQueries) -> None:
    """One that may not be made now does not take the others with it."""
    document = {"name": "alerts", "query": AIR, "validity": "400day", "to": ["webhook:https://a.org/a\nb"]}
    made = definition_from_json(document, settings=None)
    standing.store.add(made, EvaluationProgress("unknown"), now_ns=0)
    standing.add({"name": "calm", "query": AIR})
    settle(standing.runner)
    assert [one["name"] for one in standing.listing()] == ["alerts", "calm"]
    assert standing.test("alerts").number == 1
    assert standing.notification_workers.deliver_next()
    assert standing.store.count_messages() == {"refused": 1}
    standing.remove("alerts")
    assert [one["name"] for one in standing.listing()] == ["calm"]


def test_a_mute_ends_after_now_and_within_the_calendar(standing: StandingQueries, clock: Clock) -> None:
    standing.add({"name": "hot", "query": AIR, "condition": HOT})
    for until_ns in (0, clock.ns, 2**63, 10**30):
        with pytest.raises(InvalidTime, match="needs an end between now, 2007-10-01T00:00Z, and 2261; got"):
            standing.mute("hot", until_ns)
    assert standing.show("hot")["muted_until"] is None
    standing.mute("hot", clock.ns + 1)
    assert standing.show("hot")["muted_until"] == "2007-10-01T00:00:00.000000001Z"


def test_an_empty_clip_is_none(standing: StandingQueries, live: Live) -> None:
    standing.add({"name": "hot", "query": {**AIR, "clip": None}, "condition": HOT, "window": "1h"})
    live.everywhere(10, 30.0)
    settle(standing.runner)
    assert len(standing.alerts()) == 4


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"query": {"variable": "air_temp", "steps": []}}, NotFound, "did you mean 'air_temperature'.*surface_temp"),
        ({"query": {**AIR, "select": {"station": "99"}}}, HyperGridError, "99"),
        ({"condition": {"kind": "threshold", "above": "3 m"}}, InvalidUnit, "'3 m'|does not convert"),
        (
            {"query": {**AIR, "steps": [{"op": "aggregate", "function": "mean", "time": "hour_of_day"}]}},
            InvalidQuery, "time cells that follow one another",
        ),
        (
            {"condition": {"kind": "dead"}, "query": {**AIR, "steps": [{"op": "convert", "function": "valid_range"}]}},
            InvalidQuery, "leave the steps of the query away",
        ),
    ],
)  # fmt: skip
def test_what_the_archive_cannot_answer_is_refused(
    standing: StandingQueries, more: dict[str, Any], error: type[HyperGridError], words: str
) -> None:
    with pytest.raises(error, match=words):
        standing.add({"name": "hot", "query": AIR, "condition": HOT, **more})
    assert standing.listing() == []


def test_the_catalogue_outlives_its_process(make_standing: Callable[..., StandingQueries]) -> None:
    first = make_standing()
    first.add({"name": "hot", "query": AIR, "condition": HOT})
    first.add({"name": "calm", "query": AIR, "window": "1h"})
    first.pause("calm")
    first.mute("hot", 2**62)
    second = make_standing()
    listed = {one["name"]: one for one in second.listing()}
    assert list(listed) == ["hot", "calm"]
    assert listed["calm"]["paused"]
    assert listed["hot"]["muted_until"] is not None
    second.mute("hot", None)
    second.resume("calm")
    assert first.show("hot")["muted_until"] is None
    second.remove("hot")
    with pytest.raises(NotFound, match="unknown standing query 'hot'.*There are: calm"):
        first.show("hot")
    with pytest.raises(Conflict, match="'calm' is there already"):
        first.add({"name": "calm", "query": AIR})


def test_a_file_that_is_no_catalogue_is_told(tmp_path: Any) -> None:  # noqa: ANN401
    (tmp_path / "standing.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(CatalogueDamaged, match=r"standing\.sqlite cannot be read"):
        StandingStore(tmp_path / "standing.sqlite")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.9", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1",
     "fe80::1%eth0", "fd00::1", "::ffff:10.1.2.3", "224.0.0.1", "255.255.255.255"],
)  # fmt: skip
def test_addresses_that_are_not_public_need_to_be_named(address: str) -> None:
    with pytest.raises(InvalidQuery, match=r"not a public address.*webhook_hosts"):
        check_address(address, ("hooks.example.org", "10.2.0.0/16"), "this alert")
    host = address.partition("%")[0].removeprefix("::ffff:")
    for named in (host, f"{host}/12" if "." in host else f"{host}/64"):
        check_address(address, ("hooks.example.org", named), "this alert")


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"])
def test_public_addresses_need_no_name(address: str) -> None:
    check_address(address, ("hooks.example.org",), "this alert")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_who_names_this_machine_means_its_addresses(address: str) -> None:
    check_address(address, ("localhost:8080",), "this alert")
