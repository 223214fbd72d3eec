"""Checksums of rows: state beside the data (SQLite files, logs of JSON lines) in which a flipped bit is detected.

Each table has a column `checksum`, the CRC-32C of the row's other columns. Triggers of the connection maintain it, so
that the statements of a store need not know of it, and refuse to update a row that does not match: a damaged value must
not get a valid checksum. Rows are read through the view `valid_TABLE`, which leaves out rows that do not match.

A file whose `user_version` is below `CHECKED_VERSION` was written by an older program. Opening it adds the column, and
accepts the rows as they are.
"""

import json
import logging
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c

from hypergrid.core.errors import HyperGridError

COLUMN: Final = "checksum"
CHECKED_VERSION: Final = 2
"""First `user_version` of a file whose rows carry checksums."""
_FUNCTION: Final = "row_checksum"
_LINE_START: Final = f'{{"{COLUMN}": "'
_OLD_LINE_START: Final = '{"time": "'
"""Start of a line without a checksum. No single flipped bit turns a line that has one into this."""
_NEVER_EMPTY: Final = (".sqlite", ".jsonl", ".secret")
"""Endings of files that are made whole, or with their first line."""
_LONGEST_REPORT: Final = 200
_LOG: Final = logging.getLogger(__name__)


class DamagedState(HyperGridError, RuntimeError):
    """A file of the server's state cannot be read; the message names the file, the problem and the remedy."""


class Malformed(sqlite3.DatabaseError):
    """A SQLite file is damaged, or is not the file that the program creates."""


@dataclass(frozen=True)
class Schema:
    """Tables and indexes of a SQLite file."""

    statements: tuple[str, ...]
    """One CREATE statement each; every table has `checksum TEXT NOT NULL DEFAULT ''` as its last column."""
    added: tuple[str, ...] = ()
    """Statements that add the columns which version 1 lacks, other than the checksum."""

    def create(self, db: sqlite3.Connection) -> None:
        """Create everything in an empty file, inside the caller's transaction."""
        for statement in self.statements:
            db.execute(statement)


def open_checked(db: sqlite3.Connection, schema: Schema) -> int:
    """Verify a SQLite file that was just opened, upgrade or create its tables, and maintain checksums from then on.

    Returns the `user_version` that the file had; one above `CHECKED_VERSION` is left untouched.

    Raises
    ------
    Malformed
        The file is damaged.
    sqlite3.DatabaseError
        It is locked or cannot be written, or SQLite says how it is damaged.
    """
    db.create_function(_FUNCTION, -1, _compute_row_checksum, deterministic=True)
    with _translate_errors():
        _verify_structure(db)
        db.execute("PRAGMA journal_mode = WAL")
        _rebuild_indexes(db)
        return _prepare(db, schema)


def create_whole(path: Path, schema: Schema) -> None:
    """Create a SQLite file where it is missing, for its owner alone to read; whole or not at all.

    An empty file is one that lost its content, then, and not one that a process that died had begun.

    Raises
    ------
    OSError, sqlite3.DatabaseError
        It cannot be written.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    # Made before SQLite opens it, so that nobody else can read it for a moment.
    os.close(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(sqlite3.connect(scratch, isolation_level=None)) as db:
            open_checked(db, schema)
        with suppress(FileExistsError):
            # Another process was faster, and may have written into its file already.
            os.link(scratch, path)
    finally:
        scratch.unlink()


def require_content(path: Path) -> None:
    """Raise `Malformed` where a SQLite file that `create_whole` made is empty."""
    if path.exists() and not path.stat().st_size:
        message = "it is empty"
        raise Malformed(message)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise `Malformed` for errors that only a damaged file causes, and that do not look like it."""
    try:
        yield
    except UnicodeDecodeError as error:
        # The message of SQLite's error quotes a name that is no UTF-8.
        message = "its schema is damaged"
        raise Malformed(message) from error
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) == sqlite3.SQLITE_ERROR:
            # A statement that fits every whole file does not fit this one.
            raise Malformed(str(error)) from error
        raise


