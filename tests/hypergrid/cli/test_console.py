"""What machines read from the command line is JSON, whatever the numbers are."""

import errno
import json
import math

import pytest

from hypergrid.cli.console import (
    Footnotes,
    escape_invisible,
    explain_error,
    show_error,
    show_json,
    show_line,
    show_message,
    show_table,
)
from hypergrid.execution import split_notes


def test_what_json_does_not_have_becomes_null(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"lon": math.nan, "rows": [(1.5, math.inf), {"deep": -math.inf, "text": "NaN"}], "none": None, "yes": True}
    show_json(given)

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == {"lon": None, "rows": [[1.5, None], {"deep": None, "text": "NaN"}], "none": None, "yes": True}


def test_a_list_of_records_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    show_json([{"elevation_m": math.nan}])
    assert json.loads(capsys.readouterr().out) == [{"elevation_m": None}]


def test_footnotes_are_numbered_and_equal_ones_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    notes = Footnotes()
    assert [notes.number(texts) for texts in (["a"], [], ["b", "a"])] == ["1", "", "2, 1"]
    notes.show()
    assert capsys.readouterr().out == "1: a\n2: b\n"


def test_a_comment_is_its_notes_whole() -> None:
    comment = "not fitted (no pairs; raise cutoff_m (now 5)); taken instead; 3 of 4 cells"
    assert split_notes(comment) == ["not fitted (no pairs; raise cutoff_m (now 5))", "taken instead", "3 of 4 cells"]
    assert split_notes("") == []


def test_errors_of_the_system_say_what_to_do() -> None:
    assert explain_error(OSError(errno.EROFS, "Read-only file system", "/a/lock")) == (
        "/a/lock: read-only file system; nothing was written; mount it for writing, or work on a copy"
    )
    assert explain_error(OSError(errno.ENOSPC, "No space left on device", "x")).endswith(
        "make room, and give the command again"
    )
    # As Arrow's writer says it.
    nameless = OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")
    assert explain_error(nameless) == "no space left on device; make room, and give the command again"
    assert explain_error(OSError("no number")) == "no number"


UNSEEN = "A\x1b]0;owned\x07\x9b2J\u202egnp.exe\u2066\u200b\r"


def test_what_a_terminal_would_obey_is_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    shown = r"A\x1b]0;owned\x07\x9b2J\u202egnp.exe\u2066\u200b\r"
    show_message(UNSEEN)
    show_error(UNSEEN)
    show_line(UNSEEN)
    out, err = capsys.readouterr()
    assert err == f"{shown}\nhypergrid: {shown}\n"
    assert out == f"{shown}\n"
    show_table(f"Stations [bold]of[/bold] {UNSEEN}", ("id",), [(f"{UNSEEN}\nB",)])
    out = capsys.readouterr().out
    assert not any(letter in out for letter in "\x1b\x07\x9b\u202e\u2066\u200b\r")
    assert "[bold]of[/bold]" in out
    assert r"\u200b\r\nB" in "".join(out.split())


def test_letters_of_all_languages_stay_as_they_are() -> None:
    text = "Zürich, 東京, القاهرة, Ελλάδα, 5 °C, m³\tand\nso on"
    assert escape_invisible(text) == text


ROWS = [("frost", 10, "Night frost in the upper valley, where the orchards stand"), ("heat", 2, "Heat [of the day]")]


def _shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    show_table("Alerts", ("name", "weight", "what"), ROWS)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= columns
    return lines


def test_a_table_is_as_wide_as_it_needs_and_the_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = _shown(capsys, monkeypatch, 100)
    assert [line.split() for line in wide[1:2]] == [["name", "weight", "what"]]
    assert wide[3].endswith("Night frost in the upper valley, where the orchards stand")
    # Text gives way first, and no word is broken.
    narrow = _shown(capsys, monkeypatch, 50)
    assert narrow[3].split()[:3] == ["frost", "10", "Night"]
    assert len(narrow) == len(wide) + 2


@pytest.mark.parametrize("width", [100, 22])
def test_units_of_columns_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    show_table("", ("name", "disorder [s]", "memory [bytes]"), [("a-name-that-is-long", 1, 2)])
    shown = capsys.readouterr().out
    assert "disorder [s]" in shown
    assert "memory [bytes]" in shown


def test_a_table_without_space_is_a_paragraph_a_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _shown(capsys, monkeypatch, 22)[:4] == ["Alerts", "frost", "  weight: 10", "  what: Night frost in"]
    show_table("", ("name", "height"), [("a", math.nan), ("b" * 30, 1.0)])
    assert "nan" not in capsys.readouterr().out
