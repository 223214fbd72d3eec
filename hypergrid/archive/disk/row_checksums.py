"""Row checksums: detect flipped bits in SQLite files and logs of JSON lines.

Each table has a column `checksum`, the CRC-32C of the row's other columns. Triggers of the connection maintain it, so
that SQL statements need not mention it. They refuse to update a row that does not match, because a damaged value must
not get a valid checksum. Rows are read through the view `valid_TABLE`, which omits rows that do not match.

A file whose `user_version` is below `CHECKED_VERSION` was written by an older program. Opening it adds the column and
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
"""First `user_version` with row checksums."""
_FUNCTION: Final = "row_checksum"
_LINE_START: Final = f'{{"{COLUMN}": "'
_OLD_LINE_START: Final = '{"time": "'
"""Start of a line without a checksum; no single flipped bit turns a checked line into one."""
_NEVER_EMPTY: Final = (".sqlite", ".jsonl", ".secret")
"""Suffixes of files that are created atomically, or with their first line."""
_LONGEST_REPORT: Final = 200
_LOG: Final = logging.getLogger(__name__)


class DamagedState(HyperGridError, RuntimeError):
    """An unreadable file of the server's state; the message names file, problem and remedy."""


class Malformed(sqlite3.DatabaseError):
    """A SQLite file is damaged, or is not the file that the program creates."""


@dataclass(frozen=True)
class Schema:
    """Tables and indexes of a SQLite file."""

    statements: tuple[str, ...]
    """One CREATE statement each; every table has `checksum TEXT NOT NULL DEFAULT ''` as its last column."""
    added: tuple[str, ...] = ()
    """Statements that add the columns which version 1 lacks, other than the checksum."""
    later: tuple[str, ...] = ()
    """CREATE … IF NOT EXISTS statements of tables and indexes that files of the same version may lack."""

    def create(self, db: sqlite3.Connection) -> None:
        """Create everything in an empty file, inside the caller's transaction."""
        for statement in (*self.statements, *self.later):
            db.execute(statement)


