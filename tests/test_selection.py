"""What a quick run leaves out, and that too small a share of a room's functions is a failure."""

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


@pytest.mark.parametrize(("cases", "most", "expected"), [(0, 6, []), (6, 6, range(6)), (20, 3, [0, 10, 19])])
def test_cases_are_spread_from_the_first_to_the_last(cases: int, most: int, expected: list[int]) -> None:
    assert spread(cases, most) == list(expected)


def test_a_share_is_that_of_functions_and_enough_from_seven_tenths_on() -> None:
    all_of = [("ingest/test_a.py", f"test_{number}") for number in range(10)] + [("test_top.py", "test_a")]
    assert shares(all_of, all_of[:7]) == [Share("ingest", 7, 10), Share("tests", 0, 1)]
    assert Share("ingest", 7, 10).is_enough
    assert not Share("ingest", 6, 10).is_enough
    assert Share("ingest", 7, 10).describe() == "ingest: 7 of 10 test functions (70%)"


def test_each_function_that_is_marked_exists() -> None:
    marked = [(place, name) for files in selection.OF_FUNCTIONS.values() for place in files for name in files[place]]
    texts = {place: (selection.TESTS / place).read_text("utf-8") for place, _ in marked}
    assert [(place, name) for place, name in marked if f"def {name}(" not in texts[place]] == []
    assert all((selection.TESTS / start).exists() for start in selection.OF_PATHS)


@pytest.mark.parametrize(("beside", "status"), [(0, 0), (1, 1)])
def test_a_quick_run_thins_and_fails_where_too_little_is_left(tmp_path: Path, beside: int, status: int) -> None:
    """Beside three functions that are run, one that is left out is little enough; a second one is not."""
    room = tmp_path / "room"
    room.mkdir()
    shutil.copy(selection.__file__, tmp_path / "selection.py")
    (tmp_path / "conftest.py").write_text(
        'import pytest\n\npytest_plugins = ["selection"]\nspark = pytest.fixture(id)\n'
    )
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntestpaths = .\naddopts = -m 'not soak'\nmarkers =\n  spark\n  soak\n"
    )
    more = "".join(f"def test_more_{number}(spark):\n    pass\n" for number in range(beside))
    (room / "test_one.py").write_text(MODULE + more)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--quick"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == status, answer.stdout + answer.stderr
    assert answer.stdout.count("case ") == selection.MOST_CASES
    assert "examples 100" in answer.stdout
    assert f"room: 3 of {4 + beside} test functions" in answer.stdout
    assert ("room has less than 70% of its functions" in answer.stdout) == bool(status)
