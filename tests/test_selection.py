"""What a quick run leaves out, and that too small a share of a room's functions is a failure."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import selection
from tests.selection import Share, shares, spread

MODULE = """
import pytest
from hypothesis import given, settings, strategies as st

asked = []

@pytest.mark.parametrize("case", range(20))
def test_cases(case):
    print("case", case)

@settings(max_examples=500)
@given(st.integers())
def test_property(number):
    asked.append(number)

def test_how_many():
    print("examples", len(asked))

def test_with_spark(spark):
    pass

@pytest.mark.soak
def test_soak():
    pass
"""


@pytest.mark.parametrize(("cases", "maximum", "expected"), [(0, 6, []), (6, 6, range(6)), (20, 3, [0, 10, 19])])
def test_cases_are_spread_from_the_first_to_the_last(cases: int, maximum: int, expected: list[int]) -> None:
    assert spread(cases, maximum) == list(expected)


def test_a_share_is_that_of_functions_and_enough_from_seven_tenths_on() -> None:
    all_of = [("ingest/test_a.py", f"test_{number}") for number in range(10)] + [("test_top.py", "test_a")]
    assert shares(all_of, all_of[:7]) == [Share("ingest", 7, 10), Share("tests", 0, 1)]
    assert Share("ingest", 7, 10).is_enough
    assert not Share("ingest", 6, 10).is_enough
    assert Share("ingest", 7, 10).describe() == "ingest: 7 of 10 test functions (70%)"


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/ingest/spark/test_s3.py::test_a[x::y]", "spark"),
        ("tests/bench/test_wo_join_bench.py::test_a", "spark"),
        ("tests/ingest/test_job.py::TestA::test_a", "tests/ingest/test_job.py"),
    ],
)
def test_files_stay_together_and_those_of_spark_too(nodeid: str, expected: str) -> None:
    assert selection.group(nodeid) == expected


def test_whoever_uses_the_session_of_spark_stands_among_those_of_spark() -> None:
    users = [
        path
        for path in selection.TESTS.rglob("test_*.py")
        if re.search(r'spark: "?SparkSession', path.read_text("utf-8"))
    ]
    assert len(users) > 2
    places = [path.relative_to(selection.TESTS.parent).as_posix() for path in users]
    assert [place for place in places if selection.group(f"{place}::test_a") != "spark"] == []


def test_each_function_that_is_marked_exists() -> None:
    tables = [*selection.OF_FUNCTIONS.values(), selection.LONG]
    marked = [(place, name) for files in tables for place in files for name in files[place]]
    texts = {place: (selection.TESTS / place).read_text("utf-8") for place, _ in marked}
    assert [(place, name) for place, name in marked if f"def {name}(" not in texts[place]] == []
    assert all((selection.TESTS / start).exists() for start in selection.OF_PATHS)


def _checkout(folder: Path, *, long: str = "") -> Path:
    """Make a folder of tests with the selection, and return its only room."""
    room = folder / "room"
    room.mkdir()
    shutil.copy(selection.__file__, folder / "selection.py")
    (folder / "conftest.py").write_text(
        'import pytest\nimport selection\n\npytest_plugins = ["selection"]\nspark = pytest.fixture(lambda: None)\n'
        + long
    )
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = .\naddopts = -m 'not soak'\nmarkers =\n  spark\n  soak\n")
    return room


@pytest.mark.parametrize(("marks", "cases", "examples", "others"), [("not soak", 2, 30, 2), ("soak", 20, 500, 4)])
def test_long_proofs_are_short_but_in_the_soak(
    tmp_path: Path, marks: str, cases: int, examples: int, others: int
) -> None:
    kept = {"test_cases": 2, "test_property": 30, "test_with_spark": 0}
    asked = f'{{name: selection.Less(kept, "a reason") for name, kept in {kept}.items()}}'
    room = _checkout(tmp_path, long=f'selection.LONG["room/test_one.py"] = {asked}')
    # In the soak, the count of examples runs beside the property.
    (room / "test_one.py").write_text(
        MODULE.replace("def test_how_many", "@pytest.mark.soak\n" * (marks == "soak") + "def test_how_many")
    )
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", marks]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("case ") == cases
    assert f"examples {examples}" in answer.stdout
    assert f"{cases + others} passed" in answer.stdout


@pytest.mark.parametrize(("beside", "status"), [(0, 0), (1, 1)])
def test_a_quick_run_thins_and_fails_where_too_little_is_left(tmp_path: Path, beside: int, status: int) -> None:
    """Beside three functions that are run, one that is left out is little enough; a second one is not."""
    room = _checkout(tmp_path)
    more = "".join(f"def test_more_{number}(spark):\n    pass\n" for number in range(beside))
    (room / "test_one.py").write_text(MODULE + more)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--quick"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == status, answer.stdout + answer.stderr
    assert answer.stdout.count("case ") == selection.MOST_CASES
    assert "examples 100" in answer.stdout
    assert f"room: 3 of {4 + beside} test functions" in answer.stdout
    assert ("room has less than 70% of its functions" in answer.stdout) == bool(status)
