"""Definitions of boards, their panels, and short links: JSON documents, validated."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.names import make_slug
from hypergrid.core.times import (
    DAY_NS,
    Window,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_instant,
)
from hypergrid.perspective.spec.document_time import clip_in_time, is_clipped_in_time
from hypergrid.perspective.spec.query_spec import question_from_json

PanelKind = Literal["picture", "series", "number"]
KINDS: Final[tuple[PanelKind, ...]] = get_args(PanelKind)
"""A query with its view; the readings of a station; one value with its unit and trend."""
Reduction = Literal["latest", "mean", "min", "max", "sum"]
REDUCTIONS: Final[tuple[Reduction, ...]] = get_args(Reduction)
"""How the values of a time become the number of a panel."""
COLUMNS: Final = (1, 2)
"""Widths of a panel [columns of the board]."""

MAX_PANELS: Final = 50
"""Limit of panels per board."""
MAX_BYTES: Final = 256 << 10
"""Size limit of a board's document, as JSON [bytes]."""
LONGEST_TITLE: Final = 200
"""Longest title of a board, a panel or a link [characters]."""
LONGEST_ADDRESS: Final = 16_000
"""Longest address that a short link keeps [characters]."""
MAX_VIEW_PARTS: Final = 20
LONGEST_VIEW_PART: Final = 200
"""Limits of a picture's view: parts, and characters of each."""
LONGEST_NS: Final = 36_525 * DAY_NS
"""Longest time of a panel that follows: a hundred years [ns]."""
NAME_PATTERN: Final = "^[a-z0-9][a-z0-9_-]{0,62}$"
"""Names of boards."""
ID_PATTERN: Final = "^[a-z0-9]{1,12}$"
"""Ids of panels."""

_BOARD_KEYS: Final = ("name", "title", "version", "panels", "changed")
_PANEL_KEYS: Final = ("id", "kind", "title", "columns", "last", "query", "station", "variable", "view", "reduce")
_LINK_KEYS: Final = ("address", "title")
_VIEW_PART: Final = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True)
class Panel:
    """A panel: what it shows, how, and over which time."""

    id: str
    """Unique on its board."""
    kind: PanelKind
    title: str = ""
    """Title for display; empty: made from what it shows."""
    columns: int = 1
    last_ns: int | None = None
    """Length of the time that ends with the newest reading of its variable [ns]; None: as in the query."""
    query: Mapping[str, Any] | None = None
    """Query document of a picture or number; without a time if `last_ns` gives it."""
    station: str = ""
    variable: str = ""
    """Readings of a series or number, if there is no query."""
    view: Mapping[str, str] = field(default_factory=dict)
    """How a page shows the query: the parameters of its address, such as {"view": "map"}."""
    reduce: Reduction = "latest"

    def make_question(self, end_ns: int | None) -> dict[str, Any]:
        """Return the query of the panel now: readings of a station are a query without steps.

        Parameters
        ----------
        end_ns
            End of the newest readings of its variable [ns since 1970 UTC]; None: there are none.
        """
        question = dict(self.query or {"variable": self.variable, "select": {"station": self.station}, "steps": []})
        if self.last_ns is not None and end_ns is not None:
            return clip_in_time(question, Window(end_ns - self.last_ns, end_ns))
        return question

    def to_json(self) -> dict[str, Any]:
        """Convert to the document that `panel_from_json` reads."""
        document: dict[str, Any] = {
            "id": self.id, "kind": self.kind, "title": self.title, "columns": self.columns,
            "last": None if self.last_ns is None else format_duration(self.last_ns),
        }  # fmt: skip
        if self.query is not None:
            document["query"] = dict(self.query)
        else:
            document |= {"station": self.station, "variable": self.variable}
        if self.kind == "picture":
            document["view"] = dict(self.view)
        if self.kind == "number":
            document["reduce"] = self.reduce
        return document


@dataclass(frozen=True)
class Board:
    """A named list of panels, in their order."""

    name: str
    title: str
    panels: tuple[Panel, ...] = ()
    version: int = 1
    """Increases with each change; a change names the version that it was made from."""
    changed_ns: int = 0
    """Time of the last change [ns since 1970 UTC]; 0: not given."""

    def to_json(self) -> dict[str, Any]:
        """Convert to the document of the API."""
        return {
            "name": self.name, "title": self.title, "version": self.version,
            "changed": format_timestamp(self.changed_ns), "panels": [panel.to_json() for panel in self.panels],
        }  # fmt: skip

    def find_panel(self, panel_id: str) -> Panel:
        """Return a panel by its id.

        Raises
        ------
        NotFound
            The board has no such panel.
        """
        ids = {panel.id: panel for panel in self.panels}
        if panel_id not in ids:
            raise NotFound.among(f"panel of the board {self.name!r}", panel_id, ids)
        return ids[panel_id]


