"""Letters arrive at least once; one that hangs, redirects or is not allowed harms nobody else."""

import base64
import hashlib
import hmac
import json
import shutil
import socket
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hypergrid.archive.disk.row_checksums import DamagedState
from hypergrid.core.settings import Settings
from queries.standing import notifications
from queries.standing.notifications import NotificationWorkers, Undelivered
from queries.standing.repository import CatalogueUnavailable
from queries.standing.service import StandingQueries
from tests.queries.standing.hook import Hook
from tests.queries.standing.live import Live
from tests.queries.standing.mail_server import MailServer
from tests.support.standing_runner import is_fresh

AIR = {"variable": "air_temperature", "steps": []}
HOT = {"kind": "threshold", "above": 20, "clear": 18}


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.gate.set()
    made.server.shutdown()


@pytest.fixture
def make_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ssl.SSLContext]:
    """A certificate for localhost that clients of this test trust, as the context of a server."""

    def make() -> ssl.SSLContext:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl on the PATH, which makes the certificate")
        key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=DNS:localhost",
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    return make


def test_an_alert_arrives_once_with_its_id_and_a_test_says_that_it_is_one(
    make_standing: Callable[..., StandingQueries],
    live: Live,
    hook: Hook,
    wait_until: Callable[..., None],
) -> None:
    standing = make_standing(webhook_hosts=(hook.host,))
    standing.add({"name": "hot", "query": AIR, "condition": HOT, "to": [hook.url("/a")]})
    standing.start()
    live.add(10, {"2": 30.0})
    wait_until(lambda: len(hook.got) == 1)
    standing.test("hot")
    wait_until(lambda: standing.store.count_messages().get("sent") == 2)
    (path, first), (_, second) = hook.got
    assert path == "/a"
    assert (first["id"], first["happening"], first["place"]) == ("live-1", "raised", "2")
    assert first["readings"][0]["value"] == 30.0
    assert not first["possible_repeat"]
    assert (second["id"], second["happening"]) == ("live-2", "test")


