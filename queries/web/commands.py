"""Commands `hypergrid keys …`, and the conversion of settings to access rules."""

import os
import time
from pathlib import Path
from typing import Annotated, get_args

import typer

from hypergrid.archive.disk.lock import is_free
from hypergrid.archive.state_backup import ACCESS_MARKER
from hypergrid.cli.archive_argument import ArchiveArgument, ArchiveCommand
from hypergrid.cli.console import show_json, show_message, show_table
from hypergrid.cli.options import JsonOption
from hypergrid.core.errors import ArchiveConflict, HyperGridError, InvalidQuery, NotFound
from hypergrid.core.names import find_name, make_slug
from hypergrid.core.settings import Settings, read_settings
from hypergrid.core.times import SECOND_NS, format_instant, parse_duration, parse_instant
from hypergrid.query import open_archive
from queries.jobs.admission import Limits
from queries.standing.service import standing_folder
from queries.web.auth.access import AUDIT_FILE, LOOPBACK, Access, Audit, CallerLimits, Rules
from queries.web.auth.keys import FILE, FOLDER, KEY_NAME, LIMITS, SCOPES, Key, KeyStore, Scope

keys_app = typer.Typer(help="Access keys of `hypergrid serve`: made once, kept as a hash.", no_args_is_help=True)

SettingsOption = Annotated[
    Path | None, typer.Option("--settings", help="Settings file (TOML): where the server keeps keys.")
]


def state_folder(archive: Path, settings: Settings) -> Path:
    """Return the folder in which the server of an archive stores keys, jobs and the audit log."""
    return Path(settings.state) if settings.state else archive / FOLDER


class NotWritable(HyperGridError, OSError):
    """A folder for the server's state is not writable."""


def written_folders(archive: Path, settings: Settings) -> dict[str, Path]:
    """Find the folders that a server of an archive writes to, by their content.

    Raises
    ------
    NotWritable
        One of them is not writable.
    """
    if settings.read_only:
        return {}
    folders = {"state": state_folder(archive, settings), "standing": standing_folder(archive, settings)}
    for folder in folders.values():
        # A folder that does not exist yet would be created in its nearest existing parent.
        if not os.access(next(parent for parent in (folder, *folder.absolute().parents) if parent.exists()), os.W_OK):
            raise NotWritable(
                f"{folder} cannot be written; serve with --read-only, or give the settings 'state' and "
                "'standing_folder', folders that can be"
            )
    # A read-only archive is served with both elsewhere.
    return {"archive": archive, **folders} if os.access(archive, os.W_OK) else folders


def rules_of(settings: Settings, host: str) -> Rules:
    """Make the access rules of a server that listens on a host."""
    address = f"[{host}]" if ":" in host else host
    keyed = Limits(settings.cells, settings.allowed_bytes, settings.seconds, settings.queries)
    anonymous = Limits(
        settings.anonymous_cells, settings.anonymous_bytes, settings.anonymous_seconds, settings.anonymous_queries
    )
    return Rules(
        keyed=CallerLimits(settings.requests_per_s, settings.streams, keyed),
        anonymous=CallerLimits(settings.anonymous_requests_per_s, settings.anonymous_streams, anonymous),
        anonymous_read=settings.anonymous_read,
        session_s=settings.session_s,
        names=tuple(dict.fromkeys([*LOOPBACK, address, *settings.names])),
        origins=tuple(_origin(origin, "origins") for origin in settings.origins),
        embed_origins=tuple(_origin(origin, "embed_origins") for origin in settings.embed_origins),
        trusted_proxies=settings.trusted_proxies,
        root_path=_root_path(settings.root_path),
    )


def access_of(archive: Path, settings: Settings, host: str, *, required: bool) -> Access:
    """Make the access control of an archive's server.

    A marker in the archive also counts if the server's state is elsewhere: moving the state does not turn access
    control off.
    """
    store = KeyStore(state_folder(archive, settings) / FILE)
    is_marked = (archive / FOLDER / ACCESS_MARKER).exists()
    return Access(store, time.time_ns, rules_of(settings, host), required=required or is_marked)


def audit_of(archive: Path, settings: Settings) -> Audit:
    return Audit(state_folder(archive, settings) / AUDIT_FILE)


def _root_path(text: str) -> str:
    path = f"/{text.strip('/')}" if text.strip("/") else ""
    if any(part in ("", ".", "..") for part in path.split("/")[1:]) or not path.isascii() or "?" in path:
        raise InvalidQuery(f"the setting 'root_path' needs a path such as /stations; got {text!r}")
    return path


def _origin(text: str, setting: str) -> str:
    scheme, _, host = text.partition("://")
    if scheme not in ("http", "https") or not host or set(host) & set("/*@?;,'\" "):
        raise InvalidQuery(
            f"the setting {setting!r} needs exact origins such as https://maps.example.org; got {text!r}"
        )
    return text


def _store(archive: Path, settings: Path | None) -> tuple[KeyStore, Audit]:
    given = read_settings(settings)
    # Fail here if the folder is not an archive: keys made there would be useless.
    open_archive(archive)
    return KeyStore(state_folder(archive, given) / FILE), audit_of(archive, given)


