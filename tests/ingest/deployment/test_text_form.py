"""Keys of a feed that describe delimited text: each mistake is told with its path, and what to write instead."""

import tomllib
from pathlib import Path

import pytest

from hypergrid.core.errors import InvalidDeployment
from ingest.deployment.deployment_file import text_form
from ingest.deployment.toml_table import TomlTable
from ingest.formats.base import BLANKS


def read(text: str) -> TomlTable:
    return TomlTable(tomllib.loads(text), "feed[0]", file=Path("deployment.toml"))


MISTAKES = [
    ('names = ["a", "b", "a"]', "feed.0..names names a column twice: a"),
    ("header_lines = 0", "header_lines is 0, so that nothing names the columns"),
    ("header_lines = 1.5", "header_lines needs a whole number; got 1.5"),
    ("header_lines = -1", "header_lines"),
    ("skip_lines = 2000", "skip_lines"),
    ("header_lines = 2\nname_line = 0", "name_line needs numbers of lines of the header, from 1; got 0"),
    ("header_lines = 2\nname_line = [1, 3]", "name_line is 3, but `header_lines` is 2"),
    ("unit_line = 2", "unit_line is 2, but `header_lines` is missing"),
    ("name_line = []", "name_line needs numbers"),
    ('variable_column = "parameter"', "variable_column and value_column go together"),
    ('unit_column = "unit"', "a unit_column needs both"),
    ('decimal = "point"', "decimal"),
    ("comment = 5", "comment needs text, which may be empty; got 5"),
    ('delimiter = "::"', "delimiter needs one character"),
    ("delimiter = '\"'", "delimiter needs one character"),
    ("delimiter = 3", "delimiter needs one character"),
    ('encoding = "utf-99"', "encoding is 'utf-99', which nobody knows"),
    ('time_format = "%Q"', "time_format"),
    ('time_format = "dd.mm.yyyy"', "time_format"),
    ("flags = {good = 7}", "flags.good needs a flag of QARTOD, one of 1, 2, 3, 4, 9; got 7"),
    ("flags = {good = true}", "flags.good needs a flag of QARTOD"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_a_mistake_is_told_with_its_key(text: str, message: str) -> None:
    with pytest.raises(InvalidDeployment, match=message):
        text_form(read(text))


def test_blanks_are_a_delimiter_by_either_name() -> None:
    assert [text_form(read(text)).delimiter for text in ('delimiter = " "', 'delimiter = "blanks"', "")] == [
        BLANKS,
        BLANKS,
        None,
    ]