@dataclass(frozen=True)
class Link:
    """A page's address under a short name."""

    name: str
    address: str
    """What follows "#" in the address of the page, such as "boards?board=frost"."""
    title: str
    created_ns: int
    """[ns since 1970 UTC]"""

    def to_json(self) -> dict[str, Any]:
        """Convert to the document of the API."""
        return {
            "name": self.name, "address": self.address, "title": self.title,
            "created": format_timestamp(self.created_ns),
        }  # fmt: skip


def board_from_json(document: object, *, name: str | None = None) -> Board:
    """Parse and validate a board's document.

    Parameters
    ----------
    document
        Required: "title". Optional: "name" (a slug of the title if absent) and "panels". A change also needs "version",
        the one that it was made from, and may have its "changed"; of a new board both are ignored.
    name
        Name in the URL, which the document may repeat; None: a new board.

    Raises
    ------
    InvalidQuery, InvalidTime, NotFound, …
        A key is missing, unknown or invalid; the message names board and panel. Whether the archive can answer a query
        is not checked, as it changes.
    """
    given = _check_keys(document, "a board", _BOARD_KEYS)
    title = _read_title(given, "the title of a board")
    if not title.strip():
        raise InvalidQuery("a board needs 'title', a line of text that names it")
    own_name = given.get("name", name if name is not None else make_slug(title)[:63])
    if name is not None and own_name != name:
        raise InvalidQuery(f"the document of the board {name!r} needs its name, or none; got {own_name!r}")
    # A title without any letter of the alphabet has no slug.
    own_name = own_name or f"board-{secrets.token_hex(3)}"
    if not isinstance(own_name, str) or not re.fullmatch(NAME_PATTERN, own_name):
        raise InvalidQuery(
            "the name of a board needs 1 to 63 lower-case letters, digits, '-' or '_', the first a letter or digit; "
            f"got {own_name!r}"
        )
    label, version, listed = f"board {own_name!r}", given.get("version", 1), given.get("panels", [])
    if name is not None and "version" not in given:
        raise InvalidQuery(f"a change of the {label} needs 'version', the one that it was made from")
    if type(version) is not int or not 1 <= version <= 2**53:
        raise InvalidQuery(f"{label} needs 'version', a whole number from 1; got {version!r}")
    if not isinstance(listed, list) or len(listed) > MAX_PANELS:
        count = f"{len(listed)} of them" if isinstance(listed, list) else type(listed).__name__
        raise InvalidQuery(f"{label} needs 'panels', a list of at most {MAX_PANELS}; got {count}; make a second board")
    size = len(json.dumps(listed))
    if size > MAX_BYTES:
        raise InvalidQuery(f"{label} may have {MAX_BYTES:,} bytes, and has {size:,}; make a second board")
    panels = tuple(panel_from_json(item, f"panel {number} of {label}") for number, item in enumerate(listed, 1))
    _refuse_duplicates([panel.id for panel in panels], label)
    for number, panel in enumerate(panels, 1):
        if panel.query is not None:
            _check_query(panel.query, f"panel {number} of {label}")
    return Board(own_name, title, panels, version, 0 if name is None else _read_changed(given, label))


def panel_from_json(document: object, label: str) -> Panel:
    """Parse and validate a panel's document; `label` names it in errors.

    ::

        {"kind": "picture", "last": "1day", "view": {"view": "map"}, "query": {"variable": "air_temperature", …}}
        {"kind": "series", "last": "2day", "station": "1", "variable": "air_temperature"}
        {"kind": "number", "last": "1h", "station": "1", "variable": "rain_meter", "reduce": "max"}

    Optional keys: "id" (a random one if absent), "title", "columns" (1 or 2), "last" (null: the time of the query).

    Raises
    ------
    InvalidQuery, InvalidTime, NotFound, …
        A key is missing, unknown or invalid.
    """
    given = _check_keys(document, label, _PANEL_KEYS)
    kind, columns, reduce = given.get("kind"), given.get("columns", 1), given.get("reduce", "latest")
    if kind not in KINDS:
        raise NotFound.among(f"kind of {label}", str(kind), KINDS)
    if type(columns) is not int or columns not in COLUMNS:
        raise InvalidQuery(f"{label} needs 'columns', 1 or 2; got {columns!r}")
    if reduce not in REDUCTIONS:
        raise NotFound.among(f"reduction of {label}", str(reduce), REDUCTIONS)
    panel_id = given.get("id", secrets.token_hex(3))
    if not isinstance(panel_id, str) or not re.fullmatch(ID_PATTERN, panel_id):
        raise InvalidQuery(f"{label} needs 'id', 1 to 12 lower-case letters or digits; got {panel_id!r}")
    last_ns = None if given.get("last") is None else parse_duration(given["last"])
    if last_ns is not None and last_ns > LONGEST_NS:
        raise InvalidQuery(f"{label} needs 'last', at most {format_duration(LONGEST_NS)}; got {given['last']!r}")
    query = _read_query(given, kind, label, follows=last_ns is not None)
    station, variable = ("", "") if query is not None else _read_series(given, label)
    return Panel(
        panel_id, kind, _read_title(given, f"the title of {label}"), columns, last_ns, query, station, variable,
        _read_view(given.get("view", {}), label), reduce,
    )  # fmt: skip