def _prepare(db: sqlite3.Connection, schema: Schema) -> int:
    # One transaction: a process killed halfway must not leave a file that no later process can use.
    db.execute("BEGIN IMMEDIATE")
    try:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version < CHECKED_VERSION:
            _upgrade(db, schema, version)
        if version <= CHECKED_VERSION:
            _compare_schema(db, schema)
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    if version <= CHECKED_VERSION:
        for table in list_tables(db):
            _create_triggers(db, table)
    return version


def _verify_structure(db: sqlite3.Connection) -> None:
    """Raise `Malformed`, or what SQLite raises, where the structure of an open file is damaged."""
    if (problem := _find_problem(db, "quick_check")) is not None:
        raise Malformed(problem)


def _rebuild_indexes(db: sqlite3.Connection) -> None:
    """Rebuild the indexes where they do not match the rows: a damaged entry hides its row, or finds another one.

    The rows are what counts, as these have checksums.
    """
    if (problem := _find_problem(db, "integrity_check")) is not None:
        _LOG.warning("the indexes of %s are rebuilt: %s", _find_file(db), problem)
        db.execute("REINDEX")


def _find_problem(db: sqlite3.Connection, pragma: str) -> str | None:
    (result,) = db.execute(f"PRAGMA {pragma}(1)").fetchone()
    return None if result == "ok" else " ".join(str(result).split())[:_LONGEST_REPORT]


def _find_file(db: sqlite3.Connection) -> str:
    return str(db.execute("PRAGMA database_list").fetchone()[2])


def list_tables(db: sqlite3.Connection) -> list[str]:
    """Return the names of the tables in a file, without SQLite's own."""
    rows = db.execute("PRAGMA main.table_list").fetchall()
    return sorted(name for schema, name, *_ in rows if schema == "main" and not name.startswith("sqlite_"))


def find_damaged_rows(db: sqlite3.Connection, table: str) -> list[int]:
    """Return the rowids of the rows in a table that do not match their checksums."""
    wanted = _format_checksum_sql(db, table)
    return [row for (row,) in db.execute(f"SELECT rowid FROM main.{table} WHERE {COLUMN} IS NOT {wanted}")]


def _compute_row_checksum(table: str, *values: str | bytes | None) -> str:
    """Return the CRC-32C of a row, as eight hexadecimal digits; each value comes as its type and its bytes."""
    crc = google_crc32c.value(table.encode())
    for value in values:
        data = b"" if value is None else value.encode() if isinstance(value, str) else value
        crc = google_crc32c.extend(crc, len(data).to_bytes(8, "little") + data)
    return f"{crc:08x}"


