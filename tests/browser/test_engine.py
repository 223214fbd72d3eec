"""Engine: plans as graphs, what moves, caches, the scheduler's choices, snapshots."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

import hypergrid as hg
from hypergrid.archive.arrays import stream_log
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.times import SECOND_NS
from hypergrid.execution.planning import explain
from tests.browser.pages import SMALL, data, eventually, press_until, run, show

pytestmark = pytest.mark.browser


def test_the_plan_of_a_query_is_a_graph(opened: Page) -> None:
    run(opened, SMALL)
    show(opened, "Engine")
    graph = opened.get_by_role("img", name="A plan of")
    expect(graph).to_be_visible()
    expect(graph.locator(".node")).to_have_count(3)
    expect(graph.locator(".arrow")).to_have_count(2)
    expect(graph).to_contain_text("ordinary_kriging")
    expect(opened.locator("#plan-graph")).to_contain_text("This query: done, 100 % computed")
    expect(graph).to_contain_text("cells/s when last computed")
    opened.locator("#plan-graph").get_by_text("As a table").click()
    expect(opened.locator("#plan-graph table tbody tr")).to_have_count(3)
    # The readings were folded as they were read: they have no time of their own, and are computed all the same.
    expect(graph).to_contain_text("in the time of the next step")
    expect(opened.locator("#plan-graph")).not_to_contain_text("not computed")


def test_a_plan_that_was_never_computed_says_so(opened: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever other tests computed in this process.
    monkeypatch.setattr(explain, "MEASUREMENTS", LruCache(1))
    show(opened, "Engine")
    opened.get_by_label("Plan of").select_option("saved:q4")
    expect(opened.get_by_role("img", name="A plan of 5")).to_contain_text("not computed here yet")
    expect(opened.locator("#plan-graph")).not_to_contain_text("in the time of")


def test_a_plan_is_chosen_by_keyboard_and_linked(opened: Page, address: str) -> None:
    show(opened, "Engine")
    expect(opened.locator("#plan-graph svg")).to_be_visible()
    press_until(opened, "plan-of")
    opened.keyboard.type("saved query q5_fine")
    expect(opened.locator("#plan-of")).to_have_value("saved:q5_fine")
    expect(opened.locator("#plan-graph")).to_contain_text("A plan of 5 perspectives")
    assert "plan=saved" in opened.url
    link = opened.url
    opened.goto(address)
    opened.goto(link)
    expect(opened.locator("#plan-of")).to_have_value("saved:q5_fine")


def test_what_moves_moves_without_flicker(opened: Page) -> None:
    show(opened, "Engine")
    opened.wait_for_selector("#page-engine .picture canvas")
    place = opened.locator("#page-engine .picture").first
    eventually(opened, lambda: bool(place.evaluate("(one) => Boolean(one.figure)")))
    place.evaluate("(one) => { one.id = 'moving'; one.marked = one.figure; }")
    before = len(data(opened, "lines", "times", "moving")[0])
    eventually(opened, lambda: len(data(opened, "lines", "times", "moving")[0]) >= before + 2)
    assert place.evaluate("(one) => one.marked === one.figure"), "the same figure, with newer values"


def test_caches_choices_and_snapshots(opened: Page, archive: hg.OpenArchive) -> None:
    show(opened, "Engine")
    expect(opened.locator("#caches tbody tr")).to_have_count(3)
    expect(opened.locator("#caches")).to_contain_text("Kriging weights")
    expect(opened.locator("#choices")).to_contain_text("opt-profit")
    expect(opened.locator("#snapshots tbody tr")).to_have_count(len(archive.snapshots))
    # Both were committed at the same time: one dot stands for them.
    expect(opened.locator("#snapshots circle")).to_have_count(1)
    expect(opened.locator("#snapshots circle title")).to_contain_text(f", and {len(archive.snapshots) - 1} more")
    expect(opened.locator("#snapshots")).to_contain_text(archive.snapshot)
    expect(opened.locator("#tiles")).to_contain_text("Queries running")


def told(archive: hg.OpenArchive, ago_s: float, **more: object) -> None:
    """Have a stream of two groups tell how it stood some seconds ago."""
    at_ns = time.time_ns() - round(ago_s * SECOND_NS)
    join = {"streams": 12, "silent": 1, "held": 100 + ago_s, "held_bytes": 2 << 20, "allocated_bytes": 8 << 20}
    join |= {"allowed_bytes": None, "needed": 250.0, "scrambling_factor": 7, "lag": None}
    last_ns = at_ns - 600 * SECOND_NS
    record = {
        "at_ns": at_ns, "readings_per_s": 40.5, "behind": 3, "batches": 9, "came": 4321, "held": 900, "late": 2,
        "slices": 70, "last_slice_ns": last_ns, "joins": {"a": join, "b": {**join, "held": 11, "lag": 21.0}},
    }  # fmt: skip
    stream_log.append_record(archive.store.path, {**record, **more})


@pytest.fixture
def streamed(archive: hg.OpenArchive) -> Iterator[hg.OpenArchive]:
    """Leave no stream behind."""
    yield archive
    (archive.store.path / stream_log.FILE).unlink(missing_ok=True)


def test_without_a_stream_it_says_how_to_begin_one(opened: Page) -> None:
    show(opened, "Engine")
    expect(opened.locator("#no-stream")).to_contain_text("hypergrid stream ARCHIVE --deployment FILE")
    expect(opened.locator("#stream-tiles")).to_be_hidden()


def test_a_stream_is_shown_as_it_moves(opened: Page, streamed: hg.OpenArchive) -> None:
    show(opened, "Engine")
    expect(opened.locator("#no-stream")).to_be_visible()
    for ago_s in (40.0, 30.0, 20.0):
        told(streamed, ago_s)
    expect(opened.locator("#stream-state")).to_have_text("It runs.")
    expect(opened.locator("#no-stream")).to_be_hidden()
    place, last = opened.locator("#stream-buffers"), opened.locator("#stream-age")
    eventually(opened, lambda: bool(last.evaluate("(one) => Boolean(one.figure)")))
    held, needed = data(opened, "lines", "values", "stream-buffers")
    assert (held, needed) == ([151, 141, 131], [500, 500, 500])
    scrambling, lag = data(opened, "lines", "values", "stream-disorder")
    assert (scrambling, lag) == ([7, 7, 7], [21, 21, 21])
    assert data(opened, "lines", "values", "stream-held") == [[4, 4, 4], [16, 16, 16]], (
        "no line for a limit that is not"
    )
    assert data(opened, "lines", "values", "stream-age") == [[10, 10, 10]]
    expect(opened.locator("#stream-limit")).to_contain_text("No limit of memory is set")
    expect(opened.locator("#stream-tiles")).to_contain_text("4,321")
    place.evaluate("(one) => { one.marked = one.figure; }")
    told(streamed, 1.0)
    eventually(opened, lambda: data(opened, "lines", "values", "stream-buffers")[0] == [151, 141, 131, 112])
    assert place.evaluate("(one) => one.marked === one.figure"), "the same figure, with newer values"
    join = {"held": 5, "needed": None, "allowed_bytes": 32 << 20, "held_bytes": 0, "allocated_bytes": 0, "streams": 1}
    told(streamed, 0.0, ended=True, joins={"a": {**join, "silent": 0, "scrambling_factor": 0, "lag": 0.0}})
    expect(opened.locator("#stream-state")).to_contain_text("It ended at")
    expect(opened.locator("#stream-limit")).to_have_text("What is held may take 32 MiB at most.")
    eventually(opened, lambda: len(data(opened, "lines", "values", "stream-held")) == 3)


def test_a_stream_that_was_killed_is_told_and_its_numbers_are_read_by_keyboard(
    page: Page, address: str, streamed: hg.OpenArchive
) -> None:
    told(streamed, 500.0)
    told(streamed, 400.0)
    page.goto(f"{address}#engine")
    expect(page.locator("#stream-state")).to_contain_text("Nothing was heard of it since")
    summary = page.locator("section[aria-labelledby=stream-title] summary")
    summary.focus()
    page.keyboard.press("Enter")
    table = page.locator("section[aria-labelledby=stream-title] table")
    expect(table).to_contain_text("scrambling factor")
    row = table.locator("tbody tr").filter(has_text="asked for (3.8)")
    expect(row).to_contain_text("500")