@keys_app.command("create", cls=ArchiveCommand)
def create(
    archive: ArchiveArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is, or what for.")],
    *,
    scope: Annotated[
        str,
        typer.Option(
            help="What it may, each with all before it: read, operate (metrics, engine, rejects, alerts), "
            "query (ask queries), write (standing queries), admin."
        ),
    ] = "query",
    expires: Annotated[
        str | None, typer.Option(help="Its end: an instant, or how long from now, such as 90day.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(help=f"Limit of its own, NAME=NUMBER, of {', '.join(LIMITS)}; may be given again."),
    ] = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an access key. It is shown now, and never again."""
    if scope not in SCOPES:
        raise NotFound.among(kind="scope", given=scope, existing=SCOPES)
    chosen: Scope = next(candidate for candidate in get_args(Scope) if candidate == scope)
    store, audit = _store(archive, settings)
    if not KEY_NAME.fullmatch(name):
        name = make_slug(name) or name
    now_ns = time.time_ns() // SECOND_NS * SECOND_NS
    key, text = store.create(
        name, chosen, now_ns=now_ns, expires_ns=_parse_end(expires, now_ns), limits=dict(map(_parse_limit, limit or []))
    )
    audit.note(now_ns=now_ns, label="command line", what="keys create", about=f"{key.name} ({key.id})", scope=key.scope)
    if as_json:
        show_json({**_describe_key(key, now_ns), "key": text})
        return
    until = "" if key.expires_ns is None else f", until {format_instant(key.expires_ns)}"
    show_message(f"key {key.name!r} of scope {key.scope}{until}; keep it now, for it is shown only once:")
    print(text)


@keys_app.command("list", cls=ArchiveCommand)
def listing(
    archive: ArchiveArgument,
    *,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the access keys, without what opens."""
    store, _ = _store(archive, settings)
    rows = [_describe_key(key, time.time_ns()) for key in store.keys()]
    for row in store.list_damaged():
        show_message(f"warning: {row} in {store.path} is damaged, and opens nothing; make a new key for whoever had it")
    if as_json:
        show_json(rows)
        return
    columns = ("id", "name", "scope", "state", "created", "expires", "limits")
    shown = [{**row, "state": f"{row['state']}: {row['reason']}" if row["reason"] else row["state"]} for row in rows]
    show_table("Access keys", columns, [tuple(str(row[name] or "") for name in columns) for row in shown])


@keys_app.command("revoke", cls=ArchiveCommand)
def revoke(
    archive: ArchiveArgument,
    name_or_id: Annotated[str, typer.Argument(metavar="KEY", help="Name or id of the key.")],
    *,
    settings: SettingsOption = None,
) -> None:
    """Have an access key open nothing any more, from the next request on."""
    store, audit = _store(archive, settings)
    now_ns = time.time_ns() // SECOND_NS * SECOND_NS
    key = store.revoke(find_name(name_or_id, dict.fromkeys((key.name for key in store.keys()), "")), now_ns=now_ns)
    audit.note(now_ns=now_ns, label="command line", what="keys revoke", about=f"{key.name} ({key.id})")
    show_message(f"key {key.name!r} ({key.id}) opens nothing any more")


@keys_app.command("off", cls=ArchiveCommand)
def off(
    archive: ArchiveArgument,
    *,
    settings: SettingsOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove the keys for good.")] = False,
) -> None:
    """Turn access control off: remove all keys, and let everybody on this machine do everything."""
    from queries.standing.service import LOCK  # noqa: PLC0415 - the other commands need no standing queries

    store, audit = _store(archive, settings)
    if not yes:
        raise InvalidQuery(
            f"keys off removes all access keys ({store.path}) for good, and lets everybody on this machine do "
            "everything; add --yes to do so"
        )
    if not is_free(standing_folder(archive, read_settings(settings)) / LOCK):
        raise ArchiveConflict(f"a server of {archive} is running; stop it before access control is turned off")
    # Keys in the archive also count if the server's state is elsewhere.
    was_on = [key_store.remove() for key_store in (store, KeyStore(archive / FOLDER / FILE))]
    if not any(was_on):
        show_message("access control is off already: there are no keys")
        return
    audit.note(now_ns=time.time_ns() // SECOND_NS * SECOND_NS, label="command line", what="keys off")
    show_message("access control is off: all keys were removed, and everybody on this machine may do everything")


def _describe_key(key: Key, now_ns: int) -> dict[str, object]:
    return {
        "id": key.id, "name": key.name, "scope": key.scope, "state": key.state(now_ns), "reason": key.reason,
        "created": format_instant(key.created_ns),
        "expires": None if key.expires_ns is None else format_instant(key.expires_ns), "limits": dict(key.limits),
    }  # fmt: skip


def _parse_end(text: str | None, now_ns: int) -> int | None:
    if text is None:
        return None
    try:
        return now_ns + parse_duration(text)
    except ValueError:
        return parse_instant(text)


def _parse_limit(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError as error:
        raise InvalidQuery(f"--limit needs NAME=NUMBER, such as cells=1000000; got {text!r}") from error
