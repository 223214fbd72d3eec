"""Boards and short links in one SQLite file: durable before any acknowledgement.

Rows that do not match their checksum are not read: a damaged board or link counts as missing, and is reported.
"""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

from hypergrid.archive.disk.row_checksums import DamagedState, Schema, open_for_reading
from hypergrid.archive.disk.state_database import StateDatabase, StateKind
from hypergrid.core.errors import InvalidQuery, NotFound, StoreUnavailable
from hypergrid.core.times import format_timestamp
from queries.boards.definition import Board, Link, panel_from_json

FILE: Final = "boards.sqlite"
MAX_BOARDS: Final = 200
MAX_LINKS: Final = 10_000
"""Limits of boards, and of short links."""
_LETTERS: Final = "abcdefghijkmnpqrstuvwxyz23456789"
"""Letters of a link's name; without those that are taken for one another."""
_NAME_LENGTH: Final = 8
"""Letters of a link's name: 40 random bits, so that names are not guessed while links are few."""
_SCHEMA: Final = Schema(
    (
        """
CREATE TABLE boards (
    name TEXT PRIMARY KEY, title TEXT NOT NULL, panels TEXT NOT NULL, version INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL, checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        """
CREATE TABLE links (
    name TEXT PRIMARY KEY, address TEXT NOT NULL, title TEXT NOT NULL, created_ns INTEGER NOT NULL,
    checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        "CREATE INDEX links_to ON links (address)",
    )
)
_BOARDS: Final = "SELECT name, title, panels, version, changed_ns FROM valid_boards"
_LINKS: Final = "SELECT name, address, title, created_ns FROM valid_links"


class BoardsDamaged(DamagedState):
    """The file of boards and links, or a row of it, cannot be read; the message names it."""


class BoardsUnavailable(StoreUnavailable):
    """The file cannot be used now: locked, or the disk is full; the message says which."""


class BoardConflict(InvalidQuery):
    """The name is taken, or the board was changed since it was read."""


class BoardStore(StateDatabase):
    """Boards and links in a state database.

    Raises
    ------
    BoardsDamaged, BoardsUnavailable
        The file is not one of boards; it cannot be used now. All methods may raise these.
    """

    kind = StateKind(
        _SCHEMA, "a file of boards and links", "all boards and short links are lost", BoardsDamaged, BoardsUnavailable,
        busy_s=10.0,
    )  # fmt: skip

    def boards(self) -> list[Board]:
        """List the boards by title."""
        with self._lock_for_reading():
            rows = self._db.execute(f"{_BOARDS} ORDER BY lower(title), name").fetchall()
        return [_board_from_row(row) for row in rows]

    def board(self, name: str) -> Board:
        """Look up a board.

        Raises
        ------
        NotFound
            There is no board of this name.
        """
        with self._lock_for_reading():
            row = self._db.execute(f"{_BOARDS} WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise self._unknown_error("board", name)
        return _board_from_row(row)

    def add_board(self, board: Board, *, now_ns: int) -> Board:
        """Store a new board; return it with its version and time.

        Raises
        ------
        BoardConflict, InvalidQuery
            The name is taken; there are `MAX_BOARDS` already.
        """
        stored = replace(board, version=1, changed_ns=now_ns)
        with self._transaction():
            if self._db.execute("SELECT 1 FROM boards WHERE name = ?", (board.name,)).fetchone():
                raise BoardConflict(f"a board {board.name!r} is there already; choose another name or title")
            self._refuse_more("boards", MAX_BOARDS)
            self._db.execute(
                "INSERT INTO boards (name, title, panels, version, changed_ns) VALUES (?, ?, ?, ?, ?)",
                (stored.name, stored.title, _write_panels(stored), stored.version, now_ns),
            )
        return stored

    def replace_board(self, board: Board, *, now_ns: int) -> Board:
        """Replace a board that is still as the change says; return it with the next version.

        Parameters
        ----------
        board
            The board as it is to be, with version and, unless 0, time of the one that it was made from.
        now_ns
            Current time [ns since 1970 UTC].

        Raises
        ------
        NotFound, BoardConflict
            There is no board of this name; it was changed since that version.
        """
        stored = replace(board, version=board.version + 1, changed_ns=now_ns)
        with self._transaction():
            row = self._db.execute(
                "SELECT version, changed_ns FROM valid_boards WHERE name = ?", (board.name,)
            ).fetchone()
            if row is None:
                raise self._unknown_error("board", board.name)
            # Of two users that pin at the same time, both must keep their panels.
            if row[0] != board.version:
                raise BoardConflict(
                    f"the board {board.name!r} is at version {row[0]}, and this change was made from version "
                    f"{board.version}; read it again, and repeat the change"
                )
            # A board that was removed and made again has the same versions.
            if board.changed_ns not in (0, row[1]):
                raise BoardConflict(
                    f"the board {board.name!r} was last changed at {format_timestamp(row[1])}, and this change "
                    f"was made from the one of {format_timestamp(board.changed_ns)}; read it again, and repeat the "
                    "change"
                )
            self._db.execute(
                "UPDATE boards SET title = ?, panels = ?, version = ?, changed_ns = ? WHERE name = ?",
                (stored.title, _write_panels(stored), stored.version, now_ns, stored.name),
            )
        return stored

    def remove_board(self, name: str) -> None:
        """Delete a board.

        Raises
        ------
        NotFound
            There is no board of this name.
        """
        self._remove("board", name)

    def link(self, name: str) -> Link:
        """Look up a short link.

        Raises
        ------
        NotFound
            There is no link of this name.
        """
        with self._lock_for_reading():
            row = self._db.execute(f"{_LINKS} WHERE name = ?", (name,)).fetchone()
            if row is None:
                # Other names are not listed: each link is known only to the callers that got it.
                raise NotFound(f"there is no short link {name[:80]!r}; it was removed, or is mistyped")
        return Link(*row)

    def add_link(self, address: str, title: str, *, now_ns: int) -> Link:
        """Return the link of an address, stored under a new random name unless there is one with this title.

        Raises
        ------
        InvalidQuery
            There are `MAX_LINKS` already.
        """
        with self._transaction():
            row = self._db.execute(f"{_LINKS} WHERE address = ? AND title = ?", (address, title)).fetchone()
            if row is not None:
                return Link(*row)
            self._refuse_more("links", MAX_LINKS)
            link = Link("".join(secrets.choice(_LETTERS) for _ in range(_NAME_LENGTH)), address, title, now_ns)
            self._db.execute(
                "INSERT INTO links (name, address, title, created_ns) VALUES (?, ?, ?, ?)",
                (link.name, address, title, now_ns),
            )
        return link

    def remove_link(self, name: str) -> None:
        """Delete a short link.

        Raises
        ------
        NotFound
            There is no link of this name.
        """
        self._remove("link", name)

    def _remove(self, kind: str, name: str) -> None:
        with self._transaction():
            if self._db.execute(f"DELETE FROM {kind}s WHERE name = ?", (name,)).rowcount == 0:
                raise self._unknown_error(kind, name)

    def _refuse_more(self, table: str, maximum: int) -> None:
        (count,) = self._db.execute(f"SELECT count(*) FROM {table}").fetchone()
        if count >= maximum:
            raise InvalidQuery(f"there are {count:,} {table}, and {maximum:,} may be; remove those no longer needed")

    def _unknown_error(self, kind: str, name: str) -> NotFound | BoardsDamaged:
        if self._db.execute(f"SELECT 1 FROM {kind}s WHERE name = ?", (name,)).fetchone():
            return BoardsDamaged(f"the {kind} {name!r} is damaged in {self.path.name}; remove it, and make it again")
        if kind == "link":
            return NotFound(f"there is no short link {name[:80]!r}")
        names = [row[0] for row in self._db.execute("SELECT name FROM valid_boards")]
        return NotFound.among(kind=kind, given=name[:80], existing=names)


class BoardReader(BoardStore):
    """Boards and links of a file that another process may write; each read opens it, and changes are refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.list_damaged()

    def close(self) -> None:
        """Do nothing, as no connection is kept."""

    @contextmanager
    def _lock_for_reading(self) -> Iterator[None]:
        with self._lock, self._translate_errors(), closing(open_for_reading(self.path)) as self._db:
            yield

    def _transaction(self) -> NoReturn:
        raise BoardsUnavailable("this server is read-only; change boards and links at the server that writes")


class UnreadableBoards(BoardStore):
    """Boards and links of a file that cannot be read: all methods raise why."""

    def __init__(self, path: Path, error: BoardsDamaged | BoardsUnavailable) -> None:
        self.path, self._error = path, error

    def close(self) -> None:
        """Do nothing, as no connection is kept."""

    def list_damaged(self) -> list[str]:
        return []

    def _lock_for_reading(self) -> NoReturn:
        raise type(self._error)(str(self._error))


def _write_panels(board: Board) -> str:
    return json.dumps([panel.to_json() for panel in board.panels])


def _board_from_row(row: tuple[Any, ...]) -> Board:
    name, title, panels, version, changed_ns = row
    parsed = (panel_from_json(panel, f"panel {number}") for number, panel in enumerate(json.loads(panels), 1))
    return Board(name, title, tuple(parsed), version, changed_ns)