def _list_columns(db: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns that a checksum covers."""
    return [row[1] for row in db.execute(f"PRAGMA main.table_info({table})") if row[1] != COLUMN]


def _format_checksum_sql(db: sqlite3.Connection, table: str, row: str = "") -> str:
    """Return the SQL expression for the checksum of a row; `row` is "OLD." or "NEW." in a trigger.

    Text goes in as bytes: a flipped bit may leave what is no UTF-8, which must not fail the whole statement.
    """
    columns = _list_columns(db, table)
    values = (f"typeof({row}{name}), CAST({row}{name} AS BLOB)" for name in columns)
    return f"{_FUNCTION}('{table}({', '.join(columns)})', {', '.join(values)})"


def _create_triggers(db: sqlite3.Connection, table: str) -> None:
    """Create the view and the triggers of a table; they belong to this connection alone."""
    columns = ", ".join(_list_columns(db, table))
    new, old = _format_checksum_sql(db, table, "NEW."), _format_checksum_sql(db, table, "OLD.")
    write = f"UPDATE {table} SET {COLUMN} = {new} WHERE rowid = NEW.rowid;"
    db.execute(f"CREATE TEMP TRIGGER {table}_added AFTER INSERT ON main.{table} BEGIN {write} END")
    db.execute(f"CREATE TEMP TRIGGER {table}_changed AFTER UPDATE OF {columns} ON main.{table} BEGIN {write} END")
    db.execute(
        f"CREATE TEMP TRIGGER {table}_refused BEFORE UPDATE OF {columns} ON main.{table} "
        f"WHEN OLD.{COLUMN} IS NOT {old} BEGIN SELECT RAISE(IGNORE); END"
    )
    db.execute(
        f"CREATE TEMP VIEW valid_{table} AS SELECT rowid AS row_id, {columns} FROM main.{table} "
        f"WHERE {COLUMN} IS {_format_checksum_sql(db, table)}"
    )


def _upgrade(db: sqlite3.Connection, schema: Schema, version: int) -> None:
    """Create the tables of an empty file, or add checksums to one that an older program wrote."""
    if version == 0:
        schema.create(db)
    else:
        for statement in schema.added:
            db.execute(statement)
        for table in list_tables(db):
            db.execute(f"ALTER TABLE {table} ADD COLUMN {COLUMN} TEXT NOT NULL DEFAULT ''")
            db.execute(f"UPDATE {table} SET {COLUMN} = {_format_checksum_sql(db, table)}")
    db.execute(f"PRAGMA user_version = {CHECKED_VERSION}")


def _compare_schema(db: sqlite3.Connection, schema: Schema) -> None:
    """Raise `Malformed` where a table or an index is not what the program creates."""
    with closing(sqlite3.connect(":memory:")) as wanted:
        schema.create(wanted)
        for table in list_tables(wanted):
            if _read_outline(db, table) != _read_outline(wanted, table):
                message = f"the table {table!r} is missing, or its columns are not those that this program writes"
                raise Malformed(message)


def _read_outline(db: sqlite3.Connection, table: str) -> tuple[object, ...]:
    indexes = [row[1:] for row in db.execute(f"PRAGMA main.index_list({table})")]
    texts = [
        db.execute("SELECT sql FROM main.sqlite_schema WHERE name = ?", index_row[:1]).fetchone()
        for index_row in indexes
    ]
    columns = {tuple(row[1:]) for row in db.execute(f"PRAGMA main.table_info({table})")}
    return columns, sorted(zip(indexes, texts, strict=True))


def format_checked_line(values: Mapping[str, Any]) -> str:
    """Return a line of JSON that begins with the checksum of the rest."""
    rest = json.dumps(values, ensure_ascii=True)[1:]
    return f'{_LINE_START}{google_crc32c.value(rest.encode("ascii")):08x}", {rest}'


def parse_checked_line(line: bytes) -> dict[str, Any] | None:
    """Return what `format_checked_line` was given; None where the line is damaged.

    A line without a checksum, from an older program, is accepted where it is JSON at all.
    """
    head, rest = line[: len(_LINE_START) + 11], line[len(_LINE_START) + 11 :]
    wanted = f'{_LINE_START}{google_crc32c.value(rest):08x}", '.encode()
    if head != wanted and not line.startswith(_OLD_LINE_START.encode()):
        return None
    try:
        content = json.loads(line)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    content.pop(COLUMN, None)
    return content


def find_damage(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a file of state: where ("row 3 of keys", "line 7", "indexes", "": all of it), and what.

    The file is read only. `.sqlite` and `.jsonl` are understood, and an empty `.secret`; other files are passed over.
    """
    if path.suffix in _NEVER_EMPTY and not path.stat().st_size:
        yield "", "is empty, as no program leaves it"
    elif path.suffix == ".sqlite":
        yield from _find_database_damage(path)
    elif path.suffix == ".jsonl":
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if parse_checked_line(line.removesuffix(b"\n")) is None:
                    yield f"line {number}", "does not match its checksum, or is no line of the log"


def _find_database_damage(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with _translate_errors(), closing(_open_read_only(path)) as db:
            _verify_structure(db)
            if (problem := _find_problem(db, "integrity_check")) is not None:
                yield "indexes", f"do not match the rows, and are rebuilt when the file is next opened: {problem}"
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            for table in list_tables(db):
                has_checksums = any(row[1] == COLUMN for row in db.execute(f"PRAGMA main.table_info({table})"))
                if has_checksums != (version >= CHECKED_VERSION):
                    yield f"table {table}", f"does not fit the version of the file, {version}"
                for row in find_damaged_rows(db, table) if has_checksums else ():
                    yield f"row {row} of {table}", "does not match its checksum"
    except sqlite3.DatabaseError as error:
        yield "", f"cannot be read: {error}"


def _open_read_only(path: Path) -> sqlite3.Connection:
    # Without a log no process has it open, and SQLite need not leave one behind.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    db = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=30.0, isolation_level=None)
    db.create_function(_FUNCTION, -1, _compute_row_checksum, deterministic=True)
    return db
