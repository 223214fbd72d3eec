"""`hypergrid cql`: statements are checked alone or with an archive, and explained."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypergrid.cli.commands import app
from hypergrid.continuous.language import InvalidCql
from hypergrid.core.errors import InvalidQuery, NotFound
from tests.support.continuous_golden import FOLDER
from tests.support.named_network import named_archive


def run(*words: object, text: str = "") -> str:
    answer = CliRunner().invoke(app, ["cql", *map(str, words)], input=text, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output + (answer.stderr or "")


def test_statements_are_checked_with_their_own_schemas(tmp_path: Path) -> None:
    assert "query 1 is valid: a stream of car, toll, speed" in run("check", FOLDER / "road_1_tolls.sql")
    file = tmp_path / "two.cql"
    file.write_text("Register Stream S (a integer); Select Istream(*) From S [Rows 1]; Select count(*) From S")
    words = run("check", file)
    assert "query 2 is valid: a relation of count" in words
    assert "(R2)" in words
    listed = json.loads(run("check", file, "--json"))
    assert [(each["result"], each["columns"][0]["name"]) for each in listed] == [("stream", "a"), ("relation", "count")]
    file.write_text("Register Stream S (a integer)")
    assert "valid, without a query" in run("check", file)


def test_a_fault_is_underlined(tmp_path: Path) -> None:
    file = tmp_path / "wrong.cql"
    file.write_text("Register Stream S (a integer);\nSelect b From S")
    with pytest.raises(InvalidCql) as raised:
        run("check", file)
    assert str(raised.value).splitlines()[1:] == ["  2 | Select b From S", "    |        ^"]


def test_a_file_that_holds_no_statements_is_named(tmp_path: Path) -> None:
    file = tmp_path / "latin.cql"
    file.write_bytes("Select 'Zürich' From S".encode("latin-1"))
    with pytest.raises(InvalidQuery, match=r"latin\.cql needs text in UTF-8; got the byte 0xfc after 9 bytes"):
        run("check", file)
    for missing in (tmp_path / "missing.cql", tmp_path):
        with pytest.raises(NotFound, match=re.escape(f"the query file {missing} cannot be read")):
            run("check", missing)
    for text in ("", " -- only a remark\n", ";"):
        file.write_text(text)
        with pytest.raises(InvalidQuery, match=r"latin\.cql holds no statement"):
            run("check", file)
    with pytest.raises(InvalidQuery, match="standard input holds no statement"):
        run("check", "-")


def test_queries_are_checked_and_explained_with_an_archive(tmp_path: Path) -> None:
    archive = named_archive(tmp_path / "archive").path
    text = "Select station, avg(value) From air_temperature [Range 1 Hour] Group By station"
    assert "a relation of station, avg" in run("check", "-", "--archive", archive, text=text)
    words = run("explain", archive, "-", text=text)
    assert "avg number [degC]" in words
    assert "rewriting" in words
    assert "(t - 1 h, t]" in words
    (listed,) = json.loads(run("explain", archive, "-", "--json", text=text))
    assert listed["explain"] in words


@pytest.mark.parametrize("has_archive", [True, False])
def test_statements_may_name_tables_of_files(tmp_path: Path, *, has_archive: bool) -> None:
    (tmp_path / "limits.csv").write_text("station,limit\n1,30\n")
    (tmp_path / "alarms.csv").write_text("tau,station\n2007-10-01T00:00:00,1\n")
    tables = [word for name in ("limits", "alarms") for word in ("--table", f"{name}={tmp_path / name}.csv")]
    beside = ["--archive", named_archive(tmp_path / "archive").path] if has_archive else []
    text = "Select Istream(A.station, L.limit) From alarms [Now] A, limits L Where A.station = L.station"
    assert "a stream of station, limit" in run("check", "-", *tables, *beside, text=text)
    with pytest.raises(InvalidCql, match="limits"):
        run("check", "-", *tables[2:], *beside, text=text)
    with pytest.raises(NotFound, match="none.csv"):
        run("check", "-", "--table", f"limits={tmp_path / 'none.csv'}", *beside, text=text)


def test_the_parser_is_loaded_by_these_commands_only() -> None:
    program = "import sys, hypergrid, hypergrid.cli.commands; print('sqlglot' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "False"
