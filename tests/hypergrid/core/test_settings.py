"""Settings: a mistake is told with the place where it was made."""

from pathlib import Path

import pytest

from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.settings import Settings, read_settings


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nope.toml", tmp_path):
        with pytest.raises(InvalidDeployment, match=f"settings file {path} cannot be read"):
            read_settings(path, {})


@pytest.mark.parametrize(("content", "words"), [(b"port = 1\nqueue = = 2\n", "line 2"), (b"\xff", "utf-8")])
def test_no_toml_is_told_with_its_file_and_line(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(InvalidDeployment, match=rf"bad\.toml is no TOML.*{words}"):
        read_settings(tmp_path / "bad.toml", {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = 65536", "'port' needs a whole number from 0 to 65535; got 65536"),
        ("port = -1", "from 0 to 65535"),
        ("port = 80.5", "whole number"),
        ("port = true", "whole number"),
        ("queue = 0", "'queue' needs a whole number of at least 1; got 0"),
        ("kept_bytes = 0", "at least 1"),
        ("allowed_bytes = -5", "at least 1"),
        ("host = 5", "'host' needs an address"),
        ('host = ""', "'host' needs an address"),
        (
            "ports = 1",
            "unknown setting 'ports'; there are: allowed_bytes, .*host, .*kept_bytes, .*port, queries",
        ),
        ("mail_server = 25", "'mail_server' needs a host, or host:port, as text; got 25"),
        ("webhook_hosts = 5", "'webhook_hosts' needs a list of names"),
        ('webhook_hosts = [""]', "'webhook_hosts' needs a list of names"),
        ('anonymous_read = "yes"', "'anonymous_read' needs true or false; got 'yes'"),
        ("session_s = 1", "from 60 to 2592000"),
        ('smtp_starttls = "yes"', "'smtp_starttls' needs true or false"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(InvalidDeployment, match=words) as caught:
        read_settings(tmp_path / "s.toml", {})
    assert str(tmp_path / "s.toml") in str(caught.value)


@pytest.mark.parametrize("missing", ["smtp_starttls", "smtp_password_file"])
def test_a_login_needs_a_password_and_tls(missing: str) -> None:
    given = {"HYPERGRID_SMTP_USER": "a", "HYPERGRID_SMTP_PASSWORD_FILE": "p", "HYPERGRID_SMTP_STARTTLS": "true"}
    assert read_settings(None, given).smtp_user == "a"
    del given[f"HYPERGRID_{missing.upper()}"]
    with pytest.raises(InvalidDeployment, match="'smtp_password_file' and 'smtp_starttls = true'"):
        read_settings(None, given)


def test_the_environment_is_checked_likewise() -> None:
    with pytest.raises(InvalidDeployment, match="HYPERGRID_QUEUE: setting 'queue'"):
        read_settings(None, {"HYPERGRID_QUEUE": "0"})


def test_the_bounds_themselves_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("port = 0\nqueue = 1\nallowed_bytes = 1\nkept_bytes = 1\n")
    assert read_settings(tmp_path / "s.toml", {}) == Settings(port=0, allowed_bytes=1, kept_bytes=1, queue=1)


def test_a_list_is_parted_by_commas_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('webhook_hosts = ["a.org", "b.org:8443"]\nmail_server = "mail.org:25"\n')
    given = read_settings(tmp_path / "s.toml", {})
    assert (given.webhook_hosts, given.mail_server) == (("a.org", "b.org:8443"), "mail.org:25")
    assert read_settings(None, {"HYPERGRID_WEBHOOK_HOSTS": "a.org, b.org:8443"}).webhook_hosts == given.webhook_hosts


def test_a_switch_is_on_or_off(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("anonymous_read = true\n")
    assert read_settings(tmp_path / "s.toml", {}).anonymous_read
    assert not read_settings(tmp_path / "s.toml", {"HYPERGRID_ANONYMOUS_READ": "false"}).anonymous_read
