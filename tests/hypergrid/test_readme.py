"""The README follows Q1 through the files: they are entered in its order, and its plan is the one that is made."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

import hypergrid as hg
from tests.bench.hypergrid_cases import Sample, Sizes, sample
from tests.support.entered_files import list_entered_files

ROOM = Path(hg.__file__).parent
SECTION = (ROOM / "README.md").read_text().split("## Q1, file by file")[1].split("\n## ")[0]
FILE = re.compile(r"`([a-z_/]+\.py)`")


@pytest.fixture(scope="module")
def made() -> Any:  # noqa: ANN401 - a generator of one sample
    with sample(Sizes(start="2007-10-01", days=4), lambda *_: None) as one:
        yield one


def test_the_plan_of_q1_is_the_one_that_the_readme_shows(made: Sample) -> None:
    shown = re.search(r"```text\n(.*?)\n *```", SECTION, re.DOTALL)
    assert shown
    lines = [line.removeprefix("   ") for line in shown[1].splitlines()]
    query = hg.open(made.archive).query(json.loads((ROOM.parent / "station_data/queries/q1.json").read_text()))
    assert lines == query.explain().splitlines()


def test_q1_enters_the_files_in_the_order_of_the_readme(made: Sample) -> None:
    document = made.query("q1")
    # What a process does once, such as to load kernels, is none of the query's path.
    hg.open(made.archive).query(document).compute()
    entered = list_entered_files(lambda: hg.open(made.archive).query(document).compute(), ROOM)
    items = re.split(r"\n\d+\. ", SECTION)[1:]
    assert len(items) == 17
    named = [FILE.findall(item) for item in items]
    assert all(named)
    files = {name for names in named for name in names}
    assert files <= set(entered)
    assert len(files) <= 40
    # Every item begins where the one before has begun.
    starts = [entered.index(names[0]) for names in named]
    assert all(one < other for one, other in itertools.pairwise(starts)), list(zip(starts, named, strict=True))
