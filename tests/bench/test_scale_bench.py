"""The benchmark of large queries in small: memory as projected, and what it says. No time is tested."""

import json
from pathlib import Path

from tests.bench.bench_scale import CASES, GROUPS, measure, tables
from tests.bench.scale_cases import SCALED, Scale

SMALL = Scale(stations=4_000, side=40, readings=5 * 52_560)


def test_queries_take_what_is_projected(tmp_path: Path) -> None:
    measured = measure("needed", pairs=1, scale=SMALL, folder=tmp_path)
    rows = {row["name"]: row for row in json.loads(json.dumps(measured, allow_nan=False))["queries"]}
    assert list(rows) == ["kriging", "monthly mean"]
    for row in rows.values():
        assert row["projected_s"] > 0
        if row["peak_bytes"] is not None:
            assert row["projected_bytes"] / 3 < row["peak_bytes"] < 1.5 * row["projected_bytes"]
    memory, times, blocks = tables(measured)
    assert [line[0] for line in memory[2]] == [line[0] for line in times[2]] == list(rows)
    assert [line[0] for line in blocks[2]] == list(rows)


def test_every_query_can_be_asked_for() -> None:
    assert set(SCALED) <= set(CASES)
    assert GROUPS["needed"] == ("kriging", "monthly mean")
