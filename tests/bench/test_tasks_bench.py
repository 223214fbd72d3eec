"""The ten tasks: both sides answer each of them, and neither is far from the truth."""

import json
from pathlib import Path

import pytest

from tests.bench.bench_tasks import FOLDER, PEERS, count_lines, has_solution, judge, make_data, solve, tables
from tests.bench.task_judging import TASKS

BOUNDS = {
    "day_map": 0.6,
    "hourly_means": 0.6,
    "three_day_map": 0.6,
    "frost": 0.3,
    "region_interval": 0.5,
    "catchment_rain": 2.0,
    "mean_wind": 1.5,
    "terrain_map": 0.7,
    "place_series": 1.0,
    "known_then": 5.0,
}
"""Errors above which a solution is wrong, not just worse."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_data(tmp_path_factory.mktemp("tasks") / "data")
    for peer in ("by_hand", "hypergrid"):
        solve("prepare", peer, made, runs=0)
    return made


@pytest.mark.parametrize("name", [name for name in TASKS if name != "three_day_map"])
def test_both_sides_answer(name: str, data: Path) -> None:
    for peer in ("by_hand", "hypergrid"):
        row = judge(name, peer, data, runs=1)
        error = next(iter(row["errors"].values()))
        assert 0 <= error < BOUNDS[name], row
        assert row["lines"] >= 5


def test_what_is_committed_is_what_the_bench_measures() -> None:
    measured = json.loads((FOLDER / "measured.json").read_text(encoding="utf-8"))
    listed = {(row["task"], row["peer"]) for row in (*measured["prepare"], *measured["tasks"])}
    files = {(name, peer) for name in ("prepare", *TASKS) for peer in PEERS if has_solution(name, peer)}
    assert listed == files
    for row in (*measured["prepare"], *measured["tasks"]):
        assert row["lines"] == count_lines(FOLDER / f"{row['task']}_{row['peer']}.py"), row
    ((_, columns, rows),) = tables(measured)
    assert {len(row) for row in rows} == {len(columns)}


def test_blank_lines_comments_and_docstrings_are_no_code(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(
        '"""Title.\n\nText.\n"""\n\n# why\nx = (\n    1,\n)\n\n\ndef f():\n    """Do."""\n    return x\n'
    )
    assert count_lines(tmp_path / "x.py") == 5
