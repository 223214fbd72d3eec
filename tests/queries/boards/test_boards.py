"""Boards and links as documents and in their file: what is refused, changes at the same time, what a kill leaves."""

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.times import parse_instant
from queries.boards import repository
from queries.boards.definition import MAX_PANELS, address_from_json, board_from_json
from queries.boards.repository import BoardConflict, BoardStore, BoardsUnavailable

NOW_NS = parse_instant("2024-01-01")
QUERY = {"variable": "rain", "steps": [{"op": "aggregate", "function": "sum", "time": "1h"}]}
PICTURE = {"kind": "picture", "title": "Rain", "columns": 2, "last": "24h", "query": QUERY, "view": {"view": "lines"}}
NUMBER = {"kind": "number", "last": "90min", "station": "a b", "variable": "rain", "reduce": "max"}
FIXED = {"kind": "picture", "query": {**QUERY, "clip": {"time": ["2007-10-01", "2007-10-02"]}}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BoardStore]:
    made = BoardStore(tmp_path / "boards.sqlite")
    yield made
    made.close()


def test_a_document_comes_back_as_it_was_meant() -> None:
    board = board_from_json({"title": "Rain, upper valley", "panels": [PICTURE, NUMBER, FIXED]})
    assert (board.name, board.version) == ("rain-upper-valley", 1)
    assert len({panel.id for panel in board.panels}) == 3
    document = board.to_json()
    assert [panel["last"] for panel in document["panels"]] == ["1day", "90min", None]
    assert board_from_json(document, name=board.name) == board
    assert board_from_json({"title": "雨"}).name.startswith("board-")


def test_a_panel_that_follows_ends_with_the_newest_readings() -> None:
    picture, number, fixed = board_from_json({"title": "x", "panels": [PICTURE, NUMBER, FIXED]}).panels
    end_ns = parse_instant("2007-10-03T10:34Z")
    assert picture.make_question(end_ns) == {**QUERY, "clip": {"time": ["2007-10-02T10:34Z", "2007-10-03T10:34Z"]}}
    assert picture.make_question(None) == QUERY
    assert number.make_question(end_ns)["clip"] == {"time": ["2007-10-03T09:04Z", "2007-10-03T10:34Z"]}
    assert number.make_question(end_ns)["select"] == {"station": "a b"}
    assert fixed.make_question(end_ns) == FIXED["query"]


# What is changed in a board of one picture, and the words of the refusal.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"title": ""}, "needs 'title'"),
    ({"title": 5}, "line of at most"),
    ({"title": "a\nb"}, "line of at most"),
    ({"name": "../x"}, "lower-case"),
    ({"colour": 1}, "colour"),
    ({"version": True}, "whole number"),
    ({"panels": {}}, "a list of at most"),
    ({"panels": [PICTURE] * (MAX_PANELS + 1)}, "second board"),
    ({"panels": [{**PICTURE, "id": "a"}, {**NUMBER, "id": "a"}]}, "two panels of the id 'a'"),
    ({"panels": ["rain"]}, "panel 1 of board 'x' is a JSON object"),
    ({"panels": [{**PICTURE, "kind": "film"}]}, "picture"),
    ({"panels": [{**PICTURE, "columns": True}]}, "1 or 2"),
    ({"panels": [{**PICTURE, "columns": 3}]}, "1 or 2"),
    ({"panels": [{**PICTURE, "last": "a while"}]}, "duration"),
    ({"panels": [{**PICTURE, "last": "400000day"}]}, "500 years"),
    ({"panels": [{**PICTURE, "last": "40000day"}]}, "at most"),
    ({"panels": [{**PICTURE, "query": None}]}, "needs 'query'"),
    ({"panels": [{**PICTURE, "query": {"variable": "rain", "steps": 5}}]}, "panel 1 of board 'x'"),
    ({"panels": [{**PICTURE, "query": {**QUERY, "snapshot": "S"}}]}, "keep one"),
    ({"panels": [{**FIXED, "last": "1h"}]}, "clip.time"),
    ({"panels": [{**PICTURE, "view": {"view": "x" * 300}}]}, "parameters"),
    ({"panels": [{**PICTURE, "view": {"a b": "x"}}]}, "parameters"),
    ({"panels": [{**NUMBER, "station": ""}]}, "'station' and 'variable'"),
    ({"panels": [{**NUMBER, "reduce": "mode"}]}, "latest"),
    ({"panels": [{"kind": "series", "query": QUERY}]}, "station"),
]


