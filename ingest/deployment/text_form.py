"""The keys of a feed that describe delimited text."""

from ingest.deployment.toml_table import TomlTable
from ingest.formats.base import BLANKS, TextForm
from ingest.formats.csv_sniffer import DELIMITERS
from ingest.formats.encoding import is_superset_of_ascii
from ingest.formats.strptime import check_format

QARTOD = (1, 2, 3, 4, 9)


def text_form(table: TomlTable) -> TextForm:
    """Read the keys; what is left away is told by each file's beginning.

    Raises
    ------
    InvalidDeployment
        A key cannot be used, or two do not go together.
    """
    names = table.texts("names", default=())
    if len(set(names)) < len(names):
        table.refuse("names", f"names a column twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    header_lines = _read_integer(table, "header_lines") if table.has("header_lines") else None
    if header_lines == 0 and not names:
        table.refuse("header_lines", "is 0, so that nothing names the columns; name them in `names`")
    name_lines = table.value("name_line", default=1)
    name_lines = tuple(name_lines) if isinstance(name_lines, list) else (name_lines,)
    unit_line = _read_integer(table, "unit_line")
    for key, lines in (("name_line", name_lines), ("unit_line", (unit_line,))):
        first_line = 1 if key == "name_line" else 0
        if not lines or not all(isinstance(line, int) and line >= first_line for line in lines):
            table.refuse(key, f"needs numbers of lines of the header, from {first_line}; got {table.value(key)!r}")
        if table.has(key) and max(lines) > (header_lines or 0):
            table.refuse(key, f"is {max(lines)}, but `header_lines` is {header_lines or 'missing'}")
    variable, value, unit = (_text(table, f"{what}_column") for what in ("variable", "value", "unit"))
    if bool(variable) != bool(value) or (unit and not variable):
        table.refuse("variable_column", "and value_column go together; a unit_column needs both")
    return TextForm(
        _delimiter(table),
        _read_choice(table, "decimal", (".", ",")),
        _encoding(table),
        table.value("comment") if _is_text(table, "comment") else None,
        _read_integer(table, "skip_lines"),
        header_lines,
        name_lines,
        unit_line,
        names,
        table.texts("time_column", default=()),
        _time_format(table),
        _text(table, "station"),
        variable,
        value,
        unit,
        _text(table, "flag_column"),
        _flags(table),
    )


def _text(table: TomlTable, key: str) -> str:
    return table.text(key) if table.has(key) else ""


def _is_text(table: TomlTable, key: str) -> bool:
    if table.has(key) and not isinstance(table.value(key), str):
        table.refuse(key, f"needs text, which may be empty; got {table.value(key)!r}")
    return table.has(key)


def _read_integer(table: TomlTable, key: str) -> int:
    number = table.number(key, default=0, minimum=0, maximum=1000)
    if number != int(number):
        table.refuse(key, f"needs a whole number; got {number!r}")
    return int(number)


def _read_choice(table: TomlTable, key: str, choices: tuple[str, ...]) -> str | None:
    return table.text(key, among=choices) if table.has(key) else None


def _delimiter(table: TomlTable) -> str | None:
    if not table.has("delimiter"):
        return None
    delimiter = table.value("delimiter")
    if delimiter == BLANKS or delimiter in (" ", *DELIMITERS):
        return BLANKS if delimiter == " " else str(delimiter)
    if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        table.refuse("delimiter", f"needs one character, or {BLANKS!r} for any number of them; got {delimiter!r}")
    return delimiter


def _encoding(table: TomlTable) -> str | None:
    if not table.has("encoding"):
        return None
    name = table.text("encoding")
    try:
        is_superset_of_ascii(name)
    except (LookupError, UnicodeError, TypeError) as error:
        table.refuse("encoding", f"is {name!r}, which nobody knows; write 'utf-8', 'cp1252', 'latin-1'", cause=error)
    return name


def _time_format(table: TomlTable) -> str | None:
    if not table.has("time_format"):
        return None
    return table.run_check("time_format", lambda: check_format(table.text("time_format")))


def _flags(table: TomlTable) -> tuple[tuple[str, int], ...]:
    if not table.has("flags"):
        return ()
    inner = TomlTable(table.value("flags"), f"{table.path}.flags", file=table.file)
    flags = []
    for text in inner.names():
        if inner.value(text) not in QARTOD or isinstance(inner.value(text), bool):
            inner.refuse(
                text, f"needs a flag of QARTOD, one of {', '.join(map(str, QARTOD))}; got {inner.value(text)!r}"
            )
        flags.append((text, int(inner.value(text))))
    return tuple(flags)