def address_from_json(document: object) -> tuple[str, str]:
    """Parse the document of a short link: its address, without the leading "#", and its title, empty if absent.

    Raises
    ------
    InvalidQuery
        The address is missing, too long, or not one of a page.
    """
    given = _check_keys(document, "a link", _LINK_KEYS)
    address = given.get("address")
    if not isinstance(address, str) or not address.isprintable() or not 0 < len(address) <= LONGEST_ADDRESS:
        got = f"{len(address):,} characters" if isinstance(address, str) else type(address).__name__
        raise InvalidQuery(
            f"a link needs 'address', what follows '#' in a page's address, of at most {LONGEST_ADDRESS:,} printable "
            f"characters; got {got}"
        )
    bare = address.removeprefix("#")
    if re.fullmatch(r"[a-z]+(\?.*)?", bare) is None:
        raise InvalidQuery(f"a link keeps an address of the pages, such as 'explore?q=…'; got {address[:80]!r}")
    return bare, _read_title(given, "the title of a link")


def _check_keys(document: object, label: str, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise InvalidQuery(f"{label} is a JSON object; got {type(document).__name__}")
    for key in document:
        if key not in known:
            raise InvalidQuery(str(NotFound.among(f"key of {label}", str(key)[:100], known)))
    return document


def _read_title(given: Mapping[str, Any], label: str) -> str:
    title = given.get("title", "")
    if not isinstance(title, str) or len(title) > LONGEST_TITLE or not title.isprintable():
        raise InvalidQuery(f"{label} needs a line of at most {LONGEST_TITLE} letters; got {str(title)[:80]!r}")
    return title


def _read_changed(given: Mapping[str, Any], label: str) -> int:
    """Return the time of the version that a change was made from [ns since 1970 UTC]; 0 if not given."""
    changed = given.get("changed")
    if changed is None:
        return 0
    if not isinstance(changed, str):
        raise InvalidQuery(f"{label} needs 'changed', an instant as text; got {type(changed).__name__}")
    return parse_instant(changed)


def _read_query(given: Mapping[str, Any], kind: PanelKind, label: str, *, follows: bool) -> Mapping[str, Any] | None:
    query = given.get("query")
    if query is None and kind != "picture":
        return None
    if kind == "series":
        raise InvalidQuery(f"{label} shows the readings of a station; remove 'query', or make it a picture")
    if not isinstance(query, Mapping):
        raise InvalidQuery(f"{label} needs 'query', a query as a JSON object; got {type(query).__name__}")
    fixed = [key for key in ("snapshot", "as_of") if query.get(key) is not None]
    if is_clipped_in_time(query):
        fixed.append("clip.time")
    if follows and fixed:
        raise InvalidQuery(
            f"{label} follows the newest readings ('last'), and its query has {' and '.join(fixed)}; keep one of both"
        )
    return query


def _check_query(query: Mapping[str, Any], label: str) -> None:
    # Only of new definitions: a stored board must stay readable when a later version knows other functions.
    try:
        question_from_json(query)
    except HyperGridError as error:
        raise InvalidQuery(f"{label}: {error}") from error


def _read_series(given: Mapping[str, Any], label: str) -> tuple[str, str]:
    texts = [given.get(key) for key in ("station", "variable")]
    station, variable = (text if isinstance(text, str) and 0 < len(text) <= LONGEST_TITLE else "" for text in texts)
    if not station or not variable:
        raise InvalidQuery(f"{label} needs 'station' and 'variable', each a name; got {texts[0]!r} and {texts[1]!r}")
    return station, variable


def _read_view(view: object, label: str) -> Mapping[str, str]:
    if (
        not isinstance(view, Mapping)
        or len(view) > MAX_VIEW_PARTS
        or not all(
            _VIEW_PART.fullmatch(name) and isinstance(text, str) and len(text) <= LONGEST_VIEW_PART
            for name, text in view.items()
        )
    ):
        raise InvalidQuery(
            f"{label} needs 'view', at most {MAX_VIEW_PARTS} parameters of the page's address, each a text; got "
            f"{str(view)[:80]!r}"
        )
    return dict(view)


def _refuse_duplicates(ids: Sequence[str], label: str) -> None:
    twice = next((panel_id for number, panel_id in enumerate(ids) if panel_id in ids[:number]), None)
    if twice is not None:
        raise InvalidQuery(f"{label} has two panels of the id {twice!r}; remove one, or its id")