@pytest.mark.parametrize(("changed", "words"), BAD)
def test_a_document_that_does_not_fit_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(HyperGridError, match=words.replace("(", r"\(")):
        board_from_json({"name": "x", "title": "x", "panels": [PICTURE], **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "needs 'version'"),
        ({"version": 1, "changed": 5}, "an instant"),
        ({"version": 1, "changed": "soon"}, "soon"),
    ],
)
def test_a_change_names_what_it_was_made_from(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(HyperGridError, match=words):
        board_from_json({"title": "x", "panels": [], **changed}, name="x")
    assert board_from_json({"title": "x", "changed": "soon"}).changed_ns == 0


@pytest.mark.parametrize(
    "address", ["", "javascript:alert(1)", "//evil.example", "https://evil.example", "a\nb", "x" * 20_000, None]
)
def test_an_address_of_another_site_is_no_link(address: object) -> None:
    with pytest.raises(InvalidQuery, match="address"):
        address_from_json({"address": address})
    assert address_from_json({"address": "#boards?board=x", "title": "X"}) == ("boards?board=x", "X")


def test_of_two_changes_of_one_version_the_second_is_refused(store: BoardStore) -> None:
    board = store.add_board(board_from_json({"title": "Wall", "panels": [PICTURE]}), now_ns=NOW_NS)
    with pytest.raises(BoardConflict, match="there already"):
        store.add_board(board, now_ns=NOW_NS)
    changed = store.replace_board(replace(board, title="Hall"), now_ns=NOW_NS + 1)
    assert (changed.version, changed.changed_ns) == (2, NOW_NS + 1)
    with pytest.raises(BoardConflict, match="version 2.*version 1"):
        store.replace_board(replace(board, panels=()), now_ns=NOW_NS + 2)
    assert store.boards() == [changed]
    store.remove_board("wall")
    # One of the same name and versions is another board.
    again = store.add_board(board_from_json({"title": "Wall"}), now_ns=NOW_NS + 9)
    with pytest.raises(BoardConflict, match="last changed at .* read it again"):
        store.replace_board(board, now_ns=NOW_NS + 10)
    assert store.boards() == [again]
    store.remove_board("wall")
    for act in (store.board, store.remove_board):
        with pytest.raises(NotFound):
            act("wall")
    with pytest.raises(NotFound):
        store.replace_board(changed, now_ns=NOW_NS)


def test_limits_and_equal_links(store: BoardStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "MAX_BOARDS", 2)
    monkeypatch.setattr(repository, "MAX_LINKS", 2)
    for title in ("b", "a"):
        store.add_board(board_from_json({"title": title}), now_ns=NOW_NS)
    with pytest.raises(InvalidQuery, match="2 may be"):
        store.add_board(board_from_json({"title": "c"}), now_ns=NOW_NS)
    assert [board.title for board in store.boards()] == ["a", "b"]
    link = store.add_link("explore?q=1", "", now_ns=NOW_NS)
    assert store.add_link("explore?q=1", "", now_ns=NOW_NS + 5) == link
    assert store.add_link("explore?q=1", "Rain", now_ns=NOW_NS + 6).name != link.name
    with pytest.raises(InvalidQuery, match="2 may be"):
        store.add_link("explore?q=2", "", now_ns=NOW_NS)
    store.remove_link(link.name)
    with pytest.raises(NotFound):
        store.link(link.name)


WRITER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from queries.boards.definition import board_from_json
    from queries.boards.repository import BoardStore

    store = BoardStore(Path(sys.argv[1]))
    for number in range(10_000):
        store.add_board(board_from_json({"title": f"Board {number}"}), now_ns=number)
        link = store.add_link(f"boards?board=board-{number}", "", now_ns=number)
        print(link.name, flush=True)
        if number:
            store.remove_board(f"board-{number - 1}")
    """
)


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "boards.sqlite"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    names = [writer.stdout.readline().strip() for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    names += writer.stdout.read().split()
    writer.wait(30)
    store = BoardStore(path)
    try:
        assert [store.link(name).name for name in names] == names
        (name, *more) = [board.name for board in store.boards()]
        # One is removed after the next was added: between the two there may be both.
        assert len(more) <= 1
        assert json.dumps(store.board(name).to_json())
        assert store.list_damaged() == []
    finally:
        store.close()


def test_a_change_to_a_file_that_was_removed_is_refused(store: BoardStore) -> None:
    board = board_from_json({"title": "Rain"})
    store.path.rename(store.path.with_name("moved.sqlite"))
    with pytest.raises(BoardsUnavailable, match="was removed or replaced while it was open"):
        store.add_board(board, now_ns=NOW_NS)
    assert store.boards() == []


def test_boards_that_another_program_holds_are_not_called_damaged(
    store: BoardStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoardStore, "kind", replace(BoardStore.kind, busy_s=0.1))
    opened = BoardStore(store.path)
    with store._transaction(), pytest.raises(BoardsUnavailable, match=r"held by another program for 0\.1 s"):
        opened.add_board(board_from_json({"title": "Rain"}), now_ns=NOW_NS)
    opened.close()
