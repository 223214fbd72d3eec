"""Commands `hypergrid standing …`."""

import getpass
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hypergrid.archive.disk.lock import is_free
from hypergrid.cli.archive_argument import ArchiveArgument, ArchiveCommand
from hypergrid.cli.console import show_json, show_message, show_table
from hypergrid.cli.options import JsonOption
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.names import find_name, make_slug
from hypergrid.core.settings import read_settings
from hypergrid.core.times import format_instant, parse_duration, parse_instant
from hypergrid.query import open_archive, read_document
from queries.standing.repository import Remark
from queries.standing.service import LOCK, StandingQueries, standing_folder

standing_app = typer.Typer(
    help="Queries that stand: evaluated when slices come, with alerts. `hypergrid serve` runs them.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the standing query, or its title.")]


SettingsOption = Annotated[
    Path | None, typer.Option("--settings", help="Settings file (TOML): folder of standing queries, hosts of webhooks.")
]


Numbers = Annotated[
    list[int] | None, typer.Option("--number", min=1, help="Of this alert; may be repeated. Default: all that stand.")
]


def _open_standing(archive: Path, settings: Path | None) -> StandingQueries:
    return StandingQueries(open_archive(archive), read_settings(settings), clock=time.time_ns)


def _name_by_title(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with a slug for a name, and the name as it was written for a title."""
    given = document.get("name")
    slug = make_slug(given) if isinstance(given, str) else ""
    return {"title": given, **document, "name": slug} if slug and slug != given else document


def _find_query(standing: StandingQueries, given: str) -> str:
    """Return the name of the standing query that is meant by its name or its title."""
    return find_name(given, {entry.definition.name: entry.definition.title for entry in standing.store.entries()})


def _is_served(archive: Path, settings: Path | None) -> bool:
    return not is_free(standing_folder(archive, read_settings(settings)) / LOCK)


def _say_who_runs(archive: Path, settings: Path | None) -> None:
    if not _is_served(archive, settings):
        show_message(f"no server runs them now: nothing is evaluated or told until 'hypergrid serve {archive}' does")


@standing_app.command("add", cls=ArchiveCommand)
def add(
    archive: ArchiveArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The standing query as JSON, or a query alone with --name.")
    ],
    *,
    name: Annotated[str | None, typer.Option(help="Its name or title, where FILE is a query alone.")] = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a standing query; it is kept in the archive's catalogue, and the server takes it up at once."""
    document = read_document(file)
    if name is not None:
        if isinstance(document, dict) and "query" in document:
            document = {**document, "name": name}
        else:
            document = {"name": name, "query": document}
    if not isinstance(document, dict):
        raise InvalidQuery(f"{file} needs a JSON object with 'name' and 'query'; got {type(document).__name__}")
    document = _name_by_title(document)
    with _open_standing(archive, settings) as standing:
        definition = standing.add(document).definition
        to = ", ".join(map(str, definition.to))
        text = f"{definition.name} stands: class {definition.kind}, weight {definition.weight:g}, to {to}"
        _show_outcome(lambda: standing.show(definition.name), text, as_json=as_json)
    if not as_json:
        _say_who_runs(archive, settings)


@standing_app.command("secret", cls=ArchiveCommand)
def secret(archive: ArchiveArgument, *, settings: SettingsOption = None, as_json: JsonOption = False) -> None:
    """Print what letters to webhooks are signed with (Standard Webhooks), for those who receive them."""
    with _open_standing(archive, settings) as standing:
        webhook_secret = standing.webhook_secret
    if as_json:
        show_json({"secret": webhook_secret})
    else:
        print(webhook_secret)


@standing_app.command("list", cls=ArchiveCommand)
def listing(archive: ArchiveArgument, *, settings: SettingsOption = None, as_json: JsonOption = False) -> None:
    """List the standing queries."""
    with _open_standing(archive, settings) as standing:
        listed, is_served = standing.listing(), _is_served(archive, settings)
    if as_json:
        show_json(listed)
        return
    if not listed:
        show_message(f"{archive} has no standing queries; 'hypergrid standing add {archive} FILE' makes one")
        return
    columns = ("name", "title", "class", "weight", "variable", "condition", "to", "state", "alerts that stand")
    rows = [
        (
            query["name"], query.get("title", ""), query["class"], query["weight"], query["query"]["variable"],
            query.get("condition", {}).get("kind", ""), ", ".join(query["to"]),
            _state(query, is_served=is_served), len(query["standing"]),
        )
        for query in listed
    ]  # fmt: skip
    show_table(f"Standing queries of {archive}", columns, rows)
    _say_who_runs(archive, settings)


def _state(query: dict[str, Any], *, is_served: bool) -> str:
    if query["paused"]:
        return "paused"
    state = "running" if is_served else "waits for a server"
    return f"{state}, muted until {query['muted_until']}" if query["muted_until"] else state


@standing_app.command("show", cls=ArchiveCommand)
def show(
    archive: ArchiveArgument,
    name: Name,
    *,
    alerts: Annotated[int, typer.Option(min=0, help="How many of its latest alerts.")] = 20,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a standing query with its latest alerts."""
    with _open_standing(archive, settings) as standing:
        name = _find_query(standing, name)
        query = standing.show(name)
        query["alerts"] = standing.alerts(name=name, limit=alerts, newest=True)
    if as_json:
        show_json(query)
        return
    tables = ("alerts", "undelivered")
    print(json.dumps({key: value for key, value in query.items() if key not in tables}, indent=1))
    rows = [(alert["id"], alert["at"], alert["happening"], alert["place"], alert["text"]) for alert in query["alerts"]]
    show_table(f"Alerts of {name}", ("id", "at", "what", "where", "in words"), rows)
    if query["undelivered"]:
        columns = ("number", "to", "state", "attempts", "error")
        rows = [tuple(letter[column] for column in columns) for letter in query["undelivered"]]
        show_table(f"Alerts of {name} that have not arrived", columns, rows)


def _show_outcome(describe: Callable[[], dict[str, Any]], text: str, *, as_json: bool) -> None:
    if as_json:
        show_json(describe())
    else:
        show_message(text)


@standing_app.command("pause", cls=ArchiveCommand)
def pause(
    archive: ArchiveArgument, name: Name, *, settings: SettingsOption = None, as_json: JsonOption = False
) -> None:
    """Evaluate a standing query no more, until it is resumed."""
    with _open_standing(archive, settings) as standing:
        name = _find_query(standing, name)
        standing.pause(name)
        text = f"{name} is paused; `hypergrid standing resume` goes on, with what has come meanwhile"
        _show_outcome(lambda: standing.show(name), text, as_json=as_json)


@standing_app.command("resume", cls=ArchiveCommand)
def resume(
    archive: ArchiveArgument, name: Name, *, settings: SettingsOption = None, as_json: JsonOption = False
) -> None:
    """Evaluate a paused standing query again, from what has come meanwhile on."""
    with _open_standing(archive, settings) as standing:
        name = _find_query(standing, name)
        standing.resume(name)
        _show_outcome(lambda: standing.show(name), f"{name} runs again", as_json=as_json)


@standing_app.command("mute", cls=ArchiveCommand)
def mute(
    archive: ArchiveArgument,
    name: Name,
    *,
    until: Annotated[str | None, typer.Option(help="Until this instant, such as 2025-10-01T12:00Z.")] = None,
    span: Annotated[str | None, typer.Option("--for", help="For so long from now, such as 2h.")] = None,
    off: Annotated[bool, typer.Option("--off", help="Tell again from now on.")] = False,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep the alerts of a standing query, but tell nobody, while its stations are maintained."""
    if (until is not None) + (span is not None) + off != 1:
        raise InvalidQuery("mute needs one of --until INSTANT, --for DURATION and --off")
    until_ns = None
    if until is not None:
        until_ns = parse_instant(until)
    elif span is not None:
        until_ns = time.time_ns() + parse_duration(span)
    with _open_standing(archive, settings) as standing:
        name = _find_query(standing, name)
        standing.mute(name, until_ns)
        text = f"{name} tells again" if until_ns is None else f"{name} is muted until {format_instant(until_ns)}"
        _show_outcome(lambda: standing.show(name), text, as_json=as_json)


@standing_app.command("acknowledge", cls=ArchiveCommand)
def acknowledge(
    archive: ArchiveArgument,
    name: Name,
    *,
    number: Numbers = None,
    comment: Annotated[str, typer.Option(help="What others should know, such as who sees to it.")] = "",
    off: Annotated[bool, typer.Option("--off", help="Open them again, as if nobody had seen them.")] = False,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that somebody has seen the alerts that stand, and sees to them; they stand apart from the open ones."""
    with _open_standing(archive, settings) as standing:
        name = _find_query(standing, name)
        remarks = _remark(standing, name, number, ("reopened" if off else "acknowledged", comment))
    text = f"{len(remarks)} of {name} {'open again' if off else 'acknowledged'}"
    _show_outcome(lambda: {"remarks": remarks}, text, as_json=as_json)


@standing_app.command("comment", cls=ArchiveCommand)
def add_comment(
    archive: ArchiveArgument,
    name: Name,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What others should know.")],
    *,
    number: Numbers = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Comment on the alerts of a standing query that stand; the comment is shown with them."""
    with _open_standing(archive, settings) as standing:
        name = _find_query(standing, name)
        remarks = _remark(standing, name, number, ("commented", text))
    _show_outcome(lambda: {"remarks": remarks}, f"{len(remarks)} of {name} commented on", as_json=as_json)


def _remark(
    standing: StandingQueries, name: str, numbers: list[int] | None, remark: tuple[Remark, str]
) -> list[dict[str, Any]]:
    """Remark on some alerts of a standing query, or on all that are open; `remark` has its comment beside it."""
    open_numbers = [episode["number"] for episode in standing.show(name)["standing"] if episode["number"] is not None]
    chosen = numbers or open_numbers
    if not chosen:
        raise InvalidQuery(f"no alert of {name} stands; `hypergrid standing show` lists the numbers of those that did")
    for number in chosen:
        owner = standing.store.alert(number).name
        if owner != name:
            raise InvalidQuery(f"alert {number} is of {owner}, not of {name}; give the name or the number of the other")
    happening, comment = remark
    return [standing.remark(number, happening, author=_user_name(), comment=comment) for number in chosen]


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container the user may have no entry.
        return "the command line"


@standing_app.command("test", cls=ArchiveCommand)
def send_test(
    archive: ArchiveArgument, name: Name, *, settings: SettingsOption = None, as_json: JsonOption = False
) -> None:
    """Send an alert that says that it is a test, the way that others go; a running server sends it."""
    with _open_standing(archive, settings) as standing:
        name = _find_query(standing, name)
        alert = standing.test(name)
        to = [str(target) for target in standing.store.entry(name).definition.to]
    text = f"test alert {alert.number} of {name} is on its way to {', '.join(to)}; a running server sends it"
    _show_outcome(lambda: {"number": alert.number, "to": to}, text, as_json=as_json)


@standing_app.command("remove", cls=ArchiveCommand)
def remove(
    archive: ArchiveArgument, name: Name, *, settings: SettingsOption = None, as_json: JsonOption = False
) -> None:
    """Forget a standing query; its results and alerts stay."""
    with _open_standing(archive, settings) as standing:
        name = _find_query(standing, name)
        query = standing.show(name)
        standing.remove(name)
    _show_outcome(lambda: query, f"{name} stands no more; its results and alerts stay", as_json=as_json)