def test_letters_to_webhooks_are_signed_as_standard_webhooks_says(
    make_standing: Callable[..., StandingQueries],
    live: Live,
    hook: Hook,
    wait_until: Callable[..., None],
) -> None:
    standing = make_standing(webhook_hosts=(hook.host,))
    standing.add({"name": "hot", "query": AIR, "condition": HOT, "to": [hook.url("/a")]})
    standing.start()
    live.add(10, {"2": 30.0})
    wait_until(lambda: len(hook.raw) == 1)
    ((headers, content),) = hook.raw
    key = base64.b64decode(standing.webhook_secret.removeprefix("whsec_"))
    assert len(key) == 32
    said = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), content])
    expected = base64.b64encode(hmac.new(key, said, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-id"] == json.loads(content)["id"]
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    file = standing.store.path.parent / notifications.SECRET
    assert file.stat().st_mode & 0o777 == 0o600
    assert notifications.webhook_secret(file.parent) == standing.webhook_secret
    file.write_text("whsec_short")
    with pytest.raises(DamagedState, match="holds no secret of webhooks; remove it"):
        notifications.webhook_secret(file.parent)


def test_the_signature_is_that_of_the_standards_example() -> None:
    secret, letter = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    found = notifications.sign_message(secret, letter, "1614265330", '{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_name_that_leads_into_a_private_network_gets_nothing_unless_that_is_named(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, find = int(hook.host.rpartition(":")[2]), socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: find("127.0.0.1" if "hooks" in host else host, *rest, **more),
    )
    url, body = f"http://hooks.example.org:{port}/a", {"id": "x-1", "possible_repeat": False}
    secret = "whsec_" + "A" * 32
    with pytest.raises(notifications.Undelivered, match="leads to 127.0.0.1, which is not a public address") as caught:
        notifications.send_webhook(url, body, ("hooks.example.org",), secret)
    assert caught.value.for_good
    assert hook.got == []
    notifications.send_webhook(url, body, ("hooks.example.org", "127.0.0.0/8"), secret)
    assert len(hook.got) == 1


def test_letters_go_on_after_a_full_disk(
    make_standing: Callable[..., StandingQueries],
    live: Live,
    hook: Hook,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
) -> None:
    standing = make_standing(webhook_hosts=(hook.host,))
    standing.add({"name": "hot", "query": AIR, "condition": HOT, "to": [hook.url("/a")]})
    sending, tried = standing.store.mark_sending, []

    def failing(letter: int) -> object:
        tried.append(letter)
        if len(tried) <= 3:
            message = "database or disk is full"
            raise sqlite3.OperationalError(message)
        return sending(letter)

    monkeypatch.setattr(standing.store, "mark_sending", failing)
    standing.start()
    live.add(10, {"2": 30.0})
    wait_until(lambda: len(hook.got) == 1)
    wait_until(lambda: standing.store.count_messages() == {"sent": 1})
    assert not hook.got[0][1]["possible_repeat"]


def test_a_webhook_that_hangs_or_redirects_holds_up_nobody(
    make_standing: Callable[..., StandingQueries],
    live: Live,
    hook: Hook,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
) -> None:
    monkeypatch.setattr(notifications, "TIMEOUT_S", 0.5)
    standing = make_standing(webhook_hosts=(hook.host,))
    for name in ("hang", "away", "fine"):
        standing.add({"name": name, "query": AIR, "condition": HOT, "to": [hook.url(f"/{name}")]})
    standing.start()
    live.add(10, {"2": 30.0})
    wait_until(lambda: any(path == "/fine" for path, _ in hook.got))
    for slice_ in range(11, 14):
        live.add(slice_, {"2": 30.0})
    wait_until(lambda: is_fresh(standing.runner))
    wait_until(lambda: standing.notification_workers.failures >= 2)
    wait_until(lambda: standing.store.count_messages() == {"sent": 1, "waiting": 2})
    assert not any(path == "/elsewhere" for path, _ in hook.got)


def test_hosts_that_drip_hold_up_nobody(
    make_standing: Callable[..., StandingQueries],
    hook: Hook,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
) -> None:
    """Each byte comes long before a read gives up; only the whole takes too long."""
    monkeypatch.setattr(notifications, "TIMEOUT_S", 1.0)
    dripping = [Hook() for _ in range(notifications.WORKERS)]
    standing = make_standing(webhook_hosts=("127.0.0.1",))
    for number, one in enumerate(dripping):
        standing.add({"name": f"drip{number}", "query": AIR, "condition": HOT, "to": [one.url("/drip")]})
        standing.test(f"drip{number}")
    standing.add({"name": "good", "query": AIR, "condition": HOT, "to": [hook.url("/a")]})
    standing.test("good")
    standing.notification_workers.start()
    wait_until(lambda: len(hook.got) == 1)
    wait_until(lambda: standing.notification_workers.failures >= len(dripping))
    wait_until(lambda: standing.store.count_messages().get("sent") == 1)
    for one in dripping:
        # The line is shut, so that nothing goes on behind our back.
        assert one.hung_up.wait(60)
        one.gate.set()
        one.server.shutdown()


def test_a_mail_server_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "TIMEOUT_S", 0.5)
    listening = socket.create_server(("127.0.0.1", 0))
    hung_up = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(b"220-")
            while True:
                time.sleep(0.1)
                connection.sendall(b"a")
        hung_up.set()

    threading.Thread(target=serve, daemon=True).start()
    settings = Settings(mail_server=f"127.0.0.1:{listening.getsockname()[1]}")
    body = {"id": "live-1", "possible_repeat": False, "query": "hot", "happening": "test", "place": "2", "text": ""}
    with pytest.raises(Undelivered, match="was given 0.5 s in all"):
        notifications.send_mail("warden@example.org", body, settings)
    assert hung_up.wait(60)
    listening.close()


@pytest.mark.parametrize(
    ("answer", "post"),
    [
        (400, {"refused": 1, "sent": 3}), (404, {"refused": 1, "sent": 3}), (422, {"refused": 1, "sent": 3}),
        # What says that it is no moment for it, or that the server fails, is tried again, and the others wait for it.
        (408, {"waiting": 4}), (429, {"waiting": 4}), (500, {"waiting": 4}), (302, {"waiting": 4}),
    ],
)  # fmt: skip
def test_what_is_refused_for_itself_holds_up_no_other(
    make_standing: Callable[..., StandingQueries], hook: Hook, answer: int, post: dict[str, int]
) -> None:
    standing = make_standing(webhook_hosts=(hook.host,))
    standing.add({"name": "hot", "query": AIR, "condition": HOT, "to": [hook.url(f"/answers/{answer}")]})
    for _ in range(4):
        standing.test("hot")
    while standing.notification_workers.deliver_next():
        pass
    assert standing.store.count_messages() == post
    first, *others = [body["number"] for _, body in hook.got]
    assert first == 1
    assert others == ([2, 3, 4] if "sent" in post else [])


def test_how_a_letter_ended_is_written_down_once_it_can_be(
    make_standing: Callable[..., StandingQueries], hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = make_standing(webhook_hosts=(hook.host,))
    standing.add({"name": "hot", "query": AIR, "condition": HOT, "to": [hook.url("/a")]})
    now = [0.0]
    send = {
        "webhook": lambda letter, body: notifications.send_webhook(letter.target.address, body, (hook.host,), "whsec_")
    }
    carriers = NotificationWorkers(standing.store, "live", send, monotonic=lambda: now[0])
    sent, tried = standing.store.mark_sent, []

    def failing(*ended: Any) -> None:  # noqa: ANN401
        tried.append(ended)
        if len(tried) in (1, 2, 4):
            message = "the disk is full"
            raise CatalogueUnavailable(message)
        sent(*ended)

    monkeypatch.setattr(standing.store, "mark_sent", failing)
    # It did not arrive, which cannot be noted twice; then it goes again, without a new start.
    standing.test("hot")
    hook.failures = 1
    for _ in range(2):
        with pytest.raises(CatalogueUnavailable):
            carriers.deliver_next()
        assert standing.store.count_messages() == {"sending": 1}
    assert not carriers.deliver_next()
    assert standing.store.count_messages() == {"waiting": 1}
    # It arrived, which cannot be noted; it does not go again.
    now[0] = 10.0
    with pytest.raises(CatalogueUnavailable):
        carriers.deliver_next()
    assert not carriers.deliver_next()
    assert standing.store.count_messages() == {"sent": 1}
    assert [body["possible_repeat"] for _, body in hook.got] == [False, True]


def test_a_failure_is_tried_again_later_marked_as_a_possible_repeat(
    make_standing: Callable[..., StandingQueries],
    live: Live,
    hook: Hook,
) -> None:
    standing = make_standing(webhook_hosts=(hook.host,))
    standing.add({"name": "hot", "query": AIR, "condition": HOT, "to": [hook.url("/a")]})
    standing.test("hot")
    now = [0.0]
    send = {
        "webhook": lambda letter, body: notifications.send_webhook(letter.target.address, body, (hook.host,), "whsec_")
    }
    carriers = NotificationWorkers(standing.store, "live", send, monotonic=lambda: now[0])
    hook.failures = 3
    pauses = []
    while standing.store.count_messages() != {"sent": 1}:
        before = len(hook.got)
        while not (carriers.deliver_next() or len(hook.got) > before):
            now[0] += 0.5
        pauses.append(now[0])
    assert [body["possible_repeat"] for _, body in hook.got] == [False, True, True, True]
    assert len({body["id"] for _, body in hook.got}) == 1
    assert pauses == [0.0, 2.0, 6.0, 14.0]


def test_what_a_dead_process_was_sending_is_sent_again_and_says_so(
    make_standing: Callable[..., StandingQueries],
    hook: Hook,
    wait_until: Callable[..., None],
) -> None:
    first = make_standing(webhook_hosts=(hook.host,))
    first.add({"name": "hot", "query": AIR, "condition": HOT, "to": [hook.url("/a")]})
    first.test("hot")
    ((letter, _),) = first.store.list_waiting()
    assert first.store.mark_sending(letter) is not None
    # It dies here.
    second = make_standing(webhook_hosts=(hook.host,))
    second.notification_workers.start()
    wait_until(lambda: len(hook.got) == 1)
    assert hook.got[0][1]["possible_repeat"]


def test_a_host_that_is_allowed_no_more_is_refused_for_good(
    make_standing: Callable[..., StandingQueries],
    hook: Hook,
) -> None:
    make_standing(webhook_hosts=(hook.host,)).add(
        {"name": "hot", "query": AIR, "condition": HOT, "to": [hook.url("/a")]}
    )
    standing = make_standing()
    standing.test("hot")
    assert standing.notification_workers.deliver_next()
    assert standing.store.count_messages() == {"refused": 1}
    assert hook.got == []


def test_mail_goes_to_the_server_of_the_settings(make_standing: Callable[..., StandingQueries]) -> None:
    mail_server = MailServer()
    standing = make_standing(mail_server=f"127.0.0.1:{mail_server.port}", mail_from="grid@example.org")
    standing.add({"name": "hot", "query": AIR, "condition": HOT, "to": ["email:warden@example.org"]})
    # The name of a place is what a station's file says.
    body = {**standing.test("hot").body, "place": "no\r\nBcc: all@example.org\nwhere"}
    standing.store._db.execute("UPDATE alerts SET body = ?", (json.dumps(body),))
    assert standing.notification_workers.deliver_next()
    assert standing.store.count_messages() == {"sent": 1}
    text = mail_server.read_lines()
    assert "To: warden@example.org" in text
    assert "From: grid@example.org" in text
    assert "Subject: hot: test at no Bcc: all@example.org where" in text


BODY = {"id": "live-1", "possible_repeat": False, "query": "hot", "happening": "test", "place": "2", "text": ""}


def test_mail_is_sent_over_tls_after_a_login(make_certificate: Callable[[], ssl.SSLContext], tmp_path: Path) -> None:
    mail_server = MailServer(make_certificate())
    (tmp_path / "password").write_text("secret phrase\n")
    settings = Settings(
        mail_server=f"localhost:{mail_server.port}", smtp_starttls=True, smtp_user="grid",
        smtp_password_file=str(tmp_path / "password"),
    )  # fmt: skip
    notifications.send_mail("warden@example.org", BODY, settings)
    before, after = mail_server.read_lines().split("STARTTLS\n")
    assert "AUTH" not in before
    login = base64.b64encode(b"\0grid\0secret phrase").decode()
    assert f"AUTH PLAIN {login}\n" in after
    assert "To: warden@example.org" in after


def test_a_certificate_that_nobody_vouches_for_gets_no_mail(
    make_certificate: Callable[[], ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    mail_server = MailServer(make_certificate())
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(Undelivered, match="CERTIFICATE_VERIFY_FAILED") as caught:
        notifications.send_mail(
            "warden@example.org", BODY, Settings(mail_server=f"localhost:{mail_server.port}", smtp_starttls=True)
        )
    assert not caught.value.for_good
    assert "MAIL" not in mail_server.read_lines()


def test_a_mail_server_without_tls_gets_no_mail() -> None:
    mail_server = MailServer()
    with pytest.raises(Undelivered, match="STARTTLS"):
        notifications.send_mail(
            "warden@example.org", BODY, Settings(mail_server=f"127.0.0.1:{mail_server.port}", smtp_starttls=True)
        )
    assert "MAIL" not in mail_server.read_lines()


def test_a_password_file_that_is_missing_is_named(tmp_path: Path) -> None:
    settings = Settings(
        mail_server="localhost:1", smtp_starttls=True, smtp_user="grid", smtp_password_file=str(tmp_path / "none")
    )
    with pytest.raises(Undelivered, match="'smtp_password_file', .*none, cannot be read"):
        notifications.send_mail("warden@example.org", BODY, settings)


def test_mail_to_an_address_that_is_not_allowed_any_more_is_refused() -> None:
    with pytest.raises(Undelivered, match="'warden@example.org' are not allowed") as caught:
        notifications.send_mail("warden@example.org", {}, Settings(mail_server="127.0.0.1:1", mail_to=("@other.org",)))
    assert caught.value.for_good


def test_without_a_mail_server_mail_waits_and_says_why(make_standing: Callable[..., StandingQueries]) -> None:
    standing = make_standing()
    standing.add({"name": "hot", "query": AIR, "condition": HOT, "to": ["email:warden@example.org"]})
    standing.test("hot")
    assert standing.notification_workers.deliver_next()
    assert standing.store.count_messages() == {"waiting": 1}
    with pytest.raises(Undelivered, match="give the setting 'mail_server'"):
        notifications.send_mail("warden@example.org", {}, Settings())
