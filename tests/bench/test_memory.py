"""Memory as it is: in a fresh process a query's peak stays below what its plan projects, and is at least half of it."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.bench.memory_cases import FEW_SLICES, MEMORY_CASES, measured


def test_cases_grow_to_four_gigabytes_beyond_what_is_allowed() -> None:
    sizes = [one.case.output_bytes for one in MEMORY_CASES.values()]
    assert all(small < large for small, large in pairwise(sizes))
    largest = list(MEMORY_CASES.values())[-1]
    assert largest.allowed_bytes is not None
    assert 4 * largest.allowed_bytes <= largest.case.output_bytes


def in_order() -> list[object]:
    names = list(MEMORY_CASES)
    return [*names[:-1], pytest.param(names[-1], marks=pytest.mark.soak)]


@pytest.mark.parametrize("name", in_order())
def test_a_query_takes_what_its_plan_projects(name: str, tmp_path: Path) -> None:
    found = measured(name, tmp_path)
    if found.peak_bytes is None:
        pytest.skip("this system does not say what a process held at most")
    sizes = f"peak {found.peak_bytes / 2**20:.1f} MiB, projected {found.projected_bytes / 2**20:.1f} MiB"
    assert found.peak_bytes <= found.projected_bytes, sizes
    assert found.projected_bytes <= 2 * found.peak_bytes, sizes
    allowed = MEMORY_CASES[name].allowed_bytes
    if allowed is not None:
        assert found.projected_bytes <= allowed < found.surface_bytes


def test_what_is_kept_for_the_next_query_is_projected(tmp_path: Path) -> None:
    found = measured(FEW_SLICES, tmp_path)
    if found.peak_bytes is None:
        pytest.skip("this system does not say what a process held at most")
    assert 0.1 * found.projected_bytes <= found.peak_bytes <= found.projected_bytes
