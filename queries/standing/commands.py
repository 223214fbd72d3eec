"""The commands `hypergrid standing …`."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hypergrid.cli.console import say, show_json, show_table
from hypergrid.cli.options import JsonOption
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.settings import read_settings
from hypergrid.core.times import format_instant, parse_duration, parse_instant
from hypergrid.query import open_archive, read_document
from queries.standing.service import StandingQueries

standing_app = typer.Typer(
    help="Queries that stand: evaluated when slices come, with alerts. `hypergrid serve` runs them.",
    no_args_is_help=True,
)

Place = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="Folder of the archive.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the standing query.")]


Where = Annotated[
    Path | None, typer.Option("--settings", help="Settings file (TOML): folder of standing queries, hosts of webhooks.")
]


def _opened(place: Path, settings: Path | None) -> StandingQueries:
    return StandingQueries(open_archive(place), read_settings(settings), clock=time.time_ns)


@standing_app.command("add")
def add(
    place: Place,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The standing query as JSON, or a query alone with --name.")
    ],
    *,
    name: Annotated[str | None, typer.Option(help="Its name, where FILE is a query alone.")] = None,
    settings: Where = None,
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
        message = f"{file} needs a JSON object with 'name' and 'query'; got {type(document).__name__}"
        raise InvalidQuery(message)
    with _opened(place, settings) as standing:
        entry = standing.add(document)
        if as_json:
            show_json(standing.show(entry.name))
        else:
            definition = entry.definition
            to = ", ".join(map(str, definition.to))
            say(f"{entry.name} stands: class {definition.kind}, weight {definition.weight:g}, to {to}")


@standing_app.command("secret")
def secret(place: Place, *, settings: Where = None, as_json: JsonOption = False) -> None:
    """Print what letters to webhooks are signed with (Standard Webhooks), for those who receive them."""
    with _opened(place, settings) as standing:
        found = standing.webhook_secret
    if as_json:
        show_json({"secret": found})
    else:
        print(found)


@standing_app.command("list")
def listing(place: Place, *, settings: Where = None, as_json: JsonOption = False) -> None:
    """List the standing queries."""
    with _opened(place, settings) as standing:
        listed = standing.listing()
    if as_json:
        show_json(listed)
        return
    columns = ("name", "class", "weight", "variable", "condition", "to", "state", "alerts that stand")
    rows = [
        (
            one["name"], one["class"], one["weight"], one["query"]["variable"],
            one.get("condition", {}).get("kind", ""), ", ".join(one["to"]), _state(one), len(one["standing"]),
        )
        for one in listed
    ]  # fmt: skip
    show_table(f"Standing queries of {place}", columns, rows)


def _state(one: dict[str, Any]) -> str:
    if one["paused"]:
        return "paused"
    return f"muted until {one['muted_until']}" if one["muted_until"] else "running"


@standing_app.command("show")
def show(
    place: Place,
    name: Name,
    *,
    alerts: Annotated[int, typer.Option(min=0, help="How many of its latest alerts.")] = 20,
    settings: Where = None,
    as_json: JsonOption = False,
) -> None:
    """Show a standing query with its latest alerts."""
    with _opened(place, settings) as standing:
        told = standing.show(name)
        told["alerts"] = standing.alerts(name=name, limit=1_000_000)[-alerts:] if alerts else []
    if as_json:
        show_json(told)
        return
    tables = ("alerts", "undelivered")
    print(json.dumps({key: value for key, value in told.items() if key not in tables}, indent=1))
    rows = [(one["id"], one["at"], one["happening"], one["place"], one["text"]) for one in told["alerts"]]
    show_table(f"Alerts of {name}", ("id", "at", "what", "where", "in words"), rows)
    if told["undelivered"]:
        columns = ("number", "to", "state", "attempts", "error")
        rows = [tuple(one[column] for column in columns) for one in told["undelivered"]]
        show_table(f"Alerts of {name} that have not arrived", columns, rows)


def _told(standing: StandingQueries, name: str, text: str, *, as_json: bool) -> None:
    """Say what was done to a standing query, or show machines how it stands now."""
    if as_json:
        show_json(standing.show(name))
    else:
        say(text)


@standing_app.command("pause")
def pause(place: Place, name: Name, *, settings: Where = None, as_json: JsonOption = False) -> None:
    """Evaluate a standing query no more, until it is resumed."""
    with _opened(place, settings) as standing:
        standing.pause(name)
        text = f"{name} is paused; `hypergrid standing resume` goes on, with what has come meanwhile"
        _told(standing, name, text, as_json=as_json)


@standing_app.command("resume")
def resume(place: Place, name: Name, *, settings: Where = None, as_json: JsonOption = False) -> None:
    """Evaluate a paused standing query again, from what has come meanwhile on."""
    with _opened(place, settings) as standing:
        standing.resume(name)
        _told(standing, name, f"{name} runs again", as_json=as_json)


@standing_app.command("mute")
def mute(
    place: Place,
    name: Name,
    *,
    until: Annotated[str | None, typer.Option(help="Until this instant, such as 2025-10-01T12:00Z.")] = None,
    span: Annotated[str | None, typer.Option("--for", help="For so long from now, such as 2h.")] = None,
    off: Annotated[bool, typer.Option("--off", help="Tell again from now on.")] = False,
    settings: Where = None,
    as_json: JsonOption = False,
) -> None:
    """Keep the alerts of a standing query, but tell nobody, while its stations are maintained."""
    if (until is not None) + (span is not None) + off != 1:
        message = "mute needs one of --until INSTANT, --for DURATION and --off"
        raise InvalidQuery(message)
    until_ns = None
    if until is not None:
        until_ns = parse_instant(until)
    elif span is not None:
        until_ns = time.time_ns() + parse_duration(span)
    with _opened(place, settings) as standing:
        standing.mute(name, until_ns)
        text = f"{name} tells again" if until_ns is None else f"{name} is muted until {format_instant(until_ns)}"
        _told(standing, name, text, as_json=as_json)


@standing_app.command("test")
def send_test(place: Place, name: Name, *, settings: Where = None, as_json: JsonOption = False) -> None:
    """Send an alert that says that it is a test, the way that others go; a running server sends it."""
    with _opened(place, settings) as standing:
        alert = standing.test(name)
        to = [str(target) for target in standing.store.entry(name).definition.to]
    if as_json:
        show_json({"number": alert.number, "to": to})
    else:
        say(f"test alert {alert.number} of {name} is on its way to {', '.join(to)}; a running server sends it")


@standing_app.command("remove")
def remove(place: Place, name: Name, *, settings: Where = None, as_json: JsonOption = False) -> None:
    """Forget a standing query; its results and alerts stay."""
    with _opened(place, settings) as standing:
        told = standing.show(name)
        standing.remove(name)
    if as_json:
        show_json(told)
    else:
        say(f"{name} stands no more; its results and alerts stay")