def open_checked(db: sqlite3.Connection, schema: Schema) -> int:
    """Verify a newly opened SQLite file, create or upgrade its tables, and maintain checksums.

    Returns the `user_version` that the file had; above `CHECKED_VERSION` the file is left unchanged.

    Raises
    ------
    Malformed
        The file is damaged.
    sqlite3.DatabaseError
        The file is locked or not writable, or SQLite reports the damage.
    """
    db.create_function(_FUNCTION, -1, _compute_row_checksum, deterministic=True)
    with _translate_errors():
        _verify_structure(db)
        db.execute("PRAGMA journal_mode = WAL")
        _rebuild_indexes(db)
        return _prepare(db, schema)


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a SQLite file read-only, with the views of its valid rows; nothing is upgraded or rebuilt.

    Raises
    ------
    Malformed
        The file is damaged, or has another version.
    sqlite3.DatabaseError
        The file cannot be opened, or SQLite reports the damage.
    """
    require_content(path)
    db = _open_read_only(path)
    try:
        with _translate_errors():
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            if version != CHECKED_VERSION:
                raise Malformed(f"it has version {version}, and {CHECKED_VERSION} is read")
            for table in list_tables(db):
                _create_triggers(db, table)
    except BaseException:
        db.close()
        raise
    return db


def create_whole(path: Path, schema: Schema) -> None:
    """Create a missing SQLite file atomically, readable only by its owner.

    An empty file therefore has lost its content, and is not the start of a creation that died.

    Raises
    ------
    OSError, sqlite3.DatabaseError
        The file cannot be written.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    # Created before SQLite opens it, so that no other user can read it even briefly.
    os.close(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(sqlite3.connect(scratch, isolation_level=None)) as db:
            open_checked(db, schema)
        with suppress(FileExistsError):
            # Another process was faster and may already have written to its file.
            os.link(scratch, path)
    finally:
        scratch.unlink()


def require_content(path: Path) -> None:
    """Raise `Malformed` if a SQLite file made by `create_whole` is empty."""
    if path.exists() and not path.stat().st_size:
        raise Malformed("it is empty")


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise `Malformed` for errors that only a damaged file causes but do not say so."""
    try:
        yield
    except UnicodeDecodeError as error:
        # SQLite's message quotes a name that is not UTF-8.
        raise Malformed("its schema is damaged") from error
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) == sqlite3.SQLITE_ERROR:
            # The statement is valid for every intact file.
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
            for statement in schema.later:
                db.execute(statement)
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
    """Raise `Malformed`, or SQLite's own error, if the structure of an open file is damaged."""
    if (problem := _find_problem(db, "quick_check")) is not None:
        raise Malformed(problem)


def _rebuild_indexes(db: sqlite3.Connection) -> None:
    """Rebuild indexes that do not match the rows, which are authoritative as they have checksums."""
    if (problem := _find_problem(db, "integrity_check")) is not None:
        path = db.execute("PRAGMA database_list").fetchone()[2]
        _LOG.warning("the indexes of %s are rebuilt: %s", path, problem)
        # A damaged entry would hide its row or find another one.
        db.execute("REINDEX")


def _find_problem(db: sqlite3.Connection, pragma: str) -> str | None:
    (result,) = db.execute(f"PRAGMA {pragma}(1)").fetchone()
    return None if result == "ok" else " ".join(str(result).split())[:_LONGEST_REPORT]


def list_tables(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("PRAGMA main.table_list").fetchall()
    return sorted(name for schema, name, *_ in rows if schema == "main" and not name.startswith("sqlite_"))


def find_damaged_rows(db: sqlite3.Connection, table: str) -> list[int]:
    """Return the rowids of rows that do not match their checksums."""
    wanted = _format_checksum_sql(db, table)
    return [row for (row,) in db.execute(f"SELECT rowid FROM main.{table} WHERE {COLUMN} IS NOT {wanted}")]


def _compute_row_checksum(table: str, *values: str | bytes | None) -> str:
    """Compute the CRC-32C of a row (eight hexadecimal digits) from its values' types and bytes."""
    crc = google_crc32c.value(table.encode())
    for value in values:
        data = b"" if value is None else value.encode() if isinstance(value, str) else value
        # The lengths separate adjacent values.
        crc = google_crc32c.extend(crc, len(data).to_bytes(8, "little") + data)
    return f"{crc:08x}"


def _list_columns(db: sqlite3.Connection, table: str) -> list[str]:
    """List the columns that a checksum covers."""
    return [row[1] for row in db.execute(f"PRAGMA main.table_info({table})") if row[1] != COLUMN]


def _format_checksum_sql(db: sqlite3.Connection, table: str, row: str = "") -> str:
    """Format the SQL expression for a row's checksum; triggers use `row` "OLD." or "NEW."."""
    columns = _list_columns(db, table)
    # Text is passed as bytes: a flipped bit may make it invalid UTF-8, which must not fail the whole statement.
    values = (f"typeof({row}{name}), CAST({row}{name} AS BLOB)" for name in columns)
    return f"{_FUNCTION}('{table}({', '.join(columns)})', {', '.join(values)})"


def _create_triggers(db: sqlite3.Connection, table: str) -> None:
    """Create the view and triggers of a table, for this connection only."""
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
    """Create the tables of an empty file, or add checksums to an older one."""
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
    """Raise `Malformed` if a table or index differs from what the program creates."""
    with closing(sqlite3.connect(":memory:")) as wanted:
        schema.create(wanted)
        for table in list_tables(wanted):
            if _read_outline(db, table) != _read_outline(wanted, table):
                raise Malformed(
                    f"the table {table!r} is missing, or its columns are not those that this program writes"
                )


def _read_outline(db: sqlite3.Connection, table: str) -> tuple[object, ...]:
    indexes = [row[1:] for row in db.execute(f"PRAGMA main.index_list({table})")]
    texts = [
        db.execute("SELECT sql FROM main.sqlite_schema WHERE name = ?", index_row[:1]).fetchone()
        for index_row in indexes
    ]
    columns = {tuple(row[1:]) for row in db.execute(f"PRAGMA main.table_info({table})")}
    return columns, sorted(zip(indexes, texts, strict=True))


def format_checked_line(values: Mapping[str, Any]) -> str:
    """Format a JSON line that begins with the checksum of the rest."""
    rest = json.dumps(values, ensure_ascii=True)[1:]
    return f'{_LINE_START}{google_crc32c.value(rest.encode("ascii")):08x}", {rest}'


def parse_checked_line(line: bytes) -> dict[str, Any] | None:
    """Parse a line of `format_checked_line`; None if it is damaged.

    A line without a checksum, from an older program, is accepted if it is valid JSON.
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
    """Yield the place and description of each defect of a state file (opened read-only).

    Places are such as "row 3 of keys", "line 7", "indexes", or "" for the whole file. `.sqlite` and `.jsonl` files are
    checked, and `.secret` files for being empty; others are ignored.
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
    # Without a log no process has the file open, and immutable mode keeps SQLite from creating one.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    db = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=30.0, isolation_level=None)
    db.create_function(_FUNCTION, -1, _compute_row_checksum, deterministic=True)
    return db
