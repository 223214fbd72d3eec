"""What covers what, and what some targets need of it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.topology import Cover, Regular, cover


def listed_one_by_one(found: Cover) -> list[list[int]]:
    ranges = zip(found.first.tolist(), found.stop.tolist(), strict=True)
    return [[int(k) if found.members is None else int(found.members[k]) for k in range(a, b)] for a, b in ranges]


@given(
    step=st.integers(1, 6),
    length=st.integers(1, 9),
    chosen=st.lists(st.integers(0, 9), min_size=1),
    mixed=st.sampled_from(["ranges", "members"]),
)
def test_part_of_a_cover_is_what_those_targets_cover(step: int, length: int, chosen: list[int], mixed: str) -> None:
    whole = cover(Regular("time", 0, 1, 70, 1), Regular("time", 0, step, 10, length))
    if mixed == "members":
        # Every other source cell first, as a target of several blocks has them.
        order = np.concatenate([np.arange(0, 70, 2), np.arange(1, 70, 2)])
        whole = Cover(whole.first, whole.stop, order)
    targets = np.unique(chosen)
    needed, part = whole.select_targets(targets)
    expected = [listed_one_by_one(whole)[target] for target in targets]
    assert [[int(needed[k]) for k in row] for row in listed_one_by_one(part)] == expected
    assert needed.tolist() == sorted({k for row in expected for k in row})
    assert part.list_members().tolist() == [k for row in listed_one_by_one(part) for k in row]
