"""Engine: how it is, in sentences; for developers plans as graphs, what moves, caches, choices, snapshots."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

import hypergrid as hg
from hypergrid.archive.arrays import stream_log
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.times import SECOND_NS
from hypergrid.execution.planning import explain
from tests.browser.pages import SMALL, data, eventually, press_until, run, show

pytestmark = pytest.mark.browser


NOW: Final = "2025-06-01T14:53:00Z"
GIB: Final = 2**30
CALM: Final[dict[str, Any]] = {
    "engine": {
        "queries": {"running": 1, "queued": 0, "capacity": 100, "workers": 2},
        "process": {"resident_bytes": GIB // 2},
        "memory": {"free_bytes": 6 * GIB, "total_bytes": 16 * GIB},
        "disk": {"free_bytes": 300 * GIB, "total_bytes": 400 * GIB},
    },
    "health": [
        {"state": "reporting", "heard": "2025-06-01T14:50:00Z", "interval_s": 1800},
        {"state": "reporting", "heard": "2025-06-01T14:40:00Z", "interval_s": 1800},
    ],
    "snapshots": [{"time": "2025-06-01T14:50:20Z"}],
    "standing": {"queries": 12, "queue": 0, "oldest_s": 0, "failing": [], "trouble": "", "overloaded": False},
    "entries": [],
    "stream": None,
    "troubles": {},
}
"""What the API tells of an engine where all is well."""


def among(told: Mapping[str, Any], *path: str, **values: object) -> dict[str, Any]:
    """Return what is told with other values at a place."""
    if not path:
        return {**told, **values}
    return {**told, path[0]: among(told[path[0]], *path[1:], **values)}


LATE: Final = [
    *CALM["health"],
    {"state": "late", "heard": "2025-06-01T12:00:00Z", "interval_s": 1800},
    {"state": "dead", "heard": None, "interval_s": None},
]
RUNNING: Final = {"state": "running", "record": {"at": NOW, "last_slice": "2025-06-01T14:52:30Z", "behind": 3}}
# Topic, state, and what the sentence says.
SENTENCES: Final[dict[str, tuple[dict[str, Any], str, str, str]]] = {
    "up to date": (
        CALM, "readings", "good",
        "The newest reading is of 14:50 UTC, 3 min ago; the newest commit followed 20 s later.",
    ),
    "of another day": (
        among(CALM, snapshots=[{"time": "2025-06-03T01:02:03Z"}]), "readings", "good",
        "The newest reading is of 14:50 UTC, 3 min ago; the newest commit is of 2025-06-03 01:02:03 UTC.",
    ),
    "quiet for hours": (
        among(CALM, health=[{"state": "late", "heard": "2025-06-01T11:23:00Z", "interval_s": 1800}]), "readings",
        "attention", "silent for 30 min at most as a rule: see whether what feeds this archive still runs.",
    ),
    "quiet for years": (
        among(CALM, health=[{"state": "reporting", "heard": "2007-10-01T00:00:00Z", "interval_s": 1800}]), "readings",
        "attention", "18 years ago; the newest commit is of 14:50 UTC. If the network should be live,",
    ),
    "never a reading": (among(CALM, health=[]), "readings", "attention", "No station has sent a reading yet."),
    "all report": (CALM, "stations", "good", "All 2 stations report."),
    "some are late": (
        among(CALM, health=LATE), "stations", "attention", "2 of 4 stations report; 1 is late and 1 has stopped.",
    ),
    "fresh": (CALM, "standing", "good", "All 12 standing queries are fresh."),
    "one is fresh": (among(CALM, "standing", queries=1), "standing", "good", "The standing query is fresh."),
    "none stands": (
        among(among(CALM, "standing", queries=0), entries=[{"paused": True}]), "standing", "good",
        "No standing query is followed. 1 more is paused.",
    ),
    "some wait": (
        among(CALM, "standing", queue=3, oldest_s=40), "standing", "good",
        "3 of 12 standing queries wait to be evaluated, the longest for 40 s: others are being evaluated.",
    ),
    "too many wait": (
        among(CALM, "standing", queue=3, oldest_s=90, overloaded=True), "standing", "attention",
        "readings come faster than all of them can be evaluated, so those that matter most go first.",
    ),
    "some fail": (
        among(CALM, "standing", failing=["frost", "storm"]), "standing", "bad",
        "frost and storm fail and are tried again",
    ),
    "nothing is kept": (
        among(CALM, "standing", trouble="the disk is full"), "standing", "bad",
        "Standing queries cannot be kept up to date: the disk is full.",
    ),
    "a query runs": (CALM, "queries", "good", "1 query runs; none waits."),
    "queries wait": (
        among(CALM, "engine", "queries", queued=3, running=2), "queries", "attention",
        "3 queries wait for a turn: 2 run already, at most 2 at once.",
    ),
    "no more are taken": (
        among(CALM, "engine", "queries", queued=100), "queries", "bad", "All 100 waiting places are taken",
    ),
    "room": (CALM, "disk", "good", "The archive's disk is 25 % full: 300 GiB of 400 GiB are free."),
    "little room": (
        among(CALM, "engine", "disk", free_bytes=20 * GIB), "disk", "attention", "is 95 % full: 20 GiB of 400 GiB",
    ),
    "no room": (among(CALM, "engine", "disk", free_bytes=GIB), "disk", "bad", "is 100 % full"),
    "a disk that cannot be asked": (
        among(CALM, "engine", disk=None), "disk", "attention", "How full the archive's disk is cannot be found out.",
    ),
    "memory": (
        CALM, "memory", "good", "The server takes 512 MiB of memory; of the machine's 16 GiB, 6 GiB are free.",
    ),
    "little memory": (among(CALM, "engine", "memory", free_bytes=GIB), "memory", "attention", "1 GiB are free."),
    "a stream": (
        among(CALM, stream=RUNNING), "stream", "good",
        "The stream runs; its newest slice ended 30 s ago; 3 records wait for the next batch.",
    ),
    "a stream that ended": (
        among(CALM, stream={**RUNNING, "state": "ended"}), "stream", "attention", "The stream ended at 14:53 UTC",
    ),
    "a stream that was killed": (
        among(CALM, stream={**RUNNING, "state": "lost"}), "stream", "bad", "Nothing was heard of the stream since 14:5",
    ),
    "what the server complains of": (
        among(CALM, troubles={"keys": "nobody is let in"}), "keys", "bad", "Keys: nobody is let in.",
    ),
}  # fmt: skip
"""Cases of the summary: what is told, and the sentence that it makes."""
SUMMARISE: Final = """async ([cases, now]) => {
  const { summarise } = await import("./static/summary.js");
  return cases.map((told) => summarise({ ...told, now: Date.parse(now) }));
}"""


def test_the_summary_says_what_is_told(opened: Page) -> None:
    said = opened.evaluate(SUMMARISE, [[told for told, *_ in SENTENCES.values()], NOW])
    for (name, (_, topic, state, words)), sentences in zip(SENTENCES.items(), said, strict=True):
        (found,) = [sentence for sentence in sentences if sentence["topic"] == topic]
        assert found["state"] == state, (name, found)
        assert words in found["text"], name
    calm = opened.evaluate(SUMMARISE, [[CALM, among(CALM, standing=None)], NOW])
    topics = ["readings", "stations", "standing", "queries", "disk", "memory"]
    assert [[sentence["topic"] for sentence in one] for one in calm] == [
        topics, [topic for topic in topics if topic != "standing"],
    ]  # fmt: skip
    # A machine that does not tell its memory, or an older server, is said nothing of.
    bare = among(CALM, "engine", "memory", total_bytes=None)
    assert "memory" not in [one["topic"] for one in opened.evaluate(SUMMARISE, [[bare], NOW])[0]]


def test_the_page_begins_with_the_summary_and_folds_the_rest(opened: Page) -> None:
    show(opened, "Engine")
    lines = opened.locator("#engine-summary li")
    expect(lines.filter(has_text="The newest reading is of 2007-10-")).to_have_class("attention")
    expect(lines.filter(has_text="The archive's disk is")).to_be_visible()
    expect(lines.filter(has_text="No standing query is followed.")).to_contain_text("Good")
    assert opened.locator("details.block[open]").count() == 0
    press_until(opened, "now-summary")
    opened.keyboard.press("Enter")
    expect(opened.locator("#tiles")).to_contain_text("Queries running")


def unfold(page: Page, name: str) -> None:
    """Go to the page, and open a section of it."""
    show(page, "Engine")
    page.locator(f"#{name}-summary").click()


def test_the_plan_of_a_query_is_a_graph(opened: Page) -> None:
    run(opened, SMALL)
    unfold(opened, "plan")
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
    unfold(opened, "plan")
    opened.get_by_label("Plan of", exact=True).select_option("saved:q4")
    expect(opened.get_by_role("img", name="A plan of 5")).to_contain_text("not computed here yet")
    expect(opened.locator("#plan-graph")).not_to_contain_text("in the time of")


def test_a_plan_is_chosen_by_keyboard_and_linked(opened: Page, address: str) -> None:
    unfold(opened, "plan")
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
    unfold(opened, "moving")
    opened.wait_for_selector("#page-engine .picture canvas")
    place = opened.locator("#page-engine .picture").first
    eventually(opened, lambda: bool(place.evaluate("(one) => Boolean(one.figure)")))
    place.evaluate("(one) => { one.id = 'moving'; one.marked = one.figure; }")
    before = len(data(opened, "lines", "times", "moving")[0])
    eventually(opened, lambda: len(data(opened, "lines", "times", "moving")[0]) >= before + 2)
    assert place.evaluate("(one) => one.marked === one.figure"), "the same figure, with newer values"


def test_caches_choices_and_snapshots(opened: Page, archive: hg.OpenArchive) -> None:
    show(opened, "Engine")
    for name in ("choices", "caches", "snapshots", "now"):
        opened.locator(f"#{name}-summary").click()
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
    unfold(opened, "stream")
    expect(opened.locator("#no-stream")).to_contain_text("hypergrid stream ARCHIVE --deployment FILE")
    expect(opened.locator("#stream-tiles")).to_be_hidden()


def test_a_stream_is_shown_as_it_moves(opened: Page, streamed: hg.OpenArchive) -> None:
    unfold(opened, "stream")
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
    join = {
        "held": 5,
        "needed": None,
        "allowed_bytes": 32 << 20,
        "held_bytes": 0,
        "allocated_bytes": 0,
        "streams": 1,
        "order": "time",
    }
    told(streamed, 0.0, ended=True, joins={"a": {**join, "silent": 0, "scrambling_factor": 0, "lag": 0.0}})
    expect(opened.locator("#stream-state")).to_contain_text("It ended at")
    expect(opened.locator("#stream-limit")).to_have_text(
        "What is held may take 32 MiB of memory at most (memory in the deployment file); older rows wait on disk until "
        "their slices close. Slices close in order of time."
    )
    eventually(opened, lambda: len(data(opened, "lines", "values", "stream-held")) == 3)


def test_a_stream_that_was_killed_is_told_and_its_numbers_are_read_by_keyboard(
    page: Page, address: str, streamed: hg.OpenArchive
) -> None:
    told(streamed, 500.0)
    told(streamed, 400.0)
    page.goto(f"{address}#engine")
    expect(page.locator("#engine-summary li.bad")).to_contain_text("Nothing was heard of the stream since")
    page.locator("#stream-summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#stream-state")).to_contain_text("Nothing was heard of it since")
    summary = page.locator("#stream details summary")
    summary.focus()
    page.keyboard.press("Enter")
    table = page.locator("#stream table")
    expect(table).to_contain_text("scrambling factor")
    row = table.locator("tbody tr").filter(has_text="asked for (3.8)")
    expect(row).to_contain_text("500")
