"""Net changes of rows, and the numbers of rows, beside plain counting."""

from collections import Counter

import numpy as np
import pytest

from hypergrid.continuous.engine.batch import elements_of
from hypergrid.continuous.engine.kernels.bags import FEW
from hypergrid.continuous.engine.operators.bags import LEAST, Netting
from hypergrid.continuous.engine.row_table import RowTable

Change = tuple[int, int, int]


def draw_changes(rng: np.random.Generator, sizes: list[int]) -> list[Change]:
    """Return instants, signs and rows: as many elements of each instant as is given, of which some leave, or none."""
    changes: list[Change] = []
    for tau, size in enumerate(sizes):
        leaving = 0.0 if rng.random() < 0.3 else 0.5
        signs = np.where(rng.random(size) < leaving, -1, 1).tolist()
        changes += [(tau, sign, row) for sign, row in zip(signs, rng.integers(0, 9, size).tolist(), strict=True)]
    return changes


def net(changes: list[Change], shown: int) -> Counter[Change]:
    counts = Counter[tuple[int, int]]()
    for tau, sign, row in changes:
        counts[tau, row] += sign
    listed = {(tau, 1 if count > 0 else -1, row): abs(count) for (tau, row), count in counts.items() if count}
    return Counter({key: count for key, count in listed.items() if shown in (0, key[1])})


@pytest.mark.parametrize("shown", [-1, 0, 1])
def test_changes_are_net_in_sparse_and_crowded_instants(shown: int) -> None:
    rng = np.random.default_rng(7)
    netting = Netting(1)
    many = [1] * LEAST
    for sizes in ([1], [3, 2], [FEW], [FEW + 1], [2, 5, FEW, FEW + 1, 3], [1, 100, 1, 40, 2], [*many, 50, *many]):
        for _ in range(20):
            changes = draw_changes(rng, sizes)
            tau, sign, row = (np.array(part, np.int64) for part in zip(*changes, strict=True))
            kept = netting.apply(elements_of(tau, sign.astype(np.int8), [row]), [0], shown)
            rows = zip(kept.tau.tolist(), kept.signs().tolist(), kept.column(0).tolist(), strict=True)
            assert Counter(rows) == net(changes, shown), sizes
            assert not netting._count.any()


def test_what_enters_keeps_the_order_of_its_elements() -> None:
    netting = Netting(1)
    # An equal one that leaves takes the last of two away.
    row = np.array([4, 5, 4, 4, 6])
    elements = elements_of(np.zeros(5, np.int64), np.array([1, 1, 1, -1, 1], np.int8), [row, np.arange(5)])
    assert netting.apply(elements, [0], 1).column(1).tolist() == [0, 1, 4]


@pytest.mark.parametrize("width", [1, 2])
def test_equal_rows_have_one_number_also_of_great_and_negative_integers(width: int) -> None:
    rng = np.random.default_rng(width)
    table, known = RowTable(width), dict[tuple[int, ...], int]()
    # Small integers are found directly, others by their hash; a table grows while it numbers.
    values = np.array([*range(80), -1, -(2**63), 2**63 - 1, *(10**12 + np.arange(80))])
    for step in range(50):
        rows = values[rng.integers(0, len(values), (60, width))]
        numbers = table.intern(rows).tolist()
        for row, number in zip(map(tuple, rows.tolist()), numbers, strict=True):
            assert known.setdefault(row, number) == number
            assert tuple(table.all_keys[number].tolist()) == row
        assert len(set(known.values())) == len(known)
        if step % 7 == 0:
            # What is released next was numbered before the state was saved.
            saved, table = table.save(), RowTable(width)
            table.load(saved)
        gone = [row for row in known if rng.random() < 0.2]
        table.release(np.array([known.pop(row) for row in gone], np.int64))
