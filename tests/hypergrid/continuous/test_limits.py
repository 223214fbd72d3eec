"""Windows of queries that end: refused before anything is read if they need more memory than is allowed."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.continuous import limits
from hypergrid.continuous.query import LiveArchive
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS
from tests.support.continuous_live_archives import commit, create, draw_commits
from tests.support.networks import START_NS

TEXT = "Select station, count(*) as k From air_temperature [Range 2 Hours] Group By station"


def open_grown(folder: Path) -> LiveArchive:
    create(folder)
    for number, parts in enumerate(draw_commits(1, 2)):
        commit(folder, number, parts)
    archive = hg.continuous(folder)
    assert isinstance(archive, LiveArchive)
    return archive


def refuse(call: Callable[[], object]) -> tuple[int, int, str]:
    """Return what was needed, what was allowed, and the range that would fit, of a call that is refused."""
    with pytest.raises(InvalidQuery, match=r"need [\d,]+ bytes .* and may take [\d,]+; most is held by") as refused:
        call()
    words = str(refused.value)
    needed, allowed = (int(each.replace(",", "")) for each in re.findall(r"(?:need|take) ([\d,]+)", words))
    return needed, allowed, words.split("What would fit: ")[1].split(" in place")[0]


def test_a_run_whose_windows_exceed_what_is_allowed_is_refused(tmp_path: Path) -> None:
    archive = open_grown(tmp_path / "a")
    query = archive.query(TEXT)
    needed, allowed, fitting = refuse(lambda: query.run(allowed_bytes=1000))
    assert (needed > 1000, allowed) == (True, 1000)
    assert needed == pytest.approx(limits.project_bytes(query.rewritten.tree, query.catalogue.rates), abs=0.5)
    assert refuse(lambda: next(query.iterate(allowed_bytes=1000)))[:2] == (needed, 1000)
    assert refuse(lambda: query.relation(START_NS + 10**14, allowed_bytes=1000))[:2] == (needed, 1000)
    assert len(query.run(allowed_bytes=needed + 1))
    shorter = archive.query(TEXT.replace("[Range 2 Hours]", fitting))
    assert len(shorter.run(allowed_bytes=1000)) > 0
    assert 900 < limits.project_bytes(shorter.rewritten.tree, query.catalogue.rates) <= 1000


def test_a_slide_is_suggested_where_sums_in_place_of_rows_fit(tmp_path: Path) -> None:
    archive = open_grown(tmp_path / "a")
    query = archive.query(TEXT)
    wanted = archive.query(TEXT.replace("2 Hours", "2 Hours Slide 10 Minutes"))
    known = wanted.catalogue
    allowed = int(limits.project_bytes(wanted.rewritten.tree, known.rates, known.counts, known.groups)) + 1
    with pytest.raises(InvalidQuery) as refused:
        query.run(allowed_bytes=allowed)
    [slide] = re.findall(r"Slide ([^,]+?) in it, as its aggregates are then kept by pane", str(refused.value))
    slid = archive.query(TEXT.replace("2 Hours", f"2 Hours Slide {slide}"))
    assert len(slid.run(allowed_bytes=allowed)) > 0
    # A shorter range keeps the slide, without which rows would be held.
    half = allowed // 2
    with pytest.raises(InvalidQuery) as refused:
        wanted.run(allowed_bytes=half)
    [shorter] = re.findall(r"fit: (\[Range [^\]]+ Slide 10 Minutes\]) in place", str(refused.value))
    fitting = archive.query(TEXT.replace("[Range 2 Hours]", shorter))
    assert len(fitting.run(allowed_bytes=half)) > 0
    assert 0.9 * half < limits.project_bytes(fitting.rewritten.tree, known.rates, known.counts, known.groups) <= half
    # Values that are kept do not get fewer by a slide.
    middle = archive.query(TEXT.replace("count(*)", "median(value)"))
    with pytest.raises(InvalidQuery) as refused:
        middle.run(allowed_bytes=allowed)
    assert "Slide" not in str(refused.value)


def test_half_of_the_free_memory_is_allowed_unless_said_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = open_grown(tmp_path / "a").query(TEXT)
    monkeypatch.setattr(limits, "free_bytes", lambda: 1200)
    assert refuse(query.run)[1] == 600
    assert len(query.run(allowed_bytes=10**6))


def test_windows_hold_no_more_than_the_stretch_has(tmp_path: Path) -> None:
    query = open_grown(tmp_path / "a").query(TEXT.replace("2 Hours", "900 Days"))
    count = len(hg.continuous(tmp_path / "a").query("Select * From air_temperature Where flag > 0").run())
    assert query.catalogue.counts["air_temperature"] == count
    row_bytes = limits.project_bytes(query.rewritten.tree, query.catalogue.rates, {"air_temperature": 1.0})
    assert refuse(lambda: query.run(allowed_bytes=1000))[0] == round(count * row_bytes)
    # Of a stretch of half an hour, the rows of half an hour.
    stretch = (START_NS, START_NS + 1800 * SECOND_NS)
    half = refuse(lambda: query.run(*stretch, allowed_bytes=100))[0]
    assert half == pytest.approx(query.catalogue.rates["air_temperature"] * 1800 * row_bytes, abs=0.5)


def test_tables_have_the_same_limit() -> None:
    frame = pd.DataFrame({"tau": np.arange(100) * SECOND_NS, "station": "a", "value": 1.0})
    query = hg.continuous({"S": frame}).query("Select count(*) as k From S [Range 50 Seconds]")
    needed, allowed, fitting = refuse(lambda: query.run(allowed_bytes=500))
    assert (needed, allowed) == (round(100 / 99 * 50 * 16), 500)
    refuse(lambda: query.relation(10 * SECOND_NS, allowed_bytes=500))
    assert fitting == "[Range 30 Seconds]"
    # No more rows than there are, however long the window is.
    endless = hg.continuous({"S": frame}).query("Select count(*) as k From S [Range 5000 Days]")
    assert len(endless.run(allowed_bytes=100 * 16)) == len(endless.run())


@pytest.mark.parametrize(
    "text",
    [
        "Select station, avg(value) as mean From air_temperature [Partition By station Rows 50,000] Group By station",
        "Select a.station, b.value From air_temperature [Unbounded] a, stations b_s, air_temperature [Now] b "
        "Where a.station = b.station And b.station = b_s.station",
    ],
)
def test_windows_by_group_and_unbounded_ones_that_are_kept_count(tmp_path: Path, text: str) -> None:
    query = open_grown(tmp_path / "a").query(text)
    needed, _, _ = refuse(lambda: query.run(allowed_bytes=1000))
    assert len(query.run(allowed_bytes=needed + 1))
