"""The benchmark of the pages in small: that it counts what it says, and what must hold however slow the machine is."""

import json

import pytest

from tests.bench import bench_pages
from tests.bench.page_tab import Run
from tests.browser.pages import SMALL
from tests.chromium import SHELL, chromium_path


@pytest.fixture(autouse=True)
def _chromium() -> None:
    if chromium_path() is None:
        pytest.skip(f"no Chromium on the PATH: install the package {SHELL}, or chromium")


def test_the_first_picture_and_how_it_sharpens() -> None:
    measured = bench_pages.measure("first", quick=True)["parts"]["first"]["rows"]
    assert [row["questions"] for row in measured] == [1, 1]
    for row in measured:
        stages = ["question taken by ms", "picture asked at ms", "first picture ms", "complete ms"]
        assert [row[stage]["least"] for stage in stages] == sorted(row[stage]["least"] for stage in stages)
    (row,) = bench_pages.measure("sharpens", quick=True)["parts"]["sharpens"]["rows"]
    assert row["redraws before"]["least"] >= 1
    assert row["at the page s"]["median"] >= row["first picture ms"]["median"] / 1000
    assert row["shortest between redraws ms"]["least"] > 0


def test_pages_that_are_left_open_complain_of_nothing_and_keep_no_figures() -> None:
    measured = bench_pages.measure("open", quick=True, minutes=0.2)
    *tabs, processes = measured["parts"]["open"]["rows"]
    assert [row["tab"] for row in tabs] == ["overview", "explore", "stations", "standing", "engine"]
    assert processes["complaints"] == []
    assert "explore: Done" in processes["shown"]
    assert all(row["heap MiB after"] > 0 for row in tabs)
    titles = [title for title, _, _ in bench_pages.tables(measured)]
    assert titles == [bench_pages.TITLES["open"]]


def test_a_board_follows_and_keeps_no_figures() -> None:
    measured = bench_pages.measure("board", quick=True, minutes=0.2)
    (row,) = measured["parts"]["board"]["rows"]
    assert (row["complaints"], row["failing"]) == ([], [])
    # A slice comes every two seconds, for twelve.
    assert row["updates of a panel"]["least"] >= 3
    assert row["most behind s"]["most"] > 0
    assert row["nodes after"] < 1.2 * row["nodes before"]
    assert [title for title, _, _ in bench_pages.tables(measured)] == [bench_pages.TITLES["board"]]


def test_pages_of_many_stations_are_opened_until_they_answer() -> None:
    measured = bench_pages.measure("many", quick=True)
    *rows, larger = measured["parts"]["many"]["rows"]
    assert [row["page"].partition(",")[0] for row in rows] == ["explore", "stations", "standing", "engine", "overview"]
    for row in (*rows, larger):
        assert 0 < row["drawn s"]["least"] <= row["usable s"]["least"]
        assert row["openings"] == 1
        # BokehJS alone, compressed, is 350.
        assert row["loaded KiB"]["least"] > 350
    # Of each station a row of nine cells: more than are drawn, in either archive.
    assert larger["kept"]
    assert 200 * 9 < rows[1]["elements"]["most"] < 250 * 9 * 2 + 2000
    ((title, columns, shown),) = bench_pages.tables(measured)
    assert title == bench_pages.TITLES["many"]
    assert columns[-1] == "stations, 500 stations"
    assert "usable s" in [row[0] for row in shown]


def test_no_two_questions_share_anything() -> None:
    texts = {json.dumps(bench_pages.q1(number, cells=200)) for number in range(10)}
    assert len(texts) == 10
    assert SMALL["variable"] == bench_pages.q1(0, cells=200)["variable"]


def test_pictures_before_the_complete_one_are_counted() -> None:
    run = Run((0.2, 0.5, 0.9, 1.0), (False, False, True, True), ())
    assert (run.before_complete, run.total_s) == (2, 0.9)


def test_the_overview_is_timed_on_warm_and_cold_servers_and_weighed() -> None:
    measured = bench_pages.measure("overview", quick=True)
    rows = measured["parts"]["overview"]["rows"]
    assert [row["openings"] for row in rows] == [2, 1, 2, 1]
    for row in rows:
        assert 0 < row["values s"]["least"] <= row["ground s"]["least"]
        # BokehJS alone is 1,240.
        assert 1240 < row["loaded KiB, uncompressed"]
    assert rows[0]["at most 1.8 MB"]
    ((title, columns, _),) = bench_pages.tables(measured)
    assert title == bench_pages.TITLES["overview"]
    assert columns[-1] == "250 stations, cold server"


def test_the_first_map_is_timed_until_it_is_whole() -> None:
    rows = bench_pages.measure("map", quick=True)["parts"]["map"]["rows"]
    assert [row["openings"] for row in rows] == [2, 1, 2, 1]
    for row in rows:
        assert 0 < row["first picture s"]["least"] <= row["whole map s"]["least"]
