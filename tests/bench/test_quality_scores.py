"""Shifts, blocked gauges and true events on simulated networks, smaller than the benchmark."""

from dataclasses import replace

import numpy as np
import pytest

from ingest.quality.blocks import BLOCK_NS
from tests.bench import quality_scores
from tests.bench.quality_networks import SHAPES, shift_of, station_years

SEED = 411
"""No threshold was chosen on it."""


@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[3]], ids=lambda shape: shape.name)
def test_shifts_are_known_of_within_a_day_and_flagged_for_weeks(shape: object) -> None:
    [row] = quality_scores.shifts([SEED], each=4, sizes=[6.0], shapes=[shape])  # type: ignore[list-item]
    assert row["found"] == 4
    assert row["share_of_shift_suspect"] > 0.9
    assert row["share_after_suspect"] < 0.1
    assert row["share_of_others_suspect"] < 0.01


def test_what_a_shift_changes_is_what_judging_all_of_it_says() -> None:
    network = station_years(replace(SHAPES[3], stations=6), SEED, days=230)
    levels, day_ns = quality_scores._Levels(network), quality_scores.DAY_NS
    for seed, days in ((1, 1), (2, 9), (3, 1)):
        shift = shift_of(network, 6.0, network.spread(), seed)
        until = shift.start_ns + days * day_ns
        begin, _, found = levels.planted(shift, until)
        readings, _, tests = quality_scores.judged(shift.plant(network.between(0, until)))
        bad = quality_scores._by("level_shift", tests)
        block = readings.time_ns // BLOCK_NS - begin
        late = block >= 0
        assert bad[late].any()
        np.testing.assert_array_equal(found[readings.index[late], block[late]], bad[late])


def test_sound_stations_are_let_alone() -> None:
    rows = quality_scores.false_shifts([SEED], shapes=[SHAPES[1]], days=240)
    assert rows[-1]["station_years"] > 13.0
    assert rows[-1]["false_alarms_a_station_year"] <= 0.1


def test_blocked_gauges_are_found_and_sound_ones_let_alone() -> None:
    rows = quality_scores.zeros([SEED], days=60)
    missed = [row for row in rows if row["missed_mm_from"] is not None and row["missed_mm_from"] >= 20.0]
    assert sum(row["planted"] for row in missed) > 0
    assert sum(row["found"] for row in missed) >= 0.9 * sum(row["planted"] for row in missed)
    totals = [row for row in rows if row["missed_mm_from"] is None]
    assert all(row["false_alarms_a_gauge_year"] <= 0.5 for row in totals)


def test_cloudbursts_and_fronts_stay_good() -> None:
    rows = quality_scores.events(range(SEED, SEED + 4))
    assert {row["event"] for row in rows} == {"cloudburst", "front"}
    assert sum(row["events_hurt"] for row in rows) == 0, rows


def test_networks_are_those_of_their_seed() -> None:
    shape = replace(SHAPES[1], stations=4)
    one, other = (station_years(shape, SEED, days=20) for _ in range(2))
    assert one.readings().value.tolist() == other.readings().value.tolist()
    assert 0.2 < one.spread() < 3.0
