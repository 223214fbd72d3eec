"""The benchmark of the automatic method: its fields, what it compares, and what it reports."""

import json

import numpy as np

from hypergrid.interpolation import Samples
from tests.bench.auto_fields import CELLS, KINDS, SLICES, generate_field
from tests.bench.bench_auto import SINGLE, judge_field, judge_samples, summarise, tables


def test_fields_differ_by_number_and_are_the_same_each_time() -> None:
    for kind in KINDS:
        made = generate_field(kind, 8, 0)
        assert made.readings.shape == (SLICES, 8)
        assert made.truth.shape == (SLICES, CELLS)
        assert made.truth.std() > 0
        np.testing.assert_array_equal(made.truth, generate_field(kind, 8, 0).truth)
        assert not np.array_equal(made.truth, generate_field(kind, 8, 1).truth)
    dry = np.mean([(generate_field("rain", 8, number).truth == 0).mean() for number in range(12)])
    assert 0.2 < dry < 0.6


def test_a_field_is_judged_by_the_true_cells() -> None:
    row = judge_field("trend", 40, 0)
    assert row.best in SINGLE
    assert row.over_inverse_distance < 1.0
    assert row.values == SLICES * CELLS
    assert 0.85 < row.inside_95 <= 1.0
    measured = {"case": "one", "judged": [vars(row)], **summarise([row])}
    assert measured["share_near_inverse_distance"] == 1.0
    assert list(measured["coverage_95"]) == ["generated, 40 stations"]
    json.dumps(measured)
    assert all(len(line) == len(columns) for _, columns, lines in tables(measured) for line in lines)


def test_stations_are_left_out_of_what_estimates_them() -> None:
    made = generate_field("smooth", 12, 0)
    row = judge_samples("made", "smooth", Samples.of(made.readings, made.positions_m))
    spread = float(made.readings.std())
    # A station that is known to the method would have no error.
    assert 0.1 * spread < row.rmse < 2.0 * spread
